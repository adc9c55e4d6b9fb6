/* The server as its clients and its handler see it: requests in, answers out, order, framing, back-pressure. Endings stand
 * in test_http_endings.c, what arbitrary and cut-up bytes do in test_http_bytes.c. */
#include "unit/net/http_fixture.h"

#define HOST "Host: a\r\n"

static void with_server(struct fixture *f)
{
    fixture_init(f);
    fixture_start(f);
}

/* Send, read one answer, end the connection. */
static void exchange(struct fixture *f, const char *request, struct answer *a, bool head_request)
{
    struct client *c = client_open(f);
    send_text(c, request);
    read_answer_to(c, a, head_request);
    client_close(c);
}

static bool has(const struct answer *a, const char *line)
{
    return strstr(a->head, line) != NULL;
}

/* --- Requests in. --- */

static void bodies_arrive_by_length_and_chunked(void **state)
{
    (void)state;
    struct fixture f;
    with_server(&f);
    struct client *c = client_open(&f);
    send_text(c, "POST /e?q HTTP/1.1\r\n" HOST "Content-Length: 5\r\n\r\nhello");
    expect(c, 200, "POST /e?q 2:hello");
    send_text(c, "PUT /e HTTP/1.1\r\n" HOST
                 "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6;x=y\r\n world\r\n0\r\nT: x\r\n\r\n");
    expect(c, 200, "PUT /e? 2:hello world");
    send_text(c, "\r\nGET / HTTP/1.1\r\n" HOST "\r\n");
    expect(c, 200, "GET /? 1:");
    client_close(c);
    fixture_stop(&f);
}

static void pipelined_requests_are_answered_in_order(void **state)
{
    (void)state;
    struct fixture f;
    with_server(&f);
    struct client *c = client_open(&f);
    send_text(c, "GET /hold HTTP/1.1\r\n" HOST "\r\nPOST /2 HTTP/1.1\r\n" HOST "Content-Length: 1\r\n\r\nx"
                 "GET /early HTTP/1.1\r\n" HOST "\r\nGET /4 HTTP/1.1\r\n" HOST "Connection: close\r\n\r\n");
    await(&f, REQUEST, 1);
    settle(&f);
    assert_int_equal(count(&f, REQUEST), 1); /* the second waits for the first answer */
    fixture_call(&f, respond_held, "first");
    expect(c, 200, "first");
    expect(c, 200, "POST /2? 2:x");
    expect(c, 200, "early");
    expect(c, 200, "GET /4? 2:");
    expect_eof(c);
    client_close(c);
    fixture_stop(&f);
}

struct burst {
    struct client *client;
    unsigned n;
};

static void *send_burst(void *arg)
{
    struct burst *b = arg;
    for (unsigned i = 0; i < b->n; i++) {
        if (!send_some(b->client, SLICE_LITERAL("GET /early HTTP/1.1\r\n" HOST "\r\n"))) {
            break;
        }
    }
    return NULL;
}

static void a_burst_of_pipelined_requests_needs_no_stack(void **state)
{
    (void)state;
    struct fixture f;
    with_server(&f);
    struct burst b = {client_open(&f), 10000};
    pthread_t sender;
    assert_int_equal(pthread_create(&sender, NULL, send_burst, &b), 0);
    for (unsigned i = 0; i < b.n; i++) {
        expect(b.client, 200, "early");
    }
    pthread_join(sender, NULL);
    client_close(b.client);
    fixture_stop(&f);
}

static void a_burst_waiting_behind_a_running_exchange_is_answered(void **state)
{
    (void)state;
    struct fixture f;
    with_server(&f);
    struct burst b = {client_open(&f),
                      10000}; /* 330 kB: more than is kept, so reading has to pause and go on */
    send_text(b.client, "GET /hold HTTP/1.1\r\n" HOST "\r\n");
    await(&f, REQUEST, 1);
    pthread_t sender;
    assert_int_equal(pthread_create(&sender, NULL, send_burst, &b), 0);
    settle(&f);
    fixture_call(&f, respond_held, "held");
    expect(b.client, 200, "held");
    for (unsigned i = 0; i < b.n; i++) {
        expect(b.client, 200, "early");
    }
    pthread_join(sender, NULL);
    client_close(b.client);
    fixture_stop(&f);
}

