/* The rules of a lane, turn by turn on a clock that the test moves: no thread, no luck. */
#include "unit/engine/harness.h"

static const char *const letters[] = {"a", "b", "c", "d"};

/* --- the ways of one operation --- */

static void first_is_fresh_and_duplicates_get_its_answer(void **state)
{
    (void)state;
    struct sim s;
    sim_open(&s);
    struct fence fence = sim_claim(&s, "k", "body");
    assert_int_equal(fence.attempt, 1);
    sim_complete(&s, "k", fence, "answer");
    struct asked a;
    sim_do(&s, make_begin(&a, "k", "body", 0));
    assert_verdict(&a, VERDICT_REPLAY);
    assert_int_equal(a.op.record.state, RECORD_DONE);
    take_answer_text(&a, "answer");
    engine_close(s.engine);
}

static void duplicate_of_a_running_one_is_told_so_at_once_without_a_wait(void **state)
{
    (void)state;
    struct sim s;
    sim_open(&s);
    sim_claim(&s, "k", "body");
    struct asked a;
    sim_do(&s, make_begin(&a, "k", "body", 0));
    assert_verdict(&a, VERDICT_IN_PROGRESS);
    assert_int_equal(a.op.record.state, RECORD_RUNNING);
    engine_close(s.engine);
}

static void waiters_get_the_first_ones_answer(void **state)
{
    (void)state;
    struct sim s;
    sim_open(&s);
    struct fence fence = sim_claim(&s, "k", "body");
    struct asked a[5];
    for (size_t i = 0; i < 5; i++) {
        sim_do(&s, make_begin(&a[i], "k", "body", 1000));
        assert_int_equal(a[i].done, 0);
    }
    struct engine_stats stats;
    engine_stats(s.engine, &stats);
    assert_int_equal(stats.waiters, 5);
    assert_int_equal(stats.in_flight, 1);
    sim_complete(&s, "k", fence, "answer");
    for (size_t i = 0; i < 5; i++) {
        assert_verdict(&a[i], VERDICT_ATTACHED);
        take_answer_text(&a[i], "answer");
    }
    engine_stats(s.engine, &stats);
    assert_int_equal(stats.waiters, 0);
    assert_int_equal(stats.queued, 0);
    assert_int_equal(stats.in_flight, 0);
    engine_close(s.engine);
}

static void duplicates_of_one_batch_attach_to_its_first(void **state)
{
    (void)state;
    struct sim s;
    sim_open(&s);
    struct asked a[4];
    for (size_t i = 0; i < 4; i++) {
        sim_submit(&s, make_begin(&a[i], "k", i < 3 ? "body" : "other", 1000));
    }
    sim_turns(&s);
    assert_verdict(&a[0], VERDICT_FRESH);
    assert_int_equal(a[1].done + a[2].done, 0);
    assert_verdict(&a[3], VERDICT_MISMATCH);
    sim_complete(&s, "k", a[0].op.record.fence, "answer");
    for (size_t i = 1; i < 3; i++) {
        assert_verdict(&a[i], VERDICT_ATTACHED);
        take_answer_text(&a[i], "answer");
    }
    engine_close(s.engine);
}

static void a_batch_asks_the_store_once_for_each_identity(void **state)
{
    (void)state;
    struct sim s;
    sim_open_with(&s, (struct engine_options){.cache_off = true});
    struct faulty *f = sim_wrap_store(&s);
    struct asked a[6];
    sim_complete(&s, "done", sim_claim(&s, "done", "body"), "answer");
    size_t before = f->claims;
    for (size_t i = 0; i < 6; i++) {
        sim_submit(&s, make_begin(&a[i], "done", i < 5 ? "body" : "other", 0));
    }
    sim_turns(&s);
    for (size_t i = 0; i < 5; i++) {
        assert_verdict(&a[i], VERDICT_REPLAY);
        take_answer_text(&a[i], "answer");
    }
    assert_verdict(&a[5], VERDICT_MISMATCH);
    assert_int_equal(f->claims, before + 1);

    /* Waiters that go round again do so together. */
    struct fence fence = sim_claim(&s, "k", "body");
    for (size_t i = 0; i < 6; i++) {
        sim_do(&s, make_begin(&a[i], "k", "body", 1000));
    }
    before = f->claims;
    struct asked release;
    sim_do(&s, make_fenced(&release, ENGINE_RELEASE, "k", fence));
    assert_verdict(&a[0], VERDICT_FRESH);
    assert_int_equal(f->claims, before + 1);
    sim_complete(&s, "k", a[0].op.record.fence, "answer");
    for (size_t i = 1; i < 6; i++) {
        assert_verdict(&a[i], VERDICT_ATTACHED);
        take_answer_text(&a[i], "answer");
    }
    engine_close(s.engine);
}

static void one_of_a_batch_may_take_over_what_the_first_may_not(void **state)
{
    (void)state;
    struct sim s;
    sim_open(&s);
    struct fence fence = sim_claim(&s, "k", "body");
    struct asked a[4];
    sim_do(&s, make_fenced(&a[0], ENGINE_LOSE, "k", fence));
    for (size_t i = 0; i < 4; i++) {
        make_begin(&a[i], "k", i < 3 ? "body" : "other", 0)->op.take_over = i == 2;
        sim_submit(&s, &a[i]);
    }
    sim_turns(&s);
    assert_verdict(&a[0], VERDICT_UNKNOWN);
    assert_verdict(&a[1], VERDICT_UNKNOWN);
    assert_verdict(&a[2], VERDICT_FRESH);
    assert_int_equal(a[2].op.record.fence.attempt, 2);
    assert_verdict(&a[3], VERDICT_MISMATCH);
    engine_close(s.engine);
}

