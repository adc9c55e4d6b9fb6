/* Answers: the status line, the framing headers, and the order in which the pieces leave. An answer in one piece goes
 * out in one system call; the small writes of a streamed one are put together until the turn ends. */
#include "base/assert.h"
#include "net/http_server_impl.h"

#include <stdio.h>
#include <time.h>

enum { PREFIX_BYTES_MAX = 256, SMALL_ANSWER_BYTES_MAX = 8 * 1024 };

const char *http_reason(int status)
{
    switch (status) {
#define REASON(code, text)                                                                                   \
    case code:                                                                                               \
        return text
        REASON(100, "Continue");
        REASON(101, "Switching Protocols");
        REASON(102, "Processing");
        REASON(103, "Early Hints");
        REASON(200, "OK");
        REASON(201, "Created");
        REASON(202, "Accepted");
        REASON(203, "Non-Authoritative Information");
        REASON(204, "No Content");
        REASON(205, "Reset Content");
        REASON(206, "Partial Content");
        REASON(207, "Multi-Status");
        REASON(208, "Already Reported");
        REASON(226, "IM Used");
        REASON(300, "Multiple Choices");
        REASON(301, "Moved Permanently");
        REASON(302, "Found");
        REASON(303, "See Other");
        REASON(304, "Not Modified");
        REASON(305, "Use Proxy");
        REASON(307, "Temporary Redirect");
        REASON(308, "Permanent Redirect");
        REASON(400, "Bad Request");
        REASON(401, "Unauthorized");
        REASON(402, "Payment Required");
        REASON(403, "Forbidden");
        REASON(404, "Not Found");
        REASON(405, "Method Not Allowed");
        REASON(406, "Not Acceptable");
        REASON(407, "Proxy Authentication Required");
        REASON(408, "Request Timeout");
        REASON(409, "Conflict");
        REASON(410, "Gone");
        REASON(411, "Length Required");
        REASON(412, "Precondition Failed");
        REASON(413, "Content Too Large");
        REASON(414, "URI Too Long");
        REASON(415, "Unsupported Media Type");
        REASON(416, "Range Not Satisfiable");
        REASON(417, "Expectation Failed");
        REASON(421, "Misdirected Request");
        REASON(422, "Unprocessable Content");
        REASON(423, "Locked");
        REASON(424, "Failed Dependency");
        REASON(425, "Too Early");
        REASON(426, "Upgrade Required");
        REASON(428, "Precondition Required");
        REASON(429, "Too Many Requests");
        REASON(431, "Request Header Fields Too Large");
        REASON(451, "Unavailable For Legal Reasons");
        REASON(500, "Internal Server Error");
        REASON(501, "Not Implemented");
        REASON(502, "Bad Gateway");
        REASON(503, "Service Unavailable");
        REASON(504, "Gateway Timeout");
        REASON(505, "HTTP Version Not Supported");
        REASON(506, "Variant Also Negotiates");
        REASON(507, "Insufficient Storage");
        REASON(508, "Loop Detected");
        REASON(511, "Network Authentication Required");
#undef REASON
    default:
        return "";
    }
}

/* --- The head of an answer. --- */

/* RFC 9110 section 5.6.7, written by hand because strftime() follows the locale. */
static const char *date_line(struct http_server *s)
{
    static const char days[7][4] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
    static const char months[12][4] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                       "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    struct timespec now;
    clock_gettime(CLOCK_REALTIME_COARSE, &now);
    if (now.tv_sec != s->date_second) {
        struct tm tm = {0};
        char line[128];
        gmtime_r(&now.tv_sec, &tm);
        snprintf(line, sizeof line, "Date: %s, %02d %s %04d %02d:%02d:%02d GMT\r\n", days[tm.tm_wday],
                 tm.tm_mday, months[tm.tm_mon], tm.tm_year + 1900, tm.tm_hour, tm.tm_min, tm.tm_sec);
        memcpy(s->date, line, DATE_BYTES);
        s->date_second = now.tv_sec;
    }
    return s->date;
}

struct text {
    char *at;
};

static void put(struct text *t, const char *ptr, size_t len)
{
    memcpy(t->at, ptr, len);
    t->at += len;
}

