/* What the tests of the SQLite store share: a directory of its own for each test, short ways to claim and
 * look up, and a connection as another program would have it. */
#ifndef STORE_SQLITE_SUPPORT_H
#define STORE_SQLITE_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/digest.h"
#include "store/sqlite.h"
#include "store/store.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define T0 INT64_C(1700000000000)

struct files {
    char directory[64];
    char path[128];
    char uri[160];
};

static inline int setup(void **state)
{
    struct files *f = calloc(1, sizeof *f);
    assert_non_null(f);
    memcpy(f->directory, "/tmp/hapax-sqlite-XXXXXX", 25);
    assert_non_null(mkdtemp(f->directory));
    snprintf(f->path, sizeof f->path, "%s/hapax.db", f->directory);
    snprintf(f->uri, sizeof f->uri, "sqlite:%s", f->path);
    *state = f;
    return 0;
}

static inline int teardown(void **state)
{
    struct files *f = *state;
    static const char *const names[] = {"hapax.db", "hapax.db-wal", "hapax.db-shm", "other.db"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[160];
        snprintf(path, sizeof path, "%s/%s", f->directory, names[i]);
        unlink(path);
    }
    assert_int_equal(rmdir(f->directory), 0);
    free(f);
    return 0;
}

static inline struct store *opened(const struct files *f, int64_t busy_ms)
{
    struct store_options options = {.busy_ms = busy_ms};
    struct store *s = NULL;
    hapax_error err = {0};
    if (store_open(&s, f->uri, &options, &err) != 0) {
        fail_msg("%s", err.message);
    }
    return s;
}

static inline struct identity id_of(const char *name)
{
    uint8_t digest[DIGEST_BYTES];
    digest_sha256(digest, slice_text(name));
    struct identity id;
    memcpy(id.bytes, digest, IDENTITY_BYTES);
    return id;
}

static inline struct store_op op_of(enum store_op_kind kind, const char *name)
{
    return (struct store_op){.kind = kind,
                             .id = id_of(name),
                             .scope = SLICE_LITERAL("test"),
                             .key = slice_text(name),
                             .fingerprint = {.version = 1},
                             .lease_ms = 30000,
                             .ttl_ms = 86400000};
}

static inline int apply(struct store *s, struct store_op *op, hapax_error *err)
{
    struct store_op *list[] = {op};
    return store_apply(s, list, 1, T0, err);
}

static inline int claim(struct store *s, const char *name, hapax_error *err)
{
    struct store_op op = op_of(STORE_CLAIM, name);
    int code = apply(s, &op, err);
    if (code == 0) {
        assert_int_equal(op.result, STORE_APPLIED);
    }
    return code;
}

static inline void done(struct store *s, const char *name)
{
    struct store_op op = op_of(STORE_CLAIM, name);
    assert_int_equal(apply(s, &op, NULL), 0);
    assert_int_equal(op.result, STORE_APPLIED);
    struct answer *a = answer_make(200, true, SLICE_LITERAL("A: b\r\n"), SLICE_LITERAL("body"));
    op.kind = STORE_COMPLETE;
    op.fence = op.found.fence;
    op.answer = a;
    assert_int_equal(apply(s, &op, NULL), 0);
    assert_int_equal(op.result, STORE_APPLIED);
    answer_drop(a);
}

static inline enum record_state state_of(struct store *s, const char *name)
{
    struct store_op op = op_of(STORE_LOOKUP, name);
    assert_int_equal(apply(s, &op, NULL), 0);
    return op.found.state;
}

/* A connection of another program. */
static inline sqlite3 *other(const char *path)
{
    sqlite3 *db = NULL;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    return db;
}

static inline void sql(sqlite3 *db, const char *text)
{
    char *message = NULL;
    if (sqlite3_exec(db, text, NULL, NULL, &message) != SQLITE_OK) {
        fail_msg("%s: %s", text, message);
    }
}

static inline void sql_at(const char *path, const char *text)
{
    sqlite3 *db = other(path);
    sql(db, text);
    sqlite3_close(db);
}

static inline void overwrite(const char *path, off_t at, size_t len, const char *with, int flags)
{
    int fd = open(path, O_WRONLY | flags, 0600);
    assert_true(fd >= 0);
    for (size_t i = 0; i < len; i++) {
        assert_int_equal(pwrite(fd, &with[i % strlen(with)], 1, at + (off_t)i), 1);
    }
    close(fd);
}

#define FILE_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

#endif
