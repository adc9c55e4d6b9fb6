/* Runs of others: two engines on one store, turn by turn on clocks that the test moves. Who waits here for what runs
 * there has its answer soon, by polls that are few and end when nobody waits. */
#include "unit/engine/harness.h"

struct pair {
    struct sim here;
    struct sim there;
};

static void pair_open(struct pair *p, const char *uri)
{
    sim_open_with(&p->here, (struct engine_options){.store_uri = uri});
    sim_open_with(&p->there, (struct engine_options){.store_uri = uri});
}

/* With one lane here, all of whose calls are counted. */
static struct faulty *pair_open_counted(struct pair *p, const char *uri)
{
    sim_open_with(&p->here, (struct engine_options){.store_uri = uri, .lanes = 1});
    sim_open_with(&p->there, (struct engine_options){.store_uri = uri});
    return sim_wrap_store(&p->here);
}

static void pair_close(struct pair *p)
{
    engine_close(p->here.engine);
    engine_close(p->there.engine);
}

static void waiters_for_a_foreign_run_share_one_poll_and_its_answer(void **state)
{
    (void)state;
    struct pair p;
    pair_open(&p, "memory:foreign-done");
    struct fence fence = sim_claim(&p.there, "k", "body");
    struct asked a[3];
    for (size_t i = 0; i < 3; i++) {
        sim_do(&p.here, make_begin(&a[i], "k", "body", 10000));
        assert_int_equal(a[i].done, 0);
    }
    struct asked b;
    sim_do(&p.here, make_begin(&b, "k", "other", 10000));
    assert_verdict(&b, VERDICT_MISMATCH);
    sim_do(&p.here, make_begin(&b, "k", "body", 0));
    assert_verdict(&b, VERDICT_IN_PROGRESS);
    struct engine_stats before;
    struct engine_stats after;
    engine_stats(p.here.engine, &before);
    sim_pass(&p.here, 5000);
    engine_stats(p.here.engine, &after);
    assert_in_range(after.batch_ops - before.batch_ops, 240, 260); /* once for all three */
    sim_complete(&p.there, "k", fence, "answer");
    sim_pass(&p.here, LANE_POLL_MS_MAX);
    for (size_t i = 0; i < 3; i++) {
        assert_verdict(&a[i], VERDICT_ATTACHED);
        take_answer_text(&a[i], "answer");
    }
    engine_stats(p.here.engine, &before);
    sim_pass(&p.here, 900);
    engine_stats(p.here.engine, &after);
    assert_int_equal(after.batch_ops, before.batch_ops); /* nobody waits: nobody polls */
    pair_close(&p);
}

/* The age at which each poll of the next `ms` comes, from a claim's being found. */
static size_t polls_seen(struct pair *p, struct faulty *f, int64_t ms, int64_t *at, size_t max)
{
    size_t count = 0;
    for (int64_t age = 0; age <= ms; age++) {
        size_t before = f->lookups;
        sim_pass(&p->here, age > 0 ? 1 : 0);
        for (size_t i = before; i < f->lookups && count < max; i++) {
            at[count++] = age;
        }
    }
    return count;
}

static void polls_for_a_foreign_run_are_never_further_apart_than_the_bound(void **state)
{
    (void)state;
    struct pair p;
    struct faulty *f =
        pair_open_counted(&p, "memory:foreign-schedule"); /* at mono_ms 5000, which all pauses divide */
    struct fence fence = sim_claim(&p.there, "k", "body");
    struct asked a;
    sim_do(&p.here, make_begin(&a, "k", "body", 600000));
    int64_t at[8];
    assert_int_equal(polls_seen(&p, f, 80, at, 8), 6);
    static const int64_t expected[] = {5, 10, 20, 40, 60, 80};
    for (size_t i = 0; i < 6; i++) {
        assert_int_equal(at[i], expected[i]);
    }
    sim_pass(&p.here, 20000); /* however long it takes */
    sim_complete(&p.there, "k", fence, "answer");
    assert_int_equal(a.done, 0);
    sim_pass(&p.here, LANE_POLL_MS_MAX);
    assert_verdict(&a, VERDICT_ATTACHED);
    take_answer_text(&a, "answer");
    pair_close(&p);
}

