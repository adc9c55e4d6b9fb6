/* Inside the HTTP server: what its files share. Nobody else includes this.
 *
 *   http_server.c  listening, accepting, time, drain and close
 *   http_conn.c    one connection: its states, its bytes, the calls to the handler
 *   http_close.c   how a connection ends
 *   http_exchange.c  an exchange's memory and what the handler may ask of it
 *   http_answer.c  answers: framing, http_respond_*
 *   http_write.c   bytes to the socket
 *   http_head.c, http_body.c, tls.c   pure parts
 *
 * Invariants
 * - The handler is called from conn_run() alone, and conn_run() never nests for one connection. Whatever else notices
 *   that something is due (http_respond_*, time) sets a flag and calls conn_schedule().
 * - A scheduled connection is run before the loop next waits: uv_prepare and uv_check run the list.
 * - A connection is freed when its handle is closed, its exchange is over and it is not scheduled. */
#ifndef NET_HTTP_SERVER_IMPL_H
#define NET_HTTP_SERVER_IMPL_H

#include "base/buf.h"
#include "base/limits.h"
#include "net/http_head.h"
#include "net/http_server.h"
#include "net/loop_uv.h"
#include "net/tls.h"

#include <stdatomic.h>

enum {
    READ_BYTES = 64 * 1024, /* the buffer all connections of a server read into */
    TLS_RECORD_BYTES = 16 * 1024,
    UNREAD_BYTES_MAX = 16 * 1024,   /* kept for a connection whose exchange does not read */
    CORK_BYTES_MAX = 16 * 1024,     /* small writes of one turn are put together up to here */
    DISCARD_BYTES_MAX = 64 * 1024,  /* of a body nobody read */
    LINGER_BYTES_MAX = 1024 * 1024, /* read and dropped after the last answer */
    LINGER_MS = 2000,
    TICK_MS_MAX = 250,
    REQUESTS_PER_RUN = 32,   /* then the other connections have their turn */
    EXCHANGES_KEPT_MAX = 64, /* unused ones kept for the next request */
    EXCHANGE_HEAD_KEPT_MAX = 8 * 1024,
    DATE_BYTES = 37, /* "Date: Tue, 15 Nov 1994 08:12:31 GMT\r\n" */
};

enum conn_state {
    CONN_HANDSHAKE,
    CONN_HEAD,     /* waiting for, or in the middle of, a head */
    CONN_EXCHANGE, /* c->x is there */
    CONN_DISCARD,  /* the answer is out, the rest of the request is read and dropped */
    CONN_LINGER,   /* our side is shut down; read until the client closes, so that no RST eats the answer */
};

/* What a connection waits for, each with its own constant time-out: so a list in order of entry is a list in order of
 * deadline. Every connection that is not closing is in exactly one. */
enum wait { WAIT_NONE, WAIT_IDLE, WAIT_HEAD, WAIT_BODY, WAIT_SEND, WAIT_LINGER, WAIT_COUNT };

struct conn {
    uv_tcp_t tcp;
    struct http_server *server;
    struct conn *prev, *next; /* in the list of its wait */
    struct conn *pending_next;
    struct http_exchange *x; /* NULL between exchanges */
    struct tls_conn *tls;    /* NULL: plain */
    int64_t deadline_ms;
    struct buf in;           /* bytes that came and are not used up; no memory while there are none */
    struct slice view;       /* the same while the connection runs: in `in` or in the server's read buffer */
    struct buf out;          /* small writes of this turn; no memory while there are none */
    size_t queued_bytes;     /* given to uv, not yet written */
    size_t queue_seen_bytes; /* uv's own count when it was last looked at, for progress */
    struct http_head_scan scan;
    struct http_body body;
    uint32_t budget_bytes; /* left to discard or to linger over */
    uint8_t state;         /* enum conn_state */
    uint8_t wait;          /* enum wait */
    uint8_t touched;       /* bits 1 << wait: that kind of deadline starts anew */
    char peer_text[46];    /* INET6_ADDRSTRLEN */
    bool running, pending;
    bool view_shared;   /* the view lies in the server's read buffer */
    bool reading;       /* uv reads */
    bool net_eof;       /* the client shut its sending half down */
    bool eof;           /* the same, and nothing is left to decrypt */
    bool must_close;    /* after this exchange */
    bool used;          /* an exchange has ended on it */
    bool blank_skipped; /* the one empty line allowed before a request line */
    bool head_late;
    bool closing, closed; /* uv_close() was called; its call-back ran */
};

