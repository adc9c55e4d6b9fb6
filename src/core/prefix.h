/* Length-prefixed parts in a buffer: 8 bytes big endian, then the bytes. What every form that is
 * hashed is made of, so that no two lists of parts give one run of bytes. */
#ifndef CORE_PREFIX_H
#define CORE_PREFIX_H

#include "base/buf.h"

#include <stdint.h>

enum { PREFIX_BYTES = 8 };

static inline void prefix_put(char *at, uint64_t value)
{
    for (int i = PREFIX_BYTES - 1; i >= 0; i--) {
        at[i] = (char)(value & 0xff);
        value >>= 8;
    }
}

static inline int prefix_append_u64(struct buf *b, uint64_t value)
{
    char prefix[PREFIX_BYTES];
    prefix_put(prefix, value);
    return buf_append(b, prefix, sizeof prefix);
}

static inline int prefix_append(struct buf *b, struct slice part)
{
    int rc = prefix_append_u64(b, part.len);
    return rc != 0 ? rc : buf_append_slice(b, part);
}

/* A part whose length is known only once it has been appended: begin, append, end. */
static inline int prefix_begin(struct buf *b, size_t *at)
{
    *at = b->len;
    return prefix_append_u64(b, 0);
}

static inline void prefix_end(struct buf *b, size_t at)
{
    prefix_put(b->ptr + at, b->len - at - PREFIX_BYTES);
}

#endif
