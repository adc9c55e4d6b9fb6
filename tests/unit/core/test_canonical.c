/* jansson first: nothing of its names may collide with ours. */
#include <jansson.h>

#include "base/limits.h"
#include "core/canonical.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

static struct arena arena;
static struct buf out;

static int setup(void **state)
{
    (void)state;
    arena_init(&arena, 16U << 20);
    buf_init(&out, 4U << 20);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    arena_free(&arena);
    buf_free(&out);
    return 0;
}

static int canonical_of(struct buf *form, struct slice text, const struct slice *ignore, size_t ignore_count)
{
    struct json j;
    buf_clear(form);
    assert_int_equal(json_parse(&j, &arena, text, NULL), 0);
    return canonical_json(form, &j, ignore, ignore_count, &arena, NULL);
}

static void assert_form(const char *text, const char *wanted)
{
    assert_int_equal(canonical_of(&out, slice_text(text), NULL, 0), 0);
    if (!slice_equal(buf_slice(&out), slice_text(wanted))) {
        fail_msg("%s: %.*s instead of %s", text, SLICE_FORMAT(buf_slice(&out)), wanted);
    }
}

static void assert_form_without(const char *text, const char *pointer, const char *wanted)
{
    struct slice ignore = slice_text(pointer);
    assert_int_equal(canonical_of(&out, slice_text(text), &ignore, 1), 0);
    if (!slice_equal(buf_slice(&out), slice_text(wanted))) {
        fail_msg("%s without %s: %.*s instead of %s", text, pointer, SLICE_FORMAT(buf_slice(&out)), wanted);
    }
}

/* ---- numbers ----------------------------------------------------------------------------------- */

static void numbers_of_one_value_have_one_form(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        {"1", "1"},
        {"1.0", "1"},
        {"1e0", "1"},
        {"1E-0", "1"},
        {"10e-1", "1"},
        {"0.1e1", "1"},
        {"0.0001e4", "1"},
        {"-1", "-1"},
        {"-1.000", "-1"},
        {"100", "1e2"},
        {"1e2", "1e2"},
        {"1E+2", "1e2"},
        {"0.1E03", "1e2"},
        {"1e0000000000000000000000000002", "1e2"},
        {"123.4500", "12345e-2"},
        {"12345e-2", "12345e-2"},
        {"0.012345e4", "12345e-2"},
        {"0.1", "1e-1"},
        {"10.01", "1001e-2"},
        {"1001", "1001"},
        {"-0.5", "-5e-1"},
        {"0", "0"},
        {"-0", "0"},
        {"0.0", "0"},
        {"0e5", "0"},
        {"-0.0e-3", "0"},
        {"0e99999999999999999999999", "0"},
        {"9007199254740992", "9007199254740992"},
        {"9007199254740993", "9007199254740993"},
        {"18446744073709551616", "18446744073709551616"},
        {"0.30000000000000004", "30000000000000004e-17"},
        {"0.3", "3e-1"},
        {"1e400", "1e400"},
        {"1e401", "1e401"},
        {"10e400", "1e401"},
        {"1e-400", "1e-400"},
        {"1e999999999999999999", "1e999999999999999999"},
        {"-1e-999999999999999999", "-1e-999999999999999999"},
        {"10e999999999999999999", "1e1000000000000000000"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_form(rows[i][0], rows[i][1]);
    }
}

static void numbers_past_their_limits_are_refused(void **state)
{
    (void)state;
    char digits[LIMIT_NUMBER_DIGITS_MAX + 1];
    memset(digits, '7', sizeof digits);
    assert_int_equal(canonical_of(&out, slice_of(digits, sizeof digits - 1), NULL, 0), 0);
    assert_int_equal(out.len, LIMIT_NUMBER_DIGITS_MAX);
    assert_int_equal(canonical_of(&out, slice_of(digits, sizeof digits), NULL, 0), HAPAX_E_LIMIT);
    assert_int_equal(canonical_of(&out, SLICE_LITERAL("1e1000000000000000000"), NULL, 0), HAPAX_E_LIMIT);
    assert_int_equal(canonical_of(&out, SLICE_LITERAL("1e-1000000000000000000"), NULL, 0), HAPAX_E_LIMIT);
}

/* ---- strings and containers -------------------------------------------------------------------- */

static void strings_have_one_form(void **state)
{
    (void)state;
    assert_form("\"\"", "\"\"");
    assert_form("\"\\u0061\\/\"", "\"a/\"");
    assert_form("\"\\u00e9\"", "\"\xc3\xa9\"");
    assert_form("\"\\u000A\\u0001\\\"\"", "\"\\n\\u0001\\\"\"");
    assert_form("\"\\ud83d\\ude00\"", "\"\xf0\x9f\x98\x80\"");
    assert_form("\"\\u007f\"", "\"\x7f\"");
    /* Composed and decomposed are two texts. */
    assert_form("\"e\\u0301\"", "\"e\xcc\x81\"");
}

