/* Texts of a configuration: messages that name their place, and values with variables undone. */
#include "config/load.h"

#include "base/error.h"
#include "config/kind.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* What of a name or value still fits into a one-line message. */
enum { SHOWN_FILE_MAX = 72, SHOWN_VALUE_MAX = 40 };

int load_fail(struct load *l, int code, uint32_t line, const char *format, ...)
{
    char text[HAPAX_ERROR_MESSAGE_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);

    size_t length = strlen(l->file);
    const char *cut = length > SHOWN_FILE_MAX ? "..." : "";
    const char *file = length > SHOWN_FILE_MAX ? l->file + length - SHOWN_FILE_MAX : l->file;
    char at[16] = "";
    if (line > 0) {
        snprintf(at, sizeof at, ":%u", line);
    }
    const char *colon = l->prefix[0] != '\0' || l->name[0] != '\0' ? ": " : "";
    return error_set(l->err, code, 0, "%s%s%s: %s%s%s%s%s", cut, file, at, l->prefix, l->name, l->suffix,
                     colon, text);
}

int load_no_memory(struct load *l)
{
    bool limit = l->config->arena.over_limit || l->scratch.over_limit;
    return load_fail(l, limit ? HAPAX_E_LIMIT : HAPAX_E_MEMORY, 0, "%s",
                     limit ? "the configuration is too large" : "no memory");
}

int load_bad_value(struct load *l, const struct field *f, uint32_t line, const char *shown,
                   const char *reason)
{
    char how[FIELD_TEXT_MAX];
    field_how(how, f);
    return load_fail(l, HAPAX_E_SYNTAX, line, "%s is not %s%s%s%s; %s", shown, field_kinds[f->kind].noun,
                     reason != NULL ? " (" : "", reason != NULL ? reason : "", reason != NULL ? ")" : "",
                     how);
}

int load_copy(struct slice *out, struct load *l, struct slice text)
{
    return arena_copy(&l->config->arena, text, out) == 0 ? 0 : load_no_memory(l);
}

static void show(char *out, size_t size, const char *before, struct slice text)
{
    bool cut = text.len > SHOWN_VALUE_MAX;
    size_t length = cut ? SHOWN_VALUE_MAX : text.len;
    while (cut && length > 0 && ((unsigned char)text.ptr[length] & 0xC0) == 0x80) {
        length--; /* not in the middle of a UTF-8 character */
    }
    snprintf(out, size, "%s\"%.*s%s\"", before, (int)length, text.ptr, cut ? "..." : "");
}

static bool is_name_byte(char c, bool first)
{
    return c == '_' || (ascii_lower(c) >= 'a' && ascii_lower(c) <= 'z') || (!first && c >= '0' && c <= '9');
}

/* One ${...} at the start of *text, which is moved past it. */
static int expand_variable(struct buf *out, struct slice *text, char *problem, size_t size)
{
    struct slice s = slice_from(*text, 2);
    size_t length = 0;
    while (length < s.len && is_name_byte(s.ptr[length], length == 0)) {
        length++;
    }
    char name[128];
    struct slice rest = slice_from(s, length);
    bool fallback = slice_starts_with(rest, SLICE_LITERAL(":-"));
    const char *end = rest.len > 0 ? memchr(rest.ptr, '}', rest.len) : NULL;
    if (length == 0 || length >= sizeof name || end == NULL || (!fallback && end != rest.ptr)) {
        snprintf(problem, size,
                 "has a ${ that is not ${NAME} or ${NAME:-default}; write $$ for a dollar sign");
        return HAPAX_E_SYNTAX;
    }
    memcpy(name, s.ptr, length);
    name[length] = '\0';
    const char *value = getenv(name);
    *text = slice_from(rest, (size_t)(end - rest.ptr) + 1);
    if (fallback && (value == NULL || value[0] == '\0')) {
        return buf_append(out, rest.ptr + 2, (size_t)(end - rest.ptr) - 2);
    }
    if (value == NULL) {
        snprintf(problem, size, "the variable %.40s is not set; set it or write ${%.40s:-default}", name,
                 name);
        return HAPAX_E_MISSING;
    }
    return buf_append_text(out, value);
}

int expand_text(struct buf *out, struct slice text, char *problem, size_t size)
{
    int rc = 0;
    snprintf(problem, size, "is longer than %u bytes", LOAD_VALUE_BYTES_MAX);
    while (rc == 0 && text.len > 0) {
        if (slice_starts_with(text, SLICE_LITERAL("${"))) {
            rc = expand_variable(out, &text, problem, size);
            continue;
        }
        bool escaped = slice_starts_with(text, SLICE_LITERAL("$$"));
        rc = buf_append_byte(out, text.ptr[0]);
        text = slice_from(text, escaped ? 2 : 1);
    }
    return rc;
}

static int expanded(struct slice *out, struct load *l, struct slice text, uint32_t line)
{
    char problem[160];
    struct buf b;
    if (l->literal) {
        return load_copy(out, l, text);
    }
    buf_init(&b, LOAD_VALUE_BYTES_MAX);
    int rc = expand_text(&b, text, problem, sizeof problem);
    if (rc == HAPAX_E_MEMORY) {
        rc = load_no_memory(l);
    } else if (rc != 0) {
        rc = load_fail(l, rc, line, "%s", problem);
    } else {
        rc = load_copy(out, l, buf_slice(&b));
    }
    buf_free(&b);
    return rc;
}

