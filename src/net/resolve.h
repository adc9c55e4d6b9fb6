/* Names to addresses, on a thread of its own each: getaddrinfo() blocks for as long as the resolver likes, and giving
 * up must not wait for it. */
#ifndef NET_RESOLVE_H
#define NET_RESOLVE_H

#include "hapax/error.h"
#include "net/loop.h"

#include <sys/socket.h>

#define RESOLVE_ADDRESSES_MAX 8 /* further ones are dropped */

struct resolved {
    struct sockaddr_storage address[RESOLVE_ADDRESSES_MAX]; /* with the port, in the resolver's order */
    unsigned count;
};

struct resolve;

/* Numbers need no look-up: true when `host` is an IPv4 or IPv6 address. */
bool resolve_number(struct resolved *out, const char *host, uint16_t port);

/* Look `host` up; fn(ctx, ...) runs once on the loop's thread, unless cancelled. `found` is NULL when there was no
 * address, and `detail` says why. 0, HAPAX_E_MEMORY or HAPAX_E_SYSTEM. */
int resolve_start(struct resolve **out, struct loop *l, const char *host, uint16_t port,
                  void (*fn)(void *ctx, const struct resolved *found, const char *detail), void *ctx);
/* fn will not run. To be called before the loop is destroyed, on its thread. */
void resolve_cancel(struct resolve *r);

#endif