static void members_are_sorted_by_the_bytes_of_their_decoded_names(void **state)
{
    (void)state;
    assert_form("{\"b\":1,\"a\":2,\"\":3,\"aa\":4,\"B\":5}", "{\"\":3,\"B\":5,\"a\":2,\"aa\":4,\"b\":1}");
    assert_form("{\"b\":1,\"\\u0061\":2}", "{\"a\":2,\"b\":1}");
    /* In UTF-16 the emoji would come first. */
    assert_form("{\"\\ud83d\\ude00\":1,\"\\ufb33\":2}", "{\"\xef\xac\xb3\":2,\"\xf0\x9f\x98\x80\":1}");
    /* A quote sorts as itself, not as the backslash in front of it. */
    assert_form("{\"A\":1,\"\\\"\":2}", "{\"\\\"\":2,\"A\":1}");
}

static void white_space_goes_and_array_order_stays(void **state)
{
    (void)state;
    assert_form(" [ 3 ,\t1 ,\r\n2 ] ", "[3,1,2]");
    assert_form("{ \"b\" : [ ] , \"a\" : { } }", "{\"a\":{},\"b\":[]}");
    assert_form("[null, true, false]", "[null,true,false]");
    assert_form("\xef\xbb\xbf[1]", "[1]");
}

static void different_documents_have_different_forms(void **state)
{
    (void)state;
    static const char *const all[] = {
        "1",
        "\"1\"",
        "-1",
        "1e1",
        "1e-1",
        "11",
        "9007199254740992",
        "9007199254740993",
        "0.30000000000000004",
        "0.3",
        "1e400",
        "1e401",
        "0",
        "\"0\"",
        "null",
        "\"null\"",
        "false",
        "true",
        "[]",
        "{}",
        "[[]]",
        "[{}]",
        "[null]",
        "[1,2]",
        "[2,1]",
        "[[1],2]",
        "[12]",
        "{\"a\":1}",
        "{\"a\":\"1\"}",
        "{\"a\":null}",
        "{\"A\":1}",
        "{\"a\":{\"b\":1}}",
        "{\"a\":{},\"b\":1}",
        "\"\"",
        "\"~\"",
        "[\"~\"]",
        "\"\\u00e9\"",
        "\"e\\u0301\"",
        "\"\\\\n\"",
        "\"\\n\"",
    };
    enum { COUNT = sizeof all / sizeof all[0] };
    struct slice forms[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        assert_int_equal(canonical_of(&out, slice_text(all[i]), NULL, 0), 0);
        assert_int_equal(arena_copy(&arena, buf_slice(&out), &forms[i]), 0);
        for (size_t k = 0; k < i; k++) {
            if (slice_equal(forms[i], forms[k])) {
                fail_msg("%s and %s have one form", all[i], all[k]);
            }
        }
    }
}

static void one_node_is_written_with_what_is_inside(void **state)
{
    (void)state;
    struct json j;
    uint32_t node;
    assert_int_equal(json_parse(&j, &arena, SLICE_LITERAL("{\"a\":[1,{\"c\":2,\"b\":10}],\"d\":0}"), NULL),
                     0);
    assert_int_equal(json_pointer_find(&node, &j, SLICE_LITERAL("/a/1"), &arena), 0);
    assert_int_equal(buf_append_text(&out, ">"), 0);
    assert_int_equal(canonical_json_node(&out, &j, node, &arena, NULL), 0);
    assert_true(slice_equal(buf_slice(&out), SLICE_LITERAL(">{\"b\":1e1,\"c\":2}")));
}

/* ---- ignore ------------------------------------------------------------------------------------ */

static void ignored_members_vanish_and_elements_leave_a_token(void **state)
{
    (void)state;
    assert_form_without("{\"a\":1,\"b\":2}", "/a", "{\"b\":2}");
    assert_form_without("{\"b\":2,\"a\":1}", "/b", "{\"a\":1}");
    assert_form_without("{\"a\":1}", "/a", "{}");
    assert_form_without("[1,2,3]", "/1", "[1,~,3]");
    assert_form_without("[1]", "/0", "[~]");
    assert_form_without("{\"a\":[{\"x\":1,\"y\":2},7]}", "/a/0/x", "{\"a\":[{\"y\":2},7]}");
    assert_form_without("{\"a\":{\"b\":[1,2]},\"c\":3}", "/a", "{\"c\":3}");
    assert_form_without("{\"a/b\":1,\"c\":3}", "/a~1b", "{\"c\":3}");
    assert_form_without("{\"a\":1}", "", "~");
    assert_form_without("7", "", "~");
}

