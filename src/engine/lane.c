/* The turn of a lane, and its life. */
#include "engine/lane.h"

#include "base/assert.h"
#include "base/error.h"
#include "base/thread.h"

#include <errno.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* A hand-driven clock doesn't tell a sleeping lane that it was moved: look often. */
#define SIMULATED_SLEEP_MS 5
#define SLEEP_MS_MAX       60000

void lane_push_pending(struct lane *l, struct engine_op *op)
{
    op->next = NULL;
    if (l->pending_last != NULL) {
        l->pending_last->next = op;
    } else {
        l->pending_first = op;
    }
    l->pending_last = op;
}

static struct engine_op *pop_pending(struct lane *l)
{
    struct engine_op *op = l->pending_first;
    l->pending_first = op->next;
    if (l->pending_first == NULL) {
        l->pending_last = NULL;
    }
    op->next = NULL;
    return op;
}

static void collect(struct lane *l)
{
    for (struct queue_node *node = queue_take(&l->queue); node != NULL;) {
        struct queue_node *next = node->next;
        struct engine_op *op = (struct engine_op *)node;
        op->wait_until_mono_ms =
            op->wait_ms < INT64_MAX - l->now.mono_ms ? l->now.mono_ms + op->wait_ms : INT64_MAX;
        lane_push_pending(l, op);
        node = next;
    }
}

static void decide_pending(struct lane *l)
{
    for (int i = 0; i < LANE_DECIDE_MAX && l->pending_first != NULL && l->batch_count < LIMIT_BATCH_OPS_MAX;
         i++) {
        lane_decide(l, pop_pending(l));
    }
}

static void count_batch(struct lane *l, size_t n, int64_t took_us)
{
    size_t bucket = 0;
    while (bucket + 1 < ENGINE_BATCH_BUCKETS && n > (size_t)1 << bucket) {
        bucket++;
    }
    lane_count(&l->counters.batches, 1);
    lane_count(&l->counters.batch_ops, n);
    lane_count(&l->counters.batch_buckets[bucket], 1);
    lane_count(&l->counters.commit_us_sum, (uint64_t)took_us);
}

/* Tell the store what is known of the records that end. Just before it is asked: what is decided in between may drop
 * an entry, and settling does. */
static void say_what_is_known(struct lane *l, size_t from, size_t n)
{
    for (size_t i = from; i < from + n; i++) {
        struct store_op *op = l->batch[i];
        if (op->kind != STORE_COMPLETE) {
            continue;
        }
        const struct inflight *entry = inflight_find(&l->in_flight, &op->id);
        bool known = entry != NULL && entry->names != NULL && fence_equal(entry->record.fence, op->fence);
        op->claimed = known ? &entry->record : NULL;
        op->scope = known ? slice_of(entry->names, entry->scope_bytes) : SLICE_NONE;
        op->key = known ? slice_of(entry->names + entry->scope_bytes, entry->key_bytes) : SLICE_NONE;
    }
}

static int commit(struct lane *l, size_t from, size_t n, hapax_error *err)
{
    say_what_is_known(l, from, n);
    int64_t start_us = l->shared->simulated ? 0 : clock_mono_us();
    if (lane_shuns_store(l)) {
        return lane_last_failure(l, err);
    }
    atomic_store_explicit(&l->asked_us, start_us, memory_order_relaxed);
    int code = l->registered ? 0 : lane_register(l, err);
    if (code == 0) {
        code = store_apply(l->store, &l->batch[from], n, l->now.wall_ms, err);
    }
    atomic_store_explicit(&l->asked_us, 0, memory_order_relaxed);
    int64_t took_us = l->shared->simulated ? 0 : clock_mono_us() - start_us;
    count_batch(l, n, took_us);
    l->slow = code != 0 || took_us > LANE_HELP_US_MAX;
    l->far_us = code == 0 && took_us > LANE_FAR_US ? took_us : 0;
    l->fails_slowly = code != 0 && took_us > LANE_SHUN_US;
    if (code != 0) {
        err->code = code;
        lane_count(&l->counters.store_errors, 1);
        if (n == 1 || !lane_blames_a_record(code)) {
            lane_store_failed(l, code, err);
        }
    }
    return code;
}

/* One record fails the whole batch: one by one, only the guilty op fails. A second lock is waited for no more: what
 * is left then fails as that one did, since each wait holds up everybody else. */
