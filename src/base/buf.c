#include "base/buf.h"

#include "base/assert.h"
#include "hapax/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum { BUF_BYTES_MIN = 64 };

void buf_init(struct buf *b, size_t len_max)
{
    *b = (struct buf){.len_max = len_max};
}

void buf_init_on(struct buf *b, char *storage, size_t size)
{
    *b = (struct buf){.ptr = storage, .cap = size, .len_max = size};
}

void buf_free(struct buf *b)
{
    free(b->ptr);
    buf_init(b, b->len_max);
}

void buf_clear(struct buf *b)
{
    b->len = 0;
}

int buf_reserve(struct buf *b, size_t more)
{
    if (more > b->len_max - b->len) {
        return HAPAX_E_LIMIT;
    }
    size_t need = b->len + more;
    if (need <= b->cap) {
        return 0;
    }
    size_t cap = b->cap < BUF_BYTES_MIN ? BUF_BYTES_MIN : b->cap;
    while (cap < need) {
        cap = cap > SIZE_MAX / 2 ? need : cap * 2;
    }
    cap = cap > b->len_max ? b->len_max : cap;
    char *grown = realloc(b->ptr, cap);
    if (grown == NULL) {
        return HAPAX_E_MEMORY;
    }
    b->ptr = grown;
    b->cap = cap;
    return 0;
}

int buf_append(struct buf *b, const void *ptr, size_t len)
{
    if (len == 0) {
        return 0;
    }
    int rc = buf_reserve(b, len);
    if (rc != 0) {
        return rc;
    }
    memcpy(b->ptr + b->len, ptr, len);
    b->len += len;
    return 0;
}

int buf_append_slice(struct buf *b, struct slice s)
{
    return buf_append(b, s.ptr, s.len);
}

int buf_append_text(struct buf *b, const char *text)
{
    return buf_append(b, text, strlen(text));
}

int buf_append_byte(struct buf *b, char c)
{
    return buf_append(b, &c, 1);
}

int buf_append_u64(struct buf *b, uint64_t value)
{
    char digits[20];
    size_t at = sizeof digits;
    do {
        digits[--at] = (char)('0' + value % 10);
        value /= 10;
    } while (value > 0);
    return buf_append(b, digits + at, sizeof digits - at);
}

int buf_printf(struct buf *b, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (n < 0) {
        return HAPAX_E_ARGUMENT;
    }
    /* One byte more for the NUL that vsnprintf writes; it may not count against the maximum. */
    size_t len = (size_t)n;
    if (len > b->len_max - b->len) {
        return HAPAX_E_LIMIT;
    }
    char small[256];
    char *text = len < sizeof small ? small : malloc(len + 1);
    if (text == NULL) {
        return HAPAX_E_MEMORY;
    }
    va_start(args, format);
    vsnprintf(text, len + 1, format, args);
    va_end(args);
    int rc = buf_append(b, text, len);
    if (text != small) {
        free(text);
    }
    return rc;
}

void buf_consume(struct buf *b, size_t len)
{
    HAPAX_ASSERT(len <= b->len);
    b->len -= len;
    if (b->len > 0) {
        memmove(b->ptr, b->ptr + len, b->len);
    }
}
