/* A proxy between PostgreSQL's clients and its server that knows where messages begin and end, and does something to the
 * n-th one: a thread of the test's own, or of hapax_postgres_proxy.
 *
 * Messages are counted in both directions together, over all connections, from wire_arm() on. Connections must be
 * plain ones (sslmode=disable gssencmode=disable). The thread allocates nothing: tests count allocations. */
#ifndef TESTS_TOOLS_POSTGRES_WIRE_H
#define TESTS_TOOLS_POSTGRES_WIRE_H

#include <stdbool.h>

enum wire_fault {
    WIRE_CUT,     /* both sides are closed before the n-th message */
    WIRE_TORN,    /* within it */
    WIRE_SWALLOW, /* from it on the client hears nothing; closed when the server has done what it was told */
    WIRE_LATE, /* what the client says from it on to the end of its round trip is kept back, its connection closed;
                       wire_deliver() hands it to the server */
    WIRE_ERROR,     /* the first statement from it on fails in the server with the SQLSTATE chosen */
    WIRE_AMBIGUOUS, /* the server carries on, but the client is told that this failed */
    WIRE_FAULTS,
};

/* Listen on a port that the kernel chooses, which is returned; -1: errno says why not. */
int wire_start(int server_port);
/* sqlstate: for WIRE_ERROR (57P01: the server ends the session) and WIRE_AMBIGUOUS. */
void wire_choose(enum wire_fault kind, const char *sqlstate);
/* From there on: afterwards every connection is closed, new ones as they come (WIRE_ERROR: all statements fail). */
void wire_arm(long n, bool from_there_on);
bool wire_disarm(void); /* did it happen? */
long wire_seen(void);   /* messages since wire_arm() */

enum wire_late { WIRE_NOTHING_LATE, WIRE_LATE_REFUSED, WIRE_LATE_COMMITTED };
/* Hand over what was kept back, and wait for the server's word about it. */
enum wire_late wire_deliver(void);

#endif
