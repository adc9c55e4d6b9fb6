/* libhapax: make an operation take effect once.
 *
 *     hapax_open → hapax_begin → (FRESH) do it → hapax_complete
 *                             → (REPLAY)  use the stored answer
 *
 * A handle may be used by any number of threads at once. Calls block until the store has the change on
 * stable storage; calls of concurrent threads share commits. `int` results are 0 or a code of
 * hapax/error.h; `err` may be NULL. Text arguments are NUL-terminated and copied. Times are
 * milliseconds; instants are wall clock since 1970-01-01 UTC.
 *
 * fork() first, open then: a child can use neither a handle of its parent nor open a store that its parent had
 * open when it forked (SQLite's locks belong to the process). After exec() it may. */
#ifndef HAPAX_HAPAX_H
#define HAPAX_HAPAX_H

#include "hapax/error.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HAPAX_API __attribute__((visibility("default")))

#define HAPAX_VERSION "0.1.0" /* of this header; hapax_version() tells the library's */

#define HAPAX_KEY_BYTES_MAX    255
#define HAPAX_SCOPE_BYTES_MAX  4096
#define HAPAX_ANSWER_BYTES_MAX (16U * 1024U * 1024U)

typedef struct hapax hapax;
typedef struct hapax_answer hapax_answer;

/* Zero-initialise; 0 means the default in brackets. */
typedef struct hapax_options {
    size_t size;                  /* sizeof (hapax_options): lets the struct grow */
    uint64_t replay_cache_bytes;  /* answers kept in memory [32 MiB] */
    uint32_t threads_waiting_max; /* callers that wait for a running first one [16384] */
    int64_t busy_ms;              /* longest wait for another process's lock on the store [5000] */
    int allow_unsafe_store; /* not 0: use also a server whose settings may lose commits, for tests [refused] */
} hapax_options;

/* The states of a record and the verdicts of hapax_begin. Numbers never change their meaning. */
typedef enum hapax_state {
    HAPAX_ABSENT = 0,
    HAPAX_RUNNING = 1,
    HAPAX_DONE = 2,
    HAPAX_UNKNOWN_OUTCOME = 3
} hapax_state;

typedef enum hapax_verdict {
    HAPAX_FRESH = 1,       /* the caller holds the claim: do the work, then complete, release or let it go */
    HAPAX_REPLAY = 2,      /* done before; `answer` is what was stored */
    HAPAX_ATTACHED = 3,    /* another caller was doing it; `answer` is what that one stored */
    HAPAX_IN_PROGRESS = 4, /* another caller is doing it, and wait_ms is over: try again later */
    HAPAX_MISMATCH = 5,    /* the key was used for other content: a mistake of the initiator */
    HAPAX_UNKNOWN = 6      /* nobody knows whether it happened: find out, then hapax_resolve */
} hapax_verdict;

/* The proof of a claim. Copy it freely; store it where the work goes on. */
typedef struct hapax_claim {
    uint8_t identity[16];
    uint64_t serial;
    uint32_t attempt; /* 1 for the first; larger after a take-over */
} hapax_claim;

typedef struct hapax_request {
    size_t size;         /* sizeof (hapax_request) */
    const char *scope;   /* the namespace of keys: 1 to HAPAX_SCOPE_BYTES_MAX bytes, no control characters */
    const char *key;     /* 1 to HAPAX_KEY_BYTES_MAX bytes of printable ASCII */
    const void *content; /* what was asked for, compared with the first time; NULL: never compared */
    size_t content_bytes;
    int64_t lease_ms; /* how long the claim may stay silent [30000] */
    int64_t ttl_ms;   /* how long the answer is kept, from the first claim [24 h] */
    int64_t wait_ms;  /* how long to wait for a running first one [0: not at all] */
    int take_over;    /* non-zero: an unknown outcome becomes this caller's next attempt. Only where doing it
                               twice is harmless. */
    int heartbeat;    /* non-zero: the library extends the lease until the claim ends or the process dies */
} hapax_request;

typedef struct hapax_result {
    hapax_verdict verdict;
    hapax_claim claim;    /* FRESH */
    hapax_answer *answer; /* REPLAY, ATTACHED: owned, free with hapax_answer_free; else NULL */
    int64_t claimed_ms;   /* instant of the first claim */
    int64_t lease_ms;     /* instant until which a running claim counts */
    int64_t expires_ms;   /* instant until which a done answer is kept */
} hapax_result;

typedef struct hapax_record {
    hapax_state state;
    hapax_claim claim;
    hapax_answer *answer; /* done: owned, free with hapax_answer_free; else NULL */
    int64_t claimed_ms;
    int64_t lease_ms;
    int64_t ended_ms; /* done or unknown since; 0 while running */
    int64_t expires_ms;
} hapax_record;

