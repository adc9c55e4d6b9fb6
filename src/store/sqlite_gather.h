/* A VFS that gathers the writes to a write-ahead log.
 *
 * SQLite writes a log two system calls a page: a 24-byte frame header, then the page. A commit of fourteen pages
 * is 28 writes before its one sync, and together they took longer than the sync. This VFS keeps writes that
 * follow one another in memory and hands them on as one, at the latest when the log is synced.
 *
 * Safe because of who reads the log: other connections see a frame only after the index in shared memory
 * names it, and SQLite updates that after the sync of the commit (synchronous=FULL, which the store sets).
 * The connection's own reads, size queries and truncations hand on first what is gathered. A write that fails
 * when it is handed on fails the sync, and so the commit. All other files are the base VFS's own. */
#ifndef STORE_SQLITE_GATHER_H
#define STORE_SQLITE_GATHER_H

#include <sqlite3.h>

/* Register under `name` (a static string), on top of `base` (NULL: the default VFS). Once per name; not the
 * default. SQLITE_OK, or SQLITE_NOMEM. */
int sqlite_gather_register(const char *name, sqlite3_vfs *base);

#endif
