/* Several ops in one batch: order, atomicity, and the same sequences on the back end and on a model. */
#include "suite.h"

#include <stdio.h>
#include <stdlib.h>

static void ops_on_one_identity_take_effect_in_their_order(void **state)
{
    struct world *w = *state;
    struct fence f = claimed(w->s, "before", T0);
    struct store_op ops[] = {
        op_claim("k", 1),                      /* fresh */
        op_claim("k", 1),                      /* finds the first */
        op_claim("k", 2),                      /* finds it, other content */
        op_fenced(STORE_RELEASE, "before", f), /* frees it */
        op_fenced(STORE_RELEASE, "before", f), /* nothing left */
        op_claim("before", 1),                 /* fresh again */
        op_fenced(STORE_EXTEND, "before", f),  /* the old fence */
        op_plain(STORE_LOOKUP, "k"),
    };
    static const enum store_result expected[] = {STORE_APPLIED, STORE_FOUND,   STORE_FOUND, STORE_APPLIED,
                                                 STORE_ABSENT,  STORE_APPLIED, STORE_STALE, STORE_APPLIED};
    do_ops(w->s, ops, 8, T0);
    for (size_t i = 0; i < 8; i++) {
        assert_int_equal(ops[i].result, expected[i]);
    }
    assert_true(fence_equal(ops[0].found.fence, ops[1].found.fence));
    assert_true(ops[5].found.fence.serial > f.serial);
    assert_true(fence_equal(ops[7].found.fence, ops[0].found.fence));
}

static void a_whole_life_fits_into_one_batch(void **state)
{
    struct world *w = *state;
    struct fence next = claimed(w->s, "probe", T0);
    struct fence guess = {.serial = next.serial + 1, .attempt = 1};
    struct store_op ops[] = {op_claim("k", 1), op_complete("k", guess, small_answer()), op_claim("k", 1),
                             op_plain(STORE_FORGET, "k"), op_claim("k", 1)};
    ops[2].want_answer = true;
    do_ops(w->s, ops, 5, T0);
    assert_int_equal(ops[0].result, STORE_APPLIED);
    assert_int_equal(ops[0].found.fence.serial, guess.serial);
    assert_int_equal(ops[1].result, STORE_APPLIED);
    assert_int_equal(ops[2].result, STORE_FOUND);
    assert_non_null(ops[2].answer);
    answer_drop(ops[2].answer);
    assert_int_equal(ops[3].result, STORE_APPLIED);
    assert_int_equal(ops[4].result, STORE_APPLIED);
    assert_true(ops[4].found.fence.serial > guess.serial);
}

static void the_largest_batch_is_taken(void **state)
{
    struct world *w = *state;
    static struct store_op ops[LIMIT_BATCH_OPS_MAX];
    static char names[LIMIT_BATCH_OPS_MAX][16];
    for (size_t i = 0; i < LIMIT_BATCH_OPS_MAX; i++) {
        snprintf(names[i], sizeof names[i], "n%zu", i);
        ops[i] = op_claim(names[i], 1);
    }
    do_ops(w->s, ops, LIMIT_BATCH_OPS_MAX, T0);
    uint64_t before = 0;
    for (size_t i = 0; i < LIMIT_BATCH_OPS_MAX; i++) {
        assert_int_equal(ops[i].result, STORE_APPLIED);
        assert_true(ops[i].found.fence.serial > before);
        before = ops[i].found.fence.serial;
    }
}

static void lookups_change_nothing(void **state)
{
    struct world *w = *state;
    struct fence f = claimed(w->s, "k", T0);
    struct store_op ops[] = {op_plain(STORE_LOOKUP, "k"), op_plain(STORE_LOOKUP, "none")};
    do_ops(w->s, ops, 2, T0 + LEASE + 1);
    assert_int_equal(ops[0].found.state, RECORD_UNKNOWN);
    assert_int_equal(ops[0].found.ended_ms, T0 + LEASE);
    assert_int_equal(ops[1].result, STORE_ABSENT);
    struct record absent = {0};
    assert_same_record(&ops[1].found, &absent);
    completed(w->s, "k", f, T0 + LEASE - 1);
}

/* A seeded walk: the same ops on the back end and on a store in memory must give the same results. */
struct walk {
    struct store *s;
    struct store *model;
    uint64_t random;
    int64_t now;
    struct fence fences[6];  /* the last one seen of each name */
    struct record claims[6]; /* of each name, as a claim or an extension last reported it */
};

static uint32_t pick(struct walk *w, uint32_t below)
{
    w->random = w->random * 6364136223846793005ULL + 1442695040888963407ULL;
    return (uint32_t)(w->random >> 33) % below;
}

static const char *const walk_names[6] = {"a", "b", "c", "d", "e", "f"};

static struct store_op random_op(struct walk *w, uint32_t *name)
{
    *name = pick(w, 6);
    struct store_op op = op_claim(walk_names[*name], (int)pick(w, 3));
    op.kind = (enum store_op_kind)pick(w, STORE_FORGET + 1);
    if (pick(w, 2) == 0) {
        op.kind = STORE_CLAIM;
    }
    op.fence = w->fences[*name];
    op.fence.attempt += pick(w, 8) == 0;
    op.lease_ms = 1 + pick(w, 400);
    op.ttl_ms = op.kind == STORE_CLAIM ? 1 + (int64_t)pick(w, 3000) : pick(w, 3) * 700;
    op.take_over = pick(w, 2) == 0;
    op.want_answer = pick(w, 2) == 0;
    bool answers = op.kind == STORE_COMPLETE || (op.kind == STORE_RESOLVE && pick(w, 2) == 0);
    op.answer = answers ? small_answer() : NULL;
    if (op.kind == STORE_COMPLETE && fence_equal(op.fence, w->claims[*name].fence) && pick(w, 4) > 0) {
        op.claimed = &w->claims[*name];
    }
    return op;
}

