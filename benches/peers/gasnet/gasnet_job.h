/* GASNet-EX: what library.h asks of a library, and what the programs over it have in common. A job is as
 * many processes as GASNET_PSHM_NODES says (smp conduit); the first forks the others.
 *
 * Before it includes this, a program says how long a segment it needs: SEGMENT, in bytes. */
#ifndef PEERS_GASNET_JOB_H
#define PEERS_GASNET_JOB_H

/* The first of its headers. */
#include <gasnetex.h>

#include <gasnet_coll.h>
#include <sched.h>
#include <stdio.h>

static gex_Client_t client;
static gex_EP_t endpoint;
static gex_TM_t team;
static gex_Segment_t segment;
/* Where the segments of all ranks are, in their own terms. */
static char **bases;

/* The program's: all ranks, before anybody communicates. */
static void prepare(void);

static void quit(void)
{
    gasnet_exit(1);
    exit(1);
}

static void check(int status, const char *what)
{
    if (status == GASNET_OK)
        return;
    fprintf(stderr, "%s: %s\n", what, gasnet_ErrorDesc(status));
    quit();
}

static inline void completed(gex_Event_t event)
{
    gex_Event_Wait(event);
}

static void meet(void)
{
    completed(gex_Coll_BarrierNB(team, 0));
}

static void tell(long *number)
{
    completed(gex_Coll_BroadcastNB(team, 0, number, number, sizeof *number, 0));
}

/* A core for each rank, as launchers do that; where there are too few, whoever waits gives its own away.
 * This conduit has no launcher, and looks at the machine's cores, not at those it may use. */
static void settle(void)
{
    cpu_set_t all, one;
    int cpu, left = rank;
    if (sched_getaffinity(0, sizeof all, &all) != 0)
        return;
    if (size > CPU_COUNT(&all)) {
        check(gasnet_set_waitmode(GASNET_WAIT_BLOCK), "waiting politely");
        return;
    }
    for (cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &all) && left-- == 0)
            break;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    /* Without it the figures are a little worse, nothing else. */
    if (sched_setaffinity(0, sizeof one, &one) != 0)
        fprintf(stderr, "rank %d is not bound to a core\n", rank);
}

static void join(int *argc, char ***argv)
{
    size_t length = ((size_t)SEGMENT + GASNET_PAGESIZE - 1) / GASNET_PAGESIZE * GASNET_PAGESIZE;
    int i;
    check(gex_Client_Init(&client, &endpoint, &team, "HITHER_PEERS", argc, argv, 0), "joining");
    rank = (int)gex_TM_QueryRank(team);
    size = (int)gex_TM_QuerySize(team);
    settle();
    check(gex_Segment_Attach(&segment, team, length), "attaching a segment");
    bases = malloc(sizeof *bases * (size_t)size);
    if (!bases) {
        fprintf(stderr, "out of memory\n");
        quit();
    }
    bases[rank] = gex_Segment_QueryAddr(segment);
    for (i = 0; i < size; i++)
        completed(gex_Coll_BroadcastNB(team, (gex_Rank_t)i, &bases[i], &bases[i], sizeof *bases, 0));
    prepare();
    meet();
}

static void leave(void)
{
    meet();
    gasnet_exit(0);
}

#endif
