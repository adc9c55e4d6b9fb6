/* The engine: its options, its lanes and the thread that keeps the store's house. */
#include "engine/engine.h"

#include "base/assert.h"
#include "base/error.h"
#include "base/thread.h"
#include "engine/lane.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MAINTAIN_MS       50
#define MAINTAIN_ERROR_MS 1000
#define LANES_MAX         64
#define LANES_DEFAULT_MAX 4
#define STORE_PATIENCE_MS 5000 /* where options.store.busy_ms says nothing */
#define STORE_SLACK_MS    1000 /* to say that a lock was not given in that time, which is no outage */

struct engine {
    struct engine_shared shared;
    char *uri; /* owned */
    struct lane *lanes[LANES_MAX];
    uint32_t lane_count;

    /* The store's house-keeping, on a handle of its own. */
    struct store *keeper_store;
    pthread_t keeper;
    bool keeper_runs;
    pthread_mutex_t keeper_lock; /* guards keeper_stop */
    pthread_cond_t keeper_wake;
    bool keeper_stop;
};

/* --- the store's house-keeping --- */

/* Sleep; true when it is time to stop. */
static bool keeper_pause(struct engine *e, int64_t ms)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)(ms / 1000);
    until.tv_nsec += (long)(ms % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    pthread_mutex_lock(&e->keeper_lock);
    int woken = 0;
    while (!e->keeper_stop && woken != ETIMEDOUT) {
        woken = pthread_cond_timedwait(&e->keeper_wake, &e->keeper_lock, &until);
    }
    bool stop = e->keeper_stop;
    pthread_mutex_unlock(&e->keeper_lock);
    return stop;
}

static void *keep(void *arg)
{
    struct engine *e = arg;
    pthread_setname_np(pthread_self(), "hapax-keeper");
    thread_background();
    int64_t pause_ms = MAINTAIN_MS;
    while (!keeper_pause(e, pause_ms)) {
        bool more = false;
        hapax_error ignored; /* a store that fails here fails in the lanes, too, and is told of there */
        int code = e->keeper_store->backend->maintain(e->keeper_store, &more, &ignored);
        pause_ms = code != 0 ? MAINTAIN_ERROR_MS : more ? 0 : MAINTAIN_MS;
    }
    return NULL;
}

static int start_keeper(struct engine *e, hapax_error *err)
{
    if (e->lanes[0]->store->backend->maintain == NULL) {
        return 0;
    }
    int code = store_open(&e->keeper_store, e->uri, &e->shared.options.store, err);
    if (code != 0) {
        return code;
    }
    int failure = thread_start(&e->keeper, keep, e);
    if (failure != 0) {
        return error_set(err, HAPAX_E_SYSTEM, failure, "can't start the store's house-keeping thread");
    }
    e->keeper_runs = true;
    return 0;
}

static void stop_keeper(struct engine *e)
{
    if (e->keeper_runs) {
        pthread_mutex_lock(&e->keeper_lock);
        e->keeper_stop = true;
        pthread_cond_signal(&e->keeper_wake);
        pthread_mutex_unlock(&e->keeper_lock);
        pthread_join(e->keeper, NULL);
        e->keeper_runs = false;
    }
    store_close(e->keeper_store);
    e->keeper_store = NULL;
}

/* --- options --- */

static struct moment real_now(void *ctx)
{
    (void)ctx;
    return clock_now();
}

static void or_default_u32(uint32_t *value, uint32_t standard)
{
    *value = *value != 0 ? *value : standard;
}

static void fill_defaults(struct engine_options *o)
{
    or_default_u32(&o->queue_ops_max, 65536);
    or_default_u32(&o->waiters_max, 16384);
    or_default_u32(&o->waiters_per_key_max, 1024);
    or_default_u32(&o->in_flight_max, 262144);
    or_default_u32(&o->sweep_rows, 32);
    o->replay_cache_bytes = o->replay_cache_bytes != 0 ? o->replay_cache_bytes : 32U << 20;
    o->sweep_every_ms = o->sweep_every_ms != 0 ? o->sweep_every_ms : 1000;
    o->now = o->now != NULL ? o->now : real_now;
}

