#include "base/arena.h"

#include "base/assert.h"
#include "hapax/error.h"

#include <stdalign.h>
#include <stdint.h>
#include <stdlib.h>

enum { ARENA_BLOCK_BYTES = 4096 };

struct arena_block {
    struct arena_block *next;
    size_t used;
    size_t size;
    alignas(max_align_t) char data[];
};

void arena_init(struct arena *a, size_t bytes_max)
{
    *a = (struct arena){.bytes_max = bytes_max};
}

void arena_free(struct arena *a)
{
    for (struct arena_block *b = a->head; b != NULL;) {
        struct arena_block *next = b->next;
        free(b);
        b = next;
    }
    arena_init(a, a->bytes_max);
}

void arena_reset(struct arena *a)
{
    struct arena_block *keep = NULL;
    for (struct arena_block *b = a->head; b != NULL;) {
        struct arena_block *next = b->next;
        if (next == NULL && b->size <= ARENA_BLOCK_BYTES) {
            keep = b;
        } else {
            free(b);
        }
        b = next;
    }
    arena_init(a, a->bytes_max);
    if (keep != NULL) {
        keep->used = 0;
        keep->next = NULL;
        a->head = keep;
        a->used_bytes = keep->size;
    }
}

static struct arena_block *block_new(struct arena *a, size_t bytes)
{
    size_t size = bytes > ARENA_BLOCK_BYTES ? bytes : ARENA_BLOCK_BYTES;
    if (size > a->bytes_max - a->used_bytes) {
        size = bytes; /* the last block may be a small one */
    }
    a->over_limit = bytes > a->bytes_max - a->used_bytes || size > SIZE_MAX - sizeof(struct arena_block);
    if (a->over_limit) {
        return NULL;
    }
    struct arena_block *b = malloc(sizeof *b + size);
    if (b == NULL) {
        return NULL;
    }
    *b = (struct arena_block){.next = a->head, .size = size};
    a->head = b;
    a->used_bytes += size;
    return b;
}

void *arena_alloc(struct arena *a, size_t bytes)
{
    const size_t align = alignof(max_align_t);
    if (bytes > SIZE_MAX - align) {
        a->over_limit = true;
        return NULL;
    }
    bytes = (bytes + align - 1) / align * align;
    struct arena_block *b = a->head;
    if (b == NULL || bytes > b->size - b->used) {
        b = block_new(a, bytes);
        if (b == NULL) {
            return NULL;
        }
    }
    void *p = b->data + b->used;
    b->used += bytes;
    return p;
}

void *arena_zalloc(struct arena *a, size_t bytes)
{
    void *p = arena_alloc(a, bytes);
    return p == NULL ? NULL : memset(p, 0, bytes);
}

void *arena_array(struct arena *a, size_t count, size_t size)
{
    if (size > 0 && count > SIZE_MAX / size) {
        a->over_limit = true;
        return NULL;
    }
    return arena_alloc(a, count * size);
}

int arena_copy(struct arena *a, struct slice s, struct slice *out)
{
    char *copy = s.len == SIZE_MAX ? NULL : arena_alloc(a, s.len + 1);
    if (copy == NULL) {
        return arena_error(a);
    }
    if (s.len > 0) {
        memcpy(copy, s.ptr, s.len);
    }
    copy[s.len] = '\0';
    *out = (struct slice){copy, s.len};
    return 0;
}

int arena_error(const struct arena *a)
{
    return a->over_limit ? HAPAX_E_LIMIT : HAPAX_E_MEMORY;
}
