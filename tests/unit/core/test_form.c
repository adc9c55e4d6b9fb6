#include "base/limits.h"
#include "core/form.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

static struct arena arena;

static int setup(void **state)
{
    (void)state;
    arena_init(&arena, 16U << 20);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    arena_free(&arena);
    return 0;
}

/* Parse, and compare with `count` names and values in turn. */
static void assert_pairs(const char *text, const char *const *wanted, size_t count)
{
    struct form f;
    assert_int_equal(form_parse(&f, &arena, slice_text(text), NULL), 0);
    if (f.count != count) {
        fail_msg("%s: %zu pairs instead of %zu", text, f.count, count);
    }
    for (size_t i = 0; i < count; i++) {
        if (!slice_equal(f.pairs[i].name, slice_text(wanted[2 * i])) ||
            !slice_equal(f.pairs[i].value, slice_text(wanted[2 * i + 1]))) {
            fail_msg("%s: pair %zu is %.*s, %.*s", text, i, SLICE_FORMAT(f.pairs[i].name),
                     SLICE_FORMAT(f.pairs[i].value));
        }
        assert_false(slice_is_none(f.pairs[i].value));
        assert_int_equal(f.pairs[i].position, i);
    }
}

#define ASSERT_PAIRS(text, ...)                                                                              \
    do {                                                                                                     \
        const char *const pairs[] = {__VA_ARGS__};                                                           \
        assert_pairs(text, pairs, sizeof pairs / sizeof pairs[0] / 2);                                       \
    } while (0)

static void pairs_are_split_and_decoded(void **state)
{
    (void)state;
    ASSERT_PAIRS("a=1", "a", "1");
    ASSERT_PAIRS("a=1&b=2&a=3", "a", "1", "b", "2", "a", "3");
    ASSERT_PAIRS("a=b=c", "a", "b=c");
    ASSERT_PAIRS("a+b=c%20d%2B", "a b", "c d+");
    ASSERT_PAIRS("%41%c3%A9=%26%3d", "A\xc3\xa9", "&=");
    ASSERT_PAIRS("a=%ff", "a", "\xff");
    ASSERT_PAIRS("order[id]=7&order%5Bid%5D=8", "order[id]", "7", "order[id]", "8");
    ASSERT_PAIRS("a;b=1", "a;b", "1");
    ASSERT_PAIRS("a=%2541", "a", "%41");
}

static void missing_and_empty_parts_are_empty(void **state)
{
    (void)state;
    ASSERT_PAIRS("a", "a", "");
    ASSERT_PAIRS("a=", "a", "");
    ASSERT_PAIRS("=x", "", "x");
    ASSERT_PAIRS("=", "", "");
    ASSERT_PAIRS("&&a=1&&b&", "a", "1", "b", "");
}

static void nothing_gives_no_pairs(void **state)
{
    (void)state;
    static const char *const texts[] = {NULL, "", "&", "&&&"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct form f = {.count = 99};
        assert_int_equal(form_parse(&f, &arena, slice_text(texts[i]), NULL), 0);
        assert_int_equal(f.count, 0);
    }
}

static void a_decoded_nul_is_a_byte_like_others(void **state)
{
    (void)state;
    struct form f;
    assert_int_equal(form_parse(&f, &arena, SLICE_LITERAL("a=x%00y"), NULL), 0);
    assert_true(slice_equal(f.pairs[0].value, SLICE_LITERAL("x\0y")));
}

static void what_needs_no_decoding_is_borrowed(void **state)
{
    (void)state;
    struct form f;
    const char *text = "name=value";
    assert_int_equal(form_parse(&f, &arena, slice_text(text), NULL), 0);
    assert_ptr_equal(f.pairs[0].name.ptr, text);
    assert_ptr_equal(f.pairs[0].value.ptr, text + 5);
}

static void bad_escapes_are_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"%",      "a=%",      "a=%4",   "a=%zz",  "a=%4g",
                                      "a=%g4",  "%zz=1",    "a=%%20", "a=% 20", "a=1&b=%4&c",
                                      "a=%4&1", "a=%u0041", "%=41"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct form f = {.count = 99};
        hapax_error err = {0};
        assert_int_equal(form_parse(&f, &arena, slice_text(bad[i]), &err), HAPAX_E_SYNTAX);
        assert_int_equal(err.code, HAPAX_E_SYNTAX);
        assert_int_equal(f.count, 99);
    }
    struct form f;
    assert_int_equal(form_parse(&f, &arena, slice_of("a=%41", 4), NULL), HAPAX_E_SYNTAX);
    assert_int_equal(form_parse(&f, &arena, slice_of("a=%41", 3), NULL), HAPAX_E_SYNTAX);
}

static void pairs_stop_at_their_limit(void **state)
{
    (void)state;
    struct buf text;
    struct form f;
    buf_init(&text, 1U << 20);
    for (size_t i = 0; i < LIMIT_FORM_PAIRS_MAX; i++) {
        assert_int_equal(buf_append_text(&text, "a&&"), 0);
    }
    assert_int_equal(form_parse(&f, &arena, buf_slice(&text), NULL), 0);
    assert_int_equal(f.count, LIMIT_FORM_PAIRS_MAX);
    assert_int_equal(buf_append_text(&text, "b"), 0);
    assert_int_equal(form_parse(&f, &arena, buf_slice(&text), NULL), HAPAX_E_LIMIT);
    buf_free(&text);
}

static void an_arena_that_is_too_small_is_a_limit(void **state)
{
    (void)state;
    struct arena small;
    struct form f;
    hapax_error err = {0};
    arena_init(&small, 8);
    assert_int_equal(form_parse(&f, &small, SLICE_LITERAL("a=1&b=2"), &err), HAPAX_E_LIMIT);
    assert_int_equal(err.code, HAPAX_E_LIMIT);
    arena_free(&small);
}