static void many_foreign_runs_share_their_polls(void **state)
{
    (void)state;
    enum { MANY = 3 * LANE_OWN_OPS_MAX };
    struct pair p;
    struct faulty *f = pair_open_counted(&p, "memory:foreign-many");
    static struct asked a[MANY];
    static char keys[MANY][16];
    struct fence last = {0};
    for (size_t i = 0; i < MANY; i++) {
        snprintf(keys[i], sizeof keys[i], "k%zu", i);
        last = sim_claim(&p.there, keys[i], "body");
    }
    for (size_t i = 0; i < MANY; i++) {
        sim_do(&p.here, make_begin(&a[i], keys[i], "body", 600000));
        p.here.now.mono_ms += i % 7 == 0; /* not all at one instant */
    }
    sim_pass(&p.here, 100);
    p.here.now.mono_ms += -p.here.now.mono_ms % LANE_POLL_MS_MAX + LANE_POLL_MS_MAX; /* onto the grid */
    sim_turns(&p.here);
    size_t applies = f->applies;
    size_t lookups = f->lookups;
    sim_pass(&p.here, 100 * LANE_POLL_MS_MAX);
    assert_int_equal(f->lookups - lookups, 100 * MANY); /* each once in a pause */
    assert_int_equal(f->applies - applies, 100 * 3);    /* as full batches */

    /* Live ops wait for one of these batches at most, and are not in them. */
    p.here.now.mono_ms += LANE_POLL_MS_MAX;
    applies = f->applies;
    struct asked live;
    sim_submit(&p.here, make_begin(&live, "live", "body", 0));
    lane_turn(engine_lane(p.here.engine, 0), p.here.now);
    assert_verdict(&live, VERDICT_FRESH);
    assert_int_equal(f->applies - applies, 2);
    sim_complete(&p.there, keys[MANY - 1], last, "answer");
    sim_pass(&p.here, 2 * LANE_POLL_MS_MAX);
    assert_verdict(&a[MANY - 1], VERDICT_ATTACHED);
    take_answer_text(&a[MANY - 1], "answer");
    pair_close(&p);
    for (size_t i = 0; i + 1 < MANY; i++) {
        assert_code(&a[i], HAPAX_E_CLOSED);
    }
}

static void polls_of_a_store_that_is_down_are_seldom(void **state)
{
    (void)state;
    struct pair p;
    struct faulty *f = pair_open_counted(&p, "memory:foreign-down");
    struct fence fence = sim_claim(&p.there, "k", "body");
    struct asked a;
    sim_do(&p.here, make_begin(&a, "k", "body", 600000));
    f->apply_code = HAPAX_E_STORE;
    f->write_code = HAPAX_E_STORE;
    sim_pass(&p.here, 1000);
    size_t before = f->lookups;
    sim_pass(&p.here, 10000);
    assert_in_range(f->lookups - before, 35, 45);
    f->apply_code = 0;
    f->write_code = 0;
    sim_complete(&p.there, "k", fence, "answer");
    sim_pass(&p.here, LANE_POLL_DOWN_MS + LANE_POLL_MS_MAX);
    assert_verdict(&a, VERDICT_ATTACHED);
    take_answer_text(&a, "answer");
    pair_close(&p);
}

