/* See world.h. effect_of() says what a deed does to one possible record; everything else is about which records are
 * possible. */
#include "world.h"

#include <stdio.h>
#include <string.h>

/* --- one world --- */

struct effect {
    enum told told;
    bool changes;
    struct world next;
};

static struct world claimed(const struct deed *d, struct fence fence, int64_t claimed_ms, int64_t now_ms)
{
    return (struct world){.state = RECORD_RUNNING,
                          .content = d->content,
                          .owner = d->owner,
                          .answer = NO_ANSWER,
                          .fence = fence,
                          .lease_ms = now_ms + d->lease_ms,
                          .claimed_ms = claimed_ms,
                          .ttl_ms = d->ttl_ms};
}

static struct effect begin_on(const struct world *seen, const struct deed *d, int64_t now_ms)
{
    if (seen->state == RECORD_ABSENT) {
        return (struct effect){TOLD_APPLIED, true, claimed(d, (struct fence){0, 1}, now_ms, now_ms)};
    }
    if (seen->content != d->content) {
        return (struct effect){.told = TOLD_MISMATCH};
    }
    if (seen->state == RECORD_RUNNING) {
        return (struct effect){.told = TOLD_RUNNING};
    }
    if (seen->state == RECORD_DONE) {
        return (struct effect){.told = TOLD_DONE};
    }
    if (!d->take_over) {
        return (struct effect){TOLD_UNKNOWN, true, *seen};
    }
    struct fence fence = {seen->fence.serial, seen->fence.attempt + 1};
    return (struct effect){TOLD_APPLIED, true, claimed(d, fence, seen->claimed_ms, now_ms)};
}

static struct effect becomes_done(const struct world *seen, int answer, int64_t ttl_ms, int64_t now_ms)
{
    struct effect e = {TOLD_APPLIED, true, *seen};
    e.next.state = RECORD_DONE;
    e.next.answer = answer;
    e.next.ttl_ms = ttl_ms > 0 ? ttl_ms : seen->ttl_ms;
    e.next.expires_ms = seen->claimed_ms + e.next.ttl_ms;
    if (e.next.expires_ms <= now_ms) {
        e.next.expires_ms = now_ms + e.next.ttl_ms;
    }
    return e;
}

static struct effect settle_on(const struct world *seen, const struct deed *d, int64_t now_ms)
{
    struct effect e = {TOLD_APPLIED, true, *seen};
    if (seen->state != RECORD_RUNNING || !fence_equal(seen->fence, d->fence)) {
        return (struct effect){.told = TOLD_STALE};
    }
    if (d->kind == ENGINE_COMPLETE) {
        return becomes_done(seen, d->answer, d->ttl_ms, now_ms);
    }
    if (d->kind == ENGINE_EXTEND) {
        e.next.lease_ms = now_ms + d->lease_ms;
    } else {
        e.next.state = d->kind == ENGINE_LOSE ? RECORD_UNKNOWN : RECORD_ABSENT;
    }
    return e;
}

static struct effect by_hand_on(const struct world *seen, const struct deed *d, int64_t now_ms)
{
    if (seen->state == RECORD_ABSENT) {
        return (struct effect){.told = TOLD_ABSENT};
    }
    if (d->fence.serial != 0 && !fence_equal(seen->fence, d->fence)) {
        return (struct effect){.told = TOLD_STALE};
    }
    bool allowed = d->kind == ENGINE_FORGET ? seen->state != RECORD_RUNNING : seen->state == RECORD_UNKNOWN;
    if (!allowed) {
        return (struct effect){.told = TOLD_REFUSED};
    }
    if (d->kind == ENGINE_RESOLVE && d->answer != NO_ANSWER) {
        return becomes_done(seen, d->answer, 0, now_ms);
    }
    return (struct effect){TOLD_APPLIED, true, {.state = RECORD_ABSENT}};
}

static struct effect effect_of(const struct world *seen, const struct deed *d, int64_t now_ms)
{
    switch (d->kind) {
    case ENGINE_BEGIN:
        return begin_on(seen, d, now_ms);
    case ENGINE_COMPLETE:
    case ENGINE_RELEASE:
    case ENGINE_LOSE:
    case ENGINE_EXTEND:
        return settle_on(seen, d, now_ms);
    case ENGINE_RESOLVE:
    case ENGINE_FORGET:
        return by_hand_on(seen, d, now_ms);
    case ENGINE_LOOKUP:
        break;
    }
    return (struct effect){.told = seen->state == RECORD_ABSENT ? TOLD_ABSENT : TOLD_APPLIED};
}

