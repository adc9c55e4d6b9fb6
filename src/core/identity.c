/* Identities and scopes. Two different lists of parts never give one scope text: no part can hold the
 * blank that separates them, and the one part that could (the tenant) is escaped reversibly. */
#include "core/identity.h"

#include "base/digest.h"
#include "base/error.h"
#include "base/limits.h"

_Static_assert(IDENTITY_BYTES <= DIGEST_BYTES, "an identity is a prefix of a digest");
_Static_assert(TENANT_DIGEST_TEXT == 1 + 16 + 1, "mark, 16 hex digits, NUL");

static bool is_control(unsigned char c)
{
    return c < 0x20 || c == 0x7f;
}

int identity_make(struct identity *out, struct slice scope, struct slice key, hapax_error *err)
{
    if (scope.len == 0 || key.len == 0) {
        return error_set(err, HAPAX_E_MISSING, 0, "an operation needs a %s of at least one character",
                         key.len == 0 ? "key" : "scope");
    }
    if (scope.len > LIMIT_SCOPE_BYTES_MAX) {
        return error_set(err, HAPAX_E_LIMIT, 0, "the scope is longer than %d bytes", LIMIT_SCOPE_BYTES_MAX);
    }
    if (key.len > LIMIT_KEY_BYTES_MAX) {
        return error_set(err, HAPAX_E_LIMIT, 0, "the key is longer than %d bytes", LIMIT_KEY_BYTES_MAX);
    }
    for (size_t i = 0; i < scope.len; i++) {
        if (is_control((unsigned char)scope.ptr[i])) {
            return error_set(err, HAPAX_E_SYNTAX, 0, "the scope holds a control character at byte %zu", i);
        }
    }
    for (size_t i = 0; i < key.len; i++) {
        if (key.ptr[i] < 0x20 || key.ptr[i] > 0x7e) {
            return error_set(err, HAPAX_E_SYNTAX, 0,
                             "the key holds something other than printable ASCII at byte %zu", i);
        }
    }
    uint8_t digest[DIGEST_BYTES];
    if (digest_parts(digest, (const struct slice[]){scope, key}, 2) != 0) {
        return error_code(err, HAPAX_E_MEMORY);
    }
    memcpy(out->bytes, digest, IDENTITY_BYTES);
    return 0;
}

/* A part that has no blank by its nature: one that has is not what it is said to be. */
static int check_part(struct slice part)
{
    if (part.len == 0) {
        return HAPAX_E_MISSING;
    }
    for (size_t i = 0; i < part.len; i++) {
        if (part.ptr[i] == ' ' || is_control((unsigned char)part.ptr[i])) {
            return HAPAX_E_SYNTAX;
        }
    }
    return 0;
}

static int append_escaped(struct buf *out, char c)
{
    static const char hex[] = "0123456789ABCDEF";
    unsigned char byte = (unsigned char)c;
    const char text[3] = {'%', hex[byte >> 4], hex[byte & 15]};
    return buf_append(out, text, sizeof text);
}

/* Raw bytes beyond ASCII become what a correct client sends for them, so that a scope is ASCII text. */
static int append_path(struct buf *out, struct slice path)
{
    size_t from = 0;
    int rc = 0;
    for (size_t i = 0; i < path.len && rc == 0; i++) {
        if ((unsigned char)path.ptr[i] >= 0x80) {
            rc = buf_append(out, path.ptr + from, i - from);
            rc = rc != 0 ? rc : append_escaped(out, path.ptr[i]);
            from = i + 1;
        }
    }
    return rc != 0 ? rc : buf_append(out, path.ptr + from, path.len - from);
}

static int append_tenant(struct buf *out, struct slice tenant)
{
    if (tenant.len == 0) {
        return buf_append_byte(out, '-');
    }
    if (tenant.len == 1 && tenant.ptr[0] == '-') {
        return append_escaped(out, '-'); /* not the one that stands for no tenant */
    }
    int rc = 0;
    for (size_t i = 0; i < tenant.len && rc == 0; i++) {
        char c = tenant.ptr[i];
        bool plain = c > 0x20 && c < 0x7f && c != '%';
        rc = plain ? buf_append_byte(out, c) : append_escaped(out, c);
    }
    return rc;
}

int scope_make(struct buf *out, struct slice route, struct slice method, struct slice path,
               struct slice tenant)
{
    const size_t before = out->len;
    int rc = check_part(route);
    rc = rc != 0 ? rc : check_part(method);
    rc = rc != 0 ? rc : check_part(path);
    if (rc != 0) {
        return rc;
    }
    if (tenant.len > LIMIT_TENANT_BYTES_MAX) {
        return HAPAX_E_LIMIT;
    }
    rc = buf_append_slice(out, route);
    rc = rc != 0 ? rc : buf_append_byte(out, ' ');
    rc = rc != 0 ? rc : buf_append_slice(out, method);
    rc = rc != 0 ? rc : buf_append_byte(out, ' ');
    rc = rc != 0 ? rc : append_path(out, path);
    rc = rc != 0 ? rc : buf_append_byte(out, ' ');
    rc = rc != 0 ? rc : append_tenant(out, tenant);
    if (rc == 0 && out->len - before > LIMIT_SCOPE_BYTES_MAX) {
        rc = HAPAX_E_LIMIT;
    }
    if (rc != 0) {
        out->len = before;
    }
    return rc;
}

int tenant_digest(char out[TENANT_DIGEST_TEXT], struct slice credential)
{
    uint8_t digest[DIGEST_BYTES];
    int rc = digest_sha256(digest, credential);
    if (rc == 0) {
        out[0] = '~';
        digest_hex(out + 1, digest, 8);
    }
    return rc;
}
