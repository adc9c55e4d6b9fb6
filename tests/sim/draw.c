/* What kind of run a seed is: how often what happens, how long leases, retentions and waits may be, which limits the
 * engines have, and how many keys there are. Extremes are drawn often: a run in which everything is usual finds less
 * than a thousand runs that each lack something or have too much of it. */
#include "sim.h"

#include "base/assert.h"

#include <stdio.h>
#include <string.h>

static unsigned weight(struct sim *s, unsigned usual)
{
    return sim_chance(s, 15) ? 0 : usual / 2 + sim_below(s, usual + 1);
}

static void draw_weights(struct sim *s)
{
    struct sim_weights *w = &s->weights;
    *w = (struct sim_weights){.begin = 15 + sim_below(s, 30),
                              .settle = 5 + sim_below(s, 30),
                              .turn = 5 + sim_below(s, 40),
                              .turn_all = weight(s, 15),
                              .rush = weight(s, 4),
                              .pass = 5 + sim_below(s, 25),
                              .kill = weight(s, 4),
                              .restart = 4 + sim_below(s, 6),
                              .by_hand = weight(s, 6),
                              .lookup = weight(s, 4),
                              .fault = weight(s, 6),
                              .clock = weight(s, 3)};
    s->total_weight = w->begin + w->settle + w->turn + w->turn_all + w->rush + w->pass + w->kill +
                      w->restart + w->by_hand + w->lookup + w->fault + w->clock;
}

static void draw_limits(struct sim *s)
{
    s->take_over_percent = sim_chance(s, 40) ? 0 : sim_chance(s, 30) ? 100 : sim_below(s, 100);
    s->heartbeat_percent = sim_chance(s, 30) ? 0 : sim_below(s, 101);
    s->content_percent = sim_chance(s, 30) ? 0 : sim_below(s, 40);
    s->death_percent = sim_below(s, 101);
    s->forward_percent = sim_chance(s, 60) ? 0 : sim_below(s, 101);
    s->back_percent = sim_chance(s, 80) ? 0 : sim_below(s, 50);
    s->lease_ms_max = sim_chance(s, 30) ? 60 : sim_ms_between(s, 100, 5000);
    s->ttl_ms_max = sim_chance(s, 30) ? 200 : sim_ms_between(s, 1000, 3600000);
    s->wait_ms_max = sim_ms_between(s, 1, 2000);
    s->options = (struct engine_options){
        .lanes = 1 + sim_below(s, SIM_LANES_MAX),
        .queue_ops_max = sim_chance(s, 20) ? 4 + sim_below(s, 8) : 0,
        .waiters_max = 1 + sim_below(s, 12),
        .waiters_per_key_max = 1 + sim_below(s, 6),
        .in_flight_max = sim_chance(s, 30) ? 1 + sim_below(s, 4) : 64,
        .cache_off = sim_chance(s, 25),
        .replay_cache_bytes = sim_chance(s, 20) ? 8192 : 65536,
        .sweep_rows = 1 + sim_below(s, 4),
        .sweep_every_ms = 1 + sim_below(s, 2000),
    };
}

static void make_targets(struct sim *s)
{
    bool one = sim_chance(s, 30);
    size_t tenants = one ? 1 : 1 + sim_below(s, 2);
    size_t keys = one ? 1 : 1 + sim_below(s, SIM_KEYS_MAX / 2);
    s->target_count = tenants * keys;
    for (size_t i = 0; i < s->target_count; i++) {
        struct target *t = &s->targets[i];
        memset(t, 0, offsetof(struct target, worlds));
        snprintf(t->scope, sizeof t->scope, "tenant-%zu", i / keys);
        snprintf(t->key, sizeof t->key, "key-%zu", i % keys);
        HAPAX_ASSERT(identity_make(&t->id, slice_text(t->scope), slice_text(t->key), NULL) == 0);
        worlds_init(&t->worlds, &s->serial_max, sim_known_dead, s);
        t->contents_run = 0;
        t->still_mono_ms = 0;
        t->removed_count = 0;
    }
}

void draw_run(struct sim *s)
{
    draw_weights(s);
    draw_limits(s);
    make_targets(s);
}
