/* Which lines of a stored head a request of some origin gets, whatever the store holds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "core/fields.h"

#include <stdlib.h>
#include <string.h>

#define SHOP   "https://shop.test"
#define ALLOW  "Access-Control-Allow-Origin: " SHOP "\r\n"
#define OTHERS "X-A: 1\r\nVary: Origin\r\n"

/* The lines in a block of just their size, so that a look beyond it is seen. */
static void assert_replayed(const char *lines, const char *origin, const char *expected)
{
    size_t len = strlen(lines);
    char *exact = malloc(len + 1);
    assert_non_null(exact);
    exact = realloc(exact, len > 0 ? len : 1);
    assert_non_null(exact);
    memcpy(exact, lines, len);
    struct buf out;
    buf_init(&out, 4096);
    assert_int_equal(fields_append_replayed(&out, slice_of(exact, len), slice_text(origin)), 0);
    if (!slice_equal(buf_slice(&out), slice_text(expected))) {
        fail_msg("to %s: %.*s", origin != NULL ? origin : "nobody", SLICE_FORMAT(buf_slice(&out)));
    }
    buf_free(&out);
    free(exact);
}

static void lines_of_other_families_go_to_everybody(void **state)
{
    (void)state;
    assert_replayed("", NULL, "");
    assert_replayed(OTHERS, NULL, OTHERS);
    assert_replayed(OTHERS "Access-Control: x\r\n", SHOP, OTHERS "Access-Control: x\r\n");
    assert_replayed(OTHERS ALLOW, "https://other.test", OTHERS);
    assert_replayed(ALLOW OTHERS "access-control-max-age: 1\r\n", NULL, OTHERS);
}

static void one_line_that_allows_the_origin_lets_the_family_through(void **state)
{
    (void)state;
    static const char *const all[] = {
        (OTHERS ALLOW), ("access-control-max-age: 1\r\nACCESS-CONTROL-ALLOW-ORIGIN:\t" SHOP " \r\n" OTHERS),
        "Access-Control-Allow-Origin:*\r\nAccess-Control-Allow-Credentials: true\r\n",
        ("Access-Control-Allow-Origin: " SHOP), /* a store that was written by hand */
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        assert_replayed(all[i], SHOP, all[i]);
    }
    assert_replayed("Access-Control-Allow-Origin: *\r\n", NULL, "Access-Control-Allow-Origin: *\r\n");
}

static void anything_less_clear_lets_nothing_through(void **state)
{
    (void)state;
    static const char *const unclear[] = {
        (ALLOW ALLOW),
        (ALLOW "Access-Control-Allow-Origin: *\r\n"),
        ("Access-Control-Allow-Origin: " SHOP ", *\r\n"),
        ("Access-Control-Allow-Origin: " SHOP "/\r\n"),
        "Access-Control-Allow-Origin: HTTPS://SHOP.TEST\r\n",
        "Access-Control-Allow-Origin:\r\n",
        "Access-Control-Allow-Origin:",
        "Access-Control-Allow-Origins: *\r\n",
        "Access-Control-\r\n",
        "Access-Control-Max-Age: 1\r\n",
    };
    for (size_t i = 0; i < sizeof unclear / sizeof unclear[0]; i++) {
        assert_replayed(unclear[i], SHOP, "");
    }
    assert_replayed("Access-Control-Allow-Origin:\r\n", NULL, "");
    assert_replayed("\n\r\nAccess-Control-X", SHOP, "\n\r\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_of_other_families_go_to_everybody),
        cmocka_unit_test(one_line_that_allows_the_origin_lets_the_family_through),
        cmocka_unit_test(anything_less_clear_lets_nothing_through),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
