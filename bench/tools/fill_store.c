/* Fill a new SQLite store with millions of done records: hapax_fill PATH COUNT EXPIRES_MS
 *
 * For benchmarks only: it writes the tables itself, in the order in which they lie (records by serial, then
 * identities by digest), without a journal and without syncs, which is many times as fast as claims. So it
 * must agree with sqlite_schema.sql, and a crash leaves a broken file. All records expire at EXPIRES_MS
 * (milliseconds since 1970). Prints one JSON line: how many, how long, how large. */
#include "base/clock.h"
#include "base/error.h"
#include "core/fingerprint.h"
#include "core/identity.h"
#include "store/store.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define COUNT_MAX 100000000UL
#define SCOPE     "orders POST /orders -"
#define HEAD      "Server: nginx/1.22.1\r\nContent-Type: application/json\r\n"
#define BODY      "{\"status\":\"ok\",\"id\":\"ch_000000000000\"}"

struct name {
    struct identity id;
    uint64_t serial;
};

static const char insert_ended[] =
    "INSERT INTO ended (serial, state, attempt, owner, claimed_ms, lease_ms, ended_ms, expires_ms, ttl_ms,"
    " fingerprint_version, fingerprint, digest, scope, key, status, kept, head, body)"
    " VALUES (?1, 2, 1, ?2, ?3, ?3 + 30000, ?3, ?4, ?4 - ?3, ?5, ?6, ?7, '" SCOPE "', ?8, 200, 1, ?9, ?10)";
static const char insert_identity[] = "INSERT INTO identity (digest, serial) VALUES (?1, ?2)";

static void fail(const char *what, const char *why)
{
    fprintf(stderr, "hapax_fill: %s: %s\n", what, why);
    exit(1);
}

static void check(sqlite3 *db, int rc, const char *what)
{
    if (rc != SQLITE_OK && rc != SQLITE_DONE && rc != SQLITE_ROW) {
        fail(what, sqlite3_errmsg(db));
    }
}

static void execute(sqlite3 *db, const char *sql)
{
    check(db, sqlite3_exec(db, sql, NULL, NULL, NULL), sql);
}

/* The store makes its own tables; all that is filled in belongs to one owner. */
static uint64_t make_store(const char *path)
{
    char uri[4200];
    snprintf(uri, sizeof uri, "sqlite:%s", path);
    hapax_error err = {0};
    struct store *store = NULL;
    uint64_t owner = 0;
    if (access(path, F_OK) == 0) {
        fail(path, "exists already");
    }
    if (store_open(&store, uri, NULL, &err) != 0 ||
        store->backend->register_owner(store, "fill", &owner, &err) != 0) {
        fail(path, err.message);
    }
    store_close(store);
    return owner;
}

static void show(const char *what, size_t part, size_t whole)
{
    if (part % 100000 == 0 && isatty(STDERR_FILENO)) {
        fprintf(stderr, "\r\033[K%s %zu of %zu", what, part, whole);
    }
}

static void add_record(sqlite3_stmt *st, struct name *name, size_t number)
{
    char key[64];
    snprintf(key, sizeof key, "%08x-0000-4000-8000-%012zx", 2U, number);
    hapax_error err = {0};
    if (identity_make(&name->id, slice_text(SCOPE), slice_text(key), &err) != 0) {
        fail("identity", err.message);
    }
    name->serial = number;
    uint8_t fingerprint[FINGERPRINT_BYTES] = {0};
    memcpy(fingerprint, name->id.bytes,
           FINGERPRINT_BYTES < IDENTITY_BYTES ? FINGERPRINT_BYTES : IDENTITY_BYTES);
    sqlite3_bind_int64(st, 1, (sqlite3_int64)number);
    sqlite3_bind_blob(st, 6, fingerprint, sizeof fingerprint, SQLITE_STATIC);
    sqlite3_bind_blob(st, 7, name->id.bytes, IDENTITY_BYTES, SQLITE_STATIC);
    sqlite3_bind_text(st, 8, key, -1, SQLITE_STATIC);
    check(sqlite3_db_handle(st), sqlite3_step(st), "insert into ended");
    sqlite3_reset(st);
}

