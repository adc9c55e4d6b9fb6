/* What the record of one identity can be, as somebody knows who hears only the answers: the oracle of the simulation.
 *
 * Written from the promises (docs/PROMISES.md, core/record.h), apart from the code that keeps them. As a rule
 * there is exactly one possible record. Where an answer was lost (the store could not say whether it committed) there
 * are two, until a later answer tells them apart. An answer that fits none of them breaks a promise. */
#ifndef TESTS_SIM_WORLD_H
#define TESTS_SIM_WORLD_H

#include "core/record.h"
#include "engine/engine.h"

#define WORLDS_MAX 256
#define NO_ANSWER  (-1)

struct world {
    enum record_state state; /* as written: a lease or a retention may be over */
    int content;
    int owner; /* number of the engine's life that claimed it */
    int answer;
    struct fence fence; /* serial 0: of a claim that nobody was told of */
    int64_t lease_ms;   /* wall clock */
    int64_t claimed_ms;
    int64_t ttl_ms;
    int64_t expires_ms;
};

/* What was asked for. */
struct deed {
    enum engine_op_kind kind;
    int content; /* BEGIN */
    bool take_over;
    int owner;
    int answer;         /* COMPLETE, RESOLVE as done; else NO_ANSWER */
    struct fence fence; /* but for BEGIN */
    int64_t lease_ms;
    int64_t ttl_ms;
};

/* What was answered. */
enum told {
    TOLD_APPLIED, /* BEGIN: fresh; LOOKUP: a record, see `state` */
    TOLD_RUNNING,
    TOLD_DONE,
    TOLD_UNKNOWN,
    TOLD_MISMATCH,
    TOLD_STALE,
    TOLD_ABSENT,
    TOLD_REFUSED,
};

struct said {
    enum told told;
    enum record_state state; /* LOOKUP */
    struct fence fence;      /* APPLIED of BEGIN and LOOKUP */
    int answer;              /* DONE, and LOOKUP of a done record */
};

struct worlds {
    size_t count;
    bool too_many; /* there were more: what is kept may lack the true one, and judges nothing any more */
    struct world of[WORLDS_MAX];
    uint64_t *serial_max; /* the largest serial of the store that anybody was told; never reused */
    /* Is this life of an engine over, and can others on its host tell? */
    bool (*known_dead)(void *ctx, int owner);
    void *ctx;
};

void worlds_init(struct worlds *w, uint64_t *serial_max, bool (*known_dead)(void *ctx, int owner), void *ctx);

/* The answer to a deed. True: it fits, and the worlds that it does not fit are gone. False: nothing has changed, and
 * `why` says which promise it breaks. */
bool worlds_hear(struct worlds *w, const struct deed *d, const struct said *s, int64_t now_ms, char *why,
                 size_t why_size);
/* Would it fit? Changes nothing: for answers that an engine may give from memory. */
bool worlds_admit(const struct worlds *w, const struct deed *d, const struct said *s, int64_t now_ms);
/* The deed may have been done: nobody knows. */
void worlds_doubt(struct worlds *w, const struct deed *d, int64_t now_ms);
/* The wall clock is about to be set back: what was over by it may have been written down, or not. */
void worlds_before_set_back(struct worlds *w, int64_t now_ms);
/* A waiter was told the answer of a completion that has not been answered itself yet. Either this one has just taken
 * effect, or the answer was known before. False: neither is possible. */
bool worlds_hear_early(struct worlds *w, const struct deed *complete, int64_t now_ms);
/* A done record with this answer stands there. False: that is not possible. */
bool worlds_know(struct worlds *w, int answer, int64_t now_ms);

const char *told_name(enum told t);

#endif
