/* Opening and migrating SQLite stores, what people see in the file, and how its statements find their rows. */
#include "sqlite_support.h"

#include <pthread.h>
#include <sys/stat.h>
#include <sys/wait.h>

static int open_code(const struct files *f, hapax_error *err)
{
    struct store *s = (struct store *)1;
    int code = store_open(&s, f->uri, &(struct store_options){.busy_ms = 100}, err);
    assert_null(s);
    assert_int_equal(err->code, code);
    return code;
}

static void a_newer_version_is_refused(void **state)
{
    const struct files *f = *state;
    store_close(opened(f, 0));
    sql_at(f->path, "PRAGMA user_version = 7");
    hapax_error err = {0};
    assert_int_equal(open_code(f, &err), HAPAX_E_STORE_VERSION);
    assert_non_null(strstr(err.message, "newer"));
    assert_non_null(strstr(err.message, f->path));
}

static void another_applications_database_is_left_alone(void **state)
{
    const struct files *f = *state;
    sql_at(f->path, "CREATE TABLE theirs (x)");
    hapax_error err = {0};
    assert_int_equal(open_code(f, &err), HAPAX_E_STORE);
    assert_non_null(strstr(err.message, "another application"));
    struct stat st;
    char wal[160];
    snprintf(wal, sizeof wal, "%s-wal", f->path);
    assert_int_equal(stat(wal, &st), -1);
    sql_at(f->path, "INSERT INTO theirs VALUES (1)");
}

static void a_file_that_is_no_database_is_corrupt(void **state)
{
    const struct files *f = *state;
    overwrite(f->path, 0, 8192, "this is no database ", O_CREAT);
    hapax_error err = {0};
    assert_int_equal(open_code(f, &err), HAPAX_E_STORE_CORRUPT);
}

static void a_directory_that_can_not_be_used_is_named(void **state)
{
    const struct files *f = *state;
    struct files wrong = *f;
    snprintf(wrong.uri, sizeof wrong.uri, "sqlite:%s/none/hapax.db", f->directory);
    hapax_error err = {0};
    assert_int_equal(open_code(&wrong, &err), HAPAX_E_STORE);
    assert_non_null(strstr(err.message, "none/hapax.db"));
    snprintf(wrong.uri, sizeof wrong.uri, "sqlite:");
    assert_int_equal(open_code(&wrong, &err), HAPAX_E_ARGUMENT);
    snprintf(wrong.uri, sizeof wrong.uri, "sqlite:%s", f->directory);
    assert_int_equal(open_code(&wrong, &err), HAPAX_E_STORE);
}

/* Root may write everywhere, so a child gives that up. */
static void a_file_that_can_not_be_written_is_an_error(void **state)
{
    const struct files *f = *state;
    store_close(opened(f, 0));
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        chmod(f->directory, 0555);
        chmod(f->path, 0444);
        if (geteuid() == 0 && (setegid(65534) != 0 || seteuid(65534) != 0)) {
            _exit(3);
        }
        struct store *s = NULL;
        hapax_error err = {0};
        int code = store_open(&s, f->uri, NULL, &err);
        _exit(code == HAPAX_E_STORE && s == NULL && strstr(err.message, "hapax.db") != NULL ? 0 : 1);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    chmod(f->directory, 0700);
    chmod(f->path, 0600);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

struct opener {
    pthread_t thread;
    const char *uri;
    pthread_barrier_t *start;
    int code;
};

static void *open_once(void *ctx)
{
    struct opener *o = ctx;
    struct store *s = NULL;
    pthread_barrier_wait(o->start);
    o->code = store_open(&s, o->uri, NULL, NULL);
    store_close(s);
    return NULL;
}

/* Many rounds: somebody has to look at the file just while somebody else creates the store in it. */
static void several_that_open_at_once_migrate_once(void **state)
{
    const struct files *f = *state;
    pthread_barrier_t start;
    assert_int_equal(pthread_barrier_init(&start, NULL, 8), 0);
    for (int round = 0; round < 25; round++) {
        struct opener openers[8];
        for (int i = 0; i < 8; i++) {
            openers[i] = (struct opener){.uri = f->uri, .start = &start};
            assert_int_equal(pthread_create(&openers[i].thread, NULL, open_once, &openers[i]), 0);
        }
        for (int i = 0; i < 8; i++) {
            pthread_join(openers[i].thread, NULL);
        }
        for (int i = 0; i < 8; i++) {
            assert_int_equal(openers[i].code, 0);
        }
        struct store *s = opened(f, 0);
        assert_int_equal(claim(s, "k", NULL), 0);
        store_close(s);
        assert_int_equal(unlink(f->path), 0); /* the last handle has taken the log away */
    }
    pthread_barrier_destroy(&start);
}

static void processes_that_open_at_once_migrate_once(void **state)
{
    const struct files *f = *state;
    pid_t children[6];
    for (int i = 0; i < 6; i++) {
        children[i] = fork();
        assert_true(children[i] >= 0);
        if (children[i] == 0) {
            struct store *s = NULL;
            int code = store_open(&s, f->uri, NULL, NULL);
            struct store_op op = op_of(STORE_CLAIM, "one");
            if (code == 0) {
                code = apply(s, &op, NULL);
            }
            store_close(s);
            _exit(code != 0 ? 9 : op.result == STORE_APPLIED);
        }
    }
    int winners = 0;
    for (int i = 0; i < 6; i++) {
        int status = 0;
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) <= 1);
        winners += WEXITSTATUS(status);
    }
    assert_int_equal(winners, 1);
}

