/* Shell lines that do it again. Whatever was given stands in single quotes, or in $'...' where it holds control bytes;
 * values of headers with credentials are variables that the reader has to set. */
#include "drill/request.h"

#include "drill/profile.h"

#include <stdio.h>

#define INLINE_BYTES_MAX (16U * 1024U) /* larger bodies are named, not shown */

static bool is_plain(struct slice text)
{
    for (size_t i = 0; i < text.len; i++) {
        char c = text.ptr[i];
        if (c < ' ' || c > '~' || c == '\'') {
            return false;
        }
    }
    return true;
}

/* Means nothing to a shell. */
static bool is_bare(struct slice text)
{
    for (size_t i = 0; i < text.len; i++) {
        char c = ascii_lower(text.ptr[i]);
        if (!(c >= 'a' && c <= 'z') && !(c >= '0' && c <= '9') && memchr("._/:@%+=,-", c, 10) == NULL) {
            return false;
        }
    }
    return true;
}

/* One literal piece of a word. */
static int quote(struct buf *out, struct slice text)
{
    if (text.len == 0) {
        return 0;
    }
    if (is_bare(text)) {
        return buf_append_slice(out, text);
    }
    if (is_plain(text)) {
        return buf_printf(out, "'%.*s'", SLICE_FORMAT(text));
    }
    int rc = buf_append_text(out, "$'");
    for (size_t i = 0; i < text.len && rc == 0; i++) {
        unsigned char c = (unsigned char)text.ptr[i];
        if (c == '\n') {
            rc = buf_append_text(out, "\\n");
        } else if (c == '\'' || c == '\\') {
            rc = buf_printf(out, "\\%c", c);
        } else if (c < ' ' || c >= 0x7F) {
            rc = buf_printf(out, "\\x%02x", c); /* two digits always: what follows is no part of it in bash */
        } else {
            rc = buf_append_byte(out, (char)c);
        }
    }
    return rc != 0 ? rc : buf_append_text(out, "'");
}

static int key_word(struct buf *out, const struct operation *op)
{
    switch (op->form) {
    case KEY_MISSING:
        return 0;
    case KEY_RAW:
        return quote(out, op->raw_key);
    case KEY_LONG: {
        size_t padding = op->key_bytes - strlen(op->key) - 1;
        return buf_printf(out, "\"$K$(head -c %zu /dev/zero | tr '\\0' %c)%c\"", padding, KEY_PADDING,
                          op->last);
    }
    default:
        return buf_append_text(out, "\"$K\"");
    }
}

/* A template as one word of the shell. */
static int word(struct buf *out, struct slice text, const struct operation *op)
{
    int rc = text.len == 0 ? buf_append_text(out, "''") : 0;
    while (text.len > 0 && rc == 0) {
        struct slice before;
        char which = request_next_piece(&before, &text);
        rc = quote(out, before);
        rc = rc != 0 || which != 'k' ? rc : key_word(out, op);
        rc = rc != 0 || which != 'u' ? rc : buf_append_text(out, "\"$U\"");
    }
    return rc;
}

/* --- Headers. ------------------------------------------------------------------------------------ */

/* Does it hold credentials? Then it stays out of reports. */
static bool is_secret(struct slice name)
{
    static const char *const parts[] = {"authorization", "cookie",   "token",    "secret",
                                        "api-key",       "password", "signature"};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        struct slice part = slice_text(parts[i]);
        for (size_t at = 0; at + part.len <= name.len; at++) {
            if (slice_equal_nocase(slice_of(name.ptr + at, part.len), part)) {
                return true;
            }
        }
    }
    return false;
}

/* Authorization -> $AUTHORIZATION, and $OTHER_AUTHORIZATION for the other tenant. */
static int variable(struct buf *out, struct slice name, bool other)
{
    int rc = buf_append_text(out, other ? "$OTHER_" : "$");
    for (size_t i = 0; i < name.len && rc == 0; i++) {
        char c = ascii_lower(name.ptr[i]);
        bool letter = c >= 'a' && c <= 'z';
        rc = buf_append_byte(out, letter ? (char)(c - 'a' + 'A') : c >= '0' && c <= '9' ? c : '_');
    }
    return rc;
}

static int header_word(struct buf *out, const struct header *h, const struct operation *op, bool other)
{
    int rc = buf_append_text(out, " -H ");
    if (rc == 0 && is_secret(h->name)) {
        rc = buf_printf(out, "\"%.*s: ", SLICE_FORMAT(h->name));
        rc = rc != 0 ? rc : variable(out, h->name, other);
        return rc != 0 ? rc : buf_append_text(out, "\"");
    }
    rc = rc != 0 ? rc : buf_printf(out, "'%.*s%s'", SLICE_FORMAT(h->name), h->value.len > 0 ? ": " : ";");
    return rc != 0 || h->value.len == 0 ? rc : word(out, h->value, op);
}

