/* SQLSTATEs as our codes, and which failures leave nothing behind and may be tried again. Messages name host and
 * database; the URI may hold a password and is never shown. */
#include "store/postgres.h"

#include "base/error.h"

#include <stdio.h>
#include <string.h>

static bool sqlstate_is(const struct postgres_store *s, const char *code)
{
    return strcmp(s->sqlstate, code) == 0;
}

static bool sqlstate_class(const struct postgres_store *s, const char *class)
{
    return strncmp(s->sqlstate, class, 2) == 0;
}

/* The session is of no more use, though its connection may stand: the server shuts down (57P01 and others), what stands
 * between us and it lost it (08), it was made a standby (25006). And 40003: it doesn't know what became of a commit
 * itself; then, as where the connection was lost, the witness is asked. */
static bool server_is_lost(const struct postgres_store *s)
{
    return sqlstate_class(s, "57P") || sqlstate_class(s, "08") || sqlstate_is(s, "25006") ||
           sqlstate_is(s, "40003");
}

int postgres_fail(struct postgres_store *s, const PGresult *r, hapax_error *err)
{
    const char *code = r != NULL ? PQresultErrorField(r, PG_DIAG_SQLSTATE) : NULL;
    const char *text = r != NULL ? PQresultErrorField(r, PG_DIAG_MESSAGE_PRIMARY) : NULL;
    snprintf(s->sqlstate, sizeof s->sqlstate, "%s", code != NULL ? code : "");
    if (s->db == NULL || PQstatus(s->db) == CONNECTION_BAD || code == NULL || server_is_lost(s)) {
        s->broken = true;
    }
    if (code == NULL) {
        return error_set(err, HAPAX_E_STORE, 0,
                         "%.150s: the connection was lost or cannot be made; check that the server runs",
                         s->name);
    }
    if (sqlstate_is(s, "53100")) {
        return error_set(err, HAPAX_E_STORE_FULL, 0,
                         "%.120s: the server's disk is full; free some space there and try again", s->name);
    }
    if (sqlstate_is(s, "55P03")) {
        return error_set(err, HAPAX_E_BUSY, 0, "%.120s: locked by another session for over %lld ms", s->name,
                         (long long)s->busy_ms);
    }
    if (sqlstate_is(s, "57014")) { /* by an administrator who saw it wait: by itself it may succeed */
        return error_set(err, HAPAX_E_BUSY, 0, "%.120s: the statement was canceled there; try again",
                         s->name);
    }
    if (sqlstate_class(s, "42")) { /* a table is missing or may not be used */
        return error_set(err, HAPAX_E_STORE, 0,
                         "%.100s: %.80s; check what stands in schema hapax and who may use it", s->name,
                         text != NULL ? text : "");
    }
    return error_set(err, HAPAX_E_STORE, 0, "%.120s: %.90s (%.5s)", s->name, text != NULL ? text : "failed",
                     s->sqlstate);
}

int postgres_damaged(struct postgres_store *s, const char *what, hapax_error *err)
{
    return error_set(err, HAPAX_E_STORE_CORRUPT, 0, "%.120s: a record is damaged: %.80s", s->name, what);
}

/* libpq tells the SQLSTATE of a refusal in its message only, and only where that was asked for before. Its own messages
 * are in English whatever the server speaks, and those about certificates come from settings. */
void postgres_ask_why(struct postgres_store *s)
{
    s->sqlstate[0] = '\0';
    bool password = PQconnectionNeedsPassword(s->db) != 0;
    bool certificate = strstr(PQerrorMessage(s->db), "certificate") != NULL ||
                       strstr(PQerrorMessage(s->db), "does not support SSL") != NULL;
    bool invalid =
        strncmp(PQerrorMessage(s->db), "invalid ", strlen("invalid ")) == 0; /* a value in the URI */
    if (password || certificate || invalid) {
        snprintf(s->sqlstate, sizeof s->sqlstate, "%s", password ? "28P01" : "28000");
        return;
    }
    PQsetErrorVerbosity(s->db, PQERRORS_SQLSTATE);
    PQreset(s->db);
    if (PQstatus(s->db) != CONNECTION_OK) {
        const char *text = PQerrorMessage(s->db); /* "...: FATAL:  3D000", and the same for each host */
        const char *last = NULL;
        for (const char *p = text; (p = strstr(p, ":  ")) != NULL; p += 3) {
            last = p + 3;
        }
        if (last != NULL && strcspn(last, "\n") == 5) {
            snprintf(s->sqlstate, sizeof s->sqlstate, "%.5s", last);
        }
    }
}

bool postgres_may_pass(const struct postgres_store *s)
{
    static const char *const classes[] = {"08", "40", "53", "55", "57"};
    bool passes = s->sqlstate[0] == '\0' ? s->broken : sqlstate_is(s, "25006"); /* a standby */
    for (size_t i = 0; i < sizeof classes / sizeof classes[0]; i++) {
        passes = passes || sqlstate_class(s, classes[i]);
    }
    return passes;
}

/* 23505: somebody else inserted an identity that this batch took for free. */
bool postgres_worth_retrying(const struct postgres_store *s)
{
    return s->broken || sqlstate_is(s, "40001") || sqlstate_is(s, "40P01") || sqlstate_is(s, "23505");
}
