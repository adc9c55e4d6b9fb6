/* Each op in each state, with the right fence and with stale ones; and the fields of the record on the way. */
#include "suite.h"

#include <stdio.h>

/* The state an identity is brought to, and the time at which the op is then tried. */
enum stage { ABSENT, RUNNING, LAPSED, UNKNOWN, DONE, EXPIRED, STAGES };
static const char *const stage_names[STAGES] = {"absent", "running", "lapsed", "unknown", "done", "expired"};

static int64_t bring_to(struct store *s, enum stage stage, const char *name, struct fence *fence)
{
    *fence = (struct fence){.serial = 1, .attempt = 1};
    if (stage == ABSENT) {
        return T0;
    }
    *fence = claimed(s, name, T0);
    if (stage == UNKNOWN) {
        struct store_op op = op_fenced(STORE_LOSE, name, *fence);
        do_op(s, &op, T0 + 5);
        assert_int_equal(op.result, STORE_APPLIED);
    } else if (stage == DONE || stage == EXPIRED) {
        completed(s, name, *fence, T0 + 5);
    }
    return stage == LAPSED ? T0 + LEASE : stage == EXPIRED ? T0 + TTL : T0 + 10;
}

/* One row an op. A cell: result (Applied, Found, Stale, aBsent, Refused), state after (absent, running, done,
 * unknown), and the fence: '=' the same, 'n' a new serial and attempt 1, 't' the same serial and the
 * next attempt, '-' none. */
static const struct row {
    const char *name;
    enum store_op_kind kind;
    bool other_print;
    bool take_over;
    bool stale_attempt;
    bool stale_serial;
    bool with_answer;
    bool knows; /* the claimer says what it knows of its record */
    const char *cells[STAGES];
} rows[] = {
    {"claim", STORE_CLAIM, .cells = {"Arn", "Fr=", "Fu=", "Fu=", "Fd=", "Arn"}},
    {"claim, other content", STORE_CLAIM, .other_print = true,
     .cells = {"Arn", "Fr=", "Fu=", "Fu=", "Fd=", "Arn"}},
    {"take over", STORE_CLAIM, .take_over = true, .cells = {"Arn", "Fr=", "Art", "Art", "Fd=", "Arn"}},
    {"take over, other content", STORE_CLAIM, .take_over = true, .other_print = true,
     .cells = {"Arn", "Fr=", "Fu=", "Fu=", "Fd=", "Arn"}},
    {"complete", STORE_COMPLETE, .with_answer = true, .cells = {"Ba-", "Ad=", "Su=", "Su=", "Sd=", "Ba-"}},
    {"complete, stale attempt", STORE_COMPLETE, .with_answer = true, .stale_attempt = true,
     .cells = {"Ba-", "Sr=", "Su=", "Su=", "Sd=", "Ba-"}},
    {"complete, stale serial", STORE_COMPLETE, .with_answer = true, .stale_serial = true,
     .cells = {"Ba-", "Sr=", "Su=", "Su=", "Sd=", "Ba-"}},
    {"complete, known", STORE_COMPLETE, .with_answer = true, .knows = true,
     .cells = {"Ba-", "Ad=", "Su=", "Su=", "Sd=", "Ba-"}},
    {"complete, known, stale attempt", STORE_COMPLETE, .with_answer = true, .knows = true,
     .stale_attempt = true, .cells = {"Ba-", "Sr=", "Su=", "Su=", "Sd=", "Ba-"}},
    {"complete, known, stale serial", STORE_COMPLETE, .with_answer = true, .knows = true,
     .stale_serial = true, .cells = {"Ba-", "Sr=", "Su=", "Su=", "Sd=", "Ba-"}},
    {"release", STORE_RELEASE, .cells = {"Ba-", "Aa-", "Su=", "Su=", "Sd=", "Ba-"}},
    {"release, stale attempt", STORE_RELEASE, .stale_attempt = true,
     .cells = {"Ba-", "Sr=", "Su=", "Su=", "Sd=", "Ba-"}},
    {"release, stale serial", STORE_RELEASE, .stale_serial = true,
     .cells = {"Ba-", "Sr=", "Su=", "Su=", "Sd=", "Ba-"}},
    {"lose", STORE_LOSE, .cells = {"Ba-", "Au=", "Su=", "Su=", "Sd=", "Ba-"}},
    {"lose, stale attempt", STORE_LOSE, .stale_attempt = true,
     .cells = {"Ba-", "Sr=", "Su=", "Su=", "Sd=", "Ba-"}},
    {"lose, stale serial", STORE_LOSE, .stale_serial = true,
     .cells = {"Ba-", "Sr=", "Su=", "Su=", "Sd=", "Ba-"}},
    {"extend", STORE_EXTEND, .cells = {"Ba-", "Ar=", "Su=", "Su=", "Sd=", "Ba-"}},
    {"extend, stale attempt", STORE_EXTEND, .stale_attempt = true,
     .cells = {"Ba-", "Sr=", "Su=", "Su=", "Sd=", "Ba-"}},
    {"extend, stale serial", STORE_EXTEND, .stale_serial = true,
     .cells = {"Ba-", "Sr=", "Su=", "Su=", "Sd=", "Ba-"}},
    {"look up", STORE_LOOKUP, .cells = {"Ba-", "Ar=", "Au=", "Au=", "Ad=", "Ba-"}},
    {"resolve done", STORE_RESOLVE, .with_answer = true, .cells = {"Ba-", "Rr=", "Ad=", "Ad=", "Rd=", "Ba-"}},
    {"resolve released", STORE_RESOLVE, .cells = {"Ba-", "Rr=", "Aa-", "Aa-", "Rd=", "Ba-"}},
    {"forget", STORE_FORGET, .cells = {"Ba-", "Rr=", "Aa-", "Aa-", "Aa-", "Ba-"}},
};

