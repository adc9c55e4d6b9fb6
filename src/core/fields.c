#include "core/fields.h"

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
    {SLICE_INIT("X-Forwarded-Host"), FIELD_FORWARDED, FIELD_PLAIN},
    {SLICE_INIT("X-RateLimit-Limit"), FIELD_PLAIN, FIELD_NOT_KEPT},
    {SLICE_INIT("X-RateLimit-Reset"), FIELD_PLAIN, FIELD_NOT_KEPT},
    {SLICE_INIT("Transfer-Encoding"), FIELD_HOP, FIELD_HOP},
    {SLICE_INIT("X-Forwarded-Proto"), FIELD_FORWARDED, FIELD_PLAIN},
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

/* Whole families of answers: what an upstream allows the pages of an origin, and the IETF draft's rate limits. */
static const struct slice cors_family = SLICE_INIT("Access-Control-");
static const struct slice rate_limit_family = SLICE_INIT("RateLimit");

static bool begins_with(struct slice name, struct slice family)
{
    return name.len >= family.len && slice_equal_nocase((struct slice){name.ptr, family.len}, family);
}

enum field_class field_class(struct slice name, enum field_direction direction)
{
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        if (slice_equal_nocase(name, fields[i].name)) {
            return direction == FIELD_REQUEST ? fields[i].request : fields[i].answer;
        }
    }
    if (direction == FIELD_ANSWER && begins_with(name, cors_family)) {
        return FIELD_CORS;
    }
    return direction == FIELD_ANSWER && begins_with(name, rate_limit_family) ? FIELD_NOT_KEPT : FIELD_PLAIN;
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

/* The next line with its CRLF; false at the end. */
static bool next_line(struct slice *line, struct slice *rest)
{
    const char *end = rest->len > 0 ? memchr(rest->ptr, '\n', rest->len) : NULL;
    size_t len = end != NULL ? (size_t)(end - rest->ptr) + 1 : rest->len;
    *line = slice_of(rest->ptr, len);
    *rest = slice_from(*rest, len);
    return len > 0;
}

static struct slice value_of(struct slice line, size_t at)
{
    while (line.len > at && (line.ptr[line.len - 1] == '\n' || line.ptr[line.len - 1] == '\r')) {
        line.len--;
    }
    return slice_trim(slice_from(line, at));
}

/* Is there an Access-Control-* line, and may this origin have them? */
static bool allows(struct slice lines, struct slice origin, bool *any)
{
    const struct slice name = SLICE_LITERAL("Access-Control-Allow-Origin:");
    struct slice line;
    struct slice allowed = SLICE_NONE;
    size_t found = 0;
    *any = false;
    while (next_line(&line, &lines)) {
        *any = *any || begins_with(line, cors_family);
        if (begins_with(line, name)) {
            found++;
            allowed = value_of(line, name.len);
        }
    }
    return found == 1 && (slice_equal(allowed, SLICE_LITERAL("*")) ||
                          (!slice_is_none(origin) && slice_equal(allowed, origin)));
}

int fields_append_replayed(struct buf *out, struct slice lines, struct slice origin)
{
    bool any;
    if (allows(lines, origin, &any) || !any) {
        return buf_append_slice(out, lines);
    }
    struct slice line;
    int rc = 0;
    while (rc == 0 && next_line(&line, &lines)) {
        rc = begins_with(line, cors_family) ? 0 : buf_append_slice(out, line);
    }
    return rc;
}
