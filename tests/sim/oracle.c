/* The oracle: hears every answer at the instant of its call-back and asks the target's worlds whether it may be true.
 *
 * Most answers come from a commit of this very turn and must fit exactly. What an engine may say from memory is judged
 * by what docs/PROMISES.md allows: a cached answer for a second after somebody forgot it by hand, "in progress" by
 * a waiter's last poll, and by an execution whose own end the engine was not told of. */
#include "sim.h"

#include "base/error.h"

#include <stdio.h>
#include <string.h>

/* --- answers that can be told apart --- */

#define ANSWER_TEXT_MAX 128

static size_t answer_text(char *out, int number)
{
    int n = snprintf(out, ANSWER_TEXT_MAX, "answer %d %.*s", number, number % 40,
                     "----------------------------------------");
    return (size_t)n;
}

struct answer *oracle_make_answer(int number)
{
    char text[ANSWER_TEXT_MAX];
    size_t len = answer_text(text, number);
    return answer_make(200, true, SLICE_LITERAL("Kind: sim\r\n"), slice_of(text, len));
}

int oracle_new_answer(struct sim *s)
{
    return ++s->answer_count;
}

/* The number of an answer whose every byte is right; NO_ANSWER for any other. */
static int read_answer(const struct answer *a)
{
    char text[ANSWER_TEXT_MAX];
    int number = NO_ANSWER;
    struct slice body = answer_body(a);
    if (body.len == 0 || body.len >= sizeof text) {
        return NO_ANSWER;
    }
    memcpy(text, body.ptr, body.len);
    text[body.len] = '\0';
    if (sscanf(text, "answer %d ", &number) != 1 || number < 0) {
        return NO_ANSWER;
    }
    size_t len = answer_text(text, number);
    bool right = a->status == 200 && a->kept && slice_equal(answer_head(a), SLICE_LITERAL("Kind: sim\r\n")) &&
                 slice_equal(body, slice_of(text, len));
    return right ? number : NO_ANSWER;
}

/* --- judging --- */

static void note_worlds(struct sim *s, struct target *t)
{
    s->given_up = s->given_up || t->worlds.too_many;
    for (size_t i = 0; i < t->worlds.count; i++) {
        if (t->worlds.of[i].state == RECORD_RUNNING) {
            t->still_mono_ms = -1;
            return;
        }
    }
    t->still_mono_ms = t->still_mono_ms >= 0 ? t->still_mono_ms : s->now.mono_ms;
}

static void expect(struct sim *s, struct target *t, const struct deed *d, struct said said)
{
    char why[SIM_WHY_MAX];
    if (!worlds_hear(&t->worlds, d, &said, s->now.wall_ms, why, sizeof why)) {
        sim_fail(s, (int)(t - s->targets), "%s", why);
    }
    note_worlds(s, t);
}

/* An answer was lost: what was asked for may have been done. */
static void doubt(struct sim *s, struct target *t, const struct deed *d)
{
    s->doubts++;
    if (d->kind == ENGINE_BEGIN) {
        t->contents_run |= 1U << d->content;
    }
    worlds_doubt(&t->worlds, d, s->now.wall_ms);
    note_worlds(s, t);
}

/* A FORGET has, or may have, taken effect: caches may go on with what it took away, for a while. */
static void note_removed(struct sim *s, struct target *t)
{
    for (size_t i = 0; i < t->worlds.count; i++) {
        const struct world *w = &t->worlds.of[i];
        if (w->state == RECORD_DONE) {
            size_t place = t->removed_count++ % SIM_REMOVED_MAX;
            t->removed[place].answer = w->answer;
            t->removed[place].content = w->content;
            t->removed[place].mono_ms = s->now.mono_ms;
        }
    }
}

