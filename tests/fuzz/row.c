/* Rows of the SQLite store as records and answers (store/sqlite_row.c, core/answer.h): per column [type] value.
 *
 * The columns are bound to a statement of an SQLite database in memory, so that each can be of any type, as in a file that
 * was damaged or edited. A model of what a valid row is stands here a second time.
 *
 * Would catch: a row that is taken though a value in it can't be, or refused though none is wrong; a value that is not
 * what the row holds; an answer whose head or body is cut or mixed up; an error that is no HAPAX_E_STORE_CORRUPT. */
#include "fuzz.h"

#include "base/limits.h"
#include "core/answer.h"
#include "store/sqlite.h"

enum { COLUMNS = 17, FINGERPRINT_AT = 10, DIGEST_AT = 11, ANSWER_AT = 12 };

struct column {
    int type; /* SQLITE_INTEGER ... */
    int64_t integer;
    struct slice bytes; /* of a blob or text */
};

static sqlite3 *database;

static void finish(void)
{
    sqlite3_close(database);
}

static sqlite3_stmt *prepare(void)
{
    if (database == NULL) {
        FUZZ_CHECK(sqlite3_open(":memory:", &database) == SQLITE_OK);
        atexit(finish);
    }
    sqlite3_stmt *st;
    FUZZ_CHECK(sqlite3_prepare_v2(database,
                                  "SELECT ?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14,?15,?16,?17", -1,
                                  &st, NULL) == SQLITE_OK);
    return st;
}

/* What a row of the store holds in this column; the input says where it differs. */
static struct column usual(int i, struct input *in)
{
    static const uint8_t types[COLUMNS] = {
        SQLITE_INTEGER, SQLITE_INTEGER, SQLITE_INTEGER, SQLITE_INTEGER, SQLITE_INTEGER, SQLITE_INTEGER,
        SQLITE_INTEGER, SQLITE_INTEGER, SQLITE_INTEGER, SQLITE_INTEGER, SQLITE_BLOB,    SQLITE_BLOB,
        SQLITE_INTEGER, SQLITE_INTEGER, SQLITE_BLOB,    SQLITE_BLOB,    SQLITE_TEXT,
    };
    struct column c = {.type = types[i], .integer = 1};
    if (i == FINGERPRINT_AT || i == DIGEST_AT) {
        c.bytes = input_piece(in, 16);
    } else if (i >= ANSWER_AT) {
        c.bytes = input_piece(in, input_byte(in));
        c.integer = i == ANSWER_AT ? 201 : 1;
    }
    return c;
}

static struct column read_column(int i, struct input *in)
{
    uint8_t kind = input_byte(in);
    switch (kind % 8) {
    case 0:
        return (struct column){.type = SQLITE_NULL};
    case 1:
        return (struct column){.type = SQLITE_INTEGER, .integer = (int64_t)input_u64(in)};
    case 2:
        return (struct column){.type = SQLITE_INTEGER, .integer = (int8_t)input_byte(in)};
    case 3:
        return (struct column){.type = SQLITE_BLOB, .bytes = input_piece(in, input_byte(in))};
    case 4:
        return (struct column){.type = SQLITE_TEXT, .bytes = input_piece(in, input_byte(in))};
    case 5:
        return (struct column){.type = SQLITE_FLOAT};
    default:
        return usual(i, in);
    }
}

static void bind(sqlite3_stmt *st, int i, const struct column *c)
{
    int rc = SQLITE_OK;
    switch (c->type) {
    case SQLITE_INTEGER:
        rc = sqlite3_bind_int64(st, i + 1, c->integer);
        break;
    case SQLITE_BLOB:
        rc = sqlite3_bind_blob64(st, i + 1, c->bytes.len > 0 ? c->bytes.ptr : "", c->bytes.len,
                                 SQLITE_TRANSIENT);
        break;
    case SQLITE_TEXT:
        rc = sqlite3_bind_text64(st, i + 1, c->bytes.len > 0 ? c->bytes.ptr : "", c->bytes.len,
                                 SQLITE_TRANSIENT, SQLITE_UTF8);
        break;
    case SQLITE_FLOAT:
        rc = sqlite3_bind_double(st, i + 1, 1.0);
        break;
    default:
        break; /* NULL */
    }
    FUZZ_CHECK(rc == SQLITE_OK);
}

/* ---- the model ------------------------------------------------------------------------------------- */

static bool is_integer(const struct column *c, int64_t min, int64_t max)
{
    return c->type == SQLITE_INTEGER && c->integer >= min && c->integer <= max;
}

