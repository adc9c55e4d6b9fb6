/* Usage: store_conformance memory|sqlite|fault|postgres. The last takes the address of a server, without a database, from
 * HAPAX_TEST_POSTGRES (see tests/tools/with_postgres) and makes a database for each test, in which the store runs under a
 * role that has what `hapax migrate --role` grants and no more; without it the program says so and is skipped. */
#include "suite.h"

#include "base/digest.h"

#include <libpq-fe.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

const char *world_back_end;
/* Rules are tested here, not disks: a file system in memory will do, and spares thousands of syncs. */
static char directory[] = "/dev/shm/hapax-conformance-XXXXXX";
static char directory_elsewhere[] = "/tmp/hapax-conformance-XXXXXX";
static const char *files = directory;
static unsigned worlds;
static struct answer *answer;

static bool on_postgres(void)
{
    return strcmp(world_back_end, "postgres") == 0;
}

const struct store_options *world_options(void)
{
    static struct store_options options;
    options.caller_clock = on_postgres();
    return &options;
}

static void on_server(const char *format, unsigned world)
{
    char uri[400];
    char sql[100];
    snprintf(uri, sizeof uri, "%s/postgres", getenv("HAPAX_TEST_POSTGRES"));
    snprintf(sql, sizeof sql, format, world);
    PGconn *db = PQconnectdb(uri);
    PGresult *r = PQexec(db, sql);
    if (PQresultStatus(r) != PGRES_COMMAND_OK) {
        fail_msg("%s: %s", sql, PQerrorMessage(db));
    }
    PQclear(r);
    PQfinish(db);
}

#define ROLE "conformance"

/* Once: an empty database's tables, made by their owner. Each test gets a copy. */
static void make_tables(void)
{
    char uri[400];
    struct store_migration m = {.role = ROLE, .from = -1};
    hapax_error err = {0};
    on_server("CREATE ROLE " ROLE " LOGIN", 0);
    on_server("CREATE DATABASE tables", 0);
    snprintf(uri, sizeof uri, "%s/tables", getenv("HAPAX_TEST_POSTGRES"));
    if (store_migrate(uri, NULL, &m, &err) != 0) {
        fail_msg("%s: %s", uri, err.message);
    }
}

static void open_or_fail(struct store **out, const char *uri)
{
    hapax_error err = {0};
    if (store_open(out, uri, world_options(), &err) != 0) {
        fail_msg("%s: %s", uri, err.message);
    }
    assert_non_null(*out);
}

int world_setup(void **state)
{
    struct world *w = calloc(1, sizeof *w);
    assert_non_null(w);
    worlds++;
    if (strcmp(world_back_end, "memory") == 0) {
        snprintf(w->uri, sizeof w->uri, "memory:w%u", worlds);
    } else if (strcmp(world_back_end, "fault") == 0) {
        snprintf(w->uri, sizeof w->uri, "fault::memory:w%u", worlds);
    } else if (on_postgres()) {
        if (worlds == 1) {
            make_tables();
        }
        on_server("CREATE DATABASE w%u TEMPLATE tables", worlds);
        snprintf(w->uri, sizeof w->uri, "%s/w%u?user=" ROLE, getenv("HAPAX_TEST_POSTGRES"), worlds);
    } else {
        snprintf(w->uri, sizeof w->uri, "sqlite:%s/w%u.db", files, worlds);
    }
    open_or_fail(&w->s, w->uri);
    *state = w;
    return 0;
}

int world_teardown(void **state)
{
    struct world *w = *state;
    store_close(w->s);
    if (strcmp(world_back_end, "sqlite") == 0) {
        static const char *const suffixes[] = {"", "-wal", "-shm"};
        for (size_t i = 0; i < 3; i++) {
            char path[600];
            snprintf(path, sizeof path, "%s%s", w->uri + strlen("sqlite:"), suffixes[i]);
            unlink(path);
        }
    }
    if (on_postgres()) {
        on_server("DROP DATABASE w%u WITH (FORCE)", (unsigned)strtoul(strrchr(w->uri, '/') + 2, NULL, 10));
    }
    free(w);
    return 0;
}

struct store *world_open(const struct world *w)
{
    struct store *s = NULL;
    open_or_fail(&s, w->uri);
    return s;
}

void world_reopen(struct world *w)
{
    struct store *keeper = NULL;
    if (strcmp(world_back_end, "sqlite") != 0) {
        keeper = world_open(w);
    }
    store_close(w->s);
    w->s = world_open(w);
    store_close(keeper);
}

struct identity id_of(const char *name)
{
    uint8_t digest[DIGEST_BYTES];
    digest_sha256(digest, slice_text(name));
    struct identity id;
    memcpy(id.bytes, digest, IDENTITY_BYTES);
    return id;
}

