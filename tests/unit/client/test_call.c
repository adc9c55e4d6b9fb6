/* The story of a call in a world of the test's own: a clock that only the test moves, chosen chance, and a server that
 * answers as it is told. The store is a real one, in memory. */
#include "client/client.h"
#include "client/kept.h"
#include "client/plan.h"

#include "base/error.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <time.h>

enum { SENT_MAX = 120, HOUR_MS = 3600 * 1000 };

struct step {
    int status; /* 0: none */
    enum call_failure failure;
    const char *retry_after;
    const char *body;
    int64_t takes_ms;
    bool cut;
};

struct world {
    hapax *h;
    int64_t mono_ms;
    int64_t wall_offset_ms; /* the store's clock is the host's: the test adds to it */
    uint64_t chance;        /* what random gives, but for keys */
    const struct step *steps;
    size_t step_count; /* the last one repeats */
    size_t sent;
    char keys[SENT_MAX][64];
    int64_t sent_ms[SENT_MAX];
    int64_t timeouts_ms[SENT_MAX];
    int64_t slept_ms;
    int64_t overslept_ms; /* by each sleep: the host sleeps, too */
    const char *op;       /* whose key must be in the store whenever something is sent */
    void (*while_sending)(struct world *w);
    unsigned steps_told[4];
    unsigned thefts; /* of the key's claim, each time a key is made for it */
};

static int64_t world_mono(void *ctx)
{
    return ((struct world *)ctx)->mono_ms;
}

static int64_t world_wall(void *ctx)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return t.tv_sec * 1000LL + ((struct world *)ctx)->wall_offset_ms;
}

static void world_sleep(void *ctx, int64_t ms)
{
    struct world *w = ctx;
    assert_true(ms >= 0);
    w->mono_ms += ms + w->overslept_ms;
    w->wall_offset_ms += ms + w->overslept_ms;
    w->slept_ms += ms;
}

/* As after a lease that ran out in between, of somebody whose own has run out, too. */
static void steal_key_claim(struct world *w)
{
    hapax_record record;
    hapax_result claim;
    hapax_request other = {.size = sizeof other, .scope = PLAN_KEY_SCOPE, .key = w->op, .take_over = 1};
    assert_int_equal(hapax_lookup(w->h, PLAN_KEY_SCOPE, w->op, &record, NULL), 0);
    assert_int_equal(hapax_lose(w->h, &record.claim, NULL), 0);
    assert_int_equal(hapax_begin(w->h, &other, &claim, NULL), 0);
    assert_int_equal(hapax_lose(w->h, &claim.claim, NULL), 0);
}

static int world_random(void *ctx, void *out, size_t len)
{
    struct world *w = ctx;
    if (len != sizeof w->chance && w->thefts > 0) {
        w->thefts--;
        steal_key_claim(w);
    }
    static uint8_t next;
    if (len == sizeof w->chance) {
        memcpy(out, &w->chance, len);
    } else {
        memset(out, ++next, len); /* another key each time */
    }
    return 0;
}

static void check_key_is_stored(const struct world *w, struct slice key)
{
    hapax_record record;
    size_t bytes;
    assert_int_equal(hapax_lookup(w->h, PLAN_KEY_SCOPE, w->op, &record, NULL), 0);
    assert_int_equal(record.state, HAPAX_DONE);
    const char *data = hapax_answer_data(record.answer, &bytes);
    assert_true(slice_equal(slice_of(data, bytes), key));
    hapax_answer_free(record.answer);
    assert_int_equal(hapax_lookup(w->h, PLAN_OP_SCOPE, w->op, &record, NULL), 0);
    assert_int_equal(record.state, HAPAX_RUNNING);
}

static int world_send(void *ctx, const struct client_message *m, int64_t timeout_ms, struct client_reply *out,
                      hapax_error *err)
{
    struct world *w = ctx;
    struct slice key = SLICE_NONE;
    struct request r = {.headers = m->headers, .header_count = m->header_count};
    assert_int_equal(request_header(&key, &r, SLICE_LITERAL("Idempotency-Key")), 1);
    assert_true(w->sent < SENT_MAX);
    if (w->op != NULL) {
        check_key_is_stored(w, key);
    }
    snprintf(w->keys[w->sent], sizeof w->keys[0], "%.*s", SLICE_FORMAT(key));
    w->sent_ms[w->sent] = w->mono_ms;
    w->timeouts_ms[w->sent] = timeout_ms;
    const struct step *s = &w->steps[w->sent < w->step_count ? w->sent : w->step_count - 1];
    w->sent++;
    if (w->while_sending != NULL) {
        w->while_sending(w);
    }
    int64_t takes = s->takes_ms < timeout_ms ? s->takes_ms : timeout_ms;
    w->mono_ms += takes;
    w->wall_offset_ms += takes;
    if (s->status < 0) {
        return error_code(err, HAPAX_E_MEMORY);
    }
    out->complete = s->status != 0;
    out->status = s->status;
    out->failure = s->failure;
    out->body_cut = s->cut;
    snprintf(out->detail, sizeof out->detail, "it broke");
    struct header *lines = arena_array(&out->arena, 1, sizeof *lines);
    *lines = (struct header){SLICE_LITERAL("Retry-After"), slice_text(s->retry_after)};
    out->headers = lines;
    out->header_count = s->retry_after != NULL ? 1 : 0;
    return buf_append_text(&out->body, s->body != NULL ? s->body : "");
}