static void duplicates_of_a_failed_batch_fail_with_their_first(void **state)
{
    (void)state;
    struct sim s;
    sim_open(&s);
    struct faulty *f = sim_wrap_store(&s);
    struct asked a[3];
    f->apply_code = HAPAX_E_STORE;
    for (size_t i = 0; i < 3; i++) {
        sim_submit(&s, make_begin(&a[i], "k", "body", 1000));
    }
    sim_turns(&s);
    for (size_t i = 0; i < 3; i++) {
        assert_code(&a[i], HAPAX_E_STORE);
    }
    assert_int_equal(f->applies, 1); /* and do not ask each for itself */
    f->apply_code = 0;
    sim_claim(&s, "k", "body");
    engine_close(s.engine);
}

static void heartbeats_claims_and_waiters_of_one_turn_all_find_room(void **state)
{
    (void)state;
    enum { COUNT = 60 };
    struct sim s;
    sim_open(&s);
    static struct asked running[COUNT];
    static struct asked waiting[COUNT];
    static struct asked fresh[COUNT];
    static char keys[2 * COUNT][16];
    for (size_t i = 0; i < COUNT; i++) {
        snprintf(keys[i], sizeof keys[i], "k%zu", i);
        snprintf(keys[COUNT + i], sizeof keys[i], "n%zu", i);
        make_begin(&running[i], keys[i], "body", 0)->op.heartbeat = true;
        sim_do(&s, &running[i]);
    }
    s.now.mono_ms += 10000; /* all heartbeats are due in the turn that also brings these */
    s.now.wall_ms += 10000;
    for (size_t i = 0; i < COUNT; i++) {
        sim_submit(&s, make_begin(&waiting[i], keys[i], "body", 1000));
        sim_submit(&s, make_begin(&fresh[i], keys[COUNT + i], "body", 0));
    }
    sim_turns(&s);
    sim_pass(&s, 1000);
    for (size_t i = 0; i < COUNT; i++) {
        assert_verdict(&waiting[i], VERDICT_IN_PROGRESS);
        assert_verdict(&fresh[i], VERDICT_FRESH);
        sim_complete(&s, keys[i], running[i].op.record.fence, "answer");
    }
    engine_close(s.engine);
}

static void other_content_is_a_mismatch_while_it_runs_and_after(void **state)
{
    (void)state;
    struct sim s;
    sim_open(&s);
    struct fence fence = sim_claim(&s, "k", "body");
    struct asked a;
    sim_do(&s, make_begin(&a, "k", "other", 1000)); /* not: waiting */
    assert_verdict(&a, VERDICT_MISMATCH);
    assert_int_equal(a.op.record.claimed_ms, s.now.wall_ms);
    sim_complete(&s, "k", fence, "answer");
    sim_do(&s, make_begin(&a, "k", "other", 0)); /* from the cache */
    assert_verdict(&a, VERDICT_MISMATCH);
    assert_null(a.op.answer);
    engine_close(s.engine);

    sim_open_with(&s, (struct engine_options){.cache_off = true});
    sim_complete(&s, "k", sim_claim(&s, "k", "body"), "answer");
    sim_do(&s, make_begin(&a, "k", "other", 0)); /* from the store */
    assert_verdict(&a, VERDICT_MISMATCH);
    assert_null(a.op.answer);
    engine_close(s.engine);
}

static void nothing_to_compare_matches_everything(void **state)
{
    (void)state;
    struct sim s;
    sim_open(&s);
    sim_claim(&s, "k", "body");
    struct asked a;
    make_begin(&a, "k", "", 0)->op.fingerprint.version = 0;
    sim_do(&s, &a);
    assert_verdict(&a, VERDICT_IN_PROGRESS);
    engine_close(s.engine);
}

static void a_wait_ends_when_its_time_is_over(void **state)
{
    (void)state;
    struct sim s;
    sim_open(&s);
    sim_claim(&s, "k", "body");
    struct asked a;
    struct asked b;
    sim_do(&s, make_begin(&a, "k", "body", 300));
    sim_do(&s, make_begin(&b, "k", "body", 200));
    sim_pass(&s, 199);
    assert_int_equal(a.done + b.done, 0);
    sim_pass(&s, 1);
    assert_verdict(&b, VERDICT_IN_PROGRESS);
    assert_int_equal(a.done, 0);
    sim_pass(&s, 100);
    assert_verdict(&a, VERDICT_IN_PROGRESS);
    engine_close(s.engine);
}

static void first_waiter_takes_over_a_released_key_and_the_others_follow_it(void **state)
{
    (void)state;
    struct sim s;
    sim_open(&s);
    struct fence fence = sim_claim(&s, "k", "body");
    struct asked a[3];
    for (size_t i = 0; i < 3; i++) {
        sim_do(&s, make_begin(&a[i], "k", "body", 1000));
    }
    struct asked release;
    sim_do(&s, make_fenced(&release, ENGINE_RELEASE, "k", fence));
    assert_code(&release, 0);
    assert_verdict(&a[0], VERDICT_FRESH);
    assert_true(a[0].op.record.fence.serial > fence.serial);
    assert_int_equal(a[1].done + a[2].done, 0);
    sim_complete(&s, "k", a[0].op.record.fence, "second try");
    for (size_t i = 1; i < 3; i++) {
        assert_verdict(&a[i], VERDICT_ATTACHED);
        take_answer_text(&a[i], "second try");
    }
    engine_close(s.engine);
}

static void waiters_learn_that_the_outcome_is_unknown(void **state)
{
    (void)state;
    struct sim s;
    sim_open(&s);
    struct fence fence = sim_claim(&s, "k", "body");
    struct asked a;
    struct asked lose;
    sim_do(&s, make_begin(&a, "k", "body", 1000));
    sim_do(&s, make_fenced(&lose, ENGINE_LOSE, "k", fence));
    assert_code(&lose, 0);
    assert_verdict(&a, VERDICT_UNKNOWN);
    assert_int_equal(a.op.record.state, RECORD_UNKNOWN);
    engine_close(s.engine);
}

