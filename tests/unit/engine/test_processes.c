/* Several processes on one SQLite file: what happens to the claims of one that dies, and waiting for one that
 * lives. Children use the library like any program, and end without running this test's clean-up. */
#include <hapax/hapax.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "store/fault.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct place {
    char dir[64];
    char uri[128];
};

static int setup(void **state)
{
    struct place *p = calloc(1, sizeof(*p));
    if (p == NULL) {
        return -1;
    }
    snprintf(p->dir, sizeof p->dir, "processes-XXXXXX");
    if (mkdtemp(p->dir) == NULL) {
        free(p);
        return -1;
    }
    snprintf(p->uri, sizeof p->uri, "sqlite:%s/store.db", p->dir);
    *state = p;
    return 0;
}

static int teardown(void **state)
{
    struct place *p = *state;
    static const char *const names[] = {"store.db", "store.db-wal", "store.db-shm"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[128];
        snprintf(path, sizeof path, "%s/%s", p->dir, names[i]);
        unlink(path);
    }
    int failed = rmdir(p->dir);
    free(p);
    return failed;
}

static hapax *open_store(const char *uri)
{
    hapax *h;
    hapax_error err;
    if (hapax_open(&h, uri, NULL, &err) != 0) {
        fail_msg("open: %s", err.message);
    }
    return h;
}

static int begin_code(hapax *h, const char *key, int64_t wait_ms, hapax_result *out)
{
    hapax_request r = {.size = sizeof r, .scope = "test", .key = key, .lease_ms = 600000, .wait_ms = wait_ms};
    return hapax_begin(h, &r, out, NULL);
}

static hapax_result begin(hapax *h, const char *key, int64_t wait_ms)
{
    hapax_result out;
    assert_int_equal(begin_code(h, key, wait_ms, &out), 0);
    return out;
}

struct child {
    pid_t pid;
    int told; /* reads what the child says */
    int tell; /* a byte makes the child go on */
};

/* What the child does: claim `key`, say so, wait for a byte, complete, end without closing. */
static void claim_and_wait(const char *uri, const char *key, int told, int tell)
{
    hapax *h;
    hapax_result out;
    char byte = '?';
    if (hapax_open(&h, uri, NULL, NULL) != 0 || begin_code(h, key, 0, &out) != 0 ||
        out.verdict != HAPAX_FRESH) {
        _exit(1);
    }
    if (write(told, "c", 1) != 1 || read(tell, &byte, 1) != 1) {
        _exit(2);
    }
    _exit(hapax_complete(h, &out.claim, "by the child", 12, NULL) == 0 ? 0 : 3);
}

static struct child start_child(const char *uri, const char *key)
{
    int up[2];
    int down[2];
    assert_int_equal(pipe(up), 0);
    assert_int_equal(pipe(down), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        close(up[0]);
        close(down[1]);
        claim_and_wait(uri, key, up[1], down[0]);
    }
    close(up[1]);
    close(down[0]);
    return (struct child){pid, up[0], down[1]};
}

static void await_claim(const struct child *c)
{
    char byte;
    assert_int_equal(read(c->told, &byte, 1), 1);
}

static int end_child(const struct child *c)
{
    int status;
    assert_int_equal(waitpid(c->pid, &status, 0), c->pid);
    close(c->told);
    close(c->tell);
    return status;
}

static void claims_of_a_killed_process_are_unknown_to_the_next(void **state)
{
    struct place *p = *state;
    struct child c = start_child(p->uri, "k");
    await_claim(&c);
    hapax *h = open_store(p->uri);
    assert_int_equal(begin(h, "k", 0).verdict, HAPAX_IN_PROGRESS); /* alive: nothing is taken from it */
    hapax_close(h);
    kill(c.pid, SIGKILL);
    end_child(&c);
    h = open_store(p->uri);
    assert_int_equal(begin(h, "k", 0).verdict, HAPAX_UNKNOWN);
    assert_int_equal(hapax_resolve(h, "test", "k", NULL, 0, NULL), 0);
    assert_int_equal(begin(h, "k", 0).verdict, HAPAX_FRESH);
    hapax_close(h);
}

