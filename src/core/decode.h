/* Content decoding (RFC 9110 section 8.4) with a hard limit on what comes out, behind zlib and
 * brotli. A bomb costs at most the limit (of stacked codings twice that), and the decoder's own window
 * while it runs: 32 KiB for zlib, up to 16 MiB for brotli. Pure. */
#ifndef CORE_DECODE_H
#define CORE_DECODE_H

#include "base/buf.h"
#include "hapax/error.h"

/* Undo the codings that a Content-Encoding value lists ("gzip", "x-gzip", "deflate" with or without
 * the zlib wrapper, "br", "identity", several separated by commas: the last is undone first).
 * `out` is replaced and limited by its own len_max. When nothing has to be undone (also: when the body
 * is empty), *coded is false and out is empty: use the input. Codings are compared without case, empty
 * list items skipped. After an error out is empty and *coded false.
 * Returns 0, HAPAX_E_LIMIT (larger than out may hold, or over LIMIT_CONTENT_CODINGS_MAX codings),
 * HAPAX_E_SYNTAX (damaged, cut short, bytes left over), HAPAX_E_UNSUPPORTED (another coding),
 * HAPAX_E_MEMORY. */
int decode_content(struct buf *out, bool *coded, struct slice content_encoding, struct slice body,
                   hapax_error *err);

#endif
