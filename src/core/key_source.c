/* Parsing of configured key sources and templates. Runs when a configuration is loaded; what it lets
 * through, key.c trusts. */
#include "base/error.h"
#include "base/limits.h"
#include "core/key.h"
#include "core/key_value.h"

static const struct {
    struct slice prefix;
    enum key_source_kind kind;
} kinds[] = {
    {{"header:", 7}, KEY_HEADER},
    {{"query:", 6}, KEY_QUERY},
    {{"json:", 5}, KEY_JSON},
    {{"form:", 5}, KEY_FORM},
};

static int check_name(enum key_source_kind kind, struct slice name, hapax_error *err)
{
    if (kind == KEY_JSON) {
        if (name.len > LIMIT_POINTER_BYTES_MAX) {
            return error_set(err, HAPAX_E_SYNTAX, 0, "a JSON pointer has at most %d bytes",
                             LIMIT_POINTER_BYTES_MAX);
        }
        return json_pointer_check(name, err);
    }
    if (kind == KEY_HEADER && !slice_is_token(name)) {
        return error_set(err, HAPAX_E_SYNTAX, 0,
                         "header: is followed by a header's name, as in header:Idempotency-Key");
    }
    if (name.len == 0) {
        return error_set(err, HAPAX_E_SYNTAX, 0, "%s is followed by a name, as in %sorder_id",
                         kind == KEY_QUERY ? "query:" : "form:", kind == KEY_QUERY ? "query:" : "form:");
    }
    return 0;
}

static int parse_simple(enum key_source_kind *kind, struct slice *name, struct slice text, hapax_error *err)
{
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (slice_starts_with(text, kinds[i].prefix)) {
            *kind = kinds[i].kind;
            *name = slice_from(text, kinds[i].prefix.len);
            return check_name(*kind, *name, err);
        }
    }
    return error_set(err, HAPAX_E_SYNTAX, 0,
                     "a key source is header:NAME, query:NAME, json:/POINTER, form:NAME or a template with "
                     "such sources in braces, as in {json:/order_id}|{json:/step}");
}

/* Literal text up to the next single brace. *next is the offset after it. */
static int parse_literal(struct slice *out, size_t *next, struct slice text, size_t i, struct arena *arena,
                         hapax_error *err)
{
    char *literal = arena_alloc(arena, text.len - i);
    size_t len = 0;
    if (literal == NULL) {
        return error_code(err, arena_error(arena));
    }
    for (; i < text.len; i++) {
        char c = text.ptr[i];
        if (c == '{' || c == '}') {
            if (i + 1 == text.len || text.ptr[i + 1] != c) {
                break;
            }
            i++;
        }
        literal[len++] = c;
    }
    *out = (struct slice){literal, len};
    *next = i;
    if (!key_is_printable(*out)) {
        return error_set(err, HAPAX_E_SYNTAX, 0, "the text of a template has to be printable ASCII");
    }
    return 0;
}

static int parse_part(struct key_part *part, size_t *next, struct slice text, size_t i, struct arena *arena,
                      hapax_error *err)
{
    bool doubled = i + 1 < text.len && text.ptr[i + 1] == text.ptr[i];
    if ((text.ptr[i] != '{' && text.ptr[i] != '}') || doubled) {
        part->literal = true;
        return parse_literal(&part->text, next, text, i, arena, err);
    }
    const char *close = memchr(text.ptr + i, '}', text.len - i);
    if (text.ptr[i] == '}' || close == NULL) {
        return error_set(err, HAPAX_E_SYNTAX, 0,
                         "the template has a brace without its partner at byte %zu; {{ and }} stand for "
                         "braces in the text",
                         i);
    }
    struct slice inside = {text.ptr + i + 1, (size_t)(close - text.ptr) - i - 1};
    if (memchr(inside.ptr, '{', inside.len) != NULL) {
        return error_set(err, HAPAX_E_SYNTAX, 0, "a source in a template can't hold a brace");
    }
    *next = (size_t)(close - text.ptr) + 1;
    return parse_simple(&part->kind, &part->name, inside, err);
}

/* Could the end of a JSON number run on into what follows it? All other rendered values end by
 * themselves: strings in their quote, words in their last letter. */
static bool may_run_into(const struct key_part *next)
{
    if (!next->literal) {
        return next->kind == KEY_JSON;
    }
    char c = next->text.ptr[0];
    return (c >= '0' && c <= '9') || c == '.' || c == 'e' || c == 'E';
}

/* Two lists of values must never give one key: 1 and 23 are not 12 and 3. */
static int check_parts(const struct key_source *s, hapax_error *err)
{
    size_t last = 0;
    size_t sources = 0;
    for (size_t i = 0; i < s->part_count; i++) {
        if (!s->parts[i].literal) {
            last = i;
            sources++;
        }
    }
    if (sources == 0) {
        return error_set(err, HAPAX_E_SYNTAX, 0,
                         "the template names no source: every request would have the same key");
    }
    for (size_t i = 0; i < last; i++) {
        const struct key_part *part = &s->parts[i];
        if (!part->literal && part->kind == KEY_JSON && may_run_into(part + 1)) {
            return error_set(err, HAPAX_E_SYNTAX, 0,
                             "put a separator such as | after source %zu of the template: a number at its "
                             "end could not be told from what follows",
                             i + 1);
        }
    }
    return 0;
}

static int parse_template(struct key_source *out, struct slice text, struct arena *arena, hapax_error *err)
{
    out->kind = KEY_TEMPLATE;
    out->parts = arena_array(arena, LIMIT_TEMPLATE_PARTS_MAX, sizeof *out->parts);
    if (out->parts == NULL) {
        return error_code(err, arena_error(arena));
    }
    for (size_t i = 0; i < text.len;) {
        if (out->part_count == LIMIT_TEMPLATE_PARTS_MAX) {
            return error_set(err, HAPAX_E_SYNTAX, 0, "a template has at most %d parts",
                             LIMIT_TEMPLATE_PARTS_MAX);
        }
        struct key_part *part = &out->parts[out->part_count];
        *part = (struct key_part){0};
        int rc = parse_part(part, &i, text, i, arena, err);
        if (rc != 0) {
            return rc;
        }
        out->part_count++;
    }
    return check_parts(out, err);
}

int key_source_parse(struct key_source *out, struct slice text, struct arena *arena, hapax_error *err)
{
    *out = (struct key_source){0};
    if (text.len > 0 &&
        (memchr(text.ptr, '{', text.len) != NULL || memchr(text.ptr, '}', text.len) != NULL)) {
        return parse_template(out, text, arena, err);
    }
    return parse_simple(&out->kind, &out->name, text, err);
}