static void a_take_over_is_the_next_attempt_of_the_same_claim(void **state)
{
    (void)state;
    struct sim s;
    sim_open(&s);
    struct fence fence = sim_claim(&s, "k", "body");
    struct asked a;
    sim_do(&s, make_fenced(&a, ENGINE_LOSE, "k", fence));
    make_begin(&a, "k", "other", 0)->op.take_over = true;
    sim_do(&s, &a);
    assert_verdict(&a, VERDICT_MISMATCH);
    make_begin(&a, "k", "body", 0)->op.take_over = true;
    sim_do(&s, &a);
    assert_verdict(&a, VERDICT_FRESH);
    assert_int_equal(a.op.record.fence.serial, fence.serial);
    assert_int_equal(a.op.record.fence.attempt, 2);
    struct fence second = a.op.record.fence;
    sim_do(&s, make_complete(&a, "k", fence, "too late"));
    assert_code(&a, HAPAX_E_STALE);
    answer_drop(a.op.answer);
    sim_complete(&s, "k", second, "answer");
    engine_close(s.engine);
}

/* --- limits --- */

static void waiters_per_key_and_in_all_are_bounded(void **state)
{
    (void)state;
    struct sim s;
    sim_open_with(&s, (struct engine_options){.waiters_per_key_max = 2, .waiters_max = 3});
    sim_claim(&s, "a", "body");
    sim_claim(&s, "b", "body");
    struct asked a[5];
    for (size_t i = 0; i < 5; i++) {
        sim_do(&s, make_begin(&a[i], i < 3 ? "a" : "b", "body", 1000));
    }
    assert_int_equal(a[0].done + a[1].done + a[3].done, 0);
    assert_verdict(&a[2], VERDICT_IN_PROGRESS); /* two wait for the key */
    assert_verdict(&a[4], VERDICT_IN_PROGRESS); /* three wait in all */
    sim_pass(&s, 1000);
    assert_verdict(&a[0], VERDICT_IN_PROGRESS);
    assert_verdict(&a[3], VERDICT_IN_PROGRESS);
    engine_close(s.engine);
}

static void a_full_queue_refuses_and_never_calls_back(void **state)
{
    (void)state;
    struct sim s;
    sim_open_with(&s, (struct engine_options){.queue_ops_max = 2});
    struct asked a[3];
    sim_submit(&s, make_begin(&a[0], "a", "body", 0));
    sim_submit(&s, make_begin(&a[1], "b", "body", 0));
    make_begin(&a[2], "c", "body", 0);
    assert_int_equal(engine_submit(s.engine, &a[2].op), HAPAX_E_BUSY);
    sim_turns(&s);
    assert_verdict(&a[0], VERDICT_FRESH);
    assert_verdict(&a[1], VERDICT_FRESH);
    assert_int_equal(a[2].done, 0);
    sim_do(&s, &a[2]);
    assert_verdict(&a[2], VERDICT_FRESH);
    engine_close(s.engine);
}

static void running_claims_are_bounded(void **state)
{
    (void)state;
    struct sim s;
    sim_open_with(&s, (struct engine_options){.in_flight_max = 2});
    struct asked a[3];
    for (size_t i = 0; i < 3; i++) {
        sim_submit(&s, make_begin(&a[i], letters[i], "body", 0));
    }
    sim_turns(&s);
    assert_verdict(&a[0], VERDICT_FRESH);
    assert_verdict(&a[1], VERDICT_FRESH);
    assert_code(&a[2], HAPAX_E_BUSY);
    sim_complete(&s, "a", a[0].op.record.fence, "answer");
    sim_claim(&s, "c", "body");
    engine_close(s.engine);
}

static void count_port_wake(void *ctx)
{
    ++*(int *)ctx;
}

static void a_batch_is_bounded_and_carries_what_was_queued(void **state)
{
    (void)state;
    enum { OPS = LIMIT_BATCH_OPS_MAX * 2 + 3 };
    struct sim s;
    sim_open(&s);
    struct faulty *f = sim_wrap_store(&s);
    struct asked *a = calloc(OPS, sizeof(*a));
    char(*keys)[16] = calloc(OPS, sizeof(*keys));
    for (size_t i = 0; i < OPS; i++) {
        snprintf(keys[i], sizeof keys[i], "k%zu", i);
        sim_submit(&s, make_begin(&a[i], keys[i], "body", 0));
    }
    sim_turns(&s);
    assert_int_equal(f->applies, 3);
    assert_int_equal(f->largest, LIMIT_BATCH_OPS_MAX);
    for (size_t i = 0; i < OPS; i++) {
        assert_verdict(&a[i], VERDICT_FRESH);
    }
    struct engine_stats stats;
    engine_stats(s.engine, &stats);
    assert_int_equal(stats.batches, 3);
    assert_int_equal(stats.batch_ops, OPS);
    free(keys);
    free(a);
    engine_close(s.engine);
}

static void a_turn_may_answer_to_any_number_of_ports(void **state)
{
    (void)state;
    enum { PORTS = LANE_PORTS_MAX + 6 };
    static struct port {
        struct engine_port port;
        int wakes;
        char key[16];
        struct asked asked;
    } ports[PORTS];
    struct sim s;
    sim_open_with(&s, (struct engine_options){.lanes = 1});
    for (size_t i = 0; i < PORTS; i++) {
        struct port *p = &ports[i];
        engine_port_init(&p->port, count_port_wake, &p->wakes);
        snprintf(p->key, sizeof p->key, "k%zu", i);
        make_begin(&p->asked, p->key, "body", 0)->op.port = &p->port;
        sim_submit(&s, &p->asked);
    }
    lane_turn(engine_lane(s.engine, 0), s.now);
    for (size_t i = 0; i < PORTS; i++) {
        assert_int_equal(engine_port_drain(&ports[i].port), 1);
        assert_verdict(&ports[i].asked, VERDICT_FRESH);
        assert_int_equal(ports[i].wakes, 1);
    }
    engine_close(s.engine);
    for (size_t i = 0; i < PORTS; i++) {
        engine_port_destroy(&ports[i].port);
    }
}

