/* House-keeping of a lane, between batches and in small slices: the store's health and generation, the sweep of
 * expired records, and the claims of owners that have died. At most one slice a turn, so that live operations
 * never wait for more than one. Sweeps and recovery are the first lane's business. */
#include "engine/lane.h"

#include "base/error.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* --- the store's health --- */

/* Claims carry the owner that the store's handle registered last. */
int lane_register(struct lane *l, hapax_error *err)
{
    int code = l->store->backend->register_owner(l->store, l->shared->owner.text, &l->owner, err);
    l->registered = code == 0;
    return code;
}

/* A real write (reading may still work on a full disk): an owner comes and goes. Then the lane registers as itself
 * again; where that fails, the next batch tries it first, or its claims would be those of an owner that is gone. */
static int probe(struct lane *l, hapax_error *err)
{
    const struct store_backend *b = l->store->backend;
    char text[64];
    uint64_t number;
    snprintf(text, sizeof text, "probe token=%016" PRIx64 " lane=%u", l->shared->owner.token, l->number);
    int code = b->register_owner(l->store, text, &number, err);
    if (code != 0) {
        return code; /* and the handle's owner is who it was */
    }
    code = b->forget_owner(l->store, number, err);
    int back = lane_register(l, code == 0 ? err : NULL);
    return code != 0 ? code : back;
}

void lane_store_works(struct lane *l)
{
    if (atomic_load_explicit(&l->down, memory_order_relaxed)) {
        atomic_store(&l->down, false);
    }
}

void lane_store_failed(struct lane *l, int code, const hapax_error *err)
{
    if (code == HAPAX_E_MEMORY) {
        return; /* ours, not the store's */
    }
    hapax_error ignored;
    if (lane_blames_a_record(code) && !atomic_load(&l->down) && probe(l, &ignored) == 0) {
        return; /* not a store that is down */
    }
    pthread_mutex_lock(&l->shared->error_lock);
    l->shared->store_error = *err;
    l->shared->store_error.code = code;
    pthread_mutex_unlock(&l->shared->error_lock);
    l->probe_due_mono_ms = l->now.mono_ms + LANE_PROBE_MS;
    atomic_store(&l->down, true);
}

/* The first probe is due at once, and after it the recovery that engine_open() would have waited for. */
void lane_begin_away(struct lane *l, const hapax_error *why)
{
    if (why->code != 0) {
        pthread_mutex_lock(&l->shared->error_lock);
        l->shared->store_error = *why;
        pthread_mutex_unlock(&l->shared->error_lock);
    }
    l->probe_due_mono_ms = 0;
    atomic_store(&l->down, true);
}

int lane_last_failure(struct lane *l, hapax_error *err)
{
    pthread_mutex_lock(&l->shared->error_lock);
    *err = l->shared->store_error;
    pthread_mutex_unlock(&l->shared->error_lock);
    return err->code;
}

static int64_t keep_trying(struct lane *l)
{
    if (l->now.mono_ms >= l->probe_due_mono_ms) {
        hapax_error err = {0};
        int64_t start_us = l->shared->simulated ? 0 : clock_mono_us();
        int code = probe(l, &err);
        int64_t took_us = l->shared->simulated ? 0 : clock_mono_us() - start_us;
        l->fails_slowly = code != 0 && took_us > LANE_SHUN_US;
        if (code == 0) {
            lane_store_works(l);
            return l->now.mono_ms;
        }
        lane_count(&l->counters.store_errors, 1);
        lane_store_failed(l, code, &err);
    }
    return l->probe_due_mono_ms;
}

void lane_check_generation(struct lane *l)
{
    uint64_t generation = 0;
    hapax_error ignored;
    l->generation_due_mono_ms = l->now.mono_ms + LANE_GENERATION_MS;
    if (l->store->backend->generation(l->store, &generation, &ignored) != 0 || generation != l->generation) {
        replay_cache_clear(&l->cache);
        l->generation = generation;
    }
}

/* --- expired records --- */

static int sweep_slice(struct lane *l, hapax_error *err)
{
    const struct engine_options *o = &l->shared->options;
    uint32_t removed = 0;
    int64_t start_us = l->shared->simulated ? 0 : clock_mono_us();
    int code = l->store->backend->sweep(l->store, l->now.wall_ms, o->sweep_rows, &removed, err);
    int64_t took_us = l->shared->simulated ? 0 : clock_mono_us() - start_us;
    l->sweep_since_mono_ms = l->sweep_full ? l->sweep_since_mono_ms : l->now.mono_ms;
    bool live = l->sweep_ops > 0;
    l->sweep_full = code == 0 ? removed >= o->sweep_rows : l->sweep_full;
    l->sweep_ops = 0;
    int64_t idle_ms = LANE_SWEEP_IDLE * took_us / 1000; /* of a far database each takes a batch's place */
    l->sweep_due_mono_ms = l->now.mono_ms + (idle_ms > o->sweep_every_ms ? idle_ms : o->sweep_every_ms);
    if (code == 0 && removed > 0) { /* there may be more; answers may have been too large for a full slice */
        int64_t rest_ms = LANE_SWEEP_PAUSE * took_us / 1000;
        rest_ms = l->sweep_full || rest_ms > LANE_SWEEP_REST_MS ? rest_ms : LANE_SWEEP_REST_MS;
        l->sweep_due_mono_ms = l->now.mono_ms + (live ? rest_ms : 0);
        lane_count(&l->counters.expired, removed);
    }
    return code;
}

