/* See plan.h. The parts of a request in the order in which they are looked at; a request's URL and headers are in
 * plan_request.c. */
#include "client/plan.h"

#include "base/error.h"
#include "base/sized.h"
#include "client/plan_parts.h"
#include "core/fingerprint.h"
#include "core/key.h"

#include <stdio.h>

/* A body of 16 MiB as JSON: its nodes, its members sorted, the copy with the key in it. */
#define PLAN_BYTES_MAX (160U * 1024U * 1024U)

_Static_assert(HAPAX_CALL_OP_BYTES_MAX <= HAPAX_KEY_BYTES_MAX, "a plain op is a key");

/* --- limits and defaults --- */

static int take_duration(int64_t *ms, int64_t standard, const char *what, hapax_error *err)
{
    if (*ms < 0 || *ms > HAPAX_CALL_DURATION_MS_MAX) {
        return error_set(err, HAPAX_E_ARGUMENT, 0, "%s is not a duration of up to ten years", what);
    }
    *ms = *ms > 0 ? *ms : standard;
    return 0;
}

static int take_defaults(hapax_call_request *r, hapax_error *err)
{
    int rc = take_duration(&r->time_max_ms, 10 * 60 * 1000, "the longest time of the call", err);
    rc = rc != 0 ? rc : take_duration(&r->timeout_ms, 30 * 1000, "the time-out", err);
    rc = rc != 0 ? rc : take_duration(&r->backoff_ms, 500, "the first wait", err);
    rc = rc != 0 ? rc : take_duration(&r->backoff_max_ms, 30 * 1000, "the longest wait", err);
    rc = rc != 0 ? rc : take_duration(&r->ttl_ms, 30LL * 24 * 3600 * 1000, "the ttl", err);
    rc = rc != 0 ? rc : take_duration(&r->key_lifetime_ms, 24LL * 3600 * 1000, "the lifetime of keys", err);
    if (rc != 0) {
        return rc;
    }
    r->attempts_max = r->attempts_max > 0 ? r->attempts_max : 8;
    if (r->attempts_max > HAPAX_CALL_ATTEMPTS_MAX) {
        return error_set(err, HAPAX_E_ARGUMENT, 0, "more than %d attempts", HAPAX_CALL_ATTEMPTS_MAX);
    }
    if (r->key_field != NULL && (r->key_header != NULL || r->key_quoted != 0)) {
        return error_set(err, HAPAX_E_ARGUMENT, 0, "the key goes into a header or into the body, not both");
    }
    if (r->key != NULL && r->key_from != NULL) {
        return error_set(err, HAPAX_E_ARGUMENT, 0, "the key is given or taken from the request, not both");
    }
    r->key_header = r->key_header != NULL ? r->key_header : "Idempotency-Key";
    return 0;
}

/* --- what is compared --- */

static struct request request_of(const struct client_plan *p)
{
    return (struct request){.method = p->message.method,
                            .path = p->path,
                            .query = p->query,
                            .headers = p->headers,
                            .header_count = p->message.header_count,
                            .body = p->message.body};
}

static int lower_copy(struct slice *out, struct slice name, struct arena *arena)
{
    char *copy = arena_alloc(arena, name.len + 1);
    if (copy == NULL) {
        return arena_error(arena);
    }
    for (size_t i = 0; i < name.len; i++) {
        copy[i] = ascii_lower(name.ptr[i]);
    }
    *out = slice_of(copy, name.len);
    return 0;
}

/* With where the key goes: in another place it is another key to the server, or none.
 * JSON, forms and multipart bodies by their meaning; what is not what its media type says, by its bytes. */
static int digest_content(struct client_plan *p, struct content *content, hapax_error *err)
{
    struct fingerprint print;
    int rc = fingerprint_make(&print, &(struct fingerprint_rule){.mode = FINGERPRINT_AUTO}, content, err);
    if (rc != 0 && rc != HAPAX_E_MEMORY) {
        rc = fingerprint_make(&print, &(struct fingerprint_rule){.mode = FINGERPRINT_BYTES_MODE}, content,
                              err);
    }
    if (rc != 0) {
        return rc;
    }
    struct slice header;
    rc = lower_copy(&header, slice_text(p->asked.key_header), &p->arena);
    if (rc != 0) {
        return error_code(err, rc);
    }
    const struct slice parts[] = {slice_text(p->origin), slice_of(print.bytes, sizeof print.bytes),
                                  slice_text(p->asked.key_field != NULL ? p->asked.key_field : ""), header,
                                  p->asked.key_quoted != 0 ? SLICE_LITERAL("quoted") : SLICE_LITERAL("bare")};
    return digest_parts(p->content, parts, sizeof parts / sizeof *parts) == 0
               ? 0
               : error_code(err, HAPAX_E_MEMORY);
}

/* --- the key --- */

static int keep_key(struct client_plan *p, struct slice key, hapax_error *err)
{
    struct slice copy;
    int rc = arena_copy(&p->arena, key, &copy);
    p->key = copy.ptr;
    return rc == 0 ? 0 : error_code(err, rc);
}

