/* From YAML to a config: walks the tree with the table. Defaults are set first and by the same code that reads
 * values, then `defaults`, then each route over a copy of them. The first error ends it. */
#include "config/load.h"

#include "base/assert.h"
#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define CONFIG_MEMORY_MAX  ((size_t)32 << 20)
#define SCRATCH_MEMORY_MAX ((size_t)64 << 20)

static int set_field(struct load *l, const struct field *f, void *base, const struct yaml_node *n)
{
    snprintf(l->name, sizeof l->name, "%s", f->name);
    l->suffix[0] = '\0';
    int rc = field_kinds[f->kind].set(l, f, base, n);
    l->suffix[0] = '\0';
    return rc;
}

/* A field that has no memory of its own struct, but is read by the walk over the root. */
static bool is_routing(const struct field *f)
{
    return f->kind == KIND_ROUTES || f->kind == KIND_ROUTE_DEFAULTS;
}

static int set_standard(struct load *l, const struct field *f, void *base)
{
    const struct yaml_node text = {
        .kind = YAML_TEXT, .size = 1, .complete = true, .text = slice_text(f->standard)};
    const struct yaml_node *n = &text;
    if (f->kind == KIND_OUTCOME) {
        outcome_table_default(field_at(f, base)); /* entries change the rule; they don't replace it */
    }
    if (f->standard[0] == '[' || f->standard[0] == '{') {
        int rc = yaml_read(&n, &l->scratch, text.text, f->name, l->err);
        if (rc != 0) {
            return rc;
        }
    }
    return set_field(l, f, base, n);
}

static int set_standards(struct load *l, const struct table *t, void *base)
{
    int rc = 0;
    for (const struct field *f = table_next(t, NULL); rc == 0 && f != NULL; f = table_next(t, f)) {
        rc = f->standard != NULL ? set_standard(l, f, base) : 0;
    }
    return rc;
}

/* --- Unknown names. --- */

enum { NEAR_NAME_MAX = 32 };

/* Insertions, deletions, changes and swaps of neighbours that make a from b. */
static size_t distance(struct slice a, struct slice b)
{
    size_t row[3][NEAR_NAME_MAX + 1];
    for (size_t k = 0; k <= b.len; k++) {
        row[0][k] = k;
    }
    for (size_t i = 1; i <= a.len; i++) {
        size_t *now = row[i % 3];
        const size_t *before = row[(i - 1) % 3];
        const size_t *before2 = row[(i + 1) % 3];
        now[0] = i;
        for (size_t k = 1; k <= b.len; k++) {
            size_t best = before[k - 1] + (a.ptr[i - 1] != b.ptr[k - 1]);
            best = before[k] + 1 < best ? before[k] + 1 : best;
            best = now[k - 1] + 1 < best ? now[k - 1] + 1 : best;
            bool swapped = i > 1 && k > 1 && a.ptr[i - 1] == b.ptr[k - 2] && a.ptr[i - 2] == b.ptr[k - 1];
            now[k] = swapped && before2[k - 2] + 1 < best ? before2[k - 2] + 1 : best;
        }
    }
    return row[a.len % 3][b.len];
}

/* The name nearest to `name` among those that may follow `dotted`; near enough, or SLICE_NONE. */
static struct slice nearest(const struct table *t, struct slice dotted, struct slice name)
{
    struct slice found = SLICE_NONE;
    size_t least = name.len / 3 + 1;
    for (const struct field *f = table_next(t, NULL); f != NULL; f = table_next(t, f)) {
        if (name.len > NEAR_NAME_MAX || !slice_starts_with(slice_text(f->name), dotted)) {
            continue;
        }
        struct slice part = slice_text(f->name + dotted.len);
        part.len = strcspn(part.ptr, ".");
        size_t d = part.len <= NEAR_NAME_MAX ? distance(name, part) : SIZE_MAX;
        if (d < least || (d == least && found.ptr == NULL)) {
            least = d;
            found = part;
        }
    }
    return found;
}

