/* See syntax.h. */
#include "config/syntax.h"

#include "base/units.h"
#include "core/outcome.h"

#include <arpa/inet.h>

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_alnum(char c)
{
    return is_digit(c) || (ascii_lower(c) >= 'a' && ascii_lower(c) <= 'z');
}

static bool is_hex(char c)
{
    return is_digit(c) || (ascii_lower(c) >= 'a' && ascii_lower(c) <= 'f');
}

static bool is_one_of(char c, const char *set)
{
    return c != '\0' && strchr(set, c) != NULL;
}

/* The position of the first byte that is in the set, s.len when there is none. */
static size_t find_any(struct slice s, const char *set)
{
    size_t i = 0;
    while (i < s.len && !is_one_of(s.ptr[i], set)) {
        i++;
    }
    return i;
}

const char *syntax_name(struct slice s)
{
    for (size_t i = 0; i < s.len; i++) {
        if (!is_digit(s.ptr[i]) && !(s.ptr[i] >= 'a' && s.ptr[i] <= 'z') && !is_one_of(s.ptr[i], "_-")) {
            return "only a to z, 0 to 9, _ and - are allowed";
        }
    }
    return s.len == 0 ? "it is empty" : s.len > 64 ? "it is longer than 64 characters" : NULL;
}

static bool is_ip(int family, struct slice s)
{
    char text[64];
    unsigned char address[16];
    if (s.len >= sizeof text) {
        return false;
    }
    memcpy(text, s.ptr, s.len);
    text[s.len] = '\0';
    return inet_pton(family, text, address) == 1;
}

static bool is_bracketed_ip6(struct slice s)
{
    return s.len > 2 && s.ptr[0] == '[' && s.ptr[s.len - 1] == ']' &&
           is_ip(AF_INET6, slice_of(s.ptr + 1, s.len - 2));
}

const char *syntax_host(struct slice s)
{
    if (s.len == 0) {
        return "the host is missing";
    }
    if (s.len > 255) {
        return "the host is longer than 255 characters";
    }
    if (s.ptr[0] == '[') {
        return is_bracketed_ip6(s) ? NULL : "what stands in brackets is not an IPv6 address";
    }
    for (size_t i = 0; i < s.len; i++) {
        if (s.ptr[i] == ':') {
            return "no port belongs here";
        }
        if (!is_alnum(s.ptr[i]) && !is_one_of(s.ptr[i], ".-_")) {
            return "the host has a character that host names can't have";
        }
    }
    return NULL;
}

/* Path and query characters of RFC 3986; with `braces`, {key} as well. */
static const char *target_characters(struct slice s, bool braces)
{
    for (size_t i = 0; i < s.len; i++) {
        char c = s.ptr[i];
        if (c == '%') {
            if (i + 2 >= s.len || !is_hex(s.ptr[i + 1]) || !is_hex(s.ptr[i + 2])) {
                return "a % needs two hex digits after it";
            }
        } else if (braces && slice_starts_with(slice_from(s, i), SLICE_LITERAL("{key}"))) {
            i += 4;
        } else if (!is_alnum(c) && !is_one_of(c, "-._~!$&'()*+,;=:@/?")) {
            return is_one_of(c, "{}") ? "only {key} can stand in braces"
                                      : "a character must be percent-encoded, such as %20 for a blank";
        }
    }
    return NULL;
}

/* A target with dot segments means another one to some servers. */
static bool has_dot_segment(struct slice s)
{
    while (s.len > 0) {
        size_t end = find_any(s, "/?");
        struct slice segment = slice_of(s.ptr, end);
        if (slice_equal(segment, SLICE_LITERAL(".")) || slice_equal(segment, SLICE_LITERAL(".."))) {
            return true;
        }
        if (end < s.len && s.ptr[end] == '?') {
            return false;
        }
        s = slice_from(s, end + 1);
    }
    return false;
}

const char *syntax_path(struct slice s)
{
    if (s.len == 0 || s.ptr[0] != '/') {
        return "it must begin with /";
    }
    if (s.len > 1 && s.ptr[s.len - 1] == '/') {
        return "leave out the slash at the end: /orders matches /orders and /orders/7";
    }
    if (find_any(s, "?#") < s.len) {
        return "a path has no ? and no #";
    }
    return has_dot_segment(s) ? "it has a . or .. segment" : target_characters(s, false);
}

static const char *check_port(struct slice port, uint64_t least)
{
    uint64_t number;
    if (port.len > 5 || units_u64(&number, port) != 0 || number > 65535 || number < least) {
        return "the port must be a number up to 65535";
    }
    return NULL;
}

