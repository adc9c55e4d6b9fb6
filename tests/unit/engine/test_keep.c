/* House-keeping between the batches, turn by turn on a clock that the test moves: sweeps of what has expired, and
 * the claims and the names of owners that have died. */
#include "unit/engine/harness.h"

/* --- expired records --- */

static void expired_records_go_in_slices_between_batches(void **state)
{
    (void)state;
    struct sim s;
    sim_open_with(&s, (struct engine_options){.sweep_rows = 4});
    for (int i = 0; i < 10; i++) {
        char key[16];
        snprintf(key, sizeof key, "k%d", i);
        sim_complete(&s, key, sim_claim(&s, key, "body"), "answer");
    }
    struct faulty *f = sim_wrap_store(&s);
    s.now.mono_ms += 3600000;
    s.now.wall_ms += 3600000;
    struct lane *l = engine_lane(s.engine, 0);
    l->recovery.due_mono_ms = TIMER_NEVER; /* it would come first */
    struct asked a;
    sim_submit(&s, make_begin(&a, "live", "body", 0));
    lane_turn(l, s.now);
    assert_verdict(&a, VERDICT_FRESH); /* first what lives, then one slice */
    assert_int_equal(f->sweeps, 1);
    assert_int_equal(f->sweep_rows_seen, 4);
    lane_turn(l, s.now);
    lane_turn(l, s.now);
    struct engine_stats stats;
    engine_stats(s.engine, &stats);
    assert_int_equal(f->sweeps, 3);
    assert_int_equal(stats.expired, 10);
    engine_close(s.engine);
}

static void a_sweep_rests_when_little_is_left_and_hurries_when_it_falls_behind(void **state)
{
    (void)state;
    struct sim s;
    sim_open_with(&s, (struct engine_options){.sweep_rows = 4});
    for (int i = 0; i < 40; i++) {
        char key[16];
        snprintf(key, sizeof key, "k%d", i);
        sim_complete(&s, key, sim_claim(&s, key, "body"), "answer");
    }
    struct faulty *f = sim_wrap_store(&s);
    struct lane *l = engine_lane(s.engine, 0);
    s.now.mono_ms += 3600000;
    s.now.wall_ms += 3600000;
    l->recovery.due_mono_ms = TIMER_NEVER;
    lane_turn(l, s.now); /* a full slice, nothing else to do: the next at once */
    assert_int_equal(f->sweeps, 1);
    assert_true(l->sweep_full && l->sweep_due_mono_ms == s.now.mono_ms);

    /* Full slices for too long: due by the number of operations, however long the pause would be. */
    l->sweep_due_mono_ms = TIMER_NEVER;
    l->sweep_since_mono_ms = s.now.mono_ms - LANE_SWEEP_LONG_MS - 1;
    for (size_t ops = 1; ops < LANE_SWEEP_OPS(4); ops++) {
        char key[16];
        snprintf(key, sizeof key, "live%zu", ops);
        sim_claim(&s, key, "body");
        assert_int_equal(f->sweeps, 1);
    }
    sim_claim(&s, "one more", "body"); /* then, on this clock no slice takes any time, the others at once */
    assert_int_equal(f->sweeps, 11);   /* 40 are ten full slices, and one was empty */
    assert_int_equal(l->sweep_due_mono_ms, s.now.mono_ms + 1000);
    engine_close(s.engine);
}

static void a_store_that_can_not_be_kept_in_order_is_down(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct sim s;
        sim_open(&s);
        struct faulty *f = sim_wrap_store(&s);
        struct lane *l = engine_lane(s.engine, 0);
        (i == 0 ? &l->sweep_due_mono_ms : &l->recovery.due_mono_ms)[0] = s.now.mono_ms;
        f->house_code = f->write_code = HAPAX_E_STORE_FULL;
        sim_turns(&s);
        assert_int_equal(i == 0 ? f->sweeps : f->abandons, 1);
        hapax_error err;
        assert_false(engine_store_ok(s.engine, &err));
        assert_int_equal(err.code, HAPAX_E_STORE_FULL);
        struct engine_stats stats;
        engine_stats(s.engine, &stats);
        assert_int_equal(stats.store_errors, 1);
        f->house_code = f->write_code = 0;
        sim_pass(&s, LANE_PROBE_MS);
        assert_true(engine_store_ok(s.engine, NULL));
        engine_close(s.engine);
    }
}

/* --- the dead, and leases that are over --- */

static void a_long_sweep_does_not_keep_the_dead_waiting(void **state)
{
    (void)state;
    struct sim s;
    struct sim dead;
    sim_open_with(&s, (struct engine_options){.store_uri = "memory:backlog", .sweep_rows = 1});
    sim_open_with(&dead, (struct engine_options){.store_uri = "memory:backlog"});
    for (int i = 0; i < 50; i++) {
        char key[16];
        snprintf(key, sizeof key, "k%d", i);
        sim_complete(&s, key, sim_claim(&s, key, "body"), "answer");
    }
    sim_claim(&dead, "held", "body");
    engine_close(dead.engine);
    int64_t step = 3600000; /* the ttl: all has expired, and recovery is due */
    s.now.wall_ms += step;
    s.now.mono_ms += step;
    for (int turn = 0; turn < 10; turn++) {
        lane_turn(engine_lane(s.engine, 0), s.now);
    }
    struct engine_stats stats;
    engine_stats(s.engine, &stats);
    assert_int_equal(stats.abandoned, 1);
    assert_in_range(stats.expired, 1, 9);
    engine_close(s.engine);
}