/* A field of another place whose last part is exactly this name. */
static const struct field *elsewhere(const struct table *t, struct slice name)
{
    for (const struct field *f = table_next(t, NULL); f != NULL; f = table_next(t, f)) {
        const char *dot = strrchr(f->name, '.');
        if (slice_equal(slice_text(dot != NULL ? dot + 1 : f->name), name)) {
            return f;
        }
    }
    return NULL;
}

static int unknown_field(struct load *l, const struct table *t, struct slice dotted,
                         const struct yaml_item *item)
{
    const struct field *own = elsewhere(t, item->name);
    const struct field *other = elsewhere(t == &config_table ? &route_table : &config_table, item->name);
    struct slice near = nearest(t, dotted, item->name);
    if (config_field_find(t, item->name) != NULL) {
        size_t dot = strcspn(item->name.ptr, ".");
        return load_fail(l, HAPAX_E_SYNTAX, item->line,
                         "a dot is a level of nesting: write %.*s: and below it %s:", (int)dot,
                         item->name.ptr, item->name.ptr + dot + 1);
    }
    if (own != NULL) {
        return load_fail(l, HAPAX_E_SYNTAX, item->line, "unknown field here; did you mean %s%s?", l->prefix,
                         own->name);
    }
    if (other != NULL) {
        return load_fail(l, HAPAX_E_SYNTAX, item->line, "unknown field here; %s belongs %s", other->name,
                         t == &config_table ? "into a route or under `defaults`" : "to the top of the file");
    }
    if (!slice_is_none(near)) {
        return load_fail(l, HAPAX_E_SYNTAX, item->line, "unknown field; did you mean %.*s%.*s?",
                         SLICE_FORMAT(dotted), SLICE_FORMAT(near));
    }
    return load_fail(l, HAPAX_E_SYNTAX, item->line, "unknown field; docs/CONFIG.md lists all fields");
}

/* --- The walk. --- */

/* Set the fields that a mapping names; `dotted` is what their names begin with ("" or "limits."). */
static int load_map(struct load *l, const struct table *t, const char *dotted, void *base,
                    const struct yaml_node *map)
{
    bool in_defaults = strcmp(l->prefix, "defaults.") == 0;
    for (const struct yaml_item *item = map->items; item != NULL; item = item->next) {
        char name[sizeof l->name];
        int length = snprintf(name, sizeof name, "%s%.*s", dotted, SLICE_FORMAT(item->name));
        bool whole = length >= 0 && (size_t)length < sizeof name && (size_t)length == strlen(name) &&
                     memchr(item->name.ptr, '.', item->name.len) == NULL;
        const struct field *f = whole ? config_field_find(t, slice_text(name)) : NULL;
        int rc = 0;
        snprintf(l->name, sizeof l->name, "%s", name);
        l->suffix[0] = '\0';
        if (f != NULL && (f->flags & FIELD_OWN) != 0 && in_defaults) {
            rc = load_fail(l, HAPAX_E_SYNTAX, item->line, "stands in each route, not in `defaults`");
        } else if (f != NULL) {
            rc = is_routing(f) ? 0 : set_field(l, f, base, item->value);
        } else if (!whole || !table_has_group(t, slice_text(name))) {
            rc = unknown_field(l, t, slice_text(dotted), item);
        } else if (item->value->kind != YAML_MAP) {
            rc = load_fail(l, HAPAX_E_SYNTAX, item->line,
                           "a mapping is needed, with one field a line below it");
        } else {
            /* Groups don't nest: names have at most one dot, so this recursion has depth one. */
            char inside[sizeof name + 1];
            snprintf(inside, sizeof inside, "%s.", name);
            rc = load_map(l, t, inside, base, item->value);
        }
        if (rc != 0) {
            return rc;
        }
    }
    l->name[0] = '\0';
    return 0;
}

