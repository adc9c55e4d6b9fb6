/* An answer: an immutable, reference-counted block that travels between a store, the replay cache,
 * waiters and several loops without being copied.
 *
 * `head` is a block of header lines, "Name: value\r\n" each, in the order received, ready to be sent.
 * For answers of the library's callers it is empty and the body is what they gave. The count is
 * atomic: any thread may take and drop references; nobody writes after answer_make(). */
#ifndef CORE_ANSWER_H
#define CORE_ANSWER_H

#include "base/slice.h"

#include <stdint.h>

struct answer {
    _Atomic(uint32_t) references;
    uint16_t status; /* HTTP status, 0 for the library's callers */
    bool kept;       /* false: a tombstone; the body was not kept */
    uint32_t head_bytes;
    uint64_t body_bytes; /* of the stored body; for a tombstone 0 */
    char data[];         /* head, then body */
};

/* A new answer with one reference, head and body copied. NULL without memory, or when the head is
 * larger than LIMIT_ANSWER_HEAD_BYTES_MAX. */
struct answer *answer_make(uint16_t status, bool kept, struct slice head, struct slice body);
/* The same, with room left for the caller to fill (a store reading rows): data is uninitialised. The
 * lengths may come from outside: one that can't be had is NULL, never an overflow. */
struct answer *answer_alloc(uint16_t status, bool kept, uint32_t head_bytes, uint64_t body_bytes);
struct answer *answer_retain(struct answer *a); /* NULL passes through */
void answer_drop(struct answer *a);             /* NULL is fine */

static inline struct slice answer_head(const struct answer *a)
{
    return (struct slice){a->data, a->head_bytes};
}

static inline struct slice answer_body(const struct answer *a)
{
    return (struct slice){a->data + a->head_bytes, (size_t)a->body_bytes};
}

/* What it costs to keep it in memory. */
static inline size_t answer_memory(const struct answer *a)
{
    return sizeof *a + a->head_bytes + (size_t)a->body_bytes;
}

#endif
