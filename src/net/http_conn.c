/* One connection: a state machine that is stepped until nothing more can happen, then settled. Each step makes at most
 * one call to the handler and looks at the flags afresh afterwards, so a burst of pipelined requests needs no stack. */
#include "base/assert.h"
#include "net/http_server_impl.h"

#include <stdlib.h>

/* --- Bytes that came. --- */

size_t conn_unread(const struct conn *c)
{
    return c->running ? c->view.len : c->in.len;
}

static void consume(struct conn *c, size_t n)
{
    c->view = slice_from(c->view, n);
}

/* Make c->in hold exactly the unread bytes. */
static bool keep_view(struct conn *c)
{
    bool ok = true;
    if (c->view_shared) {
        c->view_shared = false;
        ok = buf_append_slice(&c->in, c->view) == 0;
    } else {
        buf_consume(&c->in, c->in.len - c->view.len);
    }
    if (!ok) {
        conn_drop(c, false);
    }
    c->view = buf_slice(&c->in);
    return ok;
}

/* More plaintext out of what TLS holds. false: there is none now. */
static bool pull_tls(struct conn *c)
{
    if (c->tls == NULL || c->eof || c->closing || !keep_view(c)) {
        return false;
    }
    if (buf_reserve(&c->in, TLS_RECORD_BYTES) != 0) {
        conn_drop(c, false);
        return false;
    }
    size_t used = 0;
    enum tls_step step = tls_conn_read(c->tls, c->in.ptr + c->in.len, TLS_RECORD_BYTES, &used);
    conn_send_tls(c); /* a key update's answer, or an alert */
    c->in.len += used;
    c->view = buf_slice(&c->in);
    if (step == TLS_CLOSED || (step == TLS_MORE && c->net_eof)) {
        c->eof = true;
        return true;
    }
    if (step == TLS_FAILED) {
        conn_drop(c, false);
    }
    return step != TLS_MORE;
}

/* --- Heads. --- */

static void exchange_began(struct conn *c, struct http_exchange *x)
{
    c->scan = (struct http_head_scan){0};
    c->blank_skipped = false;
    c->head_late = false;
    c->x = x;
    c->state = CONN_EXCHANGE;
    c->must_close = c->server->draining || !x->head.keep_alive;
    x->continue_due = x->head.expect_continue;
    http_body_init(&c->body, x->head.length);
}

static void begin_defect(struct conn *c, enum http_defect defect, const char *detail)
{
    struct http_exchange *x = exchange_new(c);
    if (x == NULL) {
        conn_drop(c, false);
        return;
    }
    x->head = (struct http_head){.request = {.method = SLICE_LITERAL(""),
                                             .path = SLICE_LITERAL(""),
                                             .query = SLICE_NONE,
                                             .body = SLICE_LITERAL("")}};
    consume(c, c->view.len); /* what follows on this connection is nobody's */
    exchange_began(c, x);
    x->defect = true;
    x->body_told = true;
    c->server->handler.on_defect(c->server->options.ctx, x, defect, detail);
}

static bool exchange_take_head(struct conn *c, struct http_exchange *x, size_t len, size_t lines)
{
    size_t headers = lines < c->server->options.headers_max ? lines : c->server->options.headers_max;
    if (headers > x->header_cap) {
        struct header *grown = realloc(x->headers, headers * sizeof *grown);
        if (grown == NULL) {
            return false;
        }
        x->headers = grown;
        x->header_cap = headers;
    }
    if (buf_append(&x->bytes, c->view.ptr, len) != 0) {
        return false;
    }
    consume(c, len);
    return true;
}

