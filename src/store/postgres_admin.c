/* What is not a batch: sweep, abandon, owners, listings, counts. Each may be done twice. */
#include "store/postgres.h"

#include "base/assert.h"
#include "base/error.h"
#include "store/rules.h"

#include <stdio.h>
#include <stdlib.h>

/* For statements that change rows: how many. */
static int call_counted(struct postgres_store *s, enum postgres_statement which, struct postgres_params *p,
                        uint32_t *rows, hapax_error *err)
{
    PGresult *r;
    int code = postgres_call(s, which, p, &r, err);
    *rows = code == 0 ? (uint32_t)strtoul(PQcmdTuples(r), NULL, 10) : 0;
    PQclear(r);
    return code;
}

int postgres_sweep(struct store *store, int64_t now_ms, uint32_t rows_max, uint32_t *removed,
                   hapax_error *err)
{
    struct postgres_store *s = postgres_of(store);
    hapax_error scratch;
    err = err != NULL ? err : &scratch;
    *removed = 0;
    int code = postgres_refuse_read_only(s, err);
    if (code != 0) {
        return code;
    }
    struct postgres_params p = {.count = 0};
    params_now(&p, s, now_ms);
    params_number(&p, rows_max);
    return call_counted(s, PG_sweep, &p, removed, err);
}

int postgres_abandon(struct store *store, uint64_t owner, int64_t now_ms, uint32_t rows_max,
                     uint32_t *changed, hapax_error *err)
{
    struct postgres_store *s = postgres_of(store);
    hapax_error scratch;
    err = err != NULL ? err : &scratch;
    *changed = 0;
    int code = postgres_refuse_read_only(s, err);
    if (code != 0) {
        return code;
    }
    struct postgres_params p = {.count = 0};
    params_number(&p, (int64_t)owner);
    params_now(&p, s, now_ms);
    params_number(&p, rows_max);
    return call_counted(s, PG_abandon, &p, changed, err);
}

/* --- owners ---
 *
 * A handle's session shares an advisory lock on the owner for which it claims, from before the first claim to the end of
 * the session. Who forgets an owner must have that lock alone. So an owner that is taken for dead but lives is not
 * forgotten, nor is a dead one whose last batch is still being committed. */

/* One statement with the present connection: a number of its first row, 0 without a row. */
static int ask_here(struct postgres_store *s, enum postgres_statement which, struct postgres_params *p,
                    int64_t *number, hapax_error *err)
{
    PGresult *r = NULL;
    *number = 0;
    int code = postgres_send(s, which, p, err);
    if (code == 0) {
        code = postgres_collect(s, &r, 1, err);
    }
    if (code != 0) {
        return code;
    }
    if (PQntuples(r) > 0 && !postgres_number_at(r, 0, 0, 1, INT64_MAX, number)) {
        *number = 0;
    }
    PQclear(r);
    return 0;
}

/* Instead of the one held before; 0: none. */
static int hold(struct postgres_store *s, uint64_t owner, hapax_error *err)
{
    struct postgres_params p = {.count = 0};
    int64_t ignored;
    params_number(&p, (int64_t)s->held);
    params_number(&p, (int64_t)owner);
    int code = ask_here(s, PG_hold_owner, &p, &ignored, err);
    if (code == 0) {
        s->held = owner;
    } else {
        s->broken = true; /* half of it may have been done: a new session holds nothing */
    }
    return code;
}

int postgres_hold_owner(struct postgres_store *s, const char *text, hapax_error *err)
{
    for (int tries = 0; tries < 10; tries++) {
        struct postgres_params p = {.count = 0};
        int64_t owner;
        params_bytes(&p, slice_of(text, strlen(text)));
        int code = ask_here(s, PG_register_owner, &p, &owner, err);
        if (code == 0 && owner > 0 && (uint64_t)owner == s->held) {
            s->owner = s->held;
            return 0;
        }
        if (code == 0 && owner > 0) {
            code = hold(s, (uint64_t)owner, err); /* and look again: it may just have been forgotten */
        }
        if (code != 0) {
            return code;
        }
    }
    return error_set(err, HAPAX_E_STORE, 0, "%.120s: no owner's number was given", s->name);
}

