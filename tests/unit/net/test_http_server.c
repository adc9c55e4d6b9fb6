/* The server as its clients and its handler see it: order, framing, endings, back-pressure, time-outs, drain. What
 * arbitrary and cut-up bytes do to it stands in test_http_bytes.c. */
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
    assert_int_equal(f.body_error, HAPAX_E_SYNTAX);
    client_close(c);
    c = client_open(&f);
    send_text(c, "POST / HTTP/1.1\r\n" HOST "Content-Length: 9\r\n\r\nhello");
    shutdown(c->fd, SHUT_WR);
    expect(c, 499, "body");
    expect_eof(c);
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

/* --- Endings. --- */

static void a_half_closed_client_gets_its_answer(void **state)
{
    (void)state;
    struct fixture f;
    with_server(&f);
    struct client *c = client_open(&f);
    send_text(c, "GET /hold HTTP/1.1\r\n" HOST "\r\nGET /x HTTP/1.1\r\n" HOST "\r\n");
    shutdown(c->fd, SHUT_WR);
    await(&f, REQUEST, 1);
    settle(&f);
    fixture_call(&f, respond_held, "late");
    expect(c, 200, "late");
    expect(c, 200, "GET /x? 1:");
    expect_eof(c);
    client_close(c);
    assert_int_equal(count(&f, GONE), 0);
    fixture_stop(&f);
}

static void a_reset_is_noticed_while_the_exchange_runs(void **state)
{
    (void)state;
    struct fixture f;
    with_server(&f);
    struct client *c = client_open(&f);
    struct linger at_once = {.l_onoff = 1};
    send_text(c, "GET /hold HTTP/1.1\r\n" HOST "\r\n");
    await(&f, REQUEST, 1);
    setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    client_close(c);
    await(&f, GONE, 1);
    await(&f, CLOSED, 1);
    fixture_stop(&f);
}

/* --- Time. --- */

static void a_head_that_drips_is_cut_off(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    f.options.head_ms = 200;
    fixture_start(&f);
    struct client *c = client_open(&f);
    struct answer a;
    send_text(c, "GET / HTTP/1.1\r\n");
    for (int i = 0; i < 1000 && count(&f, DEFECT) == 0; i++) {
        send_some(c, SLICE_LITERAL("X")); /* never silent for long, never done */
        usleep(20 * 1000);
    }
    read_answer(c, &a);
    assert_true(a.status == 408 && a.complete && !a.keep);
    buf_free(&a.body);
    client_close(c);
    fixture_stop(&f);
}

/* Only the deadline a test is about is short in it: a busy machine may well take as long between two of our lines. */
static void connections_without_a_request_are_closed(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    f.options.idle_ms = 100;
    fixture_start(&f);
    struct client *c = client_open(&f);
    expect_eof(c); /* never a byte */
    client_close(c);
    for (bool answered = false;
         !answered;) { /* again, should the machine have slept between connect and send */
        c = client_open(&f);
        answered = send_some(c, SLICE_LITERAL("GET / HTTP/1.1\r\n" HOST "\r\n")) && receive(c);
        while (answered && receive(c)) {
        }
        client_close(c); /* kept alive, then silent, then closed */
    }
    assert_true(count(&f, CLOSED) > 0);
    fixture_stop(&f);
}

static void a_body_that_stalls_is_reported(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    f.options.body_ms = 100;
    fixture_start(&f);
    struct client *c = client_open(&f);
    send_text(c, "POST / HTTP/1.1\r\n" HOST "Content-Length: 5\r\n\r\nhel");
    expect(c, 499, "body");
    assert_int_equal(f.body_error, HAPAX_E_TIMEOUT);
    expect_eof(c);
    client_close(c);
    fixture_stop(&f);
}

static void an_answer_that_nobody_takes_is_given_up(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    f.options.send_ms = 100;
    fixture_start(&f);
    struct client *c = client_open(&f);
    send_text(c, "GET /flood HTTP/1.1\r\n" HOST "\r\n");
    await(&f, GONE, 1);
    await(&f, CLOSED, 1);
    client_close(c);
    fixture_stop(&f);
}

