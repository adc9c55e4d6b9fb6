/* One writer of pieces for both forms of a request: bytes get values for placeholders, shell lines get variables. */
#include "drill/request.h"

#include "drill/profile.h"
#include "hapax/hapax.h"

#define AGENT "hapax-drill/" HAPAX_VERSION

/* --- Placeholders. ------------------------------------------------------------------------------- */

char request_next_piece(struct slice *before, struct slice *rest)
{
    const char *key = memmem(rest->ptr, rest->len, "{key}", 5);
    const char *unique = memmem(rest->ptr, rest->len, "{unique}", 8);
    const char *at = key == NULL || (unique != NULL && unique < key) ? unique : key;
    char which = at == NULL ? '\0' : at == key ? 'k' : 'u';
    *before = slice_of(rest->ptr, at != NULL ? (size_t)(at - rest->ptr) : rest->len);
    *rest = slice_from(*rest, before->len + (which == 'k' ? 5 : which == 'u' ? 8 : 0));
    return which;
}

bool request_holds(struct slice text, char placeholder)
{
    while (text.len > 0) {
        struct slice before;
        if (request_next_piece(&before, &text) == placeholder) {
            return true;
        }
    }
    return false;
}

static bool anywhere(const struct drill_setup *s, char placeholder)
{
    for (size_t i = 0; i < s->header_count; i++) {
        if (request_holds(s->headers[i].value, placeholder)) {
            return true;
        }
    }
    return request_holds(slice_text(s->url), placeholder) || request_holds(s->body, placeholder);
}

bool request_has_key_placeholder(const struct drill_setup *s)
{
    return anywhere(s, 'k');
}

bool request_has_unique(const struct drill_setup *s)
{
    return anywhere(s, 'u');
}

static int append_key(struct buf *out, const struct operation *op)
{
    int rc = 0;
    switch (op->form) {
    case KEY_MISSING:
        return 0;
    case KEY_RAW:
        return buf_append_slice(out, op->raw_key);
    case KEY_LONG:
        rc = buf_append_text(out, op->key);
        for (size_t i = strlen(op->key); i + 1 < op->key_bytes && rc == 0; i++) {
            rc = buf_append_byte(out, KEY_PADDING);
        }
        return rc != 0 ? rc : buf_append_byte(out, op->last);
    default:
        return buf_append_text(out, op->key);
    }
}

static int fill(struct buf *out, struct slice text, const struct operation *op)
{
    int rc = 0;
    while (text.len > 0 && rc == 0) {
        struct slice before;
        char which = request_next_piece(&before, &text);
        rc = buf_append_slice(out, before);
        rc = rc != 0 || which != 'k' ? rc : append_key(out, op);
        rc = rc != 0 || which != 'u' ? rc : buf_append_text(out, op->unique);
    }
    return rc;
}

/* --- What both forms say. ------------------------------------------------------------------------ */

struct slice request_body(const struct payloads *p, const struct operation *op)
{
    return slice_is_none(op->body) ? p->form[op->payload] : op->body;
}

bool request_gives(const struct drill_setup *s, const char *name)
{
    for (size_t i = 0; i < s->header_count; i++) {
        if (slice_equal_nocase(s->headers[i].name, slice_text(name))) {
            return true;
        }
    }
    return false;
}

bool request_tenant_replaces(const struct drill_setup *s, const struct operation *op, struct slice name)
{
    return op->place == DRILL_OTHER_TENANT && slice_equal_nocase(name, s->tenant.name);
}

const char *request_content_type(struct slice body)
{
    struct slice b = body;
    while (b.len > 0 && (b.ptr[0] == ' ' || b.ptr[0] == '\t' || b.ptr[0] == '\n' || b.ptr[0] == '\r')) {
        b = slice_from(b, 1);
    }
    return b.len > 0 && (b.ptr[0] == '{' || b.ptr[0] == '[') ? "application/json"
                                                             : "application/x-www-form-urlencoded";
}

bool request_quotes_key(const struct drill_setup *s, const struct operation *op)
{
    return s->profile->quoted_keys && !s->bare_keys && op->form != KEY_RAW;
}

/* --- Bytes. -------------------------------------------------------------------------------------- */

static int write_key_line(struct buf *out, const struct drill_setup *s, const struct operation *op,
                          const char *ending)
{
    const char *quote = request_quotes_key(s, op) ? "\"" : "";
    int rc = buf_printf(out, "%s: %s", s->key_header, quote);
    rc = rc != 0 ? rc : append_key(out, op);
    return rc != 0 ? rc : buf_printf(out, "%s%s\r\n", ending, quote);
}

static int write_key_lines(struct buf *out, const struct drill_setup *s, const struct operation *op)
{
    if (s->key_header == NULL || op->form == KEY_MISSING) {
        return 0;
    }
    int rc = write_key_line(out, s, op, "");
    return rc != 0 || op->form != KEY_TWICE ? rc : write_key_line(out, s, op, "-2");
}

static int write_line(struct buf *out, const struct header *h, const struct operation *op)
{
    int rc = buf_append_slice(out, h->name);
    rc = rc != 0 ? rc : buf_append_text(out, ": ");
    rc = rc != 0 ? rc : fill(out, h->value, op);
    return rc != 0 ? rc : buf_append_text(out, "\r\n");
}

static int write_lines(struct buf *out, const struct drill_setup *s, const struct operation *op,
                       struct slice body)
{
    int rc = write_key_lines(out, s, op);
    for (size_t i = 0; i < s->header_count && rc == 0; i++) {
        if (!request_tenant_replaces(s, op, s->headers[i].name)) {
            rc = write_line(out, &s->headers[i], op);
        }
    }
    if (rc == 0 && op->place == DRILL_OTHER_TENANT) {
        rc = write_line(out, &s->tenant, op);
    }
    if (rc == 0 && op->fails) {
        rc = write_line(out, &s->fail, op);
    }
    if (rc == 0 && !request_gives(s, "user-agent")) {
        rc = buf_append_text(out, "User-Agent: " AGENT "\r\n");
    }
    if (rc == 0 && !request_gives(s, "accept")) {
        rc = buf_append_text(out, "Accept: */*\r\n");
    }
    if (rc == 0 && body.len > 0 && !request_gives(s, "content-type")) {
        rc = buf_printf(out, "Content-Type: %s\r\n", request_content_type(body));
    }
    return rc;
}

int request_write(struct buf *out, size_t *cut, const struct drill_setup *s, const struct payloads *p,
                  const struct operation *op, struct slice authority, struct slice target)
{
    struct slice pattern = request_body(p, op);
    struct buf body;
    buf_init(&body, REQUEST_BYTES_MAX);
    int rc = fill(&body, pattern, op);
    bool slash = target.len == 0 || target.ptr[0] != '/';
    rc = rc != 0 ? rc : buf_printf(out, "%s %s", s->method, slash ? "/" : "");
    rc = rc != 0 ? rc : fill(out, target, op);
    rc = rc != 0 ? rc : buf_append_text(out, " HTTP/1.1\r\n");
    if (rc == 0 && !request_gives(s, "host")) {
        rc = buf_printf(out, "Host: %.*s\r\n", SLICE_FORMAT(authority));
    }
    rc = rc != 0 ? rc : write_lines(out, s, op, pattern);
    rc = rc != 0 ? rc : buf_printf(out, "Content-Length: %zu\r\n\r\n", body.len);
    *cut = body.len > 1 ? out->len + body.len / 2 : out->len / 2;
    rc = rc != 0 ? rc : buf_append_slice(out, buf_slice(&body));
    buf_free(&body);
    return rc;
}
