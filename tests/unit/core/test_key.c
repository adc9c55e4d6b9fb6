#include "core/key.h"

#include "base/limits.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static struct arena arena;
static struct slice key;
static hapax_error err;

static int setup(void **state)
{
    (void)state;
    arena_init(&arena, 1 << 20);
    key = SLICE_NONE;
    err = (hapax_error){0};
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    arena_free(&arena);
    return 0;
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

static int ask_all(const char *const *texts, size_t n, enum key_syntax syntax, const struct request *r)
{
    struct key_source sources[LIMIT_KEY_SOURCES_MAX];
    struct content content;
    assert_true(n <= LIMIT_KEY_SOURCES_MAX);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(key_source_parse(&sources[i], slice_text(texts[i]), &arena, &err), 0);
    }
    content_init(&content, r, &arena, 1 << 16);
    key = SLICE_NONE;
    err = (hapax_error){0};
    return key_extract(&key, sources, n, syntax, &content, &err);
}

static int ask(const char *source, const struct request *r)
{
    return ask_all(&source, 1, KEY_LENIENT, r);
}

static void assert_key(int rc, const char *expected)
{
    assert_int_equal(rc, 0);
    if (!slice_equal(key, slice_text(expected))) {
        fail_msg("the key is %.*s, not %s", SLICE_FORMAT(key), expected);
    }
}

/* Refused with the code, and a message that tells something but not the value. */
static void assert_refused(int rc, int code, const char *value)
{
    assert_int_equal(rc, code);
    assert_int_equal(err.code, code);
    assert_true(strlen(err.message) > 20);
    if (value != NULL && strlen(value) > 5) {
        assert_null(strstr(err.message, value));
    }
}

static int from_header(const char *value, enum key_syntax syntax)
{
    key = SLICE_NONE;
    err = (hapax_error){0};
    return key_from_header(&key, slice_text(value), syntax, &arena, &err);
}

static struct request with_json(const char *body)
{
    static const struct header type = {{"Content-Type", 12}, {"application/json", 16}};
    return (struct request){.headers = &type, .header_count = 1, .body = slice_text(body)};
}

static struct request with_form(const char *body)
{
    static const struct header type = {{"Content-Type", 12}, {"application/x-www-form-urlencoded", 33}};
    return (struct request){.headers = &type, .header_count = 1, .body = slice_text(body)};
}

static int ask_json(const char *source, const char *body)
{
    struct request r = with_json(body);
    return ask(source, &r);
}

static int ask_form(const char *source, const char *body)
{
    struct request r = with_form(body);
    return ask(source, &r);
}

static int ask_query(const char *source, const char *query)
{
    struct request r = {.query = slice_text(query)};
    return ask(source, &r);
}

/* ---- header values -------------------------------------------------------------------------------- */

static void a_bare_value_and_its_quoted_form_are_one_key(void **state)
{
    (void)state;
    assert_key(from_header("8e03978e-40d5", KEY_LENIENT), "8e03978e-40d5");
    assert_key(from_header("\"8e03978e-40d5\"", KEY_LENIENT), "8e03978e-40d5");
    assert_key(from_header(" \t8e03978e-40d5 ", KEY_LENIENT), "8e03978e-40d5");
}

static void a_plain_value_is_borrowed_and_costs_no_memory(void **state)
{
    (void)state;
    const char *bare = "8e03978e";
    const char *quoted = "\"8e03978e\"";
    assert_int_equal(from_header(bare, KEY_LENIENT), 0);
    assert_ptr_equal(key.ptr, bare);
    assert_int_equal(from_header(quoted, KEY_LENIENT), 0);
    assert_ptr_equal(key.ptr, quoted + 1);
    assert_int_equal(arena.used_bytes, 0);
}

static void case_matters(void **state)
{
    (void)state;
    assert_key(from_header("AbC", KEY_LENIENT), "AbC");
}

static void a_bare_value_may_hold_any_printable_ascii(void **state)
{
    (void)state;
    assert_key(from_header("a b,c;d=\"e\"~", KEY_LENIENT), "a b,c;d=\"e\"~");
}

static void escapes_in_a_quoted_string_are_undone(void **state)
{
    (void)state;
    assert_key(from_header("\"a\\\"b\\\\c\"", KEY_LENIENT), "a\"b\\c");
    assert_key(from_header("\"a b\"", KEY_STRICT), "a b");
}

