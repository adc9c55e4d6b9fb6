/* The PostgreSQL store's clean-up among several nodes: what one of them has locked or has in hand, the others leave alone and
 * find later. "Another session" is libpq's own: what it holds is certain, and for as long as the test wants.
 * Runs under tests/tools/with_postgres; without a server it says so and is skipped. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "store/store.h"

#include <libpq-fe.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define ROWS_MAX 100

static char uri[500];
static unsigned databases;

static PGconn *session(const char *address)
{
    PGconn *db = PQconnectdb(address);
    if (PQstatus(db) != CONNECTION_OK) {
        fail_msg("%s", PQerrorMessage(db));
    }
    return db;
}

/* The first value, as text. */
static const char *sql(PGconn *db, const char *text)
{
    static char value[200];
    PGresult *r = PQexec(db, text);
    ExecStatusType status = PQresultStatus(r);
    if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK) {
        fail_msg("%s: %s", text, PQerrorMessage(db));
    }
    snprintf(value, sizeof value, "%s", PQntuples(r) > 0 && PQnfields(r) > 0 ? PQgetvalue(r, 0, 0) : "");
    PQclear(r);
    return value;
}

static void until(PGconn *db, const char *question)
{
    for (int tries = 0; strcmp(sql(db, question), "t") != 0; tries++) {
        if (tries > 6000) {
            fail_msg("waited in vain: %s", question);
        }
        poll(NULL, 0, 10);
    }
}

struct nodes {
    struct store *a; /* registered as "a" */
    struct store *b;
    uint64_t owner;  /* a's */
    PGconn *session; /* somebody else's */
};

static struct store *opened(const char *text, uint64_t *owner)
{
    struct store *s = NULL;
    hapax_error err = {0};
    if (store_open(&s, uri, NULL, &err) != 0 || s->backend->register_owner(s, text, owner, &err) != 0) {
        fail_msg("%s", err.message);
    }
    return s;
}

static int setup(void **state)
{
    static struct nodes nodes;
    char text[100];
    uint64_t ignored;
    snprintf(uri, sizeof uri, "%s/postgres", getenv("HAPAX_TEST_POSTGRES"));
    PGconn *db = session(uri);
    snprintf(text, sizeof text, "CREATE DATABASE n%u", ++databases);
    sql(db, text);
    PQfinish(db);
    snprintf(uri, sizeof uri, "%s/n%u", getenv("HAPAX_TEST_POSTGRES"), databases);
    nodes.a = opened("a", &nodes.owner);
    nodes.b = opened("b", &ignored);
    nodes.session = session(uri);
    *state = &nodes;
    return 0;
}

static int teardown(void **state)
{
    struct nodes *n = *state;
    store_close(n->a);
    store_close(n->b);
    PQfinish(n->session);
    return 0;
}

static int apply_one(struct store *s, struct store_op *op)
{
    struct store_op *list[] = {op};
    return store_apply(s, list, 1, 0, NULL);
}

static struct store_op claim(uint8_t number, int64_t ttl_ms)
{
    struct store_op op = {.kind = STORE_CLAIM, .lease_ms = 600000, .ttl_ms = ttl_ms};
    memset(op.id.bytes, number, sizeof op.id.bytes);
    op.scope = SLICE_LITERAL("s");
    op.key = SLICE_LITERAL("k");
    return op;
}

static struct fence claimed(struct store *s, uint8_t number, int64_t ttl_ms)
{
    struct store_op op = claim(number, ttl_ms);
    assert_int_equal(apply_one(s, &op), 0);
    assert_int_equal(op.result, STORE_APPLIED);
    return op.found.fence;
}

static uint32_t abandon(struct store *s, uint64_t owner)
{
    uint32_t changed = 99;
    assert_int_equal(s->backend->abandon(s, owner, 0, ROWS_MAX, &changed, NULL), 0);
    return changed;
}

static uint32_t sweep(struct store *s)
{
    uint32_t removed = 99;
    assert_int_equal(s->backend->sweep(s, 0, ROWS_MAX, &removed, NULL), 0);
    return removed;
}

