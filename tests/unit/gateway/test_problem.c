/* The gateway's own answers: what their document looks like, whatever their detail holds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "gateway/problem.h"

#include <jansson.h>
#include <string.h>

static json_t *document(const char *detail, const struct problem_members *members)
{
    char storage[PROBLEM_BYTES_MAX];
    json_error_t error;
    struct slice text = problem_body(storage, PROBLEM_OVERLOADED, detail, true, members);
    json_t *object = json_loadb(text.ptr, text.len, JSON_REJECT_DUPLICATES, &error);
    if (object == NULL) {
        fail_msg("%s: %.*s", error.text, SLICE_FORMAT(text));
    }
    assert_int_equal(text.ptr[text.len - 1], '\n');
    return object;
}

static void assert_detail(const char *detail, const char *expected)
{
    json_t *object = document(detail, NULL);
    assert_string_equal(json_string_value(json_object_get(object, "detail")), expected);
    json_decref(object);
}

static void a_problem_names_type_status_and_what_to_do(void **state)
{
    (void)state;
    json_t *object = document("Later.", NULL);
    assert_string_equal(json_string_value(json_object_get(object, "type")), "urn:hapax:problem:overloaded");
    assert_string_equal(json_string_value(json_object_get(object, "title")), "Too much at once");
    assert_int_equal(json_integer_value(json_object_get(object, "status")), 503);
    assert_true(json_is_true(json_object_get(object, "retryable")));
    assert_int_equal(json_object_size(object), 5);
    json_decref(object);
}

static void members_are_there_when_known(void **state)
{
    (void)state;
    const struct problem_members m = {.operation = "8f14",
                                      .first_claimed_ms = 1000,
                                      .attempt = 2,
                                      .original_status = 504,
                                      .limit_bytes = 8388608};
    json_t *object = document("Later.", &m);
    assert_string_equal(json_string_value(json_object_get(object, "operation")), "8f14");
    assert_string_equal(json_string_value(json_object_get(object, "first_seen")), "1970-01-01T00:00:01.000Z");
    assert_int_equal(json_integer_value(json_object_get(object, "attempt")), 2);
    assert_int_equal(json_integer_value(json_object_get(object, "original_status")), 504);
    assert_int_equal(json_integer_value(json_object_get(object, "limit_bytes")), 8388608);
    assert_int_equal(json_object_size(object), 10);
    json_decref(object);
}

static void any_detail_is_a_string_of_the_document(void **state)
{
    (void)state;
    assert_detail("", "");
    assert_detail("\"\\/\x7f", "\"\\/\x7f");
    assert_detail("a\nb\tc\x01", "a\nb\tc\x01");
    assert_detail("\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80", "\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80");
    assert_detail("\xff\xc3", "??");
    assert_detail("\xed\xa0\x80", "???");
}

static void a_long_detail_is_cut_and_the_document_stays_whole(void **state)
{
    (void)state;
    char detail[2000];
    memset(detail, 1, sizeof detail - 1); /* each takes six bytes */
    detail[sizeof detail - 1] = '\0';
    const struct problem_members m = {.operation = "00112233445566778899aabbccddeeff",
                                      .first_claimed_ms = INT64_C(4102444800000),
                                      .attempt = UINT32_MAX,
                                      .original_status = 504,
                                      .limit_bytes = INT64_MAX};
    json_t *object = document(detail, &m);
    assert_int_equal(json_string_length(json_object_get(object, "detail")), 512);
    assert_int_equal(json_object_size(object), 10);
    json_decref(object);
}

/* harmless, asks → retryable */
static void assert_again(enum problem p, bool none, bool harmless, bool asks)
{
    assert_int_equal(problem_retryable(p, false, false), none);
    assert_int_equal(problem_retryable(p, true, false), harmless);
    assert_int_equal(problem_retryable(p, false, true), asks);
}

static void
whether_a_request_may_come_again_hangs_on_method_and_route_only_where_it_may_have_run(void **state)
{
    (void)state;
    for (int i = 0; i < PROBLEM_COUNT; i++) {
        enum problem p = (enum problem)i;
        switch (p) {
        case PROBLEM_UPSTREAM_TIMEOUT:
        case PROBLEM_UPSTREAM_BROKEN:
        case PROBLEM_REQUEST_TIMEOUT:
            assert_again(p, false, true, false);
            break;
        case PROBLEM_OUTCOME_HELD:
        case PROBLEM_OUTCOME_UNKNOWN:
        case PROBLEM_OUTCOME_TIMEOUT:
            assert_again(p, false, false, true);
            break;
        default: {
            bool always = problem_retryable(p, false, false);
            assert_again(p, always, always, always);
        }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_problem_names_type_status_and_what_to_do),
        cmocka_unit_test(members_are_there_when_known),
        cmocka_unit_test(any_detail_is_a_string_of_the_document),
        cmocka_unit_test(a_long_detail_is_cut_and_the_document_stays_whole),
        cmocka_unit_test(
            whether_a_request_may_come_again_hangs_on_method_and_route_only_where_it_may_have_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
