/* The log's VFS on top of one that counts, and fails on demand, the writes to a log. */
#include "store/sqlite_wal_vfs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static sqlite3_vfs counting_vfs;
static sqlite3_io_methods counting_methods;
static const sqlite3_io_methods *real_methods; /* of a log's file, as the default VFS gives them */
static int writes;
static int largest;
static bool fail;
static int zero_writes; /* what makes the file longer */
static bool fail_zero_writes;

static bool all_zero(const char *bytes, int count)
{
    return bytes[0] == 0 && memcmp(bytes, bytes + 1, (size_t)count - 1) == 0;
}

static int counting_write(sqlite3_file *file, const void *bytes, int count, sqlite3_int64 at)
{
    if (all_zero(bytes, count)) {
        zero_writes++;
        return fail_zero_writes ? SQLITE_FULL : real_methods->xWrite(file, bytes, count, at);
    }
    writes++;
    largest = count > largest ? count : largest;
    return fail ? SQLITE_FULL : real_methods->xWrite(file, bytes, count, at);
}

static int counting_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *file, int flags, int *out_flags)
{
    sqlite3_vfs *real = sqlite3_vfs_find(NULL);
    (void)vfs;
    int rc = real->xOpen(real, name, file, flags, out_flags);
    if (rc == SQLITE_OK && (flags & SQLITE_OPEN_WAL) != 0) {
        real_methods = file->pMethods;
        counting_methods = *real_methods;
        counting_methods.xWrite = counting_write;
        file->pMethods = &counting_methods;
    }
    return rc;
}

struct world {
    char folder[64];
    char path[96];
    sqlite3 *db;
};

static void run(sqlite3 *db, const char *sql)
{
    char *message = NULL;
    if (sqlite3_exec(db, sql, NULL, NULL, &message) != SQLITE_OK) {
        fail_msg("%s: %s", sql, message);
    }
}

static int64_t number(sqlite3 *db, const char *sql)
{
    sqlite3_stmt *st;
    assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &st, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(st), SQLITE_ROW);
    int64_t value = sqlite3_column_int64(st, 0);
    sqlite3_finalize(st);
    return value;
}

static sqlite3 *connect(const char *path, const char *vfs)
{
    sqlite3 *db;
    assert_int_equal(sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, vfs), SQLITE_OK);
    run(db, "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA wal_autocheckpoint=0");
    return db;
}

static int set_up(void **state)
{
    struct world *w = calloc(1, sizeof *w);
    assert_non_null(w);
    snprintf(w->folder, sizeof w->folder, "/tmp/hapax-wal-vfs-XXXXXX");
    assert_non_null(mkdtemp(w->folder));
    snprintf(w->path, sizeof w->path, "%s/t.db", w->folder);
    fail = fail_zero_writes = false;
    w->db = connect(w->path, "wal-over-counting");
    run(w->db, "CREATE TABLE t (n INTEGER PRIMARY KEY, text TEXT)");
    writes = 0;
    largest = 0;
    zero_writes = 0;
    *state = w;
    return 0;
}

static int tear_down(void **state)
{
    struct world *w = *state;
    char command[128];
    sqlite3_close(w->db);
    snprintf(command, sizeof command, "rm -r %s", w->folder);
    assert_int_equal(system(command), 0);
    free(w);
    return 0;
}

#define ROWS(n)                                                                                              \
    "INSERT INTO t (text) WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < " #n ") " \
    "SELECT printf('%0400d', i) FROM c"

static void a_commit_of_many_pages_is_one_write(void **state)
{
    struct world *w = *state;
    run(w->db, ROWS(200)); /* 80 KB: over 20 pages */
    assert_int_equal(writes, 1);
    assert_true(largest > 20 * 4096);
    assert_int_equal(number(w->db, "SELECT count(*) FROM t"), 200);
}

static void no_write_is_larger_than_the_base_takes(void **state)
{
    struct world *w = *state;
    run(w->db, ROWS(20000)); /* 8 MB */
    assert_true(largest < 128 * 1024);
    assert_true(writes < 100);
    assert_int_equal(number(w->db, "SELECT sum(length(text)) FROM t"), 20000 * 400);
}

static void another_connection_sees_what_was_committed(void **state)
{
    struct world *w = *state;
    sqlite3 *other = connect(w->path, NULL);
    run(w->db, ROWS(100));
    assert_int_equal(number(other, "SELECT count(*) FROM t"), 100);
    run(w->db, "BEGIN; " ROWS(100));
    assert_int_equal(number(other, "SELECT count(*) FROM t"), 100);
    run(w->db, "COMMIT");
    assert_int_equal(number(other, "SELECT count(*) FROM t"), 200);
    sqlite3_close(other);
}

