/* TLS from a client's side, by OpenSSL on a blocking socket, with a certificate made for the run. */
#include "unit/net/http_fixture.h"

#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <sys/stat.h>

#define HOST "Host: a\r\n"

static char folder[] = "/tmp/hapax-tls-XXXXXX";
static char certificate_file[64], key_file[64], other_key_file[64];

/* --- Certificates. --- */

static void write_key(const char *file, EVP_PKEY *key)
{
    FILE *out = fopen(file, "w");
    assert_non_null(out);
    assert_int_equal(PEM_write_PrivateKey(out, key, NULL, NULL, 0, NULL, NULL), 1);
    fclose(out);
}

static void write_certificate(const char *file, EVP_PKEY *key)
{
    X509 *x = X509_new();
    ASN1_INTEGER_set(X509_get_serialNumber(x), 1);
    X509_gmtime_adj(X509_getm_notBefore(x), 0);
    X509_gmtime_adj(X509_getm_notAfter(x), 3600);
    X509_set_pubkey(x, key);
    X509_NAME *name = X509_get_subject_name(x);
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const unsigned char *)"localhost", -1, -1, 0);
    X509_set_issuer_name(x, name);
    assert_true(X509_sign(x, key, EVP_sha256()) > 0);
    FILE *out = fopen(file, "w");
    assert_non_null(out);
    assert_int_equal(PEM_write_X509(out, x), 1);
    fclose(out);
    X509_free(x);
}

static int set_up(void **state)
{
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(certificate_file, sizeof certificate_file, "%s/cert.pem", folder);
    snprintf(key_file, sizeof key_file, "%s/key.pem", folder);
    snprintf(other_key_file, sizeof other_key_file, "%s/other.pem", folder);
    EVP_PKEY *key = EVP_EC_gen("P-256");
    EVP_PKEY *other = EVP_EC_gen("P-256");
    write_key(key_file, key);
    write_key(other_key_file, other);
    write_certificate(certificate_file, key);
    EVP_PKEY_free(key);
    EVP_PKEY_free(other);
    return net_global_init(NULL);
}

static int tear_down(void **state)
{
    (void)state;
    unlink(certificate_file);
    unlink(key_file);
    unlink(other_key_file);
    rmdir(folder);
    return 0;
}

/* --- A TLS client. --- */

struct tls_client {
    SSL_CTX *context;
    SSL *ssl;
    int fd;
};

static void tls_open(struct tls_client *t, struct fixture *f, int version_max, const char *protocols)
{
    t->context = SSL_CTX_new(TLS_client_method());
    SSL_CTX_set_max_proto_version(t->context, version_max);
    if (version_max != 0 && version_max < TLS1_2_VERSION) {
        SSL_CTX_set_cipher_list(t->context, "DEFAULT:@SECLEVEL=0");
        SSL_CTX_set_min_proto_version(t->context, version_max);
    }
    if (protocols != NULL) {
        SSL_CTX_set_alpn_protos(t->context, (const unsigned char *)protocols, (unsigned)strlen(protocols));
    }
    t->fd = connect_port(f->port);
    t->ssl = SSL_new(t->context);
    SSL_set_fd(t->ssl, t->fd);
}

static void tls_close(struct tls_client *t)
{
    SSL_free(t->ssl);
    SSL_CTX_free(t->context);
    close(t->fd);
}

static void tls_send(struct tls_client *t, const char *text)
{
    assert_int_equal(SSL_write(t->ssl, text, (int)strlen(text)), strlen(text));
}

/* Reads until what came ends in `end`. */
static void tls_expect(struct tls_client *t, const char *end)
{
    char bytes[4096];
    size_t len = 0;
    do {
        int n = SSL_read(t->ssl, bytes + len, (int)(sizeof bytes - len));
        if (n <= 0) {
            fail_msg("closed after: %.*s", (int)len, bytes);
        }
        len += (size_t)n;
    } while (len < strlen(end) || memcmp(bytes + len - strlen(end), end, strlen(end)) != 0);
}

/* The end has to be announced: a connection that only breaks off may have been cut by somebody else. */
static void tls_expect_end(struct tls_client *t)
{
    char byte;
    int n = SSL_read(t->ssl, &byte, 1);
    assert_int_equal(n, 0);
    assert_int_equal(SSL_get_error(t->ssl, n), SSL_ERROR_ZERO_RETURN);
}

static void with_tls(struct fixture *f)
{
    hapax_error err = {0};
    fixture_init(f);
    if (tls_context_create(&f->options.tls, certificate_file, key_file, &err) != 0) {
        fail_msg("%s", err.message);
    }
    fixture_start(f);
}

