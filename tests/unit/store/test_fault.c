/* The store that fails on purpose: when, how often, and what has been changed by then. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "store/fault.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define T0 INT64_C(1700000000000)

static struct store *opened(const char *uri)
{
    struct store *s = NULL;
    hapax_error err = {0};
    if (store_open(&s, uri, NULL, &err) != 0) {
        fail_msg("%s: %s", uri, err.message);
    }
    return s;
}

static int claim(struct store *s, uint8_t name, enum store_result *result)
{
    struct store_op op = {.kind = STORE_CLAIM,
                          .id = {.bytes = {name}},
                          .scope = SLICE_LITERAL("s"),
                          .key = SLICE_LITERAL("k"),
                          .lease_ms = 1000,
                          .ttl_ms = 1000};
    struct store_op *list[] = {&op};
    hapax_error err = {0};
    int code = store_apply(s, list, 1, T0, &err);
    assert_int_equal(err.code, code);
    if (result != NULL) {
        *result = op.result;
    }
    return code;
}

static void assert_free(struct store *s, uint8_t name)
{
    enum store_result result;
    assert_int_equal(claim(s, name, &result), 0);
    assert_int_equal(result, STORE_APPLIED);
}

static void the_nth_apply_fails_once_and_changes_nothing(void **state)
{
    (void)state;
    struct store *s = opened("fault:fail=2:memory:");
    assert_free(s, 1);
    assert_int_equal(claim(s, 2, NULL), HAPAX_E_STORE);
    assert_free(s, 2);
    assert_int_equal(fault_applied(s), 3);
    store_close(s);
}

static void every_nth_apply_fails_with_the_code_asked_for(void **state)
{
    (void)state;
    struct store *s = opened("fault:every=3,code=store-full:memory:");
    for (uint8_t i = 1; i <= 9; i++) {
        assert_int_equal(claim(s, i, NULL), i % 3 == 0 ? HAPAX_E_STORE_FULL : 0);
    }
    uint64_t generation;
    assert_int_equal(s->backend->generation(s, &generation, NULL), 0);
    store_close(s);
}

static void a_failure_afterwards_leaves_the_change_in_place(void **state)
{
    (void)state;
    struct store *s = opened("fault:fail=1,when=after,code=timeout:memory:");
    assert_int_equal(claim(s, 1, NULL), HAPAX_E_TIMEOUT);
    enum store_result result;
    assert_int_equal(claim(s, 1, &result), 0);
    assert_int_equal(result, STORE_FOUND);
    assert_true((s->backend->capabilities & STORE_CAN_LOSE_COMMITS) != 0);
    store_close(s);
}

static void a_failure_afterwards_gives_no_answer_away(void **state)
{
    (void)state;
    struct store *s = opened("fault::memory:");
    assert_free(s, 1);
    struct answer *a = answer_make(200, true, SLICE_NONE, SLICE_LITERAL("x"));
    struct store_op op = {.kind = STORE_COMPLETE, .id = {.bytes = {1}}, .fence = {1, 1}, .answer = a};
    struct store_op *list[] = {&op};
    assert_int_equal(store_apply(s, list, 1, T0, NULL), 0);
    assert_int_equal(op.result, STORE_APPLIED);
    fault_plan_set(s, &(struct fault_plan){.fail_at = 1, .after = true});
    op.kind = STORE_LOOKUP;
    op.want_answer = true;
    op.answer = NULL;
    assert_int_equal(store_apply(s, list, 1, T0, NULL), HAPAX_E_STORE);
    assert_null(op.answer);
    answer_drop(a);
    store_close(s);
}

static void a_plan_set_at_run_time_counts_from_then(void **state)
{
    (void)state;
    struct store *s = opened("fault::memory:");
    assert_free(s, 1);
    fault_plan_set(s, &(struct fault_plan){.fail_every = 1, .code = HAPAX_E_STORE_CORRUPT});
    uint64_t number = 0;
    assert_int_equal(claim(s, 2, NULL), HAPAX_E_STORE_CORRUPT);
    assert_int_equal(s->backend->generation(s, &number, NULL), HAPAX_E_STORE_CORRUPT);
    assert_int_equal(s->backend->register_owner(s, "x", &number, NULL), HAPAX_E_STORE_CORRUPT);
    fault_plan_set(s, &(struct fault_plan){0});
    assert_free(s, 2);
    assert_int_equal(s->backend->generation(s, &number, NULL), 0);
    store_close(s);
}

static void write_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

static void a_control_file_switches_the_store_off_and_on(void **state)
{
    (void)state;
    char path[] = "/tmp/hapax-fault-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    unlink(path);
    char uri[128];
    snprintf(uri, sizeof uri, "fault:control=%s:memory:", path);
    struct store *s = opened(uri);
    assert_free(s, 1);
    write_file(path, "every=1,code=store\n");
    assert_int_equal(claim(s, 2, NULL), HAPAX_E_STORE);
    assert_int_equal(claim(s, 2, NULL), HAPAX_E_STORE);
    write_file(path, "");
    assert_free(s, 2);
    write_file(path, "fail=2");
    assert_free(s, 3);
    assert_int_equal(claim(s, 4, NULL), HAPAX_E_STORE);
    assert_free(s, 4);
    write_file(path, "nonsense");
    assert_int_equal(claim(s, 5, NULL), HAPAX_E_SYNTAX);
    unlink(path);
    assert_free(s, 5);
    store_close(s);
}

struct held_claim {
    struct store *store;
    _Atomic(int) done;
};

static void *claim_held(void *arg)
{
    struct held_claim *h = arg;
    assert_free(h->store, 1);
    h->done = 1;
    return NULL;
}

static bool claimed(struct store *other)
{
    struct store_op op = {.kind = STORE_LOOKUP, .id = {.bytes = {1}}};
    struct store_op *list[] = {&op};
    assert_int_equal(store_apply(other, list, 1, T0, NULL), 0);
    return op.found.state == RECORD_RUNNING;
}

static void a_call_is_held_before_or_after_its_commit_until_the_plan_changes(void **state)
{
    (void)state;
    for (int after = 0; after < 2; after++) {
        struct store *other = opened("memory:held");
        struct held_claim h = {
            .store = opened(after ? "fault:hold=1,when=after:memory:held" : "fault:hold=1:memory:held")};
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, claim_held, &h), 0);
        while (fault_applied(h.store) == 0 || (after && !claimed(other))) {
            sched_yield();
        }
        assert_int_equal(claimed(other), after);
        assert_int_equal(h.done, 0);
        fault_plan_set(h.store, &(struct fault_plan){0});
        pthread_join(thread, NULL);
        assert_true(claimed(other));
        store_close(h.store);
        store_close(other);
    }
}

/* The exit code of a child that claims at the plan; the store is a file, so that the parent can look. */
static int child_claims(const char *plan, const char *path)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        char uri[160];
        snprintf(uri, sizeof uri, "fault:%s:sqlite:%s", plan, path);
        struct store *s = opened(uri);
        claim(s, 1, NULL);
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void the_process_can_end_before_or_after_a_commit(void **state)
{
    (void)state;
    for (int after = 0; after < 2; after++) {
        char directory[] = "/tmp/hapax-fault-XXXXXX";
        assert_non_null(mkdtemp(directory));
        char path[64];
        snprintf(path, sizeof path, "%s/x.db", directory);
        assert_int_equal(child_claims(after ? "kill=1,when=after" : "kill=1", path), FAULT_EXIT);
        char uri[160];
        snprintf(uri, sizeof uri, "sqlite:%s", path);
        struct store *s = opened(uri);
        enum store_result result;
        assert_int_equal(claim(s, 1, &result), 0);
        assert_int_equal(result, after ? STORE_FOUND : STORE_APPLIED);
        store_close(s);
        unlink(path);
        assert_int_equal(rmdir(directory), 0);
    }
}

