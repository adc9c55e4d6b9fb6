/* The table of profiles. */
#include "drill/profile.h"

static const struct drill_profile profiles[] = {
    {.name = "draft",
     .summary =
         "the IETF draft of Idempotency-Key: 400 without a key, 422 for another payload, 409 or waiting "
         "while the first runs, the first answer afterwards",
     .quoted_keys = true,
     .answers_compare = true,
     .statuses_count = true,
     .key_required = true,
     .failure_kept = true,
     .missing = {400},
     .malformed = {400, 414, 431},
     .other_payload = {422},
     .in_flight = {409, 425, 429, 503}},
    {.name = "stripe",
     .summary =
         "bare keys that may be left out, 400 for another payload, 409 while the first runs, the first "
         "answer afterwards, also a 500",
     .answers_compare = true,
     .statuses_count = true,
     .failure_kept = true,
     .other_payload = {400},
     .in_flight = {409, 429, 503}},
    {.name = "webhook",
     .summary =
         "duplicates are answered with success, or with an error that has them sent again while the first "
         "runs; bodies do not matter",
     .statuses_count = true,
     .in_flight = {409, 423, 425, 429, 500, 502, 503, 504}},
    {.name = "queue", .summary = "only effects are judged, no answer is"},
};

const struct drill_profile *drill_profile_named(const char *name)
{
    for (size_t i = 0; i < sizeof profiles / sizeof profiles[0]; i++) {
        if (strcmp(profiles[i].name, name) == 0) {
            return &profiles[i];
        }
    }
    return NULL;
}

bool profile_lists(const short *list, int status)
{
    for (size_t i = 0; i < PROFILE_STATUSES_MAX && list[i] != 0; i++) {
        if (list[i] == status) {
            return true;
        }
    }
    return false;
}
