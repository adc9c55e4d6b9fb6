/* Several handles and threads on one store; opening and closing. */
#include "suite.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define RACERS     8
#define KEYS       2000
#define RACE_BATCH 50

static void two_handles_see_each_other(void **state)
{
    struct world *w = *state;
    struct store *second = world_open(w);
    struct fence f = claimed(w->s, "k", T0);
    struct store_op op = op_claim("k", 1);
    do_op(second, &op, T0);
    assert_int_equal(op.result, STORE_FOUND);
    assert_true(fence_equal(op.found.fence, f));
    completed(second, "k", f, T0); /* the fence is what counts, not the handle */
    assert_int_equal(looked_up(w->s, "k", T0).state, RECORD_DONE);
    store_close(second);
}

static void what_was_applied_is_there_after_reopening(void **state)
{
    struct world *w = *state;
    struct fence f = claimed(w->s, "done", T0);
    completed(w->s, "done", f, T0);
    claimed(w->s, "running", T0);
    struct record before = looked_up(w->s, "done", T0);
    world_reopen(w);
    struct record after = looked_up(w->s, "done", T0);
    assert_same_record(&before, &after);
    assert_int_equal(looked_up(w->s, "running", T0).state, RECORD_RUNNING);
}

/* No cmocka assertion in threads: counters only, judged after the join. */
struct racer {
    pthread_t thread;
    struct store *s;
    unsigned number;
    uint16_t *applied; /* [KEYS], this racer's */
    unsigned errors;
};

static void *race(void *ctx)
{
    struct racer *r = ctx;
    for (unsigned start = 0; start < KEYS; start += RACE_BATCH) {
        struct store_op ops[RACE_BATCH];
        struct store_op *list[RACE_BATCH];
        char names[RACE_BATCH][16];
        for (unsigned i = 0; i < RACE_BATCH; i++) {
            /* The racers meet in the middle of each batch. */
            unsigned key = start + (i + r->number * 7) % RACE_BATCH;
            snprintf(names[i], sizeof names[i], "race%u", key);
            ops[i] = op_claim(names[i], 1);
            list[i] = &ops[i];
        }
        if (store_apply(r->s, list, RACE_BATCH, T0, NULL) != 0) {
            r->errors++;
            continue;
        }
        for (unsigned i = 0; i < RACE_BATCH; i++) {
            unsigned key = start + (i + r->number * 7) % RACE_BATCH;
            r->applied[key] = (uint16_t)(r->applied[key] + (ops[i].result == STORE_APPLIED));
            r->errors += ops[i].result != STORE_APPLIED && ops[i].result != STORE_FOUND;
        }
    }
    return NULL;
}

static void of_racing_claims_exactly_one_is_applied(void **state)
{
    struct world *w = *state;
    static struct racer racers[RACERS];
    static uint16_t applied[RACERS][KEYS];
    memset(applied, 0, sizeof applied);
    for (unsigned i = 0; i < RACERS; i++) {
        racers[i] = (struct racer){.s = world_open(w), .number = i, .applied = applied[i]};
    }
    for (unsigned i = 0; i < RACERS; i++) {
        assert_int_equal(pthread_create(&racers[i].thread, NULL, race, &racers[i]), 0);
    }
    for (unsigned i = 0; i < RACERS; i++) {
        pthread_join(racers[i].thread, NULL);
        store_close(racers[i].s);
    }
    for (unsigned i = 0; i < RACERS; i++) {
        assert_int_equal(racers[i].errors, 0);
    }
    for (unsigned key = 0; key < KEYS; key++) {
        unsigned winners = 0;
        for (unsigned i = 0; i < RACERS; i++) {
            winners += applied[i][key];
        }
        assert_int_equal(winners, 1);
    }
}

static void a_handle_for_reading_reads_and_refuses_changes(void **state)
{
    struct world *w = *state;
    struct fence f = claimed(w->s, "k", T0);
    completed(w->s, "k", f, T0);
    struct store_options options = *world_options();
    options.read_only = true;
    struct store *reader = NULL;
    assert_int_equal(store_open(&reader, w->uri, &options, NULL), 0);
    struct store_op look = op_plain(STORE_LOOKUP, "k");
    look.want_answer = true;
    do_op(reader, &look, T0);
    assert_non_null(look.answer);
    answer_drop(look.answer);
    claimed(w->s, "later", T0); /* the writer goes on */
    assert_int_equal(looked_up(reader, "later", T0).state, RECORD_RUNNING);

    struct store_op claim = op_claim("x", 1);
    struct store_op *list[] = {&look, &claim};
    hapax_error err = {0};
    assert_int_equal(store_apply(reader, list, 2, T0, &err), HAPAX_E_UNSUPPORTED);
    assert_int_equal(err.code, HAPAX_E_UNSUPPORTED);
    assert_null(look.answer);
    uint32_t n = 0;
    uint64_t number = 0;
    assert_int_equal(reader->backend->sweep(reader, T0, 1, &n, NULL), HAPAX_E_UNSUPPORTED);
    assert_int_equal(reader->backend->abandon(reader, 0, T0, 1, &n, NULL), HAPAX_E_UNSUPPORTED);
    assert_int_equal(reader->backend->register_owner(reader, "r", &number, NULL), HAPAX_E_UNSUPPORTED);
    assert_int_equal(reader->backend->forget_owner(reader, 1, NULL), HAPAX_E_UNSUPPORTED);
    store_close(reader);
    assert_int_equal(looked_up(w->s, "x", T0).state, RECORD_ABSENT);
}

static void an_unknown_scheme_is_refused(void **state)
{
    (void)state;
    struct store *s = (struct store *)1;
    hapax_error err = {0};
    assert_int_equal(store_open(&s, "redis:localhost", NULL, &err), HAPAX_E_ARGUMENT);
    assert_null(s);
    assert_non_null(strstr(err.message, "redis"));
    assert_int_equal(store_open(&s, "", NULL, NULL), HAPAX_E_ARGUMENT);
    store_close(NULL);
}

static void private_stores_in_memory_are_apart(void **state)
{
    (void)state;
    struct store *a = NULL;
    struct store *b = NULL;
    assert_int_equal(store_open(&a, "memory:", NULL, NULL), 0);
    assert_int_equal(store_open(&b, "memory:", NULL, NULL), 0);
    claimed(a, "k", T0);
    claimed(b, "k", T0);
    store_close(a);
    store_close(b);
    /* A named one is gone with its last handle. */
    assert_int_equal(store_open(&a, "memory:gone", NULL, NULL), 0);
    claimed(a, "k", T0);
    store_close(a);
    assert_int_equal(store_open(&a, "memory:gone", NULL, NULL), 0);
    claimed(a, "k", T0);
    store_close(a);
}

const struct CMUnitTest handle_tests[] = {
    STORE_TEST(two_handles_see_each_other),
    STORE_TEST(what_was_applied_is_there_after_reopening),
    STORE_TEST(of_racing_claims_exactly_one_is_applied),
    STORE_TEST(a_handle_for_reading_reads_and_refuses_changes),
    cmocka_unit_test(an_unknown_scheme_is_refused),
    cmocka_unit_test(private_stores_in_memory_are_apart),
};
const size_t handle_test_count = sizeof handle_tests / sizeof handle_tests[0];
