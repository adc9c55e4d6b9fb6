/* Identity: (scope, key) and its digest, the primary key of a record.
 *
 * A scope is text that people can read: "ROUTE METHOD PATH TENANT", separated by one blank. None of the
 * parts can hold a blank (a tenant's are percent-escaped), so one text is one list of parts. The
 * library's callers may use any scope text of their own. Pure. */
#ifndef CORE_IDENTITY_H
#define CORE_IDENTITY_H

#include "base/buf.h"
#include "hapax/error.h"

#include <stdint.h>

#define IDENTITY_BYTES 16

struct identity {
    uint8_t bytes[IDENTITY_BYTES];
};

/* The first 16 bytes of SHA-256 over the length-prefixed parts. HAPAX_E_MISSING when scope or key is
 * empty, HAPAX_E_LIMIT past LIMIT_SCOPE_BYTES_MAX or LIMIT_KEY_BYTES_MAX, HAPAX_E_SYNTAX when a key
 * holds anything but printable ASCII or a scope a control character. */
int identity_make(struct identity *out, struct slice scope, struct slice key, hapax_error *err);

/* Append the scope of a gateway request. An empty tenant is written as "-"; in others '%', blanks,
 * controls, bytes beyond ASCII and a lone "-" are percent-escaped. Bytes beyond ASCII in the path are
 * escaped too, so that the scope is ASCII when the route's name is.
 * HAPAX_E_MISSING: route, method or path is empty; HAPAX_E_SYNTAX: one of them holds a blank or a
 * control character; HAPAX_E_LIMIT: tenant over LIMIT_TENANT_BYTES_MAX, scope over
 * LIMIT_SCOPE_BYTES_MAX or over what `out` may hold; HAPAX_E_MEMORY. On error out is as it was. */
int scope_make(struct buf *out, struct slice route, struct slice method, struct slice path,
               struct slice tenant);

/* A credential as a tenant: the first 16 hex digits of its SHA-256, after "~"; the credential itself is stored
 * nowhere. out holds TENANT_DIGEST_TEXT bytes. 0, or HAPAX_E_MEMORY. */
#define TENANT_DIGEST_TEXT 18
int tenant_digest(char out[TENANT_DIGEST_TEXT], struct slice credential);

static inline bool identity_equal(const struct identity *a, const struct identity *b)
{
    return memcmp(a->bytes, b->bytes, IDENTITY_BYTES) == 0;
}

#endif
