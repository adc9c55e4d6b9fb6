/* The SQLite store with each of its file operations failing in turn: a first open with its migration, claims, their
 * ends, replays, an operator's changes, house-keeping, a checkpoint and the close.
 *
 * What must hold: a step that returns an error changed nothing, and works on the same handle once the cause has gone;
 * one that returns 0 is there for whoever opens the store afresh; and the database is sound. */
#include "life.h"
#include "vfs.h"

#include <sqlite3.h>
#include <stdio.h>
#include <string.h>

#define BUSY_MS 1

static int checkpoint(struct life *l, hapax_error *err)
{
    bool more = true;
    int code = 0;
    for (int i = 0; i < 100 && more && code == 0; i++) {
        code = l->store->backend->maintain(l->store, &more, err);
    }
    return code;
}

static life_step *const log_copied[] = {life_open_store, life_register_owner, life_claim_all,
                                        life_complete_huge, checkpoint};

/* --- judging --- */

static void check_sound(const struct life *l)
{
    sqlite3 *db = NULL;
    sqlite3_stmt *st = NULL;
    MUST(sqlite3_open_v2(l->path, &db, SQLITE_OPEN_READWRITE, NULL) == SQLITE_OK);
    MUST(sqlite3_prepare_v2(db, "PRAGMA integrity_check", -1, &st, NULL) == SQLITE_OK);
    MUST(sqlite3_step(st) == SQLITE_ROW);
    const char *verdict = (const char *)sqlite3_column_text(st, 0);
    CHECK(strcmp(verdict, "ok") == 0, "%s", verdict);
    sqlite3_finalize(st);
    sqlite3_close(db);
}

/* in_doubt: a commit that failed may have become durable, as a whole, when nobody was left to see to it. */
static void check_afresh(struct life *l, bool in_doubt, const char *when)
{
    hapax_error err = {0};
    struct store *s = NULL;
    int code = store_open(&s, l->uri, NULL, &err);
    CHECK(code == 0, "%s: can't be opened: %s", when, err.message);
    if (code == 0) {
        life_check(l, s, in_doubt && life_took_effect(l, s) ? l->meant : l->expected, when);
        store_close(s);
    }
    check_sound(l);
}

static struct life fresh_world(void)
{
    struct life l = {.now_ms = LIFE_T0, .busy_ms = BUSY_MS};
    snprintf(l.path, sizeof l.path, "%s/hapax.db", sweep_folder());
    snprintf(l.uri, sizeof l.uri, "sqlite:%s", l.path);
    return l;
}

struct script {
    life_step *const *steps;
    size_t count;
    size_t armed_from; /* before that, no faults */
};

/* True: it worked. A single fault has gone when the step is repeated. */
static bool try_step(struct life *l, life_step *make, size_t number)
{
    hapax_error err = {0};
    int code = make(l, &err);
    if (code == LIFE_PREMATURE || code == 0) {
        return code == 0;
    }
    CHECK(err.code == code, "step %zu: code %d, error %d", number, code, err.code);
    CHECK(code == HAPAX_E_STORE || code == HAPAX_E_STORE_FULL || (code == HAPAX_E_CONFLICT && l->gaps),
          "step %zu: %s: %s", number, hapax_error_name(code), err.message);
    if (!sweep_single()) {
        return false;
    }
    code = make(l, &err);
    CHECK(code == 0, "step %zu again: %s", number, err.message);
    return code == 0;
}

/* Faults from a step on; a step that fails is repeated when the fault was a single one, and else all that failed are
 * made up for when it has gone. The handle is the same one throughout, where there was one. */
static void run_script(void *ctx)
{
    const struct script *script = ctx;
    struct life l = fresh_world();
    bool missing[32] = {false};
    size_t i = 0;
    hapax_error err = {0};
    for (; i < script->armed_from; i++) {
        MUST(script->steps[i](&l, &err) == 0);
    }
    sweep_arm();
    for (; i < script->count; i++) {
        if (l.store == NULL && script->steps[i] != life_open_store) {
            missing[i] = true;
            continue;
        }
        missing[i] = !try_step(&l, script->steps[i], i);
        l.gaps = l.gaps || missing[i];
    }
    sweep_disarm();
    if (l.store != NULL) {
        life_check(&l, l.store, l.expected, "when it was over");
    }
    l.now_ms = LIFE_T0;
    l.gaps = false;
    for (i = script->armed_from; i < script->count; i++) {
        int code = missing[i] ? script->steps[i](&l, &err) : 0;
        CHECK(code == 0, "step %zu made up for: %s", i, err.message);
    }
    life_check(&l, l.store, l.expected, "at the end");
    store_close(l.store);
    check_afresh(&l, false, "afresh");
    sweep_remove(l.path);
}

/* As when the process dies of it: what failed is not repeated, and the next one to look opens the store anew. */
static void run_and_leave(void *ctx)
{
    const struct script *script = ctx;
    struct life l = fresh_world();
    hapax_error err = {0};
    sweep_arm();
    for (size_t i = 0; i < script->count; i++) {
        if (script->steps[i](&l, &err) != 0) {
            break;
        }
    }
    store_close(l.store);
    sweep_disarm();
    check_afresh(&l, true, "afresh");
    sweep_remove(l.path);
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
        sweep(name, run_script, &(struct script){life_steps, life_step_count, 0});
        snprintf(name, sizeof name, "%s: and the store is left", kinds[kind]);
        sweep(name, run_and_leave, &(struct script){life_steps, life_step_count, 0});
        if (kind != VFS_IO_ERROR && kind != VFS_DISK_FULL) {
            continue; /* 4 MiB of log for each run: only where it may teach something */
        }
        snprintf(name, sizeof name, "%s: checkpoint", kinds[kind]);
        sweep(name, run_script, &(struct script){log_copied, sizeof log_copied / sizeof log_copied[0], 4});
    }
    return sweep_end();
}