static void parameters_are_checked_and_ignored(void **state)
{
    (void)state;
    static const char *const good[] = {
        "\"k\";a=1",
        "\"k\";a=1;b=\"x\"",
        "\"k\"; a",
        "\"k\";a=-1.250",
        "\"k\";*a-b_c.d=tok",
        "\"k\";a=:aGk=:",
        "\"k\";a=?1;b=?0",
        "\"k\";a=\"q\\\"\\\\\"",
        "\"k\";a=*t/x:y",
        "\"k\";a=123456789012345",
        "\"k\";a=123456789012.123",
    };
    static const char *const bad[] = {
        "\"k\";",
        "\"k\";A=1",
        "\"k\" ;a=1",
        "\"k\";a=",
        "\"k\";a=\"x",
        "\"k\";a=1.",
        "\"k\";a=1.2345",
        "\"k\";a=?2",
        "\"k\";a=:a*:",
        "\"k\";1=a",
        "\"k\";a=--1",
        "\"k\"x",
        "\"k\" \"l\"",
        "\"k\";a=1 x",
        "\"k\";a=:aGk=",
        "\"k\";a=1234567890123456",
        "\"k\";a=1234567890123.1",
        "\"k\";a=\"\\x\"",
        "\"k\";a==",
    };
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        assert_key(from_header(good[i], KEY_LENIENT), "k");
        assert_key(from_header(good[i], KEY_STRICT), "k");
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_refused(from_header(bad[i], KEY_LENIENT), HAPAX_E_SYNTAX, bad[i]);
    }
}

static void a_list_of_values_is_refused(void **state)
{
    (void)state;
    assert_refused(from_header("\"k\",", KEY_LENIENT), HAPAX_E_SYNTAX, NULL);
    assert_non_null(strstr(err.message, "one value"));
    assert_refused(from_header("\"k\", \"k\"", KEY_LENIENT), HAPAX_E_SYNTAX, NULL);
    assert_refused(from_header("\"k\";a=1, \"l\"", KEY_LENIENT), HAPAX_E_SYNTAX, NULL);
}

static void a_value_that_starts_with_a_quote_has_to_be_a_valid_string(void **state)
{
    (void)state;
    static const char *const bad[] = {"\"",         "\"abcdef",       "\"abc\\def\"", "\"abcdef\\\"",
                                      "\"ab\tcd\"", "\"ab\xc3\xa9\"", "\"ab\x7f\""};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_refused(from_header(bad[i], KEY_LENIENT), HAPAX_E_SYNTAX, bad[i]);
    }
}

static void strict_takes_quoted_strings_only(void **state)
{
    (void)state;
    assert_refused(from_header("8e03978e", KEY_STRICT), HAPAX_E_SYNTAX, "8e03978e");
    assert_key(from_header("\"8e03978e\"", KEY_STRICT), "8e03978e");
}

static void a_blank_value_is_an_error_and_not_a_missing_key(void **state)
{
    (void)state;
    static const char *const blank[] = {"", " ", "\t ", "\"\"", "\"  \"", "\"\";a=1"};
    for (size_t i = 0; i < sizeof blank / sizeof blank[0]; i++) {
        assert_refused(from_header(blank[i], KEY_LENIENT), HAPAX_E_SYNTAX, NULL);
        assert_refused(from_header(blank[i], KEY_STRICT), HAPAX_E_SYNTAX, NULL);
    }
    const struct header h = {SLICE_LITERAL("Idempotency-Key"), SLICE_LITERAL("")};
    struct request r = {.headers = &h, .header_count = 1};
    assert_refused(ask("header:Idempotency-Key", &r), HAPAX_E_SYNTAX, NULL);
}

static void only_printable_ascii_is_a_key(void **state)
{
    (void)state;
    for (int c = 1; c < 256; c++) {
        char text[] = {'k', (char)c, 'k', 0};
        bool printable = c >= 0x20 && c <= 0x7e;
        assert_int_equal(from_header(text, KEY_LENIENT), printable ? 0 : HAPAX_E_SYNTAX);
    }
}

