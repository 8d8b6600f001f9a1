/* The time that a transfer keeps a program from computing, and the share that it leaves it: the
 * post-work-wait method of paper 002, as tools/src/bench/overhead.rs has it.
 *
 *   rank 0 first                               rank 1 first
 *   0   post; begun; work; wait   timed        ...waits for "there"... post; work; wait   timed
 *   1   ...waits for "begun"... its side       its side posted; there; waits for it
 *
 * The two words are in shared memory of this program's own, so that they ask nothing of the library. */
#define _GNU_SOURCE
#include "common.h"
#include <sched.h>
#include <sys/mman.h>
#include <fcntl.h>
#include <unistd.h>

enum { MOST = 500, REPEATS = 9, PAIRS = 37, COLD = 10, TAG = 2, APART = 128, LENGTH = 4096 };
static const double BASE = 1.035, STOP = 1.75, STEP = 0.05;

static char *flags;
static uint64_t turn;
static double pace; /* operations of the work that take a nanosecond */

/* Memory that both ranks map. */
static void map_flags(void)
{
    long whose[2] = {0, 0};
    int file = -1;
    char path[64];
    if (flags)
        return;
    if (rank == 0) {
        file = memfd_create("overhead", 0);
        if (file < 0 || ftruncate(file, LENGTH) != 0)
            file = -1;
        whose[0] = getpid();
        whose[1] = file;
    }
    MPI_Bcast(whose, 2, MPI_LONG, 0, MPI_COMM_WORLD);
    if (rank != 0) {
        snprintf(path, sizeof path, "/proc/%ld/fd/%ld", whose[0], whose[1]);
        file = open(path, O_RDWR);
    }
    flags = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (flags == MAP_FAILED) {
        fprintf(stderr, "no memory that both ranks map\n");
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    close(file);
}

static void set_flag(int which)
{
    __atomic_store_n((uint64_t *)(flags + which * APART), turn, __ATOMIC_RELEASE);
}

static void await_flag(int which)
{
    long polls = 0;
    while (__atomic_load_n((uint64_t *)(flags + which * APART), __ATOMIC_ACQUIRE) != turn)
        if (++polls % 10000 == 0)
            sched_yield();
}

/* A chain of operations, each of which needs the one before. */
static void work(double nanoseconds)
{
    long n = (long)(nanoseconds * pace), i;
    volatile double x = 1.0;
    for (i = 0; i < n; i++)
        x = x * 0.999 + 0.1;
}

static double median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, by_value);
    return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

static double alone(double amount)
{
    double start = now();
    work(amount);
    return now() - start;
}

/* Operations of the work that take a nanosecond. */
static double measured_pace(void)
{
    double times[REPEATS];
    int i;
    pace = 0.1;
    for (i = 0; i < REPEATS; i++)
        times[i] = alone(1e6);
    return 0.1 * 1e6 / median(times, REPEATS);
}

/* One transfer: rank 0 posts, works and waits; rank 1 does its side. Rank 0's nanoseconds. */
static double transfer(int sends, int first, char *buffer, double amount)
{
    MPI_Request request;
    double start = 0;
    turn++;
    if (rank == 0) {
        if (!first)
            await_flag(1);
        start = now();
    } else if (first) {
        await_flag(0);
    }
    if ((rank == 0) == sends)
        MPI_Isend(buffer, (int)bytes, MPI_BYTE, 1 - rank, TAG, MPI_COMM_WORLD, &request);
    else
        MPI_Irecv(buffer, (int)bytes, MPI_BYTE, 1 - rank, TAG, MPI_COMM_WORLD, &request);
    set_flag(rank);
    if (rank == 0)
        work(amount);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    return now() - start;
}

static double met(int sends, int first, char *buffer, double amount)
{
    double took;
    MPI_Barrier(MPI_COMM_WORLD);
    took = transfer(sends, first, buffer, amount);
    MPI_Barrier(MPI_COMM_WORLD);
    return took;
}

/* More and more work, until it takes 1.75 times what the transfer takes by itself; then what that takes beyond the
 * same work alone, in turn. */
static void measure_kind(int sends, int first, int availability)
{
    double times[PAIRS], first_time = 0, latest = 0, amount, last = 0, sum = 0, base = 0, overhead;
    int iterations = 0, averaged = 0, averaging = 1, i;
    char *buffer;
    if (size != 2) {
        fprintf(stderr, "two ranks only\n");
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    map_flags();
    buffer = memory((size_t)bytes);
    pace = measured_pace();
    for (;;) {
        amount = iterations * STEP * first_time;
        if (iterations >= MOST || (iterations > 0 && latest >= STOP * base))
            amount = -1;
        MPI_Bcast(&amount, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
        if (amount < 0)
            break;
        for (i = iterations == 0 ? -COLD : 0; i < REPEATS; i++) {
            double took = met(sends, first, buffer, amount);
            if (i >= 0)
                times[i] = took;
        }
        latest = median(times, REPEATS);
        last = amount;
        if (iterations == 0)
            first_time = latest;
        else if (latest > BASE * base)
            averaging = 0;
        if (averaging) {
            sum += latest;
            base = sum / ++averaged;
        }
        iterations++;
        /* The others only count: rank 0 has the curve. */
    }
    for (i = 0; i < PAIRS; i++) {
        times[i] = met(sends, first, buffer, last);
        if (rank == 0)
            times[i] -= alone(last);
    }
    free(buffer);
    if (rank != 0)
        return;
    if (iterations >= MOST || base <= 0) {
        fprintf(stderr, "times do not grow with work\n");
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    overhead = median(times, PAIRS);
    /* Never quite nothing: others are divided by it. */
    if (overhead < 1)
        overhead = 1;
    if (availability)
        printf("= %s %.6g\n", item, clamp(1 - overhead / base, 0, 1) * 100);
    else
        printf("= %s %.6g\n", item, overhead);
    fflush(stdout);
}

#define KIND(NAME, SENDS, FIRST)                                                                   \
    static void NAME##_availability(void)                                                          \
    {                                                                                              \
        measure_kind(SENDS, FIRST, 1);                                                             \
    }                                                                                              \
    static void NAME##_overhead(void)                                                              \
    {                                                                                              \
        measure_kind(SENDS, FIRST, 0);                                                             \
    }

KIND(send_late, 1, 1)
KIND(send_there, 1, 0)
KIND(receive_late, 0, 1)
KIND(receive_there, 0, 0)

static const struct workload all[] = {
    {"availability-send-late", send_late_availability, NULL, NULL, NANOSECONDS, 1, 0},
    {"availability-send-there", send_there_availability, NULL, NULL, NANOSECONDS, 1, 0},
    {"availability-receive-late", receive_late_availability, NULL, NULL, NANOSECONDS, 1, 0},
    {"availability-receive-there", receive_there_availability, NULL, NULL, NANOSECONDS, 1, 0},
    {"overhead-send-late", send_late_overhead, NULL, NULL, NANOSECONDS, 1, 0},
    {"overhead-send-there", send_there_overhead, NULL, NULL, NANOSECONDS, 1, 0},
    {"overhead-receive-late", receive_late_overhead, NULL, NULL, NANOSECONDS, 1, 0},
    {"overhead-receive-there", receive_there_overhead, NULL, NULL, NANOSECONDS, 1, 0},
};

int main(int argc, char **argv)
{
    return measure_all(argc, argv, all, sizeof all / sizeof *all);
}
