/* The scanner: text to nodes, in one pass and without recursion.
 *
 * While a container is open, its `after` holds the index of the container around it: the nodes
 * themselves are the stack. Names are compared when their object closes, decoded, pairwise in small
 * objects and sorted in large ones, so that no document costs quadratic time.
 * What reads and writes single values stands in json_value.c. */
#include "core/json.h"

#include "base/error.h"
#include "base/limits.h"
#include "core/utf8.h"

#include <stdlib.h>

enum {
    FIRST_NODES_MAX = 256, /* of the first node array, which is a guess from the length of the text */
    BYTES_A_NODE = 6,      /* what that guess assumes */
    SMALL_OBJECT = 16,     /* members up to which names are compared pairwise */
};

struct scanner {
    const char *ptr;
    uint32_t len;
    uint32_t at; /* the next byte */
    struct json_node *nodes;
    uint32_t count;
    uint32_t capacity;
    uint32_t open;  /* the innermost open container, JSON_NODE_NONE at the top */
    uint32_t depth; /* open containers */
    struct arena *arena;
    hapax_error *err;
};

static int unexpected(const struct scanner *s, uint32_t at, const char *wanted)
{
    return error_set(s->err, HAPAX_E_SYNTAX, 0, "JSON: byte %u: expected %s", (unsigned)at, wanted);
}

static void skip_blanks(struct scanner *s)
{
    while (s->at < s->len) {
        char c = s->ptr[s->at];
        if (c != ' ' && c != '\n' && c != '\r' && c != '\t') {
            return;
        }
        s->at++;
    }
}

/* The next byte, NUL at the end: NUL stands nowhere in JSON, so no caller takes it for a token. */
static char peek(const struct scanner *s)
{
    return s->at < s->len ? s->ptr[s->at] : '\0';
}

/* ---- nodes ------------------------------------------------------------------------------------- */

/* An upper bound of the nodes from the next byte on, which is not inside a string. */
static uint32_t count_ahead(const struct scanner *s)
{
    uint32_t nodes = 1;
    bool quoted = false;
    for (size_t i = s->at; i < s->len && nodes < LIMIT_JSON_NODES_MAX; i++) {
        switch (s->ptr[i]) {
        case '"':
            quoted = !quoted;
            break;
        case '\\':
            i += quoted;
            break;
        case ',':
        case ':':
        case '[':
        case '{':
            nodes += !quoted;
            break;
        default:
            break;
        }
    }
    return nodes;
}

/* Room for one node more: a small array first, then one that surely holds the rest, since an arena
 * gets nothing back. */
static int reserve_node(struct scanner *s)
{
    if (s->count < s->capacity) {
        return 0;
    }
    if (s->count >= LIMIT_JSON_NODES_MAX) {
        return error_set(s->err, HAPAX_E_LIMIT, 0, "JSON: more than %u values and names",
                         LIMIT_JSON_NODES_MAX);
    }
    uint32_t capacity = s->len / BYTES_A_NODE + 2;
    if (s->nodes != NULL) {
        capacity = s->count + count_ahead(s);
    } else if (capacity > FIRST_NODES_MAX) {
        capacity = FIRST_NODES_MAX;
    }
    capacity = capacity > LIMIT_JSON_NODES_MAX ? LIMIT_JSON_NODES_MAX : capacity;
    struct json_node *nodes = arena_array(s->arena, capacity, sizeof *nodes);
    if (nodes == NULL) {
        return error_code(s->err, arena_error(s->arena));
    }
    if (s->count > 0) {
        memcpy(nodes, s->nodes, s->count * sizeof *nodes);
    }
    s->nodes = nodes;
    s->capacity = capacity;
    return 0;
}

/* The lexeme from `start` to the next byte, as a node that is complete. */
static void add_leaf(struct scanner *s, enum json_type type, uint32_t start)
{
    uint32_t self = s->count++;
    s->nodes[self] = (struct json_node){.type = type, .start = start, .end = s->at, .after = self + 1};
}

/* ---- strings ----------------------------------------------------------------------------------- */

static bool is_plain(char c)
{
    unsigned char u = (unsigned char)c;
    return u >= 0x20 && u < 0x80 && u != '"' && u != '\\';
}

/* is_plain() of eight bytes at once: each subtraction borrows into a byte's high bit exactly when the
 * lowest offending byte is below 0x20, a quote or a backslash. */
static bool are_plain(const char *eight)
{
    const uint64_t each = 0x0101010101010101U;
    uint64_t w;
    memcpy(&w, eight, sizeof w);
    uint64_t control = w - each * 0x20;
    uint64_t quote = (w ^ each * '"') - each;
    uint64_t backslash = (w ^ each * '\\') - each;
    return ((w | control | quote | backslash) & each * 0x80) == 0;
}

/* The value of four hex digits of which `left` bytes may be read; -1 when they are not. */
static int32_t hex4(const char *p, size_t left)
{
    int32_t value = 0;
    for (size_t i = 0; i < 4; i++) {
        char c = i < left ? ascii_lower(p[i]) : '\0';
        if (c >= '0' && c <= '9') {
            value = value * 16 + (c - '0');
        } else if (c >= 'a' && c <= 'f') {
            value = value * 16 + (c - 'a' + 10);
        } else {
            return -1;
        }
    }
    return value;
}

