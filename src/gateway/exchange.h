/* One client request from its head to the end of its answer, whichever way it goes.
 *
 * An exchange is alive while at least one of these is: the server's side (x), a pending engine op, an
 * upstream call, a retry timer. Each holder clears its own field and calls exchange_unpin(), which
 * recycles the exchange when nothing is left. A client that goes away only ends the first of them. */
#ifndef GATEWAY_EXCHANGE_H
#define GATEWAY_EXCHANGE_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/limits.h"
#include "core/fingerprint.h"
#include "core/identity.h"
#include "engine/engine.h"
#include "gateway/problem.h"
#include "gateway/worker.h"

/* An upstream's answer as it comes in. */
struct intake {
    struct http_call *call; /* while it runs */
    int status;             /* 0: no head yet, or one that could not be taken in */
    enum { INTAKE_OPEN, INTAKE_COMPLETE, INTAKE_BROKEN } end;
    int64_t length;       /* Content-Length, -1 without one */
    struct buf head;      /* lines for the first client */
    struct buf kept_head; /* lines for the store, when they differ */
    bool head_differs;
    bool event_stream;
    struct buf body;
    uint64_t accounted_bytes; /* the body's part of the exchange's; at first what is reserved for it */
    enum outcome outcome;
    bool outcome_told; /* by the upstream's own Hapax-Outcome */
    int64_t ttl_ms;    /* by Hapax-TTL; 0: the route's */
    int64_t started_us;
    int64_t took_us;
};

struct exchange {
    struct exchange *next;     /* in the pool of its worker, or in its list of live ones */
    struct exchange *previous; /* in the list of live ones */
    struct worker *worker;
    struct routing *routing; /* a reference */
    const struct target *target;
    struct http_exchange *x; /* NULL once the server's side has ended */
    bool client_gone;
    bool answered;    /* an answer was begun */
    bool unprotected; /* streams through (passthrough.c) */
    bool marked;      /* ... and its answer says so */

    struct arena arena;
    struct request request;   /* the client's; valid while x is */
    struct buf body;          /* of a protected request */
    uint64_t accounted_bytes; /* of shared->body_bytes */
    struct slice key;
    struct slice scope;
    struct identity id;
    char id_hex[2 * IDENTITY_BYTES + 1];
    struct fingerprint fingerprint;
    int64_t ready_us; /* the request was complete */

    struct engine_op op;
    bool op_pending;
    struct record record;        /* of the last verdict */
    int64_t lease_until_mono_ms; /* of our claim's first lease, whatever the store's clock says */
    bool running;                /* this exchange holds the claim and counts in metrics->running */
    uint32_t probes;

    struct intake intake;
    bool stream_wanted; /* the answer is not kept: once settled it goes to the client as it comes */
    bool streaming;     /* it does now */
    enum settle_kind {
        SETTLE_NONE,
        SETTLE_COMPLETE,
        SETTLE_RELEASE,
        SETTLE_FREE, /* a release whose lease was over */
        SETTLE_LOSE,
    } settle;
    enum problem failure;     /* what to answer when settled without an answer; PROBLEM_COUNT: the intake */
    struct answer *answer;    /* to be stored; a reference */
    struct loop_timer *timer; /* retries of the settlement; NULL before the first claim */
    bool timer_running;
    int64_t settle_started_ms; /* loop's clock */
    uint32_t settle_tries;
};

void exchange_discard(struct exchange *e); /* one of the pool */
struct exchange *exchange_open(struct worker *w, struct http_exchange *x, const struct target *t);
void exchange_unpin(struct exchange *e);
/* Hand e->op, which is filled in, to the engine. A code: its call-back never runs. HAPAX_E_CLOSED, too, when the
 * engine is gone and only the last call-backs of its ops still run (see gateway_close). */
int exchange_submit(struct exchange *e);
/* Break the upstream call off, where there is one. */
void exchange_cancel_call(struct exchange *e);
/* Let go of upstream calls and timers: the worker is closing. Engine ops have been answered before. */
void exchange_cancel_all(struct worker *w);

/* Account for a piece of a request's body in memory; false: the process-wide budget is used up. */
bool exchange_account(struct exchange *e, size_t bytes);
/* The same for an intake's body that is about to be that long; answers have a larger budget.
 * intake_drop_body() gives all of it back and frees the body. */
bool intake_account(struct exchange *e, uint64_t body_bytes);
/* Before the request is sent: room for its answer, as far as that can be known. What was got here is not refused by
 * intake_account() later. */
bool intake_reserve(struct exchange *e);
void intake_drop_body(struct exchange *e);

/* --- protect.c: a protected request up to its claim. --- */
void protect_begin(struct exchange *e);
void protect_body(struct exchange *e, struct slice bytes);
void protect_body_end(struct exchange *e);
/* Ask the engine (again) what becomes of the request. */
void protect_claim(struct exchange *e);

/* --- settle.c: from the upstream's answer to the client's. --- */
/* Get before the claim what waiting for the store takes. 0 or HAPAX_E_MEMORY. */
int settle_prepare(struct exchange *e);
/* Claimed, but certainly not sent: give it back and answer with `why`. */
void settle_unsent(struct exchange *e, enum problem why);
/* The upstream's answer is complete, or broke off (see upstream.c). */
void settle_answered(struct exchange *e);
void settle_failed(struct exchange *e, enum call_failure failure, const char *detail);
/* More of the body came than is kept, or a stream began: settle now, then stream. */
void settle_stream(struct exchange *e);

/* --- upstream.c: requests to the upstream and what comes back, buffered. --- */
/* The header list for the upstream. attempt 0: an unprotected request, sent without key and attempt. */
int upstream_headers(struct exchange *e, uint32_t attempt, const struct header **out, size_t *n);
int upstream_target(struct exchange *e, struct slice *out);
void upstream_start(struct exchange *e, uint32_t attempt);
/* Take status and headers of an answer into the intake. 0 or a code (no memory, head too large). */
int intake_head(struct exchange *e, int status, const struct header *headers, size_t n);
void intake_reset(struct exchange *e);
static inline struct slice intake_kept_head(const struct exchange *e)
{
    return buf_slice(e->intake.head_differs ? &e->intake.kept_head : &e->intake.head);
}

/* --- passthrough.c: unprotected requests, streamed both ways. --- */
/* Body still to be read from the client. */
void passthrough_begin(struct exchange *e, bool marked, enum metric_outcome counted);
/* Body already in e->body. */
void passthrough_buffered(struct exchange *e, enum metric_outcome counted);
void passthrough_body(struct exchange *e, struct slice bytes);
void passthrough_body_end(struct exchange *e);

/* --- probe.c: ask whether an unknown operation happened. --- */
void probe_begin(struct exchange *e);

/* --- reply.c: answers to the client. Each does nothing but end the exchange when the client is gone. --- */
void reply_problem(struct exchange *e, enum problem p, const char *detail, int original_status);
/* The same, counted under `outcome`. */
void reply_refuse(struct exchange *e, enum metric_outcome outcome, enum problem p, const char *detail);
/* One on a bare server exchange, before there is an exchange of ours. */
void reply_problem_bare(struct http_exchange *x, enum problem p, enum marker m, const char *detail);
void reply_stored(struct exchange *e, struct answer *a, enum marker m); /* takes a reference of its own */
void reply_intake(struct exchange *e, enum marker m);
void reply_stream_start(struct exchange *e, enum marker m);
/* Nothing more will be written; the client may be gone. */
void reply_end(struct exchange *e);

#endif