static void each_defect_is_reported_answered_and_closes(void **state)
{
    (void)state;
    static const struct {
        const char *request;
        int status;
    } cases[] = {
        {"GET / HTTP/1.1\r\n\r\n", 400},
        {"GET / HTTP/1.1\nHost: a\n\n", 400},
        {"GET / HTTP/1.1\r\n" HOST "X: a\r\n b\r\n\r\n", 400},
        {"\r\n\r\nGET / HTTP/1.1\r\n" HOST "\r\n", 400},
        {"POST / HTTP/1.1\r\n" HOST "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
        {"GET / HTTP/2.0\r\n" HOST "\r\n", 505},
        {"CONNECT a:1 HTTP/1.1\r\n" HOST "\r\n", 501},
        {"GET / HTTP/1.1\r\n" HOST "Connection: upgrade\r\nUpgrade: websocket\r\n\r\n", 501},
        {"POST / HTTP/1.1\r\n" HOST "Expect: tea\r\nContent-Length: 3\r\n\r\n", 417},
    };
    struct fixture f;
    with_server(&f);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct client *c = client_open(&f);
        struct answer a;
        send_text(c, cases[i].request);
        send_text(c, "GET /smuggled HTTP/1.1\r\n" HOST "\r\n");
        read_answer(c, &a);
        assert_int_equal(a.status, cases[i].status);
        assert_true(a.complete && !a.keep && a.body.len > 0);
        buf_free(&a.body);
        expect_eof(c);
        client_close(c);
    }
    assert_int_equal(count(&f, REQUEST), 0);
    fixture_stop(&f);
}

static void heads_beyond_their_limits_are_431(void **state)
{
    (void)state;
    struct fixture f;
    with_server(&f);
    struct client *c = client_open(&f);
    struct answer a;
    send_text(c, "GET / HTTP/1.1\r\n" HOST "X: ");
    for (int i = 0; i < 9; i++) {
        send_some(c, slice_of(f.big, 0));
        char pad[1024];
        memset(pad, 'x', sizeof pad);
        send_some(c, slice_of(pad, sizeof pad));
    }
    read_answer(c, &a);
    assert_int_equal(a.status, 431);
    buf_free(&a.body);
    client_close(c);
    c = client_open(&f);
    send_text(c, "GET / HTTP/1.1\r\n" HOST);
    for (int i = 0; i < 32; i++) {
        send_text(c, "X: y\r\n");
    }
    send_text(c, "\r\n");
    read_answer(c, &a);
    assert_int_equal(a.status, 431);
    buf_free(&a.body);
    client_close(c);
    fixture_stop(&f);
}

static void body_errors(void **state)
{
    (void)state;
    struct fixture f;
    with_server(&f);
    struct client *c = client_open(&f);
    send_text(c, "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n5\r\nhelloX");
    expect(c, 499, "body");
    expect_eof(c);
    await(&f, BODY_ERROR, 1);
    assert_int_equal(f.body_error, HAPAX_E_SYNTAX);
    client_close(c);
    c = client_open(&f);
    send_text(c, "POST / HTTP/1.1\r\n" HOST "Content-Length: 9\r\n\r\nhello");
    shutdown(c->fd, SHUT_WR);
    expect(c, 499, "body");
    expect_eof(c);
    await(&f, BODY_ERROR, 1);
    assert_int_equal(f.body_error, HAPAX_E_CLOSED);
    client_close(c);
    assert_int_equal(count(&f, BODY_END), 0);
    fixture_stop(&f);
}

/* --- 100-continue. --- */

static void go_ahead_is_sent_when_the_body_is_wanted(void **state)
{
    (void)state;
    struct fixture f;
    with_server(&f);
    struct client *c = client_open(&f);
    send_text(c, "POST /pause HTTP/1.1\r\n" HOST "Expect: 100-continue\r\nContent-Length: 5\r\n\r\n");
    await(&f, REQUEST, 1);
    fixture_call(&f, read_held, NULL);
    expect(c, 100, "");
    send_text(c, "hello");
    expect(c, 200, "POST /pause? 3:hello");
    /* Not when the client did not wait. */
    send_text(c, "POST / HTTP/1.1\r\n" HOST "Expect: 100-continue\r\nContent-Length: 5\r\n\r\nhello");
    expect(c, 200, "POST /? 3:hello");
    /* Nor when there is no body, nor for HTTP/1.0. */
    send_text(c, "POST / HTTP/1.1\r\n" HOST "Expect: 100-continue\r\nContent-Length: 0\r\n\r\n");
    expect(c, 200, "POST /? 3:");
    send_text(c, "POST /pause HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n");
    await(&f, REQUEST, 4);
    fixture_call(&f, read_held, NULL);
    send_text(c, "hello");
    expect(c, 200, "POST /pause? 2:hello");
    client_close(c);
    fixture_stop(&f);
}

