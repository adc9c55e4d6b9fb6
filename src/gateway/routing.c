/* Routes as one loop sees them: which one a request belongs to, and the origins behind it. */
#include "gateway/worker.h"

#include "base/assert.h"
#include "base/error.h"

#include <stdlib.h>

int shared_config_make(struct shared_config **out, struct config *config, hapax_error *err)
{
    *out = NULL;
    struct shared_config *c = calloc(1, sizeof *c);
    if (c == NULL) {
        config_free(config);
        return error_code(err, HAPAX_E_MEMORY);
    }
    c->references = 1;
    c->config = config;
    if (config->tls_certificate != NULL) {
        int rc = tls_context_create(&c->tls, config->tls_certificate, config->tls_key, err);
        if (rc != 0) {
            shared_config_drop(c);
            return rc;
        }
    }
    *out = c;
    return 0;
}

void shared_config_drop(struct shared_config *c)
{
    if (c != NULL && atomic_fetch_sub(&c->references, 1) == 1) {
        tls_context_drop(c->tls);
        config_free(c->config);
        free(c);
    }
}

/* More specific first: longer path, then a host before none. */
static int compare_targets(const void *left, const void *right)
{
    const struct target *a = left;
    const struct target *b = right;
    if (a->path.len != b->path.len) {
        return a->path.len > b->path.len ? -1 : 1;
    }
    return (slice_is_none(a->host) ? 1 : 0) - (slice_is_none(b->host) ? 1 : 0);
}

/* "http://host:port/path?query" → the origin's part and the rest, which begins with '/'. */
static void split_url(struct slice url, struct slice *origin, struct slice *rest)
{
    size_t at = 0;
    while (at + 2 < url.len && memcmp(url.ptr + at, "://", 3) != 0) {
        at++;
    }
    size_t slash = at + 3 < url.len ? at + 3 : url.len;
    while (slash < url.len && url.ptr[slash] != '/') {
        slash++;
    }
    *origin = (struct slice){url.ptr, slash};
    *rest = slash < url.len ? slice_from(url, slash) : SLICE_LITERAL("/");
}

static int make_origin(struct http_origin **out, const struct route *r, const char *url, hapax_error *err)
{
    struct http_origin_options o = {
        .url = url,
        .ca_file = r->ca_file,
        .connect_ms = r->connect_ms,
        .idle_ms = r->upstream_idle_ms,
        .connections_max = r->upstream_connections,
    };
    return http_origin_create(out, &o, err);
}

static int make_probe(struct target *t, hapax_error *err)
{
    struct slice origin;
    split_url(slice_text(t->route->probe), &origin, &t->probe_target);
    char *url = strndup(origin.ptr, origin.len);
    if (url == NULL) {
        return error_code(err, HAPAX_E_MEMORY);
    }
    int rc = make_origin(&t->probe, t->route, url, err);
    free(url);
    return rc;
}

static int make_target(struct target *t, const struct route *r, hapax_error *err)
{
    *t = (struct target){
        .route = r,
        .name = slice_text(r->name),
        .host = slice_text(r->host),
        .path = slice_text(r->path),
        .key_in_headers = true,
        .metrics = metrics_route(r->name),
    };
    if (t->metrics == NULL) {
        return error_code(err, HAPAX_E_MEMORY);
    }
    while (t->path.len > 0 && t->path.ptr[t->path.len - 1] == '/') {
        t->path.len--;
    }
    for (size_t i = 0; i < r->key_count; i++) {
        t->key_in_headers = t->key_in_headers && r->key[i].kind == KEY_HEADER;
    }
    int rc = make_origin(&t->origin, r, r->to, err);
    if (rc == 0 && r->on_unknown == ON_UNKNOWN_PROBE) {
        rc = make_probe(t, err);
    }
    return rc;
}

int routing_make(struct routing **out, struct shared_config *config, hapax_error *err)
{
    *out = NULL;
    const struct config *c = config->config;
    HAPAX_ASSERT(c->route_count > 0);
    struct routing *r = calloc(1, sizeof *r);
    if (r == NULL) {
        return error_code(err, HAPAX_E_MEMORY);
    }
    r->references = 1;
    r->config = config;
    atomic_fetch_add(&config->references, 1);
    r->targets = calloc(c->route_count, sizeof *r->targets);
    int rc = 0;
    if (r->targets == NULL) {
        rc = HAPAX_E_MEMORY;
        error_code(err, rc);
    }
    for (size_t i = 0; rc == 0 && i < c->route_count; i++) {
        r->count = i + 1;
        rc = make_target(&r->targets[i], &c->routes[i], err);
    }
    if (rc != 0) {
        routing_drop(r);
        return rc;
    }
    qsort(r->targets, r->count, sizeof *r->targets, compare_targets);
    *out = r;
    return 0;
}

struct routing *routing_retain(struct routing *r)
{
    r->references++;
    return r;
}

void routing_drop(struct routing *r)
{
    if (r == NULL || --r->references > 0) {
        return;
    }
    for (size_t i = 0; i < r->count; i++) {
        if (r->targets[i].origin != NULL) {
            http_origin_destroy(r->targets[i].origin);
        }
        if (r->targets[i].probe != NULL) {
            http_origin_destroy(r->targets[i].probe);
        }
    }
    free(r->targets);
    shared_config_drop(r->config);
    free(r);
}

/* The Host header without its port; IPv6 literals keep their brackets. */
static struct slice host_name(struct slice host)
{
    size_t end = host.len;
    for (size_t i = host.len; i > 0; i--) {
        char c = host.ptr[i - 1];
        if (c == ':') {
            end = i - 1;
            break;
        }
        if (c < '0' || c > '9') {
            break;
        }
    }
    return (struct slice){host.ptr, end};
}

static bool path_matches(struct slice prefix, struct slice path)
{
    return slice_starts_with(path, prefix) && (path.len == prefix.len || path.ptr[prefix.len] == '/');
}

const struct target *routing_find(const struct routing *r, const struct request *request)
{
    struct slice host = SLICE_NONE;
    bool host_known = false;
    for (size_t i = 0; i < r->count; i++) {
        const struct target *t = &r->targets[i];
        if (!path_matches(t->path, request->path)) {
            continue;
        }
        if (slice_is_none(t->host)) {
            return t;
        }
        if (!host_known) {
            request_header(&host, request, SLICE_LITERAL("Host"));
            host = host_name(host);
            host_known = true;
        }
        if (slice_equal_nocase(host, t->host)) {
            return t;
        }
    }
    return NULL;
}
