/* Heads and bodies as bytes in memory: what is accepted, what is refused and why, and that the way the bytes are cut up
 * changes nothing. http_parser serves as a second reader where the two have to agree. */
#include "net/http_head.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>
#include <http_parser.h>

enum { HEADERS_MAX = 8, HEAD_MAX = 512 };

enum verdict {
    MALFORMED = HTTP_MALFORMED,
    TOO_LARGE = HTTP_HEAD_TOO_LARGE,
    EXPECTATION = HTTP_EXPECTATION_UNKNOWN,
    UPGRADE = HTTP_UPGRADE,
    VERSION = HTTP_VERSION_UNSUPPORTED,
    GOOD = 100,
    INCOMPLETE,
};

struct reading {
    struct http_head head;
    struct header headers[HEADERS_MAX];
    const char *detail;
    size_t len;
};

static enum verdict read_head(struct reading *r, struct slice bytes)
{
    struct http_head_scan scan = {0};
    enum http_defect defect = HTTP_MALFORMED;
    r->detail = "";
    switch (http_head_scan(&scan, bytes, HEAD_MAX)) {
    case HTTP_SCAN_MORE:
        return INCOMPLETE;
    case HTTP_SCAN_LARGE:
        return TOO_LARGE;
    case HTTP_SCAN_BAD:
        r->detail = scan.detail;
        return MALFORMED;
    case HTTP_SCAN_DONE:
        break;
    }
    r->len = scan.at;
    bool good =
        http_head_parse(&r->head, slice_of(bytes.ptr, scan.at), r->headers, HEADERS_MAX, &defect, &r->detail);
    return good ? GOOD : (enum verdict)defect;
}

struct head_case {
    const char *bytes;
    size_t len;
    enum verdict verdict;
};

#define CASE(verdict, bytes)                                                                                 \
    {                                                                                                        \
        bytes, sizeof(bytes) - 1, verdict                                                                    \
    }

static void check(const struct head_case *cases, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct reading r;
        enum verdict verdict = read_head(&r, slice_of(cases[i].bytes, cases[i].len));
        if (verdict != cases[i].verdict) {
            fail_msg("case %zu: %d instead of %d (%s) for:\n%s", i, (int)verdict, (int)cases[i].verdict,
                     r.detail, cases[i].bytes);
        }
    }
}
#define CHECK(cases) check(cases, sizeof(cases) / sizeof((cases)[0]))

#define HOST "Host: a\r\n"
#define GET  "GET / HTTP/1.1\r\n" HOST
#define POST "POST / HTTP/1.1\r\n" HOST

/* --- Acceptance. --- */

static void a_request_is_taken_apart(void **state)
{
    (void)state;
    struct reading r;
    assert_int_equal(
        read_head(&r, SLICE_LITERAL("PoST /a%2Fb?x=1?2 HTTP/1.1\r\nHOST: h:80\r\nA:\r\nb: \t c d\t \r\n"
                                    "content-length: 012\r\n\r\nrest")),
        GOOD);
    const struct request *q = &r.head.request;
    assert_true(slice_equal(q->method, SLICE_LITERAL("PoST")));
    assert_true(slice_equal(q->path, SLICE_LITERAL("/a%2Fb")));
    assert_true(slice_equal(q->query, SLICE_LITERAL("x=1?2")));
    assert_int_equal(q->header_count, 4);
    assert_true(slice_equal(q->headers[0].name, SLICE_LITERAL("HOST")));
    assert_true(slice_equal(q->headers[1].value, SLICE_LITERAL("")));
    assert_true(slice_equal(q->headers[2].value, SLICE_LITERAL("c d")));
    assert_int_equal(r.head.length, 12);
    assert_true(r.head.keep_alive);
    assert_false(r.head.http10);
}

static void query_absent_and_empty_are_told_apart(void **state)
{
    (void)state;
    struct reading r;
    assert_int_equal(read_head(&r, SLICE_LITERAL("GET /a HTTP/1.1\r\n" HOST "\r\n")), GOOD);
    assert_true(slice_is_none(r.head.request.query));
    assert_int_equal(read_head(&r, SLICE_LITERAL("GET /a? HTTP/1.1\r\n" HOST "\r\n")), GOOD);
    assert_false(slice_is_none(r.head.request.query));
    assert_int_equal(r.head.request.query.len, 0);
}