static void on_progress(void *ctx, const hapax_call_progress *p)
{
    struct world *w = ctx;
    assert_true((p->last != NULL) == (p->step == HAPAX_CALL_STEP_RETRY));
    w->steps_told[p->step]++;
}

static hapax_call_request asked(struct world *w, const char *op)
{
    w->op = op;
    return (hapax_call_request){.size = sizeof(hapax_call_request),
                                .method = "POST",
                                .url = "http://h/charges",
                                .body = "{\"amount\":5}",
                                .body_bytes = 12,
                                .op = op,
                                .progress = on_progress,
                                .progress_ctx = w};
}

static struct world world_of(const struct step *steps, size_t n)
{
    struct world w = {.mono_ms = 1000000, .steps = steps, .step_count = n};
    hapax_error err;
    if (hapax_open(&w.h, "memory:", NULL, &err) != 0) {
        fail_msg("open: %s", err.message);
    }
    return w;
}
#define WORLD(...)                                                                                           \
    world_of((const struct step[]){__VA_ARGS__},                                                             \
             sizeof(const struct step[]){__VA_ARGS__} / sizeof(struct step))

static int try_call(struct world *w, const hapax_call_request *r, hapax_call_result **out, hapax_error *err)
{
    struct client_plan plan;
    const struct client_world real = {.ctx = w,
                                      .mono_ms = world_mono,
                                      .wall_ms = world_wall,
                                      .sleep_ms = world_sleep,
                                      .random = world_random,
                                      .send = world_send};
    *out = NULL;
    int rc = client_plan_make(&plan, r, err);
    rc = rc != 0 ? rc : client_call(w->h, &plan, &real, out, err);
    client_plan_free(&plan);
    return rc;
}

static hapax_call_result *call(struct world *w, const hapax_call_request *r)
{
    hapax_call_result *out;
    hapax_error err;
    if (try_call(w, r, &out, &err) != 0) {
        fail_msg("call: %s", err.message);
    }
    return out;
}

static hapax_state state_of(const struct world *w, const char *op)
{
    hapax_record record;
    int rc = hapax_lookup(w->h, PLAN_OP_SCOPE, op, &record, NULL);
    if (rc == 0) {
        hapax_answer_free(record.answer);
    }
    return rc == 0 ? record.state : HAPAX_ABSENT;
}

static void assert_one_key(const struct world *w)
{
    for (size_t i = 1; i < w->sent; i++) {
        assert_string_equal(w->keys[i], w->keys[0]);
    }
}

#define OK_ANSWER                                                                                            \
    {                                                                                                        \
        .status = 201, .body = "{\"id\":7}"                                                                  \
    }
#define REFUSED                                                                                              \
    {                                                                                                        \
        .failure = CALL_NOT_SENT                                                                             \
    }
#define TIMEOUT                                                                                              \
    {                                                                                                        \
        .failure = CALL_TIMEOUT, .takes_ms = INT64_MAX                                                       \
    }
#define BROKEN                                                                                               \
    {                                                                                                        \
        .failure = CALL_BROKEN                                                                               \
    }

/* --- one key through all of it --- */

