/* A store: a synchronous batch executor of compare-and-set operations on records.
 *
 * One handle is used by one thread at a time. Several handles, processes and (where the back end
 * spans machines) hosts may be open on one store; apply() keeps its contract among all of them.
 *
 * apply(): the batch is one atomic, durable transaction. When it returns 0, every op carries its
 * own result and all changes have reached stable storage. When it returns a code, nothing of the
 * batch was changed; `result` and the outputs of the ops are then undefined, but no op owns an
 * answer. One exception has a name: HAPAX_E_TIMEOUT means that a back end could not learn whether
 * the transaction was committed (only those that say so in `capabilities` ever return it).
 * And one limit: where the commit itself failed on the disk and then the process died, without another
 * commit in between, the next to open may find the batch applied, as a whole (SQLite: its log was written,
 * but not known to be). Its claims are a dead owner's then, and so unknown.
 * Ops on one identity take effect in their order in the batch. An op never fails on its own account:
 * what can go wrong with one is a result.
 *
 * When a cause of failure has gone, the same handle works again: a back end rolls back, reconnects and
 * reopens by itself at the next call.
 *
 * The rules of each op are those of core/record.h, applied to record_state_at(now_ms); a store
 * that differs from that table is wrong. tests/conformance runs them against every back end. */
#ifndef STORE_STORE_H
#define STORE_STORE_H

#include "core/answer.h"
#include "core/record.h"
#include "hapax/error.h"

enum store_op_kind {
    STORE_CLAIM,    /* EVENT_CLAIM, or EVENT_TAKE_OVER when take_over */
    STORE_COMPLETE, /* EVENT_COMPLETE with `answer` */
    STORE_RELEASE,  /* EVENT_RELEASE */
    STORE_LOSE,     /* EVENT_LOSE */
    STORE_EXTEND,   /* EVENT_EXTEND: the lease ends at now_ms + lease_ms */
    STORE_LOOKUP,   /* changes nothing */
    STORE_RESOLVE,  /* EVENT_RESOLVE_DONE with `answer`, EVENT_RESOLVE_RELEASED without */
    STORE_FORGET,   /* EVENT_FORGET */
};

enum store_result {
    STORE_APPLIED, /* the change was made; for LOOKUP: there is a record */
    STORE_FOUND,   /* CLAIM only: somebody else's record stands there; see `found` */
    STORE_STALE,   /* the fence is not the current one, or the record is no longer running */
    STORE_ABSENT,  /* there is no record (LOOKUP, RESOLVE, FORGET, and fenced ops) */
    STORE_REFUSED, /* the state does not allow it (RESOLVE of a running or done, FORGET of a running record) */
};

struct store_op {
    /* In. Slices are borrowed for the call. */
    enum store_op_kind kind;
    struct identity id;
    /* COMPLETE, RELEASE, LOSE, EXTEND: the claim's. RESOLVE, FORGET: serial 0 means whatever record stands
     * there; else only the one with this fence (a finding about an older one changes nothing: STALE). */
    struct fence fence;
    struct slice scope;             /* CLAIM; COMPLETE with `claimed` */
    struct slice key;               /* the same */
    struct fingerprint fingerprint; /* CLAIM; version 0: nothing to compare */
    int64_t lease_ms;               /* CLAIM, EXTEND: a duration, > 0 */
    int64_t ttl_ms;   /* CLAIM: > 0; COMPLETE: > 0 replaces the claim's, 0 keeps it; see below */
    bool take_over;   /* CLAIM: an unknown record of equal fingerprint becomes ours */
    bool want_answer; /* CLAIM, LOOKUP: read the answer of a done record */
    /* COMPLETE, may be NULL: the record as the claim or the last extension of this fence reported it, and scope and
     * key are the claim's. Spares a back end the reading of its own row; decides nothing: the fence does. */
    const struct record *claimed;
    /* In: COMPLETE and RESOLVE borrow it. Out: CLAIM and LOOKUP with want_answer set it to an owned reference
     * (answer_drop) when the state is done, else to NULL. */
    struct answer *answer;

    /* Out. */
    enum store_result result;
    struct record found; /* the record as it is after the op (state RECORD_ABSENT when gone) */
    int64_t decided_ms;  /* STORE_HAS_CLOCK: the instant of that, by the store's clock; 0: it is not known */
};

