/* A request made ready: what is refused before anything happens, what counts as the same request, how records are
 * called, and where the key goes. And answers as a store keeps them. */
#include "client/kept.h"
#include "client/plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>

static hapax_call_request post(const char *url, const char *body)
{
    return (hapax_call_request){.size = sizeof(hapax_call_request),
                                .method = "POST",
                                .url = url,
                                .body = body,
                                .body_bytes = body != NULL ? strlen(body) : 0};
}

static int code_of(const hapax_call_request *r, hapax_error *err)
{
    struct client_plan p;
    int rc = client_plan_make(&p, r, err);
    client_plan_free(&p);
    return rc;
}

static void made(struct client_plan *p, const hapax_call_request *r)
{
    hapax_error err;
    if (client_plan_make(p, r, &err) != 0) {
        fail_msg("plan: %s", err.message);
    }
}

static void take_key(struct client_plan *p, const char *key)
{
    hapax_error err;
    if (client_plan_take_key(p, slice_text(key), &err) != 0) {
        fail_msg("key: %s", err.message);
    }
}

static const char *header_of(const struct client_plan *p, const char *name)
{
    static char text[1024];
    struct slice value = SLICE_NONE;
    struct request r = {.headers = p->message.headers, .header_count = p->message.header_count};
    size_t n = request_header(&value, &r, slice_text(name));
    assert_true(n <= 1);
    snprintf(text, sizeof text, "%.*s", SLICE_FORMAT(value));
    return n == 1 ? text : NULL;
}

/* --- URLs --- */

static void a_url_is_cut_where_its_path_begins(void **state)
{
    (void)state;
    static const char *const urls[][5] = {
        {"http://h", "http://h", "/", "/", NULL},
        {"https://h:8443/a/b?x=1&y=2", "https://h:8443", "/a/b?x=1&y=2", "/a/b", "x=1&y=2"},
        {"http://h?x", "http://h", "/?x", "/", "x"},
        {"http://[::1]:80/a", "http://[::1]:80", "/a", "/a", NULL},
        {"HTTP://H/a?u=http://b/c", "HTTP://H", "/a?u=http://b/c", "/a", "u=http://b/c"},
    };
    for (size_t i = 0; i < sizeof urls / sizeof *urls; i++) {
        struct client_plan p;
        hapax_call_request r = post(urls[i][0], NULL);
        made(&p, &r);
        assert_string_equal(p.origin, urls[i][1]);
        assert_true(slice_equal(p.message.target, slice_text(urls[i][2])));
        assert_true(slice_equal(p.path, slice_text(urls[i][3])));
        assert_true(slice_equal(p.query, slice_text(urls[i][4])));
        client_plan_free(&p);
    }
}