static void add_records(sqlite3 *db, struct name *names, size_t count, uint64_t owner, int64_t expires_ms)
{
    sqlite3_stmt *st = NULL;
    check(db, sqlite3_prepare_v2(db, insert_ended, -1, &st, NULL), insert_ended);
    sqlite3_bind_int64(st, 2, (sqlite3_int64)owner);
    sqlite3_bind_int64(st, 3, clock_wall_ms());
    sqlite3_bind_int64(st, 4, expires_ms);
    sqlite3_bind_int(st, 5, FINGERPRINT_VERSION);
    sqlite3_bind_blob(st, 9, HEAD, (int)strlen(HEAD), SQLITE_STATIC);
    sqlite3_bind_blob(st, 10, BODY, (int)strlen(BODY), SQLITE_STATIC);
    for (size_t i = 0; i < count; i++) {
        add_record(st, &names[i], i + 1);
        show("filling: record", i + 1, count);
    }
    sqlite3_finalize(st);
}

static int compare_names(const void *a, const void *b)
{
    const struct name *x = a;
    const struct name *y = b;
    return memcmp(x->id.bytes, y->id.bytes, IDENTITY_BYTES);
}

static void add_identities(sqlite3 *db, struct name *names, size_t count)
{
    qsort(names, count, sizeof *names, compare_names);
    sqlite3_stmt *st = NULL;
    check(db, sqlite3_prepare_v2(db, insert_identity, -1, &st, NULL), insert_identity);
    for (size_t i = 0; i < count; i++) {
        sqlite3_bind_blob(st, 1, names[i].id.bytes, IDENTITY_BYTES, SQLITE_STATIC);
        sqlite3_bind_int64(st, 2, (sqlite3_int64)names[i].serial);
        check(db, sqlite3_step(st), "insert into identity");
        sqlite3_reset(st);
        show("filling: identity", i + 1, count);
    }
    sqlite3_finalize(st);
}

static void fill(const char *path, size_t count, uint64_t owner, int64_t expires_ms)
{
    struct name *names = malloc(count * sizeof *names);
    sqlite3 *db = NULL;
    if (names == NULL) {
        fail("memory", "not enough");
    }
    check(db, sqlite3_open(path, &db), path);
    execute(db, "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA locking_mode = EXCLUSIVE;"
                "PRAGMA cache_size = -65536; BEGIN");
    add_records(db, names, count, owner, expires_ms);
    add_identities(db, names, count);
    execute(db, "COMMIT; PRAGMA locking_mode = NORMAL; PRAGMA journal_mode = WAL");
    check(db, sqlite3_close(db), "close");
    free(names);
}

/* To the disk now, not while something is measured. */
static off_t sync_file(const char *path)
{
    struct stat status = {0};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fsync(fd) != 0 || fstat(fd, &status) != 0) {
        fail(path, "can't be synced");
    }
    close(fd);
    return status.st_size;
}

int main(int argc, char **argv)
{
    size_t count = argc == 4 ? strtoul(argv[2], NULL, 10) : 0;
    if (count < 1 || count > COUNT_MAX) {
        fail("usage", "hapax_fill PATH COUNT EXPIRES_MS");
    }
    int64_t start = clock_mono_ms();
    fill(argv[1], count, make_store(argv[1]), strtoll(argv[3], NULL, 10));
    off_t bytes = sync_file(argv[1]);
    if (isatty(STDERR_FILENO)) {
        fputs("\r\033[K", stderr);
    }
    printf("{\"count\": %zu, \"seconds\": %.1f, \"bytes\": %lld}\n", count,
           (double)(clock_mono_ms() - start) / 1000, (long long)bytes);
    return 0;
}
