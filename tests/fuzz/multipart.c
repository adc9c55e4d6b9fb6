/* Multipart bodies (core/multipart.h): boundary, 0xFF, text.
 *
 * Would catch: parts that reach outside the text or hold their own delimiter; a body of our own making that is refused
 * or read as other parts; a canonical form that depends on the boundary, on preamble and epilogue, or on headers
 * that do not count; one that does not depend on a part's body. */
#include "fuzz.h"

#include "base/limits.h"
#include "core/multipart.h"

enum { ARENA_BYTES = 16 << 20 };

static bool within(struct slice piece, struct slice text)
{
    return piece.len == 0 || (piece.ptr >= text.ptr && piece.ptr + piece.len <= text.ptr + text.len);
}

static bool holds(struct slice text, struct slice piece)
{
    return text.len > 0 && memmem(text.ptr, text.len, piece.ptr, piece.len) != NULL;
}

static void check_parts(const struct multipart *m, struct slice text, struct slice boundary)
{
    struct buf needle;
    buf_init(&needle, LIMIT_MULTIPART_BOUNDARY_MAX + 4);
    FUZZ_CHECK(boundary.len > 0 && buf_append_text(&needle, "\r\n--") == 0);
    FUZZ_CHECK(buf_append_slice(&needle, boundary) == 0);
    FUZZ_CHECK(m->count <= LIMIT_MULTIPART_PARTS_MAX);
    for (size_t i = 0; i < m->count; i++) {
        const struct multipart_part *p = &m->parts[i];
        FUZZ_CHECK(within(p->body, text) && !holds(p->body, buf_slice(&needle)));
        FUZZ_CHECK(p->header_count <= LIMIT_HEADERS_MAX);
        for (size_t k = 0; k < p->header_count; k++) {
            FUZZ_CHECK(within(p->headers[k].name, text) && within(p->headers[k].value, text));
            FUZZ_CHECK(slice_is_token(p->headers[k].name));
            FUZZ_CHECK(!holds(p->headers[k].value, SLICE_LITERAL("\n")));
        }
    }
    buf_free(&needle);
}

/* A boundary that stands nowhere in the text. */
static void choose_boundary(char out[32], struct slice text)
{
    for (unsigned i = 0;; i++) {
        snprintf(out, 32, "Fuzz-%u", i);
        if (!holds(text, slice_text(out))) {
            return;
        }
    }
}

static void write_parts(struct buf *out, const struct multipart *m, const char *boundary)
{
    FUZZ_CHECK(buf_append_text(out, m->count > 0 ? "preamble\r\n" : "") == 0);
    for (size_t i = 0; i < m->count; i++) {
        const struct multipart_part *p = &m->parts[i];
        FUZZ_CHECK(buf_printf(out, "--%s \t\r\nX-Does-Not-Count: 1\r\n", boundary) == 0);
        for (size_t k = 0; k < p->header_count; k++) {
            FUZZ_CHECK(buf_append_slice(out, p->headers[k].name) == 0 && buf_append_text(out, ":  ") == 0 &&
                       buf_append_slice(out, p->headers[k].value) == 0 && buf_append_text(out, "\r\n") == 0);
        }
        FUZZ_CHECK(buf_append_text(out, "\r\n") == 0 && buf_append_slice(out, p->body) == 0);
        FUZZ_CHECK(buf_append_text(out, "\r\n") == 0);
    }
    FUZZ_CHECK(buf_printf(out, "--%s--\r\nepilogue", boundary) == 0);
}

/* Two parts of the input's bytes, framed by the rules, have to be read as that. */
static void check_made(struct slice text, struct arena *arena)
{
    char boundary[32];
    struct header type = {SLICE_LITERAL("Content-Type"), SLICE_LITERAL("text/plain")};
    struct multipart_part parts[2] = {
        {.headers = &type, .header_count = 1, .body = slice_of(text.ptr, text.len / 2)},
        {.body = slice_from(text, text.len / 2)},
    };
    struct multipart made = {parts, 2};
    struct multipart m;
    struct buf body;
    buf_init(&body, ARENA_BYTES);
    choose_boundary(boundary, text);
    write_parts(&body, &made, boundary);
    FUZZ_CHECK(multipart_parse(&m, arena, buf_slice(&body), slice_text(boundary), NULL) == 0 && m.count == 2);
    FUZZ_CHECK(slice_equal(m.parts[0].body, parts[0].body) && slice_equal(m.parts[1].body, parts[1].body));
    FUZZ_CHECK(m.parts[0].header_count == 2 && slice_equal(m.parts[0].headers[1].value, type.value));
    buf_free(&body);
}

static void check_rewritten(struct multipart *m, struct slice text, struct arena *arena)
{
    char boundary[32];
    struct buf form;
    struct buf body;
    struct buf again;
    struct multipart other;
    buf_init(&form, ARENA_BYTES);
    buf_init(&body, ARENA_BYTES);
    buf_init(&again, ARENA_BYTES);
    FUZZ_CHECK(multipart_canonical(&form, m) == 0);

    choose_boundary(boundary, text);
    write_parts(&body, m, boundary);
    FUZZ_CHECK(multipart_parse(&other, arena, buf_slice(&body), slice_text(boundary), NULL) == 0);
    FUZZ_CHECK(other.count == m->count);
    for (size_t i = 0; i < m->count; i++) {
        FUZZ_CHECK(slice_equal(other.parts[i].body, m->parts[i].body));
    }
    FUZZ_CHECK(multipart_canonical(&again, &other) == 0);
    FUZZ_CHECK(slice_equal(buf_slice(&form), buf_slice(&again)));

    if (m->count > 0) { /* one byte less or more of the last part is another request */
        struct slice *last = &m->parts[m->count - 1].body;
        *last = last->len > 0 ? slice_from(*last, 1) : SLICE_LITERAL("x");
        buf_clear(&again);
        FUZZ_CHECK(multipart_canonical(&again, m) == 0);
        FUZZ_CHECK(!slice_equal(buf_slice(&form), buf_slice(&again)));
    }
    buf_free(&form);
    buf_free(&body);
    buf_free(&again);
}

/* There must be room for the header that write_parts() adds. */
static bool can_be_rewritten(const struct multipart *m)
{
    for (size_t i = 0; i < m->count; i++) {
        if (m->parts[i].header_count == LIMIT_HEADERS_MAX) {
            return false;
        }
    }
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = {data, size};
    struct slice boundary = input_section(&in);
    struct slice text = input_rest(&in);
    struct multipart m = {0};
    hapax_error err = {0};
    struct arena arena;
    arena_init(&arena, ARENA_BYTES);
    int rc = multipart_parse(&m, &arena, text, boundary, &err);
    if (rc != 0) {
        FUZZ_CHECK(rc == HAPAX_E_SYNTAX || rc == HAPAX_E_LIMIT);
        FUZZ_CHECK(err.code == rc && m.parts == NULL);
    } else {
        check_parts(&m, text, boundary);
        if (can_be_rewritten(&m)) {
            check_rewritten(&m, text, &arena);
        }
    }
    check_made(text, &arena);
    arena_free(&arena);
    return 0;
}
