/* See life.h. */
#include "life.h"

#include "base/digest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEASE_MS     30000
#define SHORT_TTL_MS 1000
#define LONG_TTL_MS  86400000

enum { LARGE_BYTES = 9000, HUGE_BYTES = 5 << 20 };

static struct identity id_of(int key)
{
    char name[16];
    uint8_t digest[DIGEST_BYTES];
    snprintf(name, sizeof name, "key %d", key);
    MUST(digest_sha256(digest, slice_text(name)) == 0);
    struct identity id;
    memcpy(id.bytes, digest, IDENTITY_BYTES);
    return id;
}

struct store_op life_op(const struct life *l, enum store_op_kind kind, int key)
{
    return (struct store_op){.kind = kind,
                             .id = id_of(key),
                             .fence = kind == STORE_CLAIM ? (struct fence){0} : l->fences[key],
                             .scope = SLICE_LITERAL("test"),
                             .key = SLICE_LITERAL("any"),
                             .fingerprint = {.version = 1},
                             .lease_ms = LEASE_MS,
                             .ttl_ms = kind == STORE_COMPLETE ? 0 : LONG_TTL_MS};
}

struct answer *life_answer(size_t bytes)
{
    char *body = malloc(bytes);
    MUST(body != NULL);
    memset(body, 'x', bytes);
    struct answer *a = answer_make(200, true, SLICE_LITERAL("A: b\r\n"), slice_of(body, bytes));
    MUST(a != NULL);
    free(body);
    return a;
}

int life_apply(struct life *l, struct store_op *op, int key, enum record_state then, hapax_error *err)
{
    struct store_op *list[] = {op};
    l->meant[key] = then;
    int code = store_apply(l->store, list, 1, l->now_ms, err);
    if (code == 0) {
        EXPECT(l, op->result == STORE_APPLIED, "op %d of key %d: result %d, state %d", (int)op->kind, key,
               (int)op->result, (int)op->found.state);
        l->expected[key] = then;
    }
    return code;
}

/* --- the steps --- */

int life_open_store(struct life *l, hapax_error *err)
{
    struct store_options o = {.busy_ms = l->busy_ms, .caller_clock = true};
    int code = store_open(&l->store, l->uri, &o, err);
    CHECK(code == 0 || l->store == NULL, "an error leaves a handle");
    return code;
}

int life_register_owner(struct life *l, hapax_error *err)
{
    return l->store->backend->register_owner(l->store, "an owner", &l->owner, err);
}

int life_claim_all(struct life *l, hapax_error *err)
{
    struct store_op ops[LIFE_KEYS];
    struct store_op *list[LIFE_KEYS];
    for (int i = 0; i < LIFE_KEYS; i++) {
        ops[i] = life_op(l, STORE_CLAIM, i);
        list[i] = &ops[i];
        l->meant[i] = RECORD_RUNNING;
    }
    int code = store_apply(l->store, list, LIFE_KEYS, l->now_ms, err);
    for (int i = 0; i < LIFE_KEYS && code == 0; i++) {
        CHECK(ops[i].result == STORE_APPLIED, "claim %d: result %d", i, (int)ops[i].result);
        l->fences[i] = ops[i].found.fence;
        l->expected[i] = RECORD_RUNNING;
    }
    return code;
}

static int complete_with(struct life *l, int key, size_t bytes, int64_t ttl_ms, hapax_error *err)
{
    struct store_op op = life_op(l, STORE_COMPLETE, key);
    op.answer = life_answer(bytes);
    op.ttl_ms = ttl_ms;
    l->answer_bytes[key] = bytes;
    int code = life_apply(l, &op, key, RECORD_DONE, err);
    answer_drop(op.answer);
    return code;
}

static int complete_large(struct life *l, hapax_error *err)
{
    return complete_with(l, 0, LARGE_BYTES, 0, err);
}

int life_complete_huge(struct life *l, hapax_error *err)
{
    return complete_with(l, 1, HUGE_BYTES, 0, err);
}

static int complete_short(struct life *l, hapax_error *err)
{
    return complete_with(l, 4, 10, SHORT_TTL_MS, err);
}

static int replay(struct life *l, hapax_error *err)
{
    struct store_op op = life_op(l, STORE_CLAIM, 0);
    op.want_answer = true;
    struct store_op *list[] = {&op};
    int code = store_apply(l->store, list, 1, l->now_ms, err);
    if (code == 0) {
        size_t bytes = op.answer != NULL ? answer_body(op.answer).len : 0;
        answer_drop(op.answer);
        EXPECT(l, op.result == STORE_FOUND && bytes == LARGE_BYTES, "result %d", (int)op.result);
    }
    return code;
}

static int release(struct life *l, hapax_error *err)
{
    struct store_op op = life_op(l, STORE_RELEASE, 1);
    return life_apply(l, &op, 1, RECORD_ABSENT, err);
}

static int lose(struct life *l, hapax_error *err)
{
    struct store_op op = life_op(l, STORE_LOSE, 2);
    return life_apply(l, &op, 2, RECORD_UNKNOWN, err);
}