static bool private_memory(const char *uri)
{
    size_t length = strlen(uri);
    const char *tail = "memory:";
    size_t tail_length = strlen(tail);
    return length >= tail_length && strcmp(uri + length - tail_length, tail) == 0 &&
           (length == tail_length || strncmp(uri, "fault:", 6) == 0);
}

/* A private memory store belongs to one handle; the engine needs several on the same data (lanes, stats): it gets a
 * name that nobody else has. */
static int own_uri(struct engine *e, const char *uri, hapax_error *err)
{
    size_t size = strlen(uri) + 32;
    e->uri = malloc(size);
    if (e->uri == NULL) {
        return error_code(err, HAPAX_E_MEMORY);
    }
    if (private_memory(uri)) {
        snprintf(e->uri, size, "%sengine-%016llx", uri, (unsigned long long)e->shared.owner.token);
    } else {
        snprintf(e->uri, size, "%s", uri);
    }
    return 0;
}

/* --- life --- */

static void free_engine(struct engine *e)
{
    stop_keeper(e);
    for (uint32_t i = 0; i < e->lane_count; i++) {
        lane_free(e->lanes[i]);
    }
    owner_leave(&e->shared.owner);
    pthread_mutex_destroy(&e->shared.error_lock);
    pthread_mutex_destroy(&e->keeper_lock);
    pthread_cond_destroy(&e->keeper_wake);
    free(e->uri);
    free(e);
}

static int make_engine(struct engine **out, const struct engine_options *options, hapax_error *err)
{
    struct engine *e = calloc(1, sizeof(*e));
    if (e == NULL) {
        return error_code(err, HAPAX_E_MEMORY);
    }
    e->shared.options = *options;
    e->shared.simulated = options->now != NULL;
    fill_defaults(&e->shared.options);
    pthread_mutex_init(&e->shared.error_lock, NULL);
    pthread_mutex_init(&e->keeper_lock, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&e->keeper_wake, &monotonic);
    pthread_condattr_destroy(&monotonic);
    owner_enter(&e->shared.owner, e->shared.options.now(e->shared.options.now_ctx).wall_ms);
    *out = e;
    return 0;
}

/* Few make large batches, which cost a database much less; several keep one busy that is quick or far. On two processors
 * shared with the database 1, 2, 3 and 4 lanes made 11,900, 9,300, 8,600 and 7,700 pairs of claim and completion a second. */
static uint32_t lanes_by_default(void)
{
    long lanes = sysconf(_SC_NPROCESSORS_ONLN) / 2;
    return lanes < 1 ? 1 : lanes > LANES_DEFAULT_MAX ? LANES_DEFAULT_MAX : (uint32_t)lanes;
}

/* The first lane's store says whether several make sense. */
static int open_lanes(struct engine *e, bool private_store, hapax_error *err)
{
    const struct engine_options *o = &e->shared.options;
    uint32_t wanted = o->lanes != 0 ? o->lanes : private_store ? 1 : lanes_by_default();
    wanted = wanted <= LANES_MAX ? wanted : LANES_MAX;
    struct store *probe;
    hapax_error why = {0};
    int code = store_open(&probe, e->uri, &o->store, &why);
    if (code != 0) {
        if (err != NULL) {
            *err = why;
        }
        return code;
    }
    if (probe->away) {
        e->shared.store_error = why;
        e->shared.options.store.away = STORE_AWAY_KNOWN; /* the lanes' first probes try */
    }
    if ((probe->backend->capabilities & STORE_CAN_LANES) == 0) {
        wanted = 1;
    }
    for (uint32_t i = 0; code == 0 && i < wanted; i++) {
        code = lane_open(&e->lanes[i], &e->shared, i, wanted, err);
        e->lane_count += code == 0;
    }
    store_close(probe);
    return code;
}

