/* Batches of any kind: two round trips. The first begins, takes serials where the claims need more, locks and reads the
 * rows and then asks for the time; rules.h decides here, op by op on the record as changed so far; the second writes
 * each identity's end result in set-based statements and commits.
 *
 * Locks: rows in the order of their digests in the first, new rows in the same order in the second, and nobody who
 * waits in the first holds a new row: batches do not deadlock. An identity that is not there cannot be locked: two
 * batches may both insert it, one waits for the other's commit and then fails as a whole (23505), and is run again. */
#include "store/postgres.h"

#include "base/assert.h"
#include "base/error.h"
#include "store/rules.h"

#include <stdlib.h>

struct sorted {
    const struct identity *id;
    uint16_t op;
};

static int compare_sorted(const void *a, const void *b)
{
    const struct sorted *x = a;
    const struct sorted *y = b;
    int order = memcmp(x->id->bytes, y->id->bytes, IDENTITY_BYTES);
    return order != 0 ? order : (x->op > y->op) - (x->op < y->op);
}

/* One slot for each identity, ascending. */
void postgres_make_slots(struct postgres_store *s, struct store_op *const *ops, size_t n)
{
    struct sorted order[LIMIT_BATCH_OPS_MAX];
    for (size_t i = 0; i < n; i++) {
        order[i] = (struct sorted){&ops[i]->id, (uint16_t)i};
    }
    qsort(order, n, sizeof order[0], compare_sorted);
    s->slot_count = 0;
    for (size_t i = 0; i < n; i++) {
        if (i == 0 || !identity_equal(order[i].id, order[i - 1].id)) {
            s->slots[s->slot_count++] = (struct postgres_slot){.id = *order[i].id, .row = -1};
        }
        struct postgres_slot *slot = &s->slots[s->slot_count - 1];
        const struct store_op *op = ops[order[i].op];
        s->slot_of[order[i].op] = (uint16_t)(s->slot_count - 1);
        slot->wanted |= op->want_answer && (op->kind == STORE_CLAIM || op->kind == STORE_LOOKUP);
    }
}

static int compare_slot(const void *id, const void *slot)
{
    return memcmp(((const struct identity *)id)->bytes, ((const struct postgres_slot *)slot)->id.bytes,
                  IDENTITY_BYTES);
}

static struct postgres_slot *slot_of(struct postgres_store *s, const struct identity *id)
{
    return bsearch(id, s->slots, s->slot_count, sizeof s->slots[0], compare_slot);
}

int postgres_load_slots(struct postgres_store *s, const PGresult *rows, hapax_error *err)
{
    for (int row = 0; row < PQntuples(rows); row++) {
        struct record record;
        struct identity id;
        int code = postgres_row_record(s, rows, row, &record, &id, err);
        if (code != 0) {
            return code;
        }
        struct postgres_slot *slot = slot_of(s, &id);
        if (slot == NULL) {
            return postgres_damaged(s, "another one than asked for", err);
        }
        slot->record = record;
        slot->stands = slot->present = true;
        slot->row = row;
    }
    return 0;
}

int postgres_send_find(struct postgres_store *s, bool write, hapax_error *err)
{
    struct postgres_params p = {.count = 0};
    int ids = params_array(&p, PG_BYTES);
    int wanted = params_array(&p, PG_BYTES);
    for (size_t i = 0; i < s->slot_count; i++) {
        struct slice id = slice_of(s->slots[i].id.bytes, IDENTITY_BYTES);
        params_add_bytes(&p, ids, id);
        if (s->slots[i].wanted) {
            params_add_bytes(&p, wanted, id);
        }
    }
    return postgres_send(s, write ? PG_find_locked : PG_find, &p, err);
}

static int send_now(struct postgres_store *s, int64_t now_ms, hapax_error *err)
{
    struct postgres_params p = {.count = 0};
    params_now(&p, s, now_ms);
    return postgres_send(s, PG_now, &p, err);
}

size_t postgres_serials_to_fetch(size_t stock, size_t claims)
{
    size_t room = LIMIT_BATCH_OPS_MAX - stock;
    return stock >= claims ? 0 : 4 * claims < room ? 4 * claims : room;
}

