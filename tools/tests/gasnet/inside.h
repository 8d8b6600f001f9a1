/* A stand-in for tests, not GASNet: see gasnetex.h. What its files have in common. */
#ifndef STAND_IN_INSIDE_H
#define STAND_IN_INSIDE_H

#include "gasnet_coll.h"

enum { MOST_RANKS = 256, SLOTS = 8, MOST_MEDIUM = 65000, MOST_ARGUMENTS = 2, BOARD = 64 << 10 };
#define MOST_SEGMENT ((size_t)64 << 20)

enum { REQUESTS, REPLIES };
enum { SHORT = GEX_FLAG_AM_SHORT, MEDIUM = GEX_FLAG_AM_MEDIUM, LONG = GEX_FLAG_AM_LONG };

struct message {
    gex_Rank_t from;
    gex_AM_Index_t handler;
    gex_Flags_t kind, role;
    unsigned int count;
    gex_AM_Arg_t arguments[MOST_ARGUMENTS];
    size_t length;
    void *destination;
    char payload[MOST_MEDIUM];
};

struct ring {
    int lock;
    unsigned long head, tail;
    struct message slots[SLOTS];
};

/* What all can see. Of each rank: one ring for requests and one for replies, so that a reply finds room
 * however many requests wait; the length of its segment; what it brings to a collective. */
struct shared {
    int came, turn;
    struct area {
        struct ring rings[2];
        size_t segment;
        char board[BOARD];
    } areas[];
};

extern struct shared *shared;
extern gex_Rank_t rank, size;
extern gex_AM_Entry_t table[256];

/* Ends the job with a message. */
void forbidden(const char *what) __attribute__((noreturn));
/* That is no team of this job, or no rank of it. */
void know(gex_TM_t tm, gex_Rank_t other);
/* Where another's segment is mapped here, if all of that is in it. */
void *inside(gex_Rank_t whose, const void *where, size_t length);
/* Only where communication may be begun. */
void communicate(void);
/* A child that ended badly ends the job. */
void look_after_children(void);

#endif