static void what_can_not_be_sent_is_refused_and_never_repeated_in_the_message(void **state)
{
    (void)state;
    static const char *const urls[] = {"",
                                       "nonsense",
                                       "h/SECRET",
                                       "http://u:SECRET@h/",
                                       "http://h/SECRET#x",
                                       "http://h/ SECRET",
                                       "http://h/\xc3\xa9SECRET"};
    hapax_error err;
    for (size_t i = 0; i < sizeof urls / sizeof *urls; i++) {
        hapax_call_request r = post(urls[i], NULL);
        assert_int_equal(code_of(&r, &err), HAPAX_E_ARGUMENT);
        assert_null(strstr(err.message, "SECRET"));
    }
    static const hapax_call_header headers[] = {{"No Token", "SECRET"}, {"X-A", "SECRET\r\nX-B: c"},
                                                {"X-A", "SECRET\x01"},  {"X-A", "SECRET\x1b[0m"},
                                                {"X-A", "SECRET\x7f"},  {"content-length", "SECRET"},
                                                {"Expect", "SECRET"},   {"idempotency-key", "SECRET"}};
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++) {
        hapax_call_request r = post("http://h/", NULL);
        r.headers = &headers[i];
        r.header_count = 1;
        assert_int_equal(code_of(&r, &err), HAPAX_E_ARGUMENT);
        assert_null(strstr(err.message, "SECRET"));
    }
    static const char *const taken[] = {"Host",         "User-Agent", "authorization",  "Cookie",
                                        "Content-Type", "ACCEPT",     "Content-Length", "two words"};
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) {
        hapax_call_request r = post("http://h/", NULL);
        r.key_header = taken[i];
        assert_int_equal(code_of(&r, &err), HAPAX_E_ARGUMENT);
    }
    const hapax_call_header tab = {"X-A", "a\tb \xe4"};
    hapax_call_request r = post("http://h/", NULL);
    r.headers = &tab;
    r.header_count = 1;
    assert_int_equal(code_of(&r, &err), 0);
    r.size = 0;
    assert_int_equal(code_of(&r, &err), HAPAX_E_ARGUMENT);
    r = post("http://h/", NULL);
    r.header_count = 1;
    assert_int_equal(code_of(&r, &err), HAPAX_E_ARGUMENT);
    r = post("http://h/", NULL);
    r.method = "GET it";
    assert_int_equal(code_of(&r, &err), HAPAX_E_ARGUMENT);
    r.method = "CONNECT";
    assert_int_equal(code_of(&r, &err), HAPAX_E_ARGUMENT);
    r = post("http://h/", "x");
    r.method = "HEAD";
    assert_int_equal(code_of(&r, &err), HAPAX_E_ARGUMENT);
    r = post("http://h/", NULL);
    r.attempts_max = HAPAX_CALL_ATTEMPTS_MAX + 1;
    assert_int_equal(code_of(&r, &err), HAPAX_E_ARGUMENT);
    r.attempts_max = 1;
    r.timeout_ms = -1;
    assert_int_equal(code_of(&r, &err), HAPAX_E_ARGUMENT);
    r.timeout_ms = 0;
    r.key = "a";
    r.key_from = "json:/a";
    assert_int_equal(code_of(&r, &err), HAPAX_E_ARGUMENT);
    r.key_from = NULL;
    r.key = "{{ undefined }}";
    assert_int_equal(code_of(&r, &err), HAPAX_E_SYNTAX);
    r.key = "a";
    r.key_field = "/k";
    r.key_header = "X-Key";
    assert_int_equal(code_of(&r, &err), HAPAX_E_ARGUMENT);
}

static void limits_are_kept(void **state)
{
    (void)state;
    hapax_error err;
    char url[HAPAX_CALL_URL_BYTES_MAX + 2];
    memset(url, 'a', sizeof url);
    memcpy(url, "http://h/?", 10);
    url[sizeof url - 1] = '\0';
    hapax_call_request r = post(url, NULL);
    assert_int_equal(code_of(&r, &err), HAPAX_E_ARGUMENT);
    url[HAPAX_CALL_URL_BYTES_MAX] = '\0';
    assert_int_equal(code_of(&r, &err), 0);
    url[9] = 'a'; /* all path: too long a name, unless an op is one */
    assert_int_equal(code_of(&r, &err), HAPAX_E_LIMIT);
    r.op = "invoice 42";
    assert_int_equal(code_of(&r, &err), 0);
    r = post("http://h/", "x");
    r.body_bytes = HAPAX_CALL_BODY_BYTES_MAX + 1;
    assert_int_equal(code_of(&r, &err), HAPAX_E_LIMIT);
    static hapax_call_header many[HAPAX_CALL_HEADERS_MAX + 1];
    for (size_t i = 0; i <= HAPAX_CALL_HEADERS_MAX; i++) {
        many[i] = (hapax_call_header){"X", "y"};
    }
    r = post("http://h/", NULL);
    r.headers = many;
    r.header_count = HAPAX_CALL_HEADERS_MAX;
    assert_int_equal(code_of(&r, &err), 0);
    r.header_count++;
    assert_int_equal(code_of(&r, &err), HAPAX_E_LIMIT);
    static char long_value[HAPAX_CALL_HEAD_BYTES_MAX + 1];
    memset(long_value, 'v', sizeof long_value - 1);
    many[0].value = long_value;
    r.header_count = 1;
    assert_int_equal(code_of(&r, &err), HAPAX_E_LIMIT);
}

/* --- what counts as the same request --- */

static void digest_of(uint8_t out[DIGEST_BYTES], const char *url, const char *body, const char *type,
                      const char *more)
{
    struct client_plan p;
    hapax_call_request r = post(url, body);
    hapax_call_header headers[] = {{"Content-Type", type}, {"Authorization", more}};
    r.headers = headers;
    r.header_count = 2;
    made(&p, &r);
    memcpy(out, p.content, DIGEST_BYTES);
    client_plan_free(&p);
}

