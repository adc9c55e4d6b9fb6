#include "base/limits.h"
#include "core/json.h"
#include "unit/core/json_documents.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static struct arena arena;

static int setup(void **state)
{
    (void)state;
    arena_init(&arena, 64U << 20);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    arena_free(&arena);
    return 0;
}

static int parse(struct json *j, const char *text)
{
    return json_parse(j, &arena, slice_text(text), NULL);
}

static json_t *jansson(struct slice text, json_error_t *error)
{
    return json_loadb(text.ptr, text.len, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, error);
}

/* ---- against jansson --------------------------------------------------------------------------- */

static void assert_same_value(json_t *theirs, const struct json *j, uint32_t node);

static void assert_same_members(json_t *theirs, const struct json *j, uint32_t node)
{
    assert_int_equal(json_object_size(theirs), j->nodes[node].count);
    uint32_t at = node + 1;
    for (uint32_t i = 0; i < j->nodes[node].count; i++) {
        struct slice name;
        assert_int_equal(json_unquote(&name, j, at, &arena), 0);
        char *key = malloc(name.len + 1);
        assert_non_null(key);
        memcpy(key, name.ptr, name.len);
        key[name.len] = '\0';
        assert_same_value(json_object_get(theirs, key), j, at + 1);
        free(key);
        at = j->nodes[at + 1].after;
    }
    assert_int_equal(at, j->nodes[node].after);
}

static void assert_same_number(json_t *theirs, struct slice lexeme)
{
    char text[512];
    assert_true(lexeme.len < sizeof text);
    memcpy(text, lexeme.ptr, lexeme.len);
    text[lexeme.len] = '\0';
    if (json_is_integer(theirs)) {
        assert_true(json_integer_value(theirs) == strtoll(text, NULL, 10));
    } else {
        assert_true(json_real_value(theirs) == strtod(text, NULL));
    }
}

static void assert_same_value(json_t *theirs, const struct json *j, uint32_t node)
{
    assert_non_null(theirs);
    struct slice text;
    switch (j->nodes[node].type) {
    case JSON_TYPE_OBJECT:
        assert_true(json_is_object(theirs));
        assert_same_members(theirs, j, node);
        break;
    case JSON_TYPE_ARRAY:
        assert_true(json_is_array(theirs));
        assert_int_equal(json_array_size(theirs), j->nodes[node].count);
        for (uint32_t i = 0, at = node + 1; i < j->nodes[node].count; i++, at = j->nodes[at].after) {
            assert_same_value(json_array_get(theirs, i), j, at);
        }
        break;
    case JSON_TYPE_STRING:
        assert_true(json_is_string(theirs));
        assert_int_equal(json_unquote(&text, j, node, &arena), 0);
        assert_true(slice_equal(text, slice_of(json_string_value(theirs), json_string_length(theirs))));
        break;
    case JSON_TYPE_NUMBER:
        assert_true(json_is_number(theirs));
        assert_same_number(theirs, json_lexeme(j, node));
        break;
    case JSON_TYPE_TRUE:
        assert_true(json_is_true(theirs));
        break;
    case JSON_TYPE_FALSE:
        assert_true(json_is_false(theirs));
        break;
    case JSON_TYPE_NULL:
        assert_true(json_is_null(theirs));
        break;
    }
}

static void every_document_is_judged_as_listed_and_read_as_jansson_reads_it(void **state)
{
    (void)state;
    assert_true(DOCUMENT_COUNT >= 150);
    for (size_t i = 0; i < DOCUMENT_COUNT; i++) {
        const struct document *d = &documents[i];
        struct slice text = {d->text, d->len};
        struct json j;
        hapax_error err = {0};
        int rc = json_parse(&j, &arena, text, &err);
        int wanted = d->expectation == VALID || d->expectation == OURS_ONLY ? 0 : HAPAX_E_SYNTAX;
        json_error_t error;
        json_t *theirs = jansson(text, &error);
        bool accepts = d->expectation == VALID || d->expectation == THEIRS_ONLY;
        if (rc != wanted || (theirs != NULL) != accepts) {
            fail_msg("row %zu, %.*s: %d instead of %d (%s); jansson: %s", i, SLICE_FORMAT(text), rc, wanted,
                     err.message, theirs != NULL ? "accepted" : error.text);
        }
        assert_int_equal(err.code, wanted);
        if (theirs != NULL && rc == 0) {
            assert_same_value(theirs, &j, 0);
        }
        json_decref(theirs);
    }
}

