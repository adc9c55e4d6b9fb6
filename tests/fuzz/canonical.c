/* The canonical form of JSON (core/canonical.h): document, 0xFF, second document, 0xFF, JSON pointer.
 *
 * Would catch: a form that is not valid JSON or not its own form; one that depends on the order of members, on white
 * space, on escapes or on how a number is written (our own rewriter; jansson's writer where a document holds no
 * reals, which jansson rounds); a number whose value changed; two documents of one form that jansson holds different, or
 * the other way round; an ignored member that leaves a trace. */
#include "fuzz.h"

#include "core/canonical.h"

#include <jansson.h>

enum { ARENA_BYTES = 64 << 20, NUMBER_BYTES_MAX = 1000, EXPONENT_BYTES_MAX = 17, NUMBERS_MAX = 64 };

/* ---- the same document, written differently ------------------------------------------------------ */

struct rewriter {
    struct buf *out;
    const struct json *j;
    struct arena *arena;
    uint32_t skipped; /* a member's value; JSON_NODE_NONE: none */
};

static void rewrite(const struct rewriter *w, uint32_t node);

static void put(const struct rewriter *w, struct slice text)
{
    FUZZ_CHECK(buf_append_slice(w->out, text) == 0);
}

/* 12 as 120e-1, 1.50E3 as 1.5000e3, 7e2 as 7.000e2. */
static void rewrite_number(const struct rewriter *w, struct slice lexeme)
{
    size_t mantissa = 0;
    while (mantissa < lexeme.len && (lexeme.ptr[mantissa] | 0x20) != 'e') {
        mantissa++;
    }
    bool point = memchr(lexeme.ptr, '.', mantissa) != NULL;
    bool zero = lexeme.ptr[lexeme.ptr[0] == '-'] == '0'; /* "00" would be no number */
    put(w, slice_of(lexeme.ptr, mantissa));
    if (mantissa < lexeme.len) {
        put(w, point ? SLICE_LITERAL("00e") : SLICE_LITERAL(".000e"));
        put(w, slice_from(lexeme, mantissa + 1));
    } else if (point || zero) {
        put(w, point ? SLICE_LITERAL("0E+0") : SLICE_LITERAL(".0"));
    } else {
        put(w, SLICE_LITERAL("0e-01"));
    }
}

static void rewrite_string(const struct rewriter *w, uint32_t node)
{
    struct slice text;
    FUZZ_CHECK(json_unquote(&text, w->j, node, w->arena) == 0);
    FUZZ_CHECK(json_quote(w->out, text, true) == 0);
}

static void rewrite_container(const struct rewriter *w, uint32_t node)
{
    const struct json_node *n = &w->j->nodes[node];
    bool object = n->type == JSON_TYPE_OBJECT;
    uint32_t *children = arena_array(w->arena, (size_t)n->count + 1, sizeof *children);
    FUZZ_CHECK(children != NULL);
    uint32_t at = node + 1;
    for (uint32_t i = 0; i < n->count; i++) {
        children[i] = at;
        at = w->j->nodes[at + object].after;
    }
    bool first = true;
    put(w, object ? SLICE_LITERAL("{ ") : SLICE_LITERAL("[\n"));
    for (uint32_t i = 0; i < n->count; i++) {
        uint32_t child = children[object ? n->count - 1 - i : i];
        if (object && child + 1 == w->skipped) {
            continue;
        }
        put(w, first ? SLICE_LITERAL("\t") : SLICE_LITERAL(" ,\r\n"));
        first = false;
        if (object) {
            rewrite_string(w, child);
            put(w, SLICE_LITERAL(" : "));
        }
        rewrite(w, child + object);
    }
    put(w, object ? SLICE_LITERAL(" }") : SLICE_LITERAL(" ]"));
}

static void rewrite(const struct rewriter *w, uint32_t node)
{
    switch (w->j->nodes[node].type) {
    case JSON_TYPE_NUMBER:
        rewrite_number(w, json_lexeme(w->j, node));
        break;
    case JSON_TYPE_STRING:
        rewrite_string(w, node);
        break;
    case JSON_TYPE_ARRAY:
    case JSON_TYPE_OBJECT:
        rewrite_container(w, node);
        break;
    case JSON_TYPE_NULL:
    case JSON_TYPE_FALSE:
    case JSON_TYPE_TRUE:
        put(w, json_lexeme(w->j, node));
        break;
    }
}

/* ---- checks --------------------------------------------------------------------------------------- */

/* The form of a text that has to have this one. */
static void check_form_of(struct slice text, struct slice form, struct arena *arena)
{
    struct json j;
    struct buf out;
    buf_init(&out, ARENA_BYTES);
    FUZZ_CHECK(json_parse(&j, arena, text, NULL) == 0);
    FUZZ_CHECK(canonical_json(&out, &j, NULL, 0, arena, NULL) == 0);
    FUZZ_CHECK(slice_equal(buf_slice(&out), form));
    buf_free(&out);
}

/* Is there room to write each number differently, within the limits of length and exponent? */
static bool numbers_fit(const struct json *j)
{
    for (uint32_t i = 0; i < j->count; i++) {
        if (j->nodes[i].type != JSON_TYPE_NUMBER) {
            continue;
        }
        struct slice lexeme = json_lexeme(j, i);
        size_t exponent = 0;
        while (exponent < lexeme.len && (lexeme.ptr[exponent] | 0x20) != 'e') {
            exponent++;
        }
        if (lexeme.len > NUMBER_BYTES_MAX || lexeme.len - exponent > EXPONENT_BYTES_MAX) {
            return false;
        }
    }
    return true;
}

