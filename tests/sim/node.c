/* Life and death of a node: an engine without threads, whose store lies behind a shim. The shim is where a crash happens
 * (from then on nothing reaches the store), where the lane's own heartbeats are heard of, and where the store is
 * broken on purpose. */
#include "sim.h"

#include "base/assert.h"
#include "base/error.h"
#include "broken.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct shim *shim_of(struct store *s)
{
    return (struct shim *)s;
}

static int gone(hapax_error *err)
{
    return error_set(err, HAPAX_E_STORE, 0, "this node is dead");
}

static bool is_own(const struct lane *l, const struct store_op *op)
{
    return op >= l->own && op < l->own + LANE_OWN_OPS_MAX;
}

static int shim_apply(struct store *s, struct store_op *const *ops, size_t n, int64_t now_ms,
                      hapax_error *err)
{
    struct shim *m = shim_of(s);
    if (m->dead || m->die_at_next == DIE_BEFORE) {
        m->dead = true;
        return gone(err);
    }
    int code = broken_apply(m->sim->broken, m->inner, ops, n, now_ms, err);
    if (code == 0 && m->die_at_next == DIE_AFTER) {
        m->dead = true;
        for (size_t i = 0; i < n; i++) {
            if (ops[i]->kind == STORE_CLAIM || ops[i]->kind == STORE_LOOKUP) {
                answer_drop(ops[i]->answer);
                ops[i]->answer = NULL;
            }
        }
        code = error_set(err, HAPAX_E_TIMEOUT, 0, "this node died at its commit");
    }
    if (code != 0) {
        m->sim->nodes[m->node].trouble_mono_ms = m->sim->now.mono_ms;
    }
    for (size_t i = 0; i < n; i++) {
        if (ops[i]->kind == STORE_EXTEND && is_own(m->lane, ops[i])) {
            oracle_heartbeat(m->sim, m->life, ops[i], code);
        }
    }
    return code;
}

static int shim_sweep(struct store *s, int64_t now_ms, uint32_t rows_max, uint32_t *removed, hapax_error *err)
{
    struct shim *m = shim_of(s);
    *removed = 0;
    return m->dead ? gone(err) : m->inner->backend->sweep(m->inner, now_ms, rows_max, removed, err);
}

static int shim_abandon(struct store *s, uint64_t owner, int64_t now_ms, uint32_t rows_max, uint32_t *changed,
                        hapax_error *err)
{
    struct shim *m = shim_of(s);
    *changed = 0;
    return m->dead ? gone(err) : m->inner->backend->abandon(m->inner, owner, now_ms, rows_max, changed, err);
}

static int shim_register(struct store *s, const char *text, uint64_t *number, hapax_error *err)
{
    struct shim *m = shim_of(s);
    return m->dead ? gone(err) : m->inner->backend->register_owner(m->inner, text, number, err);
}

static int shim_owners(struct store *s, int (*each)(void *ctx, const struct store_owner *o), void *ctx,
                       hapax_error *err)
{
    struct shim *m = shim_of(s);
    return m->dead ? gone(err) : m->inner->backend->owners(m->inner, each, ctx, err);
}

static int shim_forget_owner(struct store *s, uint64_t owner, hapax_error *err)
{
    struct shim *m = shim_of(s);
    return m->dead ? gone(err) : m->inner->backend->forget_owner(m->inner, owner, err);
}

static int shim_generation(struct store *s, uint64_t *out, hapax_error *err)
{
    struct shim *m = shim_of(s);
    return m->dead ? gone(err) : m->inner->backend->generation(m->inner, out, err);
}

static void shim_close(struct store *s)
{
    struct shim *m = shim_of(s);
    store_close(m->inner);
    free(m);
}

static struct shim *wrap(struct sim *s, struct lane *l, size_t node)
{
    struct shim *m = calloc(1, sizeof *m);
    HAPAX_ASSERT(m != NULL);
    *m = (struct shim){.inner = l->store,
                       .backend = *l->store->backend,
                       .sim = s,
                       .lane = l,
                       .node = node,
                       .life = s->nodes[node].life};
    m->backend.apply = shim_apply;
    m->backend.sweep = shim_sweep;
    m->backend.abandon = shim_abandon;
    m->backend.register_owner = shim_register;
    m->backend.owners = shim_owners;
    m->backend.forget_owner = shim_forget_owner;
    m->backend.generation = shim_generation;
    m->backend.close = shim_close;
    m->store.backend = &m->backend;
    l->store = &m->store;
    return m;
}

