/* Listening, accepting, deadlines, drain and close. Invariants: `connections` counts every struct conn from accept to
 * free; the server is freed after the last of them and after its own five handles. */
#include "base/assert.h"
#include "base/error.h"
#include "base/units.h"
#include "net/http_server_impl.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    BACKLOG = 4096,
    SCOPE_BYTES_MAX = 20, /* "%eth0" behind a link-local address */
    HEAD_BYTES_MAX = 16 * 1024 * 1024,
    FIRST_REQUEST_MS = 1000, /* a new connection has this long before it may be closed for another */
};

/* --- Lists and deadlines. --- */

void server_unlink(struct conn *c)
{
    struct http_server *s = c->server;
    if (c->prev != NULL) {
        c->prev->next = c->next;
    } else {
        s->first[c->wait] = c->next;
    }
    if (c->next != NULL) {
        c->next->prev = c->prev;
    } else {
        s->last[c->wait] = c->prev;
    }
    c->prev = NULL;
    c->next = NULL;
}

static void link_last(struct conn *c, enum wait wait)
{
    struct http_server *s = c->server;
    c->wait = (uint8_t)wait;
    c->deadline_ms = (int64_t)uv_now(loop_uv(s->loop)) + s->wait_ms[wait];
    c->prev = s->last[wait];
    if (c->prev != NULL) {
        c->prev->next = c;
    } else {
        s->first[wait] = c;
    }
    s->last[wait] = c;
}

void server_relink(struct conn *c, enum wait wait)
{
    server_unlink(c);
    link_last(c, wait);
}

/* A slow reader whose queue got shorter has its time anew; one look at each tick is exact enough. */
static void note_send_progress(struct http_server *s)
{
    struct conn *end = s->last[WAIT_SEND];
    for (struct conn *c = s->first[WAIT_SEND]; c != NULL;) {
        struct conn *next = c == end ? NULL : c->next;
        size_t left = uv_stream_get_write_queue_size((uv_stream_t *)&c->tcp);
        if (left < c->queue_seen_bytes) {
            c->queue_seen_bytes = left;
            server_relink(c, WAIT_SEND);
        }
        c = next;
    }
}

/* A connection that has just come is about to send its first request, which nobody would repeat for it. */
bool server_may_displace(const struct conn *c)
{
    const struct http_server *s = c->server;
    int64_t idle_since_ms = c->deadline_ms - s->wait_ms[WAIT_IDLE];
    return c->used || (int64_t)uv_now(loop_uv(s->loop)) - idle_since_ms >= FIRST_REQUEST_MS;
}

static void make_room(struct http_server *s)
{
    struct conn *c = s->first[WAIT_IDLE]; /* the longest idle comes first */
    while (c != NULL && !server_may_displace(c)) {
        c = c->next;
    }
    if (c != NULL) {
        conn_finish(c, true);
    }
}

static void accept_held(struct http_server *s);

static void on_tick(uv_timer_t *timer)
{
    struct http_server *s = timer->data;
    int64_t now = (int64_t)uv_now(loop_uv(s->loop));
    note_send_progress(s);
    for (enum wait wait = WAIT_IDLE; wait < WAIT_COUNT; wait++) {
        while (s->first[wait] != NULL && s->first[wait]->deadline_ms <= now) {
            struct conn *c = s->first[wait];
            server_relink(c, wait); /* its next deadline, should it stay */
            conn_expired(c);
        }
    }
    if (s->held && s->connections >= s->options.connections_max) {
        make_room(s);
    }
    accept_held(s);
    if (s->connections == 0 && !s->held) {
        uv_timer_stop(&s->tick);
        s->ticking = false;
    }
}

static void start_ticking(struct http_server *s)
{
    if (!s->ticking && !s->closing) {
        uv_timer_start(&s->tick, on_tick, (uint64_t)s->tick_ms, (uint64_t)s->tick_ms);
        s->ticking = true;
    }
}

/* --- Scheduled connections. --- */

static void on_idle(uv_idle_t *idle)
{
    (void)idle; /* being active is its work */
}