static struct store_op op_of(const struct row *row, const char *name, struct fence fence)
{
    struct store_op op = op_claim(name, row->other_print ? 2 : 1);
    op.kind = row->kind;
    op.take_over = row->take_over;
    op.fence = fence;
    op.fence.attempt += row->stale_attempt;
    op.fence.serial += row->stale_serial;
    op.ttl_ms = row->kind == STORE_CLAIM ? TTL : 0;
    op.answer = row->with_answer ? small_answer() : NULL;
    return op;
}

static void check_fence(char mark, struct fence before, struct fence after)
{
    switch (mark) {
    case '=':
        assert_true(fence_equal(before, after));
        break;
    case 't':
        assert_int_equal(after.serial, before.serial);
        assert_int_equal(after.attempt, before.attempt + 1);
        break;
    case 'n':
        assert_int_not_equal(after.serial, before.serial);
        assert_int_equal(after.attempt, 1);
        break;
    default:
        break;
    }
}

static void check_cell(struct store *s, const struct row *row, enum stage stage)
{
    char name[64];
    snprintf(name, sizeof name, "%d-%d", (int)(row - rows), (int)stage);
    struct fence before;
    int64_t now = bring_to(s, stage, name, &before);
    if (stage == ABSENT) {
        before.serial = 0; /* so that any serial is a new one */
    }
    struct store_op op = op_of(row, name, before);
    struct record known = {.state = RECORD_RUNNING,
                           .fence = op.fence,
                           .fingerprint = print_of(1),
                           .claimed_ms = T0,
                           .lease_ms = T0 + LEASE,
                           .expires_ms = T0 + TTL,
                           .ttl_ms = TTL};
    op.claimed = row->knows ? &known : NULL;
    do_op(s, &op, now);

    static const char results[] = {[STORE_APPLIED] = 'A',
                                   [STORE_FOUND] = 'F',
                                   [STORE_STALE] = 'S',
                                   [STORE_ABSENT] = 'B',
                                   [STORE_REFUSED] = 'R'};
    static const char states[] = {
        [RECORD_ABSENT] = 'a', [RECORD_RUNNING] = 'r', [RECORD_DONE] = 'd', [RECORD_UNKNOWN] = 'u'};
    const char *cell = row->cells[stage];
    if (results[op.result] != cell[0] || states[op.found.state] != cell[1]) {
        fail_msg("%s when %s: expected %s, got %c%c", row->name, stage_names[stage], cell, results[op.result],
                 states[op.found.state]);
    }
    check_fence(cell[2], before, op.found.fence);
    struct record after = looked_up(s, name, now);
    if (states[after.state] != cell[1]) {
        fail_msg("%s when %s: a look-up afterwards says %c, not %c", row->name, stage_names[stage],
                 states[after.state], cell[1]);
    }
    if (after.state != RECORD_ABSENT) {
        assert_same_record(&op.found, &after);
    }
}

