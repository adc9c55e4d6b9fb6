/* Owners, abandon, sweep, listings, counts, generation. */
#include "suite.h"

#include <stdio.h>
#include <stdlib.h>

static uint64_t registered(struct store *s, const char *text)
{
    uint64_t number = 0;
    assert_int_equal(s->backend->register_owner(s, text, &number, NULL), 0);
    assert_true(number > 0);
    return number;
}

struct owner_list {
    struct store_owner owner[16];
    size_t count;
    size_t stop_at;
};

static int keep_owner(void *ctx, const struct store_owner *o)
{
    struct owner_list *list = ctx;
    list->owner[list->count++] = *o;
    return list->count == list->stop_at;
}

static struct owner_list owners_of(struct store *s, size_t stop_at)
{
    struct owner_list list = {.stop_at = stop_at};
    assert_int_equal(s->backend->owners(s, keep_owner, &list, NULL), 0);
    return list;
}

static void owners_have_numbers_that_are_never_given_again(void **state)
{
    struct world *w = *state;
    struct store *second = world_open(w);
    uint64_t a = registered(w->s, "a");
    uint64_t b = registered(second, "b");
    assert_true(a != b);
    assert_int_equal(registered(second, "a"), a); /* the same process, another handle */
    struct owner_list list = owners_of(w->s, 99);
    assert_int_equal(list.count, 2);
    assert_string_equal(list.owner[0].text, "a");
    assert_int_equal(list.owner[1].number, b);
    assert_int_equal(owners_of(w->s, 1).count, 1);

    uint64_t c = registered(second, "c"); /* from here on no handle claims for b */
    assert_true(c > b);
    assert_int_equal(w->s->backend->forget_owner(w->s, b, NULL), 0);
    assert_int_equal(w->s->backend->forget_owner(w->s, b, NULL), 0);
    assert_int_equal(owners_of(w->s, 99).count, 2);
    assert_true(registered(second, "d") > c);
    store_close(second);
}

static void an_owners_text_has_its_bounds(void **state)
{
    struct world *w = *state;
    char text[LIMIT_OWNER_TEXT_BYTES_MAX + 2];
    memset(text, 'x', sizeof text);
    text[LIMIT_OWNER_TEXT_BYTES_MAX + 1] = '\0';
    uint64_t number = 0;
    hapax_error err = {0};
    assert_int_equal(w->s->backend->register_owner(w->s, text, &number, &err), HAPAX_E_ARGUMENT);
    assert_int_equal(err.code, HAPAX_E_ARGUMENT);
    assert_int_equal(w->s->backend->register_owner(w->s, "", &number, &err), HAPAX_E_ARGUMENT);
    text[LIMIT_OWNER_TEXT_BYTES_MAX] = '\0';
    registered(w->s, text);
    assert_string_equal(owners_of(w->s, 99).owner[0].text, text);
}

static void an_owner_with_running_records_stays(void **state)
{
    struct world *w = *state;
    uint64_t owner = registered(w->s, "a");
    struct fence f = claimed(w->s, "k", T0);
    assert_int_equal(w->s->backend->forget_owner(w->s, owner, NULL), HAPAX_E_CONFLICT);
    assert_int_equal(owners_of(w->s, 99).count, 1);
    completed(w->s, "k", f, T0);
    assert_int_equal(w->s->backend->forget_owner(w->s, owner, NULL), 0);
    assert_int_equal(owners_of(w->s, 99).count, 0);
}

static void claim_many(struct store *s, const char *prefix, size_t n, int64_t now)
{
    static struct store_op ops[LIMIT_BATCH_OPS_MAX];
    static char names[LIMIT_BATCH_OPS_MAX][32];
    for (size_t done = 0; done < n;) {
        size_t batch = n - done < LIMIT_BATCH_OPS_MAX ? n - done : LIMIT_BATCH_OPS_MAX;
        for (size_t i = 0; i < batch; i++) {
            snprintf(names[i], sizeof names[i], "%s%zu", prefix, done + i);
            ops[i] = op_claim(names[i], 1);
        }
        do_ops(s, ops, batch, now);
        for (size_t i = 0; i < batch; i++) {
            assert_int_equal(ops[i].result, STORE_APPLIED);
        }
        done += batch;
    }
}

