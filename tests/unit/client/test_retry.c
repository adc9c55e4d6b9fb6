/* When to send again: the random waits' bounds, Retry-After, and what each kind of answer says. */
#include "client/retry.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define NOW_MS 784111777000LL /* Sun, 06 Nov 1994 08:49:37 GMT */

/* --- waits --- */

static void the_window_doubles_up_to_its_maximum_and_chance_picks_evenly_from_zero(void **state)
{
    (void)state;
    const int64_t windows[] = {500, 1000, 2000, 4000, 8000, 16000, 30000, 30000};
    for (unsigned i = 0; i < sizeof windows / sizeof *windows; i++) {
        uint64_t w = (uint64_t)windows[i];
        assert_int_equal(retry_delay_ms(500, 30000, i + 1, 0), 0);
        assert_int_equal(retry_delay_ms(500, 30000, i + 1, w), w);
        assert_int_equal(retry_delay_ms(500, 30000, i + 1, w + 1), 0);
        for (uint64_t chance = 0; chance < 100000; chance += 997) {
            int64_t ms = retry_delay_ms(500, 30000, i + 1, chance * 0x9e3779b97f4a7c15ULL);
            assert_true(ms >= 0 && ms <= windows[i]);
        }
    }
    assert_int_equal(retry_delay_ms(500, 30000, UINT32_MAX, 30000), 30000);
    assert_int_equal(retry_delay_ms(90000, 30000, 1, 30000), 30000);
    assert_int_equal(retry_delay_ms(1, INT64_MAX, 1000, INT64_MAX), INT64_MAX);
}

/* --- Retry-After --- */

static int64_t after(const char *value, const char *date)
{
    int64_t ms = -2;
    bool read = retry_after_ms(&ms, slice_text(value), slice_text(date), NOW_MS);
    return read ? ms : -1;
}

static void retry_after_is_seconds_or_a_date_in_each_of_the_three_forms(void **state)
{
    (void)state;
    assert_int_equal(after("0", NULL), 0);
    assert_int_equal(after(" 120 ", NULL), 120000);
    assert_int_equal(after("99999999999999999999999999", NULL), RETRY_AFTER_MS_MAX);
    assert_int_equal(after("Sun, 06 Nov 1994 08:49:40 GMT", NULL), 3000);
    assert_int_equal(after("Sunday, 06-Nov-94 08:49:41 GMT", NULL), 4000);
    assert_int_equal(after("Sun Nov  6 08:49:42 1994", NULL), 5000);
    assert_int_equal(after("Wednesday, 16-Nov-94 08:49:37 GMT", NULL), 10LL * 24 * 3600 * 1000);
    assert_int_equal(after("Sun, 06 Nov 1994 08:49:30 GMT", NULL), 0);
    assert_int_equal(after("Sun, 06 Nov 2094 08:49:30 GMT", NULL), RETRY_AFTER_MS_MAX);
}

static void a_date_counts_from_the_servers_own_clock(void **state)
{
    (void)state;
    assert_int_equal(after("Mon, 07 Nov 1994 09:00:10 GMT", "Mon, 07 Nov 1994 09:00:00 GMT"), 10000);
    assert_int_equal(after("Sun, 06 Nov 1994 08:49:40 GMT", "yesterday"), 3000);
    assert_int_equal(after("7", "Mon, 07 Nov 1994 09:00:00 GMT"), 7000);
}

static void what_is_neither_seconds_nor_a_date_is_not_obeyed(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        "-1",
        "1.5",
        "10s",
        "soon",
        "Sun",
        "Sun,",
        "Sun, 06 Nov 1994",
        "Sun, 06 Nov 1994 08:49:37",
        "Sun, 06 Nov 1994 08:49:37 CET",
        "Sun, 06 Nov 1994 08:49:37 GMT+1",
        "Sun, 00 Nov 1994 08:49:37 GMT",
        "Sun, 32 Nov 1994 08:49:37 GMT",
        "Sun, 06 Foo 1994 08:49:37 GMT",
        "Sun, 06 Nov 1994 24:49:37 GMT",
        "Sun, 06 Nov 1994 08:60:37 GMT",
        "Sun,06 Nov 1994 08:49:37 GMT",
        "Xyz, 06 Nov 1994 08:49:37 GMT",
        "Sunday-long-name-without-end, 06-Nov-94 08:49:37 GMT",
        "Sunday 06-Nov-94 08:49:37 GMT",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (after(bad[i], NULL) != -1) {
            fail_msg("taken: %s", bad[i]);
        }
    }
}

