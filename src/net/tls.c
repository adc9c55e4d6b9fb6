/* TLS by OpenSSL with memory BIOs. Invariant: after each call OpenSSL's error queue is empty, since it belongs to the
 * thread and not to the connection. */
#include "net/tls.h"

#include "base/error.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdatomic.h>
#include <stdlib.h>

struct tls_context {
    atomic_uint references;
    SSL_CTX *ssl;
};

struct tls_conn {
    SSL *ssl;
    BIO *from_net; /* owned by ssl */
    BIO *to_net;   /* owned by ssl */
    const char *failure;
};

/* --- The context. --- */

static int choose_protocol(SSL *ssl, const unsigned char **out, unsigned char *out_len,
                           const unsigned char *in, unsigned in_len, void *arg)
{
    static const unsigned char http11[] = "\x08http/1.1";
    (void)ssl;
    (void)arg;
    unsigned char *chosen = NULL;
    if (SSL_select_next_proto(&chosen, out_len, http11, sizeof http11 - 1, in, in_len) !=
        OPENSSL_NPN_NEGOTIATED) {
        return SSL_TLSEXT_ERR_ALERT_FATAL; /* RFC 7301 section 3.2 */
    }
    *out = chosen;
    return SSL_TLSEXT_ERR_OK;
}

/* The last error says what could not be done; the one that says why may stand far below it. */
static bool memory_ran_out(void)
{
    bool found = false;
    for (unsigned long code = ERR_get_error(); code != 0; code = ERR_get_error()) {
        found = found || ERR_GET_REASON(code) == ERR_R_MALLOC_FAILURE;
    }
    return found;
}

static int fail(hapax_error *err, const char *what, const char *file)
{
    unsigned long code = ERR_peek_last_error();
    if (memory_ran_out()) {
        return error_code(err, HAPAX_E_MEMORY);
    }
    const char *reason = ERR_reason_error_string(code);
    error_set(err, HAPAX_E_ARGUMENT, (int)ERR_GET_REASON(code), "TLS: can't %s%s%s: %s", what,
              file[0] != '\0' ? " " : "", file, reason != NULL ? reason : "unknown reason");
    return HAPAX_E_ARGUMENT;
}

static int load(SSL_CTX *ssl, const char *certificate_file, const char *key_file, hapax_error *err)
{
    if (SSL_CTX_use_certificate_chain_file(ssl, certificate_file) != 1) {
        return fail(err, "read the certificate", certificate_file);
    }
    if (SSL_CTX_use_PrivateKey_file(ssl, key_file, SSL_FILETYPE_PEM) != 1) {
        return fail(err, "read the key", key_file);
    }
    if (SSL_CTX_check_private_key(ssl) != 1) {
        return fail(err, "use the key with this certificate", "");
    }
    return 0;
}