static void one_key_is_stored_first_and_used_until_the_answer(void **state)
{
    (void)state;
    struct world w =
        WORLD(REFUSED, TIMEOUT, BROKEN, {.status = 503}, {.status = 409, .retry_after = "0"}, OK_ANSWER);
    hapax_call_request r = asked(&w, "invoice 42");
    hapax_call_result *out = call(&w, &r);
    assert_int_equal(out->end, HAPAX_CALL_END_ANSWERED);
    assert_int_equal(out->status, 201);
    assert_int_equal(out->body_bytes, 8);
    assert_string_equal(out->body, "{\"id\":7}");
    assert_true(out->stored && out->body_kept && !out->maybe_done && out->expires_ms > out->claimed_ms);
    assert_int_equal(out->attempt_count, 6);
    assert_int_equal(w.sent, 6);
    assert_one_key(&w);
    assert_string_equal(out->key, w.keys[0]);
    assert_int_equal(strlen(out->key), 36);
    assert_int_equal(out->key[14], '4'); /* RFC 9562: version 4, variant 10 */
    assert_non_null(strchr("89ab", out->key[19]));
    const hapax_call_news news[] = {HAPAX_CALL_NOTHING, HAPAX_CALL_MAYBE, HAPAX_CALL_MAYBE,
                                    HAPAX_CALL_MAYBE,   HAPAX_CALL_MAYBE, HAPAX_CALL_DEFINITE};
    const int status[] = {0, 0, 0, 503, 409, 201};
    for (size_t i = 0; i < 6; i++) {
        assert_int_equal(out->attempts[i].news, news[i]);
        assert_int_equal(out->attempts[i].status, status[i]);
    }
    assert_int_equal(w.steps_told[HAPAX_CALL_STEP_SEND], 6);
    assert_int_equal(w.steps_told[HAPAX_CALL_STEP_RETRY], 5);
    assert_string_equal(out->record_scope, "hapax call");
    assert_string_equal(out->record_key, "invoice 42");
    hapax_call_free(out);
    assert_int_equal(state_of(&w, "invoice 42"), HAPAX_DONE);

    hapax_call_result *again = call(&w, &r);
    assert_int_equal(again->end, HAPAX_CALL_END_REPLAYED);
    assert_int_equal(again->status, 201);
    assert_string_equal(again->body, "{\"id\":7}");
    assert_string_equal(again->key, w.keys[0]);
    assert_int_equal(again->attempt_count, 0);
    hapax_call_free(again);
    assert_int_equal(w.sent, 6);
    hapax_close(w.h);
}

static void another_request_under_the_name_is_refused(void **state)
{
    (void)state;
    struct world w = WORLD(OK_ANSWER);
    hapax_call_request r = asked(&w, "invoice 42");
    hapax_call_free(call(&w, &r));
    r.body = "{\"amount\":6}";
    hapax_call_result *out = call(&w, &r);
    assert_int_equal(out->end, HAPAX_CALL_END_MISMATCH);
    hapax_call_free(out);
    r = asked(&w, "invoice 42");
    r.key = "another key";
    out = call(&w, &r);
    assert_int_equal(out->end, HAPAX_CALL_END_MISMATCH);
    hapax_call_free(out);
    assert_int_equal(w.sent, 1);
    hapax_close(w.h);
}

static void the_key_lives_on_in_later_calls_whatever_ended_the_first(void **state)
{
    (void)state;
    static const struct {
        struct step step;
        hapax_call_end end;
        hapax_state left;
    } cases[] = {
        {REFUSED, HAPAX_CALL_END_NOT_DONE, HAPAX_ABSENT},
        {{.status = 429}, HAPAX_CALL_END_NOT_DONE, HAPAX_ABSENT},
        {{.status = 401}, HAPAX_CALL_END_REJECTED, HAPAX_ABSENT},
        {{.status = 308}, HAPAX_CALL_END_REJECTED, HAPAX_ABSENT},
        {TIMEOUT, HAPAX_CALL_END_UNKNOWN, HAPAX_UNKNOWN_OUTCOME},
        {BROKEN, HAPAX_CALL_END_UNKNOWN, HAPAX_UNKNOWN_OUTCOME},
        {{.status = 502}, HAPAX_CALL_END_UNKNOWN, HAPAX_UNKNOWN_OUTCOME},
        {{.status = 503}, HAPAX_CALL_END_UNKNOWN, HAPAX_UNKNOWN_OUTCOME},
        {{.status = -1}, 0, HAPAX_ABSENT}, /* it could not be sent: no memory */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct step steps[] = {cases[i].step, OK_ANSWER};
        struct world w = world_of(steps, 2);
        hapax_call_request r = asked(&w, "invoice 42");
        hapax_call_result *out;
        hapax_error err;
        r.attempts_max = 1;
        int rc = try_call(&w, &r, &out, &err);
        assert_int_equal(rc, cases[i].end == 0 ? HAPAX_E_MEMORY : 0);
        assert_int_equal(out != NULL ? out->end : 0, cases[i].end);
        assert_int_equal(state_of(&w, "invoice 42"), cases[i].left);
        if (out != NULL) {
            assert_int_equal(out->maybe_done != 0, cases[i].left == HAPAX_UNKNOWN_OUTCOME);
        }
        hapax_call_free(out);
        out = call(&w, &r);
        assert_int_equal(out->end, HAPAX_CALL_END_ANSWERED);
        hapax_call_free(out);
        assert_int_equal(w.sent, 2);
        assert_one_key(&w);
        hapax_close(w.h);
    }
}

