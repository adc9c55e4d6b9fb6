/* Inside the PostgreSQL store: what its files share. The contract is store.h's; the layout is described in
 * postgres_schema.sql.
 *
 *   postgres_open.c   connect, refuse unsafe settings, reconnect, close
 *   postgres_migrate.c  the tables' version: make, migrate or refuse them
 *   postgres_error.c  SQLSTATEs as our codes, and what a failed call may do next
 *   postgres_wire.c   statements in a pipeline, bounded waits, parameters
 *   postgres_row.c    rows as records, with every stored value checked
 *   postgres_quick.c  batches in one round trip: claims of keys that nobody has, completions of claims that run
 *   postgres_apply.c  any batch, in two
 *   postgres_fate.c   batches again: when to run one again, and what became of a lost commit
 *   postgres_admin.c  sweep, abandon, owners, listings, counts
 *
 * Invariant: outside a call no transaction is open, the pipeline is empty, and the connection is in pipeline mode. */
#ifndef STORE_POSTGRES_H
#define STORE_POSTGRES_H

#include "base/limits.h"
#include "store/store.h"

#include <libpq-fe.h>

/* By their names in postgres_statements.sql. */
#define POSTGRES_STATEMENTS(X)                                                                               \
    X(serials)                                                                                               \
    X(find_locked)                                                                                           \
    X(find)                                                                                                  \
    X(now)                                                                                                   \
    X(enter)                                                                                                 \
    X(witness)                                                                                               \
    X(take_back)                                                                                             \
    X(claim)                                                                                                 \
    X(complete)                                                                                              \
    X(insert)                                                                                                \
    X(update)                                                                                                \
    X(delete)                                                                                                \
    X(next_generation)                                                                                       \
    X(generation)                                                                                            \
    X(sweep)                                                                                                 \
    X(abandon)                                                                                               \
    X(register_owner)                                                                                        \
    X(hold_owner)                                                                                            \
    X(unheld_owner)                                                                                          \
    X(owners)                                                                                                \
    X(forget_owner)                                                                                          \
    X(list)                                                                                                  \
    X(list_open)                                                                                             \
    X(stats)

enum postgres_statement {
#define POSTGRES_STATEMENT_ENUM(name) PG_##name,
    POSTGRES_STATEMENTS(POSTGRES_STATEMENT_ENUM)
#undef POSTGRES_STATEMENT_ENUM
        PG_COUNT
};

/* What the server may take beyond the time that it may wait for locks. */
#define POSTGRES_ANSWER_MS   5000
#define POSTGRES_PARAMS_MAX  18
#define POSTGRES_DOUBTS_MAX  (4 * LIMIT_BATCH_OPS_MAX)
#define POSTGRES_WRITE_BYTES (16U << 20) /* one statement carries this much of answers and then one more */

/* An identity of a batch: its record before the batch and as changed so far. */
struct postgres_slot {
    struct identity id;
    struct record record; /* when present */
    bool stands;          /* there is a row of it in the table */
    bool present;
    bool changed;
    bool wanted;           /* somebody reads its answer */
    int row;               /* of the result it was read from; -1: the stored answer no longer counts */
    struct slice scope;    /* of a new record */
    struct slice key;      /* the same */
    struct answer *answer; /* borrowed from the op that gave it */
};

struct postgres_doubt {
    struct identity id;
    struct fence fence;
    bool claim; /* else a completion */
};

struct postgres_store {
    struct store store;
    char *uri;      /* may hold a password: never shown */
    char name[200]; /* host and database, for messages */
    int64_t busy_ms;
    bool read_only;
    bool caller_clock;
    bool allow_unsafe;
    bool several_hosts;
    void (*warn)(void *ctx, enum store_warning what, const char *text);
    void *warn_ctx;
    bool asks_why; /* a refusal and a server that is away differ: only while a handle is opened */
    bool may_pass; /* the last failure to connect */

    PGconn *db;       /* NULL: not connected; the next call tries */
    bool broken;      /* the connection must not be used again */
    char sqlstate[6]; /* of the last failure; "" when the server did not say */
    uint64_t owner;
    uint64_t held;        /* the owner on which this session shares a lock; 0: none */
    char owner_text[256]; /* as registered; "": not yet */

    /* Taken from the sequence, not yet given: the last is given first. */
    uint64_t serials[LIMIT_BATCH_OPS_MAX];
    size_t serial_count;

    uint64_t handle; /* random: the row of hapax.handle that is witness of this handle's commits */
    int64_t batch;   /* the last one's number */
    /* The last batch of which it could not be learned in time whether it was committed; `doubtful`: it still is. */
    bool doubtful;
    size_t doubt_count;
    size_t doubts_settled; /* so many of them are of batches before that one, and were committed */
    struct postgres_doubt doubts[POSTGRES_DOUBTS_MAX];
    /* Where keys repeat, quick batches fail; then they are not tried for so many batches. */
    uint32_t detour_left;
    uint32_t detour;

