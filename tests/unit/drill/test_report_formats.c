/* The reports for machines and browsers, beside files that were read by a person once: golden/report.{xml,tap,html}.
 * HAPAX_GOLDEN=write writes them anew. tests/drill/test_reports.py reads the same files with other programs. */
#include "drill/drill.h"
#include "drill/report_write.h"

#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define HOSTILE "</pre><script>alert(1)</script> & \"quotes\" 'too' ]]> # \\ {{7*7}} \u202e \uffff"

static const struct drill_status created[] = {{201, 2}};
static const struct drill_status mixed[] = {{0, 1}, {201, 1}, {409, 6}};

static const struct drill_case cases[] = {
    {.id = "check",
     .title = "one request has one effect",
     .group = DRILL_CHECK,
     .verdict = DRILL_HOLDS,
     .what = "",
     .effects_least = 1,
     .effects_most = 1,
     .effects_seen = 1,
     .statuses = created,
     .status_count = 1,
     .requests = 2,
     .curl = "curl -X POST http://127.0.0.1:3000/orders",
     .duration_ms = 12},
    {.id = "at-once.read.same.here.right-away",
     .title = "8 at once, answers read",
     .group = DRILL_MATRIX,
     .at = {DRILL_AT_ONCE, DRILL_READ, DRILL_SAME, DRILL_HERE, DRILL_RIGHT_AWAY},
     .verdict = DRILL_BROKEN,
     .what = "2 effects instead of 1",
     .effects_least = 1,
     .effects_most = 1,
     .effects_seen = 2,
     .statuses = mixed,
     .status_count = 3,
     .requests = 8,
     .curl = "seq 8 | xargs -P8 -I{} curl -d '{\"n\": 1}' http://127.0.0.1:3000/orders",
     .duration_ms = 1234},
    {.id = "once.reply-lost.other.other-path.after",
     .title = "a title with " HOSTILE,
     .group = DRILL_MATRIX,
     .at = {DRILL_ONCE, DRILL_REPLY_LOST, DRILL_OTHER, DRILL_OTHER_PATH, DRILL_AFTER},
     .verdict = DRILL_INCONCLUSIVE,
     .what = "the counter said " HOSTILE,
     .effects_least = 0,
     .effects_most = 1,
     .effects_seen = -1,
     .requests = 2,
     .curl = "curl -d '" HOSTILE "' http://127.0.0.1:3000/other",
     .duration_ms = 7},
    {.id = "keys.missing",
     .title = "no key",
     .group = DRILL_KEYS,
     .verdict = DRILL_NOT_APPLICABLE,
     .what = "not demanded by this profile " HOSTILE,
     .effects_least = -1,
     .effects_most = -1,
     .effects_seen = -1,
     .curl = ""},
};

static struct drill_report a_report(void)
{
    return (struct drill_report){
        .version = "0.1.0",
        .method = "POST",
        .target = "http://127.0.0.1:3000/orders?q=" HOSTILE,
        .profile = "draft",
        .counter = "http://127.0.0.1:3000/count#/" HOSTILE,
        .started_wall_ms = 1796034991000,
        .duration_ms = 61005,
        .seed = UINT64_MAX,
        .times = 8,
        .requests = 12,
        .cases = cases,
        .case_count = sizeof cases / sizeof *cases,
        .tally = {1, 1, 1, 1},
        .stopped = "interrupted " HOSTILE,
    };
}

typedef int report_format(struct buf *out, const struct drill_report *report);

static char *read_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    char *text = calloc(1, 1 << 18);
    assert_non_null(text);
    size_t len = fread(text, 1, (1 << 18) - 1, f);
    assert_int_equal(fclose(f), 0);
    assert_true(len < (1 << 18) - 1);
    return text;
}

static void check_golden(const char *name, report_format *format)
{
    char path[PATH_MAX];
    (void)snprintf(path, sizeof path, "%s/unit/drill/golden/%s", getenv("HAPAX_TESTS"), name);
    struct drill_report report = a_report();
    struct buf out;
    buf_init(&out, DRILL_REPORT_BYTES_MAX);
    assert_int_equal(format(&out, &report), 0);
    assert_int_equal(buf_append_byte(&out, '\0'), 0);
    const char *mode = getenv("HAPAX_GOLDEN");
    if (mode != NULL && strcmp(mode, "write") == 0) {
        FILE *f = fopen(path, "wb");
        assert_non_null(f);
        assert_true(fputs(out.ptr, f) >= 0);
        assert_int_equal(fclose(f), 0);
    }
    char *golden = read_file(path);
    assert_string_equal(out.ptr, golden);
    free(golden);
    buf_free(&out);
}

