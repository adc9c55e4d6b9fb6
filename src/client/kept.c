#include "client/kept.h"

#include "base/units.h"

static const struct slice version = {"hapax-call/1 ", 13};

int kept_write(struct buf *out, const struct kept *k)
{
    int rc = buf_append_slice(out, version);
    rc = rc != 0 ? rc : buf_append_u64(out, (uint64_t)k->status);
    rc = rc != 0 ? rc : buf_append_text(out, k->cut ? " cut\r\n" : " whole\r\n");
    rc = rc != 0 ? rc : buf_append_slice(out, k->key);
    rc = rc != 0 ? rc : buf_append_text(out, "\r\n");
    for (size_t i = 0; i < k->header_count && rc == 0; i++) {
        rc = buf_append_slice(out, k->headers[i].name);
        rc = rc != 0 ? rc : buf_append_text(out, ": ");
        rc = rc != 0 ? rc : buf_append_slice(out, k->headers[i].value);
        rc = rc != 0 ? rc : buf_append_text(out, "\r\n");
    }
    rc = rc != 0 ? rc : buf_append_text(out, "\r\n");
    return rc != 0 ? rc : buf_append_slice(out, k->body);
}

/* The bytes up to the next line end, which goes with them. False: there is none. */
static bool take_line(struct slice *line, struct slice *rest)
{
    const char *end = memmem(rest->ptr, rest->len, "\r\n", 2);
    if (end == NULL) {
        return false;
    }
    *line = slice_of(rest->ptr, (size_t)(end - rest->ptr));
    *rest = slice_from(*rest, line->len + 2);
    return true;
}

static bool read_start(struct kept *k, struct slice line)
{
    if (!slice_starts_with(line, version)) {
        return false;
    }
    uint64_t status;
    struct slice words = slice_from(line, version.len);
    struct slice number = slice_of(words.ptr, words.len < 3 ? words.len : 3);
    struct slice word = slice_from(words, number.len);
    k->cut = slice_equal(word, SLICE_LITERAL(" cut"));
    if (units_u64(&status, number) != 0 || status < 100 ||
        (!k->cut && !slice_equal(word, SLICE_LITERAL(" whole")))) {
        return false;
    }
    k->status = (int)status;
    return true;
}

static size_t count_lines(struct slice text)
{
    struct slice line;
    size_t n = 0;
    while (take_line(&line, &text) && line.len > 0) {
        n++;
    }
    return n;
}

static int read_headers(struct kept *k, struct slice *rest, struct arena *arena)
{
    size_t n = count_lines(*rest);
    struct header *headers = arena_array(arena, n + 1, sizeof *headers);
    struct slice line;
    if (headers == NULL) {
        return arena_error(arena);
    }
    for (size_t i = 0; i < n && take_line(&line, rest); i++) {
        const char *colon = memchr(line.ptr, ':', line.len);
        if (colon == NULL) {
            return HAPAX_E_SYNTAX;
        }
        headers[i].name = slice_of(line.ptr, (size_t)(colon - line.ptr));
        headers[i].value = slice_trim(slice_from(line, headers[i].name.len + 1));
    }
    k->headers = headers;
    k->header_count = n;
    return take_line(&line, rest) && line.len == 0 ? 0 : HAPAX_E_SYNTAX;
}

int kept_read(struct kept *out, struct slice text, struct arena *arena)
{
    struct slice line;
    *out = (struct kept){0};
    if (!take_line(&line, &text) || !read_start(out, line) || !take_line(&out->key, &text) ||
        out->key.len == 0) {
        return HAPAX_E_SYNTAX;
    }
    int rc = read_headers(out, &text, arena);
    out->body = text;
    return rc;
}
