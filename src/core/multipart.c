/* Multipart bodies, taken apart strictly: where two readers could see different parts (a delimiter
 * that is only the beginning of a line, a bare line feed, a folded header), it is refused. Bodies are
 * borrowed; nothing is copied but the lists. */
#include "core/multipart.h"

#include "base/error.h"
#include "base/limits.h"
#include "core/prefix.h"

struct scanner {
    struct slice text;
    size_t at;
    char needle[LIMIT_MULTIPART_BOUNDARY_MAX + 4]; /* CR LF - - boundary */
    size_t needle_len;
    struct arena *arena;
    hapax_error *err;
};

static int malformed(const struct scanner *s, const char *what)
{
    return error_set(s->err, HAPAX_E_SYNTAX, 0, "the multipart body %s at byte %zu", what, s->at);
}

static int make_needle(struct scanner *s, struct slice boundary)
{
    bool valid = boundary.len > 0 && boundary.len <= LIMIT_MULTIPART_BOUNDARY_MAX &&
                 boundary.ptr[boundary.len - 1] != ' ';
    for (size_t i = 0; valid && i < boundary.len; i++) {
        valid = boundary.ptr[i] >= 0x20 && boundary.ptr[i] <= 0x7e;
    }
    if (!valid) {
        return error_set(s->err, HAPAX_E_SYNTAX, 0,
                         "a multipart Content-Type needs a boundary of 1 to %d printable characters",
                         LIMIT_MULTIPART_BOUNDARY_MAX);
    }
    memcpy(s->needle, "\r\n--", 4);
    memcpy(s->needle + 4, boundary.ptr, boundary.len);
    s->needle_len = boundary.len + 4;
    return 0;
}

/* The next delimiter's offset (that of its CR), from `from` on; text.len when there is none. */
static size_t find_delimiter(const struct scanner *s, size_t from)
{
    const char *found = memmem(s->text.ptr + from, s->text.len - from, s->needle, s->needle_len);
    return found != NULL ? (size_t)(found - s->text.ptr) : s->text.len;
}

static bool at_line_end(const struct scanner *s)
{
    return s->text.len - s->at >= 2 && memcmp(s->text.ptr + s->at, "\r\n", 2) == 0;
}

/* What follows the boundary on its line: padding, and two hyphens before it on the last one. Leaves
 * the scanner after the line. */
static int end_delimiter(struct scanner *s, bool *closing)
{
    *closing = s->text.len - s->at >= 2 && memcmp(s->text.ptr + s->at, "--", 2) == 0;
    s->at += *closing ? 2 : 0;
    while (s->at < s->text.len && (s->text.ptr[s->at] == ' ' || s->text.ptr[s->at] == '\t')) {
        s->at++;
    }
    if (at_line_end(s)) {
        s->at += 2;
        return 0;
    }
    if (*closing && s->at == s->text.len) {
        return 0;
    }
    return malformed(s, "has a delimiter that does not end with its line");
}

static int skip_preamble(struct scanner *s, bool *closing)
{
    struct slice first = {s->needle + 2, s->needle_len - 2};
    if (slice_starts_with(s->text, first)) {
        s->at = first.len;
    } else {
        size_t delimiter = find_delimiter(s, 0);
        if (delimiter == s->text.len) {
            return error_set(
                s->err, HAPAX_E_SYNTAX, 0,
                "the multipart body holds no delimiter of the boundary that its Content-Type names");
        }
        s->at = delimiter + s->needle_len;
        int rc = end_delimiter(s, closing);
        /* Text and then the end: whatever that text is, it is not a preamble to anything. */
        return rc == 0 && *closing ? malformed(s, "ends before its first part") : rc;
    }
    return end_delimiter(s, closing);
}

static bool is_name_byte(char c)
{
    static const char marks[] = "!#$%&'*+-.^_`|~";
    char lower = ascii_lower(c);
    return (lower >= 'a' && lower <= 'z') || (c >= '0' && c <= '9') ||
           memchr(marks, c, sizeof marks - 1) != NULL;
}

static int scan_header(struct header *out, struct scanner *s)
{
    size_t start = s->at;
    while (s->at < s->text.len && is_name_byte(s->text.ptr[s->at])) {
        s->at++;
    }
    if (s->at == start || s->at == s->text.len || s->text.ptr[s->at] != ':') {
        return malformed(s, "has a malformed part header");
    }
    out->name = (struct slice){s->text.ptr + start, s->at - start};
    start = ++s->at;
    for (; s->at < s->text.len; s->at++) {
        unsigned char c = (unsigned char)s->text.ptr[s->at];
        if ((c < 0x20 && c != '\t') || c == 0x7f) {
            break;
        }
    }
    if (!at_line_end(s)) {
        return malformed(s, "has a part header that does not end in CR LF");
    }
    out->value = slice_trim((struct slice){s->text.ptr + start, s->at - start});
    s->at += 2;
    return 0;
}