int postgres_register_owner(struct store *store, const char *text, uint64_t *number, hapax_error *err)
{
    struct postgres_store *s = postgres_of(store);
    hapax_error scratch;
    err = err != NULL ? err : &scratch;
    size_t len = strlen(text);
    int code = postgres_refuse_read_only(s, err);
    if (code == 0 && (len == 0 || len > LIMIT_OWNER_TEXT_BYTES_MAX)) {
        code = error_set(err, HAPAX_E_ARGUMENT, 0, "an owner's text has 1 to %d bytes",
                         LIMIT_OWNER_TEXT_BYTES_MAX);
    }
    for (int tries = 0; code == 0 && tries < 3; tries++) {
        code = postgres_usable(s, err);
        if (code != 0) {
            break;
        }
        code = postgres_hold_owner(s, text, err);
        if (code == 0) {
            snprintf(s->owner_text, sizeof s->owner_text, "%s", text);
            *number = s->owner;
            return 0;
        }
        if (s->broken && tries < 2) {
            code = 0; /* once more with a new connection */
        }
    }
    return code;
}

int postgres_owners(struct store *store, int (*each)(void *ctx, const struct store_owner *o), void *ctx,
                    hapax_error *err)
{
    struct postgres_store *s = postgres_of(store);
    hapax_error scratch;
    err = err != NULL ? err : &scratch;
    struct postgres_params p = {.count = 0};
    PGresult *r;
    int code = postgres_call(s, PG_owners, &p, &r, err);
    for (int row = 0; code == 0 && row < PQntuples(r); row++) {
        int64_t number;
        if (!postgres_number_at(r, row, 0, 1, INT64_MAX, &number)) {
            code = postgres_damaged(s, "an owner's number", err);
            break;
        }
        struct store_owner o = {.number = (uint64_t)number};
        struct slice text = postgres_bytes_at(r, row, 1);
        memcpy(o.text, text.ptr, text.len < sizeof o.text ? text.len : sizeof o.text - 1);
        if (each(ctx, &o) != 0) {
            break;
        }
    }
    PQclear(r);
    return code;
}

/* Both statements in one transaction. *runs: how many running records it holds, or at least one. */
static int try_to_forget(struct postgres_store *s, uint64_t owner, bool *held, int64_t *runs,
                         hapax_error *err)
{
    PGresult *results[2];
    struct postgres_params p = {.count = 0};
    *held = false;
    params_number(&p, (int64_t)owner);
    int code = postgres_send(s, PG_unheld_owner, &p, err);
    if (code == 0) {
        params_number(&p, (int64_t)owner);
        code = postgres_send(s, PG_forget_owner, &p, err);
    }
    if (code != 0) {
        s->broken = true; /* what was queued must not stay */
        return code;
    }
    code = postgres_collect(s, results, 2, err);
    if (code != 0) {
        *held = strcmp(s->sqlstate, "22012") == 0;
        return code;
    }
    if (!postgres_number_at(results[1], 0, 0, 0, INT64_MAX, runs)) {
        code = postgres_damaged(s, "a count", err);
    }
    PQclear(results[0]);
    PQclear(results[1]);
    return code;
}

int postgres_forget_owner(struct store *store, uint64_t owner, hapax_error *err)
{
    struct postgres_store *s = postgres_of(store);
    hapax_error scratch;
    err = err != NULL ? err : &scratch;
    int code = postgres_refuse_read_only(s, err);
    if (code != 0) {
        return code;
    }
    bool held = false;
    int64_t runs = 0;
    for (int tries = 0; tries < 3; tries++) {
        if (code == 0) {
            code = postgres_usable(s, err);
        }
        if (code == 0 && owner == s->held) {
            code = hold(
                s, 0,
                err); /* who forgets itself claims no more: its other handles must not wait for the session's end */
        }
        if (code == 0) {
            code = try_to_forget(s, owner, &held, &runs, err);
        }
        if (code == 0 || held || tries == 2 || !postgres_worth_retrying(s)) {
            break;
        }
        code = 0;
    }
    if (held || (code == 0 && runs > 0)) {
        return error_set(err, HAPAX_E_CONFLICT, 0, "owner %llu still %s", (unsigned long long)owner,
                         held ? "has a session" : "holds running records");
    }
    return code;
}