/* Split "http(s)://AUTHORITY REST" and check all but the rest. */
static const char *check_authority(struct slice s, struct slice *rest)
{
    struct slice scheme_http = SLICE_LITERAL("http://");
    struct slice scheme_https = SLICE_LITERAL("https://");
    if (slice_starts_with(s, scheme_http)) {
        s = slice_from(s, scheme_http.len);
    } else if (slice_starts_with(s, scheme_https)) {
        s = slice_from(s, scheme_https.len);
    } else {
        return "it must begin with http:// or https://";
    }
    size_t end = find_any(s, "/?#");
    struct slice authority = slice_of(s.ptr, end);
    *rest = slice_from(s, end);
    if (find_any(authority, "@") < authority.len) {
        return "no user and password can stand in it";
    }
    size_t bracket = find_any(authority, "]");
    size_t host_end = bracket < authority.len ? bracket + 1 : find_any(authority, ":");
    const char *problem = syntax_host(slice_of(authority.ptr, host_end));
    if (problem != NULL || host_end == authority.len) {
        return problem;
    }
    if (authority.ptr[host_end] != ':') {
        return "after the host, only a port can stand";
    }
    return check_port(slice_from(authority, host_end + 1), 1);
}

const char *syntax_url(struct slice s)
{
    struct slice rest;
    const char *problem = check_authority(s, &rest);
    if (problem != NULL) {
        return problem;
    }
    if (find_any(rest, "?#") < rest.len) {
        return "it can have a base path, but no ? and no #";
    }
    return has_dot_segment(rest) ? "it has a . or .. segment" : target_characters(rest, false);
}

static bool contains(struct slice s, struct slice part)
{
    for (size_t i = 0; i + part.len <= s.len; i++) {
        if (memcmp(s.ptr + i, part.ptr, part.len) == 0) {
            return true;
        }
    }
    return false;
}

const char *syntax_probe(struct slice s)
{
    struct slice rest;
    const char *problem = check_authority(s, &rest);
    if (problem != NULL) {
        return problem;
    }
    if (!contains(rest, SLICE_LITERAL("{key}"))) {
        return "{key} is missing in its path or query";
    }
    if (has_dot_segment(rest)) {
        return "it has a . or .. segment";
    }
    return find_any(rest, "#") < rest.len ? "it can't have a #" : target_characters(rest, true);
}

const char *syntax_address(struct slice s)
{
    size_t colon = s.len;
    while (colon > 0 && s.ptr[colon - 1] != ':') {
        colon--;
    }
    if (colon == 0) {
        return "the port is missing";
    }
    struct slice host = slice_of(s.ptr, colon - 1);
    if (host.len > 0 && !is_ip(AF_INET, host) && !is_bracketed_ip6(host) &&
        !slice_equal(host, SLICE_LITERAL("localhost"))) {
        return find_any(host, ":") < host.len ? "an IPv6 address needs brackets"
                                              : "what stands before the port is not an IP address";
    }
    return check_port(slice_from(s, colon), 0);
}

const char *syntax_store(struct slice s)
{
    struct slice sqlite = SLICE_LITERAL("sqlite:");
    struct slice memory = SLICE_LITERAL("memory:");
    struct slice postgres = SLICE_LITERAL("postgres://");
    struct slice postgresql = SLICE_LITERAL("postgresql://");
    /* fault:SPEC:URI wraps another store; what SPEC may say is the wrapper's business. */
    if (slice_starts_with(s, SLICE_LITERAL("fault:"))) {
        while (s.len > 0 && !slice_starts_with(s, sqlite) && !slice_starts_with(s, memory) &&
               !slice_starts_with(s, postgres) && !slice_starts_with(s, postgresql)) {
            size_t colon = find_any(s, ":");
            s = slice_from(s, colon + 1);
        }
        if (s.len == 0) {
            return "after fault: and what is to fail, the URI of a store must stand";
        }
    }
    if (slice_starts_with(s, sqlite)) {
        return s.len > sqlite.len ? NULL : "the path of the file is missing";
    }
    if (slice_starts_with(s, memory) || slice_starts_with(s, postgres) || slice_starts_with(s, postgresql)) {
        return NULL;
    }
    return "there is no such kind of store";
}

const char *syntax_header(struct slice s)
{
    if (s.len == 0) {
        return "the header's name is missing";
    }
    for (size_t i = 0; i < s.len; i++) {
        if (!is_alnum(s.ptr[i]) && !is_one_of(s.ptr[i], "!#$%&'*+-.^_`|~")) {
            return "it has a character that header names can't have";
        }
    }
    return s.len > 128 ? "it is longer than 128 characters" : NULL;
}

const char *syntax_statuses(struct slice s)
{
    struct outcome_table unused;
    outcome_table_default(&unused);
    return outcome_table_set(&unused, s, OUTCOME_DONE) == 0
               ? NULL
               : "a status, class or range from 200 to 599 is needed";
}
