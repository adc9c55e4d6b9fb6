/* A thread that submits a lone op does the sleeping lane's turn itself. Whoever it is that turns the lane, nothing is
 * lost, nothing happens twice, and nobody sleeps on what has come. */
#include "unit/engine/parked.h"

struct helper {
    struct parked *p;
    struct counted_port port;
    struct asked op;
    bool helped; /* the answer was there at once */
    pthread_t thread;
};

/* Longer than the lane's thread ever sleeps: so this is no time that it has written there. */
#define NO_TURN_SINCE TIMER_NEVER

static const struct engine_options quiet = {.sweep_every_ms = 3600000};

static void helper_open(struct helper *h, struct parked *p, const struct engine_options *o)
{
    *h = (struct helper){.p = p};
    parked_open(p, *o);
    engine_port_init(&h->port.port, count_wake, &h->port);
}

static void helper_close(struct helper *h)
{
    parked_close(h->p);
    engine_port_destroy(&h->port.port);
}

/* The sleeping lane becomes ours, and its thread sleeps on. */
static struct lane *borrow(struct helper *h)
{
    struct lane *lane = engine_lane(h->p->engine, 0);
    uint32_t state = LANE_ASLEEP;
    while (!atomic_compare_exchange_strong(&lane->state, &state, LANE_LENT)) {
        pause_ms(1);
        state = LANE_ASLEEP;
    }
    return lane;
}

/* False: its thread wanted it back. */
static bool put_back(struct lane *lane)
{
    uint32_t state = LANE_LENT;
    if (atomic_compare_exchange_strong(&lane->state, &state, LANE_ASLEEP)) {
        return true;
    }
    atomic_store(&lane->state, LANE_ASLEEP);
    lane_wake(lane);
    return false;
}

/* Submit the op and help, on this thread. */
static void ask_op(struct helper *h, bool slow)
{
    h->op.op.port = &h->port.port;
    struct lane *lane;
    do {
        lane = borrow(h);
        lane->slow = slow;
    } while (!put_back(lane));
    must(engine_submit_and_help(h->p->engine, &h->op.op) == 0);
    h->helped = !queue_empty(&h->port.port.queue);
}

static void watch_turns(struct helper *h)
{
    struct lane *lane = borrow(h);
    lane->sleeps_until_mono_ms = NO_TURN_SINCE;
    put_back(lane);
}

/* It sleeps again: did the lane's thread have a turn since watch_turns()? */
static bool lane_has_turned(struct helper *h)
{
    struct lane *lane = borrow(h);
    bool turned = lane->sleeps_until_mono_ms != NO_TURN_SINCE;
    put_back(lane);
    return turned;
}

static void *run_helper(void *arg)
{
    ask_op(arg, false);
    return NULL;
}

static void drain_op(struct helper *h)
{
    wait_for(engine_port_drain(&h->port.port) == 1);
    if (h->op.op.kind == ENGINE_COMPLETE) {
        answer_drop(h->op.op.answer);
    }
}

static void a_lone_op_is_served_by_the_thread_that_asks(void **state)
{
    (void)state;
    struct parked p;
    struct helper h;
    helper_open(&h, &p, &quiet);
    int helped = 0;
    for (int i = 0; i < 50; i++) {
        char key[16];
        snprintf(key, sizeof key, "k%d", i);
        make_begin(&h.op, key, "body", 0);
        ask_op(&h, false);
        assert_int_equal(h.op.done, 0); /* call-backs belong to the drain */
        helped += h.helped;
        drain_op(&h);
        assert_verdict(&h.op, VERDICT_FRESH);
        make_complete(&h.op, key, h.op.op.record.fence, "done");
        ask_op(&h, false);
        helped += h.helped;
        drain_op(&h);
        assert_code(&h.op, 0);
    }
    assert_in_range(helped, 50, 100); /* all, but when the lane's thread was up for something else */
    helper_close(&h);
}

static void nobody_helps_while_another_claim_runs_or_the_store_is_slow(void **state)
{
    (void)state;
    struct parked p;
    struct helper h;
    helper_open(&h, &p, &quiet);
    struct fence running = claim(p.engine, "running");
    hold_at(&p, FAULTY_BEFORE_APPLY);
    make_begin(&h.op, "second", "body", 0);
    ask_op(&h, false); /* would not come back, did this thread apply the batch */
    wait_held(&p);
    assert_false(h.helped);
    let_go(&p);
    drain_op(&h);
    assert_verdict(&h.op, VERDICT_FRESH);
    complete(p.engine, "running", running, "done");

    hold_at(&p, FAULTY_BEFORE_APPLY);
    make_complete(&h.op, "second", h.op.op.record.fence, "done");
    ask_op(&h, true);
    wait_held(&p);
    assert_false(h.helped);
    let_go(&p);
    drain_op(&h);
    assert_code(&h.op, 0);
    helper_close(&h);
}