static void without_an_op_a_random_key_names_the_call_and_leads_back_to_it(void **state)
{
    (void)state;
    struct world w = WORLD(TIMEOUT, OK_ANSWER);
    hapax_call_request r = asked(&w, NULL);
    r.attempts_max = 1;
    hapax_call_result *out = call(&w, &r);
    assert_int_equal(out->end, HAPAX_CALL_END_UNKNOWN);
    assert_string_equal(out->record_scope, "hapax call POST http://h/charges");
    assert_string_equal(out->record_key, out->key);
    hapax_record record;
    assert_int_equal(hapax_lookup(w.h, out->record_scope, out->record_key, &record, NULL), 0);
    assert_int_equal(record.state, HAPAX_UNKNOWN_OUTCOME);
    char key[64];
    snprintf(key, sizeof key, "%s", out->key);
    hapax_call_free(out);
    r.key = key;
    out = call(&w, &r);
    assert_int_equal(out->end, HAPAX_CALL_END_ANSWERED);
    hapax_call_free(out);
    assert_one_key(&w);
    out = call(&w, &r);
    assert_int_equal(out->end, HAPAX_CALL_END_REPLAYED);
    hapax_call_free(out);
    hapax_close(w.h);
}

/* --- waits and limits --- */

static void waits_are_those_of_the_back_off_and_of_retry_after(void **state)
{
    (void)state;
    struct world w = WORLD(BROKEN, BROKEN, BROKEN, {.status = 503, .retry_after = "45"}, BROKEN, OK_ANSWER);
    w.chance = 400; /* within every window */
    hapax_call_request r = asked(&w, "a");
    hapax_call_result *out = call(&w, &r);
    const int64_t waited[] = {0, 400, 400, 400, 45000, 400};
    for (size_t i = 0; i < 6; i++) {
        assert_int_equal(out->attempts[i].waited_ms, waited[i]);
    }
    assert_int_equal(w.slept_ms, 400 * 4 + 45000);
    hapax_call_free(out);
    hapax_close(w.h);

    struct world v = WORLD(BROKEN);
    v.chance = 7999;
    r = asked(&v, "a");
    out = call(&v, &r);
    const int64_t windows[] = {500, 1000, 2000, 4000, 8000, 16000, 30000};
    assert_int_equal(out->attempt_count, 8);
    for (size_t i = 0; i < 7; i++) {
        assert_int_equal(out->attempts[i + 1].waited_ms, 7999 % (windows[i] + 1));
    }
    hapax_call_free(out);
    hapax_close(v.h);
}

static void nothing_is_sent_or_slept_beyond_the_deadline(void **state)
{
    (void)state;
    struct world w = WORLD(TIMEOUT);
    w.chance = 400;
    hapax_call_request r = asked(&w, "a");
    r.time_max_ms = 70000;
    hapax_call_result *out = call(&w, &r);
    assert_int_equal(out->end, HAPAX_CALL_END_UNKNOWN);
    assert_int_equal(w.sent, 3);
    assert_int_equal(w.timeouts_ms[0], 30000);
    assert_int_equal(w.timeouts_ms[1], 30000);
    assert_int_equal(w.timeouts_ms[2], 70000 - 2 * 30400); /* what is left */
    assert_int_equal(out->took_ms, 70000);
    hapax_call_free(out);
    hapax_close(w.h);

    struct world u = WORLD(TIMEOUT, OK_ANSWER); /* a random wait leaves time for another attempt */
    u.chance = 29999;
    r = asked(&u, "a");
    r.time_max_ms = 30100;
    r.backoff_ms = 30000;
    out = call(&u, &r);
    assert_int_equal(out->end, HAPAX_CALL_END_ANSWERED);
    assert_int_equal(out->attempts[1].waited_ms, 29999 % 100);
    hapax_call_free(out);
    hapax_close(u.h);

    struct world v = WORLD({.status = 429, .retry_after = "61"}); /* asks for more than there is: at once */
    r = asked(&v, "a");
    r.time_max_ms = 60000;
    out = call(&v, &r);
    assert_int_equal(out->end, HAPAX_CALL_END_NOT_DONE);
    assert_int_equal(v.sent, 1);
    assert_int_equal(v.slept_ms, 0);
    assert_int_equal(out->status, 429);
    hapax_call_free(out);
    hapax_close(v.h);
}