struct http_exchange {
    struct conn *conn;
    struct http_exchange *next_free;
    void *user;
    struct http_head head;
    struct buf bytes; /* the head's; the request's slices point here */
    struct header *headers;
    size_t header_cap;
    int64_t answer_left; /* bytes of a streamed answer still to come; -1: unknown */
    int body_fault;      /* a code to report by on_body_error */
    bool defect;
    bool read_on;
    bool body_told;    /* on_body_end or on_body_error ran */
    bool continue_due; /* the client waits for "100 Continue" */
    bool answering, finished;
    bool answer_empty; /* HEAD, 204, 304: no body goes out */
    bool answer_chunked;
    bool blocked; /* a write returned false */
    bool gone_told, done;
};

struct http_server {
    struct loop *loop;
    struct http_server_options options; /* without address */
    struct http_handler handler;
    uv_tcp_t listener;
    uv_timer_t tick;
    uv_prepare_t prepare;
    uv_check_t check;
    uv_idle_t idle;        /* active while something is scheduled: keeps the loop from waiting */
    unsigned handles_open; /* of the five above */
    uint16_t port;
    bool listening, ticking, draining, closing;
    bool held;                     /* a connection waits in the listener because there is no room */
    _Atomic(uint32_t) connections; /* changed here only, read by any thread */
    struct conn *first[WAIT_COUNT], *last[WAIT_COUNT];
    int64_t wait_ms[WAIT_COUNT];
    int64_t tick_ms;
    struct conn *pending_first, *pending_last;
    struct http_exchange *exchanges_free;
    unsigned exchanges_kept;
    int64_t date_second;
    char date[DATE_BYTES + 1];
    void (*closed)(void *ctx);
    void *closed_ctx;
    char read_buffer[READ_BYTES];
};

/* http_server.c */
void server_relink(struct conn *c,
                   enum wait wait); /* moves it to the end of that list, with a new deadline */
void server_unlink(struct conn *c);
void server_conn_freed(struct http_server *s); /* one less */
/* Somebody waits for a place: may this connection, which is idle, be closed for it? */
bool server_may_displace(const struct conn *c);

/* http_conn.c */
void conn_start(struct conn *c); /* accepted */
void conn_run(struct conn *c);
void conn_expired(struct conn *c); /* its deadline passed */
size_t conn_unread(const struct conn *c);

/* http_close.c */
void conn_schedule(struct conn *c);
void conn_maybe_free(struct conn *c);
void conn_drop(struct conn *c, bool reset); /* at once; c stays valid until conn_run() or uv frees it */
/* Close after the last answer; there is no exchange. quiet: nothing more is to be expected from the client. */
void conn_finish(struct conn *c, bool quiet);
void conn_expired(struct conn *c); /* its deadline passed */
size_t conn_unread(const struct conn *c);

/* http_exchange.c */
struct http_exchange *exchange_new(struct conn *c);
void exchange_recycle(struct http_exchange *x);
void exchange_free(struct http_exchange *x);

/* http_write.c: none calls the handler; a broken connection is dropped and scheduled. */
struct write_owner {
    void (*released)(void *arg);
    void *arg;
};
/* Send buffers now; what the socket does not take is copied and queued. With an owner the last buffer is not copied
 * but borrowed until released. */
void conn_send(struct conn *c, uv_buf_t *bufs, unsigned n, struct write_owner owner);
void conn_flush(struct conn *c);    /* c->out */
void conn_send_tls(struct conn *c); /* what TLS wants to send by itself */

#endif
