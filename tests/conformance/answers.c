/* What goes in comes out, byte for byte. */
#include "suite.h"

#include <stdio.h>
#include <stdlib.h>

/* Claim, complete with the answer, claim again from a second handle, compare. */
static void check_round_trip(struct world *w, const char *name, struct answer *a)
{
    struct fence f = claimed(w->s, name, T0);
    struct store_op op = op_complete(name, f, a);
    do_op(w->s, &op, T0 + 1);
    assert_int_equal(op.result, STORE_APPLIED);
    struct store *second = world_open(w);
    struct store_op again[] = {op_claim(name, 1), op_plain(STORE_LOOKUP, name)};
    again[0].want_answer = again[1].want_answer = true;
    do_ops(second, again, 2, T0 + 2);
    for (size_t i = 0; i < 2; i++) {
        struct answer *b = again[i].answer;
        assert_int_equal(again[i].found.state, RECORD_DONE);
        assert_non_null(b);
        assert_int_equal(b->status, a->status);
        assert_int_equal(b->kept, a->kept);
        assert_int_equal(b->head_bytes, a->head_bytes);
        assert_int_equal(b->body_bytes, a->body_bytes);
        assert_memory_equal(b->data, a->data, a->head_bytes + a->body_bytes);
        answer_drop(b);
    }
    store_close(second);
    answer_drop(a);
}

static struct answer *patterned(uint16_t status, uint32_t head_bytes, uint64_t body_bytes)
{
    struct answer *a = answer_alloc(status, true, head_bytes, body_bytes);
    assert_non_null(a);
    for (size_t i = 0; i < head_bytes + body_bytes; i++) {
        a->data[i] = (char)(i * 31 + i / 257);
    }
    return a;
}

static void answers_of_every_size_come_back_byte_for_byte(void **state)
{
    static const struct {
        uint32_t head;
        uint64_t body;
    } sizes[] = {{0, 0},      {1, 0},        {0, 1},       {1, 1},      {30, 200},
                 {100, 1900}, {100, 2100},   {3000, 900},  {200, 4096}, {LIMIT_ANSWER_HEAD_BYTES_MAX, 10},
                 {50, 65536}, {60, 1 << 20}, {60, 5 << 20}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        char name[32];
        snprintf(name, sizeof name, "size-%zu", i);
        check_round_trip(*state, name, patterned(200, sizes[i].head, sizes[i].body));
    }
}

static void statuses_come_back(void **state)
{
    check_round_trip(*state, "none", answer_make(0, true, SLICE_NONE, SLICE_LITERAL("exit 0")));
    check_round_trip(*state, "204", answer_make(204, true, SLICE_LITERAL("X: 1\r\nX: 2\r\n"), SLICE_NONE));
    check_round_trip(*state, "largest", answer_make(UINT16_MAX, true, SLICE_NONE, SLICE_NONE));
}

static void a_tombstone_comes_back_as_one(void **state)
{
    check_round_trip(*state, "gone",
                     answer_make(200, false, SLICE_LITERAL("Content-Length: 9999999\r\n"), SLICE_NONE));
}

static void an_answer_outlives_the_record_and_the_store(void **state)
{
    struct world *w = *state;
    struct fence f = claimed(w->s, "k", T0);
    completed(w->s, "k", f, T0);
    struct store_op op = op_plain(STORE_LOOKUP, "k");
    op.want_answer = true;
    do_op(w->s, &op, T0);
    struct store_op forget = op_plain(STORE_FORGET, "k");
    do_op(w->s, &forget, T0);
    store_close(w->s);
    assert_int_equal(op.answer->body_bytes, 4);
    assert_memory_equal(answer_body(op.answer).ptr, "made", 4);
    answer_drop(op.answer);
    w->s = world_open(w);
}