static void run_pending(struct http_server *s)
{
    struct conn *c = s->pending_first;
    s->pending_first = NULL;
    s->pending_last = NULL;
    while (c != NULL) {
        struct conn *next = c->pending_next;
        c->pending = false;
        conn_run(c);
        c = next;
    }
    if (uv_is_closing((uv_handle_t *)&s->idle)) {
        return; /* and no connection is left */
    }
    if (s->pending_first != NULL) {
        uv_idle_start(&s->idle, on_idle);
    } else {
        uv_idle_stop(&s->idle);
    }
}

static void on_prepare(uv_prepare_t *prepare)
{
    run_pending(prepare->data);
}

static void on_check(uv_check_t *check)
{
    run_pending(check->data);
}

/* --- Accepting. --- */

static void note_peer(struct conn *c)
{
    struct sockaddr_storage peer;
    int len = sizeof peer;
    if (uv_tcp_getpeername(&c->tcp, (struct sockaddr *)&peer, &len) != 0) {
        return; /* gone already; the first read will tell */
    }
    if (peer.ss_family == AF_INET) {
        uv_ip4_name((struct sockaddr_in *)&peer, c->peer_text, sizeof c->peer_text);
        return;
    }
    const struct sockaddr_in6 *six = (struct sockaddr_in6 *)&peer;
    if (IN6_IS_ADDR_V4MAPPED(&six->sin6_addr)) {
        uv_inet_ntop(AF_INET, six->sin6_addr.s6_addr + 12, c->peer_text, sizeof c->peer_text);
    } else {
        uv_inet_ntop(AF_INET6, &six->sin6_addr, c->peer_text, sizeof c->peer_text);
    }
}

/* false: no memory for it; the connection stays in the listener, which pauses. */
static bool accept_one(struct http_server *s)
{
    struct conn *c = calloc(1, sizeof *c);
    if (c == NULL || (s->options.tls != NULL && tls_conn_create(&c->tls, s->options.tls) != 0)) {
        free(c);
        return false;
    }
    c->server = s;
    uv_tcp_init(loop_uv(s->loop), &c->tcp);
    c->tcp.data = c;
    s->connections++;
    link_last(c, WAIT_NONE);
    start_ticking(s);
    if (uv_accept((uv_stream_t *)&s->listener, (uv_stream_t *)&c->tcp) != 0) {
        conn_drop(c, false);
        return true;
    }
    note_peer(c);
    conn_start(c);
    return true;
}

/* uv stops polling a listener whose connection was not accepted, and goes on when it is: that is the pause. */
static void on_connection(uv_stream_t *listener, int status)
{
    struct http_server *s = listener->data;
    if (status != 0) {
        return; /* a client that left the queue; out of descriptors is uv's to handle */
    }
    if (s->connections < s->options.connections_max && accept_one(s)) {
        return;
    }
    s->held = true;
    start_ticking(s);
    make_room(s);
}

static void accept_held(struct http_server *s)
{
    if (s->held && s->listening && s->connections < s->options.connections_max) {
        s->held = false;
        s->held = !accept_one(s);
    }
}

/* --- The end of the server. --- */

static void free_server(struct http_server *s)
{
    void (*closed)(void *ctx) = s->closed;
    void *ctx = s->closed_ctx;
    while (s->exchanges_free != NULL) {
        struct http_exchange *x = s->exchanges_free;
        s->exchanges_free = x->next_free;
        exchange_free(x);
    }
    tls_context_drop(s->options.tls);
    free(s);
    if (closed != NULL) {
        closed(ctx);
    }
}

static void on_handle_closed(uv_handle_t *handle)
{
    struct http_server *s = handle->data;
    s->handles_open--;
    if (s->handles_open == 0) {
        free_server(s);
    }
}

static void close_listener(struct http_server *s)
{
    if (s->listening) {
        s->listening = false;
        s->held = false;
        uv_close((uv_handle_t *)&s->listener, on_handle_closed);
    }
}

static void close_handles(struct http_server *s)
{
    uv_close((uv_handle_t *)&s->tick, on_handle_closed);
    uv_close((uv_handle_t *)&s->prepare, on_handle_closed);
    uv_close((uv_handle_t *)&s->check, on_handle_closed);
    uv_close((uv_handle_t *)&s->idle, on_handle_closed);
}

