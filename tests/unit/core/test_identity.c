#include "core/identity.h"

#include "base/digest.h"
#include "base/limits.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static struct identity make(const char *scope, const char *key)
{
    struct identity id;
    assert_int_equal(identity_make(&id, slice_text(scope), slice_text(key), NULL), 0);
    return id;
}

static void the_digest_is_fixed_for_ever(void **state)
{
    (void)state;
    /* SHA-256 over two parts of 8 bytes big-endian length and text; made with another implementation. */
    struct identity id = make("orders POST /v1/orders -", "k-1");
    char hex[2 * IDENTITY_BYTES + 1];
    digest_hex(hex, id.bytes, IDENTITY_BYTES);
    assert_string_equal(hex, "d479dbba4fba263354023a49a9a82105");
}

static void scope_and_key_are_kept_apart(void **state)
{
    (void)state;
    struct identity ab_c = make("ab", "c");
    struct identity a_bc = make("a", "bc");
    assert_false(identity_equal(&ab_c, &a_bc));
    struct identity again = make("ab", "c");
    assert_true(identity_equal(&ab_c, &again));
    struct identity upper = make("ab", "C");
    assert_false(identity_equal(&ab_c, &upper));
}

static void an_absent_part_is_an_error_and_never_an_empty_string(void **state)
{
    (void)state;
    struct identity id;
    hapax_error err = {0};
    assert_int_equal(identity_make(&id, SLICE_LITERAL("s"), SLICE_NONE, &err), HAPAX_E_MISSING);
    assert_int_equal(err.code, HAPAX_E_MISSING);
    assert_int_equal(identity_make(&id, SLICE_LITERAL("s"), SLICE_LITERAL(""), &err), HAPAX_E_MISSING);
    assert_int_equal(identity_make(&id, SLICE_NONE, SLICE_LITERAL("k"), &err), HAPAX_E_MISSING);
}

static void the_limits_are_exact(void **state)
{
    (void)state;
    static char text[LIMIT_SCOPE_BYTES_MAX + 1];
    memset(text, 'x', sizeof text);
    struct identity id;
    struct slice x = SLICE_LITERAL("x");
    assert_int_equal(identity_make(&id, slice_of(text, LIMIT_SCOPE_BYTES_MAX), x, NULL), 0);
    assert_int_equal(identity_make(&id, slice_of(text, LIMIT_SCOPE_BYTES_MAX + 1), x, NULL), HAPAX_E_LIMIT);
    assert_int_equal(identity_make(&id, x, slice_of(text, LIMIT_KEY_BYTES_MAX), NULL), 0);
    assert_int_equal(identity_make(&id, x, slice_of(text, LIMIT_KEY_BYTES_MAX + 1), NULL), HAPAX_E_LIMIT);
}

static void a_key_is_printable_ascii_and_a_scope_has_no_controls(void **state)
{
    (void)state;
    struct identity id;
    struct slice scope = SLICE_LITERAL("s");
    for (int c = 0; c < 256; c++) {
        char byte = (char)c;
        bool printable = c >= 0x20 && c <= 0x7e;
        bool control = c < 0x20 || c == 0x7f;
        assert_int_equal(identity_make(&id, scope, slice_of(&byte, 1), NULL), printable ? 0 : HAPAX_E_SYNTAX);
        assert_int_equal(identity_make(&id, slice_of(&byte, 1), scope, NULL), control ? HAPAX_E_SYNTAX : 0);
    }
}

static void an_error_never_repeats_the_key(void **state)
{
    (void)state;
    struct identity id;
    hapax_error err = {0};
    assert_int_equal(identity_make(&id, SLICE_LITERAL("s"), SLICE_LITERAL("secret\x01"), &err),
                     HAPAX_E_SYNTAX);
    assert_null(strstr(err.message, "secret"));
    assert_non_null(strstr(err.message, "byte 6"));
}

static void assert_scope(const char *route, const char *method, const char *path, struct slice tenant,
                         const char *expected)
{
    struct buf out;
    buf_init(&out, 65536);
    assert_int_equal(scope_make(&out, slice_text(route), slice_text(method), slice_text(path), tenant), 0);
    assert_int_equal(out.len, strlen(expected));
    assert_memory_equal(out.ptr, expected, out.len);
    buf_free(&out);
}

static void a_scope_reads_as_route_method_path_tenant(void **state)
{
    (void)state;
    assert_scope("orders", "POST", "/v1/orders", SLICE_LITERAL("acme"), "orders POST /v1/orders acme");
    assert_scope("orders", "POST", "/v1/a%2Fb", SLICE_LITERAL("~0123"), "orders POST /v1/a%2Fb ~0123");
    assert_scope("orders", "POST", "/caf\xc3\xa9/", SLICE_NONE, "orders POST /caf%C3%A9/ -");
}

static void no_tenant_is_told_apart_from_a_tenant_of_that_name(void **state)
{
    (void)state;
    assert_scope("r", "POST", "/", SLICE_NONE, "r POST / -");
    assert_scope("r", "POST", "/", SLICE_LITERAL("-"), "r POST / %2D");
    assert_scope("r", "POST", "/", SLICE_LITERAL("--"), "r POST / --");
}

