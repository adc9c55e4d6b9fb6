/* Single JSON values: strings decoded and written, nodes found by pointer. The scanner is json.c;
 * what it accepted is relied on here (escapes are complete, UTF-8 is valid). */
#include "core/json.h"

#include "base/assert.h"
#include "base/error.h"
#include "base/limits.h"
#include "core/utf8.h"

static uint32_t hex_value(const char *p)
{
    uint32_t value = 0;
    for (size_t i = 0; i < 4; i++) {
        uint32_t c = (unsigned char)ascii_lower(p[i]);
        value = value * 16 + (c <= '9' ? c - '0' : c - 'a' + 10);
    }
    return value;
}

/* Decode the valid escape at `p` into out; *taken is its length in the text, the result that of the
 * character. */
static size_t unescape(char out[4], size_t *taken, const char *p)
{
    static const char from[] = "bfnrt";
    static const char to[] = "\b\f\n\r\t";
    *taken = 2;
    if (p[1] != 'u') {
        const char *named = strchr(from, p[1]);
        out[0] = named != NULL ? to[named - from] : p[1];
        return 1;
    }
    uint32_t code = hex_value(p + 2);
    *taken = 6;
    if (code >= 0xd800 && code <= 0xdbff) {
        code = 0x10000 + ((code - 0xd800) << 10) + (hex_value(p + 8) - 0xdc00);
        *taken = 12;
    }
    return utf8_encode(out, code);
}

/* What stands between the quotes of a string node. */
static struct slice inside(const struct json *j, uint32_t node)
{
    HAPAX_ASSERT(node < j->count && j->nodes[node].type == JSON_TYPE_STRING);
    struct slice lexeme = json_lexeme(j, node);
    return (struct slice){lexeme.ptr + 1, lexeme.len - 2};
}

static bool has_byte(struct slice s, char c)
{
    return s.len > 0 && memchr(s.ptr, c, s.len) != NULL;
}

int json_unquote(struct slice *out, const struct json *j, uint32_t node, struct arena *arena)
{
    struct slice raw = inside(j, node);
    if (!has_byte(raw, '\\')) {
        *out = raw;
        return 0;
    }
    /* An escape is never shorter than what it stands for. */
    char *text = arena_alloc(arena, raw.len);
    if (text == NULL) {
        return arena_error(arena);
    }
    size_t n = 0;
    for (size_t i = 0; i < raw.len;) {
        if (raw.ptr[i] != '\\') {
            text[n++] = raw.ptr[i++];
            continue;
        }
        char piece[4];
        size_t taken;
        size_t bytes = unescape(piece, &taken, raw.ptr + i);
        memcpy(text + n, piece, bytes);
        n += bytes;
        i += taken;
    }
    *out = (struct slice){text, n};
    return 0;
}

/* ---- pointers ---------------------------------------------------------------------------------- */

int json_pointer_check(struct slice pointer, hapax_error *err)
{
    if (pointer.len > LIMIT_POINTER_BYTES_MAX) {
        return error_set(err, HAPAX_E_LIMIT, 0, "a JSON pointer of over %d bytes", LIMIT_POINTER_BYTES_MAX);
    }
    if (pointer.len > 0 && pointer.ptr[0] != '/') {
        return error_set(err, HAPAX_E_SYNTAX, 0, "a JSON pointer is empty or begins with a slash");
    }
    for (size_t i = 0; i < pointer.len; i++) {
        bool complete = pointer.ptr[i] != '~' ||
                        (i + 1 < pointer.len && (pointer.ptr[i + 1] == '0' || pointer.ptr[i + 1] == '1'));
        if (!complete) {
            return error_set(err, HAPAX_E_SYNTAX, 0,
                             "in a JSON pointer, ~ is followed by 0 (a tilde) or 1 (a slash)");
        }
    }
    return 0;
}

/* Undo ~0 and ~1. */
static int unescape_token(struct slice *token, struct arena *arena)
{
    if (!has_byte(*token, '~')) {
        return 0;
    }
    char *text = arena_alloc(arena, token->len);
    if (text == NULL) {
        return arena_error(arena);
    }
    size_t n = 0;
    for (size_t i = 0; i < token->len; i++) {
        char c = token->ptr[i];
        if (c == '~') {
            i++;
            c = i < token->len && token->ptr[i] == '1' ? '/' : '~';
        }
        text[n++] = c;
    }
    *token = (struct slice){text, n};
    return 0;
}

/* Compares decoded without keeping a copy: a document full of escaped names may be searched many
 * times. */
