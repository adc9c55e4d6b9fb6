/* A wire: one curl handle. What never changes is set once, what belongs to the origin once too (a wire stays
 * with its origin), so that a request costs four options.
 *
 * The promise "sent at most once" is kept here: on_request() lets curl begin to send a single time. */
#include "net/http_client_parts.h"

#include <openssl/ssl.h>
#include <pthread.h>
#include <stdlib.h>

/* curl is about to send. It comes here again when a kept connection died under the request. */
static int on_request(void *user, char *peer_ip, char *own_ip, int peer_port, int own_port)
{
    (void)peer_ip;
    (void)own_ip;
    (void)peer_port;
    struct wire *w = user;
    struct http_call *call = w->call;
    if (call->cancelled) {
        return CURL_PREREQFUNC_ABORT;
    }
    if (call->sent) {
        call->reason = "the connection broke before an answer; the request may have been read";
        return CURL_PREREQFUNC_ABORT;
    }
    call->sent = true;
    w->own_port = own_port;
    call_heard(call);
    return CURL_PREREQFUNC_OK;
}

/* curl lets a TLS connection end without TLS's own goodbye (close_notify). Anybody on the way can do that, so a body
 * that ends with its connection is whole only if the goodbye came (RFC 9112 section 9.8). */
static pthread_once_t wire_slot_once = PTHREAD_ONCE_INIT;
static int wire_slot = -1; /* of our pointer in an SSL object; curl uses the standard one */

static void reserve_wire_slot(void)
{
    wire_slot = SSL_get_ex_new_index(0, NULL, NULL, NULL, NULL);
}

static void on_tls_event(const SSL *ssl, int where, int alert)
{
    struct wire *w = SSL_get_ex_data(ssl, wire_slot);
    if (where == SSL_CB_READ_ALERT && (alert & 0xff) == SSL_AD_CLOSE_NOTIFY && w != NULL) {
        w->goodbye_due = false;
    }
}

static CURLcode on_tls_context(CURL *easy, void *context, void *user)
{
    (void)easy;
    (void)user;
    pthread_once(&wire_slot_once, reserve_wire_slot);
    SSL_CTX_set_info_callback(context, on_tls_event);
    return CURLE_OK;
}

/* The head is complete. A connection with such a body is never kept, so the wire outlives what points to it here. */
static void expect_goodbye(struct wire *w)
{
    const struct answer_head *h = &w->head;
    struct curl_tlssessioninfo *tls = NULL;
    bool has_body = w->mode != WIRE_HEAD && h->status != 204 && h->status != 304;
    if (has_body && h->content_length < 0 && !h->chunked &&
        curl_easy_getinfo(w->easy, CURLINFO_TLS_SSL_PTR, &tls) == CURLE_OK && tls != NULL &&
        tls->internals != NULL) {
        /* Without memory for it, the goodbye can't be seen: the answer counts as cut short. */
        w->goodbye_due = true;
        (void)SSL_set_ex_data((SSL *)tls->internals, wire_slot, w);
    }
}

/* Any value but the length of what was given makes curl give up. */
static size_t refuse(size_t len)
{
    return len == 0 ? 1 : 0;
}

static size_t on_head_line(char *ptr, size_t size, size_t n, void *user)
{
    struct wire *w = user;
    struct http_call *call = w->call;
    size_t len = size * n;
    if (call->cancelled) {
        return refuse(len);
    }
    call_heard(call);
    if (w->head.complete) {
        return len; /* a trailer */
    }
    enum answer_head_step step = answer_head_line(&w->head, slice_of(ptr, len));
    if (step == ANSWER_HEAD_BAD) {
        call->reason = w->head.defect;
        return refuse(len);
    }
    if (step == ANSWER_HEAD_COMPLETE) {
        expect_goodbye(w);
        call->handler.on_head(call->ctx, w->head.status, w->head.headers, w->head.count);
    }
    return call->cancelled ? refuse(len) : len;
}

static size_t on_body_bytes(char *ptr, size_t size, size_t n, void *user)
{
    struct wire *w = user;
    struct http_call *call = w->call;
    size_t len = size * n;
    if (call->cancelled) {
        return refuse(len);
    }
    if (call->paused) {
        return CURL_WRITEFUNC_PAUSE; /* curl keeps it and gives it again */
    }
    call_heard(call);
    if (len > 0 && !call->handler.on_body(call->ctx, slice_of(ptr, len)) && !call->cancelled) {
        call->paused = true;
        curl_easy_pause(w->easy, CURLPAUSE_RECV | (call->send_paused ? CURLPAUSE_SEND : 0));
    }
    return call->cancelled ? refuse(len) : len;
}

static size_t on_read(char *to, size_t size, size_t n, void *user)
{
    struct http_call *call = ((struct wire *)user)->call;
    if (call->cancelled) {
        return CURL_READFUNC_ABORT;
    }
    call_heard(call);
    return call_read_body(call, to, size * n);
}

#define SET(w, option, value)                                                                                \
    do {                                                                                                     \
        if (curl_easy_setopt((w)->easy, option, value) != CURLE_OK) {                                        \
            return false;                                                                                    \
        }                                                                                                    \
    } while (0)

