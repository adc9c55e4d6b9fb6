/* Bytes to the socket: at once where the socket takes them, else queued with uv. Invariant: order is kept, because a
 * direct write is tried only while nothing is queued. Nothing here calls the handler. */
#include "net/http_server_impl.h"

#include <stdlib.h>

struct write {
    uv_write_t req;
    struct conn *conn;
    size_t bytes;
    struct write_owner owner;
    char copy[];
};

static void release(struct write_owner owner)
{
    if (owner.released != NULL) {
        owner.released(owner.arg);
    }
}

static void on_written(uv_write_t *req, int status)
{
    struct write *w = req->data;
    struct conn *c = w->conn;
    c->queued_bytes -= w->bytes;
    c->touched |= 1U << WAIT_SEND;
    release(w->owner);
    free(w);
    if (c->closing) {
        return; /* its end is on its way */
    }
    if (status != 0) {
        conn_drop(c, false);
    }
    conn_run(c);
}

/* Drop the `done` bytes at the front that are written already; returns the buffers left, moved to the front. */
static unsigned skip_written(uv_buf_t *bufs, unsigned n, size_t done)
{
    unsigned first = 0;
    while (first < n && done >= bufs[first].len) {
        done -= bufs[first].len;
        first++;
    }
    for (unsigned i = first; i < n; i++) {
        bufs[i - first] = bufs[i];
    }
    if (first < n) {
        bufs[0].base += done;
        bufs[0].len -= done;
    }
    return n - first;
}

static void broken(struct conn *c, struct write_owner owner)
{
    conn_drop(c, false);
    conn_schedule(c);
    release(owner);
}

static void queue(struct conn *c, uv_buf_t *bufs, unsigned n, struct write_owner owner)
{
    unsigned copied = owner.released != NULL ? n - 1 : n;
    size_t copy_bytes = 0;
    for (unsigned i = 0; i < copied; i++) {
        copy_bytes += bufs[i].len;
    }
    struct write *w = malloc(sizeof *w + copy_bytes);
    if (w == NULL) {
        broken(c, owner);
        return;
    }
    *w = (struct write){.conn = c, .bytes = copy_bytes + (copied < n ? bufs[copied].len : 0), .owner = owner};
    char *at = w->copy;
    for (unsigned i = 0; i < copied; i++) {
        memcpy(at, bufs[i].base, bufs[i].len);
        at += bufs[i].len;
    }
    uv_buf_t left[2] = {{.base = w->copy, .len = copy_bytes}, copied < n ? bufs[copied] : (uv_buf_t){0}};
    unsigned skip = copy_bytes == 0;
    w->req.data = w;
    size_t bytes = w->bytes;
    if (uv_write(&w->req, (uv_stream_t *)&c->tcp, left + skip, 1 - skip + (copied < n), on_written) != 0) {
        free(w);
        broken(c, owner);
        return;
    }
    c->queued_bytes += bytes;
    c->queue_seen_bytes = uv_stream_get_write_queue_size((uv_stream_t *)&c->tcp);
}

static void send_raw(struct conn *c, uv_buf_t *bufs, unsigned n, struct write_owner owner)
{
    size_t total = 0;
    for (unsigned i = 0; i < n; i++) {
        total += bufs[i].len;
    }
    size_t done = 0;
    if (c->queued_bytes == 0 && total > 0) {
        int rc = uv_try_write((uv_stream_t *)&c->tcp, bufs, n);
        if (rc < 0 && rc != UV_EAGAIN) {
            broken(c, owner);
            return;
        }
        done = rc > 0 ? (size_t)rc : 0;
    }
    if (done == total) {
        release(owner);
        return;
    }
    queue(c, bufs, skip_written(bufs, n, done), owner);
}

void conn_send_tls(struct conn *c)
{
    struct slice output = tls_conn_output(c->tls);
    if (output.len == 0 || c->closing) {
        return;
    }
    uv_buf_t b = {.base = (char *)output.ptr, .len = output.len};
    send_raw(c, &b, 1, (struct write_owner){0});
    tls_conn_output_taken(c->tls);
}

/* Record by record: OpenSSL's memory buffers never shrink, so they may not see a whole body. */
static void send_encrypted(struct conn *c, struct slice bytes)
{
    while (bytes.len > TLS_RECORD_BYTES && !c->closing) {
        send_encrypted(c, slice_of(bytes.ptr, TLS_RECORD_BYTES));
        conn_send_tls(c);
        bytes = slice_from(bytes, TLS_RECORD_BYTES);
    }
    if (!c->closing && tls_conn_write(c->tls, bytes) != 0) {
        broken(c, (struct write_owner){0});
    }
}

void conn_send(struct conn *c, uv_buf_t *bufs, unsigned n, struct write_owner owner)
{
    if (c->closing) {
        release(owner);
        return;
    }
    if (c->tls == NULL) {
        send_raw(c, bufs, n, owner);
        return;
    }
    for (unsigned i = 0; i < n && !c->closing; i++) {
        send_encrypted(c, slice_of(bufs[i].base, bufs[i].len));
    }
    conn_send_tls(c);
    release(owner);
}

void conn_flush(struct conn *c)
{
    if (c->out.len > 0) {
        uv_buf_t b = {.base = c->out.ptr, .len = c->out.len};
        conn_send(c, &b, 1, (struct write_owner){0});
        buf_clear(&c->out);
    }
}
