/* Batches. One BEGIN IMMEDIATE ... COMMIT each; every op reads its record, asks rules.h and writes
 * what that says. Three short cuts save look-ups, and none decides anything:
 *
 *   - a claim first tries to insert its identity, so that a fresh one needs no look-up;
 *   - a fenced op looks for its serial among the running records, without asking identity;
 *   - a completion by a claimer that knows its record takes the running row away by its fence, unread.
 *
 * Pages written: a fresh claim one of identity and one of running; a completion one of running, of ended
 * and of the expiry index. The answer is bound where it stands, never copied. */
#include "store/sqlite.h"

#include "base/assert.h"
#include "base/error.h"
#include "base/limits.h"
#include "sqlite_statements_sql.h"
#include "store/rules.h"
#include "store/statement_text.h"

const char *const sqlite_statement_names[SQL_COUNT] = {
#define SQLITE_STATEMENT_NAME(name) #name,
    SQLITE_STATEMENTS(SQLITE_STATEMENT_NAME)
#undef SQLITE_STATEMENT_NAME
};

struct slice sqlite_statement_text(enum sqlite_statement which)
{
    return statement_text(sqlite_statements_sql, sqlite_statement_names[which]);
}

sqlite3_stmt *sqlite_get(struct sqlite_store *s, enum sqlite_statement which, hapax_error *err)
{
    sqlite3_stmt *st = s->statements[which];
    if (st != NULL) {
        return st;
    }
    struct slice text = sqlite_statement_text(which);
    int rc = sqlite3_prepare_v3(s->db, text.ptr, (int)text.len, SQLITE_PREPARE_PERSISTENT, &st, NULL);
    if (rc != SQLITE_OK) {
        sqlite_fail(s, rc, err);
        return NULL;
    }
    s->statements[which] = st;
    return st;
}

int sqlite_run(struct sqlite_store *s, sqlite3_stmt *st, hapax_error *err)
{
    int rc = sqlite3_step(st);
    int code = rc == SQLITE_DONE || rc == SQLITE_ROW ? 0 : sqlite_fail(s, rc, err);
    sqlite3_reset(st);
    return code;
}

static int run_plain(struct sqlite_store *s, enum sqlite_statement which, hapax_error *err)
{
    sqlite3_stmt *st = sqlite_get(s, which, err);
    return st != NULL ? sqlite_run(s, st, err) : err->code;
}

int sqlite_begin(struct sqlite_store *s, bool write, hapax_error *err)
{
    s->serial = 0;
    s->serial_removed = 0;
    s->by_hand = false;
    return run_plain(s, write ? SQL_begin_write : SQL_begin_read, err);
}

void sqlite_rollback(struct sqlite_store *s)
{
    if (s->db == NULL || sqlite3_get_autocommit(s->db)) {
        return; /* SQLite has rolled back by itself */
    }
    hapax_error ignored = {0};
    if (run_plain(s, SQL_rollback, &ignored) != 0) {
        s->broken = true;
    }
}

int sqlite_commit(struct sqlite_store *s, hapax_error *err)
{
    int code = 0;
    if (s->serial_removed > 0) {
        sqlite3_stmt *st = sqlite_get(s, SQL_raise_serial_floor, err);
        if (st == NULL) {
            return err->code;
        }
        sqlite3_bind_int64(st, 1, (int64_t)s->serial_removed);
        code = sqlite_run(s, st, err);
    }
    if (code == 0 && s->by_hand) {
        code = run_plain(s, SQL_next_generation, err);
    }
    if (code == 0) {
        code = run_plain(s, SQL_commit, err);
        s->in_doubt = code != 0;
    }
    return code;
}

static void bind_text(sqlite3_stmt *st, int at, struct slice text)
{
    sqlite3_bind_text(st, at, text.ptr != NULL ? text.ptr : "", (int)text.len, SQLITE_STATIC);
}

/* Blobs may be larger than an int counts; SQLite then says SQLITE_TOOBIG. */
static int bind_blob(sqlite3_stmt *st, int at, struct slice blob)
{
    return sqlite3_bind_blob64(st, at, blob.ptr != NULL ? blob.ptr : "", blob.len, SQLITE_STATIC);
}

static void bind_fingerprint(sqlite3_stmt *st, int at, const struct fingerprint *f)
{
    sqlite3_bind_int(st, at, f->version);
    if (f->version > 0) {
        sqlite3_bind_blob(st, at + 1, f->bytes, FINGERPRINT_BYTES, SQLITE_STATIC);
    } else {
        sqlite3_bind_null(st, at + 1);
    }
}

