/* A lane: one thread's worth of engine. Internal to the engine and to simulations.
 *
 * All of a lane's state but `queue`, `state`, `down` and the counters belongs to the thread that calls
 * lane_turn() or has it lent (enum lane_state). A turn never waits for anything but the store, reads no clock (time is
 * its argument), and says when it wants to be called again; so a simulation can drive the turns of an engine that
 * was opened without threads, on a clock of its own. */
#ifndef ENGINE_LANE_H
#define ENGINE_LANE_H

#include "base/limits.h"
#include "engine/engine.h"
#include "engine/inflight.h"
#include "engine/owner.h"
#include "engine/replay_cache.h"

#include <pthread.h>

#define LANE_OWN_OPS_MAX (LIMIT_BATCH_OPS_MAX / 4) /* heartbeats, or polls, of one batch */
#define LANE_DECIDE_MAX  (LIMIT_BATCH_OPS_MAX * 4) /* ops decided in one turn, most of them from memory */
#define LANE_LOCKED_MAX  2                         /* ops of a batch that wait for a lock each, alone */
#define LANE_PORTS_MAX   64                        /* ports gathered before they must be flushed */
#define LANE_DEAD_MAX    64                        /* dead owners found in one walk */
/* The pause between two polls for a run of another process doubles from the one to the other, so that who waits has the
 * answer within some 20 ms and a round trip. Pauses lie on a grid: what is awaited at one time shares its polls. A poll
 * costs other lanes nothing (it only reads), and at most half of this lane's time: the next one comes after as long a pause
 * as it took. */
#define LANE_POLL_MS_MIN  5
#define LANE_POLL_MS_MAX  20
#define LANE_POLL_DOWN_MS 250 /* after one that failed */
/* After a commit that took longer the lane's own thread is to wait: others may want to attach, or time out. */
#define LANE_HELP_US_MAX 2000
/* After a commit that took longer, so large a share of that time is waited for what its answers bring. */
#define LANE_FAR_US        20000
#define LANE_GATHER_SHARE  16
#define LANE_GATHER_US_MAX 20000
/* Between two slices of a sweep live operations have this many times as long as the slice took, and a while when it was
 * not a full one. Should there be full ones for so long, then more expires than is removed: from then on one is also
 * due after 1.5 operations for each record removed. A record costs two to make, so that gains on any load. */
#define LANE_SWEEP_PAUSE     6
#define LANE_SWEEP_IDLE      20 /* the same after one that found nothing */
#define LANE_SWEEP_REST_MS   20
#define LANE_SWEEP_LONG_MS   (60 * 60 * 1000)
#define LANE_SWEEP_OPS(rows) ((size_t)(rows)*3 / 2)
#define LANE_GENERATION_MS   250  /* how old the knowledge of the store's generation may be at a cache hit */
#define LANE_PROBE_MS        1000 /* how often a store that is down is tried */
#define LANE_SHUN_US         1000000 /* see lane_shuns_store() */
#define LANE_RECOVER_MS      10000
/* An owner that can't be judged and registered this long ago is forgotten when it holds nothing: should it live, it
 * only loses that others recognise its death at once. Otherwise containers with ever new names would pile up. */
#define LANE_UNSURE_OWNER_MS (30LL * 24 * 3600 * 1000)

/* What all lanes of an engine share. */
struct engine_shared {
    struct engine_options options; /* defaults filled in, the URI owned by the engine */
    struct owner_self owner;
    _Atomic(uint64_t) queued; /* submitted and not yet answered */
    _Atomic(uint32_t) waiters;
    _Atomic(bool) closing;
    bool simulated;             /* options.now is given: real time means nothing */
    pthread_mutex_t error_lock; /* guards store_error */
    hapax_error store_error;    /* of the last failure */
};

