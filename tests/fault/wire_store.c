/* The PostgreSQL store with its connection disturbed at each message in turn, in either direction: cut before it or
 * within it, its answers swallowed, the batch kept back and delivered when the store has long gone on, its statements
 * failing with the SQLSTATEs of a full disk, a fail-over and others.
 *
 * What must hold: a step that returns 0 is there for whoever opens the store afresh; one that returns an error changed
 * nothing, and works on the same handle once the cause has gone; only after HAPAX_E_TIMEOUT either may be, and then the
 * same handle finds out which; a batch that was given up is never committed late.
 *
 * Beside a server of its own (tests/tools/with_postgres). */
#include "life.h"
#include "tools/postgres_wire.h"

#include <libpq-fe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BUSY_MS 400

enum { STEPS_MAX = 32, TRIES_MAX = 200, PAUSE_MS = 50 };

static const char *server; /* its URI, without a database */
static int proxy_port;
static PGconn *admin;
static long late_refused;
static long late_committed;

static void say(const char *sql)
{
    PGresult *r = PQexec(admin, sql);
    if (PQresultStatus(r) != PGRES_COMMAND_OK) {
        fprintf(stderr, "%s: %s", sql, PQerrorMessage(admin));
    }
    MUST(PQresultStatus(r) == PGRES_COMMAND_OK);
    PQclear(r);
}

/* --- steps of our own: batches in one round trip --- */

static struct record running[LIFE_KEYS];

/* Key 1 was released, key 2 forgotten. */
static int claim_quickly(struct life *l, hapax_error *err)
{
    struct store_op op = life_op(l, STORE_CLAIM, 1);
    int code = life_apply(l, &op, 1, RECORD_RUNNING, err);
    if (code == 0) {
        l->fences[1] = op.found.fence;
        running[1] = op.found;
    }
    return code;
}

static int complete_and_claim(struct life *l, hapax_error *err)
{
    struct store_op end = life_op(l, STORE_COMPLETE, 1);
    struct store_op claim = life_op(l, STORE_CLAIM, 2);
    struct store_op *list[] = {&end, &claim};
    end.claimed = &running[1];
    end.answer = life_answer(30);
    l->answer_bytes[1] = 30;
    l->meant[1] = RECORD_DONE;
    l->meant[2] = RECORD_RUNNING;
    int code = store_apply(l->store, list, 2, l->now_ms, err);
    answer_drop(end.answer);
    if (code == 0) {
        EXPECT(l, end.result == STORE_APPLIED, "completion: result %d", (int)end.result);
        EXPECT(l, claim.result == STORE_APPLIED, "claim: result %d", (int)claim.result);
        l->fences[2] = claim.found.fence;
        running[2] = claim.found;
        l->expected[1] = RECORD_DONE;
        l->expected[2] = RECORD_RUNNING;
    }
    return code;
}

static int complete_quickly(struct life *l, hapax_error *err)
{
    struct store_op op = life_op(l, STORE_COMPLETE, 2);
    op.claimed = &running[2];
    op.answer = life_answer(40);
    l->answer_bytes[2] = 40;
    int code = life_apply(l, &op, 2, RECORD_DONE, err);
    answer_drop(op.answer);
    return code;
}

static life_step *const first_steps[] = {life_open_store, life_register_owner, life_claim_all};
static life_step *all_steps[STEPS_MAX];
static size_t all_count;

static void gather_steps(void)
{
    static life_step *const ours[] = {claim_quickly, complete_and_claim, complete_quickly};
    const size_t last = life_step_count - 1; /* forgets the owner */
    for (size_t i = 0; i < life_step_count + 3; i++) {
        all_steps[i] = i < last ? life_steps[i] : i < last + 3 ? ours[i - last] : life_steps[last];
    }
    all_count = life_step_count + 3;
}

/* --- a run --- */

struct script {
    life_step *const *steps;
    size_t count;
    bool first; /* the tables are not there yet */
    bool leave; /* a step that fails is not repeated: the process dies of it */
};

