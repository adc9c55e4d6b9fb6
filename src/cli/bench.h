/* The loop of `hapax bench`: threads that claim and complete operations over the public, blocking API.
 *
 * Every thread has keys of its own, and a repeat takes a key that the same thread has completed, so a verdict
 * other than FRESH for a new key and REPLAY for a repeat is an error, never a figure. Bounded by time and by
 * `records_max`. */
#ifndef CLI_BENCH_H
#define CLI_BENCH_H

#include "cli/histogram.h"
#include "hapax/hapax.h"

#include <stdbool.h>

#define BENCH_THREADS_MAX 1024
#define BENCH_SCOPE       "hapax bench"

struct bench_plan {
    const char *uri;
    uint64_t seconds;
    unsigned threads;     /* 1 to BENCH_THREADS_MAX */
    uint64_t keys_before; /* live records made first, not measured */
    uint64_t records_max; /* of all: at this many it ends early */
    unsigned repeats;     /* percent of operations */
    size_t body_bytes;    /* of the content and of the answer */
    int64_t ttl_ms;
    bool progress; /* a line on standard error */
};

struct bench_found {
    struct histogram claim; /* of pairs */
    struct histogram complete;
    struct histogram pair;
    struct histogram replay; /* of repeats */
    int64_t elapsed_us;
    uint64_t batches; /* of the store, while measured */
    uint64_t batch_ops;
    unsigned lanes;
    uint64_t written_bytes; /* by this process to disks, while measured */
    bool interrupted;       /* by a signal */
    bool full;              /* records_max was reached */
};

/* From here on the first SIGINT or SIGTERM ends a run, as its time does; the next one has its usual effect. */
void bench_watch_signals(void);

/* Run it. 0, or the code of the first call that failed; *err says which. *out is then incomplete. */
int bench_run(struct bench_found *out, const struct bench_plan *plan, hapax_error *err);

#endif
