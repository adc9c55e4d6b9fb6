/* The kinds of fields: numbers, words and texts here, the compound ones in kind_list.c. */
#include "config/kind.h"

#include "base/assert.h"
#include "base/units.h"
#include "config/syntax.h"
#include "core/fields.h"

#include <inttypes.h>
#include <stdio.h>

/* Numbers of either width; the table's test holds the sizes to the kinds. */
static void number_put(const struct field *f, void *base, uint64_t value)
{
    if (f->size == sizeof(uint32_t)) {
        uint32_t narrow = (uint32_t)value;
        memcpy(field_at(f, base), &narrow, sizeof narrow);
    } else {
        HAPAX_ASSERT(f->size == sizeof(uint64_t));
        memcpy(field_at(f, base), &value, sizeof value);
    }
}

static uint64_t number_get(const struct field *f, const void *base)
{
    uint32_t narrow;
    uint64_t wide;
    if (f->size == sizeof narrow) {
        memcpy(&narrow, field_at_const(f, base), sizeof narrow);
        return narrow;
    }
    memcpy(&wide, field_at_const(f, base), sizeof wide);
    return wide;
}

static int number_parse(uint64_t *out, const struct field *f, struct slice text)
{
    int64_t ms;
    switch (f->kind) {
    case KIND_DURATION:
        if (units_duration_ms(&ms, text) != 0) {
            return HAPAX_E_SYNTAX;
        }
        *out = (uint64_t)ms;
        return 0;
    case KIND_SIZE:
        return units_size_bytes(out, text);
    default:
        return units_u64(out, text);
    }
}

static void number_text(char *out, const struct field *f, uint64_t value)
{
    if (f->kind == KIND_DURATION) {
        units_duration_text(out, (int64_t)value);
    } else if (f->kind == KIND_SIZE) {
        units_size_text(out, value);
    } else {
        snprintf(out, UNITS_TEXT_MAX, "%" PRIu64, value);
    }
}

static int set_number(struct load *l, const struct field *f, void *base, const struct yaml_node *n)
{
    struct value v;
    uint64_t number;
    int rc = load_value(&v, l, f, n, false);
    if (rc != 0) {
        return rc;
    }
    if (number_parse(&number, f, v.text) != 0) {
        return load_bad_value(l, f, n->line, v.shown, NULL);
    }
    if (number < f->min || number > f->max) {
        char how[FIELD_TEXT_MAX];
        field_how(how, f);
        return load_fail(l, HAPAX_E_SYNTAX, n->line, "%s is too %s; %s", v.shown,
                         number < f->min ? "small" : "large", how);
    }
    number_put(f, base, number);
    return 0;
}

static int write_number(struct buf *out, const struct field *f, const void *base)
{
    char text[UNITS_TEXT_MAX];
    number_text(text, f, number_get(f, base));
    return buf_append_text(out, text);
}

static int word_index(struct slice word, const char *const *words)
{
    for (int i = 0; words[i] != NULL; i++) {
        if (slice_equal(word, slice_text(words[i]))) {
            return i;
        }
    }
    return -1;
}

static int set_word(struct load *l, const struct field *f, void *base, const struct yaml_node *n)
{
    struct value v;
    int rc = load_value(&v, l, f, n, false);
    int index = rc == 0 ? word_index(v.text, f->words) : -1;
    if (rc == 0 && index < 0) {
        rc = load_bad_value(l, f, n->line, v.shown, NULL);
    }
    if (rc == 0 && f->kind == KIND_ENUM) {
        number_put(f, base, (uint64_t)index);
    } else if (rc == 0) {
        memcpy(field_at(f, base), &f->words[index], sizeof f->words[index]);
    }
    return rc;
}

static int write_enum(struct buf *out, const struct field *f, const void *base)
{
    return buf_append_text(out, f->words[number_get(f, base)]);
}

static const char *text_get(const struct field *f, const void *base)
{
    const char *text;
    memcpy(&text, field_at_const(f, base), sizeof text);
    return text;
}

static int write_word(struct buf *out, const struct field *f, const void *base)
{
    return buf_append_text(out, text_get(f, base));
}

static int set_bool(struct load *l, const struct field *f, void *base, const struct yaml_node *n)
{
    struct value v;
    int rc = load_value(&v, l, f, n, false);
    if (rc != 0) {
        return rc;
    }
    bool yes = slice_equal(v.text, SLICE_LITERAL("true"));
    if (!yes && !slice_equal(v.text, SLICE_LITERAL("false"))) {
        return load_bad_value(l, f, n->line, v.shown, NULL);
    }
    memcpy(field_at(f, base), &yes, sizeof yes);
    return 0;
}