int engine_open_without_threads(struct engine **out, const struct engine_options *options, hapax_error *err)
{
    *out = NULL;
    if (options->store_uri == NULL || options->sweep_every_ms < 0) {
        return error_code(err, HAPAX_E_ARGUMENT);
    }
    struct engine *e = NULL;
    int code = make_engine(&e, options, err);
    if (code != 0) {
        return code;
    }
    code = own_uri(e, options->store_uri, err);
    if (code != 0) {
        goto out;
    }
    e->shared.options.store_uri = e->uri;
    code = open_lanes(e, private_memory(options->store_uri), err);
    if (code != 0) {
        goto out;
    }
    if (!e->lanes[0]->store->away) {
        code = lane_recover_all(e->lanes[0], err);
    }
out:
    if (code != 0) {
        free_engine(e);
        return code;
    }
    *out = e;
    return 0;
}

int engine_open(struct engine **out, const struct engine_options *options, hapax_error *err)
{
    struct engine *e = NULL;
    int code = engine_open_without_threads(&e, options, err);
    *out = NULL;
    if (code != 0) {
        return code;
    }
    code = start_keeper(e, err);
    for (uint32_t i = 0; code == 0 && i < e->lane_count; i++) {
        code = lane_start(e->lanes[i], err);
    }
    if (code != 0) {
        engine_close(e);
        return code;
    }
    *out = e;
    return 0;
}

void engine_close(struct engine *e)
{
    if (e == NULL) {
        return;
    }
    atomic_store(&e->shared.closing, true);
    for (uint32_t i = 0; i < e->lane_count; i++) {
        lane_stop(e->lanes[i]);
    }
    free_engine(e);
}

/* --- submit --- */

static bool valid(const struct engine_op *op)
{
    switch (op->kind) {
    case ENGINE_BEGIN:
        return op->lease_ms > 0 && op->ttl_ms > 0 && op->wait_ms >= 0 && op->scope.ptr != NULL &&
               op->key.ptr != NULL;
    case ENGINE_COMPLETE:
        return op->fence.serial > 0 && op->answer != NULL && op->ttl_ms >= 0;
    case ENGINE_EXTEND:
        return op->fence.serial > 0 && op->lease_ms > 0;
    case ENGINE_RELEASE:
    case ENGINE_LOSE:
        return op->fence.serial > 0;
    case ENGINE_LOOKUP:
    case ENGINE_RESOLVE:
    case ENGINE_FORGET:
        return true;
    }
    return false;
}

/* Into its lane's queue, which the caller then sees to. */
static int push(struct engine *e, struct engine_op *op, uint32_t *number)
{
    struct engine_shared *shared = &e->shared;
    if (op->done == NULL || !valid(op)) {
        return HAPAX_E_ARGUMENT;
    }
    if (atomic_load(&shared->closing)) {
        return HAPAX_E_CLOSED;
    }
    /* What settles a claim is never refused: waiters that fill the queue would keep out what they wait for. The
     * claims bound it (in_flight_max). */
    bool settles = op->kind == ENGINE_COMPLETE || op->kind == ENGINE_RELEASE || op->kind == ENGINE_LOSE;
    if (atomic_fetch_add(&shared->queued, 1) >= shared->options.queue_ops_max && !settles) {
        atomic_fetch_sub(&shared->queued, 1);
        return HAPAX_E_BUSY;
    }
    *number = op->id.bytes[IDENTITY_BYTES - 1] % e->lane_count;
    lane_push(e->lanes[*number], op);
    return 0;
}

int engine_submit(struct engine *e, struct engine_op *op)
{
    uint32_t number;
    struct engine_port *port = op->port; /* once it is pushed the op is the lane's */
    int code = push(e, op, &number);
    if (code != 0) {
        return code;
    }
    if (port != NULL && port->gathers) {
        port->owed |= UINT64_C(1) << number;
    } else {
        lane_wake(e->lanes[number]);
    }
    return 0;
}

