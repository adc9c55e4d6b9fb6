/* What the pure part sees of an HTTP request: borrowed slices, nothing decoded.
 *
 * Header lines stand in the order received, one entry a line; names keep their case and are compared
 * without it. Values are trimmed of white space at both ends. `path` is the raw target path up to,
 * not including, '?', with its percent-escapes; `query` is what follows the '?' (SLICE_NONE without
 * one). `body` is the content after transfer decoding and before content decoding. */
#ifndef CORE_REQUEST_H
#define CORE_REQUEST_H

#include "base/slice.h"

struct header {
    struct slice name;
    struct slice value;
};

struct request {
    struct slice method;
    struct slice path;
    struct slice query;
    const struct header *headers;
    size_t header_count;
    struct slice body;
};

/* The number of lines with this name; the first one's value in *out (untouched when 0). */
size_t request_header(struct slice *out, const struct request *r, struct slice name);

/* Methods that only read, and methods of which twice is as good as once (RFC 9110 sections 9.2.1 and 9.2.2). Case counts. */
bool method_is_safe(struct slice method);
bool method_is_idempotent(struct slice method);

/* A Content-Type's media type without parameters, trimmed; empty slice when there is none. */
struct slice media_type(struct slice content_type);
/* The value of one parameter ("boundary", "charset") of a Content-Type, quotes removed. SLICE_NONE when
 * it is absent, stands there twice, is a quoted string with escapes in it, or any parameter is malformed.
 * RFC 9110 section 8.3.1, but unquoted values may hold any visible ASCII without ; and ". */
struct slice media_parameter(struct slice content_type, struct slice name);
/* application/json, or any type with the suffix +json (RFC 6839). */
bool media_is_json(struct slice media);

#endif
