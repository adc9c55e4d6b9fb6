/* What is expected of an endpoint besides its effects: one table. Effects are judged in every profile alike. */
#ifndef DRILL_PROFILE_H
#define DRILL_PROFILE_H

#include "drill/setup.h"

#define PROFILE_STATUSES_MAX 8 /* of a list; ends with 0 */

struct drill_profile {
    const char *name;
    bool quoted_keys;     /* "..." is a part of the header's value (RFC 8941 string) */
    bool answers_compare; /* a repeat gets the first answer: status, body, headers */
    bool statuses_count;  /* statuses outside of the lists below are findings */
    bool key_required;    /* a missing or malformed key must be refused */
    bool failure_kept;    /* 500 and 501 may be the answer for good: an error is a result, too */
    short missing[PROFILE_STATUSES_MAX];
    short malformed[PROFILE_STATUSES_MAX];
    short other_payload[PROFILE_STATUSES_MAX]; /* empty: any */
    short in_flight[PROFILE_STATUSES_MAX];     /* a duplicate may also wait, and get the answer */
};

bool profile_lists(const short *list, int status);

#endif