static void the_same_request_is_method_url_type_and_body_by_meaning(void **state)
{
    (void)state;
    static const char json[] = "application/json";
    uint8_t first[DIGEST_BYTES];
    uint8_t other[DIGEST_BYTES];
    digest_of(first, "http://h/a?x=1&y=2", "{\"a\":1,\"b\":[2]}", json, "Bearer one");
    digest_of(other, "http://h/a?y=2&x=1", "{ \"b\": [2], \"a\": 1.0 }", json, "Bearer two");
    assert_memory_equal(first, other, DIGEST_BYTES);
    digest_of(other, "http://h/a?x=1&y=2", "{\"a\":1,\"b\":[3]}", json, "Bearer one");
    assert_memory_not_equal(first, other, DIGEST_BYTES);
    digest_of(other, "http://h/b?x=1&y=2", "{\"a\":1,\"b\":[2]}", json, "Bearer one");
    assert_memory_not_equal(first, other, DIGEST_BYTES);
    digest_of(other, "http://i/a?x=1&y=2", "{\"a\":1,\"b\":[2]}", json, "Bearer one");
    assert_memory_not_equal(first, other, DIGEST_BYTES);
    digest_of(other, "http://h/a?x=1&y=2", "{\"a\":1,\"b\":[2]}", "text/plain", "Bearer one");
    assert_memory_not_equal(first, other, DIGEST_BYTES);
    /* Not what it says it is: by its bytes. */
    digest_of(first, "http://h/a", "{\"a\":1,", json, "Bearer one");
    digest_of(other, "http://h/a", "{\"a\":1, ", json, "Bearer one");
    assert_memory_not_equal(first, other, DIGEST_BYTES);
}

static void a_key_in_another_place_makes_another_request(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        const char *field;
        int quoted;
        bool same;
    } cases[] = {{NULL, NULL, 0, true},  {"idempotency-KEY", NULL, 0, true}, {"X-Request-Id", NULL, 0, false},
                 {NULL, NULL, 1, false}, {NULL, "/key", 0, false},           {NULL, "/id", 0, false}};
    enum { N = sizeof cases / sizeof *cases };
    uint8_t digests[N][DIGEST_BYTES];
    for (size_t i = 0; i < N; i++) {
        struct client_plan p;
        hapax_call_request r = post("http://h/", "{}");
        r.key_header = cases[i].header;
        r.key_field = cases[i].field;
        r.key_quoted = cases[i].quoted;
        made(&p, &r);
        memcpy(digests[i], p.content, DIGEST_BYTES);
        client_plan_free(&p);
        for (size_t k = 0; k < i; k++) {
            bool same = memcmp(digests[i], digests[k], DIGEST_BYTES) == 0;
            assert_int_equal(same, cases[i].same && cases[k].same);
        }
    }
}

/* --- names --- */

static const char *name_of(const char *op, struct arena *arena)
{
    const char *name;
    hapax_error err;
    int rc = client_plan_name_op(&name, slice_text(op), arena, &err);
    return rc == 0 ? name : NULL;
}

static void ops_are_readable_names_and_two_never_share_one(void **state)
{
    (void)state;
    struct arena arena;
    arena_init(&arena, 1U << 16);
    assert_string_equal(name_of("invoice 42", &arena), "invoice 42");
    assert_string_equal(name_of("100% of \xc3\xa9t\xc3\xa9", &arena), "100%25 of %C3%A9t%C3%A9");
    assert_null(name_of("", &arena));
    assert_null(name_of("   ", &arena));
    assert_null(name_of("a\nb", &arena));
    char longest[HAPAX_CALL_OP_BYTES_MAX + 2];
    memset(longest, 'x', sizeof longest - 1);
    longest[HAPAX_CALL_OP_BYTES_MAX + 1] = '\0';
    assert_null(name_of(longest, &arena));
    longest[HAPAX_CALL_OP_BYTES_MAX] = '\0';
    assert_string_equal(name_of(longest, &arena), longest);
    memset(longest, '\xe4', HAPAX_CALL_OP_BYTES_MAX);
    char first[HAPAX_KEY_BYTES_MAX + 1];
    snprintf(first, sizeof first, "%s", name_of(longest, &arena));
    assert_int_equal(strlen(first), 233);
    assert_int_equal(strncmp(first, "%E4%E4", 6), 0);
    longest[HAPAX_CALL_OP_BYTES_MAX - 1] = '\xe5';
    assert_string_not_equal(first, name_of(longest, &arena));
    arena_free(&arena);
}

