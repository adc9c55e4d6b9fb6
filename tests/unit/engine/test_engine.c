/* The engine with its threads: ports, many callers at once, closing. */
#include "unit/engine/harness.h"

#include <pthread.h>
#include <sched.h>
#include <semaphore.h>

static void open_engine(struct engine **e, struct engine_options o)
{
    o.store_uri = o.store_uri != NULL ? o.store_uri : "memory:";
    hapax_error err = {0};
    if (engine_open(e, &o, &err) != 0) {
        fail_msg("open: %s", err.message);
    }
}

/* --- one op, waited for by its thread --- */

struct awaited {
    struct asked asked;
    sem_t ready;
};

static void post_ready(struct engine_op *op)
{
    struct awaited *w = op->user;
    sem_post(&w->ready);
}

/* The op must have been made; its call-back is replaced. */
static void run_op(struct engine *e, struct awaited *w)
{
    sem_init(&w->ready, 0, 0);
    w->asked.op.done = post_ready;
    w->asked.op.user = w;
    int code;
    while ((code = engine_submit(e, &w->asked.op)) == HAPAX_E_BUSY) {
        sched_yield();
    }
    must(code == 0);
    while (sem_wait(&w->ready) != 0) {
    }
    sem_destroy(&w->ready);
}

/* --- many callers of one key --- */

#define CALLERS 64

struct caller {
    struct engine *engine;
    pthread_t thread;
    enum engine_verdict verdict;
    bool answer_right;
};

static void wait_for_waiters(struct engine *e, uint64_t count)
{
    struct engine_stats stats;
    do {
        sched_yield();
        engine_stats(e, &stats);
    } while (stats.waiters < count);
}

static void *call_once(void *arg)
{
    struct caller *c = arg;
    struct awaited w;
    make_begin(&w.asked, "one", "body", 60000);
    run_op(c->engine, &w);
    must(w.asked.op.code == 0);
    c->verdict = w.asked.op.verdict;
    if (c->verdict == VERDICT_FRESH) {
        wait_for_waiters(c->engine, CALLERS - 1);
        make_complete(&w.asked, "one", w.asked.op.record.fence, "the answer");
        run_op(c->engine, &w);
        must(w.asked.op.code == 0);
    }
    c->answer_right = slice_equal(answer_body(w.asked.op.answer), SLICE_LITERAL("the answer"));
    answer_drop(w.asked.op.answer);
    return NULL;
}

static void second_caller_attaches_to_the_first(void **state)
{
    (void)state;
    struct engine *e;
    open_engine(&e, (struct engine_options){0});
    struct caller callers[CALLERS];
    for (size_t i = 0; i < CALLERS; i++) {
        callers[i] = (struct caller){.engine = e};
        assert_int_equal(pthread_create(&callers[i].thread, NULL, call_once, &callers[i]), 0);
    }
    int fresh = 0;
    int attached = 0;
    for (size_t i = 0; i < CALLERS; i++) {
        pthread_join(callers[i].thread, NULL);
        fresh += callers[i].verdict == VERDICT_FRESH;
        attached += callers[i].verdict == VERDICT_ATTACHED;
        assert_true(callers[i].answer_right);
    }
    assert_int_equal(fresh, 1);
    assert_int_equal(attached, CALLERS - 1);
    engine_close(e);
}

/* --- races --- */

#define RACERS     8
#define RACE_KEYS  5
#define RACE_STEPS 1500

struct race {
    struct engine *engine;
    _Atomic(int) held[RACE_KEYS];
    _Atomic(int) fresh;
    _Atomic(int) done;
};

struct racer {
    struct race *race;
    pthread_t thread;
    unsigned seed;
};

static const char *race_key(int k)
{
    static const char *const keys[RACE_KEYS] = {"a", "b", "c", "d", "e"};
    return keys[k];
}

/* End a claim in one of the ways; the holder's mark goes first, because another may hold it once this is durable. */
static void end_claim(struct race *race, int k, struct fence fence, int how)
{
    struct awaited w;
    atomic_store(&race->held[k], 0);
    if (how < 4) {
        make_fenced(&w.asked, ENGINE_RELEASE, race_key(k), fence);
    } else if (how < 5) {
        make_fenced(&w.asked, ENGINE_LOSE, race_key(k), fence);
    } else {
        make_complete(&w.asked, race_key(k), fence, race_key(k));
        atomic_fetch_add(&race->done, 1);
    }
    run_op(race->engine, &w);
    must(w.asked.op.code == 0);
    answer_drop(w.asked.op.answer);
}

