/* The HTTP client: what goes out, that it goes out at most once, and how calls without an answer end. */
#include "raw_upstream.h"

/* --- What goes out. --- */

static void request_goes_out_as_given(void **state)
{
    (void)state;
    struct upstream *u = upstream_start(always, OK_TEXT);
    struct bench b;
    struct answer a;
    bench_open(&b, u);
    const struct header headers[] = {
        {SLICE_LITERAL("Host"), SLICE_LITERAL("shop.example")},
        {SLICE_LITERAL("X-A"), SLICE_LITERAL("1")},
        {SLICE_LITERAL("x-Empty"), SLICE_LITERAL("")},
        {SLICE_LITERAL("X-A"), SLICE_LITERAL("2; q=\"a:b\"")},
        {SLICE_LITERAL("Content-Length"), SLICE_LITERAL("99")},
        {SLICE_LITERAL("Transfer-Encoding"), SLICE_LITERAL("gzip")},
        {SLICE_LITERAL("Connection"), SLICE_LITERAL("close")},
        {SLICE_LITERAL("Expect"), SLICE_LITERAL("100-continue")},
    };
    struct http_call_options o = {.method = SLICE_LITERAL("REPORT"),
                                  .target = SLICE_LITERAL("/a/../b//%2F/./c\xc3\xa9?x=[%20]&&{}"),
                                  .headers = headers,
                                  .header_count = sizeof headers / sizeof *headers,
                                  .body = {"a\0b", 3}};
    ask(&a, &b, &o);
    assert_complete(&a, 200, "ok");
    const char want[] =
        "REPORT /a/../b//%2F/./c\xc3\xa9?x=[%20]&&{} HTTP/1.1\r\nHost: shop.example\r\nX-A: 1\r\n"
        "x-Empty:\r\nX-A: 2; q=\"a:b\"\r\nContent-Length: 3\r\n\r\na\0b";
    assert_int_equal(u->last.len, sizeof want - 1);
    assert_memory_equal(u->last.ptr, want, sizeof want - 1);
    answer_free(&a);
    bench_close(&b);
    upstream_stop(u);
}

static void base_path_comes_before_the_target_and_the_origins_host_by_default(void **state)
{
    (void)state;
    struct upstream *u = upstream_start(always, OK_TEXT);
    struct bench b;
    struct answer a;
    char url[64];
    char want[128];
    snprintf(url, sizeof url, "http://127.0.0.1:%u/base//", u->port);
    bench_open_url(&b, url, NULL, 8);
    snprintf(want, sizeof want, "127.0.0.1:%u", u->port);
    assert_true(slice_equal(http_origin_authority(b.origin), slice_text(want)));
    ask(&a, &b, &GET_OF("/x?y"));
    snprintf(want, sizeof want, "GET /base/x?y HTTP/1.1\r\nHost: 127.0.0.1:%u\r\n\r\n", u->port);
    assert_text(&u->last, want);
    answer_free(&a);
    bench_close(&b);
    upstream_stop(u);
}

static void only_methods_with_a_body_by_nature_announce_an_empty_one(void **state)
{
    (void)state;
    static const struct {
        const char *method;
        bool announces;
    } cases[] = {{"POST", true},    {"PUT", true},      {"PATCH", true},  {"GET", false}, {"HEAD", false},
                 {"DELETE", false}, {"OPTIONS", false}, {"PURGE", false}, {"POST", true}};
    struct upstream *u = upstream_start(always, "HTTP/1.1 204 No Content\r\n\r\n");
    struct bench b;
    struct answer a;
    bench_open(&b, u);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char want[128];
        struct http_call_options o = {.method = slice_text(cases[i].method)};
        ask(&a, &b, &o);
        assert_complete(&a, 204, "");
        snprintf(want, sizeof want, "%s / HTTP/1.1\r\nHost: 127.0.0.1:%u\r\n%s\r\n", cases[i].method, u->port,
                 cases[i].announces ? "Content-Length: 0\r\n" : "");
        assert_text(&u->last, want);
        answer_free(&a);
    }
    assert_int_equal(upstream_get(u, &u->accepted), 1);
    bench_close(&b);
    upstream_stop(u);
}

