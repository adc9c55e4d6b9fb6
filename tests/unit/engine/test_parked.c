/* Threads held at chosen points: a lane before a batch, between commit and reply, in a sweep, during a close; a
 * loop that does not take its replies, or has not yet woken the lane. The others go on, limits hold, and when the
 * held one goes on nothing is lost and nothing happens twice.
 *
 * Nothing here depends on how long anything takes: a held lane stays where it is until the test lets it go. */
#include "unit/engine/parked.h"

/* --- ops --- */

static uint64_t queued(struct engine *e)
{
    struct engine_stats stats;
    engine_stats(e, &stats);
    return stats.queued;
}

/* The n-th key of a lane, of two. */
static const char *key_of_lane(char out[16], unsigned lane, int n)
{
    for (int i = 0;; i++) {
        struct identity id;
        snprintf(out, 16, "k%d", i);
        assert_int_equal(identity_make(&id, SLICE_LITERAL("test"), slice_text(out), NULL), 0);
        if (id.bytes[IDENTITY_BYTES - 1] % 2 == lane && n-- == 0) {
            return out;
        }
    }
}

/* What another handle on the same data sees. */
static enum record_state seen(struct store *s, const char *key, const char *text)
{
    struct store_op op = {.kind = STORE_LOOKUP, .want_answer = true};
    struct store_op *ops = &op;
    hapax_error err;
    assert_int_equal(identity_make(&op.id, SLICE_LITERAL("test"), slice_text(key), NULL), 0);
    assert_int_equal(store_apply(s, &ops, 1, clock_wall_ms(), &err), 0);
    if (op.answer != NULL) {
        assert_true(text != NULL && slice_equal(answer_body(op.answer), slice_text(text)));
        answer_drop(op.answer);
    }
    return op.found.state;
}

static struct store *other_handle(const char *uri)
{
    struct store *s;
    hapax_error err;
    assert_int_equal(store_open(&s, uri, &(struct store_options){0}, &err), 0);
    return s;
}

/* --- a lane that is held --- */

static void a_lane_between_commit_and_reply_holds_up_nobody_else_and_fills_no_memory(void **state)
{
    (void)state;
    enum { ROOM = 32 };
    struct parked p;
    parked_open(&p, (struct engine_options){.store_uri = "memory:reply", .lanes = 2, .queue_ops_max = ROOM});
    struct store *other = other_handle("memory:reply");
    char k[16];
    char k_else[16];
    key_of_lane(k, 0, 0);
    struct fence early = claim(p.engine, key_of_lane(k_else, 1, 0));

    struct asked first;
    hold_at(&p, FAULTY_AFTER_APPLY);
    submit(p.engine, make_begin(&first, k, "body", 0));
    wait_held(&p);
    assert_int_equal(seen(other, k, NULL), RECORD_RUNNING); /* durable, and nobody was told */
    assert_int_equal(first.done, 0);
    for (int i = 1; i < 20; i++) { /* the other lane works */
        char own[16];
        complete(p.engine, own, claim(p.engine, key_of_lane(own, 1, i)), "else");
    }

    struct asked copies[ROOM];
    int taken = 0;
    while (engine_submit(p.engine, &make_begin(&copies[taken], k, "body", 600000)->op) == 0) {
        taken++;
        assert_true(taken < ROOM);
    }
    assert_int_equal(taken, ROOM - 1); /* with the first one: the limit */
    struct asked refused;
    char k_more[16];
    make_begin(&refused, key_of_lane(k_more, 1, 30), "body", 0);
    assert_int_equal(engine_submit(p.engine, &refused.op), HAPAX_E_BUSY);
    complete(p.engine, k_else, early, "else"); /* what ends a claim is taken even so */
    for (int i = 0; i < taken; i++) {
        assert_int_equal(copies[i].done, 0);
    }

    let_go(&p);
    finish(&first);
    assert_verdict(&first, VERDICT_FRESH);
    complete(p.engine, k, first.op.record.fence, "answer");
    for (int i = 0; i < taken; i++) {
        finish(&copies[i]);
        assert_verdict(&copies[i], VERDICT_ATTACHED);
        take_answer_text(&copies[i], "answer");
    }
    assert_int_equal(queued(p.engine), 0);
    assert_int_equal(seen(other, k, "answer"), RECORD_DONE);
    store_close(other);
    parked_close(&p);
}