static void what_is_no_plan_is_refused(void **state)
{
    (void)state;
    static const char *const uris[] = {
        "fault:",
        "fault:memory",
        "fault:often:memory:",
        "fault:fail=0:memory:",
        "fault:fail=x:memory:",
        "fault:code=nope:memory:",
        "fault:when=never:memory:",
        "fault:delay=99999999999:memory:",
        "fault:hold=2:memory:",
        "fault::redis:",
        "fault:fail=1,,:memory:",
    };
    for (size_t i = 0; i < sizeof uris / sizeof uris[0]; i++) {
        struct store *s = NULL;
        if (store_open(&s, uris[i], NULL, NULL) != HAPAX_E_ARGUMENT) {
            fail_msg("taken: %s", uris[i]);
        }
        assert_null(s);
    }
}

static void a_delay_is_slept_and_a_plan_is_parsed_in_full(void **state)
{
    (void)state;
    struct fault_plan p;
    assert_int_equal(
        fault_plan_parse(&p, SLICE_LITERAL("fail=3,every=4,kill=5,when=after,code=timeout,delay=6,hold=1"),
                         NULL),
        0);
    assert_int_equal(p.fail_at, 3);
    assert_int_equal(p.fail_every, 4);
    assert_int_equal(p.kill_at, 5);
    assert_true(p.after);
    assert_int_equal(p.code, HAPAX_E_TIMEOUT);
    assert_int_equal(p.delay_ms, 6);
    assert_true(p.hold);
    struct store *s = opened("fault:delay=1:memory:");
    assert_free(s, 1);
    store_close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_nth_apply_fails_once_and_changes_nothing),
        cmocka_unit_test(every_nth_apply_fails_with_the_code_asked_for),
        cmocka_unit_test(a_failure_afterwards_leaves_the_change_in_place),
        cmocka_unit_test(a_failure_afterwards_gives_no_answer_away),
        cmocka_unit_test(a_plan_set_at_run_time_counts_from_then),
        cmocka_unit_test(a_control_file_switches_the_store_off_and_on),
        cmocka_unit_test(a_call_is_held_before_or_after_its_commit_until_the_plan_changes),
        cmocka_unit_test(the_process_can_end_before_or_after_a_commit),
        cmocka_unit_test(what_is_no_plan_is_refused),
        cmocka_unit_test(a_delay_is_slept_and_a_plan_is_parsed_in_full),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
