/* A VFS for the write-ahead log, on top of another. All other files are the base's own.
 *
 * It gathers writes. SQLite writes a log two system calls a page: a 24-byte frame header, then the page. A commit of
 * fourteen pages is 28 writes before its one sync, and together they took longer than the sync. Writes that follow one
 * another are kept in memory and handed on as one, at the latest when the log is synced. Safe because of who reads the
 * log: other connections see a frame only after the index in shared memory names it, and SQLite updates that after the
 * sync of the commit (synchronous=FULL, which the store sets). With cache_spill off, which the store sets, too, nothing is
 * written before a commit, so that a rollback leaves nothing gathered. The connection's own reads, size queries and truncations
 * hand on first what is gathered. A write that fails when it is handed on fails the sync, and so the commit.
 *
 * It makes the log longer in steps, with zeros. A sync of a file that has grown also writes where its new blocks are and
 * how long it is now, and takes about twice as long as a sync of blocks that were there already; so only one commit in
 * many pays for that. Zeros behind the last frame are what SQLite takes for the log's end. */
#ifndef STORE_SQLITE_WAL_VFS_H
#define STORE_SQLITE_WAL_VFS_H

#include <sqlite3.h>

/* Register under `name` (a static string), on top of `base` (NULL: the default VFS). Once per name; not the
 * default. SQLITE_OK, or SQLITE_NOMEM. */
int sqlite_wal_vfs_register(const char *name, sqlite3_vfs *base);

#endif