static void after_a_sleep_that_took_too_long_nothing_is_sent(void **state)
{
    (void)state;
    static const struct {
        struct step step;
        int64_t time_max_ms;
        int64_t overslept_ms;
        hapax_call_end end;
        hapax_state left;
    } cases[] = {
        {TIMEOUT, HOUR_MS, 2 * HOUR_MS, HAPAX_CALL_END_UNKNOWN, HAPAX_UNKNOWN_OUTCOME},
        {REFUSED, HOUR_MS, 2 * HOUR_MS, HAPAX_CALL_END_NOT_DONE, HAPAX_ABSENT},
        {TIMEOUT, 100LL * HOUR_MS, 25LL * HOUR_MS, HAPAX_CALL_END_EXPIRED, HAPAX_UNKNOWN_OUTCOME},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct world w = world_of(&cases[i].step, 1);
        w.overslept_ms = cases[i].overslept_ms;
        hapax_call_request r = asked(&w, "a");
        r.time_max_ms = cases[i].time_max_ms;
        hapax_call_result *out = call(&w, &r);
        assert_int_equal(out->end, cases[i].end);
        assert_int_equal(w.sent, 1);
        hapax_call_free(out);
        assert_int_equal(state_of(&w, "a"), cases[i].left);
        hapax_close(w.h);
    }
}

static void attempts_are_counted(void **state)
{
    (void)state;
    for (unsigned n = 1; n <= HAPAX_CALL_ATTEMPTS_MAX; n += 33) {
        struct world w = WORLD(BROKEN);
        hapax_call_request r = asked(&w, "a");
        r.attempts_max = n;
        hapax_call_result *out = call(&w, &r);
        assert_int_equal(w.sent, n);
        assert_int_equal(out->attempt_count, n);
        hapax_call_free(out);
        hapax_close(w.h);
    }
}

/* --- what ends it --- */

static void every_definite_answer_is_stored_and_given_again(void **state)
{
    (void)state;
    const int statuses[] = {200, 204, 302, 303, 400, 404, 409, 422, 500, 501};
    for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++) {
        const struct step steps[] = {{.status = statuses[i], .body = "text"}};
        struct world w = world_of(steps, 1);
        hapax_call_request r = asked(&w, "a");
        for (int turn = 0; turn < 2; turn++) {
            hapax_call_result *out = call(&w, &r);
            assert_int_equal(out->end, turn == 0 ? HAPAX_CALL_END_ANSWERED : HAPAX_CALL_END_REPLAYED);
            assert_int_equal(out->status, statuses[i]);
            assert_string_equal(out->body, "text");
            hapax_call_free(out);
        }
        assert_int_equal(w.sent, 1);
        hapax_close(w.h);
    }
}

static void a_conflict_with_an_earlier_attempt_is_not_the_answer(void **state)
{
    (void)state;
    struct world w = WORLD(TIMEOUT, {.status = 409, .body = "outstanding"}, OK_ANSWER);
    hapax_call_request r = asked(&w, "a");
    hapax_call_result *out = call(&w, &r);
    assert_int_equal(out->end, HAPAX_CALL_END_ANSWERED);
    assert_int_equal(out->status, 201);
    hapax_call_free(out);
    hapax_close(w.h);

    struct world v = WORLD(TIMEOUT, {.status = 409}, OK_ANSWER); /* each in a call of its own */
    r = asked(&v, "a");
    r.attempts_max = 1;
    const hapax_call_end ends[] = {HAPAX_CALL_END_UNKNOWN, HAPAX_CALL_END_UNKNOWN, HAPAX_CALL_END_ANSWERED};
    for (size_t i = 0; i < 3; i++) {
        out = call(&v, &r);
        assert_int_equal(out->end, ends[i]);
        hapax_call_free(out);
    }
    assert_one_key(&v);
    hapax_close(v.h);
}

static void a_refusal_of_the_key_after_a_lost_answer_leaves_the_operation_open(void **state)
{
    (void)state;
    struct world w = WORLD(TIMEOUT, {.status = 422, .body = "another payload"}, OK_ANSWER);
    hapax_call_request r = asked(&w, "a");
    hapax_call_result *out = call(&w, &r);
    assert_int_equal(out->end, HAPAX_CALL_END_REJECTED);
    assert_true(out->maybe_done);
    assert_string_equal(out->body, "another payload");
    hapax_call_free(out);
    assert_int_equal(state_of(&w, "a"), HAPAX_UNKNOWN_OUTCOME);
    out = call(&w, &r);
    assert_int_equal(out->end, HAPAX_CALL_END_ANSWERED);
    assert_int_equal(out->status, 201);
    hapax_call_free(out);
    assert_one_key(&w);
    hapax_close(w.h);
}