static bool removed_lately(const struct sim *s, const struct target *t, int answer, int content,
                           bool other_content)
{
    size_t count = t->removed_count < SIM_REMOVED_MAX ? t->removed_count : SIM_REMOVED_MAX;
    for (size_t i = 0; i < count; i++) {
        bool same = other_content ? t->removed[i].content != content
                                  : t->removed[i].answer == answer && t->removed[i].content == content;
        if (same && s->now.mono_ms - t->removed[i].mono_ms <= SIM_REPLAY_LAG) {
            return true;
        }
    }
    return false;
}

/* Does the engine still believe in an execution that is over? With the content, or with another one. */
static bool believes_in(const struct sim *s, const struct call *c, bool other_content)
{
    for (size_t i = 0; i < s->run_count; i++) {
        const struct run *r = &s->runs[i];
        if (r->target == c->target && r->life == c->life && r->elsewhere &&
            (r->content != c->deed.content) == other_content) {
            return true;
        }
    }
    return false;
}

static struct call *unanswered_completion(struct sim *s, const struct call *waiter, int answer)
{
    for (size_t i = s->first_open; i < s->call_count; i++) {
        struct call *c = &s->calls[i];
        if (c->deed.kind == ENGINE_COMPLETE && c->target == waiter->target && c->life == waiter->life &&
            c->deed.answer == answer && c->submitted && c->replies == 0) {
            return c;
        }
    }
    return NULL;
}

static void hear_answer(struct sim *s, struct call *c, struct target *t)
{
    int number = read_answer(c->op.answer);
    struct said said = {.told = TOLD_DONE, .answer = number};
    if (number == NO_ANSWER) {
        sim_fail(s, c->target, "the bytes of an answer that nobody gave");
        return;
    }
    struct call *completion = unanswered_completion(s, c, number);
    if (c->op.verdict == VERDICT_ATTACHED && completion != NULL && completion->deed.kind == ENGINE_COMPLETE &&
        s->runs[completion->run].content == c->deed.content) {
        if (worlds_hear_early(&t->worlds, &completion->deed, s->now.wall_ms)) {
            completion->told_early = true;
            note_worlds(s, t);
            return;
        }
    }
    bool lenient = removed_lately(s, t, number, c->deed.content, false) ||
                   (s->was_set_back && (t->contents_run & 1U << c->deed.content) != 0);
    if (!lenient) {
        expect(s, t, &c->deed, said);
    }
}

static void hear_mismatch(struct sim *s, struct call *c, struct target *t)
{
    bool other_ran = (t->contents_run & ~(1U << c->deed.content)) != 0;
    bool lenient = removed_lately(s, t, 0, c->deed.content, true) || believes_in(s, c, true) ||
                   (s->was_set_back && other_ran);
    if (!lenient) {
        expect(s, t, &c->deed, (struct said){.told = TOLD_MISMATCH});
    }
}

static void hear_in_progress(struct sim *s, struct call *c, struct target *t)
{
    bool ran = (t->contents_run & 1U << c->deed.content) != 0;
    bool lenient = c->wait_ms > 0 || believes_in(s, c, false) || s->was_set_back;
    if (!lenient) {
        expect(s, t, &c->deed, (struct said){.told = TOLD_RUNNING});
    } else if (!ran) {
        sim_fail(s, c->target, "in progress, but nothing with this content ever ran");
    }
}

static void hear_fresh(struct sim *s, struct call *c, struct target *t)
{
    expect(s, t, &c->deed, (struct said){.told = TOLD_APPLIED, .fence = c->op.record.fence});
    t->contents_run |= 1U << c->deed.content;
    if (s->run_count == SIM_RUNS_MAX) {
        return; /* the schedule has stopped asking by then */
    }
    s->runs[s->run_count++] = (struct run){
        .target = c->target,
        .content = c->deed.content,
        .life = c->life,
        .node = c->node,
        .fence = c->op.record.fence,
        .lease_ms = c->deed.lease_ms,
        .answer = oracle_new_answer(s),
    };
}

