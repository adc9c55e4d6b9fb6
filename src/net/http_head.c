/* Request heads: the scan for the end, the request line, the header lines, and what they say about framing. */
#include "net/http_head.h"

#include "base/limits.h"

/* --- Classes of bytes. --- */

enum {
    BYTE_CONTROL = 1,
    BYTE_VISIBLE = 2,
    BYTE_TOKEN = 4, /* RFC 9110 section 5.6.2 */
    BYTE_HOST = 8,  /* RFC 3986 section 3.2: host and port, without user information */
    V = BYTE_VISIBLE,
    VT = BYTE_VISIBLE | BYTE_TOKEN,
    VH = BYTE_VISIBLE | BYTE_HOST,
    VTH = BYTE_VISIBLE | BYTE_TOKEN | BYTE_HOST,
};

/* clang-format off */
static const uint8_t classes[256] = {
    [0 ... '\t' - 1] = BYTE_CONTROL, ['\t' + 1 ... ' ' - 1] = BYTE_CONTROL, [0x7f] = BYTE_CONTROL,
    ['0' ... '9'] = VTH, ['A' ... 'Z'] = VTH, ['a' ... 'z'] = VTH,
    ['!'] = VTH, ['$'] = VTH, ['%'] = VTH, ['&'] = VTH, ['\''] = VTH, ['*'] = VTH,
    ['+'] = VTH, ['-'] = VTH, ['.'] = VTH, ['_'] = VTH, ['~'] = VTH,
    ['#'] = VT,  ['^'] = VT,  ['`'] = VT,  ['|'] = VT,
    ['('] = VH,  [')'] = VH,  [';'] = VH,  ['='] = VH,  [':'] = VH,  ['['] = VH,  [']'] = VH,
    ['"'] = V,   [','] = V,   ['/'] = V,   ['<'] = V,   ['>'] = V,   ['?'] = V,   ['@'] = V,
    ['\\'] = V,  ['{'] = V,   ['}'] = V,
};
/* clang-format on */

static bool all_of(struct slice s, uint8_t class)
{
    for (size_t i = 0; i < s.len; i++) {
        if ((classes[(uint8_t)s.ptr[i]] & class) == 0) {
            return false;
        }
    }
    return true;
}

/* --- The scan. --- */

static enum http_scan scan_bad(struct http_head_scan *s, const char *detail)
{
    s->detail = detail;
    return HTTP_SCAN_BAD;
}

enum http_scan http_head_scan(struct http_head_scan *s, struct slice bytes, size_t bytes_max)
{
    size_t end = bytes.len < bytes_max ? bytes.len : bytes_max;
    while (s->at < end) {
        char c = bytes.ptr[s->at];
        if ((classes[(uint8_t)c] & BYTE_CONTROL) == 0) {
            s->at++;
            continue;
        }
        if (c != '\r') {
            return scan_bad(s,
                            c == '\n' ? "a line ends in LF without CR" : "a control character in the head");
        }
        if (s->at + 1 == bytes.len) {
            return HTTP_SCAN_MORE; /* the LF may be on its way */
        }
        if (bytes.ptr[s->at + 1] != '\n') {
            return scan_bad(s, "a CR without LF in the head");
        }
        bool blank = s->at == s->line;
        s->at += 2;
        s->line = s->at;
        s->lines++;
        if (blank) {
            return s->at <= bytes_max ? HTTP_SCAN_DONE : HTTP_SCAN_LARGE;
        }
    }
    return s->at >= bytes_max ? HTTP_SCAN_LARGE : HTTP_SCAN_MORE;
}

/* --- The request line. --- */

struct parse {
    struct http_head *out;
    struct slice host;      /* of the Host line */
    struct slice authority; /* of a target in absolute form */
    unsigned hosts, lengths, codings, options;
    bool close, keep, upgrade_token, upgrade, expectation_unknown;
    enum http_defect defect;
    const char *detail;
};

