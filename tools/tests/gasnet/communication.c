/* A stand-in for tests, NOT GASNet, and no figure may come from it: see gasnetex.h. Active messages, puts,
 * gets and atomics. What may be begun and waited for later is done at once. */
#include "inside.h"
#include "gasnet_ratomic.h"
#include <sched.h>
#include <stdlib.h>
#include <string.h>

struct stand_in_token {
    gex_Rank_t from;
    int may_reply;
};
struct stand_in_domain {
    gex_OP_t ops;
};

static int in_handler;

void communicate(void)
{
    if (in_handler)
        forbidden("a handler communicates other than by its reply");
}

static int ready(struct ring *ring)
{
    return __atomic_load_n(&ring->tail, __ATOMIC_ACQUIRE) != ring->head;
}

static void run(const struct message *message)
{
    const gex_AM_Entry_t *entry = &table[message->handler];
    struct stand_in_token token = {message->from, message->role == GEX_FLAG_AM_REQUEST};
    void *data = message->kind == LONG ? message->destination : (void *)(uintptr_t)message->payload;
    const gex_AM_Arg_t *a = message->arguments;
    if (!entry->gex_fnptr || entry->gex_flags != (message->kind | message->role) ||
        entry->gex_nargs != message->count)
        forbidden("a message for a handler that is not registered so");
    in_handler++;
    if (message->kind == SHORT && message->count == 0)
        ((void (*)(gex_Token_t))entry->gex_fnptr)(&token);
    else if (message->kind == SHORT)
        ((void (*)(gex_Token_t, gex_AM_Arg_t, gex_AM_Arg_t))entry->gex_fnptr)(&token, a[0], a[1]);
    else if (message->count == 0)
        ((void (*)(gex_Token_t, void *, size_t))entry->gex_fnptr)(&token, data, message->length);
    else
        ((void (*)(gex_Token_t, void *, size_t, gex_AM_Arg_t))entry->gex_fnptr)(
            &token, data, message->length, a[0]);
    in_handler--;
}

/* Runs what has come by one ring; its slot is free before the handler runs, which may reply. Replies
 * may come in the midst of a request's handler. */
static int take(int which)
{
    static struct message taken[2];
    struct ring *ring = &shared->areas[rank].rings[which];
    const struct message *slot = &ring->slots[ring->head % SLOTS];
    if (!ready(ring))
        return 0;
    memcpy(&taken[which], slot, offsetof(struct message, payload));
    if (slot->kind == MEDIUM)
        memcpy(taken[which].payload, slot->payload, slot->length);
    __atomic_store_n(&ring->head, ring->head + 1, __ATOMIC_RELEASE);
    run(&taken[which]);
    return 1;
}

int gasnet_AMPoll(void)
{
    int took;
    communicate();
    took = take(REPLIES) | take(REQUESTS);
    if (!took) {
        look_after_children();
        sched_yield();
    }
    return GASNET_OK;
}

/* The local end of a message: GROUP or NOW, or an event; DEFER is not for these. */
static void local_end(const gex_Event_t *lc_opt)
{
    if (!lc_opt || lc_opt == GEX_EVENT_DEFER)
        forbidden("a message whose local end is told in no way that it may be");
}

static int send(gex_Rank_t to, const struct message *head, const void *payload)
{
    int which = head->role == GEX_FLAG_AM_REPLY;
    struct ring *ring = &shared->areas[to].rings[which];
    struct message *slot;
    for (;;) {
        while (__atomic_exchange_n(&ring->lock, 1, __ATOMIC_ACQUIRE))
            sched_yield();
        if (ring->tail - __atomic_load_n(&ring->head, __ATOMIC_ACQUIRE) < SLOTS)
            break;
        __atomic_store_n(&ring->lock, 0, __ATOMIC_RELEASE);
        /* A request's handler replies, and no more of them are run until it has. */
        if (in_handler)
            take(REPLIES);
        else
            gasnet_AMPoll();
    }
    slot = &ring->slots[ring->tail % SLOTS];
    memcpy(slot, head, offsetof(struct message, payload));
    slot->from = rank;
    if (head->kind == MEDIUM)
        memcpy(slot->payload, payload, head->length);
    __atomic_store_n(&ring->tail, ring->tail + 1, __ATOMIC_RELEASE);
    __atomic_store_n(&ring->lock, 0, __ATOMIC_RELEASE);
    return 0;
}

int gex_AM_RequestShort0(gex_TM_t tm, gex_Rank_t to, gex_AM_Index_t handler, gex_Flags_t flags)
{
    struct message head = {.handler = handler, .kind = SHORT, .role = GEX_FLAG_AM_REQUEST};
    (void)flags;
    know(tm, to);
    communicate();
    return send(to, &head, NULL);
}

int gex_AM_RequestShort2(gex_TM_t tm, gex_Rank_t to, gex_AM_Index_t handler, gex_Flags_t flags,
                         gex_AM_Arg_t a0, gex_AM_Arg_t a1)
{
    struct message head = {.handler = handler,
                           .kind = SHORT,
                           .role = GEX_FLAG_AM_REQUEST,
                           .count = 2,
                           .arguments = {a0, a1}};
    (void)flags;
    know(tm, to);
    communicate();
    return send(to, &head, NULL);
}

int gex_AM_ReplyShort2(gex_Token_t token, gex_AM_Index_t handler, gex_Flags_t flags,
                       gex_AM_Arg_t a0, gex_AM_Arg_t a1)
{
    struct message head = {.handler = handler,
                           .kind = SHORT,
                           .role = GEX_FLAG_AM_REPLY,
                           .count = 2,
                           .arguments = {a0, a1}};
    (void)flags;
    if (!in_handler || !token->may_reply)
        forbidden("a reply that nobody may send, or a second one");
    token->may_reply = 0;
    return send(token->from, &head, NULL);
}

