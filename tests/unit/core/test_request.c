#include "core/request.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

static void headers_are_found_without_case_and_counted(void **state)
{
    (void)state;
    const struct header headers[] = {
        {SLICE_LITERAL("Host"), SLICE_LITERAL("example.org")},
        {SLICE_LITERAL("idempotency-key"), SLICE_LITERAL("first")},
        {SLICE_LITERAL("X-Idempotency-Key"), SLICE_LITERAL("other")},
        {SLICE_LITERAL("IDEMPOTENCY-KEY"), SLICE_LITERAL("second")},
    };
    const struct request r = {.headers = headers, .header_count = 4};
    struct slice value = SLICE_LITERAL("untouched");
    assert_int_equal(request_header(&value, &r, SLICE_LITERAL("Idempotency-Ke")), 0);
    assert_int_equal(request_header(&value, &r, SLICE_LITERAL("")), 0);
    assert_true(slice_equal(value, SLICE_LITERAL("untouched")));
    assert_int_equal(request_header(&value, &r, SLICE_LITERAL("Idempotency-Key")), 2);
    assert_true(slice_equal(value, SLICE_LITERAL("first")));
    assert_int_equal(request_header(&value, &r, SLICE_LITERAL("host")), 1);
    assert_true(slice_equal(value, SLICE_LITERAL("example.org")));
}

static void a_request_without_headers_has_none(void **state)
{
    (void)state;
    const struct request r = {0};
    struct slice value;
    assert_int_equal(request_header(&value, &r, SLICE_LITERAL("Host")), 0);
}

static void a_media_type_is_what_stands_before_the_parameters(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        {"application/json", "application/json"},
        {"application/json; charset=utf-8", "application/json"},
        {" Application/JSON \t;charset=utf-8", "Application/JSON"},
        {"text/plain;", "text/plain"},
        {"; charset=utf-8", ""},
        {"", ""},
        {NULL, ""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct slice media = media_type(slice_text(rows[i][0]));
        assert_true(slice_equal(media, slice_text(rows[i][1])));
        assert_false(slice_is_none(media));
    }
}

static void parameters_are_found(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        {"a/b; boundary=xyz", "xyz"},
        {"a/b;boundary=xyz", "xyz"},
        {"a/b ; charset=utf-8 ; BOUNDARY=xyz ", "xyz"},
        {"a/b; boundary=\"x y;z\"", "x y;z"},
        {"a/b; boundary=\"\"", ""},
        {"a/b; note=\"; boundary=no\"; boundary=yes", "yes"},
        {"a/b; note=\"a\\\"; boundary=no\"; boundary=yes", "yes"},
        {"a/b;; ;boundary=xyz;", "xyz"},
        {"a/b; boundary=----=_Part_1/2.3", "----=_Part_1/2.3"},
        {"a/b; boundary=xyz; charset=utf-8", "xyz"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct slice value = media_parameter(slice_text(rows[i][0]), SLICE_LITERAL("boundary"));
        if (slice_is_none(value) || !slice_equal(value, slice_text(rows[i][1]))) {
            fail_msg("%s: %.*s", rows[i][0], SLICE_FORMAT(value));
        }
    }
}

static void absent_doubled_and_malformed_parameters_are_none(void **state)
{
    (void)state;
    static const char *const rows[] = {
        NULL,
        "",
        "a/b",
        "boundary=xyz",
        "a/b;",
        "a/b; charset=utf-8",
        "a/b; xboundary=1; boundary2=2",
        "a/b; boundary",
        "a/b; boundary=",
        "a/b; boundary =xyz",
        "a/b; boundary= xyz",
        "a/b; boundary=x y",
        "a/b; boundary=x\"y\"",
        "a/b; boundary=\"xyz",
        "a/b; boundary=\"xyz\\\"",
        "a/b; boundary=\"xyz\"z",
        "a/b; boundary=\"x\\\"yz\"",
        "a/b; boundary=x; boundary=x",
        "a/b; boundary=x; Boundary=\"y\"",
        "a/b; boundary=\"\\x\"; boundary=y",
        "a/b; boundary=x; broken",
        "a/b; =1; boundary=x",
        "a/b; boundary=\xc3\xa9",
        "a/b; boundary=x, a/b",
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct slice value = media_parameter(slice_text(rows[i]), SLICE_LITERAL("boundary"));
        if (!slice_is_none(value)) {
            fail_msg("%s: %.*s", rows[i], SLICE_FORMAT(value));
        }
    }
}

static void json_is_told_by_its_media_type(void **state)
{
    (void)state;
    static const struct {
        const char *media;
        bool json;
    } rows[] = {
        {"application/json", true},
        {"APPLICATION/Json", true},
        {"application/vnd.api+json", true},
        {"application/problem+JSON", true},
        {"image/x+json", true},
        {"text/json", false},
        {"application/jsonp", false},
        {"application/json2", false},
        {"application/json+xml", false},
        {"application/+json", false},
        {"+json", false},
        {"/x+json", false},
        {"json", false},
        {"", false},
        {NULL, false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(media_is_json(slice_text(rows[i].media)), rows[i].json);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(headers_are_found_without_case_and_counted),
        cmocka_unit_test(a_request_without_headers_has_none),
        cmocka_unit_test(a_media_type_is_what_stands_before_the_parameters),
        cmocka_unit_test(parameters_are_found),
        cmocka_unit_test(absent_doubled_and_malformed_parameters_are_none),
        cmocka_unit_test(json_is_told_by_its_media_type),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