static int extend(struct life *l, hapax_error *err)
{
    struct store_op op = life_op(l, STORE_EXTEND, 3);
    return life_apply(l, &op, 3, RECORD_RUNNING, err);
}

static int resolve(struct life *l, hapax_error *err)
{
    struct store_op op = life_op(l, STORE_RESOLVE, 2);
    op.answer = life_answer(20);
    l->answer_bytes[2] = 20;
    int code = life_apply(l, &op, 2, RECORD_DONE, err);
    answer_drop(op.answer);
    return code;
}

static int forget(struct life *l, hapax_error *err)
{
    struct store_op op = life_op(l, STORE_FORGET, 2);
    return life_apply(l, &op, 2, RECORD_ABSENT, err);
}

static int sweep_expired(struct life *l, hapax_error *err)
{
    uint32_t removed = 7;
    l->now_ms = LIFE_T0 + SHORT_TTL_MS;
    if (l->expected[4] == RECORD_DONE) { /* it has expired, swept or not */
        l->expected[4] = l->meant[4] = RECORD_ABSENT;
    }
    int code = l->store->backend->sweep(l->store, l->now_ms, 100, &removed, err);
    CHECK(code == 0 || removed == 0, "an error, and %u rows swept", (unsigned)removed);
    if (code == 0) {
        EXPECT(l, removed == 1 || (l->repeats && removed == 0), "%u rows swept", (unsigned)removed);
    }
    return code;
}

int life_abandon(struct life *l, hapax_error *err)
{
    uint32_t changed = 7;
    l->meant[3] = l->meant[5] = RECORD_UNKNOWN;
    int code = l->store->backend->abandon(l->store, l->owner, l->now_ms, 100, &changed, err);
    CHECK(code == 0 || changed == 0, "an error, and %u rows abandoned", (unsigned)changed);
    if (code == 0) {
        EXPECT(l, changed == 2 || (l->repeats && changed == 0), "%u rows abandoned", (unsigned)changed);
        l->expected[3] = l->expected[5] = RECORD_UNKNOWN;
    }
    return code;
}

static void count_row(void *ctx, const struct store_row *row)
{
    (void)row;
    ++*(int *)ctx;
}

static int list(struct life *l, hapax_error *err)
{
    int rows = 0;
    struct store_filter f = {.rows_max = 100};
    int code = l->store->backend->list(l->store, &f, l->now_ms, count_row, &rows, err);
    EXPECT(l, code != 0 || rows == 3, "%d rows", rows);
    return code;
}

static int stats(struct life *l, hapax_error *err)
{
    struct store_stats s;
    int code = l->store->backend->stats(l->store, &s, err);
    EXPECT(l, code != 0 || (s.running == 0 && s.unknown == 2), "%d running, %d unknown", (int)s.running,
           (int)s.unknown);
    return code;
}

static int generation(struct life *l, hapax_error *err)
{
    uint64_t number = 0;
    int code = l->store->backend->generation(l->store, &number, err);
    EXPECT(l, code != 0 || number >= 2, "generation %d", (int)number);
    return code;
}

static int forget_owner(struct life *l, hapax_error *err)
{
    return l->store->backend->forget_owner(l->store, l->owner, err);
}

static life_step *const steps[] = {life_open_store,
                                   life_register_owner,
                                   life_claim_all,
                                   complete_large,
                                   replay,
                                   release,
                                   lose,
                                   extend,
                                   resolve,
                                   forget,
                                   complete_short,
                                   sweep_expired,
                                   life_abandon,
                                   list,
                                   stats,
                                   generation,
                                   forget_owner};
life_step *const *const life_steps = steps;
const size_t life_step_count = sizeof steps / sizeof steps[0];

/* --- judging --- */

void life_check(struct life *l, struct store *s, const enum record_state *expected, const char *when)
{
    for (int i = 0; i < LIFE_KEYS; i++) {
        struct store_op op = life_op(l, STORE_LOOKUP, i);
        op.want_answer = true;
        struct store_op *all[] = {&op};
        hapax_error err = {0};
        int code = store_apply(s, all, 1, l->now_ms, &err);
        CHECK(code == 0, "%s: lookup: %s", when, err.message);
        if (code != 0) {
            continue;
        }
        CHECK(op.found.state == expected[i], "%s: key %d is %d, acknowledged was %d", when, i,
              (int)op.found.state, (int)expected[i]);
        CHECK(op.answer == NULL || answer_body(op.answer).len == l->answer_bytes[i], "%s: another answer",
              when);
        answer_drop(op.answer);
    }
}

bool life_took_effect(struct life *l, struct store *s)
{
    bool any = false;
    for (int i = 0; i < LIFE_KEYS; i++) {
        struct store_op op = life_op(l, STORE_LOOKUP, i);
        struct store_op *all[] = {&op};
        any = any || (l->meant[i] != l->expected[i] && store_apply(s, all, 1, l->now_ms, NULL) == 0 &&
                      op.found.state == l->meant[i]);
    }
    return any;
}
