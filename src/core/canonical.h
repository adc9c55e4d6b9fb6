/* The canonical form of a JSON document: equal documents give equal bytes, different ones different
 * bytes. This project's own rule, version 1 (not RFC 8785, which loses integers beyond 2^53):
 *
 *   - members sorted by the bytes of their decoded names (UTF-8), array order kept, no white space;
 *   - strings in the one form of json_quote(), not restricted to ASCII, no Unicode normalisation;
 *   - numbers by exact decimal value: 1, 1.0 and 1e0 are `1`; 100 and 1e2 are `1e2`; -0 is `0`; the
 *     form is [-]digits[e[-]exponent] with no trailing zero in digits and no exponent when it is 0. An
 *     exponent of over 18 digits (zeros at its front not counted, and unless the value is zero) or a
 *     number of over LIMIT_NUMBER_DIGITS_MAX characters: HAPAX_E_LIMIT.
 *
 * Nodes that an ignore pointer names are left out (a member with its name; an array element shifts
 * nothing: it is written as the token `~`, which no document contains).
 *
 * Results: 0, HAPAX_E_LIMIT (numbers as above, the buffer, the arena), HAPAX_E_MEMORY. After an error
 * out holds what it held before. The arena gives 24 bytes a member and the text of escaped strings. Pure. */
#ifndef CORE_CANONICAL_H
#define CORE_CANONICAL_H

#include "core/json.h"

/* Append the form of the whole document. `ignore` holds `ignore_count` checked pointers; one that
 * names nothing has no effect; "" leaves out everything (writes `~`). */
int canonical_json(struct buf *out, const struct json *j, const struct slice *ignore, size_t ignore_count,
                   struct arena *arena, hapax_error *err);

/* Append the form of one node and what is inside it; nothing ignored. */
int canonical_json_node(struct buf *out, const struct json *j, uint32_t node, struct arena *arena,
                        hapax_error *err);

#endif