/* Written by the lane, read by anybody. */
struct lane_counters {
    _Atomic(uint64_t) batches;
    _Atomic(uint64_t) batch_ops;
    _Atomic(uint64_t) batch_buckets[ENGINE_BATCH_BUCKETS];
    _Atomic(uint64_t) store_errors;
    _Atomic(uint64_t) cache_hits;
    _Atomic(uint64_t) cache_misses;
    _Atomic(uint64_t) cache_bytes;
    _Atomic(uint64_t) in_flight;
    _Atomic(uint64_t) expired;
    _Atomic(uint64_t) abandoned;
    _Atomic(uint64_t) commit_us_sum;
};

/* Who may touch the lane's own state. */
enum lane_state {
    LANE_AWAKE,  /* its thread (or, without one, whoever drives its turns) */
    LANE_ASLEEP, /* nobody: its thread sleeps or is about to; who changes this may */
    LANE_LENT,   /* a thread that helps, see lane_help() */
    LANE_WANTED, /* the same, and the lane's thread waits for its end */
};

/* Ops on their way back to one port, the newest first. */
struct port_chain {
    struct engine_port *port;
    struct queue_node *newest;
    struct queue_node *oldest;
};

/* The walk over owners and lost leases, done in slices. */
struct recovery {
    int64_t due_mono_ms;
    bool walked; /* `dead` is filled, work on it goes on */
    bool more;   /* there were more dead owners than fit */
    bool leases; /* leases that ran out have still to be written down */
    size_t dead_count;
    uint64_t dead[LANE_DEAD_MAX];
    size_t unsure_count;
    uint64_t unsure[LANE_DEAD_MAX]; /* old ones, to be forgotten */
};

struct lane {
    struct engine_shared *shared;
    uint32_t number;
    struct store *store;
    uint64_t owner;  /* the number the store gave to this lane */
    bool registered; /* claims would carry it: no batch is applied before they do */
    uint32_t in_flight_max;
    pthread_t thread;
    bool has_thread;

    struct queue queue;
    _Atomic(uint32_t) state;   /* enum lane_state; a futex */
    _Atomic(bool) down;        /* the last batch failed and no later one or probe succeeded */
    _Atomic(int64_t) asked_us; /* since when it waits for the store's answer to a batch; 0: it does not */
    struct lane_counters counters;

    int64_t sleeps_until_mono_ms;
    int64_t sweep_since_mono_ms;     /* when a run of full slices began */
    size_t sweep_ops;                /* live ones since the last slice */
    bool sweep_full;                 /* the last slice was: there is more */
    bool slow;                       /* the last commit took longer than LANE_HELP_US_MAX, or failed */
    int64_t far_us;                  /* what the last commit took when longer than LANE_FAR_US, else 0 */
    bool fails_slowly;               /* the last commit or probe failed, and took longer than LANE_SHUN_US */
    struct moment now;               /* of this turn */
    struct engine_op *pending_first; /* collected, not yet decided */
    struct engine_op *pending_last;
    struct inflight_table in_flight;
    struct replay_cache cache;
    struct timers timers;
    struct timers polls; /* of FOREIGN entries */
    int64_t polls_rest_until_mono_ms;

    size_t batch_count;
    size_t batch_claims; /* in-flight entries reserved by this batch */
    struct store_op *batch[LIMIT_BATCH_OPS_MAX];
    struct engine_op
        *batch_ops[LIMIT_BATCH_OPS_MAX]; /* NULL: the lane's own heartbeat (EXTEND) or poll (LOOKUP) */
    size_t own_count;
    struct store_op own[LANE_OWN_OPS_MAX];

    struct port_chain ports[LANE_PORTS_MAX];
    size_t port_count;

    uint64_t generation;
    int64_t generation_due_mono_ms;
    int64_t probe_due_mono_ms;
    int64_t sweep_due_mono_ms;
    struct recovery recovery;
};

/* Life. The store handle is opened and the lane registered; no thread runs. On error *out is NULL. */
int lane_open(struct lane **out, struct engine_shared *shared, uint32_t number, uint32_t lanes,
              hapax_error *err);
int lane_start(struct lane *l, hapax_error *err);
/* Wake the lane, wait for its thread to finish what is queued (without a thread: do it here). */
void lane_stop(struct lane *l);
void lane_free(struct lane *l);

