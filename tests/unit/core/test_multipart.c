#include "core/multipart.h"

#include "base/limits.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

static struct arena arena;
static struct multipart parts;
static hapax_error err;

static int setup(void **state)
{
    (void)state;
    arena_init(&arena, 8 << 20);
    parts = (struct multipart){0};
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

static int parse(const char *text, const char *boundary)
{
    return multipart_parse(&parts, &arena, slice_text(text), slice_text(boundary), &err);
}

static void assert_text(struct slice s, const char *expected)
{
    if (!slice_equal(s, slice_text(expected))) {
        fail_msg("\"%.*s\" is not \"%s\"", SLICE_FORMAT(s), expected);
    }
}

static void a_body_is_taken_apart(void **state)
{
    (void)state;
    const char *text = "--b\r\n"
                       "Content-Disposition: form-data; name=\"id\"\r\n"
                       "\r\n"
                       "7\r\n"
                       "--b\r\n"
                       "Content-Disposition:form-data; name=\"f\"; filename=\"caf\xc3\xa9\"\r\n"
                       "content-type: \t text/plain \r\n"
                       "\r\n"
                       "two\r\nlines\n--b not a delimiter\r\n"
                       "--b--\r\n";
    assert_int_equal(parse(text, "b"), 0);
    assert_int_equal(parts.count, 2);
    assert_int_equal(parts.parts[0].header_count, 1);
    assert_text(parts.parts[0].headers[0].name, "Content-Disposition");
    assert_text(parts.parts[0].headers[0].value, "form-data; name=\"id\"");
    assert_text(parts.parts[0].body, "7");
    assert_int_equal(parts.parts[1].header_count, 2);
    assert_text(parts.parts[1].headers[1].name, "content-type");
    assert_text(parts.parts[1].headers[1].value, "text/plain");
    assert_text(parts.parts[1].body, "two\r\nlines\n--b not a delimiter");
}

static void bodies_are_borrowed(void **state)
{
    (void)state;
    const char *text = "--b\r\n\r\nbody\r\n--b--";
    assert_int_equal(parse(text, "b"), 0);
    assert_ptr_equal(parts.parts[0].body.ptr, text + 7);
}

static void preamble_epilogue_and_padding_are_skipped(void **state)
{
    (void)state;
    assert_int_equal(parse("pre\r\namble --b\r\n--b \t\r\n\r\nx\r\n--b--  \r\nepi\r\n--b\r\n", "b"), 0);
    assert_int_equal(parts.count, 1);
    assert_text(parts.parts[0].body, "x");
    assert_int_equal(parse("\r\n--b\r\n\r\nx\r\n--b--", "b"), 0);
    assert_int_equal(parts.count, 1);
}

static void empty_parts_and_empty_bodies_are_told_apart(void **state)
{
    (void)state;
    assert_int_equal(parse("--b\r\n\r\n\r\n--b--", "b"), 0);
    assert_int_equal(parts.count, 1);
    assert_int_equal(parts.parts[0].header_count, 0);
    assert_text(parts.parts[0].body, "");
    /* no body at all: the empty line's end is the delimiter's beginning */
    assert_int_equal(parse("--b\r\nA: 1\r\n\r\n--b\r\n\r\n--b--", "b"), 0);
    assert_int_equal(parts.count, 2);
    assert_text(parts.parts[0].body, "");
    assert_text(parts.parts[1].body, "");
    /* no parts: what browsers send for an empty form */
    assert_int_equal(parse("--b--\r\n", "b"), 0);
    assert_int_equal(parts.count, 0);
}

static void a_blank_line_at_the_end_of_a_body_is_kept(void **state)
{
    (void)state;
    assert_int_equal(parse("--b\r\n\r\nx\r\n\r\n--b--", "b"), 0);
    assert_text(parts.parts[0].body, "x\r\n");
}

static void malformed_framing_is_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        "no delimiter",
        "--b",
        "--b\r\n",
        "--b\r\n\r\n",
        "--b\r\n\r\nx",
        "--b\r\n\r\nx\r\n--b",     /* neither the next nor the last */
        "--b\r\n\r\nx\r\n--b\r\n", /* breaks off */
        "--b\r\n\r\nx\r\n--b-",
        "--b\r\n\r\nx\r\n--b--x",                 /* rubbish on the closing line */
        "--b\r\n\r\nx\r\n--bc\r\n\r\ny\r\n--b--", /* one reader's delimiter, another's text */
        "--b\n\nx\n--b--\n",                      /* bare line feeds */
        "--b\r\nA: 1\n\r\nx\r\n--b--",
        "--b\r\nA: 1\r\n folded\r\n\r\nx\r\n--b--",
        "--b\r\nA : 1\r\n\r\nx\r\n--b--",
        "--b\r\n: 1\r\n\r\nx\r\n--b--",
        "--b\r\nA\r\n\r\nx\r\n--b--",
        "--b\r\nA: \x01\r\n\r\nx\r\n--b--",
        "--b\r\nA: 1\r\r\n\r\nx\r\n--b--",
        "--b\r\nA: 1\r\n--b--",   /* no empty line */
        "x--b\r\n\r\nx\r\n--b--", /* the first is not at the start of a line */
        "--b\r\n--b--",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        err = (hapax_error){0};
        assert_int_equal(parse(bad[i], "b"), HAPAX_E_SYNTAX);
        assert_true(strlen(err.message) > 10);
    }
}