/* A claim of a record that is running past its lease writes it down as unknown (and then takes it over or
 * reports STORE_FOUND with RECORD_UNKNOWN). A claim whose fingerprint differs from the record's
 * (both of version > 0) changes nothing but that, and reports STORE_FOUND. */

/* A ttl counts from the first claim. Where that time has passed already when the record becomes done (an
 * unknown one, resolved days later), it counts from then: the record must not be absent at once.
 *
 * A refused op (STALE, ABSENT, REFUSED) reports in `found` what stands there at now_ms, all zero when
 * nothing does. After a
 * removal only its state counts. CLAIM and LOOKUP without want_answer set `answer` to NULL. */

/* Who claims: told apart from every other process that ever used the store. */
struct store_owner {
    uint64_t number; /* given by the store */
    char text[256];  /* as registered: the engine's business (host, boot, pid, start, random) */
};

struct store_row { /* of a listing; slices are borrowed for the call-back */
    struct identity id;
    struct slice scope;
    struct slice key;
    struct record record; /* state as record_state_at(now_ms) */
    uint16_t status;      /* of a done record's answer */
    bool kept;
    uint64_t body_bytes;
};

struct store_filter {
    uint64_t after_serial;   /* page: rows with a larger serial, ascending */
    uint32_t rows_max;       /* 1 to LIMIT_LIST_PAGE_MAX */
    struct slice scope;      /* exact; SLICE_NONE: all */
    struct slice key;        /* exact; SLICE_NONE: all */
    enum record_state state; /* RECORD_ABSENT: all */
};

struct store_stats {
    uint64_t running; /* exact, lease past or not */
    uint64_t unknown; /* exact, as written */
    uint64_t records; /* all; may be an estimate */
    uint64_t bytes;   /* on disk, with logs that are the store's alone; 0 when there is no disk */
};

enum store_capability {
    STORE_CAN_LANES = 1,        /* several handles write at once without waiting for each other */
    STORE_CAN_LOSE_COMMITS = 2, /* apply() may return HAPAX_E_TIMEOUT */
    STORE_HAS_CLOCK = 4,        /* now_ms is ignored: the store's own clock decides */
    STORE_SHARED = 8,           /* other processes may use it: polls for their runs make sense */
};

struct store;
struct buf;

/* A back end. `version` is STORE_VERSION of the header it was compiled with. */
#define STORE_VERSION 1
struct store_backend {
    unsigned version;
    unsigned capabilities;
    const char *name;

    /* Must. See above. n is 1 to LIMIT_BATCH_OPS_MAX. */
    int (*apply)(struct store *s, struct store_op *const *ops, size_t n, int64_t now_ms, hapax_error *err);

    /* Must. Remove at most rows_max done records that have expired, in one short transaction: fewer where their
     * answers are large. *removed == 0: there is nothing to do for now: no more have expired, or another process is at
     * it and the store lets only one sweep. */
    int (*sweep)(struct store *s, int64_t now_ms, uint32_t rows_max, uint32_t *removed, hapax_error *err);

    /* Must. Write down as unknown at most rows_max running records of one owner (owner > 0), or those
     * whose lease ran out (owner 0). *changed < rows_max: done, but for what another process has in hand at this moment
     * (records that it has locked, or this very call): a later call finds what is left. */
    int (*abandon)(struct store *s, uint64_t owner, int64_t now_ms, uint32_t rows_max, uint32_t *changed,
                   hapax_error *err);

    /* Must. Register this handle's process and get its number; claims made through the handle carry it.
     * The same text gets the same number (several handles of one process); a number is never given
     * to another text. HAPAX_E_ARGUMENT when empty or over LIMIT_OWNER_TEXT_BYTES_MAX. After an error
     * claims carry the number they carried before. */
    int (*register_owner)(struct store *s, const char *text, uint64_t *number, hapax_error *err);
    /* Must. Call back for each registered owner; a non-zero return of the call-back ends the walk.
     * The call-back must not use the store. */
    int (*owners)(struct store *s, int (*each)(void *ctx, const struct store_owner *o), void *ctx,
                  hapax_error *err);
    /* Must. Remove an owner. No error when it is gone; HAPAX_E_CONFLICT, and it stays, while it holds a
     * running record (lease past or not), or could still get one: where a back end can tell, also while another handle
     * is registered for it. Who forgets the owner of its own handle makes no more claims with it. */
    int (*forget_owner)(struct store *s, uint64_t owner, hapax_error *err);

