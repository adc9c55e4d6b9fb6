/* The record: what a store holds about an identity, and its state machine as one table.
 *
 * Absent is a state of its own here, so that every event has a defined result in every state. A
 * claim's fence names it for ever: `serial` is unique over the life of a store (a record that was
 * released and claimed again has a new one), `attempt` counts the take-overs of one record from 1.
 * Every change of a running record names its fence; another fence is refused as stale.
 *
 * Expiry: only a done record expires (expires_ms). A running one whose lease ran out is unknown from
 * that instant, whether or not a store has already written so. An unknown one stays until it is
 * taken over, resolved or forgotten. Pure. */
#ifndef CORE_RECORD_H
#define CORE_RECORD_H

#include "core/answer.h"
#include "core/fingerprint.h"
#include "core/identity.h"

#include <stdint.h>

/* The numbers are stored: only ever appended to. */
enum record_state { RECORD_ABSENT = 0, RECORD_RUNNING = 1, RECORD_DONE = 2, RECORD_UNKNOWN = 3 };

struct fence {
    uint64_t serial;
    uint32_t attempt;
};

static inline bool fence_equal(struct fence a, struct fence b)
{
    return a.serial == b.serial && a.attempt == b.attempt;
}

struct record {
    enum record_state state;
    struct fence fence;
    struct fingerprint fingerprint;
    uint64_t owner;     /* store's number of the owner that claimed it last */
    int64_t claimed_ms; /* wall clock: the first claim */
    int64_t lease_ms;   /* wall clock: running is unknown from here on */
    int64_t ended_ms;   /* wall clock: done or unknown since; 0 while running */
    int64_t expires_ms; /* wall clock: done is absent from here on; first claim + ttl, see store.h */
    int64_t ttl_ms;     /* as asked for by the last claim */
};

enum record_event {
    EVENT_CLAIM,     /* begin, without leave to take over */
    EVENT_TAKE_OVER, /* begin, where on_unknown is retry */
    EVENT_COMPLETE,
    EVENT_RELEASE,
    EVENT_LOSE, /* the owner says: ambiguous; or it died; or its lease ran out */
    EVENT_EXTEND,
    EVENT_RESOLVE_DONE,
    EVENT_RESOLVE_RELEASED,
    EVENT_FORGET,
    EVENT_EXPIRE,
    RECORD_EVENT_COUNT
};

/* What happens to the record, and who may cause it. */
struct record_step {
    enum record_state next;
    bool allowed;     /* false: the event is refused, next equals the state */
    bool fenced;      /* allowed only to the holder of the current fence */
    bool new_serial;  /* the claim gets a new serial and attempt 1 */
    bool new_attempt; /* the claim keeps the serial and gets the next attempt */
};

struct record_step record_step(enum record_state state, enum record_event event);

/* The state at `now_ms`: a running record past its lease is unknown, a done one past its expiry absent. */
enum record_state record_state_at(const struct record *r, int64_t now_ms);

const char *record_state_name(enum record_state s); /* "running", ... */
int record_state_parse(enum record_state *out, struct slice word);

#endif
