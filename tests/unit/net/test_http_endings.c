/* How connections, exchanges and servers end: half-closed and reset clients, deadlines, too many connections, drain,
 * close; and where a server listens. */
#include "unit/net/http_fixture.h"

#define HOST "Host: a\r\n"

static void with_server(struct fixture *f)
{
    fixture_init(f);
    fixture_start(f);
}

/* --- Clients that leave. --- */

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

static void done_with_held(struct fixture *f, void *arg)
{
    (void)arg;
    http_exchange_done(f->held);
}

static void an_exchange_outlives_its_client_until_it_is_done(void **state)
{
    (void)state;
    struct fixture f;
    with_server(&f);
    struct client *c = client_open(&f);
    struct linger at_once = {.l_onoff = 1};
    send_text(c, "GET /keep HTTP/1.1\r\n" HOST "\r\n");
    await(&f, REQUEST, 1);
    setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    client_close(c);
    await(&f, GONE, 1);
    fixture_call(&f, respond_held, "to nobody"); /* ignored; the exchange is still there */
    settle(&f);
    assert_int_equal(count(&f, CLOSED), 0);
    fixture_call(&f, done_with_held, NULL);
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
    await(&f, BODY_ERROR, 1);
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
    assert_true(a.complete && !a.keep && strstr(a.head, "Connection: close\r\n") != NULL);
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
    struct client *c = client_open(&f);
    send_text(c, "GET / HTTP/1.1\r\n" HOST "\r\n");
    expect(c, 200, "GET /? 1:");
    client_close(c);
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
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_half_closed_client_gets_its_answer),
        cmocka_unit_test(a_reset_is_noticed_while_the_exchange_runs),
        cmocka_unit_test(an_exchange_outlives_its_client_until_it_is_done),
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
