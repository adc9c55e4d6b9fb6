/* Connecting: connect, refuse a server that may lose commits, check the tables, prepare; and again when a connection was lost.
 * A handle whose tables have gone does not make new ones: that store would have forgotten every key. One
 * that was opened while the server was away has yet to see them, and does. */
#include "store/postgres.h"

#include "base/clock.h"
#include "base/error.h"
#include "store/schemes.h"

#include <stdio.h>
#include <stdlib.h>

#define BUSY_MS_DEFAULT      5000
#define SERVER_VERSION_LEAST 150000

static void disconnect(struct postgres_store *s)
{
    PQfinish(s->db);
    s->db = NULL;
    s->broken = false;
    s->serial_count = 0; /* where another database stands there by now, they would be another's */
}

static int take_run(struct postgres_store *s, PGresult *r, PGresult **out, hapax_error *err)
{
    ExecStatusType status = PQresultStatus(r);
    int code = status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK ? 0 : postgres_fail(s, r, err);
    if (code == 0 && out != NULL) {
        *out = r;
    } else {
        PQclear(r);
    }
    return code;
}

/* Not PQexec(): that waits for ever for a server that froze after it had taken the connection. */
int postgres_run(struct postgres_store *s, const char *sql, PGresult **out, hapax_error *err)
{
    s->sqlstate[0] = '\0';
    int64_t deadline = clock_mono_ms() + s->busy_ms + POSTGRES_ANSWER_MS;
    PGresult *last = NULL;
    PGresult *r = NULL;
    bool heard = PQsendQuery(s->db, sql) != 0;
    while (heard && (heard = postgres_wait(s, deadline)) && (r = PQgetResult(s->db)) != NULL) {
        PQclear(last);
        last = r;
    }
    if (!heard) {
        PQclear(last);
        last = NULL;
    }
    return take_run(s, last, out, err);
}

int postgres_run_long(struct postgres_store *s, const char *sql, hapax_error *err)
{
    s->sqlstate[0] = '\0';
    return take_run(s, PQexec(s->db, sql), NULL, err);
}

/* libpq's message may have a line for each host. */
static int unreachable(struct postgres_store *s, hapax_error *err)
{
    char text[300];
    snprintf(text, sizeof text, "%s", PQerrorMessage(s->db));
    size_t len = strlen(text);
    while (len > 0 && text[len - 1] == '\n') {
        text[--len] = '\0';
    }
    for (char *p = text; *p != '\0'; p++) {
        *p = *p == '\n' ? ';' : *p == '\t' ? ' ' : *p;
    }
    /* 'connection to server at "HOST" (ADDRESS), port PORT failed: ...': of one host, that is known. */
    const char *cause = s->several_hosts ? NULL : strstr(text, " failed: ");
    cause = cause != NULL ? cause + strlen(" failed: ") : text;
    s->broken = true;
    s->sqlstate[0] = '\0';
    int code = error_set(err, HAPAX_E_STORE, 0,
                         "%.90s: no connection (%.110s); check the server, the database and who may use it",
                         s->name, cause);
    if (s->asks_why) {
        postgres_ask_why(s);
    }
    return code;
}

/* Blocks for connect_timeout a host at most (and as long as the resolver takes for names). */
static int connect_server(struct postgres_store *s, hapax_error *err)
{
    char seconds[24];
    char milliseconds[24];
    snprintf(seconds, sizeof seconds, "%lld", (long long)(s->busy_ms < 2000 ? 2 : (s->busy_ms + 999) / 1000));
    snprintf(milliseconds, sizeof milliseconds, "%lld", (long long)s->busy_ms);
    /* Whatever the URI itself says stands last and wins. */
    const char *const names[] = {"fallback_application_name",
                                 "connect_timeout",
                                 "tcp_user_timeout",
                                 "keepalives_idle",
                                 "keepalives_interval",
                                 "keepalives_count",
                                 "target_session_attrs",
                                 "dbname",
                                 NULL};
    const char *const values[] = {
        "hapax", seconds, milliseconds, "10", "5", "3", s->read_only ? "any" : "read-write", s->uri, NULL};
    s->db = PQconnectdbParams(names, values, 1);
    if (s->db == NULL) {
        return error_code(err, HAPAX_E_MEMORY);
    }
    if (PQstatus(s->db) != CONNECTION_OK) {
        return unreachable(s, err);
    }
    int version = PQserverVersion(s->db);
    if (version < SERVER_VERSION_LEAST) {
        return error_set(err, HAPAX_E_UNSUPPORTED, 0,
                         "%.120s: is of version %d; Hapax needs PostgreSQL 15 or newer", s->name,
                         version / 10000);
    }
    return 0;
}

