/* A slice borrows bytes: it never owns them and never ends in a NUL it could rely on.
 * `ptr` may be NULL only when `len` is 0. An absent value is SLICE_NONE, which is told apart from
 * an empty one by slice_is_none(). */
#ifndef BASE_SLICE_H
#define BASE_SLICE_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

struct slice {
    const char *ptr;
    size_t len;
};

#define SLICE_NONE       ((struct slice){NULL, 0})
#define SLICE_LITERAL(s) ((struct slice){"" s, sizeof(s) - 1})
/* For printf("%.*s"). */
#define SLICE_FORMAT(s) (int)(s).len, (s).ptr != NULL ? (s).ptr : ""

static inline struct slice slice_of(const void *ptr, size_t len)
{
    return (struct slice){(const char *)ptr, len};
}

static inline struct slice slice_text(const char *text)
{
    return text == NULL ? SLICE_NONE : (struct slice){text, strlen(text)};
}

static inline bool slice_is_none(struct slice s)
{
    return s.ptr == NULL;
}

static inline bool slice_equal(struct slice a, struct slice b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.ptr, b.ptr, a.len) == 0);
}

static inline char ascii_lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c + ('a' - 'A')) : c;
}

/* ASCII case only: HTTP field names, media types, methods of comparison defined so by RFC 9110. */
static inline bool slice_equal_nocase(struct slice a, struct slice b)
{
    if (a.len != b.len) {
        return false;
    }
    for (size_t i = 0; i < a.len; i++) {
        if (ascii_lower(a.ptr[i]) != ascii_lower(b.ptr[i])) {
            return false;
        }
    }
    return true;
}

static inline bool slice_starts_with(struct slice s, struct slice prefix)
{
    return s.len >= prefix.len && slice_equal((struct slice){s.ptr, prefix.len}, prefix);
}

/* The bytes from `from` (clamped) on. */
static inline struct slice slice_from(struct slice s, size_t from)
{
    from = from < s.len ? from : s.len;
    return (struct slice){s.ptr + from, s.len - from};
}

/* Without optional white space (SP, HTAB) at both ends: RFC 9110 section 5.6.3. */
static inline struct slice slice_trim(struct slice s)
{
    while (s.len > 0 && (s.ptr[0] == ' ' || s.ptr[0] == '\t')) {
        s.ptr++;
        s.len--;
    }
    while (s.len > 0 && (s.ptr[s.len - 1] == ' ' || s.ptr[s.len - 1] == '\t')) {
        s.len--;
    }
    return s;
}

/* One or more token characters: a method, a field name (RFC 9110 section 5.6.2). */
static inline bool slice_is_token(struct slice s)
{
    static const char marks[] = "!#$%&'*+-.^_`|~";
    for (size_t i = 0; i < s.len; i++) {
        char c = ascii_lower(s.ptr[i]);
        if (!(c >= 'a' && c <= 'z') && !(c >= '0' && c <= '9') &&
            memchr(marks, c, sizeof marks - 1) == NULL) {
            return false;
        }
    }
    return s.len > 0;
}

/* Total order by bytes, then by length: what every sort in a canonical form uses. */
static inline int slice_compare(struct slice a, struct slice b)
{
    size_t n = a.len < b.len ? a.len : b.len;
    int order = n > 0 ? memcmp(a.ptr, b.ptr, n) : 0;
    return order != 0 ? order : (a.len > b.len) - (a.len < b.len);
}

#endif
