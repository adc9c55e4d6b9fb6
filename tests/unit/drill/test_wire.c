/* Shots against a socket of this very thread: the kernel holds what is sent meanwhile, so every step can be seen. */
#include "drill/wire.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#define PATIENCE_MS 60000
#define REQUEST     "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody"

static int listener = -1;
static struct wire wire;
static struct wire_place place;

static int set_up(void **state)
{
    (void)state;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    char url[64];
    struct slice target;
    listener = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&at, len), 0);
    assert_int_equal(listen(listener, 64), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&at, &len), 0);
    snprintf(url, sizeof url, "http://127.0.0.1:%u/x?y", ntohs(at.sin_port));
    assert_int_equal(wire_place_open(&place, &target, slice_text(url), NULL), 0);
    assert_true(slice_equal(target, SLICE_LITERAL("/x?y")));
    wire = (struct wire){.live_count = 0};
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    assert_int_equal(wire.live_count, 0);
    close(listener);
    return 0;
}

static void start(struct shot *s, struct slice bytes, enum drill_delivery delivery)
{
    shot_start(&wire, s, &place, bytes, delivery, false, PATIENCE_MS);
}

static void drive(struct shot *s, enum shot_state state)
{
    shots_drive(&wire, &s, 1, state);
}

static void go(struct shot *s)
{
    shots_go(&s, 1);
}

/* What is there, without waiting. */
static size_t have(int fd, char *out, size_t size)
{
    size_t used = 0;
    ssize_t n;
    while (used < size && (n = recv(fd, out + used, size - used, MSG_DONTWAIT)) > 0) {
        used += (size_t)n;
    }
    return used;
}

/* Until the end of the stream; its bytes. */
static size_t read_to_end(int fd, char *out, size_t size)
{
    size_t used = 0;
    ssize_t n;
    while (used < size && (n = recv(fd, out + used, size - used, 0)) > 0) {
        used += (size_t)n;
    }
    assert_true(n == 0); /* an end, not a reset */
    return used;
}

static void the_last_byte_stays_here_until_it_is_let_go(void **state)
{
    (void)state;
    char bytes[256];
    struct shot shots[3];
    struct shot *all[3] = {&shots[0], &shots[1], &shots[2]};
    int fds[3];
    for (int i = 0; i < 3; i++) {
        start(all[i], SLICE_LITERAL(REQUEST), DRILL_READ);
    }
    shots_drive(&wire, all, 3, SHOT_READY);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(all[i]->state, SHOT_READY);
        fds[i] = accept(listener, NULL, NULL);
        assert_int_equal(have(fds[i], bytes, sizeof bytes), sizeof REQUEST - 2);
        assert_memory_equal(bytes, REQUEST, sizeof REQUEST - 2);
    }
    shots_go(all, 3);
    shots_drive(&wire, all, 3, SHOT_OUT);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(have(fds[i], bytes, sizeof bytes), 1);
        assert_int_equal(bytes[0], 'y');
        close(fds[i]);
        shot_free(&wire, all[i]);
    }
}

/* Send an answer to one shot and have it read. */
static void exchange(struct shot *s, struct slice answer, bool close_after)
{
    char bytes[256];
    start(s, SLICE_LITERAL(REQUEST), DRILL_READ);
    drive(s, SHOT_READY);
    int fd = accept(listener, NULL, NULL);
    go(s);
    drive(s, SHOT_OUT);
    assert_int_equal(have(fd, bytes, sizeof bytes), sizeof REQUEST - 1);
    assert_int_equal(send(fd, answer.ptr, answer.len, MSG_NOSIGNAL), answer.len);
    if (close_after) {
        shutdown(fd, SHUT_WR);
    }
    drive(s, SHOT_DONE);
    close(fd);
}

