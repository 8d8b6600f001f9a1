/* A stand-in for tests, NOT GASNet, and no figure may come from it: see gasnetex.h. Jobs, segments and
 * collectives. The first process maps memory that all share and forks the others. */
#include "inside.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

struct stand_in_segment {
    char *address;
};

struct shared *shared;
gex_Rank_t rank, size;
gex_AM_Entry_t table[256];

static char *memory;
static pid_t children[MOST_RANKS];
static struct stand_in_segment own;
/* What handles point to. */
static char something;

void forbidden(const char *what)
{
    fprintf(stderr, "stand-in for GASNet: rank %u: %s\n", (unsigned)rank, what);
    gasnet_exit(1);
}

void know(gex_TM_t tm, gex_Rank_t other)
{
    if ((char *)tm != &something || other >= size)
        forbidden("no such team or rank");
}

/* A segment is where it is for its owner. */
void *inside(gex_Rank_t whose, const void *where, size_t length)
{
    size_t room = shared->areas[whose].segment;
    const char *start = memory + MOST_SEGMENT * whose, *from = where;
    if (from < start || length > room || (size_t)(from - start) > room - length)
        forbidden("an address outside the segment");
    return (void *)(uintptr_t)from;
}

static void forget(pid_t gone)
{
    gex_Rank_t i;
    for (i = 1; i < size; i++)
        if (children[i] == gone)
            children[i] = 0;
}

void look_after_children(void)
{
    int status;
    pid_t gone = rank == 0 && size > 1 ? waitpid(-1, &status, WNOHANG) : 0;
    if (gone <= 0)
        return;
    forget(gone);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        gasnet_exit(1);
}

void gasnet_exit(int code)
{
    gex_Rank_t i;
    int status;
    pid_t gone;
    for (i = 1; rank == 0 && code != 0 && i < size; i++)
        if (children[i] > 0)
            kill(children[i], SIGKILL);
    while (rank == 0 && (gone = waitpid(-1, &status, 0)) > 0) {
        forget(gone);
        if (code == 0 && (!WIFEXITED(status) || WEXITSTATUS(status) != 0))
            code = 1;
    }
    exit(code);
}

const char *gasnet_ErrorDesc(int code)
{
    return code == GASNET_ERR_BAD_ARG ? "invalid function parameter passed" : "unknown";
}

int gasnet_set_waitmode(int mode)
{
    return mode < GASNET_WAIT_SPIN || mode > GASNET_WAIT_SPINBLOCK ? GASNET_ERR_BAD_ARG : GASNET_OK;
}

static void *all_share(size_t length)
{
    int flags = MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE;
    void *where = mmap(NULL, length, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (where == MAP_FAILED)
        forbidden("no memory");
    return where;
}

/* The others end with the first. */
static void start_others(void)
{
    pid_t parent = getpid();
    gex_Rank_t i;
    fflush(NULL);
    for (i = 1; i < size && rank == 0; i++) {
        children[i] = fork();
        if (children[i] < 0)
            forbidden("no process");
        if (children[i] == 0) {
            rank = i;
            if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent)
                _exit(1);
        }
    }
}

int gex_Client_Init(gex_Client_t *client_p, gex_EP_t *ep_p, gex_TM_t *tm_p, const char *name,
                    int *argc, char ***argv, gex_Flags_t flags)
{
    const char *wanted = getenv("GASNET_PSHM_NODES");
    int ranks = wanted ? atoi(wanted) : 1;
    (void)argc;
    (void)argv;
    if (shared || !name || flags != 0 || ranks < 1 || ranks > MOST_RANKS)
        return GASNET_ERR_BAD_ARG;
    size = (gex_Rank_t)ranks;
    shared = all_share(sizeof *shared + sizeof shared->areas[0] * size);
    memory = all_share(MOST_SEGMENT * size);
    start_others();
    *client_p = (gex_Client_t)(void *)&something;
    *ep_p = (gex_EP_t)(void *)&something;
    *tm_p = (gex_TM_t)(void *)&something;
    gex_Event_Wait(gex_Coll_BarrierNB(*tm_p, 0));
    return GASNET_OK;
}

int gex_Segment_Attach(gex_Segment_t *segment_p, gex_TM_t tm, uintptr_t length)
{
    know(tm, 0);
    if (own.address || length == 0 || length % GASNET_PAGESIZE != 0 || length > MOST_SEGMENT)
        return GASNET_ERR_BAD_ARG;
    own.address = memory + MOST_SEGMENT * rank;
    shared->areas[rank].segment = length;
    *segment_p = &own;
    gex_Event_Wait(gex_Coll_BarrierNB(tm, 0));
    return GASNET_OK;
}