static uint32_t seed;

static uint32_t draw(uint32_t below)
{
    seed = seed * 1664525U + 1013904223U;
    return (seed >> 8) % below;
}

/* Pieces of the listed documents, pasted, cut and damaged: mostly invalid, a good part valid. */
static void random_document(struct buf *out)
{
    static const char pieces[][12] = {"[",  "]",   "{",  "}",     ",",    ":",      "\"a\"",     "\"b\"",
                                      "\"", "\\",  " ",  "1",     "-",    "0",      "1.5e3",     "null",
                                      "\t", "\\n", "\n", "[1,2]", "true", "\"\":0", "\\ud83d",   "\\ude00",
                                      ",",  "a",   ":",  "{}",    "[]",   "u0061",  "\"\\u0061", "\xc3\xa9"};
    buf_clear(out);
    if (draw(2) == 0) {
        for (uint32_t n = 1 + draw(8); n > 0; n--) {
            assert_int_equal(buf_append_text(out, pieces[draw(sizeof pieces / sizeof pieces[0])]), 0);
        }
        return;
    }
    assert_int_equal(buf_append_text(out, draw(2) == 0 ? "[" : "{\"k\":"), 0);
    for (uint32_t n = draw(4); n > 0; n--) {
        const struct document *d = &documents[draw(DOCUMENT_COUNT)];
        assert_int_equal(buf_append(out, d->text, d->len), 0);
        assert_int_equal(buf_append_text(out, n == 1 ? "" : draw(2) == 0 ? "," : ",\"k\":"), 0);
    }
    assert_int_equal(buf_append_text(out, out->ptr[0] == '[' ? "]" : "}"), 0);
    if (draw(3) == 0) {
        out->ptr[draw((uint32_t)out->len)] = (char)draw(256);
    }
}

static void random_documents_are_judged_as_jansson_judges_them(void **state)
{
    (void)state;
    struct buf text;
    buf_init(&text, 1U << 16);
    size_t valid = 0;
    seed = 20240607;
    for (int i = 0; i < 60000; i++) {
        random_document(&text);
        struct json j;
        json_error_t error;
        int rc = json_parse(&j, &arena, buf_slice(&text), NULL);
        json_t *theirs = jansson(buf_slice(&text), &error);
        if (theirs != NULL) {
            bool nul = memchr(text.ptr, '\0', text.len) != NULL;
            if (rc != 0 && !nul) {
                fail_msg("refused what jansson accepts: %.*s", SLICE_FORMAT(buf_slice(&text)));
            }
            if (rc == 0) {
                assert_same_value(theirs, &j, 0);
                valid++;
            }
        } else if (rc == 0) {
            bool documented = json_error_code(&error) == json_error_numeric_overflow ||
                              json_error_code(&error) == json_error_null_byte_in_key ||
                              slice_starts_with(buf_slice(&text), SLICE_LITERAL("\xef\xbb\xbf"));
            if (!documented) {
                fail_msg("accepted what jansson refuses (%s): %.*s", error.text,
                         SLICE_FORMAT(buf_slice(&text)));
            }
        }
        json_decref(theirs);
        arena_reset(&arena);
    }
    assert_true(valid > 1000);
    buf_free(&text);
}

/* ---- nodes ------------------------------------------------------------------------------------- */

