/* Keys that name a period of a zone's calendar. */
#include "run/key_template.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

/* 2026-11-29T23:30:05.678Z */
#define EVENING_MS 1795995005678

static int expand(char *out, size_t size, const char *template, int64_t wall_ms, hapax_error *err)
{
    struct buf key;
    buf_init(&key, 255);
    int code = run_key_expand(&key, template, wall_ms, err);
    snprintf(out, size, "%.*s", SLICE_FORMAT(buf_slice(&key)));
    buf_free(&key);
    return code;
}

static void check(const char *template, int64_t wall_ms, const char *expected)
{
    char text[512];
    hapax_error err = {0};
    if (expand(text, sizeof text, template, wall_ms, &err) != 0) {
        fail_msg("%s: %s", template, err.message);
    }
    assert_string_equal(text, expected);
}

static void check_refused(const char *template, int code, const char *why)
{
    char text[512];
    hapax_error err = {0};
    if (expand(text, sizeof text, template, EVENING_MS, &err) != code || strstr(err.message, why) == NULL) {
        fail_msg("%s gave '%s', %s", template, text, err.message);
    }
}

static void the_date_is_that_of_the_named_zone_and_of_utc_without_one(void **state)
{
    (void)state;
    check("backup-{date:%Y-%m-%d}", EVENING_MS, "backup-2026-11-29");
    check("report-{date:%Y-%m-%d@Asia/Shanghai}", EVENING_MS, "report-2026-11-30");
    check("{date:%F@America/New_York} {date:%T@America/New_York}", EVENING_MS, "2026-11-29 18:30:05");
    check("{date:%G-W%V}/{date:%%%j@UTC}", EVENING_MS, "2026-W48/%333");
    check("{date:%H@Etc/GMT+1}", EVENING_MS, "22");
    check("{date:a@b%H@Asia/Shanghai}", EVENING_MS, "a@b07");
}

static void text_stands_for_itself_and_a_doubled_brace_for_one(void **state)
{
    (void)state;
    check("plain", EVENING_MS, "plain");
    check("{{date:%Y}", EVENING_MS, "{date:%Y}");
    check("a{{b}c}}", EVENING_MS, "a{b}c}}");
    check("{{{date:%Y}}", EVENING_MS, "{2026}");
    check("%Y", EVENING_MS, "%Y");
    check("", EVENING_MS, "");
}

/* 2026-10-25: at 01:00 UTC the clocks of Berlin go from 03:00 back to 02:00. */
static void an_hour_that_comes_twice_is_one_period(void **state)
{
    (void)state;
    int64_t first = 1792888200000; /* 00:30 UTC */
    check("{date:%Y-%m-%dT%H:%M@Europe/Berlin}", first, "2026-10-25T02:30");
    check("{date:%Y-%m-%dT%H:%M@Europe/Berlin}", first + 3600000, "2026-10-25T02:30");
    check("{date:%H@Europe/Berlin}", first + 7200000, "03");
    check("{date:%H}", first, "00");
    check("{date:%H}", first + 3600000, "01");
}

static void what_tells_such_hours_apart_is_refused(void **state)
{
    (void)state;
    check_refused("{date:%H%z@Europe/Berlin}", HAPAX_E_SYNTAX, "%z can't be in a key");
    check_refused("{date:%H%Z@Europe/Berlin}", HAPAX_E_SYNTAX, "%Z can't be in a key");
    check_refused("{date:%s}", HAPAX_E_SYNTAX, "%s can't be in a key");
}

