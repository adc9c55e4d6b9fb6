/* What is not a batch: sweep, abandon, owners, listings, counts. */
#include "store/sqlite.h"

#include "base/assert.h"
#include "base/error.h"
#include "base/limits.h"
#include "store/rules.h"

#include <stdio.h>
#include <sys/stat.h>

/* Up to this many serials between the first and the last done record they are counted one by one. */
#define COUNT_SPAN_MAX 200000
/* Freeing a row walks all pages of its answer: about 3 ms a MiB, during which the lane does nothing else. */
#define SWEEP_BYTES_MAX (4 << 20)

static int enter(struct sqlite_store *s, bool write, hapax_error *err)
{
    int code = write ? sqlite_refuse_read_only(s, err) : 0;
    if (code == 0) {
        code = sqlite_usable(s, err);
    }
    return code == 0 ? sqlite_begin(s, write, err) : code;
}

/* Commit when all went well. */
static int leave(struct sqlite_store *s, int code, hapax_error *err)
{
    if (code == 0) {
        code = sqlite_commit(s, err);
    }
    if (code != 0) {
        sqlite_rollback(s);
    }
    return code;
}

static sqlite3_stmt *get_sweep(struct sqlite_store *s, enum sqlite_statement which, int64_t now_ms,
                               uint32_t rows, hapax_error *err)
{
    sqlite3_stmt *st = sqlite_get(s, which, err);
    if (st != NULL) {
        sqlite3_bind_int64(st, 1, now_ms);
        sqlite3_bind_int64(st, 2, rows);
    }
    return st;
}

/* How many rows the slice has, and the largest serial that goes with them. */
static int measure_sweep(struct sqlite_store *s, int64_t now_ms, uint32_t rows_max, uint32_t *rows,
                         hapax_error *err)
{
    sqlite3_stmt *st = get_sweep(s, SQL_sweep_next, now_ms, rows_max, err);
    if (st == NULL) {
        return err->code;
    }
    int64_t bytes = 0;
    int rc = SQLITE_DONE;
    while (bytes < SWEEP_BYTES_MAX && (rc = sqlite3_step(st)) == SQLITE_ROW) {
        uint64_t serial = (uint64_t)sqlite3_column_int64(st, 0);
        s->serial_removed = serial > s->serial_removed ? serial : s->serial_removed;
        bytes += sqlite3_column_int64(st, 1);
        ++*rows;
    }
    int code = rc == SQLITE_ROW || rc == SQLITE_DONE ? 0 : sqlite_fail(s, rc, err);
    sqlite3_reset(st);
    return code;
}

static int sweep_slice(struct sqlite_store *s, int64_t now_ms, uint32_t rows_max, uint32_t *removed,
                       hapax_error *err)
{
    static const enum sqlite_statement steps[] = {SQL_sweep_identities, SQL_sweep_ended};
    int code = measure_sweep(s, now_ms, rows_max, removed, err);
    for (size_t i = 0; i < 2 && code == 0 && *removed > 0; i++) {
        sqlite3_stmt *st = get_sweep(s, steps[i], now_ms, *removed, err);
        code = st != NULL ? sqlite_run(s, st, err) : err->code;
    }
    return code;
}

int sqlite_sweep(struct store *store, int64_t now_ms, uint32_t rows_max, uint32_t *removed, hapax_error *err)
{
    struct sqlite_store *s = sqlite_of(store);
    hapax_error scratch;
    err = err != NULL ? err : &scratch;
    *removed = 0;
    int code = enter(s, true, err);
    if (code == 0) {
        code = leave(s, sweep_slice(s, now_ms, rows_max, removed, err), err);
    }
    if (code != 0) {
        *removed = 0;
    }
    return code;
}

