/* Preloaded into the gateway: keeps in a journal beside the store what a power cut would take away.
 *
 * Before each write to one of the store's files (POWERCUT_STORE and its -wal and -journal) what stands there is
 * appended to POWERCUT_JOURNAL; a sync of the file is noted there when it has succeeded, with the journal's length
 * at its beginning. So the journal's later writes are those that the disk may still lose, and powercut.py
 * can take any of them back, whole or in sectors. The journal outlives the process, as the page cache does: what
 * one process left unsynced is lost with the power under the next.
 *
 * Invariants: an entry stands in the journal before its write is made; journal and write are one step for
 * other threads; a sync covers only writes that were made before it began. A way to write to a
 * followed file that is not known here ends the process, rather than going unseen. Directory entries
 * count as durable at once.
 *
 * POWERCUT_LIE=log: no sync of the log is noted, as on a disk that confirms a sync and does nothing; all: of no
 * file, so that the journal holds everything that was written.
 * POWERCUT_KILL=N: the process kills itself before its N-th step (write, cut, sync, removal) on the store. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define SEEN __attribute__((visibility("default")))

enum { FDS_MAX = 1 << 16, STORE_LOG = 2, ENTRY_MAGIC = 0x54554350 };

enum entry_kind { ENTRY_WRITE = 1, ENTRY_CUT = 2, ENTRY_SYNC = 3 };

/* As it stands in the journal, followed by `kept` bytes of the file's old content from `at` on. */
struct entry {
    uint32_t magic;
    uint32_t kind;
    uint64_t file;     /* 1: the database, 2: its log, 3: its rollback journal */
    uint64_t at;       /* a write: where. A cut: the new size. A sync: the journal's length as it began */
    uint64_t bytes;    /* a write: how many */
    uint64_t old_size; /* the file's size before */
    uint64_t kept;
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const char *store;
static int journal = -1;
static bool lies_all;
static bool lies_log;
static unsigned long steps;                  /* guarded by lock */
static unsigned long kill_at;                /* 0: never */
static _Atomic unsigned char files[FDS_MAX]; /* which of the store's files a descriptor is; 0: none */

/* Nobody would see a test of nothing: what can't be followed ends the process. */
static void die(const char *what)
{
    char line[200];
    int length = snprintf(line, sizeof line, "powercut: %s (errno %d)\n", what, errno);
    syscall(SYS_write, STDERR_FILENO, line, (size_t)length);
    abort();
}

static void set_up(void)
{
    const char *path = getenv("POWERCUT_JOURNAL");
    store = getenv("POWERCUT_STORE");
    const char *lie = getenv("POWERCUT_LIE");
    lies_all = lie != NULL && strcmp(lie, "all") == 0;
    lies_log = lies_all || (lie != NULL && strcmp(lie, "log") == 0);
    const char *step = getenv("POWERCUT_KILL");
    kill_at = step != NULL ? strtoul(step, NULL, 10) : 0;
    if (lie != NULL && !lies_log) {
        die("POWERCUT_LIE is log or all");
    }
    if (store == NULL || path == NULL) {
        die("POWERCUT_STORE and POWERCUT_JOURNAL must be set");
    }
    journal = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (journal < 0) {
        die("can't open the journal");
    }
}

static int which_path(const char *path)
{
    static const char *const endings[] = {"", "-wal", "-journal"};
    pthread_once(&once, set_up);
    size_t length = strlen(store);
    if (strncmp(path, store, length) != 0) {
        return 0;
    }
    for (int i = 0; i < 3; i++) {
        if (strcmp(path + length, endings[i]) == 0) {
            return i + 1;
        }
    }
    return 0;
}

static int which(int fd)
{
    return fd >= 0 && fd < FDS_MAX ? files[fd] : 0;
}

static uint64_t size_of(int fd)
{
    struct stat st;
    if (fstat(fd, &st) != 0) {
        die("fstat");
    }
    return (uint64_t)st.st_size;
}

static void count_step(void)
{
    if (++steps == kill_at) {
        kill(getpid(), SIGKILL);
        pause(); /* never returns */
    }
}

static void note(struct entry *e, const void *old)
{
    e->magic = ENTRY_MAGIC;
    struct iovec parts[] = {{e, sizeof *e}, {(void *)(uintptr_t)old, (size_t)e->kept}};
    if (syscall(SYS_writev, journal, parts, 2) != (long)(sizeof *e + e->kept)) {
        die("can't write the journal");
    }
}

/* Keep the `count` bytes at `at`, or as many as there are. */
static void keep(enum entry_kind kind, int fd, uint64_t at, uint64_t count, uint64_t bytes)
{
    count_step();
    uint64_t size = size_of(fd);
    uint64_t there = at >= size ? 0 : size - at < count ? size - at : count;
    char *old = there > 0 ? malloc((size_t)there) : NULL;
    if (there > 0 &&
        (old == NULL || syscall(SYS_pread64, fd, old, (size_t)there, (off_t)at) != (long)there)) {
        die("can't read what is overwritten");
    }
    struct entry e = {
        .kind = kind, .file = (uint64_t)which(fd), .at = at, .bytes = bytes, .old_size = size, .kept = there};
    note(&e, old);
    free(old);
}

/* --- What SQLite and the gateway call. --- */

static int follow(int fd, int file)
{
    if (file != 0 && fd >= FDS_MAX) {
        die("a descriptor beyond the table");
    }
    if (fd >= 0 && fd < FDS_MAX) {
        files[fd] = (unsigned char)file;
    }
    return fd;
}

SEEN int openat(int folder, const char *path, int flags, ...)
{
    mode_t mode = 0;
    if ((flags & (O_CREAT | O_TMPFILE)) != 0) {
        va_list rest;
        va_start(rest, flags);
        mode = va_arg(rest, mode_t);
        va_end(rest);
    }
    int file = which_path(path);
    if (file != 0 && (flags & (O_TRUNC | O_APPEND)) != 0) {
        die("open with O_TRUNC or O_APPEND");
    }
    return follow((int)syscall(SYS_openat, folder, path, flags, mode), file);
}

SEEN int open(const char *path, int flags, ...)
{
    mode_t mode = 0;
    if ((flags & (O_CREAT | O_TMPFILE)) != 0) {
        va_list rest;
        va_start(rest, flags);
        mode = va_arg(rest, mode_t);
        va_end(rest);
    }
    return openat(AT_FDCWD, path, flags, mode);
}

SEEN int close(int fd)
{
    if (fd >= 0 && fd < FDS_MAX) {
        files[fd] = 0;
    }
    return (int)syscall(SYS_close, fd);
}

SEEN ssize_t pwrite(int fd, const void *bytes, size_t count, off_t at)
{
    if (which(fd) == 0) {
        return syscall(SYS_pwrite64, fd, bytes, count, at);
    }
    pthread_mutex_lock(&lock);
    keep(ENTRY_WRITE, fd, (uint64_t)at, count, count);
    ssize_t n = syscall(SYS_pwrite64, fd, bytes, count, at);
    pthread_mutex_unlock(&lock);
    return n;
}

SEEN int ftruncate(int fd, off_t size)
{
    if (which(fd) == 0) {
        return (int)syscall(SYS_ftruncate, fd, size);
    }
    pthread_mutex_lock(&lock);
    keep(ENTRY_CUT, fd, (uint64_t)size, UINT64_MAX, 0);
    int rc = (int)syscall(SYS_ftruncate, fd, size);
    pthread_mutex_unlock(&lock);
    return rc;
}

static int sync_with(long call, int fd)
{
    int file = which(fd);
    if (file == 0) {
        return (int)syscall(call, fd);
    }
    pthread_mutex_lock(&lock);
    count_step();
    struct entry e = {.kind = ENTRY_SYNC, .file = (uint64_t)file, .at = size_of(journal)};
    pthread_mutex_unlock(&lock);
    int rc = (int)syscall(call, fd); /* other threads go on writing meanwhile */
    if (rc == 0 && !(file == STORE_LOG ? lies_log : lies_all)) {
        pthread_mutex_lock(&lock);
        note(&e, NULL);
        pthread_mutex_unlock(&lock);
    }
    return rc;
}

SEEN int fdatasync(int fd)
{
    return sync_with(SYS_fdatasync, fd);
}

SEEN int fsync(int fd)
{
    return sync_with(SYS_fsync, fd);
}

SEEN int unlink(const char *path)
{
    int file = which_path(path);
    pthread_mutex_lock(&lock);
    if (file != 0) {
        count_step();
    }
    int rc = (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0);
    if (rc == 0 && file != 0) { /* nothing of it can be lost any more */
        struct entry e = {.kind = ENTRY_SYNC, .file = (uint64_t)file, .at = size_of(journal)};
        note(&e, NULL);
    }
    pthread_mutex_unlock(&lock);
    return rc;
}

/* --- Ways to write that SQLite does not use today. --- */

static void refuse(int fd, const char *call)
{
    if (which(fd) != 0) {
        die(call);
    }
}

SEEN ssize_t write(int fd, const void *bytes, size_t count)
{
    refuse(fd, "write() to the store");
    return syscall(SYS_write, fd, bytes, count);
}

SEEN ssize_t writev(int fd, const struct iovec *parts, int count)
{
    refuse(fd, "writev() to the store");
    return syscall(SYS_writev, fd, parts, count);
}

SEEN ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t at)
{
    refuse(fd, "pwritev() to the store");
    return syscall(SYS_pwritev, fd, parts, count, at, 0);
}

