/* As start.c for MPI, over GASNet-EX: when the first barrier of a job is over, and the private memory of a
 * process that has grown until then. There are segments by then, as small as they can be: nothing
 * one-sided goes without.
 *
 *   written by rank 0:  = start:0 MILLISECONDS on the monotonic clock      = memory:0 KIBIBYTES */
#include "private.h"
/* The first of its headers. */
#include <gasnetex.h>

#include <gasnet_coll.h>
#include <time.h>

static void check(int status, const char *what)
{
    if (status == GASNET_OK)
        return;
    fprintf(stderr, "%s: %s\n", what, gasnet_ErrorDesc(status));
    gasnet_exit(1);
}

int main(int argc, char **argv)
{
    double before, grown, most = 0, end;
    struct timespec t;
    gex_Client_t client;
    gex_EP_t endpoint;
    gex_TM_t team;
    gex_Segment_t segment;
    private_kib();
    before = private_kib();
    check(gex_Client_Init(&client, &endpoint, &team, "HITHER_PEERS", &argc, &argv, 0), "joining");
    check(gex_Segment_Attach(&segment, team, GASNET_PAGESIZE), "attaching a segment");
    gex_Event_Wait(gex_Coll_BarrierNB(team, 0));
    clock_gettime(CLOCK_MONOTONIC, &t);
    end = t.tv_sec * 1e3 + t.tv_nsec / 1e6;
    grown = private_kib() - before;
    gex_Event_Wait(gex_Coll_ReduceToOneNB(team, 0, &most, &grown, GEX_DT_DBL, sizeof grown, 1,
                                          GEX_OP_MAX, NULL, NULL, 0));
    if (gex_TM_QueryRank(team) == 0) {
        printf("@ start:0\n= start:0 %.6f\n@ memory:0\n= memory:0 %.1f\n", end, most);
        fflush(stdout);
    }
    gex_Event_Wait(gex_Coll_BarrierNB(team, 0));
    gasnet_exit(0);
    return 0;
}