static void begin_request(struct conn *c)
{
    struct http_server *s = c->server;
    struct http_exchange *x = exchange_new(c);
    if (x == NULL || !exchange_take_head(c, x, c->scan.at, c->scan.lines)) {
        if (x != NULL) {
            exchange_recycle(x);
        }
        conn_drop(c, false);
        return;
    }
    enum http_defect defect = HTTP_MALFORMED;
    const char *detail = "";
    bool good =
        http_head_parse(&x->head, buf_slice(&x->bytes), x->headers, s->options.headers_max, &defect, &detail);
    exchange_began(c, x);
    if (good) {
        s->handler.on_request(s->options.ctx, x);
    } else {
        x->defect = true;
        x->body_told = true;
        s->handler.on_defect(s->options.ctx, x, defect, detail);
    }
}

/* One empty line before a request line is forgiven (RFC 9112 section 2.2). false: its LF is still to come. */
static bool skip_blank(struct conn *c)
{
    if (c->blank_skipped || c->view.len == 0 || c->view.ptr[0] != '\r') {
        return true;
    }
    if (c->view.len == 1) {
        return false;
    }
    if (c->view.ptr[1] == '\n') {
        consume(c, 2);
        c->blank_skipped = true;
    }
    return true;
}

static bool step_head(struct conn *c)
{
    enum http_scan found = HTTP_SCAN_MORE;
    if (skip_blank(c) && c->view.len > 0) {
        found = http_head_scan(&c->scan, c->view, c->server->options.head_bytes_max);
    }
    switch (found) {
    case HTTP_SCAN_DONE:
        begin_request(c);
        return true;
    case HTTP_SCAN_BAD:
        begin_defect(c, HTTP_MALFORMED, c->scan.detail);
        return true;
    case HTTP_SCAN_LARGE:
        begin_defect(c, HTTP_HEAD_TOO_LARGE, "the head is too large");
        return true;
    case HTTP_SCAN_MORE:
        break;
    }
    if (pull_tls(c)) {
        return true;
    }
    if (c->eof) {
        conn_finish(c, true);
    } else if (c->head_late) {
        begin_defect(c, HTTP_HEAD_TIMEOUT, "the head did not arrive in time");
        return true;
    } else if (c->server->draining && c->view.len == 0) {
        conn_finish(c, true);
    }
    return false;
}

static bool step_handshake(struct conn *c)
{
    enum tls_step step = tls_conn_handshake(c->tls);
    conn_send_tls(c);
    if (step == TLS_DONE) {
        c->state = CONN_HEAD;
        return true;
    }
    if (step != TLS_MORE || c->net_eof) {
        conn_drop(c, false);
    }
    return false;
}

/* --- The exchange. --- */

static void end_exchange(struct conn *c)
{
    struct http_exchange *x = c->x;
    c->used = true;
    c->must_close = c->must_close || c->server->draining;
    bool ended = http_body_ended(&c->body);
    bool quiet = ended && !x->defect && !x->head.keep_alive; /* the client said that it sends no more */
    c->server->handler.on_close(c->server->options.ctx, x);
    c->x = NULL;
    exchange_recycle(x);
    c->touched = UINT8_MAX;
    if (c->closing) {
        return;
    }
    c->state = CONN_HEAD;
    if (c->must_close) {
        conn_finish(c, quiet);
    } else if (!ended) {
        c->state = CONN_DISCARD;
        c->budget_bytes = DISCARD_BYTES_MAX;
    }
}

static void body_failed(struct conn *c, int code)
{
    c->x->body_told = true;
    c->must_close = true;
    c->server->handler.on_body_error(c->server->options.ctx, c->x, code);
}

static bool step_body(struct conn *c)
{
    struct http_exchange *x = c->x;
    const struct http_handler *h = &c->server->handler;
    void *ctx = c->server->options.ctx;
    size_t used = 0;
    struct slice piece;
    enum http_body_step step = http_body_decode(&c->body, c->view, &used, &piece);
    consume(c, used);
    switch (step) {
    case HTTP_BODY_PIECE:
        x->continue_due = false;
        h->on_body(ctx, x, piece);
        return true;
    case HTTP_BODY_END:
        x->body_told = true;
        h->on_body_end(ctx, x);
        return true;
    case HTTP_BODY_BAD:
        body_failed(c, HAPAX_E_SYNTAX);
        return true;
    case HTTP_BODY_MORE:
        break;
    }
    if (pull_tls(c)) {
        return true;
    }
    if (c->eof || x->body_fault != 0) {
        body_failed(c, c->eof ? HAPAX_E_CLOSED : x->body_fault);
        return true;
    }
    return false;
}