/* Open a store and start the engine's threads.
 * `uri`: "sqlite:PATH" (created when absent; parent directory must exist) or "memory:" (gone at close).
 * Durability: what was open under a process that has died is unknown from here on.
 * A database server must be there: HAPAX_E_STORE when it can't be reached (once open, later outages end by themselves).
 * `options` may be NULL. After an error *out is NULL.
 * Results: 0, HAPAX_E_ARGUMENT, HAPAX_E_MEMORY, HAPAX_E_STORE, HAPAX_E_STORE_FULL, HAPAX_E_STORE_CORRUPT,
 * HAPAX_E_STORE_VERSION, HAPAX_E_SYSTEM. */
HAPAX_API int hapax_open(hapax **out, const char *uri, const hapax_options *options, hapax_error *err);

/* Close the handle and free it. No other call may run or follow. Claims that are open stay so in the store; the next
 * open finds them unknown. NULL is fine. */
HAPAX_API void hapax_close(hapax *h);

/* Claim an operation, or learn what became of it.
 * Atomic over all threads and processes on the store; a FRESH verdict is durable.
 * Blocks for one commit, and up to wait_ms when another caller is doing the operation.
 * After an error nothing was claimed and *out is zeroed.
 * Results: 0, HAPAX_E_ARGUMENT, HAPAX_E_LIMIT, HAPAX_E_SYNTAX, HAPAX_E_MISSING, HAPAX_E_BUSY, HAPAX_E_MEMORY,
 * HAPAX_E_STORE, HAPAX_E_STORE_FULL, HAPAX_E_STORE_CORRUPT, HAPAX_E_CLOSED. */
HAPAX_API int hapax_begin(hapax *h, const hapax_request *request, hapax_result *out, hapax_error *err);

/* Store the answer of a claimed operation and end the claim.
 * `answer` (borrowed for the call; NULL with 0 bytes for an empty one) is what every later begin gets.
 * Durable when it returns 0. HAPAX_E_STALE: the lease was lost; somebody else may have the operation, and
 * nothing was changed. After any other error the claim is as it was, and the call may be repeated.
 * Results: 0, HAPAX_E_STALE, HAPAX_E_LIMIT (answer), HAPAX_E_ARGUMENT (no claim of hapax_begin), HAPAX_E_BUSY,
 * HAPAX_E_MEMORY, HAPAX_E_CLOSED, and the store errors of hapax_begin. */
HAPAX_API int hapax_complete(hapax *h, const hapax_claim *claim, const void *answer, size_t answer_bytes,
                             hapax_error *err);

/* Give a claim back: the operation certainly did not happen, the key is free again.
 * Durable when it returns 0. Results as hapax_complete, without HAPAX_E_LIMIT. */
HAPAX_API int hapax_release(hapax *h, const hapax_claim *claim, hapax_error *err);

/* Say that nobody knows whether it happened: the record becomes unknown and is held until it is resolved.
 * Durable when it returns 0. Results as hapax_release. */
HAPAX_API int hapax_lose(hapax *h, const hapax_claim *claim, hapax_error *err);

/* Extend a claim's lease to now + lease_ms (> 0). Durable when it returns 0. Results as hapax_release. */
HAPAX_API int hapax_extend(hapax *h, const hapax_claim *claim, int64_t lease_ms, hapax_error *err);

/* Read a record. Changes nothing. HAPAX_E_NOT_FOUND: never claimed, released, or expired.
 * Results: 0, HAPAX_E_NOT_FOUND, and those of hapax_begin. *out is zeroed after an error. */
HAPAX_API int hapax_lookup(hapax *h, const char *scope, const char *key, hapax_record *out, hapax_error *err);

/* Settle an unknown outcome by what was found out: with `answer` not NULL it happened and this is its
 * answer (0 bytes: pass any pointer); with NULL it did not happen, and the key is free again.
 * Durable; reaches every process's cache within a second.
 * Results: 0, HAPAX_E_NOT_FOUND, HAPAX_E_CONFLICT (the record is not unknown), HAPAX_E_LIMIT, and those of
 * hapax_begin. */
HAPAX_API int hapax_resolve(hapax *h, const char *scope, const char *key, const void *answer,
                            size_t answer_bytes, hapax_error *err);

/* Remove a done or unknown record: the next begin is FRESH. HAPAX_E_CONFLICT: it is running.
 * Durable; reaches every process's cache within a second. Results as hapax_resolve. */
HAPAX_API int hapax_forget(hapax *h, const char *scope, const char *key, hapax_error *err);

/* The bytes of an answer (borrowed until it is freed); never NULL. *bytes may be 0. */
HAPAX_API const void *hapax_answer_data(const hapax_answer *a, size_t *bytes);
/* The HTTP status of an answer that a gateway stored; 0 for answers of hapax_complete. */
HAPAX_API int hapax_answer_status(const hapax_answer *a);
HAPAX_API void hapax_answer_free(hapax_answer *a); /* NULL is fine */

/* "0.1.0"; a static string. */
HAPAX_API const char *hapax_version(void);

#ifdef __cplusplus
}
#endif
#endif
