/* The world around a gateway that runs in this process: its clients, its upstream (fuzz/gateway_upstream.h) and the
 * gateway's life on a thread of its own.
 *
 * All of the world is one thread, which never fails to allocate, never blocks on a socket and waits with
 * world_until() only. The gateway's thread does what `hapax serve` does: load the configuration, open, run, close. */
#ifndef TESTS_FAULT_WORLD_H
#define TESTS_FAULT_WORLD_H

#include "hapax/error.h"

#include <stdbool.h>
#include <stddef.h>

enum { WORLD_CLIENTS = 2, ANSWER_BYTES_MAX = 16384, REQUEST_TEXT_MAX = 1024 };

/* A request and what came back, on a connection of its own. */
struct client {
    int fd;             /* -1: over */
    struct ssl_st *tls; /* NULL: plain */
    size_t out_len;     /* of a request that waits for the handshake */
    char out[REQUEST_TEXT_MAX];
    size_t in_len;
    char in[ANSWER_BYTES_MAX];
};

struct heard {
    bool whole; /* else the connection ended before the answer did */
    int status;
    char marker[24]; /* Idempotency-Status; "": none */
    char type[32];   /* of a problem; "": none */
    char body[4096]; /* its beginning */
};

/* Once for the process; the calling thread becomes the world. */
void world_open(void);
void world_close(void);
/* Called when nothing has come for a while: something may be waiting for memory. */
void world_when_quiet(void (*fn)(void));

/* --- The gateway's life. The configuration's text is read again at each reload; it may change in between. --- */
extern char world_config[4096];
/* Ready to start at once: what the thread itself takes is there. */
void world_prepare_gateway(void);
/* 0, or the code that opening failed with; the gateway is gone then. */
int world_start_gateway(hapax_error *err);
int world_reload_gateway(hapax_error *err); /* by a signal, as an operator would */
void world_stop_gateway(void);              /* gently, and wait until it is closed */
size_t world_waiters(void);                 /* duplicates that wait for the first */

/* A port that is nobody else's: several listeners (`threads` of 2 and more) can take it. */
unsigned world_reserved_port(void);

/* --- Requests. --- */
extern bool world_speaks_tls; /* clients do */
extern struct client world_clients[WORLD_CLIENTS];
void world_send(struct client *c, const char *request);
bool world_is_over(const struct client *c);
void world_hear(struct heard *out, const struct client *c);
/* Send, wait for the end (the upstream holds nothing back), read. */
void world_ask(struct heard *out, const char *request);

/* Let everything go on until done(ctx) holds. */
void world_until(bool (*done)(void *ctx), void *ctx);

/* --- The upstream. --- */
enum act_of_upstream { ANSWERS, HOLDS_ANSWER_BACK, ANSWERS_MUCH, BREAKS_OFF };
char world_act(enum act_of_upstream act); /* as the request's X-Act */
unsigned world_upstream_port(void);
void world_forget_effects(void);
/* Protected requests for the path that reached the upstream, and the number of the last. */
size_t world_effects(const char *path, unsigned long long *last);
bool world_holds(void); /* an answer is held back */
void world_release(void);

#endif
