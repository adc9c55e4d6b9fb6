/* Inside the SQLite store: what its files share. The contract is store.h's; the layout is described in
 * sqlite_schema.sql.
 *
 *   sqlite_open.c        connect, migrate, notice that the file was replaced, reconnect, close
 *   sqlite_error.c       SQLite's codes as ours, and whether the connection can still be trusted
 *   sqlite_apply.c       batches
 *   sqlite_row.c         rows as records, with every stored value checked
 *   sqlite_admin.c       sweep, abandon, owners, listings, counts
 *   sqlite_checkpoint.c  the log's way into the database, off the lane
 *
 * Invariant: outside a call no transaction is open and no statement is being stepped. */
#ifndef STORE_SQLITE_H
#define STORE_SQLITE_H

#include "store/store.h"

#include <sqlite3.h>
#include <stdatomic.h>
#include <sys/types.h>

/* By their names in sqlite_statements.sql. */
#define SQLITE_STATEMENTS(X)                                                                                 \
    X(begin_read)                                                                                            \
    X(begin_write)                                                                                           \
    X(commit)                                                                                                \
    X(rollback)                                                                                              \
    X(last_serial)                                                                                           \
    X(raise_serial_floor)                                                                                    \
    X(next_generation)                                                                                       \
    X(generation)                                                                                            \
    X(claim_identity)                                                                                        \
    X(find_identity)                                                                                         \
    X(delete_identity)                                                                                       \
    X(insert_running)                                                                                        \
    X(load_running)                                                                                          \
    X(load_ended)                                                                                            \
    X(update_running)                                                                                        \
    X(delete_running)                                                                                        \
    X(delete_ended)                                                                                          \
    X(take_running)                                                                                          \
    X(running_names)                                                                                         \
    X(insert_ended)                                                                                          \
    X(update_ended)                                                                                          \
    X(copy_to_running)                                                                                       \
    X(sweep_next)                                                                                            \
    X(sweep_identities)                                                                                      \
    X(sweep_ended)                                                                                           \
    X(abandon_copy)                                                                                          \
    X(abandon_delete)                                                                                        \
    X(find_owner)                                                                                            \
    X(insert_owner)                                                                                          \
    X(owners)                                                                                                \
    X(delete_owner)                                                                                          \
    X(owner_runs)                                                                                            \
    X(list_all)                                                                                              \
    X(list_running)                                                                                          \
    X(list_done)                                                                                             \
    X(list_unknown)                                                                                          \
    X(count_open)                                                                                            \
    X(count_ended)

enum sqlite_statement {
#define SQLITE_STATEMENT_ENUM(name) SQL_##name,
    SQLITE_STATEMENTS(SQLITE_STATEMENT_ENUM)
#undef SQLITE_STATEMENT_ENUM
        SQL_COUNT
};

#define SQLITE_APPLICATION_ID 0x48617078 /* "Hapx" */
#define SQLITE_SCHEMA_VERSION 1
#define SQLITE_PAGE_BYTES     2048

/* What the handles of one process know about the log of one database file. Hints only: nothing but
 * the time of checkpoints depends on them. */
struct sqlite_log {
    _Atomic(int) frames; /* in the log after the last commit seen */
    _Atomic(int) copied; /* of those, in the database already */
    dev_t device;        /* the rest under a lock in sqlite_checkpoint.c */
    ino_t inode;
    size_t handles;
    struct sqlite_log *next;
};

struct sqlite_store {
    struct store store;
    char *path;
    int64_t busy_ms;
    bool read_only;
    int64_t found_version; /* of the tables, when this handle was opened; 0: there were none */

    sqlite3 *db;                         /* NULL: not connected; the next call tries */
    bool broken;                         /* the connection must not be used again */
    bool in_doubt;                       /* its last commit failed after something may have been written */
    sqlite3_stmt *statements[SQL_COUNT]; /* prepared at first use */
    dev_t device;                        /* of the file that is open */
    ino_t inode;
    struct sqlite_log *log;
    int64_t waited_us; /* for the lock, in the present wait */

    uint64_t owner;
    char owner_text[256]; /* "" until registered */

