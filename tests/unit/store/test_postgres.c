/* The PostgreSQL store when its connection is lost, its commits are in doubt, handles race and settings are unsafe.
 * Runs under tests/tools/with_postgres; without a server it says so and is skipped. What the rules say is the conformance
 * suite's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/limits.h"
#include "postgres_statements_sql.h"
#include "store/statement_text.h"
#include "store/store.h"

#include <libpq-fe.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

static char uri[500];
static unsigned databases;

static char *on_server(const char *database, const char *sql)
{
    static char value[100];
    char address[500];
    snprintf(address, sizeof address, "%s/%s", getenv("HAPAX_TEST_POSTGRES"), database);
    PGconn *db = PQconnectdb(address);
    PGresult *r = PQexec(db, sql);
    ExecStatusType status = PQresultStatus(r);
    if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK) {
        fail_msg("%s: %s", sql, PQerrorMessage(db));
    }
    snprintf(value, sizeof value, "%s", PQntuples(r) > 0 ? PQgetvalue(r, 0, 0) : "");
    PQclear(r);
    PQfinish(db);
    return value;
}

static char *in_world(const char *sql)
{
    return on_server(strrchr(uri, '/') + 1, sql);
}

static int setup(void **state)
{
    (void)state;
    char sql[100];
    snprintf(sql, sizeof sql, "CREATE DATABASE u%u", ++databases);
    on_server("postgres", sql);
    snprintf(uri, sizeof uri, "%s/u%u", getenv("HAPAX_TEST_POSTGRES"), databases);
    return 0;
}

static struct store *opened(const char *address)
{
    struct store *s = NULL;
    hapax_error err = {0};
    if (store_open(&s, address, NULL, &err) != 0) {
        fail_msg("%s", err.message);
    }
    return s;
}

static struct store_op claim(uint8_t n)
{
    struct store_op op = {.kind = STORE_CLAIM, .lease_ms = 600000, .ttl_ms = 86400000};
    memset(op.id.bytes, n, sizeof op.id.bytes);
    op.scope = SLICE_LITERAL("s");
    op.key = SLICE_LITERAL("k");
    return op;
}

static int apply_one(struct store *s, struct store_op *op)
{
    struct store_op *list[] = {op};
    return store_apply(s, list, 1, 0, NULL);
}

#define KILL                                                                                                 \
    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"                                          \
    " WHERE datname = current_database() AND pid <> pg_backend_pid()"

/* Not the other sessions of the test itself. */
#define KILL_STORES KILL " AND application_name = 'hapax'"

static void a_connection_killed_between_batches_is_made_anew(void **state)
{
    (void)state;
    struct store *s = opened(uri);
    struct store_op op = claim(1);
    assert_int_equal(apply_one(s, &op), 0);
    assert_string_equal(in_world(KILL), "1");
    op = claim(2);
    assert_int_equal(apply_one(s, &op), 0);
    assert_int_equal(op.result, STORE_APPLIED);
    assert_string_equal(in_world("SELECT count(*) FROM hapax.record"), "2");
    store_close(s);
}

struct call {
    pthread_t thread;
    struct store *s;
    struct store_op op;
    int code;
};

static void *run_call(void *ctx)
{
    struct call *c = ctx;
    c->code = apply_one(c->s, &c->op);
    return NULL;
}

/* Until the store's session waits within the first statement of this state. */
static void await(const char *condition)
{
    char sql[300];
    snprintf(sql, sizeof sql,
             "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'hapax'"
             " AND datname = current_database() AND %s",
             condition);
    for (int i = 0; strcmp(in_world(sql), "1") != 0; i++) {
        assert_true(i < 2000);
    }
}

/* A second call of the same claim waits for the record, which the connection returned holds. */
static PGconn *hold_up(struct call *c)
{
    assert_int_equal(apply_one(c->s, &c->op), 0);
    c->op = claim(1);
    PGconn *blocker = PQconnectdb(uri);
    PQclear(PQexec(blocker, "BEGIN; SELECT FROM hapax.record FOR UPDATE"));
    pthread_create(&c->thread, NULL, run_call, c);
    await("wait_event_type = 'Lock'");
    return blocker;
}

static void a_connection_killed_during_a_batch_runs_it_again(void **state)
{
    (void)state;
    struct call c = {.s = opened(uri), .op = claim(1)};
    PGconn *blocker = hold_up(&c);
    in_world(KILL_STORES);
    PQfinish(blocker);
    pthread_join(c.thread, NULL);
    assert_int_equal(c.code, 0);
    assert_int_equal(c.op.result, STORE_FOUND);
    store_close(c.s);
}

