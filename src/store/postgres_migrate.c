/* The tables' versions. hapax.meta says two: 'schema', what the tables are, and 'least', the oldest schema whose programs
 * may work with them. So programs of one version difference share a database while they are replaced one by one: an
 * older program works with newer tables that still say so, a newer one migrates older tables first.
 *
 * A migration therefore only adds: tables, columns that have defaults, indexes, functions. What a program of `least`
 * reads and writes stays as it is. It runs in one transaction under one lock: of several processes that start at once
 * one migrates and the others find it done; one that dies half-way leaves nothing. */
#include "store/postgres.h"

#include "base/buf.h"
#include "base/error.h"
#include "functions_3_sql.h"
#include "functions_sql.h"
#include "postgres_schema_sql.h"
#include "store/schemes.h"

#include <stdio.h>
#include <stdlib.h>

#define SCRIPT_BYTES_MAX (1U << 20)
#define MIGRATION_LOCK   "5207941186273124216" /* any number that others are unlikely to use */
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
    {functions_3_sql, 2},
};

#define NEWEST ((long)(sizeof migrations / sizeof migrations[0]))

struct versions {
    long schema; /* 0: there are no tables */
    long least;
};

/* --- what is there --- */

static bool refused(const struct postgres_store *s)
{
    return strcmp(s->sqlstate, "42501") == 0; /* insufficient_privilege */
}

/* Asked of the catalog's rows: a name that a session has once looked up in vain (to_regclass) may stay unknown to it
 * until its next transaction, although another session's tables are committed and visible. */
#define TABLES_ARE_THERE                                                                                     \
    "EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"                           \
    " WHERE n.nspname = 'hapax' AND c.relname = 'meta')"

static int query_versions(struct postgres_store *s, struct versions *out, hapax_error *err)
{
    PGresult *r = NULL;
    *out = (struct versions){0, 0};
    int code = postgres_run(s, "SELECT " TABLES_ARE_THERE, &r, err);
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

static int read_versions(struct postgres_store *s, struct versions *out, hapax_error *err)
{
    int code = query_versions(s, out, err);
    return code == HAPAX_E_STORE && refused(s) ? error_set(err, HAPAX_E_STORE, 0,
                                                           "%.100s: this role may not use schema hapax: run "
                                                           "`hapax migrate --role ROLE` as its owner",
                                                           s->name)
                                               : code;
}

static int check_not_too_new(const struct postgres_store *s, struct versions v, hapax_error *err)
{
    return v.least > NEWEST
               ? error_set(err, HAPAX_E_STORE_VERSION, 0,
                           "%.100s: its tables are of version %ld and serve programs of version %ld or newer;"
                           " this Hapax is of version %ld: use a newer one",
                           s->name, v.schema, v.least, NEWEST)
               : 0;
}

static int check(const struct postgres_store *s, struct versions v, bool create, hapax_error *err)
{
    int code = check_not_too_new(s, v, err);
    if (code == 0 && v.schema == 0 && !create) {
        code = error_set(err, HAPAX_E_STORE, 0,
                         "%.120s: the tables of schema hapax are not there; check the database", s->name);
    }
    if (code == 0 && v.schema < NEWEST && s->read_only) {
        code = error_set(
            err, HAPAX_E_STORE_VERSION, 0,
            "%.100s: its tables are of version %ld, this Hapax needs %ld: run `hapax migrate` as the"
            " owner of schema hapax",
            s->name, v.schema, NEWEST);
    }
    return code;
}

/* --- the script --- */

static int append_quoted(struct buf *out, const char *name)
{
    int rc = buf_append_byte(out, '"');
    for (; rc == 0 && *name != '\0'; name++) {
        rc = *name == '"' ? buf_append_text(out, "\"\"") : buf_append_byte(out, *name);
    }
    return rc != 0 ? rc : buf_append_byte(out, '"');
}

/* Those that docs/POSTGRES.md describes, and no other: what they call inside runs with their owner's rights, and a
 * trigger's function is nobody's to use. */
#define FUNCTIONS                                                                                            \
    "hapax.begin(text, text, bytea, interval), hapax.begin(text, text, text, interval),"                     \
    " hapax.complete(text, text, bytea, integer), hapax.complete(text, text, text, integer),"                \
    " hapax.complete(text, text, jsonb, integer), hapax.release(text, text), hapax.lookup(text, text),"      \
    " hapax.sweep(integer), hapax.identity(text, text)"

/* What a program's role needs, now and of what later migrations by the same owner add; functions that they add they must
 * grant themselves (Hapax granted every later one once: that is taken back). No CREATE: it can't migrate. */
static int append_grants(struct buf *out, const char *role)
{
    static const char *const grants[] = {
        "GRANT USAGE ON SCHEMA hapax TO ",
        "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA hapax TO ",
        "GRANT USAGE ON ALL SEQUENCES IN SCHEMA hapax TO ",
        "GRANT EXECUTE ON FUNCTION " FUNCTIONS " TO ",
        "ALTER DEFAULT PRIVILEGES IN SCHEMA hapax GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO ",
        "ALTER DEFAULT PRIVILEGES IN SCHEMA hapax GRANT USAGE ON SEQUENCES TO ",
        "ALTER DEFAULT PRIVILEGES IN SCHEMA hapax REVOKE EXECUTE ON FUNCTIONS FROM ",
    };
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < sizeof grants / sizeof grants[0]; i++) {
        rc = buf_append_text(out, grants[i]);
        rc = rc != 0 ? rc : append_quoted(out, role);
        rc = rc != 0 ? rc : buf_append_text(out, ";\n");
    }
    return rc;
}