static void the_longest_key_has_255_bytes_after_unquoting(void **state)
{
    (void)state;
    char text[2 * LIMIT_KEY_BYTES_MAX + 8];
    memset(text, 'k', sizeof text);
    text[LIMIT_KEY_BYTES_MAX] = '\0';
    assert_int_equal(from_header(text, KEY_LENIENT), 0);
    memset(text, 'k', sizeof text);
    text[LIMIT_KEY_BYTES_MAX + 1] = '\0';
    assert_refused(from_header(text, KEY_LENIENT), HAPAX_E_LIMIT, text);

    /* "\\\\...": two bytes each of the header, one of the key */
    memset(text, '\\', sizeof text);
    text[0] = '"';
    text[1 + 2 * LIMIT_KEY_BYTES_MAX] = '"';
    text[2 + 2 * LIMIT_KEY_BYTES_MAX] = '\0';
    assert_int_equal(from_header(text, KEY_LENIENT), 0);
    assert_int_equal(key.len, LIMIT_KEY_BYTES_MAX);
    memset(text, '\\', sizeof text);
    text[0] = '"';
    text[3 + 2 * LIMIT_KEY_BYTES_MAX] = '"';
    text[4 + 2 * LIMIT_KEY_BYTES_MAX] = '\0';
    assert_refused(from_header(text, KEY_LENIENT), HAPAX_E_LIMIT, NULL);
}

static void unresolved_placeholders_are_refused_with_a_hint(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "undefined",
        "Undefined",
        "null",
        "NULL",
        "nil",
        "None",
        "NaN",
        "nan",
        "\"null\"",
        "<key>",
        "<your key>",
        "{{ $json.id }}",
        "order-{{id}}",
        "x}}",
        "${ORDER}",
        "a-${ID}-b",
        "<>",
        "[object Object]",
        "order-[object Object]",
        "\"{{ $json.id }}\"",
    };
    static const char *const good[] = {"nullify", "undefined-1", "none-of-it", "{id}", "$1", "<a",
                                       "a>",      "<a>b",        "[object]",   "nano", "{ {"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_refused(from_header(bad[i], KEY_LENIENT), HAPAX_E_SYNTAX, NULL);
        assert_non_null(strstr(err.message, "placeholder"));
    }
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        assert_key(from_header(good[i], KEY_LENIENT), good[i]);
    }
}

/* ---- sources -------------------------------------------------------------------------------------- */

static int ask_lines(const char *first, const char *second)
{
    const struct header lines[] = {{SLICE_LITERAL("idempotency-KEY"), slice_text(first)},
                                   {SLICE_LITERAL("X-Other"), SLICE_LITERAL("other")},
                                   {SLICE_LITERAL("Idempotency-Key"), slice_text(second)}};
    struct request r = {.headers = lines, .header_count = 3};
    return ask("header:Idempotency-Key", &r);
}

static void header_lines_that_give_one_key_are_one_key(void **state)
{
    (void)state;
    assert_key(ask_lines("abcdef", "abcdef"), "abcdef");
    assert_key(ask_lines("abcdef", "\"abcdef\";p=1"), "abcdef");
}

static void header_lines_that_differ_are_an_error(void **state)
{
    (void)state;
    assert_refused(ask_lines("abcdef", "Abcdef"), HAPAX_E_SYNTAX, "bcdef");
    assert_refused(ask_lines("abcdef", ""), HAPAX_E_SYNTAX, "abcdef");
    assert_refused(ask_lines("\"abcdef", "abcdef"), HAPAX_E_SYNTAX, "abcdef");
}

static void a_request_without_a_key_is_told_where_to_put_one(void **state)
{
    (void)state;
    struct request r = {.method = SLICE_LITERAL("POST")};
    assert_refused(ask("header:Idempotency-Key", &r), HAPAX_E_MISSING, NULL);
    assert_non_null(strstr(err.message, "send the header Idempotency-Key"));
    assert_refused(ask("query:key", &r), HAPAX_E_MISSING, NULL);
    assert_non_null(strstr(err.message, "query parameter key"));
    assert_refused(ask("json:/id", &r), HAPAX_E_MISSING, NULL);
    assert_non_null(strstr(err.message, "/id"));
    assert_refused(ask("form:id", &r), HAPAX_E_MISSING, NULL);
    assert_refused(ask("{json:/id}-x", &r), HAPAX_E_MISSING, NULL);
}