static void abandon_takes_one_owners_running_records_in_slices(void **state)
{
    struct world *w = *state;
    struct store *second = world_open(w);
    uint64_t dead = registered(w->s, "dead");
    registered(second, "alive");
    claim_many(w->s, "dead", 25, T0);
    claim_many(second, "alive", 5, T0);
    struct fence f = claimed(w->s, "done", T0);
    completed(w->s, "done", f, T0);

    static const uint32_t slices[] = {10, 10, 5, 0};
    for (size_t i = 0; i < 4; i++) {
        uint32_t changed = 99;
        assert_int_equal(second->backend->abandon(second, dead, T0 + 7, 10, &changed, NULL), 0);
        assert_int_equal(changed, slices[i]);
    }
    struct record r = looked_up(second, "dead24", T0 + 8);
    assert_int_equal(r.state, RECORD_UNKNOWN);
    assert_int_equal(r.ended_ms, T0 + 7);
    assert_int_equal(r.owner, dead);
    assert_int_equal(looked_up(second, "alive0", T0 + 8).state, RECORD_RUNNING);
    assert_int_equal(looked_up(second, "done", T0 + 8).state, RECORD_DONE);
    assert_int_equal(w->s->backend->forget_owner(w->s, dead, NULL), 0);
    store_close(second);
}

static void abandon_without_an_owner_takes_those_past_their_lease(void **state)
{
    struct world *w = *state;
    claim_many(w->s, "old", 3, T0);
    claim_many(w->s, "new", 3, T0 + 10);
    uint32_t changed = 0;
    assert_int_equal(w->s->backend->abandon(w->s, 0, T0 + LEASE + 5, 10, &changed, NULL), 0);
    assert_int_equal(changed, 3);
    assert_int_equal(looked_up(w->s, "old2", T0).ended_ms, T0 + LEASE);
    assert_int_equal(looked_up(w->s, "new2", T0 + LEASE + 5).state, RECORD_RUNNING);
}

static void sweep_removes_expired_records_in_slices(void **state)
{
    struct world *w = *state;
    for (int i = 0; i < 7; i++) {
        char name[16];
        snprintf(name, sizeof name, "d%d", i);
        struct fence f = claimed(w->s, name, T0 + i);
        completed(w->s, name, f, T0 + i);
    }
    claimed(w->s, "running", T0);
    struct store_op lose = op_fenced(STORE_LOSE, "unknown", claimed(w->s, "unknown", T0));
    do_op(w->s, &lose, T0);

    static const uint32_t slices[] = {2, 2, 1, 0};
    for (size_t i = 0; i < 4; i++) { /* at this time d0 to d4 have expired */
        uint32_t removed = 99;
        assert_int_equal(w->s->backend->sweep(w->s, T0 + TTL + 4, 2, &removed, NULL), 0);
        assert_int_equal(removed, slices[i]);
    }
    assert_int_equal(looked_up(w->s, "d4", T0).state, RECORD_ABSENT); /* gone, not just expired */
    assert_int_equal(looked_up(w->s, "d5", T0).state, RECORD_DONE);
    assert_int_equal(looked_up(w->s, "running", T0).state, RECORD_RUNNING);
    assert_int_equal(looked_up(w->s, "unknown", T0).state, RECORD_UNKNOWN);
    claimed(w->s, "d0", T0);
}

static void a_sweep_takes_large_answers_in_smaller_slices(void **state)
{
    struct world *w = *state;
    enum { COUNT = 6, BYTES = 3 << 20 };
    char *body = calloc(1, BYTES);
    assert_non_null(body);
    struct answer *a = answer_make(200, true, SLICE_LITERAL(""), slice_of(body, BYTES));
    assert_non_null(a);
    for (int i = 0; i < COUNT; i++) {
        char name[16];
        snprintf(name, sizeof name, "d%d", i);
        struct store_op done = op_fenced(STORE_COMPLETE, name, claimed(w->s, name, T0));
        done.answer = a;
        do_op(w->s, &done, T0);
        assert_int_equal(done.result, STORE_APPLIED);
    }
    answer_drop(a);
    free(body);
    uint32_t removed;
    uint32_t all = 0;
    do {
        assert_int_equal(w->s->backend->sweep(w->s, T0 + TTL, 100, &removed, NULL), 0);
        all += removed;
    } while (removed > 0); /* not: until fewer than asked for */
    assert_int_equal(all, COUNT);
    assert_int_equal(looked_up(w->s, "d5", T0).state, RECORD_ABSENT);
}

