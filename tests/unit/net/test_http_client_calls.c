/* The HTTP client: many calls at once, cancelling, and what call-backs may do. */
#include "raw_upstream.h"

static void answers_slowly(struct upstream *u, int fd, int number)
{
    (void)number;
    struct buf b;
    buf_init(&b, REQUEST_BYTES_MAX);
    while (read_request(u, fd, &b)) {
        /* The first two requests wait for each other: both connections are in use. */
        upstream_wait(u, &u->requests, 2);
        if (!send_text(fd, OK_TEXT)) {
            break;
        }
    }
    buf_free(&b);
}

/* The calls that have ended are exactly the first ones. */
static void check_order(struct answer *a)
{
    const struct answer *first = a->user;
    for (const struct answer *other = first; other < first + 40; other++) {
        assert_int_equal(other->done, other <= a);
    }
}

static void check_many(struct upstream *u, uint32_t connections_max, bool in_order)
{
    struct bench b;
    struct answer a[40];
    char url[64];
    snprintf(url, sizeof url, "http://127.0.0.1:%u", u->port);
    bench_open_url(&b, url, NULL, connections_max);
    for (int i = 0; i < 40; i++) {
        answer_init(&a[i], &b);
        a[i].user = a;
        a[i].done_hook = in_order ? check_order : NULL;
        assert_int_equal(answer_begin(&a[i], &POST_OF("x")), 0);
    }
    for (int i = 0; i < 40; i++) {
        until_done(&a[i]);
        assert_complete(&a[i], 200, "ok");
    }
    for (int i = 0; i < 40; i++) {
        answer_free(&a[i]);
    }
    assert_int_equal(upstream_get(u, &u->open_most), connections_max);
    bench_close(&b);
    upstream_stop(u);
}

static void calls_beyond_connections_max_wait_in_order(void **state)
{
    (void)state;
    check_many(upstream_start(answers_slowly, NULL), 2, false);
    check_many(upstream_start(always, OK_TEXT), 1, true);
}

/* Answers when the test says so, but never to a target "/never". */
static void answers_on_demand(struct upstream *u, int fd, int number)
{
    (void)number;
    struct buf b;
    buf_init(&b, REQUEST_BYTES_MAX);
    while (read_request(u, fd, &b)) {
        if (memmem(b.ptr, b.len, " /never ", 8) != NULL) {
            read_until_closed(fd);
            break;
        }
        upstream_wait(u, &u->marks, 1);
        send_text(fd, OK_TEXT);
    }
    buf_free(&b);
}

/* Closes after its answer without having said so: answer and end travel in one segment. */
static void answers_and_ends_at_once(struct upstream *u, int fd, int number)
{
    (void)number;
    struct buf b;
    buf_init(&b, REQUEST_BYTES_MAX);
    if (read_request(u, fd, &b)) {
        (void)send(fd, OK_TEXT, strlen(OK_TEXT), MSG_MORE | MSG_NOSIGNAL);
        shutdown(fd, SHUT_WR);
        read_until_closed(fd);
    }
    buf_free(&b);
}

/* Who waits must not be given that connection, though nothing but the answer was read from it yet. */
static void waiting_calls_do_not_get_a_connection_that_was_just_closed(void **state)
{
    (void)state;
    for (int round = 0; round < 20; round++) {
        struct upstream *u = upstream_start(answers_and_ends_at_once, NULL);
        struct bench b;
        struct answer a[4];
        char url[64];
        snprintf(url, sizeof url, "http://127.0.0.1:%u", u->port);
        bench_open_url(&b, url, NULL, 1);
        for (int i = 0; i < 4; i++) {
            answer_init(&a[i], &b);
            assert_int_equal(answer_begin(&a[i], &POST_OF("x")), 0);
        }
        for (int i = 0; i < 4; i++) {
            until_done(&a[i]);
            assert_complete(&a[i], 200, "ok");
            answer_free(&a[i]);
        }
        bench_close(&b);
        upstream_stop(u);
    }
}

static void call_that_waits_longer_than_it_may_be_sent_is_never_sent(void **state)
{
    (void)state;
    struct upstream *u = upstream_start(answers_on_demand, NULL);
    struct bench b;
    struct answer first;
    struct answer late;
    char url[64];
    snprintf(url, sizeof url, "http://127.0.0.1:%u", u->port);
    bench_open_url(&b, url, NULL, 1);
    answer_init(&first, &b);
    answer_init(&late, &b);
    assert_int_equal(answer_begin(&first, &POST_OF("x")), 0);
    struct http_call_options o = POST_OF("y");
    o.send_within_ms = 50;
    assert_int_equal(answer_begin(&late, &o), 0);
    until_done(&late); /* the first one holds the only connection */
    assert_failed(&late, CALL_NOT_SENT);
    upstream_mark(u);
    until_done(&first);
    assert_complete(&first, 200, "ok");
    answer_free(&first);
    answer_free(&late);
    bench_close(&b);
    assert_int_equal(upstream_get(u, &u->requests), 1);
    upstream_stop(u);
}