static void a_query_value_is_taken_decoded(void **state)
{
    (void)state;
    assert_key(ask_query("query:key", "a=1&key=A%2F1+b&b=2"), "A/1 b");
    assert_key(ask_query("query:a[b]", "a%5Bb%5D=7"), "7");
    assert_key(ask_query("query:key", "key=x&key=x"), "x");
    assert_refused(ask_query("query:key", "Key=x"), HAPAX_E_MISSING, NULL);
}

static void an_ambiguous_query_is_refused(void **state)
{
    (void)state;
    assert_refused(ask_query("query:key", "key=secret1&key=secret2"), HAPAX_E_SYNTAX, "secret1");
    assert_refused(ask_query("query:key", "key=x&key="), HAPAX_E_SYNTAX, NULL);
}

static void a_query_value_that_is_no_key_is_refused(void **state)
{
    (void)state;
    assert_refused(ask_query("query:key", "key="), HAPAX_E_SYNTAX, NULL);
    assert_refused(ask_query("query:key", "key"), HAPAX_E_SYNTAX, NULL);
    assert_refused(ask_query("query:key", "key=%20"), HAPAX_E_SYNTAX, NULL);
    assert_refused(ask_query("query:key", "key=%C3%A9"), HAPAX_E_SYNTAX, NULL);
    assert_refused(ask_query("query:key", "key=a%0Ab"), HAPAX_E_SYNTAX, NULL);
    assert_refused(ask_query("query:key", "key=%zz"), HAPAX_E_SYNTAX, NULL);
    assert_refused(ask_query("query:key", "key=undefined"), HAPAX_E_SYNTAX, NULL);
    char query[LIMIT_KEY_BYTES_MAX + 6] = "key=";
    memset(query + 4, 'k', LIMIT_KEY_BYTES_MAX + 1);
    assert_refused(ask_query("query:key", query), HAPAX_E_LIMIT, NULL);
}

static void form_fields_are_found_in_urlencoded_bodies_only(void **state)
{
    (void)state;
    assert_key(ask_form("form:order_id", "a=1&order_id=A+1"), "A 1");
    assert_key(ask_form("form:order_id", "order_id=A%201"), "A 1");
    assert_key(ask_form("form:order[id]", "order%5Bid%5D=7&order[x]=8"), "7");
    assert_refused(ask_form("form:id", "id=1&id=2"), HAPAX_E_SYNTAX, NULL);
    assert_refused(ask_form("form:id", "id=%4"), HAPAX_E_SYNTAX, NULL);
    assert_refused(ask_json("form:id", "id=1"), HAPAX_E_MISSING, NULL);
}

static void json_values_keep_their_lexeme(void **state)
{
    (void)state;
    assert_key(ask_json("json:/id", "{\"id\": 7}"), "7");
    assert_key(ask_json("json:/id", "{\"id\": \"7\"}"), "\"7\"");
    assert_key(ask_json("json:/id", "{\"id\": 9007199254740992}"), "9007199254740992");
    assert_key(ask_json("json:/id", "{\"id\": 9007199254740993}"), "9007199254740993");
    assert_key(ask_json("json:/id", "{\"id\": 7.0}"), "7.0");
    assert_key(ask_json("json:/id", "{\"id\": true}"), "true");
    assert_key(ask_json("json:/id", "{\"id\": false}"), "false");
    assert_key(ask_json("json:", "\"all\""), "\"all\"");
}

static void json_strings_have_one_ascii_form(void **state)
{
    (void)state;
    assert_key(ask_json("json:/id", "{\"id\": \"\\u0041\\/\xc3\xa9\"}"), "\"A/\\u00e9\"");
    assert_key(ask_json("json:/id", "{\"id\": \"A/\\u00E9\"}"), "\"A/\\u00e9\"");
    assert_key(ask_json("json:/id", "{\"id\": \"a\\\"b\\n\"}"), "\"a\\\"b\\n\"");
}

static void json_pointers_reach_into_arrays(void **state)
{
    (void)state;
    const char *body = "{\"lines\": [{\"id\": 1}, {\"id\": 2}]}";
    assert_key(ask_json("json:/lines/1/id", body), "2");
    assert_refused(ask_json("json:/lines/01/id", body), HAPAX_E_MISSING, NULL);
    assert_refused(ask_json("json:/lines/2/id", body), HAPAX_E_MISSING, NULL);
}

