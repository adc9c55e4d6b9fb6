/* The public library, seen as its users see it: nothing but <hapax/hapax.h>. Built twice, linked with the static layer
 * and with the shared library. */
#include <hapax/hapax.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static hapax *open_memory(void)
{
    hapax *h;
    hapax_error err;
    if (hapax_open(&h, "memory:", NULL, &err) != 0) {
        fail_msg("open: %s", err.message);
    }
    return h;
}

static hapax_request request(const char *key, const char *content)
{
    return (hapax_request){.size = sizeof(hapax_request),
                           .scope = "payments",
                           .key = key,
                           .content = content,
                           .content_bytes = strlen(content)};
}

static hapax_result begin(hapax *h, const char *key, const char *content)
{
    hapax_request r = request(key, content);
    hapax_result out;
    hapax_error err;
    if (hapax_begin(h, &r, &out, &err) != 0) {
        fail_msg("begin: %s", err.message);
    }
    return out;
}

static void take_text(hapax_answer *a, const char *text)
{
    assert_non_null(a);
    size_t bytes;
    const void *data = hapax_answer_data(a, &bytes);
    assert_int_equal(bytes, strlen(text));
    assert_memory_equal(data, text, bytes);
    assert_int_equal(hapax_answer_status(a), 0);
    hapax_answer_free(a);
}

static void an_answer_is_replayed_for_the_same_content_only(void **state)
{
    (void)state;
    hapax *h = open_memory();
    hapax_result first = begin(h, "order-1", "10 EUR");
    assert_int_equal(first.verdict, HAPAX_FRESH);
    assert_int_equal(first.claim.attempt, 1);
    assert_null(first.answer);
    assert_true(first.lease_ms == first.claimed_ms + 30000);
    assert_true(first.expires_ms == first.claimed_ms + 86400000);
    assert_int_equal(begin(h, "order-1", "10 EUR").verdict, HAPAX_IN_PROGRESS);
    assert_int_equal(begin(h, "order-1", "99 EUR").verdict, HAPAX_MISMATCH);
    assert_int_equal(hapax_complete(h, &first.claim, "receipt 7", 9, NULL), 0);
    hapax_result second = begin(h, "order-1", "10 EUR");
    assert_int_equal(second.verdict, HAPAX_REPLAY);
    take_text(second.answer, "receipt 7");
    assert_int_equal(begin(h, "order-1", "99 EUR").verdict, HAPAX_MISMATCH);
    assert_int_equal(hapax_complete(h, &first.claim, "receipt 8", 9, NULL), HAPAX_E_STALE);
    hapax_close(h);
}

static void an_answer_may_be_empty(void **state)
{
    (void)state;
    hapax *h = open_memory();
    hapax_result first = begin(h, "k", "");
    assert_int_equal(hapax_complete(h, &first.claim, NULL, 0, NULL), 0);
    take_text(begin(h, "k", "").answer, "");
    hapax_close(h);
}

static void a_released_key_is_free_and_a_lost_one_is_unknown(void **state)
{
    (void)state;
    hapax *h = open_memory();
    hapax_result r = begin(h, "k", "x");
    assert_int_equal(hapax_extend(h, &r.claim, 60000, NULL), 0);
    assert_int_equal(hapax_release(h, &r.claim, NULL), 0);
    assert_int_equal(hapax_extend(h, &r.claim, 60000, NULL), HAPAX_E_STALE);
    r = begin(h, "k", "x");
    assert_int_equal(r.verdict, HAPAX_FRESH);
    assert_int_equal(hapax_lose(h, &r.claim, NULL), 0);
    assert_int_equal(begin(h, "k", "x").verdict, HAPAX_UNKNOWN);
    hapax_request again = request("k", "x");
    again.take_over = 1;
    hapax_result taken;
    assert_int_equal(hapax_begin(h, &again, &taken, NULL), 0);
    assert_int_equal(taken.verdict, HAPAX_FRESH);
    assert_int_equal(taken.claim.attempt, 2);
    assert_true(taken.claim.serial == r.claim.serial);
    hapax_close(h);
}

