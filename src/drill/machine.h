/* One case at a time: requests out, answers kept, effects counted. What the cases are made of.
 *
 * A trial is one case that runs. Its operations are numbered; operation A (0) is the first one, B (1) what differs from it.
 * After a failure of our own (no memory, the counter can't be read, the limit of requests, an interruption) t->rc
 * is set, all further steps do nothing, and the case is inconclusive. */
#ifndef DRILL_MACHINE_H
#define DRILL_MACHINE_H

#include "base/digest.h"
#include "drill/effects.h"
#include "drill/profile.h"
#include "drill/request.h"

#define TRIAL_OPERATIONS_MAX 64
#define TRIAL_SENT_MAX       4096
#define TRIAL_STATUSES_MAX   64
#define RUN_KEY_CHARS        14 /* of a key, that name the run: "5f3a9c01-7b2e-" */
#define RUN_UNIQUE_DIGITS    9

struct answer {
    enum wire_result result;
    int status; /* 0 without an answer */
    const struct header *headers;
    size_t header_count;
    uint8_t digest[DIGEST_BYTES]; /* of the body */
    size_t body_bytes;
    bool unknown_type;    /* the body says that the outcome is unknown */
    struct slice excerpt; /* of the body */
    const char *detail;   /* without an answer: why */
};

enum phase { PHASE_FIRST, PHASE_REPEAT, PHASE_CONFIRM };

struct sent {
    unsigned operation;
    enum phase phase;
    struct answer answer;
};

struct drill {
    const struct drill_setup *setup;
    const struct drill_profile *profile;
    struct drill_report *report;
    struct payloads payloads;
    struct wire wire;
    struct wire_place places[DRILL_AXIS_VALUES]; /* of enum drill_place; the tenant's is the same as HERE */
    struct slice targets[DRILL_AXIS_VALUES];
    struct effects effects;
    char run_key[RUN_KEY_CHARS + 1];
    char run_unique[RUN_UNIQUE_DIGITS + 1];
    unsigned operations; /* so far */
    unsigned requests;
    int64_t counted;              /* the counter, when the last case had settled */
    struct drill_case *last_case; /* that case; NULL: none has run */
    bool unreachable;             /* the first request found no connection */
    bool moving;                  /* effects still came when the last case gave up waiting */
    int64_t normal_ms;            /* what a fresh operation takes */
    bool stuck_seen;              /* a key that stays in flight has been waited for once */
    bool usable[3];               /* the other payload, tenant, path: their checks held */
    struct answer normal;         /* what a fresh operation is answered with; arena of the report */
    hapax_error err;
};

struct trial {
    struct drill *d;
    struct drill_case *out;
    struct arena arena; /* answers */
    struct operation operations[TRIAL_OPERATIONS_MAX];
    unsigned operation_count;
    struct sent sent[TRIAL_SENT_MAX];
    size_t sent_count;
    unsigned requests;                                /* that trial_forget() has forgotten */
    struct drill_status statuses[TRIAL_STATUSES_MAX]; /* and their answers */
    size_t status_count;
    int64_t before;
    int64_t effects; /* counted by this case; -1: not known */
    bool moving;     /* and more still came when patience was over */
    int64_t started_ms;
    enum drill_verdict verdict;
    struct buf why;
    struct buf curl;
    bool ends_run; /* there is nobody to go on with */
    int rc;
};

/* One request in the air. */
struct flight {
    struct shot shot;
    struct buf bytes;
    struct sent *sent;
};

/* --- A case. --- */

/* Has the counter moved since the last case had settled? Then that one is inconclusive. */
void note_late_effects(struct drill *d, int64_t counter);
/* Read the counter. */
void trial_begin(struct trial *t, struct drill *d, struct drill_case *out);
/* Wait until effects have settled; sets t->effects. `least`: as many must have come, or patience is over. */
void trial_count(struct trial *t, int64_t least);
/* Does the counter stand still for a while in which nothing is sent? Right after trial_count() or trial_begin(). */
bool trial_is_idle(struct trial *t);
/* The answers so far are not looked at any more: their statuses are kept, their memory is not. */
void trial_forget(struct trial *t);
/* Write verdict, texts and statuses into t->out, and free what is the trial's. */
void trial_end(struct trial *t);

/* Its verdict: the worst that was said. Sentences are joined. */
void trial_broken(struct trial *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
void trial_doubt(struct trial *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
void trial_note(struct trial *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
void trial_expect(struct trial *t, int64_t least, int64_t most);

/* --- Operations and requests. --- */

/* A fresh one, or one with another's key and number. Returns its number. */
unsigned trial_operation(struct trial *t, enum drill_payload payload, enum drill_place place);
unsigned trial_operation_like(struct trial *t, unsigned other, enum drill_payload payload,
                              enum drill_place place);

void flight_start(struct trial *t, struct flight *f, unsigned operation, enum phase phase,
                  enum drill_delivery delivery);
/* Its answer into t->sent, and free it. */
void flight_land(struct trial *t, struct flight *f);
void flight_drive(struct trial *t, struct flight *f, enum shot_state state);
void flight_go(struct flight *f);
/* Before its last byte has left: is the server still there? */
bool flight_is_connected(const struct flight *f);

/* Send and read the answer; NULL when t->rc is set. */
const struct answer *trial_send(struct trial *t, unsigned operation, enum phase phase);
void trial_series(struct trial *t, unsigned operation, enum phase phase, unsigned times);
/* All last bytes at once. flights: `times` of them, the caller's. */
void trial_at_once(struct trial *t, unsigned operation, enum phase phase, unsigned times);
/* Repeat until the answer is a definite one, for as long as setup->recover_ms; Retry-After of 429 and 503 is kept to.
 * NULL when t->rc is set. */
const struct answer *trial_confirm(struct trial *t, unsigned operation);

/* --- Answers. --- */

bool answer_is_success(const struct answer *a);
/* Says that the first still runs, or to come again later. */
bool answer_is_busy(const struct answer *a);
/* Says itself that nobody knows what became of the operation: Idempotency-Status: unknown, or a problem document
 * whose type ends in the segment outcome-unknown. */
bool answer_says_unknown(const struct answer *a);
/* 429 or 503: perhaps about the load and not about this request. */
bool answer_is_limit(const struct answer *a);
/* How long such an answer asks to wait; 0 when it does not say. */
int64_t answer_retry_ms(const struct answer *a);
/* Repeating further makes no sense: a profile that judges no statuses takes every refusal for an answer. */
bool answer_is_definite(const struct answer *a, const struct drill_profile *p);
bool answer_equals(const struct answer *a, const struct answer *b);
/* "201" or "no answer (the connection was closed ...)" */
const char *answer_text(char *out, size_t size, const struct answer *a);

/* --- Shell lines. --- */

/* Append to what shows the case. K= and U=, as far as the operation's request uses them; K= alone. */
void curl_variables(struct trial *t, unsigned operation);
void curl_key(struct trial *t, unsigned operation);
void curl_send(struct trial *t, unsigned operation, enum drill_delivery lost);
void curl_repeat(struct trial *t, unsigned operation, unsigned times, bool at_once);
void curl_final(struct trial *t, unsigned operation); /* reads the final state */
void curl_command(struct trial *t, const char *command);
void curl_text(struct trial *t, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