static int abandon_slice(struct sqlite_store *s, uint64_t owner, int64_t now_ms, uint32_t rows_max,
                         uint32_t *changed, hapax_error *err)
{
    static const enum sqlite_statement steps[] = {SQL_abandon_copy, SQL_abandon_delete};
    for (size_t i = 0; i < 2; i++) {
        sqlite3_stmt *st = sqlite_get(s, steps[i], err);
        if (st == NULL) {
            return err->code;
        }
        sqlite3_bind_int64(st, 1, (int64_t)owner);
        sqlite3_bind_int64(st, 2, now_ms);
        sqlite3_bind_int64(st, 3, rows_max);
        int code = sqlite_run(s, st, err);
        if (code != 0) {
            return code;
        }
        *changed = (uint32_t)sqlite3_changes(s->db);
        if (*changed == 0) {
            break;
        }
    }
    return 0;
}

int sqlite_abandon(struct store *store, uint64_t owner, int64_t now_ms, uint32_t rows_max, uint32_t *changed,
                   hapax_error *err)
{
    struct sqlite_store *s = sqlite_of(store);
    hapax_error scratch;
    err = err != NULL ? err : &scratch;
    *changed = 0;
    int code = enter(s, true, err);
    if (code == 0) {
        code = leave(s, abandon_slice(s, owner, now_ms, rows_max, changed, err), err);
    }
    if (code != 0) {
        *changed = 0;
    }
    return code;
}

int sqlite_owner_number(struct sqlite_store *s, hapax_error *err)
{
    sqlite3_stmt *find = sqlite_get(s, SQL_find_owner, err);
    sqlite3_stmt *insert = find != NULL ? sqlite_get(s, SQL_insert_owner, err) : NULL;
    if (insert == NULL) {
        return err->code;
    }
    sqlite3_bind_text(find, 1, s->owner_text, -1, SQLITE_STATIC);
    int rc = sqlite3_step(find);
    if (rc == SQLITE_ROW) {
        s->owner = (uint64_t)sqlite3_column_int64(find, 0);
    }
    int code = rc == SQLITE_ROW || rc == SQLITE_DONE ? 0 : sqlite_fail(s, rc, err);
    sqlite3_reset(find);
    if (rc != SQLITE_DONE) {
        return code;
    }
    sqlite3_bind_text(insert, 1, s->owner_text, -1, SQLITE_STATIC);
    code = sqlite_run(s, insert, err);
    if (code == 0) {
        s->owner = (uint64_t)sqlite3_last_insert_rowid(s->db);
    }
    return code;
}

int sqlite_register_owner(struct store *store, const char *text, uint64_t *number, hapax_error *err)
{
    struct sqlite_store *s = sqlite_of(store);
    hapax_error scratch;
    err = err != NULL ? err : &scratch;
    size_t len = strlen(text);
    if (len == 0 || len > LIMIT_OWNER_TEXT_BYTES_MAX) {
        return error_set(err, HAPAX_E_ARGUMENT, 0, "an owner's text has 1 to %d bytes",
                         LIMIT_OWNER_TEXT_BYTES_MAX);
    }
    int code = enter(s, true, err);
    if (code != 0) {
        return code;
    }
    uint64_t owner = s->owner;
    char owner_text[sizeof s->owner_text];
    memcpy(owner_text, s->owner_text, sizeof owner_text);
    memcpy(s->owner_text, text, len + 1);
    code = leave(s, sqlite_owner_number(s, err), err);
    if (code != 0) {
        s->owner = owner;
        memcpy(s->owner_text, owner_text, sizeof owner_text);
        return code;
    }
    *number = s->owner;
    return 0;
}

static int walk_owners(struct sqlite_store *s, int (*each)(void *ctx, const struct store_owner *o), void *ctx,
                       hapax_error *err)
{
    sqlite3_stmt *st = sqlite_get(s, SQL_owners, err);
    if (st == NULL) {
        return err->code;
    }
    int rc;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        struct store_owner o = {.number = (uint64_t)sqlite3_column_int64(st, 0)};
        struct slice text = sqlite_row_text(st, 1);
        memcpy(o.text, text.ptr, text.len < sizeof o.text ? text.len : sizeof o.text - 1);
        if (each(ctx, &o) != 0) {
            rc = SQLITE_DONE;
            break;
        }
    }
    int code = rc == SQLITE_DONE ? 0 : sqlite_fail(s, rc, err);
    sqlite3_reset(st);
    return code;
}