static ssize_t read_whole(int fd, char *out, size_t size)
{
    size_t have = 0;
    while (have < size) {
        ssize_t n = read(fd, out + have, size - have);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return n < 0 ? -1 : (ssize_t)have;
        }
        have += (size_t)n;
    }
    return (ssize_t)have;
}

/* The content of a file that a text field is kept in, without the newline at its end. */
static int file_content(struct slice *out, struct load *l, struct slice path, uint32_t line)
{
    char content[LOAD_VALUE_BYTES_MAX + 1];
    char whole[8192];
    const char *slash = strrchr(l->file, '/');
    int folder = slash != NULL && path.ptr[0] != '/' ? (int)(slash - l->file) + 1 : 0;
    int length = snprintf(whole, sizeof whole, "%.*s%s", folder, l->file, path.ptr);
    if (length < 0 || (size_t)length >= sizeof whole) {
        return load_fail(l, HAPAX_E_LIMIT, line, "the path of the file is too long");
    }
    int fd = open(whole, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read_whole(fd, content, sizeof content) : -1;
    int problem = errno;
    if (fd >= 0) {
        close(fd);
    }
    if (n < 0) {
        return load_fail(l, HAPAX_E_SYSTEM, line, "the file %.80s can't be read: %s", whole,
                         strerror(problem));
    }
    if ((size_t)n > LOAD_VALUE_BYTES_MAX) {
        return load_fail(l, HAPAX_E_LIMIT, line, "the file %.80s holds more than %u bytes", whole,
                         LOAD_VALUE_BYTES_MAX);
    }
    struct slice text = slice_of(content, (size_t)n);
    text.len -= text.len > 0 && text.ptr[text.len - 1] == '\n';
    text.len -= text.len > 0 && text.ptr[text.len - 1] == '\r';
    return load_copy(out, l, text);
}

/* {file: PATH}, and nothing else in the mapping. */
static const struct yaml_node *file_path(const struct yaml_node *n)
{
    const struct yaml_item *item = yaml_find(n, "file");
    return item != NULL && n->count == 1 && item->value->kind == YAML_TEXT ? item->value : NULL;
}

uint32_t utf8_next(struct slice *s)
{
    const unsigned char *p = (const unsigned char *)s->ptr;
    size_t more = p[0] < 0x80 ? 0 : p[0] < 0xE0 ? 1 : p[0] < 0xF0 ? 2 : 3;
    static const uint32_t least[] = {0, 0x80, 0x800, 0x10000};
    if (s->len <= more || (p[0] >= 0x80 && p[0] < 0xC2) || p[0] > 0xF4) {
        return UINT32_MAX;
    }
    uint32_t c = more == 0 ? p[0] : p[0] & (0x3FU >> more);
    for (size_t i = 1; i <= more; i++) {
        if ((p[i] & 0xC0) != 0x80) {
            return UINT32_MAX;
        }
        c = c << 6 | (p[i] & 0x3FU);
    }
    if (c < least[more] || c > 0x10FFFF || (c >= 0xD800 && c <= 0xDFFF)) {
        return UINT32_MAX;
    }
    *s = slice_from(*s, more + 1);
    return c;
}

/* Texts become paths, header values and log lines: no control characters, and no bytes that are not UTF-8 (a variable
 * or a file can hold any). */
static int refuse_controls(struct load *l, const struct yaml_node *n, const struct value *v)
{
    for (struct slice rest = v->text; rest.len > 0;) {
        uint32_t c = utf8_next(&rest);
        if (c < 0x20 || (c >= 0x7F && c < 0xA0)) {
            return load_fail(l, HAPAX_E_SYNTAX, n->line,
                             "%s has a line break or another control character in it", v->shown);
        }
        if (c == UINT32_MAX) {
            return load_fail(l, HAPAX_E_SYNTAX, n->line, "%s is not UTF-8", v->shown);
        }
    }
    return 0;
}

int load_value(struct value *out, struct load *l, const struct field *f, const struct yaml_node *n,
               bool from_file)
{
    const struct yaml_node *path = from_file ? file_path(n) : NULL;
    if (path == NULL && n->kind != YAML_TEXT) {
        return load_bad_value(l, f, n->line, n->kind == YAML_LIST ? "a list" : "a mapping", NULL);
    }
    if (path == NULL && n->empty) {
        char how[FIELD_TEXT_MAX];
        field_how(how, f);
        return load_fail(l, HAPAX_E_SYNTAX, n->line, "has no value; %s, or leave it out", how);
    }
    const struct yaml_node *written = path != NULL ? path : n;
    show(out->shown, sizeof out->shown, path != NULL ? "the text in " : "", written->text);
    if (f->kind == KIND_STORE && path == NULL &&
        (memchr(written->text.ptr, '@', written->text.len) != NULL ||
         memchr(written->text.ptr, '?', written->text.len) != NULL)) {
        snprintf(out->shown, sizeof out->shown, "what stands here"); /* it may hold a password */
    }
    int rc = expanded(&out->text, l, written->text, written->line);
    if (rc == 0) {
        rc = refuse_controls(l, written, out); /* before a path with a NUL in it is opened */
    }
    if (rc == 0 && path != NULL) {
        struct slice name = out->text;
        rc = file_content(&out->text, l, name, written->line);
        if (rc == 0) {
            rc = refuse_controls(l, written, out);
        }
    }
    return rc;
}
