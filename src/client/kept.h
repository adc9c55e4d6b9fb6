/* An answer as a store keeps it: bytes that people can read with `hapax keys show --body`.
 *
 *     hapax-call/1 201 whole\r\n        or "cut": the body was too long to be kept
 *     8e03978e-40d5-43dd-bc93-...\r\n   the key
 *     Content-Type: text/plain\r\n      the answer's header lines
 *     \r\n
 *     the body
 *
 * What a store gives back was written by others, perhaps: reading it never trusts it. Pure. */
#ifndef CLIENT_KEPT_H
#define CLIENT_KEPT_H

#include "base/arena.h"
#include "base/buf.h"
#include "core/request.h"
#include "hapax/error.h"

struct kept {
    int status;
    bool cut;
    struct slice key;
    const struct header *headers;
    size_t header_count;
    struct slice body;
};

int kept_write(struct buf *out, const struct kept *k); /* as buf_append() */
/* Borrows the text, but for the headers, which are the arena's. HAPAX_E_SYNTAX: it is none; HAPAX_E_LIMIT, HAPAX_E_MEMORY. */
int kept_read(struct kept *out, struct slice text, struct arena *arena);

#endif
