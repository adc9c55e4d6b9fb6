/* The fingerprint. What is hashed is one run of tagged, length-prefixed parts, so that no two
 * requests that differ in what counts give the same run:
 *
 *   version mode ["m" method "p" path "q" query "t" media type, then one body:]
 *     "e"            empty
 *     "j" JSON       canonical
 *     "f" pairs      canonical
 *     "x" parts      of a multipart body, canonical
 *     "b"            bytes, which follow as the second half of the hash
 *     "c" coding     bytes still under a coding we can't undo, as above
 *     "v" pointer 0 | "v" pointer 1 value   for each pointer of mode FIELDS
 *
 * These bytes are stored as digests: any change of them needs a new FINGERPRINT_VERSION. */
#include "core/fingerprint.h"

#include "base/buf.h"
#include "base/digest.h"
#include "base/error.h"
#include "base/limits.h"
#include "core/canonical.h"
#include "core/form.h"
#include "core/multipart.h"
#include "core/prefix.h"

_Static_assert(FINGERPRINT_BYTES <= DIGEST_BYTES, "a fingerprint is a prefix of a digest");

/* What tags and prefixes can add beyond the text of a request. */
enum {
    OVERHEAD_BYTES_MAX = 4096 + 2 * LIMIT_FORM_PAIRS_MAX * 2 * PREFIX_BYTES +
                         LIMIT_MULTIPART_PARTS_MAX * 8 * PREFIX_BYTES +
                         LIMIT_POINTERS_MAX * (LIMIT_POINTER_BYTES_MAX + 2 * PREFIX_BYTES)
};

struct writer {
    struct buf run;
    struct slice raw; /* the second half: bytes that need no copy to be hashed */
    const struct fingerprint_rule *rule;
    struct content *content;
    hapax_error *err;
};

/* Appends that can fail only for want of memory or by the maximum give their standing text. */
static int check(const struct writer *w, int rc)
{
    return rc != 0 ? error_code(w->err, rc) : 0;
}

static int put_tag(struct writer *w, char tag)
{
    return check(w, buf_append_byte(&w->run, tag));
}

static int put_part(struct writer *w, char tag, struct slice part)
{
    int rc = buf_append_byte(&w->run, tag);
    return check(w, rc != 0 ? rc : prefix_append(&w->run, part));
}

static int put_media(struct writer *w)
{
    int rc = put_part(w, 't', w->content->media);
    if (rc == 0) {
        for (char *p = w->run.ptr + w->run.len - w->content->media.len; p < w->run.ptr + w->run.len; p++) {
            *p = ascii_lower(*p);
        }
    }
    return rc;
}

/* Does a pointer name this field as a whole ("/name", with ~0 and ~1 undone)? "" names everything. */
static bool names_field(struct slice pointer, struct slice field)
{
    if (pointer.len == 0) {
        return true;
    }
    size_t at = 0;
    for (size_t i = 1; i < pointer.len; i++, at++) {
        char c = pointer.ptr[i];
        if (c == '/') {
            return false;
        }
        if (c == '~') {
            c = pointer.ptr[++i] == '0' ? '~' : '/';
        }
        if (at == field.len || field.ptr[at] != c) {
            return false;
        }
    }
    return at == field.len;
}

static bool is_ignored(const struct fingerprint_rule *rule, struct slice field)
{
    for (size_t i = 0; i < rule->ignore_count; i++) {
        if (names_field(rule->ignore[i], field)) {
            return true;
        }
    }
    return false;
}

static int put_pairs(struct writer *w, char tag, struct slice text, const struct fingerprint_rule *ignoring)
{
    struct form form;
    int rc = form_parse(&form, w->content->arena, text, w->err);
    if (rc != 0) {
        return rc;
    }
    if (ignoring != NULL && ignoring->ignore_count > 0) {
        size_t kept = 0;
        for (size_t i = 0; i < form.count; i++) {
            if (!is_ignored(ignoring, form.pairs[i].name)) {
                form.pairs[kept++] = form.pairs[i];
            }
        }
        form.count = kept;
    }
    size_t at = 0;
    rc = buf_append_byte(&w->run, tag);
    rc = rc != 0 ? rc : prefix_begin(&w->run, &at);
    rc = rc != 0 ? rc : form_canonical(&w->run, &form);
    if (rc == 0) {
        prefix_end(&w->run, at);
    }
    return check(w, rc);
}