static bool step_gone(struct conn *c)
{
    struct http_exchange *x = c->x;
    if (x->finished || x->done) {
        end_exchange(c);
        return false;
    }
    if (!x->gone_told) {
        x->gone_told = true;
        c->server->handler.on_gone(c->server->options.ctx, x);
        return true;
    }
    return false;
}

static bool step_exchange(struct conn *c)
{
    struct http_exchange *x = c->x;
    conn_flush(c);
    if (c->closing) {
        return step_gone(c);
    }
    if (x->finished) {
        if (c->queued_bytes > 0) {
            return false;
        }
        end_exchange(c);
        return true;
    }
    if (x->blocked && c->queued_bytes <= c->server->options.write_high_bytes / 2) {
        x->blocked = false;
        c->server->handler.on_writable(c->server->options.ctx, x);
        return true;
    }
    return x->read_on && !x->body_told && step_body(c);
}

/* --- After the exchange. --- */

static bool step_discard(struct conn *c)
{
    size_t used = 0;
    struct slice piece = SLICE_NONE;
    enum http_body_step step = http_body_decode(&c->body, c->view, &used, &piece);
    consume(c, used);
    if (step == HTTP_BODY_END) {
        c->state = CONN_HEAD;
        c->touched = UINT8_MAX;
        return true;
    }
    if (step == HTTP_BODY_MORE && pull_tls(c)) {
        return true;
    }
    if (step == HTTP_BODY_BAD || c->eof || (step == HTTP_BODY_PIECE && piece.len > c->budget_bytes)) {
        conn_finish(c, false);
        return true;
    }
    c->budget_bytes -= step == HTTP_BODY_PIECE ? (uint32_t)piece.len : 0;
    return step == HTTP_BODY_PIECE;
}

static bool step_linger(struct conn *c)
{
    if (c->net_eof || c->view.len > c->budget_bytes) {
        conn_drop(c, false);
        return false;
    }
    c->budget_bytes -= (uint32_t)c->view.len;
    consume(c, c->view.len);
    return false;
}

/* --- The machine. --- */

static bool step(struct conn *c)
{
    if (c->closing && c->x == NULL) {
        return false;
    }
    switch ((enum conn_state)c->state) {
    case CONN_HANDSHAKE:
        return step_handshake(c);
    case CONN_HEAD:
        return step_head(c);
    case CONN_EXCHANGE:
        return step_exchange(c);
    case CONN_DISCARD:
        return step_discard(c);
    case CONN_LINGER:
        return step_linger(c);
    }
    return false;
}

static enum wait wait_of(const struct conn *c)
{
    switch ((enum conn_state)c->state) {
    case CONN_HANDSHAKE:
        return WAIT_HEAD;
    case CONN_HEAD:
        return c->in.len == 0 ? WAIT_IDLE : WAIT_HEAD;
    case CONN_EXCHANGE:
        if (c->queued_bytes > 0) {
            return WAIT_SEND;
        }
        return c->x->read_on && !c->x->body_told ? WAIT_BODY : WAIT_NONE;
    case CONN_DISCARD:
        return WAIT_BODY;
    case CONN_LINGER:
        return WAIT_LINGER;
    }
    return WAIT_NONE;
}

static void alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *out)
{
    (void)suggested;
    struct conn *c = handle->data;
    *out = uv_buf_init(c->server->read_buffer, c->tls != NULL ? TLS_RECORD_BYTES : READ_BYTES);
}

