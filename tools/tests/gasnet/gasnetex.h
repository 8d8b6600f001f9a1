/* A stand-in for tests, NOT GASNet, and no figure may come from it.
 *
 * It has the calls of GASNet-EX that the programs in benches/peers/gasnet use, written after its
 * specification, with the same names and types, for processes that are forked and share memory. It is
 * correct but slow, and stops with a message where a program does what the specification forbids: so it
 * shows whether those programs work and keep the rules, and nothing of how fast GASNet is. */
#ifndef STAND_IN_GASNETEX_H
#define STAND_IN_GASNETEX_H

#if defined GASNET_SEQ + defined GASNET_PAR + defined GASNET_PARSYNC != 1
#error one of GASNET_SEQ, GASNET_PAR and GASNET_PARSYNC is to be defined
#endif

#include "gasnet_config.h"
#include <stddef.h>
#include <stdint.h>

/* Types. */
typedef uint32_t gex_Rank_t;
typedef uint32_t gex_Flags_t;
typedef uint8_t gex_AM_Index_t;
typedef int32_t gex_AM_Arg_t;
typedef struct stand_in_client *gex_Client_t;
typedef struct stand_in_endpoint *gex_EP_t;
typedef struct stand_in_team *gex_TM_t;
typedef struct stand_in_segment *gex_Segment_t;
typedef struct stand_in_token *gex_Token_t;
typedef struct stand_in_event *gex_Event_t;
typedef unsigned int gex_EC_t;
typedef uint32_t gex_DT_t;
typedef uint32_t gex_OP_t;
typedef void (*gex_AM_Fn_t)();

typedef struct {
    gex_AM_Index_t gex_index;
    gex_AM_Fn_t gex_fnptr;
    gex_Flags_t gex_flags;
    unsigned int gex_nargs;
    const void *gex_cdata;
    const char *gex_name;
} gex_AM_Entry_t;

#define GASNET_OK 0
#define GASNET_ERR_BAD_ARG 10003
#define GASNET_PAGESIZE 4096
#define GASNET_WAIT_SPIN 0
#define GASNET_WAIT_BLOCK 1
#define GASNET_WAIT_SPINBLOCK 2
#define GEX_AM_INDEX_BASE 128

#define GEX_EVENT_INVALID ((gex_Event_t)0)
#define GEX_EVENT_NOW ((gex_Event_t *)1)
#define GEX_EVENT_DEFER ((gex_Event_t *)2)
#define GEX_EVENT_GROUP ((gex_Event_t *)3)

#define GEX_EC_GET 1u
#define GEX_EC_PUT 2u
#define GEX_EC_AM 4u
#define GEX_EC_LC 8u
#define GEX_EC_RMW 16u
#define GEX_EC_ALL 31u

#define GEX_FLAG_AM_SHORT 1u
#define GEX_FLAG_AM_MEDIUM 2u
#define GEX_FLAG_AM_LONG 4u
#define GEX_FLAG_AM_REQUEST 8u
#define GEX_FLAG_AM_REPLY 16u
#define GEX_FLAG_AD_MY_NBRHD 32u
#define GEX_FLAG_AD_FAVOR_MY_NBRHD 64u

#define GEX_DT_U64 1u
#define GEX_DT_DBL 2u
#define GEX_OP_ADD 1u
#define GEX_OP_FADD 2u
#define GEX_OP_FCAS 4u
#define GEX_OP_MAX 8u

/* The job. */
int gex_Client_Init(gex_Client_t *client_p, gex_EP_t *ep_p, gex_TM_t *tm_p, const char *name,
                    int *argc, char ***argv, gex_Flags_t flags);
int gex_Segment_Attach(gex_Segment_t *segment_p, gex_TM_t tm, uintptr_t size);
void *gex_Segment_QueryAddr(gex_Segment_t segment);
gex_Rank_t gex_TM_QueryRank(gex_TM_t tm);
gex_Rank_t gex_TM_QuerySize(gex_TM_t tm);
int gex_EP_RegisterHandlers(gex_EP_t ep, gex_AM_Entry_t *table, size_t count);
void gasnet_exit(int code) __attribute__((noreturn));
const char *gasnet_ErrorDesc(int code);
int gasnet_set_waitmode(int mode);
int gasnet_AMPoll(void);

#define GASNET_BLOCKUNTIL(CONDITION)                                                               \
    do {                                                                                           \
        while (!(CONDITION))                                                                       \
            gasnet_AMPoll();                                                                       \
    } while (0)

/* Completion. */
void gex_Event_Wait(gex_Event_t event);
void gex_NBI_Wait(gex_EC_t mask, gex_Flags_t flags);
gex_Event_t gex_Coll_BarrierNB(gex_TM_t tm, gex_Flags_t flags) __attribute__((warn_unused_result));

/* Active messages. */
size_t gex_AM_MaxRequestMedium(gex_TM_t tm, gex_Rank_t other, const gex_Event_t *lc_opt,
                               gex_Flags_t flags, unsigned int count);
size_t gex_AM_MaxRequestLong(gex_TM_t tm, gex_Rank_t other, const gex_Event_t *lc_opt,
                             gex_Flags_t flags, unsigned int count);
int gex_AM_RequestShort0(gex_TM_t tm, gex_Rank_t rank, gex_AM_Index_t handler, gex_Flags_t flags);
int gex_AM_RequestShort2(gex_TM_t tm, gex_Rank_t rank, gex_AM_Index_t handler, gex_Flags_t flags,
                         gex_AM_Arg_t a0, gex_AM_Arg_t a1);
int gex_AM_ReplyShort2(gex_Token_t token, gex_AM_Index_t handler, gex_Flags_t flags,
                       gex_AM_Arg_t a0, gex_AM_Arg_t a1);
int gex_AM_RequestMedium1(gex_TM_t tm, gex_Rank_t rank, gex_AM_Index_t handler, const void *source,
                          size_t length, gex_Event_t *lc_opt, gex_Flags_t flags, gex_AM_Arg_t a0);
int gex_AM_RequestLong0(gex_TM_t tm, gex_Rank_t rank, gex_AM_Index_t handler, const void *source,
                        size_t length, void *destination, gex_Event_t *lc_opt, gex_Flags_t flags);

/* Puts and gets. */
int gex_RMA_PutBlocking(gex_TM_t tm, gex_Rank_t rank, void *destination, const void *source,
                        size_t length, gex_Flags_t flags);
int gex_RMA_PutNBI(gex_TM_t tm, gex_Rank_t rank, void *destination, const void *source,
                   size_t length, gex_Event_t *lc_opt, gex_Flags_t flags);
int gex_RMA_GetBlocking(gex_TM_t tm, void *destination, gex_Rank_t rank, void *source,
                        size_t length, gex_Flags_t flags);
int gex_RMA_GetNBI(gex_TM_t tm, void *destination, gex_Rank_t rank, void *source, size_t length,
                   gex_Flags_t flags);

#endif
