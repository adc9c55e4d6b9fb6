/* Connecting: open, check whose file it is, migrate, set up; notice when the file under a handle was replaced
 * or the connection broke, and connect anew. A handle whose file has gone does not make a new one:
 * that store would have forgotten every key. */
#include "store/sqlite.h"

#include "base/error.h"
#include "sqlite_schema_sql.h"
#include "store/schemes.h"
#include "store/sqlite_wal_vfs.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define BUSY_MS_DEFAULT 5000
#define BUSY_STEP_US    100 /* the first sleep between two tries for a lock; then 2, 3, ... times as long */
#define BUSY_STEPS_MAX  20
/* Not larger: a commit in which a tree's node was split makes SQLite walk its whole cache. What is not in it is in the
 * system's. Enough for the inner nodes of tens of millions of identities. */
#define CACHE_KIB      8192
#define LOG_BYTES_KEPT (192 << 20) /* the log's file is cut to this when it starts over */

/* migrations[v] takes a database from version v to v + 1. Only ever appended to. */
static const char *const migrations[SQLITE_SCHEMA_VERSION] = {sqlite_schema_sql};

/* Wait a little for a lock; give up after busy_ms. Short sleeps: another process's commit takes less
 * than a millisecond. */
static int wait_for_lock(void *ctx, int tries)
{
    struct sqlite_store *s = ctx;
    if (tries == 0) {
        s->waited_us = 0;
    }
    if (s->waited_us / 1000 >= s->busy_ms) {
        return 0;
    }
    int64_t us = BUSY_STEP_US * (tries < BUSY_STEPS_MAX ? tries + 1 : BUSY_STEPS_MAX);
    struct timespec pause = {.tv_sec = 0, .tv_nsec = us * 1000};
    nanosleep(&pause, NULL);
    s->waited_us += us;
    return 1;
}

static void finalize(struct sqlite_store *s)
{
    for (size_t i = 0; i < SQL_COUNT; i++) {
        sqlite3_finalize(s->statements[i]);
        s->statements[i] = NULL;
    }
}

static void disconnect(struct sqlite_store *s)
{
    finalize(s);
    /* The hook's context goes with the log: no commit may follow. */
    sqlite3_close(s->db);
    s->db = NULL;
    s->broken = s->in_doubt = false;
    sqlite_log_detach(s);
}

static int execute(struct sqlite_store *s, const char *sql, hapax_error *err)
{
    int rc = sqlite3_exec(s->db, sql, NULL, NULL, NULL);
    return rc == SQLITE_OK ? 0 : sqlite_fail(s, rc, err);
}

static int read_pragma(struct sqlite_store *s, const char *sql, int64_t *out, hapax_error *err)
{
    sqlite3_stmt *st = NULL;
    int rc = sqlite3_prepare_v2(s->db, sql, -1, &st, NULL);
    if (rc == SQLITE_OK) {
        rc = sqlite3_step(st);
    }
    int code = 0;
    if (rc == SQLITE_ROW) {
        *out = sqlite3_column_int64(st, 0);
    } else {
        code = sqlite_fail(s, rc, err);
    }
    sqlite3_finalize(st);
    return code;
}

/* Whose file is it? *version 0: nobody's yet. The application's id is read last: another process may create the
 * store between two of these, and its id on a file that looked fresh is no contradiction. */
static int read_version(struct sqlite_store *s, int64_t *version, hapax_error *err)
{
    int64_t application = 0;
    int64_t changes = 0;
    int code = read_pragma(s, "PRAGMA user_version", version, err);
    if (code == 0) {
        code = read_pragma(s, "PRAGMA schema_version", &changes, err);
    }
    if (code == 0) {
        code = read_pragma(s, "PRAGMA application_id", &application, err);
    }
    if (code != 0) {
        return code;
    }
    bool fresh = application == 0 && *version == 0 && changes == 0;
    if (!fresh && application != SQLITE_APPLICATION_ID) {
        return error_set(err, HAPAX_E_STORE, 0,
                         "%.150s: a database of another application; name a file of its own", s->path);
    }
    if (*version > SQLITE_SCHEMA_VERSION) {
        return error_set(
            err, HAPAX_E_STORE_VERSION, 0,
            "%.120s: written by a newer hapax (schema %lld, this one knows %d); upgrade this one", s->path,
            (long long)*version, SQLITE_SCHEMA_VERSION);
    }
    return 0;
}

static int migrate_from(struct sqlite_store *s, int64_t version, hapax_error *err)
{
    int code = 0;
    for (; code == 0 && version < SQLITE_SCHEMA_VERSION; version++) {
        code = execute(s, migrations[version], err);
    }
    if (code == 0) {
        char sql[96];
        snprintf(sql, sizeof sql, "PRAGMA application_id = %d; PRAGMA user_version = %d;",
                 SQLITE_APPLICATION_ID, SQLITE_SCHEMA_VERSION);
        code = execute(s, sql, err);
    }
    return code;
}

/* In one transaction, and the version is read again inside: of two processes that start at once the second
 * finds the work done. */
