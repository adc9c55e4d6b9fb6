/* The compound kinds: lists of methods, key sources and pointers, tenants, fingerprints, outcomes. A list of one
 * may be written without brackets. */
#include "config/kind.h"

#include "base/limits.h"
#include "config/syntax.h"

#include <stdio.h>

const char *const method_words[] = {"POST", "PATCH", "PUT", "DELETE", NULL};
const char *const fingerprint_words[] = {[FINGERPRINT_AUTO] = "auto",
                                         [FINGERPRINT_BYTES_MODE] = "bytes",
                                         [FINGERPRINT_FIELDS] = "fields",
                                         [FINGERPRINT_NONE] = "none",
                                         NULL};

/* Walk the entries of a list, or the one text that stands for a list of one. Sets the place of messages. */
struct walk {
    const struct yaml_node *node;
    const struct yaml_item *item;
    size_t index;
    size_t suffix; /* where the place's own suffix begins */
};

static size_t walk_count(const struct yaml_node *n)
{
    return n->kind == YAML_LIST ? n->count : 1;
}

static struct walk walk_begin(struct load *l, const struct yaml_node *n)
{
    return (struct walk){n, n->kind == YAML_LIST ? n->items : NULL, 0, strlen(l->suffix)};
}

static const struct yaml_node *walk_next(struct walk *w, struct load *l)
{
    const struct yaml_node *entry;
    if (w->node->kind != YAML_LIST) {
        return w->index++ == 0 ? w->node : NULL;
    }
    if (w->item == NULL) {
        l->suffix[w->suffix] = '\0';
        return NULL;
    }
    snprintf(l->suffix + w->suffix, sizeof l->suffix - w->suffix, "[%zu]", w->index++);
    entry = w->item->value;
    w->item = w->item->next;
    return entry;
}

int set_methods(struct load *l, const struct field *f, void *base, const struct yaml_node *n)
{
    unsigned methods = 0;
    struct walk w = walk_begin(l, n);
    for (const struct yaml_node *entry; (entry = walk_next(&w, l)) != NULL;) {
        struct value v;
        int rc = load_value(&v, l, f, entry, false);
        if (rc != 0) {
            return rc;
        }
        unsigned i = 0;
        while (method_words[i] != NULL && !slice_equal(v.text, slice_text(method_words[i]))) {
            i++;
        }
        if (method_words[i] == NULL) {
            return load_bad_value(l, f, entry->line, v.shown, NULL);
        }
        methods |= 1U << i;
    }
    memcpy(field_at(f, base), &methods, sizeof methods);
    return 0;
}

int write_methods(struct buf *out, const struct field *f, const void *base)
{
    unsigned methods;
    memcpy(&methods, field_at_const(f, base), sizeof methods);
    int rc = buf_append_byte(out, '[');
    const char *between = "";
    for (unsigned i = 0; rc == 0 && method_words[i] != NULL; i++) {
        if ((methods & 1U << i) != 0) {
            rc = buf_printf(out, "%s%s", between, method_words[i]);
            between = ", ";
        }
    }
    return rc != 0 ? rc : buf_append_byte(out, ']');
}

int set_key(struct load *l, const struct field *f, void *base, const struct yaml_node *n)
{
    size_t count = walk_count(n);
    if (count == 0 || count > LIMIT_KEY_SOURCES_MAX) {
        return load_fail(l, HAPAX_E_SYNTAX, n->line, "has %zu sources; write 1 to %d", count,
                         LIMIT_KEY_SOURCES_MAX);
    }
    struct key_source *sources = arena_array(&l->config->arena, count, sizeof *sources);
    if (sources == NULL) {
        return load_no_memory(l);
    }
    struct walk w = walk_begin(l, n);
    struct key_source *source = sources;
    for (const struct yaml_node *entry; (entry = walk_next(&w, l)) != NULL; source++) {
        struct value v;
        hapax_error problem = {0};
        int rc = load_value(&v, l, f, entry, false);
        if (rc != 0) {
            return rc;
        }
        rc = key_source_parse(source, v.text, &l->config->arena, &problem);
        if (rc == HAPAX_E_MEMORY) {
            return load_no_memory(l);
        }
        if (rc != 0) {
            return load_fail(l, rc, entry->line, "%s: %s", v.shown, problem.message);
        }
    }
    const struct key_source *first = sources;
    memcpy(field_at(f, base), &first, sizeof first);
    memcpy(field_more(f, base), &count, sizeof count);
    return 0;
}

