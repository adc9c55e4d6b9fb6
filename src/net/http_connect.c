/* How a link begins: the peer's addresses, one attempt after the other, TLS's handshake.
 *
 * Where the first address hangs, the next one is tried beside it after a moment (RFC 8305 section 5), and the first
 * socket that is connected wins. Addresses are kept for a while, the one that worked in front. */
#include "base/assert.h"
#include "net/http_client_parts.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    ATTEMPT_DELAY_MS = 250, /* RFC 8305 section 8 */
    ADDRESSES_KEPT_MS = 30 * 1000,
    CONNECT_DEFAULT_MS = 300 * 1000,
};

static void give_up(struct link *l, const char *what, const char *why)
{
    char detail[320];
    struct http_call *call = l->call;
    snprintf(detail, sizeof detail, "%s %.200s: %.80s", what, l->peer->origin->authority, why);
    if (call != NULL) {
        call_fail(call, detail);
    } else {
        link_close(l);
    }
}

/* --- Attempts. --- */

static void put_in_front(struct resolved *r, const struct sockaddr_storage *address)
{
    for (unsigned i = 1; i < r->count; i++) {
        if (memcmp(&r->address[i], address, sizeof *address) == 0) {
            r->address[i] = r->address[0];
            r->address[0] = *address;
        }
    }
}

static void win(struct attempt *a)
{
    struct link *l = a->link;
    struct peer *p = l->peer;
    l->stream = (uv_stream_t *)&a->tcp;
    unsigned winner = 0;
    for (unsigned i = 0; i < l->address_next; i++) {
        if (l->attempts[i] == a) {
            winner = i;
        } else if (l->attempts[i] != NULL) {
            link_attempt_close(l->attempts[i]);
            l->attempts[i] = NULL;
        }
    }
    put_in_front(&p->addresses, &l->addresses.address[winner]);
    (void)uv_tcp_nodelay(&a->tcp, 1);
    l->state = LINK_HANDSHAKE;
    if (!link_read_on(l, true)) {
        give_up(l, "can't read from", "no memory");
        return;
    }
    link_shake_hands(l);
}

static void try_next(struct link *l, int status);

static void on_connected(uv_connect_t *req, int status)
{
    struct attempt *a = req->data;
    struct link *l = a->link;
    if (status == UV_ECANCELED || l->closing || l->state != LINK_CONNECTING) {
        return; /* being closed: too late, or not wanted any more */
    }
    struct http_client *c = l->client;
    client_enter(c);
    if (status == 0) {
        win(a);
    } else {
        for (unsigned i = 0; i < l->address_next; i++) {
            l->attempts[i] = l->attempts[i] == a ? NULL : l->attempts[i];
        }
        l->attempts_open--;
        link_attempt_close(a);
        try_next(l, status);
    }
    client_leave(c);
}

static int begin_attempt(struct link *l, const struct sockaddr *address)
{
    struct attempt *a = calloc(1, sizeof *a);
    if (a == NULL || uv_tcp_init(l->client->uv, &a->tcp) != 0) {
        free(a);
        return UV_ENOMEM;
    }
    a->link = l;
    a->tcp.data = a;
    a->req.data = a;
    l->handles++;
    int rc = uv_tcp_connect(&a->req, &a->tcp, address, on_connected);
    if (rc != 0) {
        link_attempt_close(a);
        return rc;
    }
    l->attempts[l->address_next] = a;
    l->attempts_open++;
    return 0;
}

/* The next address that can be tried at all. `status`: why the one before could not. */
static void try_next(struct link *l, int status)
{
    const struct resolved *r = &l->addresses;
    bool begun = false;
    while (!begun && l->address_next < r->count) {
        int rc = begin_attempt(l, (const struct sockaddr *)&r->address[l->address_next]);
        l->address_next++;
        begun = rc == 0;
        status = begun ? status : rc;
    }
    if (begun && l->address_next < r->count) {
        l->attempt_due_ms = client_now_ms(l->client) + ATTEMPT_DELAY_MS;
        client_clock_by(l->client, l->attempt_due_ms);
    } else {
        l->attempt_due_ms = INT64_MAX;
    }
    if (!begun && l->attempts_open == 0) {
        l->peer->addresses.count = 0; /* it may have moved: look it up again */
        give_up(l, "can't connect to", uv_strerror(status));
    }
}