int gex_AM_RequestMedium1(gex_TM_t tm, gex_Rank_t to, gex_AM_Index_t handler, const void *source,
                          size_t length, gex_Event_t *lc_opt, gex_Flags_t flags, gex_AM_Arg_t a0)
{
    struct message head = {.handler = handler,
                           .kind = MEDIUM,
                           .role = GEX_FLAG_AM_REQUEST,
                           .count = 1,
                           .arguments = {a0},
                           .length = length};
    know(tm, to);
    communicate();
    if (length > gex_AM_MaxRequestMedium(tm, to, lc_opt, flags, 1))
        forbidden("a Medium that is too long");
    return send(to, &head, source);
}

int gex_AM_RequestLong0(gex_TM_t tm, gex_Rank_t to, gex_AM_Index_t handler, const void *source,
                        size_t length, void *destination, gex_Event_t *lc_opt, gex_Flags_t flags)
{
    struct message head = {.handler = handler,
                           .kind = LONG,
                           .role = GEX_FLAG_AM_REQUEST,
                           .length = length,
                           .destination = destination};
    know(tm, to);
    communicate();
    if (length > gex_AM_MaxRequestLong(tm, to, lc_opt, flags, 0))
        forbidden("a Long that is too long");
    memmove(inside(to, destination, length), source, length);
    return send(to, &head, NULL);
}

size_t gex_AM_MaxRequestMedium(gex_TM_t tm, gex_Rank_t other, const gex_Event_t *lc_opt,
                               gex_Flags_t flags, unsigned int count)
{
    (void)flags;
    know(tm, other);
    local_end(lc_opt);
    return MOST_MEDIUM - 4 * count;
}

size_t gex_AM_MaxRequestLong(gex_TM_t tm, gex_Rank_t other, const gex_Event_t *lc_opt,
                             gex_Flags_t flags, unsigned int count)
{
    (void)flags;
    (void)count;
    know(tm, other);
    local_end(lc_opt);
    return 0x7fffffff;
}

int gex_RMA_PutBlocking(gex_TM_t tm, gex_Rank_t to, void *destination, const void *source,
                        size_t length, gex_Flags_t flags)
{
    (void)flags;
    know(tm, to);
    communicate();
    memmove(inside(to, destination, length), source, length);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    return 0;
}

int gex_RMA_PutNBI(gex_TM_t tm, gex_Rank_t to, void *destination, const void *source,
                   size_t length, gex_Event_t *lc_opt, gex_Flags_t flags)
{
    if (lc_opt != GEX_EVENT_NOW && lc_opt != GEX_EVENT_DEFER && lc_opt != GEX_EVENT_GROUP)
        forbidden("a put whose local end is told in no way that it may be");
    return gex_RMA_PutBlocking(tm, to, destination, source, length, flags);
}

int gex_RMA_GetBlocking(gex_TM_t tm, void *destination, gex_Rank_t from, void *source,
                        size_t length, gex_Flags_t flags)
{
    (void)flags;
    know(tm, from);
    communicate();
    memmove(destination, inside(from, source, length), length);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    return 0;
}

int gex_RMA_GetNBI(gex_TM_t tm, void *destination, gex_Rank_t from, void *source, size_t length,
                   gex_Flags_t flags)
{
    return gex_RMA_GetBlocking(tm, destination, from, source, length, flags);
}

void gex_Event_Wait(gex_Event_t event)
{
    if (event != GEX_EVENT_INVALID)
        forbidden("an event that nothing has given out");
    gasnet_AMPoll();
}

void gex_NBI_Wait(gex_EC_t mask, gex_Flags_t flags)
{
    (void)flags;
    if (mask == 0 || (mask & ~GEX_EC_ALL))
        forbidden("no such kind of events");
    gasnet_AMPoll();
}

void gex_AD_Create(gex_AD_t *ad_p, gex_TM_t tm, gex_DT_t type, gex_OP_t ops, gex_Flags_t flags)
{
    (void)flags;
    know(tm, 0);
    if (type != GEX_DT_U64)
        forbidden("a type that this stand-in has not");
    *ad_p = malloc(sizeof **ad_p);
    if (!*ad_p)
        forbidden("out of memory");
    (*ad_p)->ops = ops;
    gex_Event_Wait(gex_Coll_BarrierNB(tm, 0));
}

int gex_AD_OpNBI_U64(gex_AD_t ad, uint64_t *result, gex_Rank_t to, void *where, gex_OP_t op,
                     uint64_t first, uint64_t second, gex_Flags_t flags)
{
    uint64_t *word = inside(to, where, 8);
    (void)flags;
    communicate();
    if (!(ad->ops & op) || (uintptr_t)where % 8 != 0)
        forbidden("an operation that its domain has not, or a word that lies askew");
    switch (op) {
    case GEX_OP_ADD:
        __atomic_fetch_add(word, first, __ATOMIC_SEQ_CST);
        break;
    case GEX_OP_FADD:
        *result = __atomic_fetch_add(word, first, __ATOMIC_SEQ_CST);
        break;
    case GEX_OP_FCAS:
        __atomic_compare_exchange_n(word, &first, second, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
        *result = first;
        break;
    default:
        forbidden("an operation that this stand-in has not");
    }
    return 0;
}

gex_Event_t gex_AD_OpNB_U64(gex_AD_t ad, uint64_t *result, gex_Rank_t to, void *where, gex_OP_t op,
                            uint64_t first, uint64_t second, gex_Flags_t flags)
{
    gex_AD_OpNBI_U64(ad, result, to, where, op, first, second, flags);
    return GEX_EVENT_INVALID;
}
