/* The record's state machine. Every cell of state x event is written out: what is not listed as
 * allowed is refused on purpose, and a new event does not compile without deciding all four. */
#include "core/record.h"

#include "base/assert.h"
#include "hapax/error.h"

enum { RECORD_STATE_COUNT = 4 };

/* One cell a line. */
/* clang-format off */
#define REFUSE(state) {.next = (state), .allowed = false}

static const struct record_step steps[RECORD_STATE_COUNT][RECORD_EVENT_COUNT] = {
    [RECORD_ABSENT] = {
        [EVENT_CLAIM] = {.next = RECORD_RUNNING, .allowed = true, .new_serial = true},
        [EVENT_TAKE_OVER] = {.next = RECORD_RUNNING, .allowed = true, .new_serial = true},
        [EVENT_COMPLETE] = REFUSE(RECORD_ABSENT),
        [EVENT_RELEASE] = REFUSE(RECORD_ABSENT),
        [EVENT_LOSE] = REFUSE(RECORD_ABSENT),
        [EVENT_EXTEND] = REFUSE(RECORD_ABSENT),
        [EVENT_RESOLVE_DONE] = REFUSE(RECORD_ABSENT),
        [EVENT_RESOLVE_RELEASED] = REFUSE(RECORD_ABSENT),
        [EVENT_FORGET] = REFUSE(RECORD_ABSENT),
        [EVENT_EXPIRE] = REFUSE(RECORD_ABSENT),
    },
    [RECORD_RUNNING] = {
        [EVENT_CLAIM] = REFUSE(RECORD_RUNNING),
        [EVENT_TAKE_OVER] = REFUSE(RECORD_RUNNING),
        [EVENT_COMPLETE] = {.next = RECORD_DONE, .allowed = true, .fenced = true},
        [EVENT_RELEASE] = {.next = RECORD_ABSENT, .allowed = true, .fenced = true},
        [EVENT_LOSE] = {.next = RECORD_UNKNOWN, .allowed = true, .fenced = true},
        [EVENT_EXTEND] = {.next = RECORD_RUNNING, .allowed = true, .fenced = true},
        [EVENT_RESOLVE_DONE] = REFUSE(RECORD_RUNNING),
        [EVENT_RESOLVE_RELEASED] = REFUSE(RECORD_RUNNING),
        [EVENT_FORGET] = REFUSE(RECORD_RUNNING),
        [EVENT_EXPIRE] = REFUSE(RECORD_RUNNING),
    },
    [RECORD_DONE] = {
        [EVENT_CLAIM] = REFUSE(RECORD_DONE), /* a replay */
        [EVENT_TAKE_OVER] = REFUSE(RECORD_DONE),
        [EVENT_COMPLETE] = REFUSE(RECORD_DONE),
        [EVENT_RELEASE] = REFUSE(RECORD_DONE),
        [EVENT_LOSE] = REFUSE(RECORD_DONE),
        [EVENT_EXTEND] = REFUSE(RECORD_DONE),
        [EVENT_RESOLVE_DONE] = REFUSE(RECORD_DONE),
        [EVENT_RESOLVE_RELEASED] = REFUSE(RECORD_DONE),
        [EVENT_FORGET] = {.next = RECORD_ABSENT, .allowed = true},
        [EVENT_EXPIRE] = {.next = RECORD_ABSENT, .allowed = true},
    },
    [RECORD_UNKNOWN] = {
        [EVENT_CLAIM] = REFUSE(RECORD_UNKNOWN), /* held */
        [EVENT_TAKE_OVER] = {.next = RECORD_RUNNING, .allowed = true, .new_attempt = true},
        [EVENT_COMPLETE] = REFUSE(RECORD_UNKNOWN), /* its owner lost the lease and can't overwrite */
        [EVENT_RELEASE] = REFUSE(RECORD_UNKNOWN),
        [EVENT_LOSE] = REFUSE(RECORD_UNKNOWN),
        [EVENT_EXTEND] = REFUSE(RECORD_UNKNOWN),
        [EVENT_RESOLVE_DONE] = {.next = RECORD_DONE, .allowed = true},
        [EVENT_RESOLVE_RELEASED] = {.next = RECORD_ABSENT, .allowed = true},
        [EVENT_FORGET] = {.next = RECORD_ABSENT, .allowed = true},
        [EVENT_EXPIRE] = REFUSE(RECORD_UNKNOWN), /* it stays until somebody decides */
    },
};
/* clang-format on */

_Static_assert(RECORD_EVENT_COUNT == 10, "decide the new event in every state of the table above");

static const char *const names[RECORD_STATE_COUNT] = {
    [RECORD_ABSENT] = "absent",
    [RECORD_RUNNING] = "running",
    [RECORD_DONE] = "done",
    [RECORD_UNKNOWN] = "unknown",
};

struct record_step record_step(enum record_state state, enum record_event event)
{
    HAPAX_ASSERT((unsigned)state < RECORD_STATE_COUNT && (unsigned)event < RECORD_EVENT_COUNT);
    return steps[state][event];
}

enum record_state record_state_at(const struct record *r, int64_t now_ms)
{
    if (r->state == RECORD_RUNNING && now_ms >= r->lease_ms) {
        return RECORD_UNKNOWN;
    }
    if (r->state == RECORD_DONE && now_ms >= r->expires_ms) {
        return RECORD_ABSENT;
    }
    return r->state;
}

const char *record_state_name(enum record_state s)
{
    HAPAX_ASSERT((unsigned)s < RECORD_STATE_COUNT);
    return names[s];
}

int record_state_parse(enum record_state *out, struct slice word)
{
    for (unsigned s = 0; s < RECORD_STATE_COUNT; s++) {
        if (slice_equal(word, slice_text(names[s]))) {
            *out = (enum record_state)s;
            return 0;
        }
    }
    return HAPAX_E_SYNTAX;
}