/* Everything between BEGIN and COMMIT once the lock is held and the version known. */
static int append_script(struct buf *out, long from, const char *role)
{
    int rc = 0;
    for (long v = from; rc == 0 && v < NEWEST; v++) {
        rc = buf_append_text(out, migrations[v].sql);
        rc = rc != 0 ? rc
                     : buf_printf(out,
                                  "\nINSERT INTO hapax.meta VALUES ('schema', %ld), ('least', %ld)"
                                  " ON CONFLICT (name) DO UPDATE SET value = EXCLUDED.value;\n",
                                  v + 1, migrations[v].least);
    }
    return rc == 0 && role != NULL ? append_grants(out, role) : rc;
}

/* For psql -1: with the lock, and a guard against a store that is of another version by then. */
static int append_for_psql(struct buf *out, long from, const char *role)
{
    char version[200] = TABLES_ARE_THERE;
    if (from > 0) {
        snprintf(version, sizeof version,
                 "(SELECT value FROM hapax.meta WHERE name = 'schema') IS DISTINCT FROM %ld", from);
    }
    int rc = buf_printf(
        out,
        "-- Hapax: schema hapax from version %ld to %ld. Run it as the owner of the schema (from 0: of"
        " what will be it),\n-- in one transaction: psql -1 -v ON_ERROR_STOP=1 -f FILE DATABASE\n"
        "SET LOCAL search_path = pg_catalog;\n"
        "SET LOCAL lock_timeout = '" MIGRATION_WAIT "';\n"
        "SELECT pg_advisory_xact_lock(" MIGRATION_LOCK ");\n"
        "SET LOCAL lock_timeout = '5s';\n"
        "DO $$ BEGIN\n"
        "    IF %s THEN\n"
        "        RAISE EXCEPTION 'schema hapax is not of version %ld: ask hapax migrate --print again';\n"
        "    END IF;\n"
        "END $$;\n\n",
        from, NEWEST, version, from);
    return rc != 0 ? rc : append_script(out, from, role);
}

/* --- migrating --- */