/* The bytes of the escape at `p`, a pair of surrogates counting as one; 0 when it is malformed. */
static uint32_t escape_length(const char *p, size_t left)
{
    if (left < 2) {
        return 0;
    }
    if (p[1] != 'u') {
        return p[1] != '\0' && strchr("\"\\/bfnrt", p[1]) != NULL ? 2 : 0;
    }
    int32_t unit = hex4(p + 2, left - 2);
    if (unit < 0 || (unit >= 0xdc00 && unit <= 0xdfff)) {
        return 0;
    }
    if (unit < 0xd800 || unit > 0xdbff) {
        return 6;
    }
    if (left < 12 || p[6] != '\\' || p[7] != 'u') {
        return 0;
    }
    int32_t low = hex4(p + 8, 4);
    return low >= 0xdc00 && low <= 0xdfff ? 12 : 0;
}

/* The next byte is a quote; take the string. */
static int scan_string(struct scanner *s)
{
    uint32_t i = s->at + 1;
    for (;;) {
        while (s->len - i >= 8 && are_plain(s->ptr + i)) {
            i += 8;
        }
        while (i < s->len && is_plain(s->ptr[i])) {
            i++;
        }
        if (i == s->len) {
            return unexpected(s, i, "the end of a string");
        }
        uint32_t n = 0;
        if (s->ptr[i] == '"') {
            s->at = i + 1;
            return 0;
        } else if (s->ptr[i] == '\\') {
            n = escape_length(s->ptr + i, s->len - i);
            if (n == 0) {
                return unexpected(s, i, "an escape that is complete (surrogates in pairs)");
            }
        } else if ((unsigned char)s->ptr[i] < 0x20) {
            return unexpected(s, i, "no control character in a string");
        } else {
            n = (uint32_t)utf8_length(s->ptr + i, s->len - i);
            if (n == 0) {
                return unexpected(s, i, "UTF-8");
            }
        }
        i += n;
    }
}

/* ---- numbers and words ------------------------------------------------------------------------- */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static int scan_digits(struct scanner *s)
{
    if (!is_digit(peek(s))) {
        return unexpected(s, s->at, "a digit");
    }
    while (is_digit(peek(s))) {
        s->at++;
    }
    return 0;
}

static int scan_number(struct scanner *s)
{
    if (peek(s) == '-') {
        s->at++;
    }
    int rc = 0;
    if (peek(s) == '0') {
        s->at++; /* no further digit may follow */
    } else {
        rc = scan_digits(s);
    }
    if (rc == 0 && peek(s) == '.') {
        s->at++;
        rc = scan_digits(s);
    }
    if (rc == 0 && (peek(s) == 'e' || peek(s) == 'E')) {
        s->at++;
        if (peek(s) == '+' || peek(s) == '-') {
            s->at++;
        }
        rc = scan_digits(s);
    }
    return rc;
}

static int scan_word(struct scanner *s, struct slice word)
{
    if (!slice_starts_with((struct slice){s->ptr + s->at, s->len - s->at}, word)) {
        return unexpected(s, s->at, "a value");
    }
    s->at += (uint32_t)word.len;
    return 0;
}

/* ---- containers -------------------------------------------------------------------------------- */

static int by_bytes(const void *a, const void *b)
{
    return slice_compare(*(const struct slice *)a, *(const struct slice *)b);
}

static bool any_equal(struct slice *names, uint32_t n)
{
    if (n <= SMALL_OBJECT) {
        for (uint32_t i = 1; i < n; i++) {
            for (uint32_t k = 0; k < i; k++) {
                if (slice_equal(names[i], names[k])) {
                    return true;
                }
            }
        }
        return false;
    }
    qsort(names, n, sizeof *names, by_bytes);
    for (uint32_t i = 1; i < n; i++) {
        if (slice_equal(names[i - 1], names[i])) {
            return true;
        }
    }
    return false;
}

/* No two members of the complete object may have one name. */
static int check_names(const struct scanner *s, uint32_t object)
{
    const struct json so_far = {{s->ptr, s->len}, s->nodes, s->count};
    uint32_t n = s->nodes[object].count;
    struct slice few[SMALL_OBJECT];
    struct slice *names = n <= SMALL_OBJECT ? few : arena_array(s->arena, n, sizeof *names);
    if (names == NULL) {
        return error_code(s->err, arena_error(s->arena));
    }
    uint32_t name = object + 1;
    for (uint32_t i = 0; i < n; i++) {
        int rc = json_unquote(&names[i], &so_far, name, s->arena);
        if (rc != 0) {
            return error_code(s->err, rc);
        }
        name = s->nodes[name + 1].after;
    }
    if (any_equal(names, n)) {
        return error_set(s->err, HAPAX_E_SYNTAX, 0, "JSON: the object at byte %u has two members of one name",
                         (unsigned)s->nodes[object].start);
    }
    return 0;
}