static void absolute_form_yields_the_path(void **state)
{
    (void)state;
    struct reading r;
    assert_int_equal(read_head(&r, SLICE_LITERAL("GET HTTP://A/x?y HTTP/1.1\r\n" HOST "\r\n")), GOOD);
    assert_true(slice_equal(r.head.request.path, SLICE_LITERAL("/x")));
    assert_true(slice_equal(r.head.request.query, SLICE_LITERAL("y")));
    assert_int_equal(read_head(&r, SLICE_LITERAL("GET http://a?y HTTP/1.1\r\n" HOST "\r\n")), GOOD);
    assert_true(slice_equal(r.head.request.path, SLICE_LITERAL("/")));
    assert_int_equal(read_head(&r, SLICE_LITERAL("OPTIONS http://a HTTP/1.1\r\n" HOST "\r\n")), GOOD);
    assert_true(slice_equal(r.head.request.path, SLICE_LITERAL("*")));
}

static void unusual_but_clear_requests_pass(void **state)
{
    (void)state;
    static const struct head_case cases[] = {
        CASE(GOOD, GET "\r\n"),
        CASE(GOOD, "GET / HTTP/1.0\r\n\r\n"),
        CASE(GOOD, "GET / HTTP/1.7\r\n" HOST "\r\n"),
        CASE(GOOD, "OPTIONS * HTTP/1.1\r\n" HOST "\r\n"),
        CASE(GOOD, "QUERY / HTTP/1.1\r\n" HOST "\r\n"),
        CASE(GOOD, "GET /a|{}\"<>\\^` HTTP/1.1\r\n" HOST "\r\n"),
        CASE(GOOD, "GET / HTTP/1.1\r\nHost:\r\n\r\n"),
        CASE(GOOD, "GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n"),
        CASE(GOOD, GET "X: caf\xc3\xa9\r\n\r\n"),
        CASE(GOOD, GET "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\r\n"),
        CASE(GOOD, GET "Upgrade: websocket\r\n\r\n"),
        CASE(GOOD, "GET / HTTP/1.0\r\nExpect: x\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"),
        CASE(GOOD, POST "Transfer-Encoding: ChunKed\r\n\r\n"),
        CASE(GOOD, POST "Content-Length: 9223372036854775807\r\n\r\n"),
        CASE(GOOD, POST "Expect: 100-Continue\r\nContent-Length: 1\r\n\r\n"),
        CASE(INCOMPLETE, ""),
        CASE(INCOMPLETE, GET),
        CASE(INCOMPLETE, GET "\r"),
    };
    CHECK(cases);
}

static bool kept(const char *text)
{
    struct reading r;
    assert_int_equal(read_head(&r, slice_text(text)), GOOD);
    return r.head.keep_alive;
}

static void keep_alive_follows_version_and_connection(void **state)
{
    (void)state;
    assert_true(kept(GET "\r\n"));
    assert_false(kept(GET "Connection: a, CLOSE\r\n\r\n"));
    assert_false(kept(GET "Connection: keep-alive\r\nConnection: close\r\n\r\n"));
    assert_false(kept("GET / HTTP/1.0\r\n\r\n"));
    assert_true(kept("GET / HTTP/1.0\r\nConnection: , Keep-Alive\r\n\r\n"));
    assert_true(kept(GET "Connection: closed\r\n\r\n"));
}

/* --- Refusal. --- */