static bool refuse(struct parse *p, enum http_defect defect, const char *detail)
{
    p->defect = defect;
    p->detail = detail;
    return false;
}

static bool malformed(struct parse *p, const char *detail)
{
    return refuse(p, HTTP_MALFORMED, detail);
}

/* The bytes before the first `c`, which is left out of *rest, too. false: there is no c. */
static bool cut(struct slice *before, struct slice *rest, char c)
{
    const char *at = rest->len > 0 ? memchr(rest->ptr, c, rest->len) : NULL;
    if (at == NULL) {
        return false;
    }
    *before = slice_of(rest->ptr, (size_t)(at - rest->ptr));
    *rest = slice_from(*rest, before->len + 1);
    return true;
}

static bool strip_nocase(struct slice *s, struct slice prefix)
{
    if (s->len < prefix.len || !slice_equal_nocase(slice_of(s->ptr, prefix.len), prefix)) {
        return false;
    }
    *s = slice_from(*s, prefix.len);
    return true;
}

/* Leaves the path in *target; its authority has to agree with Host, see check_host(). */
static bool absolute_form(struct parse *p, struct slice *target)
{
    if (!strip_nocase(target, SLICE_LITERAL("http://")) && !strip_nocase(target, SLICE_LITERAL("https://"))) {
        return malformed(p, "the target is neither a path nor an http URL");
    }
    size_t n = 0;
    while (n < target->len && target->ptr[n] != '/' && target->ptr[n] != '?') {
        n++;
    }
    p->authority = slice_of(target->ptr, n);
    *target = slice_from(*target, n);
    return n > 0 ? true : malformed(p, "the target's host is empty");
}

static bool parse_target(struct parse *p, struct slice target)
{
    struct request *r = &p->out->request;
    if (target.len == 0 || !all_of(target, BYTE_VISIBLE) || memchr(target.ptr, '#', target.len) != NULL) {
        return malformed(p, "the target is empty or holds a byte that belongs escaped");
    }
    if (slice_equal(r->method, SLICE_LITERAL("CONNECT"))) {
        r->path = target; /* refused once the rest turns out well-formed */
        return true;
    }
    bool options = slice_equal(r->method, SLICE_LITERAL("OPTIONS"));
    if (target.ptr[0] != '/' && !(options && slice_equal(target, SLICE_LITERAL("*")))) {
        if (!absolute_form(p, &target)) {
            return false;
        }
    }
    r->path = target;
    r->query = target;
    if (cut(&r->path, &r->query, '?')) {
        /* "?" with nothing behind it is an empty query, not an absent one. */
    } else {
        r->query = SLICE_NONE;
    }
    if (r->path.len == 0) {
        r->path = options && slice_is_none(r->query) ? SLICE_LITERAL("*") : SLICE_LITERAL("/");
    }
    return true;
}

static bool parse_version(struct parse *p, struct slice version)
{
    if (version.len != 8 || !slice_starts_with(version, SLICE_LITERAL("HTTP/")) || version.ptr[6] != '.' ||
        version.ptr[5] < '0' || version.ptr[5] > '9' || version.ptr[7] < '0' || version.ptr[7] > '9') {
        return malformed(p, "the request line does not end in an HTTP version");
    }
    if (version.ptr[5] != '1') {
        return refuse(p, HTTP_VERSION_UNSUPPORTED, "the version is neither HTTP/1.0 nor HTTP/1.1");
    }
    p->out->http10 = version.ptr[7] == '0';
    return true;
}

static bool parse_request_line(struct parse *p, struct slice line)
{
    struct slice target;
    if (!cut(&p->out->request.method, &line, ' ') || !cut(&target, &line, ' ')) {
        return malformed(p, "the request line is not method, target and version");
    }
    struct slice method = p->out->request.method;
    if (method.len == 0 || !all_of(method, BYTE_TOKEN)) {
        p->out->request.method = SLICE_LITERAL("");
        return malformed(p, "the method is not a token");
    }
    p->out->is_head = slice_equal(method, SLICE_LITERAL("HEAD"));
    return parse_version(p, line) && parse_target(p, target);
}