static void *race(void *arg)
{
    struct racer *r = arg;
    struct race *race = r->race;
    for (int i = 0; i < RACE_STEPS; i++) {
        int k = rand_r(&r->seed) % RACE_KEYS;
        int how = rand_r(&r->seed) % 7;
        struct awaited w;
        make_begin(&w.asked, race_key(k), "body", rand_r(&r->seed) % 2 == 0 ? 0 : 60000);
        w.asked.op.heartbeat = how == 0;
        run_op(race->engine, &w);
        must(w.asked.op.code == 0);
        if (w.asked.op.verdict == VERDICT_FRESH) {
            must(atomic_exchange(&race->held[k], 1) == 0); /* nobody else holds it */
            atomic_fetch_add(&race->fresh, 1);
            end_claim(race, k, w.asked.op.record.fence, how);
        } else if (w.asked.op.verdict == VERDICT_REPLAY || w.asked.op.verdict == VERDICT_ATTACHED) {
            must(slice_equal(answer_body(w.asked.op.answer), slice_text(race_key(k))));
            answer_drop(w.asked.op.answer);
            make_op(&w.asked, ENGINE_FORGET,
                    race_key(k)); /* so that it goes on; it may be forgotten already */
            run_op(race->engine, &w);
        } else if (w.asked.op.verdict == VERDICT_UNKNOWN) {
            make_op(&w.asked, ENGINE_RESOLVE, race_key(k));
            run_op(race->engine, &w);
        } else {
            must(w.asked.op.verdict == VERDICT_IN_PROGRESS);
        }
    }
    return NULL;
}

static void racing_callers_never_hold_one_key_together(void **state)
{
    (void)state;
    struct race r = {0};
    open_engine(&r.engine, (struct engine_options){0});
    struct racer racers[RACERS];
    for (unsigned i = 0; i < RACERS; i++) {
        racers[i] = (struct racer){.race = &r, .seed = i + 1};
        assert_int_equal(pthread_create(&racers[i].thread, NULL, race, &racers[i]), 0);
    }
    for (size_t i = 0; i < RACERS; i++) {
        pthread_join(racers[i].thread, NULL);
    }
    assert_true(r.fresh > 100 && r.done > 10);
    struct engine_stats stats;
    engine_stats(r.engine, &stats);
    assert_int_equal(stats.waiters, 0);
    assert_int_equal(stats.queued, 0);
    engine_close(r.engine);
}

/* --- ports --- */

struct counted_port {
    struct engine_port port;
    sem_t woken;
    _Atomic(int) wakes;
};

static void count_wake(void *ctx)
{
    struct counted_port *p = ctx;
    atomic_fetch_add(&p->wakes, 1);
    sem_post(&p->woken);
}

static pthread_t drainer;
static int drained_elsewhere;

static void note_thread(struct engine_op *op)
{
    drained_elsewhere += !pthread_equal(pthread_self(), drainer);
    note_done(op);
}

static void a_port_gets_every_op_on_the_thread_that_drains_it(void **state)
{
    (void)state;
    enum { OPS = 2000 };
    struct engine *e;
    open_engine(&e, (struct engine_options){0});
    struct counted_port p = {.wakes = 0};
    sem_init(&p.woken, 0, 0);
    engine_port_init(&p.port, count_wake, &p);
    drainer = pthread_self();
    struct asked *a = calloc(OPS, sizeof(*a));
    char(*keys)[16] = calloc(OPS, sizeof(*keys));
    for (size_t i = 0; i < OPS; i++) {
        snprintf(keys[i], sizeof keys[i], "k%zu", i);
        make_begin(&a[i], keys[i], "body", 0);
        a[i].op.port = &p.port;
        a[i].op.done = note_thread;
        assert_int_equal(engine_submit(e, &a[i].op), 0);
    }
    size_t drained = 0;
    int rounds = 0;
    while (drained < OPS) {
        while (sem_wait(&p.woken) != 0) {
        }
        drained += engine_port_drain(&p.port);
        rounds++;
    }
    assert_int_equal(drained_elsewhere, 0);
    for (size_t i = 0; i < OPS; i++) {
        assert_verdict(&a[i], VERDICT_FRESH);
    }
    struct engine_stats stats;
    engine_stats(e, &stats);
    assert_true((uint64_t)p.wakes <= stats.batches); /* at most one for each batch */
    free(keys);
    free(a);
    engine_close(e);
    engine_port_destroy(&p.port);
    sem_destroy(&p.woken);
}

