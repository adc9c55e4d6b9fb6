#include "vfs.h"

#include <errno.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <stdlib.h>

/* The base VFS's own structure lies behind it. */
struct faulty_file {
    sqlite3_file file;
};

static sqlite3_vfs *base;
static enum vfs_fault chosen;
static bool keep_failing;
static long armed_with;
static _Atomic(bool) armed;
static _Atomic(bool) failed;
static _Atomic(long) left;
static _Atomic(int) system_error; /* of the last failure, as errno would be */

void vfs_choose(enum vfs_fault kind)
{
    chosen = kind;
}

void vfs_arm(long n, bool from_there_on)
{
    keep_failing = from_there_on;
    armed_with = n;
    atomic_store(&left, n);
    atomic_store(&failed, false);
    atomic_store(&armed, true);
}

bool vfs_disarm(void)
{
    atomic_store(&armed, false);
    return atomic_load(&failed);
}

long vfs_seen(void)
{
    return armed_with - atomic_load(&left);
}

/* What a call can suffer. */
enum { CAN_IO = 1, CAN_FILL = 2, CAN_LOCK = 4, CAN_BE_LATE = 8 };

static bool fails(int can)
{
    static const int needed[] = {[VFS_IO_ERROR] = CAN_IO,
                                 [VFS_DISK_FULL] = CAN_FILL,
                                 [VFS_BUSY] = CAN_LOCK,
                                 [VFS_LATE_ERROR] = CAN_BE_LATE};
    if (!atomic_load(&armed) || (can & needed[chosen]) == 0) {
        return false;
    }
    long now_left = atomic_fetch_sub(&left, 1) - 1;
    if (now_left > 0 || (now_left < 0 && !keep_failing)) {
        return false;
    }
    atomic_store(&failed, true);
    atomic_store(&system_error, chosen == VFS_DISK_FULL ? ENOSPC : EIO);
    return true;
}

static int code(int io_error)
{
    return chosen == VFS_DISK_FULL ? SQLITE_FULL : chosen == VFS_BUSY ? SQLITE_BUSY : io_error;
}

/* --- files --- */

static sqlite3_file *under(sqlite3_file *file)
{
    return (sqlite3_file *)((struct faulty_file *)file + 1);
}

static int file_close(sqlite3_file *file)
{
    return under(file)->pMethods->xClose(under(file));
}

static int file_read(sqlite3_file *file, void *bytes, int count, sqlite3_int64 at)
{
    return fails(CAN_IO) ? SQLITE_IOERR_READ : under(file)->pMethods->xRead(under(file), bytes, count, at);
}

static int file_write(sqlite3_file *file, const void *bytes, int count, sqlite3_int64 at)
{
    if (!fails(CAN_IO | CAN_FILL | CAN_BE_LATE)) {
        return under(file)->pMethods->xWrite(under(file), bytes, count, at);
    }
    int done = chosen == VFS_LATE_ERROR ? count : chosen == VFS_DISK_FULL ? count / 2 : 0;
    if (done > 0) {
        under(file)->pMethods->xWrite(under(file), bytes, done, at);
    }
    return code(SQLITE_IOERR_WRITE);
}

static int file_truncate(sqlite3_file *file, sqlite3_int64 size)
{
    return fails(CAN_IO) ? SQLITE_IOERR_TRUNCATE : under(file)->pMethods->xTruncate(under(file), size);
}

static int file_sync(sqlite3_file *file, int flags)
{
    if (!fails(CAN_IO | CAN_FILL | CAN_BE_LATE)) {
        return under(file)->pMethods->xSync(under(file), flags);
    }
    if (chosen == VFS_LATE_ERROR) {
        under(file)->pMethods->xSync(under(file), flags);
    }
    return SQLITE_IOERR_FSYNC; /* a full disk, too, shows as this: only the system's error differs */
}

static int file_size(sqlite3_file *file, sqlite3_int64 *size)
{
    return fails(CAN_IO) ? SQLITE_IOERR_FSTAT : under(file)->pMethods->xFileSize(under(file), size);
}

static int file_lock(sqlite3_file *file, int level)
{
    return fails(CAN_IO | CAN_LOCK) ? code(SQLITE_IOERR_LOCK)
                                    : under(file)->pMethods->xLock(under(file), level);
}

static int file_unlock(sqlite3_file *file, int level)
{
    return under(file)->pMethods->xUnlock(under(file), level);
}

static int file_check_lock(sqlite3_file *file, int *out)
{
    return fails(CAN_IO) ? SQLITE_IOERR_CHECKRESERVEDLOCK
                         : under(file)->pMethods->xCheckReservedLock(under(file), out);
}

