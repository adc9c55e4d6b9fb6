/* The answer: bytes from the socket, through TLS where there is any, through the readers of head and body, to the
 * call's handler. Invariant: after a call-back nothing is touched before link->closing was looked at. */
#include "net/http_client_parts.h"

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *data);

static void alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *out)
{
    (void)suggested;
    const struct attempt *a = handle->data;
    *out = uv_buf_init(a->link->client->read_buffer, LINK_READ_BYTES);
}

bool link_read_on(struct link *l, bool on)
{
    if (on == l->uv_reads || l->stream == NULL || (on && l->eof)) {
        return true;
    }
    l->uv_reads = on;
    if (!on) {
        uv_read_stop(l->stream);
        return true;
    }
    return uv_read_start(l->stream, alloc, on_read) == 0;
}

/* --- One answer. --- */

static void finish(struct link *l, struct slice rest)
{
    bool keep = !l->write_dead && l->head.keep_alive && l->reading == READING_BODY && rest.len == 0 &&
                !l->eof && link_request_is_out(l) && (l->tls == NULL || tls_conn_backlog(l->tls) == 0);
    call_complete(l->call, keep);
}

static void pass_on(struct link *l, struct slice piece)
{
    struct http_call *call = l->call;
    if (!call->handler.on_body(call->ctx, piece) && !l->closing) {
        call->paused = true;
        (void)link_read_on(l, false);
    }
}

/* Up to the end of the head's lines that are complete. false: nothing more can be done with what there is. */
static bool read_head(struct link *l, struct slice *rest)
{
    struct http_call *call = l->call;
    const char *end = rest->len > 0 ? memchr(rest->ptr, '\n', rest->len) : NULL;
    if (end == NULL) {
        if (rest->len > l->head.bytes_max) {
            call_fail(call, "the answer's head is larger than allowed");
        }
        return false;
    }
    struct slice line = slice_of(rest->ptr, (size_t)(end - rest->ptr) + 1);
    *rest = slice_from(*rest, line.len);
    switch (answer_head_line(&l->head, line)) {
    case ANSWER_HEAD_MORE:
        return true;
    case ANSWER_HEAD_BAD:
        call_fail(call, l->head.defect);
        return false;
    case ANSWER_HEAD_COMPLETE:
        break;
    }
    const struct answer_head *h = &l->head;
    /* RFC 9112 section 6.3: these have no body whatever their headers say. */
    bool empty = call->is_head || h->status == 204 || h->status == 304;
    l->reading = empty || h->chunked || h->content_length >= 0 ? READING_BODY : READING_TO_END;
    http_body_init(&l->body, empty ? 0 : h->chunked ? -1 : h->content_length);
    call->handler.on_head(call->ctx, h->status, h->headers, h->count);
    return !l->closing;
}

static bool read_body(struct link *l, struct slice *rest)
{
    size_t used = 0;
    struct slice piece;
    enum http_body_step step = http_body_decode(&l->body, *rest, &used, &piece);
    *rest = slice_from(*rest, used);
    switch (step) {
    case HTTP_BODY_PIECE:
        pass_on(l, piece);
        return !l->closing;
    case HTTP_BODY_END:
        finish(l, *rest);
        return false;
    case HTTP_BODY_BAD:
        call_fail(l->call, "the answer's chunks are malformed");
        return false;
    case HTTP_BODY_MORE:
        break;
    }
    return false;
}

static bool read_to_end(struct link *l, struct slice *rest)
{
    if (rest->len == 0) {
        return false;
    }
    struct slice piece = *rest;
    *rest = slice_from(*rest, rest->len);
    pass_on(l, piece);
    return !l->closing;
}

/* Use up what can be used; what is left is for later. */
static void use(struct link *l, struct slice *rest)
{
    bool more = true;
    while (more && !l->closing) {
        if (l->call == NULL) {
            if (rest->len > 0) {
                link_close(l); /* nobody asked for this */
            }
            return;
        }
        if (l->call->paused) {
            return;
        }
        more = l->reading == READING_HEAD   ? read_head(l, rest)
               : l->reading == READING_BODY ? read_body(l, rest)
                                            : read_to_end(l, rest);
    }
}