/* status, kept, head, body */
static int bind_answer(struct sqlite_store *s, sqlite3_stmt *st, int at, const struct answer *a,
                       hapax_error *err)
{
    if (a == NULL) {
        for (int i = 0; i < 4; i++) {
            sqlite3_bind_null(st, at + i);
        }
        return 0;
    }
    sqlite3_bind_int(st, at, a->status);
    sqlite3_bind_int(st, at + 1, a->kept);
    bind_blob(st, at + 2, answer_head(a));
    int rc = bind_blob(st, at + 3, answer_body(a));
    return rc == SQLITE_OK ? 0 : sqlite_fail(s, rc, err);
}

/* The next serial, given by the transaction that holds the write lock. */
static int next_serial(struct sqlite_store *s, hapax_error *err)
{
    if (s->serial == 0) {
        sqlite3_stmt *st = sqlite_get(s, SQL_last_serial, err);
        if (st == NULL) {
            return err->code;
        }
        int rc = sqlite3_step(st);
        if (rc != SQLITE_ROW) {
            int code = sqlite_fail(s, rc, err);
            sqlite3_reset(st);
            return code;
        }
        int64_t last = sqlite3_column_int64(st, 0);
        bool usable = sqlite3_column_type(st, 0) == SQLITE_INTEGER && last >= 0 && last < INT64_MAX / 2;
        sqlite3_reset(st);
        if (!usable) {
            return sqlite_damaged(s, "the last serial", err);
        }
        /* The floor is raised at commit only: what this transaction removed counts as given, too. */
        s->serial = (uint64_t)last > s->serial_removed ? (uint64_t)last : s->serial_removed;
    }
    s->serial++;
    return 0;
}

/* Try to make the identity ours with the next serial. */
static int claim_identity(struct sqlite_store *s, const struct identity *id, bool *ours, hapax_error *err)
{
    int code = next_serial(s, err);
    if (code != 0) {
        return code;
    }
    sqlite3_stmt *st = sqlite_get(s, SQL_claim_identity, err);
    if (st == NULL) {
        return err->code;
    }
    sqlite3_bind_blob(st, 1, id->bytes, IDENTITY_BYTES, SQLITE_STATIC);
    sqlite3_bind_int64(st, 2, (int64_t)s->serial);
    code = sqlite_run(s, st, err);
    *ours = code == 0 && sqlite3_changes(s->db) == 1;
    if (!*ours) {
        s->serial--;
    }
    return code;
}

static bool stands_in_running(enum record_state state)
{
    return state == RECORD_RUNNING;
}

/* A record as one op sees it. */
struct view {
    bool there;
    struct record record; /* as written */
};

/* The row of one of the two tables, if it has one of this serial; *id says whose it is. An answer is read when
 * `answer` is not NULL and the record is done. */
static int load_row(struct sqlite_store *s, enum sqlite_statement which, uint64_t serial, struct view *v,
                    struct identity *id, struct answer **answer, int64_t now_ms, hapax_error *err)
{
    sqlite3_stmt *st = sqlite_get(s, which, err);
    if (st == NULL) {
        return err->code;
    }
    sqlite3_bind_int64(st, 1, (int64_t)serial);
    int rc = sqlite3_step(st);
    int code = 0;
    v->there = rc == SQLITE_ROW;
    if (rc == SQLITE_ROW) {
        code = sqlite_row_record(s, st, &v->record, id, err);
        if (code == 0 && which == SQL_load_ended && stands_in_running(v->record.state)) {
            code = sqlite_damaged(s, "its state", err);
        }
        if (code == 0 && answer != NULL && record_state_at(&v->record, now_ms) == RECORD_DONE) {
            code = sqlite_row_answer(s, st, answer, err);
        }
    } else if (rc != SQLITE_DONE) {
        code = sqlite_fail(s, rc, err);
    }
    sqlite3_reset(st);
    return code;
}

