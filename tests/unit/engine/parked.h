/* Lanes that are held at chosen points, for tests of what the other threads do meanwhile.
 *
 * Nothing here depends on how long anything takes: a held lane stays where it is until the test lets it go. */
#ifndef TESTS_ENGINE_PARKED_H
#define TESTS_ENGINE_PARKED_H

#include "unit/engine/harness.h"

#include <pthread.h>
#include <semaphore.h>
#include <time.h>

#define NOWHERE (-1)

static UNUSED void pause_ms(long ms)
{
    struct timespec t = {.tv_sec = 0, .tv_nsec = ms * 1000000};
    nanosleep(&t, NULL);
}

/* The guard against hanging is the test's own time-out. */
#define wait_for(condition)                                                                                  \
    while (!(condition)) {                                                                                   \
        pause_ms(1);                                                                                         \
    }

/* --- an engine whose first lane can be held --- */

struct gate {
    _Atomic(int) at; /* the point at which the next one to come is held */
    sem_t reached;
    sem_t go;
};

struct parked {
    struct engine *engine;
    struct faulty *store; /* of lane 0; its counters may be read while that lane is held */
    struct gate gate;
};

static UNUSED void stop_here(void *ctx, enum faulty_point point)
{
    struct gate *g = ctx;
    int wanted = (int)point;
    if (atomic_compare_exchange_strong(&g->at, &wanted, NOWHERE)) {
        sem_post(&g->reached);
        while (sem_wait(&g->go) != 0) {
        }
    }
}

static UNUSED void parked_open(struct parked *p, struct engine_options o)
{
    *p = (struct parked){.gate = {.at = NOWHERE}};
    sem_init(&p->gate.reached, 0, 0);
    sem_init(&p->gate.go, 0, 0);
    o.store_uri = o.store_uri != NULL ? o.store_uri : "memory:";
    hapax_error err = {0};
    if (engine_open_without_threads(&p->engine, &o, &err) != 0) {
        fail_msg("open: %s", err.message);
    }
    p->store = wrap_store(p->engine);
    p->store->at = stop_here;
    p->store->at_ctx = &p->gate;
    for (uint32_t i = 0; i < engine_lane_count(p->engine); i++) {
        assert_int_equal(lane_start(engine_lane(p->engine, i), &err), 0);
    }
}

static UNUSED void parked_close(struct parked *p)
{
    engine_close(p->engine);
    sem_destroy(&p->gate.reached);
    sem_destroy(&p->gate.go);
}

static UNUSED void hold_at(struct parked *p, enum faulty_point point)
{
    atomic_store(&p->gate.at, (int)point);
}

static UNUSED void wait_held(struct parked *p)
{
    while (sem_wait(&p->gate.reached) != 0) {
    }
}

static UNUSED void let_go(struct parked *p)
{
    sem_post(&p->gate.go);
}

/* --- ops --- */

static UNUSED struct asked *submit(struct engine *e, struct asked *a)
{
    assert_int_equal(engine_submit(e, &a->op), 0);
    return a;
}

static UNUSED struct asked *finish(struct asked *a)
{
    wait_for(atomic_load(&a->done) > 0);
    return a;
}

static UNUSED struct fence claim(struct engine *e, const char *key)
{
    struct asked a;
    finish(submit(e, make_begin(&a, key, "body", 0)));
    assert_verdict(&a, VERDICT_FRESH);
    return a.op.record.fence;
}

static UNUSED void complete(struct engine *e, const char *key, struct fence fence, const char *text)
{
    struct asked a;
    finish(submit(e, make_complete(&a, key, fence, text)));
    assert_code(&a, 0);
    answer_drop(a.op.answer);
}

/* --- a port that counts its wake-ups --- */

struct counted_port {
    struct engine_port port;
    _Atomic(int) wakes;
};

static UNUSED void count_wake(void *ctx)
{
    struct counted_port *p = ctx;
    atomic_fetch_add(&p->wakes, 1);
}

#endif
