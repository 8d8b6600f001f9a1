/* Collectives of all ranks. */
#include "common.h"

static uint64_t *mine, *theirs;

static void begin(void)
{
    mine = memory((size_t)bytes * (size_t)size);
    theirs = memory((size_t)bytes * (size_t)size);
}

static void end(void)
{
    free(mine);
    free(theirs);
}

static void barrier(long n)
{
    long i;
    for (i = 0; i < n; i++)
        MPI_Barrier(MPI_COMM_WORLD);
}

static void allreduce(long n)
{
    long i;
    for (i = 0; i < n; i++)
        MPI_Allreduce(MPI_IN_PLACE, mine, (int)(bytes / 8), MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
}

/* From ranks 0 and 1 in turn: from one alone it would be a stream. */
static void broadcast(long n)
{
    long i;
    for (i = 0; i < n; i++)
        MPI_Bcast(mine, (int)(bytes / 8), MPI_UINT64_T, (int)(i % 2), MPI_COMM_WORLD);
}

static void alltoall(long n)
{
    long i;
    int count = (int)(bytes / 8);
    for (i = 0; i < n; i++)
        MPI_Alltoall(mine, count, MPI_UINT64_T, theirs, count, MPI_UINT64_T, MPI_COMM_WORLD);
}

static const struct workload all[] = {
    {"barrier", begin, barrier, end, NANOSECONDS, 1},
    {"allreduce", begin, allreduce, end, NANOSECONDS, 1},
    {"broadcast", begin, broadcast, end, NANOSECONDS, 1},
    {"alltoall", begin, alltoall, end, NANOSECONDS, 1},
};

int main(int argc, char **argv)
{
    return measure_all(argc, argv, all, sizeof all / sizeof *all);
}
