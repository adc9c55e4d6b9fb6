#include "store/sqlite_gather.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* SQLite's unix VFS takes at most 17 bits of a length. */
enum { GATHER_BYTES_MAX = (128 << 10) - 1 };

/* The log's file; the base VFS's own structure lies behind it. */
struct gather_file {
    sqlite3_file file;
    char *bytes;      /* gathered; allocated at the first write */
    sqlite3_int64 at; /* where in the file they belong */
    int count;
};

static sqlite3_file *base_of(sqlite3_file *file)
{
    return (sqlite3_file *)((struct gather_file *)file + 1);
}

/* After an error nothing is gathered any more: what could not be written belongs to a commit that fails. */
static int hand_on(sqlite3_file *file)
{
    struct gather_file *g = (struct gather_file *)file;
    if (g->count == 0) {
        return SQLITE_OK;
    }
    int count = g->count;
    g->count = 0;
    return base_of(file)->pMethods->xWrite(base_of(file), g->bytes, count, g->at);
}

static int gather_write(sqlite3_file *file, const void *bytes, int count, sqlite3_int64 at)
{
    struct gather_file *g = (struct gather_file *)file;
    bool follows = g->count > 0 && at == g->at + g->count && count <= GATHER_BYTES_MAX - g->count;
    if (!follows) {
        int rc = hand_on(file);
        if (rc != SQLITE_OK) {
            return rc;
        }
        if (g->bytes == NULL) {
            g->bytes = malloc(GATHER_BYTES_MAX);
        }
        if (g->bytes == NULL || count > GATHER_BYTES_MAX) {
            return base_of(file)->pMethods->xWrite(base_of(file), bytes, count, at);
        }
        g->at = at;
    }
    memcpy(g->bytes + g->count, bytes, (size_t)count);
    g->count += count;
    return SQLITE_OK;
}

static int gather_sync(sqlite3_file *file, int flags)
{
    int rc = hand_on(file);
    return rc != SQLITE_OK ? rc : base_of(file)->pMethods->xSync(base_of(file), flags);
}

static int gather_read(sqlite3_file *file, void *bytes, int count, sqlite3_int64 at)
{
    int rc = hand_on(file);
    return rc != SQLITE_OK ? rc : base_of(file)->pMethods->xRead(base_of(file), bytes, count, at);
}

static int gather_truncate(sqlite3_file *file, sqlite3_int64 size)
{
    int rc = hand_on(file);
    return rc != SQLITE_OK ? rc : base_of(file)->pMethods->xTruncate(base_of(file), size);
}

static int gather_size(sqlite3_file *file, sqlite3_int64 *size)
{
    int rc = hand_on(file);
    return rc != SQLITE_OK ? rc : base_of(file)->pMethods->xFileSize(base_of(file), size);
}

static int gather_close(sqlite3_file *file)
{
    int rc = hand_on(file);
    int closed = base_of(file)->pMethods->xClose(base_of(file));
    free(((struct gather_file *)file)->bytes);
    file->pMethods = NULL;
    return rc != SQLITE_OK ? rc : closed;
}

static int gather_lock(sqlite3_file *file, int level)
{
    return base_of(file)->pMethods->xLock(base_of(file), level);
}

static int gather_unlock(sqlite3_file *file, int level)
{
    return base_of(file)->pMethods->xUnlock(base_of(file), level);
}

static int gather_check_lock(sqlite3_file *file, int *out)
{
    return base_of(file)->pMethods->xCheckReservedLock(base_of(file), out);
}

static int gather_control(sqlite3_file *file, int op, void *arg)
{
    return base_of(file)->pMethods->xFileControl(base_of(file), op, arg);
}

static int gather_sector(sqlite3_file *file)
{
    return base_of(file)->pMethods->xSectorSize(base_of(file));
}

static int gather_device(sqlite3_file *file)
{
    return base_of(file)->pMethods->xDeviceCharacteristics(base_of(file));
}

/* Version 1: a log is neither mapped nor does it carry the shared memory. */
static const sqlite3_io_methods methods = {
    .iVersion = 1,
    .xClose = gather_close,
    .xRead = gather_read,
    .xWrite = gather_write,
    .xTruncate = gather_truncate,
    .xSync = gather_sync,
    .xFileSize = gather_size,
    .xLock = gather_lock,
    .xUnlock = gather_unlock,
    .xCheckReservedLock = gather_check_lock,
    .xFileControl = gather_control,
    .xSectorSize = gather_sector,
    .xDeviceCharacteristics = gather_device,
};

static int gather_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *file, int flags, int *out_flags)
{
    sqlite3_vfs *base = vfs->pAppData;
    if ((flags & SQLITE_OPEN_WAL) == 0) {
        return base->xOpen(base, name, file, flags, out_flags);
    }
    struct gather_file *g = (struct gather_file *)file;
    *g = (struct gather_file){.file.pMethods = NULL};
    int rc = base->xOpen(base, name, base_of(file), flags, out_flags);
    if (rc == SQLITE_OK) {
        g->file.pMethods = &methods;
    } else if (base_of(file)->pMethods != NULL) {
        base_of(file)->pMethods->xClose(base_of(file));
    }
    return rc;
}

static sqlite3_vfs *under(sqlite3_vfs *vfs)
{
    return vfs->pAppData;
}

static int gather_delete(sqlite3_vfs *vfs, const char *name, int sync_folder)
{
    return under(vfs)->xDelete(under(vfs), name, sync_folder);
}

static int gather_access(sqlite3_vfs *vfs, const char *name, int flags, int *out)
{
    return under(vfs)->xAccess(under(vfs), name, flags, out);
}

static int gather_full_path(sqlite3_vfs *vfs, const char *name, int room, char *out)
{
    return under(vfs)->xFullPathname(under(vfs), name, room, out);
}

static int gather_randomness(sqlite3_vfs *vfs, int count, char *out)
{
    return under(vfs)->xRandomness(under(vfs), count, out);
}

static int gather_sleep(sqlite3_vfs *vfs, int microseconds)
{
    return under(vfs)->xSleep(under(vfs), microseconds);
}

static int gather_time(sqlite3_vfs *vfs, double *out)
{
    return under(vfs)->xCurrentTime(under(vfs), out);
}

static int gather_last_error(sqlite3_vfs *vfs, int count, char *out)
{
    return under(vfs)->xGetLastError(under(vfs), count, out);
}

/* No xDl*: the store loads no extensions. */
int sqlite_gather_register(const char *name, sqlite3_vfs *base)
{
    base = base != NULL ? base : sqlite3_vfs_find(NULL);
    sqlite3_vfs *vfs = base == NULL ? NULL : malloc(sizeof *vfs);
    if (vfs == NULL) {
        return SQLITE_NOMEM;
    }
    *vfs = (sqlite3_vfs){
        .iVersion = 1,
        .szOsFile = base->szOsFile + (int)sizeof(struct gather_file),
        .mxPathname = base->mxPathname,
        .zName = name,
        .pAppData = base,
        .xOpen = gather_open,
        .xDelete = gather_delete,
        .xAccess = gather_access,
        .xFullPathname = gather_full_path,
        .xRandomness = gather_randomness,
        .xSleep = gather_sleep,
        .xCurrentTime = gather_time,
        .xGetLastError = gather_last_error,
    };
    return sqlite3_vfs_register(vfs, 0);
}