static void what_can_not_be_sent_is_refused_at_the_start(void **state)
{
    (void)state;
    struct bench b;
    struct answer a;
    bench_open_url(&b, "http://127.0.0.1:1", NULL, 1);
    static const struct header hosts[] = {{SLICE_LITERAL("Host"), SLICE_LITERAL("a")},
                                          {SLICE_LITERAL("host"), SLICE_LITERAL("a")}};
    static const struct header bad[] = {
        {SLICE_LITERAL("A"), SLICE_LITERAL("x\r\ny: z")}, {SLICE_LITERAL("A"), SLICE_LITERAL("x\ny")},
        {SLICE_LITERAL("A"), SLICE_LITERAL("x\0y")},      {SLICE_LITERAL("A b"), SLICE_LITERAL("x")},
        {SLICE_LITERAL("A:"), SLICE_LITERAL("x")},        {SLICE_LITERAL(""), SLICE_LITERAL("x")},
        {SLICE_LITERAL("A\r\n"), SLICE_LITERAL("x")},     {SLICE_LITERAL("Host"), SLICE_LITERAL(" ")},
    };
    static const char *const targets[] = {"x", "*", "/a b", "/a\r\nB: c", "/\x7f", "http://x/"};
    static const char *const methods[] = {"GE T", "CONNECT", "G\r\n", "ABCDEFGHIJKLMNOPQRSTUVWXYZABCDEFG"};
    answer_init(&a, &b);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct http_call_options o = {.headers = &bad[i], .header_count = 1};
        assert_int_equal(answer_begin(&a, &o), HAPAX_E_ARGUMENT);
    }
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++) {
        struct http_call_options o = {.target = slice_text(targets[i])};
        assert_int_equal(answer_begin(&a, &o), HAPAX_E_ARGUMENT);
    }
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        struct http_call_options o = {.method = slice_text(methods[i])};
        assert_int_equal(answer_begin(&a, &o), HAPAX_E_ARGUMENT);
    }
    struct http_call_options nul = {.target = {"/a\0b", 4}};
    assert_int_equal(answer_begin(&a, &nul), HAPAX_E_ARGUMENT);
    struct http_call_options twice = {.headers = hosts, .header_count = 2};
    assert_int_equal(answer_begin(&a, &twice), HAPAX_E_ARGUMENT);
    struct http_call_options head = {.method = SLICE_LITERAL("HEAD"), .body = SLICE_LITERAL("x")};
    assert_int_equal(answer_begin(&a, &head), HAPAX_E_ARGUMENT);
    char *large = malloc(HTTP_CALL_HEAD_BYTES_MAX + 1);
    assert_non_null(large);
    memset(large, '/', HTTP_CALL_HEAD_BYTES_MAX + 1);
    struct http_call_options huge = {.target = {large, HTTP_CALL_HEAD_BYTES_MAX + 1}};
    assert_int_equal(answer_begin(&a, &huge), HAPAX_E_LIMIT);
    free(large);
    uv_run(loop_uv(b.loop), UV_RUN_NOWAIT);
    assert_false(a.done);
    answer_free(&a);
    bench_close(&b);
}

static void origins_are_absolute_http_urls_without_credentials(void **state)
{
    (void)state;
    static const char *const bad[] = {"",
                                      "127.0.0.1:80",
                                      "ftp://a/",
                                      "http://u:p@a/",
                                      "http://u@a/",
                                      "http://a/?q",
                                      "http://a/#f",
                                      "http://a:0x/",
                                      "http://",
                                      "http://a b/",
                                      "http://a/b c",
                                      "https://a:99999/",
                                      NULL};
    struct http_origin *origin;
    for (size_t i = 0; bad[i] != NULL; i++) {
        hapax_error err = {0};
        struct http_origin_options o = {.url = bad[i], .connections_max = 1};
        if (http_origin_create(&origin, &o, &err) != HAPAX_E_ARGUMENT) {
            fail_msg("accepted %s", bad[i]);
        }
        assert_int_equal(err.code, HAPAX_E_ARGUMENT);
    }
    static const char *const good[][2] = {
        {"http://a", "a"}, {"https://a.b:8443/x/", "a.b:8443"}, {"http://[::1]:80", "[::1]:80"}};
    for (size_t i = 0; i < 3; i++) {
        struct http_origin_options o = {.url = good[i][0], .connections_max = 1};
        assert_int_equal(http_origin_create(&origin, &o, NULL), 0);
        assert_true(slice_equal(http_origin_authority(origin), slice_text(good[i][1])));
        http_origin_destroy(origin);
    }
}

