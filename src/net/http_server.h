/* An HTTP/1.0 and 1.1 server on a loop: bytes in, events out; answers in, bytes out.
 *
 * It refuses by itself whatever two readers could understand differently (RFC 9112 sections 2.2, 3.2, 5, 6, 11.2):
 * a bare CR or LF, NUL or another control character in a head, a folded header, blanks before a colon, two
 * Content-Length lines (equal ones, too), Content-Length with Transfer-Encoding, a transfer coding other than
 * exactly "chunked", Transfer-Encoding in HTTP/1.0, a request line that is not "METHOD SP target SP HTTP/1.x", a
 * target with a '#' or a byte outside visible ASCII, a missing (in 1.1) or repeated Host, a Host that is no host, a
 * target in absolute form whose host is not the Host, more than LIMIT_CONNECTION_OPTIONS_MAX words in Connection. Such
 * a defect is reported through on_defect, and the connection is closed after the answer. One empty line before a
 * request line is forgiven.
 *
 * One exchange at a time per connection: with pipelining the next request is parsed when the answer
 * before it is complete. An exchange lives from on_request (or on_defect) to on_close, which always comes exactly
 * once and last; until then its request and its slices stay valid. Once the handler has ended its answer
 * (http_respond, http_respond_finish, http_respond_abort), nothing but on_close comes. All on the loop's thread; no
 * call-back runs inside http_server_*, http_exchange_* or http_respond_* calls, except where stated; what they make
 * due runs before the loop next waits. */
#ifndef NET_HTTP_SERVER_H
#define NET_HTTP_SERVER_H

#include "core/request.h"
#include "hapax/error.h"
#include "net/loop.h"

struct http_server;
struct http_exchange;
struct tls_context;

/* Why a request never reached on_request. The handler answers it (the status is its business). */
enum http_defect {
    HTTP_MALFORMED,           /* 400: see above */
    HTTP_HEAD_TOO_LARGE,      /* 431: bytes of the head or number of lines */
    HTTP_EXPECTATION_UNKNOWN, /* 417 */
    HTTP_UPGRADE,             /* 501: an Upgrade header with "Connection: upgrade", or CONNECT. An offer of
                               * "h2c" alone is ignored (RFC 9110 section 7.8): some clients always make it */
    HTTP_VERSION_UNSUPPORTED, /* 505 */
    HTTP_HEAD_TIMEOUT,        /* 408: the head did not arrive in time */
};

/* All of them are needed. */
struct http_handler {
    void (*on_request)(void *ctx, struct http_exchange *x); /* head complete; body events follow when read */
    void (*on_defect)(void *ctx, struct http_exchange *x, enum http_defect defect, const char *detail);
    /* The next piece of the body, borrowed for the call. Only while reading is on. */
    void (*on_body)(void *ctx, struct http_exchange *x, struct slice bytes);
    /* At once for a request without a body, once read. */
    void (*on_body_end)(void *ctx, struct http_exchange *x);
    /* A defect in the body (HAPAX_E_SYNTAX), or the client closed (HAPAX_E_CLOSED) or stalled (HAPAX_E_TIMEOUT) before
     * its end: on_body_end won't come. Only while reading is on. The handler may still answer; the connection closes
     * afterwards. */
    void (*on_body_error)(void *ctx, struct http_exchange *x, int code);
    /* Below half of write_high_bytes again after a write returned false. */
    void (*on_writable)(void *ctx, struct http_exchange *x);
    /* The client's connection broke before the answer was complete. Writes are ignored from here on; on_close
     * follows when the handler calls http_exchange_done(), and not before. A client that only shut down its sending half is not gone. */
    void (*on_gone)(void *ctx, struct http_exchange *x);
    /* The end of the exchange; after this call its memory is reused. */
    void (*on_close)(void *ctx, struct http_exchange *x);
};

struct http_server_options {
    const char *address; /* "127.0.0.1:8080", "[::1]:0", ":8080" (all addresses) */
    bool reuse_port;     /* several loops listen on one port */
    uint16_t port; /* in place of the address's, which may leave the choice to the kernel; 0: the address's */
    struct tls_context *tls; /* NULL: plain. Borrowed, a reference is taken. */
    /* Beyond it, accepting pauses until one ends; one that idles, and was used or never was for a second, is closed
     * for it. */
    uint32_t connections_max;
    uint32_t head_bytes_max; /* request line and headers */
    uint32_t headers_max;    /* header lines */
    int64_t head_ms;         /* from the first byte of a head to its end; also for a TLS handshake */
    int64_t idle_ms;         /* kept alive without a request */
    /* Longest silence of a client in the middle of a body that is being read; while an answer is being sent at the
     * same time, send_ms stands for both. */
    int64_t body_ms;
    int64_t send_ms;           /* longest time without any progress of an answer that is being sent */
    uint32_t write_high_bytes; /* http_respond_write() returns false above it */
    const struct http_handler *handler;
    void *ctx;
};

