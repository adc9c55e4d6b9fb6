/* Unprotected requests: bytes through, both ways, with back-pressure; nothing is buffered beyond the
 * marks of the server and the client. The upstream's slowness reaches the sender, the reader's reaches
 * the upstream. A client that leaves ends the upstream's call: there is no operation to finish. */
#include "gateway/exchange.h"

#include "base/clock.h"
#include "base/log.h"

static void on_head(void *ctx, int status, const struct header *headers, size_t n)
{
    struct exchange *e = ctx;
    if (intake_head(e, status, headers, n) != 0) {
        e->intake.status = 0;
        return;
    }
    reply_stream_start(e, e->marked ? MARK_UNPROTECTED : MARK_NONE);
}

static bool on_body(void *ctx, struct slice bytes)
{
    struct exchange *e = ctx;
    if (e->x == NULL || e->client_gone || e->intake.status == 0) {
        return true;
    }
    return http_respond_write(e->x, bytes);
}

static void on_writable(void *ctx)
{
    struct exchange *e = ctx;
    if (e->x != NULL && !e->client_gone) {
        http_exchange_read(e->x, true);
    }
}

static void on_done(void *ctx, bool complete, enum call_failure failure, const char *detail)
{
    struct exchange *e = ctx;
    e->intake.call = NULL;
    if (!complete) {
        log_event(LOG_LEVEL_WARN, "upstream-failed", "route %s: %s", e->target->route->name, detail);
    }
    bool open = e->x != NULL && !e->client_gone;
    if (open && e->intake.status != 0 && complete) {
        http_respond_finish(e->x);
    } else if (open && e->intake.status != 0) {
        http_respond_abort(e->x);
    } else if (failure == CALL_NOT_SENT && !complete) {
        reply_problem(e, PROBLEM_UPSTREAM_UNREACHABLE, "The upstream could not be reached.", 0);
    } else if (failure == CALL_TIMEOUT && !complete) {
        reply_problem(e, PROBLEM_UPSTREAM_TIMEOUT,
                      "The request was sent to the upstream, but no answer came in time: it may have been "
                      "carried out.",
                      0);
    } else {
        reply_problem(e, PROBLEM_UPSTREAM_BROKEN,
                      "The request was sent to the upstream, but no usable answer came: it may have been "
                      "carried out.",
                      0);
    }
    exchange_unpin(e);
}

static const struct http_call_handler handler = {
    .on_head = on_head,
    .on_body = on_body,
    .on_writable = on_writable,
    .on_done = on_done,
};

static void start(struct exchange *e, bool stream, enum metric_outcome counted)
{
    const struct header *headers = NULL;
    size_t n = 0;
    struct slice target = SLICE_NONE;
    hapax_error err = {0};
    metrics_count(e->target->metrics, counted);
    if (e->x == NULL || e->client_gone) {
        reply_end(e);
        return;
    }
    int rc = upstream_headers(e, 0, &headers, &n);
    rc = rc != 0 ? rc : upstream_target(e, &target);
    if (rc == 0) {
        struct http_call_options o = {
            .method = e->request.method,
            .target = target,
            .headers = headers,
            .header_count = n,
            .body = stream ? SLICE_NONE : buf_slice(&e->body),
            .body_length = stream ? http_exchange_body_length(e->x) : (int64_t)e->body.len,
            .stream = stream,
            .silence_ms = e->target->route->silence_ms,
            .head_bytes_max = LIMIT_ANSWER_HEAD_BYTES_MAX,
        };
        rc = http_call_start(&e->intake.call, e->worker->client, e->target->origin, &o, &handler, e, &err);
    }
    if (rc != 0) {
        e->intake.call = NULL;
        reply_problem(e, rc == HAPAX_E_ARGUMENT ? PROBLEM_MALFORMED : PROBLEM_INTERNAL,
                      rc == HAPAX_E_ARGUMENT ? err.message : "The request could not be sent to the upstream.",
                      0);
    }
}

void passthrough_begin(struct exchange *e, bool marked, enum metric_outcome counted)
{
    e->unprotected = true;
    e->marked = marked;
    bool body = http_exchange_has_body(e->x);
    start(e, body, counted);
    if (e->intake.call != NULL) {
        http_exchange_read(e->x, true);
    }
}

void passthrough_buffered(struct exchange *e, enum metric_outcome counted)
{
    e->unprotected = true;
    e->marked = true;
    e->ready_us = 0; /* its latency is the upstream's, not the gateway's */
    start(e, false, counted);
}

void passthrough_body(struct exchange *e, struct slice bytes)
{
    if (e->intake.call != NULL && !http_call_write(e->intake.call, bytes)) {
        http_exchange_read(e->x, false);
    }
}

void passthrough_body_end(struct exchange *e)
{
    if (e->intake.call != NULL && http_exchange_has_body(e->x)) {
        http_call_write_end(e->intake.call);
    }
}
