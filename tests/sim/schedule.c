/* What happens next. Everything random comes from the seed, through sim_random(). */
#include "sim.h"

#include "base/assert.h"
#include "base/error.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define WALL_START_MS  INT64_C(1800000000000)
#define TURNS_MAX      200 /* of one lane at one instant; more is a loop without end */
#define DOUBTFUL_MAX   6   /* possible records of a target, before another answer is lost on purpose */
#define LAST_TURNS_MAX 20000

/* --- chance --- */

uint64_t sim_random(struct sim *s)
{
    uint64_t z = (s->random += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

unsigned sim_below(struct sim *s, unsigned n)
{
    return (unsigned)(sim_random(s) % n);
}

bool sim_chance(struct sim *s, unsigned percent)
{
    return sim_below(s, 100) < percent;
}

int64_t sim_ms_between(struct sim *s, int64_t least, int64_t most)
{
    return least + (int64_t)(sim_random(s) % (uint64_t)(most - least + 1));
}

/* --- the trace --- */

void sim_note(struct sim *s, int target, const char *format, ...)
{
    if (!s->trace || (target >= 0 && s->trace_target >= 0 && target != s->trace_target)) {
        return;
    }
    va_list list;
    va_start(list, format);
    printf("  %8" PRId64 " ms  ", s->now.wall_ms - WALL_START_MS);
    if (target >= 0) {
        printf("%s/%s  ", s->targets[target].scope, s->targets[target].key);
    }
    vprintf(format, list);
    printf("\n");
    va_end(list);
}

void sim_fail(struct sim *s, int target, const char *format, ...)
{
    if (sim_failed(s)) {
        return;
    }
    va_list list;
    va_start(list, format);
    vsnprintf(s->why, sizeof s->why, format, list);
    va_end(list);
    s->failed_target = target;
    sim_note(s, target, "BROKEN: %s", s->why);
}

/* --- calls --- */

static struct call *new_call(struct sim *s, enum engine_op_kind kind, int target, size_t node)
{
    if (s->call_count == SIM_CALLS_MAX || s->run_count == SIM_RUNS_MAX) {
        return NULL;
    }
    struct call *c = &s->calls[s->call_count];
    struct target *t = &s->targets[target];
    struct node *n = &s->nodes[node];
    *c = (struct call){.sim = s,
                       .number = (int)s->call_count++,
                       .target = target,
                       .node = (int)node,
                       .life = n->life,
                       .run = -1,
                       .collected_mono_ms = -1};
    c->deed = (struct deed){.kind = kind, .owner = n->life, .answer = NO_ANSWER};
    c->op = (struct engine_op){.port = n->has_port ? &n->port : NULL,
                               .done = oracle_reply,
                               .user = c,
                               .kind = kind,
                               .id = t->id,
                               .scope = slice_text(t->scope),
                               .key = slice_text(t->key)};
    return c;
}

static void submit(struct sim *s, struct call *c)
{
    struct engine_op *op = &c->op;
    op->take_over = c->deed.take_over;
    op->fence = c->deed.fence;
    op->lease_ms = c->deed.lease_ms;
    op->ttl_ms = c->deed.ttl_ms;
    op->wait_ms = s->broken == BROKEN_WAIT ? c->wait_ms * 3 : c->wait_ms;
    op->fingerprint = (struct fingerprint){.version = FINGERPRINT_VERSION};
    op->fingerprint.bytes[0] = (uint8_t)c->deed.content;
    op->answer = c->deed.answer != NO_ANSWER ? oracle_make_answer(c->deed.answer) : NULL;
    c->submitted = true;
    int code = engine_submit(s->nodes[c->node].engine, op);
    if (code == 0) {
        return;
    }
    c->submitted = false;
    answer_drop(op->answer);
    op->answer = NULL;
    bool settles = op->kind == ENGINE_COMPLETE || op->kind == ENGINE_RELEASE || op->kind == ENGINE_LOSE;
    if (code != HAPAX_E_BUSY || settles) {
        sim_fail(s, c->target, "a submit is refused: %s", hapax_error_name(code));
    }
}

static bool pick_node(struct sim *s, size_t *out)
{
    size_t start = sim_below(s, (unsigned)s->node_count);
    for (size_t i = 0; i < s->node_count; i++) {
        *out = (start + i) % s->node_count;
        if (s->nodes[*out].engine != NULL) {
            return true;
        }
    }
    return false;
}

static void ask(struct sim *s, size_t node, int target, int content, int64_t wait_ms, bool take_over)
{
    struct call *c = new_call(s, ENGINE_BEGIN, target, node);
    if (c == NULL) {
        return;
    }
    c->wait_ms = wait_ms;
    c->deed.content = content;
    c->deed.take_over = take_over;
    c->deed.lease_ms = sim_ms_between(s, 5, s->lease_ms_max);
    c->deed.ttl_ms = sim_ms_between(s, 20, s->ttl_ms_max);
    c->op.heartbeat = sim_chance(s, s->heartbeat_percent);
    sim_note(s, target, "#%d asks node %zu: begin%s%s, waits %lld ms", c->number, node,
             content != 0 ? " (other content)" : "", take_over ? " (may take over)" : "", (long long)wait_ms);
    submit(s, c);
}

static void do_begin(struct sim *s)
{
    size_t node;
    if (!pick_node(s, &node)) {
        return;
    }
    int target = (int)sim_below(s, (unsigned)s->target_count);
    unsigned copies = sim_chance(s, 15) ? 2 + sim_below(s, 3) : 1;
    for (unsigned i = 0; i < copies; i++) {
        int content = sim_chance(s, s->content_percent) ? 1 : 0;
        int64_t wait_ms = sim_chance(s, 40) ? 0 : sim_ms_between(s, 1, s->wait_ms_max);
        ask(s, node, target, content, wait_ms, sim_chance(s, s->take_over_percent));
    }
}

/* The execution comes to its end, or is reported once more, or too late; by its node or by another one. */
static void do_settle(struct sim *s)
{
    size_t node;
    if (s->run_count == 0 || !pick_node(s, &node)) {
        return;
    }
    unsigned recent = s->run_count < 8 || sim_chance(s, 20) ? (unsigned)s->run_count : 8;
    size_t number = s->run_count - 1 - sim_below(s, recent);
    struct run *r = &s->runs[number];
    if (s->nodes[r->node].engine != NULL && !sim_chance(s, 10)) {
        node = (size_t)r->node;
    }
    enum engine_op_kind kind = r->want;
    if (!r->settled && sim_chance(s, 25)) {
        kind = ENGINE_EXTEND;
    } else if (!r->decided || sim_chance(s, 10)) {
        unsigned lot = sim_below(s, 10);
        kind = lot < 6 ? ENGINE_COMPLETE : lot < 8 ? ENGINE_RELEASE : ENGINE_LOSE;
        r->want = kind;
        r->decided = true;
    }
    struct call *c = new_call(s, kind, r->target, node);
    if (c == NULL) {
        return;
    }
    c->run = (int)number;
    c->deed.content = r->content;
    c->deed.fence = r->fence;
    c->deed.lease_ms = kind == ENGINE_EXTEND ? sim_ms_between(s, 5, s->lease_ms_max) : 0;
    if (kind == ENGINE_COMPLETE) {
        c->deed.answer = sim_chance(s, 10) ? oracle_new_answer(s) : r->answer;
        c->deed.ttl_ms = sim_chance(s, 50) ? 0 : sim_ms_between(s, 20, s->ttl_ms_max);
    }
    sim_note(s, r->target, "#%d asks node %zu to %s fence %" PRIu64 ".%u", c->number, node,
             kind == ENGINE_COMPLETE  ? "complete"
             : kind == ENGINE_RELEASE ? "release"
             : kind == ENGINE_LOSE    ? "lose"
                                      : "extend",
             r->fence.serial, r->fence.attempt);
    submit(s, c);
}

static void do_by_hand(struct sim *s, bool lookup)
{
    size_t node;
    if (!pick_node(s, &node)) {
        return;
    }
    int target = (int)sim_below(s, (unsigned)s->target_count);
    enum engine_op_kind kind = lookup ? ENGINE_LOOKUP : sim_chance(s, 60) ? ENGINE_RESOLVE : ENGINE_FORGET;
    struct call *c = new_call(s, kind, target, node);
    if (c == NULL) {
        return;
    }
    if (kind == ENGINE_RESOLVE && sim_chance(s, 50)) {
        c->deed.answer = oracle_new_answer(s);
    }
    if (!lookup && s->run_count > 0 && sim_chance(s, 40)) {
        const struct run *r =
            &s->runs[s->run_count - 1 - sim_below(s, s->run_count < 6 ? (unsigned)s->run_count : 6)];
        c->deed.fence = r->target == target ? r->fence : (struct fence){0};
    }
    sim_note(s, target, "#%d asks node %zu: %s by hand", c->number, node,
             lookup                        ? "look up"
             : kind == ENGINE_FORGET       ? "forget"
             : c->deed.answer != NO_ANSWER ? "resolve as done"
                                           : "resolve as released");
    submit(s, c);
}

/* --- turns --- */

static void do_turn(struct sim *s, size_t node)
{
    if (s->nodes[node].engine != NULL) {
        node_turn(s, node, sim_below(s, engine_lane_count(s->nodes[node].engine)));
        node_bury(s);
    }
}

/* Until every lane of the node has nothing to do at this instant. */
static void turn_until_idle(struct sim *s, size_t node)
{
    struct node *n = &s->nodes[node];
    for (uint32_t l = 0; n->engine != NULL && l < engine_lane_count(n->engine); l++) {
        for (int turns = 0; n->engine != NULL; turns++) {
            bool idle = node_turn(s, node, l);
            node_bury(s);
            if (idle || sim_failed(s)) {
                break;
            }
            if (turns == TURNS_MAX) {
                sim_fail(s, -1, "a lane of node %zu is never done", node);
                return;
            }
        }
    }
}

/* Much happens on one node before any other one looks again. */
static void do_rush(struct sim *s, size_t node)
{
    unsigned times = 2 + sim_below(s, 6);
    for (unsigned i = 0; i < times && s->nodes[node].engine != NULL && !sim_failed(s); i++) {
        if (sim_chance(s, 50)) {
            int target = (int)sim_below(s, (unsigned)s->target_count);
            ask(s, node, target, sim_chance(s, 30) ? 1 : 0, 0, sim_chance(s, s->take_over_percent));
        } else {
            do_settle(s);
        }
        turn_until_idle(s, node);
    }
}

static void pass(struct sim *s, int64_t ms)
{
    s->now.mono_ms += ms;
    s->now.wall_ms += ms;
}

static void do_pass(struct sim *s)
{
    switch (sim_below(s, 8)) {
    case 0:
    case 1:
    case 2:
        pass(s, sim_ms_between(s, 1, 20));
        break;
    case 3:
    case 4:
        pass(s, sim_ms_between(s, 20, 400));
        break;
    case 5: /* about when a lease ends */
        pass(s, sim_ms_between(s, 1, s->lease_ms_max + 1));
        break;
    case 6:
        pass(s, sim_ms_between(s, 250, 1500));
        break;
    default: /* the walk over dead owners, and retentions */
        pass(s, sim_chance(s, 50) ? LANE_RECOVER_MS : sim_ms_between(s, 1, s->ttl_ms_max));
        break;
    }
}

static void do_clock(struct sim *s)
{
    if (sim_chance(s, s->back_percent)) {
        for (size_t i = 0; i < s->target_count; i++) {
            worlds_before_set_back(&s->targets[i].worlds, s->now.wall_ms);
        }
        s->now.wall_ms -= sim_ms_between(s, 1, 3000);
        s->was_set_back = true;
        sim_note(s, -1, "the wall clock is set back");
    } else if (sim_chance(s, s->forward_percent)) {
        s->now.wall_ms += sim_ms_between(s, 1, 3000);
        sim_note(s, -1, "the wall clock jumps ahead");
    }
}

/* --- trouble --- */

/* Lost answers multiply what is possible: not too many at one time. */
static bool clear_enough(const struct sim *s)
{
    for (size_t i = 0; i < s->target_count; i++) {
        if (s->targets[i].worlds.count > DOUBTFUL_MAX) {
            return false;
        }
    }
    return true;
}

static void do_fault(struct sim *s)
{
    size_t node;
    if (!pick_node(s, &node)) {
        return;
    }
    struct fault_plan plan = {0};
    const char *what = "works again";
    switch (sim_below(s, 6)) {
    case 0:
        plan.fail_at = 1 + sim_below(s, 2);
        what = "fails once";
        break;
    case 1:
        plan = (struct fault_plan){.fail_at = 1, .after = true, .code = HAPAX_E_TIMEOUT};
        what = "commits, and does not say so";
        break;
    case 2:
        plan = (struct fault_plan){.fail_at = 1, .code = HAPAX_E_TIMEOUT};
        what = "does not commit, and does not say so";
        break;
    case 3:
        plan.fail_every = 1;
        what = "is down";
        break;
    default:
        break;
    }
    if (plan.code != HAPAX_E_TIMEOUT || clear_enough(s)) {
        node_set_fault(s, node, &plan);
        sim_note(s, -1, "the store of node %zu %s", node, what);
    }
}

static void do_kill(struct sim *s)
{
    size_t node;
    if (!pick_node(s, &node) || !sim_chance(s, s->death_percent) || !clear_enough(s)) {
        return;
    }
    struct node *n = &s->nodes[node];
    switch (sim_below(s, 4)) {
    case 0:
        node_close(s, node, false);
        break;
    case 1:
        node_close(s, node, true);
        break;
    case 2:
        n->shims[sim_below(s, engine_lane_count(n->engine))]->die_at_next = DIE_BEFORE;
        break;
    default:
        n->shims[sim_below(s, engine_lane_count(n->engine))]->die_at_next = DIE_AFTER;
        break;
    }
}

static void do_restart(struct sim *s)
{
    size_t node = sim_below(s, (unsigned)s->node_count);
    if (s->nodes[node].engine == NULL) {
        node_open(s, node);
    }
}

/* --- a run --- */

static void begin_run(struct sim *s, uint64_t seed, enum sim_broken broken, bool trace, int trace_target)
{
    memset(s, 0, offsetof(struct sim, calls)); /* the calls are reset as they are used */
    s->call_count = s->first_open = s->doubts = 0;
    s->answer_count = 0;
    s->answers_heard = 0;
    s->failed_target = -1;
    s->given_up = false;
    s->why[0] = '\0';
    s->seed = s->random = seed;
    s->digest = UINT64_C(0xcbf29ce484222325);
    s->broken = broken;
    s->trace = trace;
    s->trace_target = trace_target;
    s->now = (struct moment){.wall_ms = WALL_START_MS, .mono_ms = 1000};
    draw_run(s);
    snprintf(s->store_uri, sizeof s->store_uri, "fault::memory:sim");
    hapax_error err;
    HAPAX_ASSERT(store_open(&s->anchor, "memory:sim", NULL, &err) == 0);
    s->node_count = 1 + sim_below(s, SIM_NODES_MAX);
    for (size_t i = 0; i < s->node_count; i++) {
        s->nodes[i].remote = sim_chance(s, 30);
        s->nodes[i].has_port = sim_chance(s, 50);
        node_open(s, i);
    }
}

static bool takes(unsigned *lot, unsigned weight_of_it)
{
    bool hit = *lot < weight_of_it;
    *lot -= weight_of_it;
    return hit;
}

static void step(struct sim *s)
{
    const struct sim_weights *w = &s->weights;
    unsigned lot = sim_below(s, s->total_weight);
    size_t node = sim_below(s, (unsigned)s->node_count);
    if (takes(&lot, w->begin)) {
        do_begin(s);
    } else if (takes(&lot, w->settle)) {
        do_settle(s);
    } else if (takes(&lot, w->turn)) {
        do_turn(s, node);
    } else if (takes(&lot, w->turn_all)) {
        turn_until_idle(s, node);
    } else if (takes(&lot, w->rush)) {
        do_rush(s, node);
    } else if (takes(&lot, w->pass)) {
        do_pass(s);
    } else if (takes(&lot, w->kill)) {
        do_kill(s);
    } else if (takes(&lot, w->restart)) {
        do_restart(s);
    } else if (takes(&lot, w->by_hand)) {
        do_by_hand(s, false);
    } else if (takes(&lot, w->lookup)) {
        do_by_hand(s, true);
    } else if (takes(&lot, w->fault)) {
        do_fault(s);
    } else {
        do_clock(s);
    }
}

static bool all_answered(const struct sim *s)
{
    for (size_t i = s->first_open; i < s->call_count; i++) {
        if (s->calls[i].submitted && s->calls[i].replies == 0) {
            return false;
        }
    }
    return true;
}

/* Everybody gets an answer, without any more trouble, within the longest wait. */
static void let_finish(struct sim *s)
{
    for (int i = 0; i < LAST_TURNS_MAX && !sim_failed(s); i++) {
        for (size_t n = 0; n < s->node_count; n++) {
            turn_until_idle(s, n);
        }
        if (all_answered(s)) {
            return;
        }
        pass(s, 50);
    }
    sim_fail(s, -1, "somebody never gets an answer");
}

static void last_questions(struct sim *s)
{
    for (size_t n = 0; n < s->node_count && !sim_failed(s); n++) {
        for (size_t t = 0; t < s->target_count; t++) {
            ask(s, n, (int)t, 0, 0, false);
        }
        turn_until_idle(s, n);
    }
}

static void end_run(struct sim *s)
{
    for (size_t n = 0; n < s->node_count && !sim_failed(s); n++) {
        node_set_fault(s, n, &(struct fault_plan){0});
        for (uint32_t l = 0; s->nodes[n].engine != NULL && l < engine_lane_count(s->nodes[n].engine); l++) {
            s->nodes[n].shims[l]->die_at_next = DIE_NEVER;
        }
        if (s->nodes[n].engine == NULL) {
            node_open(s, n);
        }
    }
    if (!sim_failed(s)) {
        sim_note(s, -1, "no more trouble");
        let_finish(s);
        pass(s, SIM_REPLAY_LAG + 1);
        last_questions(s);
        let_finish(s);
    }
    for (size_t n = 0; n < s->node_count; n++) {
        if (s->nodes[n].engine != NULL) {
            node_close(s, n, false);
        }
    }
    oracle_at_end(s);
    store_close(s->anchor);
    s->anchor = NULL;
}

static void give_result(const struct sim *s, struct sim_result *out)
{
    *out = (struct sim_result){.failed = sim_failed(s),
                               .given_up = s->given_up,
                               .failed_target = s->failed_target,
                               .digest = s->digest,
                               .calls = s->answers_heard,
                               .runs = s->run_count,
                               .doubts = s->doubts,
                               .lives = s->life_count};
    for (size_t i = 0; i < s->call_count; i++) {
        const struct call *c = &s->calls[i];
        if (c->deed.kind == ENGINE_BEGIN && c->replies == 1 && c->op.code == 0) {
            out->told[c->op.verdict]++;
        }
    }
    memcpy(out->why, s->why, sizeof out->why);
}

void sim_run(struct sim *s, uint64_t seed, enum sim_broken broken, bool trace, int trace_target,
             struct sim_result *out)
{
    begin_run(s, seed, broken, trace, trace_target);
    unsigned steps = 20 + sim_below(s, 280);
    for (unsigned i = 0; i < steps && !sim_failed(s) && !s->given_up; i++) {
        step(s);
    }
    end_run(s);
    give_result(s, out);
}
