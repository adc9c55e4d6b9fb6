/* What happens to a SQLite store: kills, damage, locks, full disks, files that go away, a log under pressure; and
 * that the same handle works once the cause has gone. The rules of a store are in tests/conformance. */
#include "sqlite_support.h"

#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

/* The child claims whole batches of 20 until it is killed. */
static void claim_for_ever(const struct files *f)
{
    struct store *s = NULL;
    if (store_open(&s, f->uri, NULL, NULL) != 0) {
        _exit(1);
    }
    for (int batch = 0;; batch++) {
        struct store_op ops[20];
        struct store_op *list[20];
        char names[20][24];
        for (int i = 0; i < 20; i++) {
            snprintf(names[i], sizeof names[i], "%d/%d", batch, i);
            ops[i] = op_of(STORE_CLAIM, names[i]);
            list[i] = &ops[i];
        }
        if (store_apply(s, list, 20, T0, NULL) != 0) {
            _exit(1);
        }
    }
}

static void a_killed_process_leaves_whole_batches_only(void **state)
{
    const struct files *f = *state;
    store_close(opened(f, 0));
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        claim_for_ever(f);
    }
    struct store *s = opened(f, 0);
    struct store_stats stats = {0};
    while (stats.running < 400) { /* until it is in full swing */
        assert_int_equal(s->backend->stats(s, &stats, NULL), 0);
        assert_int_equal(waitpid(child, NULL, WNOHANG), 0);
    }
    kill(child, SIGKILL);
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    store_close(s);

    s = opened(f, 0);
    assert_int_equal(s->backend->stats(s, &stats, NULL), 0);
    assert_true(stats.running >= 400);
    assert_int_equal(stats.running % 20, 0);
    char name[24];
    snprintf(name, sizeof name, "%d/19", (int)(stats.running / 20) - 1);
    assert_int_equal(state_of(s, name), RECORD_RUNNING);
    assert_int_equal(claim(s, "goes on", NULL), 0);
    store_close(s);
    sqlite3 *db = other(f->path);
    sqlite3_stmt *st = NULL;
    assert_int_equal(sqlite3_prepare_v2(db, "PRAGMA integrity_check", -1, &st, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(st), SQLITE_ROW);
    assert_string_equal((const char *)sqlite3_column_text(st, 0), "ok");
    sqlite3_finalize(st);
    sqlite3_close(db);
}

static void damaged_pages_are_an_error_and_a_repaired_file_works_again(void **state)
{
    const struct files *f = *state;
    struct store *s = opened(f, 0);
    for (int i = 0; i < 200; i++) {
        char name[16];
        snprintf(name, sizeof name, "k%d", i);
        assert_int_equal(claim(s, name, NULL), 0);
    }
    store_close(s);
    struct stat st;
    assert_int_equal(stat(f->path, &st), 0);
    char copy[160];
    snprintf(copy, sizeof copy, "%s/other.db", f->directory);
    char command[400];
    snprintf(command, sizeof command, "cp %s %s", f->path, copy);
    assert_int_equal(system(command), 0);

    overwrite(f->path, SQLITE_PAGE_BYTES, (size_t)st.st_size - SQLITE_PAGE_BYTES, "\xa5garbage", 0);
    hapax_error err = {0};
    int code = store_open(&s, f->uri, NULL, &err);
    if (code == 0) {
        code = claim(s, "k1", &err);
        assert_int_equal(code, HAPAX_E_STORE_CORRUPT);
        assert_int_equal(rename(copy, f->path), 0);
        assert_int_equal(state_of(s, "k1"), RECORD_RUNNING);
        assert_int_equal(claim(s, "new", NULL), 0);
        store_close(s);
    }
    assert_int_equal(code, HAPAX_E_STORE_CORRUPT);
    assert_int_equal(err.code, HAPAX_E_STORE_CORRUPT);
}

