/* What the files of the HTTP client share; nobody else includes it.
 *
 *   http_client.c       the client and its calls: start, turn, time-outs, end
 *   http_client_call.c  the request as bytes, checked; a streamed body's buffer
 *   http_origin.c       where requests go
 *   http_connect.c      a link's beginning: name look-up, connecting, TLS
 *   http_link.c         a link: writing, becoming idle, closing
 *   http_link_read.c    the answer out of the bytes that come
 *
 * A link is one connection to an origin. It belongs to one call from before it is connected until the call ends, then
 * waits idle for the next one or closes. A link outlives everybody that points to it: closing it takes it out of every
 * list at once, and its memory goes with its last uv handle. So code that runs call-backs looks at link->closing
 * afterwards and at nothing else. */
#ifndef NET_HTTP_CLIENT_PARTS_H
#define NET_HTTP_CLIENT_PARTS_H

#include "base/arena.h"
#include "base/buf.h"
#include "net/http_answer_head.h"
#include "net/http_client.h"
#include "net/http_head.h"
#include "net/loop_uv.h"
#include "net/resolve.h"
#include "net/tls.h"

#include <stdatomic.h>
#include <sys/queue.h>

struct http_origin {
    atomic_uint references;
    atomic_bool gone; /* destroyed by its owner: clients let go of it when idle */
    char *authority;  /* "host:port" as in the URL */
    char *host;       /* for look-ups, without brackets */
    char *base;       /* "" or "/base" */
    uint16_t port;
    struct tls_context *tls; /* NULL: http */
    int64_t connect_ms;
    int64_t idle_ms;
    uint32_t connections_max;
};

enum link_state {
    LINK_RESOLVING,  /* waits for its peer's addresses */
    LINK_CONNECTING, /* attempts are under way */
    LINK_HANDSHAKE,
    LINK_BUSY, /* connected, with a call */
    LINK_IDLE, /* connected, without one: in its peer's list */
};

enum link_reading {
    READING_HEAD,
    READING_BODY,   /* by length or in chunks */
    READING_TO_END, /* the body ends with the connection */
};

/* One try to connect; the first that succeeds becomes the link's socket. */
struct attempt {
    uv_tcp_t tcp;
    uv_connect_t req;
    struct link *link;
};

struct link {
    LIST_ENTRY(link) peer_link;
    TAILQ_ENTRY(link) idle_link;
    struct http_client *client;
    struct peer *peer;
    struct http_call *call; /* NULL while idle or closing */
    enum link_state state;
    bool closing;
    bool used;        /* has carried a call to its end */
    unsigned handles; /* open uv handles: the attempts */

    struct attempt *attempts[RESOLVE_ADDRESSES_MAX];
    struct resolved addresses; /* its own copy: other links change the peer's */
    unsigned address_next;     /* to be tried */
    unsigned attempts_open;
    int64_t attempt_due_ms; /* when the next address is tried beside those that hang */
    int64_t connect_due_ms;

    uv_stream_t *stream; /* of the attempt that won */
    struct tls_conn *tls;

    uv_write_t write;
    struct buf out; /* what uv writes now, copied: the caller's bytes are never uv's */
    size_t out_seen_bytes;
    bool writing;
    bool write_dead; /* nothing can be sent any more; an answer may still come */
    size_t head_at;  /* sent of the call's head and body */
    size_t body_at;

    struct buf in; /* bytes that came and were not used yet */
    struct answer_head head;
    struct http_body body;
    enum link_reading reading;
    bool uv_reads;
    bool eof;      /* the upstream sends no more */
    bool eof_rude; /* ... and TLS's close_notify was missing */

    int64_t idle_since_ms;
};

TAILQ_HEAD(call_list, http_call);
TAILQ_HEAD(idle_list, link);

/* An origin as one client sees it. */
struct peer {
    TAILQ_ENTRY(peer) link;
    struct http_client *client;
    struct http_origin *origin; /* a reference */
    uint32_t calls;             /* in any place */
    uint32_t active;            /* calls that hold a link */
    struct call_list waiting;   /* for active to sink below connections_max */
    LIST_HEAD(, link) links;
    struct idle_list idle;  /* last used first */
    struct resolve *lookup; /* under way, or NULL */
    struct resolved addresses;
    int64_t addresses_until_ms;
};

enum call_place { CALL_NOWHERE, CALL_FRESH, CALL_WAITING, CALL_ACTIVE };

/* What a call wants done in the next turn. */
enum call_errand {
    ERRAND_EXPIRED = 1,
    ERRAND_FAILED = 2, /* call->reason says why */
    ERRAND_RESUME = 4,
    ERRAND_FEED = 8,
    ERRAND_WRITABLE = 16,
};