static bool set_callbacks(struct wire *w)
{
    SET(w, CURLOPT_PRIVATE, w);
    SET(w, CURLOPT_ERRORBUFFER, w->error);
    SET(w, CURLOPT_PREREQFUNCTION, on_request);
    SET(w, CURLOPT_PREREQDATA, w);
    SET(w, CURLOPT_HEADERFUNCTION, on_head_line);
    SET(w, CURLOPT_HEADERDATA, w);
    SET(w, CURLOPT_WRITEFUNCTION, on_body_bytes);
    SET(w, CURLOPT_WRITEDATA, w);
    SET(w, CURLOPT_READFUNCTION, on_read);
    SET(w, CURLOPT_READDATA, w);
    SET(w, CURLOPT_SSL_CTX_FUNCTION, on_tls_context);
    SET(w, CURLOPT_OPENSOCKETFUNCTION, watch_open_socket);
    SET(w, CURLOPT_OPENSOCKETDATA, w->client);
    SET(w, CURLOPT_CLOSESOCKETFUNCTION, watch_close_socket);
    SET(w, CURLOPT_CLOSESOCKETDATA, w->client);
    return true;
}

static bool set_constants(struct wire *w)
{
    SET(w, CURLOPT_NOSIGNAL, 1L);   /* without it, four sigaction calls a turn */
    SET(w, CURLOPT_QUICK_EXIT, 1L); /* giving up never waits for a resolver thread */
    SET(w, CURLOPT_PROTOCOLS_STR, "http,https");
    SET(w, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    SET(w, CURLOPT_HTTP09_ALLOWED, 0L);
    SET(w, CURLOPT_PATH_AS_IS, 1L);
    SET(w, CURLOPT_FOLLOWLOCATION, 0L);
    SET(w, CURLOPT_PROXY, "");
    SET(w, CURLOPT_NOPROXY, "*");
    SET(w, CURLOPT_HTTP_CONTENT_DECODING, 0L);
    SET(w, CURLOPT_HTTP_TRANSFER_DECODING, 1L);
    SET(w, CURLOPT_TCP_NODELAY, 1L);
    SET(w, CURLOPT_UPLOAD_BUFFERSIZE, 64L * 1024L);
    SET(w, CURLOPT_SSL_VERIFYPEER, 1L);
    SET(w, CURLOPT_SSL_VERIFYHOST, 2L);
    SET(w, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    return true;
}

static bool set_origin(struct wire *w, const struct http_origin *origin)
{
    SET(w, CURLOPT_CURLU, origin->url);
    SET(w, CURLOPT_CONNECTTIMEOUT_MS, (long)origin->connect_ms);
    if (origin->idle_ms < 1000) {
        SET(w, CURLOPT_FORBID_REUSE, 1L);
    } else {
        /* curl counts whole seconds and allows one more than it is told. */
        SET(w, CURLOPT_MAXAGE_CONN, (long)(origin->idle_ms / 1000 - 1));
    }
    if (origin->ca_file != NULL) {
        SET(w, CURLOPT_CAINFO, origin->ca_file);
        SET(w, CURLOPT_CAPATH, (char *)NULL); /* else the system's CAs would count, too */
    }
    return true;
}

struct wire *wire_create(struct http_client *c, const struct http_origin *origin)
{
    struct wire *w = calloc(1, sizeof *w);
    if (w == NULL) {
        return NULL;
    }
    w->client = c;
    w->parked = CURL_SOCKET_BAD;
    answer_head_init(&w->head);
    w->easy = curl_easy_init();
    if (w->easy == NULL || !set_callbacks(w) || !set_constants(w) || !set_origin(w, origin)) {
        wire_free(w);
        return NULL;
    }
    return w;
}

void wire_free(struct wire *w)
{
    if (w->easy != NULL) {
        curl_easy_cleanup(w->easy);
    }
    answer_head_free(&w->head);
    free(w);
}

static bool set_mode(struct wire *w, enum wire_mode mode)
{
    if (w->mode == mode) {
        return true;
    }
    w->mode = WIRE_FRESH;
    SET(w, CURLOPT_HTTPGET, 1L); /* undoes NOBODY and UPLOAD */
    if (mode == WIRE_HEAD) {
        SET(w, CURLOPT_NOBODY, 1L);
    } else if (mode == WIRE_POST) {
        SET(w, CURLOPT_POST, 1L);
    } else if (mode == WIRE_UPLOAD) {
        SET(w, CURLOPT_UPLOAD, 1L);
    }
    w->mode = mode;
    return true;
}

bool wire_load(struct wire *w, struct http_call *call)
{
    if (!set_mode(w, call->mode)) {
        return false;
    }
    if (strcmp(w->method, call->method) != 0) {
        w->method[0] = '\0';
        SET(w, CURLOPT_CUSTOMREQUEST, call->method);
        memcpy(w->method, call->method, sizeof w->method);
    }
    SET(w, CURLOPT_REQUEST_TARGET, call->target);
    SET(w, CURLOPT_HTTPHEADER, call->headers);
    if (call->mode == WIRE_POST) {
        SET(w, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)call->body.len);
        SET(w, CURLOPT_POSTFIELDS, call->body.len > 0 ? call->body.ptr : "");
    } else if (call->mode == WIRE_UPLOAD) {
        SET(w, CURLOPT_INFILESIZE_LARGE, (curl_off_t)call->body_length);
    }
    answer_head_start(&w->head, call->head_bytes_max);
    w->goodbye_due = false;
    w->call = call;
    call->wire = w;
    return true;
}