static void find_counts_the_pairs_and_gives_the_first(void **state)
{
    (void)state;
    struct form f;
    struct slice value = SLICE_NONE;
    assert_int_equal(form_parse(&f, &arena, SLICE_LITERAL("b=1&a=2&b=3&A=4&=5"), NULL), 0);
    assert_int_equal(form_find(&value, &f, SLICE_LITERAL("x")), 0);
    assert_true(slice_is_none(value));
    assert_int_equal(form_find(&value, &f, SLICE_LITERAL("b")), 2);
    assert_true(slice_equal(value, SLICE_LITERAL("1")));
    assert_int_equal(form_find(&value, &f, SLICE_LITERAL("a")), 1);
    assert_true(slice_equal(value, SLICE_LITERAL("2")));
    assert_int_equal(form_find(&value, &f, SLICE_LITERAL("")), 1);
    assert_true(slice_equal(value, SLICE_LITERAL("5")));
}

/* ---- canonical form ---------------------------------------------------------------------------- */

static struct slice canonical_of(const char *text)
{
    struct form f;
    struct buf out;
    struct slice kept;
    buf_init(&out, 1U << 20);
    assert_int_equal(form_parse(&f, &arena, slice_text(text), NULL), 0);
    assert_int_equal(form_canonical(&out, &f), 0);
    assert_int_equal(arena_copy(&arena, buf_slice(&out), &kept), 0);
    buf_free(&out);
    return kept;
}

static void the_canonical_form_is_length_prefixed_and_sorted(void **state)
{
    (void)state;
    assert_true(slice_equal(canonical_of("bc=&a=xy"),
                            SLICE_LITERAL("\0\0\0\0\0\0\0\1a\0\0\0\0\0\0\0\2xy\0\0\0\0\0\0\0\2bc"
                                          "\0\0\0\0\0\0\0\0")));
    assert_int_equal(canonical_of("").len, 0);
}

static void spelling_and_order_of_names_do_not_count(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        {"a=1&b=2", "b=2&a=1"},   {"a=1", "%61=%31"}, {"a", "a="},
        {"a+b=1", "a%20b=1"},     {"&a=1&&", "a=1"},  {"a=1&b=2&a=3", "b=2&a=1&a=3"},
        {"a=%c3%a9", "a=%C3%A9"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_true(slice_equal(canonical_of(rows[i][0]), canonical_of(rows[i][1])));
    }
}

static void names_values_and_the_order_of_one_name_do_count(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        {"a=1&a=2", "a=2&a=1"},   {"a=1", "a=2"},   {"a=1", "A=1"}, {"ab=c", "a=bc"}, {"a=1", "a=1&a=1"},
        {"a=b&c=d", "a=b%26c=d"}, {"a=1", "a=1&b"}, {"a=1", ""},    {"a", "=a"},      {"a%3db", "a=b"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_false(slice_equal(canonical_of(rows[i][0]), canonical_of(rows[i][1])));
    }
}

static void the_sort_is_stable_for_many_pairs(void **state)
{
    (void)state;
    struct buf text;
    struct form f;
    struct buf out;
    buf_init(&text, 1U << 20);
    buf_init(&out, 1U << 20);
    for (unsigned i = 0; i < LIMIT_FORM_PAIRS_MAX; i++) {
        assert_int_equal(buf_printf(&text, "%c=%u&", 'a' + (int)(i * 7 % 3), i), 0);
    }
    assert_int_equal(form_parse(&f, &arena, buf_slice(&text), NULL), 0);
    assert_int_equal(form_canonical(&out, &f), 0);
    for (size_t i = 1; i < f.count; i++) {
        int order = slice_compare(f.pairs[i - 1].name, f.pairs[i].name);
        assert_true(order < 0 || (order == 0 && f.pairs[i - 1].position < f.pairs[i].position));
    }
    struct slice first;
    assert_int_equal(form_find(&first, &f, SLICE_LITERAL("b")), 1365);
    assert_true(slice_equal(first, SLICE_LITERAL("1")));
    buf_free(&text);
    buf_free(&out);
}

static void a_form_that_does_not_fit_leaves_no_trace(void **state)
{
    (void)state;
    struct form f;
    struct buf small;
    buf_init(&small, 30);
    assert_int_equal(buf_append_text(&small, "ab"), 0);
    assert_int_equal(form_parse(&f, &arena, SLICE_LITERAL("a=1&b=2"), NULL), 0);
    assert_int_equal(form_canonical(&small, &f), HAPAX_E_LIMIT);
    assert_true(slice_equal(buf_slice(&small), SLICE_LITERAL("ab")));
    buf_free(&small);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(pairs_are_split_and_decoded),
        TEST(missing_and_empty_parts_are_empty),
        TEST(nothing_gives_no_pairs),
        TEST(a_decoded_nul_is_a_byte_like_others),
        TEST(what_needs_no_decoding_is_borrowed),
        TEST(bad_escapes_are_refused),
        TEST(pairs_stop_at_their_limit),
        TEST(an_arena_that_is_too_small_is_a_limit),
        TEST(find_counts_the_pairs_and_gives_the_first),
        TEST(the_canonical_form_is_length_prefixed_and_sorted),
        TEST(spelling_and_order_of_names_do_not_count),
        TEST(names_values_and_the_order_of_one_name_do_count),
        TEST(the_sort_is_stable_for_many_pairs),
        TEST(a_form_that_does_not_fit_leaves_no_trace),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