    /* Of the present transaction. */
    uint64_t serial;         /* the last one given; 0: not asked for yet */
    uint64_t serial_removed; /* the largest of a record removed */
    bool by_hand;            /* a RESOLVE or FORGET was applied */
};

static inline struct sqlite_store *sqlite_of(struct store *s)
{
    return (struct sqlite_store *)s;
}

/* sqlite_open.c */
/* Must begin every call: connect if need be. */
int sqlite_usable(struct sqlite_store *s, hapax_error *err);
int sqlite_refuse_read_only(const struct sqlite_store *s, hapax_error *err);

/* sqlite_error.c */
/* Turn what SQLite said last (`rc`) into a code; marks the handle broken where it is. */
int sqlite_fail(struct sqlite_store *s, int rc, hapax_error *err);
/* A value in the database that can't be. */
int sqlite_damaged(struct sqlite_store *s, const char *what, hapax_error *err);

/* sqlite_apply.c */
extern const char *const sqlite_statement_names[SQL_COUNT];
/* The statement, prepared and reset; NULL after an error. */
sqlite3_stmt *sqlite_get(struct sqlite_store *s, enum sqlite_statement which, hapax_error *err);
/* The text of a statement within sqlite_statements.sql. */
struct slice sqlite_statement_text(enum sqlite_statement which);
/* Step a statement whose rows don't matter (usually none), and reset it. */
int sqlite_run(struct sqlite_store *s, sqlite3_stmt *st, hapax_error *err);
int sqlite_begin(struct sqlite_store *s, bool write, hapax_error *err);
/* Bring meta up to date and commit. */
int sqlite_commit(struct sqlite_store *s, hapax_error *err);
void sqlite_rollback(struct sqlite_store *s);
int sqlite_apply(struct store *store, struct store_op *const *ops, size_t n, int64_t now_ms,
                 hapax_error *err);

/* sqlite_row.c */
/* Columns 0 to 11 of a row. `id` may be NULL. HAPAX_E_STORE_CORRUPT when a value can't be. */
int sqlite_row_record(struct sqlite_store *s, sqlite3_stmt *st, struct record *r, struct identity *id,
                      hapax_error *err);
/* Columns 12 to 15 of load_ended as an owned answer. */
int sqlite_row_answer(struct sqlite_store *s, sqlite3_stmt *st, struct answer **out, hapax_error *err);
/* Columns 12 to 16 of a listing; slices borrow the row. */
int sqlite_row_listed(struct sqlite_store *s, sqlite3_stmt *st, struct store_row *row, hapax_error *err);
struct slice sqlite_row_text(sqlite3_stmt *st, int column);

/* sqlite_admin.c */
int sqlite_sweep(struct store *store, int64_t now_ms, uint32_t rows_max, uint32_t *removed, hapax_error *err);
int sqlite_abandon(struct store *store, uint64_t owner, int64_t now_ms, uint32_t rows_max, uint32_t *changed,
                   hapax_error *err);
int sqlite_register_owner(struct store *store, const char *text, uint64_t *number, hapax_error *err);
int sqlite_owners(struct store *store, int (*each)(void *ctx, const struct store_owner *o), void *ctx,
                  hapax_error *err);
int sqlite_forget_owner(struct store *store, uint64_t owner, hapax_error *err);
int sqlite_list(struct store *store, const struct store_filter *f, int64_t now_ms,
                void (*each)(void *ctx, const struct store_row *row), void *ctx, hapax_error *err);
int sqlite_stats(struct store *store, struct store_stats *out, hapax_error *err);
int sqlite_generation(struct store *store, uint64_t *out, hapax_error *err);
/* Give the handle's owner a number in the file that is open now. */
int sqlite_owner_number(struct sqlite_store *s, hapax_error *err);

/* sqlite_checkpoint.c */
int sqlite_log_attach(struct sqlite_store *s, hapax_error *err);
void sqlite_log_detach(struct sqlite_store *s);
/* Before a write: finish a checkpoint when only little is left, so that the log starts over. */
void sqlite_log_finish(struct sqlite_store *s);
int sqlite_maintain(struct store *store, bool *more, hapax_error *err);

#endif