/* Planned for look-ups by digest at any size of the table; a plan for a table that was small when it was first used
 * would walk all of it later. A frozen client must not hold its locks for ever, nor one whose host went away in the middle
 * of a batch, when the server waits for the rest of it. Waits are bounded by lock_timeout, which tells a locked record, and
 * by the batch's deadline here: what the role, database or server sets beside these would make an outage of such a record. */
static int set_up(struct postgres_store *s, hapax_error *err)
{
    char sql[1000];
    snprintf(sql, sizeof sql,
             "SET default_transaction_isolation = 'read committed'; SET search_path = pg_catalog;"
             "SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_hashjoin = off; SET "
             "enable_mergejoin = off; SET jit = off;"
             "SET plan_cache_mode = force_generic_plan;"
             "SET lock_timeout = %lld; SET idle_in_transaction_session_timeout = %lld;"
             "SELECT set_config(name, '0', false) FROM pg_settings"
             " WHERE name IN ('statement_timeout', 'transaction_timeout', 'idle_session_timeout');"
             "SET tcp_keepalives_idle = 10; SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 3;"
             "SET default_transaction_read_only = %s; SET client_min_messages = error",
             (long long)s->busy_ms, (long long)s->busy_ms, s->read_only ? "on" : "off");
    return postgres_run(s, sql, NULL, err);
}

static void warn(const struct postgres_store *s, enum store_warning what, const char *text)
{
    if (s->warn != NULL) {
        s->warn(s->warn_ctx, what, text);
    }
}

static int unsafe(struct postgres_store *s, const char *setting, hapax_error *err)
{
    char text[HAPAX_ERROR_MESSAGE_MAX];
    if (!s->allow_unsafe) {
        return error_set(
            err, HAPAX_E_STORE, 0,
            "%.120s: %s is off: a commit may be lost; set it on, or allow_unsafe_store for data that may"
            " be lost",
            s->name, setting);
    }
    snprintf(text, sizeof text, "%.120s: %s is off: what was acknowledged may be lost, and executed again",
             s->name, setting);
    warn(s, STORE_WARN_UNSAFE, text);
    return 0;
}

static bool is_off(const PGresult *r, int column)
{
    return strcmp(PQgetvalue(r, 0, column), "off") == 0;
}

/* Several hosts are there for a fail-over, and what no standby has confirmed is lost in it. The server can't say whether
 * there is a standby at all: this is a warning. */
static void warn_of_fail_over(struct postgres_store *s, const char *standby_names)
{
    if (s->several_hosts && standby_names[0] == '\0') {
        char text[HAPAX_ERROR_MESSAGE_MAX];
        snprintf(text, sizeof text,
                 "%.120s: synchronous_standby_names is empty: a fail-over may lose what was acknowledged",
                 s->name);
        warn(s, STORE_WARN_FAIL_OVER, text);
    }
}

/* What the server was told to do for this role and database. "off" is refused although a session may ask for more:
 * somebody has decided that commits may be lost here. Else the session waits for the disk and, where there are
 * synchronous standbys, for theirs, too, whatever is set now (local, remote_write) or later. */
