/* The HTTP client: bodies in both directions, pausing, streaming, silence, and early answers. */
#include "raw_upstream.h"

/* --- Answers larger than the consumer's appetite. --- */

enum { LARGE_BYTES = 50 << 20, BLOCK_BYTES = 1 << 16, IN_FLIGHT_BYTES_MAX = 16 << 20 };

static atomic_long sent_bytes;

static unsigned char pattern(size_t at)
{
    return (unsigned char)((at * 2654435761U) >> 13);
}

/* A large body of a known pattern; u->arg says "chunked" or "length". */
static void sends_large(struct upstream *u, int fd, int number)
{
    (void)number;
    struct buf b;
    static char block[BLOCK_BYTES];
    bool chunked = strcmp(u->arg, "chunked") == 0;
    int window = BLOCK_BYTES;
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &window, sizeof window);
    buf_init(&b, REQUEST_BYTES_MAX);
    atomic_store(&sent_bytes, 0);
    if (read_request(u, fd, &b)) {
        char head[128];
        snprintf(head, sizeof head,
                 chunked ? "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
                         : "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n",
                 LARGE_BYTES);
        bool going = send_text(fd, head);
        for (size_t at = 0; going && at < LARGE_BYTES; at += BLOCK_BYTES) {
            for (size_t i = 0; i < BLOCK_BYTES; i++) {
                block[i] = (char)pattern(at + i);
            }
            going = (!chunked || send_text(fd, "10000\r\n")) && send_bytes(fd, block, sizeof block) &&
                    (!chunked || send_text(fd, "\r\n"));
            atomic_fetch_add(&sent_bytes, BLOCK_BYTES);
        }
        if (going && chunked) {
            send_text(fd, "0\r\n\r\n");
        }
        read_until_closed(fd);
    }
    buf_free(&b);
}

struct eater {
    size_t at;
    int resumes;
    bool paused;
};

static bool eat_and_pause(struct answer *a, struct slice piece)
{
    struct eater *e = a->user;
    assert_false(e->paused);
    for (size_t i = 0; i < piece.len; i++) {
        if ((unsigned char)piece.ptr[i] != pattern(e->at + i)) {
            fail_msg("a wrong byte at %zu", e->at + i);
        }
    }
    e->at += piece.len;
    assert_true(atomic_load(&sent_bytes) - (long)e->at < IN_FLIGHT_BYTES_MAX);
    e->paused = true;
    return false;
}

static void check_large(const char *framing)
{
    struct upstream *u = upstream_start(sends_large, framing);
    struct bench b;
    struct answer a;
    struct eater e = {0};
    bench_open(&b, u);
    answer_init(&a, &b);
    a.user = &e;
    a.body_hook = eat_and_pause;
    assert_int_equal(answer_begin(&a, &GET_OF("/")), 0);
    while (!a.done) {
        if (e.paused) {
            uv_run(loop_uv(b.loop), UV_RUN_NOWAIT); /* nothing may come */
            assert_true(e.paused);
            assert_false(a.done);
            e.paused = false;
            e.resumes++;
            b.inside = true;
            http_call_resume(a.call);
            b.inside = false;
        }
        turn(&b);
    }
    assert_true(a.complete);
    assert_int_equal(e.at, LARGE_BYTES);
    assert_true(e.resumes >= LARGE_BYTES / (1 << 20));
    answer_free(&a);
    bench_close(&b);
    upstream_stop(u);
}

static void paused_consumer_gets_every_byte_once_and_holds_the_upstream_back(void **state)
{
    (void)state;
    check_large("length");
    check_large("chunked");
}

static bool pause_here(struct answer *a, struct slice piece)
{
    (void)a;
    (void)piece;
    return false;
}

static void resume_now(uv_timer_t *timer)
{
    http_call_resume(((struct answer *)timer->data)->call);
}

