/* Accumulates of one or of all ranks on the last rank's part of a window. */
#include "common.h"

/* Words that random updates choose from: 64 MiB. */
enum { FIELD = 8 << 20, PAGE = 512, MANY = 128 };

static MPI_Win win;
static void *part;
static void *values;
static uint32_t state;
static int target, touched, random_words;

static void open_bytes(MPI_Aint length)
{
    MPI_Win_allocate(length, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &part, &win);
    memset(part, 0, (size_t)length);
    values = memory((size_t)bytes);
    target = size - 1;
    state = (uint32_t)rank + 1;
    touched = 0;
    MPI_Barrier(MPI_COMM_WORLD);
}

static void open_word(void)
{
    random_words = 0;
    open_bytes(64);
}

static void open_field(void)
{
    random_words = 1;
    open_bytes((MPI_Aint)FIELD * 8);
}

/* Room for each rank's own elements; numbers, so that sums stay numbers. */
static void open_array(void)
{
    long i;
    open_bytes((MPI_Aint)bytes * size);
    for (i = 0; i < bytes / 8; i++)
        ((double *)values)[i] = 1.0;
}

static void close_window(void)
{
    free(values);
    MPI_Win_free(&win);
}

static void add_word(long at)
{
    uint64_t value = 1;
    MPI_Accumulate(&value, 1, MPI_UINT64_T, target, (MPI_Aint)at * 8, 1, MPI_UINT64_T, MPI_SUM,
                   win);
}

/* One word each, completed MANY at a time, by all; over when the last is through. */
static void words(long n)
{
    long i;
    MPI_Win_lock_all(0, win);
    for (i = 0; random_words && !touched && i < FIELD; i += PAGE) {
        add_word(i);
        MPI_Win_flush(target, win);
    }
    touched = 1;
    for (i = 0; i < n; i++) {
        long at = 0;
        if (random_words) {
            state = state * 1664525u + 1013904223u;
            at = (long)(state >> 7 & (FIELD - 1));
        }
        add_word(at);
        if (i % MANY == MANY - 1)
            MPI_Win_flush(target, win);
    }
    MPI_Win_flush(target, win);
    MPI_Win_unlock_all(win);
    MPI_Barrier(MPI_COMM_WORLD);
}

static void array(long n, MPI_Aint at)
{
    int count = (int)(bytes / 8);
    long i;
    MPI_Win_lock_all(0, win);
    for (i = 0; i < n; i++) {
        MPI_Accumulate(values, count, MPI_DOUBLE, target, at, count, MPI_DOUBLE, MPI_SUM, win);
        MPI_Win_flush(target, win);
    }
    MPI_Win_unlock_all(win);
}

static void array_of_one(long n)
{
    if (rank == 0)
        array(n, 0);
}

/* Each origin its own elements; as many operations each. */
static void array_of_all(long n)
{
    array(n, (MPI_Aint)bytes * rank);
    MPI_Barrier(MPI_COMM_WORLD);
}

static const struct workload all[] = {
    {"sum-same", open_word, words, close_window, NANOSECONDS, 1},
    {"sum-random", open_field, words, close_window, NANOSECONDS, 1},
    {"sum-one", open_array, array_of_one, close_window, NANOSECONDS, 1},
    {"sum-all", open_array, array_of_all, close_window, NANOSECONDS, 1},
};

int main(int argc, char **argv)
{
    return measure_all(argc, argv, all, sizeof all / sizeof *all);
}