static void nodes_stand_in_document_order_and_lead_to_their_siblings(void **state)
{
    (void)state;
    struct json j;
    assert_int_equal(parse(&j, " {\"a\": [10, {\"x\":\"y\"}], \"b\":null} "), 0);
    const struct json_node wanted[] = {
        {JSON_TYPE_OBJECT, 1, 34, 9, 2},  {JSON_TYPE_STRING, 2, 5, 2, 0},   {JSON_TYPE_ARRAY, 7, 22, 7, 2},
        {JSON_TYPE_NUMBER, 8, 10, 4, 0},  {JSON_TYPE_OBJECT, 12, 21, 7, 1}, {JSON_TYPE_STRING, 13, 16, 6, 0},
        {JSON_TYPE_STRING, 17, 20, 7, 0}, {JSON_TYPE_STRING, 24, 27, 8, 0}, {JSON_TYPE_NULL, 28, 32, 9, 0},
    };
    assert_int_equal(j.count, 9);
    for (uint32_t i = 0; i < j.count; i++) {
        assert_int_equal(j.nodes[i].type, wanted[i].type);
        assert_int_equal(j.nodes[i].start, wanted[i].start);
        assert_int_equal(j.nodes[i].after, wanted[i].after);
        assert_int_equal(j.nodes[i].count, wanted[i].count);
        if (i > 0) {
            assert_int_equal(j.nodes[i].end, wanted[i].end);
        }
    }
    assert_true(slice_equal(json_lexeme(&j, 0), SLICE_LITERAL("{\"a\": [10, {\"x\":\"y\"}], \"b\":null}")));
    assert_true(slice_equal(json_lexeme(&j, 4), SLICE_LITERAL("{\"x\":\"y\"}")));
}

static void numbers_keep_their_exact_lexeme(void **state)
{
    (void)state;
    static const char *const numbers[] = {"9007199254740993", "-0", "1.50", "1E+2", "-0.10e-07"};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        struct json j;
        assert_int_equal(parse(&j, numbers[i]), 0);
        assert_true(slice_equal(json_lexeme(&j, 0), slice_text(numbers[i])));
    }
}

static void a_byte_order_mark_moves_no_offset(void **state)
{
    (void)state;
    struct json j;
    assert_int_equal(parse(&j, "\xef\xbb\xbf[7]"), 0);
    assert_int_equal(j.nodes[0].start, 3);
    assert_true(slice_equal(json_lexeme(&j, 1), SLICE_LITERAL("7")));
}

static void errors_name_the_byte_and_what_was_expected(void **state)
{
    (void)state;
    struct json j = {.count = 99};
    hapax_error err = {0};
    assert_int_equal(json_parse(&j, &arena, SLICE_LITERAL("{\"secret\":1 x"), &err), HAPAX_E_SYNTAX);
    assert_string_equal(err.message, "JSON: byte 12: expected a comma or }");
    assert_int_equal(j.count, 99);
}

static void an_absent_text_is_no_document(void **state)
{
    (void)state;
    struct json j;
    assert_int_equal(json_parse(&j, &arena, SLICE_NONE, NULL), HAPAX_E_SYNTAX);
}

/* ---- limits ------------------------------------------------------------------------------------ */

static struct slice repeat(struct buf *b, const char *piece, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(buf_append_text(b, piece), 0);
    }
    return buf_slice(b);
}

static int parse_nested(size_t depth, const char *open, const char *innermost, const char *close)
{
    struct buf b;
    struct json j;
    buf_init(&b, 16U << 20);
    repeat(&b, open, depth);
    repeat(&b, innermost, 1);
    int rc = json_parse(&j, &arena, repeat(&b, close, depth), NULL);
    buf_free(&b);
    return rc;
}

