/* Writes the canonical form. Recursion follows the document, which the scanner keeps within
 * LIMIT_JSON_DEPTH_MAX; frames are small, what is large lives in the arena. */
#include "core/canonical.h"

#include "base/error.h"
#include "base/limits.h"

#include <stdlib.h>

enum { EXPONENT_DIGITS_MAX = 18 };

struct writer {
    struct buf *out;
    const struct json *j;
    struct arena *arena;
    hapax_error *err;
    const uint32_t *ignored; /* nodes left out, ascending */
    size_t ignored_count;
};

struct member {
    struct slice name; /* decoded */
    uint32_t value;
};

static int write_value(const struct writer *w, uint32_t node);

/* ---- numbers ----------------------------------------------------------------------------------- */

/* The digits behind the sign up to `e`, without the point and without zeros at the front. */
static size_t significant_digits(char *digits, struct slice *rest, int64_t *fraction)
{
    size_t n = 0;
    bool in_fraction = false;
    size_t i = 0;
    for (; i < rest->len && (rest->ptr[i] | 0x20) != 'e'; i++) {
        if (rest->ptr[i] == '.') {
            in_fraction = true;
            continue;
        }
        *fraction += in_fraction;
        if (n > 0 || rest->ptr[i] != '0') {
            digits[n++] = rest->ptr[i];
        }
    }
    *rest = slice_from(*rest, i);
    return n;
}

/* The value of "e[sign]digits" or of nothing. HAPAX_E_LIMIT when it has too many digits. */
static int exponent_value(int64_t *out, struct slice text)
{
    int64_t value = 0;
    text = slice_from(text, 1);
    bool negative = text.len > 0 && text.ptr[0] == '-';
    if (text.len > 0 && (negative || text.ptr[0] == '+')) {
        text = slice_from(text, 1);
    }
    while (text.len > 0 && text.ptr[0] == '0') {
        text = slice_from(text, 1);
    }
    if (text.len > EXPONENT_DIGITS_MAX) {
        return HAPAX_E_LIMIT;
    }
    for (size_t i = 0; i < text.len; i++) {
        value = value * 10 + (text.ptr[i] - '0');
    }
    *out = negative ? -value : value;
    return 0;
}

static int write_exponent(struct buf *out, int64_t exponent)
{
    if (exponent == 0) {
        return 0;
    }
    int rc = buf_append_text(out, exponent < 0 ? "e-" : "e");
    uint64_t size = exponent < 0 ? (uint64_t)-exponent : (uint64_t)exponent;
    return rc != 0 ? rc : buf_append_u64(out, size);
}

static int write_number(const struct writer *w, struct slice lexeme)
{
    if (lexeme.len > LIMIT_NUMBER_DIGITS_MAX) {
        return error_set(w->err, HAPAX_E_LIMIT, 0, "JSON: a number of over %d characters",
                         LIMIT_NUMBER_DIGITS_MAX);
    }
    char digits[LIMIT_NUMBER_DIGITS_MAX];
    bool negative = lexeme.ptr[0] == '-';
    struct slice rest = slice_from(lexeme, negative);
    int64_t fraction = 0;
    size_t n = significant_digits(digits, &rest, &fraction);
    if (n == 0) {
        return buf_append_byte(w->out, '0'); /* whatever its sign and exponent */
    }
    int64_t exponent = 0;
    int rc = exponent_value(&exponent, rest);
    if (rc != 0) {
        return error_set(w->err, rc, 0, "JSON: an exponent of over %d digits", EXPONENT_DIGITS_MAX);
    }
    exponent -= fraction;
    while (digits[n - 1] == '0') {
        n--;
        exponent++;
    }
    rc = negative ? buf_append_byte(w->out, '-') : 0;
    if (rc == 0) {
        rc = buf_append(w->out, digits, n);
    }
    return rc != 0 ? rc : write_exponent(w->out, exponent);
}

/* ---- strings and containers -------------------------------------------------------------------- */

static int write_string(const struct writer *w, uint32_t node)
{
    struct slice lexeme = json_lexeme(w->j, node);
    if (memchr(lexeme.ptr, '\\', lexeme.len) == NULL) {
        return buf_append_slice(w->out, lexeme); /* without escapes it is in its one form already */
    }
    struct slice text;
    int rc = json_unquote(&text, w->j, node, w->arena);
    return rc != 0 ? rc : json_quote(w->out, text, false);
}

static bool is_ignored(const struct writer *w, uint32_t node)
{
    size_t low = 0;
    size_t high = w->ignored_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (w->ignored[middle] < node) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < w->ignored_count && w->ignored[low] == node;
}