/* The next byte is the bracket that closes the innermost container. */
static int close_container(struct scanner *s)
{
    uint32_t self = s->open;
    struct json_node *node = &s->nodes[self];
    s->at++;
    s->open = node->after;
    s->depth--;
    node->end = s->at;
    node->after = s->count;
    return node->type == JSON_TYPE_OBJECT && node->count > 1 ? check_names(s, self) : 0;
}

static char closing(const struct scanner *s)
{
    return s->nodes[s->open].type == JSON_TYPE_OBJECT ? '}' : ']';
}

/* The next byte is an opening bracket. */
static int open_container(struct scanner *s, enum json_type type)
{
    if (s->depth == LIMIT_JSON_DEPTH_MAX) {
        return error_set(s->err, HAPAX_E_LIMIT, 0, "JSON: byte %u: nested deeper than %d", (unsigned)s->at,
                         LIMIT_JSON_DEPTH_MAX);
    }
    uint32_t self = s->count++;
    s->nodes[self] = (struct json_node){.type = type, .start = s->at, .after = s->open};
    s->open = self;
    s->depth++;
    s->at++;
    return 0;
}

/* ---- the document ------------------------------------------------------------------------------ */

/* A member's name and its colon. */
static int scan_name(struct scanner *s)
{
    skip_blanks(s);
    if (peek(s) != '"') {
        return unexpected(s, s->at, "the name of a member");
    }
    uint32_t start = s->at;
    int rc = reserve_node(s);
    if (rc == 0) {
        rc = scan_string(s);
    }
    if (rc != 0) {
        return rc;
    }
    add_leaf(s, JSON_TYPE_STRING, start);
    skip_blanks(s);
    if (peek(s) != ':') {
        return unexpected(s, s->at, "a colon");
    }
    s->at++;
    return 0;
}

/* A scalar, or the opening bracket of a container. */
static int scan_value(struct scanner *s)
{
    skip_blanks(s);
    int rc = reserve_node(s);
    if (rc != 0) {
        return rc;
    }
    uint32_t start = s->at;
    enum json_type type = JSON_TYPE_NUMBER;
    switch (peek(s)) {
    case '{':
        return open_container(s, JSON_TYPE_OBJECT);
    case '[':
        return open_container(s, JSON_TYPE_ARRAY);
    case '"':
        type = JSON_TYPE_STRING;
        rc = scan_string(s);
        break;
    case 't':
        type = JSON_TYPE_TRUE;
        rc = scan_word(s, SLICE_LITERAL("true"));
        break;
    case 'f':
        type = JSON_TYPE_FALSE;
        rc = scan_word(s, SLICE_LITERAL("false"));
        break;
    case 'n':
        type = JSON_TYPE_NULL;
        rc = scan_word(s, SLICE_LITERAL("null"));
        break;
    default:
        if (peek(s) != '-' && !is_digit(peek(s))) {
            return unexpected(s, s->at, "a value");
        }
        rc = scan_number(s);
        break;
    }
    if (rc == 0) {
        add_leaf(s, type, start);
    }
    return rc;
}

/* After a whole value: close what closes here; stop behind a comma or at the top. */
static int scan_separator(struct scanner *s)
{
    while (s->open != JSON_NODE_NONE) {
        skip_blanks(s);
        if (peek(s) == ',') {
            s->at++;
            return 0;
        }
        if (peek(s) != closing(s)) {
            return unexpected(s, s->at, closing(s) == '}' ? "a comma or }" : "a comma or ]");
        }
        int rc = close_container(s);
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}

static int scan_document(struct scanner *s)
{
    do {
        if (s->open != JSON_NODE_NONE) {
            s->nodes[s->open].count++;
        }
        int rc = s->open != JSON_NODE_NONE && closing(s) == '}' ? scan_name(s) : 0;
        if (rc != 0) {
            return rc;
        }
        uint32_t outer = s->open;
        rc = scan_value(s);
        if (rc != 0) {
            return rc;
        }
        if (s->open != outer) {
            skip_blanks(s);
            if (peek(s) != closing(s)) {
                continue; /* its first element or member comes next */
            }
        }
        rc = scan_separator(s);
        if (rc != 0) {
            return rc;
        }
    } while (s->open != JSON_NODE_NONE);
    skip_blanks(s);
    return s->at == s->len ? 0 : unexpected(s, s->at, "the end of the document");
}

int json_parse(struct json *out, struct arena *arena, struct slice text, hapax_error *err)
{
    if (text.len > UINT32_MAX) {
        return error_set(err, HAPAX_E_LIMIT, 0, "JSON: a text of 4 GiB or more");
    }
    struct scanner s = {.ptr = text.ptr != NULL ? text.ptr : "",
                        .len = (uint32_t)text.len,
                        .open = JSON_NODE_NONE,
                        .arena = arena,
                        .err = err};
    if (slice_starts_with(text, SLICE_LITERAL("\xef\xbb\xbf"))) {
        s.at = 3;
    }
    int rc = scan_document(&s);
    if (rc == 0) {
        *out = (struct json){{s.ptr, s.len}, s.nodes, s.count};
    }
    return rc;
}
