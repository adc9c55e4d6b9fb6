/* Which store commands with records of their own use, and what leads a reader to it. The user's own default is tested
 * with the real program (tests/blackbox/test_run.py). */
#include "cli/home_store.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static const struct cli_option options[] = {CLI_OPTION_HOME_STORE, {0}};
static const struct cli_command command = {.name = "test", .summary = "x", .options = options};

static char *uri_of(const char *store, const char *variable, int code)
{
    char *argv[] = {"--store", (char *)store, NULL};
    struct cli_args args;
    assert_int_equal(variable != NULL ? setenv("HAPAX_STORE", variable, 1) : unsetenv("HAPAX_STORE"), 0);
    assert_int_equal(cli_parse(&args, &command, store != NULL ? 2 : 0, store != NULL ? argv : argv + 2),
                     CLI_OK);
    char *uri = (char *)"";
    assert_int_equal(home_store_uri(&uri, &args), code);
    assert_true((uri != NULL) == (code == CLI_OK));
    cli_args_free(&args);
    return uri;
}

static void check_uri(const char *store, const char *variable, const char *expected)
{
    char *uri = uri_of(store, variable, CLI_OK);
    assert_string_equal(uri, expected);
    free(uri);
}

static void the_option_goes_before_the_variable_and_paths_become_absolute(void **state)
{
    (void)state;
    assert_int_equal(chdir("/tmp"), 0);
    check_uri("sqlite:a b.db", NULL, "sqlite:/tmp/a b.db");
    check_uri("sqlite:/x/y.db", "sqlite:other.db", "sqlite:/x/y.db");
    check_uri(NULL, "sqlite:other.db", "sqlite:/tmp/other.db");
    check_uri(NULL, "postgresql://db.example/app", "postgresql://db.example/app");
    check_uri("fault:write:sqlite:x.db", NULL, "fault:write:sqlite:/tmp/x.db");
    assert_int_equal(chdir("/"), 0);
    check_uri("sqlite:x.db", NULL, "sqlite:/x.db");
}

static void a_store_that_forgets_is_refused(void **state)
{
    (void)state;
    assert_null(uri_of("memory:", NULL, CLI_USAGE));
}

static void a_store_in_the_way_is_told_from_one_that_can_not_be_used(void **state)
{
    (void)state;
    static const struct {
        const char *uri;
        int code;
        int system;
        int exit_code;
    } cases[] = {
        {"sqlite:/x.db", HAPAX_E_STORE, 5, CLI_TRY_LATER}, /* busy, then two extended codes of it */
        {"sqlite:/x.db", HAPAX_E_STORE, 261, CLI_TRY_LATER},
        {"sqlite:/x.db", HAPAX_E_STORE, 262, CLI_TRY_LATER},
        {"sqlite:/x.db", HAPAX_E_STORE, 14, CLI_UNREACHABLE},
        {"postgresql://db.example/app", HAPAX_E_STORE, 5, CLI_UNREACHABLE},
        {"sqlite:/x.db", HAPAX_E_STORE_FULL, 13, CLI_UNREACHABLE},
        {"sqlite:/x.db", HAPAX_E_STORE_CORRUPT, 11, CLI_UNREACHABLE},
        {"sqlite:/x.db", HAPAX_E_STORE_VERSION, 0, CLI_UNREACHABLE},
        {"sqlite:/x.db", HAPAX_E_BUSY, 0, CLI_TRY_LATER},
        {"sqlite:/x.db", HAPAX_E_MEMORY, 0, CLI_TRY_LATER},
        {"sqlite:/x.db", HAPAX_E_SYSTEM, 24, CLI_TRY_LATER},
    };
    const struct cli_args args = {.command = &command};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        hapax_error err = {.code = cases[i].code, .system = cases[i].system, .message = "as expected"};
        assert_int_equal(home_store_error(&args, cases[i].uri, &err), cases[i].exit_code);
    }
}

static void check_option(const char *store, const char *variable, const char *expected)
{
    char *argv[] = {"--store", (char *)store, NULL};
    struct cli_args args;
    assert_int_equal(variable != NULL ? setenv("HAPAX_STORE", variable, 1) : unsetenv("HAPAX_STORE"), 0);
    assert_int_equal(cli_parse(&args, &command, store != NULL ? 2 : 0, store != NULL ? argv : argv + 2),
                     CLI_OK);
    char *uri;
    assert_int_equal(home_store_uri(&uri, &args), CLI_OK);
    struct buf out;
    buf_init(&out, HOME_STORE_OPTION_BYTES_MAX);
    assert_int_equal(home_store_option(&out, &args, uri), 0);
    assert_int_equal(buf_append_byte(&out, '\0'), 0);
    assert_string_equal(out.ptr, expected);
    buf_free(&out);
    free(uri);
    cli_args_free(&args);
}

static void the_option_for_a_reader_can_be_pasted_and_shows_no_password(void **state)
{
    (void)state;
    check_option("sqlite:/x/y.db", NULL, " --store sqlite:/x/y.db");
    check_option("sqlite:/it's here/y.db", NULL, " --store 'sqlite:/it'\\''s here/y.db'");
    check_option(NULL, "sqlite:/x/y.db", " --store sqlite:/x/y.db");
    check_option(NULL, "postgresql://me:word@db.example/app", "");
    check_option("postgresql://me:word@db.example/app", NULL, " --store 'postgresql://***@db.example/app'");
}

static void words_are_quoted_for_a_shell(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {{"plain-1.0", "plain-1.0"}, {"", "''"},
                                           {"a b", "'a b'"},           {"$x", "'$x'"},
                                           {"'", "''\\'''"},           {"~", "'~'"}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        struct buf out;
        buf_init(&out, 64);
        assert_int_equal(home_store_quote(&out, pairs[i][0]), 0);
        assert_int_equal(buf_append_byte(&out, '\0'), 0);
        assert_string_equal(out.ptr, pairs[i][1]);
        buf_free(&out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_option_goes_before_the_variable_and_paths_become_absolute),
        cmocka_unit_test(a_store_that_forgets_is_refused),
        cmocka_unit_test(a_store_in_the_way_is_told_from_one_that_can_not_be_used),
        cmocka_unit_test(the_option_for_a_reader_can_be_pasted_and_shows_no_password),
        cmocka_unit_test(words_are_quoted_for_a_shell),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