static void hear_begin(struct sim *s, struct call *c, struct target *t)
{
    switch (c->op.verdict) {
    case VERDICT_FRESH:
        hear_fresh(s, c, t);
        break;
    case VERDICT_REPLAY:
    case VERDICT_ATTACHED:
        hear_answer(s, c, t);
        break;
    case VERDICT_IN_PROGRESS:
        hear_in_progress(s, c, t);
        break;
    case VERDICT_MISMATCH:
        hear_mismatch(s, c, t);
        break;
    case VERDICT_UNKNOWN:
        expect(s, t, &c->deed, (struct said){.told = TOLD_UNKNOWN});
        break;
    }
}

static void hear_settled(struct sim *s, struct call *c, struct target *t)
{
    struct run *r = &s->runs[c->run];
    if (c->deed.kind != ENGINE_EXTEND) {
        r->settled = true;
    }
    /* Also after an EXTEND: it may have made the lease shorter than the engine of the claim believes. */
    r->elsewhere = r->elsewhere || (c->op.code == 0 && c->life != r->life);
    if (c->told_early && c->op.code == 0) {
        if (!worlds_know(&t->worlds, c->deed.answer, s->now.wall_ms)) {
            sim_fail(s, c->target, "completed, but the outcome was known to be another one");
        }
    } else {
        expect(s, t, &c->deed, (struct said){.told = c->op.code == 0 ? TOLD_APPLIED : TOLD_STALE});
    }
}

static void hear_lookup(struct sim *s, struct call *c, struct target *t)
{
    struct said said = {.told = TOLD_APPLIED,
                        .state = c->op.record.state,
                        .fence = c->op.record.fence,
                        .answer = c->op.answer != NULL ? read_answer(c->op.answer) : NO_ANSWER};
    expect(s, t, &c->deed, said);
}

static void hear_success(struct sim *s, struct call *c, struct target *t)
{
    switch (c->deed.kind) {
    case ENGINE_BEGIN:
        hear_begin(s, c, t);
        break;
    case ENGINE_COMPLETE:
    case ENGINE_RELEASE:
    case ENGINE_LOSE:
    case ENGINE_EXTEND:
        hear_settled(s, c, t);
        break;
    case ENGINE_LOOKUP:
        hear_lookup(s, c, t);
        break;
    case ENGINE_FORGET:
        note_removed(s, t);
        expect(s, t, &c->deed, (struct said){.told = TOLD_APPLIED});
        break;
    case ENGINE_RESOLVE:
        expect(s, t, &c->deed, (struct said){.told = TOLD_APPLIED});
        break;
    }
}

static void hear_refusal(struct sim *s, struct call *c, struct target *t)
{
    bool by_hand = c->deed.kind == ENGINE_RESOLVE || c->deed.kind == ENGINE_FORGET;
    bool settles = c->run >= 0;
    if (c->told_early && c->op.code != HAPAX_E_STALE) {
        sim_fail(s, c->target, "a waiter was told the answer of a completion that failed");
    } else if (c->op.code == HAPAX_E_STALE && settles) {
        hear_settled(s, c, t);
    } else if (c->op.code == HAPAX_E_STALE && by_hand) {
        expect(s, t, &c->deed, (struct said){.told = TOLD_STALE});
    } else if (c->op.code == HAPAX_E_NOT_FOUND && (by_hand || c->deed.kind == ENGINE_LOOKUP)) {
        expect(s, t, &c->deed, (struct said){.told = TOLD_ABSENT});
    } else if (c->op.code == HAPAX_E_CONFLICT && by_hand) {
        expect(s, t, &c->deed, (struct said){.told = TOLD_REFUSED});
    } else if (c->op.code == HAPAX_E_TIMEOUT) {
        if (settles) {
            s->runs[c->run].elsewhere = true;
        }
        if (c->deed.kind == ENGINE_FORGET) {
            note_removed(s, t);
        }
        doubt(s, t, &c->deed);
    } else if (c->op.code == HAPAX_E_CLOSED ? s->nodes[c->node].engine != NULL
                                            : c->op.code != HAPAX_E_STORE && c->op.code != HAPAX_E_BUSY) {
        sim_fail(s, c->target, "an unexpected error: %s (%s)", hapax_error_name(c->op.code),
                 c->op.error.message);
    }
}