SEEN int fallocate(int fd, int mode, off_t at, off_t bytes)
{
    refuse(fd, "fallocate() on the store");
    return (int)syscall(SYS_fallocate, fd, mode, at, bytes);
}

SEEN int posix_fallocate(int fd, off_t at, off_t bytes)
{
    refuse(fd, "posix_fallocate() on the store");
    return syscall(SYS_fallocate, fd, 0, at, bytes) == 0 ? 0 : errno;
}

SEEN void *mmap(void *where, size_t bytes, int protection, int flags, int fd, off_t at)
{
    if ((flags & MAP_SHARED) != 0 && (protection & PROT_WRITE) != 0) {
        refuse(fd, "mmap() of the store for writing");
    }
    return (void *)syscall(SYS_mmap, where, bytes, protection, flags, fd, at);
}

/* The names for large files: on 64 bits the same calls. SQLite uses these. */
_Static_assert(sizeof(off_t) == 8, "64 bits only");
SEEN int open64(const char *path, int flags, ...) __attribute__((alias("open")));
SEEN int openat64(int folder, const char *path, int flags, ...) __attribute__((alias("openat")));
SEEN ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t at) __attribute__((alias("pwrite")));
SEEN int ftruncate64(int fd, off64_t size) __attribute__((alias("ftruncate")));
SEEN ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t at)
    __attribute__((alias("pwritev")));
SEEN int fallocate64(int fd, int mode, off64_t at, off64_t bytes) __attribute__((alias("fallocate")));
SEEN int posix_fallocate64(int fd, off64_t at, off64_t bytes) __attribute__((alias("posix_fallocate")));
SEEN void *mmap64(void *where, size_t bytes, int protection, int flags, int fd, off64_t at)
    __attribute__((alias("mmap")));