void server_conn_freed(struct http_server *s)
{
    s->connections--;
    if (s->closing && s->connections == 0) {
        close_handles(s);
    } else {
        accept_held(s);
    }
}

void http_server_drain(struct http_server *s)
{
    if (s->draining) {
        return;
    }
    s->draining = true;
    close_listener(s);
    for (struct conn *c = s->first[WAIT_IDLE]; c != NULL;) {
        struct conn *next = c->next;
        if (!c->running) { /* the one we are called from looks at `draining` by itself */
            conn_finish(c, true);
        }
        c = next;
    }
}

void http_server_close(struct http_server *s, void (*closed)(void *ctx), void *ctx)
{
    HAPAX_ASSERT(!s->closing);
    s->closing = true;
    s->draining = true;
    s->closed = closed;
    s->closed_ctx = ctx;
    close_listener(s);
    for (enum wait wait = WAIT_NONE; wait < WAIT_COUNT; wait++) {
        while (s->first[wait] != NULL) {
            struct conn *c = s->first[wait];
            conn_drop(c, false); /* takes it out of the list */
            conn_schedule(c);
        }
    }
    if (s->connections == 0) {
        close_handles(s);
    }
}

uint32_t http_server_connections(const struct http_server *s)
{
    return atomic_load_explicit(&s->connections, memory_order_relaxed);
}

uint16_t http_server_port(const struct http_server *s)
{
    return s->port;
}

void http_server_set_tls(struct http_server *s, struct tls_context *t)
{
    HAPAX_ASSERT(s->options.tls != NULL && t != NULL);
    struct tls_context *old = s->options.tls;
    s->options.tls = tls_context_hold(t);
    tls_context_drop(old);
}

/* --- Opening. --- */

struct endpoint {
    struct sockaddr_storage address;
    socklen_t len;
    bool any; /* ":port" */
};

static int parse_address(struct endpoint *out, const char *text, hapax_error *err)
{
    char host[INET6_ADDRSTRLEN + SCOPE_BYTES_MAX] = "";
    const char *colon = strrchr(text, ':');
    uint64_t port = 0;
    size_t len = colon == NULL ? 0 : (size_t)(colon - text);
    if (colon == NULL || units_u64(&port, slice_text(colon + 1)) != 0 || port > UINT16_MAX ||
        len >= sizeof host) {
        return error_set(err, HAPAX_E_ARGUMENT, 0,
                         "not an address to listen on (host:port, [v6]:port or :port): %s", text);
    }
    bool six = len > 2 && text[0] == '[' && text[len - 1] == ']';
    memcpy(host, six ? text + 1 : text, six ? len - 2 : len);
    *out = (struct endpoint){.any = len == 0};
    struct sockaddr_in *v4 = (struct sockaddr_in *)&out->address;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&out->address;
    if (len == 0 || six) {
        out->len = sizeof *v6;
        if (uv_ip6_addr(len == 0 ? "::" : host, (int)port, v6) == 0) {
            return 0;
        }
    } else {
        out->len = sizeof *v4;
        if (uv_ip4_addr(host, (int)port, v4) == 0) {
            return 0;
        }
    }
    return error_set(err, HAPAX_E_ARGUMENT, 0, "not a numeric IP address to listen on: %s", text);
}

static int bound_socket(const struct endpoint *e, bool reuse_port)
{
    const int on = 1;
    const int v6only = !e->any;
    int fd = socket(e->address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return -errno;
    }
    /* NODELAY and KEEPALIVE are inherited by accepted sockets: no system call for each. */
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
        (reuse_port && setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on) != 0) ||
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0 ||
        setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on) != 0 ||
        (e->address.ss_family == AF_INET6 &&
         setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &v6only, sizeof v6only) != 0) ||
        bind(fd, (const struct sockaddr *)&e->address, e->len) != 0 || listen(fd, BACKLOG) != 0) {
        int code = -errno;
        close(fd);
        return code;
    }
    return fd;
}