void link_next_attempt(struct link *l)
{
    l->attempt_due_ms = INT64_MAX;
    if (l->state == LINK_CONNECTING) {
        try_next(l, UV_EADDRNOTAVAIL);
    }
}

static void connect_now(struct link *l, const struct resolved *to)
{
    l->state = LINK_CONNECTING;
    l->addresses = *to;
    l->address_next = 0;
    try_next(l, UV_EADDRNOTAVAIL);
}

/* --- Look-up. --- */

static struct link *first_resolving(struct peer *p)
{
    struct link *l;
    LIST_FOREACH(l, &p->links, peer_link)
    {
        if (l->state == LINK_RESOLVING) {
            return l;
        }
    }
    return NULL;
}

static void on_resolved(void *ctx, const struct resolved *found, const char *detail)
{
    struct peer *p = ctx;
    struct http_client *c = p->client;
    p->lookup = NULL;
    client_enter(c);
    if (found != NULL) {
        p->addresses = *found;
        p->addresses_until_ms = client_now_ms(c) + ADDRESSES_KEPT_MS;
    }
    /* Each step may close links and start calls, but no new link resolves: those begin in a turn. */
    struct link *l;
    while ((l = first_resolving(p)) != NULL) {
        if (found != NULL) {
            connect_now(l, found);
        } else {
            give_up(l, "can't find", detail);
        }
    }
    client_leave(c);
}

/* --- TLS. --- */

void link_shake_hands(struct link *l)
{
    const struct http_origin *o = l->peer->origin;
    if (o->tls == NULL) {
        link_ready(l);
        return;
    }
    if (l->tls == NULL && tls_conn_create_client(&l->tls, o->tls, o->host) != 0) {
        give_up(l, "can't speak TLS with", "no memory");
        return;
    }
    enum tls_step step = tls_conn_handshake(l->tls);
    if (!link_flush_tls(l)) {
        give_up(l, "can't speak TLS with", "the connection broke");
    } else if (step == TLS_DONE) {
        link_ready(l);
    } else if (step != TLS_MORE) {
        give_up(l, "TLS (SSL) failed with", tls_conn_failure(l->tls));
    }
}

/* --- The link. --- */

bool link_open(struct peer *p, struct http_call *call)
{
    struct http_client *c = p->client;
    struct link *l = calloc(1, sizeof *l);
    if (l == NULL) {
        return false;
    }
    int64_t now = client_now_ms(c);
    int64_t connect_ms = p->origin->connect_ms > 0 ? p->origin->connect_ms : CONNECT_DEFAULT_MS;
    l->client = c;
    l->peer = p;
    l->attempt_due_ms = INT64_MAX;
    l->connect_due_ms = now + connect_ms;
    buf_init(&l->out, LINK_WRITE_BYTES + 2 * LINK_RECORD_BYTES);
    buf_init(&l->in, SIZE_MAX / 2); /* bounded by one read beyond the longest head line */
    answer_head_init(&l->head);
    LIST_INSERT_HEAD(&p->links, l, peer_link);
    c->links++;
    link_take_call(l, call);
    client_clock_by(c, l->connect_due_ms);
    l->state = LINK_RESOLVING;
    if (now >= p->addresses_until_ms) {
        p->addresses.count = 0;
    }
    if (p->addresses.count == 0 && resolve_number(&p->addresses, p->origin->host, p->origin->port)) {
        p->addresses_until_ms = INT64_MAX;
    }
    if (p->addresses.count > 0) {
        connect_now(l, &p->addresses);
    } else if (p->lookup == NULL &&
               resolve_start(&p->lookup, c->loop, p->origin->host, p->origin->port, on_resolved, p) != 0) {
        give_up(l, "can't look up", "no memory");
    }
    return true;
}