/* Not an outage: the record that it waited for is to blame, as with a lock that is not given in time. */
static void a_statement_that_was_canceled_leaves_the_store_usable(void **state)
{
    (void)state;
    struct call c = {.s = opened(uri), .op = claim(1)};
    PGconn *blocker = hold_up(&c);
    in_world("SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity"
             " WHERE datname = current_database() AND application_name = 'hapax'");
    pthread_join(c.thread, NULL);
    assert_int_equal(c.code, HAPAX_E_BUSY);
    PQfinish(blocker);
    c.op = claim(1);
    assert_int_equal(apply_one(c.s, &c.op), 0);
    assert_int_equal(c.op.result, STORE_FOUND);
    store_close(c.s);
}

/* COMMIT waits in a deferred trigger for a lock that the test holds, and is killed there. The first batch of a handle
 * takes two round trips, having no serials yet, and the second one. */
static void a_commit_that_was_killed_is_run_again(void **state)
{
    (void)state;
    struct call c = {.s = opened(uri)};
    in_world("CREATE FUNCTION public.wait() RETURNS trigger LANGUAGE plpgsql AS"
             " 'BEGIN PERFORM pg_advisory_xact_lock(7); RETURN NULL; END';"
             "CREATE CONSTRAINT TRIGGER wait AFTER INSERT ON hapax.record DEFERRABLE INITIALLY DEFERRED"
             " FOR EACH ROW EXECUTE FUNCTION public.wait()");
    for (uint8_t i = 1; i <= 2; i++) {
        PGconn *blocker = PQconnectdb(uri);
        PQclear(PQexec(blocker, "SELECT pg_advisory_lock(7)"));
        c.op = claim(i);
        pthread_create(&c.thread, NULL, run_call, &c);
        await("wait_event = 'advisory' AND query = 'COMMIT'");
        in_world(KILL_STORES);
        PQfinish(blocker);
        pthread_join(c.thread, NULL);
        assert_int_equal(c.code, 0);
        assert_int_equal(c.op.result, STORE_APPLIED);
    }
    assert_string_equal(in_world("SELECT count(*) FROM hapax.record"), "2");
    store_close(c.s);
}

/* Between store and server: passes everything on until a COMMIT comes by while armed; then takes the server's
 * answer and closes without passing it on. */
struct proxy {
    pthread_t thread;
    int listener;
    int server_port;
    _Atomic(bool) armed;
    _Atomic(int) cut;
    _Atomic(bool) away; /* nobody is let in after a cut */
    char uri[500];
    _Atomic(bool) stop;
};

static int connect_port(int port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    return connect(fd, (struct sockaddr *)&a, sizeof a) == 0 ? fd : -1;
}

static void pass(struct proxy *p, int client, int server)
{
    bool cut = false;
    char bytes[65536];
    while (!p->stop) {
        struct pollfd fds[2] = {{.fd = client, .events = POLLIN}, {.fd = server, .events = POLLIN}};
        poll(fds, 2, 50);
        for (int i = 0; i < 2; i++) {
            if (fds[i].revents == 0) {
                continue;
            }
            ssize_t n = read(fds[i].fd, bytes, sizeof bytes);
            if (n <= 0) {
                return;
            }
            if (i == 0 && p->armed && memmem(bytes, (size_t)n, "COMMIT", 6) != NULL) {
                p->armed = false;
                cut = true;
            } else if (i == 1 && cut) {
                p->cut++;
                return;
            }
            if (send(fds[1 - i].fd, bytes, (size_t)n, MSG_NOSIGNAL) != n) {
                return;
            }
        }
    }
}

static void *run_proxy(void *ctx)
{
    struct proxy *p = ctx;
    while (!p->stop) {
        struct pollfd fd = {.fd = p->listener, .events = POLLIN};
        if (poll(&fd, 1, 50) <= 0) {
            continue;
        }
        int client = accept(p->listener, NULL, NULL);
        if (p->away && p->cut > 0) {
            close(client);
            continue;
        }
        int server = connect_port(p->server_port);
        pass(p, client, server);
        close(client);
        close(server);
    }
    return NULL;
}