static int write_array(const struct writer *w, uint32_t node)
{
    int rc = buf_append_byte(w->out, '[');
    uint32_t at = node + 1;
    for (uint32_t i = 0; i < w->j->nodes[node].count && rc == 0; i++) {
        rc = i > 0 ? buf_append_byte(w->out, ',') : 0;
        if (rc == 0) {
            rc = write_value(w, at);
        }
        at = w->j->nodes[at].after;
    }
    return rc != 0 ? rc : buf_append_byte(w->out, ']');
}

static int by_name(const void *a, const void *b)
{
    return slice_compare(((const struct member *)a)->name, ((const struct member *)b)->name);
}

/* The members that are not ignored, sorted; *count is their number. */
static int sorted_members(struct member **out, uint32_t *count, const struct writer *w, uint32_t object)
{
    uint32_t all = w->j->nodes[object].count;
    struct member *members = arena_array(w->arena, all, sizeof *members);
    if (members == NULL) {
        return arena_error(w->arena);
    }
    uint32_t n = 0;
    uint32_t name = object + 1;
    for (uint32_t i = 0; i < all; i++) {
        uint32_t value = name + 1;
        if (!is_ignored(w, value)) {
            int rc = json_unquote(&members[n].name, w->j, name, w->arena);
            if (rc != 0) {
                return rc;
            }
            members[n++].value = value;
        }
        name = w->j->nodes[value].after;
    }
    qsort(members, n, sizeof *members, by_name);
    *out = members;
    *count = n;
    return 0;
}

static int write_object(const struct writer *w, uint32_t node)
{
    struct member *members = NULL;
    uint32_t count = 0;
    int rc = buf_append_byte(w->out, '{');
    if (rc == 0) {
        rc = sorted_members(&members, &count, w, node);
    }
    for (uint32_t i = 0; i < count && rc == 0; i++) {
        rc = i > 0 ? buf_append_byte(w->out, ',') : 0;
        if (rc == 0) {
            rc = json_quote(w->out, members[i].name, false);
        }
        if (rc == 0) {
            rc = buf_append_byte(w->out, ':');
        }
        if (rc == 0) {
            rc = write_value(w, members[i].value);
        }
    }
    return rc != 0 ? rc : buf_append_byte(w->out, '}');
}

static int write_value(const struct writer *w, uint32_t node)
{
    if (is_ignored(w, node)) {
        return buf_append_byte(w->out, '~');
    }
    switch (w->j->nodes[node].type) {
    case JSON_TYPE_NULL:
        return buf_append_text(w->out, "null");
    case JSON_TYPE_FALSE:
        return buf_append_text(w->out, "false");
    case JSON_TYPE_TRUE:
        return buf_append_text(w->out, "true");
    case JSON_TYPE_NUMBER:
        return write_number(w, json_lexeme(w->j, node));
    case JSON_TYPE_STRING:
        return write_string(w, node);
    case JSON_TYPE_ARRAY:
        return write_array(w, node);
    case JSON_TYPE_OBJECT:
        return write_object(w, node);
    }
    return HAPAX_E_ARGUMENT;
}

/* ---- the document ------------------------------------------------------------------------------ */

static int by_number(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a;
    uint32_t y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* The nodes that the pointers name, ascending. */
static int find_ignored(struct writer *w, const struct slice *ignore, size_t ignore_count)
{
    uint32_t *nodes = arena_array(w->arena, ignore_count, sizeof *nodes);
    if (nodes == NULL) {
        return arena_error(w->arena);
    }
    size_t n = 0;
    for (size_t i = 0; i < ignore_count; i++) {
        uint32_t node;
        int rc = json_pointer_find(&node, w->j, ignore[i], w->arena);
        if (rc != 0) {
            return rc;
        }
        if (node != JSON_NODE_NONE) {
            nodes[n++] = node;
        }
    }
    qsort(nodes, n, sizeof *nodes, by_number);
    w->ignored = nodes;
    w->ignored_count = n;
    return 0;
}

static int write_whole(struct writer *w, uint32_t node, const struct slice *ignore, size_t ignore_count)
{
    size_t before = w->out->len;
    hapax_error inner = {0};
    hapax_error *err = w->err;
    w->err = &inner;
    int rc = ignore_count > 0 ? find_ignored(w, ignore, ignore_count) : 0;
    if (rc == 0) {
        rc = write_value(w, node);
    }
    if (rc == 0) {
        return 0;
    }
    w->out->len = before;
    return inner.code != 0 ? error_set(err, rc, 0, "%s", inner.message) : error_code(err, rc);
}

int canonical_json(struct buf *out, const struct json *j, const struct slice *ignore, size_t ignore_count,
                   struct arena *arena, hapax_error *err)
{
    struct writer w = {.out = out, .j = j, .arena = arena, .err = err};
    return write_whole(&w, 0, ignore, ignore_count);
}

int canonical_json_node(struct buf *out, const struct json *j, uint32_t node, struct arena *arena,
                        hapax_error *err)
{
    struct writer w = {.out = out, .j = j, .arena = arena, .err = err};
    return write_whole(&w, node, NULL, 0);
}