/* Without the right to: say who has it. */
static int explain(const struct postgres_store *s, struct versions v, int code, hapax_error *err)
{
    if (code == 0 || !refused(s)) {
        return code;
    }
    if (v.schema == 0) {
        return error_set(
            err, HAPAX_E_STORE, 0,
            "%.100s: it has no tables yet and this role may not make them: run `hapax migrate` as a"
            " role that may create schema hapax",
            s->name);
    }
    if (v.schema == NEWEST) {
        return error_set(err, HAPAX_E_STORE, 0,
                         "%.120s: this role may not grant: run `hapax migrate` as the owner of schema hapax",
                         s->name);
    }
    return error_set(
        err, HAPAX_E_STORE_VERSION, 0,
        "%.80s: its tables are of version %ld, this Hapax needs %ld, and this role may not change them:"
        " run `hapax migrate` as the owner of schema hapax",
        s->name, v.schema, NEWEST);
}

static int run_script(struct postgres_store *s, long from, const char *role, hapax_error *err)
{
    struct buf script;
    buf_init(&script, SCRIPT_BYTES_MAX);
    int code = append_script(&script, from, role);
    bool nothing = script.len == 0; /* another process was faster */
    code = code != 0 ? code : buf_append_byte(&script, '\0');
    code = code != 0 ? error_code(err, code) : nothing ? 0 : postgres_run_long(s, script.ptr, err);
    buf_free(&script);
    return code;
}

static int migrate(struct postgres_store *s, const char *role, struct versions *found, hapax_error *err)
{
    char sql[300];
    snprintf(sql, sizeof sql,
             "BEGIN; SET LOCAL lock_timeout = '" MIGRATION_WAIT "';"
             "SELECT pg_advisory_xact_lock(" MIGRATION_LOCK "); SET LOCAL lock_timeout = %lld",
             (long long)s->busy_ms);
    int code = postgres_run_long(s, sql, err);
    if (code == 0) {
        code = read_versions(s, found, err);
    }
    if (code == 0) {
        code = check_not_too_new(s, *found, err); /* another process may have been faster, and newer */
    }
    if (code == 0) {
        code = explain(s, *found, run_script(s, found->schema, role, err), err);
    }
    return code == 0 ? postgres_run_long(s, "COMMIT", err) : code;
}

int postgres_check_tables(struct postgres_store *s, bool create, hapax_error *err)
{
    struct versions v;
    int code = read_versions(s, &v, err);
    if (code == 0) {
        code = check(s, v, create && !s->read_only, err);
    }
    return code == 0 && v.schema < NEWEST ? migrate(s, NULL, &v, err) : code;
}

/* --- from outside --- */

static int migrate_or_print(struct postgres_store *s, struct store_migration *m, hapax_error *err)
{
    struct versions v;
    int code = read_versions(s, &v, err);
    if (code == 0) {
        code = check_not_too_new(s, v, err);
    }
    if (code != 0) {
        return code;
    }
    if (m->sql == NULL && (v.schema < NEWEST || m->role != NULL)) {
        code = migrate(s, m->role, &v, err);
    }
    m->before = v.schema;
    m->after = v.schema > NEWEST ? v.schema : NEWEST;
    if (m->sql != NULL && (v.schema < NEWEST || m->role != NULL)) {
        int rc = append_for_psql(m->sql, v.schema, m->role);
        code = rc != 0 ? error_code(err, rc) : 0;
    }
    return code;
}

int postgres_migrate(const char *rest, const struct store_options *options, struct store_migration *m,
                     hapax_error *err)
{
    hapax_error scratch;
    err = err != NULL ? err : &scratch;
    if (m->sql != NULL && m->from >= 0) { /* asks no server */
        if (m->from > NEWEST) {
            return error_set(err, HAPAX_E_ARGUMENT, 0, "there is no version %ld: the newest is %ld", m->from,
                             NEWEST);
        }
        m->before = m->from;
        m->after = NEWEST;
        int rc = append_for_psql(m->sql, m->from, m->role);
        return rc != 0 ? error_code(err, rc) : 0;
    }
    struct postgres_store *s = NULL;
    int code = postgres_make(&s, rest, options, err);
    if (code == 0) {
        code = postgres_connect(s, err);
    }
    if (code == 0) {
        code = migrate_or_print(s, m, err);
    }
    if (s != NULL) {
        store_close(&s->store);
    }
    return code;
}