static void pause_is_not_the_upstreams_silence(void **state)
{
    (void)state;
    struct upstream *u = upstream_start(always, OK_TEXT);
    struct bench b;
    struct answer a;
    bench_open(&b, u);
    answer_init(&a, &b);
    a.body_hook = pause_here;
    struct http_call_options o = GET_OF("/");
    o.silence_ms = 300;
    assert_int_equal(answer_begin(&a, &o), 0);
    uv_timer_t timer = {.data = &a};
    uv_timer_init(loop_uv(b.loop), &timer);
    uv_timer_start(&timer, resume_now, 1000, 0);
    until_done(&a);
    assert_true(a.complete);
    uv_close((uv_handle_t *)&timer, NULL);
    turn(&b);
    answer_free(&a);
    bench_close(&b);
    upstream_stop(u);
}

static void connection_of_a_paused_call_is_kept_and_watched(void **state)
{
    (void)state;
    struct upstream *u = upstream_start(speaks_unasked, NULL);
    struct bench b;
    bench_open(&b, u);
    for (int i = 0; i < 3; i++) {
        struct answer a;
        answer_init(&a, &b);
        a.body_hook = pause_here;
        assert_int_equal(answer_begin(&a, &POST_OF("x")), 0);
        while (a.pieces == 0) {
            turn(&b);
        }
        uv_run(loop_uv(b.loop), UV_RUN_NOWAIT);
        assert_false(a.done);
        http_call_resume(a.call);
        until_done(&a);
        assert_true(a.complete);
        assert_int_equal(a.status, 200);
        answer_free(&a);
        if (i == 0) {
            upstream_mark(u);
            upstream_wait(u, &u->marks, 2); /* the unasked answer is there */
        }
    }
    assert_int_equal(upstream_get(u, &u->accepted), 2);
    bench_close(&b);
    upstream_stop(u);
}

static void time_out_ends_a_paused_call(void **state)
{
    (void)state;
    struct upstream *u = upstream_start(always, OK_TEXT);
    struct bench b;
    struct answer a;
    bench_open(&b, u);
    answer_init(&a, &b);
    a.body_hook = pause_here;
    struct http_call_options o = GET_OF("/");
    o.timeout_ms = 200;
    assert_int_equal(answer_begin(&a, &o), 0);
    until_done(&a);
    assert_failed(&a, CALL_TIMEOUT);
    answer_free(&a);
    bench_close(&b);
    upstream_stop(u);
}

/* --- Bodies of requests. --- */

static void whole_bodies_arrive_at_any_size(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 60 * 1024, 60 * 1024 + 1, 64 * 1024, 65537, 3 << 20};
    char *body = malloc(3 << 20);
    assert_non_null(body);
    for (size_t i = 0; i < 3 << 20; i++) {
        body[i] = (char)pattern(i);
    }
    struct upstream *u = upstream_start(always, OK_TEXT);
    struct bench b;
    bench_open(&b, u);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        static const char *const methods[] = {"POST", "PUT", "DELETE"};
        struct answer a;
        struct http_call_options o = {.method = slice_text(methods[i % 3]), .body = {body, sizes[i]}};
        ask(&a, &b, &o);
        assert_complete(&a, 200, "ok");
        assert_true(u->last.len > sizes[i]);
        assert_memory_equal(u->last.ptr + u->last.len - sizes[i], body, sizes[i]);
        char line[64];
        snprintf(line, sizeof line, "\r\nContent-Length: %zu\r\n\r\n", sizes[i]);
        assert_non_null(memmem(u->last.ptr, u->last.len - sizes[i], line, strlen(line)));
        assert_null(memmem(u->last.ptr, u->last.len - sizes[i], "Expect", 6));
        assert_null(memmem(u->last.ptr, u->last.len - sizes[i], "Content-Type", 12));
        answer_free(&a);
    }
    assert_int_equal(upstream_get(u, &u->accepted), 1);
    free(body);
    bench_close(&b);
    upstream_stop(u);
}

struct feeder {
    size_t at;
    size_t total;
    int refusals;
    bool waiting;
};