static void what_comes_while_a_lane_stands_before_a_batch_goes_as_one_batch_and_once(void **state)
{
    (void)state;
    enum { OPS = 100 };
    struct parked p;
    parked_open(&p, (struct engine_options){.store_uri = "memory:before", .lanes = 1});
    struct store *other = other_handle("memory:before");
    struct asked first;
    hold_at(&p, FAULTY_BEFORE_APPLY);
    submit(p.engine, make_begin(&first, "first", "body", 0));
    wait_held(&p);
    assert_int_equal(seen(other, "first", NULL), RECORD_ABSENT);
    struct asked fresh[OPS];
    struct asked copies[OPS];
    char keys[OPS][16];
    for (int i = 0; i < OPS; i++) {
        snprintf(keys[i], sizeof keys[i], "key-%d", i);
        submit(p.engine, make_begin(&fresh[i], keys[i], "body", 0));
        submit(p.engine, make_begin(&copies[i], keys[i], i % 2 == 0 ? "body" : "other", 0));
    }
    let_go(&p);
    finish(&first);
    assert_verdict(&first, VERDICT_FRESH);
    for (int i = 0; i < OPS; i++) {
        finish(&fresh[i]);
        finish(&copies[i]);
        assert_verdict(&fresh[i], VERDICT_FRESH);
        assert_verdict(&copies[i], i % 2 == 0 ? VERDICT_IN_PROGRESS : VERDICT_MISMATCH);
    }
    assert_int_equal(queued(p.engine), 0);
    struct engine_stats stats;
    engine_stats(p.engine, &stats);
    assert_int_equal(stats.batches, 2);
    assert_int_equal(stats.in_flight, OPS + 1);
    store_close(other);
    parked_close(&p);
}

static void waits_that_end_while_the_lane_is_held_are_answered_once(void **state)
{
    (void)state;
    struct parked p;
    parked_open(&p, (struct engine_options){0});
    struct fence fence = claim(p.engine, "k");
    struct asked waiters[3];
    for (size_t i = 0; i < 3; i++) {
        submit(p.engine, make_begin(&waiters[i], "k", "body", 200));
    }
    struct engine_stats stats;
    do { /* on a slow machine a wait may be over by then: that is an answer, too */
        engine_stats(p.engine, &stats);
    } while (stats.waiters < 3 && waiters[0].done == 0);
    struct asked other;
    hold_at(&p, FAULTY_BEFORE_APPLY);
    submit(p.engine, make_begin(&other, "other", "body", 0));
    wait_held(&p);
    int64_t past = clock_mono_ms() + 200;
    wait_for(clock_mono_ms() > past);
    struct asked end;
    submit(p.engine, make_complete(&end, "k", fence, "answer"));
    let_go(&p);
    finish(&end);
    assert_code(&end, 0);
    answer_drop(end.op.answer);
    for (size_t i = 0; i < 3; i++) {
        finish(&waiters[i]);
        assert_verdict(&waiters[i], VERDICT_IN_PROGRESS);
    }
    finish(&other);
    assert_verdict(&other, VERDICT_FRESH);
    assert_int_equal(queued(p.engine), 0);
    parked_close(&p);
}

/* Another process's engine, as far as the store can tell. */
static struct fence take_over(struct engine *e, const char *key)
{
    struct asked a;
    do {
        make_begin(&a, key, "body", 0)->op.take_over = true;
        finish(submit(e, &a));
        assert_int_equal(a.op.code, 0);
    } while (a.op.verdict == VERDICT_IN_PROGRESS);
    assert_verdict(&a, VERDICT_FRESH);
    return a.op.record.fence;
}