static void null_and_absent_members_are_missing(void **state)
{
    (void)state;
    assert_refused(ask_json("json:/id", "{\"id\": null}"), HAPAX_E_MISSING, NULL);
    assert_refused(ask_json("json:/id", "{\"Id\": 1}"), HAPAX_E_MISSING, NULL);
    assert_refused(ask_json("json:/id", ""), HAPAX_E_MISSING, NULL);
}

static void json_values_that_are_no_key_are_refused(void **state)
{
    (void)state;
    assert_refused(ask_json("json:/id", "{\"id\": {}}"), HAPAX_E_SYNTAX, NULL);
    assert_refused(ask_json("json:/id", "{\"id\": [1]}"), HAPAX_E_SYNTAX, NULL);
    assert_refused(ask_json("json:/id", "{\"id\": \"\"}"), HAPAX_E_SYNTAX, NULL);
    assert_refused(ask_json("json:/id", "{\"id\": \"  \"}"), HAPAX_E_SYNTAX, NULL);
    assert_refused(ask_json("json:/id", "{\"id\": \"null\"}"), HAPAX_E_SYNTAX, NULL);
    assert_refused(ask_json("json:/id", "{\"id\": \"{{ $json.id }}\"}"), HAPAX_E_SYNTAX, NULL);
    assert_refused(ask_json("json:/id", "{\"id\": \"[object Object]\"}"), HAPAX_E_SYNTAX, NULL);
    assert_refused(ask_json("json:/id", "{\"id\": \"a\x7f\"}"), HAPAX_E_SYNTAX, NULL);
}

static void a_body_that_is_not_json_is_refused(void **state)
{
    (void)state;
    assert_refused(ask_json("json:/id", "{\"id\": 1"), HAPAX_E_SYNTAX, NULL);
    assert_refused(ask_json("json:/id", "{\"id\": 1, \"id\": 2}"), HAPAX_E_SYNTAX, NULL);
    struct request untyped = {.body = SLICE_LITERAL("order 7")};
    assert_refused(ask("json:/id", &untyped), HAPAX_E_SYNTAX, NULL);
}

static void json_is_found_whatever_its_media_type(void **state)
{
    (void)state;
    struct request untyped = {.body = SLICE_LITERAL("{\"id\": 7}")};
    assert_key(ask("json:/id", &untyped), "7");
    assert_key(ask_form("json:/id", "{\"id\": 7}"), "7"); /* what curl -d sends */
}

static void a_form_is_no_json_and_leaves_the_word_to_the_next_source(void **state)
{
    (void)state;
    static const char *const sources[] = {"json:/id", "form:id"};
    struct request form = with_form("id=8");
    struct request json = with_json("{\"id\": 7}");
    assert_key(ask_all(sources, 2, KEY_LENIENT, &form), "8");
    assert_int_equal(err.code, 0);
    assert_key(ask_all(sources, 2, KEY_LENIENT, &json), "7");
}

static void a_long_json_value_is_over_the_limit(void **state)
{
    (void)state;
    char body[LIMIT_KEY_BYTES_MAX + 16];
    memset(body, '7', sizeof body);
    body[LIMIT_KEY_BYTES_MAX] = '\0';
    assert_int_equal(ask_json("json:", body), 0);
    body[LIMIT_KEY_BYTES_MAX] = '7';
    body[LIMIT_KEY_BYTES_MAX + 1] = '\0';
    assert_refused(ask_json("json:", body), HAPAX_E_LIMIT, NULL);
}

static void the_first_source_that_is_present_decides(void **state)
{
    (void)state;
    static const char *const sources[] = {"header:Idempotency-Key", "query:key", "json:/id"};
    struct header h = {SLICE_LITERAL("Idempotency-Key"), SLICE_LITERAL("from-header")};
    struct request r = {.headers = &h,
                        .header_count = 1,
                        .query = SLICE_LITERAL("key=from-query"),
                        .body = SLICE_LITERAL("{\"id\": \"from-json\"}")};
    assert_key(ask_all(sources, 3, KEY_LENIENT, &r), "from-header");
    r.header_count = 0;
    assert_key(ask_all(sources, 3, KEY_LENIENT, &r), "from-query");
    r.query = SLICE_NONE;
    assert_key(ask_all(sources, 3, KEY_LENIENT, &r), "\"from-json\"");
    r.body = SLICE_LITERAL("{\"id\": null}");
    assert_refused(ask_all(sources, 3, KEY_LENIENT, &r), HAPAX_E_MISSING, NULL);
}