static void a_running_exchange_has_no_deadline_of_the_connections(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    f.options.body_ms = f.options.send_ms = f.options.head_ms = 50;
    fixture_start(&f);
    struct client *held = client_open(&f);
    send_text(held, "GET /hold HTTP/1.1\r\n" HOST "\r\n");
    await(&f, REQUEST, 1);
    for (unsigned i = 1; i <= 4; i++) { /* each of these takes as long as a deadline */
        struct client *late = client_open(&f);
        send_text(late, "G");
        await(&f, DEFECT, i);
        client_close(late);
    }
    fixture_call(&f, respond_held, "still here");
    expect(held, 200, "still here");
    client_close(held);
    fixture_stop(&f);
}

/* --- Many connections. --- */

static void idle_connections_make_room_for_new_ones(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    f.options.connections_max = 2;
    fixture_start(&f);
    struct client *busy = client_open(&f);
    struct client *idle = client_open(&f);
    send_text(busy, "GET /hold HTTP/1.1\r\n" HOST "\r\n");
    send_text(idle, "GET / HTTP/1.1\r\n" HOST "\r\n");
    expect(idle, 200, "GET /? 1:");
    await(&f, REQUEST, 2);
    struct client *third = client_open(&f);
    expect_eof(idle);
    send_text(third, "GET /hold HTTP/1.1\r\n" HOST "\r\n");
    await(&f, REQUEST, 3);
    client_close(idle);
    /* Nobody is idle now: the fourth waits in the listener until there is room. */
    struct client *fourth = client_open(&f);
    send_text(fourth, "GET /4 HTTP/1.1\r\n" HOST "\r\n");
    settle(&f);
    uint32_t open = 0;
    fixture_call(&f, count_connections, &open);
    assert_int_equal(open, 2);
    assert_int_equal(count(&f, REQUEST), 3);
    fixture_call(&f, respond_held, "third");
    expect(third, 200, "third");
    expect(fourth, 200, "GET /4? 1:");
    client_close(busy);
    client_close(third);
    client_close(fourth);
    fixture_stop(&f);
}

static void thousands_of_idle_connections_stay_usable(void **state)
{
    (void)state;
    enum { MANY = 5000 };
    if (net_descriptor_limit() < 2 * MANY + 100) {
        print_message("skipped: the hard limit of open descriptors is below %d\n", 2 * MANY + 100);
        skip();
    }
    struct fixture f;
    with_server(&f);
    int *fds = calloc(MANY, sizeof *fds);
    assert_non_null(fds);
    static const char request[] = "GET /early HTTP/1.1\r\n" HOST "\r\n";
    for (int i = 0; i < MANY; i++) {
        fds[i] = connect_port(f.port);
        assert_int_equal(send(fds[i], request, sizeof request - 1, 0), sizeof request - 1);
    }
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < MANY; i++) {
            char answer[512];
            ssize_t n = recv(fds[i], answer, sizeof answer, 0);
            assert_true(n > 5 && memcmp(answer + n - 5, "early", 5) == 0);
            if (round == 0) {
                assert_int_equal(send(fds[i], request, sizeof request - 1, 0), sizeof request - 1);
            }
        }
    }
    uint32_t open = 0;
    fixture_call(&f, count_connections, &open);
    assert_int_equal(open, MANY);
    for (int i = 0; i < MANY; i++) {
        close(fds[i]);
    }
    free(fds);
    fixture_stop(&f);
}

/* --- Drain and close. --- */

static void drain(struct fixture *f, void *arg)
{
    (void)arg;
    http_server_drain(f->server);
}