static int write_bool(struct buf *out, const struct field *f, const void *base)
{
    bool yes;
    memcpy(&yes, field_at_const(f, base), sizeof yes);
    return buf_append_text(out, yes ? "true" : "false");
}

static const char *check_file(struct slice s)
{
    return s.len == 0 ? "it is empty" : NULL;
}

/* The key would be lost under a name that is the gateway's business or the connection's. */
static const char *check_key_header(struct slice s)
{
    const char *problem = syntax_header(s);
    if (problem == NULL && field_class(s, FIELD_REQUEST) != FIELD_PLAIN) {
        problem = "the gateway removes or writes that one itself";
    }
    return problem;
}

static const char *check_text(enum field_kind kind, struct slice s)
{
    switch (kind) {
    case KIND_NAME:
        return syntax_name(s);
    case KIND_HOST:
        return syntax_host(s);
    case KIND_PATH:
        return syntax_path(s);
    case KIND_URL:
        return syntax_url(s);
    case KIND_PROBE:
        return syntax_probe(s);
    case KIND_FILE:
        return check_file(s);
    case KIND_ADDRESS_OFF:
        return slice_equal(s, SLICE_LITERAL("off")) ? NULL : syntax_address(s);
    case KIND_ADDRESS:
        return syntax_address(s);
    case KIND_STORE:
        return syntax_store(s);
    default:
        HAPAX_ASSERT(kind == KIND_HEADER);
        return check_key_header(s);
    }
}

/* One spelling for what is the same. `text` is followed by a NUL and ours to change. */
static int normalise(struct slice *text, struct load *l, enum field_kind kind)
{
    struct slice localhost = SLICE_LITERAL("localhost:");
    char *bytes = (char *)(uintptr_t)text->ptr;
    switch (kind) {
    case KIND_HOST:
        for (size_t i = 0; i < text->len; i++) {
            bytes[i] = ascii_lower(bytes[i]);
        }
        return 0;
    case KIND_URL:
        while (text->ptr[text->len - 1] == '/') {
            bytes[--text->len] = '\0';
        }
        return 0;
    case KIND_HEADER:
        if (slice_equal(*text, SLICE_LITERAL("none"))) {
            *text = SLICE_LITERAL("");
        }
        return 0;
    case KIND_ADDRESS:
    case KIND_ADDRESS_OFF:
        if (slice_starts_with(*text, localhost)) {
            char address[32];
            snprintf(address, sizeof address, "127.0.0.1:%s", text->ptr + localhost.len);
            return load_copy(text, l, slice_text(address));
        }
        return 0;
    default:
        return 0;
    }
}

static int set_text(struct load *l, const struct field *f, void *base, const struct yaml_node *n)
{
    struct value v;
    int rc = load_value(&v, l, f, n, true);
    if (rc != 0) {
        return rc;
    }
    const char *problem = check_text(f->kind, v.text);
    if (problem != NULL) {
        return load_bad_value(l, f, n->line, v.shown, problem);
    }
    rc = normalise(&v.text, l, f->kind);
    if (rc == 0) {
        memcpy(field_at(f, base), &v.text.ptr, sizeof v.text.ptr);
    }
    return rc;
}

static int write_text(struct buf *out, const struct field *f, const void *base)
{
    const char *text = text_get(f, base);
    if (text == NULL) {
        return HAPAX_E_MISSING;
    }
    if (f->kind == KIND_HEADER && text[0] == '\0') {
        return buf_append_text(out, "none");
    }
    return yaml_quote(out, slice_text(text));
}

#define TEXT(name_, noun_, how_)                                                                             \
    {                                                                                                        \
        .name = name_, .noun = noun_, .how = how_, .set = set_text, .write = write_text,                     \
        .size = sizeof(const char *)                                                                         \
    }

