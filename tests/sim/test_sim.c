/* The simulation as a unit test: a few hundred seeds, so that the sanitizers see them, too; that a seed is a whole run;
 * and that the oracle fails when a store or an engine is broken on purpose. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "sim.h"

#include <string.h>

#define SEEDS       300
#define SEEDS_CATCH 300 /* among so many, one must catch a broken variant */

static struct sim simulation;

static void every_promise_is_kept_in_many_schedules(void **state)
{
    (void)state;
    uint64_t told[16] = {0};
    unsigned given_up = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct sim_result r;
        sim_run(&simulation, seed, BROKEN_NOTHING, false, -1, &r);
        if (r.failed) {
            fail_msg("seed %llu: %s", (unsigned long long)seed, r.why);
        }
        given_up += r.given_up;
        for (size_t i = 0; i < 16; i++) {
            told[i] += r.told[i];
        }
    }
    assert_true(given_up <= SEEDS / 100);
    for (int v = VERDICT_FRESH; v <= VERDICT_UNKNOWN; v++) {
        assert_true(told[v] > SEEDS / 10); /* else the schedules do not reach what they are for */
    }
}

static void a_seed_is_the_same_run_each_time(void **state)
{
    (void)state;
    uint64_t last = 0;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct sim_result first;
        struct sim_result second;
        sim_run(&simulation, seed, BROKEN_NOTHING, false, -1, &first);
        sim_run(&simulation, seed, BROKEN_NOTHING, false, -1, &second);
        assert_true(first.calls > 0 && first.digest == second.digest && first.digest != last);
        last = first.digest;
    }
}

/* What the oracle must say, sooner or later, about each. */
static const char *const symptoms[BROKEN_COUNT] = {
    [BROKEN_FENCE] = "fence or lease does not hold",
    [BROKEN_LIVE] = "a second execution",
    [BROKEN_LATE] = "fence or lease does not hold",
    [BROKEN_HELD] = "unknown and held",
    [BROKEN_KNOWN] = "although the outcome is known",
    [BROKEN_CONTENT] = "other content was not refused",
    [BROKEN_ANSWER] = "an answer that nobody gave",
    [BROKEN_LOST] = "although the outcome is known",
    [BROKEN_REPLY] = "answered 2 times",
    [BROKEN_SILENCE] = "has no answer",
    [BROKEN_WAIT] = "waits longer",
};

static void each_broken_variant_is_caught(void **state)
{
    (void)state;
    for (int b = BROKEN_NOTHING + 1; b < BROKEN_COUNT; b++) {
        bool caught = false;
        for (uint64_t seed = 1; seed <= SEEDS_CATCH && !caught; seed++) {
            struct sim_result r;
            sim_run(&simulation, seed, (enum sim_broken)b, false, -1, &r);
            caught = r.failed && strstr(r.why, symptoms[b]) != NULL;
        }
        if (!caught) {
            fail_msg("broken \"%s\" is not noticed", sim_broken_name((enum sim_broken)b));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_promise_is_kept_in_many_schedules),
        cmocka_unit_test(a_seed_is_the_same_run_each_time),
        cmocka_unit_test(each_broken_variant_is_caught),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
