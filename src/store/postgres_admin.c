/* What is not a batch: sweep, abandon, owners, listings, counts. Each is one statement, which may be done twice. */
#include "store/postgres.h"

#include "base/assert.h"
#include "base/error.h"
#include "store/rules.h"

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
    for (int tries = 0; code == 0 && tries < 10; tries++) {
        struct postgres_params p = {.count = 0};
        PGresult *r;
        int64_t owner;
        params_bytes(&p, slice_of(text, len));
        code = postgres_call(s, PG_register_owner, &p, &r, err);
        if (code == 0 && PQntuples(r) > 0 && postgres_number_at(r, 0, 0, 1, INT64_MAX, &owner)) {
            s->owner = *number = (uint64_t)owner;
            PQclear(r);
            return 0;
        }
        PQclear(r);
    }
    return code != 0 ? code
                     : error_set(err, HAPAX_E_STORE, 0, "%.120s: no owner's number was given", s->name);
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

int postgres_forget_owner(struct store *store, uint64_t owner, hapax_error *err)
{
    struct postgres_store *s = postgres_of(store);
    hapax_error scratch;
    err = err != NULL ? err : &scratch;
    int code = postgres_refuse_read_only(s, err);
    if (code != 0) {
        return code;
    }
    struct postgres_params p = {.count = 0};
    PGresult *r;
    params_number(&p, (int64_t)owner);
    code = postgres_call(s, PG_forget_owner, &p, &r, err);
    int64_t runs = 0;
    if (code == 0 && !postgres_number_at(r, 0, 0, 0, INT64_MAX, &runs)) {
        code = postgres_damaged(s, "a count", err);
    }
    PQclear(r);
    return code == 0 && runs > 0
               ? error_set(err, HAPAX_E_CONFLICT, 0, "owner %llu still holds running records",
                           (unsigned long long)owner)
               : code;
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

/* The disk is the server's: `bytes` stays 0. */
int postgres_stats(struct store *store, struct store_stats *out, hapax_error *err)
{
    struct postgres_store *s = postgres_of(store);
    hapax_error scratch;
    err = err != NULL ? err : &scratch;
    *out = (struct store_stats){0};
    struct postgres_params p = {.count = 0};
    PGresult *r;
    int64_t n[3] = {0, 0, 0};
    int code = postgres_call(s, PG_stats, &p, &r, err);
    for (int i = 0; code == 0 && i < 3; i++) {
        if (!postgres_number_at(r, 0, i, 0, INT64_MAX, &n[i])) {
            code = postgres_damaged(s, "a count", err);
        }
    }
    PQclear(r);
    *out =
        (struct store_stats){.running = (uint64_t)n[0], .unknown = (uint64_t)n[1], .records = (uint64_t)n[2]};
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