static void pointers_that_name_nothing_have_no_effect(void **state)
{
    (void)state;
    assert_form_without("{\"a\":1}", "/b", "{\"a\":1}");
    assert_form_without("{\"a\":1}", "/a/b", "{\"a\":1}");
    assert_form_without("[1]", "/1", "[1]");
    assert_form_without("7", "/a", "7");
}

static void many_pointers_are_ignored_together(void **state)
{
    (void)state;
    const struct slice ignore[] = {SLICE_LITERAL("/z"), SLICE_LITERAL("/none"), SLICE_LITERAL("/a/1"),
                                   SLICE_LITERAL("/a"), SLICE_LITERAL("/m/0"),  SLICE_LITERAL("/m/0")};
    struct slice text = SLICE_LITERAL("{\"z\":1,\"a\":[1,2],\"m\":[1,2],\"b\":3}");
    assert_int_equal(canonical_of(&out, text, ignore, 6), 0);
    assert_true(slice_equal(buf_slice(&out), SLICE_LITERAL("{\"b\":3,\"m\":[~,2]}")));
}

/* A number that is ignored may be one that could not be written. */
static void what_is_ignored_is_not_looked_at(void **state)
{
    (void)state;
    assert_form_without("{\"a\":1e1000000000000000000,\"b\":1}", "/a", "{\"b\":1}");
}

/* ---- failures ---------------------------------------------------------------------------------- */

static void failures_leave_no_trace_and_say_why(void **state)
{
    (void)state;
    struct json j;
    hapax_error err = {0};
    struct buf small;
    buf_init(&small, 8);
    assert_int_equal(buf_append_text(&small, "ab"), 0);
    assert_int_equal(json_parse(&j, &arena, SLICE_LITERAL("[1,2,3,4]"), NULL), 0);
    assert_int_equal(canonical_json(&small, &j, NULL, 0, &arena, &err), HAPAX_E_LIMIT);
    assert_int_equal(err.code, HAPAX_E_LIMIT);
    assert_true(slice_equal(buf_slice(&small), SLICE_LITERAL("ab")));
    assert_int_equal(json_parse(&j, &arena, SLICE_LITERAL("[1,1e1000000000000000000]"), NULL), 0);
    assert_int_equal(canonical_json(&small, &j, NULL, 0, &arena, &err), HAPAX_E_LIMIT);
    assert_string_equal(err.message, "JSON: an exponent of over 18 digits");
    assert_true(slice_equal(buf_slice(&small), SLICE_LITERAL("ab")));
    buf_free(&small);
}

static void an_arena_that_is_too_small_is_a_limit(void **state)
{
    (void)state;
    struct json j;
    struct arena small;
    arena_init(&small, 16);
    assert_int_equal(json_parse(&j, &arena, SLICE_LITERAL("{\"a\":1,\"b\":2,\"c\":3}"), NULL), 0);
    assert_int_equal(canonical_json(&out, &j, NULL, 0, &small, NULL), HAPAX_E_LIMIT);
    assert_int_equal(out.len, 0);
    arena_free(&small);
}

static void the_deepest_document_can_be_written(void **state)
{
    (void)state;
    struct buf text;
    buf_init(&text, 1U << 16);
    for (int i = 0; i < LIMIT_JSON_DEPTH_MAX; i++) {
        assert_int_equal(buf_append_text(&text, "{\"a\":"), 0);
    }
    assert_int_equal(buf_append_text(&text, "1"), 0);
    for (int i = 0; i < LIMIT_JSON_DEPTH_MAX; i++) {
        assert_int_equal(buf_append_text(&text, "}"), 0);
    }
    assert_int_equal(canonical_of(&out, buf_slice(&text), NULL, 0), 0);
    assert_true(slice_equal(buf_slice(&out), buf_slice(&text)));
    buf_free(&text);
}

/* ---- properties -------------------------------------------------------------------------------- */

static uint32_t draw(uint32_t *seed, uint32_t below)
{
    *seed = *seed * 1664525U + 1013904223U;
    return (*seed >> 8) % below;
}

/* How one document is spelled: drawn apart from what it says. */
struct spelling {
    struct buf *text;
    uint32_t seed;
};

static void put(struct spelling *s, const char *text)
{
    static const char *const blanks[] = {"", "", " ", "\n\t", "\r\n  "};
    assert_int_equal(buf_append_text(s->text, blanks[draw(&s->seed, 5)]), 0);
    assert_int_equal(buf_append_text(s->text, text), 0);
    assert_int_equal(buf_append_text(s->text, blanks[draw(&s->seed, 5)]), 0);
}

