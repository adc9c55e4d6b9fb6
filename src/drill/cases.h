/* The cases: what each sends and how it is judged. Each runs between trial_begin() and trial_end(). */
#ifndef DRILL_CASES_H
#define DRILL_CASES_H

#include "drill/machine.h"

/* cell.c, judge.c */
void case_cell(struct trial *t);
void judge_cell(struct trial *t);

/* --- Parts of judging. judge.c --- */

/* "2 effects instead of 1" as a finding, when they are not within what trial_expect() said. */
bool judge_effects(struct trial *t);
/* One operation, sent several times: every answer is the same success; a duplicate may be told to wait while `overlapped`.
 * `last`: what trial_confirm() got, NULL without it. */
void judge_one_operation(struct trial *t, unsigned operation, bool overlapped, const struct answer *last);
/* After trial_confirm(): did the key come to rest? */
bool judge_rest(struct trial *t, const struct answer *last);

/* cases.c */
void case_one_effect(struct trial *t); /* the check before everything; the answer becomes d->normal */
void case_usable_payload(struct trial *t);
void case_usable_tenant(struct trial *t);
void case_usable_path(struct trial *t);
void case_answer_repeats(struct trial *t);
void case_answer_empty(struct trial *t);
void case_answer_headers(struct trial *t);
void case_answer_multiple(struct trial *t);
void case_answer_cookies(struct trial *t);
void case_hundred_series(struct trial *t);
void case_hundred_at_once(struct trial *t);
void case_race(struct trial *t);

/* cases_keys.c: by the id of the case */
void case_key(struct trial *t);

/* cases_failures.c */
void case_failure(struct trial *t);
void case_restart_during(struct trial *t);
void case_restart_after(struct trial *t);

/* events.c */
void case_event_orders(struct trial *t);
void case_event_twice(struct trial *t);

#endif
