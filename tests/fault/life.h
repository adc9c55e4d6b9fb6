/* A life of a store for the sweeps of its faults (io_store.c, wire_store.c): claims, their ends, replays, an operator's
 * changes and house-keeping, step by step; and what must be there afterwards. */
#ifndef TESTS_FAULT_LIFE_H
#define TESTS_FAULT_LIFE_H

#include "store/store.h"
#include "sweep.h"

#define LIFE_T0 INT64_C(1700000000000)

enum { LIFE_KEYS = 6 };

struct life {
    char path[160];
    char uri[176];
    int64_t busy_ms;
    struct store *store;
    int64_t now_ms;
    uint64_t owner;
    struct fence fences[LIFE_KEYS];
    enum record_state expected[LIFE_KEYS]; /* as acknowledged */
    enum record_state meant[LIFE_KEYS];    /* and with what the step that failed would have made of it */
    size_t answer_bytes[LIFE_KEYS];        /* of a done record */
    bool gaps;                             /* an earlier step failed and has not been made up for */
    bool repeats; /* the store may do a step twice of its own accord, where twice is as good as once */
};

/* A step came to something else than it would after all the earlier ones. */
#define LIFE_PREMATURE 1
#define EXPECT(l, condition, ...)                                                                            \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            CHECK((l)->gaps, #condition " " __VA_ARGS__);                                                    \
            return LIFE_PREMATURE;                                                                           \
        }                                                                                                    \
    } while (0)

/* 0, LIFE_PREMATURE or the store's code. */
typedef int life_step(struct life *l, hapax_error *err);

life_step life_open_store;
life_step life_claim_all;
life_step life_register_owner;
life_step life_abandon;
life_step life_complete_huge; /* not one of life_steps */

/* In order. */
extern life_step *const *const life_steps;
extern const size_t life_step_count;

struct store_op life_op(const struct life *l, enum store_op_kind kind, int key);
struct answer *life_answer(size_t bytes);
/* One op that must be applied, unless the store fails. */
int life_apply(struct life *l, struct store_op *op, int key, enum record_state then, hapax_error *err);

void life_check(struct life *l, struct store *s, const enum record_state *expected, const char *when);
/* Did the step that failed take effect after all? Of its keys any will do: life_check() then wants all. */
bool life_took_effect(struct life *l, struct store *s);

#endif