/* Bytes nobody asked for yet are read on up to a bound, because only a reading socket shows that the client is gone. */
static bool wants_bytes(const struct conn *c)
{
    size_t unread = c->in.len + (c->tls != NULL ? tls_conn_backlog(c->tls) : 0);
    if (c->net_eof) {
        return false;
    }
    if (c->state == CONN_EXCHANGE && c->x->read_on && !c->x->body_told && !c->x->finished) {
        return true;
    }
    return unread < UNREAD_BYTES_MAX || (c->state != CONN_EXCHANGE && !c->pending);
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *data);

static void settle(struct conn *c)
{
    keep_view(c);
    c->running = false;
    if (c->closing) {
        conn_maybe_free(c);
        return;
    }
    enum wait wait = wait_of(c);
    if (wait != c->wait || (c->touched & (1U << wait)) != 0) {
        server_relink(c, wait);
    }
    c->touched = 0;
    if (c->in.len == 0 && c->in.ptr != NULL) {
        buf_free(&c->in);
    }
    if (wait == WAIT_IDLE && c->out.ptr != NULL) {
        buf_free(&c->out);
    }
    if (wait == WAIT_IDLE && c->server->held && server_may_displace(c)) {
        conn_finish(c, true); /* somebody waits for its place */
        return;
    }
    if (wants_bytes(c) != c->reading) {
        c->reading = !c->reading;
        if (!c->reading) {
            uv_read_stop((uv_stream_t *)&c->tcp);
        } else if (uv_read_start((uv_stream_t *)&c->tcp, alloc, on_read) != 0) {
            conn_drop(c, false);
            conn_schedule(c);
        }
    }
}

void conn_run(struct conn *c)
{
    HAPAX_ASSERT(!c->running);
    c->running = true;
    if (!c->view_shared) {
        c->view = buf_slice(&c->in);
    }
    unsigned requests = 0;
    bool again = true;
    while (again && requests < REQUESTS_PER_RUN) {
        enum conn_state before = c->state;
        again = step(c);
        requests += before == CONN_HEAD;
    }
    if (again) {
        c->running = false;
        conn_schedule(c);
        c->running = true;
    }
    settle(c);
}

static void take(struct conn *c, struct slice bytes)
{
    if (c->tls != NULL && c->state != CONN_LINGER) {
        if (tls_conn_feed(c->tls, bytes) != 0) { /* pull_tls() reads them */
            conn_drop(c, false);
        }
    } else if (c->in.len == 0) {
        c->view = bytes;
        c->view_shared = true;
    } else if (buf_append_slice(&c->in, bytes) != 0) {
        conn_drop(c, false);
    }
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *data)
{
    struct conn *c = stream->data;
    if (n == 0 || c->closing) {
        return;
    }
    if (n == UV_EOF) {
        c->net_eof = true;
        c->eof = c->eof || c->tls == NULL; /* TLS may still hold bytes */
    } else if (n < 0) {
        conn_drop(c, false);
    } else {
        take(c, slice_of(data->base, (size_t)n));
    }
    c->touched |= 1U << WAIT_BODY;
    conn_run(c);
}

void conn_start(struct conn *c)
{
    buf_init(&c->in, (size_t)c->server->options.head_bytes_max + 2 * READ_BYTES + UNREAD_BYTES_MAX);
    buf_init(&c->out, 4 * CORK_BYTES_MAX + LIMIT_ANSWER_HEAD_BYTES_MAX);
    c->state = c->tls != NULL ? CONN_HANDSHAKE : CONN_HEAD;
    conn_run(c);
}

void conn_expired(struct conn *c)
{
    switch ((enum wait)c->wait) {
    case WAIT_IDLE:
        conn_finish(c, true);
        break;
    case WAIT_HEAD:
        c->head_late = true;
        if (c->state == CONN_HANDSHAKE) {
            conn_drop(c, false);
        }
        break;
    case WAIT_BODY:
        if (c->state == CONN_EXCHANGE) {
            c->x->body_fault = HAPAX_E_TIMEOUT;
        } else {
            conn_drop(c, false);
        }
        break;
    default:
        conn_drop(c, false);
        break;
    }
    conn_run(c);
}
