/* The HTTP client over TLS: whom it trusts, and that a connection closed while idle is noticed there, too. The
 * authorities and certificates are made here. */
#include "raw_upstream.h"

#include <openssl/ssl.h>
#include <openssl/x509v3.h>

struct authority {
    EVP_PKEY *key;
    X509 *certificate;
    char file[64]; /* PEM of the certificate */
};

static struct authority trusted;
static struct authority stranger;

static void add_extension(X509 *x, X509 *issuer, int id, const char *value)
{
    X509V3_CTX ctx;
    X509V3_set_ctx(&ctx, issuer, x, NULL, NULL, 0);
    X509_EXTENSION *e = X509V3_EXT_conf_nid(NULL, &ctx, id, value);
    assert_non_null(e);
    assert_int_equal(X509_add_ext(x, e, -1), 1);
    X509_EXTENSION_free(e);
}

/* A certificate of `key`, signed by `by` or itself. */
static X509 *certify(EVP_PKEY *key, const char *name, const char *alternative, const struct authority *by)
{
    X509 *x = X509_new();
    X509_NAME *subject = X509_get_subject_name(x);
    X509_set_version(x, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(x), by != NULL ? 2 : 1);
    X509_gmtime_adj(X509_getm_notBefore(x), -3600);
    X509_gmtime_adj(X509_getm_notAfter(x), 3600);
    X509_set_pubkey(x, key);
    X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, (const unsigned char *)name, -1, -1, 0);
    X509_set_issuer_name(x, by != NULL ? X509_get_subject_name(by->certificate) : subject);
    if (by == NULL) {
        add_extension(x, x, NID_basic_constraints, "critical,CA:TRUE");
        add_extension(x, x, NID_key_usage, "critical,keyCertSign");
        add_extension(x, x, NID_subject_key_identifier, "hash");
    } else {
        add_extension(x, by->certificate, NID_subject_alt_name, alternative);
    }
    assert_true(X509_sign(x, by != NULL ? by->key : key, EVP_sha256()) > 0);
    return x;
}

static void make_authority(struct authority *a, const char *name)
{
    a->key = EVP_EC_gen("P-256");
    assert_non_null(a->key);
    a->certificate = certify(a->key, name, NULL, NULL);
    snprintf(a->file, sizeof a->file, "/tmp/hapax-test-ca-XXXXXX");
    int fd = mkstemp(a->file);
    assert_true(fd >= 0);
    FILE *f = fdopen(fd, "w");
    assert_non_null(f);
    assert_int_equal(PEM_write_X509(f, a->certificate), 1);
    fclose(f);
}

static void drop_authority(struct authority *a)
{
    EVP_PKEY_free(a->key);
    X509_free(a->certificate);
    unlink(a->file);
}

static SSL_CTX *server_context(const struct authority *by, const char *alternative)
{
    SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *x = certify(key, "server", alternative, by);
    assert_int_equal(SSL_CTX_use_certificate(ctx, x), 1);
    assert_int_equal(SSL_CTX_use_PrivateKey(ctx, key), 1);
    X509_free(x);
    EVP_PKEY_free(key);
    return ctx;
}

struct tls_upstream {
    SSL_CTX *ctx;
    const char *text; /* of the answers, NULL: OK_TEXT */
    int answers;      /* per connection, then it says goodbye */
    bool rude;        /* ends the connection in the middle, without TLS's own goodbye */
};

static bool read_tls_head(SSL *ssl)
{
    char tail[4] = "";
    char c;
    while (SSL_read(ssl, &c, 1) == 1) {
        memmove(tail, tail + 1, 3);
        tail[3] = c;
        if (memcmp(tail, "\r\n\r\n", 4) == 0) {
            return true;
        }
    }
    return false;
}

