/* What the files of the HTTP client share; nobody else includes it.
 *
 *   http_client.c       the client and its calls: start, turn, time-outs, end
 *   http_client_call.c  the request as curl wants it, copied and checked; the streamed body's buffer
 *   http_wire.c         curl handles: options, call-backs
 *   http_watch.c        curl's sockets and timer on the uv loop
 *   http_origin.c       where requests go
 *
 * Rules: user call-backs run either inside curl (on_head, on_body: in_curl > 0) or from a loop call-back of ours
 * (on_done, on_writable). While in_curl, no handle is added to or removed from curl: a cancelled call stays as a
 * shell whose curl call-backs all refuse, until the next turn frees it. */
#ifndef NET_HTTP_CLIENT_PARTS_H
#define NET_HTTP_CLIENT_PARTS_H

#include "base/arena.h"
#include "base/buf.h"
#include "net/http_answer_head.h"
#include "net/http_client.h"
#include "net/loop_uv.h"

#include <curl/curl.h>
#include <stdatomic.h>
#include <sys/queue.h>

struct http_origin {
    atomic_uint references;
    atomic_bool gone; /* destroyed by its owner: clients let go of it when idle */
    CURLU *url;       /* scheme, host, port and "/" */
    char *authority;
    char *base; /* "" or "/base" */
    char *ca_file;
    int64_t connect_ms;
    int64_t idle_ms;
    uint32_t connections_max;
};

enum wire_mode {
    WIRE_FRESH,
    WIRE_BARE,   /* no request body */
    WIRE_HEAD,   /* the same, and the answer has none either */
    WIRE_POST,   /* a small body, sent in one write with the head */
    WIRE_UPLOAD, /* a body that curl asks for piece by piece */
};

/* A curl handle, set up for one origin, and what belongs to the answer it receives. */
struct wire {
    CURL *easy;
    struct http_client *client;
    struct http_call *call; /* NULL while in the pool */
    struct wire *next;      /* in the pool */
    enum wire_mode mode;    /* as last set */
    char method[HTTP_CALL_METHOD_BYTES_MAX + 1];
    int own_port;         /* local port of the connection that carries the request */
    curl_socket_t parked; /* the socket that was in use but unwatched when the call was last paused */
    bool goodbye_due;     /* the answer is whole only once TLS's close_notify was read */
    struct answer_head head;
    char error[CURL_ERROR_SIZE];
};

TAILQ_HEAD(call_list, http_call);

/* An origin as one client sees it. */
struct peer {
    TAILQ_ENTRY(peer) link;
    struct http_origin *origin; /* a reference */
    uint32_t active;            /* calls that hold a wire */
    struct call_list waiting;   /* for active to sink below connections_max */
    struct wire *pool;          /* idle wires, last used first */
};

enum call_place { CALL_NOWHERE, CALL_FRESH, CALL_WAITING, CALL_ACTIVE };

/* What a call wants done in the next turn. */
enum call_errand {
    ERRAND_CANCELLED = 1,
    ERRAND_EXPIRED = 2,
    ERRAND_FAILED = 4, /* call->reason says why */
    ERRAND_RESUME = 8,
    ERRAND_FEED = 16,
    ERRAND_WRITABLE = 32,
};

struct http_call {
    TAILQ_ENTRY(http_call) all_link;
    TAILQ_ENTRY(http_call) place_link;  /* in client->fresh or peer->waiting */
    TAILQ_ENTRY(http_call) errand_link; /* in client->errands while errands != 0 */
    struct http_client *client;
    struct peer *peer;
    struct wire *wire; /* while CALL_ACTIVE */
    enum call_place place;
    unsigned errands;
    struct http_call_handler handler;
    void *ctx;

    struct arena arena; /* the request's head, copied */
    char method[HTTP_CALL_METHOD_BYTES_MAX + 1];
    const char *target;
    struct curl_slist *headers; /* nodes in the arena: curl only reads them */
    enum wire_mode mode;
    struct slice body;
    int64_t body_length; /* -1: chunked */
    bool stream;
    size_t head_bytes_max;