static int find_key(struct client_plan *p, struct content *content, hapax_error *err)
{
    struct slice key;
    struct key_source source;
    int rc = 0;
    if (p->asked.key != NULL) {
        struct slice given = slice_text(p->asked.key);
        rc = key_from_header(&key, given, KEY_LENIENT, &p->arena, err);
    } else if (p->asked.key_from != NULL) {
        rc = key_source_parse(&source, slice_text(p->asked.key_from), &p->arena, err);
        rc = rc != 0 ? rc : key_extract(&key, &source, 1, KEY_LENIENT, content, err);
    } else {
        return 0;
    }
    return rc != 0 ? rc : keep_key(p, key, err);
}

/* --- names --- */

static bool is_plain(unsigned char c)
{
    return c >= 0x20 && c <= 0x7e && c != '%';
}

int client_plan_name_op(const char **out, struct slice op, struct arena *arena, hapax_error *err)
{
    enum { DIGEST_SHOWN_BYTES = 16, BEGINNING_BYTES = 200 };
    char text[3 * HAPAX_CALL_OP_BYTES_MAX + 2 * DIGEST_SHOWN_BYTES + 2];
    size_t len = 0;
    if (slice_trim(op).len == 0 || op.len > HAPAX_CALL_OP_BYTES_MAX) {
        return error_set(err, HAPAX_E_LIMIT, 0, "an op is a name of 1 to %d bytes", HAPAX_CALL_OP_BYTES_MAX);
    }
    for (size_t i = 0; i < op.len; i++) {
        unsigned char c = (unsigned char)op.ptr[i];
        if (c < 0x20 || c == 0x7f) {
            return error_set(err, HAPAX_E_SYNTAX, 0, "an op holds no control characters");
        }
        len += (size_t)snprintf(text + len, 4, is_plain(c) ? "%c" : "%%%02X", c);
    }
    if (len > HAPAX_KEY_BYTES_MAX) {
        uint8_t digest[DIGEST_BYTES];
        if (digest_sha256(digest, op) != 0) {
            return error_code(err, HAPAX_E_MEMORY);
        }
        text[BEGINNING_BYTES] = '~';
        digest_hex(text + BEGINNING_BYTES + 1, digest, DIGEST_SHOWN_BYTES);
        len = BEGINNING_BYTES + 1 + 2 * DIGEST_SHOWN_BYTES;
    }
    struct slice copy;
    int rc = arena_copy(arena, slice_of(text, len), &copy);
    *out = copy.ptr;
    return rc == 0 ? 0 : error_code(err, rc);
}

static int name_records(struct client_plan *p, hapax_error *err)
{
    if (p->asked.op != NULL) {
        p->scope = PLAN_OP_SCOPE;
        return client_plan_name_op(&p->name, slice_text(p->asked.op), &p->arena, err);
    }
    struct slice path = p->path;
    size_t room = sizeof PLAN_OP_SCOPE + p->message.method.len + strlen(p->origin) + path.len + 3;
    if (room > HAPAX_SCOPE_BYTES_MAX) {
        return error_set(err, HAPAX_E_LIMIT, 0,
                         "the URL's path is too long to name an operation: give an op");
    }
    char *scope = arena_alloc(&p->arena, room);
    if (scope == NULL) {
        return error_code(err, HAPAX_E_MEMORY);
    }
    snprintf(scope, room, "%s %.*s %s%.*s", PLAN_OP_SCOPE, SLICE_FORMAT(p->message.method), p->origin,
             SLICE_FORMAT(path));
    p->scope = scope;
    return 0;
}

/* --- the whole --- */

int client_plan_make(struct client_plan *out, const hapax_call_request *request, hapax_error *err)
{
    *out = (struct client_plan){0};
    arena_init(&out->arena, PLAN_BYTES_MAX);
    int rc = sized_take(&out->asked, sizeof out->asked, request, request->size, err);
    rc = rc != 0 ? rc : take_defaults(&out->asked, err);
    rc = rc != 0 ? rc : client_plan_take_url(out, err);
    rc = rc != 0 ? rc : client_plan_take_headers(out, err);
    rc = rc != 0 ? rc : client_plan_take_body(out, err);
    if (rc != 0) {
        return rc;
    }
    struct content content;
    struct request r = request_of(out);
    content_init(&content, &r, &out->arena, HAPAX_CALL_BODY_BYTES_MAX);
    rc = digest_content(out, &content, err);
    rc = rc != 0 ? rc : find_key(out, &content, err);
    return rc != 0 ? rc : name_records(out, err);
}

void client_plan_free(struct client_plan *p)
{
    arena_free(&p->arena);
}

int client_plan_take_key(struct client_plan *p, struct slice key, hapax_error *err)
{
    int rc = keep_key(p, key, err);
    if (rc == 0 && p->asked.op == NULL) {
        p->name = p->key;
    }
    if (rc == 0) {
        rc = p->asked.key_field != NULL ? client_plan_put_into_body(p, err)
                                        : client_plan_put_into_header(p, err);
    }
    return rc;
}
