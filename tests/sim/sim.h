/* A seeded simulation: several engines ("nodes") without threads on one memory store, on a clock that only moves when
 * the schedule moves it, and an oracle that hears what the callers hear.
 *
 * A seed is a whole run: the same seed makes the same decisions, the same answers and the same digest. Everything is
 * one thread. Per seed, the schedule first draws what kind of run it is (sizes, limits, how often what happens), then
 * steps; at the end faults stop, every node lives again and every key is asked for once more on every node.
 *
 *   world.h     which records are possible, after all that was answered
 *   oracle.c    judges each answer, and that each op gets exactly one, in time
 *   node.c      life and death of an engine, and the store between it and the shared one
 *   draw.c      what kind of run a seed is
 *   schedule.c  what happens next */
#ifndef TESTS_SIM_SIM_H
#define TESTS_SIM_SIM_H

#include "engine/engine.h"
#include "engine/lane.h"
#include "store/fault.h"
#include "world.h"

#define SIM_NODES_MAX   4
#define SIM_LANES_MAX   3
#define SIM_KEYS_MAX    6 /* identities: keys times tenants */
#define SIM_CONTENTS    2
#define SIM_CALLS_MAX   1024
#define SIM_RUNS_MAX    512
#define SIM_LIVES_MAX   96
#define SIM_REMOVED_MAX 64
#define SIM_REPLAY_LAG  1000 /* how long a decision by hand may take to reach every cache, docs/PROMISES.md */
#define SIM_WHY_MAX     400

/* What is broken on purpose, to see the oracle fail. */
enum sim_broken {
    BROKEN_NOTHING,
    BROKEN_FENCE,   /* the store completes with whatever fence */
    BROKEN_LIVE,    /* ... takes over a record under a live lease */
    BROKEN_LATE,    /* ... completes after the lease */
    BROKEN_HELD,    /* ... takes over without leave */
    BROKEN_KNOWN,   /* ... claims what is done */
    BROKEN_CONTENT, /* ... does not compare contents */
    BROKEN_ANSWER,  /* ... gives another answer than it was given */
    BROKEN_LOST,    /* ... forgets a completion that it reported as durable */
    BROKEN_REPLY,   /* a caller gets its answer twice */
    BROKEN_SILENCE, /* a caller gets none */
    BROKEN_WAIT,    /* a waiter waits longer than it asked for */
    BROKEN_COUNT
};

struct sim;

/* The store between a lane and its own. */
struct shim {
    struct store store;
    struct store *inner; /* a fault store around the shared memory store */
    struct store_backend backend;
    struct sim *sim;
    struct lane *lane;
    size_t node;
    int life;
    bool dead;
    enum { DIE_NEVER, DIE_BEFORE, DIE_AFTER } die_at_next;
};

/* From the opening of an engine to its end. */
struct life {
    bool over;
    bool remote; /* on another host: only its leases tell */
};

struct node {
    struct engine *engine; /* NULL: dead */
    int life;
    bool remote;
    bool has_port;
    int64_t trouble_mono_ms; /* the last time that its store failed */
    struct engine_port port;
    struct shim *shims[SIM_LANES_MAX];
};

/* One key of one tenant, and what anybody can know about it. */
struct target {
    struct identity id;
    char scope[32];
    char key[16];
    struct worlds worlds;
    unsigned contents_run; /* a bit for each content that was, or may have been, claimed */
    int64_t still_mono_ms; /* since when nobody can be running it; -1: somebody may */
    size_t removed_count;
    struct {
        int answer;
        int content;
        int64_t mono_ms;
    } removed[SIM_REMOVED_MAX]; /* answers that caches may still give for a while */
};

/* An execution: somebody was told FRESH. */
struct run {
    int target;
    int content;
    int life;
    int node;
    struct fence fence;
    int64_t lease_ms; /* duration */
    int answer;
    enum engine_op_kind want; /* how it will be settled, once that is decided */
    bool decided;
    bool settled; /* told so, or told that it no longer counts */
    bool
        elsewhere; /* its engine may not know that it is settled: an answer was lost, or another node asked */
};