    /* Of the present batch. */
    struct postgres_slot slots[LIMIT_BATCH_OPS_MAX];
    size_t slot_count;
    uint16_t slot_of[LIMIT_BATCH_OPS_MAX]; /* by op */
    bool commit_sent;                      /* with changes: the server may have committed */
    bool quick;                            /* in one round trip */
    bool by_hand;
};

static inline struct postgres_store *postgres_of(struct store *s)
{
    return (struct postgres_store *)s;
}

/* postgres_open.c */
/* A handle that is not connected; *out is owned (store_close). */
int postgres_make(struct postgres_store **out, const char *rest, const struct store_options *options,
                  hapax_error *err);
/* Connect and see that commits are safe, whatever the tables are. Not in pipeline mode yet. */
int postgres_connect(struct postgres_store *s, hapax_error *err);
int postgres_usable(struct postgres_store *s, hapax_error *err);
int postgres_refuse_read_only(const struct postgres_store *s, hapax_error *err);
/* Text with one or several statements. While connecting only: the connection is not in pipeline mode yet. *out, where
 * wanted, is owned (PQclear). */
int postgres_run(struct postgres_store *s, const char *sql, PGresult **out, hapax_error *err);
/* The same for what may take long, a migration: waits for as long as the connection stands. */
int postgres_run_long(struct postgres_store *s, const char *sql, hapax_error *err);

/* postgres_migrate.c */
/* While connecting: 0 when this program may work with the tables, which were made (`create`) or migrated if need be. */
int postgres_check_tables(struct postgres_store *s, bool create, hapax_error *err);

/* postgres_error.c */
/* What the server or the connection said, as a code. `r` may be NULL: the connection is to blame. */
int postgres_fail(struct postgres_store *s, const PGresult *r, hapax_error *err);
int postgres_damaged(struct postgres_store *s, const char *what, hapax_error *err);
/* After a connection was refused: set sqlstate to why, "" when the server was not reached. Tries once more to hear it. */
void postgres_ask_why(struct postgres_store *s);
/* After a failure to connect or to prepare: may it work later, without anybody changing a setting? */
bool postgres_may_pass(const struct postgres_store *s);
/* May the same batch succeed when it is run again, its transaction being gone? */
bool postgres_worth_retrying(const struct postgres_store *s);

/* postgres_wire.c */
extern const char *const postgres_statement_names[PG_COUNT];
/* Parameters of one statement, all in binary; arrays are built value by value and freed with it. */
struct postgres_params {
    struct postgres_value {
        char *bytes; /* NULL: SQL's NULL */
        size_t len;
        size_t room;
        uint32_t count; /* of an array's elements */
    } value[POSTGRES_PARAMS_MAX];
    int count;
    bool failed; /* without memory */
};
void params_free(struct postgres_params *p);
void params_number(struct postgres_params *p, int64_t n);
void params_null(struct postgres_params *p);
/* For "now": NULL where the server's clock decides. */
void params_now(struct postgres_params *p, const struct postgres_store *s, int64_t now_ms);
void params_bytes(struct postgres_params *p, struct slice bytes);
enum postgres_element { PG_BYTES = 17, PG_NUMBER = 20 }; /* oids of bytea and bigint, fixed by PostgreSQL */
/* Begin an array; returns where it stands. */
int params_array(struct postgres_params *p, enum postgres_element element);
void params_add_number(struct postgres_params *p, int at, int64_t n);
void params_add_bytes(struct postgres_params *p, int at, struct slice bytes);
void params_add_null(struct postgres_params *p, int at);
size_t params_size(const struct postgres_params *p);

/* Wait until a result is there. False: lost, or too late. */
bool postgres_wait(struct postgres_store *s, int64_t deadline_mono_ms);
/* Queue a statement; frees the parameters. */
int postgres_send(struct postgres_store *s, enum postgres_statement which, struct postgres_params *p,
                  hapax_error *err);
int postgres_send_text(struct postgres_store *s, const char *sql, hapax_error *err);
/* End the round trip and wait for the results of its n statements. On error none is owned. */
int postgres_collect(struct postgres_store *s, PGresult **results, size_t n, hapax_error *err);
/* One statement, one round trip; connects, and does so anew when the connection turns out to be lost: only for what
 * may be done twice. *out is owned (PQclear). */
int postgres_call(struct postgres_store *s, enum postgres_statement which, struct postgres_params *p,
                  PGresult **out, hapax_error *err);
