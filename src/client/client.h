/* The calling side's story, apart from the clock, chance and the network, which come from outside: so tests decide them.
 * Blocking, on the caller's thread. */
#ifndef CLIENT_CLIENT_H
#define CLIENT_CLIENT_H

#include "base/arena.h"
#include "base/buf.h"
#include "core/outcome.h"
#include "core/request.h"
#include "hapax/client.h"

/* One request as it goes out. */
struct client_message {
    struct slice method;
    struct slice target;
    const struct header *headers;
    size_t header_count;
    struct slice body;
};

/* What became of it. Its memory is its own. */
struct client_reply {
    struct arena arena; /* holds the headers */
    struct buf body;
    bool complete;             /* a whole answer, but for a body that was cut */
    bool body_cut;             /* longer than HAPAX_CALL_ANSWER_BYTES_MAX: the rest was not read */
    enum call_failure failure; /* where it is not complete */
    int status;
    const struct header *headers;
    size_t header_count;
    char detail[160]; /* where it is not complete: why */
};

void client_reply_init(struct client_reply *r);
void client_reply_clear(struct client_reply *r); /* for the next attempt */
void client_reply_free(struct client_reply *r);

struct client_world {
    void *ctx;
    int64_t (*mono_ms)(void *ctx);
    int64_t (*wall_ms)(void *ctx);
    void (*sleep_ms)(void *ctx, int64_t ms);
    int (*random)(void *ctx, void *out, size_t len); /* 0 or HAPAX_E_SYSTEM */
    /* 0 when *out says how it ended; an error when nothing was sent. */
    int (*send)(void *ctx, const struct client_message *m, int64_t timeout_ms, struct client_reply *out,
                hapax_error *err);
};

struct client_plan;

/* hapax_call() in a given world. Takes over nothing; the plan's key is filled in. */
int client_call(hapax *h, struct client_plan *plan, const struct client_world *world, hapax_call_result **out,
                hapax_error *err);

#endif