/* One op on its way. */
struct call {
    struct engine_op op;
    struct sim *sim;
    int number;
    int target;
    int node;
    int life;
    int run; /* of a settling call; -1 */
    struct deed deed;
    int64_t wait_ms;           /* what was asked for */
    int64_t collected_mono_ms; /* first turn of its lane since; -1 before */
    bool submitted;
    bool told_early; /* COMPLETE: a waiter was told the answer, just before */
    int replies;
};

struct sim_weights { /* how often what happens; drawn for each seed */
    unsigned begin, settle, turn, turn_all, rush, pass, kill, restart, by_hand, lookup, fault, clock;
};

struct sim {
    uint64_t seed;
    uint64_t random;
    enum sim_broken broken;
    bool trace;
    int trace_target; /* -1: all */

    struct moment now;
    bool was_set_back; /* the wall clock, at least once: engines may remember what no longer is */
    char store_uri[48];
    struct store *anchor; /* keeps the shared store alive while every node is dead */
    struct engine_options options;
    struct sim_weights weights;
    unsigned total_weight;
    unsigned take_over_percent, heartbeat_percent, content_percent, death_percent, forward_percent,
        back_percent;
    int64_t lease_ms_max, ttl_ms_max, wait_ms_max;

    size_t node_count;
    struct node nodes[SIM_NODES_MAX];
    size_t life_count;
    struct life lives[SIM_LIVES_MAX];
    size_t target_count;
    struct target targets[SIM_KEYS_MAX];
    uint64_t serial_max;
    size_t run_count;
    struct run runs[SIM_RUNS_MAX];
    size_t call_count;
    struct call calls[SIM_CALLS_MAX];
    size_t first_open; /* every call before it has its answer */
    int answer_count;
    size_t doubts; /* lost answers so far */

    uint64_t answers_heard;
    uint64_t digest; /* of all answers, in order */
    bool given_up;   /* too many answers were lost to judge any more */
    int failed_target;
    char why[SIM_WHY_MAX]; /* empty: no promise is broken */
};

struct sim_result {
    bool failed;
    bool given_up; /* from some point on nothing was judged */
    int failed_target;
    uint64_t digest;
    uint64_t calls;
    uint64_t runs;
    uint64_t doubts;
    uint64_t lives;
    uint64_t told[16]; /* how often each verdict of BEGIN; see sim_told_names */
    char why[SIM_WHY_MAX];
};

/* Run one seed. `s` is memory to work in (large; the caller's). With trace, what happens is printed: everything, or
 * only what concerns one target and the nodes. */
void sim_run(struct sim *s, uint64_t seed, enum sim_broken broken, bool trace, int trace_target,
             struct sim_result *out);
const char *sim_broken_name(enum sim_broken b);

/* --- between the files --- */

uint64_t sim_random(struct sim *s);
unsigned sim_below(struct sim *s, unsigned n); /* 0 to n - 1; n > 0 */
int64_t sim_ms_between(struct sim *s, int64_t least, int64_t most);
bool sim_chance(struct sim *s, unsigned percent);
void sim_fail(struct sim *s, int target, const char *format, ...) __attribute__((format(printf, 3, 4)));
void sim_note(struct sim *s, int target, const char *format, ...) __attribute__((format(printf, 3, 4)));
static inline bool sim_failed(const struct sim *s)
{
    return s->why[0] != '\0';
}
bool sim_known_dead(void *ctx, int life);

/* draw.c */
void draw_run(struct sim *s);

/* oracle.c */
struct answer *oracle_make_answer(int number);
int oracle_new_answer(struct sim *s);
void oracle_reply(struct engine_op *op); /* the call-back of every op */
/* The lane's own heartbeat: told like a caller's EXTEND. `code` 0, or the store's. */
void oracle_heartbeat(struct sim *s, int life, const struct store_op *op, int code);
void oracle_after_turn(struct sim *s, size_t node, uint32_t lane, bool idle);
void oracle_at_end(struct sim *s);

/* node.c */
bool node_open(struct sim *s, size_t number);
void node_close(struct sim *s, size_t number, bool crash);
bool node_turn(struct sim *s, size_t number, uint32_t lane); /* true: nothing more to do at this instant */
void node_set_fault(struct sim *s, size_t number, const struct fault_plan *plan);
void node_bury(struct sim *s); /* those that died inside a turn */

#endif