static void a_record_that_makes_no_sense_is_an_error_of_its_batch_only(void **state)
{
    static const char *const damages[] = {
        "UPDATE ended SET state = 9",
        "UPDATE ended SET state = 0",
        "UPDATE ended SET state = 1",
        "UPDATE ended SET digest = x'0102'",
        "UPDATE ended SET digest = zeroblob(16)",
        "UPDATE ended SET digest = CAST(digest || x'00' AS BLOB)",
        "UPDATE ended SET fingerprint = zeroblob(15)",
        "UPDATE ended SET fingerprint = zeroblob(17)",
        "UPDATE ended SET fingerprint = NULL",
        "UPDATE ended SET fingerprint_version = 256",
        "UPDATE ended SET attempt = 0",
        "UPDATE ended SET attempt = 4294967296",
        "UPDATE ended SET owner = -1",
        "UPDATE ended SET status = 70000",
        "UPDATE ended SET status = NULL",
        "UPDATE ended SET kept = 2",
        "UPDATE ended SET head = zeroblob(70000)",
        "DELETE FROM ended",
        "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET sql = rtrim(sql, ' STRICT') WHERE name = "
        "'ended';"
        "PRAGMA writable_schema = RESET; UPDATE ended SET head = 'text'",
    };
    const struct files *f = *state;
    struct store *s = opened(f, 0);
    for (size_t i = 0; i < sizeof damages / sizeof damages[0]; i++) {
        char name[16];
        snprintf(name, sizeof name, "d%zu", i);
        done(s, name);
        sqlite3 *db = other(f->path);
        sql(db, "PRAGMA ignore_check_constraints = ON");
        sql(db, damages[i]);
        sqlite3_close(db);
        struct store_op ops[] = {op_of(STORE_CLAIM, "innocent"), op_of(STORE_CLAIM, name)};
        struct store_op *list[] = {&ops[0], &ops[1]};
        ops[1].want_answer = true;
        hapax_error err = {0};
        if (store_apply(s, list, 2, T0, &err) != HAPAX_E_STORE_CORRUPT) {
            fail_msg("not noticed: %s", damages[i]);
        }
        assert_int_equal(err.code, HAPAX_E_STORE_CORRUPT);
        assert_null(ops[1].answer);
        assert_int_equal(state_of(s, "innocent"), RECORD_ABSENT);
        sql_at(f->path, "DELETE FROM ended; DELETE FROM identity");
    }
    /* The same for one that runs. */
    assert_int_equal(claim(s, "r", NULL), 0);
    sql_at(f->path, "UPDATE running SET fingerprint = x'00'");
    struct store_op op = op_of(STORE_CLAIM, "r");
    assert_int_equal(apply(s, &op, NULL), HAPAX_E_STORE_CORRUPT);
    store_close(s);
}

static void a_lock_of_another_process_is_waited_for_then_reported(void **state)
{
    const struct files *f = *state;
    struct store *s = opened(f, 30);
    sqlite3 *db = other(f->path);
    sql(db, "BEGIN IMMEDIATE");
    hapax_error err = {0};
    assert_int_equal(claim(s, "k", &err), HAPAX_E_STORE);
    assert_non_null(strstr(err.message, "locked by another process"));
    assert_int_equal(err.system & 0xff, SQLITE_BUSY);
    assert_int_equal(state_of(s, "k"), RECORD_ABSENT); /* readers do not wait */
    uint32_t n = 0;
    assert_int_equal(s->backend->sweep(s, T0, 5, &n, &err), HAPAX_E_STORE);
    sql(db, "COMMIT");
    assert_int_equal(claim(s, "k", &err), 0);
    sqlite3_close(db);
    store_close(s);
}

static void *let_go(void *db)
{
    sqlite3_sleep(20);
    sqlite3_exec(db, "COMMIT", NULL, NULL, NULL);
    return NULL;
}

static void a_lock_is_waited_for_however_long_the_caller_allows(void **state)
{
    const struct files *f = *state;
    struct store *s = opened(f, INT64_MAX);
    sqlite3 *db = other(f->path);
    sql(db, "BEGIN IMMEDIATE");
    pthread_t holder;
    assert_int_equal(pthread_create(&holder, NULL, let_go, db), 0);
    assert_int_equal(claim(s, "k", NULL), 0);
    pthread_join(holder, NULL);
    sqlite3_close(db);
    store_close(s);
}

