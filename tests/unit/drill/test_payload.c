/* Bodies in other forms, and requests from templates. */
#include "core/canonical.h"
#include "drill/profile.h"
#include "drill/request.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

static struct arena arena;

static int set_up(void **state)
{
    (void)state;
    arena_init(&arena, 64U << 20);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    arena_free(&arena);
    return 0;
}

static struct drill_setup setup_of(const char *body)
{
    struct drill_setup s = {.method = "POST",
                            .url = "http://127.0.0.1/orders",
                            .key_header = "Idempotency-Key",
                            .profile = drill_profile_named("draft")};
    s.body = slice_text(body);
    return s;
}

static struct payloads forms_of(const char *body)
{
    struct drill_setup s = setup_of(body);
    struct payloads p;
    assert_int_equal(payloads_make(&p, &s, &arena), 0);
    return p;
}

/* The canonical form: the same for the same content. */
static struct slice canonical(struct slice text)
{
    struct json j;
    struct buf out;
    struct slice kept;
    buf_init(&out, 1U << 20);
    assert_int_equal(json_parse(&j, &arena, text, NULL), 0);
    assert_int_equal(canonical_json(&out, &j, NULL, 0, &arena, NULL), 0);
    assert_int_equal(arena_copy(&arena, buf_slice(&out), &kept), 0);
    buf_free(&out);
    return kept;
}

static void reordered_means_the_same_in_other_bytes(void **state)
{
    (void)state;
    static const char *const bodies[] = {"{\"a\":1,\"b\":\"x\"}",
                                         "{\"a\":{\"c\":[1,2]},\"b\":null,\"d\":12345678901234567890}",
                                         " { \"caf\\u00e9\" : 1.50 , \"\" : true } "};
    for (size_t i = 0; i < sizeof bodies / sizeof bodies[0]; i++) {
        struct payloads p = forms_of(bodies[i]);
        struct slice other = p.form[DRILL_REORDERED];
        assert_false(slice_is_none(other));
        assert_false(slice_equal(other, slice_text(bodies[i])));
        assert_true(slice_equal(canonical(other), canonical(slice_text(bodies[i]))));
    }
}

static void a_body_with_too_many_values_is_still_json(void **state)
{
    (void)state;
    enum { VALUES = 1U << 19 };
    char *body = malloc(2 * VALUES + 2);
    assert_non_null(body);
    memset(body, '1', 2 * VALUES + 1);
    for (size_t i = 0; i <= VALUES; i++) {
        body[2 * i] = i == 0 ? '[' : ',';
    }
    body[2 * VALUES] = ']';
    body[2 * VALUES + 1] = '\0';
    struct drill_setup s = setup_of(body);
    struct payloads p;
    struct arena small;
    arena_init(&small, 4U << 20);
    assert_int_equal(payloads_make(&p, &s, &small), 0);
    assert_non_null(strstr(p.why[DRILL_REORDERED], "too large"));
    assert_non_null(strstr(p.why[DRILL_OTHER], "too large"));
    arena_free(&small);
    free(body);
}