/* Any thread, which then sees to lane_wake(). */
void lane_push(struct lane *l, struct engine_op *op);
void lane_wake(struct lane *l); /* if it sleeps */
/* Instead of lane_wake(), for a thread that waits for this lane anyway: if the lane sleeps, its store was quick the last
 * time and one op is all there is, do its turn on this thread. That saves two changes of threads, each of which may take as
 * long as the commit. Not for a loop, which others wait for. False: nothing was done, see to lane_wake(). */
bool lane_help(struct lane *l);

/* One turn at the moment `now`. Returns the mono_ms at which the next one is due: not later than `now` when there is
 * more to do at once; a submit is a reason for a turn at any time. */
int64_t lane_turn(struct lane *l, struct moment now);

/* --- between the files of the lane --- */

void lane_push_pending(struct lane *l, struct engine_op *op);
/* Answer an op. The code's message is `err`'s, or the standing text when err is NULL. */
void lane_finish(struct lane *l, struct engine_op *op);
void lane_finish_error(struct lane *l, struct engine_op *op, int code, const hapax_error *err);
void lane_flush_ports(struct lane *l);

/* decide.c: an op becomes an answer from memory, a waiter, or a place in the batch. */
void lane_decide(struct lane *l, struct engine_op *op);
void lane_run_timers(struct lane *l);
void lane_batch_polls(struct lane *l);           /* those that are due, into an empty batch */
void lane_end_waiters(struct lane *l, int code); /* at close */
bool lane_lease_over(const struct lane *l, const struct inflight *entry);
void lane_attach(struct lane *l, struct inflight *entry, struct engine_op *op);
void lane_drop(struct lane *l, struct inflight *entry); /* its waiters go round again */
void lane_answer_waiters(struct lane *l, struct inflight *entry, const struct record *record,
                         struct answer *answer);

/* settle.c: what the store said. */
void lane_settle(struct lane *l, size_t place, int code, const hapax_error *err);

/* keep.c: the store's health, generation, sweeps and dead owners. */
int lane_register(struct lane *l, hapax_error *err);
void lane_store_failed(struct lane *l, int code, const hapax_error *err);
void lane_store_works(struct lane *l);
/* At open, with a store that has yet to be reached; why->code 0: it was not tried. */
void lane_begin_away(struct lane *l, const hapax_error *why);
int lane_last_failure(struct lane *l, hapax_error *err); /* its code */
void lane_check_generation(struct lane *l);
bool lane_sweep_is_due(const struct lane *l);
int64_t lane_keep_house(struct lane *l);                /* returns when it wants to be called next */
int lane_recover_all(struct lane *l, hapax_error *err); /* at open, before anything else */

/* Is it left to the probes to find that the store works again? Where each try takes as long as a time-out (a server that
 * has frozen, a network that swallows packets), operations would wait for one try after another. */
static inline bool lane_shuns_store(const struct lane *l)
{
    return l->fails_slowly && atomic_load_explicit(&l->down, memory_order_relaxed);
}

/* May a record be the reason why its whole batch failed: damaged, or locked by a transaction of somebody else? */
static inline bool lane_blames_a_record(int code)
{
    return code == HAPAX_E_STORE_CORRUPT || code == HAPAX_E_BUSY;
}

/* Its now decides, and not this host's wall clock. */
static inline bool lane_has_store_clock(const struct lane *l)
{
    return (l->store->backend->capabilities & STORE_HAS_CLOCK) != 0;
}

static inline void lane_count(_Atomic(uint64_t) *counter, uint64_t more)
{
    /* Only the lane writes: a plain load and store, no locked instruction. */
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + more,
                          memory_order_relaxed);
}

/* --- for simulations: an engine whose turns the caller drives --- */

/* As engine_open(), but no thread is started: neither lanes nor the store's house-keeping run by themselves.
 * engine_close() does the last turns itself. */
int engine_open_without_threads(struct engine **out, const struct engine_options *options, hapax_error *err);
uint32_t engine_lane_count(const struct engine *e);
struct lane *engine_lane(struct engine *e, uint32_t number);

#endif
