/* The gateway's own answers: application/problem+json (RFC 9457), each with one stable type, the status
 * from one table, and a detail that says what to do. They never repeat what a client sent. */
#ifndef GATEWAY_PROBLEM_H
#define GATEWAY_PROBLEM_H

#include "base/slice.h"

#include <stdbool.h>
#include <stdint.h>

/* The marker header Idempotency-Status of an answer. */
enum marker {
    MARK_NONE, /* a route without protection, or not a route at all */
    MARK_EXECUTED,
    MARK_REPLAYED,
    MARK_ATTACHED,
    MARK_UNPROTECTED,
    MARK_HELD,     /* refused: an earlier attempt's outcome is unknown */
    MARK_UNKNOWN,  /* this attempt's outcome is unknown */
    MARK_RELEASED, /* certainly not executed; the key is free again */
    MARK_IN_PROGRESS,
    MARK_REJECTED, /* refused before any claim; nothing was executed by this request */
    MARK_COUNT
};

const char *marker_name(enum marker m); /* NULL for MARK_NONE */

/* May the same request simply be sent again? */
enum problem_again {
    AGAIN_NO,
    AGAIN_YES,         /* nothing was executed, or the key makes it safe and it leads further */
    AGAIN_IF_HARMLESS, /* it may have been carried out without protection */
    AGAIN_BY_ROUTE,    /* nobody knows whether it was executed: yes where the route finds out by itself */
};

/* name, type, status, AGAIN_*, retry after where it may be (s, 0: no header), marker, title */
#define PROBLEM_LIST(X)                                                                                      \
    X(KEY_MISSING, "key-missing", 400, NO, 0, REJECTED, "Idempotency key missing")                           \
    X(KEY_INVALID, "key-invalid", 400, NO, 0, REJECTED, "Idempotency key malformed")                         \
    X(BODY_INVALID, "body-invalid", 400, NO, 0, REJECTED, "Request body malformed")                          \
    X(KEY_REUSED, "key-reused", 422, NO, 0, REJECTED, "Key used before for another request")                 \
    X(IN_PROGRESS, "in-progress", 409, YES, 1, IN_PROGRESS, "The first request with this key still runs")    \
    X(OUTCOME_HELD, "outcome-unknown", 409, BY_ROUTE, 1, HELD, "Outcome of an earlier attempt unknown")      \
    X(OUTCOME_UNKNOWN, "outcome-unknown", 502, BY_ROUTE, 1, UNKNOWN, "Outcome unknown")                      \
    X(OUTCOME_TIMEOUT, "outcome-unknown", 504, BY_ROUTE, 1, UNKNOWN, "Outcome unknown")                      \
    X(OUTCOME_UNSTORED, "outcome-unknown", 502, YES, 1, UNKNOWN, "Outcome unknown")                          \
    X(CLAIM_LOST, "outcome-unknown", 409, YES, 1, HELD, "Outcome unknown")                                   \
    X(ANSWER_NOT_KEPT, "answer-not-kept", 409, NO, 0, REPLAYED, "Done before, answer not kept")              \
    X(BODY_TOO_LARGE, "body-too-large", 413, NO, 0, REJECTED, "Request body too large")                      \
    X(UPSTREAM_UNREACHABLE, "upstream-unreachable", 502, YES, 1, RELEASED, "Upstream unreachable")           \
    X(STORE_UNAVAILABLE, "store-unavailable", 503, YES, 1, REJECTED, "Store unavailable")                    \
    X(OVERLOADED, "overloaded", 503, YES, 1, REJECTED, "Too much at once")                                   \
    X(TOO_MANY_RUNNING, "overloaded", 429, YES, 1, REJECTED, "Too many operations running")                  \
    X(NO_ROUTE, "no-route", 404, NO, 0, NONE, "No route for this path")                                      \
    X(MALFORMED, "malformed-request", 400, NO, 0, NONE, "Malformed HTTP request")                            \
    X(HEAD_TOO_LARGE, "head-too-large", 431, NO, 0, NONE, "Request head too large")                          \
    X(EXPECTATION, "expectation-unknown", 417, NO, 0, NONE, "Unknown expectation")                           \
    X(UPGRADE, "upgrade-unsupported", 501, NO, 0, NONE, "Upgrade and CONNECT are not supported")             \
    X(VERSION, "version-unsupported", 505, NO, 0, NONE, "HTTP version not supported")                        \
    X(REQUEST_TIMEOUT, "request-timeout", 408, IF_HARMLESS, 0, NONE, "The request did not arrive in time")   \
    X(UPSTREAM_TIMEOUT, "upstream-timeout", 504, IF_HARMLESS, 0, UNPROTECTED,                                \
      "Upstream did not answer in time")                                                                     \
    X(UPSTREAM_BROKEN, "upstream-broken", 502, IF_HARMLESS, 0, UNPROTECTED, "Upstream broke the answer off") \
    X(INTERNAL, "internal", 500, YES, 0, NONE, "The gateway could not do this")

enum problem {
#define PROBLEM_ENUM(name, type, status, again, after, marker, title) PROBLEM_##name,
    PROBLEM_LIST(PROBLEM_ENUM)
#undef PROBLEM_ENUM
        PROBLEM_COUNT
};

#define PROBLEM_TYPE_PREFIX "urn:hapax:problem:"

struct problem_info {
    const char *type;
    int status;
    enum problem_again again;
    int retry_after_s;
    enum marker marker;
    const char *title;
};

const struct problem_info *problem_info(enum problem p);
/* The member "retryable". `harmless`: carrying the request out twice is as good as once, or none of it went upstream
 * unprotected; `asks`: when the request comes again, its route finds out what became of an unknown one. */
bool problem_retryable(enum problem p, bool harmless, bool asks);

/* What a problem may tell beyond its detail; 0 and NULL leave a member out. */
struct problem_members {
    const char *operation;    /* hex digest of the identity */
    int64_t first_claimed_ms; /* wall clock */
    uint32_t attempt;
    int original_status; /* of an answer that was not kept, or of the upstream's ambiguous answer */
    int64_t limit_bytes;
};

enum { PROBLEM_BYTES_MAX = 4096 };
/* The JSON document, in the caller's storage. Needs no memory and never fails; a detail of over 512 bytes is cut. */
struct slice problem_body(char storage[PROBLEM_BYTES_MAX], enum problem p, const char *detail, bool retryable,
                          const struct problem_members *members);

#endif