static void without_an_op_the_key_is_the_name_within_method_and_url(void **state)
{
    (void)state;
    struct client_plan p;
    hapax_call_request r = post("https://h/a?token=SECRET", NULL);
    made(&p, &r);
    assert_string_equal(p.scope, "hapax call POST https://h/a");
    assert_null(p.name);
    take_key(&p, "k-1");
    assert_string_equal(p.name, "k-1");
    client_plan_free(&p);
    r.op = "invoice 42";
    made(&p, &r);
    assert_string_equal(p.scope, PLAN_OP_SCOPE);
    take_key(&p, "k-1");
    assert_string_equal(p.name, "invoice 42");
    client_plan_free(&p);
}

/* --- where the key goes --- */

static void a_key_goes_bare_into_its_header_where_it_can(void **state)
{
    (void)state;
    static const struct {
        const char *key;
        int quoted;
        const char *value;
    } cases[] = {{"k-1", 0, "k-1"},
                 {"k-1", 1, "\"k-1\""},
                 {"a \"b\" \\", 0, "a \"b\" \\"},
                 {"\"INV-7\"", 0, "\"\\\"INV-7\\\"\""},
                 {" k", 0, "\" k\""}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct client_plan p;
        hapax_call_request r = post("http://h/", NULL);
        r.key_quoted = cases[i].quoted;
        made(&p, &r);
        take_key(&p, cases[i].key);
        assert_string_equal(header_of(&p, "Idempotency-Key"), cases[i].value);
        assert_string_equal(header_of(&p, "User-Agent"), "hapax/" HAPAX_VERSION);
        client_plan_free(&p);
    }
}