static void bad_ops_are_refused_at_submit(void **state)
{
    (void)state;
    struct sim s;
    sim_open(&s);
    struct asked a;
    make_begin(&a, "k", "body", 0)->op.lease_ms = 0;
    assert_int_equal(engine_submit(s.engine, &a.op), HAPAX_E_ARGUMENT);
    make_begin(&a, "k", "body", -1);
    assert_int_equal(engine_submit(s.engine, &a.op), HAPAX_E_ARGUMENT);
    make_begin(&a, "k", "body", 0)->op.done = NULL;
    assert_int_equal(engine_submit(s.engine, &a.op), HAPAX_E_ARGUMENT);
    make_fenced(&a, ENGINE_COMPLETE, "k", (struct fence){1, 1}); /* without an answer */
    assert_int_equal(engine_submit(s.engine, &a.op), HAPAX_E_ARGUMENT);
    make_op(&a, ENGINE_BEGIN, "k")->op.kind = (enum engine_op_kind)99;
    assert_int_equal(engine_submit(s.engine, &a.op), HAPAX_E_ARGUMENT);
    sim_turns(&s);
    assert_int_equal(a.done, 0);
    engine_close(s.engine);
}

/* --- leases --- */

static void a_silent_claim_is_unknown_when_its_lease_is_over(void **state)
{
    (void)state;
    struct sim s;
    sim_open(&s);
    struct fence fence = sim_claim(&s, "k", "body");
    struct asked a;
    sim_do(&s, make_begin(&a, "k", "body", 60000));
    sim_pass(&s, 29999);
    assert_int_equal(a.done, 0);
    sim_pass(&s, 1);
    assert_verdict(&a, VERDICT_UNKNOWN);
    struct engine_stats stats;
    engine_stats(s.engine, &stats);
    assert_int_equal(stats.in_flight, 0);
    struct asked late;
    sim_do(&s, make_complete(&late, "k", fence, "too late"));
    assert_code(&late, HAPAX_E_STALE);
    answer_drop(late.op.answer);
    engine_close(s.engine);
}

static void a_heartbeat_keeps_a_claim_until_it_ends(void **state)
{
    (void)state;
    struct sim s;
    sim_open(&s);
    struct faulty *f = sim_wrap_store(&s);
    struct asked a;
    make_begin(&a, "k", "body", 0)->op.heartbeat = true;
    sim_do(&s, &a);
    assert_verdict(&a, VERDICT_FRESH);
    sim_pass(&s, 120000);
    assert_true(f->extends >= 11 && f->extends <= 13); /* every third of 30 s */
    sim_complete(&s, "k", a.op.record.fence, "answer");
    size_t before = f->extends;
    sim_pass(&s, 120000);
    assert_int_equal(f->extends, before);
    engine_close(s.engine);
}

static void a_lane_that_wakes_up_late_does_not_extend_a_lost_lease(void **state)
{
    (void)state;
    struct sim s;
    sim_open(&s);
    struct faulty *f = sim_wrap_store(&s);
    struct asked a;
    make_begin(&a, "k", "body", 0)->op.heartbeat = true;
    sim_do(&s, &a);
    s.now.mono_ms += 30000; /* as after SIGSTOP: no turn in between */
    s.now.wall_ms += 30000;
    sim_turns(&s);
    assert_int_equal(f->extends, 0);
    struct asked late;
    sim_do(&s, make_complete(&late, "k", a.op.record.fence, "too late"));
    assert_code(&late, HAPAX_E_STALE);
    answer_drop(late.op.answer);
    engine_close(s.engine);
}

static void a_heartbeat_survives_a_short_failure_of_the_store(void **state)
{
    (void)state;
    struct sim s;
    sim_open(&s);
    struct faulty *f = sim_wrap_store(&s);
    struct asked a;
    make_begin(&a, "k", "body", 0)->op.heartbeat = true;
    sim_do(&s, &a);
    f->apply_code = HAPAX_E_STORE;
    sim_pass(&s, 20000);
    assert_true(f->extends > 1);
    f->apply_code = 0;
    sim_pass(&s, 60000);
    sim_complete(&s, "k", a.op.record.fence, "answer");
    engine_close(s.engine);
}

static void a_lease_taken_away_in_the_store_ends_the_heartbeat(void **state)
{
    (void)state;
    struct sim s;
    sim_open(&s);
    struct faulty *f = sim_wrap_store(&s);
    struct asked a;
    struct asked b;
    make_begin(&a, "k", "body", 0)->op.heartbeat = true;
    sim_do(&s, &a);
    sim_do(&s, make_begin(&b, "k", "body", 60000));
    uint32_t changed;
    assert_int_equal(f->inner->backend->abandon(f->inner, engine_lane(s.engine, 0)->owner, s.now.wall_ms, 9,
                                                &changed, NULL),
                     0);
    assert_int_equal(changed, 1);
    sim_pass(&s, 10001);
    assert_verdict(&b, VERDICT_UNKNOWN);
    size_t before = f->extends;
    sim_pass(&s, 60000);
    assert_int_equal(f->extends, before);
    engine_close(s.engine);
}

static void waiters_of_a_claim_that_turns_out_lost_ask_the_store(void **state)
{
    (void)state;
    static const enum engine_op_kind kinds[] = {ENGINE_COMPLETE, ENGINE_RELEASE, ENGINE_EXTEND};
    for (size_t i = 0; i < 3; i++) {
        struct sim s;
        sim_open(&s);
        struct fence fence = sim_claim(&s, "k", "body");
        struct asked waiter;
        sim_do(&s, make_begin(&waiter, "k", "body", 60000));
        struct lane *l = engine_lane(s.engine, 0);
        uint32_t changed;
        assert_int_equal(l->store->backend->abandon(l->store, l->owner, s.now.wall_ms, 9, &changed, NULL), 0);
        struct asked a;
        make_complete(&a, "k", fence, "too late")->op.kind = kinds[i];
        a.op.lease_ms = 1000;
        sim_do(&s, &a);
        assert_code(&a, HAPAX_E_STALE);
        answer_drop(a.op.answer);
        assert_verdict(&waiter, VERDICT_UNKNOWN);
        engine_close(s.engine);
    }
}