int sqlite_owners(struct store *store, int (*each)(void *ctx, const struct store_owner *o), void *ctx,
                  hapax_error *err)
{
    struct sqlite_store *s = sqlite_of(store);
    hapax_error scratch;
    err = err != NULL ? err : &scratch;
    int code = enter(s, false, err);
    return code == 0 ? leave(s, walk_owners(s, each, ctx, err), err) : code;
}

static int forget_owner(struct sqlite_store *s, uint64_t owner, hapax_error *err)
{
    sqlite3_stmt *runs = sqlite_get(s, SQL_owner_runs, err);
    sqlite3_stmt *delete = runs != NULL ? sqlite_get(s, SQL_delete_owner, err) : NULL;
    if (delete == NULL) {
        return err->code;
    }
    sqlite3_bind_int64(runs, 1, (int64_t)owner);
    int rc = sqlite3_step(runs);
    bool holds = rc == SQLITE_ROW && sqlite3_column_int(runs, 0) != 0;
    int code = rc == SQLITE_ROW ? 0 : sqlite_fail(s, rc, err);
    sqlite3_reset(runs);
    if (code != 0) {
        return code;
    }
    if (holds) {
        return error_set(err, HAPAX_E_CONFLICT, 0, "owner %llu still holds running records",
                         (unsigned long long)owner);
    }
    sqlite3_bind_int64(delete, 1, (int64_t)owner);
    return sqlite_run(s, delete, err);
}

int sqlite_forget_owner(struct store *store, uint64_t owner, hapax_error *err)
{
    struct sqlite_store *s = sqlite_of(store);
    hapax_error scratch;
    err = err != NULL ? err : &scratch;
    int code = enter(s, true, err);
    return code == 0 ? leave(s, forget_owner(s, owner, err), err) : code;
}

static void bind_filter(sqlite3_stmt *st, int at, struct slice text)
{
    if (slice_is_none(text)) {
        sqlite3_bind_null(st, at);
    } else {
        sqlite3_bind_text(st, at, text.ptr, (int)text.len, SQLITE_STATIC);
    }
}

static int list_page(struct sqlite_store *s, const struct store_filter *f, int64_t now_ms,
                     void (*each)(void *ctx, const struct store_row *row), void *ctx, hapax_error *err)
{
    static const enum sqlite_statement by_state[] = {[RECORD_ABSENT] = SQL_list_all,
                                                     [RECORD_RUNNING] = SQL_list_running,
                                                     [RECORD_DONE] = SQL_list_done,
                                                     [RECORD_UNKNOWN] = SQL_list_unknown};
    sqlite3_stmt *st = sqlite_get(s, by_state[f->state], err);
    if (st == NULL) {
        return err->code;
    }
    sqlite3_bind_int64(st, 1, f->after_serial > INT64_MAX ? INT64_MAX : (int64_t)f->after_serial);
    bind_filter(st, 2, f->scope);
    bind_filter(st, 3, f->key);
    sqlite3_bind_int64(st, 4, now_ms);
    sqlite3_bind_int64(st, 5, f->rows_max);
    int rc;
    int code = 0;
    while (code == 0 && (rc = sqlite3_step(st)) != SQLITE_DONE) {
        if (rc != SQLITE_ROW) {
            code = sqlite_fail(s, rc, err);
            break;
        }
        struct store_row row = {0};
        code = sqlite_row_record(s, st, &row.record, &row.id, err);
        if (code == 0) {
            code = sqlite_row_listed(s, st, &row, err);
        }
        if (code == 0) {
            row.record = rule_seen(&row.record, now_ms);
            each(ctx, &row);
        }
    }
    sqlite3_reset(st);
    sqlite3_clear_bindings(st);
    return code;
}