static int file_control(sqlite3_file *file, int op, void *arg)
{
    return under(file)->pMethods->xFileControl(under(file), op, arg);
}

static int file_sector(sqlite3_file *file)
{
    return under(file)->pMethods->xSectorSize(under(file));
}

static int file_device(sqlite3_file *file)
{
    return under(file)->pMethods->xDeviceCharacteristics(under(file));
}

static int file_shm_map(sqlite3_file *file, int page, int bytes, int extend, void volatile **out)
{
    if (fails(CAN_IO | CAN_FILL)) {
        *out = NULL;
        return code(SQLITE_IOERR_SHMMAP);
    }
    return under(file)->pMethods->xShmMap(under(file), page, bytes, extend, out);
}

static int file_shm_lock(sqlite3_file *file, int offset, int n, int flags)
{
    if ((flags & SQLITE_SHM_LOCK) != 0 && fails(CAN_IO | CAN_LOCK)) {
        return code(SQLITE_IOERR_SHMLOCK);
    }
    return under(file)->pMethods->xShmLock(under(file), offset, n, flags);
}

static void file_shm_barrier(sqlite3_file *file)
{
    under(file)->pMethods->xShmBarrier(under(file));
}

static int file_shm_unmap(sqlite3_file *file, int delete)
{
    return under(file)->pMethods->xShmUnmap(under(file), delete);
}

/* Version 2: the store maps no database. */
static const sqlite3_io_methods methods = {
    .iVersion = 2,
    .xClose = file_close,
    .xRead = file_read,
    .xWrite = file_write,
    .xTruncate = file_truncate,
    .xSync = file_sync,
    .xFileSize = file_size,
    .xLock = file_lock,
    .xUnlock = file_unlock,
    .xCheckReservedLock = file_check_lock,
    .xFileControl = file_control,
    .xSectorSize = file_sector,
    .xDeviceCharacteristics = file_device,
    .xShmMap = file_shm_map,
    .xShmLock = file_shm_lock,
    .xShmBarrier = file_shm_barrier,
    .xShmUnmap = file_shm_unmap,
};

/* --- the folder --- */

static int open_file(sqlite3_vfs *vfs, const char *name, sqlite3_file *file, int flags, int *out_flags)
{
    (void)vfs;
    file->pMethods = NULL;
    if (fails(CAN_IO | CAN_FILL)) {
        return SQLITE_CANTOPEN;
    }
    int rc = base->xOpen(base, name, under(file), flags, out_flags);
    if (under(file)->pMethods != NULL) {
        file->pMethods = &methods;
    }
    return rc;
}

static int delete_file(sqlite3_vfs *vfs, const char *name, int sync_folder)
{
    (void)vfs;
    return fails(CAN_IO) ? SQLITE_IOERR_DELETE : base->xDelete(base, name, sync_folder);
}

static int access_file(sqlite3_vfs *vfs, const char *name, int flags, int *out)
{
    (void)vfs;
    return fails(CAN_IO) ? SQLITE_IOERR_ACCESS : base->xAccess(base, name, flags, out);
}

static int full_path(sqlite3_vfs *vfs, const char *name, int room, char *out)
{
    (void)vfs;
    return base->xFullPathname(base, name, room, out);
}

static int randomness(sqlite3_vfs *vfs, int count, char *out)
{
    (void)vfs;
    return base->xRandomness(base, count, out);
}

static int sleep_for(sqlite3_vfs *vfs, int microseconds)
{
    (void)vfs;
    /* SQLite waits ten seconds in all for a log's index that stays locked: not here. */
    return atomic_load(&armed) ? microseconds : base->xSleep(base, microseconds);
}

static int current_time(sqlite3_vfs *vfs, double *out)
{
    (void)vfs;
    return base->xCurrentTime(base, out);
}

static int last_error(sqlite3_vfs *vfs, int count, char *out)
{
    (void)vfs;
    (void)count;
    (void)out;
    return atomic_load(&armed) ? atomic_load(&system_error) : base->xGetLastError(base, count, out);
}

void vfs_register(void)
{
    static sqlite3_vfs vfs;
    base = sqlite3_vfs_find(NULL);
    vfs = (sqlite3_vfs){
        .iVersion = 1,
        .szOsFile = base->szOsFile + (int)sizeof(struct faulty_file),
        .mxPathname = base->mxPathname,
        .zName = "faulty",
        .xOpen = open_file,
        .xDelete = delete_file,
        .xAccess = access_file,
        .xFullPathname = full_path,
        .xRandomness = randomness,
        .xSleep = sleep_for,
        .xCurrentTime = current_time,
        .xGetLastError = last_error,
    };
    if (sqlite3_vfs_register(&vfs, 1) != SQLITE_OK) {
        abort();
    }
}