static struct life fresh_life(const struct script *script)
{
    struct life l = {.now_ms = LIFE_T0, .busy_ms = BUSY_MS, .repeats = true};
    snprintf(l.uri, sizeof l.uri,
             "postgresql://postgres@127.0.0.1:%d/postgres?sslmode=disable&gssencmode=disable", proxy_port);
    if (script->first) {
        say("DROP SCHEMA IF EXISTS hapax CASCADE");
    } else {
        say("DELETE FROM hapax.record; DELETE FROM hapax.handle; DELETE FROM hapax.owner");
    }
    return l;
}

static void make_tables(void)
{
    char uri[176];
    struct store *s = NULL;
    snprintf(uri, sizeof uri, "%s/postgres", server);
    MUST(store_open(&s, uri, NULL, NULL) == 0);
    store_close(s);
}

/* What the client had said before it was cut off reaches the server now. Tables may be made late. */
static void deliver(int code, life_step *make)
{
    enum wire_late what = wire_deliver();
    late_refused += what == WIRE_LATE_REFUSED;
    late_committed += what == WIRE_LATE_COMMITTED;
    CHECK(what != WIRE_LATE_COMMITTED || code == HAPAX_E_TIMEOUT || make == life_open_store,
          "a late batch was committed: code %d", code);
}

/* HAPAX_E_BUSY: the session that was given up still holds the record. */
static bool allowed(int code)
{
    return code == HAPAX_E_STORE || code == HAPAX_E_STORE_FULL || code == HAPAX_E_TIMEOUT ||
           code == HAPAX_E_BUSY;
}

/* Its code. `doubt`: it was in doubt before; then it may find itself done. */
static int do_step(struct life *l, life_step *make, size_t number, bool *doubt)
{
    hapax_error err = {0};
    l->gaps = *doubt;
    int code = make(l, &err);
    l->gaps = false;
    deliver(code, make);
    if (code == LIFE_PREMATURE) { /* life_check() will want it */
        memcpy(l->expected, l->meant, sizeof l->expected);
        return 0;
    }
    if (code != 0) {
        CHECK(err.code == code, "step %zu: code %d, error %d", number, code, err.code);
        CHECK(allowed(code), "step %zu: %s: %s", number, hapax_error_name(code), err.message);
        *doubt = *doubt || code == HAPAX_E_TIMEOUT;
    }
    return code;
}

static void do_step_at_last(struct life *l, life_step *make, size_t number, bool doubt)
{
    int code = -1;
    for (int i = 0; code != 0 && i < TRIES_MAX; i++) {
        if (i > 0) { /* an old session may still be at it */
            nanosleep(&(struct timespec){.tv_nsec = PAUSE_MS * 1000000L}, NULL);
        }
        code = do_step(l, make, number, &doubt);
    }
    CHECK(code == 0, "step %zu never works again: %s", number, hapax_error_name(code));
}

/* As somebody else sees it, who is not disturbed. */
static void check_afresh(struct life *l, bool in_doubt)
{
    char uri[176];
    struct store *s = NULL;
    hapax_error err = {0};
    snprintf(uri, sizeof uri, "%s/postgres", server);
    int code = store_open(&s, uri, &(struct store_options){.caller_clock = true}, &err);
    CHECK(code == 0, "afresh: %s", err.message);
    if (code == 0) {
        life_check(l, s, in_doubt && life_took_effect(l, s) ? l->meant : l->expected, "afresh");
        store_close(s);
    }
}

/* Until one fails; with faults that stay, all that follow fail, too. How many were done. */
static size_t do_steps(struct life *l, const struct script *script, bool *doubt, int *code)
{
    size_t i = 0;
    *code = 0;
    while (i < script->count && *code == 0) {
        *code = do_step(l, script->steps[i], i, doubt);
        i += *code == 0;
    }
    /* Abandoning twice is as good as once, so an error says less. */
    *doubt = *doubt || (i < script->count && script->steps[i] == life_abandon);
    bool others = false;
    for (size_t k = i + 1; !sweep_single() && !script->leave && l->store != NULL && k < script->count; k++) {
        hapax_error err = {0};
        struct life scratch = *l;
        scratch.gaps = true;
        int next = script->steps[k](&scratch, &err);
        others = others || next == 0;
        CHECK(allowed(next), "step %zu with a server that is away: %d", k, next);
    }
    CHECK(!others, "a step worked without a server");
    return i;
}

