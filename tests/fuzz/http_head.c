/* Request heads and bodies as readers (net/http_head.h): [cuts] [room for the head] the bytes of a connection.
 *
 * Would catch: a result that depends on how the bytes are cut up (end of the head, refusals, content, end of the body); a
 * slice outside the head; a name, value or target that could be read in two ways; a request that reads
 * differently once written down again; a head or a body that we accept and http_parser reads as something else:
 * other headers, other framing, other content, another end. http_parser is asked only about methods it knows, and not
 * where a header's name goes on behind "Transfer-Encoding", which it takes for that; it may refuse trailers about
 * framing, which we drop. */
#include "fuzz.h"

#include "base/buf.h"
#include "base/limits.h"
#include "net/http_head.h"

#include <http_parser.h>

enum { STREAM_BYTES_MAX = 1 << 16 };

/* ---- ours, whole or in pieces ---------------------------------------------------------------------- */

struct cuts {
    uint32_t state; /* 0: none */
};

static size_t next_piece(struct cuts *c, size_t left)
{
    if (c->state == 0) {
        return left;
    }
    c->state = c->state * 1664525 + 1013904223;
    size_t n = 1 + (c->state >> 24) % ((c->state >> 16) % 4 == 0 ? 64 : 3);
    return n < left ? n : left;
}

static enum http_scan scan(struct http_head_scan *s, struct slice bytes, size_t bytes_max, struct cuts cuts)
{
    enum http_scan result = HTTP_SCAN_MORE;
    size_t seen = 0;
    *s = (struct http_head_scan){0};
    while (result == HTTP_SCAN_MORE && seen < bytes.len) {
        seen += next_piece(&cuts, bytes.len - seen);
        result = http_head_scan(s, slice_of(bytes.ptr, seen), bytes_max);
    }
    return result;
}

struct body {
    enum http_body_step step;
    struct buf content;
    size_t used;
};

static void read_body(struct body *b, int64_t length, struct slice bytes, struct cuts cuts)
{
    struct http_body decoder;
    http_body_init(&decoder, length);
    *b = (struct body){.step = http_body_ended(&decoder) ? HTTP_BODY_END : HTTP_BODY_MORE};
    buf_init(&b->content, STREAM_BYTES_MAX);
    while (b->used < bytes.len && b->step != HTTP_BODY_END && b->step != HTTP_BODY_BAD) {
        struct slice given = slice_from(bytes, b->used);
        given.len = next_piece(&cuts, given.len);
        while (given.len > 0 && b->step != HTTP_BODY_END && b->step != HTTP_BODY_BAD) {
            size_t used = 0;
            struct slice piece = SLICE_NONE;
            b->step = http_body_decode(&decoder, given, &used, &piece);
            FUZZ_CHECK(used <= given.len);
            FUZZ_CHECK(used > 0 || b->step == HTTP_BODY_BAD || b->step == HTTP_BODY_END);
            if (b->step == HTTP_BODY_PIECE) {
                FUZZ_CHECK(piece.len > 0 && piece.len <= used && piece.ptr >= given.ptr &&
                           piece.ptr + piece.len <= given.ptr + used);
                FUZZ_CHECK(buf_append_slice(&b->content, piece) == 0);
            }
            given = slice_from(given, used);
            b->used += used;
        }
    }
    /* The end may come with the last piece. */
    b->step = http_body_ended(&decoder) ? HTTP_BODY_END : b->step;
}

/* ---- http_parser ----------------------------------------------------------------------------------- */

struct second {
    struct header headers[LIMIT_HEADERS_MAX];
    size_t header_count;
    struct buf content;
    bool head_complete;
    bool chunked;
    bool complete;
};

static int second_name(http_parser *p, const char *at, size_t len)
{
    struct second *s = p->data;
    if (s->header_count++ < LIMIT_HEADERS_MAX) { /* trailers may be more */
        s->headers[s->header_count - 1] = (struct header){slice_of(at, len), SLICE_LITERAL("")};
    }
    return 0;
}

static int second_value(http_parser *p, const char *at, size_t len)
{
    struct second *s = p->data;
    if (s->header_count <= LIMIT_HEADERS_MAX) {
        s->headers[s->header_count - 1].value = slice_of(at, len);
    }
    return 0;
}

static int second_head(http_parser *p)
{
    struct second *s = p->data;
    s->head_complete = true;
    s->chunked = (p->flags & F_CHUNKED) != 0;
    return 0;
}