static void a_name_with_another_key_says_which_record_stands_in_the_way(void **state)
{
    (void)state;
    struct world w = WORLD(REFUSED, OK_ANSWER);
    hapax_call_request r = asked(&w, "a");
    r.key = "mistyped";
    r.attempts_max = 1;
    hapax_call_free(call(&w, &r));
    r.key = "right";
    hapax_call_result *out = call(&w, &r);
    assert_int_equal(out->end, HAPAX_CALL_END_MISMATCH);
    assert_int_equal(out->claimed_ms, 0);
    assert_string_equal(out->record_scope, PLAN_KEY_SCOPE);
    assert_string_equal(out->record_key, "a");
    assert_int_equal(hapax_forget(w.h, out->record_scope, out->record_key, NULL), 0);
    hapax_call_free(out);
    out = call(&w, &r);
    assert_int_equal(out->end, HAPAX_CALL_END_ANSWERED);
    assert_string_equal(out->key, "right");
    hapax_call_free(out);

    r.key = "another"; /* now the operation has a record, and that one matters */
    out = call(&w, &r);
    assert_int_equal(out->end, HAPAX_CALL_END_MISMATCH);
    assert_true(out->claimed_ms > 0);
    assert_string_equal(out->record_scope, PLAN_OP_SCOPE);
    hapax_call_free(out);
    assert_int_equal(w.sent, 2);
    hapax_close(w.h);
}

static void an_answer_too_large_is_known_but_not_kept(void **state)
{
    (void)state;
    struct world w = WORLD({.status = 200, .cut = true});
    hapax_call_request r = asked(&w, "a");
    for (int turn = 0; turn < 2; turn++) {
        hapax_call_result *out = call(&w, &r);
        assert_int_equal(out->end, turn == 0 ? HAPAX_CALL_END_ANSWERED : HAPAX_CALL_END_REPLAYED);
        assert_int_equal(out->status, 200);
        assert_false(out->body_kept);
        assert_int_equal(out->body_bytes, 0);
        hapax_call_free(out);
    }
    assert_int_equal(w.sent, 1);
    hapax_close(w.h);
}

static void a_rejection_after_an_attempt_that_may_have_done_it_stays_unknown(void **state)
{
    (void)state;
    struct world w = WORLD(TIMEOUT, {.status = 401, .body = "no"});
    hapax_call_request r = asked(&w, "a");
    hapax_call_result *out = call(&w, &r);
    assert_int_equal(out->end, HAPAX_CALL_END_REJECTED);
    assert_true(out->maybe_done);
    assert_int_equal(out->status, 401);
    assert_string_equal(out->body, "no");
    hapax_call_free(out);
    assert_int_equal(state_of(&w, "a"), HAPAX_UNKNOWN_OUTCOME);
    hapax_close(w.h);
}

/* --- keys that are too old --- */

static void an_unknown_operation_is_not_sent_again_once_the_server_may_have_forgotten_its_key(void **state)
{
    (void)state;
    struct world w = WORLD(TIMEOUT);
    hapax_call_request r = asked(&w, "a");
    r.attempts_max = 1;
    hapax_call_free(call(&w, &r));
    w.wall_offset_ms += 24LL * HOUR_MS;
    hapax_call_result *out = call(&w, &r);
    assert_int_equal(out->end, HAPAX_CALL_END_EXPIRED);
    assert_true(out->maybe_done);
    assert_int_equal(w.sent, 1);
    hapax_call_free(out);
    assert_int_equal(state_of(&w, "a"), HAPAX_UNKNOWN_OUTCOME);
    r.key_lifetime_ms = 48LL * HOUR_MS; /* the server keeps them for longer */
    out = call(&w, &r);
    assert_int_equal(out->end, HAPAX_CALL_END_UNKNOWN);
    assert_int_equal(w.sent, 2);
    hapax_call_free(out);
    hapax_close(w.h);
}

static void what_certainly_did_not_happen_is_sent_again_at_any_age(void **state)
{
    (void)state;
    struct world w = WORLD(REFUSED, OK_ANSWER);
    hapax_call_request r = asked(&w, "a");
    r.attempts_max = 1;
    hapax_call_free(call(&w, &r));
    w.wall_offset_ms += 24LL * 20 * HOUR_MS;
    hapax_call_result *out = call(&w, &r);
    assert_int_equal(out->end, HAPAX_CALL_END_ANSWERED);
    hapax_call_free(out);
    assert_one_key(&w);
    hapax_close(w.h);
}

