#include "core/answer.h"

#include "base/limits.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

static void an_answer_holds_copies_of_head_and_body(void **state)
{
    (void)state;
    char head[] = "Content-Type: text/plain\r\n";
    char body[] = "pa\0id";
    struct answer *a = answer_make(201, true, slice_of(head, sizeof head - 1), slice_of(body, 5));
    assert_non_null(a);
    memset(head, 'x', sizeof head);
    memset(body, 'x', sizeof body);
    assert_int_equal(a->status, 201);
    assert_true(a->kept);
    assert_true(slice_equal(answer_head(a), SLICE_LITERAL("Content-Type: text/plain\r\n")));
    assert_true(slice_equal(answer_body(a), SLICE_LITERAL("pa\0id")));
    answer_drop(a);
}

static void an_answer_may_be_empty(void **state)
{
    (void)state;
    struct answer *a = answer_make(204, true, SLICE_NONE, SLICE_NONE);
    assert_non_null(a);
    assert_int_equal(answer_head(a).len, 0);
    assert_int_equal(answer_body(a).len, 0);
    assert_int_equal(answer_memory(a), sizeof *a);
    answer_drop(a);
}

static void a_tombstone_keeps_status_and_head(void **state)
{
    (void)state;
    struct answer *a = answer_make(200, false, SLICE_LITERAL("ETag: 1\r\n"), SLICE_NONE);
    assert_non_null(a);
    assert_false(a->kept);
    assert_int_equal(a->status, 200);
    assert_int_equal(a->body_bytes, 0);
    assert_int_equal(answer_head(a).len, 9);
    answer_drop(a);
}

static void memory_counts_head_and_body(void **state)
{
    (void)state;
    struct answer *a = answer_alloc(200, true, 10, 1000);
    assert_non_null(a);
    assert_int_equal(answer_memory(a), sizeof *a + 1010);
    memset(a->data, 7, 1010); /* all of it is ours to fill: a sanitizer watches */
    assert_ptr_equal(answer_body(a).ptr, answer_head(a).ptr + 10);
    answer_drop(a);
}

static void the_last_of_several_references_frees_it(void **state)
{
    (void)state;
    struct answer *a = answer_make(200, true, SLICE_NONE, SLICE_LITERAL("x"));
    assert_non_null(a);
    assert_ptr_equal(answer_retain(a), a);
    assert_int_equal(a->references, 2);
    answer_drop(a);
    assert_int_equal(a->references, 1);
    assert_true(slice_equal(answer_body(a), SLICE_LITERAL("x")));
    answer_drop(a); /* a leak checker sees it when this does not free */
}

static void null_passes_through(void **state)
{
    (void)state;
    assert_null(answer_retain(NULL));
    answer_drop(NULL);
}

static void impossible_sizes_give_null(void **state)
{
    (void)state;
    assert_null(answer_alloc(200, true, 0, UINT64_MAX));
    assert_null(answer_alloc(200, true, 1, (uint64_t)PTRDIFF_MAX));
    assert_null(answer_alloc(200, true, LIMIT_ANSWER_HEAD_BYTES_MAX + 1, 0));
    char *head = calloc(1, LIMIT_ANSWER_HEAD_BYTES_MAX + 1);
    assert_non_null(head);
    assert_null(answer_make(200, true, slice_of(head, LIMIT_ANSWER_HEAD_BYTES_MAX + 1), SLICE_NONE));
    struct answer *a = answer_make(200, true, slice_of(head, LIMIT_ANSWER_HEAD_BYTES_MAX), SLICE_NONE);
    assert_non_null(a);
    answer_drop(a);
    free(head);
}

static void *take_and_drop(void *shared)
{
    for (int i = 0; i < 20000; i++) {
        struct answer *mine = answer_retain(shared);
        answer_drop(mine);
    }
    answer_drop(shared);
    return NULL;
}

static void threads_share_an_answer(void **state)
{
    (void)state;
    struct answer *a = answer_make(200, true, SLICE_NONE, SLICE_LITERAL("shared"));
    assert_non_null(a);
    pthread_t threads[4];
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, take_and_drop, answer_retain(a)), 0);
    }
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    assert_int_equal(a->references, 1);
    answer_drop(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_holds_copies_of_head_and_body),
        cmocka_unit_test(an_answer_may_be_empty),
        cmocka_unit_test(a_tombstone_keeps_status_and_head),
        cmocka_unit_test(memory_counts_head_and_body),
        cmocka_unit_test(the_last_of_several_references_frees_it),
        cmocka_unit_test(null_passes_through),
        cmocka_unit_test(impossible_sizes_give_null),
        cmocka_unit_test(threads_share_an_answer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
