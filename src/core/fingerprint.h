/* The fingerprint: a digest of what was asked for. Computed once per request and carried along. Those of
 * different algorithm versions, modes or ignore lists differ: where a route's rule is changed, a retry of
 * what was asked for before the change is a mismatch until that record's ttl is over.
 *
 * What goes in, each part tagged and length-prefixed: the algorithm version and mode; then, but for
 * mode NONE, method, path, query (AUTO: as a sorted set of pairs; BYTES: raw), media type (lower
 * case, without parameters) and the body by mode:
 *   AUTO   after content decoding: JSON canonically (media_is_json), urlencoded as pairs, multipart
 *          by parts, anything else by its bytes; an empty body of any type is the empty body; a body
 *          under a coding that nobody here knows: its bytes and the Content-Encoding;
 *   BYTES  the body as received;
 *   FIELDS only the values that `pointers` name in a JSON body (canonically; an absent one is told
 *          apart from null; an empty body has none); method, path, query and media type as in AUTO;
 *   NONE   nothing: every request with the key matches.
 * `ignore` (AUTO only) leaves out JSON pointers, or form and multipart fields named "/name" (""
 * leaves out all of them).
 *
 * A body that is not what its media type says (JSON that does not parse or is declared in another
 * charset than UTF-8, a bad escape, a multipart type without boundary) is HAPAX_E_SYNTAX: it has no
 * one reading. So are several Content-Type lines that differ, but in BYTES and NONE. Pure. */
#ifndef CORE_FINGERPRINT_H
#define CORE_FINGERPRINT_H

#include "base/arena.h"
#include "core/json.h"
#include "core/request.h"
#include "hapax/error.h"

#include <stdint.h>

#define FINGERPRINT_BYTES   16
#define FINGERPRINT_VERSION 1

enum fingerprint_mode { FINGERPRINT_AUTO, FINGERPRINT_BYTES_MODE, FINGERPRINT_FIELDS, FINGERPRINT_NONE };

struct fingerprint {
    uint8_t version; /* FINGERPRINT_VERSION of the code that made it; 0: there is none */
    uint8_t bytes[FINGERPRINT_BYTES];
};

struct fingerprint_rule {
    enum fingerprint_mode mode;
    const struct slice *pointers; /* FIELDS: what counts */
    size_t pointer_count;
    const struct slice *ignore; /* AUTO: what does not */
    size_t ignore_count;
};

/* The body of a request, parsed at most once and shared by key sources and fingerprint. Fill with
 * content_init(); the parts are made on first use and live in the arena, the decoded body too: its
 * cap has to leave room for decoded_bytes_max and the nodes of a JSON document. Failures are
 * remembered as well. */
struct content {
    const struct request *request; /* borrowed */
    struct arena *arena;           /* borrowed */
    size_t decoded_bytes_max;      /* limit of content decoding */
    struct slice type;             /* Content-Type as received, SLICE_NONE without one */
    struct slice media;            /* its media type */
    struct slice decoded;          /* valid once decoded_state is CONTENT_READY */
    struct json json;              /* valid once json_state is CONTENT_READY */
    enum content_state { CONTENT_UNTRIED, CONTENT_READY, CONTENT_BAD } decoded_state, json_state;
    hapax_error error; /* of the BAD one */
};

void content_init(struct content *c, const struct request *r, struct arena *arena, size_t decoded_bytes_max);
/* The body after content decoding (borrows the request when it was not coded). */
int content_decoded(struct slice *out, struct content *c, hapax_error *err);
/* The body as JSON. HAPAX_E_SYNTAX when it is not JSON, whatever its media type. */
int content_json(const struct json **out, struct content *c, hapax_error *err);

/* Make the fingerprint of the content's request. On error *out is untouched.
 * Returns 0, or as content_*(): HAPAX_E_SYNTAX, HAPAX_E_LIMIT, HAPAX_E_UNSUPPORTED, HAPAX_E_MEMORY. */
int fingerprint_make(struct fingerprint *out, const struct fingerprint_rule *rule, struct content *c,
                     hapax_error *err);

bool fingerprint_equal(const struct fingerprint *a, const struct fingerprint *b);
/* Was something else asked for? Never where one side has no fingerprint (version 0). */
bool fingerprint_mismatch(const struct fingerprint *a, const struct fingerprint *b);

#endif
