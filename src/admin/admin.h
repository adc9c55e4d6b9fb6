/* The admin listener: health, readiness, metrics and look-ups, on a port of its own (loopback unless
 * configured otherwise). It has no authentication: who can reach it can read records. On a loopback address it answers
 * only requests for localhost or a loopback address (else 421), so that no web page can read it through a name of its
 * own.
 *
 *   GET /healthz                        200 while the process runs
 *   GET /readyz                         200 when requests would be taken, else 503 with the reason
 *   GET /metrics                        Prometheus text
 *   GET /v1/operations?scope=&key=      one record as JSON; or ?id=HEX */
#ifndef ADMIN_ADMIN_H
#define ADMIN_ADMIN_H

#include "gateway/gateway.h"

struct admin;

/* Opens the listener on the gateway's first loop. */
int admin_open(struct admin **out, struct gateway *g, const char *address, hapax_error *err);
uint16_t admin_port_number(const struct admin *a);
/* After gateway_run() has returned, before gateway_close(). NULL is fine. */
void admin_close(struct admin *a);

#endif