/* The header lines and the empty line after them. */
static int scan_headers(struct multipart_part *part, struct scanner *s)
{
    struct header lines[LIMIT_HEADERS_MAX];
    size_t count = 0;
    while (!at_line_end(s)) {
        if (count == LIMIT_HEADERS_MAX) {
            return error_set(s->err, HAPAX_E_LIMIT, 0, "a part of the multipart body has over %d headers",
                             LIMIT_HEADERS_MAX);
        }
        int rc = scan_header(&lines[count], s);
        if (rc != 0) {
            return rc;
        }
        count++;
    }
    s->at += 2;
    struct header *kept = arena_array(s->arena, count, sizeof *kept);
    if (kept == NULL) {
        return error_code(s->err, arena_error(s->arena));
    }
    if (count > 0) {
        memcpy(kept, lines, count * sizeof *kept);
    }
    part->headers = kept;
    part->header_count = count;
    return 0;
}

static int scan_part(struct multipart_part *part, struct scanner *s, bool *closing)
{
    int rc = scan_headers(part, s);
    if (rc != 0) {
        return rc;
    }
    /* A part without a body: the empty line's CR LF is the delimiter's, too (RFC 2046, body-part). */
    size_t delimiter = find_delimiter(s, s->at - 2);
    if (delimiter == s->text.len) {
        return error_set(s->err, HAPAX_E_SYNTAX, 0,
                         "the multipart body breaks off: it has no closing delimiter");
    }
    part->body = (struct slice){s->text.ptr + s->at, delimiter > s->at ? delimiter - s->at : 0};
    s->at = delimiter + s->needle_len;
    return end_delimiter(s, closing);
}

static int add_room(struct multipart *m, size_t *room, struct arena *arena)
{
    size_t wanted = *room == 0 ? 8 : *room * 2;
    struct multipart_part *parts = arena_array(arena, wanted, sizeof *parts);
    if (parts == NULL) {
        return arena_error(arena);
    }
    if (m->count > 0) {
        memcpy(parts, m->parts, m->count * sizeof *parts);
    }
    m->parts = parts;
    *room = wanted;
    return 0;
}

int multipart_parse(struct multipart *out, struct arena *arena, struct slice text, struct slice boundary,
                    hapax_error *err)
{
    struct scanner s = {.text = text.ptr != NULL ? text : SLICE_LITERAL(""), .arena = arena, .err = err};
    struct multipart m = {0};
    size_t room = 0;
    bool closing = false;
    int rc = make_needle(&s, boundary);
    rc = rc != 0 ? rc : skip_preamble(&s, &closing);
    while (rc == 0 && !closing) {
        if (m.count == LIMIT_MULTIPART_PARTS_MAX) {
            return error_set(err, HAPAX_E_LIMIT, 0, "the multipart body has over %d parts",
                             LIMIT_MULTIPART_PARTS_MAX);
        }
        if (m.count == room) {
            rc = add_room(&m, &room, arena);
            if (rc != 0) {
                return error_code(err, rc);
            }
        }
        rc = scan_part(&m.parts[m.count], &s, &closing);
        m.count += rc == 0;
    }
    if (rc == 0) {
        *out = m;
    }
    return rc;
}

static int append_headers(struct buf *out, const struct multipart_part *p, struct slice lower_name)
{
    int rc = 0;
    for (size_t i = 0; i < p->header_count && rc == 0; i++) {
        if (slice_equal_nocase(p->headers[i].name, lower_name)) {
            rc = prefix_append(out, lower_name);
            rc = rc != 0 ? rc : prefix_append(out, p->headers[i].value);
        }
    }
    return rc;
}

static int append_part(struct buf *out, const struct multipart_part *p)
{
    size_t head;
    int rc = prefix_begin(out, &head);
    rc = rc != 0 ? rc : append_headers(out, p, SLICE_LITERAL("content-disposition"));
    rc = rc != 0 ? rc : append_headers(out, p, SLICE_LITERAL("content-type"));
    if (rc == 0) {
        prefix_end(out, head);
        rc = prefix_append(out, p->body);
    }
    return rc;
}

int multipart_canonical(struct buf *out, const struct multipart *m)
{
    const size_t before = out->len;
    int rc = 0;
    for (size_t i = 0; i < m->count && rc == 0; i++) {
        rc = append_part(out, &m->parts[i]);
    }
    if (rc != 0) {
        out->len = before;
    }
    return rc;
}