static void nesting_stops_at_its_limit(void **state)
{
    (void)state;
    assert_int_equal(parse_nested(LIMIT_JSON_DEPTH_MAX, "[", "", "]"), 0);
    assert_int_equal(parse_nested(LIMIT_JSON_DEPTH_MAX + 1, "[", "", "]"), HAPAX_E_LIMIT);
    assert_int_equal(parse_nested(LIMIT_JSON_DEPTH_MAX, "{\"a\":", "1", "}"), 0);
    assert_int_equal(parse_nested(LIMIT_JSON_DEPTH_MAX + 1, "{\"a\":", "1", "}"), HAPAX_E_LIMIT);
    assert_int_equal(parse_nested(4U << 20, "[", "", ""), HAPAX_E_LIMIT);
    /* jansson would go on to 2048. */
    char text[600];
    memset(text, '[', 300);
    memset(text + 300, ']', 300);
    json_error_t error;
    json_t *theirs = jansson(slice_of(text, sizeof text), &error);
    assert_non_null(theirs);
    json_decref(theirs);
}

static void many_containers_beside_each_other_are_not_deep(void **state)
{
    (void)state;
    struct buf b;
    struct json j;
    buf_init(&b, 1U << 20);
    repeat(&b, "[0", 1);
    repeat(&b, ",[[]]", 2000);
    assert_int_equal(json_parse(&j, &arena, repeat(&b, "]", 1), NULL), 0);
    assert_int_equal(j.nodes[0].count, 2001);
    buf_free(&b);
}

static int parse_array_of(size_t elements, struct json *j)
{
    struct buf b;
    buf_init(&b, 4U << 20);
    repeat(&b, "[1", 1);
    repeat(&b, ",1", elements - 1);
    int rc = json_parse(j, &arena, repeat(&b, "]", 1), NULL);
    buf_free(&b);
    return rc;
}

static void nodes_stop_at_their_limit(void **state)
{
    (void)state;
    struct json j;
    assert_int_equal(parse_array_of(LIMIT_JSON_NODES_MAX - 1, &j), 0);
    assert_int_equal(j.count, LIMIT_JSON_NODES_MAX);
    assert_int_equal(parse_array_of(LIMIT_JSON_NODES_MAX, &j), HAPAX_E_LIMIT);
}

static void an_arena_that_is_too_small_is_a_limit(void **state)
{
    (void)state;
    struct arena small;
    struct json j;
    arena_init(&small, 64);
    struct slice text = SLICE_LITERAL("[1,2,3,4,5,6,7,8,9,10]");
    assert_int_equal(json_parse(&j, &small, text, NULL), HAPAX_E_LIMIT);
    arena_free(&small);
}

static size_t cost_of(struct slice text)
{
    struct arena own;
    struct json j;
    /* Blocks are as large as what is asked for once the cap leaves no room for more: the cap at which
     * a document just fits is what it costs. */
    for (size_t bytes = 64; bytes < (64U << 20); bytes += bytes / 16) {
        arena_init(&own, bytes);
        int rc = json_parse(&j, &own, text, NULL);
        arena_free(&own);
        if (rc == 0) {
            return bytes;
        }
        assert_int_equal(rc, HAPAX_E_LIMIT);
    }
    fail();
    return 0;
}

static void memory_follows_the_number_of_nodes(void **state)
{
    (void)state;
    struct slice order = SLICE_LITERAL(
        "{\"order_id\":\"A-1042\",\"amount\":129.90,\"currency\":\"EUR\",\"customer\":{\"id\":77,\"name\":"
        "\"Nakamura\",\"mail\":\"n@example.org\"},\"items\":[{\"sku\":\"X1\",\"n\":2},{\"sku\":\"Y7\",\"n\":"
        "1}],\"note\":\"at the door\"}");
    assert_in_range(order.len, 180, 230);
    assert_true(cost_of(order) <= 1200);
    struct buf b;
    buf_init(&b, 4U << 20);
    repeat(&b, "\"", 1);
    repeat(&b, "a,:[{", 200000);
    assert_true(cost_of(repeat(&b, "\"", 1)) <= 6000); /* one long string is one node */
    buf_clear(&b);
    repeat(&b, "[1", 1);
    repeat(&b, ",1", 99999);
    assert_true(cost_of(repeat(&b, "]", 1)) <= 100001 * sizeof(struct json_node) * 11 / 10 + 8192);
    buf_clear(&b);
    repeat(&b, "[1", 1);
    repeat(&b, ",\"\\\"\"", 50000); /* an escaped quote ends no string */
    assert_true(cost_of(repeat(&b, "]", 1)) <= 50002 * sizeof(struct json_node) * 11 / 10 + 8192);
    buf_free(&b);
}