static int key_headers(struct buf *out, const struct drill_setup *s, const struct operation *op)
{
    unsigned lines = s->key_header == NULL || op->form == KEY_MISSING ? 0 : op->form == KEY_TWICE ? 2 : 1;
    const char *quote_mark = request_quotes_key(s, op) ? "\"" : "";
    const char *end_mark = request_quotes_key(s, op) ? "'\"'" : "";
    bool empty = op->form == KEY_RAW && op->raw_key.len == 0;
    int rc = 0;
    for (unsigned i = 0; i < lines && rc == 0; i++) {
        rc = buf_printf(out, " -H '%s%s%s'", s->key_header, empty ? ";" : ": ", quote_mark);
        rc = rc != 0 ? rc : key_word(out, op);
        rc = rc != 0 ? rc : buf_printf(out, "%s%s", i == 1 ? "-2" : "", end_mark);
    }
    return rc;
}

static int headers(struct buf *out, const struct drill_setup *s, const struct operation *op,
                   struct slice body)
{
    int rc = key_headers(out, s, op);
    for (size_t i = 0; i < s->header_count && rc == 0; i++) {
        if (!request_tenant_replaces(s, op, s->headers[i].name)) {
            rc = header_word(out, &s->headers[i], op, false);
        }
    }
    if (rc == 0 && op->place == DRILL_OTHER_TENANT) {
        rc = header_word(out, &s->tenant, op, true);
    }
    if (rc == 0 && op->fails) {
        rc = header_word(out, &s->fail, op, false);
    }
    if (rc == 0 && body.len > 0 && !request_gives(s, "content-type")) {
        rc = buf_printf(out, " -H 'Content-Type: %s'", request_content_type(body));
    }
    return rc;
}

/* --- The command. -------------------------------------------------------------------------------- */

static int data(struct buf *out, const struct drill_setup *s, const struct operation *op, struct slice body,
                enum drill_delivery lost)
{
    if (lost == DRILL_REQUEST_LOST) { /* more is announced than comes */
        body.len = body.len / 2;
        int rc = buf_append_text(out, " -H 'Content-Length: 1000000' --data-binary ");
        return rc != 0 ? rc : word(out, slice_of(body.ptr, body.len < INLINE_BYTES_MAX ? body.len : 0), op);
    }
    if (body.len == 0) {
        return 0;
    }
    int rc = buf_append_text(out, " --data-binary ");
    if (rc == 0 && body.len > INLINE_BYTES_MAX) {
        const char *file = s->body_file != NULL ? s->body_file : "the-body";
        rc = buf_append_byte(out, '@');
        return rc != 0 ? rc : quote(out, slice_text(file));
    }
    return rc != 0 ? rc : word(out, body, op);
}

int request_write_curl(struct buf *out, const struct drill_setup *s, const struct payloads *p,
                       const struct operation *op, const char *url, enum drill_delivery lost)
{
    struct slice body = request_body(p, op);
    static const char *const patience[] = {"", " -m 0.1", " -m 1"};
    int rc = buf_printf(out, "curl -sS -i%s -X ", patience[lost]);
    rc = rc != 0 ? rc : quote(out, slice_text(s->method));
    rc = rc != 0 ? rc : buf_append_byte(out, ' ');
    rc = rc != 0 ? rc : word(out, slice_text(url), op);
    rc = rc != 0 ? rc : headers(out, s, op, body);
    return rc != 0 ? rc : data(out, s, op, body, lost);
}

static bool holds(struct slice text, char placeholder)
{
    while (text.len > 0) {
        struct slice before;
        if (request_next_piece(&before, &text) == placeholder) {
            return true;
        }
    }
    return false;
}

/* An event has a body of its own, and leads to a URL that may hold a placeholder, too. */
static bool uses(const struct drill_setup *s, const struct operation *op, char placeholder)
{
    if (slice_is_none(op->body)) {
        return placeholder == 'k' ? request_has_key_placeholder(s) : request_has_unique(s);
    }
    bool there = holds(op->body, placeholder) || holds(slice_text(s->url), placeholder) ||
                 holds(slice_text(s->final_url), placeholder);
    for (size_t i = 0; i < s->header_count; i++) {
        there = there || holds(s->headers[i].value, placeholder);
    }
    return there;
}

int request_write_key_variable(struct buf *out, const struct drill_setup *s, const struct operation *op)
{
    bool given = op->form == KEY_MISSING || op->form == KEY_RAW;
    bool used = !given && (s->key_header != NULL || uses(s, op, 'k'));
    return used ? buf_append_text(out, "K=$(cat /proc/sys/kernel/random/uuid); ") : 0;
}

int request_write_unique_variable(struct buf *out, const struct drill_setup *s, const struct operation *op)
{
    return uses(s, op, 'u') ? buf_append_text(out, "U=$(date +%s%N | cut -c5-19); ") : 0;
}

int request_write_final(struct buf *out, const struct drill_setup *s, const struct operation *op)
{
    const char *end = strchr(s->final_url, '#');
    size_t len = end != NULL ? (size_t)(end - s->final_url) : strlen(s->final_url);
    int rc = buf_append_text(out, "curl -sS ");
    rc = rc != 0 ? rc : word(out, slice_of(s->final_url, len), op);
    for (size_t i = 0; i < s->counter_header_count && rc == 0; i++) {
        rc = header_word(out, &s->counter_headers[i], op, false);
    }
    return rc;
}