static void a_claim_is_durable_when_the_process_dies_before_its_completion(void **state)
{
    struct place *p = *state;
    char uri[192];
    snprintf(uri, sizeof uri, "fault:kill=2:%s", p->uri); /* 1: the claim, 2: the completion */
    struct child c = start_child(uri, "k");
    await_claim(&c);
    assert_int_equal(write(c.tell, "g", 1), 1);
    int status = end_child(&c);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), FAULT_EXIT);
    hapax *h = open_store(p->uri);
    assert_int_equal(begin(h, "k", 0).verdict, HAPAX_UNKNOWN);
    hapax_close(h);
}

static void an_answer_is_durable_when_the_process_dies_after_its_commit(void **state)
{
    struct place *p = *state;
    char uri[192];
    snprintf(uri, sizeof uri, "fault:kill=2,when=after:%s", p->uri);
    struct child c = start_child(uri, "k");
    await_claim(&c);
    assert_int_equal(write(c.tell, "g", 1), 1);
    assert_int_equal(WEXITSTATUS(end_child(&c)), FAULT_EXIT);
    hapax *h = open_store(p->uri);
    hapax_result r = begin(h, "k", 0);
    assert_int_equal(r.verdict, HAPAX_REPLAY);
    size_t bytes;
    assert_memory_equal(hapax_answer_data(r.answer, &bytes), "by the child", 12);
    hapax_answer_free(r.answer);
    hapax_close(h);
}

static void a_caller_waits_for_another_processs_run(void **state)
{
    struct place *p = *state;
    struct child c = start_child(p->uri, "k");
    await_claim(&c);
    hapax *h = open_store(p->uri);
    assert_int_equal(begin(h, "k", 20).verdict, HAPAX_IN_PROGRESS);
    assert_int_equal(write(c.tell, "g", 1), 1);
    hapax_result r = begin(h, "k", 60000);
    /* Usually attached; the child may also have been fast. */
    assert_true(r.verdict == HAPAX_ATTACHED || r.verdict == HAPAX_REPLAY);
    size_t bytes;
    assert_memory_equal(hapax_answer_data(r.answer, &bytes), "by the child", 12);
    assert_int_equal(bytes, 12);
    hapax_answer_free(r.answer);
    hapax_close(h);
    assert_int_equal(end_child(&c), 0);
}

static void a_handle_closed_with_an_open_claim_leaves_it_unknown(void **state)
{
    struct place *p = *state;
    hapax *h = open_store(p->uri);
    assert_int_equal(begin(h, "k", 0).verdict, HAPAX_FRESH);
    hapax_close(h);
    h = open_store(p->uri);
    assert_int_equal(begin(h, "k", 0).verdict, HAPAX_UNKNOWN);
    hapax_close(h);
}

static void an_operators_forget_reaches_another_handles_cache(void **state)
{
    struct place *p = *state;
    hapax *h = open_store(p->uri);
    hapax *elsewhere = open_store(p->uri);
    hapax_result r = begin(h, "k", 0);
    assert_int_equal(hapax_complete(h, &r.claim, "x", 1, NULL), 0);
    assert_int_equal(hapax_forget(elsewhere, "test", "k", NULL), 0);
    /* The promise is a second; the test only insists that it happens. */
    for (r = begin(h, "k", 0); r.verdict == HAPAX_REPLAY; r = begin(h, "k", 0)) {
        hapax_answer_free(r.answer);
        usleep(20000);
    }
    assert_int_equal(r.verdict, HAPAX_FRESH);
    hapax_close(elsewhere);
    hapax_close(h);
}

static void a_missing_directory_is_an_error_of_open(void **state)
{
    (void)state;
    hapax *h;
    hapax_error err = {0};
    assert_int_equal(hapax_open(&h, "sqlite:no/such/directory/store.db", NULL, &err), HAPAX_E_STORE);
    assert_null(h);
    assert_true(strlen(err.message) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(claims_of_a_killed_process_are_unknown_to_the_next, setup, teardown),
        cmocka_unit_test_setup_teardown(a_claim_is_durable_when_the_process_dies_before_its_completion, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(an_answer_is_durable_when_the_process_dies_after_its_commit, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_caller_waits_for_another_processs_run, setup, teardown),
        cmocka_unit_test_setup_teardown(a_handle_closed_with_an_open_claim_leaves_it_unknown, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(an_operators_forget_reaches_another_handles_cache, setup, teardown),
        cmocka_unit_test(a_missing_directory_is_an_error_of_open),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