static int check_safety(struct postgres_store *s, hapax_error *err)
{
    PGresult *r = NULL;
    int code =
        postgres_run(s,
                     "SELECT current_setting('fsync'), current_setting('full_page_writes'),"
                     " current_setting('synchronous_commit'), current_setting('synchronous_standby_names'),"
                     " pg_is_in_recovery()",
                     &r, err);
    if (code != 0) {
        return code;
    }
    static const char *const settings[] = {"fsync", "full_page_writes", "synchronous_commit"};
    for (int i = 0; code == 0 && i < 3; i++) {
        code = is_off(r, i) ? unsafe(s, settings[i], err) : 0;
    }
    if (code == 0 && PQgetvalue(r, 0, 4)[0] == 't') {
        code = error_set(err, HAPAX_E_STORE, 0, "%.120s: is a standby, which can't be written", s->name);
    }
    if (code == 0) {
        warn_of_fail_over(s, PQgetvalue(r, 0, 3));
    }
    if (code == 0 && !is_off(r, 2)) {
        bool more = strcmp(PQgetvalue(r, 0, 2), "remote_apply") == 0;
        code = postgres_run(s, more ? "SET synchronous_commit = remote_apply" : "SET synchronous_commit = on",
                            NULL, err);
    }
    PQclear(r);
    return code;
}

int postgres_connect(struct postgres_store *s, hapax_error *err)
{
    int code = connect_server(s, err);
    if (code == 0) {
        code = set_up(s, err);
    }
    return code == 0 && !s->read_only ? check_safety(s, err) : code;
}

/* Rows that were copied without their sequence: it would give serials that stand there, and each claim would fail. Serials are
 * given before their rows are inserted, so a sequence that is read after the rows is never behind otherwise. Left to a
 * person: no statement sets a sequence forward only, and backward would give a late owner's fence to a new record. */
static int check_serials(struct postgres_store *s, hapax_error *err)
{
    PGresult *r = NULL;
    int code = postgres_run(
        s,
        "SELECT coalesce(q.last_value, 0), m.serial"
        " FROM (SELECT max(serial) AS serial FROM hapax.record) m, pg_sequences q"
        " WHERE q.schemaname = 'hapax' AND q.sequencename = 'serial' AND m.serial > coalesce(q.last_value, 0)"
        " AND has_sequence_privilege('hapax.serial', 'USAGE, SELECT')",
        &r, err);
    if (code == 0 && PQntuples(r) > 0) {
        code = error_set(err, HAPAX_E_STORE, 0,
                         "%.100s: sequence hapax.serial is at %.20s, its table at %.20s: copied without it?"
                         " docs/POSTGRES.md says what to do",
                         s->name, PQgetvalue(r, 0, 0), PQgetvalue(r, 0, 1));
    }
    PQclear(r);
    return code;
}

static int connect(struct postgres_store *s, bool create, hapax_error *err)
{
    int code = postgres_connect(s, err);
    if (code == 0) {
        code = postgres_check_tables(s, create, err);
    }
    if (code == 0 && !s->read_only) {
        code = check_serials(s, err);
    }
    if (code == 0 && (PQsetnonblocking(s->db, 1) != 0 || PQenterPipelineMode(s->db) == 0)) {
        code = postgres_fail(s, NULL, err);
    }
    if (code == 0) {
        code = postgres_prepare_all(s, err);
    }
    s->held = 0;
    if (code == 0 && s->owner_text[0] != '\0') {
        code = postgres_hold_owner(s, s->owner_text, err);
    }
    if (code != 0) {
        s->may_pass = postgres_may_pass(s);
        disconnect(s);
    }
    return code;
}

int postgres_usable(struct postgres_store *s, hapax_error *err)
{
    if (s->db != NULL && !s->broken && PQstatus(s->db) == CONNECTION_OK) {
        return 0;
    }
    disconnect(s);
    int code = connect(s, s->store.away, err);
    s->store.away = s->store.away && code != 0;
    return code;
}

int postgres_refuse_read_only(const struct postgres_store *s, hapax_error *err)
{
    return s->read_only
               ? error_set(err, HAPAX_E_UNSUPPORTED, 0, "%.150s: was opened for reading only", s->name)
               : 0;
}

static void postgres_close(struct store *store)
{
    struct postgres_store *s = postgres_of(store);
    disconnect(s);
    free(s->uri);
    free(s);
}