/* Seen from the others this engine is on another host: it registers anew under such a text. */
static void move_far_away(struct engine *e)
{
    uint64_t here = engine_lane(e, 0)->owner;
    char *text = engine_lane(e, 0)->shared->owner.text;
    memcpy(text, "host=~", 6); /* the rest may be cut: only that it differs counts */
    hapax_error err;
    for (uint32_t i = 0; i < engine_lane_count(e); i++) {
        HAPAX_ASSERT(lane_register(engine_lane(e, i), &err) == 0);
    }
    struct store *store = engine_lane(e, 0)->store;
    HAPAX_ASSERT(store->backend->forget_owner(store, here, &err) == 0);
}

static struct moment sim_clock(void *ctx)
{
    return ((struct sim *)ctx)->now;
}

static void no_wake(void *ctx)
{
    (void)ctx; /* the port is drained after each turn */
}

bool node_open(struct sim *s, size_t number)
{
    struct node *n = &s->nodes[number];
    HAPAX_ASSERT(n->engine == NULL);
    if (s->life_count == SIM_LIVES_MAX) {
        return false;
    }
    struct engine_options o = s->options;
    o.store_uri = s->store_uri;
    o.now = sim_clock;
    o.now_ctx = s;
    hapax_error err = {0};
    if (engine_open_without_threads(&n->engine, &o, &err) != 0) {
        sim_fail(s, -1, "node %zu can't start: %s", number, err.message);
        return false;
    }
    n->life = (int)s->life_count++;
    n->trouble_mono_ms = s->now.mono_ms;
    s->lives[n->life] = (struct life){.remote = n->remote};
    if (n->remote) {
        move_far_away(n->engine);
    }
    for (uint32_t i = 0; i < engine_lane_count(n->engine); i++) {
        HAPAX_ASSERT(i < SIM_LANES_MAX);
        n->shims[i] = wrap(s, engine_lane(n->engine, i), number);
    }
    engine_port_init(&n->port, no_wake, NULL);
    sim_note(s, -1, "node %zu starts%s", number, n->remote ? ", on a host of its own" : "");
    return true;
}

void node_close(struct sim *s, size_t number, bool crash)
{
    struct node *n = &s->nodes[number];
    sim_note(s, -1, "node %zu %s", number, crash ? "dies" : "stops");
    for (uint32_t i = 0; crash && i < engine_lane_count(n->engine); i++) {
        n->shims[i]->dead = true;
    }
    struct engine *e = n->engine;
    n->engine = NULL; /* nothing is submitted from its last call-backs */
    engine_close(e);
    engine_port_drain(&n->port);
    engine_port_destroy(&n->port);
    s->lives[n->life].over = true;
}

void node_bury(struct sim *s)
{
    for (size_t i = 0; i < s->node_count; i++) {
        struct node *n = &s->nodes[i];
        bool dead = false;
        for (uint32_t l = 0; n->engine != NULL && l < engine_lane_count(n->engine); l++) {
            dead = dead || n->shims[l]->dead;
        }
        if (dead) {
            node_close(s, i, true);
        }
    }
}

bool node_turn(struct sim *s, size_t number, uint32_t lane)
{
    struct node *n = &s->nodes[number];
    int64_t due = lane_turn(engine_lane(n->engine, lane), s->now);
    engine_port_drain(&n->port);
    if (!n->shims[lane]->dead) {
        oracle_after_turn(s, number, lane, due > s->now.mono_ms);
    }
    return due > s->now.mono_ms;
}

void node_set_fault(struct sim *s, size_t number, const struct fault_plan *plan)
{
    struct node *n = &s->nodes[number];
    for (uint32_t i = 0; n->engine != NULL && i < engine_lane_count(n->engine); i++) {
        fault_plan_set(n->shims[i]->inner, plan);
    }
}

bool sim_known_dead(void *ctx, int life)
{
    const struct sim *s = ctx;
    return s->lives[life].over && !s->lives[life].remote;
}