int postgres_send_serials(struct postgres_store *s, size_t count, hapax_error *err)
{
    struct postgres_params p = {.count = 0};
    params_number(&p, (int64_t)count);
    return postgres_send(s, PG_serials, &p, err);
}

/* New ones stand before those left over, so that all are given in their order: the last of the array first. */
int postgres_keep_serials(struct postgres_store *s, const PGresult *r, hapax_error *err)
{
    size_t count = (size_t)PQntuples(r);
    HAPAX_ASSERT(s->serial_count + count <= LIMIT_BATCH_OPS_MAX);
    memmove(s->serials + count, s->serials, s->serial_count * sizeof s->serials[0]);
    for (size_t i = 0; i < count; i++) {
        int64_t serial;
        if (!postgres_number_at(r, (int)i, 0, 1, INT64_MAX, &serial)) {
            return postgres_damaged(s, "the sequence of serials", err);
        }
        s->serials[count - 1 - i] = (uint64_t)serial;
    }
    s->serial_count += count;
    return 0;
}

struct reading {
    PGresult *rows; /* owned */
    int64_t now_ms;
};

/* The first round trip. */
static int read_batch(struct postgres_store *s, size_t claims, bool write, int64_t now_ms,
                      struct reading *out, hapax_error *err)
{
    PGresult *results[4];
    size_t sent = 0;
    size_t fetch = postgres_serials_to_fetch(s->serial_count, claims);
    size_t rows_at = 0;
    int code = 0;
    if (write) {
        code = postgres_send_text(s, "BEGIN", err);
        sent += code == 0;
    }
    if (code == 0 && fetch > 0) {
        code = postgres_send_serials(s, fetch, err);
        sent += code == 0;
    }
    if (code == 0) {
        code = postgres_send_find(s, write, err);
        rows_at = sent;
        sent += code == 0;
    }
    if (code == 0) {
        code = send_now(s, now_ms, err);
        sent += code == 0;
    }
    if (code != 0) {
        s->broken = true; /* what was queued must not stay */
        return code;
    }
    code = postgres_collect(s, results, sent, err);
    if (code != 0) {
        return code;
    }
    if (fetch > 0) {
        code = postgres_keep_serials(s, results[1], err);
    }
    if (code == 0 && !postgres_number_at(results[rows_at + 1], 0, 0, INT64_MIN, INT64_MAX, &out->now_ms)) {
        code = postgres_damaged(s, "the clock", err);
    }
    out->rows = results[rows_at];
    for (size_t i = 0; i < sent; i++) {
        if (i != rows_at) {
            PQclear(results[i]);
        }
    }
    return code;
}

static void change(struct postgres_store *s, struct postgres_slot *slot, const struct store_op *op,
                   struct rule_decision *d)
{
    switch (d->change) {
    case RULE_NOTHING:
        return;
    case RULE_INSERT:
        HAPAX_ASSERT(s->serial_count > 0);
        d->next.fence.serial = d->found.fence.serial = s->serials[--s->serial_count];
        slot->present = true;
        slot->scope = slice_of(op->scope.ptr != NULL ? op->scope.ptr : "", op->scope.len);
        slot->key = slice_of(op->key.ptr != NULL ? op->key.ptr : "", op->key.len);
        slot->answer = NULL;
        break;
    case RULE_UPDATE:
        slot->answer = d->with_answer ? op->answer : NULL;
        break;
    case RULE_REMOVE:
        slot->present = false;
        slot->answer = NULL;
        break;
    }
    slot->record = d->next;
    slot->changed = true;
    slot->row = -1;
}

static int decide(struct postgres_store *s, struct store_op *const *ops, size_t n,
                  const struct reading *reading, hapax_error *err)
{
    int code = 0;
    for (size_t i = 0; code == 0 && i < n; i++) {
        struct store_op *op = ops[i];
        struct postgres_slot *slot = &s->slots[s->slot_of[i]];
        struct rule_decision d;
        rule_decide(&d, op, slot->present ? &slot->record : NULL, s->owner, reading->now_ms);
        change(s, slot, op, &d);
        s->by_hand = s->by_hand || d.by_hand;
        op->result = d.result;
        op->found = d.found;
        op->decided_ms = reading->now_ms;
        if (op->kind == STORE_COMPLETE && d.result == STORE_STALE && d.found.state == RECORD_DONE &&
            fence_equal(op->fence, d.found.fence) && postgres_was_completed(s, op)) {
            op->result = STORE_APPLIED;
        }
        if (rule_wants_answer(op)) {
            if (slot->answer != NULL) {
                op->answer = answer_retain(slot->answer);
            } else {
                code = postgres_row_answer(s, reading->rows, slot->row, &op->answer, err);
            }
        }
    }
    return code;
}