static void lookup_resolve_and_forget_work_by_key(void **state)
{
    (void)state;
    hapax *h = open_memory();
    hapax_record record;
    assert_int_equal(hapax_lookup(h, "payments", "k", &record, NULL), HAPAX_E_NOT_FOUND);
    assert_int_equal(hapax_resolve(h, "payments", "k", "y", 1, NULL), HAPAX_E_NOT_FOUND);
    hapax_result r = begin(h, "k", "x");
    assert_int_equal(hapax_lookup(h, "payments", "k", &record, NULL), 0);
    assert_int_equal(record.state, HAPAX_RUNNING);
    assert_memory_equal(&record.claim.identity, &r.claim.identity, sizeof r.claim.identity);
    assert_int_equal(record.ended_ms, 0);
    assert_int_equal(hapax_resolve(h, "payments", "k", "y", 1, NULL), HAPAX_E_CONFLICT);
    assert_int_equal(hapax_forget(h, "payments", "k", NULL), HAPAX_E_CONFLICT);
    assert_int_equal(hapax_lose(h, &r.claim, NULL), 0);
    assert_int_equal(hapax_lookup(h, "payments", "k", &record, NULL), 0);
    assert_int_equal(record.state, HAPAX_UNKNOWN_OUTCOME);
    assert_int_equal(hapax_resolve(h, "payments", "k", "it did happen", 13, NULL), 0);
    assert_int_equal(hapax_lookup(h, "payments", "k", &record, NULL), 0);
    assert_int_equal(record.state, HAPAX_DONE);
    assert_true(record.ended_ms >= record.claimed_ms);
    take_text(record.answer, "it did happen");
    assert_int_equal(hapax_forget(h, "payments", "k", NULL), 0);
    r = begin(h, "k", "x");
    assert_int_equal(r.verdict, HAPAX_FRESH);
    assert_int_equal(hapax_lose(h, &r.claim, NULL), 0);
    assert_int_equal(hapax_resolve(h, "payments", "k", NULL, 0, NULL), 0); /* it did not happen */
    assert_int_equal(begin(h, "k", "x").verdict, HAPAX_FRESH);
    hapax_close(h);
}

static void expect_begin_error(hapax *h, hapax_request r, int code)
{
    hapax_result out;
    hapax_error err = {0};
    memset(&out, 0xAA, sizeof out);
    assert_string_equal(hapax_error_name(hapax_begin(h, &r, &out, &err)), hapax_error_name(code));
    assert_int_equal(err.code, code);
    assert_true(strlen(err.message) > 0);
    assert_int_equal(out.verdict, 0);
    assert_null(out.answer);
}

static void bad_arguments_get_an_error_and_change_nothing(void **state)
{
    (void)state;
    hapax *h = open_memory();
    hapax_request r = request("k", "x");
    r.size = 0;
    expect_begin_error(h, r, HAPAX_E_ARGUMENT);
    r = request(NULL, "x");
    expect_begin_error(h, r, HAPAX_E_ARGUMENT);
    r = request("", "x");
    expect_begin_error(h, r, HAPAX_E_MISSING);
    r = request("line\nbreak", "x");
    expect_begin_error(h, r, HAPAX_E_SYNTAX);
    char key[HAPAX_KEY_BYTES_MAX + 2];
    memset(key, 'k', sizeof key - 1);
    key[sizeof key - 1] = '\0';
    r = request(key, "x");
    expect_begin_error(h, r, HAPAX_E_LIMIT);
    r = request("k", "x");
    r.lease_ms = -1;
    expect_begin_error(h, r, HAPAX_E_ARGUMENT);
    r = request("k", "x");
    r.content = NULL;
    expect_begin_error(h, r, HAPAX_E_ARGUMENT);

    hapax_claim none = {.serial = 0};
    assert_int_equal(hapax_complete(h, &none, "x", 1, NULL), HAPAX_E_ARGUMENT);
    assert_int_equal(hapax_release(h, NULL, NULL), HAPAX_E_ARGUMENT);
    hapax_result claimed = begin(h, "k", "x");
    assert_int_equal(hapax_extend(h, &claimed.claim, 0, NULL), HAPAX_E_ARGUMENT);
    static char large[1];
    hapax_error err;
    assert_int_equal(hapax_complete(h, &claimed.claim, large, HAPAX_ANSWER_BYTES_MAX + 1, &err),
                     HAPAX_E_LIMIT);
    assert_int_equal(hapax_complete(h, &claimed.claim, "x", 1, NULL), 0); /* the claim was as it was */
    hapax_close(h);
    hapax_close(NULL);
    hapax_answer_free(NULL);
}