/* The record of an identity, by way of the identity table. */
static int load(struct sqlite_store *s, const struct identity *id, struct view *v, struct answer **answer,
                int64_t now_ms, hapax_error *err)
{
    *v = (struct view){.there = false};
    sqlite3_stmt *st = sqlite_get(s, SQL_find_identity, err);
    if (st == NULL) {
        return err->code;
    }
    sqlite3_bind_blob(st, 1, id->bytes, IDENTITY_BYTES, SQLITE_STATIC);
    int rc = sqlite3_step(st);
    if (rc != SQLITE_ROW) {
        int failed = rc == SQLITE_DONE ? 0 : sqlite_fail(s, rc, err);
        sqlite3_reset(st);
        return failed;
    }
    uint64_t serial = (uint64_t)sqlite3_column_int64(st, 0);
    sqlite3_reset(st);

    struct identity stands_for;
    int code = load_row(s, SQL_load_ended, serial, v, &stands_for, answer, now_ms, err);
    if (code == 0 && !v->there) {
        code = load_row(s, SQL_load_running, serial, v, &stands_for, NULL, now_ms, err);
    }
    if (code != 0) {
        return code;
    }
    if (!v->there || !identity_equal(&stands_for, id)) {
        return sqlite_damaged(s, "its identity names no row of it", err);
    }
    return 0;
}

static int insert_running(struct sqlite_store *s, const struct store_op *op, const struct record *r,
                          hapax_error *err)
{
    sqlite3_stmt *st = sqlite_get(s, SQL_insert_running, err);
    if (st == NULL) {
        return err->code;
    }
    sqlite3_bind_int64(st, 1, (int64_t)r->fence.serial);
    sqlite3_bind_int64(st, 2, r->fence.attempt);
    sqlite3_bind_int64(st, 3, (int64_t)r->owner);
    sqlite3_bind_int64(st, 4, r->claimed_ms);
    sqlite3_bind_int64(st, 5, r->lease_ms);
    sqlite3_bind_int64(st, 6, r->expires_ms);
    sqlite3_bind_int64(st, 7, r->ttl_ms);
    bind_fingerprint(st, 8, &r->fingerprint);
    sqlite3_bind_blob(st, 10, op->id.bytes, IDENTITY_BYTES, SQLITE_STATIC);
    bind_text(st, 11, op->scope);
    bind_text(st, 12, op->key);
    return sqlite_run(s, st, err);
}

/* A lease extended, or a take-over, where the record stands in running or (copying) in ended. */
static int write_running(struct sqlite_store *s, enum sqlite_statement which, const struct record *r,
                         hapax_error *err)
{
    sqlite3_stmt *st = sqlite_get(s, which, err);
    if (st == NULL) {
        return err->code;
    }
    sqlite3_bind_int64(st, 1, (int64_t)r->fence.serial);
    sqlite3_bind_int64(st, 2, r->fence.attempt);
    sqlite3_bind_int64(st, 3, (int64_t)r->owner);
    sqlite3_bind_int64(st, 4, r->lease_ms);
    sqlite3_bind_int64(st, 5, r->expires_ms);
    sqlite3_bind_int64(st, 6, r->ttl_ms);
    bind_fingerprint(st, 7, &r->fingerprint);
    return sqlite_run(s, st, err);
}

static int bind_ended(struct sqlite_store *s, sqlite3_stmt *st, const struct record *r,
                      const struct answer *answer, hapax_error *err)
{
    sqlite3_bind_int64(st, 1, (int64_t)r->fence.serial);
    sqlite3_bind_int(st, 2, (int)r->state);
    sqlite3_bind_int64(st, 3, r->ended_ms);
    sqlite3_bind_int64(st, 4, r->expires_ms);
    sqlite3_bind_int64(st, 5, r->ttl_ms);
    return bind_answer(s, st, 6, answer, err);
}

static int update_ended(struct sqlite_store *s, const struct record *r, const struct answer *answer,
                        hapax_error *err)
{
    sqlite3_stmt *st = sqlite_get(s, SQL_update_ended, err);
    if (st == NULL) {
        return err->code;
    }
    int code = bind_ended(s, st, r, answer, err);
    return code == 0 ? sqlite_run(s, st, err) : code;
}

/* A record's names, borrowed. */
struct names {
    struct slice scope;
    struct slice key;
};

