/* Finding a request's key: the sources in their order, templates part by part. A value that is there
 * but bad is an error and never a reason to look further: the client meant it. */
#include "core/key.h"

#include "base/assert.h"
#include "base/error.h"
#include "base/limits.h"
#include "core/form.h"
#include "core/key_value.h"

/* One extraction: the request, and what was parsed of it on the way. */
struct search {
    struct content *content;
    enum key_syntax syntax;
    struct form query;
    struct form body;
    bool query_parsed;
    bool body_parsed;
    hapax_error *err;
};

/* What a source named. Lexemes (numbers, true, false) are JSON text already; the rest is plain. */
struct found {
    bool present;
    bool lexeme;
    struct slice text;
};

static struct arena *arena_of(const struct search *s)
{
    return s->content->arena;
}

static int find_header(struct found *out, struct slice name, enum key_syntax syntax, const struct search *s)
{
    const struct request *r = s->content->request;
    for (size_t i = 0; i < r->header_count; i++) {
        if (!slice_equal_nocase(r->headers[i].name, name)) {
            continue;
        }
        struct slice key;
        int rc = key_from_header(&key, r->headers[i].value, syntax, arena_of(s), s->err);
        if (rc != 0) {
            return rc;
        }
        if (out->present && !slice_equal(out->text, key)) {
            return error_set(s->err, HAPAX_E_SYNTAX, 0,
                             "the request has several %.*s headers that differ: send one",
                             SLICE_FORMAT(name));
        }
        *out = (struct found){.present = true, .text = key};
    }
    return 0;
}

static int find_pair(struct found *out, const struct form *f, struct slice name,
                     const struct key_place *place, const struct search *s)
{
    for (size_t i = 0; i < f->count; i++) {
        if (!slice_equal(f->pairs[i].name, name)) {
            continue;
        }
        if (out->present && !slice_equal(out->text, f->pairs[i].value)) {
            return key_refuse(s->err, HAPAX_E_SYNTAX, place,
                              "is given several times with different values: send one");
        }
        *out = (struct found){.present = true, .text = f->pairs[i].value};
    }
    return out->present ? key_check_meaning(out->text, place, s->err) : 0;
}

static int find_query(struct found *out, struct slice name, const struct key_place *place, struct search *s)
{
    if (!s->query_parsed) {
        int rc = form_parse(&s->query, arena_of(s), s->content->request->query, s->err);
        if (rc != 0) {
            return rc;
        }
        s->query_parsed = true;
    }
    return find_pair(out, &s->query, name, place, s);
}

static bool is_urlencoded(struct slice media)
{
    return slice_equal_nocase(media, SLICE_LITERAL("application/x-www-form-urlencoded"));
}

/* A body of another type has no form fields. */
static int find_form(struct found *out, struct slice name, const struct key_place *place, struct search *s)
{
    if (!is_urlencoded(s->content->media)) {
        return 0;
    }
    if (!s->body_parsed) {
        struct slice body;
        int rc = content_decoded(&body, s->content, s->err);
        rc = rc != 0 ? rc : form_parse(&s->body, arena_of(s), body, s->err);
        if (rc != 0) {
            return rc;
        }
        s->body_parsed = true;
    }
    return find_pair(out, &s->body, name, place, s);
}

/* The body as JSON; *out is NULL when there is none: it is empty, or it is the form that its media
 * type says (curl sends JSON under that type unless told otherwise, so it is tried). */
static int body_json(const struct json **out, const struct search *s)
{
    struct slice body;
    *out = NULL;
    int rc = content_decoded(&body, s->content, s->err);
    if (rc != 0 || body.len == 0) {
        return rc;
    }
    rc = content_json(out, s->content, NULL);
    if (rc == HAPAX_E_SYNTAX) {
        struct slice media = s->content->media;
        struct slice multipart = SLICE_LITERAL("multipart/");
        bool form =
            is_urlencoded(media) || (media.len > multipart.len &&
                                     slice_equal_nocase((struct slice){media.ptr, multipart.len}, multipart));
        if (form) {
            *out = NULL;
            return 0;
        }
    }
    if (rc != 0 && s->err != NULL) {
        *s->err = s->content->error;
    }
    return rc;
}

