/* An arena: memory that lives and dies with one request. No free of single pieces, a hard cap.
 *
 * Allocation past the cap, or without memory, returns NULL: the caller answers HAPAX_E_LIMIT or
 * HAPAX_E_MEMORY; arena_error() says which. Memory is aligned for any type and not zeroed unless the
 * name says so. One thread at a time. */
#ifndef BASE_ARENA_H
#define BASE_ARENA_H

#include "base/slice.h"

#include <stddef.h>

struct arena_block;

struct arena {
    struct arena_block *head; /* newest block */
    size_t used_bytes;        /* sum of blocks */
    size_t bytes_max;
    bool over_limit; /* the last failure was the cap, not the system */
};

void arena_init(struct arena *a, size_t bytes_max);
void arena_free(struct arena *a);  /* everything; the arena can be used again */
void arena_reset(struct arena *a); /* everything, but keeps one block for the next request */
void *arena_alloc(struct arena *a, size_t bytes);
void *arena_zalloc(struct arena *a, size_t bytes);
/* NULL when count * size overflows, too. */
void *arena_array(struct arena *a, size_t count, size_t size);
/* Copy bytes; `out->ptr` is followed by a NUL that is not counted. Returns 0 or a code. */
int arena_copy(struct arena *a, struct slice s, struct slice *out);
int arena_error(const struct arena *a); /* HAPAX_E_LIMIT or HAPAX_E_MEMORY */

#endif
