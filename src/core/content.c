/* A request's body, decoded and parsed at most once. Failures are remembered too: the second one who
 * asks gets the same answer without the work. */
#include "base/error.h"
#include "core/decode.h"
#include "core/fingerprint.h"

/* Remember why `*state` is bad. */
static int spoil(struct content *c, enum content_state *state, int code, const char *message)
{
    *state = CONTENT_BAD;
    return error_set(&c->error, code, 0, "%s", message);
}

static int repeat(const struct content *c, hapax_error *err)
{
    if (err != NULL) {
        *err = c->error;
    }
    return c->error.code;
}

/* Two lines that differ are two readings of one body: whoever comes after us may take the other one. */
static bool differs(const struct request *r, struct slice name, struct slice first)
{
    for (size_t i = 0; i < r->header_count; i++) {
        if (slice_equal_nocase(r->headers[i].name, name) && !slice_equal(r->headers[i].value, first)) {
            return true;
        }
    }
    return false;
}

void content_init(struct content *c, const struct request *r, struct arena *arena, size_t decoded_bytes_max)
{
    static const struct slice name = {"Content-Type", 12};
    *c = (struct content){.request = r, .arena = arena, .decoded_bytes_max = decoded_bytes_max};
    size_t lines = request_header(&c->type, r, name);
    c->media = media_type(c->type);
    if (lines > 1 && differs(r, name, c->type)) {
        spoil(c, &c->decoded_state, HAPAX_E_SYNTAX,
              "the request has several Content-Type headers that differ: send one");
    }
}

/* The lines of a list header joined by commas (RFC 9110 section 5.3). */
static int content_encoding(struct slice *out, struct content *c)
{
    static const struct slice name = {"Content-Encoding", 16};
    const struct request *r = c->request;
    *out = SLICE_NONE;
    if (request_header(out, r, name) <= 1) {
        return 0;
    }
    size_t len = 0;
    for (size_t i = 0; i < r->header_count; i++) {
        len += slice_equal_nocase(r->headers[i].name, name) ? r->headers[i].value.len + 1 : 0;
    }
    char *joined = arena_alloc(c->arena, len);
    if (joined == NULL) {
        return arena_error(c->arena);
    }
    *out = (struct slice){joined, 0};
    for (size_t i = 0; i < r->header_count; i++) {
        struct slice value = r->headers[i].value;
        if (!slice_equal_nocase(r->headers[i].name, name)) {
            continue;
        }
        if (value.len > 0) {
            memcpy(joined + out->len, value.ptr, value.len);
        }
        joined[out->len + value.len] = ',';
        out->len += value.len + 1;
    }
    out->len--;
    return 0;
}

static int decode(struct content *c)
{
    struct slice coding;
    int rc = content_encoding(&coding, c);
    if (rc != 0) {
        return error_code(&c->error, rc);
    }
    c->decoded = c->request->body;
    if (coding.len == 0) {
        return 0;
    }
    struct buf plain;
    bool coded = false;
    buf_init(&plain, c->decoded_bytes_max);
    rc = decode_content(&plain, &coded, coding, c->request->body, &c->error);
    if (rc == 0 && coded) {
        rc = arena_copy(c->arena, buf_slice(&plain), &c->decoded);
        if (rc != 0) {
            error_code(&c->error, rc);
        }
    }
    buf_free(&plain);
    return rc;
}

int content_decoded(struct slice *out, struct content *c, hapax_error *err)
{
    if (c->decoded_state == CONTENT_UNTRIED) {
        c->decoded_state = decode(c) == 0 ? CONTENT_READY : CONTENT_BAD;
    }
    if (c->decoded_state == CONTENT_BAD) {
        return repeat(c, err);
    }
    *out = c->decoded;
    return 0;
}

/* RFC 8259 section 8.1: JSON between systems is UTF-8. A sender that says otherwise means other text
 * than these bytes read as UTF-8. */
static int check_charset(struct content *c)
{
    static const struct slice allowed[] = {{"utf-8", 5}, {"utf8", 4}, {"us-ascii", 8}};
    struct slice charset = media_parameter(c->type, SLICE_LITERAL("charset"));
    if (charset.len == 0 || !media_is_json(c->media)) {
        return 0;
    }
    for (size_t i = 0; i < sizeof allowed / sizeof allowed[0]; i++) {
        if (slice_equal_nocase(charset, allowed[i])) {
            return 0;
        }
    }
    return spoil(c, &c->json_state, HAPAX_E_SYNTAX,
                 "the JSON body is declared in another charset: send it in UTF-8");
}

int content_json(const struct json **out, struct content *c, hapax_error *err)
{
    struct slice body;
    int rc = content_decoded(&body, c, err);
    if (rc != 0) {
        return rc;
    }
    if (c->json_state == CONTENT_UNTRIED && check_charset(c) == 0) {
        rc = json_parse(&c->json, c->arena, body, &c->error);
        c->json_state = rc == 0 ? CONTENT_READY : CONTENT_BAD;
    }
    if (c->json_state == CONTENT_BAD) {
        return repeat(c, err);
    }
    *out = &c->json;
    return 0;
}
