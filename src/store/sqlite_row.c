/* Rows as records. A row may have been edited by hand or hit by a bad disk: every value is checked, and one
 * that can't be is an error of the batch, never a guess. */
#include "store/sqlite.h"

#include "base/error.h"
#include "base/limits.h"

enum {
    COLUMN_SERIAL,
    COLUMN_STATE,
    COLUMN_ATTEMPT,
    COLUMN_OWNER,
    COLUMN_CLAIMED,
    COLUMN_LEASE,
    COLUMN_ENDED,
    COLUMN_EXPIRES,
    COLUMN_TTL,
    COLUMN_FINGERPRINT_VERSION,
    COLUMN_FINGERPRINT,
    COLUMN_DIGEST,
    COLUMN_STATUS,
    COLUMN_KEPT,
    COLUMN_HEAD,
    COLUMN_BODY,
    COLUMN_BODY_BYTES = COLUMN_HEAD, /* of a listing */
    COLUMN_SCOPE,
    COLUMN_KEY,
};

/* An integer within [min, max]. */
static bool integer_at(sqlite3_stmt *st, int column, int64_t min, int64_t max, int64_t *out)
{
    if (sqlite3_column_type(st, column) != SQLITE_INTEGER) {
        return false;
    }
    *out = sqlite3_column_int64(st, column);
    return *out >= min && *out <= max;
}

static bool bytes_at(sqlite3_stmt *st, int column, void *out, size_t len)
{
    if (sqlite3_column_type(st, column) != SQLITE_BLOB || (size_t)sqlite3_column_bytes(st, column) != len) {
        return false;
    }
    memcpy(out, sqlite3_column_blob(st, column), len);
    return true;
}

static bool fingerprint_at(sqlite3_stmt *st, struct fingerprint *out)
{
    int64_t version;
    if (!integer_at(st, COLUMN_FINGERPRINT_VERSION, 0, UINT8_MAX, &version)) {
        return false;
    }
    *out = (struct fingerprint){.version = (uint8_t)version};
    return version == 0 || bytes_at(st, COLUMN_FINGERPRINT, out->bytes, FINGERPRINT_BYTES);
}

int sqlite_row_record(struct sqlite_store *s, sqlite3_stmt *st, struct record *r, struct identity *id,
                      hapax_error *err)
{
    int64_t serial;
    int64_t state;
    int64_t attempt;
    int64_t owner;
    if (!integer_at(st, COLUMN_SERIAL, 1, INT64_MAX, &serial) ||
        !integer_at(st, COLUMN_ATTEMPT, 1, UINT32_MAX, &attempt) ||
        !integer_at(st, COLUMN_OWNER, 0, INT64_MAX, &owner)) {
        return sqlite_damaged(s, "serial, attempt or owner", err);
    }
    if (!integer_at(st, COLUMN_STATE, RECORD_RUNNING, RECORD_UNKNOWN, &state)) {
        return sqlite_damaged(s, "its state", err);
    }
    *r = (struct record){.state = (enum record_state)state,
                         .fence = {.serial = (uint64_t)serial, .attempt = (uint32_t)attempt},
                         .owner = (uint64_t)owner};
    if (!integer_at(st, COLUMN_CLAIMED, INT64_MIN, INT64_MAX, &r->claimed_ms) ||
        !integer_at(st, COLUMN_LEASE, INT64_MIN, INT64_MAX, &r->lease_ms) ||
        !integer_at(st, COLUMN_ENDED, INT64_MIN, INT64_MAX, &r->ended_ms) ||
        !integer_at(st, COLUMN_EXPIRES, INT64_MIN, INT64_MAX, &r->expires_ms) ||
        !integer_at(st, COLUMN_TTL, INT64_MIN, INT64_MAX, &r->ttl_ms)) {
        return sqlite_damaged(s, "a time", err);
    }
    if (!fingerprint_at(st, &r->fingerprint)) {
        return sqlite_damaged(s, "its fingerprint", err);
    }
    struct identity scratch;
    if (!bytes_at(st, COLUMN_DIGEST, id != NULL ? id->bytes : scratch.bytes, IDENTITY_BYTES)) {
        return sqlite_damaged(s, "its digest", err);
    }
    return 0;
}

/* A blob's bytes; NULL stands for none. */
static bool blob_at(sqlite3_stmt *st, int column, struct slice *out)
{
    int type = sqlite3_column_type(st, column);
    if (type != SQLITE_BLOB && type != SQLITE_NULL) {
        return false;
    }
    const void *ptr = sqlite3_column_blob(st, column);
    *out = slice_of(ptr, (size_t)sqlite3_column_bytes(st, column));
    return true;
}

int sqlite_row_answer(struct sqlite_store *s, sqlite3_stmt *st, struct answer **out, hapax_error *err)
{
    int64_t status;
    int64_t kept;
    struct slice head;
    struct slice body;
    if (!integer_at(st, COLUMN_STATUS, 0, UINT16_MAX, &status) || !integer_at(st, COLUMN_KEPT, 0, 1, &kept) ||
        !blob_at(st, COLUMN_HEAD, &head) || !blob_at(st, COLUMN_BODY, &body) ||
        head.len > LIMIT_ANSWER_HEAD_BYTES_MAX) {
        return sqlite_damaged(s, "its answer", err);
    }
    /* SQLite returns NULL for an empty blob, and for one it has no memory for. */
    if ((head.ptr == NULL || body.ptr == NULL) && sqlite3_errcode(s->db) == SQLITE_NOMEM) {
        return error_code(err, HAPAX_E_MEMORY);
    }
    *out = answer_make((uint16_t)status, kept != 0, head, body);
    return *out != NULL ? 0 : error_code(err, HAPAX_E_MEMORY);
}

/* Asked for as a blob: for a text SQLite would add a NUL, and give nothing when it has no memory for that. */
struct slice sqlite_row_text(sqlite3_stmt *st, int column)
{
    const void *ptr = sqlite3_column_blob(st, column);
    return slice_of(ptr != NULL ? ptr : "", ptr != NULL ? (size_t)sqlite3_column_bytes(st, column) : 0);
}

int sqlite_row_listed(struct sqlite_store *s, sqlite3_stmt *st, struct store_row *row, hapax_error *err)
{
    int64_t status = 0;
    int64_t kept = 0;
    int64_t body_bytes = 0;
    if (row->record.state == RECORD_DONE && (!integer_at(st, COLUMN_STATUS, 0, UINT16_MAX, &status) ||
                                             !integer_at(st, COLUMN_KEPT, 0, 1, &kept))) {
        return sqlite_damaged(s, "its answer", err);
    }
    if (row->record.state == RECORD_DONE && sqlite3_column_type(st, COLUMN_BODY_BYTES) != SQLITE_NULL &&
        !integer_at(st, COLUMN_BODY_BYTES, 0, INT64_MAX, &body_bytes)) {
        return sqlite_damaged(s, "its answer", err);
    }
    row->status = (uint16_t)status;
    row->kept = kept != 0;
    row->body_bytes = (uint64_t)body_bytes;
    row->scope = sqlite_row_text(st, COLUMN_SCOPE);
    row->key = sqlite_row_text(st, COLUMN_KEY);
    return 0;
}