static void answers_are_read_in_every_framing(void **state)
{
    (void)state;
    static const struct {
        const char *answer;
        bool close;
        int status;
        const char *body;
    } cases[] = {
        {"HTTP/1.1 201 Created\r\nContent-Length: 5\r\n\r\nhello", false, 201, "hello"},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n", false, 200,
         "hello"},
        {"HTTP/1.0 200 OK\r\n\r\nhello", true, 200, "hello"},
        {"HTTP/1.1 204 No Content\r\n\r\n", false, 204, ""},
        {"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 409 Conflict\r\nContent-Length: 0\r\n\r\n", false, 409, ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct shot s;
        exchange(&s, slice_text(cases[i].answer), cases[i].close);
        assert_int_equal(s.result, WIRE_ANSWERED);
        assert_int_equal(s.head.status, cases[i].status);
        assert_true(slice_equal(buf_slice(&s.body), slice_text(cases[i].body)));
        shot_free(&wire, &s);
    }
}

static void a_broken_answer_is_no_answer(void **state)
{
    (void)state;
    static const struct {
        const char *answer;
        enum wire_result result;
    } cases[] = {
        {"", WIRE_BROKEN},
        {"HTTP/1.1 201 Created\r\nContent-Length: 50\r\n\r\nhello", WIRE_BROKEN},
        {"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhe", WIRE_BROKEN},
        {"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", WIRE_UNREADABLE},
        {"HTTP/1.1 201 Created\r\nContent-Length: 99999999\r\n\r\n", WIRE_UNREADABLE},
        {"SSH-2.0-OpenSSH\r\n", WIRE_UNREADABLE},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct shot s;
        exchange(&s, slice_text(cases[i].answer), true);
        assert_int_equal(s.result, cases[i].result);
        assert_true(s.detail[0] != '\0');
        shot_free(&wire, &s);
    }
}

/* The other end sends without an end, from a thread: the shot has to give up by itself. */
static void *send_without_end(void *arg)
{
    static char bytes[1 << 16];
    int fd = *(int *)arg;
    memset(bytes, 'a', sizeof bytes);
    while (send(fd, bytes, sizeof bytes, MSG_NOSIGNAL) > 0) {
    }
    return NULL;
}

static void an_endless_line_and_an_endless_body_end(void **state)
{
    (void)state;
    static const struct slice beginnings[] = {{"HTTP/1.1 200 ", 13}, {"HTTP/1.0 200 OK\r\n\r\n", 19}};
    for (size_t i = 0; i < 2; i++) {
        struct shot s;
        pthread_t sender;
        start(&s, SLICE_LITERAL(REQUEST), DRILL_READ);
        drive(&s, SHOT_READY);
        int fd = accept(listener, NULL, NULL);
        go(&s);
        assert_int_equal(send(fd, beginnings[i].ptr, beginnings[i].len, 0), beginnings[i].len);
        assert_int_equal(pthread_create(&sender, NULL, send_without_end, &fd), 0);
        drive(&s, SHOT_DONE);
        pthread_join(sender, NULL);
        assert_int_equal(s.result, WIRE_UNREADABLE);
        close(fd);
        shot_free(&wire, &s);
    }
}

static void a_lost_reply_leaves_the_whole_request_there(void **state)
{
    (void)state;
    char bytes[256];
    struct shot s;
    start(&s, SLICE_LITERAL(REQUEST), DRILL_REPLY_LOST);
    drive(&s, SHOT_READY);
    go(&s);
    drive(&s, SHOT_OUT);
    assert_int_equal(s.state, SHOT_OUT);
    shot_lose(&wire, &s);
    assert_int_equal(s.result, WIRE_LOST);
    int fd = accept(listener, NULL, NULL);
    assert_int_equal(read_to_end(fd, bytes, sizeof bytes), sizeof REQUEST - 1);
    close(fd);
    shot_free(&wire, &s);
}

static void a_lost_request_ends_where_it_was_cut(void **state)
{
    (void)state;
    char bytes[256];
    struct shot s;
    struct slice cut = slice_of(REQUEST, sizeof REQUEST - 3);
    start(&s, cut, DRILL_REQUEST_LOST);
    drive(&s, SHOT_READY);
    go(&s);
    drive(&s, SHOT_OUT);
    shot_lose(&wire, &s);
    int fd = accept(listener, NULL, NULL);
    assert_int_equal(read_to_end(fd, bytes, sizeof bytes), cut.len);
    close(fd);
    shot_free(&wire, &s);
}