static void structs_of_other_versions_are_understood_or_refused(void **state)
{
    (void)state;
    struct {
        hapax_options options;
        uint64_t later; /* a member that a later version added */
    } newer = {.options.size = sizeof newer, .later = 0};
    hapax *h;
    assert_int_equal(hapax_open(&h, "memory:", &newer.options, NULL), 0);
    hapax_close(h);
    newer.later = 1;
    hapax_error err;
    assert_int_equal(hapax_open(&h, "memory:", &newer.options, &err), HAPAX_E_ARGUMENT);
    assert_null(h);
    hapax_options older = {.size = offsetof(hapax_options, busy_ms),
                           .busy_ms = -1}; /* which has no busy_ms */
    assert_int_equal(hapax_open(&h, "memory:", &older, NULL), 0);
    hapax_close(h);
    hapax_options forgotten = {.size = (size_t)0xAAAAAAAAAAAAAAAA}; /* what happened to be on the stack */
    assert_int_equal(hapax_open(&h, "memory:", &forgotten, &err), HAPAX_E_ARGUMENT);
}

static void open_tells_what_is_wrong_with_a_uri(void **state)
{
    (void)state;
    hapax *h;
    hapax_error err = {0};
    assert_int_equal(hapax_open(&h, "carrier-pigeon:", NULL, &err), HAPAX_E_ARGUMENT);
    assert_null(h);
    assert_true(strlen(err.message) > 0);
    assert_int_equal(hapax_open(&h, NULL, NULL, &err), HAPAX_E_ARGUMENT);
    assert_int_equal(hapax_open(NULL, "memory:", NULL, &err), HAPAX_E_ARGUMENT);
}

#define THREADS 16

static void *attach(void *arg)
{
    hapax *h = arg;
    hapax_request r = request("one", "x");
    r.wait_ms = 60000;
    r.heartbeat = 1;
    hapax_result out;
    if (hapax_begin(h, &r, &out, NULL) != 0) {
        return (void *)-1;
    }
    if (out.verdict == HAPAX_FRESH) {
        return hapax_complete(h, &out.claim, "answer", 6, NULL) == 0 ? (void *)1 : (void *)-1;
    }
    size_t bytes = 0;
    int right = out.answer != NULL && memcmp(hapax_answer_data(out.answer, &bytes), "answer", 6) == 0;
    hapax_answer_free(out.answer);
    return right ? NULL : (void *)-1;
}

static void threads_of_one_key_do_it_once_and_share_the_answer(void **state)
{
    (void)state;
    hapax *h = open_memory();
    pthread_t threads[THREADS];
    intptr_t fresh = 0;
    for (size_t i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, attach, h), 0);
    }
    for (size_t i = 0; i < THREADS; i++) {
        void *result;
        pthread_join(threads[i], &result);
        assert_true((intptr_t)result >= 0);
        fresh += (intptr_t)result;
    }
    assert_int_equal(fresh, 1);
    hapax_close(h);
}

static void the_library_is_of_the_headers_version(void **state)
{
    (void)state;
    assert_string_equal(hapax_version(), HAPAX_VERSION);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_is_replayed_for_the_same_content_only),
        cmocka_unit_test(an_answer_may_be_empty),
        cmocka_unit_test(a_released_key_is_free_and_a_lost_one_is_unknown),
        cmocka_unit_test(lookup_resolve_and_forget_work_by_key),
        cmocka_unit_test(bad_arguments_get_an_error_and_change_nothing),
        cmocka_unit_test(structs_of_other_versions_are_understood_or_refused),
        cmocka_unit_test(open_tells_what_is_wrong_with_a_uri),
        cmocka_unit_test(threads_of_one_key_do_it_once_and_share_the_answer),
        cmocka_unit_test(the_library_is_of_the_headers_version),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