static void answers_tls(struct upstream *u, int fd, int number)
{
    (void)number;
    const struct tls_upstream *t = u->arg;
    const char *text = t->text != NULL ? t->text : OK_TEXT;
    SSL *ssl = SSL_new(t->ctx);
    SSL_set_fd(ssl, fd);
    if (SSL_accept(ssl) == 1) {
        for (int i = 0; i < t->answers && read_tls_head(ssl); i++) {
            pthread_mutex_lock(&u->lock);
            u->requests++;
            pthread_mutex_unlock(&u->lock);
            SSL_write(ssl, text, (int)strlen(text));
        }
        if (!t->rude) {
            SSL_shutdown(ssl);
        }
    }
    SSL_free(ssl);
    shutdown(fd, SHUT_RDWR);
}

static void check_tls(const struct tls_upstream *t, const char *host, const char *ca_file, bool trusts)
{
    struct upstream *u = upstream_start(answers_tls, t);
    struct bench b;
    struct answer a;
    char url[64];
    snprintf(url, sizeof url, "https://%s:%u", host, u->port);
    bench_open_url(&b, url, ca_file, 4);
    ask(&a, &b, &GET_OF("/"));
    if (trusts) {
        assert_complete(&a, 200, "ok");
    } else {
        assert_failed(&a, CALL_NOT_SENT);
        if (strstr(a.detail, "SSL") == NULL && strstr(a.detail, "certificate") == NULL) {
            fail_msg("unclear: %s", a.detail);
        }
    }
    assert_int_equal(upstream_get(u, &u->requests), trusts);
    answer_free(&a);
    bench_close(&b);
    upstream_stop(u);
}

static void certificate_of_the_given_authority_is_trusted(void **state)
{
    (void)state;
    struct tls_upstream t = {.ctx = server_context(&trusted, "IP:127.0.0.1"), .answers = 1};
    check_tls(&t, "127.0.0.1", trusted.file, true);
    SSL_CTX_free(t.ctx);
}

static void certificate_of_an_unknown_authority_is_refused_before_sending(void **state)
{
    (void)state;
    struct tls_upstream t = {.ctx = server_context(&stranger, "IP:127.0.0.1"), .answers = 1};
    check_tls(&t, "127.0.0.1", trusted.file, false);
    check_tls(&t, "127.0.0.1", NULL, false);
    SSL_CTX_free(t.ctx);
}

static void authorities_that_can_not_be_read_are_told_at_once(void **state)
{
    (void)state;
    hapax_error err = {0};
    struct http_origin *origin;
    struct http_origin_options o = {
        .url = "https://127.0.0.1:1", .ca_file = "/nonexistent/ca.pem", .connections_max = 1};
    assert_int_equal(http_origin_create(&origin, &o, &err), HAPAX_E_ARGUMENT);
    assert_non_null(strstr(err.message, "/nonexistent/ca.pem"));
    assert_null(origin);
}

static void certificate_of_another_name_is_refused_before_sending(void **state)
{
    (void)state;
    struct tls_upstream t = {.ctx = server_context(&trusted, "DNS:other.example"), .answers = 1};
    check_tls(&t, "127.0.0.1", trusted.file, false);
    check_tls(&t, "localhost", trusted.file, false);
    SSL_CTX_free(t.ctx);
}

static void old_protocol_is_refused_before_sending(void **state)
{
    (void)state;
    struct tls_upstream t = {.ctx = server_context(&trusted, "IP:127.0.0.1"), .answers = 1};
    SSL_CTX_set_security_level(t.ctx, 0);
    SSL_CTX_set_max_proto_version(t.ctx, TLS1_1_VERSION);
    check_tls(&t, "127.0.0.1", trusted.file, false);
    SSL_CTX_free(t.ctx);
}

static void upstream_without_tls_is_not_sent_to(void **state)
{
    (void)state;
    struct upstream *u = upstream_start(always, OK_TEXT);
    struct bench b;
    struct answer a;
    char url[64];
    snprintf(url, sizeof url, "https://127.0.0.1:%u", u->port);
    bench_open_url(&b, url, trusted.file, 4);
    struct http_call_options o = GET_OF("/");
    o.timeout_ms = 2000; /* the upstream waits for a request that never comes */
    ask(&a, &b, &o);
    assert_failed(&a, CALL_NOT_SENT);
    assert_int_equal(upstream_get(u, &u->requests), 0);
    answer_free(&a);
    bench_close(&b);
    upstream_stop(u);
}

