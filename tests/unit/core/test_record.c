#include "core/record.h"

#include "hapax/error.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* The picture of the design, as a list of arrows. What is not listed is refused. */
static const struct arrow {
    enum record_state from;
    enum record_event event;
    enum record_state to;
    const char *flags; /* f: fenced, s: new serial, a: new attempt */
} arrows[] = {
    {RECORD_ABSENT, EVENT_CLAIM, RECORD_RUNNING, "s"},
    {RECORD_ABSENT, EVENT_TAKE_OVER, RECORD_RUNNING, "s"},
    {RECORD_RUNNING, EVENT_COMPLETE, RECORD_DONE, "f"},
    {RECORD_RUNNING, EVENT_RELEASE, RECORD_ABSENT, "f"},
    {RECORD_RUNNING, EVENT_LOSE, RECORD_UNKNOWN, "f"},
    {RECORD_RUNNING, EVENT_EXTEND, RECORD_RUNNING, "f"},
    {RECORD_DONE, EVENT_FORGET, RECORD_ABSENT, ""},
    {RECORD_DONE, EVENT_EXPIRE, RECORD_ABSENT, ""},
    {RECORD_UNKNOWN, EVENT_TAKE_OVER, RECORD_RUNNING, "a"},
    {RECORD_UNKNOWN, EVENT_RESOLVE_DONE, RECORD_DONE, ""},
    {RECORD_UNKNOWN, EVENT_RESOLVE_RELEASED, RECORD_ABSENT, ""},
    {RECORD_UNKNOWN, EVENT_FORGET, RECORD_ABSENT, ""},
};

static const struct arrow *find(enum record_state from, enum record_event event)
{
    for (size_t i = 0; i < sizeof arrows / sizeof arrows[0]; i++) {
        if (arrows[i].from == from && arrows[i].event == event) {
            return &arrows[i];
        }
    }
    return NULL;
}

static void every_cell_is_as_designed(void **state)
{
    (void)state;
    size_t allowed = 0;
    for (unsigned s = RECORD_ABSENT; s <= RECORD_UNKNOWN; s++) {
        for (unsigned e = 0; e < RECORD_EVENT_COUNT; e++) {
            struct record_step step = record_step((enum record_state)s, (enum record_event)e);
            const struct arrow *arrow = find((enum record_state)s, (enum record_event)e);
            assert_int_equal(step.allowed, arrow != NULL);
            assert_int_equal(step.next, arrow != NULL ? arrow->to : s);
            const char *flags = arrow != NULL ? arrow->flags : "";
            assert_int_equal(step.fenced, strchr(flags, 'f') != NULL);
            assert_int_equal(step.new_serial, strchr(flags, 's') != NULL);
            assert_int_equal(step.new_attempt, strchr(flags, 'a') != NULL);
            allowed += step.allowed;
        }
    }
    assert_int_equal(allowed, sizeof arrows / sizeof arrows[0]);
}

static void whoever_lost_its_lease_can_neither_overwrite_nor_release(void **state)
{
    (void)state;
    assert_false(record_step(RECORD_UNKNOWN, EVENT_COMPLETE).allowed);
    assert_false(record_step(RECORD_UNKNOWN, EVENT_RELEASE).allowed);
    assert_false(record_step(RECORD_UNKNOWN, EVENT_EXTEND).allowed);
    assert_false(record_step(RECORD_DONE, EVENT_COMPLETE).allowed);
}

static void an_unknown_outcome_is_never_executed_again_by_a_plain_claim(void **state)
{
    (void)state;
    assert_false(record_step(RECORD_UNKNOWN, EVENT_CLAIM).allowed);
    assert_false(record_step(RECORD_UNKNOWN, EVENT_EXPIRE).allowed);
}

static void a_running_record_is_unknown_from_the_end_of_its_lease(void **state)
{
    (void)state;
    struct record r = {.state = RECORD_RUNNING, .lease_ms = 1000, .expires_ms = 500};
    assert_int_equal(record_state_at(&r, 999), RECORD_RUNNING); /* and does not expire */
    assert_int_equal(record_state_at(&r, 1000), RECORD_UNKNOWN);
    assert_int_equal(record_state_at(&r, INT64_MAX), RECORD_UNKNOWN);
}

static void a_done_record_is_absent_from_its_expiry(void **state)
{
    (void)state;
    struct record r = {.state = RECORD_DONE, .lease_ms = 10, .expires_ms = 2000};
    assert_int_equal(record_state_at(&r, 1999), RECORD_DONE);
    assert_int_equal(record_state_at(&r, 2000), RECORD_ABSENT);
}

static void an_unknown_record_stays_for_ever(void **state)
{
    (void)state;
    struct record r = {.state = RECORD_UNKNOWN, .lease_ms = 10, .expires_ms = 20};
    assert_int_equal(record_state_at(&r, INT64_MAX), RECORD_UNKNOWN);
    r.state = RECORD_ABSENT;
    assert_int_equal(record_state_at(&r, INT64_MAX), RECORD_ABSENT);
}

static void names_of_states_are_read_back(void **state)
{
    (void)state;
    static const char *const names[] = {"absent", "running", "done", "unknown"};
    for (unsigned s = RECORD_ABSENT; s <= RECORD_UNKNOWN; s++) {
        assert_string_equal(record_state_name((enum record_state)s), names[s]);
        enum record_state parsed = RECORD_ABSENT;
        assert_int_equal(record_state_parse(&parsed, slice_text(names[s])), 0);
        assert_int_equal(parsed, s);
    }
    enum record_state untouched = RECORD_DONE;
    assert_int_equal(record_state_parse(&untouched, SLICE_LITERAL("Done")), HAPAX_E_SYNTAX);
    assert_int_equal(record_state_parse(&untouched, SLICE_LITERAL("")), HAPAX_E_SYNTAX);
    assert_int_equal(record_state_parse(&untouched, SLICE_LITERAL("runnin")), HAPAX_E_SYNTAX);
    assert_int_equal(untouched, RECORD_DONE);
}

static void stored_numbers_never_change(void **state)
{
    (void)state;
    assert_int_equal(RECORD_ABSENT, 0);
    assert_int_equal(RECORD_RUNNING, 1);
    assert_int_equal(RECORD_DONE, 2);
    assert_int_equal(RECORD_UNKNOWN, 3);
}

static void fences_are_equal_only_in_serial_and_attempt(void **state)
{
    (void)state;
    struct fence a = {7, 1};
    assert_true(fence_equal(a, (struct fence){7, 1}));
    assert_false(fence_equal(a, (struct fence){7, 2}));
    assert_false(fence_equal(a, (struct fence){8, 1}));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_cell_is_as_designed),
        cmocka_unit_test(whoever_lost_its_lease_can_neither_overwrite_nor_release),
        cmocka_unit_test(an_unknown_outcome_is_never_executed_again_by_a_plain_claim),
        cmocka_unit_test(a_running_record_is_unknown_from_the_end_of_its_lease),
        cmocka_unit_test(a_done_record_is_absent_from_its_expiry),
        cmocka_unit_test(an_unknown_record_stays_for_ever),
        cmocka_unit_test(names_of_states_are_read_back),
        cmocka_unit_test(stored_numbers_never_change),
        cmocka_unit_test(fences_are_equal_only_in_serial_and_attempt),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