/* Whatever the maximum: the error is told, and nothing is past it. */
static void check_every_maximum(report_format *format)
{
    struct drill_report report = a_report();
    struct buf out;
    buf_init(&out, DRILL_REPORT_BYTES_MAX);
    assert_int_equal(format(&out, &report), 0);
    size_t whole = out.len;
    buf_free(&out);
    for (size_t max = 0; max <= whole; max += max < 64 ? 1 : 37) {
        buf_init(&out, max);
        assert_int_equal(format(&out, &report), max < whole ? HAPAX_E_LIMIT : 0);
        assert_true(out.len <= max);
        buf_free(&out);
    }
}

static void junit_is_as_it_was_read(void **state)
{
    (void)state;
    check_golden("report.xml", drill_report_junit);
    check_every_maximum(drill_report_junit);
}

static void tap_is_as_it_was_read(void **state)
{
    (void)state;
    check_golden("report.tap", drill_report_tap);
    check_every_maximum(drill_report_tap);
}

static void html_is_as_it_was_read(void **state)
{
    (void)state;
    check_golden("report.html", drill_report_html);
    check_every_maximum(drill_report_html);
}

static void a_report_without_cases_is_whole(void **state)
{
    (void)state;
    struct drill_report report = a_report();
    report.case_count = 0;
    memset(report.tally, 0, sizeof report.tally);
    report_format *const formats[] = {drill_report_junit, drill_report_tap, drill_report_html};
    static const char *const ends[] = {"</testsuites>\n", "\n", "</html>\n"};
    for (size_t i = 0; i < 3; i++) {
        struct buf out;
        buf_init(&out, DRILL_REPORT_BYTES_MAX);
        assert_int_equal(formats[i](&out, &report), 0);
        size_t len = strlen(ends[i]);
        assert_true(out.len > len);
        assert_memory_equal(out.ptr + out.len - len, ends[i], len);
        buf_free(&out);
    }
}

static void check_markup(const char *text, const char *expected)
{
    struct buf out;
    buf_init(&out, 4096);
    struct report_writer w = {.out = &out};
    report_put_markup(&w, text);
    assert_int_equal(w.code, 0);
    assert_int_equal(out.len, strlen(expected));
    assert_memory_equal(buf_slice(&out).ptr, expected, out.len);
    buf_free(&out);
}

#define BAD "\xef\xbf\xbd"

static void markup_holds_what_xml_allows_and_nothing_else(void **state)
{
    (void)state;
    check_markup("", "");
    check_markup("plain \u00e9\u20ac\U0001f600", "plain \u00e9\u20ac\U0001f600");
    check_markup("<a b=\"c\" d='e'>&amp;]]>", "&lt;a b=&quot;c&quot; d=&#39;e&#39;&gt;&amp;amp;]]&gt;");
    check_markup("\x01\x1b\x7f\r\n\t", BAD BAD BAD BAD BAD BAD);
    check_markup("\u2028", BAD BAD BAD);
    check_markup("\xc2\x85", BAD BAD);                                 /* C1 */
    check_markup("\xef\xbf\xbe\xef\xbf\xbf", BAD BAD BAD BAD BAD BAD); /* U+FFFE, U+FFFF */
    check_markup("\xed\xa0\x80", BAD BAD BAD);                         /* a surrogate */
    check_markup("\xc0\xaf\xe0\x80\xaf", BAD BAD BAD BAD BAD);         /* overlong forms of a slash */
    check_markup("\xf4\x90\x80\x80", BAD BAD BAD BAD);                 /* past U+10FFFF */
    check_markup("\xff\xfe", BAD BAD);
    check_markup("\xe2\x82", BAD BAD); /* cut off */
    check_markup("\xf0\x9f\x98", BAD BAD BAD);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(junit_is_as_it_was_read),
        cmocka_unit_test(tap_is_as_it_was_read),
        cmocka_unit_test(html_is_as_it_was_read),
        cmocka_unit_test(a_report_without_cases_is_whole),
        cmocka_unit_test(markup_holds_what_xml_allows_and_nothing_else),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
