/* Durations are counted exactly where they are short, and never reported as less than they were. */
#include "cli/histogram.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void short_durations_are_exact(void **state)
{
    (void)state;
    struct histogram h = {0};
    for (int64_t us = 1; us <= 50; us++) {
        histogram_add(&h, us);
    }
    assert_int_equal(histogram_percentile(&h, 50), 25);
    assert_int_equal(histogram_percentile(&h, 99), 50);
    assert_int_equal(histogram_percentile(&h, 100), 50);
    assert_int_equal(histogram_percentile(&h, 1), 1);
    assert_int_equal(h.total, 50);
}

/* Each value alone: its percentile is itself at least, and 3.2 % more at most (a second one, larger, keeps the
 * maximum from hiding the bucket's end). */
static void long_durations_are_within_a_thirty_second(void **state)
{
    (void)state;
    for (int64_t us = 1; us < (int64_t)1 << 35; us += us / 7 + 1) {
        struct histogram h = {0};
        histogram_add(&h, us);
        histogram_add(&h, us * 2);
        int64_t seen = histogram_percentile(&h, 50);
        assert_true(seen >= us);
        assert_true(seen - us <= us / 32);
    }
}

static void what_is_out_of_range_counts_as_the_nearest(void **state)
{
    (void)state;
    struct histogram h = {0};
    histogram_add(&h, -5);
    assert_int_equal(histogram_percentile(&h, 100), 0);
    histogram_add(&h, INT64_MAX);
    assert_int_equal(h.total, 2);
    assert_int_equal(histogram_percentile(&h, 100), ((int64_t)1 << 36) - 1);
}

static void merged_ones_count_together(void **state)
{
    (void)state;
    struct histogram a = {0};
    struct histogram b = {0};
    histogram_add(&a, 10);
    histogram_add(&b, 20);
    histogram_add(&b, 30);
    histogram_merge(&a, &b);
    assert_int_equal(a.total, 3);
    assert_int_equal(a.most_us, 30);
    assert_int_equal(histogram_percentile(&a, 50), 20);
}

static void nothing_seen_is_zero(void **state)
{
    (void)state;
    struct histogram h = {0};
    assert_int_equal(histogram_percentile(&h, 99), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(short_durations_are_exact),
        cmocka_unit_test(long_durations_are_within_a_thirty_second),
        cmocka_unit_test(what_is_out_of_range_counts_as_the_nearest),
        cmocka_unit_test(merged_ones_count_together),
        cmocka_unit_test(nothing_seen_is_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
