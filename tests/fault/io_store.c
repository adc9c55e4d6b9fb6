/* The SQLite store with each of its file operations failing in turn: a first open with its migration, claims, their
 * ends, replays, an operator's changes, house-keeping, a checkpoint and the close.
 *
 * What must hold: a step that returns an error changed nothing, and works on the same handle once the cause has gone;
 * one that returns 0 is there for whoever opens the store afresh; and the database is sound. */
#include "base/digest.h"
#include "store/store.h"
#include "sweep.h"
#include "vfs.h"

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define T0           INT64_C(1700000000000)
#define LEASE_MS     30000
#define SHORT_TTL_MS 1000
#define LONG_TTL_MS  86400000
#define BUSY_MS      1

enum { KEYS = 6, LARGE_BYTES = 9000, HUGE_BYTES = 5 << 20 };

struct world {
    char path[160];
    char uri[176];
    struct store *store;
    int64_t now_ms;
    uint64_t owner;
    struct fence fences[KEYS];
    enum record_state expected[KEYS]; /* as acknowledged */
    enum record_state meant[KEYS];    /* and with what the step that failed would have made of it */
    size_t answer_bytes[KEYS];        /* of a done record */
    bool gaps;                        /* an earlier step failed and has not been made up for */
};

/* A step came to something else than it would after all the earlier ones. */
#define PREMATURE 1
#define EXPECT(w, condition, ...)                                                                            \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            CHECK((w)->gaps, #condition " " __VA_ARGS__);                                                    \
            return PREMATURE;                                                                                \
        }                                                                                                    \
    } while (0)

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

static struct store_op op_of(const struct world *w, enum store_op_kind kind, int key)
{
    return (struct store_op){.kind = kind,
                             .id = id_of(key),
                             .fence = kind == STORE_CLAIM ? (struct fence){0} : w->fences[key],
                             .scope = SLICE_LITERAL("test"),
                             .key = SLICE_LITERAL("any"),
                             .fingerprint = {.version = 1},
                             .lease_ms = LEASE_MS,
                             .ttl_ms = kind == STORE_COMPLETE ? 0 : LONG_TTL_MS};
}

static struct answer *answer_of(size_t bytes)
{
    char *body = malloc(bytes);
    MUST(body != NULL);
    memset(body, 'x', bytes);
    struct answer *a = answer_make(200, true, SLICE_LITERAL("A: b\r\n"), slice_of(body, bytes));
    MUST(a != NULL);
    free(body);
    return a;
}

/* One op that must be applied, unless the store fails. */
static int apply(struct world *w, struct store_op *op, int key, enum record_state then, hapax_error *err)
{
    struct store_op *list[] = {op};
    w->meant[key] = then;
    int code = store_apply(w->store, list, 1, w->now_ms, err);
    if (code == 0) {
        EXPECT(w, op->result == STORE_APPLIED, "op %d of key %d: result %d, state %d", (int)op->kind, key,
               (int)op->result, (int)op->found.state);
        w->expected[key] = then;
    }
    return code;
}

/* --- the steps --- */

static int open_store(struct world *w, hapax_error *err)
{
    struct store_options o = {.busy_ms = BUSY_MS};
    int code = store_open(&w->store, w->uri, &o, err);
    CHECK(code == 0 || w->store == NULL, "an error leaves a handle");
    return code;
}

static int register_owner(struct world *w, hapax_error *err)
{
    return w->store->backend->register_owner(w->store, "an owner", &w->owner, err);
}

static int claim_all(struct world *w, hapax_error *err)
{
    struct store_op ops[KEYS];
    struct store_op *list[KEYS];
    for (int i = 0; i < KEYS; i++) {
        ops[i] = op_of(w, STORE_CLAIM, i);
        list[i] = &ops[i];
        w->meant[i] = RECORD_RUNNING;
    }
    int code = store_apply(w->store, list, KEYS, w->now_ms, err);
    for (int i = 0; i < KEYS && code == 0; i++) {
        CHECK(ops[i].result == STORE_APPLIED, "claim %d: result %d", i, (int)ops[i].result);
        w->fences[i] = ops[i].found.fence;
        w->expected[i] = RECORD_RUNNING;
    }
    return code;
}

