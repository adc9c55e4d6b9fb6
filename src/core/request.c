/* Look-ups in a request's header lines and in a Content-Type. */
#include "core/request.h"

size_t request_header(struct slice *out, const struct request *r, struct slice name)
{
    size_t n = 0;
    for (size_t i = 0; i < r->header_count; i++) {
        if (!slice_equal_nocase(r->headers[i].name, name)) {
            continue;
        }
        if (n++ == 0) {
            *out = r->headers[i].value;
        }
    }
    return n;
}

bool method_is_safe(struct slice method)
{
    return slice_equal(method, SLICE_LITERAL("GET")) || slice_equal(method, SLICE_LITERAL("HEAD")) ||
           slice_equal(method, SLICE_LITERAL("OPTIONS")) || slice_equal(method, SLICE_LITERAL("TRACE"));
}

bool method_is_idempotent(struct slice method)
{
    return method_is_safe(method) || slice_equal(method, SLICE_LITERAL("PUT")) ||
           slice_equal(method, SLICE_LITERAL("DELETE"));
}

struct slice media_type(struct slice content_type)
{
    if (slice_is_none(content_type)) {
        return SLICE_LITERAL("");
    }
    const char *end = content_type.len > 0 ? memchr(content_type.ptr, ';', content_type.len) : NULL;
    if (end != NULL) {
        content_type.len = (size_t)(end - content_type.ptr);
    }
    return slice_trim(content_type);
}

static bool is_visible(char c)
{
    return c > 0x20 && c < 0x7f;
}

/* The length of the quoted string at the front, quotes included; 0 when it does not end. */
static size_t quoted_length(struct slice text, bool *escaped)
{
    for (size_t i = 1; i < text.len; i++) {
        if (text.ptr[i] == '"') {
            return i + 1;
        }
        if (text.ptr[i] == '\\') {
            *escaped = true;
            i++;
        }
    }
    return 0;
}

/* Take `name=value` off the front of *rest, which begins with the name. False when malformed. */
static bool take_parameter(struct slice *name, struct slice *value, struct slice *rest)
{
    size_t n = 0;
    while (n < rest->len && is_visible(rest->ptr[n]) && rest->ptr[n] != '=' && rest->ptr[n] != ';' &&
           rest->ptr[n] != '"') {
        n++;
    }
    if (n == 0 || n == rest->len || rest->ptr[n] != '=') {
        return false;
    }
    *name = (struct slice){rest->ptr, n};
    *rest = slice_from(*rest, n + 1);
    if (rest->len > 0 && rest->ptr[0] == '"') {
        bool escaped = false;
        n = quoted_length(*rest, &escaped);
        *value = n == 0 || escaped ? SLICE_NONE : (struct slice){rest->ptr + 1, n - 2};
    } else {
        /* Wider than a token: senders leave boundaries with '=' or '/' in them unquoted. */
        for (n = 0;
             n < rest->len && is_visible(rest->ptr[n]) && rest->ptr[n] != ';' && rest->ptr[n] != '"';) {
            n++;
        }
        *value = (struct slice){rest->ptr, n};
    }
    *rest = slice_trim(slice_from(*rest, n));
    return n > 0 && (rest->len == 0 || rest->ptr[0] == ';');
}

struct slice media_parameter(struct slice content_type, struct slice name)
{
    struct slice found = SLICE_NONE;
    bool seen = false;
    const char *semicolon = content_type.len > 0 ? memchr(content_type.ptr, ';', content_type.len) : NULL;
    struct slice rest =
        semicolon != NULL ? slice_from(content_type, (size_t)(semicolon - content_type.ptr)) : SLICE_NONE;
    while (rest.len > 0) {
        struct slice other;
        struct slice value;
        rest = slice_trim(slice_from(rest, 1)); /* the semicolon */
        if (rest.len == 0 || rest.ptr[0] == ';') {
            continue; /* RFC 9110 allows empty ones */
        }
        if (!take_parameter(&other, &value, &rest)) {
            return SLICE_NONE;
        }
        if (slice_equal_nocase(other, name)) {
            if (seen) {
                return SLICE_NONE;
            }
            seen = true;
            found = value;
        }
    }
    return found;
}

bool media_is_json(struct slice media)
{
    const struct slice suffix = SLICE_LITERAL("+json");
    if (slice_equal_nocase(media, SLICE_LITERAL("application/json"))) {
        return true;
    }
    const char *slash = media.len > 0 ? memchr(media.ptr, '/', media.len) : NULL;
    if (slash == NULL || slash == media.ptr) {
        return false;
    }
    struct slice subtype = slice_from(media, (size_t)(slash - media.ptr) + 1);
    return subtype.len > suffix.len &&
           slice_equal_nocase(slice_from(subtype, subtype.len - suffix.len), suffix);
}
