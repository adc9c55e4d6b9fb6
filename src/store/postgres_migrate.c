/* The tables' versions. hapax.meta says two: 'schema', what the tables are, and 'least', the oldest schema whose programs
 * may work with them. So programs of one version difference share a database while they are replaced one by one: an
 * older program works with newer tables that still say so, a newer one migrates older tables first.
 *
 * A migration therefore only adds: tables, columns that have defaults, indexes, functions. What a program of `least`
 * reads and writes stays as it is. It runs in one transaction under one lock: of several processes that start at once
 * one migrates and the others find it done; one that dies half-way leaves nothing. */
#include "store/postgres.h"

#include "base/error.h"
#include "functions_sql.h"
#include "postgres_schema_sql.h"

#include <stdio.h>
#include <stdlib.h>

#define MIGRATION_LOCK "5207941186273124216" /* any number that others are unlikely to use */
/* How long to wait while another process migrates. The locks of tables are waited for as briefly as ever: everybody
 * else's operations stand in line behind such a wait. */
#define MIGRATION_WAIT "120s"

/* migrations[v] takes tables of version v to v + 1. Only ever appended to. */
static const struct migration {
    const char *sql;
    long least; /* its own version less one, unless programs of that version can't work with the new tables */
} migrations[] = {
    {postgres_schema_sql, 1},
    {functions_sql, 1},
};

#define NEWEST ((long)(sizeof migrations / sizeof migrations[0]))

struct versions {
    long schema; /* 0: there are no tables */
    long least;
};

static int read_versions(struct postgres_store *s, struct versions *out, hapax_error *err)
{
    PGresult *r = NULL;
    *out = (struct versions){0, 0};
    int code = postgres_run(s, "SELECT to_regclass('hapax.meta') IS NOT NULL", &r, err);
    bool there = code == 0 && PQgetvalue(r, 0, 0)[0] == 't';
    PQclear(r);
    if (!there) {
        return code;
    }
    r = NULL;
    code = postgres_run(s,
                        "SELECT a.value, b.value FROM hapax.meta a, hapax.meta b"
                        " WHERE a.name = 'schema' AND b.name = 'least'",
                        &r, err);
    if (code == 0) {
        bool found = PQntuples(r) == 1;
        out->schema = found ? strtol(PQgetvalue(r, 0, 0), NULL, 10) : 0;
        out->least = found ? strtol(PQgetvalue(r, 0, 1), NULL, 10) : 0;
        if (out->schema < 1 || out->least < 1) {
            code = postgres_damaged(s, "the schema's version is gone", err);
        }
    }
    PQclear(r);
    return code;
}

static int check(const struct postgres_store *s, struct versions v, bool create, hapax_error *err)
{
    if (v.least > NEWEST) {
        return error_set(
            err, HAPAX_E_STORE_VERSION, 0,
            "%.100s: its tables are of version %ld and serve programs of version %ld or newer; this"
            " Hapax is of version %ld: use a newer one",
            s->name, v.schema, v.least, NEWEST);
    }
    if (v.schema == 0 && !create) {
        return error_set(err, HAPAX_E_STORE, 0,
                         "%.120s: the tables of schema hapax are not there; check the database", s->name);
    }
    if (v.schema < NEWEST && s->read_only) {
        return error_set(
            err, HAPAX_E_STORE_VERSION, 0,
            "%.100s: its tables are of version %ld, this Hapax needs %ld: run `hapax migrate` as the"
            " owner of schema hapax",
            s->name, v.schema, NEWEST);
    }
    return 0;
}

/* Without the right to: say who has it. */
static int explain(const struct postgres_store *s, struct versions v, int code, hapax_error *err)
{
    if (code == 0 || strcmp(s->sqlstate, "42501") != 0) {
        return code;
    }
    if (v.schema == 0) {
        return error_set(
            err, HAPAX_E_STORE, 0,
            "%.100s: it has no tables yet and this role may not make them: run `hapax migrate` as a"
            " role that may create schema hapax",
            s->name);
    }
    return error_set(
        err, HAPAX_E_STORE_VERSION, 0,
        "%.80s: its tables are of version %ld, this Hapax needs %ld, and this role may not change them:"
        " run `hapax migrate` as the owner of schema hapax",
        s->name, v.schema, NEWEST);
}

static int run_migration(struct postgres_store *s, long from, hapax_error *err)
{
    char sql[200];
    snprintf(sql, sizeof sql,
             "INSERT INTO hapax.meta VALUES ('schema', %ld), ('least', %ld)"
             " ON CONFLICT (name) DO UPDATE SET value = EXCLUDED.value",
             from + 1, migrations[from].least);
    int code = postgres_run(s, migrations[from].sql, NULL, err);
    return code == 0 ? postgres_run(s, sql, NULL, err) : code;
}

static int migrate(struct postgres_store *s, hapax_error *err)
{
    char sql[300];
    struct versions v = {0, 0};
    snprintf(sql, sizeof sql,
             "BEGIN; SET LOCAL lock_timeout = '" MIGRATION_WAIT "';"
             "SELECT pg_advisory_xact_lock(" MIGRATION_LOCK "); SET LOCAL lock_timeout = %lld",
             (long long)s->busy_ms);
    int code = postgres_run(s, sql, NULL, err);
    if (code == 0) {
        code = read_versions(s, &v, err);
    }
    for (long at = v.schema; code == 0 && at < NEWEST; at++) {
        code = run_migration(s, at, err);
    }
    if (code == 0) {
        code = postgres_run(s, "COMMIT", NULL, err);
    }
    return explain(s, v, code, err);
}

int postgres_check_tables(struct postgres_store *s, bool create, hapax_error *err)
{
    struct versions v;
    int code = read_versions(s, &v, err);
    if (code == 0) {
        code = check(s, v, create && !s->read_only, err);
    }
    return code == 0 && v.schema < NEWEST ? migrate(s, err) : code;
}