static void a_port_that_gathers_hands_a_turns_ops_over_with_one_flush(void **state)
{
    (void)state;
    enum { OPS = 50, TURNS = 20 };
    struct engine *e;
    open_engine(&e, (struct engine_options){0});
    struct counted_port p = {.wakes = 0};
    sem_init(&p.woken, 0, 0);
    engine_port_init(&p.port, count_wake, &p);
    p.port.gathers = true;
    drainer = pthread_self();
    drained_elsewhere = 0;
    struct asked a[OPS];
    char keys[OPS][16];
    for (int turn = 0; turn < TURNS; turn++) {
        for (int i = 0; i < OPS; i++) {
            snprintf(keys[i], sizeof keys[i], "t%d-%d", turn, i);
            make_begin(&a[i], keys[i], "body", 0);
            a[i].op.port = &p.port;
            a[i].op.done = note_thread;
            assert_int_equal(engine_submit(e, &a[i].op), 0);
        }
        assert_true(p.port.owed != 0); /* it has pushed, so it sees to the wake-up */
        engine_port_flush(e, &p.port);
        assert_true(p.port.owed == 0);
        size_t drained = 0;
        while (drained < OPS) { /* a lost wake-up would hang here */
            while (sem_wait(&p.woken) != 0) {
            }
            drained += engine_port_drain(&p.port);
        }
        for (int i = 0; i < OPS; i++) {
            assert_verdict(&a[i], VERDICT_FRESH);
        }
    }
    assert_int_equal(drained_elsewhere, 0);
    engine_close(e);
    engine_port_destroy(&p.port);
    sem_destroy(&p.woken);
}

/* --- several lanes --- */

static void several_lanes_share_one_store(void **state)
{
    (void)state;
    struct race r = {0};
    open_engine(&r.engine, (struct engine_options){.store_uri = "memory:lanes", .lanes = 4});
    assert_int_equal(engine_lane_count(r.engine), 4);
    struct racer racers[RACERS];
    for (unsigned i = 0; i < RACERS; i++) {
        racers[i] = (struct racer){.race = &r, .seed = i + 100};
        assert_int_equal(pthread_create(&racers[i].thread, NULL, race, &racers[i]), 0);
    }
    for (size_t i = 0; i < RACERS; i++) {
        pthread_join(racers[i].thread, NULL);
    }
    assert_true(r.fresh > 100);
    engine_close(r.engine);
}

/* --- closing --- */

static void close_ends_waits_with_closed(void **state)
{
    (void)state;
    struct engine *e;
    open_engine(&e, (struct engine_options){0});
    struct awaited w;
    make_begin(&w.asked, "k", "body", 0);
    run_op(e, &w);
    assert_int_equal(w.asked.op.verdict, VERDICT_FRESH);
    struct counted_port p = {.wakes = 0};
    sem_init(&p.woken, 0, 0);
    engine_port_init(&p.port, count_wake, &p);
    struct asked a[3];
    for (size_t i = 0; i < 3; i++) {
        make_begin(&a[i], "k", "body", 600000)->op.port = &p.port;
        assert_int_equal(engine_submit(e, &a[i].op), 0);
    }
    engine_close(e); /* some may wait already, others still be queued */
    assert_int_equal(engine_port_drain(&p.port), 3);
    for (size_t i = 0; i < 3; i++) {
        assert_code(&a[i], HAPAX_E_CLOSED);
    }
    engine_port_destroy(&p.port);
    sem_destroy(&p.woken);
}

static void an_engine_that_can_not_open_its_store_says_why(void **state)
{
    (void)state;
    struct engine *e = (struct engine *)&state;
    hapax_error err = {0};
    struct engine_options o = {.store_uri = "nonsense:"};
    assert_int_equal(engine_open(&e, &o, &err), HAPAX_E_ARGUMENT);
    assert_null(e);
    assert_true(strlen(err.message) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(second_caller_attaches_to_the_first),
        cmocka_unit_test(racing_callers_never_hold_one_key_together),
        cmocka_unit_test(a_port_gets_every_op_on_the_thread_that_drains_it),
        cmocka_unit_test(a_port_that_gathers_hands_a_turns_ops_over_with_one_flush),
        cmocka_unit_test(several_lanes_share_one_store),
        cmocka_unit_test(close_ends_waits_with_closed),
        cmocka_unit_test(an_engine_that_can_not_open_its_store_says_why),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
