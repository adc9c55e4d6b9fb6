/* Batches in one round trip: where every identity stands there once, and each op claims a key that nobody has or completes
 * a claim that runs, all can be written at once without reading first. Both are hopes: where one is wrong, PostgreSQL
 * refuses the statement, nothing is changed and the batch is run again in two round trips, which read. */
#include "store/postgres.h"

#include "base/assert.h"
#include "base/error.h"
#include "store/rules.h"

#include <string.h>

bool postgres_fits_quick(const struct postgres_store *s, struct store_op *const *ops, size_t n)
{
    size_t bytes = 0;
    size_t claims = 0;
    for (size_t i = 0; i < n; i++) {
        const struct store_op *op = ops[i];
        bool hopes = op->kind == STORE_CLAIM || (op->kind == STORE_COMPLETE && op->claimed != NULL);
        if (!hopes) {
            return false;
        }
        claims += op->kind == STORE_CLAIM;
        bytes += op->kind == STORE_COMPLETE ? answer_body(op->answer).len : 0;
    }
    return s->slot_count == n && claims <= s->serial_count && bytes <= POSTGRES_WRITE_BYTES;
}

/* Ops of one kind in the order of their identities, in which rows are locked. */
static size_t sort_ops(const struct postgres_store *s, struct store_op *const *ops, size_t n,
                       enum store_op_kind kind, struct store_op **out)
{
    struct store_op *of_slot[LIMIT_BATCH_OPS_MAX];
    size_t count = 0;
    for (size_t i = 0; i < n; i++) {
        of_slot[s->slot_of[i]] = ops[i];
    }
    for (size_t i = 0; i < n; i++) {
        if (of_slot[i]->kind == kind) {
            out[count++] = of_slot[i];
        }
    }
    return count;
}

static struct slice text_of(struct slice text)
{
    return slice_is_none(text) ? slice_of("", 0) : text;
}

static int send_claims(struct postgres_store *s, struct store_op *const *ops, size_t n, int64_t now_ms,
                       hapax_error *err)
{
    struct postgres_params p = {.count = 0};
    params_now(&p, s, now_ms);
    params_number(&p, (int64_t)s->owner);
    int digest = params_array(&p, PG_BYTES);
    int serial = params_array(&p, PG_NUMBER);
    int lease = params_array(&p, PG_NUMBER);
    int ttl = params_array(&p, PG_NUMBER);
    int version = params_array(&p, PG_NUMBER);
    int fingerprint = params_array(&p, PG_BYTES);
    int scope = params_array(&p, PG_BYTES);
    int key = params_array(&p, PG_BYTES);
    for (size_t i = 0; i < n; i++) {
        const struct store_op *op = ops[i];
        params_add_bytes(&p, digest, slice_of(op->id.bytes, IDENTITY_BYTES));
        params_add_number(&p, serial, (int64_t)op->found.fence.serial);
        params_add_number(&p, lease, op->lease_ms);
        params_add_number(&p, ttl, op->ttl_ms);
        params_add_number(&p, version, op->fingerprint.version);
        params_add_bytes_or_null(
            &p, fingerprint,
            op->fingerprint.version > 0 ? slice_of(op->fingerprint.bytes, FINGERPRINT_BYTES) : SLICE_NONE);
        params_add_bytes(&p, scope, text_of(op->scope));
        params_add_bytes(&p, key, text_of(op->key));
    }
    return postgres_send(s, PG_claim, &p, err);
}

static int send_completions(struct postgres_store *s, struct store_op *const *ops, size_t n, int64_t now_ms,
                            hapax_error *err)
{
    struct postgres_params p = {.count = 0};
    params_now(&p, s, now_ms);
    params_number(&p, (int64_t)n);
    int digest = params_array(&p, PG_BYTES);
    int serial = params_array(&p, PG_NUMBER);
    int attempt = params_array(&p, PG_NUMBER);
    int ttl = params_array(&p, PG_NUMBER);
    int status = params_array(&p, PG_NUMBER);
    int kept = params_array(&p, PG_NUMBER);
    int head = params_array(&p, PG_BYTES);
    int body = params_array(&p, PG_BYTES);
    for (size_t i = 0; i < n; i++) {
        const struct store_op *op = ops[i];
        params_add_bytes(&p, digest, slice_of(op->id.bytes, IDENTITY_BYTES));
        params_add_number(&p, serial, (int64_t)op->fence.serial);
        params_add_number(&p, attempt, op->fence.attempt);
        params_add_number(&p, ttl, op->ttl_ms > 0 ? op->ttl_ms : 0);
        params_add_number(&p, status, op->answer->status);
        params_add_number(&p, kept, op->answer->kept);
        params_add_bytes(&p, head, answer_head(op->answer));
        params_add_bytes(&p, body, answer_body(op->answer));
    }
    return postgres_send(s, PG_complete, &p, err);
}

static int settle_claims(struct postgres_store *s, struct store_op *const *ops, size_t n, const PGresult *r,
                         hapax_error *err)
{
    int64_t now_ms;
    if ((size_t)PQntuples(r) != n || !postgres_number_at(r, 0, 0, INT64_MIN, INT64_MAX, &now_ms)) {
        return postgres_damaged(s, "a claim's time", err);
    }
    for (size_t i = 0; i < n; i++) {
        uint64_t serial = ops[i]->found.fence.serial;
        struct rule_decision d;
        rule_decide(&d, ops[i], NULL, s->owner, now_ms);
        ops[i]->result = d.result;
        ops[i]->found = d.found;
        ops[i]->found.fence.serial = serial;
        ops[i]->decided_ms = now_ms;
    }
    s->serial_count -= n;
    return 0;
}