static void extend_moves_the_end_of_a_lease(void **state)
{
    (void)state;
    struct sim s;
    sim_open(&s);
    struct fence fence = sim_claim(&s, "k", "body");
    sim_pass(&s, 20000);
    struct asked a;
    sim_do(&s, make_fenced(&a, ENGINE_EXTEND, "k", fence));
    assert_code(&a, 0);
    assert_int_equal(a.op.record.lease_ms, s.now.wall_ms + 30000);
    sim_pass(&s, 29999);
    struct engine_stats stats;
    engine_stats(s.engine, &stats);
    assert_int_equal(stats.in_flight, 1);
    sim_do(&s, make_begin(&a, "k", "body", 0));
    assert_verdict(&a, VERDICT_IN_PROGRESS);
    sim_pass(&s, 1);
    sim_do(&s, make_begin(&a, "k", "body", 0));
    assert_verdict(&a, VERDICT_UNKNOWN);
    sim_do(&s, make_fenced(&a, ENGINE_EXTEND, "k", fence));
    assert_code(&a, HAPAX_E_STALE);
    engine_close(s.engine);
}

/* --- the store fails --- */

static void a_failing_store_fails_the_batch_and_nothing_else(void **state)
{
    (void)state;
    struct sim s;
    sim_open(&s);
    struct faulty *f = sim_wrap_store(&s);
    struct fence fence = sim_claim(&s, "k", "body");
    hapax_error err = {0};
    assert_true(engine_store_ok(s.engine, &err));
    f->apply_code = HAPAX_E_STORE_FULL;
    f->write_code = HAPAX_E_STORE_FULL;
    struct asked a;
    struct asked b;
    sim_do(&s, make_begin(&b, "k", "body", 60000)); /* waits: needs no store */
    sim_do(&s, make_begin(&a, "new", "body", 0));
    assert_code(&a, HAPAX_E_STORE_FULL);
    assert_string_equal(a.op.error.message, "the test's store fails");
    assert_false(engine_store_ok(s.engine, &err));
    assert_int_equal(err.code, HAPAX_E_STORE_FULL);
    struct asked c;
    sim_do(&s, make_complete(&c, "k", fence, "answer"));
    assert_code(&c, HAPAX_E_STORE_FULL);
    answer_drop(c.op.answer);
    assert_int_equal(b.done, 0); /* the claim is as it was */
    struct engine_stats stats;
    engine_stats(s.engine, &stats);
    assert_int_equal(stats.store_errors, 2);
    f->apply_code = 0;
    sim_complete(&s, "k", fence, "answer");
    assert_verdict(&b, VERDICT_ATTACHED);
    take_answer_text(&b, "answer");
    assert_true(engine_store_ok(s.engine, &err));
    sim_claim(&s, "new", "body"); /* the failed one had claimed nothing */
    engine_close(s.engine);
}

/* A full disk can still be read. */
static void a_store_that_only_answers_is_still_one_that_fails(void **state)
{
    (void)state;
    struct sim s;
    sim_open_with(&s, (struct engine_options){.cache_off = true});
    struct faulty *f = sim_wrap_store(&s);
    sim_complete(&s, "k", sim_claim(&s, "k", "body"), "answer");
    f->apply_code = f->write_code = HAPAX_E_STORE_FULL;
    struct asked a;
    sim_do(&s, make_begin(&a, "new", "body", 0));
    assert_code(&a, HAPAX_E_STORE_FULL);
    assert_false(engine_store_ok(s.engine, NULL));
    f->apply_code = 0;
    sim_do(&s, make_op(&a, ENGINE_LOOKUP, "k"));
    assert_code(&a, 0);
    take_answer_text(&a, "answer");
    assert_false(engine_store_ok(s.engine, NULL));
    sim_do(&s, make_begin(&a, "k", "body", 0)); /* nothing to write for a replay */
    assert_verdict(&a, VERDICT_REPLAY);
    take_answer_text(&a, "answer");
    assert_false(engine_store_ok(s.engine, NULL));
    engine_close(s.engine);
}

static void a_record_without_its_answer_is_damage_and_no_replay(void **state)
{
    (void)state;
    struct sim s;
    sim_open_with(&s, (struct engine_options){.cache_off = true});
    struct faulty *f = sim_wrap_store(&s);
    sim_complete(&s, "k", sim_claim(&s, "k", "body"), "answer");
    f->loses_answers = true;
    struct asked a;
    sim_do(&s, make_begin(&a, "k", "body", 0));
    assert_code(&a, HAPAX_E_STORE_CORRUPT);
    assert_null(a.op.answer);
    engine_close(s.engine);
}

static void a_store_that_was_down_is_found_again_without_traffic(void **state)
{
    (void)state;
    struct sim s;
    sim_open(&s);
    struct faulty *f = sim_wrap_store(&s);
    uint64_t owner = engine_lane(s.engine, 0)->owner;
    f->apply_code = f->write_code = HAPAX_E_STORE;
    struct asked a;
    sim_do(&s, make_begin(&a, "k", "body", 0));
    assert_code(&a, HAPAX_E_STORE);
    sim_pass(&s, 3000);
    assert_false(engine_store_ok(s.engine, NULL));
    f->apply_code = f->write_code = 0;
    sim_pass(&s, 1000);
    assert_true(engine_store_ok(s.engine, NULL));
    sim_do(&s, make_begin(&a, "k", "body", 0));
    assert_verdict(&a, VERDICT_FRESH);
    assert_int_equal(a.op.record.owner, owner); /* the probe left no trace */
    engine_close(s.engine);
}