/* The helper is held in the batch. Ops come, and in the second round the lane's thread wakes up and wants it back.
 * Nothing but those ops is a reason for the lane to wake up after the first round: the one that is helped ends the only
 * claim. */
static void a_held_helper_keeps_the_lane_and_gives_it_back_with_what_has_come(void **state)
{
    (void)state;
    enum { MORE = 20 };
    static char keys[MORE][16];
    static struct asked more[MORE];
    for (int wanted = 0; wanted < 2; wanted++) {
        struct parked p;
        struct helper h;
        helper_open(&h, &p, &(struct engine_options){.sweep_every_ms = wanted ? 20 : 3600000});
        struct lane *lane = engine_lane(p.engine, 0);
        make_complete(&h.op, "helped", claim(p.engine, "helped"), "done");
        hold_at(&p, FAULTY_AFTER_APPLY);
        pthread_create(&h.thread, NULL, run_helper, &h);
        wait_held(&p); /* the helper, or the lane's thread, had that just woken up */
        uint32_t lent = atomic_load(&lane->state);
        if (wanted == 1 && lent != LANE_AWAKE) {
            wait_for(atomic_load(&lane->state) == LANE_WANTED);
        }
        for (int i = 0; i < MORE; i++) {
            snprintf(keys[i], sizeof keys[i], "more%d", i);
            submit(p.engine, make_begin(&more[i], keys[i], "body", 0));
        }
        for (int i = 0; i < MORE; i++) {
            assert_int_equal(atomic_load(&more[i].done), 0);
        }
        let_go(&p);
        pthread_join(h.thread, NULL);
        drain_op(&h);
        assert_code(&h.op, 0);
        wait_for(atomic_load(&lane->state) == LANE_ASLEEP); /* not before it has done them */
        for (int i = 0; i < MORE; i++) {
            assert_verdict(&more[i], VERDICT_FRESH);
        }
        helper_close(&h);
    }
}

static void waiters_go_round_again_after_a_helped_release(void **state)
{
    (void)state;
    struct parked p;
    struct helper h;
    helper_open(&h, &p, &quiet);
    struct fence fence = claim(p.engine, "k");
    struct asked waiter;
    struct engine_stats stats = {0};
    submit(p.engine, make_begin(&waiter, "k", "body", 600000));
    while (stats.waiters == 0) {
        engine_stats(p.engine, &stats);
        pause_ms(1);
    }
    make_fenced(&h.op, ENGINE_RELEASE, "k", fence);
    ask_op(&h, false);
    drain_op(&h);
    assert_code(&h.op, 0);
    wait_for(atomic_load(&engine_lane(p.engine, 0)->state) == LANE_ASLEEP);
    assert_verdict(&waiter, VERDICT_FRESH);
    helper_close(&h);
}

static void the_lane_watches_over_the_lease_of_a_helped_claim(void **state)
{
    (void)state;
    struct parked p;
    struct helper h;
    helper_open(&h, &p, &quiet);
    watch_turns(&h);
    make_begin(&h.op, "k", "body", 0);
    ask_op(&h, false);
    drain_op(&h);
    assert_verdict(&h.op, VERDICT_FRESH);
    assert_true(lane_has_turned(&h)); /* and sleeps no longer than until the lease's end */
    helper_close(&h);
}

static void the_lane_looks_for_the_store_that_failed_a_helper(void **state)
{
    (void)state;
    struct parked p;
    struct helper h;
    helper_open(&h, &p, &quiet);
    struct lane *lane = borrow(&h);
    p.store->apply_code = p.store->write_code = HAPAX_E_STORE;
    put_back(lane);
    watch_turns(&h);
    make_begin(&h.op, "k", "body", 0);
    ask_op(&h, false);
    drain_op(&h);
    assert_code(&h.op, HAPAX_E_STORE);
    assert_false(engine_store_ok(p.engine, NULL));
    assert_true(lane_has_turned(&h));
    lane = borrow(&h);
    p.store->apply_code = p.store->write_code = 0;
    put_back(lane);
    wait_for(engine_store_ok(p.engine, NULL));
    helper_close(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lone_op_is_served_by_the_thread_that_asks),
        cmocka_unit_test(nobody_helps_while_another_claim_runs_or_the_store_is_slow),
        cmocka_unit_test(a_held_helper_keeps_the_lane_and_gives_it_back_with_what_has_come),
        cmocka_unit_test(waiters_go_round_again_after_a_helped_release),
        cmocka_unit_test(the_lane_watches_over_the_lease_of_a_helped_claim),
        cmocka_unit_test(the_lane_looks_for_the_store_that_failed_a_helper),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
