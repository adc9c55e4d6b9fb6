/* A worker's set-up, and the dispatch of a listener's events to exchanges. */
#include "gateway/exchange.h"

#include "base/error.h"
#include "base/log.h"

#include <stdlib.h>
#include <sys/random.h>
#include <time.h>

enum { SCRATCH_BYTES_MAX = 64 * 1024 * 1024 };

/* Methods differ by case, but many an upstream does not know it, and fetch() sends "patch" as it was written. */
static unsigned method_bit(struct slice method)
{
    static const struct {
        struct slice name;
        unsigned bit;
    } methods[] = {{{"POST", 4}, METHOD_POST},
                   {{"PATCH", 5}, METHOD_PATCH},
                   {{"PUT", 3}, METHOD_PUT},
                   {{"DELETE", 6}, METHOD_DELETE}};
    for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++) {
        if (slice_equal_nocase(method, methods[i].name)) {
            return methods[i].bit;
        }
    }
    return 0;
}

/* Do answers to the request carry Idempotency-Status? */
static bool is_marked(const struct target *t, const struct request *r)
{
    return t->route->protect != 0 && !method_is_safe(r->method);
}

/* Of an answer to a request that gets no exchange. t: NULL, where it belongs to no route. */
static enum marker bare_marker(const struct target *t, const struct request *r)
{
    return t != NULL && is_marked(t, r) ? MARK_REJECTED : MARK_NONE;
}

static void on_request(void *ctx, struct http_exchange *x)
{
    struct worker *w = ctx;
    const struct request *r = http_exchange_request(x);
    if (slice_equal(r->path, SLICE_LITERAL("*"))) {
        /* OPTIONS of the server as a whole (RFC 9110 section 9.3.7), which this is: no route is meant. */
        http_respond(x, 204, SLICE_LITERAL(""), SLICE_LITERAL(""));
        return;
    }
    const struct target *t = routing_find(w->routing, r);
    if (t == NULL) {
        reply_problem_bare(x, PROBLEM_NO_ROUTE, MARK_NONE,
                           "No route of the configuration matches this host and path.");
        return;
    }
    struct exchange *e = exchange_open(w, x, t);
    if (e == NULL) {
        reply_problem_bare(x, PROBLEM_OVERLOADED, bare_marker(t, r),
                           "The gateway is out of memory; try again later.");
    } else if ((t->route->protect & method_bit(r->method)) != 0) {
        protect_begin(e);
    } else {
        passthrough_begin(e, is_marked(t, r), METRIC_UNPROTECTED);
    }
}

static void on_defect(void *ctx, struct http_exchange *x, enum http_defect defect, const char *detail)
{
    struct worker *w = ctx;
    static const enum problem problems[] = {
        [HTTP_MALFORMED] = PROBLEM_MALFORMED,
        [HTTP_HEAD_TOO_LARGE] = PROBLEM_HEAD_TOO_LARGE,
        [HTTP_EXPECTATION_UNKNOWN] = PROBLEM_EXPECTATION,
        [HTTP_UPGRADE] = PROBLEM_UPGRADE,
        [HTTP_VERSION_UNSUPPORTED] = PROBLEM_VERSION,
        [HTTP_HEAD_TIMEOUT] = PROBLEM_REQUEST_TIMEOUT,
    };
    /* Only of these two was all understood that a route is found by. */
    bool understood = defect == HTTP_EXPECTATION_UNKNOWN || defect == HTTP_UPGRADE;
    const struct request *r = http_exchange_request(x);
    enum marker m = understood ? bare_marker(routing_find(w->routing, r), r) : MARK_NONE;
    reply_problem_bare(x, problems[defect], m, detail);
}

static void on_body(void *ctx, struct http_exchange *x, struct slice bytes)
{
    struct exchange *e = http_exchange_user(x);
    (void)ctx;
    if (e == NULL) {
        return;
    }
    if (e->unprotected) {
        passthrough_body(e, bytes);
    } else {
        protect_body(e, bytes);
    }
}

static void on_body_end(void *ctx, struct http_exchange *x)
{
    struct exchange *e = http_exchange_user(x);
    (void)ctx;
    if (e == NULL) {
        return;
    }
    if (e->unprotected) {
        passthrough_body_end(e);
    } else {
        protect_body_end(e);
    }
}

