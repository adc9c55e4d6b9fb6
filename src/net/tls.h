/* TLS on either side, between memory and memory: no sockets, no loop. One connection is one thread's at a time; a
 * context may be shared by threads. */
#ifndef NET_TLS_H
#define NET_TLS_H

#include "base/slice.h"
#include "net/http_server.h"

struct tls_conn;

struct tls_context *tls_context_hold(struct tls_context *t); /* one more reference */

/* A client's context: TLS 1.2 or later, the certificate checked against `ca_file` alone, or NULL: the system's
 * authorities. HAPAX_E_ARGUMENT: the file can't be read. */
int tls_client_context_create(struct tls_context **out, const char *ca_file, hapax_error *err);

/* Check no certificate: for tests against a host of one's own. Before its first connection. */
void tls_client_context_trust_anyone(struct tls_context *t);

int tls_conn_create(struct tls_conn **out, struct tls_context *t); /* 0 or HAPAX_E_MEMORY */
/* The client's side of a connection to `host`, a name or an address without brackets, which the certificate must hold. */
int tls_conn_create_client(struct tls_conn **out, struct tls_context *t, const char *host);
void tls_conn_free(struct tls_conn *t); /* NULL allowed */

/* Bytes from the network: copied. 0 or HAPAX_E_MEMORY. */
int tls_conn_feed(struct tls_conn *t, struct slice bytes);
/* Bytes fed and not decrypted yet. */
size_t tls_conn_backlog(const struct tls_conn *t);

enum tls_step { TLS_MORE, TLS_DONE, TLS_CLOSED, TLS_FAILED };

enum tls_step tls_conn_handshake(struct tls_conn *t);
/* After TLS_FAILED: why, in OpenSSL's words; a static text. */
const char *tls_conn_failure(const struct tls_conn *t);
/* Decrypt into ptr. DONE: *used > 0 bytes are there. CLOSED: the other side said that no more comes. */
enum tls_step tls_conn_read(struct tls_conn *t, char *ptr, size_t len, size_t *used);
/* Encrypt all of it. 0 or HAPAX_E_SYSTEM. */
int tls_conn_write(struct tls_conn *t, struct slice bytes);
void tls_conn_shutdown(struct tls_conn *t); /* says that no more comes */

/* Bytes for the network, after any of the calls above; borrowed until tls_conn_output_taken(). */
struct slice tls_conn_output(const struct tls_conn *t);
void tls_conn_output_taken(struct tls_conn *t);

#endif
