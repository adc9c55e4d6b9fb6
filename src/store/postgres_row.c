/* Rows as records. A row may have been edited by hand: every value is checked, and one that can't be is an error of
 * the batch, never a guess. */
#include "store/postgres.h"

#include "base/error.h"

#include <endian.h>

enum {
    COLUMN_DIGEST,
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
    COLUMN_STATUS,
    COLUMN_KEPT,
    COLUMN_HEAD,
    COLUMN_BODY,
    COLUMN_BODY_BYTES = COLUMN_HEAD, /* of a listing */
    COLUMN_SCOPE = COLUMN_BODY,
    COLUMN_KEY,
};

bool postgres_number_at(const PGresult *r, int row, int column, int64_t min, int64_t max, int64_t *out)
{
    uint64_t wire;
    if (PQgetisnull(r, row, column) || PQgetlength(r, row, column) != (int)sizeof wire) {
        return false;
    }
    memcpy(&wire, PQgetvalue(r, row, column), sizeof wire);
    *out = (int64_t)be64toh(wire);
    return *out >= min && *out <= max;
}

struct slice postgres_bytes_at(const PGresult *r, int row, int column)
{
    return slice_of(PQgetvalue(r, row, column), (size_t)PQgetlength(r, row, column));
}

static bool fixed_at(const PGresult *r, int row, int column, void *out, size_t len)
{
    if (PQgetisnull(r, row, column) || (size_t)PQgetlength(r, row, column) != len) {
        return false;
    }
    memcpy(out, PQgetvalue(r, row, column), len);
    return true;
}

static bool fingerprint_at(const PGresult *r, int row, struct fingerprint *out)
{
    int64_t version;
    if (!postgres_number_at(r, row, COLUMN_FINGERPRINT_VERSION, 0, UINT8_MAX, &version)) {
        return false;
    }
    *out = (struct fingerprint){.version = (uint8_t)version};
    return version == 0 || fixed_at(r, row, COLUMN_FINGERPRINT, out->bytes, FINGERPRINT_BYTES);
}

int postgres_row_record(struct postgres_store *s, const PGresult *r, int row, struct record *out,
                        struct identity *id, hapax_error *err)
{
    int64_t serial;
    int64_t state;
    int64_t attempt;
    int64_t owner;
    if (!postgres_number_at(r, row, COLUMN_SERIAL, 1, INT64_MAX, &serial) ||
        !postgres_number_at(r, row, COLUMN_ATTEMPT, 1, UINT32_MAX, &attempt) ||
        !postgres_number_at(r, row, COLUMN_OWNER, 0, INT64_MAX, &owner)) {
        return postgres_damaged(s, "serial, attempt or owner", err);
    }
    if (!postgres_number_at(r, row, COLUMN_STATE, RECORD_RUNNING, RECORD_UNKNOWN, &state)) {
        return postgres_damaged(s, "its state", err);
    }
    *out = (struct record){.state = (enum record_state)state,
                           .fence = {.serial = (uint64_t)serial, .attempt = (uint32_t)attempt},
                           .owner = (uint64_t)owner};
    int64_t *const times[] = {&out->claimed_ms, &out->lease_ms, &out->ended_ms, &out->expires_ms,
                              &out->ttl_ms};
    for (int i = 0; i < 5; i++) {
        if (!postgres_number_at(r, row, COLUMN_CLAIMED + i, INT64_MIN, INT64_MAX, times[i])) {
            return postgres_damaged(s, "a time", err);
        }
    }
    if (!fingerprint_at(r, row, &out->fingerprint)) {
        return postgres_damaged(s, "its fingerprint", err);
    }
    if (!fixed_at(r, row, COLUMN_DIGEST, id->bytes, IDENTITY_BYTES)) {
        return postgres_damaged(s, "its digest", err);
    }
    return 0;
}

int postgres_row_answer(struct postgres_store *s, const PGresult *r, int row, struct answer **out,
                        hapax_error *err)
{
    int64_t status;
    int64_t kept;
    struct slice head = postgres_bytes_at(r, row, COLUMN_HEAD);
    if (!postgres_number_at(r, row, COLUMN_STATUS, 0, UINT16_MAX, &status) ||
        !postgres_number_at(r, row, COLUMN_KEPT, 0, 1, &kept) || PQgetisnull(r, row, COLUMN_HEAD) ||
        PQgetisnull(r, row, COLUMN_BODY) || head.len > LIMIT_ANSWER_HEAD_BYTES_MAX) {
        return postgres_damaged(s, "its answer", err);
    }
    *out = answer_make((uint16_t)status, kept != 0, head, postgres_bytes_at(r, row, COLUMN_BODY));
    return *out != NULL ? 0 : error_code(err, HAPAX_E_MEMORY);
}

int postgres_row_listed(struct postgres_store *s, const PGresult *r, int row, struct store_row *out,
                        hapax_error *err)
{
    int64_t status = 0;
    int64_t kept = 0;
    int64_t body_bytes = 0;
    if (out->record.state == RECORD_DONE &&
        (!postgres_number_at(r, row, COLUMN_STATUS, 0, UINT16_MAX, &status) ||
         !postgres_number_at(r, row, COLUMN_KEPT, 0, 1, &kept) ||
         !postgres_number_at(r, row, COLUMN_BODY_BYTES, 0, INT64_MAX, &body_bytes))) {
        return postgres_damaged(s, "its answer", err);
    }
    out->status = (uint16_t)status;
    out->kept = kept != 0;
    out->body_bytes = (uint64_t)body_bytes;
    out->scope = postgres_bytes_at(r, row, COLUMN_SCOPE);
    out->key = postgres_bytes_at(r, row, COLUMN_KEY);
    return 0;
}
