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

/* Submit the op and help, on this thread. */
static void ask_op(struct helper *h, bool slow)
{
    struct lane *lane = engine_lane(h->p->engine, 0);
    h->op.op.port = &h->port.port;
    for (;;) {
        uint32_t state = LANE_ASLEEP;
        if (atomic_compare_exchange_strong(&lane->state, &state, LANE_LENT)) {
            lane->slow = slow; /* lent, so it is ours */
            state = LANE_LENT;
            if (atomic_compare_exchange_strong(&lane->state, &state, LANE_ASLEEP)) {
                break;
            }
            atomic_store(&lane->state, LANE_ASLEEP); /* its thread wanted it back */
            lane_wake(lane);
        }
        pause_ms(1);
    }
    must(engine_submit_and_help(h->p->engine, &h->op.op) == 0);
    h->helped = !queue_empty(&h->port.port.queue);
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

/* The helper is held in the batch. Ops come, and in the second round the lane's thread wakes up and wants it back. */
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
        hold_at(&p, FAULTY_AFTER_APPLY);
        make_begin(&h.op, "helped", "body", 0);
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
        assert_verdict(&h.op, VERDICT_FRESH);
        for (int i = 0; i < MORE; i++) {
            finish(&more[i]);
            assert_verdict(&more[i], VERDICT_FRESH);
        }
        helper_close(&h);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lone_op_is_served_by_the_thread_that_asks),
        cmocka_unit_test(nobody_helps_while_another_claim_runs_or_the_store_is_slow),
        cmocka_unit_test(a_held_helper_keeps_the_lane_and_gives_it_back_with_what_has_come),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
