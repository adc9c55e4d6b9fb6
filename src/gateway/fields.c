#include "gateway/fields.h"

#include "hapax/error.h"

#include <stddef.h>

#define SLICE_INIT(text)                                                                                     \
    {                                                                                                        \
        text, sizeof(text) - 1                                                                               \
    }

struct field {
    struct slice name;
    enum field_class request;
    enum field_class answer;
};

/* Ordered by length, then as it reads: a look-up compares only names of its own length. */
static const struct field fields[] = {
    {SLICE_INIT("Te"), FIELD_HOP, FIELD_HOP},
    {SLICE_INIT("Date"), FIELD_PLAIN, FIELD_HOP}, /* the server writes its own */
    {SLICE_INIT("Host"), FIELD_REWRITTEN, FIELD_PLAIN},
    {SLICE_INIT("Expect"), FIELD_HOP, FIELD_PLAIN},
    {SLICE_INIT("Trailer"), FIELD_HOP, FIELD_HOP},
    {SLICE_INIT("Upgrade"), FIELD_HOP, FIELD_HOP},
    {SLICE_INIT("Hapax-TTL"), FIELD_OURS, FIELD_OURS},
    {SLICE_INIT("Connection"), FIELD_HOP, FIELD_HOP},
    {SLICE_INIT("Keep-Alive"), FIELD_HOP, FIELD_HOP},
    {SLICE_INIT("Set-Cookie"), FIELD_PLAIN, FIELD_SET_COOKIE},
    {SLICE_INIT("Set-Cookie2"), FIELD_PLAIN, FIELD_SET_COOKIE},
    {SLICE_INIT("Retry-After"), FIELD_PLAIN, FIELD_NOT_KEPT},
    {SLICE_INIT("Hapax-Outcome"), FIELD_OURS, FIELD_OURS},
    {SLICE_INIT("Content-Length"), FIELD_HOP, FIELD_HOP},
    {SLICE_INIT("X-Forwarded-For"), FIELD_REWRITTEN, FIELD_PLAIN},
    {SLICE_INIT("X-RateLimit-Used"), FIELD_PLAIN, FIELD_NOT_KEPT},
    {SLICE_INIT("Proxy-Connection"), FIELD_HOP, FIELD_HOP},
    {SLICE_INIT("WWW-Authenticate"), FIELD_PLAIN, FIELD_NOT_KEPT},
    {SLICE_INIT("X-Forwarded-Host"), FIELD_REWRITTEN, FIELD_PLAIN},
    {SLICE_INIT("X-RateLimit-Limit"), FIELD_PLAIN, FIELD_NOT_KEPT},
    {SLICE_INIT("X-RateLimit-Reset"), FIELD_PLAIN, FIELD_NOT_KEPT},
    {SLICE_INIT("Transfer-Encoding"), FIELD_HOP, FIELD_HOP},
    {SLICE_INIT("X-Forwarded-Proto"), FIELD_REWRITTEN, FIELD_PLAIN},
    {SLICE_INIT("Idempotency-Status"), FIELD_OURS, FIELD_OURS},
    {SLICE_INIT("Proxy-Authenticate"), FIELD_HOP, FIELD_HOP},
    {SLICE_INIT("Proxy-Authorization"), FIELD_HOP, FIELD_HOP},
    {SLICE_INIT("Authentication-Info"), FIELD_PLAIN, FIELD_NOT_KEPT},
    {SLICE_INIT("Idempotent-Replayed"), FIELD_OURS, FIELD_OURS},
    {SLICE_INIT("Idempotency-Attempt"), FIELD_OURS, FIELD_OURS},
    {SLICE_INIT("Idempotency-Expires"), FIELD_OURS, FIELD_OURS},
    {SLICE_INIT("X-RateLimit-Resource"), FIELD_PLAIN, FIELD_NOT_KEPT},
    {SLICE_INIT("X-RateLimit-Remaining"), FIELD_PLAIN, FIELD_NOT_KEPT},
};

/* Whole families that are not kept: CORS answers, and the rate-limit fields of the IETF draft. */
static const struct slice families_not_kept[] = {
    SLICE_INIT("Access-Control-"),
    SLICE_INIT("RateLimit"),
};

enum field_class field_class(struct slice name, enum field_direction direction)
{
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        if (slice_equal_nocase(name, fields[i].name)) {
            return direction == FIELD_REQUEST ? fields[i].request : fields[i].answer;
        }
    }
    if (direction == FIELD_ANSWER) {
        for (size_t i = 0; i < sizeof families_not_kept / sizeof families_not_kept[0]; i++) {
            struct slice family = families_not_kept[i];
            if (name.len >= family.len && slice_equal_nocase((struct slice){name.ptr, family.len}, family)) {
                return FIELD_NOT_KEPT;
            }
        }
    }
    return FIELD_PLAIN;
}

static int list(struct listed_fields *out, struct slice rest)
{
    while (rest.len > 0) {
        const char *comma = memchr(rest.ptr, ',', rest.len);
        size_t len = comma != NULL ? (size_t)(comma - rest.ptr) : rest.len;
        struct slice name = slice_trim((struct slice){rest.ptr, len});
        rest = slice_from(rest, len + 1);
        if (name.len == 0) {
            continue;
        }
        if (out->count == LIMIT_CONNECTION_OPTIONS_MAX) {
            return HAPAX_E_LIMIT;
        }
        out->names[out->count++] = name;
    }
    return 0;
}

int fields_listed(struct listed_fields *out, const struct header *headers, size_t n)
{
    int rc = 0;
    out->count = 0;
    for (size_t i = 0; rc == 0 && i < n; i++) {
        if (slice_equal_nocase(headers[i].name, SLICE_LITERAL("Connection"))) {
            rc = list(out, headers[i].value);
        }
    }
    return rc;
}

bool field_is_listed(const struct listed_fields *listed, struct slice name)
{
    for (size_t i = 0; i < listed->count; i++) {
        if (slice_equal_nocase(listed->names[i], name)) {
            return true;
        }
    }
    return false;
}

int field_append(struct buf *out, struct slice name, struct slice value)
{
    int rc = buf_reserve(out, name.len + value.len + 4);
    if (rc == 0) {
        buf_append_slice(out, name);
        buf_append(out, ": ", 2);
        buf_append_slice(out, value);
        buf_append(out, "\r\n", 2);
    }
    return rc;
}
