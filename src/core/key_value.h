/* What a valid key value looks like: the checks shared by all sources. For core/key*.c only; others
 * use core/key.h. */
#ifndef CORE_KEY_VALUE_H
#define CORE_KEY_VALUE_H

#include "base/slice.h"
#include "hapax/error.h"

/* Where a value came from, in the words of an error message. Never holds the value. */
struct key_place {
    const char *what;  /* "the key", "the key part json:" */
    struct slice name; /* of the source, after `what`; cut when it is long */
};

int key_refuse(hapax_error *err, int code, const struct key_place *place, const char *why);

/* Not blank and not an obvious placeholder: what any text from a client has to be. */
int key_check_meaning(struct slice text, const struct key_place *place, hapax_error *err);
/* A whole key: the above, printable ASCII only, at most LIMIT_KEY_BYTES_MAX bytes. */
int key_check(struct slice text, const struct key_place *place, hapax_error *err);

bool key_is_printable(struct slice text);

#endif