static void start_proxy(struct proxy *p)
{
    *p = (struct proxy){.listener = socket(AF_INET, SOCK_STREAM, 0)};
    p->server_port = (int)strtol(strrchr(getenv("HAPAX_TEST_POSTGRES"), ':') + 1, NULL, 10);
    struct sockaddr_in a = {.sin_family = AF_INET};
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t len = sizeof a;
    assert_int_equal(bind(p->listener, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(p->listener, 8), 0);
    assert_int_equal(getsockname(p->listener, (struct sockaddr *)&a, &len), 0);
    pthread_create(&p->thread, NULL, run_proxy, p);
    snprintf(p->uri, sizeof p->uri, "postgresql://postgres@127.0.0.1:%d%s?sslmode=disable&gssencmode=disable",
             ntohs(a.sin_port), strrchr(uri, '/'));
}

static void stop_proxy(struct proxy *p)
{
    p->stop = true;
    pthread_join(p->thread, NULL);
    close(p->listener);
}

static struct store_op completion(const struct store_op *of, struct record *running, struct answer *answer)
{
    *running = of->found;
    return (struct store_op){
        .kind = STORE_COMPLETE, .id = of->id, .fence = running->fence, .claimed = running, .answer = answer};
}

static void a_commit_whose_answer_was_lost_stands(void **state)
{
    (void)state;
    struct proxy p;
    start_proxy(&p);
    struct store *s = opened(p.uri);
    /* In two round trips, then in one. Run again it would have found its own record. */
    struct store_op op;
    for (uint8_t i = 1; i <= 3; i++) {
        op = claim(i);
        p.armed = i != 2; /* which has its serials for the next */
        assert_int_equal(apply_one(s, &op), 0);
        assert_int_equal(op.result, STORE_APPLIED);
    }
    assert_int_equal(p.cut, 2);
    char serial[30];
    snprintf(serial, sizeof serial, "%llu", (unsigned long long)op.found.fence.serial);
    assert_string_equal(in_world("SELECT max(serial) FROM hapax.record WHERE attempt = 1"), serial);
    assert_string_equal(in_world("SELECT count(*) FROM hapax.record"), "3");
    struct record running;
    struct answer *answer = answer_make(200, true, SLICE_LITERAL(""), SLICE_LITERAL("done"));
    op = completion(&op, &running, answer);
    p.armed = true;
    assert_int_equal(apply_one(s, &op), 0);
    assert_int_equal(p.cut, 3);
    assert_int_equal(op.result, STORE_APPLIED);
    assert_int_equal(op.found.state, RECORD_DONE);
    answer_drop(answer);
    store_close(s);
    stop_proxy(&p);
}

/* The server stays away after the cut, for longer than a batch may wait. */
static void a_commit_in_doubt_is_settled_when_the_server_is_back(void **state)
{
    (void)state;
    struct proxy p;
    start_proxy(&p);
    struct store *s = NULL;
    assert_int_equal(store_open(&s, p.uri, &(struct store_options){.busy_ms = 100}, NULL), 0);
    for (uint8_t i = 0; i < 2; i++) { /* in two round trips, then in one */
        struct store_op op = claim((uint8_t)(10 * i));
        if (i == 1) {
            assert_int_equal(apply_one(s, &op), 0);
        }
        p.armed = p.away = true;
        p.cut = 0;
        op = claim((uint8_t)(10 * i + 1));
        assert_int_equal(apply_one(s, &op), HAPAX_E_TIMEOUT);
        assert_int_equal(apply_one(s, &op), HAPAX_E_STORE);
        assert_string_equal(in_world("SELECT count(*) FROM hapax.record WHERE state = 1"),
                            i == 0 ? "1" : "3");
        p.away = false;
        op = claim((uint8_t)(10 * i + 2));
        assert_int_equal(apply_one(s, &op), 0);
        /* Nobody executes the other one. */
        assert_string_equal(in_world("SELECT count(*) FROM hapax.record"), i == 0 ? "1" : "3");
        op = claim((uint8_t)(10 * i + 1));
        assert_int_equal(apply_one(s, &op), 0);
        assert_int_equal(op.result, STORE_APPLIED);
        in_world("DELETE FROM hapax.record WHERE get_byte(digest, 0) % 10 = 1");
    }
    struct store_op op = claim(30);
    struct record running;
    struct answer *answer = answer_make(200, true, SLICE_LITERAL(""), SLICE_LITERAL("done"));
    assert_int_equal(apply_one(s, &op), 0);
    op = completion(&op, &running, answer);
    p.armed = p.away = true;
    p.cut = 0;
    assert_int_equal(apply_one(s, &op), HAPAX_E_TIMEOUT);
    p.away = false;
    assert_int_equal(apply_one(s, &op), 0);
    assert_int_equal(op.result, STORE_APPLIED); /* the first time it was: not somebody else's */
    assert_int_equal(op.found.state, RECORD_DONE);
    op.fence.attempt++;
    assert_int_equal(apply_one(s, &op), 0);
    assert_int_equal(op.result, STORE_STALE);
    answer_drop(answer);
    store_close(s);
    stop_proxy(&p);
}

/* A batch that was given up and reaches the server late: what a session says that sends it. */
static void a_batch_that_was_given_up_cannot_be_committed(void **state)
{
    (void)state;
    store_close(opened(uri));
    in_world("INSERT INTO hapax.handle VALUES (7, 3, 4, 0)"); /* committed up to 3; gave up 4 */
    struct slice text = statement_text(postgres_statements_sql, "enter");
    for (int batch = 3; batch <= 5; batch++) {
        char number[12];
        snprintf(number, sizeof number, "%d", batch);
        const char *values[] = {"7", number};
        char sql[2000];
        snprintf(sql, sizeof sql, "%.*s", (int)text.len, text.ptr);
        PGconn *db = PQconnectdb(uri);
        PGresult *r = PQexecParams(db, sql, 2, NULL, values, NULL, NULL, 0);
        assert_int_equal(PQresultStatus(r), batch == 5 ? PGRES_TUPLES_OK : PGRES_FATAL_ERROR);
        PQclear(r);
        PQfinish(db);
    }
}

#define KEYS   100
#define ROUNDS 20

struct racer {
    pthread_t thread;
    struct store *s;
    bool backwards;
    unsigned applied;
    unsigned errors;
};

static void *race(void *ctx)
{
    struct racer *r = ctx;
    for (unsigned round = 0; round < ROUNDS; round++) {
        struct store_op ops[KEYS];
        struct store_op *list[KEYS];
        for (unsigned i = 0; i < KEYS; i++) {
            unsigned key = r->backwards ? KEYS - 1 - i : i;
            ops[i] = claim((uint8_t)key);
            ops[i].id.bytes[0] = (uint8_t)round;
            list[i] = &ops[i];
        }
        r->errors += store_apply(r->s, list, KEYS, 0, NULL) != 0;
        for (unsigned i = 0; i < KEYS; i++) {
            r->applied += ops[i].result == STORE_APPLIED;
        }
    }
    return NULL;
}

static void handles_in_opposite_order_do_not_deadlock(void **state)
{
    (void)state;
    struct racer racers[2] = {{.s = opened(uri)}, {.s = opened(uri), .backwards = true}};
    for (int i = 0; i < 2; i++) {
        pthread_create(&racers[i].thread, NULL, race, &racers[i]);
    }
    for (int i = 0; i < 2; i++) {
        pthread_join(racers[i].thread, NULL);
        store_close(racers[i].s);
        assert_int_equal(racers[i].errors, 0);
    }
    assert_int_equal(racers[0].applied + racers[1].applied, KEYS * ROUNDS);
    assert_string_equal(in_world("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"),
                        "0");
}

static void an_unsafe_setting_is_refused(void **state)
{
    (void)state;
    char sql[100];
    snprintf(sql, sizeof sql, "ALTER DATABASE u%u SET synchronous_commit = off", databases);
    in_world(sql);
    struct store *s = NULL;
    hapax_error err = {0};
    assert_int_equal(store_open(&s, uri, NULL, &err), HAPAX_E_STORE);
    assert_non_null(strstr(err.message, "synchronous_commit"));
    assert_null(s);
}

static void count_warning(void *ctx, enum store_warning what, const char *text)
{
    assert_int_equal(what, STORE_WARN_UNSAFE);
    assert_non_null(strstr(text, "synchronous_commit is off"));
    ++*(int *)ctx;
}

static void an_unsafe_setting_that_is_allowed_is_told_at_each_connection_that_writes(void **state)
{
    (void)state;
    char sql[100];
    int warnings = 0;
    snprintf(sql, sizeof sql, "ALTER DATABASE u%u SET synchronous_commit = off", databases);
    in_world(sql);
    struct store_options options = {.allow_unsafe = true, .warn = count_warning, .warn_ctx = &warnings};
    struct store *s = NULL;
    assert_int_equal(store_open(&s, uri, &options, NULL), 0);
    assert_int_equal(warnings, 1);
    in_world(KILL);
    struct store_op op = claim(1);
    assert_int_equal(apply_one(s, &op), 0);
    assert_int_equal(warnings, 2);
    store_close(s);
    options.read_only = true;
    options.allow_unsafe = false;
    assert_int_equal(store_open(&s, uri, &options, NULL), 0);
    assert_int_equal(warnings, 2);
    store_close(s);
}

static void newer_tables_are_used_as_long_as_they_serve_this_version(void **state)
{
    (void)state;
    store_close(opened(uri));
    in_world("UPDATE hapax.meta SET value = 99 WHERE name = 'schema'");
    store_close(opened(uri));
    assert_string_equal(in_world("SELECT value FROM hapax.meta WHERE name = 'schema'"), "99");
    in_world("UPDATE hapax.meta SET value = 98 WHERE name = 'least'");
    struct store *s = NULL;
    hapax_error err = {0};
    assert_int_equal(store_open(&s, uri, NULL, &err), HAPAX_E_STORE_VERSION);
    assert_non_null(strstr(err.message, "use a newer one"));
    assert_null(s);
}

static void tables_without_a_version_are_damaged_not_migrated(void **state)
{
    (void)state;
    store_close(opened(uri));
    in_world("DELETE FROM hapax.meta WHERE name = 'least'");
    struct store *s = NULL;
    assert_int_equal(store_open(&s, uri, NULL, NULL), HAPAX_E_STORE_CORRUPT);
}

static void a_role_that_may_not_make_the_tables_is_told_of_migrate(void **state)
{
    (void)state;
    char address[600];
    char sql[100];
    snprintf(sql, sizeof sql, "CREATE ROLE r%u LOGIN", databases);
    in_world(sql);
    snprintf(address, sizeof address, "%s?user=r%u", uri, databases);
    struct store *s = NULL;
    hapax_error err = {0};
    assert_int_equal(store_open(&s, address, NULL, &err), HAPAX_E_STORE);
    assert_non_null(strstr(err.message, "hapax migrate"));
}

static void no_message_shows_the_password(void **state)
{
    (void)state;
    static const char *const addresses[] = {
        "postgresql://u:secret@127.0.0.1:1/d", "postgres://u:secret@[::1/d",
        "postgresql://u:pa@secret@127.0.0.1:1/d", "postgresql://u:secret/x@127.0.0.1:1/d",
        "postgresql://u:1/secret@127.0.0.1:1/d"};
    for (size_t i = 0; i < sizeof addresses / sizeof addresses[0]; i++) {
        struct store *s = NULL;
        hapax_error err = {0};
        assert_true(store_open(&s, addresses[i], NULL, &err) < 0);
        assert_null(strstr(err.message, "secret"));
    }
}

int main(void)
{
    if (getenv("HAPAX_TEST_POSTGRES") == NULL) {
        fprintf(stderr,
                "skipped: HAPAX_TEST_POSTGRES names no server; run under tests/tools/with_postgres\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_connection_killed_between_batches_is_made_anew, setup),
        cmocka_unit_test_setup(a_connection_killed_during_a_batch_runs_it_again, setup),
        cmocka_unit_test_setup(a_statement_that_was_canceled_leaves_the_store_usable, setup),
        cmocka_unit_test_setup(a_commit_that_was_killed_is_run_again, setup),
        cmocka_unit_test_setup(a_commit_whose_answer_was_lost_stands, setup),
        cmocka_unit_test_setup(a_commit_in_doubt_is_settled_when_the_server_is_back, setup),
        cmocka_unit_test_setup(a_batch_that_was_given_up_cannot_be_committed, setup),
        cmocka_unit_test_setup(handles_in_opposite_order_do_not_deadlock, setup),
        cmocka_unit_test_setup(an_unsafe_setting_is_refused, setup),
        cmocka_unit_test_setup(an_unsafe_setting_that_is_allowed_is_told_at_each_connection_that_writes,
                               setup),
        cmocka_unit_test_setup(newer_tables_are_used_as_long_as_they_serve_this_version, setup),
        cmocka_unit_test_setup(tables_without_a_version_are_damaged_not_migrated, setup),
        cmocka_unit_test_setup(a_role_that_may_not_make_the_tables_is_told_of_migrate, setup),
        cmocka_unit_test_setup(no_message_shows_the_password, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