int engine_submit_and_help(struct engine *e, struct engine_op *op)
{
    uint32_t number;
    int code = push(e, op, &number);
    if (code == 0 && !lane_help(e->lanes[number])) {
        lane_wake(e->lanes[number]);
    }
    return code;
}

void engine_port_flush(struct engine *e, struct engine_port *p)
{
    for (uint32_t i = 0; p->owed != 0; i++, p->owed >>= 1) {
        if ((p->owed & 1) != 0 && !queue_empty(&e->lanes[i]->queue)) { /* else it has them already */
            lane_wake(e->lanes[i]);
        }
    }
}

/* --- what it says about itself --- */

uint32_t engine_lane_count(const struct engine *e)
{
    return e->lane_count;
}

struct lane *engine_lane(struct engine *e, uint32_t number)
{
    HAPAX_ASSERT(number < e->lane_count);
    return e->lanes[number];
}

/* A store that stands still makes no error, either, until its own time-outs are over. */
static bool waits_for_long(const struct lane *l)
{
    int64_t since_us = atomic_load_explicit(&l->asked_us, memory_order_relaxed);
    int64_t patience_ms =
        l->shared->options.store.busy_ms > 0 ? l->shared->options.store.busy_ms : STORE_PATIENCE_MS;
    return since_us > 0 && clock_mono_us() - since_us > (patience_ms + STORE_SLACK_MS) * 1000;
}

bool engine_store_ok(struct engine *e, hapax_error *err)
{
    bool ok = true;
    bool stands = false;
    for (uint32_t i = 0; i < e->lane_count; i++) {
        ok = ok && !atomic_load(&e->lanes[i]->down);
        stands = stands || waits_for_long(e->lanes[i]);
    }
    if (ok && stands) {
        error_set(err, HAPAX_E_STORE, 0, "the store does not answer");
    } else if (!ok && err != NULL) {
        pthread_mutex_lock(&e->shared.error_lock);
        *err = e->shared.store_error;
        pthread_mutex_unlock(&e->shared.error_lock);
    }
    return ok && !stands;
}

static uint64_t read_counter(_Atomic(uint64_t) *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

void engine_stats(struct engine *e, struct engine_stats *out)
{
    *out = (struct engine_stats){.waiters = atomic_load(&e->shared.waiters),
                                 .queued = atomic_load(&e->shared.queued)};
    for (uint32_t i = 0; i < e->lane_count; i++) {
        struct lane_counters *c = &e->lanes[i]->counters;
        out->batches += read_counter(&c->batches);
        out->batch_ops += read_counter(&c->batch_ops);
        for (size_t b = 0; b < ENGINE_BATCH_BUCKETS; b++) {
            out->batch_buckets[b] += read_counter(&c->batch_buckets[b]);
        }
        out->store_errors += read_counter(&c->store_errors);
        out->cache_hits += read_counter(&c->cache_hits);
        out->cache_misses += read_counter(&c->cache_misses);
        out->cache_bytes += read_counter(&c->cache_bytes);
        out->in_flight += read_counter(&c->in_flight);
        out->expired += read_counter(&c->expired);
        out->abandoned += read_counter(&c->abandoned);
        out->commit_us_sum += read_counter(&c->commit_us_sum);
    }
}

int engine_store_stats(struct engine *e, struct store_stats *out, hapax_error *err)
{
    struct store_options options = e->shared.options.store;
    options.read_only = true;
    options.away = STORE_AWAY_FAILS;
    struct store *s;
    *out = (struct store_stats){0};
    int code = store_open(&s, e->uri, &options, err);
    if (code != 0) {
        return code;
    }
    code = s->backend->stats(s, out, err);
    store_close(s);
    return code;
}