static void proxies_of_the_environment_are_not_used(void **state)
{
    (void)state;
    setenv("http_proxy", "http://127.0.0.1:1", 1);
    setenv("all_proxy", "http://127.0.0.1:1", 1);
    struct upstream *u = upstream_start(always, OK_TEXT);
    struct bench b;
    struct answer a;
    bench_open(&b, u);
    ask(&a, &b, &GET_OF("/"));
    assert_complete(&a, 200, "ok");
    answer_free(&a);
    bench_close(&b);
    upstream_stop(u);
    unsetenv("http_proxy");
    unsetenv("all_proxy");
}

/* --- At most one send. --- */

/* Answers the first request of a connection; reads the second one completely and closes without a byte. */
static void first_then_silence(struct upstream *u, int fd, int number)
{
    (void)number;
    struct buf b;
    buf_init(&b, REQUEST_BYTES_MAX);
    if (read_request(u, fd, &b) && send_text(fd, OK_TEXT)) {
        (void)read_request(u, fd, &b);
    }
    buf_free(&b);
}

static void check_single_send(const struct http_call_options *o)
{
    struct upstream *u = upstream_start(first_then_silence, NULL);
    struct bench b;
    struct answer a;
    bench_open(&b, u);
    ask(&a, &b, &GET_OF("/first"));
    assert_complete(&a, 200, "ok");
    answer_free(&a);
    ask(&a, &b, o);
    assert_failed(&a, CALL_BROKEN);
    answer_free(&a);
    bench_close(&b);
    upstream_wait(u, &u->closed, upstream_get(u, &u->accepted));
    assert_int_equal(upstream_get(u, &u->requests), 2);
    upstream_stop(u);
}

static void request_on_a_dying_connection_is_not_sent_again(void **state)
{
    (void)state;
    static char large[300 * 1024];
    memset(large, 'x', sizeof large);
    struct http_call_options put = {.method = SLICE_LITERAL("PUT"), .body = {large, sizeof large}};
    struct http_call_options head = {.method = SLICE_LITERAL("HEAD")};
    check_single_send(&POST_OF("pay"));
    check_single_send(&POST_OF(""));
    check_single_send(&GET_OF("/second"));
    check_single_send(&put);
    check_single_send(&head);
}

static void connection_closed_while_idle_is_replaced_without_an_error(void **state)
{
    (void)state;
    struct upstream *u = upstream_start(once_then_close, OK_TEXT);
    struct bench b;
    bench_open(&b, u);
    for (int i = 0; i < 200; i++) {
        struct answer a;
        ask(&a, &b, &POST_OF("x"));
        assert_complete(&a, 200, "ok");
        answer_free(&a);
        upstream_wait(u, &u->closed,
                      i + 1); /* closed for certain, though the client's loop hasn't run since */
    }
    assert_int_equal(upstream_get(u, &u->accepted), 200);
    assert_int_equal(upstream_get(u, &u->requests), 200);
    bench_close(&b);
    upstream_stop(u);
}

static void answer_nobody_asked_for_is_not_taken_for_the_next_one(void **state)
{
    (void)state;
    struct upstream *u = upstream_start(speaks_unasked, NULL);
    struct bench b;
    struct answer a;
    bench_open(&b, u);
    ask(&a, &b, &POST_OF("1"));
    assert_complete(&a, 200, "ok");
    answer_free(&a);
    upstream_mark(u);
    upstream_wait(u, &u->marks, 2);
    ask(&a, &b, &POST_OF("2"));
    assert_complete(&a, 200, "ok");
    answer_free(&a);
    assert_int_equal(upstream_get(u, &u->accepted), 2);
    bench_close(&b);
    upstream_stop(u);
}

static void kept_connection_is_used_again(void **state)
{
    (void)state;
    struct upstream *u = upstream_start(always, OK_TEXT);
    struct bench b;
    bench_open(&b, u);
    for (int i = 0; i < 50; i++) {
        struct answer a;
        ask(&a, &b, &POST_OF("x"));
        assert_complete(&a, 200, "ok");
        answer_free(&a);
    }
    assert_int_equal(upstream_get(u, &u->accepted), 1);
    bench_close(&b);
    upstream_stop(u);
}