static void a_waiter_for_a_foreign_run_is_not_told_old_knowledge_when_its_time_is_over(void **state)
{
    (void)state;
    struct pair p;
    struct faulty *f = pair_open_counted(&p, "memory:foreign-late");
    struct fence fence = sim_claim(&p.there, "k", "body");
    struct asked a;
    struct asked b;
    sim_do(&p.here, make_begin(&a, "k", "body", 1000));
    sim_do(&p.here, make_begin(&b, "k", "body", 5000));
    sim_complete(&p.there, "k", fence, "answer");
    f->apply_code = f->write_code = HAPAX_E_STORE; /* no poll hears of it */
    sim_pass(&p.here, 1000);
    assert_code(&a, HAPAX_E_STORE); /* nobody can tell whether it still runs */
    assert_int_equal(b.done, 0);
    f->apply_code = f->write_code = 0;
    p.here.now.mono_ms += 5000; /* the lane stood still meanwhile */
    sim_turns(&p.here);
    assert_verdict(&b, VERDICT_REPLAY);
    take_answer_text(&b, "answer");
    pair_close(&p);
}

static void what_nobody_waits_for_any_more_is_not_polled(void **state)
{
    (void)state;
    struct pair p;
    struct faulty *f = pair_open_counted(&p, "memory:foreign-ended");
    sim_claim(&p.there, "k", "body");
    struct asked a;
    sim_do(&p.here, make_begin(&a, "k", "body", 100));
    sim_pass(&p.here, 99);
    f->apply_code = f->write_code = HAPAX_E_STORE;
    sim_pass(&p.here, 1000);
    assert_code(&a, HAPAX_E_STORE);
    f->apply_code = f->write_code = 0;
    size_t before = f->lookups;
    sim_pass(&p.here, 2000);
    assert_int_equal(f->lookups, before);
    pair_close(&p);
}

static void a_foreign_run_that_nobody_may_wait_for_is_not_polled(void **state)
{
    (void)state;
    struct pair p;
    sim_open_with(&p.here, (struct engine_options){
                               .store_uri = "memory:foreign-no-room", .lanes = 1, .waiters_max = 1});
    sim_open_with(&p.there, (struct engine_options){.store_uri = "memory:foreign-no-room"});
    struct faulty *f = sim_wrap_store(&p.here);
    sim_claim(&p.here, "own", "body");
    struct asked waiter;
    sim_do(&p.here, make_begin(&waiter, "own", "body", 60000)); /* in the only place */
    sim_claim(&p.there, "k", "body");
    struct asked a;
    sim_do(&p.here, make_begin(&a, "k", "body", 10000));
    assert_verdict(&a, VERDICT_IN_PROGRESS);
    size_t before = f->lookups;
    sim_pass(&p.here, 1000);
    assert_int_equal(f->lookups, before);
    pair_close(&p);
    assert_code(&waiter, HAPAX_E_CLOSED);
}

static void an_answer_of_another_process_is_kept_in_memory_too(void **state)
{
    (void)state;
    struct pair p;
    struct faulty *f = pair_open_counted(&p, "memory:foreign-cached");
    struct asked a;
    sim_complete(&p.there, "read", sim_claim(&p.there, "read", "body"), "answer");
    sim_do(&p.here, make_begin(&a, "read", "body", 0));
    assert_verdict(&a, VERDICT_REPLAY);
    take_answer_text(&a, "answer");
    struct fence fence = sim_claim(&p.there, "polled", "body");
    sim_do(&p.here, make_begin(&a, "polled", "body", 10000));
    sim_complete(&p.there, "polled", fence, "answer");
    sim_pass(&p.here, LANE_POLL_MS_MAX);
    assert_verdict(&a, VERDICT_ATTACHED);
    take_answer_text(&a, "answer");

    static const char *const keys[] = {"read", "polled"};
    size_t before = f->claims;
    for (int i = 0; i < 2; i++) {
        sim_do(&p.here, make_begin(&a, keys[i], "body", 0));
        assert_verdict(&a, VERDICT_REPLAY);
        take_answer_text(&a, "answer");
    }
    assert_int_equal(f->claims, before);
    pair_close(&p);
}