static void a_tenant_is_escaped_reversibly(void **state)
{
    (void)state;
    assert_scope("r", "POST", "/", SLICE_LITERAL("a b"), "r POST / a%20b");
    assert_scope("r", "POST", "/", SLICE_LITERAL("a%20b"), "r POST / a%2520b");
    assert_scope("r", "POST", "/", SLICE_LITERAL("\xc3\xa9\n\x7f"), "r POST / %C3%A9%0A%7F");
}

static void a_blank_can_not_shift_the_parts(void **state)
{
    (void)state;
    struct buf out;
    buf_init(&out, 65536);
    assert_int_equal(buf_append_text(&out, "kept"), 0);
    struct slice ok = SLICE_LITERAL("x");
    assert_int_equal(scope_make(&out, SLICE_LITERAL("a b"), ok, ok, ok), HAPAX_E_SYNTAX);
    assert_int_equal(scope_make(&out, ok, SLICE_LITERAL("PO ST"), ok, ok), HAPAX_E_SYNTAX);
    assert_int_equal(scope_make(&out, ok, ok, SLICE_LITERAL("/a b"), ok), HAPAX_E_SYNTAX);
    assert_int_equal(scope_make(&out, ok, ok, SLICE_LITERAL("/a\r\n"), ok), HAPAX_E_SYNTAX);
    assert_int_equal(scope_make(&out, SLICE_NONE, ok, ok, ok), HAPAX_E_MISSING);
    assert_int_equal(scope_make(&out, ok, SLICE_NONE, ok, ok), HAPAX_E_MISSING);
    assert_int_equal(scope_make(&out, ok, ok, SLICE_LITERAL(""), ok), HAPAX_E_MISSING);
    assert_int_equal(out.len, 4);
    buf_free(&out);
}

static void an_over_long_scope_or_tenant_is_refused_whole(void **state)
{
    (void)state;
    static char text[LIMIT_SCOPE_BYTES_MAX];
    memset(text, '/', sizeof text);
    struct buf out;
    buf_init(&out, 65536);
    struct slice r = SLICE_LITERAL("r");
    /* "r r PATH -" is the path and 6 more */
    assert_int_equal(scope_make(&out, r, r, slice_of(text, LIMIT_SCOPE_BYTES_MAX - 6), SLICE_NONE), 0);
    assert_int_equal(out.len, LIMIT_SCOPE_BYTES_MAX);
    /* what stands in front of it does not count */
    assert_int_equal(scope_make(&out, r, r, slice_of(text, LIMIT_SCOPE_BYTES_MAX - 6), SLICE_NONE), 0);
    assert_int_equal(out.len, 2 * LIMIT_SCOPE_BYTES_MAX);
    buf_clear(&out);
    assert_int_equal(scope_make(&out, r, r, slice_of(text, LIMIT_SCOPE_BYTES_MAX - 5), SLICE_NONE),
                     HAPAX_E_LIMIT);
    assert_int_equal(out.len, 0);
    assert_int_equal(scope_make(&out, r, r, r, slice_of(text, LIMIT_TENANT_BYTES_MAX)), 0);
    buf_clear(&out);
    assert_int_equal(scope_make(&out, r, r, r, slice_of(text, LIMIT_TENANT_BYTES_MAX + 1)), HAPAX_E_LIMIT);
    assert_int_equal(out.len, 0);
    buf_free(&out);
}

static void a_small_buffer_is_left_as_it_was(void **state)
{
    (void)state;
    struct buf out;
    buf_init(&out, 8);
    assert_int_equal(buf_append_text(&out, "kept"), 0);
    struct slice r = SLICE_LITERAL("route");
    assert_int_equal(scope_make(&out, r, r, r, r), HAPAX_E_LIMIT);
    assert_int_equal(out.len, 4);
    buf_free(&out);
}

static void a_credential_becomes_a_short_digest(void **state)
{
    (void)state;
    char text[TENANT_DIGEST_TEXT];
    tenant_digest(text, SLICE_LITERAL("Bearer abc"));
    assert_string_equal(text, "~c355dce96c161288");
    char other[TENANT_DIGEST_TEXT];
    tenant_digest(other, SLICE_LITERAL("Bearer abd"));
    assert_string_not_equal(text, other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_digest_is_fixed_for_ever),
        cmocka_unit_test(scope_and_key_are_kept_apart),
        cmocka_unit_test(an_absent_part_is_an_error_and_never_an_empty_string),
        cmocka_unit_test(the_limits_are_exact),
        cmocka_unit_test(a_key_is_printable_ascii_and_a_scope_has_no_controls),
        cmocka_unit_test(an_error_never_repeats_the_key),
        cmocka_unit_test(a_scope_reads_as_route_method_path_tenant),
        cmocka_unit_test(no_tenant_is_told_apart_from_a_tenant_of_that_name),
        cmocka_unit_test(a_tenant_is_escaped_reversibly),
        cmocka_unit_test(a_blank_can_not_shift_the_parts),
        cmocka_unit_test(an_over_long_scope_or_tenant_is_refused_whole),
        cmocka_unit_test(a_small_buffer_is_left_as_it_was),
        cmocka_unit_test(a_credential_becomes_a_short_digest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