bool lane_sweep_is_due(const struct lane *l)
{
    bool behind = l->sweep_full && l->now.mono_ms - l->sweep_since_mono_ms > LANE_SWEEP_LONG_MS;
    return l->now.mono_ms >= l->sweep_due_mono_ms ||
           (behind && l->sweep_ops >= LANE_SWEEP_OPS(l->shared->options.sweep_rows));
}

/* --- dead owners --- */

static int note_owner(void *ctx, const struct store_owner *o)
{
    struct lane *l = ctx;
    struct recovery *r = &l->recovery;
    if (r->dead_count == LANE_DEAD_MAX) {
        r->more = true;
        return 1;
    }
    if (strcmp(o->text, l->shared->owner.text) == 0) {
        return 0;
    }
    /* A store with a clock of its own has it because it serves many hosts. */
    enum owner_verdict verdict = owner_judge(o->text, !lane_has_store_clock(l));
    if (verdict == OWNER_DEAD) {
        r->dead[r->dead_count++] = o->number;
    } else if (verdict == OWNER_UNSURE && r->unsure_count < LANE_DEAD_MAX &&
               l->now.wall_ms - owner_since_ms(o->text) > LANE_UNSURE_OWNER_MS) {
        r->unsure[r->unsure_count++] = o->number;
    }
    return 0;
}

/* One small step; *more: another is due at once. */
static int recover_slice(struct lane *l, bool *more, hapax_error *err)
{
    struct recovery *r = &l->recovery;
    const struct store_backend *b = l->store->backend;
    uint32_t rows_max = l->shared->options.sweep_rows;
    uint32_t changed = 0;
    int code = 0;
    *more = true;
    if (!r->walked) {
        *r = (struct recovery){.walked = true, .leases = true};
        return b->owners(l->store, note_owner, l, err);
    }
    if (r->dead_count > 0) {
        uint64_t owner = r->dead[r->dead_count - 1];
        code = b->abandon(l->store, owner, l->now.wall_ms, rows_max, &changed, err);
        if (code == 0 && changed < rows_max) {
            code = b->forget_owner(l->store, owner, err);
            code = code == HAPAX_E_CONFLICT ? 0
                                            : code; /* not all is settled yet: the next walk finds it again */
            r->dead_count--;
        }
    } else if (r->leases) {
        code = b->abandon(l->store, 0, l->now.wall_ms, rows_max, &changed, err);
        r->leases = changed == rows_max;
    } else if (r->unsure_count > 0) {
        code = b->forget_owner(l->store, r->unsure[--r->unsure_count], err);
        code = code == HAPAX_E_CONFLICT ? 0 : code; /* it holds something: let it be */
    } else {
        *more = r->more;
        *r = (struct recovery){.due_mono_ms = l->now.mono_ms + (r->more ? 0 : LANE_RECOVER_MS)};
    }
    lane_count(&l->counters.abandoned, changed);
    return code;
}

int lane_recover_all(struct lane *l, hapax_error *err)
{
    bool more = true;
    int code = 0;
    while (code == 0 && more) {
        code = recover_slice(l, &more, err);
    }
    return code;
}

static int recover(struct lane *l, hapax_error *err)
{
    bool more;
    int code = recover_slice(l, &more, err);
    if (code != 0) {
        l->recovery = (struct recovery){.due_mono_ms = l->now.mono_ms + LANE_RECOVER_MS};
    }
    return code;
}

/* --- all of it --- */

int64_t lane_keep_house(struct lane *l)
{
    if (atomic_load_explicit(&l->down, memory_order_relaxed)) {
        return keep_trying(l);
    }
    if (l->number != 0) {
        return TIMER_NEVER;
    }
    hapax_error err = {0};
    int code = 0;
    /* Recovery first: its slices come to an end soon, those of a large sweep need not. */
    if (l->recovery.walked || l->now.mono_ms >= l->recovery.due_mono_ms) {
        code = recover(l, &err);
    } else if (lane_sweep_is_due(l)) {
        code = sweep_slice(l, &err);
    }
    if (code != 0) {
        lane_count(&l->counters.store_errors, 1);
        lane_store_failed(l, code, &err);
        return l->probe_due_mono_ms;
    }
    int64_t recover_due = l->recovery.walked ? l->now.mono_ms : l->recovery.due_mono_ms;
    return l->sweep_due_mono_ms < recover_due ? l->sweep_due_mono_ms : recover_due;
}