static void feed(struct answer *a)
{
    struct feeder *f = a->user;
    static char block[10000];
    f->waiting = false;
    while (f->at < f->total && !f->waiting) {
        size_t n = f->total - f->at < sizeof block ? f->total - f->at : sizeof block;
        for (size_t i = 0; i < n; i++) {
            block[i] = (char)pattern(f->at + i);
        }
        f->at += n;
        bool was_inside = a->bench->inside;
        a->bench->inside = true;
        f->waiting = !http_call_write(a->call, slice_of(block, n));
        a->bench->inside = was_inside;
        f->refusals += f->waiting;
    }
    if (f->at == f->total) {
        http_call_write_end(a->call);
    }
}

/* The body of a raw chunked request, joined in place. */
static size_t join_chunks(char *p, size_t len)
{
    size_t out = 0;
    for (size_t at = 0; at < len;) {
        char *line;
        size_t n = strtoul(p + at, &line, 16);
        at = (size_t)(line - p) + 2;
        memmove(p + out, p + at, n);
        out += n;
        at += n + 2;
        if (n == 0) {
            break;
        }
    }
    return out;
}

static void check_stream(size_t total, bool chunked)
{
    struct upstream *u = upstream_start(always, OK_TEXT);
    struct bench b;
    struct answer a;
    struct feeder f = {.total = total};
    bench_open(&b, u);
    answer_init(&a, &b);
    a.user = &f;
    a.writable_hook = feed;
    struct http_call_options o = {
        .method = SLICE_LITERAL("POST"), .stream = true, .body_length = chunked ? -1 : (int64_t)total};
    assert_int_equal(answer_begin(&a, &o), 0);
    for (int i = 0; i < 5; i++) {
        uv_run(loop_uv(b.loop), UV_RUN_NOWAIT); /* it runs dry before the first byte */
    }
    feed(&a);
    until_done(&a);
    assert_complete(&a, 200, "ok");
    const char *end = memmem(u->last.ptr, u->last.len, "\r\n\r\n", 4);
    assert_non_null(end);
    char *body = u->last.ptr + (end - u->last.ptr) + 4;
    size_t len = u->last.len - (size_t)(body - u->last.ptr);
    if (chunked) {
        assert_int_equal(buf_append_byte(&u->last, '\0'), 0);
        body = memmem(u->last.ptr, u->last.len, "\r\n\r\n", 4);
        body += 4;
        len = join_chunks(body, len);
    }
    assert_int_equal(len, total);
    for (size_t i = 0; i < total; i++) {
        if ((unsigned char)body[i] != pattern(i)) {
            fail_msg("a wrong byte at %zu", i);
        }
    }
    assert_int_equal(f.refusals > 0, total > HTTP_CALL_WRITE_HIGH_BYTES);
    answer_free(&a);
    bench_close(&b);
    upstream_stop(u);
}

static void streamed_bodies_arrive_with_length_or_in_chunks(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 100000, 5 << 20};
    for (size_t i = 0; i < 4; i++) {
        check_stream(sizes[i], false);
        check_stream(sizes[i], true);
    }
}

static void streamed_body_of_another_length_than_announced_fails(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        size_t length = i % 2 == 0 ? 5 : 15;
        bool on_its_way = i >= 2; /* before the caller's mistake is seen, the head has left */
        struct upstream *u = upstream_start(always, OK_TEXT);
        struct bench b;
        struct answer a;
        bench_open(&b, u);
        answer_init(&a, &b);
        struct http_call_options o = {
            .method = SLICE_LITERAL("PUT"), .stream = true, .body_length = (int64_t)length};
        assert_int_equal(answer_begin(&a, &o), 0);
        while (on_its_way && !http_call_was_sent(a.call)) {
            turn(&b);
        }
        http_call_write(a.call, SLICE_LITERAL("ten bytes!"));
        http_call_write_end(a.call);
        until_done(&a);
        assert_failed(&a, on_its_way ? CALL_BROKEN : CALL_NOT_SENT);
        answer_free(&a);
        bench_close(&b);
        assert_int_equal(upstream_get(u, &u->requests), 0);
        upstream_stop(u);
    }
}

