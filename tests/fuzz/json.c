/* The JSON scanner (core/json.h) beside jansson: the text.
 *
 * Would catch: a text that only one of the two takes, or that they read differently: types, counts, names, decoded
 * strings, integers, reals. Differences by intent, and no others:
 *   - a byte order mark at the start is skipped by ours (it is taken off for jansson);
 *   - numbers of any size are ours: jansson refuses those beyond its integers and doubles;
 *   - \u0000 in a member's name is ours: jansson's names end in a NUL;
 *   - ours stops at a depth of LIMIT_JSON_DEPTH_MAX;
 *   - a NUL byte is never valid: jansson takes one behind the document for its end.
 * Duplicate members are refused by both (jansson is asked to). */
#include "fuzz.h"

#include "base/limits.h"
#include "core/json.h"

#include <errno.h>
#include <jansson.h>

enum { ARENA_BYTES = 64 << 20 };

static void compare(const struct json *j, uint32_t node, const json_t *other, struct arena *arena);

static void compare_number(struct slice lexeme, const json_t *other)
{
    char text[512];
    if (lexeme.len >= sizeof text) {
        return;
    }
    memcpy(text, lexeme.ptr, lexeme.len);
    text[lexeme.len] = '\0';
    if (json_is_integer(other)) {
        errno = 0;
        FUZZ_CHECK(strpbrk(text, ".eE") == NULL);
        FUZZ_CHECK(strtoll(text, NULL, 10) == json_integer_value(other) && errno == 0);
    } else {
        FUZZ_CHECK(json_is_real(other) && strpbrk(text, ".eE") != NULL);
        FUZZ_CHECK(!(strtod(text, NULL) < json_real_value(other)) &&
                   !(strtod(text, NULL) > json_real_value(other)));
    }
}

static void compare_string(const struct json *j, uint32_t node, const json_t *other, struct arena *arena)
{
    struct slice text;
    FUZZ_CHECK(json_is_string(other) && json_unquote(&text, j, node, arena) == 0);
    FUZZ_CHECK(slice_equal(text, slice_of(json_string_value(other), json_string_length(other))));
}

static void compare_children(const struct json *j, uint32_t node, const json_t *other, struct arena *arena)
{
    bool object = j->nodes[node].type == JSON_TYPE_OBJECT;
    size_t count = j->nodes[node].count;
    FUZZ_CHECK(object ? json_is_object(other) : json_is_array(other));
    FUZZ_CHECK(count == (object ? json_object_size(other) : json_array_size(other)));
    uint32_t at = node + 1;
    for (size_t i = 0; i < count; i++) {
        const json_t *child;
        if (object) {
            struct slice name;
            struct slice copy; /* with a NUL */
            FUZZ_CHECK(json_unquote(&name, j, at, arena) == 0 && arena_copy(arena, name, &copy) == 0);
            FUZZ_CHECK(memchr(copy.ptr, '\0', copy.len) == NULL);
            child = json_object_get(other, copy.ptr);
            at++;
        } else {
            child = json_array_get(other, i);
        }
        FUZZ_CHECK(child != NULL && at < j->nodes[node].after);
        compare(j, at, child, arena);
        at = j->nodes[at].after;
    }
    FUZZ_CHECK(at == j->nodes[node].after);
}

static void compare(const struct json *j, uint32_t node, const json_t *other, struct arena *arena)
{
    switch (j->nodes[node].type) {
    case JSON_TYPE_NULL:
        FUZZ_CHECK(json_is_null(other));
        break;
    case JSON_TYPE_FALSE:
        FUZZ_CHECK(json_is_false(other));
        break;
    case JSON_TYPE_TRUE:
        FUZZ_CHECK(json_is_true(other));
        break;
    case JSON_TYPE_NUMBER:
        compare_number(json_lexeme(j, node), other);
        break;
    case JSON_TYPE_STRING:
        compare_string(j, node, other, arena);
        break;
    case JSON_TYPE_ARRAY:
    case JSON_TYPE_OBJECT:
        compare_children(j, node, other, arena);
        break;
    }
}

static size_t openings(struct slice text)
{
    size_t n = 0;
    for (size_t i = 0; i < text.len; i++) {
        n += text.ptr[i] == '[' || text.ptr[i] == '{';
    }
    return n;
}

static void check(struct slice text, const json_t *other, enum json_error_code why, struct arena *arena)
{
    struct json j = {0};
    hapax_error err = {0};
    int rc = json_parse(&j, arena, text, &err);
    bool nul = text.len > 0 && memchr(text.ptr, '\0', text.len) != NULL;
    if (rc == 0 && other != NULL) {
        FUZZ_CHECK(!nul && j.count >= 1 && j.nodes[0].after == j.count);
        compare(&j, 0, other, arena);
    } else if (rc == 0) {
        FUZZ_CHECK(why == json_error_numeric_overflow || why == json_error_null_byte_in_key);
    } else {
        FUZZ_CHECK(err.code == rc && err.message[0] != '\0' && j.nodes == NULL);
        FUZZ_CHECK(rc == HAPAX_E_SYNTAX || (rc == HAPAX_E_LIMIT && openings(text) > LIMIT_JSON_DEPTH_MAX));
        FUZZ_CHECK(rc == HAPAX_E_LIMIT || other == NULL || nul);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct slice text = slice_of(data, size);
    bool mark = slice_starts_with(text, SLICE_LITERAL("\xef\xbb\xbf"));
    json_error_t error = {0};
    json_t *other = json_loadb((const char *)data + (mark ? 3 : 0), size - (mark ? 3 : 0),
                               JSON_DECODE_ANY | JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
    struct arena arena;
    arena_init(&arena, ARENA_BYTES);
    check(text, other, other == NULL ? json_error_code(&error) : json_error_unknown, &arena);
    arena_free(&arena);
    json_decref(other);
    return 0;
}