static void every_op_in_every_state_follows_the_table(void **state)
{
    struct world *w = *state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        for (enum stage stage = ABSENT; stage < STAGES; stage++) {
            check_cell(w->s, &rows[i], stage);
        }
    }
}

static void a_claim_records_what_it_was_given(void **state)
{
    struct world *w = *state;
    uint64_t owner = 0;
    assert_int_equal(w->s->backend->register_owner(w->s, "host/boot/1", &owner, NULL), 0);
    struct store_op op = op_claim("k", 7);
    do_op(w->s, &op, T0);
    assert_int_equal(op.result, STORE_APPLIED);
    struct record expected = {.state = RECORD_RUNNING,
                              .fence = {.serial = op.found.fence.serial, .attempt = 1},
                              .fingerprint = print_of(7),
                              .owner = owner,
                              .claimed_ms = T0,
                              .lease_ms = T0 + LEASE,
                              .expires_ms = T0 + TTL,
                              .ttl_ms = TTL};
    assert_true(owner > 0 && expected.fence.serial > 0);
    assert_same_record(&op.found, &expected);
    struct record stored = looked_up(w->s, "k", T0);
    assert_same_record(&stored, &expected);
}

static void a_completion_ends_the_record_and_may_change_its_ttl(void **state)
{
    struct world *w = *state;
    struct fence kept = claimed(w->s, "kept", T0);
    struct fence changed = claimed(w->s, "changed", T0);
    completed(w->s, "kept", kept, T0 + 100);
    struct store_op op = op_complete("changed", changed, small_answer());
    op.ttl_ms = 5000;
    do_op(w->s, &op, T0 + 100);
    struct record r = looked_up(w->s, "kept", T0 + 100);
    assert_int_equal(r.ended_ms, T0 + 100);
    assert_int_equal(r.expires_ms, T0 + TTL);
    assert_int_equal(r.ttl_ms, TTL);
    r = looked_up(w->s, "changed", T0 + 4999);
    assert_int_equal(r.state, RECORD_DONE);
    assert_int_equal(r.ttl_ms, 5000);
    assert_int_equal(looked_up(w->s, "changed", T0 + 5000).state, RECORD_ABSENT);
}

static void a_record_that_ends_after_its_ttl_is_kept_for_a_ttl_from_then(void **state)
{
    struct world *w = *state;
    struct fence f = claimed(w->s, "k", T0);
    struct store_op lose = op_fenced(STORE_LOSE, "k", f);
    do_op(w->s, &lose, T0 + 1);
    struct store_op resolve = op_plain(STORE_RESOLVE, "k");
    resolve.answer = small_answer();
    do_op(w->s, &resolve, T0 + 3 * TTL);
    assert_int_equal(resolve.result, STORE_APPLIED);
    assert_int_equal(resolve.found.expires_ms, T0 + 4 * TTL);
    assert_int_equal(looked_up(w->s, "k", T0 + 4 * TTL - 1).state, RECORD_DONE);
    assert_int_equal(looked_up(w->s, "k", T0 + 4 * TTL).state, RECORD_ABSENT);

    f = claimed(w->s, "at its end", T0);
    lose = op_fenced(STORE_LOSE, "at its end", f);
    do_op(w->s, &lose, T0 + 1);
    resolve = op_plain(STORE_RESOLVE, "at its end");
    resolve.answer = small_answer();
    do_op(w->s, &resolve, T0 + TTL);
    assert_int_equal(looked_up(w->s, "at its end", T0 + TTL).state, RECORD_DONE);
}

static void a_finding_about_an_older_claim_changes_nothing(void **state)
{
    struct world *w = *state;
    struct fence first = claimed(w->s, "k", T0);
    struct store_op lose = op_fenced(STORE_LOSE, "k", first);
    do_op(w->s, &lose, T0 + 1);
    struct store_op release = op_plain(STORE_RESOLVE, "k");
    release.fence = first;
    do_op(w->s, &release, T0 + 2);
    assert_int_equal(release.result, STORE_APPLIED);

    /* Claimed and lost again: a late finding about the first claim is refused, one about this claim is not. */
    struct fence second = claimed(w->s, "k", T0 + 3);
    lose = op_fenced(STORE_LOSE, "k", second);
    do_op(w->s, &lose, T0 + 4);
    for (int i = 0; i < 2; i++) {
        struct store_op late = op_plain(i == 0 ? STORE_RESOLVE : STORE_FORGET, "k");
        late.fence = first;
        do_op(w->s, &late, T0 + 5);
        assert_int_equal(late.result, STORE_STALE);
        assert_int_equal(looked_up(w->s, "k", T0 + 5).state, RECORD_UNKNOWN);
    }
    struct store_op forget = op_plain(STORE_FORGET, "k");
    forget.fence = second;
    do_op(w->s, &forget, T0 + 6);
    assert_int_equal(forget.result, STORE_APPLIED);
    assert_int_equal(looked_up(w->s, "k", T0 + 6).state, RECORD_ABSENT);
}