/* --- as the clock and the death of owners make it look --- */

/* One or two records that a written one can be seen as at this instant. */
static size_t looks(const struct worlds *all, const struct world *w, int64_t now_ms, struct world out[2])
{
    out[0] = *w;
    if (w->state == RECORD_DONE && now_ms >= w->expires_ms) {
        out[0] = (struct world){.state = RECORD_ABSENT};
    }
    if (w->state != RECORD_RUNNING) {
        return 1;
    }
    if (now_ms >= w->lease_ms) {
        out[0].state = RECORD_UNKNOWN;
        return 1;
    }
    out[1] = *w;
    out[1].state = RECORD_UNKNOWN;
    return all->known_dead(all->ctx, w->owner) ? 2 : 1;
}

/* Does an answer fit this effect? What it tells about the fence goes into `next`. */
static bool fits(const struct worlds *all, const struct world *seen, const struct deed *d,
                 const struct said *s, struct effect *e)
{
    if (s->told != e->told) {
        return false;
    }
    if (e->told == TOLD_DONE) {
        return seen->answer == s->answer;
    }
    if (d->kind == ENGINE_BEGIN && e->told == TOLD_APPLIED) {
        bool anew = seen->state == RECORD_ABSENT;
        bool right = anew                      ? s->fence.serial > *all->serial_max
                     : seen->fence.serial == 0 ? true
                                               : s->fence.serial == seen->fence.serial;
        bool attempt = s->fence.attempt == e->next.fence.attempt;
        e->next.fence = s->fence;
        return right && attempt;
    }
    if (d->kind == ENGINE_LOOKUP && e->told == TOLD_APPLIED) {
        bool same = s->state == seen->state && s->fence.attempt == seen->fence.attempt &&
                    (seen->fence.serial == 0 || seen->fence.serial == s->fence.serial);
        return same && (seen->state != RECORD_DONE || seen->answer == s->answer);
    }
    return true;
}

/* --- all of them --- */

void worlds_init(struct worlds *w, uint64_t *serial_max, bool (*known_dead)(void *ctx, int owner), void *ctx)
{
    *w = (struct worlds){.count = 1, .serial_max = serial_max, .known_dead = known_dead, .ctx = ctx};
    w->of[0] = (struct world){.state = RECORD_ABSENT};
}

static bool same_world(const struct world *a, const struct world *b)
{
    return a->state == b->state &&
           (a->state == RECORD_ABSENT ||
            (a->content == b->content && a->owner == b->owner && a->answer == b->answer &&
             fence_equal(a->fence, b->fence) && a->lease_ms == b->lease_ms &&
             a->claimed_ms == b->claimed_ms && a->ttl_ms == b->ttl_ms && a->expires_ms == b->expires_ms));
}

static void add(struct worlds *w, const struct world *one)
{
    for (size_t i = 0; i < w->count; i++) {
        if (same_world(&w->of[i], one)) {
            return;
        }
    }
    if (w->count == WORLDS_MAX) {
        w->too_many = true;
        return;
    }
    w->of[w->count++] = *one;
}

static bool keep(struct worlds *w, const struct worlds *kept)
{
    if (kept->count > 0) {
        w->count = kept->count;
        w->too_many = w->too_many || kept->too_many;
        memcpy(w->of, kept->of, kept->count * sizeof kept->of[0]);
    }
    return kept->count > 0;
}

static size_t hear(const struct worlds *w, const struct deed *d, const struct said *s, int64_t now_ms,
                   struct worlds *kept)
{
    size_t fitting = 0;
    for (size_t i = 0; i < w->count; i++) {
        struct world seen[2];
        size_t n = looks(w, &w->of[i], now_ms, seen);
        for (size_t j = 0; j < n; j++) {
            struct effect e = effect_of(&seen[j], d, now_ms);
            if (!fits(w, &seen[j], d, s, &e)) {
                continue;
            }
            fitting++;
            if (kept != NULL) {
                /* Nothing was written: the record stays as it was, but that an abandoned one was is known now. */
                struct world stays = j == 1 ? seen[1] : w->of[i];
                if (d->kind == ENGINE_LOOKUP && s->told == TOLD_APPLIED) {
                    stays.fence = s->fence;
                }
                add(kept, e.changes ? &e.next : &stays);
            }
        }
    }
    return fitting;
}