static void a_probe_that_breaks_off_leaves_no_claim_without_its_owner(void **state)
{
    (void)state;
    struct sim s;
    sim_open(&s);
    struct faulty *f = sim_wrap_store(&s);
    uint64_t owner = engine_lane(s.engine, 0)->owner;
    f->apply_code = f->write_code = HAPAX_E_STORE;
    struct asked a;
    sim_do(&s, make_begin(&a, "k", "body", 0));
    assert_code(&a, HAPAX_E_STORE);
    f->writes_before = 1; /* the probe's own, not the lane's after it */
    sim_pass(&s, 1000);
    assert_int_equal(f->writes_before, 0);

    f->apply_code = 0;
    sim_do(&s, make_begin(&a, "k", "body", 0));
    assert_code(&a, HAPAX_E_STORE); /* rather than a claim that nobody would find when we die */
    f->write_code = 0;
    sim_do(&s, make_begin(&a, "k", "body", 0));
    assert_verdict(&a, VERDICT_FRESH);
    assert_int_equal(a.op.record.owner, owner);
    engine_close(s.engine);
}

static void only_the_op_on_a_guilty_record_fails(int code)
{
    struct sim s;
    sim_open(&s);
    struct faulty *f = sim_wrap_store(&s);
    struct asked a[4];
    for (size_t i = 0; i < 4; i++) {
        sim_submit(&s, make_begin(&a[i], letters[i], "body", 0));
    }
    f->guilty_code = code;
    f->guilty[0] = a[3].op.id;
    sim_turns(&s);
    for (size_t i = 0; i < 3; i++) {
        assert_verdict(&a[i], VERDICT_FRESH);
    }
    assert_code(&a[3], code);
    assert_string_equal(a[3].op.error.message, "it is the row's fault");
    assert_true(engine_store_ok(s.engine, NULL)); /* the store as a whole works */
    engine_close(s.engine);
}

static void only_the_op_on_a_damaged_record_fails(void **state)
{
    (void)state;
    only_the_op_on_a_guilty_record_fails(HAPAX_E_STORE_CORRUPT);
}

static void only_the_op_on_a_locked_record_fails(void **state)
{
    (void)state;
    only_the_op_on_a_guilty_record_fails(HAPAX_E_BUSY);
}

static void a_batch_waits_alone_for_two_locks_at_most(void **state)
{
    (void)state;
    struct sim s;
    sim_open(&s);
    struct faulty *f = sim_wrap_store(&s);
    struct asked a[4];
    for (size_t i = 0; i < 4; i++) {
        sim_submit(&s, make_begin(&a[i], letters[i], "body", 0));
    }
    f->guilty_code = HAPAX_E_BUSY;
    for (size_t i = 0; i < 3; i++) {
        f->guilty[i] = a[i + 1].op.id;
    }
    sim_turns(&s);
    assert_verdict(&a[0], VERDICT_FRESH);
    for (size_t i = 1; i < 4; i++) {
        assert_code(&a[i], HAPAX_E_BUSY);
    }
    assert_int_equal(f->applies, 4); /* all of them, and three alone */
    assert_true(engine_store_ok(s.engine, NULL));
    engine_close(s.engine);
}

/* --- the cache --- */

static void replays_come_from_memory_until_they_expire(void **state)
{
    (void)state;
    struct sim s;
    sim_open(&s);
    struct faulty *f = sim_wrap_store(&s);
    sim_complete(&s, "k", sim_claim(&s, "k", "body"), "answer");
    size_t before = f->applies;
    struct asked a;
    sim_pass(&s, 3599999);
    sim_do(&s, make_begin(&a, "k", "body", 0));
    assert_verdict(&a, VERDICT_REPLAY);
    take_answer_text(&a, "answer");
    assert_int_equal(f->applies, before);
    sim_pass(&s, 1);
    sim_claim(&s, "k", "body"); /* expired: absent */
    struct engine_stats stats;
    engine_stats(s.engine, &stats);
    assert_int_equal(stats.cache_hits, 1);
    assert_int_equal(stats.cache_misses, 2); /* the two claims */
    engine_close(s.engine);
}

static void the_cache_is_bounded_by_bytes(void **state)
{
    (void)state;
    struct sim s;
    sim_open_with(&s, (struct engine_options){.replay_cache_bytes = 100000});
    char body[9001];
    memset(body, 'x', sizeof body - 1);
    body[sizeof body - 1] = '\0';
    for (int i = 0; i < 40; i++) {
        char key[16];
        snprintf(key, sizeof key, "k%d", i);
        sim_complete(&s, key, sim_claim(&s, key, "body"), body);
    }
    struct engine_stats stats;
    engine_stats(s.engine, &stats);
    assert_true(stats.cache_bytes > 80000 && stats.cache_bytes <= 100000);
    struct faulty *f = sim_wrap_store(&s);
    struct asked a;
    sim_do(&s, make_begin(&a, "k39", "body", 0)); /* the newest is still there */
    assert_verdict(&a, VERDICT_REPLAY);
    take_answer_text(&a, body);
    assert_int_equal(f->applies, 0);
    sim_do(&s, make_begin(&a, "k0", "body", 0)); /* the oldest is not */
    assert_verdict(&a, VERDICT_REPLAY);
    take_answer_text(&a, body);
    assert_int_equal(f->applies, 1);
    engine_close(s.engine);
}

static void forgetting_reaches_this_engines_cache_at_once(void **state)
{
    (void)state;
    struct sim s;
    sim_open(&s);
    sim_complete(&s, "k", sim_claim(&s, "k", "body"), "answer");
    struct asked a;
    sim_do(&s, make_op(&a, ENGINE_FORGET, "k"));
    assert_code(&a, 0);
    struct fence fence = sim_claim(&s, "k", "body");
    sim_do(&s, make_op(&a, ENGINE_FORGET, "k"));
    assert_code(&a, HAPAX_E_CONFLICT); /* it runs */
    sim_do(&s, make_fenced(&a, ENGINE_RELEASE, "k", fence));
    sim_do(&s, make_op(&a, ENGINE_FORGET, "k"));
    assert_code(&a, HAPAX_E_NOT_FOUND);
    engine_close(s.engine);
}