static void tls_connection_closed_while_idle_is_replaced_without_an_error(void **state)
{
    (void)state;
    struct tls_upstream t = {.ctx = server_context(&trusted, "IP:127.0.0.1"), .answers = 1};
    struct upstream *u = upstream_start(answers_tls, &t);
    struct bench b;
    char url[64];
    snprintf(url, sizeof url, "https://127.0.0.1:%u", u->port);
    bench_open_url(&b, url, trusted.file, 4);
    for (int i = 0; i < 30; i++) {
        struct answer a;
        ask(&a, &b, &POST_OF("x"));
        assert_complete(&a, 200, "ok");
        answer_free(&a);
        upstream_wait(u, &u->closed, i + 1);
    }
    bench_close(&b);
    upstream_stop(u);
    SSL_CTX_free(t.ctx);
}

static void tls_connection_is_kept(void **state)
{
    (void)state;
    struct tls_upstream t = {.ctx = server_context(&trusted, "IP:127.0.0.1"), .answers = 100};
    struct upstream *u = upstream_start(answers_tls, &t);
    struct bench b;
    char url[64];
    snprintf(url, sizeof url, "https://127.0.0.1:%u", u->port);
    bench_open_url(&b, url, trusted.file, 4);
    for (int i = 0; i < 30; i++) {
        struct answer a;
        ask(&a, &b, &GET_OF("/"));
        assert_complete(&a, 200, "ok");
        answer_free(&a);
    }
    assert_int_equal(upstream_get(u, &u->accepted), 1);
    bench_close(&b);
    upstream_stop(u);
    SSL_CTX_free(t.ctx);
}

/* A body until the end of the connection: without TLS's goodbye, anybody could have ended it. */
static void tls_body_until_the_end_is_whole_only_with_a_goodbye(void **state)
{
    (void)state;
    for (int rude = 0; rude < 2; rude++) {
        struct tls_upstream t = {.ctx = server_context(&trusted, "IP:127.0.0.1"),
                                 .text = "HTTP/1.1 200 OK\r\n\r\nhalf",
                                 .answers = 1,
                                 .rude = rude};
        struct upstream *u = upstream_start(answers_tls, &t);
        struct bench b;
        struct answer a;
        char url[64];
        snprintf(url, sizeof url, "https://127.0.0.1:%u", u->port);
        bench_open_url(&b, url, trusted.file, 4);
        ask(&a, &b, &GET_OF("/"));
        if (rude) {
            assert_failed(&a, CALL_BROKEN);
        } else {
            assert_complete(&a, 200, "half");
        }
        answer_free(&a);
        bench_close(&b);
        upstream_stop(u);
        SSL_CTX_free(t.ctx);
    }
}

static int make_authorities(void **state)
{
    (void)state;
    make_authority(&trusted, "Trusted");
    make_authority(&stranger, "Stranger");
    return 0;
}

static int drop_authorities(void **state)
{
    (void)state;
    drop_authority(&trusted);
    drop_authority(&stranger);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(certificate_of_the_given_authority_is_trusted),
        cmocka_unit_test(certificate_of_an_unknown_authority_is_refused_before_sending),
        cmocka_unit_test(authorities_that_can_not_be_read_are_told_at_once),
        cmocka_unit_test(certificate_of_another_name_is_refused_before_sending),
        cmocka_unit_test(old_protocol_is_refused_before_sending),
        cmocka_unit_test(upstream_without_tls_is_not_sent_to),
        cmocka_unit_test(tls_connection_closed_while_idle_is_replaced_without_an_error),
        cmocka_unit_test(tls_connection_is_kept),
        cmocka_unit_test(tls_body_until_the_end_is_whole_only_with_a_goodbye),
    };
    if (net_global_init(NULL) != 0) {
        return 1;
    }
    int failed = cmocka_run_group_tests(tests, make_authorities, drop_authorities);
    return failed;
}