static int complete_with(struct world *w, int key, size_t bytes, int64_t ttl_ms, hapax_error *err)
{
    struct store_op op = op_of(w, STORE_COMPLETE, key);
    op.answer = answer_of(bytes);
    op.ttl_ms = ttl_ms;
    w->answer_bytes[key] = bytes;
    int code = apply(w, &op, key, RECORD_DONE, err);
    answer_drop(op.answer);
    return code;
}

static int complete_large(struct world *w, hapax_error *err)
{
    return complete_with(w, 0, LARGE_BYTES, 0, err);
}

static int complete_huge(struct world *w, hapax_error *err)
{
    return complete_with(w, 1, HUGE_BYTES, 0, err);
}

static int complete_short(struct world *w, hapax_error *err)
{
    return complete_with(w, 4, 10, SHORT_TTL_MS, err);
}

static int replay(struct world *w, hapax_error *err)
{
    struct store_op op = op_of(w, STORE_CLAIM, 0);
    op.want_answer = true;
    struct store_op *list[] = {&op};
    int code = store_apply(w->store, list, 1, w->now_ms, err);
    if (code == 0) {
        size_t bytes = op.answer != NULL ? answer_body(op.answer).len : 0;
        answer_drop(op.answer);
        EXPECT(w, op.result == STORE_FOUND && bytes == LARGE_BYTES, "result %d", (int)op.result);
    }
    return code;
}

static int release(struct world *w, hapax_error *err)
{
    struct store_op op = op_of(w, STORE_RELEASE, 1);
    return apply(w, &op, 1, RECORD_ABSENT, err);
}

static int lose(struct world *w, hapax_error *err)
{
    struct store_op op = op_of(w, STORE_LOSE, 2);
    return apply(w, &op, 2, RECORD_UNKNOWN, err);
}

static int extend(struct world *w, hapax_error *err)
{
    struct store_op op = op_of(w, STORE_EXTEND, 3);
    return apply(w, &op, 3, RECORD_RUNNING, err);
}

static int resolve(struct world *w, hapax_error *err)
{
    struct store_op op = op_of(w, STORE_RESOLVE, 2);
    op.answer = answer_of(20);
    w->answer_bytes[2] = 20;
    int code = apply(w, &op, 2, RECORD_DONE, err);
    answer_drop(op.answer);
    return code;
}

static int forget(struct world *w, hapax_error *err)
{
    struct store_op op = op_of(w, STORE_FORGET, 2);
    return apply(w, &op, 2, RECORD_ABSENT, err);
}

static int sweep_expired(struct world *w, hapax_error *err)
{
    uint32_t removed = 7;
    w->now_ms = T0 + SHORT_TTL_MS;
    if (w->expected[4] == RECORD_DONE) { /* it has expired, swept or not */
        w->expected[4] = w->meant[4] = RECORD_ABSENT;
    }
    int code = w->store->backend->sweep(w->store, w->now_ms, 100, &removed, err);
    CHECK(code == 0 || removed == 0, "an error, and %u rows swept", (unsigned)removed);
    if (code == 0) {
        EXPECT(w, removed == 1, "%u rows swept", (unsigned)removed);
    }
    return code;
}

static int abandon(struct world *w, hapax_error *err)
{
    uint32_t changed = 7;
    w->meant[3] = w->meant[5] = RECORD_UNKNOWN;
    int code = w->store->backend->abandon(w->store, w->owner, w->now_ms, 100, &changed, err);
    CHECK(code == 0 || changed == 0, "an error, and %u rows abandoned", (unsigned)changed);
    if (code == 0) {
        EXPECT(w, changed == 2, "%u rows abandoned", (unsigned)changed);
        w->expected[3] = w->expected[5] = RECORD_UNKNOWN;
    }
    return code;
}

static void count_row(void *ctx, const struct store_row *row)
{
    (void)row;
    ++*(int *)ctx;
}

static int list(struct world *w, hapax_error *err)
{
    int rows = 0;
    struct store_filter f = {.rows_max = 100};
    int code = w->store->backend->list(w->store, &f, w->now_ms, count_row, &rows, err);
    EXPECT(w, code != 0 || rows == 3, "%d rows", rows);
    return code;
}