/* The parameters of insert and update, in the order of their columns. */
struct writing {
    struct postgres_params p;
    size_t rows;
};

#define NUMBERS_FIRST  1
#define NUMBERS        10
#define FINGERPRINT_AT 11
#define SCOPE_AT       12
#define KEY_AT         13
#define STATUS_AT      14
#define KEPT_AT        15
#define HEAD_AT        16
#define BODY_AT        17

static void begin_writing(struct writing *w)
{
    *w = (struct writing){.rows = 0};
    for (int i = 0; i < POSTGRES_PARAMS_MAX; i++) {
        bool number = (i >= NUMBERS_FIRST && i < FINGERPRINT_AT) || i == STATUS_AT || i == KEPT_AT;
        params_array(&w->p, number ? PG_NUMBER : PG_BYTES);
    }
}

void params_add_bytes_or_null(struct postgres_params *p, int at, struct slice bytes)
{
    if (slice_is_none(bytes)) {
        params_add_null(p, at);
    } else {
        params_add_bytes(p, at, bytes);
    }
}

static void add_row(struct writing *w, const struct postgres_slot *slot)
{
    const struct record *r = &slot->record;
    const int64_t numbers[NUMBERS] = {(int64_t)r->fence.serial,
                                      (int64_t)r->state,
                                      r->fence.attempt,
                                      (int64_t)r->owner,
                                      r->claimed_ms,
                                      r->lease_ms,
                                      r->ended_ms,
                                      r->expires_ms,
                                      r->ttl_ms,
                                      r->fingerprint.version};
    params_add_bytes(&w->p, 0, slice_of(slot->id.bytes, IDENTITY_BYTES));
    for (int i = 0; i < NUMBERS; i++) {
        params_add_number(&w->p, NUMBERS_FIRST + i, numbers[i]);
    }
    params_add_bytes_or_null(&w->p, FINGERPRINT_AT,
                             r->fingerprint.version > 0 ? slice_of(r->fingerprint.bytes, FINGERPRINT_BYTES)
                                                        : SLICE_NONE);
    params_add_bytes_or_null(&w->p, SCOPE_AT, slot->scope);
    params_add_bytes_or_null(&w->p, KEY_AT, slot->key);
    const struct answer *a = slot->answer;
    if (a != NULL) {
        params_add_number(&w->p, STATUS_AT, a->status);
        params_add_number(&w->p, KEPT_AT, a->kept);
        params_add_bytes(&w->p, HEAD_AT, answer_head(a));
        params_add_bytes(&w->p, BODY_AT, answer_body(a));
    } else {
        for (int i = STATUS_AT; i <= BODY_AT; i++) {
            params_add_null(&w->p, i);
        }
    }
    w->rows++;
}

/* Slots whose row stands (update) or does not (insert), in statements of bounded size. */
static int send_writes(struct postgres_store *s, bool stands, size_t *sent, hapax_error *err)
{
    struct writing w;
    int code = 0;
    begin_writing(&w);
    for (size_t i = 0; code == 0 && i < s->slot_count; i++) {
        const struct postgres_slot *slot = &s->slots[i];
        if (slot->changed && slot->present && slot->stands == stands) {
            add_row(&w, slot);
        }
        bool last = i + 1 == s->slot_count;
        if (w.rows > 0 && (last || params_size(&w.p) > POSTGRES_WRITE_BYTES)) {
            code = postgres_send(s, stands ? PG_update : PG_insert, &w.p, err);
            *sent += code == 0;
            begin_writing(&w);
        }
    }
    params_free(&w.p);
    return code;
}

