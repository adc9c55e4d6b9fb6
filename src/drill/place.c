/* URLs, and the addresses behind them. */
#include "drill/wire.h"

#include "base/error.h"
#include "base/units.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>

#define PORT_HTTP  80
#define PORT_HTTPS 443

static bool take_scheme(struct slice *url, struct slice scheme)
{
    if (url->len < scheme.len || !slice_equal_nocase(slice_of(url->ptr, scheme.len), scheme)) {
        return false;
    }
    *url = slice_from(*url, scheme.len);
    return true;
}

static bool is_target(struct slice target)
{
    for (size_t i = 0; i < target.len; i++) {
        unsigned char c = (unsigned char)target.ptr[i];
        if (c <= ' ' || c == 0x7F || c == '#') {
            return false;
        }
    }
    return true;
}

/* What stands before an @ may be a password, and is not shown. */
static int bad_url(hapax_error *err, struct slice url, const char *why)
{
    const char *at = memrchr(url.ptr, '@', url.len);
    struct slice shown = at != NULL ? slice_from(url, (size_t)(at - url.ptr)) : url;
    return error_set(err, HAPAX_E_ARGUMENT, 0, "%.*s: %s", (int)(shown.len < 150 ? shown.len : 150),
                     shown.ptr, why);
}

/* "host", "host:port", "[::1]:port" */
static const char *cut_authority(struct wire_place *p, struct slice authority)
{
    if (memchr(authority.ptr, '@', authority.len) != NULL) {
        return "a URL holds no user or password here; say -H 'Authorization: ...'";
    }
    bool bracketed = authority.len > 0 && authority.ptr[0] == '[';
    const char *end =
        bracketed ? memchr(authority.ptr, ']', authority.len) : memchr(authority.ptr, ':', authority.len);
    size_t host_len = end == NULL ? authority.len : (size_t)(end - authority.ptr);
    struct slice host = slice_of(authority.ptr, host_len);
    struct slice rest = slice_from(authority, host_len + bracketed);
    host = slice_from(host, bracketed);
    if (host.len == 0 || host.len >= sizeof p->host || authority.len >= sizeof p->authority ||
        (bracketed && end == NULL)) {
        return "its host is neither a name nor an address";
    }
    uint64_t port = p->tls ? PORT_HTTPS : PORT_HTTP;
    if (rest.len > 0 && (rest.ptr[0] != ':' || units_u64(&port, slice_from(rest, 1)) != 0 || port == 0 ||
                         port > UINT16_MAX)) {
        return "its port is not a number from 1 to 65535";
    }
    p->port = (uint16_t)port;
    memcpy(p->host, host.ptr, host.len);
    memcpy(p->authority, authority.ptr, authority.len);
    return is_target(authority) ? NULL : "its host is neither a name nor an address";
}

static bool is_loopback(const struct sockaddr_storage *a)
{
    if (a->ss_family == AF_INET) {
        struct sockaddr_in v4;
        memcpy(&v4, a, sizeof v4);
        return ntohl(v4.sin_addr.s_addr) >> 24 == 127;
    }
    struct sockaddr_in6 v6;
    memcpy(&v6, a, sizeof v6);
    return IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr) ||
           (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr) && v6.sin6_addr.s6_addr[12] == 127);
}

static int look_up(struct wire_place *p, hapax_error *err)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    char port[8];
    snprintf(port, sizeof port, "%u", p->port);
    int rc = getaddrinfo(p->host, port, &hints, &found);
    if (rc != 0) {
        return error_set(err, HAPAX_E_NOT_FOUND, rc, "there is no address for %s: %s", p->host,
                         gai_strerror(rc));
    }
    p->loopback = true;
    for (const struct addrinfo *a = found; a != NULL && p->address_count < WIRE_ADDRESSES_MAX;
         a = a->ai_next) {
        if (a->ai_family == AF_INET || a->ai_family == AF_INET6) {
            struct sockaddr_storage *at = &p->address[p->address_count++];
            memcpy(at, a->ai_addr, a->ai_addrlen);
            p->loopback = p->loopback && is_loopback(at);
        }
    }
    freeaddrinfo(found);
    p->loopback = p->loopback && p->address_count > 0;
    return p->address_count > 0 ? 0
                                : error_set(err, HAPAX_E_NOT_FOUND, 0, "there is no address for %s", p->host);
}

int wire_place_open(struct wire_place *out, struct slice *target, struct slice url, hapax_error *err)
{
    struct slice rest = url;
    *out = (struct wire_place){0};
    out->tls = take_scheme(&rest, SLICE_LITERAL("https://"));
    if (!out->tls && !take_scheme(&rest, SLICE_LITERAL("http://"))) {
        return bad_url(err, url, "a URL begins with http:// or https://");
    }
    size_t end = 0;
    while (end < rest.len && memchr("/?#", rest.ptr[end], 3) == NULL) {
        end++;
    }
    const char *defect = cut_authority(out, slice_of(rest.ptr, end));
    *target = slice_from(rest, end);
    if (defect == NULL && !is_target(*target)) {
        defect = "a URL holds no blanks, control characters or #fragment here";
    }
    return defect != NULL ? bad_url(err, url, defect) : look_up(out, err);
}