static void forgetting_elsewhere_reaches_the_cache_within_a_second(void **state)
{
    (void)state;
    struct sim s;
    struct sim t;
    sim_open_with(&s, (struct engine_options){.store_uri = "memory:forget-elsewhere"});
    sim_open_with(&t, (struct engine_options){.store_uri = "memory:forget-elsewhere"});
    sim_complete(&s, "k", sim_claim(&s, "k", "body"), "answer");
    struct asked a;
    sim_do(&t, make_op(&a, ENGINE_FORGET, "k"));
    assert_code(&a, 0);
    sim_pass(&s, 1000);
    sim_claim(&s, "k", "body");
    engine_close(s.engine);
    engine_close(t.engine);
}

static void the_cache_is_emptied_once_for_one_change(void **state)
{
    (void)state;
    struct sim s;
    struct sim t;
    sim_open_with(&s, (struct engine_options){.store_uri = "memory:one-change", .lanes = 1});
    sim_open_with(&t, (struct engine_options){.store_uri = "memory:one-change"});
    struct faulty *f = sim_wrap_store(&s);
    sim_complete(&s, "k", sim_claim(&s, "k", "body"), "answer");
    sim_complete(&t, "other", sim_claim(&t, "other", "body"), "answer");
    struct asked a;
    sim_do(&t, make_op(&a, ENGINE_FORGET, "other"));
    assert_code(&a, 0);
    size_t before = f->claims;
    for (int i = 0; i < 3; i++) {
        sim_pass(&s, LANE_GENERATION_MS);
        sim_do(&s, make_begin(&a, "k", "body", 0));
        assert_verdict(&a, VERDICT_REPLAY);
        take_answer_text(&a, "answer");
    }
    assert_int_equal(f->generations, 3);
    assert_int_equal(f->claims, before + 1);
    engine_close(s.engine);
    engine_close(t.engine);
}

static void a_new_key_does_not_wait_for_the_caches_freshness(void **state)
{
    (void)state;
    struct sim s;
    sim_open(&s);
    struct faulty *f = sim_wrap_store(&s);
    sim_complete(&s, "k", sim_claim(&s, "k", "body"), "answer");
    sim_pass(&s, 10 * LANE_GENERATION_MS);
    sim_claim(&s, "new", "body");
    assert_int_equal(f->generations, 0);
    struct asked a;
    sim_do(&s, make_begin(&a, "k", "body", 0));
    assert_verdict(&a, VERDICT_REPLAY);
    take_answer_text(&a, "answer");
    assert_int_equal(f->generations, 1);
    engine_close(s.engine);
}

/* Of several hosts some have a wrong clock: the store's decides what is expired, for the cache, too. */
static void the_cache_keeps_an_answer_for_as_long_as_the_stores_clock_says(void **state)
{
    (void)state;
    static const int64_t ahead_ms[] = {600000, -600000};
    for (int i = 0; i < 2; i++) {
        struct sim s;
        sim_open(&s);
        struct faulty *f = sim_wrap_store(&s);
        f->backend.capabilities |= STORE_HAS_CLOCK;
        f->clock_ahead_ms = ahead_ms[i];
        struct asked a;
        struct fence fence = sim_claim(&s, "k", "body");
        make_complete(&a, "k", fence, "answer");
        a.op.ttl_ms = 60000;
        sim_do(&s, &a);
        assert_code(&a, 0);
        answer_drop(a.op.answer);
        sim_pass(&s, 59000);
        size_t claims = f->claims;
        sim_do(&s, make_begin(&a, "k", "body", 0));
        assert_verdict(&a, VERDICT_REPLAY);
        take_answer_text(&a, "answer");
        assert_int_equal(f->claims, claims); /* from memory */
        sim_pass(&s, 1000);
        sim_do(&s, make_begin(&a, "k", "body", 0));
        assert_verdict(&a, VERDICT_FRESH);
        engine_close(s.engine);
    }
}

static void an_unreadable_generation_empties_the_cache(void **state)
{
    (void)state;
    struct sim s;
    sim_open(&s);
    struct faulty *f = sim_wrap_store(&s);
    sim_complete(&s, "k", sim_claim(&s, "k", "body"), "answer");
    size_t before = f->applies;
    f->generation_code = HAPAX_E_STORE;
    sim_pass(&s, 500);
    struct asked a;
    sim_do(&s, make_begin(&a, "k", "body", 0));
    assert_verdict(&a, VERDICT_REPLAY);
    take_answer_text(&a, "answer");
    assert_int_equal(f->applies, before + 1);
    engine_close(s.engine);
}

/* --- operators --- */

static void lookup_tells_the_state_and_the_answer(void **state)
{
    (void)state;
    struct sim s;
    sim_open(&s);
    struct asked a;
    sim_do(&s, make_op(&a, ENGINE_LOOKUP, "k"));
    assert_code(&a, HAPAX_E_NOT_FOUND);
    struct fence fence = sim_claim(&s, "k", "body");
    sim_do(&s, make_op(&a, ENGINE_LOOKUP, "k"));
    assert_code(&a, 0);
    assert_int_equal(a.op.record.state, RECORD_RUNNING);
    assert_null(a.op.answer);
    sim_complete(&s, "k", fence, "answer");
    sim_do(&s, make_op(&a, ENGINE_LOOKUP, "k"));
    assert_int_equal(a.op.record.state, RECORD_DONE);
    take_answer_text(&a, "answer");
    sim_claim(&s, "silent", "body");
    s.now.mono_ms += 30000;
    s.now.wall_ms += 30000;
    sim_do(&s, make_op(&a, ENGINE_LOOKUP, "silent"));
    assert_int_equal(a.op.record.state, RECORD_UNKNOWN);
    engine_close(s.engine);
}

