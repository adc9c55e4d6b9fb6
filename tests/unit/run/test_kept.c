/* What is kept of a command's end, and what is compared of a command. */
#include "run/kept.h"
#include "run/once.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct buf encode(int code, struct slice out, uint64_t out_written, struct slice err,
                         uint64_t err_written)
{
    struct run_kept kept = {.code = code,
                            .kept = {out, err},
                            .written = {[RUN_STDOUT] = out_written, [RUN_STDERR] = err_written}};
    struct buf bytes;
    buf_init(&bytes, HAPAX_ANSWER_BYTES_MAX);
    assert_int_equal(run_kept_encode(&bytes, &kept), 0);
    return bytes;
}

static void check_round(int code, struct slice out, uint64_t out_written, struct slice err,
                        uint64_t err_written)
{
    struct buf bytes = encode(code, out, out_written, err, err_written);
    struct run_kept back;
    assert_true(run_kept_decode(&back, buf_slice(&bytes)));
    assert_int_equal(back.code, code);
    assert_true(slice_equal(back.kept[RUN_STDOUT], out));
    assert_true(slice_equal(back.kept[RUN_STDERR], err));
    assert_int_equal(back.written[RUN_STDOUT], out_written);
    assert_int_equal(back.written[RUN_STDERR], err_written);
    buf_free(&bytes);
}

static void the_head_is_text_that_never_changes_its_form(void **state)
{
    (void)state;
    struct buf bytes = encode(3, SLICE_LITERAL("out\n"), 4, SLICE_LITERAL("e"), 5000);
    assert_true(slice_equal(buf_slice(&bytes),
                            SLICE_LITERAL("hapax-run 1\nexit 3\nstdout 4 of 4\nstderr 1 of 5000\n\nout\ne")));
    buf_free(&bytes);
}

static void any_bytes_come_back_as_they_were(void **state)
{
    (void)state;
    char all[256];
    for (size_t i = 0; i < sizeof all; i++) {
        all[i] = (char)i;
    }
    struct slice bytes = slice_of(all, sizeof all);
    check_round(0, bytes, sizeof all, bytes, sizeof all);
    check_round(255, slice_of("", 0), 0, bytes, UINT64_MAX);
    check_round(1, bytes, sizeof all, slice_of("", 0), 0);
    check_round(0, slice_of("", 0), 0, slice_of("", 0), 0);
    check_round(0, SLICE_LITERAL("hapax-run 1\nexit 3\n\n"), 20, SLICE_LITERAL("\n"), 1);
}

static void the_largest_fits_into_an_answer(void **state)
{
    (void)state;
    char *large = calloc(1, RUN_KEPT_BYTES_MAX);
    assert_non_null(large);
    check_round(255, slice_of(large, RUN_KEPT_BYTES_MAX - 1), UINT64_MAX, slice_of(large, 1), UINT64_MAX);
    free(large);
}

static void check_foreign(struct slice bytes)
{
    /* From the heap and of its exact size: a sanitizer sees a byte read too much. */
    char *copy = malloc(bytes.len + 1);
    assert_non_null(copy);
    memcpy(copy, bytes.ptr, bytes.len);
    char *exact = realloc(copy, bytes.len > 0 ? bytes.len : 1);
    assert_non_null(exact);
    struct run_kept back;
    if (run_kept_decode(&back, slice_of(exact, bytes.len))) {
        fail_msg("taken for a kept end: %.*s", SLICE_FORMAT(bytes));
    }
    assert_int_equal(back.code, 0);
    assert_true(slice_equal(back.kept[RUN_STDOUT], bytes));
    assert_int_equal(back.kept[RUN_STDERR].len, 0);
    assert_int_equal(back.written[RUN_STDOUT], bytes.len);
    free(exact);
}

static void what_an_operator_gave_is_standard_output_of_a_success(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "",
        "it was done by hand\n",
        "hapax-run 2\nexit 0\nstdout 0 of 0\nstderr 0 of 0\n\n",
        "hapax-run 1\nexit 256\nstdout 0 of 0\nstderr 0 of 0\n\n",
        "hapax-run 1\nexit -1\nstdout 0 of 0\nstderr 0 of 0\n\n",
        "hapax-run 1\nexit \nstdout 0 of 0\nstderr 0 of 0\n\n",
        "hapax-run 1\nexit 0\nstdout 2 of 1\nstderr 0 of 0\n\nab",
        "hapax-run 1\nexit 0\nstdout 2 of 2\nstderr 0 of 0\n\na",
        "hapax-run 1\nexit 0\nstdout 1 of 1\nstderr 0 of 0\n\nab",
        "hapax-run 1\nexit 0\nstderr 0 of 0\nstdout 0 of 0\n\n",
        "hapax-run 1\nexit 0\nstdout 0 of 0\nstderr 0 of 0\n",
        ("hapax-run 1\nexit 0\nstdout 18446744073709551615 of 18446744073709551615\n"
         "stderr 1 of 1\n\n"), /* the sum of both runs over */
        ("hapax-run 1\nexit 0\nstdout 99999999999999999999 of 99999999999999999999\n"
         "stderr 0 of 0\n\n"),
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        check_foreign(slice_text(texts[i]));
    }
}

static void a_part_of_a_kept_end_is_none(void **state)
{
    (void)state;
    struct buf bytes = encode(3, SLICE_LITERAL("out\n"), 4, SLICE_LITERAL("e"), 5000);
    for (size_t len = 0; len < bytes.len; len++) {
        check_foreign(slice_of(bytes.ptr, len));
    }
    buf_free(&bytes);
}

static void check_content(struct buf *out, char *const *argv)
{
    buf_init(out, 1024);
    assert_int_equal(run_content(out, argv), 0);
}

static void other_words_are_other_content(void **state)
{
    (void)state;
    char *const commands[][4] = {
        {"a", "b", NULL}, {"ab", NULL},       {"a b", NULL},    {"a", "b", "", NULL}, {"a", "", "b", NULL},
        {"", "ab", NULL}, {"a", "1:b", NULL}, {"b", "a", NULL}, {"a", NULL},          {"", NULL}};
    size_t n = sizeof commands / sizeof *commands;
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < n; k++) {
            struct buf one;
            struct buf other;
            check_content(&one, commands[i]);
            check_content(&other, commands[k]);
            assert_int_equal(slice_equal(buf_slice(&one), buf_slice(&other)), i == k);
            buf_free(&one);
            buf_free(&other);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_head_is_text_that_never_changes_its_form),
        cmocka_unit_test(any_bytes_come_back_as_they_were),
        cmocka_unit_test(the_largest_fits_into_an_answer),
        cmocka_unit_test(what_an_operator_gave_is_standard_output_of_a_success),
        cmocka_unit_test(a_part_of_a_kept_end_is_none),
        cmocka_unit_test(other_words_are_other_content),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
