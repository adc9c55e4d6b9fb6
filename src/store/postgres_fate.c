/* Batches again: one that left nothing behind is run again where that may help; one whose COMMIT was sent and never
 * answered is asked about on a new connection by its transaction's number. Only what can't be learned is
 * HAPAX_E_TIMEOUT. */
#include "store/postgres.h"

#include "base/assert.h"
#include "base/error.h"
#include "store/rules.h"

#include <time.h>

/* Losing a race for an identity (23505) leaves the next try with one fewer to lose; the time bounds it, too. */
#define TRIES_MAX 200
#define LOST_MAX  3
#define ASK_MS    20 /* between two questions about a transaction that still runs */

enum fate { FATE_UNKNOWN, FATE_RUNNING, FATE_COMMITTED, FATE_ABORTED };

static enum fate ask(struct postgres_store *s, int64_t transaction, hapax_error *err)
{
    struct postgres_params p = {.count = 0};
    PGresult *r = NULL;
    params_number(&p, transaction);
    if (postgres_usable(s, err) != 0) {
        params_free(&p);
        return FATE_RUNNING;
    }
    if (postgres_send(s, PG_fate, &p, err) != 0 || postgres_collect(s, &r, 1, err) != 0) {
        /* 22023: the server never heard of it: it crashed before anything of it reached the disk. */
        return strcmp(s->sqlstate, "22023") == 0 ? FATE_ABORTED : FATE_RUNNING;
    }
    struct slice status = postgres_bytes_at(r, 0, 0);
    enum fate fate = slice_equal(status, SLICE_LITERAL("committed"))     ? FATE_COMMITTED
                     : slice_equal(status, SLICE_LITERAL("aborted"))     ? FATE_ABORTED
                     : slice_equal(status, SLICE_LITERAL("in progress")) ? FATE_RUNNING
                                                                         : FATE_UNKNOWN;
    PQclear(r);
    return fate;
}

static enum fate find_fate(struct postgres_store *s, hapax_error *err)
{
    int64_t transaction = s->transaction;
    int64_t deadline = postgres_monotonic_ms() + s->busy_ms;
    for (;;) {
        enum fate fate = ask(s, transaction, err);
        if (fate != FATE_RUNNING) {
            return fate;
        }
        if (postgres_monotonic_ms() >= deadline) {
            return FATE_UNKNOWN;
        }
        nanosleep(&(struct timespec){.tv_nsec = ASK_MS * 1000000L}, NULL);
    }
}

int postgres_apply(struct store *store, struct store_op *const *ops, size_t n, int64_t now_ms,
                   hapax_error *err)
{
    HAPAX_ASSERT(n >= 1 && n <= LIMIT_BATCH_OPS_MAX);
    struct postgres_store *s = postgres_of(store);
    hapax_error scratch;
    err = err != NULL ? err : &scratch;
    rule_clear_answers(ops, n, false);
    int code = rule_only_reads(ops, n) ? 0 : postgres_refuse_read_only(s, err);
    if (code != 0) {
        return code;
    }
    int64_t deadline = postgres_monotonic_ms() + s->busy_ms;
    int lost = 0;
    for (int tries = 0; tries < TRIES_MAX; tries++) {
        code = postgres_usable(s, err);
        if (code != 0) {
            return code;
        }
        code = postgres_try_batch(s, ops, n, now_ms, err);
        if (code == 0) {
            return 0;
        }
        if (s->commit_sent) {
            enum fate fate = find_fate(s, err);
            if (fate == FATE_COMMITTED) {
                return 0;
            }
            if (fate == FATE_UNKNOWN) {
                rule_clear_answers(ops, n, true);
                return error_set(err, HAPAX_E_TIMEOUT, 0,
                                 "%.120s: the connection was lost during a commit; whether it was made is"
                                 " not known",
                                 s->name);
            }
            s->broken = true; /* aborted: again, as where nothing was sent */
        }
        rule_clear_answers(ops, n, true);
        lost += s->broken;
        if (!postgres_worth_retrying(s) || lost > LOST_MAX || postgres_monotonic_ms() >= deadline) {
            return code;
        }
    }
    return code;
}
