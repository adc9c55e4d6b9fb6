/* hapax_call() as its users see it, against servers on real sockets. */
#include "unit/net/raw_upstream.h"

#include "hapax/client.h"

#include <signal.h>

enum { THREADS = 8 };

static hapax *open_memory(void)
{
    hapax *h;
    hapax_error err;
    if (hapax_open(&h, "memory:", NULL, &err) != 0) {
        fail_msg("open: %s", err.message);
    }
    return h;
}

static hapax_call_request asked(char url[64], const struct upstream *u, const char *op)
{
    snprintf(url, 64, "http://127.0.0.1:%u/charges", u->port);
    return (hapax_call_request){.size = sizeof(hapax_call_request),
                                .method = "POST",
                                .url = url,
                                .body = "{}",
                                .body_bytes = 2,
                                .op = op,
                                .backoff_ms = 1,
                                .backoff_max_ms = 1};
}

/* --- many at once --- */

struct caller {
    pthread_t thread;
    hapax *h;
    const hapax_call_request *request;
    hapax_call_result *result;
    hapax_error err;
};

static void *call_in_thread(void *ctx)
{
    struct caller *c = ctx;
    (void)hapax_call(c->h, c->request, &c->result, &c->err);
    return NULL;
}

static void threads_with_one_op_send_once_and_all_have_the_answer(void **state)
{
    (void)state;
    struct upstream *u = upstream_start(once, "HTTP/1.1 201 Created\r\nContent-Length: 8\r\n\r\n{\"id\":7}");
    hapax *h = open_memory();
    char url[64];
    struct caller callers[THREADS] = {0};
    hapax_call_request r = asked(url, u, "invoice 42");
    for (int i = 0; i < THREADS; i++) {
        callers[i].h = h;
        callers[i].request = &r;
        assert_int_equal(pthread_create(&callers[i].thread, NULL, call_in_thread, &callers[i]), 0);
    }
    int answered = 0;
    for (int i = 0; i < THREADS; i++) {
        pthread_join(callers[i].thread, NULL);
        hapax_call_result *out = callers[i].result;
        if (out == NULL) {
            fail_msg("%s", callers[i].err.message);
        }
        answered += out->end == HAPAX_CALL_END_ANSWERED;
        assert_true(out->end == HAPAX_CALL_END_ANSWERED || out->end == HAPAX_CALL_END_REPLAYED);
        assert_int_equal(out->status, 201);
        assert_string_equal(out->body, "{\"id\":7}");
        hapax_call_free(out);
    }
    assert_int_equal(answered, 1);
    assert_int_equal(upstream_get(u, &u->requests), 1);
    hapax_close(h);
    upstream_stop(u);
}

/* --- time --- */

/* The loop stands still while a call waits: an attempt's time counts from its own beginning all the same. */
static void a_wait_takes_nothing_from_the_next_attempts_time(void **state)
{
    (void)state;
    struct upstream *u =
        upstream_start(once, "HTTP/1.1 503 Busy\r\nRetry-After: 3\r\nContent-Length: 0\r\n\r\n");
    hapax *h = open_memory();
    char url[64];
    hapax_call_result *out;
    hapax_call_request r = asked(url, u, "a");
    r.timeout_ms = 2000;
    r.attempts_max = 2;
    assert_int_equal(hapax_call(h, &r, &out, NULL), 0);
    assert_int_equal(out->attempt_count, 2);
    assert_int_equal(out->attempts[1].waited_ms, 3000);
    assert_int_equal(out->attempts[1].status, 503);
    hapax_call_free(out);
    hapax_close(h);
    upstream_stop(u);
}

/* --- signals --- */

/* Reads a little and resets: what the client still writes raises SIGPIPE, unless it is blocked. */
static void hang_up(struct upstream *u, int fd, int number)
{
    (void)u;
    (void)number;
    char some[16];
    struct linger reset = {.l_onoff = 1};
    assert_true(recv(fd, some, sizeof some, 0) > 0);
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
}

static void a_server_that_hangs_up_raises_no_signal_and_the_mask_stays(void **state)
{
    (void)state;
    struct upstream *u = upstream_start(hang_up, NULL);
    hapax *h = open_memory();
    static char body[4 << 20];
    char url[64];
    hapax_call_result *out;
    hapax_error err;
    sigset_t before;
    sigset_t after;
    signal(SIGPIPE, SIG_DFL); /* would end this program */
    pthread_sigmask(SIG_BLOCK, NULL, &before);
    hapax_call_request r = asked(url, u, "big");
    r.body = body;
    r.body_bytes = sizeof body;
    r.attempts_max = 5;
    if (hapax_call(h, &r, &out, &err) != 0) {
        fail_msg("call: %s", err.message);
    }
    assert_int_equal(out->end, HAPAX_CALL_END_UNKNOWN);
    assert_int_equal(out->attempt_count, 5);
    hapax_call_free(out);
    pthread_sigmask(SIG_BLOCK, NULL, &after);
    assert_int_equal(sigismember(&after, SIGPIPE), sigismember(&before, SIGPIPE));
    sigpending(&after);
    assert_false(sigismember(&after, SIGPIPE));
    hapax_close(h);
    upstream_stop(u);
}

/* --- arguments --- */

static void what_is_wrong_is_told_before_anything_is_done(void **state)
{
    (void)state;
    hapax *h = open_memory();
    hapax_call_result *out = (hapax_call_result *)h;
    hapax_error err;
    hapax_call_request r = {.size = sizeof r, .method = "POST", .url = "https://h/", .op = "a"};
    assert_int_equal(hapax_call(NULL, &r, &out, &err), HAPAX_E_ARGUMENT);
    assert_null(out);
    assert_int_equal(hapax_call(h, NULL, &out, &err), HAPAX_E_ARGUMENT);
    assert_int_equal(hapax_call(h, &r, NULL, NULL), HAPAX_E_ARGUMENT);
    r.ca_file = "/no/such/file";
    assert_int_equal(hapax_call(h, &r, &out, &err), HAPAX_E_ARGUMENT);
    assert_null(out);
    r = (hapax_call_request){.size = sizeof r, .method = "POST", .url = "http://h:0/", .op = "a"};
    assert_int_equal(hapax_call(h, &r, &out, &err), HAPAX_E_ARGUMENT);
    hapax_record record;
    assert_int_equal(hapax_lookup(h, "hapax call key", "a", &record, NULL), HAPAX_E_NOT_FOUND);
    hapax_call_free(NULL);
    assert_string_equal(hapax_call_end_name(HAPAX_CALL_END_EXPIRED), "expired");
    assert_string_equal(hapax_call_end_name((hapax_call_end)99), "unknown-word");
    assert_string_equal(hapax_call_news_name(HAPAX_CALL_HELD), "held");
    assert_string_equal(hapax_call_news_name((hapax_call_news)0), "unknown-word");
    hapax_close(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_with_one_op_send_once_and_all_have_the_answer),
        cmocka_unit_test(a_wait_takes_nothing_from_the_next_attempts_time),
        cmocka_unit_test(a_server_that_hangs_up_raises_no_signal_and_the_mask_stays),
        cmocka_unit_test(what_is_wrong_is_told_before_anything_is_done),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
