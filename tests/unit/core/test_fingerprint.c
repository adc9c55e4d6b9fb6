#include "core/fingerprint.h"

#include "base/digest.h"
#include "base/limits.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <zlib.h>

#include <cmocka.h>

enum { DECODED_BYTES_MAX = 1 << 16 };

static struct arena arena;
static hapax_error err;

static int setup(void **state)
{
    (void)state;
    arena_init(&arena, 8 << 20);
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

/* A request in words; NULL is absent. */
struct asked {
    const char *method, *path, *query, *type, *coding;
    struct slice body;
};

#define BODY(text) .body = SLICE_LITERAL(text)

static const struct fingerprint_rule automatic = {.mode = FINGERPRINT_AUTO};
static const struct fingerprint_rule bytes_rule = {.mode = FINGERPRINT_BYTES_MODE};
static const struct fingerprint_rule none_rule = {.mode = FINGERPRINT_NONE};

static int make(struct fingerprint *out, const struct fingerprint_rule *rule, struct asked a)
{
    struct header *h = arena_array(&arena, 2, sizeof *h);
    struct request r = {.method = slice_text(a.method != NULL ? a.method : "POST"),
                        .path = slice_text(a.path != NULL ? a.path : "/orders"),
                        .query = slice_text(a.query),
                        .headers = h,
                        .body = a.body};
    assert_non_null(h);
    if (a.type != NULL) {
        h[r.header_count++] = (struct header){SLICE_LITERAL("content-type"), slice_text(a.type)};
    }
    if (a.coding != NULL) {
        h[r.header_count++] = (struct header){SLICE_LITERAL("Content-Encoding"), slice_text(a.coding)};
    }
    struct content c;
    content_init(&c, &r, &arena, DECODED_BYTES_MAX);
    return fingerprint_make(out, rule, &c, &err);
}

static bool same_by(const struct fingerprint_rule *rule, struct asked a, struct asked b)
{
    struct fingerprint x = {0};
    struct fingerprint y = {0};
    assert_int_equal(make(&x, rule, a), 0);
    assert_int_equal(make(&y, rule, b), 0);
    assert_int_equal(x.version, FINGERPRINT_VERSION);
    return fingerprint_equal(&x, &y);
}

static bool same(struct asked a, struct asked b)
{
    return same_by(&automatic, a, b);
}

static bool same_json(const char *a, const char *b)
{
    return same((struct asked){.type = "application/json", .body = slice_text(a)},
                (struct asked){.type = "application/json", .body = slice_text(b)});
}

static bool same_form(const char *a, const char *b)
{
    const char *type = "application/x-www-form-urlencoded";
    return same((struct asked){.type = type, .body = slice_text(a)},
                (struct asked){.type = type, .body = slice_text(b)});
}

static void assert_fails(int code, const struct fingerprint_rule *rule, struct asked a)
{
    struct fingerprint f;
    err = (hapax_error){0};
    assert_int_equal(make(&f, rule, a), code);
    assert_int_equal(err.code, code);
    assert_true(strlen(err.message) > 10);
}

static struct slice gzip(struct slice text)
{
    uLong room = compressBound(text.len) + 32;
    char *out = arena_alloc(&arena, room);
    assert_non_null(out);
    z_stream z = {.next_in = (Bytef *)(uintptr_t)text.ptr,
                  .avail_in = (uInt)text.len,
                  .next_out = (Bytef *)out,
                  .avail_out = (uInt)room};
    assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    assert_int_equal(deflateEnd(&z), Z_OK);
    return slice_of(out, z.total_out);
}

static void assert_digest(const struct fingerprint_rule *rule, struct asked a, const char *expected)
{
    struct fingerprint f;
    char hex[2 * FINGERPRINT_BYTES + 1];
    assert_int_equal(make(&f, rule, a), 0);
    digest_hex(hex, f.bytes, FINGERPRINT_BYTES);
    assert_string_equal(hex, expected);
}

static void version_1_is_fixed_for_ever(void **state)
{
    (void)state;
    static const struct slice pointers[] = {{"/a", 2}, {"/z", 2}};
    const struct fingerprint_rule fields = {
        .mode = FINGERPRINT_FIELDS, .pointers = pointers, .pointer_count = 2};
    struct asked json = {.path = "/v1/orders",
                         .query = "b=2&a=1",
                         .type = "Application/JSON; charset=utf-8",
                         BODY("{\"b\": 1.50, \"a\": [true, null, \"x\"]}")};
    /* Made with another implementation from the description in fingerprint.c. */
    assert_digest(&automatic, json, "d2cf4b62920a32890c30bc9adb0af0aa");
    assert_digest(&bytes_rule, json, "f3bcbd1c8b0a0454bde09c6a6cdeecc5");
    assert_digest(&fields, json, "8f909c03986bc706aa193117778e451a");
    assert_digest(&none_rule, json, "1a79d10e0095fa2cb4f2b85c280d9f91");
    assert_digest(&automatic, (struct asked){.type = "application/x-www-form-urlencoded", BODY("b=2&a=1+1")},
                  "25e97af541d8580ea3bd2fea222ec6f0");
    assert_digest(&automatic, (struct asked){.type = "text/plain", BODY("hello")},
                  "ef224c33d6e25947135657fef83dc44b");
    assert_digest(&automatic, (struct asked){0}, "b2e37bbb95059c42b1886b89d1fd4c97");
    assert_digest(&automatic,
                  (struct asked){.type = "multipart/form-data; boundary=b",
                                 BODY("--b\r\nContent-Disposition: d\r\n\r\nx\r\n--b--")},
                  "f7e0b674eda1a9c35fc122aef04504a3");
    assert_digest(&automatic, (struct asked){.type = "text/plain", .coding = "zstd", BODY("xyz")},
                  "016735c234fb80a54efe4ebcac4a536e");
}

static void method_path_and_media_type_count(void **state)
{
    (void)state;
    struct asked base = {.type = "text/plain", BODY("x")};
    assert_true(same(base, base));
    assert_false(same(base, (struct asked){.method = "PATCH", .type = "text/plain", BODY("x")}));
    assert_false(same(base, (struct asked){.path = "/orders/", .type = "text/plain", BODY("x")}));
    assert_false(same(base, (struct asked){.path = "/Orders", .type = "text/plain", BODY("x")}));
    assert_false(same(base, (struct asked){.type = "text/html", BODY("x")}));
    assert_false(same(base, (struct asked){BODY("x")}));
    assert_false(same(base, (struct asked){.type = "text/plain", BODY("y")}));
}

static void case_and_parameters_of_the_media_type_do_not_count(void **state)
{
    (void)state;
    assert_true(same((struct asked){.type = "text/plain", BODY("x")},
                     (struct asked){.type = "TEXT/Plain ; charset=utf-8", BODY("x")}));
    assert_true(same((struct asked){.type = "application/json", BODY("1")},
                     (struct asked){.type = "application/json;charset=UTF-8", BODY("1.0")}));
}

static void the_query_is_a_set_of_pairs(void **state)
{
    (void)state;
    assert_true(same((struct asked){.query = "a=1&b=2"}, (struct asked){.query = "b=2&&a=%31"}));
    assert_true(same((struct asked){.query = ""}, (struct asked){.query = NULL}));
    assert_false(same((struct asked){.query = "a=1&b=2"}, (struct asked){.query = "a=1&b=3"}));
    assert_false(same((struct asked){.query = "a=1"}, (struct asked){.query = "a=1&b=2"}));
    assert_false(same((struct asked){.query = "a=1"}, (struct asked){.query = "a=1&a=1"}));
    assert_false(same((struct asked){.query = "a=1&a=2"}, (struct asked){.query = "a=2&a=1"}));
    assert_fails(HAPAX_E_SYNTAX, &automatic, (struct asked){.query = "a=%zz"});
}

static void parts_can_not_flow_into_each_other(void **state)
{
    (void)state;
    assert_false(
        same((struct asked){.method = "A", .path = "BC"}, (struct asked){.method = "AB", .path = "C"}));
    assert_false(same_by(&bytes_rule, (struct asked){.path = "/a", .query = "b"},
                         (struct asked){.path = "/ab", .query = ""}));
    assert_false(same_by(&bytes_rule, (struct asked){.type = "a", BODY("bx")},
                         (struct asked){.type = "ab", BODY("x")}));
}

static void json_counts_by_its_content(void **state)
{
    (void)state;
    assert_true(same_json("{\"a\":1,\"b\":[1,2]}", " { \"b\" : [1.0, 2e0], \"\\u0061\" : 1 }\n"));
    assert_false(same_json("{\"a\":[1,2]}", "{\"a\":[2,1]}"));
    assert_false(same_json("{\"a\":1}", "{\"a\":\"1\"}"));
    assert_false(same_json("{\"a\":9007199254740992}", "{\"a\":9007199254740993}"));
    assert_false(same_json("{\"a\":null}", "{}"));
    assert_false(same_json("{\"a\":\"\xc3\xa9\"}", "{\"a\":\"e\xcc\x81\"}"));
    assert_true(same((struct asked){.type = "application/vnd.x+json", BODY("[1 ]")},
                     (struct asked){.type = "application/vnd.x+json", BODY("[1]")}));
    /* the same bytes under a type that is not JSON are bytes */
    assert_false(same((struct asked){.type = "text/plain", BODY("[1 ]")},
                      (struct asked){.type = "text/plain", BODY("[1]")}));
}

static void what_calls_itself_json_has_to_be(void **state)
{
    (void)state;
    const char *type = "application/json";
    assert_fails(HAPAX_E_SYNTAX, &automatic, (struct asked){.type = type, BODY("{\"a\":1")});
    assert_fails(HAPAX_E_SYNTAX, &automatic, (struct asked){.type = type, BODY("{\"a\":1,\"a\":1}")});
    assert_fails(HAPAX_E_SYNTAX, &automatic, (struct asked){.type = type, BODY(" ")});
    assert_fails(HAPAX_E_SYNTAX, &automatic, (struct asked){.type = type, BODY("a=1")});
}

static void json_in_another_charset_is_refused_by_name(void **state)
{
    (void)state;
    assert_fails(HAPAX_E_SYNTAX, &automatic,
                 (struct asked){.type = "application/json; charset=utf-16", BODY("{}")});
    assert_non_null(strstr(err.message, "UTF-8"));
    struct fingerprint f;
    assert_int_equal(
        make(&f, &automatic, (struct asked){.type = "application/json; charset=\"UTF-8\"", BODY("{}")}), 0);
}

static void a_form_counts_by_its_pairs(void **state)
{
    (void)state;
    assert_true(same_form("order_id=A+1&b=2", "b=2&order_id=A%201"));
    assert_false(same_form("a=1", "a=2"));
    assert_false(same_form("a=1&a=2", "a=2&a=1"));
    assert_false(same_form("a=1", "a=1&a=1"));
    assert_fails(HAPAX_E_SYNTAX, &automatic,
                 (struct asked){.type = "application/x-www-form-urlencoded", BODY("a=%4")});
}

static void a_multipart_body_counts_without_its_boundary(void **state)
{
    (void)state;
    struct asked a = {.type = "multipart/form-data; boundary=b",
                      BODY("--b\r\nContent-Disposition: form-data; name=x\r\n\r\n1\r\n--b--\r\n")};
    struct asked b = {
        .type = "multipart/form-data; boundary=\"--=_other\"",
        BODY("----=_other\r\nContent-Disposition: form-data; name=x\r\n\r\n1\r\n----=_other--")};
    struct asked c = {.type = "multipart/form-data; boundary=b",
                      BODY("--b\r\nContent-Disposition: form-data; name=x\r\n\r\n2\r\n--b--\r\n")};
    assert_true(same(a, b));
    assert_false(same(a, c));
    a.type = "multipart/form-data";
    assert_fails(HAPAX_E_SYNTAX, &automatic, a);
    a.type = "multipart/form-data; boundary=c";
    assert_fails(HAPAX_E_SYNTAX, &automatic, a);
}

static void an_empty_body_of_any_type_is_the_empty_body(void **state)
{
    (void)state;
    static const char *const types[] = {"application/json", "application/x-www-form-urlencoded",
                                        "multipart/form-data", "text/plain"};
    for (size_t i = 0; i < 4; i++) {
        struct asked a = {.type = types[i]};
        struct asked b = {.type = types[i], .coding = "gzip", .body = gzip(SLICE_LITERAL(""))};
        assert_true(same(a, b));
        b.coding = NULL;
        b.body = SLICE_LITERAL("");
        assert_true(same(a, b));
    }
}

static void a_coded_body_counts_by_what_it_decodes_to(void **state)
{
    (void)state;
    struct asked plain = {.type = "application/json", BODY("{\"a\":1}")};
    struct asked coded = {
        .type = "application/json", .coding = "gzip", .body = gzip(SLICE_LITERAL("{ \"a\": 1.0 }"))};
    assert_true(same(plain, coded));
    struct asked text = {.type = "text/plain", BODY("hello")};
    struct asked coded_text = {.type = "text/plain", .coding = "gzip", .body = gzip(SLICE_LITERAL("hello"))};
    assert_true(same(text, coded_text));
    coded_text.coding = "identity, GZIP";
    assert_true(same(text, coded_text));
}

static void a_damaged_or_overlarge_coding_is_an_error(void **state)
{
    (void)state;
    assert_fails(HAPAX_E_SYNTAX, &automatic, (struct asked){.coding = "gzip", BODY("not gzip")});
    char *zeros = arena_zalloc(&arena, DECODED_BYTES_MAX + 1);
    assert_non_null(zeros);
    struct fingerprint f;
    assert_int_equal(make(&f, &automatic,
                          (struct asked){.coding = "gzip", .body = gzip(slice_of(zeros, DECODED_BYTES_MAX))}),
                     0);
    assert_fails(HAPAX_E_LIMIT, &automatic,
                 (struct asked){.coding = "gzip", .body = gzip(slice_of(zeros, DECODED_BYTES_MAX + 1))});
}

static void a_coding_that_is_not_known_makes_the_body_opaque(void **state)
{
    (void)state;
    struct asked a = {.type = "application/json", .coding = "zstd", BODY("xyz")};
    struct asked other_coding = {.type = "application/json", .coding = "lzma", BODY("xyz")};
    struct asked other_bytes = {.type = "application/json", .coding = "zstd", BODY("xyZ")};
    assert_true(same(a, a));
    assert_false(same(a, other_coding));
    assert_false(same(a, other_bytes));
    a.type = other_bytes.type = "text/plain";
    assert_false(same(a, (struct asked){.type = "text/plain", BODY("xyz")}));
}

static void content_types_that_differ_are_refused(void **state)
{
    (void)state;
    struct header h[] = {{SLICE_LITERAL("Content-Type"), SLICE_LITERAL("application/json")},
                         {SLICE_LITERAL("content-type"), SLICE_LITERAL("text/plain")}};
    struct request r = {.headers = h, .header_count = 2, .body = SLICE_LITERAL("{}")};
    struct content c;
    struct fingerprint f;
    content_init(&c, &r, &arena, DECODED_BYTES_MAX);
    assert_int_equal(fingerprint_make(&f, &automatic, &c, &err), HAPAX_E_SYNTAX);
    h[1].value = h[0].value;
    content_init(&c, &r, &arena, DECODED_BYTES_MAX);
    assert_int_equal(fingerprint_make(&f, &automatic, &c, &err), 0);
}

static void several_coding_lines_are_one_list(void **state)
{
    (void)state;
    struct slice twice = gzip(gzip(SLICE_LITERAL("hello")));
    struct header h[] = {{SLICE_LITERAL("Content-Encoding"), SLICE_LITERAL("gzip")},
                         {SLICE_LITERAL("Content-Encoding"), SLICE_LITERAL("gzip")}};
    struct request r = {.headers = h, .header_count = 2, .body = twice};
    struct content c;
    struct slice decoded;
    content_init(&c, &r, &arena, DECODED_BYTES_MAX);
    assert_int_equal(content_decoded(&decoded, &c, &err), 0);
    assert_true(slice_equal(decoded, SLICE_LITERAL("hello")));
}

static void the_body_is_parsed_once_and_failures_are_remembered(void **state)
{
    (void)state;
    struct request r = {.body = SLICE_LITERAL("[1, 2]")};
    struct content c;
    const struct json *first;
    const struct json *second;
    content_init(&c, &r, &arena, DECODED_BYTES_MAX);
    assert_int_equal(content_json(&first, &c, &err), 0);
    const struct json_node *nodes = first->nodes;
    assert_int_equal(content_json(&second, &c, &err), 0);
    assert_ptr_equal(second->nodes, nodes);

    r.body = SLICE_LITERAL("[1, 2");
    content_init(&c, &r, &arena, DECODED_BYTES_MAX);
    assert_int_equal(content_json(&first, &c, NULL), HAPAX_E_SYNTAX);
    assert_int_equal(content_json(&first, &c, &err), HAPAX_E_SYNTAX);
    assert_int_equal(err.code, HAPAX_E_SYNTAX);
    assert_true(strlen(err.message) > 10);
    struct slice decoded;
    assert_int_equal(content_decoded(&decoded, &c, &err), 0); /* bytes it still is */
}

static void ignored_json_members_do_not_count(void **state)
{
    (void)state;
    static const struct slice ignore[] = {{"/sent_at", 8}, {"/meta/try", 9}};
    const struct fingerprint_rule rule = {.ignore = ignore, .ignore_count = 2};
    const char *type = "application/json";
    struct asked a = {.type = type, BODY("{\"id\":1,\"sent_at\":5,\"meta\":{\"try\":1,\"v\":2}}")};
    struct asked b = {.type = type, BODY("{\"id\":1,\"meta\":{\"try\":2,\"v\":2},\"sent_at\":6}")};
    struct asked c = {.type = type, BODY("{\"id\":1,\"meta\":{\"v\":2}}")};
    struct asked other = {.type = type, BODY("{\"id\":1,\"sent_at\":5,\"meta\":{\"try\":1,\"v\":3}}")};
    assert_true(same_by(&rule, a, b));
    assert_true(same_by(&rule, a, c));
    assert_false(same_by(&rule, a, other));
    assert_false(same(a, b));
}

static void ignored_form_fields_do_not_count(void **state)
{
    (void)state;
    static const struct slice ignore[] = {{"/a~1b", 5}, {"/t~0", 4}, {"/x/y", 4}};
    const struct fingerprint_rule rule = {.ignore = ignore, .ignore_count = 3};
    const char *type = "application/x-www-form-urlencoded";
    assert_true(same_by(&rule, (struct asked){.type = type, BODY("id=1&a/b=2&t~=3&a%2Fb=4")},
                        (struct asked){.type = type, BODY("id=1")}));
    assert_false(same_by(&rule, (struct asked){.type = type, BODY("id=1&a=2")},
                         (struct asked){.type = type, BODY("id=1")}));
    assert_false(same_by(&rule, (struct asked){.type = type, BODY("id=1&x=2")},
                         (struct asked){.type = type, BODY("id=1")}));
    assert_false(same_by(&rule, (struct asked){.type = type, BODY("id=1&a/bc=2")},
                         (struct asked){.type = type, BODY("id=1")}));
    /* a pointer into what a form does not have; the field of that name is ~1 */
    assert_false(same_by(&rule, (struct asked){.type = type, BODY("id=1&x/y=2")},
                         (struct asked){.type = type, BODY("id=1")}));
    /* the query is not part of the body */
    assert_false(same_by(&rule, (struct asked){.query = "t~=1"}, (struct asked){.query = "t~=2"}));
}

static void ignored_multipart_fields_do_not_count(void **state)
{
    (void)state;
    static const struct slice ignore[] = {{"/t", 2}};
    const struct fingerprint_rule rule = {.ignore = ignore, .ignore_count = 1};
    const char *type = "multipart/form-data; boundary=b";
#define PART(name, value) "--b\r\nContent-Disposition: form-data; name=\"" name "\"\r\n\r\n" value "\r\n"
    struct asked a = {.type = type, BODY(PART("t", "1") PART("id", "7") "--b--")};
    struct asked b = {.type = type, BODY(PART("id", "7") PART("t", "2") "--b--")};
    struct asked c = {.type = type, BODY(PART("id", "8") PART("t", "2") "--b--")};
    assert_true(same_by(&rule, a, b));
    assert_false(same_by(&rule, a, c));
    assert_false(same(a, b));

    /* a part that has no name is not the one whose name is empty */
    static const struct slice ignore_empty[] = {{"/", 1}};
    const struct fingerprint_rule empty = {.ignore = ignore_empty, .ignore_count = 1};
#define NAMELESS(value) "--b\r\nContent-Disposition: form-data\r\n\r\n" value "\r\n"
    struct asked d = {.type = type, BODY(PART("", "1") PART("id", "7") "--b--")};
    struct asked e = {.type = type, BODY(NAMELESS("1") PART("id", "7") "--b--")};
    struct asked f = {.type = type, BODY(NAMELESS("2") PART("id", "7") "--b--")};
    struct asked g = {.type = type, BODY(PART("id", "7") "--b--")};
    assert_true(same_by(&empty, d, g));
    assert_false(same_by(&empty, e, f));
    assert_false(same_by(&empty, e, g));
#undef NAMELESS
#undef PART
}

static void fields_count_alone_and_absent_is_not_null(void **state)
{
    (void)state;
    static const struct slice pointers[] = {{"/id", 3}, {"/lines/0", 8}};
    const struct fingerprint_rule rule = {
        .mode = FINGERPRINT_FIELDS, .pointers = pointers, .pointer_count = 2};
    const char *type = "application/json";
    struct asked base = {.type = type, BODY("{\"id\":1,\"lines\":[{\"a\":1,\"b\":2}],\"t\":1}")};
    assert_true(same_by(&rule, base,
                        (struct asked){.type = type, BODY("{\"lines\":[{\"b\":2,\"a\":1},3],\"id\":1.0}")}));
    assert_false(
        same_by(&rule, base, (struct asked){.type = type, BODY("{\"id\":2,\"lines\":[{\"a\":1,\"b\":2}]}")}));
    struct asked null = {.type = type, BODY("{\"id\":null}")};
    struct asked absent = {.type = type, BODY("{}")};
    assert_false(same_by(&rule, null, absent));
    assert_true(same_by(&rule, absent, (struct asked){.type = type, BODY("{\"t\":3}")}));
    /* a value under another pointer is another content */
    static const struct slice two[] = {{"/a", 2}, {"/b", 2}};
    const struct fingerprint_rule ab = {.mode = FINGERPRINT_FIELDS, .pointers = two, .pointer_count = 2};
    assert_false(same_by(&ab, (struct asked){BODY("{\"a\":1}")}, (struct asked){BODY("{\"b\":1}")}));
    struct asked other_path = base;
    other_path.path = "/other";
    assert_false(same_by(&rule, base, other_path));
    assert_fails(HAPAX_E_SYNTAX, &rule, (struct asked){BODY("id=1")});
    assert_true(same_by(&rule, (struct asked){BODY("")}, (struct asked){BODY("")}));
}

static void bytes_count_as_they_are(void **state)
{
    (void)state;
    const char *type = "application/json";
    assert_false(same_by(&bytes_rule, (struct asked){.type = type, BODY("[1]")},
                         (struct asked){.type = type, BODY("[1 ]")}));
    assert_true(same_by(&bytes_rule, (struct asked){.type = type, BODY("[1")},
                        (struct asked){.type = "APPLICATION/json;x=y", BODY("[1")}));
    assert_false(
        same_by(&bytes_rule, (struct asked){.query = "a=1&b=2"}, (struct asked){.query = "b=2&a=1"}));
    assert_true(same_by(&bytes_rule, (struct asked){.query = "a=%zz"}, (struct asked){.query = "a=%zz"}));
}

static void without_a_fingerprint_all_requests_are_equal(void **state)
{
    (void)state;
    assert_true(
        same_by(&none_rule, (struct asked){.path = "/a", BODY("x")},
                (struct asked){.method = "PUT", .query = "%", .type = "application/json", BODY("{")}));
}

static void modes_and_versions_never_match_each_other(void **state)
{
    (void)state;
    static const enum fingerprint_mode modes[] = {FINGERPRINT_AUTO, FINGERPRINT_BYTES_MODE,
                                                  FINGERPRINT_FIELDS, FINGERPRINT_NONE};
    struct fingerprint f[4];
    for (size_t i = 0; i < 4; i++) {
        struct fingerprint_rule rule = {.mode = modes[i]};
        assert_int_equal(make(&f[i], &rule, (struct asked){BODY("[]")}), 0);
        for (size_t other = 0; other < i; other++) {
            assert_false(fingerprint_equal(&f[i], &f[other]));
        }
    }
    struct fingerprint newer = f[0];
    assert_true(fingerprint_equal(&newer, &f[0]));
    newer.version++;
    assert_false(fingerprint_equal(&newer, &f[0]));
    assert_true(fingerprint_mismatch(&newer, &f[0]));
    assert_false(fingerprint_mismatch(&f[0], &f[0]));
    struct fingerprint none = {.version = 0};
    assert_false(fingerprint_mismatch(&none, &f[0]) || fingerprint_mismatch(&f[0], &none));
}

static void an_error_leaves_no_memory_behind_and_says_why(void **state)
{
    (void)state;
    struct arena small;
    arena_init(&small, 0);
    struct request r = {.query = SLICE_LITERAL("a=1")};
    struct content c;
    struct fingerprint f;
    content_init(&c, &r, &small, 100);
    assert_int_equal(fingerprint_make(&f, &automatic, &c, &err), HAPAX_E_LIMIT);
    assert_int_equal(err.code, HAPAX_E_LIMIT);
    arena_free(&small);
}

static void more_form_pairs_than_allowed_are_refused(void **state)
{
    (void)state;
    size_t len = 2 * (LIMIT_FORM_PAIRS_MAX + 1);
    char *body = arena_alloc(&arena, len);
    assert_non_null(body);
    for (size_t i = 0; i < len; i += 2) {
        body[i] = 'a';
        body[i + 1] = '&';
    }
    const char *type = "application/x-www-form-urlencoded";
    struct fingerprint f;
    assert_int_equal(make(&f, &automatic, (struct asked){.type = type, .body = slice_of(body, len - 2)}), 0);
    assert_fails(HAPAX_E_LIMIT, &automatic, (struct asked){.type = type, .body = slice_of(body, len)});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(version_1_is_fixed_for_ever),
        CASE(method_path_and_media_type_count),
        CASE(case_and_parameters_of_the_media_type_do_not_count),
        CASE(the_query_is_a_set_of_pairs),
        CASE(parts_can_not_flow_into_each_other),
        CASE(json_counts_by_its_content),
        CASE(what_calls_itself_json_has_to_be),
        CASE(json_in_another_charset_is_refused_by_name),
        CASE(a_form_counts_by_its_pairs),
        CASE(a_multipart_body_counts_without_its_boundary),
        CASE(an_empty_body_of_any_type_is_the_empty_body),
        CASE(a_coded_body_counts_by_what_it_decodes_to),
        CASE(a_damaged_or_overlarge_coding_is_an_error),
        CASE(a_coding_that_is_not_known_makes_the_body_opaque),
        CASE(content_types_that_differ_are_refused),
        CASE(several_coding_lines_are_one_list),
        CASE(the_body_is_parsed_once_and_failures_are_remembered),
        CASE(ignored_json_members_do_not_count),
        CASE(ignored_form_fields_do_not_count),
        CASE(ignored_multipart_fields_do_not_count),
        CASE(fields_count_alone_and_absent_is_not_null),
        CASE(bytes_count_as_they_are),
        CASE(without_a_fingerprint_all_requests_are_equal),
        CASE(modes_and_versions_never_match_each_other),
        CASE(an_error_leaves_no_memory_behind_and_says_why),
        CASE(more_form_pairs_than_allowed_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