static void request_lines_that_two_readers_could_differ_on_are_refused(void **state)
{
    (void)state;
    static const struct head_case cases[] = {
        CASE(MALFORMED, "\r\n"),
        CASE(MALFORMED, " GET / HTTP/1.1\r\n" HOST "\r\n"),
        CASE(MALFORMED, "GET  / HTTP/1.1\r\n" HOST "\r\n"),
        CASE(MALFORMED, "GET /  HTTP/1.1\r\n" HOST "\r\n"),
        CASE(MALFORMED, "GET / HTTP/1.1 \r\n" HOST "\r\n"),
        CASE(MALFORMED, "GET\t/ HTTP/1.1\r\n" HOST "\r\n"),
        CASE(MALFORMED, "GET /a b HTTP/1.1\r\n" HOST "\r\n"),
        CASE(MALFORMED, "GET /\r\n\r\n"),
        CASE(MALFORMED, "GET HTTP/1.1\r\n" HOST "\r\n"),
        CASE(MALFORMED, "GET / http/1.1\r\n" HOST "\r\n"),
        CASE(MALFORMED, "GET / HTTP/1.10\r\n" HOST "\r\n"),
        CASE(MALFORMED, "GET / HTTP/1\r\n" HOST "\r\n"),
        CASE(MALFORMED, "GET / HTTP/x.1\r\n" HOST "\r\n"),
        CASE(MALFORMED, "G(T / HTTP/1.1\r\n" HOST "\r\n"),
        CASE(MALFORMED, "GET a HTTP/1.1\r\n" HOST "\r\n"),
        CASE(MALFORMED, "GET * HTTP/1.1\r\n" HOST "\r\n"),
        CASE(MALFORMED, "GET /a#b HTTP/1.1\r\n" HOST "\r\n"),
        CASE(MALFORMED, "GET /\xc3\xa9 HTTP/1.1\r\n" HOST "\r\n"),
        CASE(MALFORMED, "GET ftp://a/ HTTP/1.1\r\n" HOST "\r\n"),
        CASE(MALFORMED, "GET http:/// HTTP/1.1\r\n" HOST "\r\n"),
        CASE(MALFORMED, "GET http://b/ HTTP/1.1\r\n" HOST "\r\n"),
        CASE(MALFORMED, "GET http://u@a/ HTTP/1.1\r\nHost: u@a\r\n\r\n"),
        CASE(VERSION, "GET / HTTP/2.0\r\n" HOST "\r\n"),
        CASE(VERSION, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
        CASE(VERSION, "GET / HTTP/0.9\r\n\r\n"),
        CASE(UPGRADE, "CONNECT a:443 HTTP/1.1\r\n" HOST "\r\n"),
        CASE(MALFORMED, "\x16\x03\x01\x02"),
    };
    CHECK(cases);
}

static void header_lines_that_two_readers_could_differ_on_are_refused(void **state)
{
    (void)state;
    static const struct head_case cases[] = {
        CASE(MALFORMED, "GET / HTTP/1.1\r\n Host: a\r\n\r\n"),
        CASE(MALFORMED, GET "X: a\r\n b\r\n\r\n"),
        CASE(MALFORMED, GET "X: a\r\n\tb\r\n\r\n"),
        CASE(MALFORMED, GET "X : a\r\n\r\n"),
        CASE(MALFORMED, GET "X\t: a\r\n\r\n"),
        CASE(MALFORMED, GET "X y: a\r\n\r\n"),
        CASE(MALFORMED, GET ": a\r\n\r\n"),
        CASE(MALFORMED, GET "no colon\r\n\r\n"),
        CASE(MALFORMED, GET "caf\xc3\xa9: a\r\n\r\n"),
        CASE(MALFORMED, GET "X: a\rb\r\n\r\n"),
        CASE(MALFORMED, GET "X: a\r\r\n\r\n"),
        CASE(MALFORMED, GET "X: a\n\r\n"),
        CASE(MALFORMED, GET "X: a\n\n"),
        CASE(MALFORMED, GET "X: a\0b\r\n\r\n"),
        CASE(MALFORMED, GET "X: a\x01\r\n\r\n"),
        CASE(MALFORMED, GET "X: a\x7f\r\n\r\n"),
        CASE(MALFORMED, "GET / HTTP/1.1\r\n\r\n"),
        CASE(MALFORMED, GET HOST "\r\n"),
        CASE(MALFORMED, "GET / HTTP/1.0\r\n" HOST HOST "\r\n"),
        CASE(MALFORMED, "GET / HTTP/1.1\r\nHost: a b\r\n\r\n"),
        CASE(MALFORMED, "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n"),
        CASE(MALFORMED, "GET / HTTP/1.1\r\nHost: a,b\r\n\r\n"),
    };
    CHECK(cases);
}

static void framing_that_two_readers_could_differ_on_is_refused(void **state)
{
    (void)state;
    static const struct head_case cases[] = {
        CASE(MALFORMED, POST "Content-Length: 5\r\nContent-Length: 5\r\n\r\n"),
        CASE(MALFORMED, POST "Content-Length: 5\r\nContent-Length: 6\r\n\r\n"),
        CASE(MALFORMED, POST "Content-Length: 5, 5\r\n\r\n"),
        CASE(MALFORMED, POST "Content-Length: +5\r\n\r\n"),
        CASE(MALFORMED, POST "Content-Length: -5\r\n\r\n"),
        CASE(MALFORMED, POST "Content-Length: 0x5\r\n\r\n"),
        CASE(MALFORMED, POST "Content-Length: 5 5\r\n\r\n"),
        CASE(MALFORMED, POST "Content-Length:\r\n\r\n"),
        CASE(MALFORMED, POST "Content-Length: 9223372036854775808\r\n\r\n"),
        CASE(MALFORMED, POST "Content-Length: 18446744073709551621\r\n\r\n"),
        CASE(MALFORMED, POST "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"),
        CASE(MALFORMED, POST "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n"),
        CASE(MALFORMED, POST "Transfer-Encoding: gzip, chunked\r\n\r\n"),
        CASE(MALFORMED, POST "Transfer-Encoding: chunked, identity\r\n\r\n"),
        CASE(MALFORMED, POST "Transfer-Encoding: identity\r\n\r\n"),
        CASE(MALFORMED, POST "Transfer-Encoding: \"chunked\"\r\n\r\n"),
        CASE(MALFORMED, POST "Transfer-Encoding: xchunked\r\n\r\n"),
        CASE(MALFORMED, POST "Transfer-Encoding: chunked;q=1\r\n\r\n"),
        CASE(MALFORMED, POST "Transfer-Encoding:\r\n\r\n"),
        CASE(MALFORMED, POST "Transfer-Encoding:\tchunked\r\n\r\n"),
        CASE(MALFORMED, POST "Transfer-Encoding: chunked\t\r\n\r\n"),
        CASE(MALFORMED, POST "Content-Length: 5\t\r\n\r\n"),
        CASE(GOOD, POST "Content-Length:  5  \r\n\r\n"),
        CASE(MALFORMED, POST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n"),
        CASE(MALFORMED, "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"),
    };
    CHECK(cases);
}

static void expectations_upgrades_and_sizes_have_their_own_defects(void **state)
{
    (void)state;
    static const struct head_case cases[] = {
        CASE(EXPECTATION, POST "Expect: 200-ok\r\n\r\n"),
        CASE(EXPECTATION, POST "Expect: 100-continue, x\r\nContent-Length: 1\r\n\r\n"),
        CASE(UPGRADE, GET "Connection: upgrade\r\nUpgrade: websocket\r\n\r\n"),
        CASE(UPGRADE, GET "Connection: upgrade\r\nUpgrade: h2c\r\nUpgrade: websocket\r\n\r\n"),
        CASE(TOO_LARGE, GET "1:\r\n2:\r\n3:\r\n4:\r\n5:\r\n6:\r\n7:\r\n8:\r\n\r\n"),
        CASE(GOOD, GET "1:\r\n2:\r\n3:\r\n4:\r\n5:\r\n6:\r\n7:\r\n\r\n"),
        CASE(MALFORMED, GET "Expect: x\r\nContent-Length: z\r\n\r\n"),
    };
    CHECK(cases);
}

static void a_head_may_be_as_long_as_its_maximum_and_no_longer(void **state)
{
    (void)state;
    char bytes[HEAD_MAX + 64];
    for (size_t pad = HEAD_MAX - 64; pad < HEAD_MAX; pad++) {
        int n = snprintf(bytes, sizeof bytes, "GET / HTTP/1.1\r\nHost: a\r\nX: %0*d\r\n\r\n", (int)pad, 0);
        struct reading r;
        assert_int_equal(read_head(&r, slice_of(bytes, (size_t)n)), n <= HEAD_MAX ? GOOD : TOO_LARGE);
    }
}

/* --- Cuts. --- */

/* The scan over the same bytes, handed over one more at a time. */
static enum http_scan scan_slowly(struct http_head_scan *s, struct slice bytes)
{
    *s = (struct http_head_scan){0};
    enum http_scan result = HTTP_SCAN_MORE;
    for (size_t n = 0; n <= bytes.len && result == HTTP_SCAN_MORE; n++) {
        char *exact = malloc(n + 1); /* so that a sanitizer sees a read past the end */
        memcpy(exact, bytes.ptr, n);
        result = http_head_scan(s, slice_of(exact, n), 60);
        free(exact);
    }
    return result;
}

static void the_scan_does_not_depend_on_cuts(void **state)
{
    (void)state;
    static const char *const heads[] = {
        "GET / HTTP/1.1\r\nHost: a\r\n\r\nrest",
        "GET / HTTP/1.1\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n\r\n",
        "\r\n",
    };
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++) {
        struct http_head_scan whole = {0};
        struct http_head_scan slow;
        enum http_scan result = http_head_scan(&whole, slice_text(heads[i]), 60);
        assert_int_equal(scan_slowly(&slow, slice_text(heads[i])), result);
        if (result == HTTP_SCAN_DONE) {
            assert_int_equal(slow.at, whole.at);
            assert_int_equal(slow.lines, whole.lines);
        }
    }
}

/* --- Bodies. --- */

struct decoded {
    char content[256];
    size_t len;
    size_t used;
    enum http_body_step end;
};

static void decode_part(struct http_body *b, struct decoded *d, const char *ptr, size_t len)
{
    struct slice rest = {ptr, len};
    do {
        size_t used = 0;
        struct slice piece = SLICE_NONE;
        d->end = http_body_decode(b, rest, &used, &piece);
        if (d->end == HTTP_BODY_PIECE) {
            assert_true(piece.len > 0 && d->len + piece.len <= sizeof d->content);
            memcpy(d->content + d->len, piece.ptr, piece.len);
            d->len += piece.len;
        }
        rest = slice_from(rest, used);
        d->used += used;
    } while (d->end == HTTP_BODY_PIECE);
}

static struct decoded decode_cut(int64_t length, const char *text, size_t cut)
{
    struct http_body b;
    struct decoded d = {.end = HTTP_BODY_MORE};
    http_body_init(&b, length);
    decode_part(&b, &d, text, cut);
    if (d.end == HTTP_BODY_MORE) {
        decode_part(&b, &d, text + cut, strlen(text) - cut);
    }
    return d;
}

static void check_body(int64_t length, const char *text, enum http_body_step end, const char *content,
                       size_t rest)
{
    for (size_t cut = 0; cut <= strlen(text); cut++) {
        struct decoded d = decode_cut(length, text, cut);
        if (d.end != end || d.len != strlen(content) || memcmp(d.content, content, d.len) != 0) {
            fail_msg("%s cut at %zu: step %d, content %.*s", text, cut, (int)d.end, (int)d.len, d.content);
        }
        if (end == HTTP_BODY_END) {
            assert_int_equal(d.used, strlen(text) - rest);
        }
    }
}

static void bodies_end_where_their_framing_says(void **state)
{
    (void)state;
    check_body(0, "GET", HTTP_BODY_END, "", 3);
    check_body(5, "helloGET", HTTP_BODY_END, "hello", 3);
    check_body(5, "hell", HTTP_BODY_MORE, "hell", 0);
    check_body(-1, "5\r\nhello\r\n0\r\n\r\nGET", HTTP_BODY_END, "hello", 3);
    check_body(-1, "005\r\nhello\r\nA\r\n0123456789\r\n000\r\n\r\n", HTTP_BODY_END, "hello0123456789", 0);
    check_body(-1, "5;a=\"b;c\"\r\nhello\r\n0;x\r\nTrailer: a\r\nB: c\r\n\r\n", HTTP_BODY_END, "hello", 0);
    check_body(-1, "5\r\nhello\r\n0\r\n", HTTP_BODY_MORE, "hello", 0);
    check_body(-1, "7FFFFFFFFFFFFFFF\r\nabc", HTTP_BODY_MORE, "abc", 0);
}

static void chunks_with_anything_else_around_them_are_refused(void **state)
{
    (void)state;
    static const char *const sizes[] = {"\r\n",
                                        "x\r\n",
                                        " 5\r\n",
                                        "5 \r\n",
                                        "5\n",
                                        "5\rX",
                                        "+5\r\n",
                                        "-5\r\n",
                                        "0x5\r\n",
                                        ";a\r\n",
                                        "5;a\nb\r\n",
                                        "5;a\x01\r\n",
                                        "5 ;a\r\n",
                                        "5;a\rb\r\n",
                                        "8000000000000000\r\n",
                                        "10000000000000005\r\n",
                                        "00000000000000005\r\n"};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        check_body(-1, sizes[i], HTTP_BODY_BAD, "", 0);
    }
    check_body(-1, "5\r\nhelloXX0\r\n\r\n", HTTP_BODY_BAD, "hello", 0);
    check_body(-1, "5\r\nhello\n0\r\n\r\n", HTTP_BODY_BAD, "hello", 0);
    check_body(-1, "5\r\nhello\rX0\r\n\r\n", HTTP_BODY_BAD, "hello", 0);
    check_body(-1, "0\r\n\rX", HTTP_BODY_BAD, "", 0);
    check_body(-1, "0\r\nA: b\n\r\n", HTTP_BODY_BAD, "", 0);
    check_body(-1, "0\r\n A: b\r\n\r\n", HTTP_BODY_BAD, "", 0);
    check_body(-1, "0\r\nA: b\r\n c\r\n\r\n", HTTP_BODY_BAD, "", 0);
    check_body(-1, "0\r\n\n", HTTP_BODY_BAD, "", 0);
    check_body(-1, "0\r\nA\r\n\r\n", HTTP_BODY_BAD, "", 0);
    check_body(-1, "0\r\nA B: c\r\n\r\n", HTTP_BODY_BAD, "", 0);
    check_body(-1, "0\r\n{\"a\": 1}\r\n\r\n", HTTP_BODY_BAD, "", 0);
}

