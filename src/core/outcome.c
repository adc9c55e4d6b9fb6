/* The table of outcomes: which statuses say done, released or unknown, and how a route changes it.
 * The rule behind the defaults: released only where the upstream says that it did not act (or asks to
 * be asked again), unknown where an intermediary answered in its place, done otherwise. */
#include "core/outcome.h"

#include "base/assert.h"
#include "hapax/error.h"

enum { OUTCOME_COUNT = 3 };

static const char *const names[OUTCOME_COUNT] = {
    [OUTCOME_DONE] = "done",
    [OUTCOME_RELEASED] = "released",
    [OUTCOME_UNKNOWN] = "unknown",
};

static const struct {
    uint16_t status;
    enum outcome outcome;
} exceptions[] = {
    {401, OUTCOME_RELEASED},                          /* asked again with credentials */
    {403, OUTCOME_RELEASED}, {408, OUTCOME_RELEASED}, /* the request never arrived in whole */
    {421, OUTCOME_RELEASED}, {425, OUTCOME_RELEASED}, {429, OUTCOME_RELEASED},
    {502, OUTCOME_UNKNOWN}, /* a proxy behind us answers for a server that may have acted */
    {503, OUTCOME_RELEASED}, {504, OUTCOME_UNKNOWN},
};

static void set_range(struct outcome_table *t, int first, int last, enum outcome o)
{
    memset(t->of_status + (first - OUTCOME_STATUS_MIN), (int)o, (size_t)(last - first + 1));
}

void outcome_table_default(struct outcome_table *t)
{
    set_range(t, OUTCOME_STATUS_MIN, OUTCOME_STATUS_MAX, OUTCOME_DONE);
    for (size_t i = 0; i < sizeof exceptions / sizeof exceptions[0]; i++) {
        set_range(t, exceptions[i].status, exceptions[i].status, exceptions[i].outcome);
    }
}

/* Three digits of a status that the table has, else -1. */
static int parse_status(struct slice text)
{
    int status = 0;
    if (text.len != 3) {
        return -1;
    }
    for (size_t i = 0; i < 3; i++) {
        if (text.ptr[i] < '0' || text.ptr[i] > '9') {
            return -1;
        }
        status = status * 10 + (text.ptr[i] - '0');
    }
    return status >= OUTCOME_STATUS_MIN && status <= OUTCOME_STATUS_MAX ? status : -1;
}

int outcome_table_set(struct outcome_table *t, struct slice statuses, enum outcome o)
{
    HAPAX_ASSERT((unsigned)o < OUTCOME_COUNT);
    int first = -1;
    int last = -1;
    if (statuses.len == 3 && statuses.ptr[1] == 'x' && statuses.ptr[2] == 'x') {
        if (statuses.ptr[0] >= '2' && statuses.ptr[0] <= '5') {
            first = (statuses.ptr[0] - '0') * 100;
            last = first + 99;
        }
    } else if (statuses.len == 7 && statuses.ptr[3] == '-') {
        first = parse_status((struct slice){statuses.ptr, 3});
        last = parse_status((struct slice){statuses.ptr + 4, 3});
    } else {
        first = parse_status(statuses);
        last = first;
    }
    if (first < 0 || last < first) {
        return HAPAX_E_SYNTAX;
    }
    set_range(t, first, last, o);
    return 0;
}

enum outcome outcome_of_status(const struct outcome_table *t, int status)
{
    if (status < OUTCOME_STATUS_MIN || status > OUTCOME_STATUS_MAX) {
        return OUTCOME_UNKNOWN;
    }
    return (enum outcome)t->of_status[status - OUTCOME_STATUS_MIN];
}

enum outcome outcome_of_failure(enum call_failure f)
{
    switch (f) {
    case CALL_NOT_SENT:
        return OUTCOME_RELEASED;
    case CALL_TIMEOUT:
    case CALL_BROKEN:
        break;
    }
    return OUTCOME_UNKNOWN;
}

int outcome_parse(enum outcome *out, struct slice word)
{
    for (unsigned o = 0; o < OUTCOME_COUNT; o++) {
        if (slice_equal(word, slice_text(names[o]))) {
            *out = (enum outcome)o;
            return 0;
        }
    }
    return HAPAX_E_SYNTAX;
}

const char *outcome_name(enum outcome o)
{
    HAPAX_ASSERT((unsigned)o < OUTCOME_COUNT);
    return names[o];
}