void *gex_Segment_QueryAddr(gex_Segment_t segment)
{
    return segment->address;
}

gex_Rank_t gex_TM_QueryRank(gex_TM_t tm)
{
    know(tm, 0);
    return rank;
}

gex_Rank_t gex_TM_QuerySize(gex_TM_t tm)
{
    know(tm, 0);
    return size;
}

int gex_EP_RegisterHandlers(gex_EP_t ep, gex_AM_Entry_t *entries, size_t count)
{
    size_t i;
    for (i = 0; i < count; i++) {
        gex_AM_Entry_t *entry = &table[entries[i].gex_index];
        if ((char *)ep != &something || entries[i].gex_index < GEX_AM_INDEX_BASE ||
            entry->gex_fnptr || entries[i].gex_nargs > MOST_ARGUMENTS)
            return GASNET_ERR_BAD_ARG;
        *entry = entries[i];
    }
    return GASNET_OK;
}

gex_Event_t gex_Coll_BarrierNB(gex_TM_t tm, gex_Flags_t flags)
{
    int turn = __atomic_load_n(&shared->turn, __ATOMIC_ACQUIRE);
    (void)flags;
    know(tm, 0);
    communicate();
    if (__atomic_add_fetch(&shared->came, 1, __ATOMIC_ACQ_REL) == (int)size) {
        __atomic_store_n(&shared->came, 0, __ATOMIC_RELAXED);
        __atomic_store_n(&shared->turn, turn + 1, __ATOMIC_RELEASE);
    }
    while (__atomic_load_n(&shared->turn, __ATOMIC_ACQUIRE) == turn)
        gasnet_AMPoll();
    return GEX_EVENT_INVALID;
}

gex_Event_t gex_Coll_BroadcastNB(gex_TM_t tm, gex_Rank_t root, void *destination,
                                 const void *source, size_t length, gex_Flags_t flags)
{
    size_t at, part;
    know(tm, root);
    for (at = 0; at < length; at += part) {
        part = length - at < BOARD ? length - at : BOARD;
        if (rank == root)
            memcpy(shared->areas[root].board, (const char *)source + at, part);
        gex_Event_Wait(gex_Coll_BarrierNB(tm, flags));
        memcpy((char *)destination + at, shared->areas[root].board, part);
        gex_Event_Wait(gex_Coll_BarrierNB(tm, flags));
    }
    return GEX_EVENT_INVALID;
}

/* All take the boards in the same order. */
static void reduce(uint64_t *into, size_t words, gex_DT_t type)
{
    gex_Rank_t from;
    size_t i;
    memcpy(into, shared->areas[0].board, words * 8);
    for (from = 1; from < size; from++)
        for (i = 0; i < words; i++) {
            uint64_t word;
            double one, other;
            memcpy(&word, shared->areas[from].board + i * 8, 8);
            memcpy(&one, &into[i], 8);
            memcpy(&other, &word, 8);
            if (type == GEX_DT_U64)
                into[i] += word;
            else if (other > one)
                into[i] = word;
        }
}

gex_Event_t gex_Coll_ReduceToAllNB(gex_TM_t tm, void *destination, const void *source,
                                   gex_DT_t type, size_t each, size_t count, gex_OP_t op,
                                   gex_Coll_ReduceFn_t user_op, void *user_cdata, gex_Flags_t flags)
{
    size_t at, words;
    (void)user_op;
    (void)user_cdata;
    if (each != 8 || count == 0)
        forbidden("a reduction of nothing, or of elements of another length");
    if (!(type == GEX_DT_U64 && op == GEX_OP_ADD) && !(type == GEX_DT_DBL && op == GEX_OP_MAX))
        forbidden("a reduction that this stand-in has not");
    for (at = 0; at < count; at += words) {
        words = count - at < BOARD / 8 ? count - at : BOARD / 8;
        memcpy(shared->areas[rank].board, (const char *)source + at * 8, words * 8);
        gex_Event_Wait(gex_Coll_BarrierNB(tm, flags));
        if (destination)
            reduce((uint64_t *)destination + at, words, type);
        gex_Event_Wait(gex_Coll_BarrierNB(tm, flags));
    }
    return GEX_EVENT_INVALID;
}

gex_Event_t gex_Coll_ReduceToOneNB(gex_TM_t tm, gex_Rank_t root, void *destination,
                                   const void *source, gex_DT_t type, size_t each, size_t count,
                                   gex_OP_t op, gex_Coll_ReduceFn_t user_op, void *user_cdata,
                                   gex_Flags_t flags)
{
    know(tm, root);
    return gex_Coll_ReduceToAllNB(tm, rank == root ? destination : NULL, source, type, each, count,
                                  op, user_op, user_cdata, flags);
}
