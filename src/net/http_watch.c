/* curl's sockets and timer on the uv loop.
 *
 * curl asks for a socket's events at each request and drops them at its end; with kept connections that would be
 * two changes of the epoll set a request. So a watch stays armed when curl lets go of it, until something happens
 * on the idle socket. Whatever that is (the upstream closed, or sent bytes nobody asked for, such as a late
 * 408), the connection is made unusable: curl by itself would take such bytes for the answer to the next request.
 *
 * Invariant: a descriptor has at most one watch, and one that outlives curl's interest (`kept`) is of a socket that
 * carried a request: those curl closes through our call-back. Others (the resolver's, and those of connects that
 * failed or came second) it closes behind our back, and their numbers may be in use again at once. */
#include "net/http_client_parts.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

struct watch {
    uv_poll_t poll;
    struct http_client *client;
    curl_socket_t fd;
    int armed;  /* uv events asked of the loop */
    int wanted; /* uv events curl waits for; 0: none */
    bool kept;  /* a connection that carried a request */
    bool idle;  /* curl let go of it, and no paused call owns it */
    bool closing;
    const struct wire *owner; /* of a socket that is neither watched nor idle: its call is paused */
};

enum { UNASKED_BYTES_MAX = 1 << 20 };

static struct watch *find(const struct http_client *c, curl_socket_t fd)
{
    return fd >= 0 && (size_t)fd < c->watch_room ? c->watches[fd] : NULL;
}

static bool make_room(struct http_client *c, curl_socket_t fd)
{
    size_t need = (size_t)fd + 1;
    if (need <= c->watch_room) {
        return true;
    }
    size_t room = need < 64 ? 64 : need * 2;
    struct watch **grown = realloc(c->watches, room * sizeof(struct watch *));
    if (grown == NULL) {
        return false;
    }
    for (size_t i = c->watch_room; i < room; i++) {
        grown[i] = NULL;
    }
    c->watches = grown;
    c->watch_room = room;
    return true;
}

static struct watch *open_watch(struct http_client *c, curl_socket_t fd)
{
    struct watch *w = make_room(c, fd) ? calloc(1, sizeof *w) : NULL;
    if (w == NULL || uv_poll_init_socket(c->uv, &w->poll, fd) != 0) {
        free(w);
        return NULL;
    }
    w->poll.data = w;
    w->client = c;
    w->fd = fd;
    c->watches[fd] = w;
    return w;
}

static void free_watch(uv_handle_t *handle)
{
    free(handle->data);
}

static void close_watch(struct watch *w)
{
    w->client->watches[w->fd] = NULL;
    w->closing = true;
    uv_close((uv_handle_t *)&w->poll, free_watch);
}

static void on_events(uv_poll_t *poll, int status, int events);

static bool arm(struct watch *w, int events)
{
    if (events == w->armed) {
        return true;
    }
    int rc = events == 0 ? uv_poll_stop(&w->poll) : uv_poll_start(&w->poll, events, on_events);
    w->armed = rc == 0 ? events : 0;
    return rc == 0;
}

/* After this, curl's check before the next use finds the connection closed. */
static void spoil(struct watch *w)
{
    char unasked[4096];
    size_t total = 0;
    (void)arm(w, 0);
    (void)shutdown(w->fd, SHUT_RDWR);
    while (total < UNASKED_BYTES_MAX) {
        ssize_t n = recv(w->fd, unasked, sizeof unasked, MSG_DONTWAIT);
        if (n <= 0) {
            break;
        }
        total += (size_t)n;
    }
}

/* Of a socket's own end; -1: it has none any more. */
static int local_port(curl_socket_t fd)
{
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } a;
    socklen_t len = sizeof a;
    if (getsockname(fd, &a.any, &len) != 0) {
        return -1;
    }
    return a.any.sa_family == AF_INET    ? ntohs(a.v4.sin_port)
           : a.any.sa_family == AF_INET6 ? ntohs(a.v6.sin6_port)
                                         : -1;
}

/* Is a socket with this port the one over which the wire's request goes? */
static bool carries(int port, const struct wire *w)
{
    return w->call != NULL && w->call->sent && port == w->own_port;
}

static void park(struct watch *w, struct wire *wire)
{
    wire->parked = w->fd;
    w->idle = false;
    w->owner = wire;
    (void)arm(w, 0);
    call_nudge(wire->call);
}

/* An answer may come so fast that its call is paused before curl has ever asked for the socket's events. Then the
 * watch is still that of an idle connection, and what arrives is not unasked. */
static struct wire *carried_by(struct watch *w)
{
    int port = local_port(w->fd);
    struct http_call *call;
    TAILQ_FOREACH(call, &w->client->all, all_link)
    {
        if (call->wire != NULL && !call->ended && carries(port, call->wire)) {
            return call->wire;
        }
    }
    return NULL;
}