static void no_serial_is_given_twice(void **state)
{
    struct world *w = *state;
    uint64_t last = 0;
    for (int i = 0; i < 4; i++) {
        struct fence f = claimed(w->s, "k", T0);
        assert_true(f.serial > last);
        last = f.serial;
        struct store_op op = op_fenced(STORE_RELEASE, "k", f);
        if (i == 1) {
            completed(w->s, "k", f, T0);
            op = op_plain(STORE_FORGET, "k");
        } else if (i == 2) {
            completed(w->s, "k", f, T0);
            uint32_t removed = 0;
            assert_int_equal(w->s->backend->sweep(w->s, T0 + TTL, 10, &removed, NULL), 0);
            assert_int_equal(removed, 1);
            op = op_plain(STORE_LOOKUP, "k");
        } else if (i == 3) {
            struct store_op lose = op_fenced(STORE_LOSE, "k", f);
            do_op(w->s, &lose, T0);
            op = op_plain(STORE_RESOLVE, "k");
        }
        do_op(w->s, &op, T0);
        world_reopen(w); /* the store is empty at this point */
    }
    struct store_op both[] = {op_claim("x", 1), op_plain(STORE_LOOKUP, "x")};
    do_ops(w->s, both, 2, T0);
    assert_true(both[0].found.fence.serial > last);
}

struct page {
    uint64_t last;
    size_t rows;
};

static void count_row(void *ctx, const struct store_row *row)
{
    struct page *page = ctx;
    assert_true(row->record.fence.serial > page->last);
    page->last = row->record.fence.serial;
    page->rows++;
}

static size_t listed(struct store *s, struct store_filter f, int64_t now)
{
    struct page page = {.last = f.after_serial};
    size_t total = 0;
    do {
        page.rows = 0;
        f.after_serial = page.last;
        assert_int_equal(s->backend->list(s, &f, now, count_row, &page, NULL), 0);
        assert_true(page.rows <= f.rows_max);
        total += page.rows;
    } while (page.rows > 0);
    return total;
}

static void a_listing_pages_through_everything_in_order(void **state)
{
    struct world *w = *state;
    claim_many(w->s, "a", 9990, T0);
    for (int i = 0; i < 10; i++) { /* done and unknown ones in between */
        char name[16];
        snprintf(name, sizeof name, "a%d", i * 997);
        struct record r = looked_up(w->s, name, T0);
        if (i % 2 == 0) {
            completed(w->s, name, r.fence, T0);
        } else {
            struct store_op lose = op_fenced(STORE_LOSE, name, r.fence);
            do_op(w->s, &lose, T0);
        }
    }
    claim_many(w->s, "b", 10, T0);
    assert_int_equal(listed(w->s, (struct store_filter){.rows_max = 997}, T0), 10000);
    assert_int_equal(listed(w->s, (struct store_filter){.rows_max = 1000, .state = RECORD_RUNNING}, T0),
                     9990);
    assert_int_equal(listed(w->s, (struct store_filter){.rows_max = 2, .state = RECORD_DONE}, T0), 5);
    assert_int_equal(listed(w->s, (struct store_filter){.rows_max = 2, .state = RECORD_UNKNOWN}, T0), 5);
    assert_int_equal(
        listed(w->s, (struct store_filter){.rows_max = 1000, .state = RECORD_UNKNOWN}, T0 + LEASE), 9995);
    assert_int_equal(listed(w->s, (struct store_filter){.rows_max = 1000}, T0 + TTL), 9995);
    assert_int_equal(listed(w->s, (struct store_filter){.rows_max = 1, .key = SLICE_LITERAL("a997")}, T0), 1);
    assert_int_equal(listed(w->s, (struct store_filter){.rows_max = 9, .scope = SLICE_LITERAL("te")}, T0), 0);
    assert_int_equal(
        listed(w->s, (struct store_filter){.rows_max = 1000, .scope = SLICE_LITERAL("test")}, T0), 10000);
    assert_int_equal(listed(w->s, (struct store_filter){.rows_max = 5, .after_serial = UINT64_MAX}, T0), 0);
}

static void check_done_row(void *ctx, const struct store_row *row)
{
    struct identity id = id_of("k");
    assert_true(identity_equal(&row->id, &id));
    assert_true(slice_equal(row->scope, SLICE_LITERAL("test")));
    assert_true(slice_equal(row->key, SLICE_LITERAL("k")));
    assert_int_equal(row->status, 201);
    assert_true(row->kept);
    assert_int_equal(row->body_bytes, 4);
    *(struct record *)ctx = row->record;
}

