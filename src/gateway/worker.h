/* A worker: one loop with its listener, HTTP client and engine port, and the routes as this loop sees
 * them. Everything here belongs to the worker's thread, except what is marked atomic. */
#ifndef GATEWAY_WORKER_H
#define GATEWAY_WORKER_H

#include "base/arena.h"
#include "config/config.h"
#include "engine/engine.h"
#include "net/http_client.h"
#include "net/http_server.h"
#include "net/loop.h"
#include "observe/metrics.h"

#include <stdatomic.h>

struct exchange;

/* A config shared by the workers; goes with its last reference. */
struct shared_config {
    _Atomic(uint32_t) references;
    struct config *config;
    struct tls_context *tls; /* NULL: plain */
};

/* Takes the config, also after an error. Reads the certificate's files. */
int shared_config_make(struct shared_config **out, struct config *config, hapax_error *err);
void shared_config_drop(struct shared_config *c);

/* A route with what serving it takes on this loop. */
struct target {
    const struct route *route;
    struct slice name;
    struct slice host;   /* SLICE_NONE: any */
    struct slice path;   /* without a trailing slash; "" matches everything */
    bool key_in_headers; /* every key source is a header: keys are checked before bodies are read */
    struct http_origin *origin;
    struct http_origin *probe; /* NULL without one */
    struct slice probe_target; /* path and query of the probe URL, with {key} */
    struct metric_route *metrics;
};

/* All routes of one config on one loop. Exchanges hold a reference, so that a reload never pulls it from under
 * them. Not atomic: one thread at a time. */
struct routing {
    uint32_t references;
    struct shared_config *config;
    struct target *targets; /* most specific first */
    size_t count;
};

int routing_make(struct routing **out, struct shared_config *config, hapax_error *err);
struct routing *routing_retain(struct routing *r);
void routing_drop(struct routing *r);
/* The target of a request, NULL when there is none. */
const struct target *routing_find(const struct routing *r, const struct request *request);

/* What all workers share. */
struct shared {
    struct engine *engine;        /* NULL once it is closed: exchange_submit() */
    _Atomic(uint64_t) body_bytes; /* request and answer bodies in memory */
    uint64_t body_bytes_max;
    _Atomic(bool) stopping;
    _Atomic(uint32_t) exchanges; /* live, of all workers */
};

struct worker {
    struct shared *shared;
    struct loop *loop;
    struct http_server *server;
    bool speaks_tls; /* decided when the listener is opened */
    struct http_client *client;
    struct engine_port port;
    struct loop_waker *waker; /* for the engine's port */
    struct loop_waker *news;  /* what the first worker has to say: `offered`, and that we stop */
    struct routing *routing;
    struct routing *prepared;          /* the first worker's, while it reloads; else NULL */
    _Atomic(struct routing *) offered; /* to be used from now on; NULL: nothing new */
    struct exchange *live;             /* doubly linked */
    struct exchange *idle;             /* pool */
    uint32_t idle_count;
    struct arena
        scratch; /* for reading one request's content: a JSON document's nodes, decoded bodies. Empty between
                            * call-backs, so that what waits for an upstream holds none of it */
    uint64_t random[2]; /* state of the generator of trace ids; not for secrets */
    int64_t date_s;     /* the second whose text is cached */
    char date[32];
};

/* reuse_port: several workers listen on one port; port: the one that the first of them got, 0 for that one. */
int worker_open(struct worker *w, struct shared *shared, struct shared_config *config, bool reuse_port,
                uint16_t port, hapax_error *err);
/* After its loop has stopped and no exchange is alive. */
void worker_close(struct worker *w);
/* On the worker's loop: from now on these routes, and for new connections this certificate. Takes the reference. */
void worker_use(struct worker *w, struct routing *routing);
/* The same from another thread, soon; can't fail. */
void worker_offer(struct worker *w, struct routing *routing);

/* "Sun, 29 Nov 2026 20:58:55 GMT" (RFC 9110 section 5.6.7); borrowed until the next call. */
struct slice worker_http_date(struct worker *w, int64_t wall_ms);
uint64_t worker_random(struct worker *w);

#endif