static int migrate(struct sqlite_store *s, hapax_error *err)
{
    int code = execute(s, "BEGIN IMMEDIATE", err);
    if (code != 0) {
        return code;
    }
    int64_t version = 0;
    code = read_version(s, &version, err);
    if (code == 0 && version < SQLITE_SCHEMA_VERSION) {
        code = migrate_from(s, version, err);
    }
    if (code == 0) {
        code = execute(s, "COMMIT", err);
    }
    if (code != 0) {
        hapax_error ignored;
        execute(s, "ROLLBACK", &ignored);
    }
    return code;
}

/* The switch to a log asks for the whole file, and SQLite does not wait for that by itself. */
static int use_log(struct sqlite_store *s, hapax_error *err)
{
    int rc;
    int tries = 0;
    do {
        rc = sqlite3_exec(s->db, "PRAGMA journal_mode = WAL", NULL, NULL, NULL);
    } while ((rc & 0xff) == SQLITE_BUSY && wait_for_lock(s, tries++));
    return rc == SQLITE_OK ? 0 : sqlite_fail(s, rc, err);
}

static int set_up(struct sqlite_store *s, hapax_error *err)
{
    sqlite3_extended_result_codes(s->db, 1);
    sqlite3_busy_handler(s->db, wait_for_lock, s);
    int64_t version = 0;
    int code = read_version(s, &version, err);
    if (code != 0) {
        return code;
    }
    s->found_version = version;
    if (s->read_only && version < SQLITE_SCHEMA_VERSION) {
        return error_set(err, HAPAX_E_STORE, 0,
                         "%.150s: holds no store yet, or an older one; start hapax serve once", s->path);
    }
    /* page_size counts in a fresh file only. secure_delete FAST: zero what was deleted where that writes no further
     * page. No spilling: what is written before a commit and then rolled back would stay gathered (sqlite_wal_vfs.h).
     * No auto_vacuum: its pointer pages would be written by every commit that takes or frees a page;
     * freed pages are used again instead, and VACUUM is there for who wants the file smaller. */
    char sql[352];
    snprintf(sql, sizeof sql,
             "PRAGMA page_size = %d; PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 0; PRAGMA "
             "secure_delete = FAST; PRAGMA cache_spill = OFF;"
             "PRAGMA cache_size = -%d; PRAGMA temp_store = MEMORY; PRAGMA journal_size_limit = %d;",
             SQLITE_PAGE_BYTES, CACHE_KIB, LOG_BYTES_KEPT);
    code = execute(s, sql, err);
    if (code == 0 && !s->read_only) {
        code = use_log(s, err);
    }
    if (code == 0 && version < SQLITE_SCHEMA_VERSION) {
        code = migrate(s, err);
    }
    return code;
}

static int note_file(struct sqlite_store *s, hapax_error *err)
{
    struct stat st;
    if (stat(s->path, &st) != 0) {
        return error_set(err, HAPAX_E_STORE, errno, "%.150s: %.60s", s->path, strerror(errno));
    }
    s->device = st.st_dev;
    s->inode = st.st_ino;
    return 0;
}

/* A new file is its owner's alone, since it will hold answers; the log takes its mode from it. Made without being
 * opened: closing a descriptor would drop the locks that another handle of this process has just taken. */
static int make_file(const struct sqlite_store *s, hapax_error *err)
{
    if (mknod(s->path, S_IFREG | S_IRUSR | S_IWUSR, 0) == 0 || errno == EEXIST) {
        return 0;
    }
    return error_set(err, HAPAX_E_STORE, errno,
                     "%.120s: can't be created (%.60s); is its folder there, and may you write to it?",
                     s->path, strerror(errno));
}

#define WAL_VFS "hapax-wal"

static pthread_once_t wal_vfs_once = PTHREAD_ONCE_INIT;
static int wal_vfs_rc;

static void register_wal_vfs(void)
{
    wal_vfs_rc = sqlite_wal_vfs_register(WAL_VFS, NULL);
}

static int connect(struct sqlite_store *s, bool create, hapax_error *err)
{
    int code = create && !s->read_only ? make_file(s, err) : 0;
    if (code != 0) {
        return code;
    }
    int flags = SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_PRIVATECACHE | SQLITE_OPEN_EXRESCODE;
    flags |= s->read_only ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE;
    flags |= create && !s->read_only ? SQLITE_OPEN_CREATE : 0;
    pthread_once(&wal_vfs_once, register_wal_vfs);
    int rc = wal_vfs_rc == SQLITE_OK ? sqlite3_open_v2(s->path, &s->db, flags, WAL_VFS) : wal_vfs_rc;
    code = rc == SQLITE_OK ? 0 : sqlite_fail(s, rc, err);
    if (code == 0) {
        code = set_up(s, err);
    }
    if (code == 0) {
        code = note_file(s, err);
    }
    if (code == 0) {
        code = sqlite_log_attach(s, err);
    }
    if (code == 0 && s->owner_text[0] != '\0' && !s->read_only) {
        code = sqlite_owner_number(s, err);
    }
    if (code != 0) {
        disconnect(s);
    }
    return code;
}

