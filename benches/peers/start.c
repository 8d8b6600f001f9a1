/* When the first barrier of a job is over, and the private memory of a process that has grown until
 * then (the largest of all; nobody has communicated but for that barrier).
 *
 *   written by rank 0:  = start:0 MILLISECONDS on the monotonic clock      = memory:0 KIBIBYTES */
#include "private.h"
#include <mpi.h>
#include <time.h>

int main(int argc, char **argv)
{
    double before, grown, most = 0, end;
    struct timespec t;
    int rank;
    private_kib();
    before = private_kib();
    MPI_Init(&argc, &argv);
    MPI_Barrier(MPI_COMM_WORLD);
    clock_gettime(CLOCK_MONOTONIC, &t);
    end = t.tv_sec * 1e3 + t.tv_nsec / 1e6;
    grown = private_kib() - before;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Reduce(&grown, &most, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("@ start:0\n= start:0 %.6f\n@ memory:0\n= memory:0 %.1f\n", end, most);
    MPI_Finalize();
    return 0;
}
