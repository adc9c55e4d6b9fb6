/* What an answer says about its operation. */
#include "drill/answers.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static struct answer answer_of(int status, const struct header *headers, size_t count)
{
    return (struct answer){
        .result = WIRE_ANSWERED, .status = status, .headers = headers, .header_count = count};
}

static bool body_says_unknown(const char *type, const char *body)
{
    struct header h = {SLICE_LITERAL("Content-Type"), slice_text(type)};
    struct answer a = answer_of(409, &h, 1);
    return answer_body_says_unknown(&a, slice_text(body));
}

static void only_the_type_of_a_problem_says_that_nobody_knows(void **state)
{
    (void)state;
    static const char problem[] = "application/problem+json; charset=utf-8";
    assert_true(body_says_unknown(problem, "{\"type\":\"https://x.example/problems/outcome-unknown\"}"));
    assert_true(body_says_unknown(problem, "{\"type\":\"urn:x:outcome-unknown\"}"));
    assert_true(body_says_unknown(problem, "{\"status\":409,\"type\":\"outcome-\\u0075nknown\"}"));
    static const char *const others[] = {
        "{\"title\":\"outcome-unknown\"}",         "{\"type\":\"about:blank\",\"title\":\"Unknown error\"}",
        "{\"type\":\"urn:x:no-outcome-unknown\"}", "{\"type\":\"urn:x:unknown\"}",
        "{\"type\":[\"outcome-unknown\"]}",        "\"outcome-unknown\"",
        "{\"type\":\"outcome-unknown\"",           ""};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        assert_false(body_says_unknown(problem, others[i]));
    }
    assert_false(body_says_unknown("application/json", "{\"type\":\"outcome-unknown\"}"));
}

static void the_marker_says_it_of_failures_only(void **state)
{
    (void)state;
    struct header h = {SLICE_LITERAL("idempotency-status"), SLICE_LITERAL("unknown")};
    struct answer a = answer_of(502, &h, 1);
    assert_true(answer_says_unknown(&a));
    a.status = 201;
    assert_false(answer_says_unknown(&a));
    h.value = SLICE_LITERAL("replayed");
    a.status = 502;
    assert_false(answer_says_unknown(&a));
}

static void retry_after_is_read_of_limits_only(void **state)
{
    (void)state;
    static const struct {
        int status;
        const char *value;
        int64_t ms;
    } cases[] = {{429, "2", 2000},
                 {503, "0", 0},
                 {409, "2", 0},
                 {429, "", 0},
                 {429, "Wed, 21 Oct", 0},
                 {429, "-1", 0},
                 {429, "99999999999999999999", 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct header h = {SLICE_LITERAL("Retry-After"), slice_text(cases[i].value)};
        struct answer a = answer_of(cases[i].status, &h, 1);
        assert_int_equal(answer_retry_ms(&a), cases[i].ms);
    }
}

static void a_refusal_is_definite_where_only_effects_count(void **state)
{
    (void)state;
    static const struct {
        int status;
        bool draft;
        bool queue;
    } cases[] = {{201, true, true},  {422, true, true},   {409, false, true},
                 {423, false, true}, {429, false, false}, {503, false, false}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct answer a = answer_of(cases[i].status, NULL, 0);
        assert_int_equal(answer_is_definite(&a, drill_profile_named("draft")), cases[i].draft);
        assert_int_equal(answer_is_definite(&a, drill_profile_named("queue")), cases[i].queue);
        a.result = WIRE_BROKEN;
        assert_false(answer_is_definite(&a, drill_profile_named("queue")));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_the_type_of_a_problem_says_that_nobody_knows),
        cmocka_unit_test(the_marker_says_it_of_failures_only),
        cmocka_unit_test(retry_after_is_read_of_limits_only),
        cmocka_unit_test(a_refusal_is_definite_where_only_effects_count),
    };
    return cmocka_run_group_tests_name("drill_answers", tests, NULL, NULL);
}
