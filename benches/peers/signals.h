/* Puts with a signal behind them, between ranks 2 i and 2 i + 1: there and back, and in windows of which each
 * is answered. Who has seen the signal has the data.
 *
 * What a library's program says before it includes this is how each of these is done. */
#ifndef PEERS_SIGNALS_H
#define PEERS_SIGNALS_H

enum { WINDOW = 64, SMALL_WINDOW = 8, LARGE = 256 << 10 };

static int peer, window;
/* To put from. */
static char *sources[WINDOW];
/* What was waited for until now. */
static long signals, answers;

/* Bytes from one slot to the next, and of all of them. */
static size_t slot_bytes(void)
{
    return bytes < 64 ? 64 : ((size_t)bytes + 63) / 64 * 64;
}

/* Room for so many slots at the same place of every rank. */
static void open_slots(size_t length);
static void close_slots(void);
/* `sources[at]` into the peer's slot `at`, and a signal. */
static void place(long at);
/* Until there have been so many. */
static void await_signals(long all);
/* Of another kind. */
static void answer(void);
static void await_answers(long all);

static void begin_slots(int count)
{
    int i;
    peer = rank ^ 1;
    window = count;
    signals = answers = 0;
    for (i = 0; i < window; i++)
        sources[i] = memory((size_t)bytes);
    open_slots(slot_bytes() * (size_t)window);
    meet();
}

static void begin_signal(void)
{
    begin_slots(1);
}

static void begin_signals(void)
{
    begin_slots(bytes < LARGE ? WINDOW : SMALL_WINDOW);
}

static void end_signals(void)
{
    int i;
    meet();
    for (i = 0; i < window; i++)
        free(sources[i]);
    close_slots();
}

/* Back and forth. */
static void signal_latency(long n)
{
    long i;
    for (i = 0; i < n; i++) {
        if (rank % 2 == 0) {
            if (bytes >= 8)
                memcpy(sources[0], &i, 8);
            place(0);
            await_signals(++signals);
        } else {
            await_signals(++signals);
            place(0);
        }
    }
}

/* Windows one way, each answered. */
static void signal_bandwidth(long n)
{
    long at, count, i;
    for (at = 0; at < n; at += count) {
        count = n - at < window ? n - at : window;
        if (rank % 2 == 0) {
            for (i = 0; i < count; i++)
                place(i);
            await_answers(++answers);
        } else {
            signals += count;
            await_signals(signals);
            answer();
        }
    }
}

#endif