/* `unit` over and over: how many bytes are taken before the framing is refused. */
static size_t bytes_until_refused(const char *before, const char *unit, size_t bytes_max)
{
    struct http_body b;
    size_t total = 0;
    http_body_init(&b, -1);
    struct slice part = slice_text(before);
    while (total < bytes_max) {
        size_t used = 0;
        struct slice piece;
        enum http_body_step step = http_body_decode(&b, part, &used, &piece);
        total += used;
        if (step == HTTP_BODY_BAD) {
            return total;
        }
        part = step == HTTP_BODY_MORE ? slice_text(unit) : slice_from(part, used);
    }
    return total;
}

static void framing_may_not_outgrow_its_content(void **state)
{
    (void)state;
    const size_t much = 1U << 20;
    assert_in_range(bytes_until_refused("5;", "extension", much), 1024, 64 * 1024);
    assert_in_range(bytes_until_refused("", "1;extension-of-some-length-and-then-some\r\nx\r\n", much), 1024,
                    much / 4);
    assert_in_range(bytes_until_refused("0\r\n", "Trailer: x\r\n", much), 1024, 64 * 1024);
    assert_true(bytes_until_refused("", "1\r\nx\r\n", much) >=
                much); /* small chunks alone are nobody's fault */
}

/* --- A second opinion. --- */