static int stats(struct world *w, hapax_error *err)
{
    struct store_stats s;
    int code = w->store->backend->stats(w->store, &s, err);
    EXPECT(w, code != 0 || (s.running == 0 && s.unknown == 2), "%d running, %d unknown", (int)s.running,
           (int)s.unknown);
    return code;
}

static int generation(struct world *w, hapax_error *err)
{
    uint64_t number = 0;
    int code = w->store->backend->generation(w->store, &number, err);
    EXPECT(w, code != 0 || number >= 2, "generation %d", (int)number);
    return code;
}

static int forget_owner(struct world *w, hapax_error *err)
{
    return w->store->backend->forget_owner(w->store, w->owner, err);
}

static int checkpoint(struct world *w, hapax_error *err)
{
    bool more = true;
    int code = 0;
    for (int i = 0; i < 100 && more && code == 0; i++) {
        code = w->store->backend->maintain(w->store, &more, err);
    }
    return code;
}

typedef int step(struct world *w, hapax_error *err);

static step *const life[] = {open_store,     register_owner, claim_all, complete_large, replay,
                             release,        lose,           extend,    resolve,        forget,
                             complete_short, sweep_expired,  abandon,   list,           stats,
                             generation,     forget_owner};
static step *const log_copied[] = {open_store, register_owner, claim_all, complete_huge, checkpoint};

/* --- judging --- */

static void check_sound(const struct world *w)
{
    sqlite3 *db = NULL;
    sqlite3_stmt *st = NULL;
    MUST(sqlite3_open_v2(w->path, &db, SQLITE_OPEN_READWRITE, NULL) == SQLITE_OK);
    MUST(sqlite3_prepare_v2(db, "PRAGMA integrity_check", -1, &st, NULL) == SQLITE_OK);
    MUST(sqlite3_step(st) == SQLITE_ROW);
    const char *verdict = (const char *)sqlite3_column_text(st, 0);
    CHECK(strcmp(verdict, "ok") == 0, "%s", verdict);
    sqlite3_finalize(st);
    sqlite3_close(db);
}

static void check_records(struct world *w, struct store *s, const enum record_state *expected,
                          const char *when)
{
    for (int i = 0; i < KEYS; i++) {
        struct store_op op = op_of(w, STORE_LOOKUP, i);
        op.want_answer = true;
        struct store_op *all[] = {&op};
        hapax_error err = {0};
        int code = store_apply(s, all, 1, w->now_ms, &err);
        CHECK(code == 0, "%s: lookup: %s", when, err.message);
        if (code != 0) {
            continue;
        }
        CHECK(op.found.state == expected[i], "%s: key %d is %d, acknowledged was %d", when, i,
              (int)op.found.state, (int)expected[i]);
        CHECK(op.answer == NULL || answer_body(op.answer).len == w->answer_bytes[i], "%s: another answer",
              when);
        answer_drop(op.answer);
    }
}

/* Did the step that failed take effect after all? Of its keys any will do: check_records() then wants all. */
static bool took_effect(struct world *w, struct store *s)
{
    bool any = false;
    for (int i = 0; i < KEYS; i++) {
        struct store_op op = op_of(w, STORE_LOOKUP, i);
        struct store_op *all[] = {&op};
        any = any || (w->meant[i] != w->expected[i] && store_apply(s, all, 1, w->now_ms, NULL) == 0 &&
                      op.found.state == w->meant[i]);
    }
    return any;
}

/* in_doubt: a commit that failed may have become durable, as a whole, when nobody was left to see to it. */
static void check_afresh(struct world *w, bool in_doubt, const char *when)
{
    hapax_error err = {0};
    struct store *s = NULL;
    int code = store_open(&s, w->uri, NULL, &err);
    CHECK(code == 0, "%s: can't be opened: %s", when, err.message);
    if (code == 0) {
        check_records(w, s, in_doubt && took_effect(w, s) ? w->meant : w->expected, when);
        store_close(s);
    }
    check_sound(w);
}

static struct world fresh_world(void)
{
    struct world w = {.now_ms = T0};
    snprintf(w.path, sizeof w.path, "%s/hapax.db", sweep_folder());
    snprintf(w.uri, sizeof w.uri, "sqlite:%s", w.path);
    return w;
}