static int find_json(struct found *out, struct slice pointer, const struct key_place *place,
                     const struct search *s)
{
    const struct json *j;
    int rc = body_json(&j, s);
    if (rc != 0 || j == NULL) {
        return rc;
    }
    uint32_t node;
    rc = json_pointer_find(&node, j, pointer, arena_of(s));
    if (rc != 0) {
        return error_code(s->err, rc);
    }
    if (node == JSON_NODE_NONE) {
        return 0;
    }
    switch (j->nodes[node].type) {
    case JSON_TYPE_NULL:
        return 0;
    case JSON_TYPE_ARRAY:
    case JSON_TYPE_OBJECT:
        return key_refuse(s->err, HAPAX_E_SYNTAX, place,
                          "is an array or an object: a string, a number, true or false can be a key");
    case JSON_TYPE_STRING:
        *out = (struct found){.present = true};
        rc = json_unquote(&out->text, j, node, arena_of(s));
        return rc != 0 ? error_code(s->err, rc) : key_check_meaning(out->text, place, s->err);
    case JSON_TYPE_NUMBER:
    case JSON_TYPE_TRUE:
    case JSON_TYPE_FALSE:
        break;
    }
    *out = (struct found){.present = true, .lexeme = true, .text = json_lexeme(j, node)};
    return 0;
}

static struct key_place place_of(enum key_source_kind kind, struct slice name)
{
    static const char *const words[] = {
        [KEY_HEADER] = "the key from header:",
        [KEY_QUERY] = "the key from query:",
        [KEY_JSON] = "the key from json:",
        [KEY_FORM] = "the key from form:",
        [KEY_TEMPLATE] = "the key",
    };
    return (struct key_place){words[kind], name};
}

static int find(struct found *out, enum key_source_kind kind, struct slice name, enum key_syntax syntax,
                struct search *s)
{
    struct key_place place = place_of(kind, name);
    *out = (struct found){0};
    switch (kind) {
    case KEY_HEADER:
        return find_header(out, name, syntax, s);
    case KEY_QUERY:
        return find_query(out, name, &place, s);
    case KEY_JSON:
        return find_json(out, name, &place, s);
    case KEY_FORM:
        return find_form(out, name, &place, s);
    case KEY_TEMPLATE:
        break;
    }
    return HAPAX_E_ARGUMENT; /* a template holds no templates: key_source_parse() sees to it */
}

static int append_json(struct buf *out, const struct found *f)
{
    return f->lexeme ? buf_append_slice(out, f->text) : json_quote(out, f->text, true);
}

/* Turn what was collected in `text` into the key, or its error into words. Frees `text`. */
static int finish(struct slice *out, struct buf *text, int rc, const struct key_place *place,
                  const struct search *s)
{
    if (rc == HAPAX_E_LIMIT) {
        key_refuse(s->err, rc, place, "is longer than 255 bytes as JSON text: use a shorter value");
    } else if (rc == HAPAX_E_SYNTAX || (rc == 0 && !key_is_printable(buf_slice(text)))) {
        rc = key_refuse(s->err, HAPAX_E_SYNTAX, place,
                        "is not valid UTF-8 or holds a control character: use printable text");
    } else if (rc == 0) {
        rc = arena_copy(arena_of(s), buf_slice(text), out);
        if (rc != 0) {
            error_code(s->err, rc);
        }
    } else {
        error_code(s->err, rc);
    }
    buf_free(text);
    return rc;
}

/* Values of all parts before any is rendered: one that is absent decides more than one that is long. */
static int find_parts(struct found *found, size_t *present, const struct key_part **absent,
                      const struct key_source *source, struct search *s)
{
    *present = 0;
    *absent = NULL;
    for (size_t i = 0; i < source->part_count; i++) {
        const struct key_part *part = &source->parts[i];
        if (part->literal) {
            continue;
        }
        /* Any header may be a part, not only one that is meant to hold a key: never strict. */
        int rc = find(&found[i], part->kind, part->name, KEY_LENIENT, s);
        if (rc != 0) {
            return rc;
        }
        if (found[i].present) {
            ++*present;
        } else if (*absent == NULL) {
            *absent = part;
        }
    }
    return 0;
}