static void what_is_not_known_is_an_error_and_never_utc(void **state)
{
    (void)state;
    check_refused("{date:%Y@Nowhere/Land}", HAPAX_E_NOT_FOUND, "no time zone Nowhere/Land");
    check_refused("{date:%Y@Europe}", HAPAX_E_NOT_FOUND, "no time zone Europe"); /* a folder */
    check_refused("{date:%Y@../../../etc/passwd}", HAPAX_E_SYNTAX, "not the name of a time zone");
    check_refused("{date:%Y@/etc/localtime}", HAPAX_E_SYNTAX, "not the name of a time zone");
    check_refused("{date:%Y@}", HAPAX_E_SYNTAX, "not the name of a time zone");
    check_refused("{date:%Y@tzdata.zi}", HAPAX_E_SYNTAX, "not the name of a time zone");
    check_refused("{date:%Y@leapseconds}", HAPAX_E_NOT_FOUND, "no time zone"); /* a file of another kind */
    check_refused("{date:%Q}", HAPAX_E_SYNTAX, "%Q is no conversion");
    check_refused("{date:%}", HAPAX_E_SYNTAX, "is no conversion");
    check_refused("{date:%-d}", HAPAX_E_SYNTAX, "%- is no conversion");
    check_refused("{date:%n}", HAPAX_E_SYNTAX, "%n is no conversion");
    check_refused("{date:}", HAPAX_E_SYNTAX, "no format");
    check_refused("{date:@UTC}", HAPAX_E_SYNTAX, "no format");
    check_refused("{date}", HAPAX_E_SYNTAX, "{date} stands for nothing");
    check_refused("{day}", HAPAX_E_SYNTAX, "{day} stands for nothing");
    check_refused("{}", HAPAX_E_SYNTAX, "{} stands for nothing");
    check_refused("a{date:%Y", HAPAX_E_SYNTAX, "not closed");
    check_refused("{", HAPAX_E_SYNTAX, "not closed");
}

static void templates_keys_formats_and_zones_have_limits(void **state)
{
    (void)state;
    char text[4096];
    memset(text, 'a', sizeof text);
    text[255] = '\0';
    check(text, EVENING_MS, text);
    text[255] = 'a';
    text[256] = '\0';
    check_refused(text, HAPAX_E_LIMIT, "longer than 255 bytes");
    text[256] = 'a';
    text[RUN_TEMPLATE_BYTES_MAX + 1] = '\0';
    check_refused(text, HAPAX_E_LIMIT, "longer than 1024 bytes");
    snprintf(text, sizeof text, "{date:%0129d}", 0);
    check_refused(text, HAPAX_E_LIMIT, "at most 128 bytes");
    snprintf(text, sizeof text, "{date:%%Y@%065d}", 0);
    check_refused(text, HAPAX_E_LIMIT, "its zone 64");
    snprintf(text, sizeof text, "{date:%s%s}", "%A%A%A%A%A%A%A%A%A%A%A%A%A%A%A%A%A%A%A%A%A%A%A%A%A%A%A%A%A%A",
             "%A%A%A%A%A%A%A%A%A%A%A%A%A%A%A%A%A%A%A%A%A%A%A%A%A%A%A%A%A%A"); /* Sunday, 60 times */
    check_refused(text, HAPAX_E_LIMIT, "longer than 255 bytes");
}

static void the_environment_is_as_it_was(void **state)
{
    (void)state;
    struct tm here;
    time_t instant = EVENING_MS / 1000;
    assert_int_equal(setenv("TZ", "Asia/Tokyo", 1), 0);
    check("{date:%H@Asia/Shanghai}", EVENING_MS, "07");
    assert_string_equal(getenv("TZ"), "Asia/Tokyo");
    assert_non_null(localtime_r(&instant, &here));
    assert_int_equal(here.tm_hour, 8);
    assert_int_equal(unsetenv("TZ"), 0);
    check("{date:%H@Asia/Shanghai}", EVENING_MS, "07");
    assert_null(getenv("TZ"));
}

static void without_zone_data_it_says_what_is_missing(void **state)
{
    (void)state;
    assert_int_equal(setenv("TZDIR", "/nonexistent", 1), 0);
    check_refused("{date:%Y@Asia/Shanghai}", HAPAX_E_NOT_FOUND, "install the package tzdata");
    check("{date:%Y}", EVENING_MS, "2026");
    assert_int_equal(unsetenv("TZDIR"), 0);
}

int main(void)
{
    if (access("/usr/share/zoneinfo/Asia/Shanghai", R_OK) != 0) {
        print_error("there is no zone data here: install the package tzdata\n");
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_date_is_that_of_the_named_zone_and_of_utc_without_one),
        cmocka_unit_test(text_stands_for_itself_and_a_doubled_brace_for_one),
        cmocka_unit_test(an_hour_that_comes_twice_is_one_period),
        cmocka_unit_test(what_tells_such_hours_apart_is_refused),
        cmocka_unit_test(what_is_not_known_is_an_error_and_never_utc),
        cmocka_unit_test(templates_keys_formats_and_zones_have_limits),
        cmocka_unit_test(the_environment_is_as_it_was),
        cmocka_unit_test(without_zone_data_it_says_what_is_missing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
