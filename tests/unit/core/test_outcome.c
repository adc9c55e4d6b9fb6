#include "core/outcome.h"

#include "hapax/error.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static bool among(int status, const int *list, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (list[i] == status) {
            return true;
        }
    }
    return false;
}

static void every_status_has_its_designed_default(void **state)
{
    (void)state;
    static const int released[] = {401, 403, 408, 421, 425, 429, 503};
    static const int unknown[] = {502, 504};
    struct outcome_table t;
    outcome_table_default(&t);
    for (int status = 200; status <= 599; status++) {
        enum outcome expected = among(status, released, 7)  ? OUTCOME_RELEASED
                                : among(status, unknown, 2) ? OUTCOME_UNKNOWN
                                                            : OUTCOME_DONE;
        assert_int_equal(outcome_of_status(&t, status), expected);
    }
}

static void a_status_outside_the_range_is_unknown(void **state)
{
    (void)state;
    struct outcome_table t;
    outcome_table_default(&t);
    static const int strange[] = {-1, 0, 100, 199, 600, 999, 70000};
    for (size_t i = 0; i < sizeof strange / sizeof strange[0]; i++) {
        assert_int_equal(outcome_of_status(&t, strange[i]), OUTCOME_UNKNOWN);
    }
}

static void only_what_never_left_is_released(void **state)
{
    (void)state;
    assert_int_equal(outcome_of_failure(CALL_NOT_SENT), OUTCOME_RELEASED);
    assert_int_equal(outcome_of_failure(CALL_TIMEOUT), OUTCOME_UNKNOWN);
    assert_int_equal(outcome_of_failure(CALL_BROKEN), OUTCOME_UNKNOWN);
}

static void a_route_changes_one_status(void **state)
{
    (void)state;
    struct outcome_table t;
    outcome_table_default(&t);
    assert_int_equal(outcome_table_set(&t, SLICE_LITERAL("500"), OUTCOME_UNKNOWN), 0);
    assert_int_equal(outcome_of_status(&t, 499), OUTCOME_DONE);
    assert_int_equal(outcome_of_status(&t, 500), OUTCOME_UNKNOWN);
    assert_int_equal(outcome_of_status(&t, 501), OUTCOME_DONE);
}

static void a_route_changes_a_class(void **state)
{
    (void)state;
    struct outcome_table t;
    outcome_table_default(&t);
    assert_int_equal(outcome_table_set(&t, SLICE_LITERAL("5xx"), OUTCOME_RELEASED), 0);
    for (int status = 500; status <= 599; status++) {
        assert_int_equal(outcome_of_status(&t, status), OUTCOME_RELEASED);
    }
    assert_int_equal(outcome_of_status(&t, 499), OUTCOME_DONE);
    assert_int_equal(outcome_table_set(&t, SLICE_LITERAL("2xx"), OUTCOME_UNKNOWN), 0);
    assert_int_equal(outcome_of_status(&t, 200), OUTCOME_UNKNOWN);
    assert_int_equal(outcome_of_status(&t, 299), OUTCOME_UNKNOWN);
    assert_int_equal(outcome_of_status(&t, 300), OUTCOME_DONE);
}

static void a_route_changes_a_range(void **state)
{
    (void)state;
    struct outcome_table t;
    outcome_table_default(&t);
    assert_int_equal(outcome_table_set(&t, SLICE_LITERAL("400-428"), OUTCOME_RELEASED), 0);
    assert_int_equal(outcome_of_status(&t, 399), OUTCOME_DONE);
    assert_int_equal(outcome_of_status(&t, 400), OUTCOME_RELEASED);
    assert_int_equal(outcome_of_status(&t, 428), OUTCOME_RELEASED);
    assert_int_equal(outcome_of_status(&t, 430), OUTCOME_DONE);
    assert_int_equal(outcome_table_set(&t, SLICE_LITERAL("200-599"), OUTCOME_DONE), 0);
    assert_int_equal(outcome_of_status(&t, 599), OUTCOME_DONE);
}

static void a_malformed_override_changes_nothing(void **state)
{
    (void)state;
    static const char *const bad[] = {"",        "4",       "40",      "4x",       "4x4",     "xx",
                                      "4XX",     "1xx",     "6xx",     "199",      "600",     "0400",
                                      "400-",    "-499",    "499-400", "400 -499", "4xx-5xx", "400-600",
                                      "100-300", "400,401", " 400",    "400-4999", "40a",     "400-49a"};
    struct outcome_table t;
    struct outcome_table before;
    outcome_table_default(&t);
    before = t;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(outcome_table_set(&t, slice_text(bad[i]), OUTCOME_UNKNOWN), HAPAX_E_SYNTAX);
    }
    assert_memory_equal(&t, &before, sizeof t);
}

static void words_are_read_back(void **state)
{
    (void)state;
    static const char *const words[] = {"done", "released", "unknown"};
    for (unsigned o = 0; o < 3; o++) {
        enum outcome parsed = OUTCOME_DONE;
        assert_string_equal(outcome_name((enum outcome)o), words[o]);
        assert_int_equal(outcome_parse(&parsed, slice_text(words[o])), 0);
        assert_int_equal(parsed, o);
    }
    enum outcome untouched = OUTCOME_RELEASED;
    assert_int_equal(outcome_parse(&untouched, SLICE_LITERAL("Done")), HAPAX_E_SYNTAX);
    assert_int_equal(outcome_parse(&untouched, SLICE_LITERAL("")), HAPAX_E_SYNTAX);
    assert_int_equal(untouched, OUTCOME_RELEASED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_status_has_its_designed_default),
        cmocka_unit_test(a_status_outside_the_range_is_unknown),
        cmocka_unit_test(only_what_never_left_is_released),
        cmocka_unit_test(a_route_changes_one_status),
        cmocka_unit_test(a_route_changes_a_class),
        cmocka_unit_test(a_route_changes_a_range),
        cmocka_unit_test(a_malformed_override_changes_nothing),
        cmocka_unit_test(words_are_read_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