/* ---- names ------------------------------------------------------------------------------------- */

/* An object of `n` members, the last of which has the name of number `twin` (n: none), escaped. */
static int parse_members(uint32_t n, uint32_t twin, const char *prefix)
{
    struct buf b;
    struct json j;
    buf_init(&b, 64U << 20);
    repeat(&b, "{", 1);
    for (uint32_t i = 0; i + 1 < n; i++) {
        assert_int_equal(buf_printf(&b, "\"%sm%u\":%u,", prefix, i, i), 0);
    }
    assert_int_equal(buf_printf(&b, "\"%s\\u006d%u\":0}", prefix, twin), 0);
    int rc = json_parse(&j, &arena, buf_slice(&b), NULL);
    assert_true(rc != 0 || j.nodes[0].count == n);
    buf_free(&b);
    return rc;
}

static void twins_are_found_in_objects_of_any_size(void **state)
{
    (void)state;
    static const uint32_t sizes[] = {2, 3, 15, 16, 17, 18, 100, 5000};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        uint32_t n = sizes[i];
        assert_int_equal(parse_members(n, n, ""), 0);
        assert_int_equal(parse_members(n, 0, ""), HAPAX_E_SYNTAX);
        assert_int_equal(parse_members(n, n / 2, ""), n == 2 ? 0 : HAPAX_E_SYNTAX);
        assert_int_equal(parse_members(n, n - 2, ""), HAPAX_E_SYNTAX);
    }
}

/* Pairwise comparison of a quarter of a million names would take minutes and run into the time-out. */
static void large_objects_are_not_quadratic(void **state)
{
    (void)state;
    assert_int_equal(parse_members(250000, 250000, "a-common-prefix-"), 0);
    assert_int_equal(parse_members(250000, 77777, "a-common-prefix-"), HAPAX_E_SYNTAX);
}

/* ---- values ------------------------------------------------------------------------------------ */

static void assert_decodes(struct slice literal, struct slice wanted)
{
    struct json j;
    struct slice text;
    assert_int_equal(json_parse(&j, &arena, literal, NULL), 0);
    assert_int_equal(json_unquote(&text, &j, 0, &arena), 0);
    assert_true(slice_equal(text, wanted));
}

static void strings_are_decoded(void **state)
{
    (void)state;
    assert_decodes(SLICE_LITERAL("\"\""), SLICE_LITERAL(""));
    assert_decodes(SLICE_LITERAL("\"plain\""), SLICE_LITERAL("plain"));
    assert_decodes(SLICE_LITERAL("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\""), SLICE_LITERAL("\"\\/\b\f\n\r\t"));
    assert_decodes(SLICE_LITERAL("\"a\\u0000b\""), SLICE_LITERAL("a\0b"));
    assert_decodes(SLICE_LITERAL("\"\\u007f\\u0080\\u07ff\\u0800\\uffff\""),
                   SLICE_LITERAL("\x7f\xc2\x80\xdf\xbf\xe0\xa0\x80\xef\xbf\xbf"));
    assert_decodes(SLICE_LITERAL("\"\\uD83D\\uDE00\\ud800\\udc00\\udbff\\udfff\""),
                   SLICE_LITERAL("\xf0\x9f\x98\x80\xf0\x90\x80\x80\xf4\x8f\xbf\xbf"));
}

static void a_string_without_escapes_is_borrowed(void **state)
{
    (void)state;
    struct json j;
    struct slice text;
    const char *literal = "\"plain\"";
    assert_int_equal(parse(&j, literal), 0);
    assert_int_equal(json_unquote(&text, &j, 0, &arena), 0);
    assert_ptr_equal(text.ptr, literal + 1);
}

