/* An HTTP client on a loop, behind libcurl: one call is one request sent at most once.
 *
 * curl's own re-send of a request on a kept-alive connection that turns out dead is suppressed: a second attempt
 * to send ends the call as CALL_BROKEN, since nobody can tell whether the first was read. Nothing is decoded,
 * no redirect is followed, no cookie, proxy or .netrc is used, the target goes out as it stands. All on the loop's thread. Call-backs never run
 * inside http_client_* or http_call_* calls. */
#ifndef NET_HTTP_CLIENT_H
#define NET_HTTP_CLIENT_H

#include "core/outcome.h"
#include "core/request.h"
#include "hapax/error.h"
#include "net/loop.h"

struct http_client;
struct http_call;
struct http_origin;

struct http_origin_options {
    const char *url;            /* "http://host:port/base" or https; a base path is put before every target */
    const char *ca_file;        /* https: NULL uses the system's */
    int64_t connect_ms;
    int64_t idle_ms;            /* a kept connection older in silence than this is not used again */
    uint32_t connections_max;   /* to this origin, per loop; further calls wait inside the client */
};

struct http_call_handler {
    /* The final status line and headers (1xx are skipped); slices are borrowed for the call. Header lines in order. */
    void (*on_head)(void *ctx, int status, const struct header *headers, size_t n);
    /* A piece of the body; false pauses until http_call_resume(), and this piece counts as taken. */
    bool (*on_body)(void *ctx, struct slice bytes);
    /* A streamed request body may be fed again (http_call_write returned false before). */
    void (*on_writable)(void *ctx);
    /* Exactly once and last, unless the call was cancelled. complete: the whole answer was received. Else `failure`
     * says how it ended and `detail` why, in words for logs (no URLs with secrets). */
    void (*on_done)(void *ctx, bool complete, enum call_failure failure, const char *detail);
};

struct http_call_options {
    struct slice method;
    struct slice target;         /* raw path and query, begins with '/' */
    const struct header *headers;/* sent in this order; copied. Framing headers are the client's own. */
    size_t header_count;
    struct slice body;           /* whole body, borrowed until on_done, when body_length is its size */
    int64_t body_length;         /* >= 0 with stream false: body.len. With stream: length, -1: chunked */
    bool stream;                 /* body comes by http_call_write() */
    int64_t timeout_ms;          /* from start to the end of the answer; 0: none */
    int64_t silence_ms;          /* longest time without a byte in either direction; 0: none */
    uint32_t head_bytes_max;     /* of the answer's head; beyond: CALL_BROKEN */
};

int http_client_create(struct http_client **out, struct loop *l, hapax_error *err);
void http_client_destroy(struct http_client *c); /* no call may run */

int http_origin_create(struct http_origin **out, const struct http_origin_options *o, hapax_error *err);
void http_origin_destroy(struct http_origin *o);
struct slice http_origin_authority(const struct http_origin *o); /* "host:port" as in the URL */

/* Start a call. When it returns a code (HAPAX_E_MEMORY, HAPAX_E_ARGUMENT), no call-back ever runs. */
int http_call_start(struct http_call **out, struct http_client *c, struct http_origin *origin,
                    const struct http_call_options *o, const struct http_call_handler *handler, void *ctx,
                    hapax_error *err);
/* Feed a streamed body; copied. false: buffer is above its mark, wait for on_writable. */
bool http_call_write(struct http_call *call, struct slice bytes);
void http_call_write_end(struct http_call *call);
void http_call_resume(struct http_call *call);
/* Break it off; no call-back runs any more; the call is freed. */
void http_call_cancel(struct http_call *call);
/* Did any byte of the request possibly leave? */
bool http_call_was_sent(const struct http_call *call);

#endif