static void an_answer_without_go_ahead_closes(void **state)
{
    (void)state;
    struct fixture f;
    with_server(&f);
    struct client *c = client_open(&f);
    struct answer a;
    send_text(c, "POST /early HTTP/1.1\r\n" HOST "Expect: 100-continue\r\nContent-Length: 5\r\n\r\n");
    read_answer(c, &a);
    assert_true(a.status == 200 && a.complete && !a.keep);
    buf_free(&a.body);
    expect_eof(c);
    client_close(c);
    fixture_stop(&f);
}

/* --- Bodies nobody reads. --- */

static void a_small_unread_body_is_skipped(void **state)
{
    (void)state;
    struct fixture f;
    with_server(&f);
    struct client *c = client_open(&f);
    send_text(c, "POST /early HTTP/1.1\r\n" HOST "Content-Length: 5\r\n\r\n");
    expect(c, 200, "early"); /* before the body came */
    send_text(c, "helloGET /early HTTP/1.1\r\n" HOST "\r\n");
    expect(c, 200, "early");
    send_text(c, "POST /early HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n");
    send_text(c, "GET /x HTTP/1.1\r\n" HOST "\r\n");
    expect(c, 200, "early");
    expect(c, 200, "GET /x? 1:");
    client_close(c);
    fixture_stop(&f);
}

static void *send_megabyte(void *arg)
{
    struct burst *b = arg;
    static const char zeros[PIECE_BYTES];
    for (unsigned i = 0; i < b->n && send_some(b->client, slice_of(zeros, sizeof zeros)); i++) {
    }
    return NULL;
}

static void a_large_unread_body_closes_but_the_answer_arrives(void **state)
{
    (void)state;
    struct fixture f;
    with_server(&f);
    struct burst b = {client_open(&f), 32};
    struct answer a;
    send_text(b.client, "POST /early HTTP/1.1\r\n" HOST "Content-Length: 524288\r\n\r\n");
    pthread_t sender;
    assert_int_equal(pthread_create(&sender, NULL, send_megabyte, &b), 0);
    pthread_join(sender, NULL); /* everything was taken, so there is no RST that could eat the answer */
    read_answer(b.client, &a);
    assert_true(a.status == 200 && a.complete && !a.keep);
    assert_true(slice_equal(buf_slice(&a.body), SLICE_LITERAL("early")));
    buf_free(&a.body);
    expect_eof(b.client);
    client_close(b.client);
    fixture_stop(&f);
}

/* --- Answers out. --- */

static void answers_without_a_body_keep_the_connection_in_step(void **state)
{
    (void)state;
    struct fixture f;
    with_server(&f);
    struct client *c = client_open(&f);
    struct answer a;
    send_text(c, "HEAD /early HTTP/1.1\r\n" HOST "\r\n");
    read_answer_to(c, &a, true);
    assert_true(a.status == 200 && has(&a, "Content-Length: 5\r\n") && a.body.len == 0);
    send_text(c, "GET /204 HTTP/1.1\r\n" HOST "\r\n");
    read_answer(c, &a);
    assert_true(a.status == 204 && !has(&a, "Content-Length"));
    send_text(c, "GET /304 HTTP/1.1\r\n" HOST "\r\n");
    read_answer(c, &a);
    assert_true(a.status == 304 && has(&a, "Content-Length: 4\r\n"));
    send_text(c, "HEAD /length HTTP/1.1\r\n" HOST "\r\n");
    read_answer_to(c, &a, true);
    assert_true(has(&a, "Content-Length: 6\r\n"));
    send_text(c, "HEAD /stream HTTP/1.1\r\n" HOST "\r\n");
    read_answer_to(c, &a, true);
    assert_true(has(&a, "X-Stream: yes\r\n"));
    send_text(c, "GET /early HTTP/1.1\r\n" HOST "\r\n");
    read_answer(c, &a);
    assert_true(a.status == 200 && a.complete && has(&a, "\r\nDate: "));
    assert_int_equal(c->len, 0);
    buf_free(&a.body);
    client_close(c);
    fixture_stop(&f);
}

