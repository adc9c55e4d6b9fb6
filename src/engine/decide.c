/* Deciding: what memory knows is answered from memory, the rest takes a place in the batch; and the timers, which
 * end waits and leases and bring heartbeats into the batch; and the batch of polls.
 *
 * The order of the questions is a promise: other content under the same key is a mismatch before it is anything
 * else. */
#include "base/assert.h"
#include "base/error.h"
#include "engine/lane.h"

/* --- waiters --- */

static void unlink_waiter(struct lane *l, struct engine_op *op)
{
    timers_cancel(&l->timers, &op->timer);
    inflight_unlink_waiter(op);
    atomic_fetch_sub(&l->shared->waiters, 1);
}

static void finish_begin(struct lane *l, struct engine_op *op, enum engine_verdict verdict,
                         const struct record *record, struct answer *answer)
{
    op->verdict = verdict;
    op->record = *record;
    op->answer = answer;
    lane_finish(l, op);
}

static bool take_waiter(struct engine_shared *shared)
{
    if (atomic_fetch_add(&shared->waiters, 1) < shared->options.waiters_max) {
        return true;
    }
    atomic_fetch_sub(&shared->waiters, 1);
    return false;
}

/* Room for `more` timers besides those that this batch will set: two for each claim (its entry's and a waiter's), one
 * for each heartbeat, whose timers have been taken out. */
static int reserve_timers(struct lane *l, size_t claims, size_t more)
{
    return timers_reserve(&l->timers, l->own_count + 2 * claims + more);
}

void lane_attach(struct lane *l, struct inflight *entry, struct engine_op *op)
{
    if (atomic_load(&l->shared->closing) && op->wait_ms > 0) {
        lane_finish_error(l, op, HAPAX_E_CLOSED, NULL);
        return;
    }
    if (op->wait_until_mono_ms <= l->now.mono_ms ||
        entry->waiter_count >= l->shared->options.waiters_per_key_max || !take_waiter(l->shared)) {
        finish_begin(l, op, VERDICT_IN_PROGRESS, &entry->record, NULL);
        return;
    }
    if (reserve_timers(l, l->batch_claims, 1) != 0) {
        atomic_fetch_sub(&l->shared->waiters, 1);
        lane_finish_error(l, op, HAPAX_E_MEMORY, NULL);
        return;
    }
    inflight_append_waiter(entry, op);
    op->timer = (struct timer){.kind = TIMER_WAITER};
    timers_set(&l->timers, &op->timer, op->wait_until_mono_ms);
}

void lane_answer_waiters(struct lane *l, struct inflight *entry, const struct record *record,
                         struct answer *answer)
{
    while (entry->first != NULL) {
        struct engine_op *op = entry->first;
        unlink_waiter(l, op);
        finish_begin(l, op, VERDICT_ATTACHED, record, answer_retain(answer));
    }
}

void lane_drop(struct lane *l, struct inflight *entry)
{
    while (entry->first != NULL) {
        struct engine_op *op = entry->first;
        unlink_waiter(l, op);
        lane_push_pending(l, op);
    }
    timers_cancel(entry->kind == INFLIGHT_FOREIGN ? &l->polls : &l->timers, &entry->timer);
    inflight_remove(&l->in_flight, entry);
}

void lane_end_waiters(struct lane *l, int code)
{
    size_t bucket = 0;
    struct engine_op *op;
    while ((op = inflight_next_waiter(&l->in_flight, &bucket)) != NULL) {
        unlink_waiter(l, op);
        lane_finish_error(l, op, code, NULL);
    }
}

/* --- BEGIN --- */

bool lane_lease_over(const struct lane *l, const struct inflight *entry)
{
    /* The monotonic clock rules inside this process; but what the store will refuse by its wall clock is lost,
     * too (the clock may have been set). A store with a clock of its own decides by itself. */
    return l->now.mono_ms >= entry->lease_until_mono_ms ||
           (!lane_has_store_clock(l) && l->now.wall_ms >= entry->record.lease_ms);
}

static bool decide_from_in_flight(struct lane *l, struct engine_op *op)
{
    struct inflight *entry = inflight_find(&l->in_flight, &op->id);
    if (entry == NULL) {
        return false;
    }
    if (entry->kind == INFLIGHT_CLAIMING) {
        inflight_append_waiter(entry, op);
        return true;
    }
    bool mismatch = fingerprint_mismatch(&op->fingerprint, &entry->record.fingerprint);
    if (entry->kind == INFLIGHT_FOREIGN) {
        /* Known only as of the last poll: enough to wait on, not enough to refuse. */
        if (mismatch || op->wait_until_mono_ms <= l->now.mono_ms) {
            return false;
        }
        lane_attach(l, entry, op);
        return true;
    }
    if (lane_lease_over(l, entry)) {
        lane_drop(l, entry);
        return false;
    }
    if (mismatch) {
        finish_begin(l, op, VERDICT_MISMATCH, &entry->record, NULL);
    } else {
        lane_attach(l, entry, op);
    }
    return true;
}

static bool decide_from_cache(struct lane *l, struct engine_op *op)
{
    if (l->cache.bytes_max == 0) {
        return false;
    }
    int64_t now_ms = lane_has_store_clock(l) ? l->now.mono_ms : l->now.wall_ms;
    const struct replay *r = replay_cache_find(&l->cache, &op->id, now_ms);
    /* Only for a hit: a new key is not to wait for a round trip more. */
    if (r != NULL && l->now.mono_ms >= l->generation_due_mono_ms) {
        lane_check_generation(l);
        r = replay_cache_find(&l->cache, &op->id, now_ms);
    }
    lane_count(r != NULL ? &l->counters.cache_hits : &l->counters.cache_misses, 1);
    if (r == NULL) {
        return false;
    }
    if (fingerprint_mismatch(&op->fingerprint, &r->record.fingerprint)) {
        finish_begin(l, op, VERDICT_MISMATCH, &r->record, NULL);
    } else {
        finish_begin(l, op, VERDICT_REPLAY, &r->record, answer_retain(r->answer));
    }
    return true;
}