static int64_t mono_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000) + t.tv_nsec / 1000000;
}

static void each_wait_for_a_lock_has_its_whole_time(void **state)
{
    enum { BUSY_MS = 50 };
    const struct files *f = *state;
    struct store *s = opened(f, BUSY_MS);
    sqlite3 *db = other(f->path);
    sql(db, "BEGIN IMMEDIATE");
    for (int i = 0; i < 2; i++) {
        int64_t start = mono_ms();
        assert_int_equal(claim(s, "k", NULL), HAPAX_E_STORE);
        assert_true(mono_ms() - start >= BUSY_MS - 1); /* both are rounded down */
    }
    sqlite3_close(db);
    store_close(s);
}

static void a_slice_of_the_sweep_is_bounded_by_bytes_too(void **state)
{
    const struct files *f = *state;
    struct store *s = opened(f, 0);
    char *body = calloc(1, 3 << 20);
    assert_non_null(body);
    struct answer *a = answer_make(200, true, SLICE_LITERAL(""), slice_of(body, 3 << 20));
    free(body);
    assert_non_null(a);
    static const char *const names[] = {"a", "b", "c"};
    for (int i = 0; i < 3; i++) {
        struct store_op op = op_of(STORE_CLAIM, names[i]);
        assert_int_equal(apply(s, &op, NULL), 0);
        op.kind = STORE_COMPLETE;
        op.fence = op.found.fence;
        op.answer = a;
        assert_int_equal(apply(s, &op, NULL), 0);
    }
    answer_drop(a);
    static const uint32_t slices[] = {2, 1, 0};
    for (int i = 0; i < 3; i++) {
        uint32_t removed = 9;
        assert_int_equal(s->backend->sweep(s, T0 + 86400000, 100, &removed, NULL), 0);
        assert_int_equal(removed, slices[i]);
    }
    store_close(s);
}

static void a_registration_that_fails_leaves_the_one_before(void **state)
{
    struct files *f = *state;
    struct store *s = opened(f, 20);
    uint64_t number = 0;
    uint64_t second = 0;
    hapax_error err;
    assert_int_equal(s->backend->register_owner(s, "first", &number, NULL), 0);
    sqlite3 *db = other(f->path);
    sql(db, "BEGIN IMMEDIATE");
    assert_int_equal(s->backend->register_owner(s, "second", &second, &err), HAPAX_E_STORE);
    sql(db, "ROLLBACK");
    sql(db, "CREATE TRIGGER full BEFORE INSERT ON owner BEGIN SELECT RAISE(ROLLBACK, 'full'); END");
    assert_int_not_equal(s->backend->register_owner(s, "second", &second, &err), 0);
    sql(db, "DROP TRIGGER full");
    sqlite3_close(db);
    struct store_op op = op_of(STORE_CLAIM, "k");
    assert_int_equal(apply(s, &op, &err), 0);
    assert_int_equal(op.found.owner, number);
    store_close(s);
}

static void a_full_disk_is_told_apart_and_recovered_from(void **state)
{
    const struct files *f = *state;
    struct store *s = opened(f, 0);
    done(s, "before");
    sqlite3 *db = sqlite_of(s)->db;
    sql(db, "PRAGMA max_page_count = 30");
    struct answer *large = answer_alloc(200, true, 0, 1 << 20);
    memset(large->data, 'x', 1 << 20);
    struct store_op op = op_of(STORE_CLAIM, "k");
    assert_int_equal(apply(s, &op, NULL), 0);
    op.kind = STORE_COMPLETE;
    op.fence = op.found.fence;
    op.answer = large;
    hapax_error err = {0};
    for (int i = 0; i < 3; i++) {
        struct store_op claimed = op_of(STORE_CLAIM, "other");
        struct store_op *list[] = {&claimed, &op};
        assert_int_equal(store_apply(s, list, 2, T0, &err), HAPAX_E_STORE_FULL);
        assert_non_null(strstr(err.message, "full"));
        assert_int_equal(state_of(s, "k"), RECORD_RUNNING);
        assert_int_equal(state_of(s, "other"), RECORD_ABSENT);
    }
    sql(db, "PRAGMA max_page_count = 100000");
    assert_int_equal(apply(s, &op, NULL), 0);
    assert_int_equal(op.result, STORE_APPLIED);
    answer_drop(large);
    assert_int_equal(state_of(s, "before"), RECORD_DONE);
    store_close(s);
}