static void streamed_answers_are_framed_for_the_clients_version(void **state)
{
    (void)state;
    struct fixture f;
    with_server(&f);
    struct answer a;
    exchange(&f, "GET /stream HTTP/1.1\r\n" HOST "\r\n", &a, false);
    assert_true(a.complete && a.keep && has(&a, "Transfer-Encoding: chunked\r\n") && a.body.len == 6);
    buf_free(&a.body);
    exchange(&f, "GET /length HTTP/1.1\r\n" HOST "\r\n", &a, false);
    assert_true(a.complete && a.keep && has(&a, "Content-Length: 6\r\n") && a.body.len == 6);
    buf_free(&a.body);
    exchange(&f, "GET /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", &a, false);
    assert_true(a.complete && !a.keep && !has(&a, "chunked") && has(&a, "Connection: close\r\n"));
    assert_true(slice_equal(buf_slice(&a.body), SLICE_LITERAL("onetwo")));
    buf_free(&a.body);
    exchange(&f, "GET /length HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", &a, false);
    assert_true(a.complete && has(&a, "Connection: keep-alive\r\n"));
    buf_free(&a.body);
    exchange(&f, "GET /early HTTP/1.0\r\n\r\n", &a, false);
    assert_true(a.complete && !a.keep && has(&a, "Connection: close\r\n"));
    buf_free(&a.body);
    fixture_stop(&f);
}

static void an_answer_that_breaks_off_is_not_taken_for_complete(void **state)
{
    (void)state;
    static const char *const paths[] = {"/abort", "/short", "/long"};
    struct fixture f;
    with_server(&f);
    for (size_t i = 0; i < 3; i++) {
        char request[64];
        struct answer a;
        snprintf(request, sizeof request, "GET %s HTTP/1.1\r\n" HOST "\r\n", paths[i]);
        exchange(&f, request, &a, false);
        assert_false(a.complete);
        buf_free(&a.body);
    }
    assert_int_equal(count(&f, GONE), 0); /* the handler knows */
    fixture_stop(&f);
}

static void a_borrowed_body_is_released_once_sent(void **state)
{
    (void)state;
    struct fixture f;
    with_server(&f);
    struct client *c = client_open(&f);
    struct answer a;
    send_text(c, "GET /big HTTP/1.1\r\n" HOST "\r\n");
    read_answer(c, &a);
    assert_true(a.complete && a.body.len == PIECE_BYTES * 64);
    buf_free(&a.body);
    await(&f, RELEASED, 1);
    send_text(c, "GET /big HTTP/1.1\r\n" HOST "\r\n");
    await(&f, REQUEST, 2);
    client_close(c); /* unread: RST, and the memory is released all the same */
    await(&f, RELEASED, 2);
    await(&f, CLOSED, 2);
    fixture_stop(&f);
}

static void a_client_that_does_not_read_holds_the_handler_back(void **state)
{
    (void)state;
    struct fixture f;
    with_server(&f);
    struct client *c = client_open(&f);
    struct answer a;
    send_text(c, "GET /flood HTTP/1.1\r\n" HOST "\r\n");
    await(&f, REQUEST, 1);
    settle(&f);
    assert_int_equal(count(&f, CLOSED), 0);
    /* The kernel's buffers take some megabytes, ours no more than the mark and one write. */
    assert_true(f.flood_before_full > 0 && f.flood_before_full < FLOOD_BYTES);
    read_answer(c, &a);
    assert_true(a.complete && a.body.len == FLOOD_BYTES);
    assert_true(count(&f, WRITABLE) > 0);
    buf_free(&a.body);
    client_close(c);
    fixture_stop(&f);
}

static int set_up(void **state)
{
    (void)state;
    return net_global_init(NULL);
}

static int tear_down(void **state)
{
    (void)state;
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bodies_arrive_by_length_and_chunked),
        cmocka_unit_test(pipelined_requests_are_answered_in_order),
        cmocka_unit_test(a_burst_of_pipelined_requests_needs_no_stack),
        cmocka_unit_test(a_burst_waiting_behind_a_running_exchange_is_answered),
        cmocka_unit_test(each_defect_is_reported_answered_and_closes),
        cmocka_unit_test(heads_beyond_their_limits_are_431),
        cmocka_unit_test(body_errors),
        cmocka_unit_test(go_ahead_is_sent_when_the_body_is_wanted),
        cmocka_unit_test(an_answer_without_go_ahead_closes),
        cmocka_unit_test(a_small_unread_body_is_skipped),
        cmocka_unit_test(a_large_unread_body_closes_but_the_answer_arrives),
        cmocka_unit_test(answers_without_a_body_keep_the_connection_in_step),
        cmocka_unit_test(streamed_answers_are_framed_for_the_clients_version),
        cmocka_unit_test(an_answer_that_breaks_off_is_not_taken_for_complete),
        cmocka_unit_test(a_borrowed_body_is_released_once_sent),
        cmocka_unit_test(a_client_that_does_not_read_holds_the_handler_back),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