static void a_run_begun_anew_elsewhere_is_told_as_the_new_one(void **state)
{
    (void)state;
    struct pair p;
    pair_open(&p, "memory:foreign-new-fence");
    struct fence fence = sim_claim(&p.there, "k", "body");
    struct asked waiter;
    struct asked a;
    sim_do(&p.here, make_begin(&waiter, "k", "body", 60000));
    sim_do(&p.there, make_fenced(&a, ENGINE_RELEASE, "k", fence));
    fence = sim_claim(&p.there, "k", "body");
    sim_do(&p.here, make_begin(&a, "k", "body", 0)); /* before the next poll */
    assert_verdict(&a, VERDICT_IN_PROGRESS);
    assert_true(fence_equal(a.op.record.fence, fence));
    pair_close(&p);
    assert_code(&waiter, HAPAX_E_CLOSED);
}

static void a_waiter_for_a_foreign_run_takes_over_when_it_is_released(void **state)
{
    (void)state;
    struct pair p;
    pair_open(&p, "memory:foreign-released");
    struct fence fence = sim_claim(&p.there, "k", "body");
    struct asked a;
    struct asked release;
    sim_do(&p.here, make_begin(&a, "k", "body", 10000));
    sim_do(&p.there, make_fenced(&release, ENGINE_RELEASE, "k", fence));
    sim_pass(&p.here, 250);
    assert_verdict(&a, VERDICT_FRESH);
    pair_close(&p);
}

static void a_key_released_elsewhere_and_used_anew_for_other_content_is_a_mismatch(void **state)
{
    (void)state;
    struct pair p;
    pair_open(&p, "memory:foreign-anew");
    struct fence fence = sim_claim(&p.there, "k", "body");
    struct asked a;
    struct asked release;
    sim_do(&p.here, make_begin(&a, "k", "body", 10000));
    sim_do(&p.there, make_fenced(&release, ENGINE_RELEASE, "k", fence));
    sim_claim(&p.there, "k", "other");
    sim_pass(&p.here, 250);
    assert_verdict(&a, VERDICT_MISMATCH);
    pair_close(&p);
}

static void a_wait_for_a_foreign_run_ends_with_its_time_or_the_lease(void **state)
{
    (void)state;
    struct pair p;
    pair_open(&p, "memory:foreign-late");
    sim_claim(&p.there, "k", "body");
    struct asked a;
    struct asked b;
    sim_do(&p.here, make_begin(&a, "k", "body", 100));
    sim_do(&p.here, make_begin(&b, "k", "body", 60000));
    sim_pass(&p.here, 100);
    assert_verdict(&a, VERDICT_IN_PROGRESS);
    assert_int_equal(b.done, 0);
    sim_pass(&p.here, 30200);
    assert_verdict(&b, VERDICT_UNKNOWN);
    pair_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(waiters_for_a_foreign_run_share_one_poll_and_its_answer),
        cmocka_unit_test(polls_for_a_foreign_run_are_never_further_apart_than_the_bound),
        cmocka_unit_test(many_foreign_runs_share_their_polls),
        cmocka_unit_test(a_waiter_for_a_foreign_run_is_not_told_old_knowledge_when_its_time_is_over),
        cmocka_unit_test(polls_of_a_store_that_is_down_are_seldom),
        cmocka_unit_test(what_nobody_waits_for_any_more_is_not_polled),
        cmocka_unit_test(a_foreign_run_that_nobody_may_wait_for_is_not_polled),
        cmocka_unit_test(an_answer_of_another_process_is_kept_in_memory_too),
        cmocka_unit_test(a_run_begun_anew_elsewhere_is_told_as_the_new_one),
        cmocka_unit_test(a_waiter_for_a_foreign_run_takes_over_when_it_is_released),
        cmocka_unit_test(a_key_released_elsewhere_and_used_anew_for_other_content_is_a_mismatch),
        cmocka_unit_test(a_wait_for_a_foreign_run_ends_with_its_time_or_the_lease),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
