/* What a drill is asked to do: filled by the command line, borrowed until drill_run() returns. */
#ifndef DRILL_SETUP_H
#define DRILL_SETUP_H

#include "core/request.h"
#include "drill/drill.h"

#include <signal.h>

#define DRILL_IGNORED_MAX       32
#define DRILL_PATTERNS_MAX      32
#define DRILL_TIMES             8
#define DRILL_ROUNDS            10
#define DRILL_SEED_MAX          999999999999ULL
#define DRILL_REQUESTS_MAX      5000
#define DRILL_REPEAT_TIMES      100  /* of the long series and the large crowd */
#define DRILL_COMMAND_BYTES_MAX 4096 /* of what a counting command prints */

/* How effects are counted: exactly one of these. */
struct drill_counter {
    const char *url;     /* URL#/json/pointer: a number in a document */
    const char *command; /* `sh -c`: prints a number */
    const char *log;     /* a file: its lines that hold one of this run's keys or {unique} values */
};

struct drill_event {
    const char *name;
    struct slice body;
};

struct drill_profile;

struct drill_setup {
    const char *method;
    const char *url;
    struct slice body;                        /* template; SLICE_NONE: none */
    const char *body_file;                    /* where it came from, for curl lines; NULL: the command line */
    struct header headers[DRILL_HEADERS_MAX]; /* templates */
    size_t header_count;
    const char *key_header; /* NULL: the key stands where {key} is */
    bool bare_keys;         /* never in quotes, whatever the profile says */
    const struct drill_profile *profile;
    struct drill_counter counter;
    struct header counter_headers[DRILL_HEADERS_MAX];
    size_t counter_header_count;

    struct header tenant; /* name empty: no other tenant */
    const char *other_url;
    struct slice other_body; /* SLICE_NONE: one value of the body is changed */
    struct header fail;      /* makes the endpoint fail; name empty: none */
    const char *restart_command;
    const struct drill_event *events; /* in the order of their names */
    size_t event_count;
    const char *final_url; /* URL[#/pointer] */
    const char *reset_command;

    unsigned times;
    unsigned rounds;
    uint64_t seed;
    int64_t settle_ms;
    int64_t settle_ms_max;
    int64_t timeout_ms;
    int64_t recover_ms;
    unsigned requests_max;
    const char *only[DRILL_PATTERNS_MAX]; /* shell patterns of case ids; none: all */
    size_t only_count;
    const char *skip[DRILL_PATTERNS_MAX];
    size_t skip_count;
    struct slice ignored[DRILL_IGNORED_MAX]; /* further headers that may differ between repeats */
    size_t ignored_count;
    const char *ca_file;
    bool insecure; /* certificates are not checked: loopback only */
    bool remote;   /* other hosts than this one are allowed */

    const volatile sig_atomic_t *stop; /* not 0: end, with the report so far; NULL: never */
    void (*progress)(void *ctx, size_t done, size_t all, const char *id); /* NULL: none; id NULL: done */
    void *progress_ctx;
};

/* A case that would run, and about how many requests it sends. */
struct drill_planned {
    const char *id;
    const char *title;
    enum drill_group group;
    unsigned requests;
    const char *not_applicable; /* why; NULL: it would run */
};

/* The profile of a name ("draft"), NULL for another; the names, separated by '|'. */
const struct drill_profile *drill_profile_named(const char *name);
#define DRILL_PROFILES "draft|stripe|webhook|queue"

/* All cases that the setup selects, in order; *out lives in `arena`. Sends nothing. 0, HAPAX_E_ARGUMENT (the setup is
 * not usable, *err says why) or HAPAX_E_MEMORY. */
int drill_plan(struct drill_planned **out, size_t *count, const struct drill_setup *setup,
               struct arena *arena, hapax_error *err);

/* Run it. 0: *out is filled, also when it was interrupted or stopped early (out->stopped). HAPAX_E_ARGUMENT: the setup
 * is not usable; HAPAX_E_NOT_FOUND: the endpoint or the counter can't be reached, nothing was judged; HAPAX_E_MEMORY.
 * drill_report_free() in every case. */
int drill_run(struct drill_report *out, const struct drill_setup *setup, hapax_error *err);
void drill_report_free(struct drill_report *report);

#endif