static int check_required(struct load *l, const struct route *r, uint32_t line)
{
    for (const struct field *f = table_next(&route_table, NULL); f != NULL; f = table_next(&route_table, f)) {
        const char *text;
        char how[FIELD_TEXT_MAX];
        if ((f->flags & FIELD_REQUIRED) == 0) {
            continue;
        }
        memcpy(&text, field_at_const(f, r), sizeof text); /* required fields are texts: the table's test */
        if (text == NULL) {
            snprintf(l->name, sizeof l->name, "%s", f->name);
            field_how(how, f);
            return load_fail(l, HAPAX_E_MISSING, line, "is missing; %s", how);
        }
    }
    return 0;
}

static int load_routes(struct load *l, const struct route *base, const struct yaml_node *root)
{
    const struct yaml_item *item = yaml_find(root, "routes");
    snprintf(l->name, sizeof l->name, "routes");
    if (item == NULL || item->value->kind != YAML_LIST || item->value->count == 0) {
        return load_fail(l, item == NULL ? HAPAX_E_MISSING : HAPAX_E_SYNTAX,
                         item != NULL ? item->line : root->line,
                         "a list with at least one route is needed: - name: ..., path: ..., to: ...");
    }
    size_t count = item->value->count;
    struct route *routes = arena_array(&l->config->arena, count, sizeof *routes);
    if (routes == NULL) {
        return load_no_memory(l);
    }
    size_t i = 0;
    for (const struct yaml_item *entry = item->value->items; entry != NULL; entry = entry->next, i++) {
        snprintf(l->prefix, sizeof l->prefix, "routes[%zu].", i);
        l->name[0] = '\0';
        if (entry->value->kind != YAML_MAP) {
            l->prefix[strlen(l->prefix) - 1] = '\0';
            return load_fail(l, HAPAX_E_SYNTAX, entry->line,
                             "a mapping is needed: name: ..., path: ..., to: ...");
        }
        routes[i] = *base;
        int rc = load_map(l, &route_table, "", &routes[i], entry->value);
        if (rc == 0) {
            rc = check_required(l, &routes[i], entry->line);
        }
        if (rc != 0) {
            return rc;
        }
    }
    l->config->routes = routes;
    l->config->route_count = count;
    return 0;
}

static int load_root(struct load *l, const struct yaml_node *root)
{
    if (root == NULL || root->kind != YAML_MAP) {
        return load_fail(l, HAPAX_E_SYNTAX, root == NULL ? 1 : root->line,
                         "a configuration is needed here: `listen: ...`, `routes: ...`");
    }
    struct route base = {0};
    int rc = set_standards(l, &config_table, l->config);
    if (rc == 0) {
        rc = set_standards(l, &route_table, &base);
    }
    if (rc == 0) {
        rc = load_map(l, &config_table, "", l->config, root);
    }
    const struct yaml_item *defaults = yaml_find(root, "defaults");
    if (rc == 0 && defaults != NULL) {
        snprintf(l->prefix, sizeof l->prefix, "defaults");
        if (defaults->value->kind != YAML_MAP) {
            return load_fail(l, HAPAX_E_SYNTAX, defaults->line, "a mapping of route fields is needed");
        }
        snprintf(l->prefix, sizeof l->prefix, "defaults.");
        rc = load_map(l, &route_table, "", &base, defaults->value);
        l->prefix[0] = '\0';
    }
    if (rc == 0) {
        rc = load_routes(l, &base, root);
    }
    if (rc == 0) {
        rc = cross_check(l, root);
    }
    return rc;
}

static int begin(struct load *l, const char *file, hapax_error *err)
{
    *l = (struct load){.file = file, .err = err, .config = calloc(1, sizeof *l->config)};
    if (l->config == NULL) {
        return error_code(err, HAPAX_E_MEMORY);
    }
    arena_init(&l->config->arena, CONFIG_MEMORY_MAX);
    arena_init(&l->scratch, SCRATCH_MEMORY_MAX);
    return 0;
}

