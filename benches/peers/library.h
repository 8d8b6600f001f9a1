/* What the measuring itself asks of the library that is measured: who is here, a number told by rank 0, a
 * barrier, an end for all. */
#ifndef PEERS_LIBRARY_H
#define PEERS_LIBRARY_H

#include <stdint.h>
#include <stdlib.h>

static int rank, size;

#if defined PEERS_SHMEM

#include <shmem.h>

static void join(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    shmem_init();
    rank = shmem_my_pe();
    size = shmem_n_pes();
}

static void meet(void)
{
    shmem_barrier_all();
}

static void tell(long *number)
{
    static long told;
    if (rank == 0)
        told = *number;
    meet();
    if (rank != 0)
        *number = shmem_long_g(&told, 0);
    meet();
}

static void leave(void)
{
    shmem_finalize();
}

static void quit(void)
{
    shmem_global_exit(1);
    exit(1);
}

#elif defined PEERS_GASNET

#include "gasnet_job.h"

#else

#include <mpi.h>

static void join(int *argc, char ***argv)
{
    MPI_Init(argc, argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
}

static void meet(void)
{
    MPI_Barrier(MPI_COMM_WORLD);
}

static void tell(long *number)
{
    MPI_Bcast(number, 1, MPI_LONG, 0, MPI_COMM_WORLD);
}

static void leave(void)
{
    MPI_Finalize();
}

static void quit(void)
{
    MPI_Abort(MPI_COMM_WORLD, 1);
    exit(1);
}

#endif

#endif
