/* A store that fails on purpose: a wrapper around any other, for tests and drills.
 *
 *   fault:SPEC:URI      e.g. fault:fail=3,code=store,when=after:sqlite:/tmp/x.db
 *
 * SPEC is empty (pass everything through) or a comma-separated list of
 *
 *   fail=N       the N-th apply() from now on fails, once (1: the next)
 *   every=N      every N-th apply() fails (1: all)
 *   kill=N       the process ends (_exit(FAULT_EXIT)) at the N-th apply()
 *   when=before  default: fail or kill before the inner apply(), nothing is changed
 *   when=after   ... after it has committed: what was changed stays, the caller hears of a failure
 *   code=WORD    the code of a failure, by its name in hapax/error.h ("store", "store-full", "timeout", ...);
 *                default store
 *   delay=MS     each apply() sleeps first
 *   hold=1       each apply() stands still, before or after the inner one as `when` says, until the plan is
 *                another one (the control file, or fault_plan_set())
 *   control=PATH stands first: the file at PATH holds a SPEC without control=. Whenever its content
 *                differs from the last time, it becomes the plan (counting starts anew) before the next
 *                apply(); an empty file, or none any more, passes everything through. Until there first is
 *                such a file, the rest of this SPEC counts. A test switches a running gateway's store with it:
 *                write another file and rename() it. PATH ends at the next ',' or ':'.
 *
 * Only apply() is touched; sweep, list and the rest pass through, but for `every=1`, under which sweep,
 * abandon, register_owner, forget_owner, generation and stats fail, too: the store is down.
 *
 * Batches of lookups count and fail like the others. */
#ifndef STORE_FAULT_H
#define STORE_FAULT_H

#include "store/store.h"

#define FAULT_EXIT 87

struct fault_plan {
    uint64_t fail_at; /* 0: never */
    uint64_t fail_every;
    uint64_t kill_at;
    bool after; /* the inner apply() runs first */
    int code;   /* 0: HAPAX_E_STORE */
    uint32_t delay_ms;
    bool hold;
};

/* Parse a SPEC without control=. HAPAX_E_SYNTAX names the part that is wrong. */
int fault_plan_parse(struct fault_plan *out, struct slice spec, hapax_error *err);

/* Change the plan of a store that store_open("fault:...") made; counting starts anew. Any thread, also
 * while another one is inside apply(). */
void fault_plan_set(struct store *s, const struct fault_plan *plan);

/* The number of calls of apply() since it was opened. Any thread. */
uint64_t fault_applied(struct store *s);

#endif
