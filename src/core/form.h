/* application/x-www-form-urlencoded: pairs, decoded; used for query strings too.
 * '+' and %20 are a blank; a bad escape ("%zz", "%4") is HAPAX_E_SYNTAX (WHATWG would keep it as it
 * stands; two readings of one body are what an identity must not have). Empty pieces between '&' are
 * dropped. Names may repeat and keep their order. Pure. */
#ifndef CORE_FORM_H
#define CORE_FORM_H

#include "base/arena.h"
#include "base/buf.h"
#include "hapax/error.h"

#include <stdint.h>

struct form_pair {
    struct slice name;  /* decoded; borrows the text or the arena */
    struct slice value; /* "" when there is no '=' */
    uint32_t position;  /* in the text, from 0: what keeps the sort stable */
};

struct form {
    struct form_pair *pairs; /* in the arena, in the order of the text */
    size_t count;
};

/* At most LIMIT_FORM_PAIRS_MAX pairs, else HAPAX_E_LIMIT. SLICE_NONE gives no pairs. "=x" has an empty
 * name, "a" and "a=" are equal, "a[b]" is just a name. Decoded bytes need not be UTF-8. 0,
 * HAPAX_E_SYNTAX, HAPAX_E_LIMIT or HAPAX_E_MEMORY; after an error *out is untouched. */
int form_parse(struct form *out, struct arena *arena, struct slice text, hapax_error *err);

/* The number of pairs of this name; the first one's value in *out (untouched when 0). */
size_t form_find(struct slice *out, const struct form *f, struct slice name);

/* Append a canonical form: length-prefixed pairs, sorted by name; values of one name keep their order.
 * Used for bodies and for the query as a set. Sorts f->pairs in place (stable by position: a caller
 * that takes pairs out leaves the positions of the others as they are). 0 or as buf_append(); after an
 * error out holds what it held before. */
int form_canonical(struct buf *out, struct form *f);

#endif
