/* A lock-free list that many threads push to and one thread empties: how ops reach a lane and how
 * they come back to a port.
 *
 * Nodes are intrusive. A push is one compare-and-swap of a chain of any length; taking is one exchange that
 * gives everything, in the order pushed (per pushing thread, and overall in the order of the swaps). Nobody ever
 * waits for a thread that was preempted halfway. Since nodes are only ever taken all at once, a node that comes
 * back at the same address (ABA) does no harm.
 *
 * Memory order: all accesses are sequentially consistent, because the lane's sleeping flag pairs with them
 * (see lane_sleep). What a thread wrote before its push is seen by the thread that takes. */
#ifndef ENGINE_QUEUE_H
#define ENGINE_QUEUE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

struct queue_node {
    struct queue_node *next;
};

struct queue {
    _Atomic(struct queue_node *) newest;
};

static inline void queue_init(struct queue *q)
{
    atomic_init(&q->newest, NULL);
}

static inline bool queue_empty(struct queue *q)
{
    return atomic_load(&q->newest) == NULL;
}

/* Push a chain that runs from its newest to its oldest node (one node: both the same). True when the queue
 * was empty before: then it is this thread's business to wake the other side. */
static inline bool queue_push_chain(struct queue *q, struct queue_node *newest, struct queue_node *oldest)
{
    struct queue_node *before = atomic_load_explicit(&q->newest, memory_order_relaxed);
    do {
        oldest->next = before;
    } while (!atomic_compare_exchange_weak(&q->newest, &before, newest));
    return before == NULL;
}

static inline bool queue_push(struct queue *q, struct queue_node *node)
{
    return queue_push_chain(q, node, node);
}

/* Everything, as a chain from the oldest to the newest node; NULL when there is nothing. */
static inline struct queue_node *queue_take(struct queue *q)
{
    if (atomic_load_explicit(&q->newest, memory_order_relaxed) == NULL) {
        return NULL; /* keeps the cache line shared while there is nothing to do */
    }
    struct queue_node *node = atomic_exchange(&q->newest, NULL);
    struct queue_node *oldest_first = NULL;
    while (node != NULL) {
        struct queue_node *older = node->next;
        node->next = oldest_first;
        oldest_first = node;
        node = older;
    }
    return oldest_first;
}

#endif