struct second {
    struct slice names[HEADERS_MAX], values[HEADERS_MAX];
    size_t n;
    struct slice url;
    bool complete;
};

static int second_url(http_parser *p, const char *at, size_t len)
{
    ((struct second *)p->data)->url = slice_of(at, len);
    return 0;
}

static int second_name(http_parser *p, const char *at, size_t len)
{
    struct second *s = p->data;
    assert_true(s->n < HEADERS_MAX);
    s->names[s->n] = slice_of(at, len);
    return 0;
}

static int second_value(http_parser *p, const char *at, size_t len)
{
    struct second *s = p->data;
    s->values[s->n++] = slice_of(at, len);
    return 0;
}

static int second_complete(http_parser *p)
{
    ((struct second *)p->data)->complete = true;
    return 2; /* no body here */
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

/* What we accept, http_parser must read in the same way: never the other way round. */
static void compare(const struct reading *r, const char *bytes)
{
    static const http_parser_settings settings = {.on_url = second_url,
                                                  .on_header_field = second_name,
                                                  .on_header_value = second_value,
                                                  .on_headers_complete = second_complete};
    struct second s = {0};
    http_parser parser;
    http_parser_init(&parser, HTTP_REQUEST);
    parser.data = &s;
    http_parser_execute(&parser, &settings, bytes, r->len);
    if (!s.complete || s.n != r->head.request.header_count) {
        fail_msg("http_parser reads this differently (%s):\n%.*s",
                 http_errno_name(HTTP_PARSER_ERRNO(&parser)), (int)r->len, bytes);
    }
    for (size_t i = 0; i < s.n; i++) {
        assert_true(slice_equal(s.names[i], r->headers[i].name));
        assert_true(slice_equal(slice_trim(s.values[i]), r->headers[i].value));
    }
    /* Keep-alive is left out: it takes ", close" for one word, and "keep-alive" with a tab behind it for another. */
    if (((parser.flags & F_CHUNKED) != 0) != r->head.chunked) {
        fail_msg("http_parser differs on the body's framing:\n%.*s", (int)r->len, bytes);
    }
}

static void whatever_is_accepted_reads_the_same_for_http_parser(void **state)
{
    (void)state;
    static const char *const seeds[] = {
        "GET /a?b=c HTTP/1.1\r\nHost: a\r\nX-Y: z\r\nConnection: close\r\n\r\n",
        "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nA: b\r\n\r\nhello",
        "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "HEAD / HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\n\r\n",
    };
    static const char bytes_of_interest[] = "\r\n\t :\0\x7f\x80;,0AaZ/?#\"";
    unsigned accepted = 0;
    srand(20);
    for (int i = 0; i < 60000; i++) {
        char bytes[200];
        const char *seed = seeds[i % 4];
        size_t len = strlen(seed);
        memcpy(bytes, seed, len + 1);
        for (int changes = 1 + rand() % 2; changes > 0; changes--) {
            size_t at = (size_t)rand() % len;
            char byte = bytes_of_interest[(size_t)rand() % (sizeof bytes_of_interest - 1)];
            if (rand() % 3 == 0) {
                memmove(bytes + at + 1, bytes + at, len - at + 1);
                len++;
            }
            bytes[at] = byte;
        }
        struct reading r;
        if (read_head(&r, slice_of(bytes, len)) == GOOD && known_method(r.head.request.method) &&
            r.head.request.path.ptr[0] == '/') {
            accepted++;
            compare(&r, bytes);
        }
    }
    assert_true(accepted > 5000); /* the comparison compared something */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_is_taken_apart),
        cmocka_unit_test(query_absent_and_empty_are_told_apart),
        cmocka_unit_test(absolute_form_yields_the_path),
        cmocka_unit_test(unusual_but_clear_requests_pass),
        cmocka_unit_test(keep_alive_follows_version_and_connection),
        cmocka_unit_test(request_lines_that_two_readers_could_differ_on_are_refused),
        cmocka_unit_test(header_lines_that_two_readers_could_differ_on_are_refused),
        cmocka_unit_test(framing_that_two_readers_could_differ_on_is_refused),
        cmocka_unit_test(expectations_upgrades_and_sizes_have_their_own_defects),
        cmocka_unit_test(a_head_may_be_as_long_as_its_maximum_and_no_longer),
        cmocka_unit_test(the_scan_does_not_depend_on_cuts),
        cmocka_unit_test(bodies_end_where_their_framing_says),
        cmocka_unit_test(chunks_with_anything_else_around_them_are_refused),
        cmocka_unit_test(framing_may_not_outgrow_its_content),
        cmocka_unit_test(whatever_is_accepted_reads_the_same_for_http_parser),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