static void a_malformed_first_source_is_not_passed_over(void **state)
{
    (void)state;
    static const char *const sources[] = {"header:Idempotency-Key", "query:key"};
    struct header h = {SLICE_LITERAL("Idempotency-Key"), SLICE_LITERAL("undefined")};
    struct request r = {.headers = &h, .header_count = 1, .query = SLICE_LITERAL("key=good")};
    assert_refused(ask_all(sources, 2, KEY_LENIENT, &r), HAPAX_E_SYNTAX, NULL);
}

/* ---- templates ------------------------------------------------------------------------------------ */

static void a_template_renders_its_parts_as_json(void **state)
{
    (void)state;
    assert_key(ask_json("{json:/order_id}|SYNC|{json:/step}", "{\"order_id\": \"A\", \"step\": 3}"),
               "\"A\"|SYNC|3");
    assert_key(ask_json("{{x}}{json:/a}", "{\"a\": true}"), "{x}true");
}

static void lists_of_values_never_meet_in_one_key(void **state)
{
    (void)state;
    const char *template = "{json:/order_id}|{json:/operation}";
    assert_int_equal(ask_json(template, "{\"order_id\": \"A|1\", \"operation\": \"pay\"}"), 0);
    struct slice first = key;
    assert_int_equal(ask_json(template, "{\"order_id\": \"A\", \"operation\": \"1|pay\"}"), 0);
    assert_false(slice_equal(first, key));
    assert_int_equal(ask_json(template, "{\"order_id\": \"A\\\"|\\\"1\", \"operation\": \"pay\"}"), 0);
    first = key;
    assert_int_equal(ask_json(template, "{\"order_id\": \"A\", \"operation\": \"1\\\"|\\\"pay\"}"), 0);
    assert_false(slice_equal(first, key));
}

static void parts_of_all_sources_are_quoted(void **state)
{
    (void)state;
    const struct header lines[] = {{SLICE_LITERAL("Content-Type"), SLICE_LITERAL("application/json")},
                                   {SLICE_LITERAL("X-Event"), SLICE_LITERAL("paid")}};
    struct request r = {.headers = lines,
                        .header_count = 2,
                        .query = SLICE_LITERAL("shop=a%C3%A9"),
                        .body = SLICE_LITERAL("{\"id\": 7}")};
    const char *template = "{header:X-Event}{query:shop}{json:/id}";
    assert_key(ask_all(&template, 1, KEY_STRICT, &r), "\"paid\"\"a\\u00e9\"7");
    r.query = SLICE_LITERAL("shop=%ff");
    assert_refused(ask(template, &r), HAPAX_E_SYNTAX, NULL);
}

static void an_absent_part_is_missing_and_named(void **state)
{
    (void)state;
    const char *template = "{json:/a}|{json:/b}";
    assert_refused(ask_json(template, "{\"a\": 1}"), HAPAX_E_MISSING, NULL);
    assert_non_null(strstr(err.message, "/b"));
    assert_refused(ask_json(template, "{\"a\": 1, \"b\": null}"), HAPAX_E_MISSING, NULL);
    assert_refused(ask_json(template, "{\"a\": 1, \"b\": \"\"}"), HAPAX_E_SYNTAX, NULL);
    assert_refused(ask_json(template, "{\"a\": 1, \"b\": \"undefined\"}"), HAPAX_E_SYNTAX, NULL);
    assert_refused(ask_json(template, "{\"a\": 1, \"b\": []}"), HAPAX_E_SYNTAX, NULL);
}

static void a_template_decides_when_any_part_is_there(void **state)
{
    (void)state;
    static const char *const sources[] = {"{json:/a}|{json:/b}", "query:key"};
    struct request r = {.query = SLICE_LITERAL("key=fallback"), .body = SLICE_LITERAL("{\"c\": 1}")};
    assert_key(ask_all(sources, 2, KEY_LENIENT, &r), "fallback");
    r.body = SLICE_LITERAL("{\"a\": 1}");
    assert_refused(ask_all(sources, 2, KEY_LENIENT, &r), HAPAX_E_MISSING, NULL);
}

