/* Settling: what the store said about each place of a batch becomes an answer, and the in-flight table and the
 * cache learn of it, in the order of the batch.
 *
 * The places of one batch may concern one identity several times, so nothing is remembered from before the
 * commit: every entry is looked up again, and touched only when its fence is the op's. */
#include "base/error.h"
#include "engine/lane.h"

static struct inflight *entry_of(struct lane *l, const struct identity *id, struct fence fence)
{
    struct inflight *entry = inflight_find(&l->in_flight, id);
    return entry != NULL && fence_equal(entry->record.fence, fence) ? entry : NULL;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t after(int64_t mono_ms, int64_t duration_ms)
{
    return duration_ms < INT64_MAX - mono_ms ? mono_ms + duration_ms : INT64_MAX;
}

/* The lease of one of ours now ends at now + lease_ms. */
static void renew(struct lane *l, struct inflight *entry, int64_t lease_ms)
{
    entry->lease_until_mono_ms = after(l->now.mono_ms, lease_ms);
    int64_t third = lease_ms / 3 > 0 ? lease_ms / 3 : 1;
    timers_set(&l->timers, &entry->timer,
               entry->heartbeat ? after(l->now.mono_ms, third) : entry->lease_until_mono_ms);
}

/* Into the cache, for as long as the record stands. By the store's clock, where it has one, this host's wall clock may
 * be wrong by any amount: what is left of the ttl counts from the beginning of this turn, before the store was asked. */
static void remember(struct lane *l, const struct store_op *op, struct answer *answer)
{
    const struct record *r = &op->found;
    if (!lane_has_store_clock(l)) {
        replay_cache_put(&l->cache, &op->id, r, answer, r->expires_ms);
    } else if (op->decided_ms != 0) {
        replay_cache_put(&l->cache, &op->id, r, answer,
                         after(l->now.mono_ms, r->expires_ms - op->decided_ms));
    }
}

/* One of somebody else's: at the next instant that is a multiple of its pause. */
static void poll_later(struct lane *l, struct inflight *entry)
{
    timers_set(&l->polls, &entry->timer, (l->now.mono_ms / entry->poll_ms + 1) * entry->poll_ms);
}

/* --- BEGIN --- */

static void finish_verdict(struct lane *l, struct engine_op *op, enum engine_verdict verdict,
                           const struct record *record, struct answer *answer)
{
    op->verdict = verdict;
    op->record = *record;
    op->answer = answer_retain(answer);
    lane_finish(l, op);
}

static void settle_fresh(struct lane *l, struct engine_op *op, const struct record *record)
{
    struct inflight *old = inflight_find(&l->in_flight, &op->id);
    if (old != NULL) {
        lane_drop(l, old); /* a run that is over without our knowledge; its waiters will find this one */
    }
    replay_cache_remove(&l->cache, &op->id);
    struct inflight *entry = inflight_add(&l->in_flight, &op->id, INFLIGHT_OURS, record);
    entry->heartbeat = op->heartbeat;
    entry->lease_ms = op->lease_ms;
    inflight_name(entry, op->scope, op->key);
    renew(l, entry, op->lease_ms);
    op->lease_until_mono_ms = entry->lease_until_mono_ms;
    finish_verdict(l, op, VERDICT_FRESH, record, NULL);
}

/* Somebody runs it: the op that this one was parked behind, another process, or a claim of ours that we lost sight
 * of. */
static void settle_running(struct lane *l, struct engine_op *op, const struct record *record)
{
    struct inflight *entry = inflight_find(&l->in_flight, &op->id);
    if (entry != NULL && !fence_equal(entry->record.fence, record->fence)) {
        lane_drop(l, entry);
        entry = NULL;
    }
    if (entry == NULL && op->wait_until_mono_ms > l->now.mono_ms && !atomic_load(&l->shared->closing)) {
        entry = inflight_add(&l->in_flight, &op->id, INFLIGHT_FOREIGN, record);
        entry->poll_ms = LANE_POLL_MS_MIN;
        poll_later(l, entry);
    }
    if (entry == NULL) {
        finish_verdict(l, op, VERDICT_IN_PROGRESS, record, NULL);
        return;
    }
    lane_attach(l, entry, op);
    if (entry->kind == INFLIGHT_FOREIGN && entry->waiter_count == 0) {
        lane_drop(l, entry);
    }
}

/* What a record that stands there means for an op; `answer` is borrowed. */
static void settle_found(struct lane *l, struct engine_op *op, const struct record *record,
                         struct answer *answer)
{
    if (fingerprint_mismatch(&op->fingerprint, &record->fingerprint)) {
        finish_verdict(l, op, VERDICT_MISMATCH, record, NULL);
    } else if (record->state == RECORD_DONE && answer != NULL) {
        finish_verdict(l, op, VERDICT_REPLAY, record, answer);
    } else if (record->state == RECORD_RUNNING) {
        settle_running(l, op, record);
    } else if (record->state == RECORD_UNKNOWN) {
        finish_verdict(l, op, VERDICT_UNKNOWN, record, NULL);
    } else {
        hapax_error err;
        lane_finish_error(l, op, error_set(&err, HAPAX_E_STORE_CORRUPT, 0, "a record has no answer"), &err);
    }
}

/* Take out the ops that were parked behind a claim of the batch: a list by `next`. */
static struct engine_op *unpark(struct lane *l, const struct identity *id)
{
    struct inflight *entry = inflight_find(&l->in_flight, id);
    if (entry == NULL || entry->kind != INFLIGHT_CLAIMING) {
        return NULL;
    }
    struct engine_op *parked = entry->first;
    for (struct engine_op *op = parked; op != NULL; op = op->next) {
        op->waits_for = NULL;
    }
    entry->first = entry->last = NULL;
    entry->waiter_count = 0;
    inflight_remove(&l->in_flight, entry);
    return parked;
}

static void settle_begin(struct lane *l, struct engine_op *op, int code, const hapax_error *err)
{
    struct identity id = op->id;
    struct record record = {0};
    struct answer *answer = NULL;
    hapax_error wrong;
    if (code == 0) {
        record = op->store.found;
        answer = op->store.answer; /* owned */
        if (op->store.result != STORE_APPLIED && op->store.result != STORE_FOUND) {
            code =
                error_set(&wrong, HAPAX_E_STORE_CORRUPT, 0, "the store gave a claim a result that is none");
            err = &wrong;
        }
    }
    /* From here on the op may be gone: its call-back can free it. */
    struct engine_op *parked = unpark(l, &id);
    if (code != 0) {
        lane_finish_error(l, op, code, err);
    } else if (op->store.result == STORE_APPLIED) {
        settle_fresh(l, op, &record);
    } else {
        if (record.state == RECORD_DONE && answer != NULL) {
            remember(l, &op->store, answer);
        }
        settle_found(l, op, &record, answer);
    }
    for (struct engine_op *next; parked != NULL; parked = next) {
        next = parked->next;
        if (code != 0) {
            lane_finish_error(l, parked, code, err);
        } else if (parked->take_over && record.state == RECORD_UNKNOWN) {
            lane_push_pending(l, parked); /* it may do what the first one was not allowed to */
        } else {
            settle_found(l, parked, &record, answer);
        }
    }
    answer_drop(answer);
}

/* --- the end of a claim --- */

static void settle_end(struct lane *l, struct engine_op *op)
{
    struct inflight *entry = entry_of(l, &op->id, op->fence);
    if (op->store.result != STORE_APPLIED) {
        if (entry != NULL) {
            lane_drop(l, entry); /* lost: its waiters ask the store */
        }
        lane_finish_error(l, op, HAPAX_E_STALE, NULL);
        return;
    }
    op->record = op->store.found;
    if (op->kind == ENGINE_COMPLETE) {
        remember(l, &op->store, op->answer);
        if (entry != NULL) {
            lane_answer_waiters(l, entry, &op->record, op->answer);
        }
    }
    if (entry != NULL) {
        lane_drop(l, entry);
    }
    lane_finish(l, op);
}

static void settle_extend(struct lane *l, struct engine_op *op)
{
    struct inflight *entry = entry_of(l, &op->id, op->fence);
    if (op->store.result != STORE_APPLIED) {
        if (entry != NULL) {
            lane_drop(l, entry);
        }
        lane_finish_error(l, op, HAPAX_E_STALE, NULL);
        return;
    }
    op->record = op->store.found;
    if (entry != NULL && entry->kind == INFLIGHT_OURS) {
        entry->record = op->record;
        renew(l, entry, op->lease_ms);
    }
    lane_finish(l, op);
}

/* --- operators --- */

static void settle_lookup(struct lane *l, struct engine_op *op)
{
    op->record = op->store.found;
    if (op->store.result != STORE_APPLIED || op->record.state == RECORD_ABSENT) {
        answer_drop(op->store.answer);
        lane_finish_error(l, op, HAPAX_E_NOT_FOUND, NULL);
        return;
    }
    op->answer = op->store.answer;
    lane_finish(l, op);
}

static void settle_change(struct lane *l, struct engine_op *op)
{
    replay_cache_remove(&l->cache, &op->id);
    switch (op->store.result) {
    case STORE_APPLIED:
        op->record = op->store.found;
        lane_finish(l, op);
        break;
    case STORE_ABSENT:
        lane_finish_error(l, op, HAPAX_E_NOT_FOUND, NULL);
        break;
    case STORE_STALE:
        lane_finish_error(l, op, HAPAX_E_STALE, NULL);
        break;
    default:
        lane_finish_error(l, op, HAPAX_E_CONFLICT, NULL);
        break;
    }
}

/* --- the lane's own --- */

static void settle_heartbeat(struct lane *l, const struct store_op *own, int code)
{
    struct inflight *entry = entry_of(l, &own->id, own->fence);
    if (entry == NULL || entry->kind != INFLIGHT_OURS) {
        return; /* ended in this very batch */
    }
    if (code != 0) {
        /* Try again soon enough to save the lease, seldom enough not to hammer a store that is down. */
        int64_t pause = least(entry->lease_ms / 12 + 1, LANE_PROBE_MS);
        timers_set(&l->timers, &entry->timer, least(l->now.mono_ms + pause, entry->lease_until_mono_ms));
    } else if (own->result == STORE_APPLIED) {
        entry->record = own->found;
        renew(l, entry, entry->lease_ms);
    } else {
        lane_drop(l, entry);
    }
}

static void poll_again(struct lane *l, struct inflight *entry)
{
    entry->poll_ms = least(entry->poll_ms * 2, LANE_POLL_MS_MAX);
    poll_later(l, entry);
}

static void settle_poll(struct lane *l, struct store_op *own, int code)
{
    struct inflight *entry = entry_of(l, &own->id, own->fence);
    struct answer *answer = code == 0 ? own->answer : NULL;
    if (entry == NULL || entry->kind != INFLIGHT_FOREIGN) {
        answer_drop(answer);
        return;
    }
    bool same = code == 0 && own->result == STORE_APPLIED && fence_equal(own->found.fence, own->fence);
    enum record_state state = same ? own->found.state : RECORD_ABSENT;
    if (code != 0 || state == RECORD_RUNNING) {
        poll_again(l, entry);
        answer_drop(answer);
        return;
    }
    if (state == RECORD_DONE && answer != NULL) {
        remember(l, own, answer);
        lane_answer_waiters(l, entry, &own->found, answer);
    }
    lane_drop(l, entry); /* released, unknown, or run anew: its waiters ask the store */
    answer_drop(answer);
}

/* --- all of them --- */

static void settle_op(struct lane *l, struct engine_op *op)
{
    switch (op->kind) {
    case ENGINE_BEGIN: /* settled apart */
        break;
    case ENGINE_COMPLETE:
    case ENGINE_RELEASE:
    case ENGINE_LOSE:
        settle_end(l, op);
        break;
    case ENGINE_EXTEND:
        settle_extend(l, op);
        break;
    case ENGINE_LOOKUP:
        settle_lookup(l, op);
        break;
    case ENGINE_RESOLVE:
    case ENGINE_FORGET:
        settle_change(l, op);
        break;
    }
}

void lane_settle(struct lane *l, size_t place, int code, const hapax_error *err)
{
    struct engine_op *op = l->batch_ops[place];
    struct store_op *store = l->batch[place];
    if (code == 0 && store->kind != STORE_LOOKUP && store->result == STORE_APPLIED) {
        lane_store_works(l);
    }
    if (op == NULL && store->kind == STORE_EXTEND) {
        settle_heartbeat(l, store, code);
    } else if (op == NULL) {
        settle_poll(l, store, code);
    } else if (op->kind == ENGINE_BEGIN) {
        settle_begin(l, op, code, err);
    } else if (code != 0) {
        lane_finish_error(l, op, code, err);
    } else {
        settle_op(l, op);
    }
}
