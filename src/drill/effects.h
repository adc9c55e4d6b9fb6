/* Counting effects: a number that somebody else keeps. */
#ifndef DRILL_EFFECTS_H
#define DRILL_EFFECTS_H

#include "drill/setup.h"
#include "drill/wire.h"

struct effects {
    const struct drill_setup *setup;
    struct wire *wire;
    struct wire_place place; /* of the URL */
    struct slice target;     /* without the fragment */
    struct slice pointer;
    struct wire_place final_place; /* where events lead to: of --final-url, if there is one */
    struct slice final_target;     /* a template */
    struct slice final_pointer;    /* SLICE_NONE: the whole document */
    const char *run_key;           /* what this run's keys begin with; log only */
    const char *run_unique;        /* and its unique numbers */
    int log;                       /* its descriptor, -1: not there yet */
    bool log_begun;
    bool log_lost;       /* replaced or cut since: what it held then is not known */
    int64_t log_lines;   /* that counted, so far */
    struct buf log_rest; /* an incomplete line */
    int64_t still_ms;    /* this long without a change is standing still */
    bool learns;         /* still_ms grows with how long effects are seen to take */
};

/* wire_place_open(), for every URL of a setup: HAPAX_E_ARGUMENT also when it is not this host and the setup does not
 * allow another one, or one whose certificate nobody checks. */
int effects_place_open(struct wire_place *out, struct slice *target, const struct drill_setup *setup,
                       struct slice url, hapax_error *err);

/* 0; HAPAX_E_ARGUMENT or HAPAX_E_NOT_FOUND as effects_place_open(), or for a pointer. effects_close() in every case. */
int effects_open(struct effects *out, const struct drill_setup *setup, struct wire *wire, const char *run_key,
                 const char *run_unique, hapax_error *err);
void effects_close(struct effects *e);

/* From -COUNTER_MAX to COUNTER_MAX, so that differences never overflow. */
#define COUNTER_MAX 1000000000000000000LL

/* Read the counter. HAPAX_E_SYNTAX: what it says is no whole number, or too large a one; HAPAX_E_NOT_FOUND: it can't be
 * read, as a log that was replaced or cut, then for good. */
int effects_read(int64_t *out, struct effects *e, hapax_error *err);
/* Read it until it stands still and is not below `least`, or settle_ms_max is over. *still: it does stand still. */
int effects_settle(int64_t *out, bool *still, struct effects *e, int64_t least, hapax_error *err);

/* A document by GET, with the counter's headers: its status and body; `body` is the caller's. For the final state, too. */
int effects_get(struct buf *body, struct effects *e, struct wire_place *place, struct slice target,
                hapax_error *err);
/* "URL#/pointer" in its two parts, the pointer checked; without a fragment SLICE_NONE. */
int effects_cut(struct slice *url, struct slice *pointer, const char *text, hapax_error *err);
/* Sleep, in steps that notice an interruption. */
void effects_sleep(const struct drill_setup *setup, int64_t ms);

#endif
