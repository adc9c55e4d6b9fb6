/* application/x-www-form-urlencoded, strictly: a text has one reading or none. */
#include "core/form.h"

#include "base/error.h"
#include "base/limits.h"
#include "core/prefix.h"

#include <stdlib.h>

static int hex_digit(char c)
{
    c = ascii_lower(c);
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Undo '+' and %XX; borrows what needs no undoing. */
static int decode(struct slice *out, struct slice text, struct arena *arena)
{
    size_t plain = 0;
    while (plain < text.len && text.ptr[plain] != '+' && text.ptr[plain] != '%') {
        plain++;
    }
    if (plain == text.len) {
        *out = text;
        return 0;
    }
    char *decoded = arena_alloc(arena, text.len);
    if (decoded == NULL) {
        return arena_error(arena);
    }
    size_t n = 0;
    for (size_t i = 0; i < text.len; i++) {
        char c = text.ptr[i];
        if (c == '+') {
            c = ' ';
        } else if (c == '%') {
            int high = i + 2 < text.len ? hex_digit(text.ptr[i + 1]) : -1;
            int low = i + 2 < text.len ? hex_digit(text.ptr[i + 2]) : -1;
            if (high < 0 || low < 0) {
                return HAPAX_E_SYNTAX;
            }
            c = (char)(high * 16 + low);
            i += 2;
        }
        decoded[n++] = c;
    }
    *out = (struct slice){decoded, n};
    return 0;
}

/* Take the text up to the next `mark`, which is dropped, off the front of *rest. */
static struct slice take_until(struct slice *rest, char mark)
{
    const char *at = rest->len > 0 ? memchr(rest->ptr, mark, rest->len) : NULL;
    struct slice piece = {rest->ptr, at != NULL ? (size_t)(at - rest->ptr) : rest->len};
    *rest = slice_from(*rest, piece.len + (at != NULL));
    return piece;
}

static size_t count_pieces(struct slice text)
{
    size_t n = 0;
    while (text.len > 0 && n <= LIMIT_FORM_PAIRS_MAX) {
        n += take_until(&text, '&').len > 0;
    }
    return n;
}

int form_parse(struct form *out, struct arena *arena, struct slice text, hapax_error *err)
{
    size_t count = count_pieces(text);
    if (count > LIMIT_FORM_PAIRS_MAX) {
        return error_set(err, HAPAX_E_LIMIT, 0, "form: more than %d pairs", LIMIT_FORM_PAIRS_MAX);
    }
    struct form form = {0};
    if (count > 0) {
        form.pairs = arena_array(arena, count, sizeof *form.pairs);
        if (form.pairs == NULL) {
            return error_code(err, arena_error(arena));
        }
    }
    while (text.len > 0) {
        struct slice value = take_until(&text, '&');
        if (value.len == 0) {
            continue;
        }
        struct slice name = take_until(&value, '=');
        struct form_pair *pair = &form.pairs[form.count];
        pair->position = (uint32_t)form.count;
        int rc = decode(&pair->name, name, arena);
        if (rc == 0) {
            rc = decode(&pair->value, value, arena);
        }
        if (rc == HAPAX_E_SYNTAX) {
            return error_set(err, rc, 0, "form: pair %zu has a %% without two hex digits", form.count + 1);
        }
        if (rc != 0) {
            return error_code(err, rc);
        }
        form.count++;
    }
    *out = form;
    return 0;
}

size_t form_find(struct slice *out, const struct form *f, struct slice name)
{
    size_t n = 0;
    for (size_t i = 0; i < f->count; i++) {
        if (!slice_equal(f->pairs[i].name, name)) {
            continue;
        }
        if (n++ == 0) {
            *out = f->pairs[i].value; /* sorted or not: pairs of one name keep their order */
        }
    }
    return n;
}

static int by_name(const void *a, const void *b)
{
    const struct form_pair *x = a;
    const struct form_pair *y = b;
    int order = slice_compare(x->name, y->name);
    return order != 0 ? order : (x->position > y->position) - (x->position < y->position);
}

int form_canonical(struct buf *out, struct form *f)
{
    size_t before = out->len;
    int rc = 0;
    if (f->count > 1) {
        qsort(f->pairs, f->count, sizeof *f->pairs, by_name);
    }
    for (size_t i = 0; i < f->count && rc == 0; i++) {
        rc = prefix_append(out, f->pairs[i].name);
        if (rc == 0) {
            rc = prefix_append(out, f->pairs[i].value);
        }
    }
    if (rc != 0) {
        out->len = before;
    }
    return rc;
}
