/* The request of a call: checked, and its head written into the call's arena as it goes out. A streamed body is kept
 * as it goes out, too, chunk framing included, until the link has taken it. */
#include "base/assert.h"
#include "base/clock.h"
#include "base/error.h"
#include "net/http_client_parts.h"

#include <stdio.h>

enum { CHUNK_FRAMING_BYTES_MAX = 32 };

static bool value_is_sendable(struct slice value)
{
    return value.len == 0 ||
           (memchr(value.ptr, '\r', value.len) == NULL && memchr(value.ptr, '\n', value.len) == NULL &&
            memchr(value.ptr, '\0', value.len) == NULL);
}

/* Lines that speak of the connection or the framing, which are the client's. */
static bool is_own(struct slice name)
{
    static const struct slice own[] = {
        {"content-length", 14}, {"transfer-encoding", 17}, {"expect", 6}, {"connection", 10},
        {"keep-alive", 10},     {"proxy-connection", 16},  {"te", 2},     {"upgrade", 7},
    };
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        if (slice_equal_nocase(name, own[i])) {
            return true;
        }
    }
    return false;
}

static int check_method(struct http_call *call, struct slice method, hapax_error *err)
{
    if (method.len > HTTP_CALL_METHOD_BYTES_MAX || !slice_is_token(method) ||
        slice_equal(method, SLICE_LITERAL("CONNECT"))) {
        return error_set(err, HAPAX_E_ARGUMENT, 0, "the method can't be sent");
    }
    call->is_head = slice_equal(method, SLICE_LITERAL("HEAD"));
    return 0;
}

static int check_target(struct slice target, hapax_error *err)
{
    bool good = target.len > 0 && target.ptr[0] == '/';
    for (size_t i = 0; i < target.len && good; i++) {
        unsigned char c = (unsigned char)target.ptr[i];
        good = c > ' ' && c != 0x7f;
    }
    return good ? 0
                : error_set(err, HAPAX_E_ARGUMENT, 0,
                            "the target must begin with '/' and hold no blanks or control characters");
}

static int check_body(struct http_call *call, const struct http_call_options *o, hapax_error *err)
{
    int64_t length = o->stream ? o->body_length : (int64_t)o->body.len;
    if (length < -1 || (o->body.len > 0 && o->body.ptr == NULL) || o->timeout_ms < 0 || o->silence_ms < 0 ||
        o->send_within_ms < 0 || o->answer_within_ms < 0) {
        return error_set(err, HAPAX_E_ARGUMENT, 0, "a length or time of the call is out of range");
    }
    if (call->is_head && length != 0) {
        return error_set(err, HAPAX_E_ARGUMENT, 0, "a HEAD request can't carry a body");
    }
    call->stream = o->stream && length != 0;
    call->body_left = length;
    call->body = o->stream ? SLICE_NONE : o->body;
    return 0;
}

/* What the head takes at most; headers are checked on the way. */
static int measure_head(size_t *bytes, bool *has_host, const struct http_origin *origin,
                        const struct http_call_options *o, hapax_error *err)
{
    /* Names, blanks and line ends of what is added: method, version, Host, framing. */
    size_t sum = HTTP_CALL_METHOD_BYTES_MAX + strlen(origin->authority) + strlen(origin->base) + 128;
    if (o->target.len > HTTP_CALL_HEAD_BYTES_MAX) {
        return error_code(err, HAPAX_E_LIMIT);
    }
    sum += o->target.len;
    *has_host = false;
    for (size_t i = 0; i < o->header_count; i++) {
        const struct header *h = &o->headers[i];
        if (!slice_is_token(h->name) || !value_is_sendable(h->value)) {
            return error_set(err, HAPAX_E_ARGUMENT, 0, "a header of the request can't be sent");
        }
        if (slice_equal_nocase(h->name, SLICE_LITERAL("host"))) {
            if (*has_host || slice_trim(h->value).len == 0) {
                return error_set(err, HAPAX_E_ARGUMENT, 0, "a request has one Host that is not empty");
            }
            *has_host = true;
        }
        size_t line = h->name.len + h->value.len + 4;
        if (line > HTTP_CALL_HEAD_BYTES_MAX || sum > HTTP_CALL_HEAD_BYTES_MAX) {
            return error_code(err, HAPAX_E_LIMIT);
        }
        sum += line;
    }
    *bytes = sum;
    return 0;
}

static char *put(char *at, struct slice s)
{
    if (s.len > 0) {
        memcpy(at, s.ptr, s.len);
    }
    return at + s.len;
}

static char *put_line(char *at, struct slice name, struct slice value)
{
    at = put(at, name);
    *at++ = ':';
    if (value.len > 0) {
        *at++ = ' ';
        at = put(at, value);
    }
    return put(at, SLICE_LITERAL("\r\n"));
}

static char *put_framing(char *at, const struct http_call *call, struct slice method)
{
    char digits[24];
    /* RFC 9110 section 8.6: methods for which a body means something announce an empty one. */
    bool announces = slice_equal(method, SLICE_LITERAL("POST")) ||
                     slice_equal(method, SLICE_LITERAL("PUT")) || slice_equal(method, SLICE_LITERAL("PATCH"));
    if (call->body_left < 0) {
        return put(at, SLICE_LITERAL("Transfer-Encoding: chunked\r\n"));
    }
    if (call->body_left == 0 && !announces) {
        return at;
    }
    int n = snprintf(digits, sizeof digits, "%lld", (long long)call->body_left);
    return put_line(at, SLICE_LITERAL("Content-Length"), slice_of(digits, (size_t)n));
}