static void a_lane_held_past_its_lease_can_not_overwrite_who_took_over(void **state)
{
    (void)state;
    struct parked p;
    parked_open(&p, (struct engine_options){.store_uri = "memory:lease", .lanes = 1});
    struct engine *other;
    hapax_error err;
    assert_int_equal(engine_open(&other, &(struct engine_options){.store_uri = "memory:lease"}, &err), 0);
    struct asked begin;
    make_begin(&begin, "k", "body", 0)->op.lease_ms = 50;
    finish(submit(p.engine, &begin));
    assert_verdict(&begin, VERDICT_FRESH);

    struct asked end;
    hold_at(&p, FAULTY_BEFORE_APPLY);
    submit(p.engine, make_complete(&end, "k", begin.op.record.fence, "late"));
    wait_held(&p);
    struct fence second = take_over(other, "k");
    assert_int_equal(second.attempt, 2);
    complete(other, "k", second, "second");
    let_go(&p);
    finish(&end);
    assert_code(&end, HAPAX_E_STALE);
    answer_drop(end.op.answer);
    struct asked again;
    finish(submit(p.engine, make_begin(&again, "k", "body", 0)));
    assert_verdict(&again, VERDICT_REPLAY);
    take_answer_text(&again, "second");
    engine_close(other);
    parked_close(&p);
}

static void an_answer_that_is_durable_is_replayed_elsewhere_before_its_own_lane_goes_on(void **state)
{
    (void)state;
    struct parked p;
    parked_open(&p, (struct engine_options){.store_uri = "memory:told", .lanes = 1});
    struct engine *other;
    hapax_error err;
    assert_int_equal(engine_open(&other, &(struct engine_options){.store_uri = "memory:told"}, &err), 0);
    struct fence fence = claim(p.engine, "k");
    struct asked waiter; /* of the other engine: it polls */
    submit(other, make_begin(&waiter, "k", "body", 600000));
    struct asked end;
    hold_at(&p, FAULTY_AFTER_APPLY);
    submit(p.engine, make_complete(&end, "k", fence, "answer"));
    wait_held(&p);
    finish(&waiter);
    assert_int_equal(waiter.op.code, 0);
    assert_true(waiter.op.verdict == VERDICT_ATTACHED || waiter.op.verdict == VERDICT_REPLAY);
    take_answer_text(&waiter, "answer");
    assert_int_equal(end.done, 0);
    let_go(&p);
    finish(&end);
    assert_code(&end, 0);
    answer_drop(end.op.answer);
    engine_close(other);
    parked_close(&p);
}

static void a_sweep_that_is_held_loses_nothing_and_lets_live_operations_in_before_its_next_slice(void **state)
{
    (void)state;
    enum { EXPIRED = 8, LIVE = 40 };
    struct parked p;
    parked_open(&p, (struct engine_options){
                        .store_uri = "memory:sweep", .lanes = 2, .sweep_every_ms = 1, .sweep_rows = 1});
    hold_at(&p, FAULTY_BEFORE_SWEEP);
    wait_held(&p); /* lane 0 stands before a slice that finds nothing yet: lane 1 makes what expires */
    char keys[LIVE][16];
    for (int i = 0; i < EXPIRED; i++) {
        struct asked a;
        make_begin(&a, key_of_lane(keys[i], 1, i), "body", 0)->op.ttl_ms = 1;
        finish(submit(p.engine, &a));
        assert_verdict(&a, VERDICT_FRESH);
        complete(p.engine, keys[i], a.op.record.fence, "answer");
    }
    struct asked live[LIVE];
    for (int i = 0; i < LIVE; i++) {
        submit(p.engine, make_begin(&live[i], key_of_lane(keys[i], 0, i), "body", 0));
        assert_int_equal(live[i].done, 0);
    }
    /* The slice's own time is that of its turn's begin, so this one may find nothing to remove; whichever is the next
     * one comes after the batch. */
    hold_at(&p, FAULTY_BEFORE_SWEEP);
    let_go(&p);
    wait_held(&p);
    for (int i = 0; i < LIVE; i++) {
        assert_verdict(&live[i], VERDICT_FRESH);
    }
    let_go(&p);
    struct engine_stats stats;
    do {
        engine_stats(p.engine, &stats);
        pause_ms(1);
    } while (stats.expired < EXPIRED);
    assert_int_equal(stats.expired, EXPIRED);
    assert_int_equal(stats.in_flight, LIVE);
    parked_close(&p);
}