static int settle_completions(struct postgres_store *s, struct store_op *const *ops, size_t n,
                              const PGresult *r, hapax_error *err)
{
    int64_t now_ms;
    if (!postgres_number_at(r, 0, 0, INT64_MIN, INT64_MAX, &now_ms)) {
        return postgres_damaged(s, "the clock", err);
    }
    for (size_t i = 0; i < n; i++) {
        struct record running = *ops[i]->claimed;
        running.lease_ms = INT64_MAX; /* that it had not run out was asked in the statement */
        struct rule_decision d;
        rule_decide(&d, ops[i], &running, s->owner, now_ms);
        ops[i]->result = d.result;
        ops[i]->found = d.found;
        ops[i]->found.lease_ms = ops[i]->claimed->lease_ms;
        ops[i]->decided_ms = now_ms;
    }
    return 0;
}

/* What PostgreSQL says where a hope was wrong: a key that exists, a division by zero, a time out of range. */
static bool hoped_wrong(const struct postgres_store *s)
{
    static const char *const codes[] = {"23505", "22012", "22003"};
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++) {
        if (strcmp(s->sqlstate, codes[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* The results, if they are committed. Serials from the stock, in the order of the ops; taken out of it then. */
static void hope(const struct postgres_store *s, struct store_op *const *ops, size_t n)
{
    size_t left = s->serial_count;
    for (size_t i = 0; i < n; i++) {
        bool claims = ops[i]->kind == STORE_CLAIM;
        ops[i]->result = STORE_APPLIED;
        ops[i]->found.fence =
            claims ? (struct fence){.serial = s->serials[--left], .attempt = 1} : ops[i]->fence;
    }
}

int postgres_try_quick(struct postgres_store *s, struct store_op *const *ops, size_t n, int64_t now_ms,
                       bool *missed, hapax_error *err)
{
    struct store_op *completions[LIMIT_BATCH_OPS_MAX];
    struct store_op *claims[LIMIT_BATCH_OPS_MAX];
    size_t completion_count = sort_ops(s, ops, n, STORE_COMPLETE, completions);
    size_t claim_count = sort_ops(s, ops, n, STORE_CLAIM, claims);
    size_t fetch = postgres_serials_to_fetch(s->serial_count - claim_count, claim_count);
    PGresult *results[6]; /* BEGIN, enter, complete, claim, serials, COMMIT */
    size_t sent = 2;
    hope(s, ops, n);
    int code = postgres_send_text(s, "BEGIN", err);
    if (code == 0) {
        code = postgres_enter(s, err);
    }
    /* Standing rows first and new ones last, as in postgres_apply.c, and so no crosswise waiting. */
    if (code == 0 && completion_count > 0) {
        code = send_completions(s, completions, completion_count, now_ms, err);
        sent++;
    }
    if (code == 0 && claim_count > 0) {
        code = send_claims(s, claims, claim_count, now_ms, err);
        sent++;
    }
    /* For the next batches. Not before the claims were made: a miss wastes none. */
    if (code == 0 && fetch > 0) {
        code = postgres_send_serials(s, fetch, err);
        sent++;
    }
    if (code != 0) {
        s->broken = true; /* what was queued must not be committed */
        return code;
    }
    code = postgres_commit(s, results, sent, err);
    if (code != 0) {
        *missed = !s->broken && hoped_wrong(s);
        postgres_roll_back(s);
        return code;
    }
    size_t at = 2;
    if (completion_count > 0) {
        code = settle_completions(s, completions, completion_count, results[at++], err);
    }
    if (code == 0 && claim_count > 0) {
        code = settle_claims(s, claims, claim_count, results[at++], err);
    }
    if (code == 0 && fetch > 0) {
        code = postgres_keep_serials(s, results[at], err);
    }
    for (size_t i = 0; i < sent; i++) {
        PQclear(results[i]);
    }
    if (code != 0) {
        s->broken = s->commit_sent =
            true; /* committed, but not as it was told: the witness and the rows decide */
    }
    return code;
}

/* A claim's row must still be ours to be called a success: it may have been resolved and forgotten by hand meanwhile. */
static int read_back_one(const struct postgres_store *s, struct store_op *op, const struct record *r,
                         hapax_error *err)
{
    op->found = *r;
    op->result = STORE_APPLIED;
    op->decided_ms = 0;
    if (op->kind == STORE_CLAIM &&
        (r->state != RECORD_RUNNING || r->owner != s->owner || r->fence.attempt != 1)) {
        return error_set(err, HAPAX_E_STORE, 0, "%.120s: a claim was changed by others while it was made",
                         s->name);
    }
    return 0;
}

int postgres_read_back_quick(struct postgres_store *s, struct store_op *const *ops, size_t n,
                             hapax_error *err)
{
    PGresult *rows;
    int code = postgres_usable(s, err);
    if (code == 0) {
        code = postgres_send_find(s, false, err);
    }
    if (code == 0) {
        code = postgres_collect(s, &rows, 1, err);
    }
    if (code != 0) {
        return code;
    }
    postgres_make_slots(s, ops, n); /* a second look must not see the first one's rows */
    code = postgres_load_slots(s, rows, err);
    PQclear(rows);
    for (size_t i = 0; code == 0 && i < n; i++) {
        code = read_back_one(s, ops[i], &s->slots[s->slot_of[i]].record, err);
    }
    return code;
}