/* ":port" means both families where there are two. */
static int open_socket(struct endpoint *e, bool reuse_port)
{
    int fd = bound_socket(e, reuse_port);
    if (e->any && (fd == -EAFNOSUPPORT || fd == -EADDRNOTAVAIL)) {
        struct sockaddr_in v4 = {.sin_family = AF_INET,
                                 .sin_port = ((struct sockaddr_in6 *)&e->address)->sin6_port,
                                 .sin_addr.s_addr = htonl(INADDR_ANY)};
        memset(&e->address, 0, sizeof e->address);
        memcpy(&e->address, &v4, sizeof v4);
        e->len = sizeof v4;
        fd = bound_socket(e, reuse_port);
    }
    return fd;
}

static void set_deadlines(struct http_server *s, const struct http_server_options *o)
{
    s->wait_ms[WAIT_IDLE] = o->idle_ms;
    s->wait_ms[WAIT_HEAD] = o->head_ms;
    s->wait_ms[WAIT_BODY] = o->body_ms;
    s->wait_ms[WAIT_SEND] = o->send_ms;
    s->wait_ms[WAIT_LINGER] = LINGER_MS;
    s->tick_ms = TICK_MS_MAX;
    for (enum wait wait = WAIT_IDLE; wait < WAIT_COUNT; wait++) {
        int64_t fine = s->wait_ms[wait] / 4 > 1 ? s->wait_ms[wait] / 4 : 1;
        s->tick_ms = fine < s->tick_ms ? fine : s->tick_ms;
    }
}

static void init_handles(struct http_server *s)
{
    uv_loop_t *uv = loop_uv(s->loop);
    s->listener.data = s->tick.data = s->prepare.data = s->check.data = s->idle.data = s;
    uv_tcp_init(uv, &s->listener);
    uv_timer_init(uv, &s->tick);
    uv_prepare_init(uv, &s->prepare);
    uv_check_init(uv, &s->check);
    uv_idle_init(uv, &s->idle);
    s->handles_open = 5;
    s->listening = true;
}

int http_server_open(struct http_server **out, struct loop *l, const struct http_server_options *o,
                     hapax_error *err)
{
    *out = NULL;
    if (o->address == NULL || o->handler == NULL || o->connections_max == 0 || o->head_bytes_max == 0 ||
        o->head_ms <= 0 || o->idle_ms <= 0 || o->body_ms <= 0 || o->send_ms <= 0 ||
        o->head_bytes_max > HEAD_BYTES_MAX) {
        return error_set(err, HAPAX_E_ARGUMENT, 0, "an option of the HTTP server is missing or out of range");
    }
    struct endpoint endpoint;
    int rc = parse_address(&endpoint, o->address, err);
    if (rc != 0) {
        return rc;
    }
    in_port_t *port =
        &((struct sockaddr_in *)&endpoint.address)->sin_port; /* in the same place for both families */
    *port = o->port != 0 ? htons(o->port) : *port;
    struct http_server *s = calloc(1, sizeof *s);
    if (s == NULL) {
        return error_code(err, HAPAX_E_MEMORY);
    }
    int fd = open_socket(&endpoint, o->reuse_port);
    if (fd < 0) {
        free(s);
        return error_set(err, HAPAX_E_SYSTEM, -fd, "can't listen on %s: %s", o->address, uv_strerror(fd));
    }
    socklen_t len = sizeof endpoint.address;
    getsockname(fd, (struct sockaddr *)&endpoint.address, &len);
    s->port = ntohs(*port);
    s->loop = l;
    s->options = *o;
    s->options.address = NULL;
    s->handler = *o->handler;
    s->options.tls = o->tls != NULL ? tls_context_hold(o->tls) : NULL;
    set_deadlines(s, o);
    init_handles(s);
    rc = uv_tcp_open(&s->listener, fd);
    if (rc != 0) {
        close(fd);
    } else {
        rc = uv_listen((uv_stream_t *)&s->listener, BACKLOG, on_connection);
    }
    if (rc != 0) {
        http_server_close(s, NULL, NULL); /* freed when the loop runs */
        return error_set(err, HAPAX_E_SYSTEM, -rc, "can't listen on %s: %s", o->address, uv_strerror(rc));
    }
    uv_prepare_start(&s->prepare, on_prepare);
    uv_check_start(&s->check, on_check);
    *out = s;
    return 0;
}