static void an_answer_that_is_not_wanted_is_not_read(void **state)
{
    struct world *w = *state;
    struct fence f = claimed(w->s, "done", T0);
    completed(w->s, "done", f, T0);
    claimed(w->s, "running", T0);
    struct store_op ops[] = {op_claim("done", 1), op_plain(STORE_LOOKUP, "done"), op_claim("running", 1),
                             op_plain(STORE_LOOKUP, "none")};
    ops[2].want_answer = ops[3].want_answer = true;
    for (size_t i = 0; i < 4; i++) {
        ops[i].answer = small_answer(); /* as a caller's left-over */
    }
    do_ops(w->s, ops, 4, T0);
    for (size_t i = 0; i < 4; i++) {
        assert_null(ops[i].answer);
    }
}

static void an_expired_answer_is_not_given(void **state)
{
    struct world *w = *state;
    struct fence f = claimed(w->s, "k", T0);
    completed(w->s, "k", f, T0);
    struct store_op op = op_plain(STORE_LOOKUP, "k");
    op.want_answer = true;
    do_op(w->s, &op, T0 + TTL);
    assert_int_equal(op.result, STORE_ABSENT);
    assert_null(op.answer);
}

static void a_resolved_answer_is_replayed(void **state)
{
    struct world *w = *state;
    claimed(w->s, "k", T0);
    struct store_op resolve = op_plain(STORE_RESOLVE, "k");
    resolve.answer = answer_make(200, true, SLICE_NONE, SLICE_LITERAL("by hand"));
    do_op(w->s, &resolve, T0 + LEASE);
    assert_int_equal(resolve.result, STORE_APPLIED);
    assert_int_equal(resolve.found.ended_ms, T0 + LEASE);
    answer_drop(resolve.answer);
    struct store_op op = op_claim("k", 1);
    op.want_answer = true;
    do_op(w->s, &op, T0 + LEASE + 1);
    assert_int_equal(op.result, STORE_FOUND);
    assert_memory_equal(answer_body(op.answer).ptr, "by hand", 7);
    answer_drop(op.answer);
}

struct expected_text {
    struct slice scope;
    struct slice key;
    size_t seen;
};

static void check_text(void *ctx, const struct store_row *row)
{
    struct expected_text *expected = ctx;
    assert_true(slice_equal(row->scope, expected->scope));
    assert_true(slice_equal(row->key, expected->key));
    expected->seen++;
}

static void keys_and_scopes_of_any_bytes_are_kept(void **state)
{
    struct world *w = *state;
    static const struct slice texts[] = {
        SLICE_LITERAL("it's"), SLICE_LITERAL("say \"x\"; --"), SLICE_LITERAL("'); DROP TABLE running; --"),
        SLICE_LITERAL("a\0b"), SLICE_LITERAL("\xff\xfe\x80"),  SLICE_LITERAL("%_*?[]"),
        SLICE_LITERAL(" "),
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        char name[16];
        snprintf(name, sizeof name, "%zu", i);
        struct store_op op = op_claim(name, 1);
        op.key = texts[i];
        op.scope = texts[(i + 1) % 7];
        do_op(w->s, &op, T0);
        assert_int_equal(op.result, STORE_APPLIED);
        if (i % 2 == 0) {
            completed(w->s, name, op.found.fence, T0);
        }
    }
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct store_filter f = {.rows_max = 10, .key = texts[i], .scope = texts[(i + 1) % 7]};
        struct expected_text expected = {.scope = f.scope, .key = f.key};
        assert_int_equal(w->s->backend->list(w->s, &f, T0, check_text, &expected, NULL), 0);
        assert_int_equal(expected.seen, 1);
    }
}

const struct CMUnitTest answer_tests[] = {
    STORE_TEST(answers_of_every_size_come_back_byte_for_byte),
    STORE_TEST(statuses_come_back),
    STORE_TEST(a_tombstone_comes_back_as_one),
    STORE_TEST(an_answer_outlives_the_record_and_the_store),
    STORE_TEST(an_answer_that_is_not_wanted_is_not_read),
    STORE_TEST(an_expired_answer_is_not_given),
    STORE_TEST(a_resolved_answer_is_replayed),
    STORE_TEST(keys_and_scopes_of_any_bytes_are_kept),
};
const size_t answer_test_count = sizeof answer_tests / sizeof answer_tests[0];