/* --- The header lines. --- */

static bool note_connection(struct parse *p, struct slice list)
{
    while (list.len > 0) {
        struct slice word = list;
        if (!cut(&word, &list, ',')) {
            list.len = 0;
        }
        word = slice_trim(word);
        p->close = p->close || slice_equal_nocase(word, SLICE_LITERAL("close"));
        p->keep = p->keep || slice_equal_nocase(word, SLICE_LITERAL("keep-alive"));
        p->upgrade_token = p->upgrade_token || slice_equal_nocase(word, SLICE_LITERAL("upgrade"));
        p->options += word.len > 0;
    }
    return p->options <= LIMIT_CONNECTION_OPTIONS_MAX ? true : malformed(p, "too many words in Connection");
}

/* Of blanks only: some readers take a tab for a part of the value, and framing must be clear to all of them. */
static struct slice trim_blanks(struct slice s)
{
    while (s.len > 0 && s.ptr[0] == ' ') {
        s = slice_from(s, 1);
    }
    while (s.len > 0 && s.ptr[s.len - 1] == ' ') {
        s.len--;
    }
    return s;
}

static bool note_length(struct parse *p, struct slice value)
{
    uint64_t n = 0;
    if (p->lengths++ > 0) {
        return malformed(p, "more than one Content-Length");
    }
    for (size_t i = 0; i < value.len; i++) {
        unsigned digit = (unsigned)(value.ptr[i] - '0');
        if (digit > 9 || n > ((uint64_t)INT64_MAX - digit) / 10) {
            return malformed(p, "the Content-Length is not a number, or too large");
        }
        n = n * 10 + digit;
    }
    p->out->length = (int64_t)n;
    return value.len > 0 ? true : malformed(p, "the Content-Length is empty");
}

static bool note_coding(struct parse *p, struct slice value)
{
    if (p->codings++ > 0 || !slice_equal_nocase(value, SLICE_LITERAL("chunked"))) {
        return malformed(p, "a transfer coding other than exactly \"chunked\"");
    }
    return true;
}

/* The few lines that say something about the connection itself, told apart by their length first. */
static bool note_header(struct parse *p, struct slice name, struct slice value, struct slice raw)
{
    switch (name.len) {
    case 4:
        if (slice_equal_nocase(name, SLICE_LITERAL("Host"))) {
            p->host = value;
            p->hosts++;
        }
        return true;
    case 6:
        if (slice_equal_nocase(name, SLICE_LITERAL("Expect"))) {
            bool known = slice_equal_nocase(value, SLICE_LITERAL("100-continue"));
            p->out->expect_continue = p->out->expect_continue || known;
            p->expectation_unknown = p->expectation_unknown || !known;
        }
        return true;
    case 7:
        /* "h2c" alone is an offer that RFC 9110 section 7.8 lets a server ignore; some clients make it every time. */
        if (slice_equal_nocase(name, SLICE_LITERAL("Upgrade"))) {
            p->upgrade = p->upgrade || !slice_equal_nocase(value, SLICE_LITERAL("h2c"));
        }
        return true;
    case 10:
        return slice_equal_nocase(name, SLICE_LITERAL("Connection")) ? note_connection(p, value) : true;
    case 14:
        return slice_equal_nocase(name, SLICE_LITERAL("Content-Length")) ? note_length(p, trim_blanks(raw))
                                                                         : true;
    case 17:
        return slice_equal_nocase(name, SLICE_LITERAL("Transfer-Encoding")) ? note_coding(p, trim_blanks(raw))
                                                                            : true;
    default:
        return true;
    }
}

