/* One-sided operations of GASNet-EX on the right neighbour's segment: by rank 0 alone where there are
 * two ranks, by all at once where there are more. To wait for what was begun is its flush. */
#define PEERS_GASNET
/* A window of the largest puts with a signal. */
#define SEGMENT (33L << 20)
#include "common.h"
#include "signals.h"
#include <gasnet_ratomic.h>

enum { MANY = 128 };

/* All ranks are of one neighbourhood, and that is said. */
#define NEAR GEX_FLAG_AD_MY_NBRHD

static gex_AD_t domain;
static char *part;
static uint64_t *origin, *result, *old, expected;
static gex_Rank_t target;
static int acts;

/* A put with a signal is an active message whose bytes are put into place before its handler runs. */
enum { TAKE_SIGNAL = GEX_AM_INDEX_BASE, TAKE_ANSWER };
static volatile long placed, answered;

static void take_signal(gex_Token_t token, void *where, size_t length)
{
    (void)token;
    (void)where;
    (void)length;
    placed++;
}

static void take_answer(gex_Token_t token)
{
    (void)token;
    answered++;
}

#define HANDLER(WHICH, FUNCTION, KIND)                                                             \
    {.gex_index = WHICH,                                                                           \
     .gex_fnptr = (gex_AM_Fn_t)FUNCTION,                                                           \
     .gex_flags = GEX_FLAG_AM_##KIND | GEX_FLAG_AM_REQUEST,                                        \
     .gex_nargs = 0}

static void open_slots(size_t length)
{
    if (length > (size_t)SEGMENT
        || (size_t)bytes > gex_AM_MaxRequestLong(team, peer, GEX_EVENT_NOW, 0, 0)) {
        fprintf(stderr, "no active message, or no segment, has room for %ld bytes\n", bytes);
        quit();
    }
    placed = answered = 0;
}

static void close_slots(void)
{
    meet();
}

static void place(long at)
{
    gex_AM_RequestLong0(team, (gex_Rank_t)peer, TAKE_SIGNAL, sources[at], (size_t)bytes,
                        bases[peer] + slot_bytes() * (size_t)at, GEX_EVENT_NOW, 0);
}

static void await_signals(long all)
{
    GASNET_BLOCKUNTIL(placed >= all);
}

static void answer(void)
{
    gex_AM_RequestShort0(team, (gex_Rank_t)peer, TAKE_ANSWER, 0);
}

static void await_answers(long all)
{
    GASNET_BLOCKUNTIL(answered >= all);
}

static void prepare(void)
{
    gex_AM_Entry_t handlers[] = {
        HANDLER(TAKE_SIGNAL, take_signal, LONG),
        HANDLER(TAKE_ANSWER, take_answer, SHORT),
    };
    gex_OP_t all = GEX_OP_ADD | GEX_OP_FADD | GEX_OP_FCAS;
    check(gex_EP_RegisterHandlers(endpoint, handlers, sizeof handlers / sizeof *handlers),
          "registering handlers");
    gex_AD_Create(&domain, team, GEX_DT_U64, all, GEX_FLAG_AD_FAVOR_MY_NBRHD);
}

static void open_part(void)
{
    size_t length = bytes < 64 ? 64 : (size_t)bytes;
    if (length > (size_t)SEGMENT) {
        fprintf(stderr, "the segment has no room for %ld bytes\n", bytes);
        quit();
    }
    memset(bases[rank], 0, length);
    origin = memory((size_t)bytes);
    result = memory((size_t)bytes + ASIDE * 8);
    old = result + ASIDE;
    expected = 0;
    target = (gex_Rank_t)((rank + 1) % size);
    part = bases[target];
    acts = size > 2 || rank == 0;
    meet();
}

static void close_part(void)
{
    free(origin);
    free(result);
    meet();
}

static void put_each(long n)
{
    long i;
    for (i = 0; acts && i < n; i++)
        gex_RMA_PutBlocking(team, target, part, origin, (size_t)bytes, 0);
}

static void get_each(long n)
{
    long i;
    for (i = 0; acts && i < n; i++)
        gex_RMA_GetBlocking(team, result, target, part, (size_t)bytes, 0);
}