/* Listen and serve. Results: 0, HAPAX_E_ARGUMENT (an option, or an address that is not numeric), HAPAX_E_SYSTEM (the
 * address is taken, not there, or not allowed), HAPAX_E_MEMORY. net_global_init() has run (SIGPIPE is ignored). */
int http_server_open(struct http_server **out, struct loop *l, const struct http_server_options *o,
                     hapax_error *err);
/* The port in use (for address port 0). */
uint16_t http_server_port(const struct http_server *s);
/* Stop accepting (the port is free again) and close idle connections; running exchanges, and heads that have begun to
 * arrive, finish with "Connection: close". Watch http_server_connections() for the end. */
void http_server_drain(struct http_server *s);
/* Open now, lingering ones, too. Any thread. */
uint32_t http_server_connections(const struct http_server *s);
/* Close everything at once; on_gone, on_close as due; then closed(ctx), which may be NULL, on the loop. That is when
 * every exchange is done: a handler that never calls http_exchange_done() keeps it from coming. s is freed. */
void http_server_close(struct http_server *s, void (*closed)(void *ctx), void *ctx);

/* --- The exchange. --- */

/* body is empty: it comes by events. After a defect it holds what was understood, often nothing. */
const struct request *http_exchange_request(const struct http_exchange *x);
bool http_exchange_has_body(const struct http_exchange *x);
int64_t http_exchange_body_length(const struct http_exchange *x); /* -1: chunked; 0: none */
bool http_exchange_is_tls(const struct http_exchange *x);
struct slice http_exchange_peer(const struct http_exchange *x); /* "127.0.0.1", without a port */
/* clock_mono_us() when the head was complete. */
void http_exchange_set_user(struct http_exchange *x, void *user);
void *http_exchange_user(const struct http_exchange *x);

/* Turn delivery of the body on or off (off at first). Turning it on sends "100 Continue" where the client
 * expects it and has sent nothing yet. Off stops reading from the socket after
 * a bounded amount (back-pressure); up to there it goes on, to see whether the client is still there. */
void http_exchange_read(struct http_exchange *x, bool on);

/* A complete answer in one call. `head` is a block of "Name: value\r\n" lines, at most LIMIT_ANSWER_HEAD_BYTES_MAX,
 * copied; without the framing headers (Content-Length, Transfer-Encoding, Connection, Date), which the server writes.
 * `body` is copied. Status 204, 304 and answers to HEAD get no body (HEAD and 304 keep the length; a 304 with an empty
 * body says none). A status outside 200-999 is sent as 500. If the request's body was not read to its end, it is read
 * and discarded up to 64 KiB, else the connection closes after the answer; it closes, too, when the client still waits
 * for "100 Continue". */
void http_respond(struct http_exchange *x, int status, struct slice head, struct slice body);

/* The same, but the body is borrowed until released(arg) is called on the loop, exactly once (may be inside this call,
 * or after on_close). */
void http_respond_shared(struct http_exchange *x, int status, struct slice head, struct slice body,
                         void (*released)(void *arg), void *arg);

/* A streamed answer. length: bytes to come, -1 unknown (chunked, or until close for HTTP/1.0). Writing more or less
 * than announced breaks the connection off like http_respond_abort(). Small writes leave together, at the latest
 * before the loop next waits. */
void http_respond_start(struct http_exchange *x, int status, struct slice head, int64_t length);
/* Copied. false: wait for on_writable (the bytes were taken). An empty slice does nothing. */
bool http_respond_write(struct http_exchange *x, struct slice bytes);
void http_respond_finish(struct http_exchange *x);
/* Break the connection off, so that the client can't take the answer for complete. */
void http_respond_abort(struct http_exchange *x);
/* After on_gone, or inside it: the handler has no more use for x. */
void http_exchange_done(struct http_exchange *x);

/* TLS for listeners. Certificate chain and key are PEM files. TLS 1.2 and newer, HTTP/1.1 by ALPN. */
int tls_context_create(struct tls_context **out, const char *certificate_file, const char *key_file,
                       hapax_error *err);
void tls_context_drop(struct tls_context *t);

/* Connections accepted from now on use t (a reload of the certificate). Borrowed, a reference is taken. The server was
 * opened with TLS. */
void http_server_set_tls(struct http_server *s, struct tls_context *t);

/* The reason phrase of a status, "" when unknown. */
const char *http_reason(int status);

#endif
