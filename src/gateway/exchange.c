#include "gateway/exchange.h"

#include "hapax/error.h"

#include <stdlib.h>

enum {
    EXCHANGE_POOL_MAX = 256,
    ANSWER_RESERVED_BYTES = 16 * 1024, /* what most answers fit into */
    EXCHANGE_BUFFER_KEPT_BYTES = 16 * 1024,
    EXCHANGE_ARENA_BYTES_MAX =
        4 * 1024 * 1024, /* key, scope, lines for the upstream: some times a head's size */
};

static void init_buffers(struct exchange *e)
{
    buf_init(&e->body, 0);
    buf_init(&e->intake.head, LIMIT_ANSWER_HEAD_BYTES_MAX);
    buf_init(&e->intake.kept_head, LIMIT_ANSWER_HEAD_BYTES_MAX);
    buf_init(&e->intake.body, 0);
}

static void trim(struct buf *b)
{
    if (b->cap > EXCHANGE_BUFFER_KEPT_BYTES) {
        buf_free(b);
    } else {
        buf_clear(b);
    }
}

static struct exchange *from_pool(struct worker *w)
{
    struct exchange *e = w->idle;
    if (e != NULL) {
        w->idle = e->next;
        w->idle_count--;
        return e;
    }
    e = calloc(1, sizeof *e);
    if (e != NULL) {
        arena_init(&e->arena, EXCHANGE_ARENA_BYTES_MAX);
        init_buffers(e);
    }
    return e;
}

struct exchange *exchange_open(struct worker *w, struct http_exchange *x, const struct target *t)
{
    struct exchange *e = from_pool(w);
    if (e == NULL) {
        return NULL;
    }
    e->worker = w;
    e->routing = routing_retain(w->routing);
    e->target = t;
    e->x = x;
    e->request = *http_exchange_request(x);
    e->body.len_max = t->route->body_bytes_max;
    e->failure = PROBLEM_COUNT;
    e->next = w->live;
    e->previous = NULL;
    if (w->live != NULL) {
        w->live->previous = e;
    }
    w->live = e;
    http_exchange_set_user(x, e);
    atomic_fetch_add_explicit(&w->shared->exchanges, 1, memory_order_relaxed);
    return e;
}

/* Everything that belongs to one request goes; the memory of small buffers stays for the next. */
static void reset(struct exchange *e)
{
    struct arena arena = e->arena;
    struct buf body = e->body;
    struct intake intake = e->intake;
    struct loop_timer *timer = e->timer;
    arena_reset(&arena);
    trim(&body);
    trim(&intake.head);
    trim(&intake.kept_head);
    trim(&intake.body);
    memset(e, 0, sizeof *e);
    e->arena = arena;
    e->body = body;
    e->intake.head = intake.head;
    e->intake.kept_head = intake.kept_head;
    e->intake.body = intake.body;
    e->timer = timer;
}

void exchange_discard(struct exchange *e)
{
    arena_free(&e->arena);
    buf_free(&e->body);
    buf_free(&e->intake.head);
    buf_free(&e->intake.kept_head);
    buf_free(&e->intake.body);
    if (e->timer != NULL) {
        loop_timer_close(e->timer);
    }
    free(e);
}

static void unlink_live(struct worker *w, struct exchange *e)
{
    if (e->previous != NULL) {
        e->previous->next = e->next;
    } else {
        w->live = e->next;
    }
    if (e->next != NULL) {
        e->next->previous = e->previous;
    }
}

void exchange_cancel_call(struct exchange *e)
{
    if (e->intake.call != NULL) {
        http_call_cancel(e->intake.call);
        e->intake.call = NULL;
    }
}

void exchange_cancel_all(struct worker *w)
{
    for (struct exchange *e = w->live; e != NULL;) {
        struct exchange *next = e->next;
        exchange_cancel_call(e);
        if (e->timer_running) {
            loop_timer_stop(e->timer);
            e->timer_running = false;
        }
        exchange_unpin(e);
        e = next;
    }
}

void exchange_unpin(struct exchange *e)
{
    if (e->x != NULL || e->op_pending || e->intake.call != NULL || e->timer_running) {
        return;
    }
    struct worker *w = e->worker;
    unlink_live(w, e);
    if (e->running) {
        atomic_fetch_sub_explicit(&e->target->metrics->running, 1, memory_order_relaxed);
    }
    atomic_fetch_sub_explicit(&w->shared->body_bytes, e->accounted_bytes, memory_order_relaxed);
    answer_drop(e->answer);
    routing_drop(e->routing);
    reset(e);
    atomic_fetch_sub_explicit(&w->shared->exchanges, 1, memory_order_release);
    if (w->idle_count >= EXCHANGE_POOL_MAX) {
        exchange_discard(e);
        return;
    }
    e->next = w->idle;
    w->idle = e;
    w->idle_count++;
}

int exchange_submit(struct exchange *e)
{
    struct engine *engine = e->worker->shared->engine;
    int rc = engine != NULL ? engine_submit(engine, &e->op) : HAPAX_E_CLOSED;
    e->op_pending = rc == 0;
    return rc;
}

static bool account(struct exchange *e, uint64_t bytes, uint64_t bytes_max)
{
    struct shared *s = e->worker->shared;
    uint64_t before = atomic_fetch_add_explicit(&s->body_bytes, bytes, memory_order_relaxed);
    if (before + bytes > bytes_max) {
        atomic_fetch_sub_explicit(&s->body_bytes, bytes, memory_order_relaxed);
        return false;
    }
    e->accounted_bytes += bytes;
    return true;
}

bool exchange_account(struct exchange *e, size_t bytes)
{
    return account(e, bytes, e->worker->shared->body_bytes_max);
}

/* Answers have a quarter more, which no request's body can take: whoever only uploads costs nobody an answer. */
bool intake_account(struct exchange *e, uint64_t body_bytes)
{
    struct intake *in = &e->intake;
    uint64_t requests_max = e->worker->shared->body_bytes_max;
    if (body_bytes <= in->accounted_bytes) {
        return true;
    }
    uint64_t more = body_bytes - in->accounted_bytes;
    bool within_budget = account(e, more, requests_max + requests_max / 4);
    in->accounted_bytes += within_budget ? more : 0;
    return within_budget;
}

bool intake_reserve(struct exchange *e)
{
    uint64_t keep_bytes = e->target->route->keep_body_bytes;
    return intake_account(e, keep_bytes < ANSWER_RESERVED_BYTES ? keep_bytes : ANSWER_RESERVED_BYTES);
}

void intake_drop_body(struct exchange *e)
{
    struct intake *in = &e->intake;
    atomic_fetch_sub_explicit(&e->worker->shared->body_bytes, in->accounted_bytes, memory_order_relaxed);
    e->accounted_bytes -= in->accounted_bytes;
    in->accounted_bytes = 0;
    buf_free(&in->body);
}