/* `bytes` come after those in l->in. */
static void take(struct link *l, struct slice bytes)
{
    struct slice rest = bytes;
    bool shared = l->in.len == 0;
    if (!shared) {
        if (buf_append_slice(&l->in, bytes) != 0) {
            if (l->call != NULL) {
                call_fail(l->call, "no memory for the answer");
            }
            link_close(l);
            return;
        }
        rest = buf_slice(&l->in);
    }
    use(l, &rest);
    if (l->closing || (shared && rest.len == 0)) {
        return;
    }
    if (!shared) {
        buf_consume(&l->in, l->in.len - rest.len);
    } else if (buf_append_slice(&l->in, rest) != 0) {
        if (l->call != NULL) {
            call_fail(l->call, "no memory for the answer");
        }
        link_close(l);
    }
}

static void at_end(struct link *l)
{
    struct http_call *call = l->call;
    if (call == NULL) {
        link_close(l);
    } else if (call->paused) {
        return; /* after the pause */
    } else if (l->state < LINK_BUSY) {
        call_fail(call, "the upstream closed the connection before TLS was agreed upon");
    } else if (l->reading == READING_HEAD) {
        call_fail(call, l->head.in_head || l->in.len > 0
                            ? "the answer's head was cut short"
                            : "the connection broke before an answer; the request may have been read");
    } else if (l->reading == READING_BODY) {
        call_fail(call, "the answer's body was cut short");
    } else if (l->eof_rude) {
        call_fail(call, l->tls != NULL ? "the answer's body ended without TLS's close_notify"
                                       : "the connection broke inside the answer's body");
    } else {
        call_complete(call, false);
    }
}

/* Decrypt and use, record by record. */
static void run_tls(struct link *l)
{
    struct http_client *c = l->client;
    while (!l->closing && l->state >= LINK_BUSY && (l->call == NULL || !l->call->paused)) {
        size_t used = 0;
        enum tls_step step = tls_conn_read(l->tls, c->plain_buffer, LINK_RECORD_BYTES, &used);
        if (step == TLS_DONE) {
            take(l, slice_of(c->plain_buffer, used));
            continue;
        }
        if (step == TLS_CLOSED) {
            l->eof = true;
            l->eof_rude = false;
        } else if (step == TLS_FAILED) {
            l->eof = true;
            l->eof_rude = true;
        } else if (!link_flush_tls(l)) { /* a key update's answer */
            l->write_dead = true;
            if (l->call == NULL) {
                link_close(l);
            }
        }
        return;
    }
}

void link_run(struct link *l)
{
    if (l->closing) {
        return;
    }
    take(l, SLICE_LITERAL(""));
    if (!l->closing && l->tls != NULL) {
        run_tls(l);
    }
    if (l->closing) {
        return;
    }
    bool paused = l->call != NULL && l->call->paused;
    if (l->eof) {
        at_end(l);
    } else if (!paused && !link_read_on(l, true)) {
        if (l->call != NULL) {
            call_fail(l->call, "no memory for the answer");
        }
        link_close(l);
    }
}

static void came(struct link *l, struct slice bytes)
{
    if (l->call != NULL) {
        call_heard(l->call);
    }
    if (l->tls == NULL) {
        take(l, bytes);
        return;
    }
    if (tls_conn_feed(l->tls, bytes) != 0) {
        l->eof = true;
        l->eof_rude = true;
        return;
    }
    if (l->state == LINK_HANDSHAKE) {
        link_shake_hands(l);
    }
    if (!l->closing && l->state >= LINK_BUSY) {
        run_tls(l);
    }
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *data)
{
    struct link *l = ((struct attempt *)stream->data)->link;
    struct http_client *c = l->client;
    if (n == 0 || l->closing) {
        return;
    }
    client_enter(c);
    if (n > 0) {
        came(l, slice_of(data->base, (size_t)n));
    } else {
        /* TLS: unless close_notify was read, the end is anybody's word. An error is no end at all. */
        l->eof_rude = !l->eof && (l->tls != NULL || n != UV_EOF);
        l->eof = true;
    }
    if (!l->closing && l->eof) {
        (void)link_read_on(l, false);
        at_end(l);
    }
    client_leave(c);
}