static int second_body(http_parser *p, const char *at, size_t len)
{
    struct second *s = p->data;
    return buf_append(&s->content, at, len);
}

static int second_complete(http_parser *p)
{
    struct second *s = p->data;
    s->complete = true;
    http_parser_pause(p, 1); /* what follows is the next request's */
    return 0;
}

static bool known_method(struct slice method)
{
    for (int m = 0; m <= HTTP_SOURCE; m++) {
        if (slice_equal(method, slice_text(http_method_str((enum http_method)m)))) {
            return true;
        }
    }
    return false;
}

static bool misleads_second(const struct request *r)
{
    const struct slice coding = SLICE_LITERAL("transfer-encoding");
    for (size_t i = 0; i < r->header_count; i++) {
        struct slice name = r->headers[i].name;
        if (name.len > coding.len && slice_equal_nocase(slice_of(name.ptr, coding.len), coding)) {
            return true;
        }
    }
    return false;
}

/* Content-Length and Transfer-Encoding among the trailers: ours drops them as it drops all. */
static bool refuses_framing_trailer(const http_parser *p)
{
    enum http_errno error = HTTP_PARSER_ERRNO(p);
    return error == HPE_INVALID_CONTENT_LENGTH || error == HPE_UNEXPECTED_CONTENT_LENGTH ||
           error == HPE_INVALID_TRANSFER_ENCODING;
}

static bool is_trailer(const struct second *s, const struct http_head *head)
{
    return s->header_count > head->request.header_count && head->chunked;
}

static void compare(const struct http_head *head, struct slice stream, const struct body *b)
{
    static const http_parser_settings settings = {.on_header_field = second_name,
                                                  .on_header_value = second_value,
                                                  .on_headers_complete = second_head,
                                                  .on_body = second_body,
                                                  .on_message_complete = second_complete};
    struct second s = {0};
    http_parser parser;
    if (!known_method(head->request.method) || misleads_second(&head->request) || b->step == HTTP_BODY_BAD) {
        return;
    }
    buf_init(&s.content, STREAM_BYTES_MAX);
    http_parser_init(&parser, HTTP_REQUEST);
    parser.data = &s;
    http_parser_execute(&parser, &settings, stream.ptr, stream.len);
    FUZZ_CHECK(s.head_complete && s.chunked == head->chunked);
    FUZZ_CHECK(s.header_count == head->request.header_count || is_trailer(&s, head));
    for (size_t i = 0; i < head->request.header_count; i++) {
        FUZZ_CHECK(slice_equal(s.headers[i].name, head->request.headers[i].name));
        FUZZ_CHECK(slice_equal(slice_trim(s.headers[i].value), head->request.headers[i].value));
    }
    if ((parser.flags & F_TRAILING) == 0 || !refuses_framing_trailer(&parser)) {
        FUZZ_CHECK(s.complete == (b->step == HTTP_BODY_END));
    }
    FUZZ_CHECK(slice_equal(buf_slice(&s.content), buf_slice(&b->content)));
    buf_free(&s.content);
}

/* ---- what was parsed -------------------------------------------------------------------------------- */

static bool within(struct slice piece, struct slice text)
{
    return piece.len == 0 || (piece.ptr >= text.ptr && piece.ptr + piece.len <= text.ptr + text.len);
}

static bool is_visible(struct slice s)
{
    for (size_t i = 0; i < s.len; i++) {
        if ((uint8_t)s.ptr[i] < ' ' && s.ptr[i] != '\t') {
            return false;
        }
    }
    return true;
}

static void check_head(const struct http_head *h, struct slice text)
{
    const struct request *r = &h->request;
    FUZZ_CHECK(slice_is_token(r->method) && r->path.len > 0 &&
               (r->path.ptr[0] == '/' || r->path.ptr[0] == '*'));
    FUZZ_CHECK(memchr(r->path.ptr, ' ', r->path.len) == NULL && is_visible(r->path) && is_visible(r->query));
    FUZZ_CHECK(h->length >= -1 && (h->length == -1) == h->chunked);
    for (size_t i = 0; i < r->header_count; i++) {
        FUZZ_CHECK(within(r->headers[i].name, text) && within(r->headers[i].value, text));
        FUZZ_CHECK(slice_is_token(r->headers[i].name) && is_visible(r->headers[i].value));
        FUZZ_CHECK(slice_equal(slice_trim(r->headers[i].value), r->headers[i].value));
    }
}

static void put(struct buf *out, struct slice text)
{
    FUZZ_CHECK(buf_append_slice(out, text) == 0);
}

