/* The gateway: workers (one loop thread each) in front of one engine.
 *
 * A request to a protected route becomes an operation of the engine; everything else streams through.
 * Promises 1 to 8 of docs/PROMISES.md are kept by the order of steps in protect.c. Life cycle, all from
 * the main thread: open → run (blocks) → close; reload and stop may be called by signal handlers of the first worker's
 * loop. */
#ifndef GATEWAY_GATEWAY_H
#define GATEWAY_GATEWAY_H

#include "config/config.h"
#include "engine/engine.h"
#include "hapax/error.h"
#include "net/loop.h"

struct gateway;

/* Start engine, workers and listeners. Takes the config (freed by the gateway, also after an error).
 * On error nothing runs and *out is NULL. */
int gateway_open(struct gateway **out, struct config *config, hapax_error *err);
/* Start the other workers' threads and run the first worker on this thread until gateway_stop() has taken its course. */
void gateway_run(struct gateway *g);
/* Stop accepting, let what runs finish within the configured time, then end gateway_run(). Again: end at once. On the first loop. */
void gateway_stop(struct gateway *g);
void gateway_close(struct gateway *g);

/* Take over routes, limits of routes and log settings from a new config; takes ownership of it.
 * What only a restart can change (listen, threads, store, tls at all, limits) is compared and, where it differs,
 * named in *notes. On error the old config stays, the new one is freed. On the first loop. */
int gateway_reload(struct gateway *g, struct config *config, struct buf *notes, hapax_error *err);
void gateway_count_reload_failure(struct gateway *g);

/* The first worker's loop: signals, the admin listener. */
struct loop *gateway_loop(struct gateway *g);
struct engine *gateway_engine(struct gateway *g);
/* An engine port whose call-backs run on the first worker's loop. */
struct engine_port *gateway_port(struct gateway *g);
uint16_t gateway_port_number(const struct gateway *g); /* of the listener */
bool gateway_is_stopping(const struct gateway *g);
/* The page of /metrics. Any thread. */
int gateway_metrics(struct gateway *g, struct buf *out);

#endif