static void *close_engine(void *arg)
{
    engine_close(arg);
    return NULL;
}

static void a_close_waits_for_a_held_lane_and_answers_everything_once(void **state)
{
    (void)state;
    struct parked p;
    parked_open(&p, (struct engine_options){.store_uri = "memory:close", .lanes = 2});
    struct store *other = other_handle("memory:close");
    char running[16];
    char first_key[16];
    char late_key[16];
    char else_key[16];
    struct fence fence = claim(p.engine, key_of_lane(running, 0, 0));
    struct asked first;
    struct asked copy;
    struct asked late;
    struct asked end;
    struct asked elsewhere;
    hold_at(&p, FAULTY_AFTER_APPLY);
    submit(p.engine, make_begin(&first, key_of_lane(first_key, 0, 1), "body", 0));
    wait_held(&p);
    submit(p.engine, make_begin(&copy, first_key, "body", 600000));
    submit(p.engine, make_begin(&late, key_of_lane(late_key, 0, 2), "body", 0));
    submit(p.engine, make_complete(&end, running, fence, "answer"));
    submit(p.engine, make_begin(&elsewhere, key_of_lane(else_key, 1, 0), "body", 0));
    struct engine_shared *shared = engine_lane(p.engine, 0)->shared;
    pthread_t closer;
    assert_int_equal(pthread_create(&closer, NULL, close_engine, p.engine), 0);
    wait_for(atomic_load(&shared->closing));
    finish(&elsewhere); /* the other lane ends its work meanwhile */
    assert_int_equal(first.done + copy.done + late.done + end.done, 0);
    let_go(&p);
    pthread_join(closer, NULL);
    assert_verdict(&first, VERDICT_FRESH);
    assert_code(&copy, HAPAX_E_CLOSED); /* a wait can not outlast the engine */
    assert_verdict(&late, VERDICT_FRESH);
    assert_code(&end, 0);
    answer_drop(end.op.answer);
    assert_verdict(&elsewhere, VERDICT_FRESH);
    assert_int_equal(seen(other, first_key, NULL), RECORD_RUNNING);
    assert_int_equal(seen(other, late_key, NULL), RECORD_RUNNING);
    assert_int_equal(seen(other, running, "answer"), RECORD_DONE);
    store_close(other);
    sem_destroy(&p.gate.reached);
    sem_destroy(&p.gate.go);
}

/* --- a loop that is held --- */

