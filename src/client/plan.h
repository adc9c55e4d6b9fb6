/* A request as hapax_call() was given it, checked once and made ready: where it goes, what it is compared by, what its
 * records are called. Nothing of it is sent, and no record made, before all of it is known to be good. Pure, but for
 * memory. */
#ifndef CLIENT_PLAN_H
#define CLIENT_PLAN_H

#include "base/digest.h"
#include "client/client.h"

#define PLAN_KEY_SCOPE "hapax call key"
#define PLAN_OP_SCOPE  "hapax call"

struct client_plan {
    struct arena arena;       /* holds all that follows but what the request borrows */
    hapax_call_request asked; /* defaults filled in */
    const char *origin;       /* "https://host:port" */
    struct client_message message;
    struct header *headers; /* those of the message, with room for one more */
    struct slice path;
    struct slice query;            /* SLICE_NONE without one */
    uint8_t content[DIGEST_BYTES]; /* what is compared */
    const char *scope;             /* of the operation's record */
    const char *name;              /* its key: the op's, or the call's key */
    const char *key;               /* NULL: to be made, or found by the op */
    size_t field_at;               /* where key_field goes into the body */
    bool field_alone;              /* ... as the only member of its object */
};

/* 0; HAPAX_E_ARGUMENT, HAPAX_E_SYNTAX, HAPAX_E_MISSING or HAPAX_E_LIMIT: `err` says what of the request; HAPAX_E_MEMORY.
 * The request is borrowed until client_plan_free(), which follows in every case. No message holds a header's value, a body, a
 * key or what of the URL may be secret. */
int client_plan_make(struct client_plan *out, const hapax_call_request *request, hapax_error *err);
void client_plan_free(struct client_plan *p);

/* The last piece: the message carries the key from now on. Once; copied. 0, HAPAX_E_SYNTAX, HAPAX_E_LIMIT, HAPAX_E_MEMORY. */
int client_plan_take_key(struct client_plan *p, struct slice key, hapax_error *err);

/* How an op is called as the key of a record: itself where it is printable ASCII, else with %XX for the other bytes and
 * for '%'; where that is too long, its beginning and a digest. In the arena. */
int client_plan_name_op(const char **out, struct slice op, struct arena *arena, hapax_error *err);

#endif