/* A record that abandon() passed over (another session had locked it), so that its owner stays for now. */
static void a_dead_owner_that_cannot_be_forgotten_yet_is_tried_again(void **state)
{
    (void)state;
    struct sim s;
    struct sim dead;
    sim_open_with(&s, (struct engine_options){.store_uri = "memory:not-yet"});
    sim_open_with(&dead, (struct engine_options){.store_uri = "memory:not-yet"});
    sim_claim(&dead, "held", "body");
    engine_close(dead.engine);
    struct faulty *f = sim_wrap_store(&s);
    f->abandon_skips = true;
    sim_pass(&s, LANE_RECOVER_MS + 1000);
    assert_true(f->abandons > 0);
    assert_true(engine_store_ok(s.engine, NULL)); /* nothing is wrong with the store */
    struct asked a;
    sim_do(&s, make_begin(&a, "held", "body", 0));
    assert_verdict(&a, VERDICT_IN_PROGRESS);
    f->abandon_skips = false;
    sim_pass(&s, LANE_RECOVER_MS);
    sim_do(&s, make_begin(&a, "held", "body", 0));
    assert_verdict(&a, VERDICT_UNKNOWN);
    engine_close(s.engine);
}

static void a_closed_engines_open_claims_are_unknown_to_the_next(void **state)
{
    (void)state;
    struct sim keeper; /* keeps the named store alive */
    struct sim s;
    sim_open_with(&keeper, (struct engine_options){.store_uri = "memory:next-one"});
    sim_open_with(&s, (struct engine_options){.store_uri = "memory:next-one", .sweep_rows = 2});
    for (int i = 0; i < 5; i++) {
        char key[16];
        snprintf(key, sizeof key, "k%d", i);
        sim_claim(&s, key, "body");
    }
    struct asked a;
    sim_do(&keeper, make_begin(&a, "k0", "body", 0));
    assert_verdict(&a, VERDICT_IN_PROGRESS);
    engine_close(s.engine);
    sim_open_with(&s, (struct engine_options){.store_uri = "memory:next-one", .sweep_rows = 2});
    struct engine_stats stats;
    engine_stats(s.engine, &stats);
    assert_int_equal(stats.abandoned, 5);
    sim_do(&s, make_begin(&a, "k4", "body", 0));
    assert_verdict(&a, VERDICT_UNKNOWN);
    engine_close(s.engine);
    engine_close(keeper.engine);
}

/* --- owners, as the store knows them --- */

struct owner_count {
    const char *text; /* NULL: any */
    size_t count;
};

static int count_owner(void *ctx, const struct store_owner *o)
{
    struct owner_count *c = ctx;
    c->count += c->text == NULL || strcmp(o->text, c->text) == 0;
    return 0;
}

static size_t owners_in(struct store *s, const char *text)
{
    struct owner_count c = {.text = text};
    assert_int_equal(s->backend->owners(s, count_owner, &c, NULL), 0);
    return c.count;
}

static struct store *other_handle(const char *uri)
{
    struct store *s;
    assert_int_equal(store_open(&s, uri, &(struct store_options){0}, NULL), 0);
    return s;
}

/* By the owner that registered last on this handle. */
static void claim_at(struct store *s, const char *key, int64_t now_ms)
{
    struct store_op op = {.kind = STORE_CLAIM,
                          .scope = SLICE_LITERAL("test"),
                          .key = slice_text(key),
                          .lease_ms = 900000,
                          .ttl_ms = 1000000};
    struct store_op *ops[] = {&op};
    assert_int_equal(identity_make(&op.id, op.scope, op.key, NULL), 0);
    assert_int_equal(store_apply(s, ops, 1, now_ms, NULL), 0);
    assert_int_equal(op.result, STORE_APPLIED);
}

static void more_dead_owners_than_one_walk_finds_are_all_found_at_open(void **state)
{
    (void)state;
    enum { DEAD = LANE_DEAD_MAX + 6 };
    struct store *store = other_handle("memory:many-dead");
    struct owner_self self;
    owner_enter(&self, 1);
    owner_leave(&self);
    const char *token = strstr(self.text, "token=");
    assert_non_null(token);
    for (int i = 0; i < DEAD; i++) {
        char text[OWNER_TEXT_MAX];
        char key[16];
        uint64_t number;
        snprintf(text, sizeof text, "%.*stoken=%016x", (int)(token - self.text), self.text, 0xabc000 + i);
        snprintf(key, sizeof key, "k%d", i);
        assert_int_equal(store->backend->register_owner(store, text, &number, NULL), 0);
        claim_at(store, key, 1700000000000);
    }
    struct sim s;
    sim_open_with(&s, (struct engine_options){.store_uri = "memory:many-dead"});
    struct store_stats stats;
    assert_int_equal(engine_store_stats(s.engine, &stats, NULL), 0);
    assert_int_equal(stats.running, 0);
    assert_int_equal(stats.unknown, DEAD);
    engine_close(s.engine);
    store_close(store);
}