static int write_head(struct http_call *call, const struct http_origin *origin,
                      const struct http_call_options *o, hapax_error *err)
{
    size_t room = 0;
    bool has_host = false;
    int rc = measure_head(&room, &has_host, origin, o, err);
    if (rc != 0) {
        return rc;
    }
    char *head = arena_alloc(&call->arena, room);
    if (head == NULL) {
        return error_code(err, arena_error(&call->arena));
    }
    char *at = put(head, o->method);
    *at++ = ' ';
    at = put(at, slice_text(origin->base));
    at = put(at, o->target);
    at = put(at, SLICE_LITERAL(" HTTP/1.1\r\n"));
    if (!has_host) {
        at = put_line(at, SLICE_LITERAL("Host"), slice_text(origin->authority));
    }
    for (size_t i = 0; i < o->header_count; i++) {
        if (!is_own(o->headers[i].name)) {
            at = put_line(at, o->headers[i].name, slice_trim(o->headers[i].value));
        }
    }
    at = put_framing(at, call, o->method);
    at = put(at, SLICE_LITERAL("\r\n"));
    call->head = slice_of(head, (size_t)(at - head));
    HAPAX_ASSERT(call->head.len <= room);
    return 0;
}

int call_describe(struct http_call *call, const struct http_origin *origin, const struct http_call_options *o,
                  hapax_error *err)
{
    int rc = check_method(call, o->method, err);
    rc = rc != 0 ? rc : check_target(o->target, err);
    rc = rc != 0 ? rc : check_body(call, o, err);
    rc = rc != 0 ? rc : write_head(call, origin, o, err);
    call->head_bytes_max = o->head_bytes_max;
    call->silence_ms = o->silence_ms;
    call->answer_within_ms = o->answer_within_ms;
    call->send_by_ms = o->send_within_ms > 0 ? client_now_ms(call->client) + o->send_within_ms : 0;
    call->send_by_mono_ms = clock_mono_ms() + o->send_within_ms;
    call->expires_ms = o->timeout_ms > 0 ? client_now_ms(call->client) + o->timeout_ms : 0;
    return rc;
}

void call_sent(struct http_call *call)
{
    int64_t due = client_now_ms(call->client) + call->answer_within_ms;
    bool limits = !call->sent && call->answer_within_ms > 0;
    call->sent = true;
    if (limits && (call->expires_ms == 0 || due < call->expires_ms)) {
        call->expires_ms = due;
        client_clock_by(call->client, due);
    }
    call_heard(call);
}

/* --- The streamed body. --- */

bool call_starves(const struct http_call *call)
{
    return call->stream && !call->out_ended && call->out_at == call->out.len;
}

void call_out_taken(struct http_call *call, size_t n)
{
    call->out_at += n;
    if (call->out_at == call->out.len) {
        buf_clear(&call->out);
        call->out_at = 0;
    }
    if (call->out_refused && call->out.len - call->out_at <= HTTP_CALL_WRITE_LOW_BYTES) {
        call_errand(call, ERRAND_WRITABLE);
    }
}

static void refuse_body(struct http_call *call, const char *reason)
{
    call->out_ended = true;
    call->reason = reason;
    call_errand(call, ERRAND_FAILED);
}

static int append(struct http_call *call, struct slice bytes)
{
    if (call->body_left >= 0) {
        call->body_left -= (int64_t)bytes.len;
        return buf_append_slice(&call->out, bytes);
    }
    char size[24];
    int n = snprintf(size, sizeof size, "%zx\r\n", bytes.len);
    int rc = buf_append(&call->out, size, (size_t)n);
    rc = rc != 0 ? rc : buf_append_slice(&call->out, bytes);
    return rc != 0 ? rc : buf_append(&call->out, "\r\n", 2);
}

bool http_call_write(struct http_call *call, struct slice bytes)
{
    if (call->ended || call->out_ended || !call->stream || bytes.len == 0) {
        return true;
    }
    if (call->body_left >= 0 && bytes.len > (uint64_t)call->body_left) {
        refuse_body(call, "the request's body is longer than announced");
        return true;
    }
    bool tight = call->out.len_max - call->out.len < bytes.len + CHUNK_FRAMING_BYTES_MAX;
    if (call->out_at > 0 && (tight || call->out_at >= call->out.len / 2)) {
        buf_consume(&call->out, call->out_at);
        call->out_at = 0;
    }
    if (append(call, bytes) != 0) {
        refuse_body(call, "no memory for the request's body");
        return true;
    }
    call_errand(call, ERRAND_FEED);
    bool more = call->out.len - call->out_at < HTTP_CALL_WRITE_HIGH_BYTES;
    call->out_refused = call->out_refused || !more;
    return more;
}

void http_call_write_end(struct http_call *call)
{
    if (call->ended || call->out_ended || !call->stream) {
        return;
    }
    if (call->body_left > 0) {
        refuse_body(call, "the request's body ended early");
        return;
    }
    if (call->body_left < 0 && buf_append_text(&call->out, "0\r\n\r\n") != 0) {
        refuse_body(call, "no memory for the request's body");
        return;
    }
    call->out_ended = true;
    call_errand(call, ERRAND_FEED);
}