static bool same_request(const struct http_head *a, const struct http_head *b)
{
    const struct request *r = &a->request;
    const struct request *s = &b->request;
    bool same = slice_equal(r->method, s->method) && slice_equal(r->path, s->path) &&
                slice_equal(r->query, s->query) && slice_is_none(r->query) == slice_is_none(s->query) &&
                r->header_count == s->header_count && a->http10 == b->http10 &&
                a->keep_alive == b->keep_alive && a->chunked == b->chunked && a->length == b->length &&
                a->expect_continue == b->expect_continue && a->is_head == b->is_head;
    for (size_t i = 0; same && i < r->header_count; i++) {
        same = slice_equal(r->headers[i].name, s->headers[i].name) &&
               slice_equal(r->headers[i].value, s->headers[i].value);
    }
    return same;
}

static void check_rewritten(const struct http_head *h)
{
    const struct request *r = &h->request;
    struct buf text;
    buf_init(&text, 4 * STREAM_BYTES_MAX);
    put(&text, r->method);
    put(&text, SLICE_LITERAL(" "));
    put(&text, r->path);
    if (!slice_is_none(r->query)) {
        put(&text, SLICE_LITERAL("?"));
        put(&text, r->query);
    }
    put(&text, h->http10 ? SLICE_LITERAL(" HTTP/1.0\r\n") : SLICE_LITERAL(" HTTP/1.1\r\n"));
    for (size_t i = 0; i < r->header_count; i++) {
        put(&text, r->headers[i].name);
        put(&text, SLICE_LITERAL(": "));
        put(&text, r->headers[i].value);
        put(&text, SLICE_LITERAL(" \r\n"));
    }
    put(&text, SLICE_LITERAL("\r\n"));

    struct http_head_scan s;
    struct http_head again;
    struct header headers[LIMIT_HEADERS_MAX];
    enum http_defect defect;
    const char *detail;
    FUZZ_CHECK(scan(&s, buf_slice(&text), text.len, (struct cuts){0}) == HTTP_SCAN_DONE && s.at == text.len);
    FUZZ_CHECK(http_head_parse(&again, buf_slice(&text), headers, LIMIT_HEADERS_MAX, &defect, &detail));
    FUZZ_CHECK(same_request(h, &again));
    buf_free(&text);
}

static void run(struct slice stream, size_t bytes_max, struct cuts cuts)
{
    struct http_head_scan whole;
    struct http_head_scan pieces;
    enum http_scan result = scan(&whole, stream, bytes_max, (struct cuts){0});
    FUZZ_CHECK(scan(&pieces, stream, bytes_max, cuts) == result);
    if (result != HTTP_SCAN_DONE) {
        FUZZ_CHECK(result != HTTP_SCAN_BAD || (whole.detail != NULL && pieces.detail != NULL &&
                                               strcmp(whole.detail, pieces.detail) == 0));
        return;
    }
    FUZZ_CHECK(whole.at == pieces.at && whole.lines == pieces.lines && whole.at <= bytes_max);

    struct slice text = slice_of(stream.ptr, whole.at);
    struct http_head head;
    struct header headers[LIMIT_HEADERS_MAX];
    enum http_defect defect;
    const char *detail = NULL;
    if (!http_head_parse(&head, text, headers, LIMIT_HEADERS_MAX, &defect, &detail)) {
        FUZZ_CHECK(detail != NULL);
        return;
    }
    check_head(&head, text);
    check_rewritten(&head);

    struct body one;
    struct body many;
    read_body(&one, head.length, slice_from(stream, whole.at), (struct cuts){0});
    read_body(&many, head.length, slice_from(stream, whole.at), cuts);
    FUZZ_CHECK((one.step == HTTP_BODY_BAD) == (many.step == HTTP_BODY_BAD));
    FUZZ_CHECK((one.step == HTTP_BODY_END) == (many.step == HTTP_BODY_END));
    FUZZ_CHECK(one.step != HTTP_BODY_END || one.used == many.used);
    FUZZ_CHECK(slice_equal(buf_slice(&one.content), buf_slice(&many.content)));
    compare(&head, stream, &one);
    buf_free(&one.content);
    buf_free(&many.content);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = {data, size};
    struct cuts cuts = {1U + input_byte(&in)};
    size_t bytes_max = 128 + 64 * (size_t)input_byte(&in);
    struct slice stream = input_rest(&in);
    if (stream.len <= STREAM_BYTES_MAX) {
        run(stream, bytes_max, cuts);
    }
    return 0;
}