static void without_tls(struct fixture *f)
{
    struct tls_context *t = f->options.tls;
    fixture_stop(f);
    tls_context_drop(t);
}

/* --- The tests. --- */

static void requests_are_answered_in_both_versions(void **state)
{
    (void)state;
    static const int versions[] = {TLS1_2_VERSION, TLS1_3_VERSION};
    struct fixture f;
    with_tls(&f);
    for (size_t i = 0; i < 2; i++) {
        struct tls_client t;
        tls_open(&t, &f, versions[i], "\x02h2\x08http/1.1");
        assert_int_equal(SSL_connect(t.ssl), 1);
        assert_int_equal(SSL_version(t.ssl), versions[i]);
        const unsigned char *chosen = NULL;
        unsigned len = 0;
        SSL_get0_alpn_selected(t.ssl, &chosen, &len);
        assert_int_equal(len, 8);
        assert_memory_equal(chosen, "http/1.1", 8);
        tls_send(&t, "POST /a HTTP/1.1\r\n" HOST "Content-Length: 5\r\n\r\nhello");
        tls_expect(&t, "POST /a? 2:hello");
        tls_send(&t,
                 "GET /stream HTTP/1.1\r\n" HOST "\r\nGET /b HTTP/1.1\r\n" HOST "Connection: close\r\n\r\n");
        tls_expect(&t, "GET /b? 2:");
        tls_expect_end(&t);
        tls_close(&t);
    }
    without_tls(&f);
}

static void old_versions_and_other_protocols_are_refused(void **state)
{
    (void)state;
    struct fixture f;
    with_tls(&f);
    struct tls_client t;
    tls_open(&t, &f, TLS1_1_VERSION, NULL);
    assert_int_not_equal(SSL_connect(t.ssl), 1);
    tls_close(&t);
    tls_open(&t, &f, 0, "\x02h2");
    assert_int_not_equal(SSL_connect(t.ssl), 1);
    tls_close(&t);
    struct client *plain = client_open(&f);
    send_text(plain, "GET / HTTP/1.1\r\n" HOST "\r\n");
    while (receive(plain)) {
    }
    client_close(plain);
    assert_int_equal(count(&f, REQUEST), 0);
    without_tls(&f);
}

static void large_bodies_go_both_ways(void **state)
{
    (void)state;
    enum { BODY = 3 * 1024 * 1024 };
    struct fixture f;
    with_tls(&f);
    struct tls_client t;
    tls_open(&t, &f, 0, NULL);
    assert_int_equal(SSL_connect(t.ssl), 1);
    char *body = malloc(BODY);
    assert_non_null(body);
    memset(body, 'x', BODY);
    char head[128];
    snprintf(head, sizeof head,
             "POST /dribble HTTP/1.1\r\n" HOST "Content-Length: %d\r\nConnection: close\r\n\r\n", BODY);
    tls_send(&t, head);
    assert_int_equal(SSL_write(t.ssl, body, BODY), BODY);
    size_t got = 0;
    for (int n = 0; (n = SSL_read(t.ssl, body, BODY)) > 0;) {
        got += (size_t)n;
    }
    assert_int_equal(SSL_get_error(t.ssl, 0), SSL_ERROR_ZERO_RETURN);
    assert_true(got > BODY && got < BODY + 300);
    free(body);
    tls_close(&t);
    tls_open(&t, &f, 0, NULL);
    assert_int_equal(SSL_connect(t.ssl), 1);
    tls_send(&t, "GET /flood HTTP/1.1\r\n" HOST "\r\n");
    await(&f, REQUEST, 2);
    tls_expect(&t, "\r\n\r\n"); /* some of it; then the client leaves */
    tls_close(&t);
    await(&f, CLOSED, 2);
    without_tls(&f);
}

static void a_half_closed_client_gets_its_answer(void **state)
{
    (void)state;
    struct fixture f;
    with_tls(&f);
    struct tls_client t;
    tls_open(&t, &f, 0, NULL);
    assert_int_equal(SSL_connect(t.ssl), 1);
    tls_send(&t, "GET /hold HTTP/1.1\r\n" HOST "\r\nGET /x HTTP/1.1\r\n" HOST "\r\n");
    SSL_shutdown(t.ssl);
    shutdown(t.fd, SHUT_WR);
    await(&f, REQUEST, 1);
    settle(&f);
    fixture_call(&f, respond_held, "late");
    tls_expect(&t, "GET /x? 1:");
    tls_expect_end(&t);
    tls_close(&t);
    without_tls(&f);
}