static void retries_stop_when_the_key_gets_too_old_meanwhile(void **state)
{
    (void)state;
    struct world w = WORLD(TIMEOUT, {.status = 503, .retry_after = "7200"});
    hapax_call_request r = asked(&w, "a");
    r.time_max_ms = 24LL * HOUR_MS;
    r.key_lifetime_ms = HOUR_MS;
    hapax_call_result *out = call(&w, &r);
    assert_int_equal(out->end, HAPAX_CALL_END_EXPIRED);
    assert_int_equal(w.sent, 2);
    hapax_call_free(out);
    hapax_close(w.h);
}

static void a_key_that_was_lost_is_never_replaced_while_the_outcome_is_unknown(void **state)
{
    (void)state;
    struct world w = WORLD(TIMEOUT);
    hapax_call_request r = asked(&w, "a");
    r.attempts_max = 1;
    hapax_call_free(call(&w, &r));
    struct timespec tick = {.tv_nsec = 5000000};
    nanosleep(&tick, NULL); /* instants are milliseconds: the new key's is a later one */
    assert_int_equal(hapax_forget(w.h, PLAN_KEY_SCOPE, "a", NULL), 0);
    for (int turn = 0; turn < 2; turn++) {
        hapax_call_result *out = call(&w, &r);
        assert_int_equal(out->end, HAPAX_CALL_END_EXPIRED);
        hapax_call_free(out);
    }
    assert_int_equal(w.sent, 1);
    hapax_close(w.h);
}

/* --- the store --- */

/* As after a lease that ran out while the process stood still. */
static void somebody_takes_over(struct world *w)
{
    hapax_record record;
    hapax_result claim;
    hapax_request other = {.size = sizeof other, .scope = PLAN_OP_SCOPE, .key = "a", .take_over = 1};
    assert_int_equal(hapax_lookup(w->h, PLAN_OP_SCOPE, "a", &record, NULL), 0);
    assert_int_equal(hapax_lose(w->h, &record.claim, NULL), 0);
    assert_int_equal(hapax_begin(w->h, &other, &claim, NULL), 0);
    assert_int_equal(claim.verdict, HAPAX_FRESH);
}

static void an_answer_counts_even_when_somebody_else_has_the_record_now(void **state)
{
    (void)state;
    struct world w = WORLD(OK_ANSWER);
    hapax_call_request r = asked(&w, "a");
    hapax_error err = {0};
    hapax_call_result *out;
    w.while_sending = somebody_takes_over;
    assert_int_equal(try_call(&w, &r, &out, &err), 0);
    assert_int_equal(out->end, HAPAX_CALL_END_ANSWERED);
    assert_int_equal(out->status, 201);
    assert_false(out->stored);
    assert_int_equal(out->expires_ms, 0);
    assert_int_equal(err.code, HAPAX_E_STALE);
    hapax_call_free(out);
    assert_int_equal(state_of(&w, "a"), HAPAX_RUNNING);
    hapax_close(w.h);
}

static void a_claim_of_the_key_that_ran_out_is_made_again_and_told_to_nobody(void **state)
{
    (void)state;
    for (unsigned thefts = 1; thefts <= 5; thefts += 4) {
        struct world w = WORLD(OK_ANSWER);
        hapax_call_request r = asked(&w, "a");
        hapax_error err = {.code = 77};
        hapax_call_result *out;
        w.thefts = thefts;
        assert_int_equal(try_call(&w, &r, &out, &err), 0);
        assert_int_equal(out->end, thefts == 1 ? HAPAX_CALL_END_ANSWERED : HAPAX_CALL_END_BUSY);
        assert_int_equal(err.code, 77);
        assert_int_equal(w.thefts, 0);
        assert_int_equal(w.sent, thefts == 1 ? 1 : 0);
        hapax_call_free(out);
        hapax_close(w.h);
    }
}

static void an_operation_settled_by_hand_is_settled(void **state)
{
    (void)state;
    struct world w = WORLD(TIMEOUT, OK_ANSWER);
    hapax_call_request r = asked(&w, "a");
    r.attempts_max = 1;
    hapax_call_free(call(&w, &r));
    struct kept by_hand = {.status = 200, .key = slice_text(w.keys[0]), .body = SLICE_LITERAL("seen there")};
    struct buf text;
    buf_init(&text, 4096);
    assert_int_equal(kept_write(&text, &by_hand), 0);
    assert_int_equal(hapax_resolve(w.h, PLAN_OP_SCOPE, "a", text.ptr, text.len, NULL), 0);
    buf_free(&text);
    hapax_call_result *out = call(&w, &r);
    assert_int_equal(out->end, HAPAX_CALL_END_REPLAYED);
    assert_string_equal(out->body, "seen there");
    hapax_call_free(out);
    assert_int_equal(w.sent, 1);

    struct world v = WORLD(TIMEOUT, OK_ANSWER);
    r = asked(&v, "a");
    r.attempts_max = 1;
    hapax_call_free(call(&v, &r));
    assert_int_equal(hapax_resolve(v.h, PLAN_OP_SCOPE, "a", NULL, 0, NULL), 0);
    out = call(&v, &r);
    assert_int_equal(out->end, HAPAX_CALL_END_ANSWERED);
    hapax_call_free(out);
    assert_one_key(&v);
    hapax_close(v.h);
    hapax_close(w.h);
}