static int insert_ended(struct sqlite_store *s, const struct names *names, const struct identity *id,
                        const struct record *from, const struct record *to, const struct answer *answer,
                        hapax_error *err)
{
    sqlite3_stmt *st = sqlite_get(s, SQL_insert_ended, err);
    int code = st == NULL ? err->code : bind_ended(s, st, to, answer, err);
    if (code != 0) {
        return code;
    }
    sqlite3_bind_int64(st, 10, from->fence.attempt);
    sqlite3_bind_int64(st, 11, (int64_t)from->owner);
    sqlite3_bind_int64(st, 12, from->claimed_ms);
    sqlite3_bind_int64(st, 13, from->lease_ms);
    bind_fingerprint(st, 14, &from->fingerprint);
    sqlite3_bind_blob(st, 16, id->bytes, IDENTITY_BYTES, SQLITE_STATIC);
    bind_text(st, 17, names->scope);
    bind_text(st, 18, names->key);
    return sqlite_run(s, st, err);
}

/* A text's bytes as they stand in the row: unlike sqlite3_column_text(), this wants no memory. */
static struct slice bytes_of(sqlite3_stmt *st, int column)
{
    const void *ptr = sqlite3_column_blob(st, column);
    return slice_of(ptr, (size_t)sqlite3_column_bytes(st, column));
}

static int move_to_ended(struct sqlite_store *s, const struct identity *id, const struct record *from,
                         const struct record *to, const struct answer *answer, hapax_error *err)
{
    sqlite3_stmt *st = sqlite_get(s, SQL_running_names, err);
    if (st == NULL) {
        return err->code;
    }
    sqlite3_bind_int64(st, 1, (int64_t)from->fence.serial);
    int rc = sqlite3_step(st);
    int code = rc == SQLITE_DONE  ? sqlite_damaged(s, "its running row has gone", err)
               : rc != SQLITE_ROW ? sqlite_fail(s, rc, err)
                                  : 0;
    if (code == 0) {
        struct names names = {bytes_of(st, 0), bytes_of(st, 1)};
        code = insert_ended(s, &names, id, from, to, answer, err);
    }
    sqlite3_reset(st);
    return code;
}

static int delete_row(struct sqlite_store *s, enum sqlite_statement which, uint64_t serial, hapax_error *err)
{
    sqlite3_stmt *st = sqlite_get(s, which, err);
    if (st == NULL) {
        return err->code;
    }
    sqlite3_bind_int64(st, 1, (int64_t)serial);
    return sqlite_run(s, st, err);
}

static int update(struct sqlite_store *s, const struct identity *id, const struct record *from,
                  const struct record *to, const struct answer *answer, hapax_error *err)
{
    bool was_running = stands_in_running(from->state);
    if (was_running && stands_in_running(to->state)) {
        return write_running(s, SQL_update_running, to, err);
    }
    if (!was_running && !stands_in_running(to->state)) {
        return update_ended(s, to, answer, err);
    }
    int code = was_running ? move_to_ended(s, id, from, to, answer, err)
                           : write_running(s, SQL_copy_to_running, to, err);
    return code == 0
               ? delete_row(s, was_running ? SQL_delete_running : SQL_delete_ended, to->fence.serial, err)
               : code;
}

static int remove_record(struct sqlite_store *s, const struct identity *id, const struct record *r,
                         hapax_error *err)
{
    uint64_t serial = r->fence.serial;
    enum sqlite_statement which = stands_in_running(r->state) ? SQL_delete_running : SQL_delete_ended;
    int code = delete_row(s, which, serial, err);
    if (code != 0) {
        return code;
    }
    sqlite3_stmt *st = sqlite_get(s, SQL_delete_identity, err);
    if (st == NULL) {
        return err->code;
    }
    sqlite3_bind_blob(st, 1, id->bytes, IDENTITY_BYTES, SQLITE_STATIC);
    if (serial > s->serial_removed) {
        s->serial_removed = serial;
    }
    return sqlite_run(s, st, err);
}

/* Find what the op is about. *ours: a claim whose identity was free is already inserted. */
static int look(struct sqlite_store *s, struct store_op *op, struct view *v, bool *ours, int64_t now_ms,
                hapax_error *err)
{
    *v = (struct view){.there = false};
    *ours = false;
    struct answer **answer = NULL;
    int code;
    switch (op->kind) {
    case STORE_CLAIM:
        code = claim_identity(s, &op->id, ours, err);
        if (code != 0 || *ours) {
            return code;
        }
        answer = op->want_answer ? &op->answer : NULL;
        break;
    case STORE_LOOKUP:
        answer = op->want_answer ? &op->answer : NULL;
        break;
    case STORE_COMPLETE:
    case STORE_RELEASE:
    case STORE_LOSE:
    case STORE_EXTEND: {
        struct identity id;
        code = load_row(s, SQL_load_running, op->fence.serial, v, &id, NULL, now_ms, err);
        if (code != 0 || (v->there && identity_equal(&id, &op->id))) {
            return code;
        }
        break;
    }
    case STORE_RESOLVE:
    case STORE_FORGET:
        break;
    }
    return load(s, &op->id, v, answer, now_ms, err);
}