static void the_view_is_readable(void **state)
{
    const struct files *f = *state;
    struct store *s = opened(f, 0);
    done(s, "it's done");
    assert_int_equal(claim(s, "runs", NULL), 0);
    sqlite3 *db = other(f->path);
    sqlite3_stmt *st = NULL;
    assert_int_equal(
        sqlite3_prepare_v2(db,
                           "SELECT state, scope, key, claimed, ended, expires, status, body_bytes,"
                           " digest FROM operations ORDER BY serial",
                           -1, &st, NULL),
        SQLITE_OK);
    assert_int_equal(sqlite3_step(st), SQLITE_ROW);
    static const char *const expected[] = {"done",
                                           "test",
                                           "it's done",
                                           "2023-11-14T22:13:20.000Z",
                                           "2023-11-14T22:13:20.000Z",
                                           "2023-11-15T22:13:20.000Z",
                                           "200",
                                           "4"};
    for (int i = 0; i < 8; i++) {
        assert_string_equal((const char *)sqlite3_column_text(st, i), expected[i]);
    }
    assert_int_equal(sqlite3_column_bytes(st, 8), 2 * IDENTITY_BYTES);
    assert_int_equal(sqlite3_step(st), SQLITE_ROW);
    assert_string_equal((const char *)sqlite3_column_text(st, 0), "running");
    assert_int_equal(sqlite3_column_type(st, 4), SQLITE_NULL);
    assert_int_equal(sqlite3_step(st), SQLITE_DONE);
    sqlite3_finalize(st);
    sqlite3_close(db);
    store_close(s);
}

/* Which table a statement may walk from end to end, if any. */
static const char *may_scan(enum sqlite_statement which)
{
    switch (which) {
    case SQL_abandon_copy: /* running is what is in flight */
    case SQL_abandon_delete:
    case SQL_owner_runs:
        return "SCAN running";
    case SQL_owners:
        return "SCAN owner";
    case SQL_count_ended:
        return "SCAN ended";
    default:
        return NULL;
    }
}

