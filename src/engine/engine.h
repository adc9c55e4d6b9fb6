/* The engine: lanes that turn queued operations into batches for a store, attach duplicates to what
 * runs, replay from memory what they can, and keep leases alive.
 *
 * One lane is one thread, one store handle and one in-flight table; an identity always goes to the lane
 * (digest mod lanes), so a lane's tables need no locks.
 *
 * Contract of submit: when it returns a code, the op was not taken and its call-back never runs;
 * otherwise the call-back runs exactly once, later, never inside submit: on the thread that drains
 * the op's port, or, without a port, on the lane's thread (where it must not block or submit-and-wait).
 * The op and everything it borrows belong to the engine from submit to call-back.
 *
 * Promises kept here: a FRESH verdict is durable before it is given; COMPLETE is durable before its
 * call-back; in between no second FRESH for the identity exists anywhere on the store, unless
 * take_over asked for it. */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

#include "base/clock.h"
#include "core/answer.h"
#include "core/record.h"
#include "engine/queue.h"
#include "engine/timers.h"
#include "hapax/error.h"
#include "store/store.h"

struct engine;
struct inflight;

enum engine_op_kind {
    ENGINE_BEGIN,
    ENGINE_COMPLETE,
    ENGINE_RELEASE,
    ENGINE_LOSE,
    ENGINE_EXTEND,
    ENGINE_LOOKUP,
    ENGINE_RESOLVE,
    ENGINE_FORGET,
};

/* What BEGIN came to. */
enum engine_verdict {
    VERDICT_FRESH,       /* yours: do it, then COMPLETE, RELEASE or LOSE with record.fence */
    VERDICT_REPLAY,      /* done before: `answer` */
    VERDICT_ATTACHED,    /* waited for the running first one: its `answer` */
    VERDICT_IN_PROGRESS, /* still running, the wait is over (or no more may wait) */
    VERDICT_MISMATCH,    /* same key, other content; record says since when */
    VERDICT_UNKNOWN,     /* outcome unknown, and take_over was not asked for */
};

struct engine_port;

struct engine_op {
    struct queue_node node;   /* the engine's */
    struct engine_port *port; /* where the call-back runs; NULL: on the lane */
    void (*done)(struct engine_op *op);
    void *user; /* the caller's */

    /* In. Slices are borrowed until the call-back. */
    enum engine_op_kind kind;
    struct identity id;
    struct slice scope;             /* BEGIN */
    struct slice key;               /* BEGIN */
    struct fingerprint fingerprint; /* BEGIN */
    struct fence fence;             /* COMPLETE, RELEASE, LOSE, EXTEND; RESOLVE, FORGET: serial 0: any */
    int64_t lease_ms;               /* BEGIN, EXTEND; > 0 */
    int64_t ttl_ms;                 /* BEGIN > 0; COMPLETE: 0 keeps the claim's */
    int64_t wait_ms;                /* BEGIN: how long to wait for a running first one; 0: not at all */
    bool take_over;                 /* BEGIN */
    bool heartbeat;                 /* BEGIN: the engine extends the lease until COMPLETE, RELEASE or LOSE */

    /* In for COMPLETE and RESOLVE (RESOLVE without: released): borrowed. Out for BEGIN (REPLAY, ATTACHED)
     * and LOOKUP: an owned reference or NULL. */
    struct answer *answer;

    /* Out. */
    int code; /* 0; HAPAX_E_STALE, HAPAX_E_NOT_FOUND, HAPAX_E_CONFLICT, store errors, HAPAX_E_CLOSED */
    enum engine_verdict verdict; /* BEGIN, when code is 0 */
    struct record record;        /* when code is 0 */
    int64_t
        lease_until_mono_ms; /* FRESH: it is ours until then at least. The record's own time is of the store's clock */
    hapax_error error; /* when code is not 0 */

    /* The engine's, while it has the op. */
    struct engine_op *next;     /* in the lane's pending list or in a list of waiters */
    struct engine_op *prev;     /* in a list of waiters */
    struct inflight *waits_for; /* whose list that is; NULL: none */
    struct timer timer;         /* when a waiter's time is over */
    int64_t wait_until_mono_ms;
    struct store_op store;
};

/* A port: where a thread gets its finished ops. `wake` is called from lanes (any thread) at least once
 * after a port that was empty became non-empty; it must only poke the thread, which then drains, or (the blocking API)
 * take the queue itself. A port outlives the engines it is used with. */
