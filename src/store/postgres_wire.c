/* Statements in a pipeline: any number are queued, then one round trip fetches all their results. Every wait is bounded,
 * also where the server's host has gone silent; a connection that was waited for in vain is not used again. */
#include "store/postgres.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/error.h"
#include "postgres_statements_sql.h"
#include "store/statement_text.h"

#include <endian.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>

const char *const postgres_statement_names[PG_COUNT] = {
#define POSTGRES_STATEMENT_NAME(name) #name,
    POSTGRES_STATEMENTS(POSTGRES_STATEMENT_NAME)
#undef POSTGRES_STATEMENT_NAME
};

void params_free(struct postgres_params *p)
{
    for (int i = 0; i < p->count; i++) {
        free(p->value[i].bytes);
    }
    *p = (struct postgres_params){.count = 0};
}

static void append(struct postgres_params *p, struct postgres_value *v, const void *bytes, size_t len)
{
    if (p->failed) {
        return;
    }
    if (v->len + len > v->room) {
        size_t room = v->room * 2 > v->len + len ? v->room * 2 : v->len + len + 64;
        char *grown = realloc(v->bytes, room);
        if (grown == NULL) {
            p->failed = true;
            return;
        }
        v->bytes = grown;
        v->room = room;
    }
    if (len > 0) {
        memcpy(v->bytes + v->len, bytes, len);
    }
    v->len += len;
}

static void append_32(struct postgres_params *p, struct postgres_value *v, uint32_t n)
{
    uint32_t wire = htobe32(n);
    append(p, v, &wire, sizeof wire);
}

static struct postgres_value *next_value(struct postgres_params *p)
{
    HAPAX_ASSERT(p->count < POSTGRES_PARAMS_MAX);
    return &p->value[p->count++];
}

void params_number(struct postgres_params *p, int64_t n)
{
    uint64_t wire = htobe64((uint64_t)n);
    append(p, next_value(p), &wire, sizeof wire);
}

void params_null(struct postgres_params *p)
{
    next_value(p);
}

void params_now(struct postgres_params *p, const struct postgres_store *s, int64_t now_ms)
{
    if (s->caller_clock) {
        params_number(p, now_ms);
    } else {
        params_null(p);
    }
}

void params_bytes(struct postgres_params *p, struct slice bytes)
{
    struct postgres_value *v = next_value(p);
    append(p, v, bytes.ptr, bytes.len);
    if (v->bytes == NULL) { /* empty, which is not NULL */
        append(p, v, "", 1);
        v->len = 0;
    }
}

/* An array of one dimension: dimensions, "may hold NULLs", element type; its length and lower bound. */
#define ARRAY_COUNT_AT 12

int params_array(struct postgres_params *p, enum postgres_element element)
{
    struct postgres_value *v = next_value(p);
    append_32(p, v, 1);
    append_32(p, v, 1);
    append_32(p, v, (uint32_t)element);
    append_32(p, v, 0);
    append_32(p, v, 1);
    return p->count - 1;
}

static struct postgres_value *add(struct postgres_params *p, int at, uint32_t len)
{
    struct postgres_value *v = &p->value[at];
    v->count++;
    append_32(p, v, len);
    if (!p->failed) {
        uint32_t wire = htobe32(v->count);
        memcpy(v->bytes + ARRAY_COUNT_AT, &wire, sizeof wire);
    }
    return v;
}

void params_add_number(struct postgres_params *p, int at, int64_t n)
{
    uint64_t wire = htobe64((uint64_t)n);
    append(p, add(p, at, sizeof wire), &wire, sizeof wire);
}

void params_add_bytes(struct postgres_params *p, int at, struct slice bytes)
{
    append(p, add(p, at, (uint32_t)bytes.len), bytes.ptr, bytes.len);
}

void params_add_null(struct postgres_params *p, int at)
{
    add(p, at, UINT32_MAX);
}

size_t params_size(const struct postgres_params *p)
{
    size_t size = 0;
    for (int i = 0; i < p->count; i++) {
        size += p->value[i].len;
    }
    return size;
}

/* Queue a statement; the parameters stay the caller's. */
static int queue(struct postgres_store *s, enum postgres_statement which, const struct postgres_params *p,
                 hapax_error *err)
{
    const char *values[POSTGRES_PARAMS_MAX] = {NULL};
    int lengths[POSTGRES_PARAMS_MAX] = {0};
    int formats[POSTGRES_PARAMS_MAX] = {0};
    if (p->failed) {
        return error_code(err, HAPAX_E_MEMORY);
    }
    if (params_size(p) > (1U << 30) - 65536) {
        return error_set(err, HAPAX_E_LIMIT, 0, "an answer is larger than PostgreSQL can store");
    }
    for (int i = 0; i < p->count; i++) {
        values[i] = p->value[i].bytes;
        lengths[i] = (int)p->value[i].len;
        formats[i] = 1;
    }
    return PQsendQueryPrepared(s->db, postgres_statement_names[which], p->count, values, lengths, formats,
                               1) != 0
               ? 0
               : postgres_fail(s, NULL, err);
}

