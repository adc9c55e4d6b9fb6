/* The parts of a request that go over the wire: method and URL, headers, body, and the key in one of the latter two. */
#include "base/error.h"
#include "base/limits.h"
#include "client/plan_parts.h"
#include "core/json.h"
#include "core/key.h"
#include "net/http_client.h"

#include <stdio.h>

/* --- method and URL --- */

static int take_method(struct client_plan *p, hapax_error *err)
{
    struct slice method = slice_text(p->asked.method);
    if (slice_is_none(method) || !slice_is_token(method) || method.len > HTTP_CALL_METHOD_BYTES_MAX ||
        slice_equal(method, SLICE_LITERAL("CONNECT"))) {
        return error_set(err, HAPAX_E_ARGUMENT, 0, "the method is a word such as POST");
    }
    p->message.method = method;
    return 0;
}

static const char *defect_of_url(struct slice url)
{
    for (size_t i = 0; i < url.len; i++) {
        if (url.ptr[i] <= ' ' || url.ptr[i] > '~') {
            return "holds a blank, a control character or something beyond ASCII: write it as %XX";
        }
    }
    return memchr(url.ptr, '#', url.len) != NULL ? "has a fragment (#...), which is never sent: leave it out"
                                                 : NULL;
}

static int refuse_url(hapax_error *err, const char *why)
{
    return error_set(err, HAPAX_E_ARGUMENT, 0, "the URL %s", why);
}

/* Cut it in two where the path or the query begins. */
int client_plan_take_url(struct client_plan *p, hapax_error *err)
{
    int rc = take_method(p, err);
    struct slice url = slice_text(p->asked.url);
    if (rc != 0) {
        return rc;
    }
    if (url.len == 0 || url.len > HAPAX_CALL_URL_BYTES_MAX) {
        return refuse_url(err, url.len == 0 ? "is missing" : "is longer than 8192 bytes");
    }
    const char *defect = defect_of_url(url);
    if (defect != NULL) {
        return refuse_url(err, defect);
    }
    const char *slashes = memmem(url.ptr, url.len, "://", 3);
    if (slashes == NULL) {
        return refuse_url(err, "does not begin with http:// or https://");
    }
    size_t end = (size_t)(slashes - url.ptr) + 3;
    while (end < url.len && url.ptr[end] != '/' && url.ptr[end] != '?') {
        end++;
    }
    struct slice origin;
    if (memchr(url.ptr, '@', end) != NULL) {
        return refuse_url(err, "holds a user: send credentials in a header, as in Authorization: Basic ...");
    }
    rc = arena_copy(&p->arena, slice_of(url.ptr, end), &origin);
    char *target = arena_alloc(&p->arena, url.len - end + 2);
    if (rc != 0 || target == NULL) {
        return error_code(err, HAPAX_E_MEMORY);
    }
    int n = snprintf(target, url.len - end + 2, "%s%s", url.ptr[end] == '/' ? "" : "/", url.ptr + end);
    p->origin = origin.ptr;
    p->message.target = slice_of(target, (size_t)n);
    const char *mark = memchr(target, '?', (size_t)n);
    p->path = slice_of(target, mark != NULL ? (size_t)(mark - target) : (size_t)n);
    p->query = mark != NULL ? slice_text(mark + 1) : SLICE_NONE;
    return 0;
}
_Static_assert(HAPAX_CALL_URL_BYTES_MAX == 8192, "a message above names it");

/* --- headers --- */

static bool is_one_of(struct slice name, const char *const *names)
{
    while (*names != NULL && !slice_equal_nocase(name, slice_text(*names))) {
        names++;
    }
    return *names != NULL;
}

static bool is_framing(struct slice name)
{
    static const char *const names[] = {
        "Content-Length", "Transfer-Encoding", "Connection", "Expect", "Keep-Alive", "Proxy-Connection", "TE",
        "Trailer",        "Upgrade",           NULL};
    return is_one_of(name, names);
}

/* A key there would change what the request means, be compared with it, or be taken for a credential. */
static bool has_a_meaning(struct slice name)
{
    static const char *const names[] = {"Accept",
                                        "Accept-Encoding",
                                        "Authorization",
                                        "Content-Encoding",
                                        "Content-Type",
                                        "Cookie",
                                        "Date",
                                        "Host",
                                        "Proxy-Authorization",
                                        "Range",
                                        "User-Agent",
                                        NULL};
    return is_one_of(name, names);
}

static bool is_text(struct slice value)
{
    for (size_t i = 0; i < value.len; i++) {
        unsigned char c = (unsigned char)value.ptr[i];
        if ((c < ' ' && c != '\t') || c == 0x7f) {
            return false;
        }
    }
    return true;
}