/* The request never became complete: nothing was claimed, and what was streamed so far is broken off. */
static void on_body_error(void *ctx, struct http_exchange *x, int code)
{
    struct exchange *e = http_exchange_user(x);
    (void)ctx;
    if (e == NULL) {
        return;
    }
    if (e->intake.call != NULL && e->unprotected) {
        exchange_cancel_call(e);
    }
    if (e->answered) {
        http_respond_abort(x);
        return;
    }
    if (!e->unprotected) {
        metrics_count(e->target->metrics, code == HAPAX_E_CLOSED ? METRIC_CLIENT_GONE : METRIC_REJECTED);
    }
    if (code == HAPAX_E_TIMEOUT) {
        reply_problem(e, PROBLEM_REQUEST_TIMEOUT, "The request's body did not arrive in time.", 0);
    } else {
        reply_problem(e, PROBLEM_MALFORMED, "The request's body is malformed or was cut short.", 0);
    }
}

static void on_writable(void *ctx, struct http_exchange *x)
{
    struct exchange *e = http_exchange_user(x);
    (void)ctx;
    if (e != NULL && e->intake.call != NULL && (e->streaming || e->unprotected)) {
        http_call_resume(e->intake.call);
    }
}

static void on_gone(void *ctx, struct http_exchange *x)
{
    struct exchange *e = http_exchange_user(x);
    (void)ctx;
    if (e == NULL) {
        http_exchange_done(x);
        return;
    }
    e->client_gone = true;
    if (e->unprotected && e->intake.call != NULL) {
        exchange_cancel_call(e);
    }
    if (e->streaming && e->intake.call != NULL) {
        http_call_resume(e->intake.call); /* read the rest for nobody: the upstream is not disturbed */
    }
    bool working = e->op_pending || e->timer_running || (e->intake.call != NULL && !e->streaming);
    if (e->answered || !working) {
        if (!e->answered && !e->unprotected) {
            metrics_count(e->target->metrics, METRIC_CLIENT_GONE);
        }
        e->answered = true;
        http_exchange_done(x);
    }
}

static void on_close(void *ctx, struct http_exchange *x)
{
    struct exchange *e = http_exchange_user(x);
    (void)ctx;
    if (e == NULL) {
        return;
    }
    e->x = NULL;
    e->client_gone = true;
    e->request = (struct request){0};
    if (e->unprotected && e->intake.call != NULL) {
        exchange_cancel_call(e);
    } else if (e->streaming && e->intake.call != NULL) {
        http_call_resume(e->intake.call);
    }
    exchange_unpin(e);
}

static const struct http_handler handler = {
    .on_request = on_request,
    .on_defect = on_defect,
    .on_body = on_body,
    .on_body_end = on_body_end,
    .on_body_error = on_body_error,
    .on_writable = on_writable,
    .on_gone = on_gone,
    .on_close = on_close,
};

/* --- Set-up. --- */

static void wake_port(void *ctx)
{
    struct worker *w = ctx;
    loop_wake(w->waker);
}

static void drain_port(void *ctx)
{
    struct worker *w = ctx;
    engine_port_drain(&w->port);
}

static void hear_news(void *ctx)
{
    struct worker *w = ctx;
    struct routing *offered = atomic_exchange(&w->offered, NULL);
    if (offered != NULL) {
        worker_use(w, offered);
    }
    if (atomic_load(&w->shared->stopping) && w->server != NULL) {
        http_server_drain(w->server);
    }
}

/* What this turn's requests submitted reaches the lanes together. */
static void end_turn(void *ctx)
{
    struct worker *w = ctx;
    if (w->port.owed != 0 && w->shared->engine != NULL) {
        engine_port_flush(w->shared->engine, &w->port);
    }
}

