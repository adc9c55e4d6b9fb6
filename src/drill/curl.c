/* Shell lines that do it again, in any shell of POSIX: whatever was given stands in single quotes, or goes through
 * printf where it can't stand there on one line. No line holds a credential: values of headers, unless their names are
 * known to be harmless, and of parameters whose names sound secret are variables that the reader has to set. */
#include "drill/request.h"

#include "base/error.h"
#include "drill/profile.h"

#include <stdio.h>

#define INLINE_BYTES_MAX (16U * 1024U) /* a larger body is taken from its file */

/* --- Quoting. ------------------------------------------------------------------------------------ */

static bool is_plain(struct slice text)
{
    for (size_t i = 0; i < text.len; i++) {
        if (text.ptr[i] < ' ' || text.ptr[i] > '~') {
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

/* What stands between single quotes: text as it is, or as a format of printf, which can say every byte. */
static int quoted(struct buf *out, struct slice text, bool format)
{
    int rc = 0;
    for (size_t i = 0; i < text.len && rc == 0; i++) {
        unsigned char c = (unsigned char)text.ptr[i];
        if (c == '\'') {
            rc = buf_append_text(out, "'\\''");
        } else if (format && (c == '\\' || c == '%')) {
            rc = buf_printf(out, "%c%c", c, c);
        } else if (format && c == '\n') {
            rc = buf_append_text(out, "\\n");
        } else if (format && (c < ' ' || c > '~' || (i == 0 && c == '-'))) { /* it is no option */
            rc = buf_printf(out, "\\%03o", c); /* three digits always: what follows is no part of it */
        } else {
            rc = buf_append_byte(out, (char)c);
        }
    }
    return rc;
}

/* One literal piece of a word. It can't say NUL or a line feed at the end, which no header or URL holds. */
static int quote(struct buf *out, struct slice text)
{
    if (is_bare(text)) {
        return buf_append_slice(out, text);
    }
    bool plain = is_plain(text);
    int rc = buf_append_text(out, plain ? "'" : "\"$(printf '");
    rc = rc != 0 ? rc : quoted(out, text, !plain);
    return rc != 0 ? rc : buf_append_text(out, plain ? "'" : "')\"");
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

/* --- What may be shown. -------------------------------------------------------------------------- */

static bool holds_any(struct slice text)
{
    return request_holds(text, 'k') || request_holds(text, 'u');
}

static bool mentions(struct slice name, const char *word)
{
    struct slice part = slice_text(word);
    for (size_t at = 0; at + part.len <= name.len; at++) {
        if (slice_equal_nocase(slice_of(name.ptr + at, part.len), part)) {
            return true;
        }
    }
    return false;
}

static bool sounds_secret(struct slice name)
{
    static const char *const words[] = {"auth", "cookie",     "token",   "secret", "pass",
                                        "pwd",  "credential", "session", "sig",    "api"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (mentions(name, words[i])) {
            return true;
        }
    }
    return false;
}

enum line { NORMAL_LINE, TENANT_LINE, FAIL_LINE };

/* Credentials hide behind any name. So only lines that are known to hold none are shown, and those that the drill
 * itself needs: with a placeholder, or to make the endpoint fail. */
static bool is_shown(const struct header *h, enum line line)
{
    static const char *const harmless[] = {
        "accept",           "accept-encoding", "accept-language", "cache-control",
        "content-encoding", "content-type",    "expect",          "host",
        "if-match",         "if-none-match",   "origin",          "prefer",
        "user-agent"};
    for (size_t i = 0; i < sizeof harmless / sizeof harmless[0]; i++) {
        if (slice_equal_nocase(h->name, slice_text(harmless[i]))) {
            return true;
        }
    }
    return h->value.len == 0 || ((line == FAIL_LINE || holds_any(h->value)) && !sounds_secret(h->name));
}

/* Authorization -> "$AUTHORIZATION", and "$OTHER_AUTHORIZATION" for the other tenant. */
static int variable(struct buf *out, struct slice name, bool other)
{
    bool digit = name.len > 0 && name.ptr[0] >= '0' && name.ptr[0] <= '9';
    int rc = buf_append_text(out, other ? "$OTHER_" : digit ? "$_" : "$");
    for (size_t i = 0; i < name.len && rc == 0; i++) {
        char c = ascii_lower(name.ptr[i]);
        bool letter = c >= 'a' && c <= 'z';
        rc = buf_append_byte(out, letter ? (char)(c - 'a' + 'A') : c >= '0' && c <= '9' ? c : '_');
    }
    return rc;
}

/* Text of a URL; `op` is NULL for people, who get no shell's quotes. */
static int url_text(struct buf *out, struct slice text, const struct operation *op)
{
    if (op == NULL || text.len == 0) {
        return buf_append_slice(out, text);
    }
    return word(out, text, op);
}

static int url_secret(struct buf *out, struct slice name, const struct operation *op)
{
    if (op == NULL) {
        return buf_append_text(out, "...");
    }
    int rc = buf_append_byte(out, '"');
    rc = rc != 0 ? rc : variable(out, name, false);
    return rc != 0 ? rc : buf_append_byte(out, '"');
}

/* A URL, without the values of parameters that sound secret. */
static int write_url(struct buf *out, struct slice url, const struct operation *op)
{
    const char *mark = memchr(url.ptr, '?', url.len);
    size_t at = mark != NULL ? (size_t)(mark - url.ptr) + 1 : url.len;
    size_t written = 0;
    int rc = 0;
    while (at < url.len && url.ptr[at] != '#' && rc == 0) {
        size_t end = at;
        while (end < url.len && url.ptr[end] != '&' && url.ptr[end] != '#') {
            end++;
        }
        const char *equals = memchr(url.ptr + at, '=', end - at);
        size_t name_end = equals != NULL ? (size_t)(equals - url.ptr) : end;
        struct slice name = slice_of(url.ptr + at, name_end - at);
        bool secret = name_end < end && (sounds_secret(name) || mentions(name, "key")) &&
                      !holds_any(slice_of(url.ptr + at, end - at));
        if (secret) {
            rc = url_text(out, slice_of(url.ptr + written, name_end + 1 - written), op);
            rc = rc != 0 ? rc : url_secret(out, name, op);
            written = end;
        }
        at = end + (end < url.len && url.ptr[end] == '&');
    }
    return rc != 0 ? rc : url_text(out, slice_from(url, written), op);
}

int request_show_url(struct buf *out, struct slice url)
{
    return write_url(out, url, NULL);
}

/* --- Headers. ------------------------------------------------------------------------------------ */

static int header_word(struct buf *out, const struct header *h, const struct operation *op, enum line line)
{
    bool bare = is_bare(h->name);
    int rc = buf_append_text(out, " -H ");
    if (is_shown(h, line)) {
        const char *quote_mark = bare ? "'" : "";
        rc = rc != 0 ? rc : buf_append_text(out, quote_mark);
        rc = rc != 0 ? rc : quote(out, h->name);
        rc = rc != 0 ? rc : buf_append_text(out, bare ? "" : "'");
        rc = rc != 0 ? rc : buf_append_text(out, h->value.len > 0 ? ": '" : ";'");
        return rc != 0 || h->value.len == 0 ? rc : word(out, h->value, op);
    }
    rc = rc != 0 ? rc : buf_append_text(out, bare ? "\"" : "");
    rc = rc != 0 ? rc : quote(out, h->name);
    rc = rc != 0 ? rc : buf_append_text(out, bare ? ": " : "\": ");
    rc = rc != 0 ? rc : variable(out, h->name, line == TENANT_LINE);
    return rc != 0 ? rc : buf_append_byte(out, '"');
}

static int key_headers(struct buf *out, const struct drill_setup *s, const struct operation *op)
{
    unsigned lines = s->key_header == NULL || op->form == KEY_MISSING ? 0 : op->form == KEY_TWICE ? 2 : 1;
    const char *quote_mark = request_quotes_key(s, op) ? "\"" : "";
    const char *end_mark = request_quotes_key(s, op) ? "'\"'" : "";
    bool empty = op->form == KEY_RAW && op->raw_key.len == 0;
    int rc = 0;
    for (unsigned i = 0; i < lines && rc == 0; i++) {
        rc = buf_append_text(out, " -H '");
        rc = rc != 0 ? rc : quoted(out, slice_text(s->key_header), false);
        rc = rc != 0 ? rc : buf_printf(out, "%s%s'", empty ? ";" : ": ", quote_mark);
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
            rc = header_word(out, &s->headers[i], op, NORMAL_LINE);
        }
    }
    if (rc == 0 && op->place == DRILL_OTHER_TENANT) {
        rc = header_word(out, &s->tenant, op, TENANT_LINE);
    }
    if (rc == 0 && op->fails) {
        rc = header_word(out, &s->fail, op, FAIL_LINE);
    }
    if (rc == 0 && body.len > 0 && !request_gives(s, "content-type")) {
        rc = buf_printf(out, " -H 'Content-Type: %s'", request_content_type(body));
    }
    return rc;
}

/* --- The body. ----------------------------------------------------------------------------------- */

static bool is_argument(struct slice body)
{
    return body.len <= INLINE_BYTES_MAX && is_plain(body);
}

/* printf 'format' "$K" "$U" | */
static int print_body(struct buf *out, struct slice body, const struct operation *op)
{
    struct slice rest = body;
    int rc = buf_append_text(out, "printf '");
    while (rest.len > 0 && rc == 0) {
        struct slice before;
        char which = request_next_piece(&before, &rest);
        rc = quoted(out, before, true);
        rc = rc != 0 || which == '\0' ? rc : buf_append_text(out, "%s");
    }
    rc = rc != 0 ? rc : buf_append_byte(out, '\'');
    rest = body;
    while (rest.len > 0 && rc == 0) {
        struct slice before;
        char which = request_next_piece(&before, &rest);
        rc = which == '\0' ? 0 : buf_append_byte(out, ' ');
        rc = rc != 0 || which != 'k'   ? rc
             : op->form == KEY_MISSING ? buf_append_text(out, "''")
                                       : key_word(out, op);
        rc = rc != 0 || which != 'u' ? rc : buf_append_text(out, "\"$U\"");
    }
    return rc != 0 ? rc : buf_append_text(out, " | ");
}

/* sed "..." FILE |. Only the body that was given has a file. */
static int file_body(struct buf *out, const struct drill_setup *s, struct slice body,
                     const struct operation *op)
{
    bool stdin_is_it = s->body_file != NULL && strcmp(s->body_file, "-") == 0;
    if (s->body_file == NULL || stdin_is_it || !slice_is_none(op->body) || body.ptr != s->body.ptr ||
        (request_holds(body, 'k') && op->form != KEY_NORMAL)) {
        return HAPAX_E_LIMIT;
    }
    int rc = buf_append_text(out, "sed -e \"s/{key}/$K/g\" -e \"s/{unique}/$U/g\" -- ");
    rc = rc != 0 ? rc : quote(out, slice_text(s->body_file));
    return rc != 0 ? rc : buf_append_text(out, " | ");
}

/* What comes before curl, and gives it the body on its standard input. */
static int source(struct buf *out, const struct drill_setup *s, struct slice body, const struct operation *op,
                  enum drill_delivery lost)
{
    if (is_argument(body)) {
        return 0;
    }
    if (body.len <= INLINE_BYTES_MAX) {
        body.len = lost == DRILL_REQUEST_LOST ? body.len / 2 : body.len;
        return print_body(out, body, op);
    }
    int rc = file_body(out, s, body, op);
    return rc != 0 || lost != DRILL_REQUEST_LOST ? rc : buf_printf(out, "head -c %zu | ", body.len / 2);
}

static int data(struct buf *out, struct slice body, const struct operation *op, enum drill_delivery lost)
{
    bool cut = lost == DRILL_REQUEST_LOST; /* more is announced than comes */
    int rc = cut ? buf_append_text(out, " -H 'Content-Length: 100000000'") : 0;
    if (rc != 0 || (body.len == 0 && !cut)) {
        return rc;
    }
    if (!is_argument(body)) {
        return buf_append_text(out, " --data-binary @-");
    }
    rc = buf_append_text(out, " --data-raw "); /* in which @ means nothing */
    body.len = cut ? body.len / 2 : body.len;
    return rc != 0 ? rc : word(out, body, op);
}

/* --- The command. -------------------------------------------------------------------------------- */

/* To curl, brackets and braces stand for several URLs. */
static const char *glob_option(struct slice url)
{
    bool globs = false;
    while (url.len > 0) {
        struct slice before;
        (void)request_next_piece(&before, &url);
        for (size_t i = 0; i < before.len; i++) {
            globs = globs || memchr("[]{}", before.ptr[i], 4) != NULL;
        }
    }
    return globs ? " -g" : "";
}

int request_write_curl(struct buf *out, const struct drill_setup *s, const struct payloads *p,
                       const struct operation *op, const char *url, enum drill_delivery lost)
{
    struct slice body = request_body(p, op);
    static const char *const patience[] = {"", " -m 0.1", " -m 1"};
    int rc = source(out, s, body, op, lost);
    rc = rc != 0 ? rc : buf_printf(out, "curl -sS -i%s%s -X ", glob_option(slice_text(url)), patience[lost]);
    rc = rc != 0 ? rc : quote(out, slice_text(s->method));
    rc = rc != 0 ? rc : buf_append_byte(out, ' ');
    rc = rc != 0 ? rc : write_url(out, slice_text(url), op);
    rc = rc != 0 ? rc : headers(out, s, op, body);
    return rc != 0 ? rc : data(out, body, op, lost);
}

/* In anything that any of its requests may be made from. */
static bool uses(const struct drill_setup *s, const struct operation *op, char placeholder)
{
    bool there = request_holds(slice_text(s->url), placeholder) || request_holds(s->body, placeholder) ||
                 request_holds(op->body, placeholder) || request_holds(s->other_body, placeholder) ||
                 request_holds(s->tenant.value, placeholder) || request_holds(s->fail.value, placeholder) ||
                 (s->other_url != NULL && request_holds(slice_text(s->other_url), placeholder)) ||
                 (s->final_url != NULL && request_holds(slice_text(s->final_url), placeholder));
    for (size_t i = 0; i < s->header_count; i++) {
        there = there || request_holds(s->headers[i].value, placeholder);
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
    struct slice url =
        slice_of(s->final_url, end != NULL ? (size_t)(end - s->final_url) : strlen(s->final_url));
    int rc = buf_printf(out, "curl -sS%s ", glob_option(url));
    rc = rc != 0 ? rc : write_url(out, url, op);
    for (size_t i = 0; i < s->counter_header_count && rc == 0; i++) {
        rc = header_word(out, &s->counter_headers[i], op, NORMAL_LINE);
    }
    return rc;
}