static void pointers_are_checked(void **state)
{
    (void)state;
    static const char *const good[] = {"", "/", "/a", "/a/b", "//", "/~0~1", "/a~1b/0", "/\xc3\xa9"};
    static const char *const bad[] = {"a", "a/b", "#/a", "/~", "/~2", "/a~", "/~~0", " /a"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        assert_int_equal(json_pointer_check(slice_text(good[i]), NULL), 0);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        hapax_error err = {0};
        assert_int_equal(json_pointer_check(slice_text(bad[i]), &err), HAPAX_E_SYNTAX);
        assert_int_equal(err.code, HAPAX_E_SYNTAX);
    }
    char longest[LIMIT_POINTER_BYTES_MAX + 1];
    memset(longest, '/', sizeof longest);
    assert_int_equal(json_pointer_check(slice_of(longest, sizeof longest - 1), NULL), 0);
    assert_int_equal(json_pointer_check(slice_of(longest, sizeof longest), NULL), HAPAX_E_LIMIT);
}

static void pointers_find_what_rfc_6901_says(void **state)
{
    (void)state;
    static const struct {
        const char *pointer;
        const char *lexeme; /* NULL: names nothing */
    } rows[] = {
        {"/foo", "[\"bar\", \"baz\"]"},
        {"/foo/0", "\"bar\""},
        {"/foo/1", "\"baz\""},
        {"/foo/2", NULL},
        {"/foo/00", NULL},
        {"/foo/01", NULL},
        {"/foo/-", NULL},
        {"/foo/+1", NULL},
        {"/foo/", NULL},
        {"/foo/4294967296", NULL},
        {"/foo/99999999999999999999", NULL},
        {"/", "0"},
        {"/a~1b", "1"},
        {"/c%d", "2"},
        {"/e^f", "3"},
        {"/g|h", "4"},
        {"/i\\j", "5"},
        {"/k\"l", "6"},
        {"/ ", "7"},
        {"/m~0n", "8"},
        {"/o~01p", "9"},
        {"/\xc3\xa9", "10"},
        {"/deep/0/x/y", "[]"},
        {"/deep/0/x/z", NULL},
        {"/deep/x", NULL},
        {"/ /0", NULL},
        {"/fo", NULL},
        {"/fooo", NULL},
        {"//", NULL},
        {"/k\"", NULL},
        {"/k\"lm", NULL},
    };
    struct json j;
    uint32_t node;
    assert_int_equal(parse(&j, "{\"foo\": [\"bar\", \"baz\"], \"\": 0, \"a/b\": 1, \"c%d\": 2, \"e^f\": 3,"
                               "\"g|h\": 4, \"i\\\\j\": 5, \"k\\\"l\": 6, \" \": 7, \"m~n\": 8, \"o~1p\": 9,"
                               "\"\\u00e9\": 10, \"deep\": [{\"w\":[1,2],\"x\":{\"y\":[]}}]}"),
                     0);
    assert_int_equal(json_pointer_find(&node, &j, SLICE_LITERAL(""), &arena), 0);
    assert_int_equal(node, 0);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(json_pointer_check(slice_text(rows[i].pointer), NULL), 0);
        assert_int_equal(json_pointer_find(&node, &j, slice_text(rows[i].pointer), &arena), 0);
        if (rows[i].lexeme == NULL) {
            assert_int_equal(node, JSON_NODE_NONE);
        } else {
            assert_int_not_equal(node, JSON_NODE_NONE);
            assert_true(slice_equal(json_lexeme(&j, node), slice_text(rows[i].lexeme)));
        }
    }
}

/* ---- quoting ----------------------------------------------------------------------------------- */