static int send_deletes(struct postgres_store *s, size_t *sent, hapax_error *err)
{
    struct postgres_params p = {.count = 0};
    int ids = params_array(&p, PG_BYTES);
    size_t rows = 0;
    for (size_t i = 0; i < s->slot_count; i++) {
        if (s->slots[i].changed && s->slots[i].stands && !s->slots[i].present) {
            params_add_bytes(&p, ids, slice_of(s->slots[i].id.bytes, IDENTITY_BYTES));
            rows++;
        }
    }
    if (rows == 0) {
        params_free(&p);
        return 0;
    }
    int code = postgres_send(s, PG_delete, &p, err);
    *sent += code == 0;
    return code;
}

int postgres_enter(struct postgres_store *s, hapax_error *err)
{
    struct postgres_params p = {.count = 0};
    params_number(&p, (int64_t)s->handle);
    params_number(&p, ++s->batch);
    return postgres_send(s, PG_enter, &p, err);
}

int postgres_commit(struct postgres_store *s, PGresult **results, size_t sent, hapax_error *err)
{
    int code = postgres_send_text(s, "COMMIT", err);
    if (code != 0) {
        s->broken = true;
        return code;
    }
    s->commit_sent = true;
    code = postgres_collect(s, results, sent + 1, err);
    if (code == 0) {
        bool made = strcmp(PQcmdStatus(results[sent]), "COMMIT") == 0;
        if (!made) {
            code = error_set(err, HAPAX_E_STORE, 0, "%.120s: the transaction was rolled back", s->name);
        }
        for (size_t i = made ? sent : 0; i <= sent; i++) {
            PQclear(results[i]);
        }
    }
    if (!s->broken) {
        s->commit_sent = false; /* the server has answered: it is as it says */
    }
    return code;
}

/* The second round trip. */
static int write_batch(struct postgres_store *s, hapax_error *err)
{
    PGresult *results[2 * LIMIT_BATCH_OPS_MAX + 4];
    size_t sent = 1;
    int code = postgres_enter(s, err);
    if (code == 0) {
        code = send_deletes(s, &sent, err);
    }
    if (code == 0) {
        code = send_writes(s, true, &sent, err);
    }
    if (code == 0) {
        code = send_writes(s, false, &sent, err);
    }
    if (code == 0 && s->by_hand) {
        code = postgres_send(s, PG_next_generation, NULL, err);
        sent += code == 0;
    }
    if (code != 0) {
        s->broken = true; /* what was queued must not be committed */
        return code;
    }
    code = postgres_commit(s, results, sent, err);
    for (size_t i = 0; code == 0 && i < sent; i++) {
        PQclear(results[i]);
    }
    return code;
}

void postgres_roll_back(struct postgres_store *s)
{
    PGresult *r = NULL;
    char sqlstate[sizeof s->sqlstate]; /* that of the failure is asked for later */
    memcpy(sqlstate, s->sqlstate, sizeof sqlstate);
    hapax_error ignored = {0};
    if (s->broken || s->db == NULL) {
        return;
    }
    if (PQtransactionStatus(s->db) != PQTRANS_IDLE) {
        if (postgres_send_text(s, "ROLLBACK", &ignored) != 0 || postgres_collect(s, &r, 1, &ignored) != 0) {
            s->broken = true;
        } else {
            PQclear(r);
        }
    }
    memcpy(s->sqlstate, sqlstate, sizeof sqlstate);
}

static bool anything_changed(const struct postgres_store *s)
{
    for (size_t i = 0; i < s->slot_count; i++) {
        if (s->slots[i].changed) {
            return true;
        }
    }
    return false;
}

int postgres_try_batch(struct postgres_store *s, struct store_op *const *ops, size_t n, int64_t now_ms,
                       hapax_error *err)
{
    bool write = !rule_only_reads(ops, n);
    size_t claims = 0;
    for (size_t i = 0; i < n; i++) {
        claims += ops[i]->kind == STORE_CLAIM;
    }
    s->by_hand = false;
    struct reading reading = {.rows = NULL};
    int code = read_batch(s, claims, write, now_ms, &reading, err);
    if (code == 0) {
        code = postgres_load_slots(s, reading.rows, err);
    }
    if (code == 0) {
        code = decide(s, ops, n, &reading, err);
    }
    if (code == 0 && anything_changed(s)) {
        code = write_batch(s, err);
    }
    PQclear(reading.rows);
    postgres_roll_back(s); /* where nothing was changed, too: that costs the server no sync */
    return code;
}