static void add_to_batch(struct lane *l, struct engine_op *op, struct store_op *store)
{
    l->batch[l->batch_count] = store;
    l->batch_ops[l->batch_count] = op;
    l->batch_count++;
}

static void batch_claim(struct lane *l, struct engine_op *op)
{
    /* A durable claim must find its entry and its timer: get them now. */
    size_t claims = l->batch_claims + 1;
    if (l->in_flight.ours_count + claims > l->in_flight_max) {
        hapax_error err;
        lane_finish_error(l, op, error_set(&err, HAPAX_E_BUSY, 0, "too many claims are running"), &err);
        return;
    }
    if (inflight_reserve(&l->in_flight, claims + 1) != 0 || reserve_timers(l, claims, 0) != 0 ||
        timers_reserve(&l->polls, claims) != 0) {
        lane_finish_error(l, op, HAPAX_E_MEMORY, NULL);
        return;
    }
    l->batch_claims = claims;
    if (inflight_find(&l->in_flight, &op->id) == NULL) {
        inflight_add(&l->in_flight, &op->id, INFLIGHT_CLAIMING, &(struct record){0});
    }
    op->store = (struct store_op){
        .kind = STORE_CLAIM,
        .id = op->id,
        .scope = op->scope,
        .key = op->key,
        .fingerprint = op->fingerprint,
        .lease_ms = op->lease_ms,
        .ttl_ms = op->ttl_ms,
        .take_over = op->take_over,
        .want_answer = true,
    };
    add_to_batch(l, op, &op->store);
}

static void batch_other(struct lane *l, struct engine_op *op)
{
    static const enum store_op_kind kinds[] = {
        [ENGINE_COMPLETE] = STORE_COMPLETE, [ENGINE_RELEASE] = STORE_RELEASE,
        [ENGINE_LOSE] = STORE_LOSE,         [ENGINE_EXTEND] = STORE_EXTEND,
        [ENGINE_LOOKUP] = STORE_LOOKUP,     [ENGINE_RESOLVE] = STORE_RESOLVE,
        [ENGINE_FORGET] = STORE_FORGET,
    };
    bool gives_answer = op->kind == ENGINE_COMPLETE || op->kind == ENGINE_RESOLVE;
    op->store = (struct store_op){
        .kind = kinds[op->kind],
        .id = op->id,
        .fence = op->fence,
        .lease_ms = op->lease_ms,
        .ttl_ms = op->ttl_ms,
        .want_answer = op->kind == ENGINE_LOOKUP,
        .answer = gives_answer ? op->answer : NULL,
    };
    add_to_batch(l, op, &op->store);
}

void lane_decide(struct lane *l, struct engine_op *op)
{
    if (op->kind != ENGINE_BEGIN) {
        batch_other(l, op);
    } else if (!decide_from_in_flight(l, op) && !decide_from_cache(l, op)) {
        batch_claim(l, op);
    }
}

/* --- timers --- */

static void batch_own(struct lane *l, struct inflight *entry, enum store_op_kind kind)
{
    struct store_op *own = &l->own[l->own_count++];
    *own = (struct store_op){
        .kind = kind,
        .id = entry->node.id,
        .fence = entry->record.fence,
        .lease_ms = entry->lease_ms,
        .want_answer = kind == STORE_LOOKUP,
    };
    add_to_batch(l, NULL, own);
}

static void waiter_due(struct lane *l, struct engine_op *op)
{
    struct inflight *entry = op->waits_for;
    unlink_waiter(l, op);
    if (entry->kind != INFLIGHT_FOREIGN) {
        finish_begin(l, op, VERDICT_IN_PROGRESS, &entry->record, NULL);
        return;
    }
    if (entry->waiter_count == 0) {
        lane_drop(l, entry);
    }
    /* That it still runs was true at the last poll, which may be long ago where the store stood still: ask once more. */
    lane_push_pending(l, op);
}

static void inflight_due(struct lane *l, struct inflight *entry)
{
    if (lane_lease_over(l, entry)) {
        lane_drop(l, entry);
    } else if (entry->heartbeat) {
        batch_own(l, entry, STORE_EXTEND); /* settling sets the next heartbeat */
    } else {
        timers_set(&l->timers, &entry->timer, entry->lease_until_mono_ms);
    }
}

static struct inflight *entry_of_timer(struct timer *timer)
{
    return (struct inflight *)((char *)timer - offsetof(struct inflight, timer));
}

void lane_run_timers(struct lane *l)
{
    struct timer *timer;
    while (l->own_count < LANE_OWN_OPS_MAX && (timer = timers_due(&l->timers, l->now.mono_ms)) != NULL) {
        if (timer->kind == TIMER_WAITER) {
            waiter_due(l, (struct engine_op *)((char *)timer - offsetof(struct engine_op, timer)));
        } else {
            inflight_due(l, entry_of_timer(timer));
        }
    }
}

void lane_batch_polls(struct lane *l)
{
    struct timer *timer;
    while (l->own_count < LANE_OWN_OPS_MAX && (timer = timers_due(&l->polls, l->now.mono_ms)) != NULL) {
        batch_own(l, entry_of_timer(timer), STORE_LOOKUP); /* settling sets the next poll */
    }
}