#define PUT(t, literal) put((t), "" literal, sizeof(literal) - 1)

static void put_u64(struct text *t, uint64_t value)
{
    char digits[20];
    size_t at = sizeof digits;
    do {
        digits[--at] = (char)('0' + value % 10);
        value /= 10;
    } while (value > 0);
    put(t, digits + at, sizeof digits - at);
}

/* Does a connection that is kept have to be given up after this answer? */
static void decide_close(struct http_exchange *x)
{
    struct conn *c = x->conn;
    bool body_open = !x->body_told && !http_body_ended(&c->body);
    /* A client that was never told to go on may or may not send the body now: the next bytes can't be told apart. */
    bool unclear = body_open && x->continue_due;
    bool too_much = body_open && x->finished && http_body_left(&c->body) > DISCARD_BYTES_MAX;
    c->must_close = c->must_close || c->server->draining || unclear || too_much;
}

enum framing { FRAMING_NONE, FRAMING_LENGTH, FRAMING_CHUNKED };

/* Everything before the handler's own lines; returns its length (at most PREFIX_BYTES_MAX). */
static size_t write_prefix(struct http_exchange *x, char *out, int status, enum framing framing,
                           uint64_t length)
{
    struct text t = {out};
    const char *reason = http_reason(status);
    PUT(&t, "HTTP/1.1 ");
    put_u64(&t, (uint64_t)status);
    PUT(&t, " ");
    put(&t, reason, strlen(reason));
    PUT(&t, "\r\n");
    put(&t, date_line(x->conn->server), DATE_BYTES);
    if (framing == FRAMING_LENGTH) {
        PUT(&t, "Content-Length: ");
        put_u64(&t, length);
        PUT(&t, "\r\n");
    } else if (framing == FRAMING_CHUNKED) {
        PUT(&t, "Transfer-Encoding: chunked\r\n");
    }
    if (x->conn->must_close) {
        PUT(&t, "Connection: close\r\n");
    } else if (x->head.http10) {
        PUT(&t, "Connection: keep-alive\r\n");
    }
    return (size_t)(t.at - out);
}

/* What the status and the method say about a body. Returns the status to send. */
static int begin_answer(struct http_exchange *x, int status)
{
    HAPAX_ASSERT(!x->answering || x->gone_told);
    status = status >= 200 && status <= 999 ? status : 500;
    x->answering = true;
    x->answer_empty = x->head.is_head || status == 204 || status == 304;
    return status;
}

/* --- In one piece. --- */

void http_respond_shared(struct http_exchange *x, int status, struct slice head, struct slice body,
                         void (*released)(void *arg), void *arg)
{
    struct conn *c = x->conn;
    struct write_owner owner = {released, arg};
    status = begin_answer(x, status);
    if (x->gone_told) { /* only http_exchange_done() ends it now */
        if (released != NULL) {
            released(arg);
        }
        return;
    }
    x->finished = true;
    decide_close(x);
    /* A 304 without a body at hand says nothing about the length the full answer would have. */
    bool length_known = status != 204 && !(status == 304 && body.len == 0);
    char small[SMALL_ANSWER_BYTES_MAX];
    struct text t = {small};
    t.at += write_prefix(x, small, status, length_known ? FRAMING_LENGTH : FRAMING_NONE, body.len);
    body.len = x->answer_empty ? 0 : body.len;
    size_t prefix = (size_t)(t.at - small);
    if (head.len + 2 + body.len <= sizeof small - prefix) {
        if (head.len > 0) {
            put(&t, head.ptr, head.len);
        }
        PUT(&t, "\r\n");
        if (body.len > 0) {
            put(&t, body.ptr, body.len);
        }
        uv_buf_t one = {.base = small, .len = (size_t)(t.at - small)};
        conn_send(c, &one, 1, (struct write_owner){0});
        if (released != NULL) {
            released(arg);
        }
    } else {
        static char blank[] = "\r\n";
        uv_buf_t parts[4] = {{.base = small, .len = prefix},
                             {.base = (char *)head.ptr, .len = head.len},
                             {.base = blank, .len = 2},
                             {.base = (char *)body.ptr, .len = body.len}};
        conn_send(c, parts, 4, owner);
    }
    conn_schedule(c);
}