static void replies_to_a_loop_that_is_held_wait_for_it_and_others_get_theirs(void **state)
{
    (void)state;
    enum { ROUNDS = 10, EACH = 20, OPS = ROUNDS * EACH };
    struct parked p;
    parked_open(&p, (struct engine_options){.queue_ops_max = EACH + 1});
    struct counted_port held = {.wakes = 0};
    struct counted_port other = {.wakes = 0};
    engine_port_init(&held.port, count_wake, &held);
    engine_port_init(&other.port, count_wake, &other);
    static struct asked ops[OPS];
    static char keys[OPS][16];
    for (int i = 0; i < OPS; i++) {
        snprintf(keys[i], sizeof keys[i], "held-%d", i);
        make_begin(&ops[i], keys[i], "body", 0)->op.port = &held.port;
        submit(p.engine, &ops[i]);
        if (i % EACH ==
            EACH - 1) { /* answered ops leave their room to others although nobody took them yet */
            wait_for(queued(p.engine) == 0);
            struct asked a;
            char key[16];
            snprintf(key, sizeof key, "other-%d", i);
            make_begin(&a, key, "body", 0)->op.port = &other.port;
            submit(p.engine, &a);
            wait_for(engine_port_drain(&other.port) == 1);
            assert_verdict(&a, VERDICT_FRESH);
        }
    }
    assert_int_equal(held.wakes, 1); /* one for all that has piled up */
    for (int i = 0; i < OPS; i++) {
        assert_int_equal(ops[i].done, 0);
    }
    assert_int_equal(engine_port_drain(&held.port), OPS);
    for (int i = 0; i < OPS; i++) {
        assert_verdict(&ops[i], VERDICT_FRESH);
    }
    parked_close(&p);
    engine_port_destroy(&held.port);
    engine_port_destroy(&other.port);
}

static void a_loop_held_before_it_wakes_the_lane_does_not_hold_up_another(void **state)
{
    (void)state;
    struct parked p;
    parked_open(&p, (struct engine_options){.sweep_every_ms = 3600000});
    struct lane *lane = engine_lane(p.engine, 0);
    struct counted_port held[2] = {{.wakes = 0}, {.wakes = 0}};
    struct counted_port other[2] = {{.wakes = 0}, {.wakes = 0}};
    for (int i = 0; i < 2; i++) {
        engine_port_init(&held[i].port, count_wake, &held[i]);
        engine_port_init(&other[i].port, count_wake, &other[i]);
        held[i].port.gathers = true;
        other[i].port.gathers = i == 1;
        struct asked first;
        struct asked second;
        make_begin(&first, i == 0 ? "a" : "b", "body", 0)->op.port = &held[i].port;
        make_begin(&second, i == 0 ? "c" : "d", "body", 0)->op.port = &other[i].port;
        wait_for(atomic_load(&lane->state) == LANE_ASLEEP);
        submit(p.engine, &first); /* and does not get to its flush */
        submit(p.engine, &second);
        engine_port_flush(p.engine, &other[i].port);
        /* Woken: it is awake, or has been and answered, and only then slept again. */
        assert_true(atomic_load(&lane->state) == LANE_AWAKE || !queue_empty(&other[i].port.queue));
        wait_for(engine_port_drain(&other[i].port) == 1);
        assert_verdict(&second, VERDICT_FRESH);
        engine_port_flush(p.engine, &held[i].port);
        wait_for(engine_port_drain(&held[i].port) == 1);
        assert_verdict(&first, VERDICT_FRESH);
    }
    parked_close(&p);
    for (int i = 0; i < 2; i++) {
        engine_port_destroy(&held[i].port);
        engine_port_destroy(&other[i].port);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lane_between_commit_and_reply_holds_up_nobody_else_and_fills_no_memory),
        cmocka_unit_test(what_comes_while_a_lane_stands_before_a_batch_goes_as_one_batch_and_once),
        cmocka_unit_test(waits_that_end_while_the_lane_is_held_are_answered_once),
        cmocka_unit_test(a_lane_held_past_its_lease_can_not_overwrite_who_took_over),
        cmocka_unit_test(an_answer_that_is_durable_is_replayed_elsewhere_before_its_own_lane_goes_on),
        cmocka_unit_test(
            a_sweep_that_is_held_loses_nothing_and_lets_live_operations_in_before_its_next_slice),
        cmocka_unit_test(a_close_waits_for_a_held_lane_and_answers_everything_once),
        cmocka_unit_test(replies_to_a_loop_that_is_held_wait_for_it_and_others_get_theirs),
        cmocka_unit_test(a_loop_held_before_it_wakes_the_lane_does_not_hold_up_another),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