static void streamed_call_may_be_cancelled_while_it_waits(void **state)
{
    (void)state;
    struct upstream *u = upstream_start(always, OK_TEXT);
    struct bench b;
    struct answer a;
    struct answer after;
    bench_open(&b, u);
    answer_init(&a, &b);
    struct http_call_options o = {.method = SLICE_LITERAL("PUT"), .stream = true, .body_length = -1};
    assert_int_equal(answer_begin(&a, &o), 0);
    http_call_write(a.call, SLICE_LITERAL("some"));
    upstream_wait(u, &u->accepted, 0);
    for (int i = 0; i < 10; i++) {
        uv_run(loop_uv(b.loop), UV_RUN_NOWAIT);
    }
    http_call_write(a.call, SLICE_LITERAL("more")); /* an errand is due */
    http_call_cancel(a.call);
    ask(&after, &b, &GET_OF("/"));
    assert_complete(&after, 200, "ok");
    assert_false(a.done);
    answer_free(&after);
    answer_free(&a);
    bench_close(&b);
    upstream_stop(u);
}

static void feed_now(uv_timer_t *timer)
{
    feed(timer->data);
}

static void slow_feeding_is_not_the_upstreams_silence(void **state)
{
    (void)state;
    struct upstream *u = upstream_start(always, OK_TEXT);
    struct bench b;
    struct answer a;
    bench_open(&b, u);
    answer_init(&a, &b);
    struct http_call_options o = {
        .method = SLICE_LITERAL("PUT"), .stream = true, .body_length = -1, .silence_ms = 300};
    struct feeder f = {.total = 10};
    a.user = &f;
    assert_int_equal(answer_begin(&a, &o), 0);
    uv_timer_t timer = {.data = &a};
    uv_timer_init(loop_uv(b.loop), &timer);
    uv_timer_start(&timer, feed_now, 1000, 0);
    until_done(&a);
    assert_complete(&a, 200, "ok");
    uv_close((uv_handle_t *)&timer, NULL);
    turn(&b);
    answer_free(&a);
    bench_close(&b);
    upstream_stop(u);
}

/* --- Answers that come before the request's end. --- */

static void refuses_early(struct upstream *u, int fd, int number)
{
    (void)number;
    struct buf b;
    buf_init(&b, REQUEST_BYTES_MAX);
    if (read_head(fd, &b)) {
        send_text(fd, u->arg);
        shutdown(fd, SHUT_WR);
        read_until_closed(fd);
    }
    buf_free(&b);
}

static void refusal_before_the_body_was_read_is_a_complete_answer(void **state)
{
    (void)state;
    static const char *const says[] = {
        "HTTP/1.1 413 No\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno",
        "HTTP/1.1 413 No\r\nContent-Length: 2\r\n\r\nno",
        "HTTP/1.1 413 No\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nno\r\n0\r\n\r\n",
        "HTTP/1.1 413 No\r\n\r\nno",
    };
    static char large[4 << 20];
    for (int i = 0; i < 8; i++) {
        bool stream = i >= 4; /* and the caller has nothing more to give */
        struct upstream *u = upstream_start(refuses_early, says[i % 4]);
        struct bench b;
        struct answer a;
        bench_open(&b, u);
        struct http_call_options o = {.method = SLICE_LITERAL("POST"),
                                      .body = {stream ? NULL : large, stream ? 0 : sizeof large},
                                      .stream = stream,
                                      .body_length = -1};
        ask(&a, &b, &o);
        assert_complete(&a, 413, "no");
        answer_free(&a);
        bench_close(&b);
        upstream_stop(u);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(paused_consumer_gets_every_byte_once_and_holds_the_upstream_back),
        cmocka_unit_test(pause_is_not_the_upstreams_silence),
        cmocka_unit_test(connection_of_a_paused_call_is_kept_and_watched),
        cmocka_unit_test(time_out_ends_a_paused_call),
        cmocka_unit_test(whole_bodies_arrive_at_any_size),
        cmocka_unit_test(streamed_bodies_arrive_with_length_or_in_chunks),
        cmocka_unit_test(streamed_body_of_another_length_than_announced_fails),
        cmocka_unit_test(streamed_call_may_be_cancelled_while_it_waits),
        cmocka_unit_test(slow_feeding_is_not_the_upstreams_silence),
        cmocka_unit_test(refusal_before_the_body_was_read_is_a_complete_answer),
    };
    return client_tests_run(tests);
}