static void run(void *ctx)
{
    const struct script *script = ctx;
    struct life l = fresh_life(script);
    bool doubt = false;
    int code;
    sweep_arm();
    size_t done = do_steps(&l, script, &doubt, &code);
    if (script->leave) {
        store_close(l.store);
        deliver(code, NULL);
        sweep_disarm();
        check_afresh(&l, doubt);
        return;
    }
    if (!sweep_single() || done == script->count) {
        sweep_disarm();
    }
    for (size_t i = done; i < script->count; i++) {
        do_step_at_last(&l, script->steps[i], i, i == done && doubt);
    }
    sweep_disarm();
    life_check(&l, l.store, l.expected, "at the end");
    store_close(l.store);
    check_afresh(&l, false);
}

static void sweep_life(const char *name)
{
    char text[96];
    struct script life = {.steps = all_steps, .count = all_count};
    snprintf(text, sizeof text, "%s: all of a life", name);
    sweep(text, run, &life);
}

static void sweep_all(const char *name)
{
    char text[96];
    struct script left = {.steps = all_steps, .count = all_count, .leave = true};
    struct script first = {
        .steps = first_steps, .count = sizeof first_steps / sizeof first_steps[0], .first = true};
    snprintf(text, sizeof text, "%s: the tables are made", name);
    sweep(text, run, &first);
    sweep_life(name);
    snprintf(text, sizeof text, "%s: and the store is left", name);
    sweep(text, run, &left);
}

static void sweep_wire(void)
{
    static const char *const names[] = {[WIRE_CUT] = "cut before a message",
                                        [WIRE_TORN] = "cut within a message",
                                        [WIRE_SWALLOW] = "answers swallowed",
                                        [WIRE_LATE] = "delivered late"};
    for (enum wire_fault kind = WIRE_CUT; kind <= WIRE_LATE; kind++) {
        wire_choose(kind, NULL);
        sweep_all(names[kind]);
    }
    printf("late batches: %ld refused, %ld committed\n", late_refused, late_committed);
}

static void sweep_errors(enum wire_fault kind, const char *what, const char *const *states, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        char name[48];
        wire_choose(kind, states[i]);
        snprintf(name, sizeof name, "%s %s", states[i], what);
        if (i == 0) {
            sweep_all(name);
        } else {
            sweep_life(name);
        }
    }
}

int main(int argc, char **argv)
{
    static const struct injector injector = {"message", wire_arm, wire_disarm, wire_seen};
    static const char *const errors[] = {"53100", "53200", "57P01", "57P03", "40001", "40P01",
                                         "25006", "08006", "58030", "XX000", "57014"};
    static const char *const ambiguous[] = {"40003", "08006", "08007"};
    server = getenv("HAPAX_TEST_POSTGRES");
    if (server == NULL) {
        fprintf(stderr, "HAPAX_TEST_POSTGRES is not set\n");
        return 2;
    }
    char uri[176];
    sweep_begin(argc, argv, &injector);
    snprintf(uri, sizeof uri, "%s/postgres", server);
    admin = PQconnectdb(uri);
    MUST(PQstatus(admin) == CONNECTION_OK);
    say("SET client_min_messages = error");
    proxy_port = wire_start((int)strtol(strrchr(server, ':') + 1, NULL, 10));
    MUST(proxy_port > 0);
    gather_steps();
    make_tables();
    sweep_thin(6); /* its runs are long, and many: test_cuts.py does the like */
    sweep_wire();
    sweep_errors(WIRE_ERROR, "from the server", errors, sizeof errors / sizeof errors[0]);
    sweep_errors(WIRE_AMBIGUOUS, "though it was done", ambiguous, sizeof ambiguous / sizeof ambiguous[0]);
    PQfinish(admin);
    return sweep_end();
}
