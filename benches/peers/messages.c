/* Messages between ranks 2 i and 2 i + 1: latency, bandwidth, rate, request and reply. */
#include "common.h"

enum { WINDOW = 64, SMALL_WINDOW = 8, LARGE = 256 << 10 };

static int peer, window;
static char *one;
static char *out[WINDOW], *in[WINDOW];
static MPI_Request requests[2 * WINDOW];
static uint64_t counter;

static void begin_one(void)
{
    peer = rank ^ 1;
    one = memory((size_t)bytes);
}

static void end_one(void)
{
    free(one);
}

/* A buffer to send from and one to receive into. */
static void begin_still(void)
{
    peer = rank ^ 1;
    window = bytes < LARGE ? WINDOW : SMALL_WINDOW;
    out[0] = memory((size_t)bytes);
    in[0] = memory((size_t)bytes);
}

static void end_still(void)
{
    free(out[0]);
    free(in[0]);
}

static void send(int tag)
{
    MPI_Send(one, (int)bytes, MPI_BYTE, peer, tag, MPI_COMM_WORLD);
}

static void receive(int tag)
{
    MPI_Recv(one, (int)bytes, MPI_BYTE, peer, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

/* Back and forth. */
static void latency(long n)
{
    long i;
    for (i = 0; i < n; i++) {
        if (rank % 2 == 0) {
            if (bytes >= 8)
                memcpy(one, &i, 8);
            send(1);
            receive(1);
        } else {
            receive(1);
            send(1);
        }
    }
}

/* Back and forth, from buffers that nobody writes to but the library. */
static void latency_still(long n)
{
    long i;
    for (i = 0; i < n; i++) {
        if (rank % 2 == 0)
            MPI_Send(out[0], (int)bytes, MPI_BYTE, peer, 1, MPI_COMM_WORLD);
        MPI_Recv(in[0], (int)bytes, MPI_BYTE, peer, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (rank % 2 != 0)
            MPI_Send(out[0], (int)bytes, MPI_BYTE, peer, 1, MPI_COMM_WORLD);
    }
}

/* As many as possible one way; the last is answered. */
static void rate(long n)
{
    long i;
    if (rank % 2 == 0) {
        for (i = 0; i < n; i++) {
            memcpy(one, &i, 8);
            send(1);
        }
        receive(2);
    } else {
        for (i = 0; i < n; i++)
            receive(1);
        send(2);
    }
}

/* The same by all pairs; over when the last is through. All their messages count. */
static void rate_pairs(long n)
{
    long i;
    if (rank % 2 == 0) {
        for (i = 0; i < n; i++) {
            memcpy(one, &i, 8);
            send(1);
        }
    } else {
        for (i = 0; i < n; i++)
            receive(1);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    counted = (double)n * (size / 2);
}

static void begin_windows(void)
{
    int i;
    peer = rank ^ 1;
    window = bytes < LARGE ? WINDOW : SMALL_WINDOW;
    for (i = 0; i < window; i++) {
        out[i] = memory((size_t)bytes);
        in[i] = memory((size_t)bytes);
    }
}

static void end_windows(void)
{
    int i;
    for (i = 0; i < window; i++) {
        free(out[i]);
        free(in[i]);
    }
}

static long in_window(long n, long at)
{
    return n - at < window ? n - at : window;
}

static void post_receives(long count)
{
    long i;
    for (i = 0; i < count; i++)
        MPI_Irecv(in[i], (int)bytes, MPI_BYTE, peer, 1, MPI_COMM_WORLD, &requests[i]);
}

static void post_sends(long count, MPI_Request *first)
{
    long i;
    for (i = 0; i < count; i++)
        MPI_Isend(out[i], (int)bytes, MPI_BYTE, peer, 1, MPI_COMM_WORLD, &first[i]);
}

/* Windows of messages one way, each window answered. */
static void bandwidth(long n)
{
    long at, count;
    char nothing;
    for (at = 0; at < n; at += count) {
        count = in_window(n, at);
        if (rank % 2 == 0) {
            post_sends(count, requests);
            MPI_Waitall((int)count, requests, MPI_STATUSES_IGNORE);
            MPI_Recv(&nothing, 0, MPI_BYTE, peer, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            post_receives(count);
            MPI_Waitall((int)count, requests, MPI_STATUSES_IGNORE);
            MPI_Send(&nothing, 0, MPI_BYTE, peer, 2, MPI_COMM_WORLD);
        }
    }
}

/* Windows of messages from one buffer that nobody writes to, received one after the other into one;
 * the last is answered. */
static void bandwidth_still(long n)
{
    long at, count, i;
    char nothing;
    if (rank % 2 == 0) {
        for (at = 0; at < n; at += count) {
            count = in_window(n, at);
            for (i = 0; i < count; i++)
                MPI_Isend(out[0], (int)bytes, MPI_BYTE, peer, 1, MPI_COMM_WORLD, &requests[i]);
            MPI_Waitall((int)count, requests, MPI_STATUSES_IGNORE);
        }
        MPI_Recv(&nothing, 0, MPI_BYTE, peer, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
        for (i = 0; i < n; i++)
            MPI_Recv(in[0], (int)bytes, MPI_BYTE, peer, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(&nothing, 0, MPI_BYTE, peer, 2, MPI_COMM_WORLD);
    }
}

/* Windows of messages both ways at once. */
static void bidirectional(long n)
{
    long at, count;
    for (at = 0; at < n; at += count) {
        count = in_window(n, at);
        post_receives(count);
        post_sends(count, requests + count);
        MPI_Waitall((int)(2 * count), requests, MPI_STATUSES_IGNORE);
    }
}

static uint64_t add(uint64_t value)
{
    uint64_t old = counter;
    counter += value;
    return old;
}

typedef uint64_t (*handler)(uint64_t);
static handler handlers[8] = {0, 0, 0, add};

/* An active message, written over messages: the tag names the handler, the reply brings its
 * result. The target does nothing but answer. */
static void request(long n)
{
    const int which = 3, reply = 100;
    uint64_t value = 1;
    MPI_Status status;
    long i;
    for (i = 0; i < n; i++) {
        if (rank % 2 == 0) {
            MPI_Send(&value, 8, MPI_BYTE, peer, which, MPI_COMM_WORLD);
            MPI_Recv(&counter, 8, MPI_BYTE, peer, reply, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            uint64_t result;
            MPI_Recv(&value, 8, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
            result = handlers[status.MPI_TAG & 7](value);
            MPI_Send(&result, 8, MPI_BYTE, status.MPI_SOURCE, reply, MPI_COMM_WORLD);
        }
    }
}

static const struct workload all[] = {
    {"latency", begin_one, latency, end_one, NANOSECONDS, 2},
    {"latency-still", begin_still, latency_still, end_still, NANOSECONDS, 2},
    {"rate", begin_one, rate, end_one, MILLIONS_PER_SECOND, 1},
    {"rate-pairs", begin_one, rate_pairs, end_one, MILLIONS_PER_SECOND, 1},
    {"bandwidth", begin_windows, bandwidth, end_windows, GIGABYTES_PER_SECOND, 1},
    {"bandwidth-still", begin_still, bandwidth_still, end_still, GIGABYTES_PER_SECOND, 1},
    {"bidirectional", begin_windows, bidirectional, end_windows, GIGABYTES_PER_SECOND, 2},
    {"request", begin_one, request, end_one, NANOSECONDS, 1},
};

int main(int argc, char **argv)
{
    return measure_all(argc, argv, all, sizeof all / sizeof *all);
}