static int apply_one_by_one(struct lane *l)
{
    hapax_error err = {0};
    int code = 0;
    int locked = 0;
    for (size_t i = 0; i < l->batch_count; i++) {
        if (locked < LANE_LOCKED_MAX) {
            err = (hapax_error){0};
            code = commit(l, i, 1, &err);
            locked += code == HAPAX_E_BUSY;
        }
        lane_settle(l, i, code, &err);
    }
    return code;
}

static int apply_batch(struct lane *l)
{
    hapax_error err = {0};
    size_t n = l->batch_count;
    int code = commit(l, 0, n, &err);
    if (lane_blames_a_record(code) && n > 1) {
        code = apply_one_by_one(l);
    } else {
        for (size_t i = 0; i < n; i++) {
            lane_settle(l, i, code, &err);
        }
    }
    l->batch_count = 0;
    l->batch_claims = 0;
    l->own_count = 0;
    return code;
}

static void serve(struct lane *l, struct moment now)
{
    l->now = now;
    collect(l);
    lane_run_timers(l); /* waits and leases that are over; heartbeats join the batch */
    decide_pending(l);
    lane_flush_ports(l); /* what memory could answer does not wait for the commit */
    if (l->batch_count > 0) {
        l->sweep_ops += l->batch_count;
        apply_batch(l);
        lane_flush_ports(l);
    }
    atomic_store_explicit(&l->counters.in_flight, l->in_flight.ours_count, memory_order_relaxed);
    atomic_store_explicit(&l->counters.cache_bytes, l->cache.bytes, memory_order_relaxed);
}

/* For runs of other processes that somebody waits for here: a batch of their own after that of the live ops, since one
 * that only reads locks nothing and needs no commit. */
static void poll_others(struct lane *l)
{
    if (l->now.mono_ms < l->polls_rest_until_mono_ms || timers_next(&l->polls) > l->now.mono_ms) {
        return;
    }
    int64_t start_us = l->shared->simulated ? 0 : clock_mono_us();
    lane_batch_polls(l);
    bool failed = apply_batch(l) != 0;
    lane_flush_ports(l);
    int64_t took_us = l->shared->simulated ? 0 : clock_mono_us() - start_us;
    l->polls_rest_until_mono_ms = l->now.mono_ms + 2 * took_us / 1000 + (failed ? LANE_POLL_DOWN_MS : 1);
}

/* When a timer or a poll is due. */
static int64_t next_due(const struct lane *l)
{
    int64_t timer = timers_next(&l->timers);
    int64_t poll = timers_next(&l->polls);
    poll = poll > l->polls_rest_until_mono_ms ? poll : l->polls_rest_until_mono_ms;
    return l->polls.count > 0 && poll < timer ? poll : timer;
}

int64_t lane_turn(struct lane *l, struct moment now)
{
    serve(l, now);
    poll_others(l);
    int64_t house_due = lane_keep_house(l);
    if (l->pending_first != NULL || !queue_empty(&l->queue)) {
        return now.mono_ms;
    }
    int64_t timer_due = next_due(l);
    return timer_due < house_due ? timer_due : house_due;
}

/* --- answers on their way back --- */

static struct port_chain *chain_of(struct lane *l, struct engine_port *port)
{
    for (size_t i = l->port_count; i > 0; i--) {
        if (l->ports[i - 1].port == port) {
            return &l->ports[i - 1];
        }
    }
    if (l->port_count == LANE_PORTS_MAX) {
        lane_flush_ports(l);
    }
    struct port_chain *chain = &l->ports[l->port_count++];
    *chain = (struct port_chain){.port = port};
    return chain;
}

static void hand_over(struct lane *l, struct engine_op *op)
{
    /* First, so that who submits again from the call-back finds the room that this op leaves. */
    atomic_fetch_sub(&l->shared->queued, 1);
    if (op->port == NULL) {
        op->done(op);
        return;
    }
    struct port_chain *chain = chain_of(l, op->port);
    op->node.next = chain->newest;
    chain->newest = &op->node;
    if (chain->oldest == NULL) {
        chain->oldest = &op->node;
    }
}

void lane_finish(struct lane *l, struct engine_op *op)
{
    op->code = 0;
    hand_over(l, op);
}

void lane_finish_error(struct lane *l, struct engine_op *op, int code, const hapax_error *err)
{
    op->code = code;
    if (err != NULL && err->code == code) {
        op->error = *err;
    } else {
        error_code(&op->error, code);
    }
    if (op->kind == ENGINE_BEGIN || op->kind == ENGINE_LOOKUP) {
        op->answer = NULL;
    }
    hand_over(l, op);
}

