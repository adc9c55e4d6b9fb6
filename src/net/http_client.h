/* An HTTP/1.1 client on a loop: one call is one request sent at most once.
 *
 * A request of which a byte may have left is never sent again: a connection that breaks under it ends the call as
 * CALL_BROKEN, since nobody can tell whether it was read. A kept connection that the upstream closed, or wrote to,
 * while nothing was asked of it is never used again; that is no error, and one that turns out dead before it took a
 * byte is replaced by another.
 * Nothing is decoded but the transfer coding, no redirect is followed, no cookie, proxy or .netrc is used, the
 * target goes out as it stands. HTTP/1.1 only; TLS 1.2 or later with the certificate and its host name verified.
 *
 * All on the loop's thread, except http_origin_*. Call-backs never run inside http_client_* or http_call_*
 * calls. Every http_call_* and http_client_destroy() may be called inside any call-back. */
#ifndef NET_HTTP_CLIENT_H
#define NET_HTTP_CLIENT_H

#include "core/outcome.h"
#include "core/request.h"
#include "hapax/error.h"
#include "net/loop.h"

struct http_client;
struct http_call;
struct http_origin;

#define HTTP_CALL_METHOD_BYTES_MAX 31
#define HTTP_CALL_HEAD_BYTES_MAX   (1U << 20)   /* of a request's target and headers */
#define HTTP_CALL_WRITE_HIGH_BYTES (256U << 10) /* http_call_write() returns false at and above it */
#define HTTP_CALL_WRITE_LOW_BYTES  (64U << 10)  /* on_writable comes at or below it */
#define HTTP_CALL_WRITE_BYTES_MAX                                                                            \
    (16U << 20) /* unsent bytes of a streamed body; beyond, the call ends CALL_BROKEN */

struct http_origin_options {
    const char *url;     /* "http://host:port/base" or https; a base path is put before every target */
    const char *ca_file; /* https: only these CAs count, read once; NULL uses the system's */
    int64_t connect_ms;  /* name look-up, connect and TLS; 0: 300 s. The call's time-out bounds it, too */
    /* A kept connection older in silence than this is closed. Under one second, none is kept at all. */
    int64_t idle_ms;
    uint32_t
        connections_max; /* to this origin, per loop, at least 1; further calls wait inside the client in order */
};

struct http_call_handler {
    /* The final status line and headers (1xx are skipped, trailers dropped), once; header lines in order, values
     * trimmed, a folded line joined by one space. `headers` and its slices are borrowed until on_done has returned
     * or the call is cancelled. */
    void (*on_head)(void *ctx, int status, const struct header *headers, size_t n);
    /* A piece of the body, borrowed for the call-back; false pauses until http_call_resume(), and this piece counts as taken.
     * A paused call ends only by failure or cancelling: a complete on_done waits for the resume. */
    bool (*on_body)(void *ctx, struct slice bytes);
    /* A streamed request body may be fed again (http_call_write returned false before). NULL: never told. */
    void (*on_writable)(void *ctx);
    /* Exactly once and last, unless the call was cancelled; the call is freed when it returns. complete: the whole
     * answer was received. Else `failure` says how it ended and `detail` why, in words for logs: it may name the
     * upstream's host, never a target, header or body. */
    void (*on_done)(void *ctx, bool complete, enum call_failure failure, const char *detail);
};

struct http_call_options {
    struct slice
        method; /* a token but CONNECT, at most HTTP_CALL_METHOD_BYTES_MAX bytes. HEAD takes no body */
    struct slice target; /* raw path and query, begins with '/'; no blanks or control characters */
    /* Sent in this order; copied. A Host line wins over the origin's. Nothing is added but Host and the framing.
     * Left out, since they are this connection's own business: Content-Length, Transfer-Encoding, Expect,
     * Connection, Keep-Alive, Proxy-Connection, TE, Upgrade. */
    const struct header *headers;
    size_t header_count;
    struct slice body;   /* stream false: the whole body, borrowed until on_done or http_call_cancel() */
    int64_t body_length; /* stream true: its length, -1: chunked. Not read otherwise */
    bool stream;         /* body comes by http_call_write() */
    /* Not begun to be sent within this time, it never is: CALL_NOT_SENT. For who loses the right to send it. 0: none */
    int64_t send_within_ms;
    int64_t timeout_ms; /* from start to the end of the answer, waiting for a connection included; 0: none */
    /* From the moment a byte may have left to the end of the answer; 0: none. What waited before does not count. */
    int64_t answer_within_ms;
    /* Longest time without a byte in either direction once the request is on its way; 0: none. It stands
     * still while the caller has paused the call or owes it more of a streamed body. With a slow upload it may be
     * noticed up to one silence_ms late, never early. */
    int64_t silence_ms;
    uint32_t head_bytes_max; /* of the answer's head, 1xx included; beyond: CALL_BROKEN */
};

int http_client_create(struct http_client **out, struct loop *l, hapax_error *err);
/* No call may run. Closes all kept connections; the memory goes when the loop has turned or is destroyed. */
void http_client_destroy(struct http_client *c);

/* An origin may be shared by the clients of several loops; create and destroy from any thread. HAPAX_E_ARGUMENT: not an
 * absolute http(s) URL, one with a user, query or fragment, or a ca_file that can't be read; HAPAX_E_MEMORY. */
int http_origin_create(struct http_origin **out, const struct http_origin_options *o, hapax_error *err);
/* Running calls keep what they need of it. */
void http_origin_destroy(struct http_origin *o);
struct slice http_origin_authority(const struct http_origin *o); /* "host:port" as in the URL */

/* Start a call. When it returns a code (HAPAX_E_MEMORY, HAPAX_E_ARGUMENT, HAPAX_E_LIMIT), no call-back ever runs.
 * HAPAX_E_ARGUMENT: a method, target, header name or value that can't stand in a request (CR, LF, NUL ...),
 * two Host lines, a body with HEAD. HAPAX_E_LIMIT: more than HTTP_CALL_HEAD_BYTES_MAX. */
int http_call_start(struct http_call **out, struct http_client *c, struct http_origin *origin,
                    const struct http_call_options *o, const struct http_call_handler *handler, void *ctx,
                    hapax_error *err);
/* Feed a streamed body; copied. false: buffer is at or above its mark, wait for on_writable. The bytes are taken
 * in any case. More or fewer bytes than announced, or no memory, end the call: CALL_NOT_SENT while nothing has left. */
bool http_call_write(struct http_call *call, struct slice bytes);
void http_call_write_end(struct http_call *call);
void http_call_resume(struct http_call *call);
/* After its on_head: from now on only silence ends it (0: nothing does), however long it takes: what was a call became
 * a stream. */
void http_call_unlimit(struct http_call *call, int64_t silence_ms);
/* Break it off; no call-back runs any more; the call is freed. Nothing happens when called inside its on_done. */
void http_call_cancel(struct http_call *call);
/* Did any byte of the request possibly leave? Valid until on_done has returned. */
bool http_call_was_sent(const struct http_call *call);

#endif
