#include "store/sqlite_wal_vfs.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* SQLite's unix VFS takes at most 17 bits of a length. */
enum { GATHER_BYTES_MAX = (128 << 10) - 1 };

/* How far the file is made longer at a time, and in which pieces: with larger ones the kernel keeps the file in larger
 * units and then writes and counts all of a unit for each commit that touches it. */
enum { EXTEND_BYTES = 256 << 10, EXTEND_PIECE = 4 << 10 };

/* The log's file; the base VFS's own structure lies behind it. */
struct wal_file {
    sqlite3_file file;
    char *bytes;      /* gathered; allocated at the first write */
    sqlite3_int64 at; /* where in the file they belong */
    int count;
    sqlite3_int64 size; /* of the file when last seen; 0: ask */
};

static sqlite3_file *base_of(sqlite3_file *file)
{
    return (sqlite3_file *)((struct wal_file *)file + 1);
}

/* `end` is where this commit's frames end so far. Only a writer gets here, under SQLite's lock for writing, so what
 * lies behind them is nobody's: no error matters, and a size that another process changed only makes us ask. */
static void extend(struct wal_file *w, sqlite3_int64 end)
{
    static const char zeros[EXTEND_PIECE];
    sqlite3_file *base = base_of(&w->file);
    if (end <= w->size) {
        return;
    }
    if (base->pMethods->xFileSize(base, &w->size) != SQLITE_OK || end < w->size) {
        return;
    }
    sqlite3_int64 until = (end / EXTEND_BYTES + 1) * EXTEND_BYTES;
    for (int piece; end < until; end += piece) {
        piece = EXTEND_PIECE - (int)(end % EXTEND_PIECE);
        if (base->pMethods->xWrite(base, zeros, piece, end) != SQLITE_OK) {
            return;
        }
        w->size = end + piece;
    }
}

/* After an error nothing is gathered any more: what could not be written belongs to a commit that fails. */
static int hand_on(sqlite3_file *file)
{
    struct wal_file *w = (struct wal_file *)file;
    if (w->count == 0) {
        return SQLITE_OK;
    }
    int count = w->count;
    w->count = 0;
    int rc = base_of(file)->pMethods->xWrite(base_of(file), w->bytes, count, w->at);
    if (rc == SQLITE_OK) {
        extend(w, w->at + count);
    }
    return rc;
}

static int wal_write(sqlite3_file *file, const void *bytes, int count, sqlite3_int64 at)
{
    struct wal_file *w = (struct wal_file *)file;
    if (at == 0) {
        w->size = 0; /* the log starts over, and whoever did it last may have cut it: ask again */
    }
    bool follows = w->count > 0 && at == w->at + w->count && count <= GATHER_BYTES_MAX - w->count;
    if (!follows) {
        int rc = hand_on(file);
        if (rc != SQLITE_OK) {
            return rc;
        }
        if (w->bytes == NULL) {
            w->bytes = malloc(GATHER_BYTES_MAX);
        }
        if (w->bytes == NULL || count > GATHER_BYTES_MAX) {
            return base_of(file)->pMethods->xWrite(base_of(file), bytes, count, at);
        }
        w->at = at;
    }
    memcpy(w->bytes + w->count, bytes, (size_t)count);
    w->count += count;
    return SQLITE_OK;
}

static int wal_sync(sqlite3_file *file, int flags)
{
    int rc = hand_on(file);
    return rc != SQLITE_OK ? rc : base_of(file)->pMethods->xSync(base_of(file), flags);
}

static int wal_read(sqlite3_file *file, void *bytes, int count, sqlite3_int64 at)
{
    int rc = hand_on(file);
    return rc != SQLITE_OK ? rc : base_of(file)->pMethods->xRead(base_of(file), bytes, count, at);
}

static int wal_truncate(sqlite3_file *file, sqlite3_int64 size)
{
    int rc = hand_on(file);
    ((struct wal_file *)file)->size = 0; /* ask again */
    return rc != SQLITE_OK ? rc : base_of(file)->pMethods->xTruncate(base_of(file), size);
}

static int wal_size(sqlite3_file *file, sqlite3_int64 *size)
{
    int rc = hand_on(file);
    return rc != SQLITE_OK ? rc : base_of(file)->pMethods->xFileSize(base_of(file), size);
}

static int wal_close(sqlite3_file *file)
{
    /* What was not synced belongs to no commit, and the place may be another process's by now. */
    int closed = base_of(file)->pMethods->xClose(base_of(file));
    free(((struct wal_file *)file)->bytes);
    file->pMethods = NULL;
    return closed;
}

