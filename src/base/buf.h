/* A growing byte buffer that owns its memory and knows its maximum from birth.
 *
 * An append that would pass the maximum fails with HAPAX_E_LIMIT, one without memory with
 * HAPAX_E_MEMORY; both leave the content as it was. After a failure the buffer stays usable.
 * One thread at a time. */
#ifndef BASE_BUF_H
#define BASE_BUF_H

#include "base/slice.h"

#include <stddef.h>
#include <stdint.h>

struct buf {
    char *ptr;      /* owned; NULL while nothing was ever appended */
    size_t len;     /* bytes in use */
    size_t cap;     /* bytes allocated */
    size_t len_max; /* upper bound of len, given at birth */
};

void buf_init(struct buf *b, size_t len_max);
/* On storage of the caller's that it never outgrows: an append can only fail with HAPAX_E_LIMIT. Never freed. */
void buf_init_on(struct buf *b, char *storage, size_t size);
void buf_free(struct buf *b);                /* also resets to an empty buffer of the same maximum */
void buf_clear(struct buf *b);               /* keeps the memory */
int buf_reserve(struct buf *b, size_t more); /* room for `more` bytes after len */
int buf_append(struct buf *b, const void *ptr, size_t len);
int buf_append_slice(struct buf *b, struct slice s);
int buf_append_text(struct buf *b, const char *text);
int buf_append_byte(struct buf *b, char c);
int buf_append_u64(struct buf *b, uint64_t value); /* decimal */
int buf_printf(struct buf *b, const char *format, ...) __attribute__((format(printf, 2, 3)));
void buf_consume(struct buf *b, size_t len); /* drop bytes at the front; len <= b->len */

static inline struct slice buf_slice(const struct buf *b)
{
    return (struct slice){b->ptr != NULL ? b->ptr : "", b->len};
}

#endif
