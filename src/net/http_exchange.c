/* An exchange: its memory, reused from request to request, and what the handler may ask of it. */
#include "base/assert.h"
#include "net/http_server_impl.h"

#include <stdlib.h>

struct http_exchange *exchange_new(struct conn *c)
{
    struct http_server *s = c->server;
    struct http_exchange *x = s->exchanges_free;
    if (x != NULL) {
        s->exchanges_free = x->next_free;
        s->exchanges_kept--;
    } else {
        x = calloc(1, sizeof *x);
        if (x == NULL) {
            return NULL;
        }
        buf_init(&x->bytes, s->options.head_bytes_max);
    }
    x->conn = c;
    return x;
}

void exchange_free(struct http_exchange *x)
{
    buf_free(&x->bytes);
    free(x->headers);
    free(x);
}

void exchange_recycle(struct http_exchange *x)
{
    struct http_server *s = x->conn->server;
    if (s->exchanges_kept >= EXCHANGES_KEPT_MAX || x->bytes.cap > EXCHANGE_HEAD_KEPT_MAX) {
        exchange_free(x);
        return;
    }
    struct buf bytes = x->bytes;
    bytes.len = 0;
    *x = (struct http_exchange){
        .bytes = bytes, .headers = x->headers, .header_cap = x->header_cap, .next_free = s->exchanges_free};
    s->exchanges_free = x;
    s->exchanges_kept++;
}

const struct request *http_exchange_request(const struct http_exchange *x)
{
    return &x->head.request;
}

bool http_exchange_has_body(const struct http_exchange *x)
{
    return x->head.length != 0;
}

int64_t http_exchange_body_length(const struct http_exchange *x)
{
    return x->head.length;
}

bool http_exchange_is_tls(const struct http_exchange *x)
{
    return x->conn->tls != NULL;
}

struct slice http_exchange_peer(const struct http_exchange *x)
{
    return slice_text(x->conn->peer_text);
}

void http_exchange_set_user(struct http_exchange *x, void *user)
{
    x->user = user;
}

void *http_exchange_user(const struct http_exchange *x)
{
    return x->user;
}

void http_exchange_read(struct http_exchange *x, bool on)
{
    struct conn *c = x->conn;
    x->read_on = on;
    if (on && x->continue_due && !x->answering && !c->closing) {
        static char line[] = "HTTP/1.1 100 Continue\r\n\r\n";
        x->continue_due = false;
        if (conn_unread(c) == 0) {
            uv_buf_t b = uv_buf_init(line, sizeof line - 1);
            conn_send(c, &b, 1, (struct write_owner){0});
        }
    }
    conn_schedule(c);
}

void http_exchange_done(struct http_exchange *x)
{
    HAPAX_ASSERT(x->gone_told);
    x->done = true;
    conn_schedule(x->conn);
}