static void no_statement_walks_a_table_or_sorts(void **state)
{
    const struct files *f = *state;
    struct store *s = opened(f, 0);
    sqlite3 *db = sqlite_of(s)->db;
    for (enum sqlite_statement which = SQL_last_serial; which < SQL_COUNT; which++) {
        struct slice text = sqlite_statement_text(which);
        assert_false(slice_is_none(text));
        char query[4096];
        snprintf(query, sizeof query, "EXPLAIN QUERY PLAN %.*s", SLICE_FORMAT(text));
        sqlite3_stmt *st = NULL;
        assert_int_equal(sqlite3_prepare_v2(db, query, -1, &st, NULL), SQLITE_OK);
        while (sqlite3_step(st) == SQLITE_ROW) {
            const char *step = (const char *)sqlite3_column_text(st, 3);
            const char *allowed = may_scan(which);
            bool scans = strstr(step, "SCAN") != NULL && strstr(step, "SCAN CONSTANT ROW") == NULL &&
                         strstr(step, "SCAN (subquery") == NULL;
            if (which == SQL_count_open || which == SQL_list_unknown) {
                scans = scans && strstr(step, "ended_unknown") == NULL && strcmp(step, "SCAN running") != 0;
            }
            scans = scans && !(allowed != NULL && strncmp(step, allowed, strlen(allowed)) == 0);
            if (scans || strstr(step, "TEMP B-TREE") != NULL) {
                fail_msg("%s: %s", sqlite_statement_names[which], step);
            }
        }
        sqlite3_finalize(st);
    }
    store_close(s);
}

static void names_that_sqlite_would_interpret_are_files(void **state)
{
    const struct files *f = *state;
    char before[256];
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(f->directory), 0);
    static const char *const names[] = {":memory:", "file:x?mode=memory"};
    for (int i = 0; i < 2; i++) {
        char uri[64];
        snprintf(uri, sizeof uri, "sqlite:%s", names[i]);
        struct store *s = NULL;
        assert_int_equal(store_open(&s, uri, NULL, NULL), 0);
        assert_int_equal(claim(s, "k", NULL), 0);
        store_close(s);
        assert_int_equal(unlink(names[i]), 0);
    }
    assert_int_equal(chdir(before), 0);
}

static void a_relative_path_stays_where_it_was_opened(void **state)
{
    const struct files *f = *state;
    char before[256];
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(f->directory), 0);
    struct store *s = NULL;
    assert_int_equal(store_open(&s, "sqlite:hapax.db", NULL, NULL), 0);
    assert_int_equal(chdir("/"), 0); /* as a daemon does */
    hapax_error err = {0};
    int code = claim(s, "k", &err);
    assert_int_equal(chdir(before), 0);
    assert_string_equal(err.message, "");
    assert_int_equal(code, 0);
    store_close(s);
}

static void reading_needs_a_store_that_is_there(void **state)
{
    const struct files *f = *state;
    struct store_options options = {.read_only = true};
    struct store *s = NULL;
    hapax_error err = {0};
    assert_int_equal(store_open(&s, f->uri, &options, &err), HAPAX_E_STORE);
    assert_int_equal(access(f->path, F_OK), -1);
    overwrite(f->path, 0, 0, "x", O_CREAT);
    assert_int_equal(store_open(&s, f->uri, &options, &err), HAPAX_E_STORE);
    assert_null(s);
}

static void a_new_store_is_for_its_owners_eyes(void **state)
{
    const struct files *f = *state;
    mode_t before = umask(0);
    struct store *s = opened(f, 0);
    hapax_error err = {0};
    assert_int_equal(claim(s, "k", &err), 0);
    umask(before);
    static const char *const files[] = {"", "-wal", "-shm"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char path[160];
        struct stat st;
        snprintf(path, sizeof path, "%s%s", f->path, files[i]);
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(st.st_mode & 07777, 0600);
    }
    store_close(s);
    assert_int_equal(chmod(f->path, 0640), 0); /* shared on purpose: stays so */
    store_close(opened(f, 0));
    struct stat st;
    assert_int_equal(stat(f->path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0640);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FILE_TEST(a_newer_version_is_refused),
        FILE_TEST(another_applications_database_is_left_alone),
        FILE_TEST(a_file_that_is_no_database_is_corrupt),
        FILE_TEST(a_directory_that_can_not_be_used_is_named),
        FILE_TEST(a_file_that_can_not_be_written_is_an_error),
        FILE_TEST(several_that_open_at_once_migrate_once),
        FILE_TEST(processes_that_open_at_once_migrate_once),
        FILE_TEST(the_view_is_readable),
        FILE_TEST(no_statement_walks_a_table_or_sorts),
        FILE_TEST(names_that_sqlite_would_interpret_are_files),
        FILE_TEST(a_relative_path_stays_where_it_was_opened),
        FILE_TEST(reading_needs_a_store_that_is_there),
        FILE_TEST(a_new_store_is_for_its_owners_eyes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