static void a_serial_that_leaves_none_to_follow_is_damage(void **state)
{
    const struct files *f = *state;
    struct store *s = opened(f, 0);
    sql_at(f->path, "UPDATE meta SET value = 9223372036854775807 WHERE name = 'serial_floor'");
    assert_int_equal(claim(s, "k", NULL), HAPAX_E_STORE_CORRUPT);
    sql_at(f->path, "UPDATE meta SET value = 0 WHERE name = 'serial_floor'");
    assert_int_equal(claim(s, "k", NULL), 0);
    store_close(s);
}

static int refuse_rollback(void *ctx, int action, const char *what, const char *b, const char *c,
                           const char *d)
{
    (void)ctx;
    (void)b;
    (void)c;
    (void)d;
    return action == SQLITE_TRANSACTION && strcmp(what, "ROLLBACK") == 0 ? SQLITE_DENY : SQLITE_OK;
}

static void a_connection_that_can_not_roll_back_is_used_no_more(void **state)
{
    const struct files *f = *state;
    struct store *s = opened(f, 0);
    done(s, "damaged");
    sql_at(f->path, "UPDATE ended SET attempt = 0");
    assert_int_equal(sqlite3_set_authorizer(sqlite_of(s)->db, refuse_rollback, NULL), SQLITE_OK);
    struct store_op ops[] = {op_of(STORE_CLAIM, "innocent"), op_of(STORE_CLAIM, "damaged")};
    struct store_op *list[] = {&ops[0], &ops[1]};
    assert_int_equal(store_apply(s, list, 2, T0, NULL), HAPAX_E_STORE_CORRUPT);
    assert_int_equal(state_of(s, "innocent"), RECORD_ABSENT);
    assert_int_equal(claim(s, "innocent", NULL), 0);
    store_close(s);
}

/* The same by the system's word: writes beyond the limit of a process fail. */
static void a_file_size_limit_is_recovered_from(void **state)
{
    const struct files *f = *state;
    store_close(opened(f, 0));
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct store *s = opened(f, 0);
        signal(SIGXFSZ, SIG_IGN);
        char command[200];
        snprintf(command, sizeof command, "prlimit --pid %d --fsize=65536:unlimited", (int)getpid());
        if (system(command) != 0) {
            _exit(3);
        }
        int failed = 0;
        char name[16];
        for (int i = 0; i < 100; i++) {
            snprintf(name, sizeof name, "k%d", i);
            hapax_error err = {0};
            struct store_op op = op_of(STORE_CLAIM, name);
            int code = apply(s, &op, &err);
            failed += code != 0;
            if (code != 0 && code != HAPAX_E_STORE && code != HAPAX_E_STORE_FULL) {
                _exit(4);
            }
        }
        snprintf(command, sizeof command, "prlimit --pid %d --fsize=unlimited", (int)getpid());
        if (failed == 0 || system(command) != 0) {
            _exit(5);
        }
        struct store_op op = op_of(STORE_CLAIM, "after");
        _exit(apply(s, &op, NULL) == 0 && op.result == STORE_APPLIED ? 0 : 6);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    struct store *s = opened(f, 0);
    assert_int_equal(state_of(s, "after"), RECORD_RUNNING);
    store_close(s);
}

