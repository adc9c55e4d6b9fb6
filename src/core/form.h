/* application/x-www-form-urlencoded: pairs, decoded; used for query strings too.
 * '+' and %20 are a blank; a bad escape ("%zz", "%4") is HAPAX_E_SYNTAX (WHATWG would keep it as it
 * stands; two readings of one body are what an identity must not have). Empty pieces between '&' are
 * dropped. Names may repeat and keep their order. Pure. */
#ifndef CORE_FORM_H
#define CORE_FORM_H

#include "base/arena.h"
#include "base/buf.h"
#include "hapax/error.h"

struct form_pair {
    struct slice name;  /* decoded; borrows the text or the arena */
    struct slice value; /* "" when there is no '=' */
};

struct form {
    struct form_pair *pairs; /* in the arena, in the order of the text */
    size_t count;
};

/* At most LIMIT_FORM_PAIRS_MAX pairs, else HAPAX_E_LIMIT. SLICE_NONE gives no pairs. */
int form_parse(struct form *out, struct arena *arena, struct slice text, hapax_error *err);

/* The number of pairs of this name; the first one's value in *out. */
size_t form_find(struct slice *out, const struct form *f, struct slice name);

/* Append a canonical form: length-prefixed pairs, sorted by name; values of one name keep their order. Used
 * for bodies and for the query as a set. Sorts f->pairs in place (stable). */
int form_canonical(struct buf *out, struct form *f);

#endif