static void put_scalar(struct spelling *s, uint32_t which)
{
    static const char *const spellings[][3] = {
        {"1", "1.0", "10e-1"},
        {"123", "0.123e3", "123.000"},
        {"-5", "-5.0", "-50e-1"},
        {"9007199254740993", "9007199254740993", "9007199254740993"},
        {"\"a/\xc3\xa9\"", "\"\\u0061\\/\\u00e9\"", "\"a\\u002f\\u00E9\""},
        {"\"\\n\"", "\"\\u000a\"", "\"\\u000A\""},
        {"\"\xf0\x9f\x98\x80\"", "\"\\ud83d\\ude00\"", "\"\\uD83D\\uDE00\""},
        {"null", "null", "null"},
        {"true", "true", "true"},
    };
    put(s, spellings[which][draw(&s->seed, 3)]);
}

static void put_value(struct spelling *s, uint32_t meaning, unsigned depth)
{
    uint32_t kind = draw(&meaning, depth == 0 ? 1 : 3);
    if (kind == 0) {
        put_scalar(s, draw(&meaning, 9));
        return;
    }
    uint32_t inner[5];
    uint32_t order[5];
    uint32_t n = draw(&meaning, 6);
    for (uint32_t i = 0; i < n; i++) {
        inner[i] = draw(&meaning, 1U << 24);
        order[i] = i;
    }
    for (uint32_t i = n; kind == 1 && i > 1; i--) {
        uint32_t k = draw(&s->seed, i);
        uint32_t swap = order[k];
        order[k] = order[i - 1];
        order[i - 1] = swap;
    }
    put(s, kind == 1 ? "{" : "[");
    for (uint32_t i = 0; i < n; i++) {
        static const char *const names[][2] = {{"\"b\"", "\"\\u0062\""},
                                               {"\"\"", "\"\""},
                                               {"\"\xc3\xa9\"", "\"\\u00e9\""},
                                               {"\"ab\"", "\"a\\u0062\""},
                                               {"\"\\\"\"", "\"\\u0022\""}};
        put(s, i > 0 ? "," : "");
        if (kind == 1) {
            put(s, names[order[i]][draw(&s->seed, 2)]);
            put(s, ":");
        }
        put_value(s, inner[order[i]], depth - 1);
    }
    put(s, kind == 1 ? "}" : "]");
}

static json_t *read_with_jansson(struct slice text)
{
    json_t *value =
        json_loadb(text.ptr, text.len, JSON_DECODE_ANY | JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, NULL);
    assert_non_null(value);
    return value;
}

static void spelling_does_not_count_and_meaning_does(void **state)
{
    (void)state;
    struct buf text;
    struct buf other;
    struct buf again;
    buf_init(&text, 1U << 20);
    buf_init(&other, 1U << 20);
    buf_init(&again, 1U << 20);
    for (uint32_t i = 0; i < 4000; i++) {
        struct spelling a = {&text, i * 2 + 1};
        struct spelling b = {&other, i * 7919 + 12345};
        buf_clear(&text);
        buf_clear(&other);
        put_value(&a, i * 31337 + 5, 4);
        put_value(&b, i * 31337 + 5, 4);
        assert_int_equal(canonical_of(&out, buf_slice(&text), NULL, 0), 0);
        assert_int_equal(canonical_of(&again, buf_slice(&other), NULL, 0), 0);
        if (!slice_equal(buf_slice(&out), buf_slice(&again))) {
            fail_msg("document %u: %.*s and %.*s", i, SLICE_FORMAT(buf_slice(&text)),
                     SLICE_FORMAT(buf_slice(&other)));
        }
        /* The form is a document of the same meaning, and its own form. */
        json_t *before = read_with_jansson(buf_slice(&text));
        json_t *after = read_with_jansson(buf_slice(&out));
        assert_true(json_equal(before, after));
        json_decref(before);
        json_decref(after);
        assert_int_equal(canonical_of(&again, buf_slice(&out), NULL, 0), 0);
        assert_true(slice_equal(buf_slice(&out), buf_slice(&again)));
        arena_reset(&arena);
    }
    buf_free(&text);
    buf_free(&other);
    buf_free(&again);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(numbers_of_one_value_have_one_form),
        TEST(numbers_past_their_limits_are_refused),
        TEST(strings_have_one_form),
        TEST(members_are_sorted_by_the_bytes_of_their_decoded_names),
        TEST(white_space_goes_and_array_order_stays),
        TEST(different_documents_have_different_forms),
        TEST(one_node_is_written_with_what_is_inside),
        TEST(ignored_members_vanish_and_elements_leave_a_token),
        TEST(pointers_that_name_nothing_have_no_effect),
        TEST(many_pointers_are_ignored_together),
        TEST(what_is_ignored_is_not_looked_at),
        TEST(failures_leave_no_trace_and_say_why),
        TEST(an_arena_that_is_too_small_is_a_limit),
        TEST(the_deepest_document_can_be_written),
        TEST(spelling_does_not_count_and_meaning_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
