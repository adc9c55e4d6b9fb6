/* Rules over several fields. A message names the line of the field that has to change, or the route's. */
#include "config/load.h"

#include "base/units.h"

#include <stdio.h>

/* The place of messages: field `name` of route i, or of the process with i == SIZE_MAX. */
static void place(struct load *l, size_t i, const char *name)
{
    l->prefix[0] = '\0';
    if (i != SIZE_MAX) {
        snprintf(l->prefix, sizeof l->prefix, "routes[%zu].", i);
    }
    snprintf(l->name, sizeof l->name, "%s", name);
    l->suffix[0] = '\0';
}

static const struct yaml_item *route_item(const struct yaml_node *root, size_t i)
{
    const struct yaml_item *item = yaml_find(root, "routes");
    item = item != NULL ? item->value->items : NULL;
    while (item != NULL && i-- > 0) {
        item = item->next;
    }
    return item;
}

static uint32_t route_line(const struct yaml_node *root, size_t i, const char *name)
{
    const struct yaml_item *route = route_item(root, i);
    const struct yaml_item *item = route != NULL ? yaml_find(route->value, name) : NULL;
    return item != NULL ? item->line : route != NULL ? route->line : 0;
}

static uint32_t root_line(const struct yaml_node *root, const char *name)
{
    const struct yaml_item *item = yaml_find(root, name);
    return item != NULL ? item->line : 0;
}

static int check_process(struct load *l, const struct yaml_node *root)
{
    const struct config *c = l->config;
    if ((c->tls_certificate == NULL) != (c->tls_key == NULL)) {
        place(l, SIZE_MAX, c->tls_key == NULL ? "tls.key" : "tls.certificate");
        return load_fail(l, HAPAX_E_MISSING, root_line(root, "tls"),
                         "is missing; tls needs both, certificate and key");
    }
    size_t length = strlen(c->listen);
    if (strcmp(c->listen, c->admin_listen) == 0 &&
        (length < 2 || strcmp(c->listen + length - 2, ":0") != 0)) {
        place(l, SIZE_MAX, "admin.listen");
        return load_fail(l, HAPAX_E_SYNTAX, root_line(root, "admin"),
                         "is the same address as listen; write another one, or off");
    }
    return 0;
}

static int check_times(struct load *l, const struct yaml_node *root, size_t i)
{
    const struct route *r = &l->config->routes[i];
    char ttl[UNITS_TEXT_MAX];
    char lease[UNITS_TEXT_MAX];
    if (r->ttl_ms >= r->lease_ms) {
        return 0;
    }
    units_duration_text(ttl, r->ttl_ms);
    units_duration_text(lease, r->lease_ms);
    place(l, i, "ttl");
    return load_fail(l, HAPAX_E_SYNTAX, route_line(root, i, "ttl"), "%s is shorter than the lease, %s", ttl,
                     lease);
}

static int check_bodies(struct load *l, const struct yaml_node *root, size_t i)
{
    const struct route *r = &l->config->routes[i];
    char size[UNITS_TEXT_MAX];
    char memory[UNITS_TEXT_MAX];
    if (r->body_bytes_max <= l->config->body_memory_max) {
        return 0;
    }
    units_size_text(size, r->body_bytes_max);
    units_size_text(memory, l->config->body_memory_max);
    place(l, i, "body_size");
    return load_fail(l, HAPAX_E_SYNTAX, route_line(root, i, "body_size"),
                     "%s is more than all bodies may take together, limits.body_memory: %s", size, memory);
}

static int check_rules(struct load *l, const struct yaml_node *root, size_t i)
{
    const struct route *r = &l->config->routes[i];
    if (r->on_unknown == ON_UNKNOWN_PROBE && r->probe == NULL) {
        place(l, i, "probe");
        return load_fail(l, HAPAX_E_MISSING, route_line(root, i, "on_unknown"),
                         "is missing; on_unknown: probe needs a URL with {key}");
    }
    /* Inherited pointers are idle in a route that chose another fingerprint; both in one route are a mistake. */
    const struct yaml_item *route = route_item(root, i);
    if (route != NULL && r->fingerprint.mode != FINGERPRINT_AUTO && r->fingerprint.ignore_count > 0 &&
        yaml_find(route->value, "ignore") != NULL) {
        place(l, i, "ignore");
        return load_fail(l, HAPAX_E_SYNTAX, route_line(root, i, "ignore"),
                         "works with fingerprint: auto only");
    }
    return 0;
}

static bool same_text(const char *a, const char *b)
{
    return a == b || (a != NULL && b != NULL && strcmp(a, b) == 0);
}

static int check_unique(struct load *l, const struct yaml_node *root, size_t i)
{
    const struct route *r = &l->config->routes[i];
    for (size_t k = 0; k < i; k++) {
        const struct route *other = &l->config->routes[k];
        if (strcmp(other->name, r->name) == 0) {
            place(l, i, "name");
            return load_fail(l, HAPAX_E_SYNTAX, route_line(root, i, "name"),
                             "\"%s\" is the name of routes[%zu] already", r->name, k);
        }
        if (same_text(other->host, r->host) && strcmp(other->path, r->path) == 0) {
            place(l, i, "path");
            return load_fail(l, HAPAX_E_SYNTAX, route_line(root, i, "path"),
                             "\"%.60s\" is the path of route \"%s\" already, for the same host", r->path,
                             other->name);
        }
    }
    return 0;
}

int cross_check(struct load *l, const struct yaml_node *root)
{
    static int (*const checks[])(struct load *, const struct yaml_node *,
                                 size_t) = {check_unique, check_rules, check_times, check_bodies};
    int rc = check_process(l, root);
    for (size_t i = 0; rc == 0 && i < l->config->route_count; i++) {
        for (size_t k = 0; rc == 0 && k < sizeof checks / sizeof checks[0]; k++) {
            rc = checks[k](l, root, i);
        }
    }
    return rc;
}
