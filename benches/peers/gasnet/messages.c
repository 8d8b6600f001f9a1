/* Messages between ranks 2 i and 2 i + 1 of GASNet-EX: active messages, whose handlers put what comes
 * where it is wanted and count it. The bytes are arguments (Short), come along and are copied by the
 * handler (Medium), or are put into place before it runs (Long): for each size what is fastest, tried
 * before anything is timed. */
#define PEERS_GASNET
/* A window of the largest ones. */
#define SEGMENT (32L << 20)
#include "common.h"

enum { WINDOW = 64, SMALL_WINDOW = 8, LARGE = 256 << 10, TRIAL = 64, TRIALS = 5 };
enum way { SHORT, MEDIUM, LONG };
enum {
    TAKE_SHORT = GEX_AM_INDEX_BASE,
    TAKE_MEDIUM,
    TAKE_LONG,
    TAKE_ANSWER,
    TAKE_REQUEST,
    TAKE_RESULT
};

static gex_Rank_t peer;
static int window;
static enum way way;
/* To send from, and to receive into: the latter in the segment. Theirs are where ours are. */
static char *out[WINDOW], *in[WINDOW];
/* What has come, and what was waited for until now. */
static volatile long arrived, answered;
static long arrivals, answers;
static uint64_t counter, result;

static uint64_t joined(gex_AM_Arg_t low, gex_AM_Arg_t high)
{
    return (uint64_t)(uint32_t)high << 32 | (uint32_t)low;
}

static gex_AM_Arg_t half(uint64_t value, int which)
{
    return (gex_AM_Arg_t)(uint32_t)(value >> 32 * which);
}

static void take_short(gex_Token_t token, gex_AM_Arg_t low, gex_AM_Arg_t high)
{
    uint64_t value = joined(low, high);
    (void)token;
    memcpy(in[0], &value, 8);
    arrived++;
}

static void take_medium(gex_Token_t token, void *from, size_t length, gex_AM_Arg_t at)
{
    (void)token;
    memcpy(in[at], from, length);
    arrived++;
}

static void take_long(gex_Token_t token, void *where, size_t length)
{
    (void)token;
    (void)where;
    (void)length;
    arrived++;
}

static void take_answer(gex_Token_t token)
{
    (void)token;
    answered++;
}

static uint64_t add(uint64_t value)
{
    uint64_t old = counter;
    counter += value;
    return old;
}

static void take_request(gex_Token_t token, gex_AM_Arg_t low, gex_AM_Arg_t high)
{
    uint64_t old = add(joined(low, high));
    gex_AM_ReplyShort2(token, TAKE_RESULT, 0, half(old, 0), half(old, 1));
    arrived++;
}

static void take_result(gex_Token_t token, gex_AM_Arg_t low, gex_AM_Arg_t high)
{
    (void)token;
    result = joined(low, high);
    answered++;
}

#define HANDLER(WHICH, FUNCTION, KIND, ROLE, ARGUMENTS)                                            \
    {.gex_index = WHICH,                                                                           \
     .gex_fnptr = (gex_AM_Fn_t)FUNCTION,                                                           \
     .gex_flags = GEX_FLAG_AM_##KIND | GEX_FLAG_AM_##ROLE,                                         \
     .gex_nargs = ARGUMENTS}

static void prepare(void)
{
    gex_AM_Entry_t all[] = {
        HANDLER(TAKE_SHORT, take_short, SHORT, REQUEST, 2),
        HANDLER(TAKE_MEDIUM, take_medium, MEDIUM, REQUEST, 1),
        HANDLER(TAKE_LONG, take_long, LONG, REQUEST, 0),
        HANDLER(TAKE_ANSWER, take_answer, SHORT, REQUEST, 0),
        HANDLER(TAKE_REQUEST, take_request, SHORT, REQUEST, 2),
        HANDLER(TAKE_RESULT, take_result, SHORT, REPLY, 2),
    };
    check(gex_EP_RegisterHandlers(endpoint, all, sizeof all / sizeof *all), "registering handlers");
    peer = (gex_Rank_t)(rank ^ 1);
    if (size % 2 != 0) {
        fprintf(stderr, "messages go between pairs: %d ranks are no such number\n", size);
        quit();
    }
}

static void await_messages(long count)
{
    arrivals += count;
    GASNET_BLOCKUNTIL(arrived >= arrivals);
}

static void await_answers(long count)
{
    answers += count;
    GASNET_BLOCKUNTIL(answered >= answers);
}

static void answer(void)
{
    gex_AM_RequestShort0(team, peer, TAKE_ANSWER, 0);
}

static inline void deliver(long at)
{
    uint64_t value;
    switch (way) {
    case SHORT:
        memcpy(&value, out[at], 8);
        gex_AM_RequestShort2(team, peer, TAKE_SHORT, 0, half(value, 0), half(value, 1));
        break;
    case MEDIUM:
        gex_AM_RequestMedium1(team, peer, TAKE_MEDIUM, out[at], (size_t)bytes, GEX_EVENT_NOW, 0,
                              (gex_AM_Arg_t)at);
        break;
    case LONG:
        gex_AM_RequestLong0(team, peer, TAKE_LONG, out[at], (size_t)bytes,
                            bases[peer] + (in[at] - bases[rank]), GEX_EVENT_NOW, 0);
        break;
    }
}

/* The shortest of some trials of a workload the way that is set. */
static double tried(void (*run)(long))
{
    double least = 0;
    int i;
    for (i = 0; i <= TRIALS; i++) {
        double start, took;
        meet();
        start = now();
        run(TRIAL);
        took = now() - start;
        /* The first warms up. */
        if (i == 1 || (i > 1 && took < least))
            least = took;
    }
    return least;
}