/* Names may be said: values never. */
static int check_header(const struct client_plan *p, struct slice name, struct slice value, hapax_error *err)
{
    if (!slice_is_token(name) || !is_text(value)) {
        return error_set(err, HAPAX_E_ARGUMENT, 0,
                         "a header is a name (letters, digits, '-') and a value on one line, without control "
                         "characters");
    }
    if (is_framing(name)) {
        return error_set(err, HAPAX_E_ARGUMENT, 0,
                         "the header %.*s is made by the client itself: leave it out", SLICE_FORMAT(name));
    }
    if (p->asked.key_field == NULL && slice_equal_nocase(name, slice_text(p->asked.key_header))) {
        return error_set(err, HAPAX_E_ARGUMENT, 0,
                         "the header %.*s carries the key: give the key itself, not its header",
                         SLICE_FORMAT(name));
    }
    return 0;
}

static void add_header(struct client_plan *p, struct slice name, struct slice value)
{
    p->headers[p->message.header_count++] = (struct header){name, value};
}

static bool has_header(const struct client_plan *p, struct slice name)
{
    struct slice value;
    struct request lines = {.headers = p->headers, .header_count = p->message.header_count};
    return request_header(&value, &lines, name) > 0;
}

int client_plan_take_headers(struct client_plan *p, hapax_error *err)
{
    const hapax_call_request *asked = &p->asked;
    size_t bytes = 0;
    struct slice key_header = slice_text(asked->key_header);
    if (!slice_is_token(key_header) || is_framing(key_header) || has_a_meaning(key_header)) {
        return error_set(err, HAPAX_E_ARGUMENT, 0,
                         "the key's header is one of its own, such as Idempotency-Key or X-Request-Id");
    }
    if (asked->headers == NULL && asked->header_count > 0) {
        return error_set(err, HAPAX_E_ARGUMENT, 0, "the headers are NULL but have a count");
    }
    if (asked->header_count > HAPAX_CALL_HEADERS_MAX) {
        return error_set(err, HAPAX_E_LIMIT, 0, "more than %d headers", HAPAX_CALL_HEADERS_MAX);
    }
    enum { ADDED_MAX = 3 }; /* User-Agent, Accept, the key */
    p->headers = arena_array(&p->arena, asked->header_count + ADDED_MAX, sizeof *p->headers);
    if (p->headers == NULL) {
        return error_code(err, HAPAX_E_MEMORY);
    }
    p->message.headers = p->headers;
    for (size_t i = 0; i < asked->header_count; i++) {
        struct slice name = slice_text(asked->headers[i].name);
        struct slice value = slice_trim(slice_text(asked->headers[i].value));
        int rc = check_header(p, name, value, err);
        if (rc != 0) {
            return rc;
        }
        bytes += name.len + value.len;
        if (bytes > HAPAX_CALL_HEAD_BYTES_MAX) {
            return error_set(err, HAPAX_E_LIMIT, 0, "the headers are longer than %u bytes",
                             HAPAX_CALL_HEAD_BYTES_MAX);
        }
        add_header(p, name, value);
    }
    if (!has_header(p, SLICE_LITERAL("User-Agent"))) {
        add_header(p, SLICE_LITERAL("User-Agent"), SLICE_LITERAL("hapax/" HAPAX_VERSION));
    }
    if (!has_header(p, SLICE_LITERAL("Accept"))) {
        add_header(p, SLICE_LITERAL("Accept"), SLICE_LITERAL("*/*"));
    }
    return 0;
}

int client_plan_put_into_header(struct client_plan *p, hapax_error *err)
{
    struct slice key = slice_text(p->key);
    struct slice value = key;
    /* A receiver trims blanks, and takes a quote at the start for that of an RFC 8941 string. */
    bool bare = p->asked.key_quoted == 0 && key.ptr[0] != '"' && slice_trim(key).len == key.len;
    if (!bare) {
        struct buf quoted;
        buf_init(&quoted, 2 * HAPAX_KEY_BYTES_MAX + 2);
        int rc = key_quote(&quoted, key);
        rc = rc != 0 ? rc : arena_copy(&p->arena, buf_slice(&quoted), &value);
        buf_free(&quoted);
        if (rc != 0) {
            return error_code(err, rc);
        }
    }
    add_header(p, slice_text(p->asked.key_header), value);
    return 0;
}

/* --- the body --- */

