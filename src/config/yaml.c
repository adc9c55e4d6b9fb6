/* See yaml.h. libyaml's events, not its document loader: the loader takes minutes for a megabyte of '[' and lets an
 * anchor contain itself, while events can be stopped at the first sign of either. Tree depth, and with it the
 * recursion here, is bounded by YAML_DEPTH_MAX. */
#include "config/yaml.h"

#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <yaml.h>

struct anchor {
    struct slice name;
    const struct yaml_node *node;
    struct anchor *next;
};

struct reader {
    yaml_parser_t parser;
    struct arena *arena;
    struct slice text;
    const char *name;
    hapax_error *err;
    struct anchor *anchors; /* newest first: a name may be used again */
    uint32_t anchor_count;
};

static uint32_t line_of(const yaml_mark_t *mark)
{
    return mark->line < UINT32_MAX - 1 ? (uint32_t)mark->line + 1 : UINT32_MAX;
}

static int refuse(struct reader *r, int code, uint32_t line, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

static int refuse(struct reader *r, int code, uint32_t line, const char *format, ...)
{
    char text[HAPAX_ERROR_MESSAGE_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return error_set(r->err, code, 0, "%s:%u: %s", r->name, line, text);
}

static int no_memory(struct reader *r)
{
    int code = arena_error(r->arena);
    return error_set(r->err, code, 0, "%s: %s", r->name, hapax_error_text(code));
}

static uint32_t line_at(struct slice text, size_t offset)
{
    uint32_t line = 1;
    for (size_t i = 0; i < offset && i < text.len; i++) {
        line += text.ptr[i] == '\n';
    }
    return line;
}

static bool tab_indents(struct slice text, uint32_t line)
{
    size_t i = 0;
    for (; line > 1 && i < text.len; i++) {
        line -= text.ptr[i] == '\n';
    }
    while (i < text.len && text.ptr[i] == ' ') {
        i++;
    }
    return i < text.len && text.ptr[i] == '\t';
}

/* What libyaml says, with its line, and a hint for the mistake that its words explain least. */
static int parser_failed(struct reader *r)
{
    const yaml_parser_t *p = &r->parser;
    const char *problem = p->problem != NULL ? p->problem : "not YAML";
    switch (p->error) {
    case YAML_MEMORY_ERROR:
        return error_set(r->err, HAPAX_E_MEMORY, 0, "%s: %s", r->name, hapax_error_text(HAPAX_E_MEMORY));
    case YAML_READER_ERROR:
        return refuse(r, HAPAX_E_SYNTAX, line_at(r->text, p->problem_offset), "%s", problem);
    default:
        break;
    }
    uint32_t line = line_of(&p->problem_mark);
    return refuse(r, HAPAX_E_SYNTAX, line, "%s%s%s%s", problem, p->context != NULL ? " " : "",
                  p->context != NULL ? p->context : "",
                  tab_indents(r->text, line) ? "; YAML can't be indented with tabs, use blanks" : "");
}

static int pull(struct reader *r, yaml_event_t *event)
{
    return yaml_parser_parse(&r->parser, event) ? 0 : parser_failed(r);
}

static struct slice bytes_of(const yaml_char_t *text)
{
    return slice_text((const char *)text);
}

static const struct anchor *anchor_find(const struct reader *r, struct slice name)
{
    const struct anchor *a = r->anchors;
    while (a != NULL && !slice_equal(a->name, name)) {
        a = a->next;
    }
    return a;
}

static int anchor_add(struct reader *r, const yaml_char_t *name, const struct yaml_node *node)
{
    if (name == NULL) {
        return 0;
    }
    if (r->anchor_count >= YAML_ANCHORS_MAX) {
        return refuse(r, HAPAX_E_LIMIT, node->line, "more than %u anchors", YAML_ANCHORS_MAX);
    }
    struct anchor *a = arena_zalloc(r->arena, sizeof *a);
    if (a == NULL || arena_copy(r->arena, bytes_of(name), &a->name) != 0) {
        return no_memory(r);
    }
    a->node = node;
    a->next = r->anchors;
    r->anchors = a;
    r->anchor_count++;
    return 0;
}

static int alias(const struct yaml_node **out, struct reader *r, const yaml_event_t *event)
{
    struct slice name = bytes_of(event->data.alias.anchor);
    const struct anchor *a = anchor_find(r, name);
    uint32_t line = line_of(&event->start_mark);
    if (a == NULL) {
        return refuse(r, HAPAX_E_SYNTAX, line, "*%.*s: no anchor &%.*s stands above", SLICE_FORMAT(name),
                      SLICE_FORMAT(name));
    }
    if (!a->node->complete) {
        return refuse(r, HAPAX_E_SYNTAX, line, "*%.*s stands inside of what it refers to",
                      SLICE_FORMAT(name));
    }
    *out = a->node;
    return 0;
}

static struct yaml_node *node_new(struct reader *r, enum yaml_kind kind, const yaml_event_t *event)
{
    struct yaml_node *node = arena_zalloc(r->arena, sizeof *node);
    if (node != NULL) {
        node->kind = kind;
        node->line = line_of(&event->start_mark);
        node->size = 1;
    }
    return node;
}

static bool is_null_word(struct slice text)
{
    return text.len == 0 || slice_equal(text, SLICE_LITERAL("~")) || slice_equal(text, SLICE_LITERAL("null"));
}

static int scalar(const struct yaml_node **out, struct reader *r, const yaml_event_t *event)
{
    struct yaml_node *node = node_new(r, YAML_TEXT, event);
    struct slice text = slice_of(event->data.scalar.value, event->data.scalar.length);
    if (node == NULL || arena_copy(r->arena, text, &node->text) != 0) {
        return no_memory(r);
    }
    node->empty = event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE && is_null_word(node->text);
    node->complete = true;
    *out = node;
    return anchor_add(r, event->data.scalar.anchor, node);
}

static int member_name(struct reader *r, struct yaml_node *map, struct yaml_item *item,
                       const yaml_event_t *event)
{
    if (event->type != YAML_SCALAR_EVENT) {
        return refuse(r, HAPAX_E_SYNTAX, item->line,
                      "a name is needed here, not a list, a mapping or an alias");
    }
    struct slice name = slice_of(event->data.scalar.value, event->data.scalar.length);
    for (const struct yaml_item *other = map->items; other != NULL; other = other->next) {
        if (slice_equal(other->name, name)) {
            return refuse(r, HAPAX_E_SYNTAX, item->line, "\"%.*s\" stands twice, first in line %u",
                          (int)(name.len < 64 ? name.len : 64), name.ptr, other->line);
        }
    }
    if (slice_equal(name, SLICE_LITERAL("<<"))) {
        return refuse(r, HAPAX_E_SYNTAX, item->line,
                      "merge keys (<<) are not supported; put what routes share under `defaults`");
    }
    return arena_copy(r->arena, name, &item->name) == 0 ? 0 : no_memory(r);
}

static int node_of(const struct yaml_node **out, struct reader *r, const yaml_event_t *event, unsigned depth);

/* The value of one item: the given event, or for a mapping, whose event is the name, the one after it. */
static int item_value(struct reader *r, struct yaml_node *parent, struct yaml_item *item,
                      const yaml_event_t *event, unsigned depth)
{
    if (parent->kind == YAML_LIST) {
        return node_of(&item->value, r, event, depth);
    }
    yaml_event_t value;
    int rc = member_name(r, parent, item, event);
    if (rc == 0) {
        rc = pull(r, &value);
    }
    if (rc != 0) {
        return rc;
    }
    /* libyaml gives an absent value the mark of what follows it, perhaps lines below. */
    if (value.type == YAML_SCALAR_EVENT && value.data.scalar.length == 0) {
        value.start_mark.line = event->start_mark.line;
    }
    rc = node_of(&item->value, r, &value, depth);
    yaml_event_delete(&value);
    return rc;
}

static int item_add(struct reader *r, struct yaml_node *parent, struct yaml_item **last,
                    const yaml_event_t *event, unsigned depth)
{
    struct yaml_item *item = arena_zalloc(r->arena, sizeof *item);
    if (item == NULL) {
        return no_memory(r);
    }
    item->line = line_of(&event->start_mark);
    if (++parent->count > YAML_ITEMS_MAX) {
        return refuse(r, HAPAX_E_LIMIT, item->line, "more than %u entries in one list or mapping",
                      YAML_ITEMS_MAX);
    }
    int rc = item_value(r, parent, item, event, depth);
    if (rc != 0) {
        return rc;
    }
    parent->size += item->value->size; /* both at most YAML_NODES_MAX: no overflow */
    if (parent->size > YAML_NODES_MAX) {
        return refuse(r, HAPAX_E_LIMIT, item->line, "more than %u values, aliases unfolded", YAML_NODES_MAX);
    }
    if (*last == NULL) {
        parent->items = item;
    } else {
        (*last)->next = item;
    }
    *last = item;
    return 0;
}

static int collection(const struct yaml_node **out, struct reader *r, const yaml_event_t *start,
                      unsigned depth)
{
    bool list = start->type == YAML_SEQUENCE_START_EVENT;
    struct yaml_node *node = node_new(r, list ? YAML_LIST : YAML_MAP, start);
    if (node == NULL) {
        return no_memory(r);
    }
    if (depth >= YAML_DEPTH_MAX) {
        return refuse(r, HAPAX_E_LIMIT, node->line, "nested deeper than %u levels", YAML_DEPTH_MAX);
    }
    int rc = anchor_add(r, list ? start->data.sequence_start.anchor : start->data.mapping_start.anchor, node);
    struct yaml_item *last = NULL;
    while (rc == 0) {
        yaml_event_t event;
        rc = pull(r, &event);
        if (rc != 0) {
            return rc;
        }
        bool end = event.type == YAML_SEQUENCE_END_EVENT || event.type == YAML_MAPPING_END_EVENT;
        if (!end) {
            rc = item_add(r, node, &last, &event, depth + 1);
        }
        yaml_event_delete(&event);
        if (end) {
            break;
        }
    }
    node->complete = true;
    *out = node;
    return rc;
}

static const yaml_char_t *tag_of(const yaml_event_t *event)
{
    switch (event->type) {
    case YAML_SCALAR_EVENT:
        return event->data.scalar.tag;
    case YAML_SEQUENCE_START_EVENT:
        return event->data.sequence_start.tag;
    case YAML_MAPPING_START_EVENT:
        return event->data.mapping_start.tag;
    default:
        return NULL;
    }
}

static int node_of(const struct yaml_node **out, struct reader *r, const yaml_event_t *event, unsigned depth)
{
    if (tag_of(event) != NULL) {
        return refuse(r, HAPAX_E_SYNTAX, line_of(&event->start_mark), "tags (!...) are not supported");
    }
    switch (event->type) {
    case YAML_ALIAS_EVENT:
        return alias(out, r, event);
    case YAML_SCALAR_EVENT:
        return scalar(out, r, event);
    case YAML_SEQUENCE_START_EVENT:
    case YAML_MAPPING_START_EVENT:
        return collection(out, r, event, depth);
    default:
        return refuse(r, HAPAX_E_SYNTAX, line_of(&event->start_mark), "a value is needed here");
    }
}

/* libyaml compares each %TAG with all before it: a file of them would keep it busy for minutes. */
static int refuse_directives(struct reader *r)
{
    for (size_t i = 0; i < r->text.len; i++) {
        if (r->text.ptr[i] == '%' && (i == 0 || r->text.ptr[i - 1] == '\n' || r->text.ptr[i - 1] == '\r')) {
            return refuse(r, HAPAX_E_SYNTAX, line_at(r->text, i), "directives (%%...) are not supported");
        }
    }
    return 0;
}

static int document(const struct yaml_node **out, struct reader *r)
{
    bool seen = false;
    for (;;) {
        yaml_event_t event;
        int rc = pull(r, &event);
        if (rc != 0) {
            return rc;
        }
        yaml_event_type_t type = event.type;
        if (type == YAML_DOCUMENT_START_EVENT && seen) {
            rc = refuse(r, HAPAX_E_SYNTAX, line_of(&event.start_mark),
                        "a second document begins; one file holds one configuration");
        } else if (type != YAML_STREAM_START_EVENT && type != YAML_STREAM_END_EVENT &&
                   type != YAML_DOCUMENT_START_EVENT && type != YAML_DOCUMENT_END_EVENT) {
            seen = true;
            rc = node_of(out, r, &event, 0);
        }
        yaml_event_delete(&event);
        if (rc != 0 || type == YAML_STREAM_END_EVENT) {
            return rc;
        }
    }
}

int yaml_read(const struct yaml_node **out, struct arena *arena, struct slice text, const char *name,
              hapax_error *err)
{
    *out = NULL;
    if (text.len > YAML_BYTES_MAX) {
        return error_set(err, HAPAX_E_LIMIT, 0, "%s: larger than %u bytes", name, YAML_BYTES_MAX);
    }
    if (slice_starts_with(text, SLICE_LITERAL("\xEF\xBB\xBF"))) {
        text = slice_from(text, 3);
    }
    struct reader r = {.arena = arena, .text = text, .name = name, .err = err};
    int rc = refuse_directives(&r);
    if (rc != 0) {
        return rc;
    }
    if (!yaml_parser_initialize(&r.parser)) {
        return error_set(err, HAPAX_E_MEMORY, 0, "%s: %s", name, hapax_error_text(HAPAX_E_MEMORY));
    }
    yaml_parser_set_encoding(&r.parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&r.parser, (const unsigned char *)(text.len > 0 ? text.ptr : ""), text.len);
    rc = document(out, &r);
    yaml_parser_delete(&r.parser);
    if (rc != 0) {
        *out = NULL;
    }
    return rc;
}

const struct yaml_item *yaml_find(const struct yaml_node *map, const char *name)
{
    if (map == NULL || map->kind != YAML_MAP) {
        return NULL;
    }
    const struct yaml_item *item = map->items;
    while (item != NULL && !slice_equal(item->name, slice_text(name))) {
        item = item->next;
    }
    return item;
}