int postgres_send(struct postgres_store *s, enum postgres_statement which, struct postgres_params *p,
                  hapax_error *err)
{
    static const struct postgres_params none = {.count = 0};
    int code = queue(s, which, p != NULL ? p : &none, err);
    if (p != NULL) {
        params_free(p);
    }
    return code;
}

int postgres_send_text(struct postgres_store *s, const char *sql, hapax_error *err)
{
    return PQsendQueryParams(s->db, sql, 0, NULL, NULL, NULL, NULL, 1) != 0 ? 0 : postgres_fail(s, NULL, err);
}

bool postgres_wait(struct postgres_store *s, int64_t deadline)
{
    for (;;) {
        int unsent = PQflush(s->db);
        if (unsent < 0 || PQstatus(s->db) == CONNECTION_BAD) {
            /* What the server said before it closed is still to be read. */
            return PQconsumeInput(s->db) != 0 && PQisBusy(s->db) == 0;
        }
        if (PQisBusy(s->db) == 0) {
            return true;
        }
        int64_t left = deadline - clock_mono_ms();
        struct pollfd p = {.fd = PQsocket(s->db), .events = (short)(POLLIN | (unsent > 0 ? POLLOUT : 0))};
        int ready = left > 0 ? poll(&p, 1, (int)left) : 0;
        if (ready == 0 || (ready < 0 && errno != EINTR)) {
            return false;
        }
        if (PQconsumeInput(s->db) == 0) {
            return PQisBusy(s->db) == 0;
        }
    }
}

static PGresult *next_result(struct postgres_store *s, int64_t deadline)
{
    if (s->broken || !postgres_wait(s, deadline)) {
        s->broken = true;
        return NULL;
    }
    return PQgetResult(s->db);
}

/* A statement's result and the NULL after it. */
static int take_result(struct postgres_store *s, PGresult **out, int64_t deadline, hapax_error *err)
{
    *out = next_result(s, deadline);
    if (*out == NULL) {
        return postgres_fail(s, NULL, err);
    }
    ExecStatusType status = PQresultStatus(*out);
    int code = 0;
    if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK) {
        code = postgres_fail(s, *out, err);
    }
    if (s->broken) {
        return code;
    }
    PGresult *end = next_result(s, deadline);
    if (end != NULL) { /* never: one statement, one result */
        PQclear(end);
        s->broken = true;
    }
    return code;
}

int postgres_collect(struct postgres_store *s, PGresult **results, size_t n, hapax_error *err)
{
    int64_t deadline = clock_mono_ms() + s->busy_ms + POSTGRES_ANSWER_MS;
    size_t got = 0;
    int code = PQpipelineSync(s->db) != 0 ? 0 : postgres_fail(s, NULL, err);
    while (code == 0 && got < n) {
        code = take_result(s, &results[got++], deadline, err);
    }
    /* After an error the rest are skipped by the server: up to the end of the round trip. */
    while (!s->broken) {
        PGresult *r = next_result(s, deadline);
        bool end = r != NULL && PQresultStatus(r) == PGRES_PIPELINE_SYNC;
        PQclear(r);
        if (end) {
            break;
        }
    }
    if (s->broken && code == 0) {
        code = postgres_fail(s, NULL, err);
    }
    for (size_t i = 0; code != 0 && i < got; i++) {
        PQclear(results[i]);
    }
    return code;
}

int postgres_call(struct postgres_store *s, enum postgres_statement which, struct postgres_params *p,
                  PGresult **out, hapax_error *err)
{
    *out = NULL;
    int code = 0;
    for (int tries = 0; tries < 3; tries++) {
        code = postgres_usable(s, err);
        if (code != 0) {
            break;
        }
        code = queue(s, which, p, err);
        if (code == 0) {
            code = postgres_collect(s, out, 1, err);
        }
        if (code == 0 || !postgres_worth_retrying(s)) {
            break;
        }
    }
    params_free(p);
    if (code != 0) {
        *out = NULL;
    }
    return code;
}

int postgres_prepare_all(struct postgres_store *s, hapax_error *err)
{
    PGresult *results[PG_COUNT];
    for (int i = 0; i < PG_COUNT; i++) {
        struct slice part = statement_text(postgres_statements_sql, postgres_statement_names[i]);
        char *text = strndup(part.ptr, part.len);
        if (text == NULL) {
            return error_code(err, HAPAX_E_MEMORY);
        }
        int sent = PQsendPrepare(s->db, postgres_statement_names[i], text, 0, NULL);
        free(text);
        if (sent == 0) {
            return postgres_fail(s, NULL, err);
        }
    }
    int code = postgres_collect(s, results, PG_COUNT, err);
    for (int i = 0; code == 0 && i < PG_COUNT; i++) {
        PQclear(results[i]);
    }
    return code;
}