static void a_transaction_larger_than_the_cache_reads_back_its_own_pages(void **state)
{
    struct world *w = *state;
    run(w->db, "PRAGMA cache_size=5; BEGIN; " ROWS(3000));
    assert_int_equal(number(w->db, "SELECT count(*) FROM t WHERE length(text) = 400"), 3000);
    run(w->db, "UPDATE t SET text = 'x' || n; COMMIT");
    assert_int_equal(number(w->db, "SELECT count(*) FROM t WHERE text = 'x' || n"), 3000);
    run(w->db, "PRAGMA wal_checkpoint(TRUNCATE)");
    assert_int_equal(number(w->db, "SELECT count(*) FROM t WHERE text = 'x' || n"), 3000);
    sqlite3 *other = connect(w->path, NULL);
    assert_int_equal(
        number(other, "SELECT count(*) FROM pragma_integrity_check WHERE integrity_check = 'ok'"), 1);
    sqlite3_close(other);
}

static void a_write_that_fails_fails_the_commit_and_nothing_else(void **state)
{
    struct world *w = *state;
    run(w->db, ROWS(10));
    fail = true;
    assert_int_equal(sqlite3_exec(w->db, ROWS(50), NULL, NULL, NULL), SQLITE_FULL);
    fail = false;
    assert_int_equal(number(w->db, "SELECT count(*) FROM t"), 10);
    run(w->db, ROWS(7));
    sqlite3 *other = connect(w->path, NULL);
    assert_int_equal(number(other, "SELECT count(*) FROM t"), 17);
    sqlite3_close(other);
}

static int64_t log_bytes(const struct world *w)
{
    char path[112];
    snprintf(path, sizeof path, "%s-wal", w->path);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    return st.st_size;
}

static void the_log_grows_in_steps(void **state)
{
    struct world *w = *state;
    assert_int_equal(log_bytes(w), 256 * 1024);
    int grown = 0;
    int64_t before = log_bytes(w);
    for (int i = 0; i < 200; i++) { /* at least a page each: 800 KB and more */
        run(w->db, ROWS(1));
        int64_t now = log_bytes(w);
        assert_int_equal(now % (256 * 1024), 0);
        grown += now != before;
        before = now;
    }
    assert_in_range(grown, 3, 10);
    assert_true(zero_writes > 0);
    sqlite3 *other = connect(w->path, NULL); /* recovers nothing, and reads up to the last frame */
    assert_int_equal(number(other, "SELECT count(*) FROM t"), 200);
    sqlite3_close(other);
}

static void zeros_end_the_log_that_is_recovered(void **state)
{
    struct world *w = *state;
    run(w->db, ROWS(100));
    /* As after a crash: the files as they are now, without the index in shared memory. */
    char command[512];
    snprintf(command, sizeof command, "cp %s %s.2 && cp %s-wal %s.2-wal", w->path, w->path, w->path, w->path);
    assert_int_equal(system(command), 0);
    char path[112];
    snprintf(path, sizeof path, "%s.2", w->path);
    sqlite3 *recovered = connect(path, NULL);
    assert_int_equal(number(recovered, "SELECT count(*) FROM t"), 100);
    run(recovered, ROWS(5));
    assert_int_equal(number(recovered, "SELECT count(*) FROM t"), 105);
    sqlite3_close(recovered);
}

static void a_log_that_cannot_grow_ahead_takes_commits_all_the_same(void **state)
{
    struct world *w = *state;
    fail_zero_writes = true;
    for (int i = 0; i < 100; i++) {
        run(w->db, ROWS(10));
    }
    assert_true(log_bytes(w) % (256 * 1024) != 0);
    assert_int_equal(number(w->db, "SELECT count(*) FROM t"), 1000);
    fail_zero_writes = false;
    run(w->db, ROWS(1));
    assert_int_equal(log_bytes(w) % (256 * 1024), 0);
}

/* What another process made longer is not written to a second time. */
static void a_log_that_is_long_enough_stays_as_it_is(void **state)
{
    struct world *w = *state;
    sqlite3 *other = connect(w->path, "wal-over-counting");
    run(other, ROWS(400));
    run(w->db, ROWS(1));
    int64_t bytes = log_bytes(w);
    zero_writes = 0;
    run(other, ROWS(1));
    run(w->db, ROWS(1));
    assert_int_equal(zero_writes, 0);
    assert_int_equal(log_bytes(w), bytes);
    assert_int_equal(number(other, "SELECT count(*) FROM t"), 403);
    sqlite3_close(other);
}

int main(void)
{
    counting_vfs = *sqlite3_vfs_find(NULL);
    counting_vfs.pNext = NULL;
    counting_vfs.zName = "counting";
    counting_vfs.xOpen = counting_open;
    if (sqlite3_vfs_register(&counting_vfs, 0) != SQLITE_OK ||
        sqlite_wal_vfs_register("wal-over-counting", &counting_vfs) != SQLITE_OK) {
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_commit_of_many_pages_is_one_write, set_up, tear_down),
        cmocka_unit_test_setup_teardown(no_write_is_larger_than_the_base_takes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(another_connection_sees_what_was_committed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_transaction_larger_than_the_cache_reads_back_its_own_pages, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_write_that_fails_fails_the_commit_and_nothing_else, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(the_log_grows_in_steps, set_up, tear_down),
        cmocka_unit_test_setup_teardown(zeros_end_the_log_that_is_recovered, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_log_that_cannot_grow_ahead_takes_commits_all_the_same, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_log_that_is_long_enough_stays_as_it_is, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
