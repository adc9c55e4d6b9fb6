/* The replay cache of one lane: answers of done records, so that a duplicate costs no store access.
 *
 * Bounded by bytes, the least recently used goes first; an answer of more than an eighth of the cache is not kept
 * at all. An entry carries the whole record, so that a mismatch is seen on a hit, too. An entry past its time is
 * no hit; that time is of the clock that the caller chose for the whole cache. Whether the store has changed behind the cache (an operator's resolve or forget in any process) is the
 * lane's business: it clears the cache when the store's generation changes. One thread. */
#ifndef ENGINE_REPLAY_CACHE_H
#define ENGINE_REPLAY_CACHE_H

#include "core/answer.h"
#include "core/record.h"
#include "engine/identity_table.h"

#include <stdbool.h>

struct replay {
    struct identity_node node;
    struct replay *newer; /* in the order of use */
    struct replay *older;
    size_t bytes;
    int64_t until_ms;
    struct record record;
    struct answer *answer; /* the cache's own reference */
};

struct replay_cache {
    struct identity_table table;
    struct replay *newest;
    struct replay *oldest;
    size_t bytes;
    size_t bytes_max; /* 0: keeps nothing */
};

int replay_cache_init(struct replay_cache *c, size_t bytes_max); /* 0 or HAPAX_E_MEMORY */
void replay_cache_free(struct replay_cache *c);
/* The entry, now the most recently used one; NULL when there is none or its time is over. Borrowed until the next
 * change of the cache. */
const struct replay *replay_cache_find(struct replay_cache *c, const struct identity *id, int64_t now_ms);
/* Keep a done record's answer (takes a reference of its own) until then in place of what is there. Too large, or no memory: not kept. */
void replay_cache_put(struct replay_cache *c, const struct identity *id, const struct record *record,
                      struct answer *answer, int64_t until_ms);
void replay_cache_remove(struct replay_cache *c, const struct identity *id); /* no error when there is none */
void replay_cache_clear(struct replay_cache *c);

#endif