static void every_beginning_of_a_date_is_read_without_harm(void **state)
{
    (void)state;
    static const char *const whole[] = {"Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT",
                                        "Sun Nov  6 08:49:37 1994"};
    for (size_t i = 0; i < 3; i++) {
        for (size_t n = 0; n < strlen(whole[i]); n++) {
            char *copy = test_malloc(n + 1); /* exactly as long: a sanitizer sees a step beyond */
            int64_t ms;
            memcpy(copy, whole[i], n);
            assert_false(http_date_ms(&ms, slice_of(copy, n), NOW_MS));
            test_free(copy);
        }
        int64_t ms;
        assert_true(http_date_ms(&ms, slice_text(whole[i]), NOW_MS));
        assert_int_equal(ms, NOW_MS);
    }
}

static void years_of_two_digits_are_the_last_that_are_not_far_ahead(void **state)
{
    (void)state;
    int64_t ms;
    int64_t now = 1796000000000LL; /* 2026 */
    assert_true(http_date_ms(&ms, SLICE_LITERAL("Sunday, 06-Nov-94 08:49:37 GMT"), now));
    assert_int_equal(ms, NOW_MS);
    assert_true(http_date_ms(&ms, SLICE_LITERAL("Friday, 06-Nov-26 00:00:00 GMT"), now));
    assert_int_equal(ms, 1793923200000LL);
}

/* --- answers --- */

#define DEF  HAPAX_CALL_DEFINITE
#define NOT  HAPAX_CALL_NOTHING
#define MAY  HAPAX_CALL_MAYBE
#define REJ  HAPAX_CALL_REJECTED
#define HELD HAPAX_CALL_HELD

#define PROBLEM     "application/problem+json"
#define UNKNOWN_AND "{\"type\":\"urn:hapax:problem:outcome-unknown\",\"retryable\":"

struct answer_case {
    int status;
    hapax_call_news news;
    const char *retry_after; /* NULL: none */
    const char *type;        /* Content-Type */
    const char *body;
    const char *marker;   /* Idempotency-Status */
    const char *replayed; /* Idempotent-Replayed */
    bool maybe_done;
};

static struct retry_verdict judge(const struct answer_case *c)
{
    struct client_reply reply;
    struct header lines[4];
    struct arena arena;
    struct retry_verdict v;
    client_reply_init(&reply);
    arena_init(&arena, 1U << 20);
    const struct header all[] = {{SLICE_LITERAL("Retry-After"), slice_text(c->retry_after)},
                                 {SLICE_LITERAL("content-type"), slice_text(c->type)},
                                 {SLICE_LITERAL("Idempotency-Status"), slice_text(c->marker)},
                                 {SLICE_LITERAL("Idempotent-Replayed"), slice_text(c->replayed)}};
    for (size_t i = 0; i < 4; i++) {
        if (!slice_is_none(all[i].value)) {
            lines[reply.header_count++] = all[i];
        }
    }
    reply.headers = lines;
    reply.complete = true;
    reply.status = c->status;
    assert_int_equal(buf_append_text(&reply.body, c->body != NULL ? c->body : ""), 0);
    assert_int_equal(retry_judge(&v, &reply, c->maybe_done, NOW_MS, &arena), 0);
    client_reply_free(&reply);
    arena_free(&arena);
    return v;
}