/* The fastest way for this size and workload; rank 0's word holds for all. */
static void choose(void (*run)(long), enum way last)
{
    size_t most[] = {
        8,
        gex_AM_MaxRequestMedium(team, peer, GEX_EVENT_NOW, 0, 1),
        gex_AM_MaxRequestLong(team, peer, GEX_EVENT_NOW, 0, 0),
    };
    double least = 0;
    long chosen = -1;
    int candidate;
    for (candidate = SHORT; candidate <= (int)last; candidate++) {
        double took;
        if ((size_t)bytes > most[candidate] || (candidate == SHORT && window > 1))
            continue;
        way = (enum way)candidate;
        took = tried(run);
        if (chosen < 0 || took < least) {
            chosen = candidate;
            least = took;
        }
    }
    tell(&chosen);
    if (chosen < 0) {
        fprintf(stderr, "no active message has room for %ld bytes\n", bytes);
        quit();
    }
    way = (enum way)chosen;
}

/* So many buffers of `bytes` to receive into. */
static void open_buffers(int count)
{
    size_t room = bytes < 64 ? 64 : (size_t)bytes;
    int i;
    window = count;
    if (room * (size_t)count > (size_t)SEGMENT) {
        fprintf(stderr, "the segment has no room for %d times %ld bytes\n", count, bytes);
        quit();
    }
    for (i = 0; i < count; i++) {
        in[i] = bases[rank] + room * (size_t)i;
        memset(in[i], 1, room);
    }
    meet();
}

/* Back and forth. */
static void latency(long n)
{
    long i;
    for (i = 0; i < n; i++) {
        if (rank % 2 == 0) {
            if (bytes >= 8)
                memcpy(out[0], &i, 8);
            deliver(0);
            await_messages(1);
        } else {
            await_messages(1);
            deliver(0);
        }
    }
}

/* As many as possible one way; the last is answered. */
static void rate(long n)
{
    long i;
    if (rank % 2 == 0) {
        for (i = 0; i < n; i++) {
            memcpy(out[0], &i, 8);
            deliver(0);
        }
        await_answers(1);
    } else {
        await_messages(n);
        answer();
    }
}

/* The same by all pairs; over when the last is through. All their messages count. */
static void rate_pairs(long n)
{
    long i;
    if (rank % 2 == 0) {
        for (i = 0; i < n; i++) {
            memcpy(out[0], &i, 8);
            deliver(0);
        }
    } else {
        await_messages(n);
    }
    meet();
    counted = (double)n * (size / 2);
}

static long in_window(long n, long at)
{
    return n - at < window ? n - at : window;
}

/* Windows of messages one way, each window answered. */
static void bandwidth(long n)
{
    long at, count, i;
    for (at = 0; at < n; at += count) {
        count = in_window(n, at);
        if (rank % 2 == 0) {
            for (i = 0; i < count; i++)
                deliver(i);
            await_answers(1);
        } else {
            await_messages(count);
            answer();
        }
    }
}

/* Windows of messages both ways at once. The answer says that what was received into is free again. */
static void bidirectional(long n)
{
    long at, count, i;
    for (at = 0; at < n; at += count) {
        count = in_window(n, at);
        for (i = 0; i < count; i++)
            deliver(i);
        await_messages(count);
        answer();
        await_answers(1);
    }
}

/* An active message that adds; its reply has what was there. The target does nothing but answer. */
static void request(long n)
{
    uint64_t value = 1;
    long i;
    if (rank % 2 != 0) {
        await_messages(n);
        return;
    }
    for (i = 0; i < n; i++) {
        gex_AM_RequestShort2(team, peer, TAKE_REQUEST, 0, half(value, 0), half(value, 1));
        await_answers(1);
    }
}

/* One buffer for both directions. */
static void begin_one(void)
{
    open_buffers(1);
    out[0] = in[0];
}

static void begin_latency(void)
{
    begin_one();
    choose(latency, LONG);
}

/* No Longs in a stream: they would overwrite what nobody has seen yet. */
static void begin_rate(void)
{
    begin_one();
    choose(rate, MEDIUM);
}

static void begin_pairs(void)
{
    begin_one();
    choose(rate_pairs, MEDIUM);
}

static void end_one(void)
{
    meet();
}

static void begin_windows(void (*run)(long))
{
    int i;
    open_buffers(bytes < LARGE ? WINDOW : SMALL_WINDOW);
    for (i = 0; i < window; i++)
        out[i] = memory((size_t)bytes);
    choose(run, LONG);
}

static void begin_bandwidth(void)
{
    begin_windows(bandwidth);
}

static void begin_bidirectional(void)
{
    begin_windows(bidirectional);
}

static void end_windows(void)
{
    int i;
    meet();
    for (i = 0; i < window; i++)
        free(out[i]);
}

static const struct workload all[] = {
    {"latency", begin_latency, latency, end_one, NANOSECONDS, 2, 0},
    {"rate", begin_rate, rate, end_one, MILLIONS_PER_SECOND, 1, 0},
    {"rate-pairs", begin_pairs, rate_pairs, end_one, MILLIONS_PER_SECOND, 1, 0},
    {"bandwidth", begin_bandwidth, bandwidth, end_windows, GIGABYTES_PER_SECOND, 1, 0},
    {"bidirectional", begin_bidirectional, bidirectional, end_windows, GIGABYTES_PER_SECOND, 2, 0},
    {"request", begin_one, request, end_one, NANOSECONDS, 1, 0},
};

int main(int argc, char **argv)
{
    return measure_all(argc, argv, all, sizeof all / sizeof *all);
}