/* A template has none: its parts do. */
static const char *const source_words[] = {
    [KEY_HEADER] = "header:", [KEY_QUERY] = "query:", [KEY_JSON] = "json:", [KEY_FORM] = "form:"};

/* The text that key_source_parse() reads as this source. */
static int source_text(struct buf *out, const struct key_source *s)
{
    if (s->kind != KEY_TEMPLATE) {
        int rc = buf_append_text(out, source_words[s->kind]);
        return rc != 0 ? rc : buf_append_slice(out, s->name);
    }
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < s->part_count; i++) {
        const struct key_part *part = &s->parts[i];
        if (!part->literal) {
            rc = buf_printf(out, "{%s%.*s}", source_words[part->kind], SLICE_FORMAT(part->name));
            continue;
        }
        for (size_t k = 0; rc == 0 && k < part->text.len; k++) {
            char c = part->text.ptr[k];
            rc = buf_append(out, c == '{' ? "{{" : c == '}' ? "}}" : &c, c == '{' || c == '}' ? 2 : 1);
        }
    }
    return rc;
}

int write_key(struct buf *out, const struct field *f, const void *base)
{
    const struct key_source *sources;
    size_t count;
    memcpy(&sources, field_at_const(f, base), sizeof sources);
    memcpy(&count, field_more_const(f, base), sizeof count);
    struct buf text;
    buf_init(&text, 2 * LOAD_VALUE_BYTES_MAX);
    int rc = buf_append_text(out, count == 1 ? "" : "[");
    for (size_t i = 0; rc == 0 && i < count; i++) {
        buf_clear(&text);
        rc = source_text(&text, &sources[i]);
        if (rc == 0) {
            rc = buf_append_text(out, i > 0 ? ", " : "");
        }
        if (rc == 0) {
            rc = yaml_quote(out, buf_slice(&text));
        }
    }
    buf_free(&text);
    return rc != 0 ? rc : buf_append_text(out, count == 1 ? "" : "]");
}

static const struct {
    const char *word;
    bool named;
} tenants[] = {
    [TENANT_AUTHORIZATION] = {"authorization", false},
    [TENANT_NONE] = {"none", false},
    [TENANT_HEADER] = {"header:", true},
    [TENANT_QUERY] = {"query:", true},
};

int set_tenant(struct load *l, const struct field *f, void *base, const struct yaml_node *n)
{
    struct value v;
    int rc = load_value(&v, l, f, n, false);
    if (rc != 0) {
        return rc;
    }
    for (unsigned i = 0; i < sizeof tenants / sizeof tenants[0]; i++) {
        struct slice word = slice_text(tenants[i].word);
        if (!slice_starts_with(v.text, word) || (!tenants[i].named && v.text.len > word.len)) {
            continue;
        }
        struct slice name = slice_from(v.text, word.len);
        const char *problem = i == TENANT_HEADER                   ? syntax_header(name)
                              : i == TENANT_QUERY && name.len == 0 ? "the parameter's name is missing"
                                                                   : NULL;
        if (problem != NULL) {
            return load_bad_value(l, f, n->line, v.shown, problem);
        }
        enum tenant_kind kind = (enum tenant_kind)i;
        const char *text = tenants[i].named ? name.ptr : NULL;
        memcpy(field_at(f, base), &kind, sizeof kind);
        memcpy(field_more(f, base), &text, sizeof text);
        return 0;
    }
    return load_bad_value(l, f, n->line, v.shown, NULL);
}

int write_tenant(struct buf *out, const struct field *f, const void *base)
{
    enum tenant_kind kind;
    const char *name;
    memcpy(&kind, field_at_const(f, base), sizeof kind);
    memcpy(&name, field_more_const(f, base), sizeof name);
    if (!tenants[kind].named) {
        return buf_append_text(out, tenants[kind].word);
    }
    struct buf text;
    buf_init(&text, 2 * LOAD_VALUE_BYTES_MAX);
    int rc = buf_printf(&text, "%s%s", tenants[kind].word, name);
    if (rc == 0) {
        rc = yaml_quote(out, buf_slice(&text));
    }
    buf_free(&text);
    return rc;
}