static void each_kind_of_answer_is_what_the_documentation_says(void **state)
{
    (void)state;
    static const struct answer_case cases[] = {
        {.status = 200, .news = DEF},
        {.status = 201, .news = DEF, .retry_after = "5"},
        {.status = 204, .news = DEF},
        {.status = 302, .news = DEF},
        {.status = 303, .news = DEF},
        {.status = 301, .news = REJ},
        {.status = 307, .news = REJ},
        {.status = 308, .news = REJ},
        {.status = 400, .news = DEF},
        {.status = 404, .news = DEF},
        {.status = 409, .news = DEF},
        {.status = 422, .news = DEF},
        {.status = 500, .news = DEF},
        {.status = 501, .news = DEF},
        {.status = 505, .news = DEF},
        {.status = 401, .news = REJ},
        {.status = 403, .news = REJ},
        {.status = 403, .news = NOT, .retry_after = "60"},
        {.status = 408, .news = NOT},
        {.status = 421, .news = NOT},
        {.status = 425, .news = NOT},
        {.status = 429, .news = NOT},
        {.status = 503, .news = MAY}, /* of a proxy, perhaps */
        {.status = 503, .news = MAY, .retry_after = "1"},
        {.status = 503, .news = MAY, .marker = "unknown"},
        {.status = 503, .news = NOT, .marker = "released"},
        {.status = 503, .news = NOT, .marker = "rejected"},
        {.status = 502, .news = NOT, .marker = "released"},
        {.status = 520, .news = MAY},
        {.status = 524, .news = MAY},
        {.status = 530, .news = MAY},
        {.status = 519, .news = DEF},
        {.status = 531, .news = DEF},
        {.status = 502, .news = MAY},
        {.status = 504, .news = MAY},
        {.status = 600, .news = MAY},
        {.status = 409, .news = MAY, .retry_after = "1"},
        {.status = 500, .news = MAY, .retry_after = "1"},
        {.status = 500, .news = DEF, .retry_after = "whenever"},
        /* An operation that still runs, in the words of some. */
        {.status = 409, .news = MAY, .type = PROBLEM, .body = "{\"type\":\"urn:hapax:problem:in-progress\"}"},
        {.status = 409,
         .news = MAY,
         .type = PROBLEM,
         .body = "{\"type\":\"https://x.example/p#In-Progress\"}"},
        {.status = 409,
         .news = MAY,
         .type = "application/json",
         .body = "{\"error\":{\"type\":\"idempotency_error\",\"code\":\"idempotency_key_in_use\"}}"},
        {.status = 409,
         .news = MAY,
         .type = "application/json",
         .body = "{\"code\":\"idempotency_key_in_use\"}"},
        {.status = 409, .news = DEF, .type = "application/json", .body = "{\"code\":\"not_in-progress\"}"},
        {.status = 409, .news = DEF, .type = "application/json", .body = "{\"code\":7}"},
        {.status = 409, .news = DEF, .type = "application/json", .body = "{\"code\":\"in-progress\""},
        {.status = 409, .news = DEF, .type = "text/plain", .body = "{\"code\":\"in-progress\"}"},
        {.status = 422, .news = DEF, .type = PROBLEM, .body = "{\"type\":\"urn:x:in-progress\"}"},
        /* After an attempt that may have begun it, only what says so is the operation's answer. */
        {.status = 409, .news = MAY, .maybe_done = true},
        {.status = 409,
         .news = MAY,
         .type = PROBLEM,
         .body = "{\"title\":\"A request is outstanding for this Idempotency-Key\"}",
         .maybe_done = true},
        {.status = 409, .news = DEF, .marker = "executed", .maybe_done = true},
        {.status = 409, .news = DEF, .marker = "replayed", .maybe_done = true},
        {.status = 409, .news = DEF, .marker = "attached", .maybe_done = true},
        {.status = 409, .news = MAY, .marker = "unprotected", .maybe_done = true},
        {.status = 409, .news = DEF, .replayed = "true", .maybe_done = true},
        {.status = 409, .news = DEF, .type = PROBLEM, .body = "{\"retryable\":false}", .maybe_done = true},
        {.status = 404, .news = DEF, .maybe_done = true},
        /* What a gateway marks as not carried out is never the operation's answer. */
        {.status = 422,
         .news = REJ,
         .type = PROBLEM,
         .body = "{\"type\":\"urn:hapax:problem:key-reused\",\"retryable\":false}",
         .marker = "rejected"},
        {.status = 413, .news = REJ, .type = PROBLEM, .body = "{\"retryable\":false}", .marker = "rejected"},
        {.status = 400, .news = REJ, .marker = "rejected"},
        {.status = 404, .news = REJ, .marker = "released"},
        {.status = 409, .news = REJ, .marker = "released", .maybe_done = true},
        {.status = 409, .news = NOT, .marker = "released", .retry_after = "1"},
        {.status = 400, .news = NOT, .type = PROBLEM, .body = "{\"retryable\":true}", .marker = "rejected"},
        {.status = 429, .news = NOT, .marker = "rejected"},
        {.status = 500, .news = NOT, .marker = "released"},
        {.status = 201, .news = DEF, .marker = "executed"},
        /* Nor is what is about another request with the key: in a server's words, or by the status after a lost answer. */
        {.status = 422, .news = REJ, .type = PROBLEM, .body = "{\"type\":\"urn:hapax:problem:key-reused\"}"},
        {.status = 409,
         .news = REJ,
         .type = PROBLEM,
         .body = "{\"type\":\"https://x.example/p#key-reused\",\"retryable\":false}",
         .maybe_done = true},
        {.status = 400,
         .news = REJ,
         .type = "application/json",
         .body = "{\"error\":{\"type\":\"idempotency_error\"}}"},
        {.status = 400,
         .news = DEF,
         .type = "application/json",
         .body = "{\"error\":{\"type\":\"idempotency_error\"}}",
         .marker = "executed"},
        {.status = 201,
         .news = DEF,
         .type = "application/json",
         .body = "{\"error\":{\"type\":\"idempotency_error\"}}"},
        {.status = 422, .news = REJ, .maybe_done = true},
        {.status = 422, .news = REJ, .type = PROBLEM, .body = "{\"retryable\":false}", .maybe_done = true},
        {.status = 422, .news = NOT, .retry_after = "1", .maybe_done = true},
        {.status = 422, .news = DEF, .marker = "replayed", .maybe_done = true},
        {.status = 422, .news = DEF, .replayed = "true", .maybe_done = true},
        /* What a problem document says of itself. */
        {.status = 500, .news = MAY, .type = PROBLEM, .body = "{\"retryable\":true}"},
        {.status = 500, .news = NOT, .type = PROBLEM, .body = "{\"retryable\":true}", .marker = "rejected"},
        {.status = 502, .news = NOT, .type = PROBLEM, .body = "{\"retryable\":true}", .marker = "released"},
        {.status = 502,
         .news = MAY,
         .type = PROBLEM,
         .body = "{\"retryable\":true}",
         .marker = "unprotected"},
        {.status = 503, .news = MAY, .type = PROBLEM, .body = "{\"retryable\":true}"},
        {.status = 503, .news = NOT, .type = PROBLEM, .body = "{\"retryable\":true}", .marker = "rejected"},
        {.status = 401, .news = NOT, .type = PROBLEM, .body = "{\"retryable\":true}"},
        {.status = 429, .news = REJ, .type = PROBLEM, .body = "{\"retryable\":false}", .retry_after = "1"},
        {.status = 504, .news = HELD, .type = PROBLEM, .body = "{\"retryable\":false}"},
        {.status = 409, .news = DEF, .type = PROBLEM, .body = "{\"retryable\":false}", .retry_after = "1"},
        {.status = 409, .news = DEF, .type = PROBLEM, .body = "{\"retryable\":\"yes\"}"},
        {.status = 500, .news = DEF, .type = "application/json", .body = "{\"retryable\":true}"},
        {.status = 409,
         .news = HELD,
         .type = PROBLEM,
         .body = "{\"type\":\"urn:hapax:problem:outcome-unknown\"}"},
        {.status = 502,
         .news = HELD,
         .type = PROBLEM,
         .body = "{\"type\":\"urn:hapax:problem:outcome-unknown\"}"},
        {.status = 409, .news = MAY, .type = PROBLEM, .body = UNKNOWN_AND "true}"},
        {.status = 502, .news = MAY, .type = PROBLEM, .body = UNKNOWN_AND "true}", .marker = "unknown"},
        {.status = 504, .news = MAY, .type = PROBLEM, .body = UNKNOWN_AND "true}", .retry_after = "1"},
        {.status = 503, .news = MAY, .type = PROBLEM, .body = UNKNOWN_AND "true}", .marker = "released"},
        {.status = 502, .news = HELD, .type = PROBLEM, .body = UNKNOWN_AND "false}", .retry_after = "1"},
        {.status = 409, .news = HELD, .type = PROBLEM, .body = UNKNOWN_AND "null}"},
        {.status = 409, .news = DEF, .type = "application/json", .body = UNKNOWN_AND "true}"},
        {.status = 200, .news = DEF, .type = PROBLEM, .body = "{\"retryable\":true}"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct retry_verdict v = judge(&cases[i]);
        if (v.news != cases[i].news) {
            fail_msg("%d %s %s: %s", cases[i].status, cases[i].retry_after != NULL ? "with Retry-After" : "",
                     cases[i].body != NULL ? cases[i].body : "", hapax_call_news_name(v.news));
        }
    }
    assert_int_equal(judge(&(struct answer_case){.status = 429, .retry_after = "3"}).after_ms, 3000);
    assert_int_equal(judge(&(struct answer_case){.status = 429}).after_ms, -1);
}

static void without_an_answer_it_matters_whether_a_byte_left(void **state)
{
    (void)state;
    struct retry_verdict v;
    struct arena arena;
    arena_init(&arena, 4096);
    const enum call_failure failures[] = {CALL_NOT_SENT, CALL_TIMEOUT, CALL_BROKEN};
    for (size_t i = 0; i < 3; i++) {
        struct client_reply reply;
        client_reply_init(&reply);
        reply.failure = failures[i];
        assert_int_equal(retry_judge(&v, &reply, false, NOW_MS, &arena), 0);
        assert_int_equal(v.news, failures[i] == CALL_NOT_SENT ? HAPAX_CALL_NOTHING : HAPAX_CALL_MAYBE);
        assert_int_equal(v.after_ms, -1);
        client_reply_free(&reply);
    }
    arena_free(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_window_doubles_up_to_its_maximum_and_chance_picks_evenly_from_zero),
        cmocka_unit_test(retry_after_is_seconds_or_a_date_in_each_of_the_three_forms),
        cmocka_unit_test(a_date_counts_from_the_servers_own_clock),
        cmocka_unit_test(what_is_neither_seconds_nor_a_date_is_not_obeyed),
        cmocka_unit_test(every_beginning_of_a_date_is_read_without_harm),
        cmocka_unit_test(years_of_two_digits_are_the_last_that_are_not_far_ahead),
        cmocka_unit_test(each_kind_of_answer_is_what_the_documentation_says),
        cmocka_unit_test(without_an_answer_it_matters_whether_a_byte_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