static void note_the_time(struct answer *a)
{
    *(int64_t *)a->user = loop_mono_ms(a->bench->loop);
}

static void time_for_the_answer_begins_when_the_request_is_sent(void **state)
{
    (void)state;
    struct upstream *u = upstream_start(answers_on_demand, NULL);
    struct bench b;
    struct answer first;
    struct answer late;
    struct answer given_up;
    int64_t first_ended_ms = 0;
    int64_t late_ended_ms = 0;
    char url[64];
    snprintf(url, sizeof url, "http://127.0.0.1:%u", u->port);
    bench_open_url(&b, url, NULL, 1);
    answer_init(&first, &b);
    answer_init(&late, &b);
    first.user = &first_ended_ms;
    late.user = &late_ended_ms;
    first.done_hook = late.done_hook = note_the_time;
    assert_int_equal(answer_begin(&first, &POST_OF("x")), 0);
    struct http_call_options o = POST_OF("y");
    o.target = SLICE_LITERAL("/never");
    o.answer_within_ms = 400;
    assert_int_equal(answer_begin(&late, &o), 0);
    o.send_within_ms = 300;
    ask(&given_up, &b, &o); /* the first one holds the only connection: so long the others waited, too */
    assert_failed(&given_up, CALL_NOT_SENT);
    upstream_mark(u);
    until_done(&first);
    assert_complete(&first, 200, "ok");
    until_done(&late);
    assert_failed(&late, CALL_TIMEOUT);
    assert_true(late_ended_ms - first_ended_ms >= o.answer_within_ms);
    answer_free(&given_up);
    answer_free(&first);
    answer_free(&late);
    bench_close(&b);
    upstream_stop(u);
}

static void cancel_self(struct answer *a)
{
    a->bench->inside = true;
    http_call_cancel(a->call);
    a->bench->inside = false;
}

static bool cancel_self_in_body(struct answer *a, struct slice piece)
{
    (void)piece;
    cancel_self(a);
    return true;
}

static void cancel_other(struct answer *a)
{
    http_call_cancel(((struct answer *)a->user)->call);
}

static bool cancel_other_in_body(struct answer *a, struct slice piece)
{
    (void)piece;
    cancel_other(a);
    return false; /* and pause: the end must not need the other one */
}

/* After cancelling, one more call on the same client must work, and the cancelled ones stay silent. */
static void check_after_cancel(struct bench *b, const struct answer *cancelled)
{
    struct answer a;
    int heads = cancelled->heads;
    int pieces = cancelled->pieces;
    ask(&a, b, &GET_OF("/after"));
    assert_complete(&a, 200, "ok");
    answer_free(&a);
    assert_false(cancelled->done);
    assert_int_equal(cancelled->heads, heads);
    assert_int_equal(cancelled->pieces, pieces);
}

static void cancelled_call_is_never_heard_of_again(void **state)
{
    (void)state;
    for (int when = 0; when < 5; when++) {
        struct upstream *u = upstream_start(always, OK_TEXT);
        struct bench b;
        struct answer a;
        bench_open(&b, u);
        answer_init(&a, &b);
        a.head_hook = when == 3 ? cancel_self : NULL;
        a.body_hook = when == 4 ? cancel_self_in_body : NULL;
        char *body = strdup("a body that is freed right after cancelling");
        assert_non_null(body);
        struct http_call_options o = {.method = SLICE_LITERAL("POST"), .body = slice_text(body)};
        assert_int_equal(answer_begin(&a, &o), 0);
        for (int i = 0; i < 2 * when && when < 3; i++) {
            uv_run(loop_uv(b.loop), UV_RUN_NOWAIT);
        }
        if (when < 3 && !a.done) {
            cancel_self(&a);
        } else if (when >= 3) {
            while (a.heads == 0 || (when == 4 && a.pieces == 0)) {
                turn(&b);
            }
        }
        free(body);
        if (!a.done) {
            check_after_cancel(&b, &a);
        }
        answer_free(&a);
        bench_close(&b);
        upstream_stop(u);
    }
}

