/* Which cases there are, which apply, in which order. */
#ifndef DRILL_PLAN_H
#define DRILL_PLAN_H

#include "drill/cases.h"

struct plan_case {
    const char *id;
    const char *title;
    enum drill_group group;
    unsigned char at[DRILL_AXES];
    unsigned requests;
    const char *not_applicable; /* NULL: it runs */
    void (*run)(struct trial *t);
};

/* Everything that the setup selects; ids and titles live in `arena`. 0, HAPAX_E_ARGUMENT or HAPAX_E_MEMORY. */
int plan_make(struct plan_case **out, size_t *count, const struct drill_setup *setup,
              const struct payloads *payloads, struct arena *arena, hapax_error *err);

/* The case of the matrix that can't be judged since its check failed: which check, or NULL. */
const char *plan_blocked(const struct drill *d, const struct plan_case *c);

#endif