struct http_call {
    TAILQ_ENTRY(http_call) all_link;
    TAILQ_ENTRY(http_call) place_link;  /* in client->fresh or peer->waiting */
    TAILQ_ENTRY(http_call) errand_link; /* in client->errands while errands != 0 */
    struct http_client *client;
    struct peer *peer;
    struct link *link; /* while CALL_ACTIVE */
    enum call_place place;
    unsigned errands;
    struct http_call_handler handler;
    void *ctx;

    struct arena arena; /* holds the head */
    struct slice head;  /* the request's, as it goes out */
    struct slice body;
    int64_t body_left; /* streamed: not yet written by the caller; -1: chunked */
    bool stream;
    bool is_head; /* the method HEAD */
    size_t head_bytes_max;

    struct buf out; /* a streamed body as it goes out, not yet sent from out_at on */
    size_t out_at;
    bool out_ended;
    bool out_refused; /* http_call_write() returned false, on_writable is due */

    bool sent; /* bytes may have left: sticky */
    bool ended;
    bool paused;
    const char *reason; /* of ERRAND_FAILED; static text */

    int64_t expires_ms;       /* 0: never */
    int64_t answer_within_ms; /* 0: none. Runs into expires_ms once it is sent */
    int64_t send_by_ms;       /* 0: never too late */
    int64_t
        send_by_mono_ms; /* the same by the clock that leases have; a suspended host's loop would be late */
    int64_t silence_ms;
    int64_t heard_ms; /* last byte in either direction */
};

enum { LINK_READ_BYTES = 64 * 1024, LINK_WRITE_BYTES = 64 * 1024, LINK_RECORD_BYTES = 16 * 1024 };

struct http_client {
    struct loop *loop;
    uv_loop_t *uv;
    uv_check_t turn;        /* active while a turn is due: runs right after the loop has polled */
    uv_idle_t hurry;        /* active as long: keeps the loop from waiting when a turn is due */
    uv_timer_t clock;       /* the nearest deadline, or something earlier */
    int64_t clock_armed_ms; /* INT64_MAX: stopped */
    int busy;               /* depth of our loop call-backs */
    bool closing;
    int handles_open; /* uv handles inside this struct */
    unsigned links;   /* not freed yet */
    struct call_list all;
    struct call_list fresh;
    struct call_list errands;
    TAILQ_HEAD(, peer) peers;
    struct call_list spare; /* ended calls, kept for their memory */
    size_t spare_count;
    char read_buffer[LINK_READ_BYTES];
    char plain_buffer[LINK_RECORD_BYTES]; /* what TLS decrypted, or is to encrypt */
};

static inline int64_t client_now_ms(const struct http_client *c)
{
    return (int64_t)uv_now(c->uv);
}

/* http_origin.c */
void origin_take(struct http_origin *o);
void origin_drop(struct http_origin *o);
bool origin_is_gone(const struct http_origin *o);

/* http_client.c */
void client_enter(struct http_client *c);
void client_leave(struct http_client *c);
void client_link_freed(struct http_client *c);
void client_clock_by(struct http_client *c, int64_t due_ms); /* look at the deadlines then, at the latest */
void call_errand(struct http_call *call, unsigned errand);
void call_heard(struct http_call *call); /* a byte moved, or the silence starts anew */
/* Tell the caller, free the call, and keep or close its link. */
void call_complete(struct http_call *call, bool keep_link);
void call_fail(struct http_call *call, const char *detail);
/* Nothing of it was sent on this connection: let it have another. */
void call_again(struct http_call *call);

/* http_client_call.c */
int call_describe(struct http_call *call, const struct http_origin *origin, const struct http_call_options *o,
                  hapax_error *err);
void call_sent(struct http_call *call); /* bytes may have left: sticky, and the time for the answer begins */
/* The caller owes it more of a streamed body, and all that there is was sent. */
bool call_starves(const struct http_call *call);
void call_out_taken(struct http_call *call, size_t n);

/* http_connect.c */
/* May end the call before it returns. false: no memory, nothing was done. */
bool link_open(struct peer *p, struct http_call *call);
void link_next_attempt(struct link *l); /* its time has come */
void link_shake_hands(struct link *l);  /* bytes for TLS's beginning came */

/* http_link.c */
void link_ready(struct link *l); /* connected: begin with the call */
void link_take_call(struct link *l, struct http_call *call);
void link_write(struct link *l); /* as much as the socket takes */
/* What TLS wants to send. false: the socket is broken. */
bool link_flush_tls(struct link *l);
bool link_request_is_out(const struct link *l);
void link_idle(struct link *l);
void link_close(struct link *l);
void link_attempt_close(struct attempt *a);
/* Bytes that left for the network since the last look. */
bool link_made_progress(struct link *l);

/* http_link_read.c */
bool link_read_on(struct link *l, bool on);
void link_run(struct link *l); /* go on with the bytes that are there, after a pause */

#endif