static void an_extended_lease_ends_later(void **state)
{
    struct world *w = *state;
    struct fence f = claimed(w->s, "k", T0);
    struct store_op op = op_fenced(STORE_EXTEND, "k", f);
    do_op(w->s, &op, T0 + LEASE - 1);
    assert_int_equal(op.found.lease_ms, T0 + 2 * LEASE - 1);
    assert_int_equal(looked_up(w->s, "k", T0 + 2 * LEASE - 2).state, RECORD_RUNNING);
    assert_int_equal(looked_up(w->s, "k", T0 + 2 * LEASE - 1).state, RECORD_UNKNOWN);
}

static void a_claim_past_the_lease_writes_unknown_down(void **state)
{
    struct world *w = *state;
    claimed(w->s, "k", T0);
    claimed(w->s, "mismatch", T0);
    struct store_op op = op_claim("k", 1);
    do_op(w->s, &op, T0 + LEASE + 50);
    assert_int_equal(op.result, STORE_FOUND);
    assert_int_equal(op.found.ended_ms, T0 + LEASE);
    struct store_op other = op_claim("mismatch", 2);
    do_op(w->s, &other, T0 + LEASE + 50);
    assert_int_equal(other.result, STORE_FOUND);
    /* Before the lease's end it could not be unknown, were it not written. */
    assert_int_equal(looked_up(w->s, "k", T0).state, RECORD_UNKNOWN);
    assert_int_equal(looked_up(w->s, "mismatch", T0).state, RECORD_UNKNOWN);
    struct store_stats stats;
    assert_int_equal(w->s->backend->stats(w->s, &stats, NULL), 0);
    assert_int_equal(stats.unknown, 2);
    assert_int_equal(stats.running, 0);
}

static void a_take_over_has_a_lease_an_owner_and_a_fingerprint_of_its_own(void **state)
{
    struct world *w = *state;
    struct store_op first = op_claim("k", 0);
    do_op(w->s, &first, T0);
    struct store_op lose = op_fenced(STORE_LOSE, "k", first.found.fence);
    do_op(w->s, &lose, T0 + 1);
    uint64_t owner = 0;
    assert_int_equal(w->s->backend->register_owner(w->s, "second", &owner, NULL), 0);
    struct store_op op = op_claim("k", 5);
    op.take_over = true;
    op.lease_ms = 777;
    op.ttl_ms = 99999;
    do_op(w->s, &op, T0 + 200);
    assert_int_equal(op.result, STORE_APPLIED);
    struct record expected = {.state = RECORD_RUNNING,
                              .fence = {.serial = first.found.fence.serial, .attempt = 2},
                              .fingerprint = print_of(5),
                              .owner = owner,
                              .claimed_ms = T0,
                              .lease_ms = T0 + 977,
                              .expires_ms = T0 + 99999,
                              .ttl_ms = 99999};
    assert_same_record(&op.found, &expected);
    struct record r = looked_up(w->s, "k", T0 + 200);
    assert_same_record(&r, &expected);
    /* The first owner comes back late. */
    struct store_op late = op_complete("k", first.found.fence, small_answer());
    do_op(w->s, &late, T0 + 300);
    assert_int_equal(late.result, STORE_STALE);
    completed(w->s, "k", op.found.fence, T0 + 400);
}

static void a_take_over_straight_after_the_lease_needs_no_other_step(void **state)
{
    struct world *w = *state;
    struct fence f = claimed(w->s, "k", T0);
    struct store_op op = op_claim("k", 1);
    op.take_over = true;
    for (uint32_t attempt = 2; attempt < 6; attempt++) {
        do_op(w->s, &op, T0 + LEASE * (attempt - 1));
        assert_int_equal(op.result, STORE_APPLIED);
        assert_int_equal(op.found.fence.serial, f.serial);
        assert_int_equal(op.found.fence.attempt, attempt);
    }
}