static bool same_file(const struct sqlite_store *s)
{
    struct stat st;
    return stat(s->path, &st) == 0 && st.st_dev == s->device && st.st_ino == s->inode;
}

/* A commit that failed may stand in the log all the same, up to its last frame: whoever opens the file with nobody
 * else there recovers the log and finds it committed, though it was reported as failed. As long as a connection
 * stays, its index of the log holds, which does not name those frames, and the next commit writes over them. So the
 * old connection goes when there is a new one, never before. */
static int replace_connection(struct sqlite_store *s, hapax_error *err)
{
    finalize(s);
    struct sqlite_store old = *s;
    s->db = NULL;
    s->log = NULL;
    s->broken = s->in_doubt = false;
    int code = connect(s, false, err);
    if (code == 0 || code == HAPAX_E_STORE_CORRUPT) {
        disconnect(&old); /* with what is damaged, only starting anew can help */
    } else {
        s->db = old.db;
        s->log = old.log;
        s->broken = s->in_doubt = true;
    }
    return code;
}

int sqlite_usable(struct sqlite_store *s, hapax_error *err)
{
    bool same = s->db != NULL && same_file(s);
    if (same && !s->broken) {
        return 0;
    }
    if (same && s->in_doubt && sqlite3_get_autocommit(s->db)) {
        return replace_connection(s, err);
    }
    disconnect(s);
    return connect(s, false, err);
}

int sqlite_refuse_read_only(const struct sqlite_store *s, hapax_error *err)
{
    return s->read_only
               ? error_set(err, HAPAX_E_UNSUPPORTED, 0, "%.150s: was opened for reading only", s->path)
               : 0;
}

static void sqlite_close(struct store *store)
{
    struct sqlite_store *s = sqlite_of(store);
    disconnect(s);
    free(s->path);
    free(s);
}

static const struct store_backend backend = {
    .version = STORE_VERSION,
    .capabilities = STORE_SHARED,
    .name = "sqlite",
    .apply = sqlite_apply,
    .sweep = sqlite_sweep,
    .abandon = sqlite_abandon,
    .register_owner = sqlite_register_owner,
    .owners = sqlite_owners,
    .forget_owner = sqlite_forget_owner,
    .list = sqlite_list,
    .stats = sqlite_stats,
    .generation = sqlite_generation,
    .maintain = sqlite_maintain,
    .close = sqlite_close,
};

/* The whole path, owned by the caller: a process that changes its directory later keeps its store, and SQLite
 * never takes "file:..." or ":memory:" for something else than a name. */
static int whole_path(char **out, const char *name, hapax_error *err)
{
    char *directory = name[0] != '/' ? getcwd(NULL, 0) : strdup("");
    if (directory == NULL) {
        return errno == ENOMEM ? error_code(err, HAPAX_E_MEMORY)
                               : error_set(err, HAPAX_E_STORE, errno, "%.150s: the current directory: %.60s",
                                           name, strerror(errno));
    }
    size_t bytes = strlen(directory) + strlen(name) + 2;
    *out = malloc(bytes);
    if (*out != NULL) {
        snprintf(*out, bytes, "%s%s%s", directory, name[0] != '/' ? "/" : "", name);
    }
    free(directory);
    return *out != NULL ? 0 : error_code(err, HAPAX_E_MEMORY);
}

int sqlite_open(struct store **out, const char *rest, const struct store_options *options, hapax_error *err)
{
    if (rest[0] == '\0') {
        return error_set(err, HAPAX_E_ARGUMENT, 0,
                         "sqlite: needs a path, as in sqlite:/var/lib/hapax/hapax.db");
    }
    struct sqlite_store *s = calloc(1, sizeof *s);
    if (s == NULL) {
        return error_code(err, HAPAX_E_MEMORY);
    }
    int code = whole_path(&s->path, rest, err);
    if (code != 0) {
        free(s);
        return code;
    }
    s->store.backend = &backend;
    s->busy_ms = options->busy_ms > 0 ? options->busy_ms : BUSY_MS_DEFAULT;
    s->read_only = options->read_only;
    hapax_error scratch;
    code = connect(s, true, err != NULL ? err : &scratch);
    if (code != 0) {
        sqlite_close(&s->store);
        return code;
    }
    *out = &s->store;
    return 0;
}

int sqlite_migrate(const char *rest, const struct store_options *options, struct store_migration *m,
                   hapax_error *err)
{
    if (m->sql != NULL || m->role != NULL) {
        return error_set(
            err, HAPAX_E_UNSUPPORTED, 0,
            "an SQLite store knows no roles and migrates when it is opened: leave --role and --print out");
    }
    struct store *s = NULL;
    int code = sqlite_open(&s, rest, options, err);
    if (code == 0) {
        m->before = (long)sqlite_of(s)->found_version;
        m->after = SQLITE_SCHEMA_VERSION;
        store_close(s);
    }
    return code;
}

void sqlite_tune_process(void)
{
    sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0); /* refused once SQLite is in use: then all stays as it was */
}
