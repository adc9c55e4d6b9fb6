/* Public structs that may grow: their first member `size` says which version the caller was compiled with. */
#ifndef BASE_SIZED_H
#define BASE_SIZED_H

#include "hapax/error.h"

#include <stddef.h>

/* Copy a caller's struct of `in_size` bytes into ours of `size`: a shorter one has zeroes at its end, a longer one must
 * not ask for what this version doesn't know. 0 or HAPAX_E_ARGUMENT; *out is zeroed then. */
int sized_take(void *out, size_t size, const void *in, size_t in_size, hapax_error *err);

#endif