static int wal_lock(sqlite3_file *file, int level)
{
    return base_of(file)->pMethods->xLock(base_of(file), level);
}

static int wal_unlock(sqlite3_file *file, int level)
{
    return base_of(file)->pMethods->xUnlock(base_of(file), level);
}

static int wal_check_lock(sqlite3_file *file, int *out)
{
    return base_of(file)->pMethods->xCheckReservedLock(base_of(file), out);
}

static int wal_control(sqlite3_file *file, int op, void *arg)
{
    return base_of(file)->pMethods->xFileControl(base_of(file), op, arg);
}

static int wal_sector(sqlite3_file *file)
{
    return base_of(file)->pMethods->xSectorSize(base_of(file));
}

static int wal_device(sqlite3_file *file)
{
    return base_of(file)->pMethods->xDeviceCharacteristics(base_of(file));
}

/* Version 1: a log is neither mapped nor does it carry the shared memory. */
static const sqlite3_io_methods methods = {
    .iVersion = 1,
    .xClose = wal_close,
    .xRead = wal_read,
    .xWrite = wal_write,
    .xTruncate = wal_truncate,
    .xSync = wal_sync,
    .xFileSize = wal_size,
    .xLock = wal_lock,
    .xUnlock = wal_unlock,
    .xCheckReservedLock = wal_check_lock,
    .xFileControl = wal_control,
    .xSectorSize = wal_sector,
    .xDeviceCharacteristics = wal_device,
};

static int wal_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *file, int flags, int *out_flags)
{
    sqlite3_vfs *base = vfs->pAppData;
    if ((flags & SQLITE_OPEN_WAL) == 0) {
        return base->xOpen(base, name, file, flags, out_flags);
    }
    struct wal_file *w = (struct wal_file *)file;
    *w = (struct wal_file){.file.pMethods = NULL};
    int rc = base->xOpen(base, name, base_of(file), flags, out_flags);
    if (rc == SQLITE_OK) {
        w->file.pMethods = &methods;
    } else if (base_of(file)->pMethods != NULL) {
        base_of(file)->pMethods->xClose(base_of(file));
    }
    return rc;
}

static sqlite3_vfs *under(sqlite3_vfs *vfs)
{
    return vfs->pAppData;
}

static int wal_delete(sqlite3_vfs *vfs, const char *name, int sync_folder)
{
    return under(vfs)->xDelete(under(vfs), name, sync_folder);
}

static int wal_access(sqlite3_vfs *vfs, const char *name, int flags, int *out)
{
    return under(vfs)->xAccess(under(vfs), name, flags, out);
}

static int wal_full_path(sqlite3_vfs *vfs, const char *name, int room, char *out)
{
    return under(vfs)->xFullPathname(under(vfs), name, room, out);
}

static int wal_randomness(sqlite3_vfs *vfs, int count, char *out)
{
    return under(vfs)->xRandomness(under(vfs), count, out);
}

static int wal_sleep(sqlite3_vfs *vfs, int microseconds)
{
    return under(vfs)->xSleep(under(vfs), microseconds);
}

static int wal_time(sqlite3_vfs *vfs, double *out)
{
    return under(vfs)->xCurrentTime(under(vfs), out);
}

static int wal_last_error(sqlite3_vfs *vfs, int count, char *out)
{
    return under(vfs)->xGetLastError(under(vfs), count, out);
}

/* No xDl*: the store loads no extensions. */
int sqlite_wal_vfs_register(const char *name, sqlite3_vfs *base)
{
    base = base != NULL ? base : sqlite3_vfs_find(NULL);
    sqlite3_vfs *vfs = base == NULL ? NULL : malloc(sizeof *vfs);
    if (vfs == NULL) {
        return SQLITE_NOMEM;
    }
    *vfs = (sqlite3_vfs){
        .iVersion = 1,
        .szOsFile = base->szOsFile + (int)sizeof(struct wal_file),
        .mxPathname = base->mxPathname,
        .zName = name,
        .pAppData = base,
        .xOpen = wal_open,
        .xDelete = wal_delete,
        .xAccess = wal_access,
        .xFullPathname = wal_full_path,
        .xRandomness = wal_randomness,
        .xSleep = wal_sleep,
        .xCurrentTime = wal_time,
        .xGetLastError = wal_last_error,
    };
    return sqlite3_vfs_register(vfs, 0);
}