struct fingerprint print_of(int n)
{
    struct fingerprint f = {.version = n == 0 ? 0 : 1};
    memset(f.bytes, n, sizeof f.bytes);
    return f;
}

struct store_op op_claim(const char *name, int print)
{
    return (struct store_op){.kind = STORE_CLAIM,
                             .id = id_of(name),
                             .scope = SLICE_LITERAL("test"),
                             .key = slice_text(name),
                             .fingerprint = print_of(print),
                             .lease_ms = LEASE,
                             .ttl_ms = TTL};
}

struct store_op op_fenced(enum store_op_kind kind, const char *name, struct fence fence)
{
    return (struct store_op){.kind = kind, .id = id_of(name), .fence = fence, .lease_ms = LEASE};
}

struct store_op op_plain(enum store_op_kind kind, const char *name)
{
    return (struct store_op){.kind = kind, .id = id_of(name)};
}

struct store_op op_complete(const char *name, struct fence fence, struct answer *a)
{
    return (struct store_op){.kind = STORE_COMPLETE, .id = id_of(name), .fence = fence, .answer = a};
}

void do_ops(struct store *s, struct store_op *ops, size_t n, int64_t now)
{
    struct store_op *list[LIMIT_BATCH_OPS_MAX];
    for (size_t i = 0; i < n; i++) {
        list[i] = &ops[i];
    }
    hapax_error err = {0};
    int code = store_apply(s, list, n, now, &err);
    if (code != 0) {
        fail_msg("apply: %s: %s", hapax_error_name(code), err.message);
    }
}

void do_op(struct store *s, struct store_op *op, int64_t now)
{
    do_ops(s, op, 1, now);
}

struct fence claimed(struct store *s, const char *name, int64_t now)
{
    struct store_op op = op_claim(name, 1);
    do_op(s, &op, now);
    assert_int_equal(op.result, STORE_APPLIED);
    assert_int_equal(op.found.state, RECORD_RUNNING);
    return op.found.fence;
}

void completed(struct store *s, const char *name, struct fence fence, int64_t now)
{
    struct store_op op = op_complete(name, fence, small_answer());
    do_op(s, &op, now);
    assert_int_equal(op.result, STORE_APPLIED);
    assert_int_equal(op.found.state, RECORD_DONE);
}

struct record looked_up(struct store *s, const char *name, int64_t now)
{
    struct store_op op = op_plain(STORE_LOOKUP, name);
    do_op(s, &op, now);
    assert_int_equal(op.result, op.found.state == RECORD_ABSENT ? STORE_ABSENT : STORE_APPLIED);
    return op.found;
}

struct answer *small_answer(void)
{
    return answer;
}

void assert_same_record(const struct record *a, const struct record *b)
{
    assert_int_equal(a->state, b->state);
    assert_int_equal(a->fence.serial, b->fence.serial);
    assert_int_equal(a->fence.attempt, b->fence.attempt);
    assert_int_equal(a->fingerprint.version, b->fingerprint.version);
    assert_memory_equal(a->fingerprint.bytes, b->fingerprint.bytes, FINGERPRINT_BYTES);
    assert_int_equal(a->owner, b->owner);
    assert_int_equal(a->claimed_ms, b->claimed_ms);
    assert_int_equal(a->lease_ms, b->lease_ms);
    assert_int_equal(a->ended_ms, b->ended_ms);
    assert_int_equal(a->expires_ms, b->expires_ms);
    assert_int_equal(a->ttl_ms, b->ttl_ms);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: %s memory|sqlite|fault|postgres\n", argv[0]);
        return 2;
    }
    world_back_end = argv[1];
    if (on_postgres() && getenv("HAPAX_TEST_POSTGRES") == NULL) {
        fprintf(stderr,
                "skipped: HAPAX_TEST_POSTGRES names no server; run under tests/tools/with_postgres\n");
        return 77;
    }
    if (mkdtemp(directory) == NULL) {
        files = mkdtemp(directory_elsewhere);
    }
    if (files == NULL) {
        perror(directory_elsewhere);
        return 1;
    }
    answer = answer_make(201, true, SLICE_LITERAL("Content-Type: text/plain\r\n"), SLICE_LITERAL("made"));
    if (answer == NULL) {
        return 1;
    }
    int failed = 0;
    failed += _cmocka_run_group_tests("states", state_tests, state_test_count, NULL, NULL);
    failed += _cmocka_run_group_tests("batches", batch_tests, batch_test_count, NULL, NULL);
    failed += _cmocka_run_group_tests("answers", answer_tests, answer_test_count, NULL, NULL);
    failed += _cmocka_run_group_tests("admin", admin_tests, admin_test_count, NULL, NULL);
    failed += _cmocka_run_group_tests("handles", handle_tests, handle_test_count, NULL, NULL);
    answer_drop(answer);
    rmdir(files);
    return failed != 0;
}