static bool is_record(const struct column c[COLUMNS])
{
    bool times = true;
    for (int i = 4; i <= 8; i++) {
        times = times && c[i].type == SQLITE_INTEGER;
    }
    bool fingerprint =
        is_integer(&c[9], 0, 255) &&
        (c[9].integer == 0 || (c[FINGERPRINT_AT].type == SQLITE_BLOB && c[FINGERPRINT_AT].bytes.len == 16));
    return is_integer(&c[0], 1, INT64_MAX) && is_integer(&c[1], 1, 3) && is_integer(&c[2], 1, UINT32_MAX) &&
           is_integer(&c[3], 0, INT64_MAX) && times && fingerprint && c[DIGEST_AT].type == SQLITE_BLOB &&
           c[DIGEST_AT].bytes.len == 16;
}

static bool is_bytes(const struct column *c)
{
    return c->type == SQLITE_BLOB || c->type == SQLITE_NULL;
}

static bool is_answer(const struct column c[COLUMNS])
{
    return is_integer(&c[12], 0, UINT16_MAX) && is_integer(&c[13], 0, 1) && is_bytes(&c[14]) &&
           is_bytes(&c[15]);
}

/* ---- checks ----------------------------------------------------------------------------------------- */

static void check_refused(int rc, const hapax_error *err)
{
    FUZZ_CHECK(rc == HAPAX_E_STORE_CORRUPT && err->code == rc && strstr(err->message, "damaged") != NULL);
}

static bool check_record(struct sqlite_store *s, sqlite3_stmt *st, const struct column c[COLUMNS],
                         struct record *r)
{
    struct identity id;
    hapax_error err = {0};
    int rc = sqlite_row_record(s, st, r, &id, &err);
    FUZZ_CHECK((rc == 0) == is_record(c));
    if (rc != 0) {
        check_refused(rc, &err);
        return false;
    }
    FUZZ_CHECK(r->fence.serial == (uint64_t)c[0].integer && r->state == (enum record_state)c[1].integer &&
               r->fence.attempt == (uint32_t)c[2].integer && r->owner == (uint64_t)c[3].integer);
    FUZZ_CHECK(r->claimed_ms == c[4].integer && r->lease_ms == c[5].integer && r->ended_ms == c[6].integer &&
               r->expires_ms == c[7].integer && r->ttl_ms == c[8].integer);
    FUZZ_CHECK(r->fingerprint.version == c[9].integer && memcmp(id.bytes, c[DIGEST_AT].bytes.ptr, 16) == 0);
    FUZZ_CHECK(r->fingerprint.version == 0 ||
               memcmp(r->fingerprint.bytes, c[FINGERPRINT_AT].bytes.ptr, FINGERPRINT_BYTES) == 0);
    record_state_at(r, INT64_MAX);
    record_state_at(r, INT64_MIN);
    return true;
}

static void check_answer(struct sqlite_store *s, sqlite3_stmt *st, const struct column c[COLUMNS])
{
    struct answer *a = NULL;
    hapax_error err = {0};
    int rc = sqlite_row_answer(s, st, &a, &err);
    FUZZ_CHECK((rc == 0) == is_answer(c));
    if (rc != 0) {
        check_refused(rc, &err);
        return;
    }
    FUZZ_CHECK(a->status == c[12].integer && a->kept == (c[13].integer == 1));
    FUZZ_CHECK(slice_equal(answer_head(a), c[14].bytes) && slice_equal(answer_body(a), c[15].bytes));
    answer_drop(a);
}

/* A listing has the length of the body in column 14, and scope and key (of which there is one here) behind it. */
static void check_listed(struct sqlite_store *s, sqlite3_stmt *st, const struct column c[COLUMNS],
                         const struct record *r)
{
    struct store_row row = {.record = *r};
    hapax_error err = {0};
    int rc = sqlite_row_listed(s, st, &row, &err);
    bool done = r->state == RECORD_DONE;
    bool good = is_integer(&c[12], 0, UINT16_MAX) && is_integer(&c[13], 0, 1) &&
                (c[14].type == SQLITE_NULL || is_integer(&c[14], 0, INT64_MAX));
    FUZZ_CHECK((rc == 0) == (!done || good));
    if (rc != 0) {
        check_refused(rc, &err);
        return;
    }
    FUZZ_CHECK(row.status == (done ? c[12].integer : 0) && row.kept == (done && c[13].integer == 1));
    bool text = c[15].type == SQLITE_TEXT || c[15].type == SQLITE_BLOB;
    FUZZ_CHECK(!text || slice_equal(row.scope, c[15].bytes));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = {data, size};
    struct column columns[COLUMNS];
    sqlite3_stmt *st = prepare();
    for (int i = 0; i < COLUMNS; i++) {
        columns[i] = read_column(i, &in);
        bind(st, i, &columns[i]);
    }
    FUZZ_CHECK(sqlite3_step(st) == SQLITE_ROW);
    char path[] = "fuzz";
    struct sqlite_store s = {.path = path, .db = database};
    struct record r;
    if (check_record(&s, st, columns, &r)) {
        check_answer(&s, st, columns);
        check_listed(&s, st, columns, &r);
    }
    sqlite3_finalize(st);
    return 0;
}