static bool name_is(const struct json *j, uint32_t node, struct slice name)
{
    struct slice raw = inside(j, node);
    if (!has_byte(raw, '\\')) {
        return slice_equal(raw, name);
    }
    size_t at = 0;
    for (size_t i = 0; i < raw.len;) {
        char piece[4] = {raw.ptr[i]};
        size_t taken = 1;
        size_t bytes = raw.ptr[i] == '\\' ? unescape(piece, &taken, raw.ptr + i) : 1;
        if (bytes > name.len - at || memcmp(name.ptr + at, piece, bytes) != 0) {
            return false;
        }
        at += bytes;
        i += taken;
    }
    return at == name.len;
}

static uint32_t find_member(const struct json *j, uint32_t object, struct slice name)
{
    uint32_t at = object + 1;
    for (uint32_t i = 0; i < j->nodes[object].count; i++) {
        if (name_is(j, at, name)) {
            return at + 1;
        }
        at = j->nodes[at + 1].after;
    }
    return JSON_NODE_NONE;
}

static uint32_t find_element(const struct json *j, uint32_t array, struct slice token)
{
    uint64_t index = 0;
    bool leading_zero = token.len > 1 && token.ptr[0] == '0';
    if (token.len == 0 || token.len > 10 || leading_zero) {
        return JSON_NODE_NONE;
    }
    for (size_t i = 0; i < token.len; i++) {
        if (token.ptr[i] < '0' || token.ptr[i] > '9') {
            return JSON_NODE_NONE;
        }
        index = index * 10 + (uint64_t)(token.ptr[i] - '0');
    }
    if (index >= j->nodes[array].count) {
        return JSON_NODE_NONE;
    }
    uint32_t at = array + 1;
    while (index-- > 0) {
        at = j->nodes[at].after;
    }
    return at;
}

int json_pointer_find(uint32_t *out, const struct json *j, struct slice pointer, struct arena *arena)
{
    uint32_t node = 0;
    while (pointer.len > 0 && node != JSON_NODE_NONE) {
        pointer = slice_from(pointer, 1);
        const char *slash = pointer.len > 0 ? memchr(pointer.ptr, '/', pointer.len) : NULL;
        struct slice token = {pointer.ptr, slash != NULL ? (size_t)(slash - pointer.ptr) : pointer.len};
        pointer = slice_from(pointer, token.len);
        int rc = unescape_token(&token, arena);
        if (rc != 0) {
            return rc;
        }
        if (j->nodes[node].type == JSON_TYPE_OBJECT) {
            node = find_member(j, node, token);
        } else if (j->nodes[node].type == JSON_TYPE_ARRAY) {
            node = find_element(j, node, token);
        } else {
            node = JSON_NODE_NONE;
        }
    }
    *out = node;
    return 0;
}

/* ---- writing ----------------------------------------------------------------------------------- */

static int append_unit(struct buf *out, uint32_t unit)
{
    static const char hex[] = "0123456789abcdef";
    char text[6] = {'\\',          'u', hex[unit >> 12 & 15], hex[unit >> 8 & 15], hex[unit >> 4 & 15],
                    hex[unit & 15]};
    return buf_append(out, text, sizeof text);
}

static int append_escape(struct buf *out, uint32_t code)
{
    static const char codes[] = "\"\\\b\t\n\f\r";
    static const char names[] = "\"\\btnfr";
    const char *named = code != 0 && code < 0x80 ? strchr(codes, (int)code) : NULL;
    if (named != NULL) {
        char text[2] = {'\\', names[named - codes]};
        return buf_append(out, text, sizeof text);
    }
    if (code < 0x10000) {
        return append_unit(out, code);
    }
    int rc = append_unit(out, 0xd800 + ((code - 0x10000) >> 10));
    return rc != 0 ? rc : append_unit(out, 0xdc00 + (code & 0x3ff));
}

/* The text in runs of characters that stand for themselves, and single ones that do not. */
static int append_quoted(struct buf *out, struct slice text, bool ascii_only)
{
    size_t run = 0;
    int rc = buf_append_byte(out, '"');
    for (size_t i = 0; i < text.len && rc == 0;) {
        size_t n = utf8_length(text.ptr + i, text.len - i);
        if (n == 0) {
            return HAPAX_E_SYNTAX;
        }
        unsigned char c = (unsigned char)text.ptr[i];
        if (c < 0x20 || c == '"' || c == '\\' || (n > 1 && ascii_only)) {
            rc = buf_append(out, text.ptr + run, i - run);
            if (rc == 0) {
                rc = append_escape(out, utf8_decode(text.ptr + i, n));
            }
            run = i + n;
        }
        i += n;
    }
    if (rc == 0 && run < text.len) {
        rc = buf_append_slice(out, slice_from(text, run));
    }
    return rc != 0 ? rc : buf_append_byte(out, '"');
}

int json_quote(struct buf *out, struct slice text, bool ascii_only)
{
    size_t before = out->len;
    int rc = append_quoted(out, text, ascii_only);
    if (rc != 0) {
        out->len = before;
    }
    return rc;
}
