/* The engine on a SQLite store whose file operations fail in turn; its lane is driven by hand, on a clock of its own.
 *
 * What must hold: every op is answered exactly once; an error of the store shows in the engine's health; once the
 * cause has gone the engine finds that out by itself, and what was acknowledged before is replayed. */
#include "engine/engine.h"
#include "engine/lane.h"
#include "sweep.h"
#include "vfs.h"

#include <stdio.h>
#include <string.h>

enum { KEYS = 3, TURNS_MAX = 10000, PROBES = 5 };

struct world {
    char path[160];
    char uri[176];
    struct engine *engine;
    struct moment now;
};

struct asked {
    struct engine_op op;
    int answers;
};

static struct moment now_of(void *ctx)
{
    return ((struct world *)ctx)->now;
}

static void note(struct engine_op *op)
{
    ((struct asked *)op->user)->answers++;
}

static void turn(struct world *w, int64_t ms)
{
    w->now.mono_ms += ms;
    w->now.wall_ms += ms;
    int turns = 0;
    while (lane_turn(engine_lane(w->engine, 0), w->now) <= w->now.mono_ms) {
        MUST(++turns < TURNS_MAX);
    }
}

/* Submit, and have it answered; the code. */
static int ask(struct world *w, struct asked *a, enum engine_op_kind kind, const char *key)
{
    a->answers = 0;
    a->op.kind = kind;
    a->op.done = note;
    a->op.user = a;
    a->op.scope = SLICE_LITERAL("test");
    a->op.key = slice_text(key);
    a->op.lease_ms = 30000;
    a->op.ttl_ms = kind == ENGINE_COMPLETE ? 0 : 3600000;
    MUST(identity_make(&a->op.id, a->op.scope, a->op.key, NULL) == 0);
    MUST(engine_submit(w->engine, &a->op) == 0);
    turn(w, 0);
    CHECK(a->answers == 1, "%s: answered %d times", key, a->answers);
    bool of_store = a->op.code == HAPAX_E_STORE || a->op.code == HAPAX_E_STORE_FULL;
    CHECK(!of_store || !engine_store_ok(w->engine, NULL), "%s failed, and all is said to be well", key);
    return a->op.code;
}

/* Claim and complete; true: both were acknowledged. */
static bool carry_out(struct world *w, const char *key)
{
    struct asked a = {.answers = 0};
    if (ask(w, &a, ENGINE_BEGIN, key) != 0 || a.op.verdict != VERDICT_FRESH) {
        return false;
    }
    struct asked end = {.op.fence = a.op.record.fence};
    end.op.answer = answer_make(200, true, SLICE_LITERAL(""), SLICE_LITERAL("answer"));
    MUST(end.op.answer != NULL);
    struct answer *answer = end.op.answer;
    bool done = ask(w, &end, ENGINE_COMPLETE, key) == 0;
    answer_drop(answer);
    return done;
}

static void expect_replay(struct world *w, const char *key)
{
    struct asked a = {.answers = 0};
    int code = ask(w, &a, ENGINE_BEGIN, key);
    CHECK(code == 0 && a.op.verdict == VERDICT_REPLAY, "%s: code %d, verdict %d", key, code,
          (int)a.op.verdict);
    if (code == 0) {
        answer_drop(a.op.answer);
    }
}

static void open_engine(struct world *w)
{
    struct engine_options o = {.store_uri = w->uri,
                               .store.busy_ms = 1,
                               .cache_off = true, /* what is replayed comes from the store */
                               .now = now_of,
                               .now_ctx = w};
    hapax_error err = {0};
    int code = engine_open_without_threads(&w->engine, &o, &err);
    if (code != 0) {
        CHECK(code == HAPAX_E_STORE || code == HAPAX_E_STORE_FULL, "open: %s", err.message);
        sweep_disarm();
        code = engine_open_without_threads(&w->engine, &o, &err);
        CHECK(code == 0, "open again: %s", err.message);
        MUST(code == 0);
    }
}

static void run(void *ctx)
{
    static const char *const keys[KEYS] = {"first", "second", "third"};
    struct world w = {.now = {.wall_ms = 1700000000000, .mono_ms = 5000}};
    bool done[KEYS];
    (void)ctx;
    snprintf(w.path, sizeof w.path, "%s/hapax.db", sweep_folder());
    snprintf(w.uri, sizeof w.uri, "sqlite:%s", w.path);
    sweep_arm();
    open_engine(&w);
    for (int i = 0; i < KEYS; i++) {
        done[i] = carry_out(&w, keys[i]);
        turn(&w, LANE_PROBE_MS + 1); /* sweeps, or probes when it is down */
    }
    sweep_disarm();
    for (int i = 0; i < PROBES; i++) {
        turn(&w, LANE_PROBE_MS + 1);
    }
    hapax_error err = {0};
    CHECK(engine_store_ok(w.engine, &err), "still down: %s", err.message);
    CHECK(carry_out(&w, "afterwards"), "it does not work again");
    for (int i = 0; i < KEYS; i++) {
        if (done[i]) {
            expect_replay(&w, keys[i]);
        }
    }
    engine_close(w.engine);
    open_engine(&w);
    for (int i = 0; i < KEYS; i++) {
        if (done[i]) {
            expect_replay(&w, keys[i]);
        }
    }
    expect_replay(&w, "afterwards");
    engine_close(w.engine);
    sweep_remove(w.path);
}

int main(int argc, char **argv)
{
    static const struct injector injector = {"file operation", vfs_arm, vfs_disarm, vfs_seen};
    sweep_begin(argc, argv, &injector);
    vfs_register();
    vfs_choose(VFS_IO_ERROR);
    sweep("engine: I/O error", run, NULL);
    vfs_choose(VFS_DISK_FULL);
    sweep("engine: disk full", run, NULL);
    vfs_choose(VFS_BUSY);
    sweep("engine: locked", run, NULL);
    return sweep_end();
}