struct script {
    step *const *steps;
    size_t count;
    size_t armed_from; /* before that, no faults */
};

/* True: it worked. A single fault has gone when the step is repeated. */
static bool try_step(struct world *w, step *make, size_t number)
{
    hapax_error err = {0};
    int code = make(w, &err);
    if (code == PREMATURE || code == 0) {
        return code == 0;
    }
    CHECK(err.code == code, "step %zu: code %d, error %d", number, code, err.code);
    CHECK(code == HAPAX_E_STORE || code == HAPAX_E_STORE_FULL || (code == HAPAX_E_CONFLICT && w->gaps),
          "step %zu: %s: %s", number, hapax_error_name(code), err.message);
    if (!sweep_single()) {
        return false;
    }
    code = make(w, &err);
    CHECK(code == 0, "step %zu again: %s", number, err.message);
    return code == 0;
}

/* Faults from a step on; a step that fails is repeated when the fault was a single one, and else all that failed are
 * made up for when it has gone. The handle is the same one throughout, where there was one. */
static void run_script(void *ctx)
{
    const struct script *script = ctx;
    struct world w = fresh_world();
    bool missing[32] = {false};
    size_t i = 0;
    hapax_error err = {0};
    for (; i < script->armed_from; i++) {
        MUST(script->steps[i](&w, &err) == 0);
    }
    sweep_arm();
    for (; i < script->count; i++) {
        if (w.store == NULL && script->steps[i] != open_store) {
            missing[i] = true;
            continue;
        }
        missing[i] = !try_step(&w, script->steps[i], i);
        w.gaps = w.gaps || missing[i];
    }
    sweep_disarm();
    if (w.store != NULL) {
        check_records(&w, w.store, w.expected, "when it was over");
    }
    w.now_ms = T0;
    w.gaps = false;
    for (i = script->armed_from; i < script->count; i++) {
        int code = missing[i] ? script->steps[i](&w, &err) : 0;
        CHECK(code == 0, "step %zu made up for: %s", i, err.message);
    }
    check_records(&w, w.store, w.expected, "at the end");
    store_close(w.store);
    check_afresh(&w, false, "afresh");
    sweep_remove(w.path);
}

/* As when the process dies of it: what failed is not repeated, and the next one to look opens the store anew. */
static void run_and_leave(void *ctx)
{
    const struct script *script = ctx;
    struct world w = fresh_world();
    hapax_error err = {0};
    sweep_arm();
    for (size_t i = 0; i < script->count; i++) {
        if (script->steps[i](&w, &err) != 0) {
            break;
        }
    }
    store_close(w.store);
    sweep_disarm();
    check_afresh(&w, true, "afresh");
    sweep_remove(w.path);
}

int main(int argc, char **argv)
{
    static const struct injector injector = {"file operation", vfs_arm, vfs_disarm, vfs_seen};
    static const char *const kinds[] = {[VFS_IO_ERROR] = "I/O error",
                                        [VFS_DISK_FULL] = "disk full",
                                        [VFS_BUSY] = "locked",
                                        [VFS_LATE_ERROR] = "error after the fact"};
    sweep_begin(argc, argv, &injector);
    vfs_register();
    for (enum vfs_fault kind = VFS_IO_ERROR; kind <= VFS_LATE_ERROR; kind++) {
        char name[96];
        vfs_choose(kind);
        snprintf(name, sizeof name, "%s: all of a life", kinds[kind]);
        sweep(name, run_script, &(struct script){life, sizeof life / sizeof life[0], 0});
        snprintf(name, sizeof name, "%s: and the store is left", kinds[kind]);
        sweep(name, run_and_leave, &(struct script){life, sizeof life / sizeof life[0], 0});
        if (kind != VFS_IO_ERROR && kind != VFS_DISK_FULL) {
            continue; /* 4 MiB of log for each run: only where it may teach something */
        }
        snprintf(name, sizeof name, "%s: checkpoint", kinds[kind]);
        sweep(name, run_script, &(struct script){log_copied, sizeof log_copied / sizeof log_copied[0], 4});
    }
    return sweep_end();
}