static void a_file_that_has_gone_is_an_error_until_it_is_back(void **state)
{
    const struct files *f = *state;
    struct store *s = opened(f, 0);
    uint64_t owner = 0;
    assert_int_equal(s->backend->register_owner(s, "me", &owner, NULL), 0);
    assert_int_equal(claim(s, "k", NULL), 0);
    char moved[160];
    snprintf(moved, sizeof moved, "%s/other.db", f->directory);
    sql_at(f->path, "PRAGMA wal_checkpoint(TRUNCATE)");
    assert_int_equal(rename(f->path, moved), 0);
    hapax_error err = {0};
    assert_int_equal(claim(s, "k2", &err), HAPAX_E_STORE);
    assert_non_null(strstr(err.message, f->path));
    assert_int_equal(access(f->path, F_OK), -1); /* no new store that has forgotten everything */
    uint64_t generation = 0;
    assert_int_equal(s->backend->generation(s, &generation, &err), HAPAX_E_STORE);
    assert_int_equal(rename(moved, f->path), 0);
    assert_int_equal(claim(s, "k2", &err), 0);
    assert_int_equal(state_of(s, "k"), RECORD_RUNNING);
    struct store_op op = op_of(STORE_LOOKUP, "k2");
    assert_int_equal(apply(s, &op, NULL), 0);
    assert_int_equal(op.found.owner, owner);
    store_close(s);
}

/* By another process, while the store is open: a copy that was put back, say. */
static void a_file_that_was_replaced_is_the_store_from_then_on(void **state)
{
    const struct files *f = *state;
    struct files put = *f;
    snprintf(put.path, sizeof put.path, "%s/other.db", f->directory);
    snprintf(put.uri, sizeof put.uri, "sqlite:%s", put.path);
    struct store *s = opened(&put, 0);
    uint64_t number = 0;
    assert_int_equal(s->backend->register_owner(s, "a", &number, NULL), 0);
    assert_int_equal(s->backend->register_owner(s, "b", &number, NULL), 0);
    assert_int_equal(claim(s, "there", NULL), 0);
    store_close(s);

    s = opened(f, 0);
    assert_int_equal(s->backend->register_owner(s, "me", &number, NULL), 0);
    assert_int_equal(claim(s, "gone", NULL), 0);
    static const char *const beside[] = {"-wal", "-shm"};
    for (int i = 0; i < 2; i++) {
        char path[160];
        snprintf(path, sizeof path, "%s%s", f->path, beside[i]);
        assert_int_equal(unlink(path), 0);
    }
    assert_int_equal(rename(put.path, f->path), 0);
    assert_int_equal(claim(s, "new", NULL), 0);
    assert_int_equal(state_of(s, "there"), RECORD_RUNNING);
    assert_int_equal(state_of(s, "gone"), RECORD_ABSENT);

    struct store *second = opened(f, 0);
    struct store_op op = op_of(STORE_LOOKUP, "new");
    assert_int_equal(apply(second, &op, NULL), 0);
    assert_int_equal(op.found.state, RECORD_RUNNING);
    assert_int_equal(second->backend->register_owner(second, "me", &number, NULL), 0);
    assert_int_equal(op.found.owner, number); /* known there, too: or nobody would find its claims */
    store_close(second);
    store_close(s);
}

struct maintainer {
    pthread_t thread;
    const char *uri;
    _Atomic(int) stop;
    int failures;
};

static void *maintain(void *ctx)
{
    struct maintainer *m = ctx;
    struct store *s = NULL;
    m->failures = store_open(&s, m->uri, NULL, NULL) != 0;
    while (s != NULL && !m->stop) {
        bool more = false;
        m->failures += s->backend->maintain(s, &more, NULL) != 0;
        if (!more) {
            struct timespec pause = {.tv_nsec = 20000000};
            nanosleep(&pause, NULL);
        }
    }
    store_close(s);
    return NULL;
}

/* Megabytes of answers go through; the log must start over again and again. */
static void write_much(struct store *s, int rounds)
{
    struct answer *a = answer_alloc(200, true, 0, 256 << 10);
    memset(a->data, 'x', 256 << 10);
    for (int i = 0; i < rounds; i++) {
        struct store_op ops[8];
        struct store_op *list[8];
        char names[8][24];
        for (int k = 0; k < 8; k++) {
            snprintf(names[k], sizeof names[k], "%d/%d", i, k);
            ops[k] = op_of(STORE_CLAIM, names[k]);
            list[k] = &ops[k];
        }
        assert_int_equal(store_apply(s, list, 8, T0, NULL), 0);
        for (int k = 0; k < 8; k++) {
            ops[k].kind = STORE_COMPLETE;
            ops[k].fence = ops[k].found.fence;
            ops[k].answer = a;
            ops[k].ttl_ms = 1;
        }
        assert_int_equal(store_apply(s, list, 8, T0, NULL), 0);
        uint32_t removed = 0;
        assert_int_equal(s->backend->sweep(s, T0 + 1, 8, &removed, NULL), 0);
        assert_int_equal(removed, 8);
    }
    answer_drop(a);
}