static void a_long_template_key_is_over_the_limit(void **state)
{
    (void)state;
    char body[LIMIT_KEY_BYTES_MAX + 16];
    memset(body, '7', sizeof body);
    body[LIMIT_KEY_BYTES_MAX - 1] = '\0';
    assert_int_equal(ask_json("x{json:}", body), 0);
    body[LIMIT_KEY_BYTES_MAX - 1] = '7';
    body[LIMIT_KEY_BYTES_MAX] = '\0';
    assert_refused(ask_json("x{json:}", body), HAPAX_E_LIMIT, NULL);
}

/* ---- configuration -------------------------------------------------------------------------------- */

static void sources_are_parsed_into_kind_and_name(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum key_source_kind kind;
        const char *name;
    } cases[] = {
        {"header:Idempotency-Key", KEY_HEADER, "Idempotency-Key"},
        {"query:key", KEY_QUERY, "key"},
        {"json:/a/0", KEY_JSON, "/a/0"},
        {"json:", KEY_JSON, ""},
        {"form:order[id]", KEY_FORM, "order[id]"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct key_source s;
        assert_int_equal(key_source_parse(&s, slice_text(cases[i].text), &arena, &err), 0);
        assert_int_equal(s.kind, cases[i].kind);
        assert_true(slice_equal(s.name, slice_text(cases[i].name)));
    }
}

static void a_template_is_parsed_into_parts(void **state)
{
    (void)state;
    struct key_source s;
    assert_int_equal(key_source_parse(&s, SLICE_LITERAL("a{{b{json:/x}}}-{header:Y}"), &arena, &err), 0);
    assert_int_equal(s.kind, KEY_TEMPLATE);
    assert_int_equal(s.part_count, 4);
    assert_true(s.parts[0].literal);
    assert_true(slice_equal(s.parts[0].text, SLICE_LITERAL("a{b")));
    assert_false(s.parts[1].literal);
    assert_int_equal(s.parts[1].kind, KEY_JSON);
    assert_true(slice_equal(s.parts[1].name, SLICE_LITERAL("/x")));
    assert_true(slice_equal(s.parts[2].text, SLICE_LITERAL("}-")));
    assert_int_equal(s.parts[3].kind, KEY_HEADER);
}

static void a_malformed_source_is_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        "Idempotency-Key",
        "header:",
        "header:A B",
        "header:A:",
        "HEADER:A",
        "query:",
        "form:",
        "json:id",
        "json:/a~2",
        "cookie:a",
        "{json:/a",
        "json:/a}",
        "{}",
        "{json:id}",
        "{{x}}",
        "{{}}",
        "{json:/a{b}}",
        "{cookie:a}",
        "{",
        "}",
        "a}b{json:/a}",
        "caf\xc3\xa9{json:/a}",
        " header:A",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct key_source s;
        err = (hapax_error){0};
        assert_int_equal(key_source_parse(&s, slice_text(bad[i]), &arena, &err), HAPAX_E_SYNTAX);
        assert_true(strlen(err.message) > 10);
    }
}

static void numbers_need_a_separator_that_can_not_be_part_of_them(void **state)
{
    (void)state;
    /* 1 and 23 would be 12 and 3 */
    static const char *const bad[] = {"{json:/a}{json:/b}", "{json:/a}0{json:/b}", "{json:/a}.{json:/b}",
                                      "{json:/a}e{json:/b}", "{json:/a}E1|{header:X}"};
    static const char *const good[] = {"{json:/a}-{json:/b}", "{json:/a}{header:X}", "{header:X}{json:/a}",
                                       "{json:/a}0",          "1{json:/a}",          "{json:/a}|0{json:/b}"};
    struct key_source s;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(key_source_parse(&s, slice_text(bad[i]), &arena, &err), HAPAX_E_SYNTAX);
        assert_non_null(strstr(err.message, "separator"));
    }
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        assert_int_equal(key_source_parse(&s, slice_text(good[i]), &arena, &err), 0);
    }
}

