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
    curl_url_cleanup(o->url);
    free(o->authority);
    free(o->base);
    free(o->ca_file);
    free(o);
}

bool origin_is_gone(const struct http_origin *o)
{
    return atomic_load_explicit(&o->gone, memory_order_acquire);
}

static bool has_part(CURLU *url, CURLUPart part)
{
    char *text = NULL;
    bool has = curl_url_get(url, part, &text, 0) == CURLUE_OK && text != NULL;
    curl_free(text);
    return has;
}

/* "host" or "host:port" as the URL has it; NULL without memory. */
static char *authority_of(CURLU *url)
{
    char *host = NULL;
    char *port = NULL;
    char *out = NULL;
    if (curl_url_get(url, CURLUPART_HOST, &host, 0) == CURLUE_OK) {
        (void)curl_url_get(url, CURLUPART_PORT, &port, 0);
        struct buf b;
        buf_init(&b, 4096);
        if (buf_append_text(&b, host) == 0 && (port == NULL || buf_append_byte(&b, ':') == 0) &&
            buf_append_text(&b, port != NULL ? port : "") == 0) {
            out = strndup(b.ptr, b.len);
        }
        buf_free(&b);
    }
    curl_free(host);
    curl_free(port);
    return out;
}

/* The path without its trailing slashes: targets begin with one. */
static char *base_of(CURLU *url)
{
    char *path = NULL;
    if (curl_url_get(url, CURLUPART_PATH, &path, 0) != CURLUE_OK) {
        return NULL;
    }
    size_t len = strlen(path);
    while (len > 0 && path[len - 1] == '/') {
        len--;
    }
    char *base = strndup(path, len);
    curl_free(path);
    return base;
}

static int parse_url(struct http_origin *o, const char *text, hapax_error *err)
{
    o->url = curl_url();
    if (o->url == NULL) {
        return error_code(err, HAPAX_E_MEMORY);
    }
    CURLUcode rc = curl_url_set(o->url, CURLUPART_URL, text, CURLU_PATH_AS_IS);
    if (rc == CURLUE_OUT_OF_MEMORY) {
        return error_code(err, HAPAX_E_MEMORY);
    }
    char *scheme = NULL;
    bool known = rc == CURLUE_OK && curl_url_get(o->url, CURLUPART_SCHEME, &scheme, 0) == CURLUE_OK &&
                 (strcmp(scheme, "http") == 0 || strcmp(scheme, "https") == 0);
    curl_free(scheme);
    if (!known) {
        return error_set(err, HAPAX_E_ARGUMENT, 0, "not an absolute http:// or https:// URL: %s",
                         rc == CURLUE_OK ? "wrong scheme" : curl_url_strerror(rc));
    }
    if (has_part(o->url, CURLUPART_USER) || has_part(o->url, CURLUPART_PASSWORD) ||
        has_part(o->url, CURLUPART_QUERY) || has_part(o->url, CURLUPART_FRAGMENT)) {
        return error_set(err, HAPAX_E_ARGUMENT, 0,
                         "an upstream URL holds no user, password, query or fragment");
    }
    o->authority = authority_of(o->url);
    o->base = base_of(o->url);
    if (o->authority == NULL || o->base == NULL ||
        curl_url_set(o->url, CURLUPART_PATH, "/", 0) != CURLUE_OK) {
        return error_code(err, HAPAX_E_MEMORY);
    }
    if (!target_is_sendable(slice_text(o->base))) {
        return error_set(err, HAPAX_E_ARGUMENT, 0,
                         "an upstream URL's path holds no blanks or control characters");
    }
    return 0;
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
    int rc = parse_url(o, options->url, err);
    if (rc == 0 && options->ca_file != NULL) {
        o->ca_file = strdup(options->ca_file);
        rc = o->ca_file == NULL ? error_code(err, HAPAX_E_MEMORY) : 0;
    }
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
