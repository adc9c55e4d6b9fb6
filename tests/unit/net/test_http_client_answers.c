/* The HTTP client: answers that are whole, and answers that are not. */
#include "raw_upstream.h"

#define HEAD_TEXT "HTTP/1.1 200 OK\r\n"

static void answer_cut_short_or_malformed_is_broken(void **state)
{
    (void)state;
    static const struct slice answers[] = {
        SLICE_LITERAL(""),
        SLICE_LITERAL("H"),
        SLICE_LITERAL("HTTP/1.1 200 OK"),
        SLICE_LITERAL(HEAD_TEXT),
        SLICE_LITERAL(HEAD_TEXT "A: b\r\n"),
        SLICE_LITERAL(HEAD_TEXT "Content-Length: 0\r\n"),
        SLICE_LITERAL(HEAD_TEXT "Content-Length: 3\r\n\r\n"),
        SLICE_LITERAL(HEAD_TEXT "Content-Length: 3\r\n\r\nab"),
        SLICE_LITERAL(HEAD_TEXT "Transfer-Encoding: chunked\r\n\r\n"),
        SLICE_LITERAL(HEAD_TEXT "Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n"),
        SLICE_LITERAL(HEAD_TEXT "Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n"),
        SLICE_LITERAL(HEAD_TEXT "Transfer-Encoding: chunked\r\n\r\n5\r\nab"),
        SLICE_LITERAL(HEAD_TEXT "Transfer-Encoding: chunked\r\n\r\nzz\r\nab\r\n0\r\n\r\n"),
        SLICE_LITERAL(HEAD_TEXT "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
        SLICE_LITERAL(HEAD_TEXT "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n"),
        SLICE_LITERAL(HEAD_TEXT "Content-Length: 2\r\nContent-Length: 3\r\n\r\nabc"),
        SLICE_LITERAL(HEAD_TEXT "Content-Length: 2, 2\r\n\r\nab"),
        SLICE_LITERAL(HEAD_TEXT "Content-Length: -2\r\n\r\nab"),
        SLICE_LITERAL(HEAD_TEXT "Content-Length: 99999999999999999999\r\n\r\nab"),
        SLICE_LITERAL(HEAD_TEXT "Content-Length : 2\r\n\r\nab"),
        SLICE_LITERAL(HEAD_TEXT "No colon\r\nContent-Length: 2\r\n\r\nab"),
        SLICE_LITERAL(HEAD_TEXT "A: x\0y\r\nContent-Length: 2\r\n\r\nab"),
        SLICE_LITERAL(HEAD_TEXT "A: x\ry\r\nContent-Length: 2\r\n\r\nab"),
        SLICE_LITERAL(HEAD_TEXT " folded: first\r\nContent-Length: 2\r\n\r\nab"),
        SLICE_LITERAL("HTTP/2 200\r\nContent-Length: 2\r\n\r\nab"),
        SLICE_LITERAL("HTTP/1.1 20 OK\r\nContent-Length: 2\r\n\r\nab"),
        SLICE_LITERAL("HTTP/1.1 099 OK\r\nContent-Length: 2\r\n\r\nab"),
        SLICE_LITERAL("ICY 200 OK\r\nContent-Length: 2\r\n\r\nab"),
        SLICE_LITERAL("<html>no HTTP at all</html>"),
        SLICE_LITERAL("HTTP/1.1 100 Continue\r\n\r\n"),
        SLICE_LITERAL("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\nab"),
    };
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        struct upstream *u = upstream_start(once_bytes, &answers[i]);
        struct bench b;
        struct answer a;
        bench_open(&b, u);
        ask(&a, &b, &POST_OF("x"));
        if (a.complete) {
            fail_msg("answer %zu was taken as complete", i);
        }
        assert_failed(&a, CALL_BROKEN);
        answer_free(&a);
        assert_int_equal(upstream_get(u, &u->requests), 1);
        bench_close(&b);
        upstream_stop(u);
    }
}

static void head_larger_than_allowed_is_broken(void **state)
{
    (void)state;
    static char text[20000];
    static const char start[] = HEAD_TEXT "Content-Length: 0\r\nA: ";
    memset(text, 'x', sizeof text - 1);
    memcpy(text, start, sizeof start - 1);
    memcpy(text + sizeof text - 5, "\r\n\r\n", 5);
    for (uint32_t bytes_max = 10000; bytes_max < 40000; bytes_max += 20000) {
        struct upstream *u = upstream_start(once, text);
        struct bench b;
        struct answer a;
        bench_open(&b, u);
        struct http_call_options o = POST_OF("x");
        o.head_bytes_max = bytes_max;
        ask(&a, &b, &o);
        if (bytes_max > sizeof text) {
            assert_complete(&a, 200, "");
        } else {
            assert_failed(&a, CALL_BROKEN);
        }
        answer_free(&a);
        bench_close(&b);
        upstream_stop(u);
    }
}