struct engine_port {
    struct queue queue;
    void (*wake)(void *ctx);
    void *ctx;
    /* For a thread that handles many events a turn: its ops reach the lanes at once, but a lane that sleeps is woken
     * only by engine_port_flush(), so that it finds the whole turn's ops and not just the first. Such a
     * port is submitted to by its own thread only, and that thread flushes before it waits. */
    bool gathers;
    uint64_t owed; /* lanes to wake, a bit each; the thread's own */
};

void engine_port_init(struct engine_port *p, void (*wake)(void *ctx), void *ctx);
void engine_port_destroy(struct engine_port *p);                 /* empty by then */
size_t engine_port_drain(struct engine_port *p);                 /* runs call-backs; returns how many */
void engine_port_flush(struct engine *e, struct engine_port *p); /* of a port that gathers */

struct engine_options {
    const char *store_uri;
    uint32_t lanes; /* 0: 1, or where the store can use several one for every two processors, at most 4 */
    uint32_t queue_ops_max; /* ops submitted and not yet answered, all lanes; default 65536. Waiters count.
                                    COMPLETE, RELEASE and LOSE are taken beyond it */
    uint32_t waiters_max;   /* of all keys; default 16384 */
    uint32_t waiters_per_key_max; /* default 1024 */
    uint32_t in_flight_max; /* claims of this process that run at one time, all lanes; default 262144. A BEGIN
                                    past it gets HAPAX_E_BUSY */
    uint64_t replay_cache_bytes; /* default 32 MiB; 0 is "default", use cache_off to have none */
    bool cache_off;
    uint32_t sweep_rows; /* expired records removed per slice; default 32 */
    /* Default 1000. While there is more, slices follow one another: at once, or after a pause for live operations
     * (LANE_SWEEP_PAUSE). */
    int64_t sweep_every_ms;
    struct store_options store;
    /* For simulations: NULL uses the real clocks. */
    struct moment (*now)(void *ctx);
    void *now_ctx;
};

/* Open the store, recover (records of dead owners become unknown), start the lanes. With options.store.away set, a store
 * that can't be reached is waited for: it is down from the beginning, and recovered once it is there.
 * On error *out is NULL and nothing runs. */
int engine_open(struct engine **out, const struct engine_options *options, hapax_error *err);
/* Finish what is queued, answer waiters with HAPAX_E_CLOSED, stop the lanes. No submit may run at the same time or
 * follow. Ports must still be drained afterwards. Claims that are still open stay running in the store,
 * under an owner that is then dead. */
void engine_close(struct engine *e);

/* Any thread. HAPAX_E_BUSY: queue_ops_max reached (not for COMPLETE, RELEASE, LOSE). HAPAX_E_CLOSED.
 * HAPAX_E_ARGUMENT. */
int engine_submit(struct engine *e, struct engine_op *op);
/* The same for a thread that then waits for nothing but this op: while nothing else is on its way, it may do the lane's
 * turn itself, and call-backs that belong on the lane's thread (ops without a port, ports' `wake`) run in here. */
int engine_submit_and_help(struct engine *e, struct engine_op *op);

/* Is the store usable now? The last batch succeeded (or none was needed), and none waits for longer than
 * options.store.busy_ms and a second. While it is down, a lane tries again
 * about once a second with its own reads. Any thread. The message of the last failure in *err. */
bool engine_store_ok(struct engine *e, hapax_error *err);

/* Counters since start; each is monotonic. Any thread. */
#define ENGINE_BATCH_BUCKETS 10 /* 1, 2, 4, ..., 256, more */
struct engine_stats {
    uint64_t batches;
    uint64_t batch_ops;
    uint64_t batch_buckets[ENGINE_BATCH_BUCKETS];
    uint64_t store_errors;
    uint64_t cache_hits;
    uint64_t cache_misses;
    uint64_t cache_bytes;   /* now */
    uint64_t in_flight;     /* now: claims of this process that run */
    uint64_t waiters;       /* now */
    uint64_t queued;        /* now */
    uint64_t expired;       /* records swept */
    uint64_t abandoned;     /* records written down as unknown for a dead owner or a lost lease */
    uint64_t commit_us_sum; /* time in store_apply */
};
void engine_stats(struct engine *e, struct engine_stats *out);

/* What the store itself says (running, unknown, size): opens a handle of its own, so call it seldom and never on a loop. */
int engine_store_stats(struct engine *e, struct store_stats *out, hapax_error *err);

/* The engine behind a handle of the public API (hapax/hapax.h), for commands that read its counters. Borrowed. */
struct hapax;
struct engine *engine_of_handle(const struct hapax *h);

const char *verdict_name(enum engine_verdict v);

#endif