static const char *broken_promise(const struct world *seen, const struct deed *d, const struct said *s)
{
    if (d->kind == ENGINE_BEGIN && s->told == TOLD_APPLIED && seen->state == RECORD_RUNNING) {
        return "a second execution while one runs under a live lease";
    }
    if (d->kind == ENGINE_BEGIN && s->told == TOLD_APPLIED && seen->state == RECORD_DONE) {
        return "an execution although the outcome is known";
    }
    if (d->kind == ENGINE_BEGIN && s->told == TOLD_APPLIED && seen->state == RECORD_UNKNOWN) {
        return "an execution although the outcome is unknown and held, or with a wrong fence";
    }
    if (d->kind == ENGINE_BEGIN && seen->state != RECORD_ABSENT && seen->content != d->content) {
        return "other content was not refused";
    }
    if (s->told == TOLD_DONE && seen->state == RECORD_DONE) {
        return "another answer than the one that is known";
    }
    if (d->kind != ENGINE_BEGIN && d->kind != ENGINE_LOOKUP && s->told == TOLD_APPLIED) {
        return "a change by somebody whose fence or lease does not hold, or of a state that does not allow "
               "it";
    }
    return "an answer that is not true";
}

bool worlds_hear(struct worlds *w, const struct deed *d, const struct said *s, int64_t now_ms, char *why,
                 size_t why_size)
{
    struct worlds kept;
    kept.count = 0;
    kept.too_many = false;
    if (hear(w, d, s, now_ms, &kept) == 0) {
        struct world seen[2];
        looks(w, &w->of[0], now_ms, seen);
        snprintf(why, why_size,
                 "%s: told \"%s\", but the record is %s (serial %llu, attempt %u, content %d, answer %d%s)",
                 broken_promise(&seen[0], d, s), told_name(s->told), record_state_name(seen[0].state),
                 (unsigned long long)seen[0].fence.serial, seen[0].fence.attempt, seen[0].content,
                 seen[0].answer, w->count > 1 ? "; or another possibility that does not fit either" : "");
        return false;
    }
    keep(w, &kept);
    if ((d->kind == ENGINE_BEGIN || d->kind == ENGINE_LOOKUP) && s->told == TOLD_APPLIED &&
        s->fence.serial > *w->serial_max) {
        *w->serial_max = s->fence.serial;
    }
    return true;
}

bool worlds_admit(const struct worlds *w, const struct deed *d, const struct said *s, int64_t now_ms)
{
    return hear(w, d, s, now_ms, NULL) > 0;
}

void worlds_doubt(struct worlds *w, const struct deed *d, int64_t now_ms)
{
    size_t before = w->count;
    for (size_t i = 0; i < before; i++) {
        struct world seen[2];
        size_t n = looks(w, &w->of[i], now_ms, seen);
        for (size_t j = 0; j < n; j++) {
            struct effect e = effect_of(&seen[j], d, now_ms);
            if (e.changes) {
                add(w, &e.next);
            }
        }
    }
}

void worlds_before_set_back(struct worlds *w, int64_t now_ms)
{
    size_t before = w->count;
    for (size_t i = 0; i < before; i++) {
        struct world seen[2];
        looks(w, &w->of[i], now_ms, seen);
        if (seen[0].state != w->of[i].state) {
            add(w, &seen[0]);
        }
    }
}

static bool knows(const struct world *w, int answer, int64_t now_ms)
{
    return w->state == RECORD_DONE && w->answer == answer && now_ms < w->expires_ms;
}

bool worlds_know(struct worlds *w, int answer, int64_t now_ms)
{
    struct worlds kept;
    kept.count = 0;
    kept.too_many = false;
    for (size_t i = 0; i < w->count; i++) {
        if (knows(&w->of[i], answer, now_ms)) {
            add(&kept, &w->of[i]);
        }
    }
    return keep(w, &kept);
}

bool worlds_hear_early(struct worlds *w, const struct deed *complete, int64_t now_ms)
{
    struct said applied = {.told = TOLD_APPLIED, .answer = NO_ANSWER};
    struct worlds kept;
    kept.count = 0;
    kept.too_many = false;
    hear(w, complete, &applied, now_ms, &kept);
    for (size_t i = 0; i < w->count; i++) {
        if (knows(&w->of[i], complete->answer, now_ms)) {
            add(&kept, &w->of[i]);
        }
    }
    return keep(w, &kept);
}

const char *told_name(enum told t)
{
    static const char *const names[] = {
        [TOLD_APPLIED] = "fresh or applied", [TOLD_RUNNING] = "in progress",
        [TOLD_DONE] = "this is the answer",  [TOLD_UNKNOWN] = "outcome unknown",
        [TOLD_MISMATCH] = "mismatch",        [TOLD_STALE] = "stale",
        [TOLD_ABSENT] = "not found",         [TOLD_REFUSED] = "conflict",
    };
    return names[t];
}
