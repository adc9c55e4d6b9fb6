/* multipart/form-data and relatives (RFC 2046 section 5.1, RFC 7578) for identity: the parts, not
 * the boundary, which senders draw anew for every attempt. Pure. */
#ifndef CORE_MULTIPART_H
#define CORE_MULTIPART_H

#include "base/arena.h"
#include "base/buf.h"
#include "core/request.h"
#include "hapax/error.h"

struct multipart_part {
    const struct header *headers; /* in the arena, in order */
    size_t header_count;
    struct slice body; /* borrowed from the text */
};

struct multipart {
    struct multipart_part *parts;
    size_t count;
};

/* Strict about framing: HAPAX_E_SYNTAX without a closing delimiter, with a line that only begins like a
 * delimiter, a malformed or folded part header, line ends other than CR LF, or an empty or over-long
 * boundary; HAPAX_E_LIMIT beyond LIMIT_MULTIPART_PARTS_MAX parts or LIMIT_HEADERS_MAX headers of one
 * part, or of the arena; HAPAX_E_MEMORY. Preamble and epilogue are skipped; a closing delimiter at the
 * very start is a body of no parts. Parts inside parts stay bytes. On error *out is untouched. */
int multipart_parse(struct multipart *out, struct arena *arena, struct slice text, struct slice boundary,
                    hapax_error *err);

/* Append a canonical form: for each part in order its Content-Disposition and Content-Type (names
 * lower-case, values as they are, other headers left out) and its body, all length-prefixed. As buf_append(); on
 * error out is as it was. */
int multipart_canonical(struct buf *out, const struct multipart *m);

#endif