/* --- answers and their number --- */

static const char *kind_name(enum engine_op_kind k)
{
    static const char *const names[] = {"begin",  "complete", "release", "lose",
                                        "extend", "lookup",   "resolve", "forget"};
    return names[k];
}

static void note_reply(struct sim *s, const struct call *c)
{
    const struct fence f = c->deed.kind == ENGINE_BEGIN ? c->op.record.fence : c->deed.fence;
    sim_note(s, c->target, "node %d answers #%d %s%s%s: %s, fence %llu.%u%s", c->node, c->number,
             kind_name(c->deed.kind),
             c->deed.kind == ENGINE_BEGIN && c->deed.content != 0 ? " (other content)" : "",
             c->deed.kind == ENGINE_BEGIN && c->deed.take_over ? " (may take over)" : "",
             c->op.code != 0                 ? hapax_error_name(c->op.code)
             : c->deed.kind == ENGINE_BEGIN  ? verdict_name(c->op.verdict)
             : c->deed.kind == ENGINE_LOOKUP ? record_state_name(c->op.record.state)
                                             : "done",
             (unsigned long long)f.serial, f.attempt, c->deed.answer != NO_ANSWER ? " with an answer" : "");
}

static void mix(struct sim *s, uint64_t value)
{
    s->digest = (s->digest ^ value) * UINT64_C(0x100000001b3);
    s->digest ^= s->digest >> 29;
}

static void forget_answers(struct call *c)
{
    answer_drop(c->op.answer); /* given by us, or handed to us */
    c->op.answer = NULL;
}

void oracle_reply(struct engine_op *op)
{
    struct call *c = op->user;
    struct sim *s = c->sim;
    if (s->broken == BROKEN_SILENCE && c->deed.kind == ENGINE_LOOKUP) {
        forget_answers(c);
        return;
    }
    c->replies += s->broken == BROKEN_REPLY && c->number % 13 == 12 ? 2 : 1;
    s->answers_heard++;
    if (c->op.code != HAPAX_E_CLOSED) { /* those of a close come in any order */
        mix(s, (uint64_t)c->number << 32 | (uint64_t)(uint32_t)(c->op.code * 8 + (int)c->op.verdict));
        mix(s, (uint64_t)s->now.mono_ms);
    }
    note_reply(s, c);
    if (!sim_failed(s) && !s->given_up) {
        struct target *t = &s->targets[c->target];
        if (c->replies > 1) {
            sim_fail(s, c->target, "#%d is answered %d times", c->number, c->replies);
        } else if (c->op.code == 0) {
            hear_success(s, c, t);
        } else {
            hear_refusal(s, c, t);
        }
    }
    forget_answers(c);
}

void oracle_heartbeat(struct sim *s, int life, const struct store_op *op, int code)
{
    for (size_t i = 0; i < s->target_count && !sim_failed(s) && !s->given_up; i++) {
        struct target *t = &s->targets[i];
        if (!identity_equal(&t->id, &op->id)) {
            continue;
        }
        struct deed d = {.kind = ENGINE_EXTEND,
                         .owner = life,
                         .fence = op->fence,
                         .lease_ms = op->lease_ms,
                         .answer = NO_ANSWER};
        sim_note(s, (int)i, "life %d extends by itself: %s", life,
                 code != 0                     ? hapax_error_name(code)
                 : op->result == STORE_APPLIED ? "done"
                                               : "stale");
        if (code == 0) {
            expect(s, t, &d, (struct said){.told = op->result == STORE_APPLIED ? TOLD_APPLIED : TOLD_STALE});
        } else if (code == HAPAX_E_TIMEOUT) {
            doubt(s, t, &d);
        }
    }
}

/* --- in time, and bounded --- */

static bool of_lane(const struct sim *s, const struct call *c, size_t node, uint32_t lane)
{
    const struct node *n = &s->nodes[node];
    return c->submitted && c->replies == 0 && c->life == n->life &&
           s->targets[c->target].id.bytes[IDENTITY_BYTES - 1] % engine_lane_count(n->engine) == lane;
}

