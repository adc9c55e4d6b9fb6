/* The load of `make crash`: an upstream that counts effects, and clients that retry. One process that
 * outlives every gateway, so that its two logs tell one story in one clock.
 *
 *   load.c      the control, the gateway's port, logs, random numbers, reading HTTP
 *   clients.c   what clients do, and clients.log
 *   upstream.c  what the upstream does, and upstream.log
 *
 * Invariant: an event is logged before it can be seen outside (an arrival before its answer is sent, ...),
 * and an answer before its client does anything else. */
#ifndef CRASH_LOAD_H
#define CRASH_LOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { KEY_TEXT = 24, WIRE_BYTES = 64 << 10, GATEWAYS_MAX = 4 };

uint64_t now_ns(void);
void pause_us(uint32_t us);
/* A number below n > 0; *state is a generator's state. */
uint32_t draw(uint64_t *state, uint32_t n);
/* FNV-1a, 64 bits. */
uint64_t hash(const void *bytes, size_t count);
/* Ends the process: the load itself can't go on. */
_Noreturn void die(const char *what);

/* A gateway's port, one after the other; waits while there is none. 0: the clients are to stop. */
int gateway_port(void);
/* The same of those that were there at the end. */
int last_port(void);

/* A message read from a socket. */
struct wire {
    int fd;
    size_t have; /* bytes in `room`, of this message and what follows */
    size_t head; /* length of its head, with the blank line */
    size_t body;
    char room[WIRE_BYTES + 1];
};

enum wire_end { WIRE_MESSAGE, WIRE_CLOSED, WIRE_LATE, WIRE_BROKEN };

/* Read one message with a Content-Length, or without a body. The one before is gone. */
enum wire_end wire_read(struct wire *w);
/* The value of a header line, cut to `room` - 1 bytes; false when there is none. */
bool wire_header(const struct wire *w, const char *name, char *out, size_t room);
static inline const char *wire_body(const struct wire *w)
{
    return w->room + w->head;
}
bool send_all(int fd, const char *bytes, size_t count);

/* Listens on a port of its own and serves until the process ends. Returns the port. */
int upstream_start(uint64_t seed, FILE *log);

/* Clients ask until gateway_port() gives 0. */
void clients_run(int count, uint64_t seed, FILE *log);
/* Every key that was ever used is asked again until it has a final answer. Returns the number of keys. */
uint32_t clients_ask_all(int count, FILE *log);

#endif
