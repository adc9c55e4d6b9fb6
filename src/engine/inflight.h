/* The table of running identities of one lane, with those who wait for them.
 *
 * An entry of kind OURS stands for a claim that this process holds and that, to its knowledge, still counts; there
 * is at most one entry an identity. One of kind FOREIGN stands for a run of somebody else (another process, or a
 * claim this process lost sight of) that local callers wait for: it is polled in the store, once for all of them,
 * and lives no longer than its waiters. One of kind CLAIMING lives within one turn: a claim is in the batch, and the
 * ops of the same identity that come after it wait to be decided by what the store says to that one. The table decides nothing about who may run: the store does.
 *
 * Entries come from a pool, so that a batch can reserve them before it is applied: a claim that is durable always
 * finds its entry. One thread. */
#ifndef ENGINE_INFLIGHT_H
#define ENGINE_INFLIGHT_H

#include "core/record.h"
#include "engine/engine.h"
#include "engine/identity_table.h"
#include "engine/timers.h"

enum inflight_kind { INFLIGHT_OURS, INFLIGHT_FOREIGN, INFLIGHT_CLAIMING };

struct inflight {
    struct identity_node node; /* in the pool, only node.next is used */
    enum inflight_kind kind;
    struct record record;    /* as the store last told it */
    struct timer timer;      /* OURS: next heartbeat or end of lease; FOREIGN: next poll */
    struct engine_op *first; /* waiters, the oldest first */
    struct engine_op *last;
    uint32_t waiter_count;
    char *names; /* OURS: scope and key, owned; NULL: not remembered */
    uint32_t scope_bytes;
    uint32_t key_bytes;
    bool heartbeat;              /* OURS */
    int64_t lease_ms;            /* OURS: the duration a heartbeat asks for */
    int64_t lease_until_mono_ms; /* OURS: the claim does not count from here on */
    int64_t poll_ms;             /* FOREIGN: the current pause between two polls */
};

struct inflight_block;

struct inflight_table {
    struct identity_table table;
    struct identity_node *pool; /* free entries */
    size_t pool_count;
    struct inflight_block *blocks; /* all memory, for the end */
    size_t ours_count;
};

int inflight_init(struct inflight_table *t);  /* 0 or HAPAX_E_MEMORY */
void inflight_free(struct inflight_table *t); /* all entries; nobody waits by then */

/* Make sure that the pool holds at least `count` entries. 0 or HAPAX_E_MEMORY. */
int inflight_reserve(struct inflight_table *t, size_t count);
struct inflight *inflight_find(const struct inflight_table *t, const struct identity *id);
/* Take an entry from the pool (reserved by the caller) and add it; the identity has none. */
struct inflight *inflight_add(struct inflight_table *t, const struct identity *id, enum inflight_kind kind,
                              const struct record *record);
/* Let the entry remember what its record is called. Without memory it does not: nothing depends on it. */
void inflight_name(struct inflight *entry, struct slice scope, struct slice key);
/* Remove an entry without waiters and without a timer. */
void inflight_remove(struct inflight_table *t, struct inflight *entry);

void inflight_append_waiter(struct inflight *entry, struct engine_op *op);
void inflight_unlink_waiter(struct engine_op *op);
/* Any op that waits in a bucket from *bucket on, which is moved there; NULL when nobody does. */
struct engine_op *inflight_next_waiter(const struct inflight_table *t, size_t *bucket);

#endif