void http_respond(struct http_exchange *x, int status, struct slice head, struct slice body)
{
    http_respond_shared(x, status, head, body, NULL, NULL);
}

/* --- In pieces. --- */

static void cork(struct conn *c, struct slice bytes)
{
    if (!c->closing && buf_append_slice(&c->out, bytes) != 0) {
        conn_drop(c, false);
    }
}

void http_respond_start(struct http_exchange *x, int status, struct slice head, int64_t length)
{
    struct conn *c = x->conn;
    status = begin_answer(x, status);
    x->answer_left = length;
    enum framing framing = length >= 0 ? FRAMING_LENGTH : FRAMING_NONE;
    if (status == 204 || (status == 304 && length <= 0)) {
        framing = FRAMING_NONE;
    } else if (length < 0 && !x->answer_empty) {
        x->answer_chunked = !x->head.http10;
        framing = x->answer_chunked ? FRAMING_CHUNKED : FRAMING_NONE;
        c->must_close = c->must_close || x->head.http10; /* the end of the connection ends the answer */
    }
    decide_close(x);
    char prefix[PREFIX_BYTES_MAX];
    size_t len = write_prefix(x, prefix, status, framing, (uint64_t)(length > 0 ? length : 0));
    cork(c, slice_of(prefix, len));
    cork(c, head);
    cork(c, SLICE_LITERAL("\r\n"));
    conn_schedule(c);
}

/* A long piece goes out at once with what is corked before it. */
static void send_piece(struct conn *c, struct slice before, struct slice bytes, struct slice after)
{
    uv_buf_t parts[4] = {{.base = c->out.ptr, .len = c->out.len},
                         {.base = (char *)before.ptr, .len = before.len},
                         {.base = (char *)bytes.ptr, .len = bytes.len},
                         {.base = (char *)after.ptr, .len = after.len}};
    conn_send(c, parts, 4, (struct write_owner){0});
    buf_clear(&c->out);
}

static void write_piece(struct http_exchange *x, struct slice bytes)
{
    struct conn *c = x->conn;
    char size[24];
    int n = x->answer_chunked ? snprintf(size, sizeof size, "%zx\r\n", bytes.len) : 0;
    struct slice before = slice_of(size, (size_t)n);
    struct slice after = x->answer_chunked ? SLICE_LITERAL("\r\n") : SLICE_LITERAL("");
    if (c->out.len + bytes.len > CORK_BYTES_MAX) {
        send_piece(c, before, bytes, after);
        return;
    }
    cork(c, before);
    cork(c, bytes);
    cork(c, after);
}

bool http_respond_write(struct http_exchange *x, struct slice bytes)
{
    struct conn *c = x->conn;
    HAPAX_ASSERT(x->answering);
    if (x->finished || x->answer_empty || c->closing || bytes.len == 0) {
        return true;
    }
    if (x->answer_left >= 0) {
        if ((uint64_t)x->answer_left < bytes.len) {
            http_respond_abort(x); /* more than was announced: nothing that follows can be right */
            return true;
        }
        x->answer_left -= (int64_t)bytes.len;
    }
    write_piece(x, bytes);
    conn_schedule(c);
    x->blocked = c->queued_bytes + c->out.len > c->server->options.write_high_bytes && !c->closing;
    return !x->blocked;
}

void http_respond_finish(struct http_exchange *x)
{
    struct conn *c = x->conn;
    HAPAX_ASSERT(x->answering);
    if (x->finished || x->gone_told) {
        return;
    }
    if (!x->answer_empty && x->answer_left > 0) {
        http_respond_abort(x);
        return;
    }
    x->finished = true;
    if (x->answer_chunked) {
        cork(c, SLICE_LITERAL("0\r\n\r\n"));
    }
    conn_flush(c);
    conn_schedule(c);
}

void http_respond_abort(struct http_exchange *x)
{
    struct conn *c = x->conn;
    if (x->finished || x->gone_told) {
        return;
    }
    x->answering = true;
    x->finished = true;
    buf_clear(&c->out);
    conn_drop(c, true);
    conn_schedule(c);
}
