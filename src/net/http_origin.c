/* An origin: where requests go, parsed once. Immutable after creation and counted, so that the clients of several
 * loops share it and one that is destroyed lives on until its last client has let go. */
#include "base/error.h"
#include "net/http_client_parts.h"

#include <stdlib.h>

void origin_take(struct http_origin *o)
{
    atomic_fetch_add_explicit(&o->references, 1, memory_order_relaxed);
}

void origin_drop(struct http_origin *o)
{
    if (atomic_fetch_sub_explicit(&o->references, 1, memory_order_acq_rel) != 1) {
        return;
    }
    tls_context_drop(o->tls);
    free(o->authority);
    free(o->host);
    free(o->base);
    free(o);
}

bool origin_is_gone(const struct http_origin *o)
{
    return atomic_load_explicit(&o->gone, memory_order_acquire);
}

/* "scheme://authority/base", cut up. */
struct url {
    bool https;
    struct slice authority;
    struct slice host; /* with the brackets of an IPv6 address */
    struct slice port; /* SLICE_NONE: the scheme's */
    struct slice path;
};

static bool take_scheme(struct slice *rest, struct slice scheme)
{
    if (rest->len < scheme.len || !slice_equal_nocase(slice_of(rest->ptr, scheme.len), scheme)) {
        return false;
    }
    *rest = slice_from(*rest, scheme.len);
    return true;
}

/* RFC 3986 section 3.2.2: an address in brackets, or a name; of the latter only what host names are made of. */
static bool host_is_good(struct slice host)
{
    if (host.len > 2 && host.ptr[0] == '[') {
        char text[64];
        struct in6_addr address;
        if (host.len - 2 >= sizeof text || host.ptr[host.len - 1] != ']') {
            return false;
        }
        memcpy(text, host.ptr + 1, host.len - 2);
        text[host.len - 2] = '\0';
        return uv_inet_pton(AF_INET6, text, &address) == 0;
    }
    for (size_t i = 0; i < host.len; i++) {
        char c = ascii_lower(host.ptr[i]);
        if (!(c >= 'a' && c <= 'z') && !(c >= '0' && c <= '9') && c != '-' && c != '.' && c != '_') {
            return false;
        }
    }
    return host.len > 0 && host.len <= 253;
}

static const char *cut_authority(struct url *u)
{
    struct slice a = u->authority;
    if (memchr(a.ptr, '@', a.len) != NULL) {
        return "an upstream URL holds no user or password";
    }
    const char *bracket = memchr(a.ptr, ']', a.len);
    size_t from = bracket != NULL ? (size_t)(bracket - a.ptr) : 0;
    const char *colon = memchr(a.ptr + from, ':', a.len - from);
    u->host = colon != NULL ? slice_of(a.ptr, (size_t)(colon - a.ptr)) : a;
    u->port = colon != NULL ? slice_from(a, u->host.len + 1) : SLICE_NONE;
    return host_is_good(u->host) ? NULL : "its host is neither a name nor an address";
}

static const char *cut_url(struct url *u, struct slice text)
{
    u->https = take_scheme(&text, SLICE_LITERAL("https://"));
    if (!u->https && !take_scheme(&text, SLICE_LITERAL("http://"))) {
        return "it does not begin with http:// or https://";
    }
    size_t end = 0;
    while (end < text.len && memchr("/?#", text.ptr[end], 3) == NULL) {
        end++;
    }
    u->authority = slice_of(text.ptr, end);
    u->path = slice_from(text, end);
    if (memchr(u->path.ptr, '?', u->path.len) != NULL || memchr(u->path.ptr, '#', u->path.len) != NULL) {
        return "an upstream URL holds no query or fragment";
    }
    while (u->path.len > 0 && u->path.ptr[u->path.len - 1] == '/') {
        u->path.len--; /* targets begin with one */
    }
    for (size_t i = 0; i < u->path.len; i++) {
        unsigned char c = (unsigned char)u->path.ptr[i];
        if (c <= ' ' || c == 0x7f) {
            return "its path holds blanks or control characters";
        }
    }
    return cut_authority(u);
}

static bool parse_port(uint16_t *out, const struct url *u)
{
    unsigned value = slice_is_none(u->port) ? (u->https ? 443 : 80) : 0;
    for (size_t i = 0; i < u->port.len; i++) {
        char c = u->port.ptr[i];
        if (c < '0' || c > '9' || i >= 5) {
            return false;
        }
        value = value * 10 + (unsigned)(c - '0');
    }
    *out = (uint16_t)value;
    return value > 0 && value <= UINT16_MAX;
}

static int fill(struct http_origin *o, const struct http_origin_options *options, hapax_error *err)
{
    struct url u;
    const char *wrong = cut_url(&u, slice_text(options->url));
    if (wrong == NULL && !parse_port(&o->port, &u)) {
        wrong = "its port is not a number from 1 to 65535";
    }
    if (wrong != NULL) {
        return error_set(err, HAPAX_E_ARGUMENT, 0, "not an absolute http:// or https:// URL: %s", wrong);
    }
    bool bracketed = u.host.ptr[0] == '[';
    o->authority = strndup(u.authority.ptr, u.authority.len);
    o->host = strndup(u.host.ptr + bracketed, u.host.len - (bracketed ? 2 : 0));
    o->base = strndup(u.path.ptr, u.path.len);
    if (o->authority == NULL || o->host == NULL || o->base == NULL) {
        return error_code(err, HAPAX_E_MEMORY);
    }
    return u.https ? tls_client_context_create(&o->tls, options->ca_file, err) : 0;
}

int http_origin_create(struct http_origin **out, const struct http_origin_options *options, hapax_error *err)
{
    *out = NULL;
    if (options->url == NULL || options->connections_max == 0 || options->connect_ms < 0 ||
        options->idle_ms < 0) {
        return error_set(err, HAPAX_E_ARGUMENT, 0,
                         "an upstream needs a URL, a connection and times of 0 or more");
    }
    struct http_origin *o = calloc(1, sizeof *o);
    if (o == NULL) {
        return error_code(err, HAPAX_E_MEMORY);
    }
    atomic_init(&o->references, 1);
    o->connect_ms = options->connect_ms;
    o->idle_ms = options->idle_ms;
    o->connections_max = options->connections_max;
    int rc = fill(o, options, err);
    if (rc != 0) {
        origin_drop(o);
        return rc;
    }
    *out = o;
    return 0;
}

void http_origin_destroy(struct http_origin *o)
{
    if (o == NULL) {
        return;
    }
    atomic_store_explicit(&o->gone, true, memory_order_release);
    origin_drop(o);
}

struct slice http_origin_authority(const struct http_origin *o)
{
    return slice_text(o->authority);
}