static void a_boundary_has_1_to_70_printable_characters(void **state)
{
    (void)state;
    char text[256];
    char boundary[LIMIT_MULTIPART_BOUNDARY_MAX + 2];
    memset(boundary, 'x', sizeof boundary);
    boundary[LIMIT_MULTIPART_BOUNDARY_MAX + 1] = '\0';
    snprintf(text, sizeof text, "--%s\r\n\r\nbody\r\n--%s--", boundary, boundary);
    assert_int_equal(parse(text, boundary), HAPAX_E_SYNTAX);
    boundary[LIMIT_MULTIPART_BOUNDARY_MAX] = '\0';
    snprintf(text, sizeof text, "--%s\r\n\r\nbody\r\n--%s--", boundary, boundary);
    assert_int_equal(parse(text, boundary), 0);
    assert_int_equal(parse("--\r\n\r\nx\r\n----", ""), HAPAX_E_SYNTAX);
    assert_int_equal(multipart_parse(&parts, &arena, SLICE_LITERAL("--\r\n\r\nx\r\n----"), SLICE_NONE, &err),
                     HAPAX_E_SYNTAX);
    assert_int_equal(parse("--b \r\n\r\nx\r\n--b --", "b "), HAPAX_E_SYNTAX);
    assert_int_equal(parse("--b\x01\r\n\r\nx\r\n--b\x01--", "b\x01"), HAPAX_E_SYNTAX);
    assert_int_equal(parse("--b c\r\n\r\nx\r\n--b c--", "b c"), 0);
}

static struct slice repeated(const char *head, const char *piece, size_t n, const char *tail)
{
    size_t len = strlen(piece);
    size_t total = strlen(head) + n * len + strlen(tail);
    char *text = arena_alloc(&arena, total);
    assert_non_null(text);
    memcpy(text, head, strlen(head));
    for (size_t i = 0; i < n; i++) {
        memcpy(text + strlen(head) + i * len, piece, len);
    }
    memcpy(text + strlen(head) + n * len, tail, strlen(tail));
    return slice_of(text, total);
}

static void parts_and_headers_have_a_maximum(void **state)
{
    (void)state;
    struct slice b = SLICE_LITERAL("b");
    struct slice most = repeated("", "--b\r\n\r\n\r\n", LIMIT_MULTIPART_PARTS_MAX, "--b--");
    assert_int_equal(multipart_parse(&parts, &arena, most, b, &err), 0);
    assert_int_equal(parts.count, LIMIT_MULTIPART_PARTS_MAX);
    struct slice more = repeated("", "--b\r\n\r\n\r\n", LIMIT_MULTIPART_PARTS_MAX + 1, "--b--");
    assert_int_equal(multipart_parse(&parts, &arena, more, b, &err), HAPAX_E_LIMIT);
    most = repeated("--b\r\n", "A: 1\r\n", LIMIT_HEADERS_MAX, "\r\nx\r\n--b--");
    assert_int_equal(multipart_parse(&parts, &arena, most, b, &err), 0);
    assert_int_equal(parts.parts[0].header_count, LIMIT_HEADERS_MAX);
    more = repeated("--b\r\n", "A: 1\r\n", LIMIT_HEADERS_MAX + 1, "\r\nx\r\n--b--");
    assert_int_equal(multipart_parse(&parts, &arena, more, b, &err), HAPAX_E_LIMIT);
}