static void keys_come_from_the_request_as_in_a_route_of_the_gateway(void **state)
{
    (void)state;
    static const struct {
        const char *from;
        const char *key;
    } cases[] = {{"json:/invoice/id", "42"},
                 {"json:/invoice/name", "\"INV-7\""},
                 {"header:X-Job", "job 9"},
                 {"query:q", "a b"},
                 {"{json:/invoice/id}|{header:X-Job}", "42|\"job 9\""}};
    const hapax_call_header headers[] = {{"Content-Type", "application/json"}, {"X-Job", "job 9"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct client_plan p;
        hapax_call_request r =
            post("http://h/?q=a%20b", "{\"invoice\":{\"id\":42,\"name\":\"INV-7\",\"none\":null}}");
        r.headers = headers;
        r.header_count = 2;
        r.key_from = cases[i].from;
        made(&p, &r);
        assert_string_equal(p.key, cases[i].key);
        client_plan_free(&p);
    }
    hapax_error err;
    hapax_call_request r = post("http://h/", "{\"invoice\":null}");
    r.key_from = "json:/invoice";
    assert_int_equal(code_of(&r, &err), HAPAX_E_MISSING);
    r.key_from = "nonsense";
    assert_int_equal(code_of(&r, &err), HAPAX_E_SYNTAX);
}

static void a_key_goes_into_the_body_without_changing_anything_else(void **state)
{
    (void)state;
    static const struct {
        const char *body;
        const char *field;
        const char *sent;
    } cases[] = {
        {"{}", "/key", "{\"key\":\"k\\\"1\"}"},
        {" { \"a\" : 1.50 }\n", "/key", " {\"key\":\"k\\\"1\", \"a\" : 1.50 }\n"},
        {"{\"x\":[{\"y\":{}}]}", "/x/0/y/a~1b~0", "{\"x\":[{\"y\":{\"a/b~\":\"k\\\"1\"}}]}"},
        {"{\"x\":{\"y\":2}}", "/x/key", "{\"x\":{\"key\":\"k\\\"1\",\"y\":2}}"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct client_plan p;
        hapax_call_request r = post("http://h/", cases[i].body);
        r.key_field = cases[i].field;
        made(&p, &r);
        take_key(&p, "k\"1");
        assert_true(slice_equal(p.message.body, slice_text(cases[i].sent)));
        assert_null(header_of(&p, "Idempotency-Key"));
        client_plan_free(&p);
    }
    static const char *const bad[][2] = {{"{\"key\":1}", "/key"},
                                         {"[]", "/key"},
                                         {"{", "/key"},
                                         {"", "/key"},
                                         {"{}", ""},
                                         {"{}", "/"},
                                         {"{}", "key"},
                                         {"{}", "/a/key"},
                                         {"{\"a\":7}", "/a/key"},
                                         {"[1]", "/0/key"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        hapax_error err;
        hapax_call_request r = post("http://h/", bad[i][0]);
        r.key_field = bad[i][1];
        int rc = code_of(&r, &err);
        if (rc != HAPAX_E_ARGUMENT && rc != HAPAX_E_SYNTAX) {
            fail_msg("%s into %s: %d", bad[i][1], bad[i][0], rc);
        }
    }
}

/* --- kept answers --- */

static void a_kept_answer_is_read_as_it_was_written(void **state)
{
    (void)state;
    const struct header headers[] = {{SLICE_LITERAL("A"), SLICE_LITERAL("1: 2")},
                                     {SLICE_LITERAL("a"), SLICE_LITERAL("")},
                                     {SLICE_LITERAL("B"), SLICE_LITERAL("\xff")}};
    struct kept k = {.status = 201,
                     .key = SLICE_LITERAL("k 1"),
                     .headers = headers,
                     .header_count = 3,
                     .body = {"\r\n\r\n\0x", 6}};
    struct buf text;
    struct arena arena;
    struct kept back;
    buf_init(&text, 4096);
    arena_init(&arena, 1U << 16);
    assert_int_equal(kept_write(&text, &k), 0);
    assert_int_equal(kept_read(&back, buf_slice(&text), &arena), 0);
    assert_int_equal(back.status, 201);
    assert_false(back.cut);
    assert_true(slice_equal(back.key, k.key) && slice_equal(back.body, k.body));
    assert_int_equal(back.header_count, 3);
    for (size_t i = 0; i < 3; i++) {
        assert_true(slice_equal(back.headers[i].name, headers[i].name));
        assert_true(slice_equal(back.headers[i].value, headers[i].value));
    }
    size_t head = text.len - k.body.len;
    for (size_t n = 0; n < text.len; n++) { /* damaged: cut anywhere, or with any byte changed */
        char *copy = test_malloc(n + 1);
        memcpy(copy, text.ptr, n);
        int rc = kept_read(&back, slice_of(copy, n), &arena);
        assert_true(n >= head ? rc == 0 : rc == HAPAX_E_SYNTAX);
        arena_reset(&arena);
        test_free(copy);
    }
    for (size_t n = 0; n < head; n++) {
        char was = text.ptr[n];
        for (int c = 0; c < 256; c += 5) {
            text.ptr[n] = (char)c;
            int rc = kept_read(&back, buf_slice(&text), &arena);
            assert_true(rc == 0 || rc == HAPAX_E_SYNTAX);
            assert_true(rc != 0 || (back.status >= 100 && back.status <= 999));
            arena_reset(&arena);
        }
        text.ptr[n] = was;
    }
    k.cut = true;
    k.body = SLICE_LITERAL("");
    buf_clear(&text);
    assert_int_equal(kept_write(&text, &k), 0);
    assert_int_equal(kept_read(&back, buf_slice(&text), &arena), 0);
    assert_true(back.cut && back.body.len == 0);
    arena_free(&arena);
    buf_free(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_url_is_cut_where_its_path_begins),
        cmocka_unit_test(what_can_not_be_sent_is_refused_and_never_repeated_in_the_message),
        cmocka_unit_test(limits_are_kept),
        cmocka_unit_test(the_same_request_is_method_url_type_and_body_by_meaning),
        cmocka_unit_test(a_key_in_another_place_makes_another_request),
        cmocka_unit_test(ops_are_readable_names_and_two_never_share_one),
        cmocka_unit_test(without_an_op_the_key_is_the_name_within_method_and_url),
        cmocka_unit_test(a_key_goes_bare_into_its_header_where_it_can),
        cmocka_unit_test(keys_come_from_the_request_as_in_a_route_of_the_gateway),
        cmocka_unit_test(a_key_goes_into_the_body_without_changing_anything_else),
        cmocka_unit_test(a_kept_answer_is_read_as_it_was_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
