/* See rules.h. Each op kind is one function; all of them ask record_step() and none knows a back end. */
#include "store/rules.h"

#include "base/assert.h"

static int64_t add_clamped(int64_t a, int64_t b)
{
    int64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? INT64_MAX : sum;
}

struct record rule_seen(const struct record *stored, int64_t now_ms)
{
    struct record seen = *stored;
    seen.state = record_state_at(stored, now_ms);
    if (seen.state == RECORD_ABSENT) {
        return (struct record){.state = RECORD_ABSENT};
    }
    if (seen.state == RECORD_UNKNOWN && stored->state == RECORD_RUNNING) {
        seen.ended_ms = stored->lease_ms;
    }
    return seen;
}

struct record rule_abandoned(const struct record *stored, int64_t now_ms)
{
    struct record next = *stored;
    next.state = record_step(RECORD_RUNNING, EVENT_LOSE).next;
    next.ended_ms = stored->lease_ms < now_ms ? stored->lease_ms : now_ms;
    return next;
}

/* Counted from the first claim. A record that is only settled when that time has passed already (an
 * unknown one, resolved days later) would be absent at once and its operation executed again by the next
 * claim: there the ttl counts from now. */
static void set_expiry(struct record *r, int64_t now_ms)
{
    r->expires_ms = add_clamped(r->claimed_ms, r->ttl_ms);
    if (r->state == RECORD_DONE && r->expires_ms <= now_ms) {
        r->expires_ms = add_clamped(now_ms, r->ttl_ms);
    }
}

static struct record claimed_anew(const struct store_op *op, uint64_t owner, int64_t now_ms)
{
    struct record r = {
        .state = RECORD_RUNNING,
        .fence = {.serial = 0, .attempt = 1},
        .fingerprint = op->fingerprint,
        .owner = owner,
        .claimed_ms = now_ms,
        .lease_ms = add_clamped(now_ms, op->lease_ms),
        .ttl_ms = op->ttl_ms,
    };
    set_expiry(&r, now_ms);
    return r;
}

static struct record taken_over(const struct record *seen, const struct store_op *op, uint64_t owner,
                                int64_t now_ms)
{
    struct record r = *seen;
    r.state = RECORD_RUNNING;
    r.fence.attempt++;
    if (op->fingerprint.version > 0) {
        r.fingerprint = op->fingerprint;
    }
    r.owner = owner;
    r.lease_ms = add_clamped(now_ms, op->lease_ms);
    r.ended_ms = 0;
    r.ttl_ms = op->ttl_ms;
    set_expiry(&r, now_ms);
    return r;
}

static void decide_claim(struct rule_decision *d, const struct store_op *op, const struct record *stored,
                         const struct record *seen, uint64_t owner, int64_t now_ms)
{
    bool takes = op->take_over && !fingerprint_mismatch(&op->fingerprint, &seen->fingerprint);
    struct record_step step = record_step(seen->state, takes ? EVENT_TAKE_OVER : EVENT_CLAIM);
    if (step.allowed && step.new_serial) {
        d->result = STORE_APPLIED;
        d->change = RULE_INSERT;
        d->next = claimed_anew(op, owner, now_ms);
    } else if (step.allowed && step.new_attempt && seen->fence.attempt < UINT32_MAX) {
        d->result = STORE_APPLIED;
        d->change = RULE_UPDATE;
        d->next = taken_over(seen, op, owner, now_ms);
    } else {
        d->result = STORE_FOUND;
        d->next = *seen;
        if (stored != NULL && stored->state == RECORD_RUNNING && seen->state == RECORD_UNKNOWN) {
            d->change = RULE_UPDATE;
        }
    }
    d->found = d->next;
}

static void remove_record(struct rule_decision *d)
{
    d->result = STORE_APPLIED;
    d->change = RULE_REMOVE;
    d->found.state = RECORD_ABSENT;
}

static void update_record(struct rule_decision *d)
{
    d->result = STORE_APPLIED;
    d->change = RULE_UPDATE;
    d->found = d->next;
}

static void decide_fenced(struct rule_decision *d, const struct store_op *op, const struct record *seen,
                          enum record_event event, int64_t now_ms)
{
    d->found = *seen;
    if (seen->state == RECORD_ABSENT) {
        d->result = STORE_ABSENT;
        return;
    }
    struct record_step step = record_step(seen->state, event);
    if (!step.allowed || (step.fenced && !fence_equal(op->fence, seen->fence))) {
        d->result = STORE_STALE;
        return;
    }
    if (step.next == RECORD_ABSENT) {
        remove_record(d);
        return;
    }
    d->next = *seen;
    d->next.state = step.next;
    if (event == EVENT_EXTEND) {
        d->next.lease_ms = add_clamped(now_ms, op->lease_ms);
    } else {
        d->next.ended_ms = now_ms;
    }
    if (step.next == RECORD_DONE) {
        HAPAX_ASSERT(op->answer != NULL);
        d->with_answer = true;
        d->next.ttl_ms = op->ttl_ms > 0 ? op->ttl_ms : seen->ttl_ms;
        set_expiry(&d->next, now_ms);
    }
    update_record(d);
}

static void decide_by_hand(struct rule_decision *d, const struct store_op *op, const struct record *seen,
                           enum record_event event, int64_t now_ms)
{
    d->found = *seen;
    if (seen->state == RECORD_ABSENT) {
        d->result = STORE_ABSENT;
        return;
    }
    struct record_step step = record_step(seen->state, event);
    if (op->fence.serial != 0 && !fence_equal(op->fence, seen->fence)) {
        d->result = STORE_STALE;
        return;
    }
    if (!step.allowed) {
        d->result = STORE_REFUSED;
        return;
    }
    d->by_hand = true;
    if (step.next == RECORD_ABSENT) {
        remove_record(d);
        return;
    }
    HAPAX_ASSERT(op->answer != NULL);
    d->next = *seen;
    d->next.state = step.next;
    d->next.ended_ms = now_ms;
    d->with_answer = true;
    set_expiry(&d->next, now_ms);
    update_record(d);
}

void rule_decide(struct rule_decision *out, const struct store_op *op, const struct record *stored,
                 uint64_t owner, int64_t now_ms)
{
    struct record seen = {.state = RECORD_ABSENT};
    if (stored != NULL) {
        seen = rule_seen(stored, now_ms);
    }
    *out = (struct rule_decision){.change = RULE_NOTHING};
    switch (op->kind) {
    case STORE_CLAIM:
        decide_claim(out, op, stored, &seen, owner, now_ms);
        break;
    case STORE_COMPLETE:
        decide_fenced(out, op, &seen, EVENT_COMPLETE, now_ms);
        break;
    case STORE_RELEASE:
        decide_fenced(out, op, &seen, EVENT_RELEASE, now_ms);
        break;
    case STORE_LOSE:
        decide_fenced(out, op, &seen, EVENT_LOSE, now_ms);
        break;
    case STORE_EXTEND:
        decide_fenced(out, op, &seen, EVENT_EXTEND, now_ms);
        break;
    case STORE_LOOKUP:
        out->result = seen.state == RECORD_ABSENT ? STORE_ABSENT : STORE_APPLIED;
        out->found = seen;
        break;
    case STORE_RESOLVE:
        decide_by_hand(out, op, &seen, op->answer != NULL ? EVENT_RESOLVE_DONE : EVENT_RESOLVE_RELEASED,
                       now_ms);
        break;
    case STORE_FORGET:
        decide_by_hand(out, op, &seen, EVENT_FORGET, now_ms);
        break;
    }
}