/* A list of JSON pointers; `least` entries are needed. */
static int pointers_read(const struct slice **out, size_t *count, struct load *l, const struct field *f,
                         const struct yaml_node *n, size_t least)
{
    size_t entries = walk_count(n);
    if (entries < least || entries > LIMIT_POINTERS_MAX) {
        return load_fail(l, HAPAX_E_SYNTAX, n->line, "has %zu pointers; write %zu to %d", entries, least,
                         LIMIT_POINTERS_MAX);
    }
    struct slice *pointers = arena_array(&l->config->arena, entries, sizeof *pointers);
    if (pointers == NULL) {
        return load_no_memory(l);
    }
    struct walk w = walk_begin(l, n);
    struct slice *pointer = pointers;
    for (const struct yaml_node *entry; (entry = walk_next(&w, l)) != NULL; pointer++) {
        struct value v;
        hapax_error problem = {0};
        int rc = load_value(&v, l, f, entry, false);
        if (rc != 0) {
            return rc;
        }
        if (json_pointer_check(v.text, &problem) != 0) {
            return load_bad_value(l, f, entry->line, v.shown, problem.message);
        }
        if (v.text.len > LIMIT_POINTER_BYTES_MAX) {
            return load_fail(l, HAPAX_E_LIMIT, entry->line, "%s is longer than %d bytes", v.shown,
                             LIMIT_POINTER_BYTES_MAX);
        }
        *pointer = v.text;
    }
    *out = pointers;
    *count = entries;
    return 0;
}

static int pointers_write(struct buf *out, const struct slice *pointers, size_t count)
{
    int rc = buf_append_byte(out, '[');
    for (size_t i = 0; rc == 0 && i < count; i++) {
        rc = buf_append_text(out, i > 0 ? ", " : "");
        if (rc == 0) {
            rc = yaml_quote(out, pointers[i]);
        }
    }
    return rc != 0 ? rc : buf_append_byte(out, ']');
}

int set_fingerprint(struct load *l, const struct field *f, void *base, const struct yaml_node *n)
{
    struct fingerprint_rule *rule = field_at(f, base);
    const struct yaml_item *fields = yaml_find(n, "fields");
    if (fields != NULL && n->count == 1) {
        snprintf(l->suffix, sizeof l->suffix, ".fields");
        int rc = pointers_read(&rule->pointers, &rule->pointer_count, l, f, fields->value, 1);
        rule->mode = FINGERPRINT_FIELDS;
        return rc;
    }
    struct value v;
    int rc = load_value(&v, l, f, n, false);
    if (rc != 0) {
        return rc;
    }
    for (unsigned i = 0; fingerprint_words[i] != NULL; i++) {
        if (i != FINGERPRINT_FIELDS && slice_equal(v.text, slice_text(fingerprint_words[i]))) {
            rule->mode = (enum fingerprint_mode)i;
            rule->pointers = NULL;
            rule->pointer_count = 0;
            return 0;
        }
    }
    return load_bad_value(l, f, n->line, v.shown, NULL);
}

int write_fingerprint(struct buf *out, const struct field *f, const void *base)
{
    const struct fingerprint_rule *rule = field_at_const(f, base);
    if (rule->mode != FINGERPRINT_FIELDS) {
        return buf_append_text(out, fingerprint_words[rule->mode]);
    }
    int rc = buf_append_text(out, "{fields: ");
    if (rc == 0) {
        rc = pointers_write(out, rule->pointers, rule->pointer_count);
    }
    return rc != 0 ? rc : buf_append_byte(out, '}');
}