static void text_is_quoted_in_one_form(void **state)
{
    (void)state;
    struct buf out;
    struct slice text = SLICE_LITERAL("a\"b\\c/\b\t\n\f\r\x01\x1f\x7f\0\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
    buf_init(&out, 1024);
    assert_int_equal(json_quote(&out, text, false), 0);
    assert_true(
        slice_equal(buf_slice(&out), SLICE_LITERAL("\"a\\\"b\\\\c/\\b\\t\\n\\f\\r\\u0001\\u001f\x7f\\u0000"
                                                   "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\"")));
    buf_clear(&out);
    assert_int_equal(json_quote(&out, text, true), 0);
    assert_true(
        slice_equal(buf_slice(&out), SLICE_LITERAL("\"a\\\"b\\\\c/\\b\\t\\n\\f\\r\\u0001\\u001f\x7f\\u0000"
                                                   "\\u00e9\\u20ac\\ud83d\\ude00\"")));
    buf_clear(&out);
    assert_int_equal(json_quote(&out, SLICE_NONE, true), 0);
    assert_true(slice_equal(buf_slice(&out), SLICE_LITERAL("\"\"")));
    buf_free(&out);
}

static void quoted_text_is_read_back_as_it_was(void **state)
{
    (void)state;
    struct buf text;
    struct buf quoted;
    buf_init(&text, 1024);
    buf_init(&quoted, 16384);
    seed = 7;
    for (int i = 0; i < 3000; i++) {
        static const char units[][5] = {"a", "\"", "\\", "\n", "\x01", "u", "\xc3\xa9", "\xf0\x9f\x98\x80",
                                        "/"};
        buf_clear(&text);
        buf_clear(&quoted);
        for (uint32_t n = draw(12); n > 0; n--) {
            assert_int_equal(buf_append_text(&text, units[draw(sizeof units / sizeof units[0])]), 0);
        }
        assert_int_equal(json_quote(&quoted, buf_slice(&text), draw(2) == 0), 0);
        assert_decodes(buf_slice(&quoted), buf_slice(&text));
        arena_reset(&arena);
    }
    buf_free(&text);
    buf_free(&quoted);
}

static void quoting_that_fails_leaves_no_trace(void **state)
{
    (void)state;
    struct buf out;
    buf_init(&out, 8);
    assert_int_equal(buf_append_text(&out, "ab"), 0);
    assert_int_equal(json_quote(&out, SLICE_LITERAL("x\xff"), false), HAPAX_E_SYNTAX);
    assert_int_equal(json_quote(&out, SLICE_LITERAL("x\xed\xa0\x80"), true), HAPAX_E_SYNTAX);
    assert_int_equal(json_quote(&out, SLICE_LITERAL("12345"), true), HAPAX_E_LIMIT);
    assert_true(slice_equal(buf_slice(&out), SLICE_LITERAL("ab")));
    assert_int_equal(json_quote(&out, SLICE_LITERAL("1234"), true), 0);
    buf_free(&out);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_document_is_judged_as_listed_and_read_as_jansson_reads_it),
        TEST(random_documents_are_judged_as_jansson_judges_them),
        TEST(nodes_stand_in_document_order_and_lead_to_their_siblings),
        TEST(numbers_keep_their_exact_lexeme),
        TEST(a_byte_order_mark_moves_no_offset),
        TEST(errors_name_the_byte_and_what_was_expected),
        TEST(an_absent_text_is_no_document),
        TEST(nesting_stops_at_its_limit),
        TEST(many_containers_beside_each_other_are_not_deep),
        TEST(nodes_stop_at_their_limit),
        TEST(an_arena_that_is_too_small_is_a_limit),
        TEST(memory_follows_the_number_of_nodes),
        TEST(twins_are_found_in_objects_of_any_size),
        TEST(large_objects_are_not_quadratic),
        TEST(strings_are_decoded),
        TEST(a_string_without_escapes_is_borrowed),
        TEST(pointers_are_checked),
        TEST(pointers_find_what_rfc_6901_says),
        TEST(text_is_quoted_in_one_form),
        TEST(quoted_text_is_read_back_as_it_was),
        TEST(quoting_that_fails_leaves_no_trace),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
