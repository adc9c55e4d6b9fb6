/* A link: the request goes out, and what happens to the connection afterwards.
 *
 * Bytes go to the socket at once, from where they stand; what it does not take now is copied piece by piece for uv to
 * write, so that uv never holds the caller's memory. The promise "sent at most once" is kept here: a connection that
 * breaks before it took a byte lets the call have another one, later it never does. */
#include "base/assert.h"
#include "base/clock.h"
#include "net/http_client_parts.h"

#include <stdlib.h>

/* --- What there is to send. --- */

static struct slice head_left(const struct link *l)
{
    return slice_from(l->call->head, l->head_at);
}

static struct slice body_left(const struct link *l)
{
    const struct http_call *call = l->call;
    return call->stream ? slice_from(buf_slice(&call->out), call->out_at)
                        : slice_from(call->body, l->body_at);
}

static void took(struct link *l, size_t n)
{
    size_t of_head = head_left(l).len < n ? head_left(l).len : n;
    l->head_at += of_head;
    n -= of_head;
    if (n > 0 && l->call->stream) {
        call_out_taken(l->call, n);
    } else {
        l->body_at += n;
    }
}

bool link_request_is_out(const struct link *l)
{
    const struct http_call *call = l->call;
    return !l->writing && head_left(l).len == 0 && body_left(l).len == 0 &&
           (!call->stream || call->out_ended);
}

/* --- Writing. --- */

static void on_written(uv_write_t *req, int status)
{
    struct link *l = req->data;
    l->writing = false;
    if (l->closing || status == UV_ECANCELED) {
        return;
    }
    struct http_client *c = l->client;
    buf_clear(&l->out);
    client_enter(c);
    if (status != 0 || (l->tls != NULL && !link_flush_tls(l))) {
        l->write_dead = true; /* what the upstream said before is still read */
    }
    if (l->call == NULL && l->write_dead) {
        link_close(l);
    } else if (l->call != NULL && l->state == LINK_BUSY) {
        call_heard(l->call);
        link_write(l);
    }
    client_leave(c);
}

/* Let uv write l->out. */
static bool queue(struct link *l)
{
    uv_buf_t b = {.base = l->out.ptr, .len = l->out.len};
    l->write.data = l;
    if (uv_write(&l->write, l->stream, &b, 1, on_written) != 0) {
        return false;
    }
    l->writing = true;
    l->out_seen_bytes = uv_stream_get_write_queue_size(l->stream);
    return true;
}

bool link_made_progress(struct link *l)
{
    size_t queued = l->stream != NULL ? uv_stream_get_write_queue_size(l->stream) : 0;
    bool moved = queued != l->out_seen_bytes;
    l->out_seen_bytes = queued;
    return moved;
}

bool link_flush_tls(struct link *l)
{
    struct slice output = tls_conn_output(l->tls);
    if (output.len == 0 || l->write_dead) {
        return !l->write_dead;
    }
    if (l->writing) { /* a key update's answer or an alert; it goes with the next record */
        return true;
    }
    uv_buf_t b = {.base = (char *)output.ptr, .len = output.len};
    int rc = uv_try_write(l->stream, &b, 1);
    if (rc < 0 && rc != UV_EAGAIN) {
        tls_conn_output_taken(l->tls); /* never: what was given up must not leave later */
        return false;
    }
    struct slice rest = slice_from(output, rc > 0 ? (size_t)rc : 0);
    bool good = rest.len == 0 || (buf_append_slice(&l->out, rest) == 0 && queue(l));
    tls_conn_output_taken(l->tls);
    return good;
}

/* One step of writing: bytes taken, 0 when uv has them now, or a uv error. */
static int write_plain(struct link *l)
{
    struct slice parts[2] = {head_left(l), body_left(l)};
    uv_buf_t b[2];
    unsigned n = 0;
    for (unsigned i = 0; i < 2; i++) {
        if (parts[i].len > 0) {
            b[n++] = (uv_buf_t){.base = (char *)parts[i].ptr, .len = parts[i].len};
        }
    }
    int rc = uv_try_write(l->stream, b, n);
    if (rc > 0 || (rc < 0 && rc != UV_EAGAIN)) {
        return rc;
    }
    size_t copied = 0;
    for (unsigned i = 0; i < n && copied < LINK_WRITE_BYTES; i++) {
        size_t room = LINK_WRITE_BYTES - copied;
        size_t len = b[i].len < room ? b[i].len : room;
        if (buf_append(&l->out, b[i].base, len) != 0) {
            return UV_ENOMEM;
        }
        copied += len;
    }
    if (!queue(l)) {
        return UV_ENOMEM;
    }
    took(l, copied);
    return 0;
}

