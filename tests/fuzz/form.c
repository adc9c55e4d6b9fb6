/* application/x-www-form-urlencoded (core/form.h): the text.
 *
 * Would catch: a bad escape that is taken or a good one that is refused; a pair that is lost, added or cut, or reads
 * as something else; a canonical
 * form that depends on the order of names, on how characters are escaped or on empty pieces; one that does not
 * depend on a value. */
#include "fuzz.h"

#include "base/limits.h"
#include "core/form.h"

enum { ARENA_BYTES = 16 << 20 };

static bool is_hex(char c)
{
    return (c >= '0' && c <= '9') || (ascii_lower(c) >= 'a' && ascii_lower(c) <= 'f');
}

static bool escapes_are_good(struct slice text)
{
    for (size_t i = 0; i < text.len; i++) {
        if (text.ptr[i] == '%' &&
            (text.len - i < 3 || !is_hex(text.ptr[i + 1]) || !is_hex(text.ptr[i + 2]))) {
            return false;
        }
    }
    return true;
}

static size_t pieces_of(struct slice text)
{
    size_t n = 0;
    for (size_t i = 0; i < text.len; i++) {
        n += text.ptr[i] != '&' && (i == 0 || text.ptr[i - 1] == '&');
    }
    return n;
}

static char undo_escape(struct slice text, size_t *i)
{
    char digits[3] = {0};
    if (text.ptr[*i] != '%') {
        return text.ptr[*i] == '+' ? ' ' : text.ptr[*i];
    }
    memcpy(digits, text.ptr + *i + 1, 2);
    *i += 2;
    return (char)strtoul(digits, NULL, 16);
}

/* The bytes of `text` from *i on up to one of `ends`, decoded one by one, are those of `decoded`. */
static bool reads_as(struct slice text, size_t *i, const char *ends, struct slice decoded)
{
    size_t at = 0;
    for (; *i < text.len && (text.ptr[*i] == '\0' || strchr(ends, text.ptr[*i]) == NULL); ++*i, at++) {
        char c = undo_escape(text, i);
        if (at == decoded.len || decoded.ptr[at] != c) {
            return false;
        }
    }
    return at == decoded.len;
}

static void check_pairs(const struct form *f, struct slice text)
{
    size_t i = 0;
    for (size_t pair = 0; pair < f->count; pair++) {
        while (text.ptr[i] == '&') {
            i++;
        }
        FUZZ_CHECK(reads_as(text, &i, "=&", f->pairs[pair].name));
        i += i < text.len && text.ptr[i] == '=';
        FUZZ_CHECK(reads_as(text, &i, "&", f->pairs[pair].value));
    }
}

/* Every byte escaped, in upper or lower case. */
static void write_escaped(struct buf *out, struct slice text)
{
    for (size_t i = 0; i < text.len; i++) {
        unsigned byte = (uint8_t)text.ptr[i];
        FUZZ_CHECK(buf_printf(out, byte % 3 == 0 ? "%%%02x" : "%%%02X", byte) == 0);
    }
}

/* The pairs again, names in the reverse order of their first appearance, values of one name in theirs. */
static void write_reordered(struct buf *out, const struct form *f)
{
    for (size_t i = f->count; i-- > 0;) {
        bool first = true;
        for (size_t k = 0; k < i && first; k++) {
            first = !slice_equal(f->pairs[k].name, f->pairs[i].name);
        }
        for (size_t k = i; first && k < f->count; k++) {
            if (slice_equal(f->pairs[k].name, f->pairs[i].name)) {
                FUZZ_CHECK(buf_append_text(out, "&&") == 0);
                write_escaped(out, f->pairs[k].name);
                FUZZ_CHECK(buf_append_byte(out, '=') == 0);
                write_escaped(out, f->pairs[k].value);
            }
        }
    }
}

static void check_canonical(struct form *f, struct arena *arena)
{
    struct buf text;
    struct buf form;
    struct buf again;
    buf_init(&text, ARENA_BYTES);
    buf_init(&form, ARENA_BYTES);
    buf_init(&again, ARENA_BYTES);
    write_reordered(&text, f);
    FUZZ_CHECK(form_canonical(&form, f) == 0); /* sorts: after write_reordered() */

    struct form other;
    FUZZ_CHECK(form_parse(&other, arena, buf_slice(&text), NULL) == 0);
    FUZZ_CHECK(other.count == f->count);
    FUZZ_CHECK(form_canonical(&again, &other) == 0);
    FUZZ_CHECK(slice_equal(buf_slice(&form), buf_slice(&again)));

    FUZZ_CHECK(buf_append_text(&text, "x") == 0); /* the last value is another one */
    buf_clear(&again);
    FUZZ_CHECK(form_parse(&other, arena, buf_slice(&text), NULL) == 0);
    FUZZ_CHECK(form_canonical(&again, &other) == 0);
    FUZZ_CHECK(!slice_equal(buf_slice(&form), buf_slice(&again)));
    buf_free(&text);
    buf_free(&form);
    buf_free(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct slice text = slice_of(data, size);
    struct form f = {0};
    hapax_error err = {0};
    struct arena arena;
    arena_init(&arena, ARENA_BYTES);
    int rc = form_parse(&f, &arena, text, &err);
    size_t pieces = pieces_of(text);
    if (!escapes_are_good(text) || pieces > LIMIT_FORM_PAIRS_MAX) {
        FUZZ_CHECK(rc == HAPAX_E_SYNTAX || (rc == HAPAX_E_LIMIT && pieces > LIMIT_FORM_PAIRS_MAX));
        FUZZ_CHECK(err.code == rc && f.pairs == NULL);
    } else {
        FUZZ_CHECK(rc == 0 && f.count == pieces);
        size_t of_first = 0;
        struct slice value = SLICE_NONE;
        for (size_t i = 0; i < f.count; i++) {
            of_first += slice_equal(f.pairs[i].name, f.pairs[0].name);
        }
        if (f.count > 0) {
            FUZZ_CHECK(form_find(&value, &f, f.pairs[0].name) == of_first);
            FUZZ_CHECK(slice_equal(value, f.pairs[0].value));
        }
        check_pairs(&f, text);
        check_canonical(&f, &arena);
    }
    arena_free(&arena);
    return 0;
}