static void records_of_other_programs_are_an_error_and_no_answer(void **state)
{
    (void)state;
    static const struct {
        const char *scope;
        const char *answer;
    } cases[] = {{PLAN_KEY_SCOPE, ""},
                 {PLAN_KEY_SCOPE, "a\nb"},
                 {PLAN_OP_SCOPE, ""},
                 {PLAN_OP_SCOPE, "{\"id\":7}"},
                 {PLAN_OP_SCOPE, "hapax-call/1 201 whole\r\nkey\xff\r\n\r\n"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct world w = WORLD(OK_ANSWER);
        hapax_request other = {.size = sizeof other, .scope = cases[i].scope, .key = "a"};
        hapax_result claim;
        hapax_call_result *out;
        hapax_error err;
        assert_int_equal(hapax_begin(w.h, &other, &claim, NULL), 0);
        assert_int_equal(hapax_complete(w.h, &claim.claim, cases[i].answer, strlen(cases[i].answer), NULL),
                         0);
        hapax_call_request r = asked(&w, "a");
        assert_int_equal(try_call(&w, &r, &out, &err), HAPAX_E_STORE_CORRUPT);
        assert_null(out);
        assert_int_equal(w.sent, 0);
        hapax_close(w.h);
    }
}

static void an_operation_that_another_caller_is_at_is_left_to_it(void **state)
{
    (void)state;
    struct world w = WORLD(OK_ANSWER);
    hapax_request other = {.size = sizeof other, .scope = PLAN_OP_SCOPE, .key = "a"};
    hapax_result claim;
    assert_int_equal(hapax_begin(w.h, &other, &claim, NULL), 0);
    hapax_call_request r = asked(&w, "a");
    r.time_max_ms = 1;
    hapax_call_result *out = call(&w, &r);
    assert_int_equal(out->end, HAPAX_CALL_END_BUSY);
    assert_int_equal(w.steps_told[HAPAX_CALL_STEP_WAIT], 1);
    assert_int_equal(w.sent, 0);
    hapax_call_free(out);
    hapax_close(w.h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_key_is_stored_first_and_used_until_the_answer),
        cmocka_unit_test(another_request_under_the_name_is_refused),
        cmocka_unit_test(the_key_lives_on_in_later_calls_whatever_ended_the_first),
        cmocka_unit_test(without_an_op_a_random_key_names_the_call_and_leads_back_to_it),
        cmocka_unit_test(waits_are_those_of_the_back_off_and_of_retry_after),
        cmocka_unit_test(nothing_is_sent_or_slept_beyond_the_deadline),
        cmocka_unit_test(after_a_sleep_that_took_too_long_nothing_is_sent),
        cmocka_unit_test(attempts_are_counted),
        cmocka_unit_test(every_definite_answer_is_stored_and_given_again),
        cmocka_unit_test(a_conflict_with_an_earlier_attempt_is_not_the_answer),
        cmocka_unit_test(a_refusal_of_the_key_after_a_lost_answer_leaves_the_operation_open),
        cmocka_unit_test(a_name_with_another_key_says_which_record_stands_in_the_way),
        cmocka_unit_test(an_answer_too_large_is_known_but_not_kept),
        cmocka_unit_test(a_rejection_after_an_attempt_that_may_have_done_it_stays_unknown),
        cmocka_unit_test(an_unknown_operation_is_not_sent_again_once_the_server_may_have_forgotten_its_key),
        cmocka_unit_test(what_certainly_did_not_happen_is_sent_again_at_any_age),
        cmocka_unit_test(retries_stop_when_the_key_gets_too_old_meanwhile),
        cmocka_unit_test(a_key_that_was_lost_is_never_replaced_while_the_outcome_is_unknown),
        cmocka_unit_test(an_answer_counts_even_when_somebody_else_has_the_record_now),
        cmocka_unit_test(a_claim_of_the_key_that_ran_out_is_made_again_and_told_to_nobody),
        cmocka_unit_test(an_operation_settled_by_hand_is_settled),
        cmocka_unit_test(records_of_other_programs_are_an_error_and_no_answer),
        cmocka_unit_test(an_operation_that_another_caller_is_at_is_left_to_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
