/* Answers: one allocation each, freed with the last reference. Nothing is written after the answer
 * has been made, so readers need no lock; the count alone is atomic. */
#include "core/answer.h"

#include "base/assert.h"
#include "base/limits.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>

struct answer *answer_alloc(uint16_t status, bool kept, uint32_t head_bytes, uint64_t body_bytes)
{
    /* The lengths may come from a damaged row: too large is a failed allocation, not an overflow. */
    if (head_bytes > LIMIT_ANSWER_HEAD_BYTES_MAX ||
        body_bytes > (uint64_t)(PTRDIFF_MAX - sizeof(struct answer)) - head_bytes) {
        return NULL;
    }
    struct answer *a = malloc(sizeof *a + head_bytes + (size_t)body_bytes);
    if (a == NULL) {
        return NULL;
    }
    atomic_init(&a->references, 1);
    a->status = status;
    a->kept = kept;
    a->head_bytes = head_bytes;
    a->body_bytes = body_bytes;
    return a;
}

struct answer *answer_make(uint16_t status, bool kept, struct slice head, struct slice body)
{
    if (head.len > LIMIT_ANSWER_HEAD_BYTES_MAX) {
        return NULL;
    }
    struct answer *a = answer_alloc(status, kept, (uint32_t)head.len, body.len);
    if (a == NULL) {
        return NULL;
    }
    if (head.len > 0) {
        memcpy(a->data, head.ptr, head.len);
    }
    if (body.len > 0) {
        memcpy(a->data + head.len, body.ptr, body.len);
    }
    return a;
}

struct answer *answer_retain(struct answer *a)
{
    if (a != NULL) {
        uint32_t before = atomic_fetch_add_explicit(&a->references, 1, memory_order_relaxed);
        HAPAX_ASSERT(before > 0 && before < UINT32_MAX);
    }
    return a;
}

void answer_drop(struct answer *a)
{
    if (a == NULL) {
        return;
    }
    /* Release what this thread read, acquire what the others did: free() must come after all of it. */
    uint32_t before = atomic_fetch_sub_explicit(&a->references, 1, memory_order_acq_rel);
    HAPAX_ASSERT(before > 0);
    if (before == 1) {
        free(a);
    }
}
