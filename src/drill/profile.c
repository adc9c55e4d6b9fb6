/* The table of profiles. */
#include "drill/profile.h"

static const struct drill_profile profiles[] = {
    {.name = "draft",
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
     .answers_compare = true,
     .statuses_count = true,
     .failure_kept = true,
     .other_payload = {400},
     .in_flight = {409, 429, 503}},
    {.name = "webhook", .statuses_count = true, .in_flight = {409, 423, 425, 429, 500, 502, 503, 504}},
    {.name = "queue"},
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