static int open_server(struct worker *w, const struct shared_config *shared, bool reuse_port, uint16_t port,
                       hapax_error *err)
{
    const struct config *c = shared->config;
    struct http_server_options o = {
        .address = c->listen,
        .reuse_port = reuse_port,
        .port = port,
        .tls = shared->tls,
        .connections_max = c->connections_max,
        .head_bytes_max = c->head_bytes_max,
        .headers_max = c->headers_max,
        .head_ms = c->head_ms,
        .idle_ms = c->idle_ms,
        .body_ms = c->body_ms,
        .send_ms = c->send_ms,
        .write_high_bytes = 256 * 1024,
        .handler = &handler,
        .ctx = w,
    };
    return http_server_open(&w->server, w->loop, &o, err);
}

int worker_open(struct worker *w, struct shared *shared, struct shared_config *config, bool reuse_port,
                uint16_t port, hapax_error *err)
{
    *w = (struct worker){.shared = shared, .speaks_tls = config->tls != NULL, .date_s = -1};
    arena_init(&w->scratch, SCRATCH_BYTES_MAX);
    if (getrandom(w->random, sizeof w->random, 0) != (ssize_t)sizeof w->random) {
        w->random[0] = (uint64_t)(uintptr_t)w;
    }
    int rc = loop_create(&w->loop, err);
    if (rc != 0) {
        return rc;
    }
    engine_port_init(&w->port, wake_port, w);
    w->port.gathers = true;
    rc = loop_waker_create(&w->waker, w->loop, drain_port, w, err);
    rc = rc != 0 ? rc : loop_waker_create(&w->news, w->loop, hear_news, w, err);
    rc = rc != 0 ? rc : loop_each_turn(w->loop, end_turn, w, err);
    rc = rc != 0 ? rc : http_client_create(&w->client, w->loop, err);
    rc = rc != 0 ? rc : routing_make(&w->routing, config, err);
    rc = rc != 0 ? rc : open_server(w, config, reuse_port, port, err);
    if (rc != 0) {
        worker_close(w);
    }
    return rc;
}

static void on_server_closed(void *ctx)
{
    struct worker *w = ctx;
    w->server = NULL;
    loop_stop(w->loop);
}

void worker_close(struct worker *w)
{
    if (w->loop == NULL) {
        return;
    }
    exchange_cancel_all(w);
    if (w->server != NULL) {
        http_server_close(w->server, on_server_closed, w);
        while (w->server != NULL) {
            loop_run(w->loop);
        }
    }
    while (w->idle != NULL) {
        struct exchange *next = w->idle->next;
        exchange_discard(w->idle);
        w->idle = next;
    }
    arena_free(&w->scratch);
    routing_drop(w->routing);
    routing_drop(atomic_exchange(&w->offered, NULL));
    if (w->client != NULL) {
        http_client_destroy(w->client);
    }
    if (w->waker != NULL) {
        loop_waker_close(w->waker);
    }
    if (w->news != NULL) {
        loop_waker_close(w->news);
    }
    loop_destroy(w->loop);
    engine_port_destroy(&w->port);
    w->loop = NULL;
}

void worker_use(struct worker *w, struct routing *routing)
{
    if (w->speaks_tls && routing->config->tls != NULL) {
        http_server_set_tls(w->server, routing->config->tls);
    }
    routing_drop(w->routing);
    w->routing = routing;
}

void worker_offer(struct worker *w, struct routing *routing)
{
    routing_drop(atomic_exchange(&w->offered, routing)); /* an offer before it was never looked at */
    loop_wake(w->news);
}

struct slice worker_http_date(struct worker *w, int64_t wall_ms)
{
    int64_t seconds = wall_ms / 1000;
    if (seconds != w->date_s) {
        time_t t = (time_t)seconds;
        struct tm tm;
        if (gmtime_r(&t, &tm) == NULL ||
            strftime(w->date, sizeof w->date, "%a, %d %b %Y %H:%M:%S GMT", &tm) == 0) {
            return SLICE_LITERAL("");
        }
        w->date_s = seconds;
    }
    return slice_text(w->date);
}

/* xorshift128+: ids of traces need to differ, not to be unguessable. */
uint64_t worker_random(struct worker *w)
{
    uint64_t a = w->random[0];
    uint64_t b = w->random[1] != 0 ? w->random[1] : 0x9e3779b97f4a7c15U;
    w->random[0] = b;
    a ^= a << 23;
    w->random[1] = a ^ b ^ (a >> 17) ^ (b >> 26);
    return w->random[1] + b;
}