static void on_events(uv_poll_t *poll, int status, int events)
{
    struct watch *w = poll->data;
    struct http_client *c = w->client;
    if (status < 0) {
        /* uv stopped the watch. Data may still wait in front of the error, so let curl read up to it. */
        w->armed = 0;
        events = w->wanted != 0 ? w->wanted : UV_READABLE;
    }
    client_enter(c);
    if (w->wanted == 0) {
        if (!w->idle) {
            (void)arm(w, 0);
        } else if ((events & UV_READABLE) != 0) {
            struct wire *wire = carried_by(w);
            if (wire != NULL) {
                park(w, wire);
            } else {
                spoil(w);
            }
        } else {
            (void)arm(w, UV_READABLE);
        }
    } else if ((events & w->wanted) != 0) {
        int bits = ((events & UV_READABLE) != 0 ? CURL_CSELECT_IN : 0) |
                   ((events & UV_WRITABLE) != 0 ? CURL_CSELECT_OUT : 0);
        client_act(c, w->fd, bits);
        if (!w->closing && w->wanted != 0) {
            (void)arm(w, w->wanted); /* where uv stopped it */
        }
    } else {
        (void)arm(w, w->wanted);
    }
    client_leave(c);
}

static struct wire *wire_of(CURL *easy)
{
    char *private = NULL;
    if (easy == NULL || curl_easy_getinfo(easy, CURLINFO_PRIVATE, &private) != CURLE_OK) {
        return NULL;
    }
    return (struct wire *)(void *)private;
}

static void let_go(struct watch *w, CURL *easy)
{
    struct wire *wire = wire_of(easy);
    w->wanted = 0;
    /* It may also be a closed one, or a new one of that number. */
    w->kept = w->kept || (wire != NULL && carries(local_port(w->fd), wire));
    if (!w->kept) {
        close_watch(w);
    } else if (wire != NULL && wire->call != NULL && (wire->call->paused || wire->call->send_paused)) {
        park(w, wire);
    } else {
        w->idle = true;
        if (w->armed == 0) {
            (void)arm(w, UV_READABLE);
        }
    }
}

int watch_on_socket(CURL *easy, curl_socket_t fd, int what, void *user, void *socket_user)
{
    (void)socket_user;
    struct http_client *c = user;
    struct watch *w = find(c, fd);
    if (what == CURL_POLL_REMOVE || what == CURL_POLL_NONE) {
        if (w != NULL) {
            let_go(w, easy);
        }
        return 0;
    }
    if (w == NULL) {
        w = open_watch(c, fd);
        if (w == NULL) {
            return 0; /* the call's time-outs end it */
        }
    }
    w->idle = false;
    w->owner = NULL;
    w->wanted =
        ((what & CURL_POLL_IN) != 0 ? UV_READABLE : 0) | ((what & CURL_POLL_OUT) != 0 ? UV_WRITABLE : 0);
    (void)arm(w, w->wanted);
    return 0;
}

void watch_unpark(struct wire *wire)
{
    struct watch *w = find(wire->client, wire->parked);
    wire->parked = CURL_SOCKET_BAD;
    if (w != NULL && w->owner == wire) {
        w->owner = NULL;
        w->idle = true;
        (void)arm(w, UV_READABLE);
    }
}

curl_socket_t watch_open_socket(void *user, curlsocktype purpose, struct curl_sockaddr *address)
{
    (void)purpose;
    struct http_client *c = user;
    int fd = socket(address->family, address->socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, address->protocol);
    struct watch *stale = find(c, fd);
    if (stale != NULL) {
        /* curl closed a socket of this number and opens the next one before telling us; where it wants the
         * same events of it, it will not tell us at all. */
        int wanted = stale->wanted;
        close_watch(stale);
        struct watch *w = open_watch(c, fd);
        if (w != NULL) {
            w->wanted = wanted;
            (void)arm(w, wanted);
        }
    }
    return fd >= 0 ? fd : CURL_SOCKET_BAD;
}

int watch_close_socket(void *user, curl_socket_t fd)
{
    struct watch *w = find(user, fd);
    if (w != NULL) {
        close_watch(w);
    }
    return close(fd);
}

/* curl's timer moves at nearly every request. The uv timer is only ever moved nearer; when it fires early, it is
 * set to what is due by then. */
int watch_on_alarm(CURLM *multi, long after_ms, void *user)
{
    (void)multi;
    struct http_client *c = user;
    c->alarm_due_ms = -1;
    if (after_ms == 0) {
        c->kick = true;
        client_turn_soon(c);
    } else if (after_ms > 0) {
        c->alarm_due_ms = client_now_ms(c) + after_ms;
        if (c->alarm_armed_ms < 0 || c->alarm_due_ms < c->alarm_armed_ms) {
            c->alarm_armed_ms = c->alarm_due_ms;
            uv_timer_start(&c->alarm, watch_alarm_fired, (uint64_t)after_ms, 0);
        }
    }
    return 0;
}

void watch_alarm_fired(uv_timer_t *timer)
{
    struct http_client *c = timer->data;
    c->alarm_armed_ms = -1;
    if (c->alarm_due_ms < 0) {
        return;
    }
    int64_t left = c->alarm_due_ms - client_now_ms(c);
    if (left > 0) {
        c->alarm_armed_ms = c->alarm_due_ms;
        uv_timer_start(timer, watch_alarm_fired, (uint64_t)left, 0);
        return;
    }
    c->alarm_due_ms = -1;
    client_enter(c);
    client_act(c, CURL_SOCKET_TIMEOUT, 0);
    client_leave(c);
}