/* --- Answers that are whole. --- */

static void check_answer(const char *method, const char *text, int status, const char *head, const char *body)
{
    struct slice bytes = slice_text(text);
    struct upstream *u = upstream_start(once_bytes, &bytes);
    struct bench b;
    struct answer a;
    bench_open(&b, u);
    struct http_call_options o = {.method = slice_text(method)};
    ask(&a, &b, &o);
    assert_complete(&a, status, body);
    assert_text(&a.head, head);
    assert_int_equal(a.heads, 1);
    answer_free(&a);
    assert_int_equal(upstream_get(u, &u->requests), 1);
    bench_close(&b);
    upstream_stop(u);
}

static void answers_arrive_as_sent(void **state)
{
    (void)state;
    check_answer("GET", HEAD_TEXT "Content-Length: 2\r\n\r\nab", 200, "Content-Length=2\n", "ab");
    check_answer("GET", HEAD_TEXT "\r\nuntil the end", 200, "", "until the end");
    check_answer("GET", "HTTP/1.0 200 OK\r\nA: b\r\n\r\nold", 200, "A=b\n", "old");
    check_answer("GET", "HTTP/1.1 299\r\nContent-Length: 0\r\n\r\n", 299, "Content-Length=0\n", "");
    check_answer("GET", "HTTP/1.1 204 No Content\r\n\r\n", 204, "", "");
    check_answer("GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\n", 304, "Content-Length=7\n",
                 "");
    check_answer("HEAD", HEAD_TEXT "Content-Length: 7\r\n\r\n", 200, "Content-Length=7\n", "");
    check_answer("GET",
                 HEAD_TEXT
                 "Transfer-Encoding: chunked\r\n\r\n2;x=y\r\nab\r\n1\r\nc\r\n0\r\nTrailer: no\r\n\r\n",
                 200, "Transfer-Encoding=chunked\n", "abc");
    check_answer("GET",
                 HEAD_TEXT
                 "B:  two \t\r\nA: 1\r\nb:3\r\nEmpty:\r\nF: x\r\n  y\r\n\tz\r\nContent-Length: 0\r\n\r\n",
                 200, "B=two\nA=1\nb=3\nEmpty=\nF=x y z\nContent-Length=0\n", "");
    check_answer("GET", HEAD_TEXT "Content-Encoding: gzip\r\nContent-Length: 3\r\n\r\nraw", 200,
                 "Content-Encoding=gzip\nContent-Length=3\n", "raw");
}

static void interim_answers_are_skipped(void **state)
{
    (void)state;
    check_answer("POST",
                 "HTTP/1.1 100 Continue\r\nX: 1\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n" HEAD_TEXT
                 "Content-Length: 2\r\n\r\nab",
                 200, "Content-Length=2\n", "ab");
}

static void redirects_and_challenges_are_answers(void **state)
{
    (void)state;
    check_answer("POST", "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
                 302, "Location=http://127.0.0.1:1/\nContent-Length=0\n", "");
    check_answer("GET", "HTTP/1.1 307 X\r\nLocation: ht!tp:// nonsense\r\nContent-Length: 0\r\n\r\n", 307,
                 "Location=ht!tp:// nonsense\nContent-Length=0\n", "");
    check_answer("POST", "HTTP/1.1 401 No\r\nWWW-Authenticate: Basic realm=x\r\nContent-Length: 0\r\n\r\n",
                 401, "WWW-Authenticate=Basic realm=x\nContent-Length=0\n", "");
    check_answer("POST", "HTTP/1.1 417 No\r\nContent-Length: 0\r\n\r\n", 417, "Content-Length=0\n", "");
}

static void cookies_are_not_kept(void **state)
{
    (void)state;
    struct upstream *u = upstream_start(always, HEAD_TEXT "Set-Cookie: a=b\r\nContent-Length: 0\r\n\r\n");
    struct bench b;
    struct answer a;
    bench_open(&b, u);
    for (int i = 0; i < 2; i++) {
        ask(&a, &b, &GET_OF("/"));
        assert_complete(&a, 200, "");
        answer_free(&a);
    }
    assert_int_equal(buf_append_byte(&u->last, '\0'), 0);
    assert_null(strstr(u->last.ptr, "a=b"));
    bench_close(&b);
    upstream_stop(u);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answer_cut_short_or_malformed_is_broken),
        cmocka_unit_test(head_larger_than_allowed_is_broken),
        cmocka_unit_test(answers_arrive_as_sent),
        cmocka_unit_test(interim_answers_are_skipped),
        cmocka_unit_test(redirects_and_challenges_are_answers),
        cmocka_unit_test(cookies_are_not_kept),
    };
    return client_tests_run(tests);
}
