/* Pay once, with libpq: pay DATABASE KEY ACCOUNT CENTS
 *
 * Prints the verdict and the answer. Exit status: 0 paid (now or before), 4 the key was used for something else,
 * 75 nobody knows or somebody else is at it: run it again, with the same key; 1 failed, nothing was paid; 2 usage.
 *
 *     cc pay.c -o pay $(pkg-config --cflags --libs libpq) */
#include <libpq-fe.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { TRIES = 5, COLUMN_BYTES = 200, EXIT_USAGE = 2, EXIT_OTHER_CONTENT = 4, EXIT_TRY_LATER = 75 };

struct session {
    PGconn *db;
    char state[6]; /* SQLSTATE of what failed; "": the connection did */
};

/* Run a statement with n text parameters. The first row goes to out[0], out[1], ... until a NULL; NULL: none wanted. */
static bool run(struct session *s, const char *sql, int n, const char *const *values, char *const *out)
{
    PGresult *r = PQexecParams(s->db, sql, n, NULL, values, NULL, NULL, 0);
    ExecStatusType status = PQresultStatus(r);
    bool good = status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK;
    if (!good) {
        const char *state = PQresultErrorField(r, PG_DIAG_SQLSTATE);
        snprintf(s->state, sizeof s->state, "%s", state != NULL ? state : "");
        fprintf(stderr, "pay: %s", PQerrorMessage(s->db));
    }
    for (int i = 0; good && out != NULL && out[i] != NULL; i++) {
        snprintf(out[i], COLUMN_BYTES, "%s", PQgetvalue(r, 0, i));
    }
    PQclear(r);
    return good;
}

/* snippet */
static bool pay(struct session *s, const char *key, const char *const what[2], char *verdict, char *answer)
{
    char fingerprint[COLUMN_BYTES];
    char number[COLUMN_BYTES];
    snprintf(fingerprint, sizeof fingerprint, "%s %s", what[0], what[1]);
    bool good = run(s, "BEGIN", 0, NULL, NULL) &&
                run(s,
                    "SELECT verdict, answer"
                    " FROM hapax.begin('payments', $1, fingerprint => $2, ttl => '24 hours')",
                    2, (const char *const[]){key, fingerprint}, (char *const[]){verdict, answer, NULL});
    if (good && strcmp(verdict, "fresh") == 0) {
        good = run(s, "UPDATE account SET cents = cents - $2 WHERE name = $1", 2, what, NULL) &&
               run(s, "INSERT INTO payment (account, cents) VALUES ($1, $2) RETURNING number", 2, what,
                   (char *const[]){number, NULL});
        snprintf(answer, COLUMN_BYTES, "{\"payment\": %.20s}", good ? number : "");
        good = good && run(s, "SELECT hapax.complete('payments', $1, $2)", 2,
                           (const char *const[]){key, answer}, NULL);
    }
    return good && run(s, "COMMIT", 0, NULL, NULL);
}
/* end */

/* Serialization failures and deadlocks (class 40), a server that stops (57), lost connections. Whatever became of the
 * transaction, also when COMMIT was lost, the same once more is right: it finds the answer, or pays. */
static bool is_passing(const char *state)
{
    return state[0] == '\0' || strncmp(state, "40", 2) == 0 || strncmp(state, "57", 2) == 0 ||
           strncmp(state, "08", 2) == 0;
}

/* After false: may a try have paid? Its COMMIT may have been lost, and no later error tells what became of it. */
static bool pay_at_last(char **argv, char *verdict, char *answer, bool *in_doubt)
{
    *in_doubt = false;
    for (int tries = 0; tries < TRIES; tries++) {
        struct session s = {.db = PQconnectdb(argv[1])};
        bool good = PQstatus(s.db) == CONNECTION_OK;
        if (good) {
            good = pay(&s, argv[2], (const char *const *)argv + 3, verdict, answer);
        } else {
            fprintf(stderr, "pay: %s", PQerrorMessage(s.db));
        }
        PQfinish(s.db); /* rolls back what is open */
        if (good || !is_passing(s.state)) {
            return good;
        }
        *in_doubt = true;
        nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    }
    return false;
}

int main(int argc, char **argv)
{
    char verdict[COLUMN_BYTES] = "";
    char answer[COLUMN_BYTES] = "";
    if (argc != 5) {
        fprintf(stderr, "usage: pay DATABASE KEY ACCOUNT CENTS\n");
        return EXIT_USAGE;
    }
    bool in_doubt;
    if (!pay_at_last(argv, verdict, answer, &in_doubt)) {
        return in_doubt ? EXIT_TRY_LATER : EXIT_FAILURE;
    }
    printf("%s %s\n", verdict, answer);
    if (strcmp(verdict, "fresh") == 0 || strcmp(verdict, "replay") == 0) {
        return EXIT_SUCCESS;
    }
    return strcmp(verdict, "mismatch") == 0 ? EXIT_OTHER_CONTENT : EXIT_TRY_LATER;
}