static void other_differs_in_one_value(void **state)
{
    (void)state;
    static const struct {
        const char *body;
        const char *other;
    } cases[] = {
        {"{\"id\":7,\"s\":\"x\"}", "{\"id\":8,\"s\":\"x\"}"},
        {"{\"a\":1,\"b\":[2,{\"c\":3}]}", "{\"a\":1,\"b\":[2,{\"c\":4}]}"},
        {"{\"s\":\"x\",\"t\":\"y\"}", "{\"s\":\"x\",\"t\":\"y 2\"}"},
        {"{\"a\":-1.5,\"t\":true}", "{\"a\":1,\"t\":true}"},
        {"[5]", "[6]"},
        {"{\"n\":{unique},\"a\":1,\"k\":\"{key}\"}", "{\"n\":{unique},\"a\":2,\"k\":\"{key}\"}"},
        {"{\"k\":\"{key}\",\"s\":\"t\"}", "{\"k\":\"{key}\",\"s\":\"t 2\"}"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct payloads p = forms_of(cases[i].body);
        assert_string_equal(p.form[DRILL_OTHER].ptr, cases[i].other);
    }
}

static void what_has_no_other_form_says_why(void **state)
{
    (void)state;
    static const struct {
        const char *body;
        bool reordered;
        bool other;
    } cases[] = {{"", false, false},
                 {"a=1&b=2", false, false},
                 {"{\"a\":1}", false, true},
                 {"[1,2]", false, true},
                 {"{\"a\":true,\"b\":null}", true, false},
                 {"{\"a\":1,\"a\":2}", false, false},
                 {"{\"k\":\"{key}\"}", false, false},
                 {"{\"k\":\"{key}\",\"n\":{unique}}", true, false}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct payloads p = forms_of(cases[i].body);
        assert_int_equal(!slice_is_none(p.form[DRILL_REORDERED]), cases[i].reordered);
        assert_int_equal(!slice_is_none(p.form[DRILL_OTHER]), cases[i].other);
        assert_true(cases[i].reordered || p.why[DRILL_REORDERED] != NULL);
        assert_true(cases[i].other || p.why[DRILL_OTHER] != NULL);
    }
    struct drill_setup s = setup_of("a=1");
    struct payloads p;
    s.other_body = SLICE_LITERAL("a=2");
    assert_int_equal(payloads_make(&p, &s, &arena), 0);
    assert_true(slice_equal(p.form[DRILL_OTHER], SLICE_LITERAL("a=2")));
}

/* --- Requests. --- */

static const char *made(const struct drill_setup *s, const struct operation *op, size_t *cut)
{
    struct payloads p;
    struct buf out;
    struct slice kept;
    buf_init(&out, REQUEST_BYTES_MAX);
    assert_int_equal(payloads_make(&p, s, &arena), 0);
    assert_int_equal(
        request_write(&out, cut, s, &p, op, SLICE_LITERAL("127.0.0.1:80"), SLICE_LITERAL("/orders/{unique}")),
        0);
    assert_int_equal(arena_copy(&arena, buf_slice(&out), &kept), 0);
    buf_free(&out);
    return kept.ptr;
}

static unsigned times_in(const char *text, const char *part)
{
    unsigned n = 0;
    for (const char *at = strstr(text, part); at != NULL; at = strstr(at + 1, part)) {
        n++;
    }
    return n;
}

static void a_request_is_complete_and_says_its_length(void **state)
{
    (void)state;
    struct drill_setup s = setup_of("{\"n\":{unique},\"k\":\"{key}\"}");
    struct operation op = {.key = "k-1", .unique = "123"};
    size_t cut = 0;
    const char *text = made(&s, &op, &cut);
    const char *body = strstr(text, "\r\n\r\n") + 4;
    static const char head[] = "POST /orders/123 HTTP/1.1\r\nHost: 127.0.0.1:80\r\n";
    assert_memory_equal(text, head, sizeof head - 1);
    assert_string_equal(body, "{\"n\":123,\"k\":\"k-1\"}");
    assert_int_equal(times_in(text, "\r\nContent-Length: 19\r\n"), 1);
    assert_int_equal(times_in(text, "\r\nIdempotency-Key: \"k-1\"\r\n"), 1);
    assert_int_equal(times_in(text, "\r\nContent-Type: application/json\r\n"), 1);
    assert_true(text + cut > body && cut < strlen(text)); /* inside the body */
}

static void keys_take_every_form(void **state)
{
    (void)state;
    struct drill_setup s = setup_of("");
    struct operation op = {.key = "k-1", .unique = "1", .form = KEY_MISSING};
    size_t cut = 0;
    assert_int_equal(times_in(made(&s, &op, &cut), "Idempotency-Key"), 0);
    op.form = KEY_TWICE;
    assert_int_equal(
        times_in(made(&s, &op, &cut), "\r\nIdempotency-Key: \"k-1\"\r\nIdempotency-Key: \"k-1-2\"\r\n"), 1);
    op.form = KEY_RAW;
    op.raw_key = SLICE_LITERAL("{{key}}");
    assert_int_equal(times_in(made(&s, &op, &cut), "\r\nIdempotency-Key: {{key}}\r\n"), 1);
    op.form = KEY_LONG;
    op.key_bytes = 10;
    op.last = 'b';
    assert_int_equal(times_in(made(&s, &op, &cut), "\r\nIdempotency-Key: \"k-1kkkkkkb\"\r\n"), 1);
    op.form = KEY_NORMAL;
    s.bare_keys = true;
    const char *text = made(&s, &op, &cut);
    assert_int_equal(times_in(text, "\r\nIdempotency-Key: k-1\r\n"), 1);
    assert_true(cut > 0 && cut < strlen(text)); /* no body: inside the head */
}

static void another_tenant_replaces_the_first_ones_line(void **state)
{
    (void)state;
    struct drill_setup s = setup_of("");
    s.headers[s.header_count++] = (struct header){SLICE_LITERAL("authorization"), SLICE_LITERAL("Bearer a")};
    s.tenant = (struct header){SLICE_LITERAL("Authorization"), SLICE_LITERAL("Bearer b")};
    struct operation op = {.key = "k", .unique = "1"};
    size_t cut = 0;
    assert_int_equal(times_in(made(&s, &op, &cut), "Bearer a"), 1);
    op.place = DRILL_OTHER_TENANT;
    assert_int_equal(times_in(made(&s, &op, &cut), "Bearer a"), 0);
    assert_int_equal(times_in(made(&s, &op, &cut), "\r\nAuthorization: Bearer b\r\n"), 1);
}

static void shell_lines_hold_no_credentials(void **state)
{
    (void)state;
    static const char *const names[] = {"Authorization",
                                        "Cookie",
                                        "X-Api-Key",
                                        "x-auth-token",
                                        "Client-Secret",
                                        "apikey",
                                        "X-Auth",
                                        "X-Access-Key",
                                        "X-Session",
                                        "1-odd",
                                        "X-Who-I-Am",
                                        "od`touch x`d$(id)",
                                        "Ocp-Apim-Subscription-Key"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct drill_setup s = setup_of("x");
        struct payloads p;
        struct buf out;
        s.headers[s.header_count++] = (struct header){slice_text(names[i]), SLICE_LITERAL("hush")};
        s.tenant = (struct header){slice_text(names[i]), SLICE_LITERAL("hush")};
        struct operation op = {
            .key = "k", .unique = "1", .place = i % 2 == 0 ? DRILL_HERE : DRILL_OTHER_TENANT};
        buf_init(&out, 1U << 20);
        assert_int_equal(payloads_make(&p, &s, &arena), 0);
        assert_int_equal(request_write_curl(&out, &s, &p, &op, s.url, DRILL_READ), 0);
        assert_int_equal(buf_append_byte(&out, '\0'), 0);
        assert_int_equal(times_in(out.ptr, "hush"), 0);
        assert_int_equal(times_in(out.ptr, names[i]), 1);
        buf_free(&out);
    }
}

static void urls_show_no_credentials(void **state)
{
    (void)state;
    static const struct {
        const char *url;
        const char *shown;
        const char *word;
    } cases[] = {
        {"http://a/b", "http://a/b", " http://a/b"},
        {"http://a/?x=1&api_key=hush&y=2#/n", "http://a/?x=1&api_key=...&y=2#/n",
         " 'http://a/?x=1&api_key='\"$API_KEY\"'&y=2#/n'"},
        {"http://a/?token=hush", "http://a/?token=...", " 'http://a/?token='\"$TOKEN\""},
        {"http://a/?key={key}&x-sig=hush#&key=n", "http://a/?key={key}&x-sig=...#&key=n",
         " 'http://a/?key='\"$K\"'&x-sig='\"$X_SIG\"'#&key=n'"},
        {"http://a/?key", "http://a/?key", " 'http://a/?key'"},
        {"http://a/[1]", "http://a/[1]", " -g -X POST 'http://a/[1]'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct drill_setup s = setup_of("");
        struct payloads p;
        struct buf out;
        struct operation op = {.key = "k", .unique = "1"};
        buf_init(&out, 1U << 16);
        assert_int_equal(payloads_make(&p, &s, &arena), 0);
        assert_int_equal(request_show_url(&out, slice_text(cases[i].url)), 0);
        assert_int_equal(buf_append_byte(&out, '\0'), 0);
        assert_string_equal(out.ptr, cases[i].shown);
        buf_clear(&out);
        assert_int_equal(request_write_curl(&out, &s, &p, &op, cases[i].url, DRILL_READ), 0);
        assert_int_equal(buf_append_byte(&out, '\0'), 0);
        assert_int_equal(times_in(out.ptr, cases[i].word), 1);
        assert_int_equal(times_in(out.ptr, "hush"), 0);
        buf_free(&out);
    }
}

/* --- Shell lines, as a shell takes them. --- */

/* What `curl` would get: its arguments between brackets, then its standard input. */
static struct slice run_line(const char *line)
{
    static char got[1U << 17];
    static const char shell[] =
        "curl() { printf '[%s]' \"$@\"; case \"$*\" in *@-*) cat;; esac; }; K=k-1; U=5; ";
    size_t len = sizeof shell + strlen(line);
    char *script = malloc(len);
    assert_non_null(script);
    snprintf(script, len, "%s%s", shell, line);
    char path[] = "/tmp/hapax-line-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, script, len - 1), len - 1);
    close(fd);
    char command[sizeof path + 8];
    snprintf(command, sizeof command, "sh %s", path);
    FILE *pipe_end = popen(command, "r");
    assert_non_null(pipe_end);
    size_t n = fread(got, 1, sizeof got, pipe_end);
    assert_int_equal(pclose(pipe_end), 0);
    unlink(path);
    free(script);
    return slice_of(got, n);
}

static struct slice line_of(const struct drill_setup *s, const struct operation *op, enum drill_delivery lost)
{
    struct payloads p;
    struct buf out;
    buf_init(&out, 1U << 17);
    assert_int_equal(payloads_make(&p, s, &arena), 0);
    assert_int_equal(request_write_curl(&out, s, &p, op, s->url, lost), 0);
    assert_int_equal(buf_append_byte(&out, '\0'), 0);
    struct slice got = run_line(out.ptr);
    buf_free(&out);
    return got;
}

static bool ends_with(struct slice text, struct slice end)
{
    return text.len >= end.len && slice_equal(slice_from(text, text.len - end.len), end);
}

#define BODY(text, given)                                                                                    \
    {                                                                                                        \
        {text, sizeof(text) - 1},                                                                            \
        {                                                                                                    \
            given, sizeof(given) - 1                                                                         \
        }                                                                                                    \
    }

static void a_body_comes_out_of_a_shell_as_it_went_in(void **state)
{
    (void)state;
    static const struct slice bodies[][2] = {
        BODY("a=1", "[--data-raw][a=1]"),
        BODY("@/etc/passwd", "[--data-raw][@/etc/passwd]"),
        BODY("x='; exit 3; #", "[--data-raw][x='; exit 3; #]"),
        BODY("$HOME `id` \\ \"q\" %d", "[--data-raw][$HOME `id` \\ \"q\" %d]"),
        BODY("{\"k\":\"{key}\",\"u\":{unique}}", "[--data-raw][{\"k\":\"k-1\",\"u\":5}]"),
        BODY("-n 'a'\n%s \\n {key}{unique} $(exit 3)\n\n", "@-]-n 'a'\n%s \\n k-15 $(exit 3)\n\n"),
        BODY("nul\0and\0011\t\xC3\xA9\xFF", "@-]nul\0and\0011\t\xC3\xA9\xFF"),
    };
    for (size_t i = 0; i < sizeof bodies / sizeof bodies[0]; i++) {
        struct drill_setup s = setup_of("");
        struct operation op = {.key = "k", .unique = "1"};
        s.body = bodies[i][0];
        assert_true(ends_with(line_of(&s, &op, DRILL_READ), bodies[i][1]));
    }
}

static void headers_come_out_of_a_shell_as_they_went_in(void **state)
{
    (void)state;
    struct drill_setup s = setup_of("");
    struct operation op = {.key = "k", .unique = "1"};
    s.key_header = "Key'`exit 3`$(exit 3)";
    s.headers[s.header_count++] =
        (struct header){SLICE_LITERAL("a'`exit 3`"), SLICE_LITERAL("{unique}'\\\xC3\xA9`exit 3`")};
    s.headers[s.header_count++] = (struct header){SLICE_LITERAL("accept"), SLICE_LITERAL("a'b")};
    s.headers[s.header_count++] = (struct header){SLICE_LITERAL("empty"), SLICE_LITERAL("")};
    assert_true(
        ends_with(line_of(&s, &op, DRILL_READ),
                  SLICE_LITERAL("[-H][Key'`exit 3`$(exit 3): \"k-1\"][-H][a'`exit 3`: 5'\\\xC3\xA9`exit "
                                "3`][-H][accept: a'b][-H][empty;]")));
}

static void a_large_body_is_read_from_its_file_or_there_is_no_line(void **state)
{
    (void)state;
    static char body[20000];
    char path[] = "/tmp/hapax-body-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    memset(body, 'a', sizeof body - 1);
    memcpy(body + 10, "{unique}", 8);
    assert_int_equal(write(fd, body, sizeof body - 1), sizeof body - 1);
    close(fd);
    struct drill_setup s = setup_of(body);
    struct operation op = {.key = "k", .unique = "1"};
    s.body_file = path;
    struct slice got = line_of(&s, &op, DRILL_READ);
    const char *begin = memmem(got.ptr, got.len, "@-]aaaaaaaaaa5aaaa", 18);
    assert_non_null(begin);
    assert_int_equal(got.ptr + got.len - begin, 3 + sizeof body - 1 - 7);
    unlink(path);
    struct payloads p;
    struct buf out;
    buf_init(&out, 1U << 17);
    assert_int_equal(payloads_make(&p, &s, &arena), 0);
    op.body = slice_of(body, sizeof body - 2); /* an event's */
    assert_int_equal(request_write_curl(&out, &s, &p, &op, s.url, DRILL_READ), HAPAX_E_LIMIT);
    buf_free(&out);
}

static void the_unique_number_is_set_wherever_it_may_be_used(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct drill_setup s = setup_of("a");
        struct operation op = {.key = "k", .unique = "1"};
        struct buf out;
        buf_init(&out, 4096);
        s.other_body = i == 0 ? SLICE_LITERAL("{unique}") : SLICE_NONE;
        s.tenant.value = i == 1 ? SLICE_LITERAL("t-{unique}") : SLICE_NONE;
        s.other_url = i == 2 ? "http://a/{unique}" : NULL;
        assert_int_equal(request_write_unique_variable(&out, &s, &op), 0);
        assert_int_equal(out.len > 0, i < 3);
        buf_free(&out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(reordered_means_the_same_in_other_bytes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_body_with_too_many_values_is_still_json, set_up, tear_down),
        cmocka_unit_test_setup_teardown(other_differs_in_one_value, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_has_no_other_form_says_why, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_request_is_complete_and_says_its_length, set_up, tear_down),
        cmocka_unit_test_setup_teardown(keys_take_every_form, set_up, tear_down),
        cmocka_unit_test_setup_teardown(another_tenant_replaces_the_first_ones_line, set_up, tear_down),
        cmocka_unit_test_setup_teardown(shell_lines_hold_no_credentials, set_up, tear_down),
        cmocka_unit_test_setup_teardown(urls_show_no_credentials, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_body_comes_out_of_a_shell_as_it_went_in, set_up, tear_down),
        cmocka_unit_test_setup_teardown(headers_come_out_of_a_shell_as_they_went_in, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_large_body_is_read_from_its_file_or_there_is_no_line, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(the_unique_number_is_set_wherever_it_may_be_used, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("drill_payload", tests, NULL, NULL);
}