static void without_room_in_the_arena_it_says_so(void **state)
{
    (void)state;
    struct arena small;
    arena_init(&small, 16);
    assert_int_equal(
        multipart_parse(&parts, &small, SLICE_LITERAL("--b\r\n\r\nx\r\n--b--"), SLICE_LITERAL("b"), &err),
        HAPAX_E_LIMIT);
    arena_free(&small);
}

static bool same_form(const char *a, const char *boundary_a, const char *b, const char *boundary_b)
{
    struct buf x;
    struct buf y;
    buf_init(&x, 4096);
    buf_init(&y, 4096);
    assert_int_equal(parse(a, boundary_a), 0);
    assert_int_equal(multipart_canonical(&x, &parts), 0);
    assert_int_equal(parse(b, boundary_b), 0);
    assert_int_equal(multipart_canonical(&y, &parts), 0);
    bool same = slice_equal(buf_slice(&x), buf_slice(&y));
    buf_free(&x);
    buf_free(&y);
    return same;
}

static void the_boundary_does_not_count(void **state)
{
    (void)state;
    assert_true(same_form("--b\r\nContent-Type: a\r\n\r\nx\r\n--b--", "b",
                          "pre\r\n--other \r\nCONTENT-TYPE:  a\r\n\r\nx\r\n--other--\r\n", "other"));
}

static void other_headers_and_their_order_do_not_count(void **state)
{
    (void)state;
    assert_true(same_form("--b\r\nContent-Type: a\r\nContent-Disposition: d\r\n\r\nx\r\n--b--", "b",
                          "--b\r\nContent-Disposition: d\r\nX-Id: 7\r\nContent-Type: a\r\n\r\nx\r\n--b--",
                          "b"));
}

static void contents_names_types_and_order_of_parts_count(void **state)
{
    (void)state;
    const char *base = "--b\r\nContent-Disposition: d\r\n\r\nx\r\n--b\r\n\r\ny\r\n--b--";
    static const char *const others[] = {
        "--b\r\nContent-Disposition: d\r\n\r\nX\r\n--b\r\n\r\ny\r\n--b--",
        "--b\r\nContent-Disposition: D\r\n\r\nx\r\n--b\r\n\r\ny\r\n--b--",
        "--b\r\nContent-Type: d\r\n\r\nx\r\n--b\r\n\r\ny\r\n--b--",
        "--b\r\n\r\nx\r\n--b\r\n\r\ny\r\n--b--",
        "--b\r\n\r\ny\r\n--b\r\nContent-Disposition: d\r\n\r\nx\r\n--b--",
        "--b\r\nContent-Disposition: d\r\n\r\nx\r\n--b--",
        "--b\r\nContent-Disposition: d\r\n\r\nxy\r\n--b\r\n\r\n\r\n--b--",
        "--b\r\nContent-Disposition: d\r\nContent-Type: \r\n\r\nx\r\n--b\r\n\r\ny\r\n--b--",
    };
    assert_true(same_form(base, "b", base, "b"));
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        assert_false(same_form(base, "b", others[i], "b"));
    }
}

static void a_full_buffer_is_left_as_it_was(void **state)
{
    (void)state;
    struct buf out;
    buf_init(&out, 24);
    assert_int_equal(buf_append_text(&out, "kept"), 0);
    assert_int_equal(parse("--b\r\n\r\nlong enough\r\n--b--", "b"), 0);
    assert_int_equal(multipart_canonical(&out, &parts), HAPAX_E_LIMIT);
    assert_int_equal(out.len, 4);
    buf_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_body_is_taken_apart),
        CASE(bodies_are_borrowed),
        CASE(preamble_epilogue_and_padding_are_skipped),
        CASE(empty_parts_and_empty_bodies_are_told_apart),
        CASE(a_blank_line_at_the_end_of_a_body_is_kept),
        CASE(malformed_framing_is_refused),
        CASE(a_boundary_has_1_to_70_printable_characters),
        CASE(parts_and_headers_have_a_maximum),
        CASE(without_room_in_the_arena_it_says_so),
        CASE(the_boundary_does_not_count),
        CASE(other_headers_and_their_order_do_not_count),
        CASE(contents_names_types_and_order_of_parts_count),
        CASE(a_full_buffer_is_left_as_it_was),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