static int insert(struct sqlite_store *s, struct store_op *op, const struct view *v, bool ours,
                  struct rule_decision *d, hapax_error *err)
{
    int code = 0;
    if (!ours) { /* an expired record stands there */
        code = remove_record(s, &op->id, &v->record, err);
        if (code == 0) {
            code = claim_identity(s, &op->id, &ours, err);
        }
        if (code == 0 && !ours) {
            code = sqlite_damaged(s, "its identity can't be freed", err);
        }
    }
    d->next.fence.serial = d->found.fence.serial = s->serial;
    return code == 0 ? insert_running(s, op, &d->next, err) : code;
}

/* A completion by a claimer that knows its record: it stands in running under this fence, or what is known is
 * past and the long way finds out. */
static int complete_known(struct sqlite_store *s, struct store_op *op, int64_t now_ms, bool *done,
                          hapax_error *err)
{
    struct rule_decision d;
    *done = false;
    rule_decide(&d, op, op->claimed, s->owner, now_ms);
    if (d.change != RULE_UPDATE || !d.with_answer) {
        return 0;
    }
    sqlite3_stmt *st = sqlite_get(s, SQL_take_running, err);
    if (st == NULL) {
        return err->code;
    }
    sqlite3_bind_int64(st, 1, (int64_t)op->fence.serial);
    sqlite3_bind_int64(st, 2, op->fence.attempt);
    sqlite3_bind_blob(st, 3, op->id.bytes, IDENTITY_BYTES, SQLITE_STATIC);
    sqlite3_bind_int64(st, 4, op->claimed->lease_ms);
    int code = sqlite_run(s, st, err);
    if (code != 0 || sqlite3_changes(s->db) != 1) {
        return code;
    }
    *done = true;
    op->result = d.result;
    op->found = d.found;
    struct names names = {op->scope, op->key};
    return insert_ended(s, &names, &op->id, op->claimed, &d.next, op->answer, err);
}

static int apply_one(struct sqlite_store *s, struct store_op *op, int64_t now_ms, hapax_error *err)
{
    struct view v;
    bool ours;
    if (op->kind == STORE_COMPLETE && op->claimed != NULL) {
        bool done;
        int known = complete_known(s, op, now_ms, &done, err);
        if (known != 0 || done) {
            return known;
        }
    }
    int code = look(s, op, &v, &ours, now_ms, err);
    if (code != 0) {
        return code;
    }
    struct rule_decision d;
    rule_decide(&d, op, v.there ? &v.record : NULL, s->owner, now_ms);
    switch (d.change) {
    case RULE_NOTHING:
        break;
    case RULE_INSERT:
        code = insert(s, op, &v, ours, &d, err);
        break;
    case RULE_UPDATE:
        code = update(s, &op->id, &v.record, &d.next, d.with_answer ? op->answer : NULL, err);
        break;
    case RULE_REMOVE:
        code = remove_record(s, &op->id, &v.record, err);
        break;
    }
    s->by_hand = s->by_hand || d.by_hand;
    op->result = d.result;
    op->found = d.found;
    return code;
}

int sqlite_apply(struct store *store, struct store_op *const *ops, size_t n, int64_t now_ms, hapax_error *err)
{
    HAPAX_ASSERT(n >= 1 && n <= LIMIT_BATCH_OPS_MAX);
    struct sqlite_store *s = sqlite_of(store);
    hapax_error scratch;
    err = err != NULL ? err : &scratch;
    bool write = !rule_only_reads(ops, n);
    rule_clear_answers(ops, n, false);
    int code = write ? sqlite_refuse_read_only(s, err) : 0;
    if (code == 0) {
        code = sqlite_usable(s, err);
    }
    if (code != 0) {
        return code;
    }
    if (write) {
        sqlite_log_finish(s);
    }
    code = sqlite_begin(s, write, err);
    for (size_t i = 0; code == 0 && i < n; i++) {
        code = apply_one(s, ops[i], now_ms, err);
    }
    if (code == 0) {
        code = sqlite_commit(s, err);
    }
    if (code != 0) {
        sqlite_rollback(s);
        rule_clear_answers(ops, n, true);
    }
    return code;
}