static int write_tls(struct link *l)
{
    struct http_client *c = l->client;
    struct slice parts[2] = {head_left(l), body_left(l)};
    size_t copied = 0;
    for (unsigned i = 0; i < 2; i++) {
        size_t room = LINK_RECORD_BYTES - copied;
        size_t len = parts[i].len < room ? parts[i].len : room;
        if (len > 0) {
            memcpy(c->plain_buffer + copied, parts[i].ptr, len);
        }
        copied += len;
    }
    if (tls_conn_write(l->tls, slice_of(c->plain_buffer, copied)) != 0) {
        return UV_ENOMEM;
    }
    /* A connection found dead here took no byte: the record went nowhere. */
    if (!link_flush_tls(l)) {
        return UV_EPIPE;
    }
    return (int)copied;
}

void link_write(struct link *l)
{
    while (!l->closing && l->call != NULL && !l->writing && !l->write_dead) {
        struct http_call *call = l->call;
        if (!call->sent && call->send_by_ms > 0 && clock_mono_ms() >= call->send_by_mono_ms) {
            call_fail(call, "no connection while it could still be sent");
            return;
        }
        if (head_left(l).len == 0 && body_left(l).len == 0) {
            break;
        }
        int rc = l->tls != NULL ? write_tls(l) : write_plain(l);
        if (rc < 0 && !call->sent) {
            l->write_dead = true; /* for sure: TLS must not send what it still holds */
            if (l->used) {
                call_again(call); /* it died while idle */
            } else {
                call_fail(call, "the connection broke before the request");
            }
            return;
        }
        if (rc < 0) {
            l->write_dead = true;
            break;
        }
        call_sent(call);
        took(l, (size_t)rc);
    }
    if (!l->closing && l->call != NULL && l->write_dead && l->call->stream) {
        /* Nobody reads the rest: take it from the caller, so that it is not kept waiting. */
        call_out_taken(l->call, l->call->out.len - l->call->out_at);
    }
}

/* --- Between calls. --- */

void link_take_call(struct link *l, struct http_call *call)
{
    HAPAX_ASSERT(l->call == NULL && !l->closing);
    l->call = call;
    l->head_at = 0;
    l->body_at = 0;
    l->reading = READING_HEAD;
    answer_head_start(&l->head, call->head_bytes_max);
    call->link = l;
    if (l->state == LINK_IDLE) {
        TAILQ_REMOVE(&l->peer->idle, l, idle_link);
        link_ready(l);
    }
}

void link_ready(struct link *l)
{
    l->state = LINK_BUSY;
    link_write(l);
}

void link_idle(struct link *l)
{
    struct peer *p = l->peer;
    l->state = LINK_IDLE;
    l->used = true;
    l->idle_since_ms = client_now_ms(l->client);
    buf_free(&l->in);
    buf_free(&l->out);
    TAILQ_INSERT_HEAD(&p->idle, l, idle_link);
    client_clock_by(l->client, l->idle_since_ms + p->origin->idle_ms);
    if (!link_read_on(l, true)) {
        link_close(l);
    }
}

/* --- The end. --- */

static void link_free(struct link *l)
{
    struct http_client *c = l->client;
    tls_conn_free(l->tls);
    buf_free(&l->in);
    buf_free(&l->out);
    answer_head_free(&l->head);
    free(l);
    client_link_freed(c);
}

static void on_attempt_closed(uv_handle_t *handle)
{
    struct attempt *a = handle->data;
    struct link *l = a->link;
    free(a);
    if (--l->handles == 0 && l->closing) {
        link_free(l);
    }
}

void link_attempt_close(struct attempt *a)
{
    uv_close((uv_handle_t *)&a->tcp, on_attempt_closed);
}

void link_close(struct link *l)
{
    if (l->closing) {
        return;
    }
    if (l->state == LINK_IDLE) {
        TAILQ_REMOVE(&l->peer->idle, l, idle_link);
    }
    if (l->tls != NULL && l->stream != NULL && !l->writing && !l->write_dead && l->state >= LINK_BUSY) {
        tls_conn_shutdown(l->tls); /* says goodbye, if the socket takes it */
        (void)link_flush_tls(l);
    }
    l->closing = true;
    LIST_REMOVE(l, peer_link);
    l->peer = NULL;
    l->call = NULL;
    for (unsigned i = 0; i < l->address_next; i++) {
        if (l->attempts[i] != NULL) {
            link_attempt_close(l->attempts[i]);
            l->attempts[i] = NULL;
        }
    }
    if (l->handles == 0) {
        link_free(l);
    }
}