static void a_listed_row_is_the_record(void **state)
{
    struct world *w = *state;
    struct fence f = claimed(w->s, "k", T0);
    completed(w->s, "k", f, T0 + 3);
    struct record listed_record = {0};
    struct store_filter filter = {.rows_max = 5};
    assert_int_equal(w->s->backend->list(w->s, &filter, T0 + 4, check_done_row, &listed_record, NULL), 0);
    struct record r = looked_up(w->s, "k", T0 + 4);
    assert_same_record(&listed_record, &r);
}

static void stats_count_the_open_ones_exactly(void **state)
{
    struct world *w = *state;
    claim_many(w->s, "r", 40, T0);
    for (int i = 0; i < 30; i++) {
        char name[16];
        snprintf(name, sizeof name, "r%d", i);
        struct record r = looked_up(w->s, name, T0);
        struct store_op op = op_fenced(i < 10 ? STORE_LOSE : STORE_RELEASE, name, r.fence);
        if (i >= 20) {
            op = op_complete(name, r.fence, small_answer());
        }
        do_op(w->s, &op, T0);
    }
    struct store_stats stats;
    assert_int_equal(w->s->backend->stats(w->s, &stats, NULL), 0);
    assert_int_equal(stats.running, 10);
    assert_int_equal(stats.unknown, 10);
    assert_int_equal(stats.records, 30);
    bool disk = strcmp(world_back_end, "sqlite") == 0 || strcmp(world_back_end, "postgres") == 0;
    assert_int_equal(stats.bytes > 0, disk);
}

static uint64_t generation_of(struct store *s)
{
    uint64_t g = 0;
    assert_int_equal(s->backend->generation(s, &g, NULL), 0);
    return g;
}

static void the_generation_changes_with_resolve_and_forget_only(void **state)
{
    struct world *w = *state;
    struct store *second = world_open(w);
    uint64_t g = generation_of(second);
    struct fence f = claimed(w->s, "k", T0);
    completed(w->s, "k", f, T0);
    struct store_op refused = op_plain(STORE_RESOLVE, "k");
    do_op(w->s, &refused, T0);
    assert_int_equal(refused.result, STORE_REFUSED);
    assert_int_equal(generation_of(second), g);
    struct store_op forget = op_plain(STORE_FORGET, "k");
    do_op(w->s, &forget, T0);
    assert_int_not_equal(generation_of(second), g);
    g = generation_of(second);
    completed(w->s, "in a batch", claimed(w->s, "in a batch", T0), T0);
    assert_int_equal(generation_of(second), g);
    struct store_op batch[] = {op_plain(STORE_FORGET, "in a batch"), op_plain(STORE_LOOKUP, "another")};
    do_ops(w->s, batch, 2, T0);
    assert_int_not_equal(generation_of(second), g);
    g = generation_of(second);
    claimed(w->s, "u", T0);
    struct store_op resolve = op_plain(STORE_RESOLVE, "u");
    do_op(w->s, &resolve, T0 + LEASE);
    assert_int_equal(resolve.result, STORE_APPLIED);
    assert_int_not_equal(generation_of(second), g);
    store_close(second);
}

static void maintenance_changes_nothing(void **state)
{
    struct world *w = *state;
    if (w->s->backend->maintain == NULL) {
        assert_string_not_equal(world_back_end, "sqlite");
        return;
    }
    struct store *second = world_open(w);
    claim_many(w->s, "m", 3000, T0);
    bool more = true;
    for (int i = 0; more && i < 100; i++) {
        assert_int_equal(second->backend->maintain(second, &more, NULL), 0);
    }
    assert_false(more);
    assert_int_equal(looked_up(w->s, "m2999", T0).state, RECORD_RUNNING);
    store_close(second);
}

const struct CMUnitTest admin_tests[] = {
    STORE_TEST(owners_have_numbers_that_are_never_given_again),
    STORE_TEST(an_owners_text_has_its_bounds),
    STORE_TEST(an_owner_with_running_records_stays),
    STORE_TEST(abandon_takes_one_owners_running_records_in_slices),
    STORE_TEST(abandon_without_an_owner_takes_those_past_their_lease),
    STORE_TEST(sweep_removes_expired_records_in_slices),
    STORE_TEST(a_sweep_takes_large_answers_in_smaller_slices),
    STORE_TEST(no_serial_is_given_twice),
    STORE_TEST(a_listing_pages_through_everything_in_order),
    STORE_TEST(a_listed_row_is_the_record),
    STORE_TEST(stats_count_the_open_ones_exactly),
    STORE_TEST(the_generation_changes_with_resolve_and_forget_only),
    STORE_TEST(maintenance_changes_nothing),
};
const size_t admin_test_count = sizeof admin_tests / sizeof admin_tests[0];