static int ask_template(struct slice *out, bool *decided, const struct key_source *source, struct search *s)
{
    struct found found[LIMIT_TEMPLATE_PARTS_MAX];
    size_t present;
    const struct key_part *absent;
    HAPAX_ASSERT(source->part_count <= LIMIT_TEMPLATE_PARTS_MAX);
    int rc = find_parts(found, &present, &absent, source, s);
    if (rc != 0 || present == 0) {
        return rc;
    }
    *decided = true;
    if (absent != NULL) {
        struct key_place place = place_of(absent->kind, absent->name);
        return key_refuse(s->err, HAPAX_E_MISSING, &place,
                          "is absent or null, but the key is made of it and other parts: send all of them");
    }
    struct key_place place = place_of(KEY_TEMPLATE, SLICE_NONE);
    struct buf text;
    buf_init(&text, LIMIT_KEY_BYTES_MAX);
    for (size_t i = 0; i < source->part_count && rc == 0; i++) {
        const struct key_part *part = &source->parts[i];
        rc = part->literal ? buf_append_slice(&text, part->text) : append_json(&text, &found[i]);
    }
    return finish(out, &text, rc, &place, s);
}

static int ask(struct slice *out, bool *decided, const struct key_source *source, struct search *s)
{
    if (source->kind == KEY_TEMPLATE) {
        return ask_template(out, decided, source, s);
    }
    struct found found;
    int rc = find(&found, source->kind, source->name, s->syntax, s);
    if (rc != 0 || !found.present) {
        return rc;
    }
    *decided = true;
    struct key_place place = place_of(source->kind, source->name);
    if (source->kind == KEY_JSON) {
        struct buf text;
        buf_init(&text, LIMIT_KEY_BYTES_MAX);
        rc = append_json(&text, &found);
        return finish(out, &text, rc, &place, s);
    }
    if (source->kind != KEY_HEADER) { /* a header's value has been checked */
        rc = key_check(found.text, &place, s->err);
    }
    if (rc == 0) {
        *out = found.text;
    }
    return rc;
}

static int missing(const struct key_source *source, hapax_error *err)
{
    static const char *const words[] = {
        [KEY_HEADER] = "send the header ",
        [KEY_QUERY] = "send the query parameter ",
        [KEY_JSON] = "send a JSON body with a value at ",
        [KEY_FORM] = "send the form field ",
        [KEY_TEMPLATE] = "send all the parts it is made of",
    };
    return error_set(err, HAPAX_E_MISSING, 0,
                     "the request has no key: %s%.*s, with a value that stays the same on retries",
                     words[source->kind], SLICE_FORMAT(source->name));
}

int key_extract(struct slice *out, const struct key_source *sources, size_t source_count,
                enum key_syntax syntax, struct content *content, hapax_error *err)
{
    struct search s = {.content = content, .syntax = syntax, .err = err};
    for (size_t i = 0; i < source_count; i++) {
        bool decided = false;
        int rc = ask(out, &decided, &sources[i], &s);
        if (rc != 0 || decided) {
            return rc;
        }
    }
    if (source_count == 0) {
        return error_set(err, HAPAX_E_MISSING, 0, "no source of a key is configured");
    }
    return missing(&sources[0], err);
}

int key_quote(struct buf *out, struct slice key)
{
    const size_t before = out->len;
    int rc = buf_append_byte(out, '"');
    for (size_t i = 0; i < key.len && rc == 0; i++) {
        if (key.ptr[i] == '"' || key.ptr[i] == '\\') {
            rc = buf_append_byte(out, '\\');
        }
        rc = rc != 0 ? rc : buf_append_byte(out, key.ptr[i]);
    }
    rc = rc != 0 ? rc : buf_append_byte(out, '"');
    if (rc != 0) {
        out->len = before;
    }
    return rc;
}