static void a_template_has_a_maximum_of_parts(void **state)
{
    (void)state;
    char text[16 * LIMIT_TEMPLATE_PARTS_MAX];
    struct key_source s;
    size_t len = 0;
    for (size_t i = 0; i < LIMIT_TEMPLATE_PARTS_MAX; i++) {
        memcpy(text + len, "{header:A}", 10);
        len += 10;
    }
    assert_int_equal(key_source_parse(&s, slice_of(text, len), &arena, &err), 0);
    assert_int_equal(s.part_count, LIMIT_TEMPLATE_PARTS_MAX);
    text[len++] = 'x';
    assert_int_equal(key_source_parse(&s, slice_of(text, len), &arena, &err), HAPAX_E_SYNTAX);
}

static void a_key_is_quoted_for_a_header(void **state)
{
    (void)state;
    struct buf out;
    buf_init(&out, 32);
    assert_int_equal(key_quote(&out, SLICE_LITERAL("a\"b\\c")), 0);
    assert_true(slice_equal(buf_slice(&out), SLICE_LITERAL("\"a\\\"b\\\\c\"")));
    assert_int_equal(key_from_header(&key, buf_slice(&out), KEY_STRICT, &arena, &err), 0);
    assert_true(slice_equal(key, SLICE_LITERAL("a\"b\\c")));
    assert_int_equal(key_quote(&out, SLICE_LITERAL("far too long for what is left")), HAPAX_E_LIMIT);
    assert_int_equal(out.len, 9);
    buf_free(&out);
}

static void without_memory_it_says_so(void **state)
{
    (void)state;
    struct arena small;
    arena_init(&small, 0);
    assert_int_equal(key_from_header(&key, SLICE_LITERAL("\"a\\\"\""), KEY_LENIENT, &small, &err),
                     HAPAX_E_LIMIT);
    struct key_source s;
    assert_int_equal(key_source_parse(&s, SLICE_LITERAL("{json:/a}"), &small, &err), HAPAX_E_LIMIT);
    arena_free(&small);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_bare_value_and_its_quoted_form_are_one_key),
        CASE(a_plain_value_is_borrowed_and_costs_no_memory),
        CASE(case_matters),
        CASE(a_bare_value_may_hold_any_printable_ascii),
        CASE(escapes_in_a_quoted_string_are_undone),
        CASE(parameters_are_checked_and_ignored),
        CASE(a_list_of_values_is_refused),
        CASE(a_value_that_starts_with_a_quote_has_to_be_a_valid_string),
        CASE(strict_takes_quoted_strings_only),
        CASE(a_blank_value_is_an_error_and_not_a_missing_key),
        CASE(only_printable_ascii_is_a_key),
        CASE(the_longest_key_has_255_bytes_after_unquoting),
        CASE(unresolved_placeholders_are_refused_with_a_hint),
        CASE(header_lines_that_give_one_key_are_one_key),
        CASE(header_lines_that_differ_are_an_error),
        CASE(a_request_without_a_key_is_told_where_to_put_one),
        CASE(a_query_value_is_taken_decoded),
        CASE(an_ambiguous_query_is_refused),
        CASE(a_query_value_that_is_no_key_is_refused),
        CASE(form_fields_are_found_in_urlencoded_bodies_only),
        CASE(json_values_keep_their_lexeme),
        CASE(json_strings_have_one_ascii_form),
        CASE(json_pointers_reach_into_arrays),
        CASE(null_and_absent_members_are_missing),
        CASE(json_values_that_are_no_key_are_refused),
        CASE(a_body_that_is_not_json_is_refused),
        CASE(json_is_found_whatever_its_media_type),
        CASE(a_form_is_no_json_and_leaves_the_word_to_the_next_source),
        CASE(a_long_json_value_is_over_the_limit),
        CASE(the_first_source_that_is_present_decides),
        CASE(a_malformed_first_source_is_not_passed_over),
        CASE(a_template_renders_its_parts_as_json),
        CASE(lists_of_values_never_meet_in_one_key),
        CASE(parts_of_all_sources_are_quoted),
        CASE(an_absent_part_is_missing_and_named),
        CASE(a_template_decides_when_any_part_is_there),
        CASE(a_long_template_key_is_over_the_limit),
        CASE(sources_are_parsed_into_kind_and_name),
        CASE(a_template_is_parsed_into_parts),
        CASE(a_malformed_source_is_refused),
        CASE(numbers_need_a_separator_that_can_not_be_part_of_them),
        CASE(a_template_has_a_maximum_of_parts),
        CASE(a_key_is_quoted_for_a_header),
        CASE(without_memory_it_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
