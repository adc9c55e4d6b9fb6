/* One attempt after the other over the network: a loop of its own that runs in the caller's thread, a connection for each
 * attempt. SIGPIPE is blocked in the thread while a sender is open. */
#ifndef CLIENT_SENDER_H
#define CLIENT_SENDER_H

#include "client/client.h"

struct client_sender;

/* `origin` is a URL without path. 0; HAPAX_E_ARGUMENT: that is none, or the ca_file (NULL: the system's) can't be read;
 * HAPAX_E_MEMORY, HAPAX_E_SYSTEM. */
int client_sender_open(struct client_sender **out, const char *origin, const char *ca_file, hapax_error *err);
void client_sender_close(struct client_sender *s); /* NULL is fine */

/* As client_world.send, with the sender as ctx. */
int client_sender_send(void *ctx, const struct client_message *m, int64_t timeout_ms,
                       struct client_reply *out, hapax_error *err);

#endif