/* The name that a part of multipart/form-data gives its field; SLICE_NONE without one. */
static struct slice field_name(const struct multipart_part *p)
{
    for (size_t i = 0; i < p->header_count; i++) {
        if (slice_equal_nocase(p->headers[i].name, SLICE_LITERAL("Content-Disposition"))) {
            return media_parameter(p->headers[i].value, SLICE_LITERAL("name"));
        }
    }
    return SLICE_NONE;
}

static int put_multipart(struct writer *w, struct slice body)
{
    struct multipart m;
    struct slice boundary = media_parameter(w->content->type, SLICE_LITERAL("boundary"));
    int rc = multipart_parse(&m, w->content->arena, body, boundary, w->err);
    if (rc != 0) {
        return rc;
    }
    size_t kept = 0;
    for (size_t i = 0; w->rule->ignore_count > 0 && i < m.count; i++) {
        struct slice name = field_name(&m.parts[i]);
        if (slice_is_none(name) || !is_ignored(w->rule, name)) {
            m.parts[kept++] = m.parts[i];
        }
    }
    m.count = w->rule->ignore_count > 0 ? kept : m.count;
    size_t at = 0;
    rc = buf_append_byte(&w->run, 'x');
    rc = rc != 0 ? rc : prefix_begin(&w->run, &at);
    rc = rc != 0 ? rc : multipart_canonical(&w->run, &m);
    if (rc == 0) {
        prefix_end(&w->run, at);
    }
    return check(w, rc);
}

static int put_json(struct writer *w)
{
    const struct json *j;
    size_t at = 0;
    int rc = content_json(&j, w->content, w->err);
    if (rc != 0) {
        return rc;
    }
    rc = buf_append_byte(&w->run, 'j');
    rc = check(w, rc != 0 ? rc : prefix_begin(&w->run, &at));
    if (rc == 0) {
        rc = canonical_json(&w->run, j, w->rule->ignore, w->rule->ignore_count, w->content->arena, w->err);
    }
    if (rc == 0) {
        prefix_end(&w->run, at);
    }
    return rc;
}

static int put_raw(struct writer *w, struct slice bytes)
{
    w->raw = bytes;
    return put_tag(w, 'b');
}

/* Bytes under a coding that nobody here can undo: opaque, but equal bytes under another coding differ. */
static int put_coded(struct writer *w)
{
    const struct request *r = w->content->request;
    int rc = 0;
    for (size_t i = 0; i < r->header_count && rc == 0; i++) {
        if (slice_equal_nocase(r->headers[i].name, SLICE_LITERAL("Content-Encoding"))) {
            rc = put_part(w, 'c', r->headers[i].value);
        }
    }
    return rc != 0 ? rc : put_raw(w, r->body);
}

static bool is_multipart(struct slice media)
{
    static const struct slice prefix = {"multipart/", 10};
    return media.len > prefix.len && slice_equal_nocase((struct slice){media.ptr, prefix.len}, prefix);
}

static int put_body_auto(struct writer *w)
{
    struct slice media = w->content->media;
    struct slice body;
    hapax_error error;
    int rc = content_decoded(&body, w->content, &error);
    if (rc == HAPAX_E_UNSUPPORTED) {
        return put_coded(w);
    }
    if (rc != 0) {
        if (w->err != NULL) {
            *w->err = error;
        }
        return rc;
    }
    if (body.len == 0) {
        return put_tag(w, 'e');
    }
    if (media_is_json(media)) {
        return put_json(w);
    }
    if (slice_equal_nocase(media, SLICE_LITERAL("application/x-www-form-urlencoded"))) {
        return put_pairs(w, 'f', body, w->rule);
    }
    return is_multipart(media) ? put_multipart(w, body) : put_raw(w, body);
}

