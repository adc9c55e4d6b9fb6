/* SQLite's result codes as ours. Which of them leave a connection that can't be trusted is decided
 * here too: it is closed, and the next call opens the file again. */
#include "store/sqlite.h"

#include "base/error.h"

#include <errno.h>

static bool out_of_space(const struct sqlite_store *s, int rc)
{
    int system = s->db != NULL ? sqlite3_system_errno(s->db) : 0;
    return (rc & 0xff) == SQLITE_FULL || (((rc & 0xff) == SQLITE_IOERR || (rc & 0xff) == SQLITE_CANTOPEN) &&
                                          (system == ENOSPC || system == EDQUOT));
}

static bool breaks_connection(int rc)
{
    switch (rc & 0xff) {
    case SQLITE_IOERR:
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
    case SQLITE_CANTOPEN:
    case SQLITE_PROTOCOL:
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_ERROR: /* a table is missing: perhaps another file stands there by now */
        return true;
    default:
        return false;
    }
}

int sqlite_fail(struct sqlite_store *s, int rc, hapax_error *err)
{
    const char *text = s->db != NULL ? sqlite3_errmsg(s->db) : sqlite3_errstr(rc);
    s->broken = s->broken || breaks_connection(rc);
    if (out_of_space(s, rc)) {
        return error_set(err, HAPAX_E_STORE_FULL, rc,
                         "%.150s: the disk is full; free some space and try again", s->path);
    }
    switch (rc & 0xff) {
    case SQLITE_NOMEM:
        return error_set(err, HAPAX_E_MEMORY, rc, "%.150s: no memory", s->path);
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
    case SQLITE_CONSTRAINT: /* the tables contradict each other */
        return error_set(err, HAPAX_E_STORE_CORRUPT, rc, "%.120s: damaged (%.60s); restore it from a backup",
                         s->path, text);
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return error_set(err, HAPAX_E_STORE, rc, "%.120s: locked by another process for over %lld ms",
                         s->path, (long long)s->busy_ms);
    case SQLITE_READONLY:
        return error_set(err, HAPAX_E_STORE, rc,
                         "%.120s: can't be written; check who may write the file"
                         " and its directory",
                         s->path);
    case SQLITE_CANTOPEN:
        return error_set(err, HAPAX_E_STORE, rc,
                         "%.120s: can't be opened (%.60s); check the path and who may"
                         " use it",
                         s->path, strerror(s->db != NULL ? sqlite3_system_errno(s->db) : 0));
    case SQLITE_TOOBIG:
        return error_set(err, HAPAX_E_LIMIT, rc, "an answer is larger than SQLite can store");
    default:
        return error_set(err, HAPAX_E_STORE, rc, "%.120s: %.100s", s->path, text);
    }
}

int sqlite_damaged(struct sqlite_store *s, const char *what, hapax_error *err)
{
    return error_set(err, HAPAX_E_STORE_CORRUPT, SQLITE_CORRUPT, "%.120s: a record is damaged: %.80s",
                     s->path, what);
}