    /* Must. Call back for each row of one page, ascending by serial. Expired records are left out.
     * The call-back must not use the store. */
    int (*list)(struct store *s, const struct store_filter *f, int64_t now_ms,
                void (*each)(void *ctx, const struct store_row *row), void *ctx, hapax_error *err);

    /* Must. */
    int (*stats)(struct store *s, struct store_stats *out, hapax_error *err);

    /* Must. A number that changes whenever a RESOLVE or FORGET was applied by any handle: caches of
     * answers compare it. Cheap enough for several calls a second. */
    int (*generation)(struct store *s, uint64_t *out, hapax_error *err);

    /* May; NULL: nothing to do. House-keeping that must not run on the lane (a checkpoint): called from a
     * thread of its own on a handle of its own. A small step each call; *more says that another is due now. */
    int (*maintain)(struct store *s, bool *more, hapax_error *err);

    /* Must. Frees the handle, too. NULL-safe is the caller's (store_close). */
    void (*close)(struct store *s);
};

/* Back ends embed this as their first member. */
struct store {
    const struct store_backend *backend;
    bool away; /* the server has not been reached since the handle was opened */
};

/* What opening does when a server can't be reached, or can't be used for now (too many connections, a standby). That
 * its answer is no (log-in refused, no such database, tables of another version, unsafe settings) is an error always. */
enum store_away {
    STORE_AWAY_FAILS,
    STORE_AWAY_WAITS, /* the handle is `away`, and *err says why; each call fails until one can connect */
    STORE_AWAY_KNOWN, /* the same, and it is not even tried */
};

enum store_warning {
    STORE_WARN_UNSAFE,    /* a setting that makes commits unsafe was allowed */
    STORE_WARN_FAIL_OVER, /* commits that no standby has may be acknowledged */
};

struct store_options {
    enum store_away away;
    int64_t busy_ms;   /* how long one apply() may wait for another process's lock; default 5000 when 0 */
    bool read_only;    /* for listings beside a running gateway: apply() of changes is HAPAX_E_UNSUPPORTED */
    bool caller_clock; /* for tests: now_ms is taken as given also by a back end with STORE_HAS_CLOCK */
    bool allow_unsafe; /* use a server whose settings may lose commits, after a warning; else it is refused */
    /* NULL, or told what is not as safe as it should be, in one line, each time a handle connects. Any thread that
     * uses or opens a handle. */
    void (*warn)(void *ctx, enum store_warning what, const char *text);
    void *warn_ctx;
};

/* For a process of our own, once, before it opens a store or uses SQLite otherwise: what only serves a host program's
 * accounting is switched off (SQLite's memory statistics, which cost a lock for each allocation). */
void store_tune_process(void);

/* Open by URI: `sqlite:PATH`, `memory:` (a private one), `memory:NAME` (one per process and name, shared by its
 * handles, gone with the last), `fault:SPEC:URI` (see store/fault.h), `postgresql://...` or `postgres://...` (libpq's URI). Creates and migrates where needed.
 * HAPAX_E_ARGUMENT (unknown scheme), HAPAX_E_STORE, HAPAX_E_STORE_FULL, HAPAX_E_STORE_CORRUPT,
 * HAPAX_E_STORE_VERSION, HAPAX_E_MEMORY; the message names the path and what to do. On error *out is NULL. */
int store_open(struct store **out, const char *uri, const struct store_options *options, hapax_error *err);
void store_close(struct store *s); /* NULL is fine */

/* What `hapax migrate` asks for and hears. */
struct store_migration {
    const char *role; /* NULL, or a role that is granted what a program needs */
    struct buf
        *sql; /* NULL: do it. Else change nothing and append the SQL that would, nothing when there is none */
    long from;   /* with sql: the version to start from without looking at the store; -1: the store's */
    long before; /* out: the version found; 0: there were no tables */
    long after;  /* out: the version then */
};

/* Bring a store's tables to this program's version, atomically; all other processes may run beside it. Opening does the
 * same where the role may. HAPAX_E_UNSUPPORTED: the back end has no versions, no roles or no SQL to show; else as
 * store_open(). */
int store_migrate(const char *uri, const struct store_options *options, struct store_migration *m,
                  hapax_error *err);

static inline int store_apply(struct store *s, struct store_op *const *ops, size_t n, int64_t now_ms,
                              hapax_error *err)
{
    return s->backend->apply(s, ops, n, now_ms, err);
}

#endif
