/* One-sided operations on the right neighbour's part of a window: by rank 0 alone where there are
 * two ranks, by all at once where there are more. */
#include "common.h"
#include "signals.h"

enum { MANY = 128 };

static MPI_Win win;
static void *part;
static uint64_t *origin, *result, *old, expected;
static int target, acts, count;
static MPI_Group neighbours;

static void open_told(MPI_Info info)
{
    MPI_Aint length = bytes < 64 ? 64 : bytes;
    MPI_Win_allocate(length, 1, info, MPI_COMM_WORLD, &part, &win);
    memset(part, 0, (size_t)length);
    origin = memory((size_t)bytes);
    result = memory((size_t)bytes + ASIDE * 8);
    old = result + ASIDE;
    expected = 0;
    target = (rank + 1) % size;
    acts = size > 2 || rank == 0;
    count = (int)((bytes + 7) / 8);
    MPI_Barrier(MPI_COMM_WORLD);
}

static void open_window(void)
{
    open_told(MPI_INFO_NULL);
}

/* A window that is told that its elements are updated one by one (MPI-4.1, section 12.2.1). */
static void open_single(void)
{
    MPI_Info info;
    MPI_Info_create(&info);
    MPI_Info_set(info, "mpi_accumulate_granularity", "8");
    MPI_Info_set(info, "accumulate_ops", "same_op");
    open_told(info);
    MPI_Info_free(&info);
}

static void close_window(void)
{
    free(origin);
    free(result);
    MPI_Win_free(&win);
}

/* The operations. */
#define OPERATION static inline __attribute__((always_inline)) void

OPERATION put(void)
{
    MPI_Put(origin, (int)bytes, MPI_BYTE, target, 0, (int)bytes, MPI_BYTE, win);
}

OPERATION get(void)
{
    MPI_Get(result, (int)bytes, MPI_BYTE, target, 0, (int)bytes, MPI_BYTE, win);
}

OPERATION accumulate(void)
{
    MPI_Accumulate(origin, count, MPI_UINT64_T, target, 0, count, MPI_UINT64_T, MPI_SUM, win);
}

OPERATION get_accumulate(void)
{
    MPI_Get_accumulate(origin, count, MPI_UINT64_T, old, count, MPI_UINT64_T, target, 0, count,
                       MPI_UINT64_T, MPI_SUM, win);
}

OPERATION fetch_and_op(void)
{
    MPI_Fetch_and_op(origin, old, MPI_UINT64_T, target, 0, MPI_SUM, win);
}

OPERATION compare_and_swap(void)
{
    uint64_t next = expected + 1;
    MPI_Compare_and_swap(&next, &expected, old, MPI_UINT64_T, target, 0, win);
    MPI_Win_flush(target, win);
    expected = old[0] == expected ? next : old[0];
}

/* Each operation completed, and MANY at a time, under a lock of all. */
#define UNDER_LOCK_ALL(OP)                                                                         \
    static void OP##_each(long n)                                                                  \
    {                                                                                              \
        long i;                                                                                    \
        if (!acts)                                                                                 \
            return;                                                                                \
        MPI_Win_lock_all(0, win);                                                                  \
        for (i = 0; i < n; i++) {                                                                  \
            OP();                                                                                  \
            MPI_Win_flush(target, win);                                                            \
        }                                                                                          \
        MPI_Win_unlock_all(win);                                                                   \
    }                                                                                              \
    static void OP##_many(long n)                                                                  \
    {                                                                                              \
        long i;                                                                                    \
        if (!acts)                                                                                 \
            return;                                                                                \
        MPI_Win_lock_all(0, win);                                                                  \
        for (i = 0; i < n; i++) {                                                                  \
            OP();                                                                                  \
            if (i % MANY == MANY - 1)                                                              \
                MPI_Win_flush(target, win);                                                        \
        }                                                                                          \
        MPI_Win_flush(target, win);                                                                \
        MPI_Win_unlock_all(win);                                                                   \
    }

UNDER_LOCK_ALL(put)
UNDER_LOCK_ALL(get)
UNDER_LOCK_ALL(accumulate)
UNDER_LOCK_ALL(get_accumulate)
UNDER_LOCK_ALL(fetch_and_op)

/* What comes back decides what comes next, so the flush is in the operation. */
static void compare_and_swap_each(long n)
{
    long i;
    if (!acts)
        return;
    MPI_Win_lock_all(0, win);
    for (i = 0; i < n; i++)
        compare_and_swap();
    MPI_Win_unlock_all(win);
}

static void locked(int kind, int whose, long n)
{
    long i;
    for (i = 0; i < n; i++) {
        MPI_Win_lock(kind, whose, 0, win);
        MPI_Put(origin, 8, MPI_BYTE, whose, 0, 8, MPI_BYTE, win);
        MPI_Win_unlock(whose, win);
    }
}

static void lock_shared(long n)
{
    if (acts)
        locked(MPI_LOCK_SHARED, target, n);
}

static void lock_exclusive(long n)
{
    if (acts)
        locked(MPI_LOCK_EXCLUSIVE, target, n);
}

