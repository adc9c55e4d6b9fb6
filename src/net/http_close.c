/* The ways a connection ends: dropped at once, reset, or lingering until the client has read the last answer. */
#include "base/assert.h"
#include "net/http_server_impl.h"

#include <stdlib.h>

void conn_maybe_free(struct conn *c)
{
    if (!c->closed || c->x != NULL || c->pending || c->running) {
        return;
    }
    struct http_server *s = c->server;
    buf_free(&c->in);
    buf_free(&c->out);
    tls_conn_free(c->tls);
    free(c);
    server_conn_freed(s);
}

static void on_handle_closed(uv_handle_t *handle)
{
    struct conn *c = handle->data;
    c->closed = true;
    conn_maybe_free(c);
}

void conn_drop(struct conn *c, bool reset)
{
    if (c->closing) {
        return;
    }
    c->closing = true;
    server_unlink(c);
    if (!reset || uv_tcp_close_reset(&c->tcp, on_handle_closed) != 0) {
        uv_close((uv_handle_t *)&c->tcp, on_handle_closed);
    }
}

void conn_schedule(struct conn *c)
{
    struct http_server *s = c->server;
    if (c->running || c->pending) {
        return;
    }
    c->pending = true;
    c->pending_next = NULL;
    if (s->pending_last != NULL) {
        s->pending_last->pending_next = c;
    } else {
        s->pending_first = c;
    }
    s->pending_last = c;
}

static void on_shutdown(uv_shutdown_t *req, int status)
{
    (void)status; /* the linger's own end comes by EOF, RST or time */
    free(req);
}

static void linger(struct conn *c)
{
    uv_shutdown_t *req = malloc(sizeof *req);
    if (req == NULL || uv_shutdown(req, (uv_stream_t *)&c->tcp, on_shutdown) != 0) {
        free(req);
        conn_drop(c, false);
        return;
    }
    c->state = CONN_LINGER;
    server_relink(c, WAIT_LINGER);
    c->budget_bytes = LINGER_BYTES_MAX;
}

/* A close() with bytes unread, or with bytes still coming, makes the kernel send RST, and the client may lose an answer
 * it has not read yet. So close at once only when nothing more is to be expected. */
void conn_finish(struct conn *c, bool quiet)
{
    HAPAX_ASSERT(c->x == NULL);
    if (c->closing) {
        return;
    }
    if (c->tls != NULL) {
        tls_conn_shutdown(c->tls);
        conn_send_tls(c);
    }
    if (c->closing) {
        return;
    }
    quiet = c->net_eof || (quiet && conn_unread(c) == 0);
    if (quiet && c->queued_bytes == 0) {
        conn_drop(c, false);
    } else {
        linger(c);
    }
}