static void drain_ends_idle_connections_and_lets_running_exchanges_finish(void **state)
{
    (void)state;
    struct fixture f;
    with_server(&f);
    struct client *idle = client_open(&f);
    struct client *busy = client_open(&f);
    struct answer a;
    send_text(idle, "GET /early HTTP/1.1\r\n" HOST "\r\n");
    expect(idle, 200, "early");
    send_text(busy, "GET /hold HTTP/1.1\r\n" HOST "\r\n");
    await(&f, REQUEST, 2);
    fixture_call(&f, drain, NULL);
    expect_eof(idle);
    int late = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons(f.port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    settle(&f);
    assert_int_equal(connect(late, (struct sockaddr *)&to, sizeof to), -1);
    close(late);
    fixture_call(&f, respond_held, "last");
    read_answer(busy, &a);
    assert_true(a.complete && !a.keep && has(&a, "Connection: close\r\n"));
    buf_free(&a.body);
    expect_eof(busy);
    client_close(idle);
    client_close(busy);
    fixture_stop(&f);
}

static void close_ends_running_exchanges_by_gone(void **state)
{
    (void)state;
    struct fixture f;
    with_server(&f);
    struct client *c = client_open(&f);
    struct client *sending = client_open(&f);
    send_text(c, "GET /hold HTTP/1.1\r\n" HOST "\r\n");
    send_text(sending, "POST / HTTP/1.1\r\n" HOST "Content-Length: 5\r\n\r\nhel");
    await(&f, REQUEST, 2);
    fixture_call(&f, close_server, NULL);
    await(&f, SERVER_CLOSED, 1);
    assert_int_equal(count(&f, GONE), 2);
    assert_int_equal(count(&f, CLOSED), 2);
    loop_stop(f.loop);
    pthread_join(f.thread, NULL);
    loop_destroy(f.loop);
    free(f.big);
    client_close(c);
    client_close(sending);
}

/* --- Addresses. --- */

static void addresses(void **state)
{
    (void)state;
    static const char *const bad[] = {"",         "8080",    "localhost:80", "1.2.3.4:70000",
                                      "1.2.3.4:", "[::1:80", "::1",          "1.2.3.4:-1"};
    struct fixture f;
    fixture_init(&f);
    hapax_error err;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        f.options.address = bad[i];
        assert_int_equal(http_server_open(&f.server, f.loop, &f.options, &err), HAPAX_E_ARGUMENT);
        assert_null(f.server);
    }
    f.options.address = ":0"; /* IPv4 clients reach it, whether IPv6 is there or not */
    fixture_start(&f);
    struct answer a;
    exchange(&f, "GET / HTTP/1.1\r\n" HOST "\r\n", &a, false);
    assert_int_equal(a.status, 200);
    buf_free(&a.body);
    char taken[32];
    snprintf(taken, sizeof taken, "127.0.0.1:%d", f.port);
    struct http_server_options o = f.options;
    struct http_server *second = NULL;
    struct loop *other = NULL;
    o.address = taken;
    assert_int_equal(loop_create(&other, NULL), 0);
    assert_int_equal(http_server_open(&second, other, &o, &err), HAPAX_E_SYSTEM);
    assert_int_equal(err.system, EADDRINUSE);
    loop_destroy(other);
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
    net_global_cleanup();
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
        cmocka_unit_test(a_half_closed_client_gets_its_answer),
        cmocka_unit_test(a_reset_is_noticed_while_the_exchange_runs),
        cmocka_unit_test(a_head_that_drips_is_cut_off),
        cmocka_unit_test(connections_without_a_request_are_closed),
        cmocka_unit_test(a_body_that_stalls_is_reported),
        cmocka_unit_test(an_answer_that_nobody_takes_is_given_up),
        cmocka_unit_test(a_running_exchange_has_no_deadline_of_the_connections),
        cmocka_unit_test(idle_connections_make_room_for_new_ones),
        cmocka_unit_test(thousands_of_idle_connections_stay_usable),
        cmocka_unit_test(drain_ends_idle_connections_and_lets_running_exchanges_finish),
        cmocka_unit_test(close_ends_running_exchanges_by_gone),
        cmocka_unit_test(addresses),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