/* A context of either side, with what both have in common. */
static int context_new(struct tls_context **out, const SSL_METHOD *method, hapax_error *err)
{
    ERR_clear_error();
    struct tls_context *t = malloc(sizeof *t);
    SSL_CTX *ssl = SSL_CTX_new(method);
    *out = NULL;
    if (t == NULL || ssl == NULL) {
        free(t);
        SSL_CTX_free(ssl);
        ERR_clear_error();
        return error_code(err, HAPAX_E_MEMORY);
    }
    SSL_CTX_set_min_proto_version(ssl, TLS1_2_VERSION);
    SSL_CTX_set_options(ssl, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
    SSL_CTX_set_mode(ssl, SSL_MODE_RELEASE_BUFFERS); /* idle connections give their record buffers back */
    atomic_init(&t->references, 1);
    t->ssl = ssl;
    *out = t;
    return 0;
}

int tls_context_create(struct tls_context **out, const char *certificate_file, const char *key_file,
                       hapax_error *err)
{
    static const unsigned char session_context[] = "hapax";
    int rc = context_new(out, TLS_server_method(), err);
    if (rc != 0) {
        return rc;
    }
    SSL_CTX *ssl = (*out)->ssl;
    /* Sessions live in tickets, not in our memory. */
    SSL_CTX_set_session_cache_mode(ssl, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_session_id_context(ssl, session_context, sizeof session_context - 1);
    SSL_CTX_set_alpn_select_cb(ssl, choose_protocol, NULL);
    rc = load(ssl, certificate_file, key_file, err);
    if (rc != 0) {
        tls_context_drop(*out);
        *out = NULL;
    }
    return rc;
}

/* OpenSSL reads an authority's extensions when it is first needed, and never trusts it again when there is no memory
 * for that. So have them read now, where an error can be told. */
static int read_extensions(SSL_CTX *ssl, hapax_error *err)
{
    STACK_OF(X509_OBJECT) *objects = X509_STORE_get0_objects(SSL_CTX_get_cert_store(ssl));
    for (int i = 0; i < sk_X509_OBJECT_num(objects); i++) {
        X509 *x = X509_OBJECT_get0_X509(sk_X509_OBJECT_value(objects, i));
        if (x != NULL && X509_check_purpose(x, -1, 0) != 1 && memory_ran_out()) {
            return error_code(err, HAPAX_E_MEMORY);
        }
    }
    return 0;
}

int tls_client_context_create(struct tls_context **out, const char *ca_file, hapax_error *err)
{
    int rc = context_new(out, TLS_client_method(), err);
    if (rc != 0) {
        return rc;
    }
    SSL_CTX *ssl = (*out)->ssl;
    SSL_CTX_set_verify(ssl, SSL_VERIFY_PEER, NULL);
    if (ca_file != NULL ? SSL_CTX_load_verify_file(ssl, ca_file) != 1
                        : SSL_CTX_set_default_verify_paths(ssl) != 1) {
        rc = fail(err, "read the authorities in", ca_file != NULL ? ca_file : "the system's store");
    } else {
        rc = read_extensions(ssl, err);
    }
    if (rc != 0) {
        tls_context_drop(*out);
        *out = NULL;
    }
    ERR_clear_error();
    return rc;
}

void tls_client_context_trust_anyone(struct tls_context *t)
{
    SSL_CTX_set_verify(t->ssl, SSL_VERIFY_NONE, NULL);
}

struct tls_context *tls_context_hold(struct tls_context *t)
{
    atomic_fetch_add_explicit(&t->references, 1, memory_order_relaxed);
    return t;
}

void tls_context_drop(struct tls_context *t)
{
    if (t != NULL && atomic_fetch_sub_explicit(&t->references, 1, memory_order_acq_rel) == 1) {
        SSL_CTX_free(t->ssl);
        free(t);
    }
}

/* --- One connection. --- */

static int conn_create(struct tls_conn **out, struct tls_context *context)
{
    struct tls_conn *t = calloc(1, sizeof *t);
    *out = t;
    if (t == NULL) {
        return HAPAX_E_MEMORY;
    }
    t->ssl = SSL_new(context->ssl);
    t->from_net = BIO_new(BIO_s_mem());
    t->to_net = BIO_new(BIO_s_mem());
    if (t->ssl == NULL || t->from_net == NULL || t->to_net == NULL) {
        BIO_free(t->from_net);
        BIO_free(t->to_net);
        SSL_free(t->ssl);
        free(t);
        *out = NULL;
        ERR_clear_error();
        return HAPAX_E_MEMORY;
    }
    BIO_set_mem_eof_return(t->from_net, -1); /* empty means "later", not the end */
    BIO_set_mem_eof_return(t->to_net, -1);
    SSL_set_bio(t->ssl, t->from_net, t->to_net);
    return 0;
}

int tls_conn_create(struct tls_conn **out, struct tls_context *context)
{
    int rc = conn_create(out, context);
    if (rc == 0) {
        SSL_set_accept_state((*out)->ssl);
    }
    return rc;
}

/* RFC 6125 section 6, RFC 9110 section 4.3.4; an address never goes into SNI (RFC 6066 section 3). */
static bool expect_host(SSL *ssl, const char *host)
{
    X509_VERIFY_PARAM *p = SSL_get0_param(ssl);
    if (X509_VERIFY_PARAM_set1_ip_asc(p, host) == 1) {
        return true;
    }
    ERR_clear_error();
    X509_VERIFY_PARAM_set_hostflags(p, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    return SSL_set1_host(ssl, host) == 1 && SSL_set_tlsext_host_name(ssl, host) == 1;
}

int tls_conn_create_client(struct tls_conn **out, struct tls_context *context, const char *host)
{
    static const unsigned char http11[] = "\x08http/1.1";
    int rc = conn_create(out, context);
    if (rc != 0) {
        return rc;
    }
    SSL *ssl = (*out)->ssl;
    /* 0 is success here: OpenSSL's one exception. */
    if (!expect_host(ssl, host) || SSL_set_alpn_protos(ssl, http11, sizeof http11 - 1) != 0) {
        tls_conn_free(*out);
        *out = NULL;
        ERR_clear_error();
        return HAPAX_E_MEMORY;
    }
    SSL_set_connect_state(ssl);
    return 0;
}

void tls_conn_free(struct tls_conn *t)
{
    if (t != NULL) {
        SSL_free(t->ssl);
        free(t);
    }
}

int tls_conn_feed(struct tls_conn *t, struct slice bytes)
{
    size_t written = 0;
    if (bytes.len > 0 &&
        (BIO_write_ex(t->from_net, bytes.ptr, bytes.len, &written) != 1 || written != bytes.len)) {
        ERR_clear_error();
        return HAPAX_E_MEMORY;
    }
    return 0;
}

size_t tls_conn_backlog(const struct tls_conn *t)
{
    return BIO_ctrl_pending(t->from_net);
}

static enum tls_step step_of(struct tls_conn *t, int rc)
{
    int reason = SSL_get_error(t->ssl, rc);
    unsigned long code = ERR_peek_last_error();
    ERR_clear_error();
    switch (reason) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE:
        return TLS_MORE;
    case SSL_ERROR_ZERO_RETURN:
        return TLS_CLOSED;
    default:
        break;
    }
    long verdict = SSL_get_verify_result(t->ssl);
    t->failure =
        verdict != X509_V_OK ? X509_verify_cert_error_string(verdict) : ERR_reason_error_string(code);
    return TLS_FAILED;
}

enum tls_step tls_conn_handshake(struct tls_conn *t)
{
    int rc = SSL_do_handshake(t->ssl);
    return rc == 1 ? TLS_DONE : step_of(t, rc);
}

const char *tls_conn_failure(const struct tls_conn *t)
{
    return t->failure != NULL ? t->failure : "unknown reason";
}

enum tls_step tls_conn_read(struct tls_conn *t, char *ptr, size_t len, size_t *used)
{
    *used = 0;
    int rc = SSL_read_ex(t->ssl, ptr, len, used);
    return rc == 1 ? TLS_DONE : step_of(t, rc);
}

int tls_conn_write(struct tls_conn *t, struct slice bytes)
{
    size_t written = 0;
    if (bytes.len == 0 || SSL_write_ex(t->ssl, bytes.ptr, bytes.len, &written) == 1) {
        return 0; /* a memory BIO takes everything, and partial writes are off */
    }
    ERR_clear_error();
    return HAPAX_E_SYSTEM;
}

void tls_conn_shutdown(struct tls_conn *t)
{
    if (SSL_is_init_finished(t->ssl)) {
        SSL_shutdown(t->ssl);
        ERR_clear_error();
    }
}

struct slice tls_conn_output(const struct tls_conn *t)
{
    char *ptr = NULL;
    long len = BIO_get_mem_data(t->to_net, &ptr);
    return len > 0 ? slice_of(ptr, (size_t)len) : SLICE_LITERAL("");
}

void tls_conn_output_taken(struct tls_conn *t)
{
    (void)BIO_reset(t->to_net);
}