static void idle_time_of_under_a_second_keeps_no_connection(void **state)
{
    (void)state;
    struct upstream *u = upstream_start(always, OK_TEXT);
    struct bench b;
    bench_open(&b, u);
    char url[64];
    snprintf(url, sizeof url, "http://127.0.0.1:%u", u->port);
    struct http_origin_options o = {.url = url, .idle_ms = 999, .connections_max = 1};
    http_origin_destroy(b.origin);
    assert_int_equal(http_origin_create(&b.origin, &o, NULL), 0);
    for (int i = 0; i < 3; i++) {
        struct answer a;
        ask(&a, &b, &GET_OF("/"));
        assert_complete(&a, 200, "ok");
        answer_free(&a);
    }
    assert_int_equal(upstream_get(u, &u->accepted), 3);
    bench_close(&b);
    upstream_stop(u);
}

/* --- How calls end. --- */

static void call_that_found_no_connection_is_not_sent(void **state)
{
    (void)state;
    uint16_t port;
    char url[64];
    struct bench b;
    struct answer a;
    close(upstream_listen(&port, 1));
    snprintf(url, sizeof url, "http://127.0.0.1:%u", port);
    bench_open_url(&b, url, NULL, 1);
    for (int i = 0; i < 3; i++) {
        ask(&a, &b, &POST_OF("x"));
        assert_failed(&a, CALL_NOT_SENT);
        answer_free(&a);
    }
    bench_close(&b);
}

static void call_to_an_unknown_name_is_not_sent(void **state)
{
    (void)state;
    struct bench b;
    struct answer a;
    bench_open_url(&b, "http://no-such-host.invalid", NULL, 1);
    struct http_call_options o = POST_OF("x");
    o.timeout_ms = 3000; /* where the look-up itself has no answer: the same verdict */
    ask(&a, &b, &o);
    assert_failed(&a, CALL_NOT_SENT);
    answer_free(&a);
    bench_close(&b);
}

/* A listener whose queue is full: further connects hang. */
static int full_listener(uint16_t *port, int fillers[8])
{
    int fd = upstream_listen(port, 0);
    struct sockaddr_in a = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(*port)};
    for (int i = 0; i < 8; i++) {
        fillers[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        (void)connect(fillers[i], (struct sockaddr *)&a, sizeof a);
    }
    return fd;
}

static void time_out_before_the_request_was_sent_is_not_sent(void **state)
{
    (void)state;
    uint16_t port;
    int fillers[8];
    char url[64];
    int listener = full_listener(&port, fillers);
    snprintf(url, sizeof url, "http://127.0.0.1:%u", port);
    struct bench b;
    struct answer a;
    bench_open_url(&b, url, NULL, 1);
    struct http_call_options o = POST_OF("x");
    o.timeout_ms = 200;
    ask(&a, &b, &o);
    assert_failed(&a, CALL_NOT_SENT);
    answer_free(&a);
    http_origin_destroy(b.origin);
    struct http_origin_options quick = {.url = url, .connect_ms = 200, .idle_ms = 1000, .connections_max = 1};
    assert_int_equal(http_origin_create(&b.origin, &quick, NULL), 0);
    ask(&a, &b, &POST_OF("x"));
    assert_failed(&a, CALL_NOT_SENT);
    answer_free(&a);
    bench_close(&b);
    for (int i = 0; i < 8; i++) {
        close(fillers[i]);
    }
    close(listener);
}

/* A host with two addresses: at the first one connects hang, so the second one wins and the first
 * socket is dropped without a word. */