static void compare_answers(const struct answer *a, const struct answer *b)
{
    assert_int_equal(a == NULL, b == NULL);
    if (a != NULL) {
        assert_int_equal(a->status, b->status);
        assert_int_equal(a->head_bytes, b->head_bytes);
        assert_int_equal(a->body_bytes, b->body_bytes);
        assert_memory_equal(a->data, b->data, a->head_bytes + a->body_bytes);
    }
}

static void random_batch(struct walk *w)
{
    struct store_op ops[8];
    struct store_op model[8];
    uint32_t names[8];
    size_t n = 1 + pick(w, 8);
    for (size_t i = 0; i < n; i++) {
        ops[i] = random_op(w, &names[i]);
        model[i] = ops[i];
    }
    do_ops(w->s, ops, n, w->now);
    do_ops(w->model, model, n, w->now);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(ops[i].result, model[i].result);
        assert_same_record(&ops[i].found, &model[i].found);
        if (ops[i].kind == STORE_CLAIM || ops[i].kind == STORE_LOOKUP) {
            compare_answers(ops[i].answer, model[i].answer);
            answer_drop(ops[i].answer);
            answer_drop(model[i].answer);
        }
        if (ops[i].found.state != RECORD_ABSENT) {
            w->fences[names[i]] = ops[i].found.fence;
            if (ops[i].found.state == RECORD_RUNNING && ops[i].kind != STORE_LOOKUP) {
                w->claims[names[i]] = ops[i].found;
            }
        }
    }
}

static void random_housekeeping(struct walk *w)
{
    uint32_t rows = 1 + pick(w, 3);
    uint32_t a = 0;
    uint32_t b = 0;
    if (pick(w, 2) == 0) {
        assert_int_equal(w->s->backend->sweep(w->s, w->now, rows, &a, NULL), 0);
        assert_int_equal(w->model->backend->sweep(w->model, w->now, rows, &b, NULL), 0);
    } else {
        /* All of them: which one of several a slice takes is the back end's. */
        assert_int_equal(w->s->backend->abandon(w->s, 0, w->now, 100, &a, NULL), 0);
        assert_int_equal(w->model->backend->abandon(w->model, 0, w->now, 100, &b, NULL), 0);
    }
    assert_int_equal(a, b);
}

struct rows {
    struct store_row row[64];
    size_t count;
};

static void keep_row(void *ctx, const struct store_row *row)
{
    struct rows *rows = ctx;
    assert_true(rows->count < 64);
    rows->row[rows->count++] = *row; /* but for its slices */
}

static void compare_listings(struct walk *w)
{
    static struct rows a;
    static struct rows b;
    for (unsigned wanted = RECORD_ABSENT; wanted <= RECORD_UNKNOWN; wanted++) {
        struct store_filter f = {.rows_max = 64, .state = (enum record_state)wanted};
        a.count = b.count = 0;
        assert_int_equal(w->s->backend->list(w->s, &f, w->now, keep_row, &a, NULL), 0);
        assert_int_equal(w->model->backend->list(w->model, &f, w->now, keep_row, &b, NULL), 0);
        assert_int_equal(a.count, b.count);
        for (size_t i = 0; i < a.count; i++) {
            assert_true(identity_equal(&a.row[i].id, &b.row[i].id));
            assert_same_record(&a.row[i].record, &b.row[i].record);
            assert_int_equal(a.row[i].status, b.row[i].status);
            assert_int_equal(a.row[i].kept, b.row[i].kept);
            assert_int_equal(a.row[i].body_bytes, b.row[i].body_bytes);
        }
    }
    struct store_stats sa;
    struct store_stats sb;
    assert_int_equal(w->s->backend->stats(w->s, &sa, NULL), 0);
    assert_int_equal(w->model->backend->stats(w->model, &sb, NULL), 0);
    assert_int_equal(sa.running, sb.running);
    assert_int_equal(sa.unknown, sb.unknown);
}

static void random_sequences_agree_with_the_store_in_memory(void **state)
{
    struct world *world = *state;
    struct walk w = {.s = world->s, .random = 42, .now = T0};
    assert_int_equal(store_open(&w.model, "memory:", NULL, NULL), 0);
    for (int i = 0; i < 2000; i++) {
        random_batch(&w);
        if (pick(&w, 5) == 0) {
            random_housekeeping(&w);
        }
        if (i % 50 == 0) {
            compare_listings(&w);
        }
        w.now += pick(&w, 150);
    }
    store_close(w.model);
}

const struct CMUnitTest batch_tests[] = {
    STORE_TEST(ops_on_one_identity_take_effect_in_their_order),
    STORE_TEST(a_whole_life_fits_into_one_batch),
    STORE_TEST(the_largest_batch_is_taken),
    STORE_TEST(lookups_change_nothing),
    STORE_TEST(random_sequences_agree_with_the_store_in_memory),
};
const size_t batch_test_count = sizeof batch_tests / sizeof batch_tests[0];