static void an_aborted_answer_has_no_announced_end(void **state)
{
    (void)state;
    struct fixture f;
    with_tls(&f);
    struct tls_client t;
    char bytes[1024];
    int n = 0;
    tls_open(&t, &f, 0, NULL);
    assert_int_equal(SSL_connect(t.ssl), 1);
    tls_send(&t, "GET /abort HTTP/1.0\r\n\r\n");
    do {
        n = SSL_read(t.ssl, bytes, sizeof bytes);
    } while (n > 0);
    assert_int_not_equal(SSL_get_error(t.ssl, n), SSL_ERROR_ZERO_RETURN);
    tls_close(&t);
    without_tls(&f);
}

static void a_handshake_that_stalls_is_cut_off(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    f.options.head_ms = 100;
    assert_int_equal(tls_context_create(&f.options.tls, certificate_file, key_file, NULL), 0);
    fixture_start(&f);
    struct client *c = client_open(&f);
    send_some(c, SLICE_LITERAL("\x16\x03\x01"));
    while (receive(c)) {
    }
    client_close(c);
    without_tls(&f);
}

static void mutated_handshakes_are_survived(void **state)
{
    (void)state;
    struct fixture f;
    with_tls(&f);
    srand(3);
    for (int i = 0; i < 300; i++) {
        struct client *c = client_open(&f);
        char bytes[300];
        for (size_t k = 0; k < sizeof bytes; k++) {
            bytes[k] = (char)rand();
        }
        bytes[0] = 0x16; /* a handshake record of a length that is often there in full */
        bytes[1] = 3;
        bytes[2] = 1;
        bytes[3] = 0;
        bytes[5] = 1;
        send_some(c, slice_of(bytes, 1 + (size_t)rand() % sizeof bytes));
        shutdown(c->fd, SHUT_WR);
        while (receive(c)) {
        }
        client_close(c);
    }
    struct tls_client t;
    tls_open(&t, &f, 0, NULL);
    assert_int_equal(SSL_connect(t.ssl), 1);
    tls_close(&t);
    without_tls(&f);
}

static void set_tls(struct fixture *f, void *context)
{
    http_server_set_tls(f->server, context);
}

static void a_new_certificate_serves_new_connections_and_leaves_old_ones_alone(void **state)
{
    (void)state;
    struct fixture f;
    with_tls(&f);
    struct tls_client old, fresh;
    tls_open(&old, &f, 0, NULL);
    assert_int_equal(SSL_connect(old.ssl), 1);
    struct tls_context *t = NULL;
    assert_int_equal(tls_context_create(&t, certificate_file, key_file, NULL), 0);
    fixture_call(&f, set_tls, t);
    tls_context_drop(t);             /* the server holds it */
    tls_context_drop(f.options.tls); /* nobody but the old connection needs it */
    f.options.tls = NULL;
    tls_open(&fresh, &f, 0, NULL);
    assert_int_equal(SSL_connect(fresh.ssl), 1);
    tls_send(&old, "GET /old HTTP/1.1\r\n" HOST "\r\n");
    tls_expect(&old, "GET /old? 1:");
    tls_send(&fresh, "GET /new HTTP/1.1\r\n" HOST "\r\n");
    tls_expect(&fresh, "GET /new? 1:");
    tls_close(&old);
    tls_close(&fresh);
    without_tls(&f);
}

static void unusable_files_are_named(void **state)
{
    (void)state;
    struct tls_context *t = NULL;
    hapax_error err = {0};
    assert_int_equal(tls_context_create(&t, "/nonexistent.pem", key_file, &err), HAPAX_E_ARGUMENT);
    assert_non_null(strstr(err.message, "/nonexistent.pem"));
    assert_null(t);
    assert_int_equal(tls_context_create(&t, certificate_file, certificate_file, &err), HAPAX_E_ARGUMENT);
    assert_int_equal(tls_context_create(&t, certificate_file, other_key_file, &err), HAPAX_E_ARGUMENT);
    assert_null(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_are_answered_in_both_versions),
        cmocka_unit_test(old_versions_and_other_protocols_are_refused),
        cmocka_unit_test(large_bodies_go_both_ways),
        cmocka_unit_test(a_half_closed_client_gets_its_answer),
        cmocka_unit_test(an_aborted_answer_has_no_announced_end),
        cmocka_unit_test(a_handshake_that_stalls_is_cut_off),
        cmocka_unit_test(mutated_handshakes_are_survived),
        cmocka_unit_test(a_new_certificate_serves_new_connections_and_leaves_old_ones_alone),
        cmocka_unit_test(unusable_files_are_named),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