int sqlite_list(struct store *store, const struct store_filter *f, int64_t now_ms,
                void (*each)(void *ctx, const struct store_row *row), void *ctx, hapax_error *err)
{
    HAPAX_ASSERT(f->rows_max >= 1 && f->rows_max <= LIMIT_LIST_PAGE_MAX && f->state <= RECORD_UNKNOWN);
    struct sqlite_store *s = sqlite_of(store);
    hapax_error scratch;
    err = err != NULL ? err : &scratch;
    int code = enter(s, false, err);
    return code == 0 ? leave(s, list_page(s, f, now_ms, each, ctx, err), err) : code;
}

static uint64_t file_bytes(const char *path, const char *suffix)
{
    char name[4200];
    struct stat st;
    int len = snprintf(name, sizeof name, "%s%s", path, suffix);
    return len > 0 && (size_t)len < sizeof name && stat(name, &st) == 0 ? (uint64_t)st.st_size : 0;
}

static int count(struct sqlite_store *s, struct store_stats *out, hapax_error *err)
{
    sqlite3_stmt *st = sqlite_get(s, SQL_count_open, err);
    sqlite3_stmt *all = st != NULL ? sqlite_get(s, SQL_count_ended, err) : NULL;
    if (all == NULL) {
        return err->code;
    }
    int rc = sqlite3_step(st);
    if (rc != SQLITE_ROW) {
        int code = sqlite_fail(s, rc, err);
        sqlite3_reset(st);
        return code;
    }
    out->running = (uint64_t)sqlite3_column_int64(st, 0);
    out->unknown = (uint64_t)sqlite3_column_int64(st, 1);
    int64_t first = sqlite3_column_int64(st, 2);
    int64_t last = sqlite3_column_int64(st, 3);
    sqlite3_reset(st);
    /* Serials have gaps (releases), so the span is an upper bound; walking millions of rows for a
     * gauge is not worth it. */
    uint64_t ended = last > 0 ? (uint64_t)(last - first) + 1 : 0;
    if (ended > 0 && ended <= COUNT_SPAN_MAX) {
        rc = sqlite3_step(all);
        if (rc == SQLITE_ROW) {
            ended = (uint64_t)sqlite3_column_int64(all, 0);
        }
        int code = rc == SQLITE_ROW ? 0 : sqlite_fail(s, rc, err);
        sqlite3_reset(all);
        if (code != 0) {
            return code;
        }
    }
    out->records = out->running + ended;
    return 0;
}

int sqlite_stats(struct store *store, struct store_stats *out, hapax_error *err)
{
    struct sqlite_store *s = sqlite_of(store);
    hapax_error scratch;
    err = err != NULL ? err : &scratch;
    *out = (struct store_stats){0};
    int code = enter(s, false, err);
    if (code == 0) {
        code = leave(s, count(s, out, err), err);
    }
    out->bytes = file_bytes(s->path, "") + file_bytes(s->path, "-wal");
    return code;
}

static int read_generation(struct sqlite_store *s, uint64_t *out, hapax_error *err)
{
    sqlite3_stmt *st = sqlite_get(s, SQL_generation, err);
    if (st == NULL) {
        return err->code;
    }
    int rc = sqlite3_step(st);
    if (rc == SQLITE_ROW) {
        *out = (uint64_t)sqlite3_column_int64(st, 0);
    }
    int code = rc == SQLITE_ROW    ? 0
               : rc == SQLITE_DONE ? sqlite_damaged(s, "the generation is gone", err)
                                   : sqlite_fail(s, rc, err);
    sqlite3_reset(st);
    return code;
}

int sqlite_generation(struct store *store, uint64_t *out, hapax_error *err)
{
    struct sqlite_store *s = sqlite_of(store);
    hapax_error scratch;
    err = err != NULL ? err : &scratch;
    int code = enter(s, false, err);
    return code == 0 ? leave(s, read_generation(s, out, err), err) : code;
}
