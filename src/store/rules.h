/* What an op does to a record: core/record.h's table turned into one decision, so that every back end
 * that reads a record before it writes decides the same way. Pure. */
#ifndef STORE_RULES_H
#define STORE_RULES_H

#include "store/store.h"

enum rule_change {
    RULE_NOTHING,
    RULE_INSERT, /* write `next` as a new record with a new serial, after removing what stands there */
    RULE_UPDATE, /* `next` replaces what stands there; the serial stays */
    RULE_REMOVE,
};

struct rule_decision {
    enum store_result result;
    enum rule_change change;
    struct record next;  /* INSERT: the back end gives fence.serial */
    struct record found; /* for op->found, but for an INSERT's serial */
    bool with_answer;    /* UPDATE to done: op->answer is the answer */
    bool by_hand;        /* a RESOLVE or FORGET was applied: the generation changes */
};

/* `stored` is the record as written, NULL when there is none. `owner` becomes a claim's owner. */
void rule_decide(struct rule_decision *out, const struct store_op *op, const struct record *stored,
                 uint64_t owner, int64_t now_ms);

/* The record as it is at now_ms: a running one past its lease unknown (since then), an expired one all zero. */
struct record rule_seen(const struct record *stored, int64_t now_ms);

/* A running record written down as unknown: what abandon() writes. */
struct record rule_abandoned(const struct record *stored, int64_t now_ms);

/* Does the op read the answer of what it found? */
static inline bool rule_wants_answer(const struct store_op *op)
{
    return op->want_answer && (op->kind == STORE_CLAIM || op->kind == STORE_LOOKUP) &&
           op->found.state == RECORD_DONE;
}

/* A batch that a handle opened for reading only may run. */
static inline bool rule_only_reads(struct store_op *const *ops, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (ops[i]->kind != STORE_LOOKUP) {
            return false;
        }
    }
    return true;
}

/* For a failed batch: no op owns an answer. Also how a batch begins (with `owned` false). */
static inline void rule_clear_answers(struct store_op *const *ops, size_t n, bool owned)
{
    for (size_t i = 0; i < n; i++) {
        if (ops[i]->kind == STORE_CLAIM || ops[i]->kind == STORE_LOOKUP) {
            if (owned) {
                answer_drop(ops[i]->answer);
            }
            ops[i]->answer = NULL;
        }
    }
}

#endif
