/* What an upstream's answer, or its absence, says about the operation. One table. Pure. */
#ifndef CORE_OUTCOME_H
#define CORE_OUTCOME_H

#include "base/slice.h"

#include <stdint.h>

enum outcome {
    OUTCOME_DONE,     /* the answer is the operation's result */
    OUTCOME_RELEASED, /* certainly not executed: the key is free again */
    OUTCOME_UNKNOWN,  /* nobody can tell */
};

/* How a call ended when there was no complete answer. */
enum call_failure {
    CALL_NOT_SENT, /* name look-up, connect or TLS failed: no byte of the request left */
    CALL_TIMEOUT,  /* sent, no complete answer within the upstream time-out */
    CALL_BROKEN,   /* sent, then reset, closed early or malformed */
};

#define OUTCOME_STATUS_MIN 200
#define OUTCOME_STATUS_MAX 599

/* A route's table: the defaults, overridden by configuration. */
struct outcome_table {
    uint8_t of_status[OUTCOME_STATUS_MAX - OUTCOME_STATUS_MIN + 1]; /* enum outcome */
};

/* 2xx, 3xx, other 4xx, 500, 501, other 5xx: done. 401, 403, 408, 421, 425, 429, 503: released.
 * 502, 504: unknown. */
void outcome_table_default(struct outcome_table *t);
/* Apply one override: "429", "4xx" or "400-499". HAPAX_E_SYNTAX otherwise. */
int outcome_table_set(struct outcome_table *t, struct slice statuses, enum outcome o);

enum outcome outcome_of_status(const struct outcome_table *t, int status); /* outside the range: unknown */
enum outcome outcome_of_failure(enum call_failure f);

/* "done", "released", "unknown" (as in the answer header Hapax-Outcome): 0 or HAPAX_E_SYNTAX. */
int outcome_parse(enum outcome *out, struct slice word);
const char *outcome_name(enum outcome o);

#endif
