/* What the programs that measure peers have in common: who they are, the clock, how many operations
 * make a batch, the order of batches, and what is written.
 *
 *   arguments   nanoseconds of a batch, batches, then what to measure: NAME:BYTES ...
 *   written     by rank 0, a line each:  @ NAME:BYTES      it begins
 *                                        = NAME:BYTES X    its figure, the median of the batches
 *                                        # NAME:BYTES HEX  a fingerprint of what it computed
 *                                        ? NAME:BYTES      this program does not know it
 *
 * The counts, the warm-up and the clock are those that hither's own side has (tools/src/bench). */
#ifndef PEERS_COMMON_H
#define PEERS_COMMON_H

#include "library.h"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum unit { NANOSECONDS, MILLIONS_PER_SECOND, GIGABYTES_PER_SECOND };

struct workload {
    const char *name;
    void (*begin)(void);   /* all ranks; `bytes` is set */
    void (*run)(long n);   /* all ranks; rank 0 is timed. None: `begin` measures by itself */
    void (*end)(void);     /* all ranks */
    enum unit unit;
    double steps;          /* counted operations of one of n */
    long least;            /* of a batch; 0: as where one of n takes next to nothing */
};

static long bytes;
/* Operations of the last batch, where a run says so: else n * steps. */
static double counted;
/* What is measured: NAME:BYTES. */
static const char *item;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

static void *memory(size_t length)
{
    void *p = NULL;
    if (length < 64)
        length = 64;
    if (posix_memalign(&p, 4096, length) != 0) {
        fprintf(stderr, "out of memory\n");
        quit();
    }
    memset(p, 1, length);
    return p;
}

/* How many words behind the beginning of a page old values of atomics come back. At the beginning lies what is
 * sent, and a processor waits for a store before it loads what agrees with it in the last twelve bits of
 * its address: 4 ns of 13 for operations that are done by the processor itself. */
enum { ASIDE = 8 };

#if !defined PEERS_SHMEM && !defined PEERS_GASNET
/* All ranks: what they computed, as a fingerprint. All say theirs, combined by exclusive or. */
static inline void prove(uint64_t mine)
{
    uint64_t all = 0;
    MPI_Reduce(&mine, &all, 1, MPI_UINT64_T, MPI_BXOR, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        printf("# %s %016llx\n", item, (unsigned long long)all);
        fflush(stdout);
    }
}

#endif

/* So that nobody takes something long for something that hangs. */
static inline void say_alive(void)
{
    printf("- %s goes on\n", item);
    fflush(stdout);
}

/* One batch of n on all ranks; n < 0 ends the batches of a workload. Rank 0's nanoseconds. */
static double batch(const struct workload *w, long n)
{
    double start, took;
    tell(&n);
    if (n < 0)
        return 0;
    meet();
    counted = (double)n * w->steps;
    start = now();
    w->run(n);
    took = now() - start;
    meet();
    if (w->least > 0)
        say_alive();
    return took < 1 ? 1 : took;
}

static void follow(const struct workload *w)
{
    for (;;) {
        long n = 0;
        tell(&n);
        if (n < 0)
            return;
        meet();
        w->run(n);
        meet();
    }
}

static double clamp(double x, double low, double high)
{
    return x < low ? low : x > high ? high : x;
}

/* How many operations fill a batch; warms up on the way. */
static long calibrate(const struct workload *w, double wanted)
{
    long n = w->least > 0 ? w->least : 16, least = w->least > 0 ? w->least : 4;
    for (;;) {
        double took = batch(w, n);
        if (took >= wanted / 3)
            took = batch(w, n);
        if (took >= wanted / 3 || n > 1L << 30)
            return (long)clamp((double)n * wanted / took, (double)least, (double)(1L << 30));
        n = (long)((double)n * clamp(wanted / took, 1.5, 8)) + (n == 1);
    }
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double figure(const struct workload *w, double nanoseconds)
{
    double operations = counted;
    if (w->unit == NANOSECONDS)
        return nanoseconds / operations;
    if (w->unit == MILLIONS_PER_SECOND)
        return operations * 1e3 / nanoseconds;
    return operations * (double)bytes / nanoseconds;
}

static void measure(const struct workload *w, double wanted, int batches)
{
    if (rank == 0) {
        printf("@ %s\n", item);
        fflush(stdout);
    }
    w->begin();
    if (!w->run)
        return;
    if (rank == 0) {
        double *each = memory(sizeof(double) * (size_t)batches);
        long n = calibrate(w, wanted);
        int i, half = batches / 2;
        for (i = 0; i < batches; i++)
            each[i] = figure(w, batch(w, n));
        batch(w, -1);
        qsort(each, (size_t)batches, sizeof(double), by_value);
        printf("= %s %.6g\n", item,
               batches % 2 ? each[half] : (each[half - 1] + each[half]) / 2);
        fflush(stdout);
        free(each);
    } else {
        follow(w);
    }
    w->end();
}

/* The whole program. */
static int measure_all(int argc, char **argv, const struct workload *all, size_t count)
{
    int i;
    join(&argc, &argv);
    for (i = 3; i < argc; i++) {
        const char *colon = strchr(argv[i], ':');
        size_t length = colon ? (size_t)(colon - argv[i]) : strlen(argv[i]), at;
        bytes = colon ? atol(colon + 1) : 0;
        for (at = 0; at < count; at++)
            if (strlen(all[at].name) == length && strncmp(all[at].name, argv[i], length) == 0)
                break;
        if (at < count) {
            int batches = atoi(argv[2]);
            item = argv[i];
            measure(&all[at], atof(argv[1]), batches < 1 ? 1 : batches);
        } else if (rank == 0) {
            printf("? %s\n", argv[i]);
            fflush(stdout);
        }
    }
    leave();
    return 0;
}

#endif