static int finish(struct load *l, struct config **out, int rc)
{
    arena_free(&l->scratch);
    if (rc != 0) {
        config_free(l->config);
    } else {
        *out = l->config;
    }
    return rc;
}

int config_load_text(struct config **out, struct slice yaml, const char *name, hapax_error *err)
{
    struct load l;
    const struct yaml_node *root;
    *out = NULL;
    int rc = begin(&l, name, err);
    if (rc != 0) {
        return rc;
    }
    rc = yaml_read(&root, &l.scratch, yaml, name, err);
    if (rc == 0) {
        rc = load_root(&l, root);
    }
    return finish(&l, out, rc);
}

/* One byte more than allowed is read, so that too large shows. */
static int read_file(struct buf *out, const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return HAPAX_E_SYSTEM;
    }
    int rc = 0;
    while (rc == 0 && out->len < out->len_max) {
        size_t room = out->len_max - out->len < 65536 ? out->len_max - out->len : 65536;
        rc = buf_reserve(out, room);
        ssize_t n = rc == 0 ? read(fd, out->ptr + out->len, room) : 0;
        if (n > 0) {
            out->len += (size_t)n;
        } else if (n == 0) {
            break;
        } else if (errno != EINTR) {
            rc = HAPAX_E_SYSTEM;
        }
    }
    int problem = errno;
    close(fd);
    errno = problem;
    return rc;
}

int config_load_file(struct config **out, const char *path, hapax_error *err)
{
    struct buf text;
    *out = NULL;
    buf_init(&text, YAML_BYTES_MAX + 1);
    int rc = read_file(&text, path);
    if (rc == HAPAX_E_SYSTEM) {
        int problem = errno;
        rc = error_set(err, rc, problem, "%s: can't be read: %s", path, strerror(problem));
    } else if (rc != 0) {
        rc = error_set(err, rc, 0, "%s: %s", path, hapax_error_text(rc));
    } else {
        rc = config_load_text(out, buf_slice(&text), path, err);
    }
    buf_free(&text);
    return rc;
}

static int set_plain(struct load *l, const struct table *t, const char *name, void *base, const char *text)
{
    const struct field *f = config_field_find(t, slice_text(name));
    const struct yaml_node n = {.kind = YAML_TEXT, .size = 1, .complete = true, .text = slice_text(text)};
    HAPAX_ASSERT(f != NULL);
    return text == NULL ? 0 : set_field(l, f, base, &n);
}

int config_simple(struct config **out, const char *to, const char *listen, const char *store,
                  const char *missing, hapax_error *err)
{
    struct load l;
    *out = NULL;
    int rc = begin(&l, "command line", err);
    if (rc != 0) {
        return rc;
    }
    struct config *c = l.config;
    struct route *r = arena_zalloc(&c->arena, sizeof *r);
    rc = r != NULL ? set_standards(&l, &config_table, c) : load_no_memory(&l);
    if (rc == 0) {
        rc = set_standards(&l, &route_table, r);
    }
    l.literal = true;
    if (rc == 0) {
        rc = set_plain(&l, &route_table, "name", r, "default");
    }
    if (rc == 0) {
        rc = set_plain(&l, &route_table, "to", r, to);
    }
    if (rc == 0) {
        rc = set_plain(&l, &route_table, "missing", r, missing);
    }
    if (rc == 0) {
        rc = check_required(&l, r, 0);
    }
    if (rc == 0) {
        rc = set_plain(&l, &config_table, "listen", c, listen);
    }
    if (rc == 0) {
        rc = set_plain(&l, &config_table, "store", c, store);
    }
    if (rc == 0) {
        c->routes = r;
        c->route_count = 1;
        rc = cross_check(&l, NULL);
    }
    return finish(&l, out, rc);
}

void config_free(struct config *c)
{
    if (c != NULL) {
        arena_free(&c->arena);
        free(c);
    }
}
