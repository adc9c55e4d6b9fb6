/* Batches again: one that left nothing behind is run again where that may help; one whose COMMIT was sent and never
 * answered is asked about on a new connection, where this handle's row of hapax.handle is its witness. Only what can't
 * be learned in time is HAPAX_E_TIMEOUT; it is learned before the next batch, and what nobody waits for is taken back.
 *
 * The transaction's number would tell the same for less, but not after the server crashed: numbers that had not reached
 * the disk are then given again. Nor could it keep a batch from being committed that was still under way to the server
 * when it was asked about. */
#include "store/postgres.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/error.h"
#include "store/rules.h"

#include <sys/random.h>
#include <time.h>

/* Losing a race for an identity (23505) leaves the next try with one fewer to lose; the time bounds it, too. */
#define TRIES_MAX  200
#define LOST_MAX   3
#define ASK_MS     20 /* between two questions that were not answered */
#define DETOUR_MAX 256

enum fate { FATE_UNKNOWN, FATE_COMMITTED, FATE_ABORTED };

void postgres_new_handle(struct postgres_store *s)
{
    if (getrandom(&s->handle, sizeof s->handle, 0) != (ssize_t)sizeof s->handle) {
        HAPAX_ASSERT(false); /* never, for so few bytes */
    }
    s->handle &= INT64_MAX;
    s->batch = 0;
}

static int ask(struct postgres_store *s, int64_t *batch, hapax_error *err)
{
    struct postgres_params p = {.count = 0};
    PGresult *r = NULL;
    params_number(&p, (int64_t)s->handle);
    params_number(&p, s->batch);
    int code = postgres_call(s, PG_witness, &p, &r, err);
    if (code == 0 && !postgres_number_at(r, 0, 0, 0, INT64_MAX, batch)) {
        code = postgres_damaged(s, "the witness of a commit", err);
    }
    PQclear(r);
    return code;
}

static enum fate find_fate(struct postgres_store *s, struct store_op *const *ops, size_t n, hapax_error *err)
{
    int64_t deadline = clock_mono_ms() + s->busy_ms;
    int64_t batch = 0;
    while (ask(s, &batch, err) != 0 ||
           (s->quick && batch == s->batch && postgres_read_back_quick(s, ops, n, err) != 0)) {
        if (clock_mono_ms() >= deadline) {
            return FATE_UNKNOWN;
        }
        nanosleep(&(struct timespec){.tv_nsec = ASK_MS * 1000000L}, NULL);
    }
    return batch == s->batch ? FATE_COMMITTED : FATE_ABORTED;
}

/* What to do once it is known whether the batch was committed: its callers were told that it is not. Completions that were
 * in doubt before may still be asked for again: the oldest give way. */
static void remember_doubt(struct postgres_store *s, struct store_op *const *ops, size_t n)
{
    size_t room = POSTGRES_DOUBTS_MAX - n;
    if (s->doubt_count > room) {
        memmove(s->doubts, s->doubts + (s->doubt_count - room), room * sizeof s->doubts[0]);
        s->doubt_count = room;
    }
    s->doubtful = true;
    s->doubts_settled = s->doubt_count;
    for (size_t i = 0; i < n; i++) {
        bool new_claim = ops[i]->kind == STORE_CLAIM && ops[i]->found.fence.attempt == 1;
        if (ops[i]->result == STORE_APPLIED && (new_claim || ops[i]->kind == STORE_COMPLETE)) {
            s->doubts[s->doubt_count++] = (struct postgres_doubt){
                .id = ops[i]->id, .fence = ops[i]->found.fence, .claim = ops[i]->kind == STORE_CLAIM};
        }
    }
}

/* Nobody executes these claims: they are taken back. Completions stand; who asks for one again is told so by
 * postgres_was_completed(). */
static int settle_doubt(struct postgres_store *s, hapax_error *err)
{
    int64_t batch = 0;
    int code = ask(s, &batch, err);
    if (code != 0) {
        return code;
    }
    if (batch != s->batch) {
        s->doubt_count = s->doubts_settled;
        s->doubtful = false;
        return 0;
    }
    struct postgres_params p = {.count = 0};
    int digest = params_array(&p, PG_BYTES);
    int serial = params_array(&p, PG_NUMBER);
    for (size_t i = s->doubts_settled; i < s->doubt_count; i++) {
        if (s->doubts[i].claim) {
            params_add_bytes(&p, digest, slice_of(s->doubts[i].id.bytes, IDENTITY_BYTES));
            params_add_number(&p, serial, (int64_t)s->doubts[i].fence.serial);
        }
    }
    PGresult *r = NULL;
    code = postgres_call(s, PG_take_back, &p, &r, err);
    PQclear(r);
    s->doubtful = code != 0;
    return code;
}

bool postgres_was_completed(const struct postgres_store *s, const struct store_op *op)
{
    for (size_t i = 0; i < s->doubt_count; i++) {
        const struct postgres_doubt *d = &s->doubts[i];
        if (!d->claim && identity_equal(&d->id, &op->id) && fence_equal(d->fence, op->fence)) {
            return true;
        }
    }
    return false;
}

/* In one round trip where that may succeed. The first miss costs the next batch its try, each further one twice as many. */
static int try_once(struct postgres_store *s, struct store_op *const *ops, size_t n, int64_t now_ms,
                    hapax_error *err)
{
    s->commit_sent = false;
    s->sqlstate[0] = '\0';
    postgres_make_slots(s, ops, n);
    if (s->detour_left > 0) {
        s->detour_left--;
    } else if (postgres_fits_quick(s, ops, n)) {
        bool missed = false;
        s->quick = true;
        int code = postgres_try_quick(s, ops, n, now_ms, &missed, err);
        if (!missed) {
            s->detour = code == 0 ? s->detour / 2 : s->detour;
            return code;
        }
        s->detour = s->detour == 0 ? 1 : s->detour < DETOUR_MAX ? s->detour * 2 : DETOUR_MAX;
        s->detour_left = s->detour;
        s->sqlstate[0] = '\0';
    }
    s->quick = false;
    return postgres_try_batch(s, ops, n, now_ms, err);
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
    if (code == 0 && s->doubtful) {
        code = settle_doubt(s, err);
    }
    if (code != 0) {
        return code;
    }
    int64_t deadline = clock_mono_ms() + s->busy_ms;
    int lost = 0;
    for (int tries = 0; tries < TRIES_MAX; tries++) {
        code = postgres_usable(s, err);
        if (code != 0) {
            return code;
        }
        code = try_once(s, ops, n, now_ms, err);
        if (code == 0) {
            return 0;
        }
        enum fate fate = s->commit_sent ? find_fate(s, ops, n, err) : FATE_ABORTED;
        if (fate == FATE_COMMITTED) {
            return 0;
        }
        if (fate == FATE_UNKNOWN) {
            remember_doubt(s, ops, n);
            code = error_set(
                err, HAPAX_E_TIMEOUT, 0,
                "%.120s: the connection was lost during a commit; whether it was made is not known", s->name);
        }
        rule_clear_answers(ops, n, true);
        lost += s->broken;
        bool again = fate == FATE_ABORTED && (s->commit_sent || postgres_worth_retrying(s));
        if (!again || lost > LOST_MAX || clock_mono_ms() >= deadline) {
            return code;
        }
    }
    return code;
}
