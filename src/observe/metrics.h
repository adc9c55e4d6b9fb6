/* Counters and histograms of the process, by route, and their Prometheus text form.
 *
 * Counting is lock-free from any thread and never fails. A route's numbers live as long as the process:
 * a reload finds them again by name. Labels are route names and fixed words only, never anything a
 * client sent. */
#ifndef OBSERVE_METRICS_H
#define OBSERVE_METRICS_H

#include "base/buf.h"
#include "engine/engine.h"

#include <stdatomic.h>
#include <stdint.h>

/* What became of a request: one count per request, under exactly one of these. */
#define METRIC_OUTCOMES(X)                                                                                   \
    X(EXECUTED, "executed", "carried out, answer stored")                                                    \
    X(REPLAYED, "replayed", "answered with the stored answer")                                               \
    X(ATTACHED, "attached", "waited for the running first one and got its answer")                           \
    X(IN_PROGRESS, "in_progress", "the first one still ran when the wait was over (409)")                    \
    X(MISMATCH, "mismatch", "key used before for other content (422)")                                       \
    X(KEY_MISSING, "key_missing", "no key: 400, or passed on (missing: pass)")                               \
    X(KEY_INVALID, "key_invalid", "a malformed key (400)")                                                   \
    X(RELEASED, "released", "certainly not executed; the key is free again")                                 \
    X(UNKNOWN, "unknown", "sent, and nobody can tell whether it was executed")                               \
    X(HELD, "held", "refused because an earlier outcome is unknown (409)")                                   \
    X(NOT_KEPT, "not_kept", "done before, but the answer was not kept (409)")                                \
    X(STALE, "stale", "carried out, but the claim had been lost meanwhile")                                  \
    X(UNPROTECTED, "unprotected", "passed on without protection, not for lack of a key")                     \
    X(REJECTED, "rejected", "refused before any claim: malformed, too large, too late")                      \
    X(OVERLOADED, "overloaded", "refused because a limit was reached (429, 503)")                            \
    X(STORE_ERROR, "store_error", "the store could not be used (503)")                                       \
    X(CLIENT_GONE, "client_gone", "the client left before its request was complete")

enum metric_outcome {
#define METRIC_ENUM(name, label, help) METRIC_##name,
    METRIC_OUTCOMES(METRIC_ENUM)
#undef METRIC_ENUM
        METRIC_OUTCOME_COUNT
};

#define METRIC_LATENCY_BUCKETS 14

struct metric_route {
    char name[65];
    struct metric_route *next;
    _Atomic(uint64_t) outcomes[METRIC_OUTCOME_COUNT];
    _Atomic(uint64_t) latency[METRIC_LATENCY_BUCKETS + 1]; /* the last: beyond all bounds */
    _Atomic(uint64_t) latency_us_sum;
    _Atomic(int64_t) running; /* protected operations now between claim and settlement */
};

/* The numbers of a route, made at first use. NULL without memory or for a name over 64 bytes. Any thread. */
struct metric_route *metrics_route(const char *name);

static inline void metrics_count(struct metric_route *r, enum metric_outcome outcome)
{
    atomic_fetch_add_explicit(&r->outcomes[outcome], 1, memory_order_relaxed);
}

/* Time that the gateway itself added to a request: total less the upstream's share. */
void metrics_latency(struct metric_route *r, int64_t added_us);

/* Process-wide facts that the text needs and that are not counted here. */
struct metrics_process {
    const struct engine_stats *engine; /* not NULL */
    bool store_ok;
    uint64_t connections;
    uint64_t body_bytes;
    uint64_t reloads;
    uint64_t reload_failures;
    int64_t started_wall_ms;
};

/* Append the Prometheus text exposition format, version 0.0.4. */
int metrics_text(struct buf *out, const struct metrics_process *process);

#endif