static void param_filter(struct postgres_params *p, struct slice text)
{
    if (slice_is_none(text)) {
        params_null(p);
    } else {
        params_bytes(p, text);
    }
}

static int each_listed(struct postgres_store *s, const PGresult *r,
                       void (*each)(void *ctx, const struct store_row *row), void *ctx, hapax_error *err)
{
    for (int i = 0; i < PQntuples(r); i++) {
        struct store_row row = {0};
        int64_t now_ms;
        int code = postgres_row_record(s, r, i, &row.record, &row.id, err);
        if (code == 0) {
            code = postgres_row_listed(s, r, i, &row, err);
        }
        if (code == 0 && !postgres_number_at(r, i, 17, INT64_MIN, INT64_MAX, &now_ms)) {
            code = postgres_damaged(s, "the clock", err);
        }
        if (code != 0) {
            return code;
        }
        row.record = rule_seen(&row.record, now_ms);
        each(ctx, &row);
    }
    return 0;
}

int postgres_list(struct store *store, const struct store_filter *f, int64_t now_ms,
                  void (*each)(void *ctx, const struct store_row *row), void *ctx, hapax_error *err)
{
    HAPAX_ASSERT(f->rows_max >= 1 && f->rows_max <= LIMIT_LIST_PAGE_MAX && f->state <= RECORD_UNKNOWN);
    struct postgres_store *s = postgres_of(store);
    hapax_error scratch;
    err = err != NULL ? err : &scratch;
    bool open = f->state == RECORD_RUNNING || f->state == RECORD_UNKNOWN;
    struct postgres_params p = {.count = 0};
    params_number(&p, f->after_serial > INT64_MAX ? INT64_MAX : (int64_t)f->after_serial);
    param_filter(&p, f->scope);
    param_filter(&p, f->key);
    params_now(&p, s, now_ms);
    params_number(&p, f->rows_max);
    params_number(&p, f->state);
    PGresult *r;
    int code = postgres_call(s, open ? PG_list_open : PG_list, &p, &r, err);
    if (code == 0) {
        code = each_listed(s, r, each, ctx, err);
    }
    PQclear(r);
    return code;
}

int postgres_stats(struct store *store, struct store_stats *out, hapax_error *err)
{
    struct postgres_store *s = postgres_of(store);
    hapax_error scratch;
    err = err != NULL ? err : &scratch;
    *out = (struct store_stats){0};
    struct postgres_params p = {.count = 0};
    PGresult *r;
    int64_t n[4] = {0, 0, 0, 0};
    int code = postgres_call(s, PG_stats, &p, &r, err);
    for (int i = 0; code == 0 && i < 4; i++) {
        if (!postgres_number_at(r, 0, i, 0, INT64_MAX, &n[i])) {
            code = postgres_damaged(s, "a count", err);
        }
    }
    PQclear(r);
    *out = (struct store_stats){.running = (uint64_t)n[0],
                                .unknown = (uint64_t)n[1],
                                .records = (uint64_t)n[2],
                                .bytes = (uint64_t)n[3]};
    return code;
}

int postgres_generation(struct store *store, uint64_t *out, hapax_error *err)
{
    struct postgres_store *s = postgres_of(store);
    hapax_error scratch;
    err = err != NULL ? err : &scratch;
    struct postgres_params p = {.count = 0};
    PGresult *r;
    int64_t generation = 0;
    int code = postgres_call(s, PG_generation, &p, &r, err);
    if (code == 0 && (PQntuples(r) != 1 || !postgres_number_at(r, 0, 0, 0, INT64_MAX, &generation))) {
        code = postgres_damaged(s, "the generation is gone", err);
    }
    PQclear(r);
    *out = (uint64_t)generation;
    return code;
}