static void resolve_settles_only_an_unknown_outcome(void **state)
{
    (void)state;
    struct sim s;
    sim_open(&s);
    struct asked a;
    sim_do(&s, make_op(&a, ENGINE_RESOLVE, "k"));
    assert_code(&a, HAPAX_E_NOT_FOUND);
    struct fence fence = sim_claim(&s, "k", "body");
    sim_do(&s, make_op(&a, ENGINE_RESOLVE, "k"));
    assert_code(&a, HAPAX_E_CONFLICT);
    sim_do(&s, make_fenced(&a, ENGINE_LOSE, "k", fence));
    make_op(&a, ENGINE_RESOLVE, "k")->op.answer = text_answer("found out");
    sim_do(&s, &a);
    assert_code(&a, 0);
    answer_drop(a.op.answer);
    sim_do(&s, make_begin(&a, "k", "body", 0));
    assert_verdict(&a, VERDICT_REPLAY);
    take_answer_text(&a, "found out");

    fence = sim_claim(&s, "k2", "body");
    sim_do(&s, make_fenced(&a, ENGINE_LOSE, "k2", fence));
    sim_do(&s, make_op(&a, ENGINE_RESOLVE, "k2"));
    assert_code(&a, 0);
    sim_claim(&s, "k2", "body");
    engine_close(s.engine);
}

/* --- the end --- */

static void close_answers_what_is_queued_and_ends_waits(void **state)
{
    (void)state;
    struct sim s;
    sim_open(&s);
    struct fence fence = sim_claim(&s, "k", "body");
    sim_claim(&s, "k2", "body");
    struct asked a[4];
    sim_do(&s, make_begin(&a[0], "k", "body", 1000));
    sim_do(&s, make_begin(&a[1], "k2", "body", 1000));
    sim_submit(&s, make_begin(&a[2], "new", "body", 0));
    sim_submit(&s, make_complete(&a[3], "k", fence, "answer"));
    engine_close(s.engine);
    assert_verdict(&a[0], VERDICT_ATTACHED);
    take_answer_text(&a[0], "answer");
    assert_code(&a[1], HAPAX_E_CLOSED);
    assert_verdict(&a[2], VERDICT_FRESH);
    assert_code(&a[3], 0);
    answer_drop(a[3].op.answer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_is_fresh_and_duplicates_get_its_answer),
        cmocka_unit_test(duplicate_of_a_running_one_is_told_so_at_once_without_a_wait),
        cmocka_unit_test(waiters_get_the_first_ones_answer),
        cmocka_unit_test(duplicates_of_one_batch_attach_to_its_first),
        cmocka_unit_test(a_batch_asks_the_store_once_for_each_identity),
        cmocka_unit_test(one_of_a_batch_may_take_over_what_the_first_may_not),
        cmocka_unit_test(duplicates_of_a_failed_batch_fail_with_their_first),
        cmocka_unit_test(heartbeats_claims_and_waiters_of_one_turn_all_find_room),
        cmocka_unit_test(other_content_is_a_mismatch_while_it_runs_and_after),
        cmocka_unit_test(nothing_to_compare_matches_everything),
        cmocka_unit_test(a_wait_ends_when_its_time_is_over),
        cmocka_unit_test(first_waiter_takes_over_a_released_key_and_the_others_follow_it),
        cmocka_unit_test(waiters_learn_that_the_outcome_is_unknown),
        cmocka_unit_test(a_take_over_is_the_next_attempt_of_the_same_claim),
        cmocka_unit_test(waiters_per_key_and_in_all_are_bounded),
        cmocka_unit_test(a_full_queue_refuses_and_never_calls_back),
        cmocka_unit_test(running_claims_are_bounded),
        cmocka_unit_test(a_batch_is_bounded_and_carries_what_was_queued),
        cmocka_unit_test(a_turn_may_answer_to_any_number_of_ports),
        cmocka_unit_test(bad_ops_are_refused_at_submit),
        cmocka_unit_test(a_silent_claim_is_unknown_when_its_lease_is_over),
        cmocka_unit_test(a_heartbeat_keeps_a_claim_until_it_ends),
        cmocka_unit_test(a_lane_that_wakes_up_late_does_not_extend_a_lost_lease),
        cmocka_unit_test(a_heartbeat_survives_a_short_failure_of_the_store),
        cmocka_unit_test(a_lease_taken_away_in_the_store_ends_the_heartbeat),
        cmocka_unit_test(waiters_of_a_claim_that_turns_out_lost_ask_the_store),
        cmocka_unit_test(extend_moves_the_end_of_a_lease),
        cmocka_unit_test(a_failing_store_fails_the_batch_and_nothing_else),
        cmocka_unit_test(a_store_that_only_answers_is_still_one_that_fails),
        cmocka_unit_test(a_record_without_its_answer_is_damage_and_no_replay),
        cmocka_unit_test(a_store_that_was_down_is_found_again_without_traffic),
        cmocka_unit_test(a_probe_that_breaks_off_leaves_no_claim_without_its_owner),
        cmocka_unit_test(only_the_op_on_a_damaged_record_fails),
        cmocka_unit_test(only_the_op_on_a_locked_record_fails),
        cmocka_unit_test(a_batch_waits_alone_for_two_locks_at_most),
        cmocka_unit_test(replays_come_from_memory_until_they_expire),
        cmocka_unit_test(the_cache_is_bounded_by_bytes),
        cmocka_unit_test(forgetting_reaches_this_engines_cache_at_once),
        cmocka_unit_test(forgetting_elsewhere_reaches_the_cache_within_a_second),
        cmocka_unit_test(the_cache_is_emptied_once_for_one_change),
        cmocka_unit_test(a_new_key_does_not_wait_for_the_caches_freshness),
        cmocka_unit_test(the_cache_keeps_an_answer_for_as_long_as_the_stores_clock_says),
        cmocka_unit_test(an_unreadable_generation_empties_the_cache),
        cmocka_unit_test(lookup_tells_the_state_and_the_answer),
        cmocka_unit_test(resolve_settles_only_an_unknown_outcome),
        cmocka_unit_test(close_answers_what_is_queued_and_ends_waits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