/* What an atomic looks at, in local variables: between two locked instructions each load takes its time. */
#define LOCALS                                                                                     \
    const gex_AD_t d = domain;                                                                     \
    const gex_Rank_t whom = target;                                                                \
    char *const at = part;                                                                         \
    uint64_t *const into = old;                                                                    \
    long i

static void accumulate_each(long n)
{
    LOCALS;
    (void)into;
    for (i = 0; acts && i < n; i++)
        completed(gex_AD_OpNB_U64(d, NULL, whom, at, GEX_OP_ADD, 1, 0, NEAR));
}

static void fetch_and_op_each(long n)
{
    LOCALS;
    for (i = 0; acts && i < n; i++)
        completed(gex_AD_OpNB_U64(d, into, whom, at, GEX_OP_FADD, 1, 0, NEAR));
}

static void compare_and_swap_each(long n)
{
    LOCALS;
    uint64_t wanted = expected;
    for (i = 0; acts && i < n; i++) {
        uint64_t next = wanted + 1;
        completed(gex_AD_OpNB_U64(d, into, whom, at, GEX_OP_FCAS, wanted, next, NEAR));
        wanted = into[0] == wanted ? next : into[0];
    }
    expected = wanted;
}

#define OPERATION static inline __attribute__((always_inline)) void

OPERATION put(gex_AD_t d, gex_Rank_t whom, char *at, uint64_t *into)
{
    (void)d;
    (void)into;
    gex_RMA_PutNBI(team, whom, at, origin, (size_t)bytes, GEX_EVENT_DEFER, 0);
}

OPERATION get(gex_AD_t d, gex_Rank_t whom, char *at, uint64_t *into)
{
    (void)d;
    (void)into;
    gex_RMA_GetNBI(team, result, whom, at, (size_t)bytes, 0);
}

OPERATION accumulate(gex_AD_t d, gex_Rank_t whom, char *at, uint64_t *into)
{
    (void)into;
    gex_AD_OpNBI_U64(d, NULL, whom, at, GEX_OP_ADD, 1, 0, NEAR);
}

OPERATION fetch_and_op(gex_AD_t d, gex_Rank_t whom, char *at, uint64_t *into)
{
    gex_AD_OpNBI_U64(d, into, whom, at, GEX_OP_FADD, 1, 0, NEAR);
}

/* MANY at a time. */
#define COMPLETED(OP, KIND)                                                                        \
    static void OP##_many(long n)                                                                  \
    {                                                                                              \
        LOCALS;                                                                                    \
        for (i = 0; acts && i < n; i++) {                                                          \
            OP(d, whom, at, into);                                                                 \
            if (i % MANY == MANY - 1)                                                              \
                gex_NBI_Wait(KIND, 0);                                                             \
        }                                                                                          \
        gex_NBI_Wait(KIND, 0);                                                                     \
    }

COMPLETED(put, GEX_EC_PUT)
COMPLETED(get, GEX_EC_GET)
COMPLETED(accumulate, GEX_EC_RMW)
COMPLETED(fetch_and_op, GEX_EC_RMW)

#define LATENCY(NAME, RUN) {NAME, open_part, RUN, close_part, NANOSECONDS, 1, 0}
#define RATE(NAME, RUN) {NAME, open_part, RUN, close_part, MILLIONS_PER_SECOND, 1, 0}

static const struct workload all[] = {
    LATENCY("put", put_each),
    LATENCY("get", get_each),
    LATENCY("accumulate", accumulate_each),
    LATENCY("fetch-and-op", fetch_and_op_each),
    LATENCY("compare-and-swap", compare_and_swap_each),
    RATE("put-rate", put_many),
    RATE("get-rate", get_many),
    RATE("accumulate-rate", accumulate_many),
    RATE("fetch-and-op-rate", fetch_and_op_many),
    /* A domain is always told what it is for. */
    LATENCY("single-fetch-and-op", fetch_and_op_each),
    LATENCY("single-compare-and-swap", compare_and_swap_each),
    RATE("single-fetch-and-op-rate", fetch_and_op_many),
    {"signal", begin_signal, signal_latency, end_signals, NANOSECONDS, 2, 0},
    {"signal-bandwidth", begin_signals, signal_bandwidth, end_signals, GIGABYTES_PER_SECOND, 1, 0},
};

int main(int argc, char **argv)
{
    return measure_all(argc, argv, all, sizeof all / sizeof *all);
}