static int forget(struct store *s, uint64_t owner)
{
    return s->backend->forget_owner(s, owner, NULL);
}

/* The node is gone, and so is its session. */
static void lose_a(struct nodes *n)
{
    store_close(n->a);
    n->a = NULL;
    until(n->session, "SELECT count(*) = 2 FROM pg_stat_activity WHERE datname = current_database()"
                      " AND backend_type = 'client backend'");
}

#define COUNT(state) "SELECT count(*) FROM hapax.record WHERE state = " #state

static void a_locked_record_is_abandoned_later_and_its_owner_stays(void **state)
{
    struct nodes *n = *state;
    for (uint8_t i = 1; i <= 3; i++) {
        claimed(n->a, i, 86400000);
    }
    lose_a(n);
    sql(n->session, "BEGIN; SELECT FROM hapax.record WHERE serial = 2 FOR UPDATE");
    assert_int_equal(abandon(n->b, n->owner), 2); /* does not wait */
    assert_int_equal(forget(n->b, n->owner), HAPAX_E_CONFLICT);
    sql(n->session, "COMMIT");
    assert_string_equal(sql(n->session, "SELECT count(*) FROM hapax.owner"), "2");
    assert_int_equal(abandon(n->b, n->owner), 1);
    assert_int_equal(forget(n->b, n->owner), 0);
    assert_string_equal(sql(n->session, COUNT(3)), "3");
    assert_string_equal(sql(n->session, "SELECT count(*) FROM hapax.owner"), "1");
}

static void a_locked_record_past_its_lease_is_abandoned_later(void **state)
{
    struct nodes *n = *state;
    claimed(n->a, 1, 86400000);
    claimed(n->a, 2, 86400000);
    sql(n->session, "UPDATE hapax.record SET lease_ms = 1");
    sql(n->session, "BEGIN; SELECT FROM hapax.record WHERE serial = 1 FOR UPDATE");
    assert_int_equal(abandon(n->b, 0), 1);
    sql(n->session, "COMMIT");
    assert_int_equal(abandon(n->b, 0), 1);
    assert_int_equal(abandon(n->b, 0), 0);
}

static void one_node_sweeps_at_a_time(void **state)
{
    struct nodes *n = *state;
    struct answer *answer = answer_make(200, true, SLICE_LITERAL(""), SLICE_LITERAL("x"));
    struct store_op op = claim(1, 86400000);
    op.fence = claimed(n->a, 1, 86400000);
    op.kind = STORE_COMPLETE;
    op.answer = answer;
    assert_int_equal(apply_one(n->a, &op), 0);
    sql(n->session, "UPDATE hapax.record SET expires_ms = 1");
    sql(n->session, "BEGIN; SELECT pg_advisory_xact_lock(hashtextextended('hapax.sweep', 0))");
    assert_int_equal(sweep(n->b), 0); /* no error, and no waiting */
    sql(n->session, "ROLLBACK");
    assert_int_equal(sweep(n->b), 1);
    assert_string_equal(sql(n->session, "SELECT count(*) FROM hapax.record"), "0");
    answer_drop(answer);
}

static void one_node_at_a_time_abandons_an_owners_records(void **state)
{
    struct nodes *n = *state;
    char text[200];
    claimed(n->a, 1, 86400000);
    snprintf(text, sizeof text,
             "BEGIN; SELECT pg_advisory_xact_lock(hashtextextended('hapax.abandon.%llu', 0))",
             (unsigned long long)n->owner);
    sql(n->session, text);
    assert_int_equal(abandon(n->b, n->owner), 0);
    assert_string_equal(sql(n->session, COUNT(1)), "1");
    sql(n->session, "ROLLBACK");
    assert_int_equal(abandon(n->b, n->owner), 1);
}

static void *run_claim(void *ctx)
{
    struct nodes *n = ctx;
    struct store_op op = claim(7, 86400000);
    return apply_one(n->a, &op) == 0 && op.result == STORE_APPLIED ? NULL : ctx;
}