int postgres_prepare_all(struct postgres_store *s, hapax_error *err);

/* postgres_row.c */
/* Columns 0 to 11. HAPAX_E_STORE_CORRUPT when a value can't be. */
int postgres_row_record(struct postgres_store *s, const PGresult *r, int row, struct record *out,
                        struct identity *id, hapax_error *err);
/* Columns 12 to 15 of find as an owned answer. */
int postgres_row_answer(struct postgres_store *s, const PGresult *r, int row, struct answer **out,
                        hapax_error *err);
/* Columns 12 to 16 of a listing; slices borrow the result. */
int postgres_row_listed(struct postgres_store *s, const PGresult *r, int row, struct store_row *out,
                        hapax_error *err);
bool postgres_number_at(const PGresult *r, int row, int column, int64_t min, int64_t max, int64_t *out);
struct slice postgres_bytes_at(const PGresult *r, int row, int column);

/* postgres_quick.c */
/* May the batch, whose slots are made, be tried in one round trip? */
bool postgres_fits_quick(const struct postgres_store *s, struct store_op *const *ops, size_t n);
/* As postgres_try_batch(). `missed`: nothing was changed since an assumption was wrong; run it in two round trips. */
int postgres_try_quick(struct postgres_store *s, struct store_op *const *ops, size_t n, int64_t now_ms,
                       bool *missed, hapax_error *err);

/* When such a batch turned out to have been committed, its results being lost: read back what it made. */
int postgres_read_back_quick(struct postgres_store *s, struct store_op *const *ops, size_t n,
                             hapax_error *err);

/* postgres_apply.c */
int postgres_send_find(struct postgres_store *s, bool write, hapax_error *err); /* the slots' rows */
/* One slot for each identity, ascending. */
void postgres_make_slots(struct postgres_store *s, struct store_op *const *ops, size_t n);
int postgres_load_slots(struct postgres_store *s, const PGresult *rows,
                        hapax_error *err);         /* of find, find_locked */
void postgres_roll_back(struct postgres_store *s); /* if a transaction is open */
/* Serials for claims to come, more than the next batch needs, since batches in one round trip must have theirs before: how
 * many to fetch for so many claims a batch; ask, and put what came into the stock. */
size_t postgres_serials_to_fetch(size_t stock, size_t claims);
int postgres_send_serials(struct postgres_store *s, size_t count, hapax_error *err);
int postgres_keep_serials(struct postgres_store *s, const PGresult *r, hapax_error *err);
/* End the batch: what was queued and a COMMIT; results of the `sent` statements are owned when 0. */
int postgres_commit(struct postgres_store *s, PGresult **results, size_t sent, hapax_error *err);
/* Begin what a batch writes. */
int postgres_enter(struct postgres_store *s, hapax_error *err);
void params_add_bytes_or_null(struct postgres_params *p, int at, struct slice bytes);
/* One try, the slots being made: 0, or a code; then commit_sent says whether the server may have committed all the
 * same. */
int postgres_try_batch(struct postgres_store *s, struct store_op *const *ops, size_t n, int64_t now_ms,
                       hapax_error *err);

/* postgres_fate.c */
void postgres_new_handle(struct postgres_store *s); /* at open */
/* Did the batch that was once in doubt complete this op's claim? */
bool postgres_was_completed(const struct postgres_store *s, const struct store_op *op);
int postgres_apply(struct store *store, struct store_op *const *ops, size_t n, int64_t now_ms,
                   hapax_error *err);

/* postgres_admin.c */
int postgres_sweep(struct store *store, int64_t now_ms, uint32_t rows_max, uint32_t *removed,
                   hapax_error *err);
int postgres_abandon(struct store *store, uint64_t owner, int64_t now_ms, uint32_t rows_max,
                     uint32_t *changed, hapax_error *err);
int postgres_register_owner(struct store *store, const char *text, uint64_t *number, hapax_error *err);
/* Register with the present connection, which then holds the owner: others can't forget it. Also after each reconnect. */
int postgres_hold_owner(struct postgres_store *s, const char *text, hapax_error *err);
int postgres_owners(struct store *store, int (*each)(void *ctx, const struct store_owner *o), void *ctx,
                    hapax_error *err);
int postgres_forget_owner(struct store *store, uint64_t owner, hapax_error *err);
int postgres_list(struct store *store, const struct store_filter *f, int64_t now_ms,
                  void (*each)(void *ctx, const struct store_row *row), void *ctx, hapax_error *err);
int postgres_stats(struct store *store, struct store_stats *out, hapax_error *err);
int postgres_generation(struct store *store, uint64_t *out, hapax_error *err);

#endif