static bool parse_header(struct parse *p, struct slice line, struct header *h)
{
    if (line.ptr[0] == ' ' || line.ptr[0] == '\t') {
        return malformed(p, "a folded header line");
    }
    struct slice name;
    if (!cut(&name, &line, ':') || name.len == 0 || !all_of(name, BYTE_TOKEN)) {
        return malformed(p, "a header line without a proper name and colon");
    }
    *h = (struct header){.name = name, .value = slice_trim(line)};
    return note_header(p, h->name, h->value, line);
}

static bool parse_headers(struct parse *p, struct slice rest, struct header *headers, size_t headers_max)
{
    struct request *r = &p->out->request;
    while (rest.len > 2) { /* the empty line stays */
        const char *end = memchr(rest.ptr, '\r', rest.len);
        struct slice line = slice_of(rest.ptr, (size_t)(end - rest.ptr));
        rest = slice_from(rest, line.len + 2);
        if (r->header_count == headers_max) {
            return refuse(p, HTTP_HEAD_TOO_LARGE, "too many header lines");
        }
        if (!parse_header(p, line, &headers[r->header_count])) {
            return false;
        }
        r->header_count++;
    }
    return true;
}

/* --- What the lines come to together. --- */

static bool check_host(struct parse *p)
{
    if (p->hosts > 1) {
        return malformed(p, "more than one Host");
    }
    if (p->hosts == 0 && !p->out->http10) {
        return malformed(p, "no Host");
    }
    if (!all_of(p->host, BYTE_HOST) || !all_of(p->authority, BYTE_HOST)) {
        return malformed(p, "the Host is not a host and port");
    }
    if (p->authority.len > 0 && p->hosts > 0 && !slice_equal_nocase(p->host, p->authority)) {
        return malformed(p, "Host and the target's host differ");
    }
    return true;
}

static bool check_together(struct parse *p)
{
    struct http_head *out = p->out;
    if (!check_host(p)) {
        return false;
    }
    if (p->codings > 0 && p->lengths > 0) {
        return malformed(p, "both Content-Length and Transfer-Encoding");
    }
    if (p->codings > 0 && out->http10) {
        return malformed(p, "Transfer-Encoding in HTTP/1.0");
    }
    if (p->codings > 0) {
        out->chunked = true;
        out->length = -1;
    }
    if (slice_equal(out->request.method, SLICE_LITERAL("CONNECT"))) {
        return refuse(p, HTTP_UPGRADE, "the method CONNECT");
    }
    if (out->http10) { /* knows neither expectations nor upgrades: RFC 9110 sections 7.8 and 10.1.1 */
        out->expect_continue = false;
        out->keep_alive = p->keep && !p->close;
        return true;
    }
    if (p->upgrade && p->upgrade_token) {
        return refuse(p, HTTP_UPGRADE, "the request asks for another protocol");
    }
    if (p->expectation_unknown) {
        return refuse(p, HTTP_EXPECTATION_UNKNOWN, "an expectation other than 100-continue");
    }
    out->expect_continue = out->expect_continue && out->length != 0;
    out->keep_alive = !p->close;
    return true;
}

bool http_head_parse(struct http_head *out, struct slice head, struct header *headers, size_t headers_max,
                     enum http_defect *defect, const char **detail)
{
    *out = (struct http_head){.request = {.method = SLICE_LITERAL(""),
                                          .path = SLICE_LITERAL(""),
                                          .query = SLICE_NONE,
                                          .headers = headers,
                                          .body = SLICE_LITERAL("")}};
    struct parse p = {.out = out, .host = SLICE_LITERAL(""), .authority = SLICE_LITERAL("")};
    const char *end = memchr(head.ptr, '\r', head.len); /* is there: the scan found the empty line */
    struct slice line = slice_of(head.ptr, (size_t)(end - head.ptr));
    if (parse_request_line(&p, line) &&
        parse_headers(&p, slice_from(head, line.len + 2), headers, headers_max) && check_together(&p)) {
        return true;
    }
    out->keep_alive = false;
    out->length = 0;
    out->chunked = false;
    out->expect_continue = false;
    *defect = p.defect;
    *detail = p.detail;
    return false;
}