static void without_a_fingerprint_every_content_matches(void **state)
{
    struct world *w = *state;
    claimed(w->s, "with", T0);
    struct store_op none = op_claim("without", 0);
    do_op(w->s, &none, T0);
    struct store_op take = op_claim("with", 0);
    take.take_over = true;
    do_op(w->s, &take, T0 + LEASE);
    assert_int_equal(take.result, STORE_APPLIED);
    assert_int_equal(take.found.fingerprint.version, 1);
    take = op_claim("without", 3);
    take.take_over = true;
    do_op(w->s, &take, T0 + LEASE);
    assert_int_equal(take.result, STORE_APPLIED);
}

static void another_fingerprint_version_is_other_content(void **state)
{
    struct world *w = *state;
    claimed(w->s, "k", T0);
    struct store_op op = op_claim("k", 1);
    op.fingerprint.version = 2;
    op.take_over = true;
    do_op(w->s, &op, T0 + LEASE);
    assert_int_equal(op.result, STORE_FOUND);
    assert_int_equal(op.found.state, RECORD_UNKNOWN);
    assert_int_equal(op.found.fingerprint.version, 1);
}

static void an_expired_record_gives_way_to_a_new_serial(void **state)
{
    struct world *w = *state;
    struct fence f = claimed(w->s, "k", T0);
    completed(w->s, "k", f, T0 + 1);
    struct store_op op = op_claim("k", 2);
    op.want_answer = true;
    do_op(w->s, &op, T0 + TTL);
    assert_int_equal(op.result, STORE_APPLIED);
    assert_true(op.found.fence.serial > f.serial);
    assert_null(op.answer);
    struct store_op late = op_complete("k", f, small_answer());
    do_op(w->s, &late, T0 + TTL + 1);
    assert_int_equal(late.result, STORE_STALE);
    completed(w->s, "k", op.found.fence, T0 + TTL + 2);
}

static void one_identity_with_another_ones_fence_is_stale(void **state)
{
    struct world *w = *state;
    struct fence a = claimed(w->s, "a", T0);
    struct fence b = claimed(w->s, "b", T0);
    struct store_op op = op_complete("a", b, small_answer());
    do_op(w->s, &op, T0);
    assert_int_equal(op.result, STORE_STALE);
    assert_true(fence_equal(op.found.fence, a));
    struct store_op none = op_complete("c", b, small_answer());
    do_op(w->s, &none, T0);
    assert_int_equal(none.result, STORE_ABSENT);
    assert_int_equal(looked_up(w->s, "b", T0).state, RECORD_RUNNING);
}

static void times_at_the_edge_of_their_type_do_not_wrap(void **state)
{
    struct world *w = *state;
    struct store_op op = op_claim("k", 1);
    op.lease_ms = INT64_MAX;
    op.ttl_ms = INT64_MAX;
    do_op(w->s, &op, T0);
    assert_int_equal(op.result, STORE_APPLIED);
    assert_int_equal(op.found.lease_ms, INT64_MAX);
    completed(w->s, "k", op.found.fence, T0 + TTL);
    assert_int_equal(looked_up(w->s, "k", INT64_MAX - 1).state, RECORD_DONE);
}

const struct CMUnitTest state_tests[] = {
    STORE_TEST(every_op_in_every_state_follows_the_table),
    STORE_TEST(a_claim_records_what_it_was_given),
    STORE_TEST(a_completion_ends_the_record_and_may_change_its_ttl),
    STORE_TEST(a_record_that_ends_after_its_ttl_is_kept_for_a_ttl_from_then),
    STORE_TEST(a_finding_about_an_older_claim_changes_nothing),
    STORE_TEST(an_extended_lease_ends_later),
    STORE_TEST(a_claim_past_the_lease_writes_unknown_down),
    STORE_TEST(a_take_over_has_a_lease_an_owner_and_a_fingerprint_of_its_own),
    STORE_TEST(a_take_over_straight_after_the_lease_needs_no_other_step),
    STORE_TEST(without_a_fingerprint_every_content_matches),
    STORE_TEST(another_fingerprint_version_is_other_content),
    STORE_TEST(an_expired_record_gives_way_to_a_new_serial),
    STORE_TEST(one_identity_with_another_ones_fence_is_stale),
    STORE_TEST(times_at_the_edge_of_their_type_do_not_wrap),
};
const size_t state_test_count = sizeof state_tests / sizeof state_tests[0];