/* By all at once, on rank 0; over when the last is through. */
static void lock_contended(long n)
{
    locked(MPI_LOCK_EXCLUSIVE, 0, n);
    MPI_Barrier(MPI_COMM_WORLD);
}

static void fence(long n)
{
    long i;
    MPI_Win_fence(0, win);
    for (i = 0; i < n; i++)
        MPI_Win_fence(0, win);
}

static void open_pairs(void)
{
    int peer = rank ^ 1;
    MPI_Group everybody;
    open_window();
    MPI_Comm_group(MPI_COMM_WORLD, &everybody);
    MPI_Group_incl(everybody, 1, &peer, &neighbours);
    MPI_Group_free(&everybody);
}

static void close_pairs(void)
{
    MPI_Group_free(&neighbours);
    close_window();
}

/* Even ranks put into the parts of the odd ones above them. */
static void pscw(long n)
{
    long i;
    for (i = 0; i < n; i++) {
        if (rank % 2 == 0) {
            MPI_Win_start(neighbours, 0, win);
            MPI_Put(origin, 8, MPI_BYTE, rank ^ 1, 0, 8, MPI_BYTE, win);
            MPI_Win_complete(win);
        } else {
            MPI_Win_post(neighbours, 0, win);
            MPI_Win_wait(win);
        }
    }
}

/* Puts with a signal: a put, and when that is there a word. */
static MPI_Win slots;
static char *own_slots;
static size_t words_at;
static uint64_t placed, answered;

static void open_slots(size_t length)
{
    words_at = length;
    placed = answered = 0;
    MPI_Win_allocate((MPI_Aint)length + 128, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &own_slots, &slots);
    memset(own_slots, 0, length + 128);
    MPI_Win_lock_all(0, slots);
}

static void close_slots(void)
{
    MPI_Win_unlock_all(slots);
    MPI_Win_free(&slots);
}

static void set_word(size_t at, const uint64_t *value)
{
    MPI_Accumulate(value, 1, MPI_UINT64_T, peer, (MPI_Aint)(words_at + at), 1, MPI_UINT64_T,
                   MPI_REPLACE, slots);
    MPI_Win_flush(peer, slots);
}

/* Some libraries carry out what others have begun only when they are called. */
static void await_word(size_t at, long value)
{
    const volatile uint64_t *word = (const volatile uint64_t *)(own_slots + words_at + at);
    int looks = 0, flag;
    while (*word < (uint64_t)value) {
        MPI_Win_sync(slots);
        if (++looks % 16 == 0)
            MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
    }
    MPI_Win_sync(slots);
}

static void place(long at)
{
    MPI_Put(sources[at], (int)bytes, MPI_BYTE, peer, (MPI_Aint)(slot_bytes() * (size_t)at),
            (int)bytes, MPI_BYTE, slots);
    MPI_Win_flush(peer, slots);
    placed++;
    set_word(0, &placed);
}

static void await_signals(long all)
{
    await_word(0, all);
}

static void answer(void)
{
    answered++;
    set_word(64, &answered);
}

static void await_answers(long all)
{
    await_word(64, all);
}

#define LATENCY(NAME, RUN) {NAME, open_window, RUN, close_window, NANOSECONDS, 1}
#define RATE(NAME, RUN) {NAME, open_window, RUN, close_window, MILLIONS_PER_SECOND, 1}
#define SINGLE(NAME, RUN, UNIT) {NAME, open_single, RUN, close_window, UNIT, 1}

static const struct workload all[] = {
    LATENCY("put", put_each),
    LATENCY("get", get_each),
    LATENCY("accumulate", accumulate_each),
    LATENCY("get-accumulate", get_accumulate_each),
    LATENCY("fetch-and-op", fetch_and_op_each),
    LATENCY("compare-and-swap", compare_and_swap_each),
    RATE("put-rate", put_many),
    RATE("get-rate", get_many),
    RATE("accumulate-rate", accumulate_many),
    RATE("get-accumulate-rate", get_accumulate_many),
    RATE("fetch-and-op-rate", fetch_and_op_many),
    SINGLE("single-fetch-and-op", fetch_and_op_each, NANOSECONDS),
    SINGLE("single-compare-and-swap", compare_and_swap_each, NANOSECONDS),
    SINGLE("single-fetch-and-op-rate", fetch_and_op_many, MILLIONS_PER_SECOND),
    LATENCY("lock-shared", lock_shared),
    LATENCY("lock-exclusive", lock_exclusive),
    LATENCY("lock-contended", lock_contended),
    LATENCY("fence", fence),
    {"pscw", open_pairs, pscw, close_pairs, NANOSECONDS, 1},
    {"signal", begin_signal, signal_latency, end_signals, NANOSECONDS, 2, 0},
    {"signal-bandwidth", begin_signals, signal_bandwidth, end_signals, GIGABYTES_PER_SECOND, 1, 0},
};

int main(int argc, char **argv)
{
    return measure_all(argc, argv, all, sizeof all / sizeof *all);
}