static void other_calls_may_be_cancelled_inside_call_backs(void **state)
{
    (void)state;
    for (int where = 0; where < 3; where++) {
        struct upstream *u = upstream_start(answers_on_demand, NULL);
        struct bench b;
        struct answer a;
        struct answer other;
        bench_open(&b, u);
        char *large = calloc(1, 8 << 20);
        assert_non_null(large);
        struct http_call_options o = {
            .method = SLICE_LITERAL("POST"), .target = SLICE_LITERAL("/never"), .body = {large, 8 << 20}};
        answer_init(&a, &b);
        answer_init(&other, &b);
        a.user = &other;
        a.head_hook = where == 0 ? cancel_other : NULL;
        a.body_hook = where == 1 ? cancel_other_in_body : NULL;
        a.done_hook = where == 2 ? cancel_other : NULL;
        assert_int_equal(answer_begin(&other, &o), 0);
        assert_int_equal(answer_begin(&a, &POST_OF("x")), 0);
        upstream_mark(u);
        while (where == 1 ? a.pieces == 0 : where == 0 ? a.heads == 0 : !a.done) {
            turn(&b);
        }
        free(large); /* the cancelled call must not read it any more */
        check_after_cancel(&b, &other);
        if (where == 1) {
            assert_false(a.done);
            http_call_resume(a.call);
        }
        until_done(&a);
        assert_true(a.complete);
        answer_free(&a);
        answer_free(&other);
        bench_close(&b);
        upstream_stop(u);
    }
}

static void start_another(struct answer *a)
{
    if (a->user != NULL) {
        assert_int_equal(answer_begin(a->user, &GET_OF("/next")), 0);
    }
}

static void calls_may_be_started_inside_call_backs(void **state)
{
    (void)state;
    for (int where = 0; where < 2; where++) {
        struct upstream *u = upstream_start(always, OK_TEXT);
        struct bench b;
        struct answer first;
        struct answer second;
        bench_open(&b, u);
        answer_init(&first, &b);
        answer_init(&second, &b);
        first.user = &second;
        first.head_hook = where == 0 ? start_another : NULL;
        first.done_hook = where == 1 ? start_another : NULL;
        assert_int_equal(answer_begin(&first, &GET_OF("/")), 0);
        until_done(&first);
        until_done(&second);
        assert_complete(&first, 200, "ok");
        assert_complete(&second, 200, "ok");
        answer_free(&first);
        answer_free(&second);
        bench_close(&b);
        upstream_stop(u);
    }
}

static void destroy_client(struct answer *a)
{
    http_client_destroy(a->bench->client);
    a->bench->client = NULL;
}

static void client_may_be_destroyed_inside_the_last_on_done(void **state)
{
    (void)state;
    struct upstream *u = upstream_start(always, OK_TEXT);
    struct bench b;
    struct answer a;
    bench_open(&b, u);
    answer_init(&a, &b);
    a.done_hook = destroy_client;
    assert_int_equal(answer_begin(&a, &GET_OF("/")), 0);
    until_done(&a);
    answer_free(&a);
    bench_close(&b);
    upstream_stop(u);
}

static void origin_may_be_destroyed_while_calls_run(void **state)
{
    (void)state;
    struct upstream *u = upstream_start(always, OK_TEXT);
    struct bench b;
    struct answer a;
    bench_open(&b, u);
    for (int i = 0; i < 3; i++) {
        char url[64];
        snprintf(url, sizeof url, "http://127.0.0.1:%u", u->port);
        struct http_origin_options o = {.url = url, .idle_ms = 60000, .connections_max = 1};
        answer_init(&a, &b);
        assert_int_equal(answer_begin(&a, &GET_OF("/")), 0);
        http_origin_destroy(b.origin);
        assert_int_equal(http_origin_create(&b.origin, &o, NULL), 0);
        until_done(&a);
        assert_complete(&a, 200, "ok");
        answer_free(&a);
    }
    bench_close(&b);
    upstream_stop(u);
}

static void no_descriptor_is_left_behind(void **state)
{
    (void)state;
    int before = count_descriptors();
    struct upstream *u = upstream_start(once_then_close, OK_TEXT);
    struct bench b;
    bench_open(&b, u);
    for (int i = 0; i < 20; i++) {
        struct answer a;
        ask(&a, &b, &POST_OF("x"));
        answer_free(&a);
    }
    bench_close(&b);
    upstream_stop(u);
    assert_int_equal(count_descriptors(), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_beyond_connections_max_wait_in_order),
        cmocka_unit_test(waiting_calls_do_not_get_a_connection_that_was_just_closed),
        cmocka_unit_test(call_that_waits_longer_than_it_may_be_sent_is_never_sent),
        cmocka_unit_test(time_for_the_answer_begins_when_the_request_is_sent),
        cmocka_unit_test(cancelled_call_is_never_heard_of_again),
        cmocka_unit_test(other_calls_may_be_cancelled_inside_call_backs),
        cmocka_unit_test(calls_may_be_started_inside_call_backs),
        cmocka_unit_test(client_may_be_destroyed_inside_the_last_on_done),
        cmocka_unit_test(origin_may_be_destroyed_while_calls_run),
        cmocka_unit_test(no_descriptor_is_left_behind),
    };
    return client_tests_run(tests);
}
