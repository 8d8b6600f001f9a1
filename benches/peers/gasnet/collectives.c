/* Collectives of all ranks, as GASNet-EX has them. */
#define PEERS_GASNET
/* Their buffers may lie anywhere. */
#define SEGMENT 1
#include "common.h"

static uint64_t *mine;

static void prepare(void)
{
}

static void begin(void)
{
    mine = memory((size_t)bytes);
}

static void end(void)
{
    free(mine);
}

static void barrier(long n)
{
    long i;
    for (i = 0; i < n; i++)
        meet();
}

static void allreduce(long n)
{
    long i;
    for (i = 0; i < n; i++)
        completed(gex_Coll_ReduceToAllNB(team, mine, mine, GEX_DT_U64, 8, (size_t)bytes / 8,
                                         GEX_OP_ADD, NULL, NULL, 0));
}

/* From ranks 0 and 1 in turn: from one alone it would be a stream. */
static void broadcast(long n)
{
    long i;
    for (i = 0; i < n; i++)
        completed(gex_Coll_BroadcastNB(team, (gex_Rank_t)(i % 2), mine, mine, (size_t)bytes, 0));
}

static const struct workload all[] = {
    {"barrier", begin, barrier, end, NANOSECONDS, 1, 0},
    {"allreduce", begin, allreduce, end, NANOSECONDS, 1, 0},
    {"broadcast", begin, broadcast, end, NANOSECONDS, 1, 0},
};

int main(int argc, char **argv)
{
    return measure_all(argc, argv, all, sizeof all / sizeof *all);
}
