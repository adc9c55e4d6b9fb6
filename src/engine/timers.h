/* Timers of one lane: a binary heap of intrusive nodes, the earliest on top. Adding and removing cost the
 * logarithm of their number, so that tens of thousands of waiters are cheap. Two timers of one instant fire in
 * any order. One thread. */
#ifndef ENGINE_TIMERS_H
#define ENGINE_TIMERS_H

#include <stddef.h>
#include <stdint.h>

enum timer_kind { TIMER_WAITER, TIMER_INFLIGHT };

struct timer {
    int64_t due_mono_ms;
    uint32_t place; /* in the heap, from 1; 0: not set */
    enum timer_kind kind;
};

struct timers {
    struct timer **heap;
    size_t count;
    size_t capacity;
};

#define TIMER_NEVER INT64_MAX

void timers_init(struct timers *t);
void timers_free(struct timers *t);
/* Make room, so that `more` timers_set() of timers that are not set can't fail. 0 or HAPAX_E_MEMORY. */
int timers_reserve(struct timers *t, size_t more);
/* Set a timer, or move one that is set. Room must have been reserved for a new one. */
void timers_set(struct timers *t, struct timer *timer, int64_t due_mono_ms);
void timers_cancel(struct timers *t, struct timer *timer); /* no error when it is not set */
/* Take out the earliest timer that is due; NULL when none is. */
struct timer *timers_due(struct timers *t, int64_t mono_ms);
int64_t timers_next(const struct timers *t); /* TIMER_NEVER without any */

#endif
