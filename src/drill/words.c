/* The words of a report: one table for each enum, used in ids, for people and by every format. */
#include "base/assert.h"
#include "drill/drill.h"

const char *drill_verdict_word(enum drill_verdict verdict)
{
    static const char *const words[DRILL_VERDICTS] = {"holds", "broken", "not applicable", "inconclusive"};
    HAPAX_ASSERT(verdict < DRILL_VERDICTS);
    return words[verdict];
}

const char *drill_group_word(enum drill_group group)
{
    static const char *const words[DRILL_GROUPS] = {"check", "matrix",   "repeats", "answers",
                                                    "keys",  "failures", "events"};
    HAPAX_ASSERT(group < DRILL_GROUPS);
    return words[group];
}

const char *drill_axis_word(enum drill_axis axis)
{
    static const char *const words[DRILL_AXES] = {"count", "delivery", "payload", "place", "moment"};
    HAPAX_ASSERT(axis < DRILL_AXES);
    return words[axis];
}

const char *drill_value_word(enum drill_axis axis, unsigned value)
{
    static const char *const words[DRILL_AXES][DRILL_AXIS_VALUES] = {
        [DRILL_COUNT] = {"once", "series", "at-once"},
        [DRILL_DELIVERY] = {"read", "reply-lost", "request-lost"},
        [DRILL_PAYLOAD] = {"same", "reordered", "other"},
        [DRILL_PLACE] = {"here", "other-tenant", "other-path"},
        [DRILL_MOMENT] = {"right-away", "during", "after"},
    };
    HAPAX_ASSERT(axis < DRILL_AXES && value < DRILL_AXIS_VALUES);
    return words[axis][value];
}
