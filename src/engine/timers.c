#include "engine/timers.h"

#include "base/assert.h"
#include "hapax/error.h"

#include <stdlib.h>

void timers_init(struct timers *t)
{
    *t = (struct timers){0};
}

void timers_free(struct timers *t)
{
    free(t->heap);
    timers_init(t);
}

int timers_reserve(struct timers *t, size_t more)
{
    if (t->capacity - t->count >= more) {
        return 0;
    }
    size_t capacity = t->capacity == 0 ? 64 : t->capacity;
    while (capacity - t->count < more) {
        capacity *= 2;
    }
    struct timer **heap = realloc(t->heap, capacity * sizeof(*heap));
    if (heap == NULL) {
        return HAPAX_E_MEMORY;
    }
    t->heap = heap;
    t->capacity = capacity;
    return 0;
}

static void put(struct timers *t, size_t place, struct timer *timer)
{
    t->heap[place - 1] = timer;
    timer->place = (uint32_t)place;
}

static void sift_up(struct timers *t, size_t place, struct timer *timer)
{
    while (place > 1 && t->heap[place / 2 - 1]->due_mono_ms > timer->due_mono_ms) {
        put(t, place, t->heap[place / 2 - 1]);
        place /= 2;
    }
    put(t, place, timer);
}

static void sift_down(struct timers *t, size_t place, struct timer *timer)
{
    for (;;) {
        size_t child = place * 2;
        if (child > t->count) {
            break;
        }
        if (child < t->count && t->heap[child]->due_mono_ms < t->heap[child - 1]->due_mono_ms) {
            child++;
        }
        if (t->heap[child - 1]->due_mono_ms >= timer->due_mono_ms) {
            break;
        }
        put(t, place, t->heap[child - 1]);
        place = child;
    }
    put(t, place, timer);
}

void timers_cancel(struct timers *t, struct timer *timer)
{
    if (timer->place == 0) {
        return;
    }
    size_t place = timer->place;
    struct timer *last = t->heap[--t->count];
    timer->place = 0;
    if (last == timer) {
        return;
    }
    /* The last one fills the gap; it may belong above it or below it. */
    if (place > 1 && t->heap[place / 2 - 1]->due_mono_ms > last->due_mono_ms) {
        sift_up(t, place, last);
    } else {
        sift_down(t, place, last);
    }
}

void timers_set(struct timers *t, struct timer *timer, int64_t due_mono_ms)
{
    timers_cancel(t, timer);
    HAPAX_ASSERT(t->count < t->capacity);
    timer->due_mono_ms = due_mono_ms;
    t->count++;
    sift_up(t, t->count, timer);
}

struct timer *timers_due(struct timers *t, int64_t mono_ms)
{
    if (t->count == 0 || t->heap[0]->due_mono_ms > mono_ms) {
        return NULL;
    }
    struct timer *timer = t->heap[0];
    timers_cancel(t, timer);
    return timer;
}

int64_t timers_next(const struct timers *t)
{
    return t->count == 0 ? TIMER_NEVER : t->heap[0]->due_mono_ms;
}