static void an_owner_that_can_not_be_judged_stays_for_a_month_or_with_what_it_holds(void **state)
{
    (void)state;
    struct sim s;
    sim_open_with(&s, (struct engine_options){.store_uri = "memory:unsure", .lanes = 1});
    struct store *store = other_handle("memory:unsure");
    static const int days[] = {29, 31, 31};
    char texts[3][OWNER_TEXT_MAX];
    for (int i = 0; i < 3; i++) {
        uint64_t number;
        snprintf(texts[i], sizeof texts[i],
                 "host=far%d machine=m boot=b ns=1 pid=5 start=7 since=%lld token=00000000000000aa", i,
                 (long long)(s.now.wall_ms - days[i] * INT64_C(86400000)));
        assert_int_equal(store->backend->register_owner(store, texts[i], &number, NULL), 0);
    }
    claim_at(store, "held", s.now.wall_ms); /* by the third */
    sim_pass(&s, LANE_RECOVER_MS + 1000);
    assert_int_equal(owners_in(store, texts[0]), 1);
    assert_int_equal(owners_in(store, texts[1]), 0);
    assert_int_equal(owners_in(store, texts[2]), 1);
    assert_true(engine_store_ok(s.engine, NULL)); /* nothing is wrong with the store */
    engine_close(s.engine);
    store_close(store);
}

static void neither_probes_nor_an_engine_that_holds_nothing_leave_an_owner_behind(void **state)
{
    (void)state;
    struct store *store = other_handle("memory:no-trace");
    struct sim s;
    sim_open_with(&s, (struct engine_options){.store_uri = "memory:no-trace", .lanes = 1});
    struct faulty *f = sim_wrap_store(&s);
    f->apply_code = f->write_code = HAPAX_E_STORE;
    struct asked a;
    sim_do(&s, make_begin(&a, "k", "body", 0));
    assert_code(&a, HAPAX_E_STORE);
    f->apply_code = f->write_code = 0;
    sim_pass(&s, 2 * LANE_PROBE_MS);
    assert_true(engine_store_ok(s.engine, NULL));
    assert_int_equal(owners_in(store, NULL), 1);
    engine_close(s.engine);
    assert_int_equal(owners_in(store, NULL), 0);
    store_close(store);
}

static void an_owner_that_dies_later_is_noticed_while_running(void **state)
{
    (void)state;
    struct sim here;
    struct sim there;
    sim_open_with(&here, (struct engine_options){.store_uri = "memory:dies-later"});
    sim_open_with(&there, (struct engine_options){.store_uri = "memory:dies-later"});
    struct asked a;
    make_begin(&a, "k", "body", 0)->op.lease_ms = 600000;
    sim_do(&there, &a);
    assert_verdict(&a, VERDICT_FRESH);
    sim_pass(&here, 20000);
    sim_do(&here, make_begin(&a, "k", "body", 0));
    assert_verdict(&a, VERDICT_IN_PROGRESS); /* it lives */
    engine_close(there.engine);
    sim_pass(&here, 11000);
    sim_do(&here, make_begin(&a, "k", "body", 0));
    assert_verdict(&a, VERDICT_UNKNOWN);
    engine_close(here.engine);
}

static void lost_leases_are_written_down_without_being_asked_for(void **state)
{
    (void)state;
    struct sim s;
    sim_open(&s);
    sim_claim(&s, "k", "body");
    struct store_stats stats;
    assert_int_equal(engine_store_stats(s.engine, &stats, NULL), 0);
    assert_int_equal(stats.running, 1);
    sim_pass(&s, 41000);
    assert_int_equal(engine_store_stats(s.engine, &stats, NULL), 0);
    assert_int_equal(stats.running, 0);
    assert_int_equal(stats.unknown, 1);
    engine_close(s.engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(expired_records_go_in_slices_between_batches),
        cmocka_unit_test(a_sweep_rests_when_little_is_left_and_hurries_when_it_falls_behind),
        cmocka_unit_test(a_store_that_can_not_be_kept_in_order_is_down),
        cmocka_unit_test(a_long_sweep_does_not_keep_the_dead_waiting),
        cmocka_unit_test(a_dead_owner_that_cannot_be_forgotten_yet_is_tried_again),
        cmocka_unit_test(a_closed_engines_open_claims_are_unknown_to_the_next),
        cmocka_unit_test(more_dead_owners_than_one_walk_finds_are_all_found_at_open),
        cmocka_unit_test(an_owner_that_can_not_be_judged_stays_for_a_month_or_with_what_it_holds),
        cmocka_unit_test(neither_probes_nor_an_engine_that_holds_nothing_leave_an_owner_behind),
        cmocka_unit_test(an_owner_that_dies_later_is_noticed_while_running),
        cmocka_unit_test(lost_leases_are_written_down_without_being_asked_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