static void hanging_first_address_does_not_stop_the_second(void **state)
{
    (void)state;
    struct upstream *u = upstream_start(always, OK_TEXT);
    struct sockaddr_in6 six = {
        .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT, .sin6_port = htons(u->port)};
    int listener = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int fillers[8];
    if (listener < 0 || bind(listener, (struct sockaddr *)&six, sizeof six) != 0 ||
        listen(listener, 0) != 0) {
        close(listener);
        upstream_stop(u);
        skip(); /* no IPv6 loopback here */
    }
    for (int i = 0; i < 8; i++) {
        fillers[i] = socket(AF_INET6, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        (void)connect(fillers[i], (struct sockaddr *)&six, sizeof six);
    }
    struct bench b;
    char url[64];
    snprintf(url, sizeof url, "http://localhost:%u", u->port);
    bench_open_url(&b, url, NULL, 8);
    for (int round = 0; round < 3; round++) {
        struct answer a[4];
        for (int i = 0; i < 4; i++) {
            answer_init(&a[i], &b);
            assert_int_equal(answer_begin(&a[i], &POST_OF("x")), 0);
        }
        for (int i = 0; i < 4; i++) {
            until_done(&a[i]);
            assert_complete(&a[i], 200, "ok");
            answer_free(&a[i]);
        }
    }
    assert_true(upstream_get(u, &u->accepted) <= 4);
    bench_close(&b);
    for (int i = 0; i < 8; i++) {
        close(fillers[i]);
    }
    close(listener);
    upstream_stop(u);
}

static void reads_and_says(struct upstream *u, int fd, int number)
{
    (void)number;
    struct buf b;
    buf_init(&b, REQUEST_BYTES_MAX);
    if (read_request(u, fd, &b)) {
        send_text(fd, u->arg);
        read_until_closed(fd);
    }
    buf_free(&b);
}

static void time_out_after_the_request_was_sent_is_a_time_out(void **state)
{
    (void)state;
    static const char *const says[] = {"", "HTTP/1.1 200 OK\r\n",
                                       "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab"};
    for (size_t i = 0; i < 3; i++) {
        for (int kind = 0; kind < 3; kind++) {
            struct upstream *u = upstream_start(reads_and_says, says[i]);
            struct bench b;
            struct answer a;
            bench_open(&b, u);
            struct http_call_options o = POST_OF("x");
            o.timeout_ms = kind == 0 ? 200 : 0;
            o.silence_ms = kind == 1 ? 200 : 0;
            o.answer_within_ms = kind == 2 ? 200 : 0;
            ask(&a, &b, &o);
            assert_failed(&a, CALL_TIMEOUT);
            answer_free(&a);
            bench_close(&b);
            upstream_stop(u);
        }
    }
}

static void call_that_waits_for_a_connection_too_long_is_not_sent(void **state)
{
    (void)state;
    struct upstream *u = upstream_start(reads_and_says, "");
    struct bench b;
    struct answer first;
    struct answer second;
    char url[64];
    snprintf(url, sizeof url, "http://127.0.0.1:%u", u->port);
    bench_open_url(&b, url, NULL, 1);
    struct http_call_options o = POST_OF("x");
    answer_init(&first, &b);
    assert_int_equal(answer_begin(&first, &o), 0);
    o.timeout_ms = 200;
    ask(&second, &b, &o);
    assert_failed(&second, CALL_NOT_SENT);
    assert_false(first.done);
    http_call_cancel(first.call);
    answer_free(&first);
    answer_free(&second);
    bench_close(&b);
    upstream_stop(u);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(request_goes_out_as_given),
        cmocka_unit_test(base_path_comes_before_the_target_and_the_origins_host_by_default),
        cmocka_unit_test(only_methods_with_a_body_by_nature_announce_an_empty_one),
        cmocka_unit_test(what_can_not_be_sent_is_refused_at_the_start),
        cmocka_unit_test(origins_are_absolute_http_urls_without_credentials),
        cmocka_unit_test(proxies_of_the_environment_are_not_used),
        cmocka_unit_test(request_on_a_dying_connection_is_not_sent_again),
        cmocka_unit_test(connection_closed_while_idle_is_replaced_without_an_error),
        cmocka_unit_test(answer_nobody_asked_for_is_not_taken_for_the_next_one),
        cmocka_unit_test(kept_connection_is_used_again),
        cmocka_unit_test(idle_time_of_under_a_second_keeps_no_connection),
        cmocka_unit_test(call_that_found_no_connection_is_not_sent),
        cmocka_unit_test(call_to_an_unknown_name_is_not_sent),
        cmocka_unit_test(time_out_before_the_request_was_sent_is_not_sent),
        cmocka_unit_test(hanging_first_address_does_not_stop_the_second),
        cmocka_unit_test(time_out_after_the_request_was_sent_is_a_time_out),
        cmocka_unit_test(call_that_waits_for_a_connection_too_long_is_not_sent),
    };
    return client_tests_run(tests);
}