static void the_log_stays_bounded_under_a_writer_that_never_pauses(void **state)
{
    const struct files *f = *state;
    struct store *s = opened(f, 0);
    struct maintainer m = {.uri = f->uri};
    assert_int_equal(pthread_create(&m.thread, NULL, maintain, &m), 0);
    write_much(s, 250);
    m.stop = 1;
    pthread_join(m.thread, NULL);
    assert_int_equal(m.failures, 0);
    char wal[160];
    snprintf(wal, sizeof wal, "%s-wal", f->path);
    struct stat st;
    assert_int_equal(stat(wal, &st), 0);
    assert_true(st.st_size < 208 << 20);
    assert_int_equal(stat(f->path, &st), 0);
    assert_true(st.st_size < 32 << 20); /* what the sweep freed is used again */
    store_close(s);
}

static void the_log_stays_bounded_where_nobody_maintains(void **state)
{
    const struct files *f = *state;
    struct store *s = opened(f, 0);
    write_much(s, 250);
    char wal[160];
    snprintf(wal, sizeof wal, "%s-wal", f->path);
    struct stat st;
    assert_int_equal(stat(wal, &st), 0);
    assert_true(st.st_size < 208 << 20);
    store_close(s);
}

/* As after hundreds of megabytes. */
static void let_log_look_long(struct store *s)
{
    atomic_store(&sqlite_of(s)->log->frames, 1 << 20);
}

/* What is done while another connection copies the log. */
struct meanwhile {
    struct store *s;
    bool maintains; /* else it claims */
    int times;
    int code;
    int64_t took_ms;
};

static int go_on_meanwhile(void *ctx, int tries)
{
    struct meanwhile *m = ctx;
    bool more = false;
    int64_t start = mono_ms();
    (void)tries;
    let_log_look_long(m->s);
    m->times++;
    m->code = m->maintains ? m->s->backend->maintain(m->s, &more, NULL) : claim(m->s, "k", NULL);
    m->took_ms = mono_ms() - start;
    return 0;
}

/* That connection has the right to copy, and asks again and again for the lock that a third one has. */
static void while_another_copies(const struct files *f, struct meanwhile *m)
{
    m->s = opened(f, 1);
    assert_int_equal(claim(m->s, "before", NULL), 0);
    sqlite3 *writer = other(f->path);
    sqlite3 *copier = other(f->path);
    sql(writer, "BEGIN IMMEDIATE");
    sql(copier, "SELECT name FROM meta"); /* or it does not know yet that there is a log */
    sqlite3_busy_handler(copier, go_on_meanwhile, m);
    sqlite3_wal_checkpoint_v2(copier, NULL, SQLITE_CHECKPOINT_FULL, NULL, NULL);
    assert_int_equal(m->times, 1);
    sqlite3_close(copier);
    sqlite3_close(writer);
    assert_int_equal(claim(m->s, "after", NULL), 0);
    store_close(m->s);
}

static void a_log_that_another_process_copies_is_left_to_it(void **state)
{
    struct meanwhile m = {.maintains = true};
    while_another_copies(*state, &m);
    assert_int_equal(m.code, 0);
}

/* Or it would grow for ever. Until then, or for a second. */
static void a_commit_waits_until_a_log_past_its_bound_has_been_copied(void **state)
{
    struct meanwhile m = {.maintains = false};
    while_another_copies(*state, &m);
    assert_int_equal(m.code, HAPAX_E_STORE); /* the third one's lock */
    assert_true(m.took_ms >= 900);
}