static const struct store_backend backend = {
    .version = STORE_VERSION,
    .capabilities = STORE_CAN_LANES | STORE_CAN_LOSE_COMMITS | STORE_HAS_CLOCK | STORE_SHARED,
    .name = "postgres",
    .apply = postgres_apply,
    .sweep = postgres_sweep,
    .abandon = postgres_abandon,
    .register_owner = postgres_register_owner,
    .owners = postgres_owners,
    .forget_owner = postgres_forget_owner,
    .list = postgres_list,
    .stats = postgres_stats,
    .generation = postgres_generation,
    .close = postgres_close,
};

/* libpq's own message would repeat all of it, the password, too. */
static int refuse_uri(hapax_error *err)
{
    return error_set(
        err, HAPAX_E_ARGUMENT, 0,
        "the store's URI can't be read: write postgresql://USER@HOST:PORT/DATABASE, and in a password"
        " @ as %%40 and / as %%2F");
}

/* A password with @ or / in it that libpq takes for a host, a port or a database: messages would show it. */
static bool is_misread(const PQconninfoOption *o)
{
    return (strcmp(o->keyword, "port") == 0 && o->val[strspn(o->val, "0123456789,")] != '\0') ||
           ((strcmp(o->keyword, "host") == 0 || strcmp(o->keyword, "dbname") == 0) &&
            strchr(o->val, '@') != NULL && o->val[0] != '@'); /* an abstract socket's name begins with @ */
}

/* Host and database. */
static int name_it(struct postgres_store *s, hapax_error *err)
{
    PQconninfoOption *options = PQconninfoParse(s->uri, NULL);
    if (options == NULL) {
        return refuse_uri(err);
    }
    const char *host = NULL;
    const char *database = NULL;
    for (const PQconninfoOption *o = options; o->keyword != NULL; o++) {
        if (o->val != NULL && is_misread(o)) {
            PQconninfoFree(options);
            return refuse_uri(err);
        }
        if (o->val != NULL && strcmp(o->keyword, "host") == 0) {
            host = o->val;
        } else if (o->val != NULL && strcmp(o->keyword, "dbname") == 0) {
            database = o->val;
        }
    }
    s->several_hosts = host != NULL && strchr(host, ',') != NULL;
    snprintf(s->name, sizeof s->name, "PostgreSQL at %.120s, database %.40s",
             host != NULL ? host : "its default", database != NULL ? database : "by default");
    PQconninfoFree(options);
    return 0;
}

int postgres_make(struct postgres_store **out, const char *rest, const struct store_options *options,
                  hapax_error *err)
{
    struct postgres_store *s = calloc(1, sizeof *s);
    size_t bytes = strlen(rest) + sizeof "postgresql://";
    char *uri = malloc(bytes);
    if (s == NULL || uri == NULL) {
        free(s);
        free(uri);
        return error_code(err, HAPAX_E_MEMORY);
    }
    snprintf(uri, bytes, "postgresql://%s", rest);
    s->store.backend = &backend;
    s->uri = uri;
    postgres_new_handle(s);
    s->busy_ms = options->busy_ms > 0 ? options->busy_ms : BUSY_MS_DEFAULT;
    s->read_only = options->read_only;
    s->caller_clock = options->caller_clock;
    s->allow_unsafe = options->allow_unsafe;
    s->warn = options->warn;
    s->warn_ctx = options->warn_ctx;
    int code = name_it(s, err);
    if (code != 0) {
        postgres_close(&s->store);
        return code;
    }
    *out = s;
    return 0;
}

int postgres_open(struct store **out, const char *rest, const struct store_options *options, hapax_error *err)
{
    struct postgres_store *s = NULL;
    hapax_error scratch;
    err = err != NULL ? err : &scratch;
    int code = postgres_make(&s, rest, options, err);
    if (code != 0) {
        return code;
    }
    if (options->away == STORE_AWAY_KNOWN) {
        s->store.away = true;
    } else {
        s->asks_why = options->away == STORE_AWAY_WAITS;
        code = connect(s, true, err);
        s->store.away = code == HAPAX_E_STORE && s->asks_why && s->may_pass;
        s->asks_why = false;
    }
    if (code != 0 && !s->store.away) {
        postgres_close(&s->store);
        return code;
    }
    *out = &s->store;
    return 0;
}
