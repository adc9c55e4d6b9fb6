/* The log's way into the database.
 *
 * A commit appends pages to the log; a checkpoint copies them into the database. SQLite would do that inside some
 * unlucky commit. Here maintain() does it on a handle and thread of its own, while commits go on.
 *
 * The log starts over only when a writer finds all of it copied, which under continuous writing never
 * happens: each copy ends behind the commits made meanwhile. So when the log is long and maintain() has left
 * only little, the lane copies the rest itself just before its next transaction (sqlite_log_finish), and that
 * transaction starts the log over. Where nobody calls maintain(), the lane does it all when the log
 * has become long.
 *
 * SQLite syncs the database only after a copy that reached the log's end, so the lane's copy would sync all that
 * maintain() copied since the log began: measured, 20 to 50 ms. So maintain() syncs it first, and only then says how
 * much is copied. Not after each copy: the same pages are written again and again, and each sync slows commits. */
#include "store/sqlite.h"

#include "base/error.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

/* In frames, each a page. The lane's copy costs it syncs, all in all some ten milliseconds: once in 128 MiB of log
 * (twenty thousand operations) stays below the 99th percentile of commits, once in 32 MiB does not. maintain()
 * waits until there is a good deal to copy, since pages that were written again meanwhile are copied once. */
#define LOG_FRAMES(mib) ((mib) * (1 << 20) / SQLITE_PAGE_BYTES)
#define LOG_COPY_FROM   LOG_FRAMES(32)      /* maintain() leaves a smaller rest alone, ... */
#define LOG_FINISH_FROM LOG_FRAMES(128)     /* ... and from here on copies any, so that the lane can finish */
#define LOG_REST_SMALL  (LOG_FRAMES(1) / 2) /* what the lane then copies; more, the longer the log becomes */
#define LOG_LANE_ALONE  LOG_FRAMES(160)     /* past this the lane copies however much it is, ... */
#define LOG_STOP        LOG_FRAMES(192)     /* ... and past this it lets maintain() get ahead first */
#define LOG_STOP_MS_MAX 1000

static pthread_mutex_t logs_lock = PTHREAD_MUTEX_INITIALIZER;
static struct sqlite_log *logs;

static int after_commit(void *ctx, sqlite3 *db, const char *schema, int frames)
{
    (void)db;
    (void)schema;
    struct sqlite_log *log = ctx;
    if (frames < atomic_exchange_explicit(&log->frames, frames, memory_order_relaxed)) {
        atomic_store_explicit(&log->copied, 0, memory_order_relaxed); /* it has started over */
    }
    return SQLITE_OK;
}

int sqlite_log_attach(struct sqlite_store *s, hapax_error *err)
{
    pthread_mutex_lock(&logs_lock);
    struct sqlite_log *log = logs;
    while (log != NULL && (log->device != s->device || log->inode != s->inode)) {
        log = log->next;
    }
    if (log == NULL) {
        log = calloc(1, sizeof *log);
        if (log != NULL) {
            log->device = s->device;
            log->inode = s->inode;
            log->next = logs;
            logs = log;
        }
    }
    if (log != NULL) {
        log->handles++;
    }
    pthread_mutex_unlock(&logs_lock);
    if (log == NULL) {
        return error_code(err, HAPAX_E_MEMORY);
    }
    s->log = log;
    sqlite3_wal_hook(s->db, after_commit, log);
    return 0;
}

void sqlite_log_detach(struct sqlite_store *s)
{
    struct sqlite_log *log = s->log;
    s->log = NULL;
    if (log == NULL) {
        return;
    }
    pthread_mutex_lock(&logs_lock);
    bool last = --log->handles == 0;
    for (struct sqlite_log **at = &logs; last && *at != NULL; at = &(*at)->next) {
        if (*at == log) {
            *at = log->next;
            break;
        }
    }
    pthread_mutex_unlock(&logs_lock);
    if (last) {
        free(log);
    }
}

static int sync_database(struct sqlite_store *s)
{
    sqlite3_file *file = NULL;
    int rc = sqlite3_file_control(s->db, "main", SQLITE_FCNTL_FILE_POINTER, &file);
    return rc != SQLITE_OK ? rc : file->pMethods->xSync(file, SQLITE_SYNC_NORMAL | SQLITE_SYNC_DATAONLY);
}

/* Copy what is not held back by a reader; neither waits nor makes anybody wait. */
static int copy(struct sqlite_store *s, bool sync)
{
    int frames = -1;
    int copied = -1;
    int before = atomic_load_explicit(&s->log->frames, memory_order_relaxed);
    int rc = sqlite3_wal_checkpoint_v2(s->db, NULL, SQLITE_CHECKPOINT_PASSIVE, &frames, &copied);
    if (rc == SQLITE_OK && sync && frames >= LOG_FINISH_FROM) {
        rc = sync_database(s);
    }
    bool started_over = atomic_load_explicit(&s->log->frames, memory_order_relaxed) < before;
    if (rc == SQLITE_OK && frames >= 0 && !started_over) {
        atomic_store_explicit(&s->log->copied, copied, memory_order_relaxed);
    }
    return rc;
}

static int rest_of(const struct sqlite_log *log, int *frames)
{
    *frames = atomic_load_explicit(&log->frames, memory_order_relaxed);
    int copied = atomic_load_explicit(&log->copied, memory_order_relaxed);
    return copied <= *frames ? *frames - copied : *frames;
}

static int small_rest(int frames)
{
    return LOG_REST_SMALL + (frames > LOG_FINISH_FROM ? (frames - LOG_FINISH_FROM) / 4 : 0);
}

void sqlite_log_finish(struct sqlite_store *s)
{
    int frames;
    int rest = rest_of(s->log, &frames);
    bool nearly = frames >= LOG_FINISH_FROM && rest > 0 && rest <= small_rest(frames);
    if (!nearly && rest < LOG_LANE_ALONE && frames < LOG_STOP) {
        return;
    }
    /* A failure shows in the commit that follows, if it matters. Busy: maintain() is copying, and will be for as
     * long as commits outrun it; past the bound they have to wait, or the log would grow for ever. */
    struct timespec pause = {.tv_nsec = 1000000};
    for (int ms = 0; copy(s, false) == SQLITE_BUSY && frames >= LOG_STOP && ms < LOG_STOP_MS_MAX; ms++) {
        nanosleep(&pause, NULL);
    }
}

int sqlite_maintain(struct store *store, bool *more, hapax_error *err)
{
    struct sqlite_store *s = sqlite_of(store);
    hapax_error scratch;
    err = err != NULL ? err : &scratch;
    *more = false;
    int code = sqlite_refuse_read_only(s, err);
    if (code == 0) {
        code = sqlite_usable(s, err);
    }
    if (code != 0) {
        return code;
    }
    int frames;
    int rest = rest_of(s->log, &frames);
    if (rest < LOG_COPY_FROM && (frames < LOG_FINISH_FROM || rest <= small_rest(frames))) {
        return 0;
    }
    int rc = copy(s, true);
    if (rc == SQLITE_BUSY || rc == SQLITE_LOCKED) {
        return 0; /* another process is at it */
    }
    if (rc != SQLITE_OK) {
        return sqlite_fail(s, rc, err);
    }
    rest = rest_of(s->log, &frames);
    *more = rest >= LOG_COPY_FROM || (frames >= LOG_FINISH_FROM && rest > small_rest(frames));
    return 0;
}