    struct buf out; /* a streamed body, not yet taken by curl from out_at on */
    size_t out_at;
    int64_t fed_bytes; /* of the body, handed to curl */
    bool out_ended;
    bool out_refused; /* http_call_write() returned false, on_writable is due */

    bool sent; /* curl began to send: sticky */
    bool cancelled;
    bool ended;
    bool paused;
    bool send_paused; /* curl was told to wait for more of the body */
    bool nudged;
    const char *reason; /* why we made curl give up; static text */

    int64_t expires_ms; /* 0: never */
    int64_t silence_ms;
    int64_t heard_ms;          /* last byte in either direction */
    curl_off_t uploaded_bytes; /* as of the last look */
};

struct watch;

struct http_client {
    struct loop *loop;
    uv_loop_t *uv;
    CURLM *multi;
    uv_check_t turn;        /* active while a turn is due: runs right after the loop has polled */
    uv_idle_t hurry;        /* active as long: keeps the loop from waiting when a turn is due */
    uv_timer_t alarm;       /* curl's timer */
    uv_timer_t clock;       /* the nearest deadline of a call, or something earlier */
    int64_t alarm_due_ms;   /* what curl asked for; -1: nothing */
    int64_t alarm_armed_ms; /* what `alarm` is set to; -1: stopped. Never later than alarm_due_ms */
    int64_t clock_armed_ms; /* INT64_MAX: stopped */
    bool kick;              /* curl wants to run at once */
    int busy;               /* depth of our loop call-backs */
    int in_curl;            /* depth of calls into curl that may run user call-backs */
    bool closing;
    int handles_open; /* uv handles inside this struct */
    struct call_list all;
    struct call_list fresh;
    struct call_list errands;
    TAILQ_HEAD(, peer) peers;
    struct call_list spare; /* ended calls, kept for their memory */
    size_t spare_count;
    struct watch **watches; /* by descriptor */
    size_t watch_room;
};

static inline int64_t client_now_ms(const struct http_client *c)
{
    return (int64_t)uv_now(c->uv);
}

void origin_take(struct http_origin *o);
void origin_drop(struct http_origin *o);
bool origin_is_gone(const struct http_origin *o);

/* http_client.c */
void client_turn_soon(struct http_client *c);
void client_enter(struct http_client *c);
void client_leave(struct http_client *c);
/* Let curl work on a socket's events or its timer (CURL_SOCKET_TIMEOUT), and finish what ended. */
void client_act(struct http_client *c, curl_socket_t fd, int events);
void client_clock_by(struct http_client *c, int64_t due_ms); /* look at the deadlines then, at the latest */
void call_errand(struct http_call *call, unsigned errand);
void call_heard(struct http_call *call); /* a byte moved, or the silence starts anew */

/* http_client_call.c */
bool target_is_sendable(struct slice target);
int call_describe(struct http_call *call, const struct http_origin *origin, const struct http_call_options *o,
                  hapax_error *err);
/* Up to `room` bytes of the body into `to`: the value for curl's read call-back. */
size_t call_read_body(struct http_call *call, char *to, size_t room);
/* curl waits for nothing but more of the body. When the upstream answered without reading it all, curl won't want
 * that any more, but notices only when asked, once. */
void call_nudge(struct http_call *call);

/* http_wire.c */
struct wire *wire_create(struct http_client *c, const struct http_origin *origin);
void wire_free(struct wire *w);
bool wire_load(struct wire *w, struct http_call *call); /* false: no memory */

/* http_watch.c */
int watch_on_socket(CURL *easy, curl_socket_t fd, int what, void *user, void *socket_user);
int watch_on_alarm(CURLM *multi, long after_ms, void *user);
curl_socket_t watch_open_socket(void *user, curlsocktype purpose, struct curl_sockaddr *address);
int watch_close_socket(void *user, curl_socket_t fd);
void watch_alarm_fired(uv_timer_t *timer);
/* The wire's call is over and its connection may be kept: watch the socket that a pause had left unwatched. */
void watch_unpark(struct wire *w);

#endif