/* Where a member of this name can be put: behind the brace of the object that the pointer's beginning names. */
static int find_field(struct client_plan *p, hapax_error *err)
{
    struct slice pointer = slice_text(p->asked.key_field);
    struct json j;
    uint32_t node;
    int rc = json_pointer_check(pointer, err);
    if (rc != 0) {
        return rc;
    }
    if (pointer.len < 2) {
        return error_set(err, HAPAX_E_ARGUMENT, 0,
                         "the key's place in the body is a JSON pointer to a member, as in /idempotency_key");
    }
    rc = json_parse(&j, &p->arena, p->message.body, err);
    if (rc != 0) {
        return rc == HAPAX_E_MEMORY
                   ? rc
                   : error_set(err, HAPAX_E_ARGUMENT, 0, "the key is to go into the body, which is not JSON");
    }
    rc = json_pointer_find(&node, &j, pointer, &p->arena);
    if (rc == 0 && node != JSON_NODE_NONE) {
        return error_set(err, HAPAX_E_ARGUMENT, 0,
                         "the body has the key's member already: leave it out, and give the key itself");
    }
    const char *slash = memrchr(pointer.ptr, '/', pointer.len);
    struct slice parent = slice_of(pointer.ptr, (size_t)(slash - pointer.ptr));
    rc = rc != 0 ? rc : json_pointer_find(&node, &j, parent, &p->arena);
    if (rc != 0) {
        return error_code(err, rc);
    }
    if (node == JSON_NODE_NONE || j.nodes[node].type != JSON_TYPE_OBJECT) {
        return error_set(err, HAPAX_E_ARGUMENT, 0,
                         "the key is to go into an object of the body that is not there");
    }
    p->field_at = j.nodes[node].start + 1;
    p->field_alone = j.nodes[node].count == 0;
    return 0;
}

int client_plan_take_body(struct client_plan *p, hapax_error *err)
{
    const hapax_call_request *asked = &p->asked;
    if (asked->body == NULL && asked->body_bytes > 0) {
        return error_set(err, HAPAX_E_ARGUMENT, 0, "the body is NULL but has bytes");
    }
    if (asked->body_bytes > HAPAX_CALL_BODY_BYTES_MAX) {
        return error_set(err, HAPAX_E_LIMIT, 0, "the body is longer than %u bytes",
                         HAPAX_CALL_BODY_BYTES_MAX);
    }
    if (asked->body_bytes > 0 && slice_equal(p->message.method, SLICE_LITERAL("HEAD"))) {
        return error_set(err, HAPAX_E_ARGUMENT, 0, "a HEAD request has no body");
    }
    p->message.body = slice_of(asked->body_bytes > 0 ? asked->body : "", asked->body_bytes);
    return asked->key_field != NULL ? find_field(p, err) : 0;
}

/* The last part of a pointer, ~1 and ~0 undone. */
static int append_member_name(struct buf *out, struct slice pointer)
{
    const char *slash = memrchr(pointer.ptr, '/', pointer.len);
    struct slice rest = slice_from(pointer, (size_t)(slash - pointer.ptr) + 1);
    int rc = 0;
    for (size_t i = 0; i < rest.len && rc == 0; i++) {
        bool escape = rest.ptr[i] == '~' && i + 1 < rest.len;
        rc = buf_append_byte(out, escape ? (rest.ptr[i + 1] == '1' ? '/' : '~') : rest.ptr[i]);
        i += escape;
    }
    return rc;
}

static int write_member(struct buf *out, const struct client_plan *p)
{
    struct buf name;
    buf_init(&name, LIMIT_POINTER_BYTES_MAX);
    int rc = append_member_name(&name, slice_text(p->asked.key_field));
    rc = rc != 0 ? rc : json_quote(out, buf_slice(&name), false);
    rc = rc != 0 ? rc : buf_append_byte(out, ':');
    rc = rc != 0 ? rc : json_quote(out, slice_text(p->key), false);
    rc = rc != 0 || p->field_alone ? rc : buf_append_byte(out, ',');
    buf_free(&name);
    return rc;
}

int client_plan_put_into_body(struct client_plan *p, hapax_error *err)
{
    struct buf member;
    struct slice body = p->message.body;
    buf_init(&member, 6 * LIMIT_POINTER_BYTES_MAX + 2 * HAPAX_KEY_BYTES_MAX + 16);
    int rc = write_member(&member, p);
    char *whole = rc == 0 ? arena_alloc(&p->arena, body.len + member.len) : NULL;
    if (whole == NULL) {
        buf_free(&member);
        return error_code(err, rc != 0 ? rc : HAPAX_E_MEMORY);
    }
    memcpy(whole, body.ptr, p->field_at);
    memcpy(whole + p->field_at, member.ptr, member.len);
    memcpy(whole + p->field_at + member.len, body.ptr + p->field_at, body.len - p->field_at);
    p->message.body = slice_of(whole, body.len + member.len);
    buf_free(&member);
    return 0;
}