/* A waiter for another process's run polls for its end, at least every LANE_POLL_MS_MAX while the store works (and
 * LANE_POLL_DOWN_MS after it did not). One for
 * its own engine's run has no need to: it hears of the end, or of the end of the lease by the monotonic clock (a wall
 * clock that jumps may have ended it before). */
static bool missed_the_end(const struct sim *s, const struct call *c)
{
    int64_t still = s->targets[c->target].still_mono_ms;
    int64_t trouble = s->nodes[c->node].trouble_mono_ms;
    int64_t since = still > trouble ? still : trouble;
    since = since > c->collected_mono_ms ? since : c->collected_mono_ms;
    for (size_t i = 0; i < s->run_count; i++) {
        const struct run *r = &s->runs[i];
        if (r->target == c->target && r->life == c->life && (!r->settled || r->elsewhere)) {
            return false;
        }
    }
    int64_t pause = trouble + LANE_POLL_DOWN_MS > since + LANE_POLL_MS_MAX
                        ? trouble + LANE_POLL_DOWN_MS - since
                        : LANE_POLL_MS_MAX;
    return still >= 0 && !s->given_up && s->now.mono_ms > since + pause;
}

static void check_counts(struct sim *s, size_t node, const uint32_t waiting[SIM_KEYS_MAX])
{
    struct engine_stats stats;
    engine_stats(s->nodes[node].engine, &stats);
    uint64_t claims_max =
        s->options.in_flight_max > s->options.lanes ? s->options.in_flight_max : s->options.lanes;
    if (stats.waiters > s->options.waiters_max || stats.in_flight > claims_max ||
        stats.queued > s->call_count) {
        sim_fail(s, -1, "node %zu: %llu waiters, %llu claims and %llu queued are beyond its limits", node,
                 (unsigned long long)stats.waiters, (unsigned long long)stats.in_flight,
                 (unsigned long long)stats.queued);
    }
    for (size_t i = 0; i < s->target_count; i++) {
        if (waiting[i] > s->options.waiters_per_key_max) {
            sim_fail(s, (int)i, "%u wait for one key on node %zu", waiting[i], node);
        }
    }
}

void oracle_after_turn(struct sim *s, size_t node, uint32_t lane, bool idle)
{
    uint32_t waiting[SIM_KEYS_MAX] = {0};
    while (s->first_open < s->call_count &&
           (!s->calls[s->first_open].submitted || s->calls[s->first_open].replies > 0)) {
        s->first_open++;
    }
    for (size_t i = s->first_open; i < s->call_count && !sim_failed(s); i++) {
        struct call *c = &s->calls[i];
        if (!of_lane(s, c, node, lane)) {
            continue;
        }
        if (c->collected_mono_ms < 0) {
            c->collected_mono_ms = s->now.mono_ms;
        }
        if (!idle) {
            continue;
        }
        waiting[c->target]++;
        if (c->deed.kind != ENGINE_BEGIN) {
            sim_fail(s, c->target, "#%d %s has no answer", c->number, kind_name(c->deed.kind));
        } else if (c->collected_mono_ms + c->wait_ms <= s->now.mono_ms) {
            sim_fail(s, c->target, "#%d waits longer than the %lld ms that it asked for", c->number,
                     (long long)c->wait_ms);
        } else if (missed_the_end(s, c)) {
            sim_fail(s, c->target, "#%d still waits for an execution that is over", c->number);
        }
    }
    if (idle && !sim_failed(s)) {
        check_counts(s, node, waiting);
    }
}

void oracle_at_end(struct sim *s)
{
    for (size_t i = 0; i < s->call_count && !sim_failed(s); i++) {
        const struct call *c = &s->calls[i];
        if (c->replies != (c->submitted ? 1 : 0)) {
            sim_fail(s, c->target, "#%d %s has %d answers", c->number, kind_name(c->deed.kind), c->replies);
        }
    }
}