const struct kind field_kinds[KIND_COUNT_OF_KINDS] = {
    [KIND_NAME] = TEXT("name", "a name", "lower-case letters, digits, _ and -"),
    [KIND_HOST] = TEXT("host", "a host", "a name such as api.example.com"),
    [KIND_PATH] = TEXT("path", "a path", "/ or a path such as /orders"),
    [KIND_URL] = TEXT("URL", "an upstream's URL", "http://127.0.0.1:3000 or https://api.example.com/base"),
    [KIND_PROBE] = TEXT("URL", "a probe's URL", "such as https://api.example.com/orders/{key}"),
    [KIND_FILE] = TEXT("file", "a file's path", "the path of a file"),
    [KIND_ADDRESS] = TEXT("address", "an address", "127.0.0.1:8080, [::1]:8080 or :8080 for every address"),
    [KIND_ADDRESS_OFF] = TEXT("address or `off`", "an address", "127.0.0.1:8081, [::1]:8081 or off"),
    [KIND_STORE] = TEXT("store", "a store", "sqlite:PATH, postgresql://... or memory:"),
    [KIND_HEADER] =
        TEXT("header name or `none`", "a header for the key", "a name such as Idempotency-Key, or none"),
    [KIND_WORD] = {"word", "allowed here", NULL, set_word, write_word, sizeof(const char *), 0},
    [KIND_ENUM] = {"word", "allowed here", NULL, set_word, write_enum, sizeof(unsigned), 0},
    [KIND_BOOL] = {"true or false", "allowed here", "true or false", set_bool, write_bool, sizeof(bool), 0},
    [KIND_DURATION] = {"duration", "a duration", "250ms, 10s, 5m or 24h", set_number, write_number,
                       sizeof(int64_t), 0},
    [KIND_SIZE] = {"size", "a size", "64KiB, 8MiB or a number of bytes", set_number, write_number, 0, 0},
    [KIND_COUNT] = {"number", "a whole number", "a number", set_number, write_number, sizeof(uint32_t), 0},
    [KIND_METHODS] = {"list of methods", "a protected method", "a list of POST, PATCH, PUT, DELETE",
                      set_methods, write_methods, sizeof(unsigned), 0},
    [KIND_KEY] = {"key source, or list", "a key source",
                  "header:NAME, query:NAME, json:/POINTER, form:NAME, a template with {SOURCE}, or a list",
                  set_key, write_key, sizeof(const struct key_source *), sizeof(size_t)},
    [KIND_TENANT] = {"tenant source", "a tenant source", "authorization, none, header:NAME or query:NAME",
                     set_tenant, write_tenant, sizeof(enum tenant_kind), sizeof(const char *)},
    [KIND_FINGERPRINT] = {"fingerprint", "a fingerprint", "auto, bytes, none or {fields: [/pointer, ...]}",
                          set_fingerprint, write_fingerprint, sizeof(struct fingerprint_rule), 0},
    [KIND_IGNORE] = {"list of pointers", "a JSON pointer", "a list such as [/sent_at, /meta/attempt]",
                     set_ignore, write_ignore, sizeof(const struct slice *), sizeof(size_t)},
    [KIND_OUTCOME] = {"map of outcomes", "a map of outcomes", "a map such as {429: done, 5xx: unknown}",
                      set_outcome, write_outcome, sizeof(struct outcome_table), 0},
    [KIND_ROUTE_DEFAULTS] = {"route fields", "a mapping", "route fields, one a line", NULL, NULL, 0, 0},
    [KIND_ROUTES] = {"list of routes", "a list of routes", "- name: ..., path: ..., to: ... for each", NULL,
                     NULL, sizeof(const struct route *), sizeof(size_t)},
};

static size_t append(char *out, size_t at, const char *text)
{
    int n = snprintf(out + at, FIELD_TEXT_MAX - at, "%s", text);
    HAPAX_ASSERT(n >= 0 &&
                 (size_t)n < FIELD_TEXT_MAX - at); /* our own words: the table's test shows all fit */
    return at + (size_t)n;
}

static size_t append_words(char *out, size_t at, const char *const *words)
{
    for (size_t i = 0; words[i] != NULL; i++) {
        at = append(out, at, i == 0 ? "" : words[i + 1] == NULL ? " or " : ", ");
        at = append(out, at, words[i]);
    }
    return at;
}

void field_range(char *out, const struct field *f)
{
    char least[UNITS_TEXT_MAX];
    char most[UNITS_TEXT_MAX];
    out[0] = '\0';
    if (f->kind == KIND_DURATION || f->kind == KIND_SIZE || f->kind == KIND_COUNT) {
        number_text(least, f, f->min);
        number_text(most, f, f->max);
        size_t at = append(out, 0, least);
        at = append(out, at, " to ");
        append(out, at, most);
    } else if (f->words != NULL) {
        append_words(out, 0, f->words);
    }
}

void field_how(char *out, const struct field *f)
{
    char range[FIELD_TEXT_MAX];
    size_t at = append(out, 0, "write ");
    field_range(range, f);
    if (field_kinds[f->kind].how == NULL) {
        append_words(out, at, f->words);
        return;
    }
    at = append(out, at, field_kinds[f->kind].how);
    if (range[0] != '\0') {
        at = append(out, at, " (");
        at = append(out, at, range);
        append(out, at, ")");
    }
}