static double value_of(struct slice number)
{
    char text[NUMBER_BYTES_MAX + 64];
    FUZZ_CHECK(number.len < sizeof text);
    memcpy(text, number.ptr, number.len);
    text[number.len] = '\0';
    return strtod(text, NULL);
}

/* strtod() rounds correctly, so one exact value is one double. */
static void check_numbers(const struct json *j, struct arena *arena)
{
    struct buf out;
    buf_init(&out, NUMBER_BYTES_MAX + 64);
    size_t numbers = 0;
    for (uint32_t i = 0; i < j->count && numbers < NUMBERS_MAX; i++) {
        if (j->nodes[i].type != JSON_TYPE_NUMBER) {
            continue;
        }
        numbers++;
        buf_clear(&out);
        FUZZ_CHECK(canonical_json_node(&out, j, i, arena, NULL) == 0);
        double was = value_of(json_lexeme(j, i));
        double is = value_of(buf_slice(&out));
        FUZZ_CHECK(!(was < is) && !(was > is));
    }
    buf_free(&out);
}

static void check_pointer(const struct json *j, struct slice pointer, struct arena *arena)
{
    uint32_t node;
    if (json_pointer_check(pointer, NULL) != 0 || json_pointer_find(&node, j, pointer, arena) != 0) {
        return;
    }
    struct buf text;
    struct buf form;
    buf_init(&text, ARENA_BYTES);
    buf_init(&form, ARENA_BYTES);
    FUZZ_CHECK(canonical_json(&form, j, &pointer, 1, arena, NULL) == 0);
    struct rewriter w = {&text, j, arena, node};
    rewrite(&w, 0);
    if (node == 0) {
        FUZZ_CHECK(slice_equal(buf_slice(&form), SLICE_LITERAL("~")));
    } else if (memchr(form.ptr, '~', form.len) ==
               NULL) { /* else an array's element, or a text of the document */
        check_form_of(buf_slice(&text), buf_slice(&form), arena);
    }
    buf_free(&text);
    buf_free(&form);
}

static bool has_reals(const json_t *value)
{
    size_t i;
    const char *name;
    json_t *child;
    if (json_is_array(value)) {
        json_array_foreach((json_t *)value, i, child)
        {
            if (has_reals(child)) {
                return true;
            }
        }
    } else if (json_is_object(value)) {
        json_object_foreach((json_t *)value, name, child)
        {
            if (has_reals(child)) {
                return true;
            }
        }
    }
    return json_is_real(value);
}

/* By jansson, which keeps the value as it is; NULL when it can't. */
static json_t *load_exact(struct slice text)
{
    json_t *value = json_loadb(text.ptr, text.len, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    if (value != NULL && has_reals(value)) {
        json_decref(value);
        return NULL;
    }
    return value;
}

static void check_jansson_writes(const json_t *value, struct slice form, struct arena *arena)
{
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_SORT_KEYS | JSON_INDENT(3) | JSON_ENSURE_ASCII |
                                       JSON_ESCAPE_SLASH);
    if (text != NULL) {
        check_form_of(slice_text(text), form, arena);
    }
    free(text);
}

/* One document; its form goes to `form`. false: it has none. */
static bool check_document(struct buf *form, struct json *j, struct slice text, struct slice pointer,
                           struct arena *arena)
{
    if (json_parse(j, arena, text, NULL) != 0) {
        return false;
    }
    if (!numbers_fit(j)) {
        hapax_error err = {0};
        int rc = canonical_json(form, j, NULL, 0, arena, &err);
        FUZZ_CHECK(rc == 0 || (rc == HAPAX_E_LIMIT && err.code == rc && form->len == 0));
        return false;
    }
    FUZZ_CHECK(canonical_json(form, j, NULL, 0, arena, NULL) == 0);
    check_form_of(buf_slice(form), buf_slice(form), arena);
    check_numbers(j, arena);

    struct buf other;
    buf_init(&other, ARENA_BYTES);
    struct rewriter w = {&other, j, arena, JSON_NODE_NONE};
    rewrite(&w, 0);
    check_form_of(buf_slice(&other), buf_slice(form), arena);
    buf_free(&other);
    check_pointer(j, pointer, arena);
    return true;
}

static void run(struct slice a, struct slice b, struct slice pointer, struct arena *arena)
{
    struct json ja;
    struct json jb;
    struct buf form_a;
    struct buf form_b;
    buf_init(&form_a, ARENA_BYTES);
    buf_init(&form_b, ARENA_BYTES);
    json_t *va = NULL;
    json_t *vb = NULL;
    if (check_document(&form_a, &ja, a, pointer, arena)) {
        va = load_exact(a);
    }
    if (va != NULL) {
        check_jansson_writes(va, buf_slice(&form_a), arena);
    }
    if (va != NULL && check_document(&form_b, &jb, b, pointer, arena)) {
        vb = load_exact(b);
    }
    if (vb != NULL) {
        FUZZ_CHECK((json_equal(va, vb) == 1) == slice_equal(buf_slice(&form_a), buf_slice(&form_b)));
    }
    json_decref(va);
    json_decref(vb);
    buf_free(&form_a);
    buf_free(&form_b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = {data, size};
    struct arena arena;
    arena_init(&arena, ARENA_BYTES);
    struct slice a = input_section(&in);
    struct slice b = input_section(&in);
    struct slice pointer = input_section(&in);
    run(a, b, pointer, &arena);
    arena_free(&arena);
    return 0;
}