static int put_field(struct writer *w, const struct json *j, struct slice pointer)
{
    uint32_t node;
    size_t at = 0;
    int rc = put_part(w, 'v', pointer);
    rc = rc != 0 ? rc : check(w, json_pointer_find(&node, j, pointer, w->content->arena));
    if (rc != 0 || node == JSON_NODE_NONE) {
        return rc != 0 ? rc : put_tag(w, '0');
    }
    rc = put_tag(w, '1');
    rc = rc != 0 ? rc : check(w, prefix_begin(&w->run, &at));
    rc = rc != 0 ? rc : canonical_json_node(&w->run, j, node, w->content->arena, w->err);
    if (rc == 0) {
        prefix_end(&w->run, at);
    }
    return rc;
}

static int put_body_fields(struct writer *w)
{
    const struct json *j;
    struct slice body;
    int rc = content_decoded(&body, w->content, w->err);
    if (rc == 0 && body.len == 0) {
        return put_tag(w, 'e');
    }
    rc = rc != 0 ? rc : content_json(&j, w->content, w->err);
    for (size_t i = 0; i < w->rule->pointer_count && rc == 0; i++) {
        rc = put_field(w, j, w->rule->pointers[i]);
    }
    return rc;
}

static int put_request(struct writer *w)
{
    const struct request *r = w->content->request;
    int rc = put_part(w, 'm', r->method);
    rc = rc != 0 ? rc : put_part(w, 'p', r->path);
    if (w->rule->mode == FINGERPRINT_BYTES_MODE) {
        rc = rc != 0 ? rc : put_part(w, 'q', r->query);
        rc = rc != 0 ? rc : put_media(w);
        return rc != 0 ? rc : put_raw(w, r->body);
    }
    rc = rc != 0 ? rc : put_pairs(w, 'q', r->query, NULL);
    rc = rc != 0 ? rc : put_media(w);
    if (rc != 0) {
        return rc;
    }
    return w->rule->mode == FINGERPRINT_FIELDS ? put_body_fields(w) : put_body_auto(w);
}

/* The most that put_request() may append, and a good first allocation. FIELDS may name the whole body
 * with every pointer; a canonical number is at most twice its lexeme. */
static int make_room(struct writer *w)
{
    const struct request *r = w->content->request;
    size_t text = r->method.len + r->path.len + r->query.len + w->content->type.len;
    size_t body = r->body.len > w->content->decoded_bytes_max ? r->body.len : w->content->decoded_bytes_max;
    size_t copies = 2 * (w->rule->mode == FINGERPRINT_FIELDS ? w->rule->pointer_count + 1 : 1);
    size_t body_max = body > (SIZE_MAX / 4) / copies ? SIZE_MAX / 4 : body * copies;
    buf_init(&w->run, text + body_max + OVERHEAD_BYTES_MAX);
    size_t usual = w->rule->mode == FINGERPRINT_BYTES_MODE ? 0 : r->body.len;
    return buf_reserve(&w->run, text + usual + 256);
}

int fingerprint_make(struct fingerprint *out, const struct fingerprint_rule *rule, struct content *c,
                     hapax_error *err)
{
    static const char modes[] = {[FINGERPRINT_AUTO] = 'A',
                                 [FINGERPRINT_BYTES_MODE] = 'B',
                                 [FINGERPRINT_FIELDS] = 'F',
                                 [FINGERPRINT_NONE] = 'N'};
    struct writer w = {.rule = rule, .content = c, .err = err};
    int rc = check(&w, make_room(&w));
    rc = rc != 0 ? rc : put_tag(&w, FINGERPRINT_VERSION);
    rc = rc != 0 ? rc : put_tag(&w, modes[rule->mode]);
    if (rc == 0 && rule->mode != FINGERPRINT_NONE) {
        rc = put_request(&w);
    }
    if (rc == 0) {
        uint8_t digest[DIGEST_BYTES];
        rc = check(&w, digest_parts(digest, (const struct slice[]){buf_slice(&w.run), w.raw}, 2));
        if (rc == 0) {
            out->version = FINGERPRINT_VERSION;
            memcpy(out->bytes, digest, FINGERPRINT_BYTES);
        }
    }
    buf_free(&w.run);
    return rc;
}

bool fingerprint_equal(const struct fingerprint *a, const struct fingerprint *b)
{
    return a->version == b->version && memcmp(a->bytes, b->bytes, FINGERPRINT_BYTES) == 0;
}

bool fingerprint_mismatch(const struct fingerprint *a, const struct fingerprint *b)
{
    return a->version > 0 && b->version > 0 && !fingerprint_equal(a, b);
}
