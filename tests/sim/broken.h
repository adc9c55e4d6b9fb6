/* Stores that break a promise on purpose, so that the oracle is seen to fail. */
#ifndef TESTS_SIM_BROKEN_H
#define TESTS_SIM_BROKEN_H

#include "sim.h"

/* store_apply() of `inner`, broken in this way. */
int broken_apply(enum sim_broken how, struct store *inner, struct store_op *const *ops, size_t n,
                 int64_t now_ms, hapax_error *err);

#endif