void lane_flush_ports(struct lane *l)
{
    for (size_t i = 0; i < l->port_count; i++) {
        struct port_chain *chain = &l->ports[i];
        if (queue_push_chain(&chain->port->queue, chain->newest, chain->oldest)) {
            chain->port->wake(chain->port->ctx);
        }
    }
    l->port_count = 0;
}

/* --- sleeping and waking --- */

static struct moment now_of(const struct lane *l)
{
    const struct engine_options *o = &l->shared->options;
    return o->now(o->now_ctx);
}

static void futex_wait(_Atomic(uint32_t) *word, uint32_t value, int64_t ms)
{
    struct timespec t = {.tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000) * 1000000};
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, &t, NULL, 0);
}

static void futex_wake(_Atomic(uint32_t) *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

void lane_wake(struct lane *l)
{
    uint32_t state = LANE_ASLEEP;
    if (atomic_load(&l->state) == LANE_ASLEEP &&
        atomic_compare_exchange_strong(&l->state, &state, LANE_AWAKE)) {
        futex_wake(&l->state);
    }
}

void lane_push(struct lane *l, struct engine_op *op)
{
    /* Pairs with lane_sleep(): the lane says that it sleeps, then looks at the queue; here the queue changes, then
     * lane_wake() looks at the flag. In the one order of all these accesses at least one side sees the other.
     * Everyone who pushes sees to the wake-up: who found the queue empty may be held up before it gets there. */
    queue_push(&l->queue, &op->node);
}

/* The lane's thread has slept enough, or was woken. */
static void take_back(struct lane *l)
{
    uint32_t state = LANE_ASLEEP;
    while (!atomic_compare_exchange_strong(&l->state, &state, LANE_AWAKE) && state != LANE_AWAKE) {
        if (state == LANE_LENT) {
            atomic_compare_exchange_strong(&l->state, &state, LANE_WANTED);
        } else {
            futex_wait(&l->state, LANE_WANTED, SLEEP_MS_MAX);
        }
        state = LANE_ASLEEP;
    }
}

static void lane_sleep(struct lane *l, int64_t ms)
{
    ms = ms < SLEEP_MS_MAX ? ms : SLEEP_MS_MAX;
    if (l->shared->simulated && ms > SIMULATED_SLEEP_MS) {
        ms = SIMULATED_SLEEP_MS;
    }
    l->sleeps_until_mono_ms = now_of(l).mono_ms + ms;
    atomic_store(&l->state, LANE_ASLEEP);
    if (queue_empty(&l->queue) && !atomic_load(&l->shared->closing)) {
        futex_wait(&l->state, LANE_ASLEEP, ms);
    }
    take_back(l);
}

/* After the turn of a helper: the lane's thread sleeps on, unless there is more to do. */
static void give_back(struct lane *l, bool more)
{
    uint32_t state = LANE_LENT;
    if (!more && atomic_compare_exchange_strong(&l->state, &state, LANE_ASLEEP)) {
        if (!queue_empty(&l->queue) || atomic_load(&l->shared->closing)) {
            lane_wake(l); /* who pushed meanwhile saw a lane that was awake */
        }
        return;
    }
    atomic_store(&l->state, LANE_AWAKE);
    futex_wake(&l->state);
}

/* Is the one op in the queue all that is going on? Then there is no batch to wait for, and nothing that a helper could
 * do in the meantime. */
static bool one_thing_at_a_time(struct lane *l)
{
    const struct queue_node *node = atomic_load(&l->queue.newest);
    if (node == NULL || node->next != NULL) {
        return false;
    }
    bool begins = ((const struct engine_op *)node)->kind == ENGINE_BEGIN;
    return l->in_flight.ours_count <= (begins ? 0 : 1);
}

bool lane_help(struct lane *l)
{
    uint32_t state = LANE_ASLEEP;
    if (!atomic_compare_exchange_strong(&l->state, &state, LANE_LENT)) {
        return false;
    }
    bool helps = !l->slow && !atomic_load(&l->down) && one_thing_at_a_time(l);
    if (helps) {
        serve(l, now_of(l));
    }
    bool due = next_due(l) < l->sleeps_until_mono_ms || (l->number == 0 && lane_sweep_is_due(l));
    give_back(l, !helps || due || l->pending_first != NULL || atomic_load(&l->down));
    return true;
}

/* Everything that was submitted before the close is answered; only waiters would wait on. */
static void finish_all(struct lane *l)
{
    do {
        lane_turn(l, now_of(l));
        lane_end_waiters(l, HAPAX_E_CLOSED);
        lane_flush_ports(l);
    } while (l->pending_first != NULL || !queue_empty(&l->queue));
}

/* Of a far database: what was just answered comes back soon, completions of fresh claims most of all. Without a pause the
 * next batch leaves before they are here, and they wait for it and for the one after: measured at 200 ms, a request
 * among many took four and a half round trips instead of three. */
static void gather(struct lane *l)
{
    if (l->far_us > 0 && l->in_flight.ours_count > 0) {
        int64_t pause_us = l->far_us / LANE_GATHER_SHARE;
        pause_us = pause_us < LANE_GATHER_US_MAX ? pause_us : LANE_GATHER_US_MAX;
        nanosleep(&(struct timespec){.tv_nsec = (long)pause_us * 1000}, NULL);
    }
    l->far_us = 0;
}

static void *run(void *arg)
{
    struct lane *l = arg;
    char name[24];
    snprintf(name, sizeof name, "hapax-lane-%u", l->number);
    pthread_setname_np(pthread_self(), name); /* for top -H and the like */
    thread_prompt(); /* measured: else it waits two milliseconds for a processor after many a sync */
    while (!atomic_load(&l->shared->closing)) {
        int64_t due = lane_turn(l, now_of(l));
        gather(l);
        int64_t pause = due - now_of(l).mono_ms;
        if (pause > 0) {
            lane_sleep(l, pause);
        }
    }
    finish_all(l);
    return NULL;
}

/* --- life --- */

int lane_open(struct lane **out, struct engine_shared *shared, uint32_t number, uint32_t lanes,
              hapax_error *err)
{
    *out = NULL;
    const struct engine_options *o = &shared->options;
    struct lane *l = calloc(1, sizeof(*l));
    if (l == NULL) {
        return error_code(err, HAPAX_E_MEMORY);
    }
    l->shared = shared;
    l->number = number;
    l->in_flight_max = o->in_flight_max / lanes > 0 ? o->in_flight_max / lanes : 1;
    queue_init(&l->queue);
    timers_init(&l->timers);
    timers_init(&l->polls);
    int code = inflight_init(&l->in_flight);
    int cache_code = replay_cache_init(&l->cache, o->cache_off ? 0 : (size_t)(o->replay_cache_bytes / lanes));
    if (code != 0 || cache_code != 0) {
        code = error_code(err, HAPAX_E_MEMORY);
        goto out;
    }
    hapax_error why = {0};
    code = store_open(&l->store, o->store_uri, &o->store, &why);
    if (code != 0) {
        if (err != NULL) {
            *err = why;
        }
        goto out;
    }
    if (l->store->away) {
        lane_begin_away(l, &why);
        goto out;
    }
    code = lane_register(l, err);
    if (code != 0) {
        goto out;
    }
    code = l->store->backend->generation(l->store, &l->generation, err);
out:
    if (code != 0) {
        lane_free(l);
        return code;
    }
    l->now = now_of(l);
    l->generation_due_mono_ms = l->now.mono_ms + LANE_GENERATION_MS;
    l->sweep_due_mono_ms = l->now.mono_ms + o->sweep_every_ms;
    l->recovery.due_mono_ms = l->now.mono_ms + (l->store->away ? 0 : LANE_RECOVER_MS);
    *out = l;
    return 0;
}

int lane_start(struct lane *l, hapax_error *err)
{
    int failure = thread_start(&l->thread, run, l);
    if (failure != 0) {
        return error_set(err, HAPAX_E_SYSTEM, failure, "can't start a lane's thread");
    }
    l->has_thread = true;
    return 0;
}

void lane_stop(struct lane *l)
{
    if (!l->has_thread) {
        finish_all(l);
        return;
    }
    lane_wake(l);
    pthread_join(l->thread, NULL);
    l->has_thread = false;
}

void lane_free(struct lane *l)
{
    if (l->store != NULL && l->owner != 0 && !atomic_load(&l->down)) {
        /* No trace is left of an engine that holds nothing. The store refuses to forget an owner with open claims:
         * that one is found dead later. */
        hapax_error ignored;
        (void)l->store->backend->forget_owner(l->store, l->owner, &ignored);
    }
    store_close(l->store);
    inflight_free(&l->in_flight);
    replay_cache_free(&l->cache);
    timers_free(&l->timers);
    timers_free(&l->polls);
    free(l);
}
