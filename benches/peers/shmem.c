/* One-sided operations and collectives of OpenSHMEM: on the right neighbour's memory, by rank 0 alone where
 * there are two ranks, by all at once where there are more. A quiet is what a flush is elsewhere. */
#define PEERS_SHMEM
#include "common.h"
#include "signals.h"

enum { MANY = 128 };

static char *part;
static uint64_t *origin, *result, *old, expected;
static int target, acts;

static void open_memory(void)
{
    size_t length = bytes < 64 ? 64 : (size_t)bytes;
    part = shmem_malloc(length);
    if (!part) {
        fprintf(stderr, "out of symmetric memory\n");
        quit();
    }
    memset(part, 0, length);
    origin = memory((size_t)bytes);
    result = memory((size_t)bytes + ASIDE * 8);
    old = result + ASIDE;
    expected = 0;
    target = (rank + 1) % size;
    acts = size > 2 || rank == 0;
    meet();
}

static void close_memory(void)
{
    free(origin);
    free(result);
    shmem_free(part);
}

#define OPERATION static inline __attribute__((always_inline)) void

OPERATION put(void)
{
    shmem_putmem(part, origin, (size_t)bytes, target);
}

OPERATION get(void)
{
    shmem_getmem(result, part, (size_t)bytes, target);
}

OPERATION accumulate(void)
{
    shmem_long_atomic_add((long *)part, 1, target);
}

OPERATION fetch_and_op(void)
{
    *old = (uint64_t)shmem_long_atomic_fetch_add((long *)part, 1, target);
}

OPERATION compare_and_swap(void)
{
    uint64_t next = expected + 1;
    old[0] = (uint64_t)shmem_long_atomic_compare_swap((long *)part, (long)expected, (long)next,
                                                         target);
    expected = old[0] == expected ? next : old[0];
}

/* Each operation completed, and MANY at a time. */
#define COMPLETED(OP)                                                                              \
    static void OP##_each(long n)                                                                  \
    {                                                                                              \
        long i;                                                                                    \
        for (i = 0; acts && i < n; i++) {                                                          \
            OP();                                                                                  \
            shmem_quiet();                                                                         \
        }                                                                                          \
    }                                                                                              \
    static inline void OP##_many(long n)                                                           \
    {                                                                                              \
        long i;                                                                                    \
        for (i = 0; acts && i < n; i++) {                                                          \
            OP();                                                                                  \
            if (i % MANY == MANY - 1)                                                              \
                shmem_quiet();                                                                     \
        }                                                                                          \
        shmem_quiet();                                                                             \
    }

COMPLETED(put)
COMPLETED(get)
COMPLETED(accumulate)
COMPLETED(fetch_and_op)
COMPLETED(compare_and_swap)

static void barrier(long n)
{
    long i;
    for (i = 0; i < n; i++)
        shmem_barrier_all();
}

static long sync_words[2][SHMEM_REDUCE_SYNC_SIZE];
static long *mine, *sums, *scratch;

static void open_sums(void)
{
    size_t words = (size_t)bytes / 8, room = words / 2 + 1;
    int i;
    if (room < SHMEM_REDUCE_MIN_WRKDATA_SIZE)
        room = SHMEM_REDUCE_MIN_WRKDATA_SIZE;
    mine = shmem_malloc(words * 8);
    sums = shmem_malloc(words * 8);
    scratch = shmem_malloc(room * 8);
    if (!mine || !sums || !scratch) {
        fprintf(stderr, "out of symmetric memory\n");
        quit();
    }
    memset(mine, 0, words * 8);
    for (i = 0; i < SHMEM_REDUCE_SYNC_SIZE; i++)
        sync_words[0][i] = sync_words[1][i] = SHMEM_SYNC_VALUE;
    meet();
}

static void allreduce(long n)
{
    long i;
    /* Those of the call before last are free again. */
    for (i = 0; i < n; i++)
        shmem_long_sum_to_all(sums, mine, (int)(bytes / 8), 0, 0, size, scratch, sync_words[i % 2]);
}

static void close_sums(void)
{
    shmem_free(scratch);
    shmem_free(sums);
    shmem_free(mine);
}

/* Puts with a signal: a put, and a word behind it. */
static char *slots;
static long *words;
static long placed, answered;

static void open_slots(size_t length)
{
    slots = shmem_malloc(length);
    words = shmem_malloc(128);
    if (!slots || !words) {
        fprintf(stderr, "out of symmetric memory\n");
        quit();
    }
    memset(slots, 0, length);
    memset(words, 0, 128);
    placed = answered = 0;
}

static void close_slots(void)
{
    shmem_free(words);
    shmem_free(slots);
}

static void place(long at)
{
    shmem_putmem(slots + slot_bytes() * (size_t)at, sources[at], (size_t)bytes, peer);
    shmem_fence();
    shmem_long_p(words, ++placed, peer);
}

static void await_signals(long all)
{
    shmem_long_wait_until(words, SHMEM_CMP_GE, all);
}

static void answer(void)
{
    shmem_long_p(words + 8, ++answered, peer);
}

static void await_answers(long all)
{
    shmem_long_wait_until(words + 8, SHMEM_CMP_GE, all);
}

#define LATENCY(NAME, RUN) {NAME, open_memory, RUN, close_memory, NANOSECONDS, 1, 0}
#define RATE(NAME, RUN) {NAME, open_memory, RUN, close_memory, MILLIONS_PER_SECOND, 1, 0}

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
    /* Its atomics are always of single elements. */
    LATENCY("single-fetch-and-op", fetch_and_op_each),
    LATENCY("single-compare-and-swap", compare_and_swap_each),
    RATE("single-fetch-and-op-rate", fetch_and_op_many),
    LATENCY("barrier", barrier),
    {"allreduce", open_sums, allreduce, close_sums, NANOSECONDS, 1, 0},
    {"signal", begin_signal, signal_latency, end_signals, NANOSECONDS, 2, 0},
    {"signal-bandwidth", begin_signals, signal_bandwidth, end_signals, GIGABYTES_PER_SECOND, 1, 0},
};

int main(int argc, char **argv)
{
    return measure_all(argc, argv, all, sizeof all / sizeof *all);
}