static void a_log_that_can_not_be_copied_is_an_error_of_maintenance(void **state)
{
    const struct files *f = *state;
    struct store *s = opened(f, 0);
    assert_int_equal(claim(s, "k", NULL), 0);
    let_log_look_long(s);
    bool more = false;
    hapax_error err = {0};
    sqlite3_interrupt(sqlite_of(s)->db);
    assert_int_equal(s->backend->maintain(s, &more, &err), HAPAX_E_STORE);
    assert_int_equal(err.system & 0xff, SQLITE_INTERRUPT);
    assert_int_equal(s->backend->maintain(s, &more, &err), 0);
    store_close(s);
}

/* Small records by the ten thousand, while another thread copies the log: what a fresh handle reads, partly from the
 * log and partly from pages just copied, is what was written. */
static void records_are_read_whole_while_the_log_is_copied(void **state)
{
    enum { ROUNDS = 900, WIDTH = 64 };
    const struct files *f = *state;
    struct store *s = opened(f, 0);
    struct maintainer m = {.uri = f->uri};
    assert_int_equal(pthread_create(&m.thread, NULL, maintain, &m), 0);
    struct answer *a = answer_alloc(200, true, 0, 40);
    memset(a->data, 'x', 40);
    static struct store_op ops[WIDTH];
    static char names[WIDTH][24];
    struct store_op *list[WIDTH];
    uint64_t random = 7;
    for (int i = 0; i < ROUNDS; i++) {
        for (int k = 0; k < WIDTH; k++) {
            snprintf(names[k], sizeof names[k], "%d/%d", i, k);
            ops[k] = op_of(STORE_CLAIM, names[k]);
            list[k] = &ops[k];
        }
        assert_int_equal(store_apply(s, list, WIDTH, T0, NULL), 0);
        for (int k = 0; k < WIDTH; k++) {
            ops[k].kind = STORE_COMPLETE;
            ops[k].fence = ops[k].found.fence;
            ops[k].answer = a;
        }
        assert_int_equal(store_apply(s, list, WIDTH, T0, NULL), 0);
        struct store *fresh = i % 30 == 29 ? opened(f, 0) : NULL;
        for (int k = 0; fresh != NULL && k < 200; k++) {
            random = random * 6364136223846793005ULL + 1442695040888963407ULL;
            char name[24];
            snprintf(name, sizeof name, "%d/%d", (int)((random >> 33) % (unsigned)(i + 1)),
                     (int)(random >> 58));
            assert_int_equal(state_of(fresh, name), RECORD_DONE);
        }
        store_close(fresh);
    }
    answer_drop(a);
    m.stop = 1;
    pthread_join(m.thread, NULL);
    assert_int_equal(m.failures, 0);
    store_close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FILE_TEST(a_killed_process_leaves_whole_batches_only),
        FILE_TEST(damaged_pages_are_an_error_and_a_repaired_file_works_again),
        FILE_TEST(a_record_that_makes_no_sense_is_an_error_of_its_batch_only),
        FILE_TEST(a_lock_of_another_process_is_waited_for_then_reported),
        FILE_TEST(a_lock_is_waited_for_however_long_the_caller_allows),
        FILE_TEST(each_wait_for_a_lock_has_its_whole_time),
        FILE_TEST(a_slice_of_the_sweep_is_bounded_by_bytes_too),
        FILE_TEST(a_registration_that_fails_leaves_the_one_before),
        FILE_TEST(a_full_disk_is_told_apart_and_recovered_from),
        FILE_TEST(a_serial_that_leaves_none_to_follow_is_damage),
        FILE_TEST(a_connection_that_can_not_roll_back_is_used_no_more),
        FILE_TEST(a_file_size_limit_is_recovered_from),
        FILE_TEST(a_file_that_has_gone_is_an_error_until_it_is_back),
        FILE_TEST(a_file_that_was_replaced_is_the_store_from_then_on),
        FILE_TEST(the_log_stays_bounded_under_a_writer_that_never_pauses),
        FILE_TEST(the_log_stays_bounded_where_nobody_maintains),
        FILE_TEST(a_log_that_another_process_copies_is_left_to_it),
        FILE_TEST(a_commit_waits_until_a_log_past_its_bound_has_been_copied),
        FILE_TEST(a_log_that_can_not_be_copied_is_an_error_of_maintenance),
        FILE_TEST(records_are_read_whole_while_the_log_is_copied),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