static void an_owner_whose_claim_is_being_committed_is_not_forgotten(void **state)
{
    struct nodes *n = *state;
    pthread_t thread;
    void *failed;
    sql(n->session, "BEGIN; LOCK TABLE hapax.record IN SHARE MODE"); /* reading goes on */
    assert_int_equal(pthread_create(&thread, NULL, run_claim, n), 0);
    until(n->session,
          "SELECT count(*) = 1 FROM pg_locks WHERE relation = 'hapax.record'::regclass AND NOT granted");
    int code = forget(n->b, n->owner);
    sql(n->session, "COMMIT");
    pthread_join(thread, &failed);
    assert_null(failed);
    assert_int_equal(code, HAPAX_E_CONFLICT);
    assert_string_equal(sql(n->session, "SELECT count(*) FROM hapax.record JOIN hapax.owner ON number = owner"
                                        " WHERE owner.text = 'a'"),
                        "1");
    /* Its session's end does not make the record vanish. */
    lose_a(n);
    assert_int_equal(forget(n->b, n->owner), HAPAX_E_CONFLICT);
    assert_int_equal(abandon(n->b, n->owner), 1);
    assert_int_equal(forget(n->b, n->owner), 0);
}

static void an_owner_that_was_forgotten_but_lives_comes_back_with_its_connection(void **state)
{
    struct nodes *n = *state;
    char text[300];
    sql(n->session, "SELECT count(pg_terminate_backend(pid)) FROM pg_locks WHERE locktype = 'advisory'");
    until(n->session, "SELECT count(*) = 0 FROM pg_locks WHERE locktype = 'advisory'");
    assert_int_equal(forget(n->b, n->owner), 0); /* nobody can tell that it lives */
    claimed(n->a, 1, 86400000);
    snprintf(text, sizeof text,
             "SELECT count(*) FROM hapax.record JOIN hapax.owner ON number = owner"
             " WHERE owner.text = 'a' AND number > %llu",
             (unsigned long long)n->owner);
    assert_string_equal(sql(n->session, text), "1");
}

static void the_last_handle_to_close_takes_its_owner_along(void **state)
{
    struct nodes *n = *state;
    uint64_t same;
    struct store *other = opened("a", &same);
    assert_int_equal(same, n->owner);
    assert_int_equal(forget(n->a, n->owner), HAPAX_E_CONFLICT); /* the other may claim */
    assert_int_equal(forget(other, n->owner), 0);               /* a's session need not have ended for that */
    store_close(other);
}

static void counts_of_bytes_are_the_tables(void **state)
{
    struct nodes *n = *state;
    struct store_stats before;
    struct store_stats after;
    assert_int_equal(n->b->backend->stats(n->b, &before, NULL), 0);
    assert_in_range(before.bytes, 8192, 1 << 20);
    sql(n->session,
        "INSERT INTO hapax.record (digest, serial, state, fingerprint_version, attempt, owner, claimed_ms,"
        " lease_ms, ended_ms, expires_ms, ttl_ms, scope, key, status, kept, head, body)"
        " SELECT int8send(i), i, 2, 0, 1, 1, 1, 1, 1, 1, 1, '', '', 200, 1, '', "
        "convert_to(repeat(md5(i::text), 50), 'UTF8')"
        " FROM generate_series(1, 2000) i");
    assert_int_equal(n->b->backend->stats(n->b, &after, NULL), 0);
    assert_int_equal(after.records, 2000);
    assert_in_range(after.bytes - before.bytes, 200000, 20000000);
}

int main(void)
{
    if (getenv("HAPAX_TEST_POSTGRES") == NULL) {
        fprintf(stderr, "skipped: HAPAX_TEST_POSTGRES is not set; run tests/tools/with_postgres\n");
        return 77;
    }
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_locked_record_is_abandoned_later_and_its_owner_stays),
        TEST(a_locked_record_past_its_lease_is_abandoned_later),
        TEST(one_node_sweeps_at_a_time),
        TEST(one_node_at_a_time_abandons_an_owners_records),
        TEST(an_owner_whose_claim_is_being_committed_is_not_forgotten),
        TEST(an_owner_that_was_forgotten_but_lives_comes_back_with_its_connection),
        TEST(the_last_handle_to_close_takes_its_owner_along),
        TEST(counts_of_bytes_are_the_tables),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