static void an_answer_before_the_last_byte_is_taken(void **state)
{
    (void)state;
    static const char answer[] = "HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n";
    struct shot s;
    start(&s, SLICE_LITERAL(REQUEST), DRILL_READ);
    drive(&s, SHOT_READY);
    int fd = accept(listener, NULL, NULL);
    assert_int_equal(send(fd, answer, sizeof answer - 1, 0), sizeof answer - 1);
    close(fd); /* with bytes unread: a reset follows the answer */
    go(&s);
    drive(&s, SHOT_DONE);
    assert_true(s.result == WIRE_ANSWERED || s.result == WIRE_BROKEN);
    shot_free(&wire, &s);
}

static void nobody_there_is_told_apart_from_no_answer(void **state)
{
    (void)state;
    struct shot s;
    close(listener);
    start(&s, SLICE_LITERAL(REQUEST), DRILL_READ);
    drive(&s, SHOT_DONE);
    assert_int_equal(s.result, WIRE_NO_CONNECTION);
    shot_free(&wire, &s);
    listener = socket(AF_INET, SOCK_STREAM, 0);
}

static void a_deadline_and_an_interruption_end_a_shot(void **state)
{
    (void)state;
    static volatile sig_atomic_t stop;
    struct shot s;
    shot_start(&wire, &s, &place, SLICE_LITERAL(REQUEST), DRILL_READ, false, 1);
    drive(&s, SHOT_DONE);
    assert_int_equal(s.result, WIRE_TIMEOUT);
    shot_free(&wire, &s);
    wire.stop = &stop;
    start(&s, SLICE_LITERAL(REQUEST), DRILL_READ);
    drive(&s, SHOT_READY);
    stop = 1;
    drive(&s, SHOT_DONE);
    assert_int_equal(s.result, WIRE_STOPPED);
    shot_free(&wire, &s);
}

static void urls_are_cut_up_or_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"",
                                      "localhost:3000/x",
                                      "ftp://localhost/x",
                                      "http://",
                                      "http://:80/",
                                      "http://user:pass@localhost/",
                                      "http://localhost:0/",
                                      "http://localhost:65536/",
                                      "http://localhost:8x/",
                                      "http://localhost/a b",
                                      "http://localhost/#x",
                                      "http://[::1/",
                                      "http://local host/"};
    struct wire_place p;
    struct slice target;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        hapax_error err = {0};
        assert_int_equal(wire_place_open(&p, &target, slice_text(bad[i]), &err), HAPAX_E_ARGUMENT);
        assert_true(err.message[0] != '\0');
    }
    assert_int_equal(wire_place_open(&p, &target, SLICE_LITERAL("https://127.0.0.1"), NULL), 0);
    assert_true(p.tls && p.loopback && p.port == 443 && target.len == 0);
    assert_int_equal(wire_place_open(&p, &target, SLICE_LITERAL("http://192.0.2.1:8080?q=1"), NULL), 0);
    assert_true(!p.tls && !p.loopback && p.port == 8080 && slice_equal(target, SLICE_LITERAL("?q=1")));
    assert_int_equal(wire_place_open(&p, &target, SLICE_LITERAL("http://[::1]:8080/x"), NULL), 0);
    assert_true(p.loopback && strcmp(p.host, "::1") == 0 && strcmp(p.authority, "[::1]:8080") == 0);
}

int main(void)
{
#define WITH_SERVER(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        WITH_SERVER(the_last_byte_stays_here_until_it_is_let_go),
        WITH_SERVER(answers_are_read_in_every_framing),
        WITH_SERVER(a_broken_answer_is_no_answer),
        WITH_SERVER(an_endless_line_and_an_endless_body_end),
        WITH_SERVER(a_lost_reply_leaves_the_whole_request_there),
        WITH_SERVER(a_lost_request_ends_where_it_was_cut),
        WITH_SERVER(an_answer_before_the_last_byte_is_taken),
        WITH_SERVER(nobody_there_is_told_apart_from_no_answer),
        WITH_SERVER(a_deadline_and_an_interruption_end_a_shot),
        cmocka_unit_test(urls_are_cut_up_or_refused),
    };
    return cmocka_run_group_tests_name("drill_wire", tests, NULL, NULL);
}