int set_ignore(struct load *l, const struct field *f, void *base, const struct yaml_node *n)
{
    const struct slice *pointers = NULL;
    size_t count = 0;
    int rc = pointers_read(&pointers, &count, l, f, n, 0);
    if (rc != 0) {
        return rc;
    }
    for (size_t i = 0; i < count; i++) {
        if (pointers[i].len == 0) {
            return load_fail(l, HAPAX_E_SYNTAX, n->line,
                             "\"\" leaves out the whole body; write fingerprint: none if that is meant");
        }
    }
    memcpy(field_at(f, base), &pointers, sizeof pointers);
    memcpy(field_more(f, base), &count, sizeof count);
    return 0;
}

int write_ignore(struct buf *out, const struct field *f, const void *base)
{
    const struct slice *pointers;
    size_t count;
    memcpy(&pointers, field_at_const(f, base), sizeof pointers);
    memcpy(&count, field_more_const(f, base), sizeof count);
    return pointers_write(out, pointers, count);
}

/* How many statuses an entry names; 0 for what is not one. */
static unsigned width_of(struct slice statuses)
{
    struct outcome_table t;
    unsigned width = 0;
    memset(&t, OUTCOME_DONE, sizeof t);
    if (outcome_table_set(&t, statuses, OUTCOME_UNKNOWN) != 0) {
        return 0;
    }
    for (size_t i = 0; i < sizeof t.of_status; i++) {
        width += t.of_status[i] == OUTCOME_UNKNOWN;
    }
    return width;
}

static int outcome_entry(struct load *l, struct outcome_table *t, const struct field *f,
                         const struct yaml_item *item)
{
    enum outcome outcome;
    struct value v;
    snprintf(l->suffix, sizeof l->suffix, ".%.24s", item->name.ptr);
    const char *problem = syntax_statuses(item->name);
    if (problem != NULL) {
        return load_fail(l, HAPAX_E_SYNTAX, item->line, "%s; write 429, 4xx or 400-499", problem);
    }
    int rc = load_value(&v, l, f, item->value, false);
    if (rc != 0) {
        return rc;
    }
    if (outcome_parse(&outcome, v.text) != 0) {
        return load_fail(l, HAPAX_E_SYNTAX, item->value->line,
                         "%s is not an outcome; write done, released or unknown", v.shown);
    }
    return outcome_table_set(t, item->name, outcome);
}

int set_outcome(struct load *l, const struct field *f, void *base, const struct yaml_node *n)
{
    if (n->kind != YAML_MAP) {
        return load_bad_value(l, f, n->line, n->kind == YAML_LIST ? "a list" : "a text", NULL);
    }
    struct outcome_table *t = field_at(f, base);
    unsigned width[YAML_ITEMS_MAX];
    unsigned i = 0;
    for (const struct yaml_item *item = n->items; item != NULL; item = item->next) {
        width[i++] = width_of(item->name);
    }
    /* The narrower entry wins, so the wider ones are applied first; what is no entry (0) fails last. */
    for (unsigned pass = sizeof t->of_status + 1; pass-- > 0;) {
        i = 0;
        for (const struct yaml_item *item = n->items; item != NULL; item = item->next) {
            int rc = width[i++] == pass ? outcome_entry(l, t, f, item) : 0;
            if (rc != 0) {
                return rc;
            }
        }
    }
    l->suffix[0] = '\0';
    return 0;
}

/* Only what differs from the rule, in runs: what set_outcome() needs to make the same table. */
int write_outcome(struct buf *out, const struct field *f, const void *base)
{
    const struct outcome_table *t = field_at_const(f, base);
    struct outcome_table rule;
    outcome_table_default(&rule);
    const char *between = "";
    int rc = buf_append_byte(out, '{');
    for (int i = OUTCOME_STATUS_MIN; rc == 0 && i <= OUTCOME_STATUS_MAX; i++) {
        enum outcome o = outcome_of_status(t, i);
        int last = i;
        if (o == outcome_of_status(&rule, i)) {
            continue;
        }
        while (last < OUTCOME_STATUS_MAX && outcome_of_status(t, last + 1) == o) {
            last++;
        }
        rc = last == i ? buf_printf(out, "%s%d: %s", between, i, outcome_name(o))
                       : buf_printf(out, "%s%d-%d: %s", between, i, last, outcome_name(o));
        between = ", ";
        i = last;
    }
    return rc != 0 ? rc : buf_append_byte(out, '}');
}
