/* See broken.h. Each way changes the batch, or the store behind its back, and leaves the rest to the real store. */
#include "broken.h"

#include "base/assert.h"

#include <string.h>

static struct record stands(struct store *inner, const struct identity *id, int64_t now_ms)
{
    struct store_op op = {.kind = STORE_LOOKUP, .id = *id};
    struct store_op *const ops[] = {&op};
    hapax_error err;
    return store_apply(inner, ops, 1, now_ms, &err) == 0 ? op.found : (struct record){0};
}

static void change(struct store *inner, enum store_op_kind kind, const struct identity *id,
                   struct fence fence, int64_t now_ms)
{
    struct store_op op = {.kind = kind, .id = *id, .fence = fence};
    struct store_op *const ops[] = {&op};
    hapax_error err;
    (void)store_apply(inner, ops, 1, now_ms, &err);
}

static void before(enum sim_broken how, struct store *inner, struct store_op *op, int64_t now_ms)
{
    struct record r = stands(inner, &op->id, now_ms);
    bool claim = op->kind == STORE_CLAIM;
    if (how == BROKEN_FENCE && op->kind == STORE_COMPLETE && r.state == RECORD_RUNNING) {
        op->fence = r.fence;
    } else if (how == BROKEN_LIVE && claim && op->take_over && r.state == RECORD_RUNNING) {
        change(inner, STORE_LOSE, &op->id, r.fence, now_ms);
    } else if (how == BROKEN_HELD && claim) {
        op->take_over = true;
    } else if (how == BROKEN_KNOWN && claim && r.state == RECORD_DONE) {
        change(inner, STORE_FORGET, &op->id, r.fence, now_ms);
    } else if (how == BROKEN_CONTENT && claim) {
        op->fingerprint.version = 0;
    }
}

static void after(enum sim_broken how, struct store *inner, struct store_op *op, int64_t now_ms)
{
    if (how == BROKEN_ANSWER && op->kind == STORE_CLAIM && op->answer != NULL) {
        answer_drop(op->answer);
        op->answer = answer_make(200, true, SLICE_LITERAL(""), SLICE_LITERAL("something else"));
    } else if (how == BROKEN_LOST && op->kind == STORE_COMPLETE && op->result == STORE_APPLIED) {
        change(inner, STORE_FORGET, &op->id, op->fence, now_ms);
    }
}

int broken_apply(enum sim_broken how, struct store *inner, struct store_op *const *ops, size_t n,
                 int64_t now_ms, hapax_error *err)
{
    bool late = false;
    struct store_op given[LIMIT_BATCH_OPS_MAX];
    if (how == BROKEN_NOTHING) {
        return store_apply(inner, ops, n, now_ms, err);
    }
    for (size_t i = 0; i < n; i++) {
        given[i] = *ops[i];
        before(how, inner, ops[i], now_ms);
        late = late || ops[i]->kind == STORE_COMPLETE;
    }
    int64_t its_now_ms = how == BROKEN_LATE && late ? now_ms - 3600000 : now_ms;
    int code = store_apply(inner, ops, n, its_now_ms, err);
    for (size_t i = 0; i < n; i++) {
        ops[i]->fence = given[i].fence;
        ops[i]->take_over = given[i].take_over;
        ops[i]->fingerprint = given[i].fingerprint;
        if (code == 0) {
            after(how, inner, ops[i], now_ms);
        }
    }
    return code;
}

const char *sim_broken_name(enum sim_broken b)
{
    static const char *const names[] = {
        [BROKEN_NOTHING] = "nothing", [BROKEN_FENCE] = "fence",     [BROKEN_LIVE] = "live",
        [BROKEN_LATE] = "late",       [BROKEN_HELD] = "held",       [BROKEN_KNOWN] = "known",
        [BROKEN_CONTENT] = "content", [BROKEN_ANSWER] = "answer",   [BROKEN_LOST] = "lost",
        [BROKEN_REPLY] = "reply",     [BROKEN_SILENCE] = "silence", [BROKEN_WAIT] = "wait",
    };
    HAPAX_ASSERT(b < BROKEN_COUNT);
    return names[b];
}
