/* The checks before everything, many repeats, and what a repeat's answer looks like. */
#include "drill/cases.h"

#include "base/clock.h"
#include "drill/answers.h"

#include <stdio.h>

#define EXCERPT_TEXT_MAX 200

/* --- Checks. ------------------------------------------------------------------------------------- */

/* One effect of one request, however late it comes; learns how late that is. */
static bool takes_effect_once(struct trial *t, unsigned operation)
{
    trial_expect(t, 1, 1);
    curl_variables(t, operation);
    curl_send(t, operation, DRILL_READ);
    int64_t began = clock_mono_ms();
    const struct answer *a = trial_send(t, operation, PHASE_FIRST);
    int64_t took_ms = clock_mono_ms() - began;
    t->d->normal_ms = took_ms > t->d->normal_ms ? took_ms : t->d->normal_ms;
    t->d->effects.learns = true;
    trial_count(t, a != NULL && answer_is_success(a) ? 1 : 0);
    t->d->effects.learns = false;
    if (t->rc != 0) {
        return false;
    }
    char text[EXCERPT_TEXT_MAX];
    if (a->result != WIRE_ANSWERED) {
        t->d->unreachable = a->result == WIRE_NO_CONNECTION;
        trial_doubt(t, "the request gets %s", answer_text(text, sizeof text, a));
    } else if (!answer_is_success(a)) {
        trial_doubt(t, "the request is refused with %d: \"%.*s\"", a->status, SLICE_FORMAT(a->excerpt));
    } else if (t->effects == 0) {
        trial_doubt(t,
                    "the answer is %d, but no effect was counted within %lld ms: the counter is wrong, or "
                    "the endpoint "
                    "works later than --settle-max",
                    a->status, (long long)t->d->setup->settle_ms_max);
    } else if (t->effects != 1) {
        trial_doubt(
            t,
            "one request made the counter move by %lld: it counts something else, or somebody else uses it",
            (long long)t->effects);
    }
    return t->verdict == DRILL_HOLDS;
}

/* The answer outlives the case. */
static void keep_normal(struct trial *t, const struct answer *a)
{
    t->d->normal = *a;
    t->d->normal.headers = NULL;
    t->d->normal.header_count = 0;
    t->d->normal.excerpt = SLICE_LITERAL("");
    t->d->normal.detail = "";
}

void case_one_effect(struct trial *t)
{
    unsigned a = trial_operation(t, DRILL_SAME, DRILL_HERE);
    if (!trial_is_idle(t)) {
        trial_doubt(t, "the counter moves while nothing is sent: somebody else uses the endpoint");
        return;
    }
    if (takes_effect_once(t, a)) {
        keep_normal(t, &t->sent[0].answer);
    }
}

static void usable(struct trial *t, enum drill_payload payload, enum drill_place place, unsigned which)
{
    t->d->usable[which] = takes_effect_once(t, trial_operation(t, payload, place));
}

void case_usable_payload(struct trial *t)
{
    usable(t, DRILL_OTHER, DRILL_HERE, 0);
}

void case_usable_tenant(struct trial *t)
{
    usable(t, DRILL_SAME, DRILL_OTHER_TENANT, DRILL_OTHER_TENANT);
}

void case_usable_path(struct trial *t)
{
    usable(t, DRILL_SAME, DRILL_OTHER_PATH, DRILL_OTHER_PATH);
}

/* --- Repeats. ------------------------------------------------------------------------------------ */

static void finish_one(struct trial *t, bool overlapped)
{
    const struct answer *last = trial_confirm(t, 0);
    trial_expect(t, 1, 1);
    trial_count(t, 1);
    if (t->rc == 0) {
        judge_effects(t);
        judge_one_operation(t, 0, overlapped, last);
    }
}

void case_hundred_series(struct trial *t)
{
    unsigned a = trial_operation(t, DRILL_SAME, DRILL_HERE);
    curl_variables(t, a);
    curl_repeat(t, a, DRILL_REPEAT_TIMES, false);
    trial_series(t, a, PHASE_REPEAT, DRILL_REPEAT_TIMES);
    finish_one(t, false);
}

void case_hundred_at_once(struct trial *t)
{
    unsigned a = trial_operation(t, DRILL_SAME, DRILL_HERE);
    curl_variables(t, a);
    curl_repeat(t, a, DRILL_REPEAT_TIMES, true);
    trial_at_once(t, a, PHASE_REPEAT, DRILL_REPEAT_TIMES);
    finish_one(t, true);
}

static void show_race(struct trial *t, unsigned operation)
{
    const struct drill_setup *s = t->d->setup;
    curl_text(t, "for r in $(seq %u); do ", s->rounds);
    curl_variables(t, operation);
    curl_repeat(t, operation, s->times, true);
    curl_text(t, "; done");
}

/* A race is lost now and then only: many fresh keys, N at once each. Each has its own effect, so that one key's second
 * does not make up for another's that is missing. */
void case_race(struct trial *t)
{
    const struct drill_setup *s = t->d->setup;
    const struct answer *last[TRIAL_OPERATIONS_MAX] = {NULL};
    bool ahead = false;
    bool behind = false;
    for (unsigned round = 0; round < s->rounds && t->rc == 0; round++) {
        int64_t seen = round > 0 ? t->effects : 0;
        unsigned a = trial_operation(t, DRILL_SAME, DRILL_HERE);
        if (round == 0) {
            show_race(t, a);
        }
        trial_at_once(t, a, PHASE_REPEAT, s->times);
        last[round] = trial_confirm(t, a);
        trial_count(t, seen + 1);
        ahead = ahead || t->effects > (int64_t)round + 1;
        behind = behind || t->effects < (int64_t)round + 1;
    }
    trial_expect(t, s->rounds, s->rounds);
    if (t->rc != 0) {
        return;
    }
    bool good = judge_effects(t);
    if (good && ahead) {
        trial_broken(t, "one key took effect twice, and another not at all");
    } else if (good && behind) {
        trial_doubt(t, "an effect came later than --settle-max");
    } else if (!good && t->verdict == DRILL_BROKEN) {
        trial_broken(t, "%u keys, each sent %u times at once", s->rounds, s->times);
    }
    for (unsigned round = 0; good && round < s->rounds; round++) {
        judge_one_operation(t, round, true, last[round]);
    }
}

/* --- Answers. ------------------------------------------------------------------------------------ */

/* The first answer and `repeats` further ones, each when its forerunner is through. NULL: t->rc is set, or it was no success. */
static const struct answer *send_and_repeat(struct trial *t, unsigned repeats)
{
    unsigned a = trial_operation(t, DRILL_SAME, DRILL_HERE);
    curl_variables(t, a);
    curl_repeat(t, a, 1 + repeats, false);
    const struct answer *first = trial_send(t, a, PHASE_FIRST);
    trial_count(t, 1);
    trial_series(t, a, PHASE_REPEAT, repeats);
    if (t->rc == 0 && !answer_is_success(first)) {
        trial_doubt(t, "the first request was answered with %d", first->status);
    }
    return t->rc == 0 && answer_is_success(first) ? first : NULL;
}

static void count_one(struct trial *t)
{
    trial_expect(t, 1, 1);
    trial_count(t, 1);
    judge_effects(t);
}

void case_answer_repeats(struct trial *t)
{
    if (send_and_repeat(t, 4) != NULL) {
        count_one(t);
        judge_one_operation(t, 0, false, NULL);
    }
}

void case_answer_empty(struct trial *t)
{
    const struct answer *first = send_and_repeat(t, 2);
    if (first != NULL) {
        count_one(t);
    }
    if (first != NULL && first->body_bytes > 0 && t->verdict == DRILL_HOLDS) {
        trial_note(t, "this time the answer was not empty");
    }
}

static void tell_change(struct trial *t, const struct answer *first, const struct answer *repeat,
                        struct slice name)
{
    switch (answer_header_change(first, repeat, name)) {
    case HEADER_LOST:
        trial_broken(t, "%.*s is missing from the repeat", SLICE_FORMAT(name));
        break;
    case HEADER_COUNT:
        trial_broken(t, "%.*s: %zu lines at first, %zu in the repeat", SLICE_FORMAT(name),
                     answer_lines(first, name), answer_lines(repeat, name));
        break;
    case HEADER_CHANGED:
        trial_broken(t, "%.*s has another value in the repeat", SLICE_FORMAT(name));
        break;
    case HEADER_SAME:
        break;
    }
}

enum which_headers { ALL_BUT_COOKIES, ONLY_COOKIES, ONLY_MULTIPLE };

static bool is_looked_at(const struct trial *t, const struct answer *first, struct slice name,
                         enum which_headers which)
{
    bool cookie = slice_equal_nocase(name, SLICE_LITERAL("set-cookie"));
    bool multiple = answer_lines(first, name) > 1;
    if (!answer_header_counts(t->d->setup, name)) {
        return false;
    }
    return which == ONLY_COOKIES    ? cookie
           : which == ONLY_MULTIPLE ? multiple && !cookie
                                    : !cookie && !multiple;
}

static bool is_first_line(const struct answer *a, size_t at)
{
    for (size_t i = 0; i < at; i++) {
        if (slice_equal_nocase(a->headers[i].name, a->headers[at].name)) {
            return false;
        }
    }
    return true;
}

static void compare_headers(struct trial *t, enum which_headers which, const char *none)
{
    const struct answer *first = send_and_repeat(t, 1);
    size_t looked_at = 0;
    count_one(t);
    if (first == NULL || t->rc != 0) {
        return;
    }
    const struct answer *repeat = &t->sent[1].answer;
    if (!answer_is_success(repeat)) {
        judge_one_operation(t, 0, false, NULL);
        return;
    }
    for (size_t i = 0; i < first->header_count; i++) {
        struct slice name = first->headers[i].name;
        if (is_first_line(first, i) && is_looked_at(t, first, name, which)) {
            looked_at++;
            tell_change(t, first, repeat, name);
        }
    }
    if (looked_at == 0 && t->verdict == DRILL_HOLDS) {
        t->verdict = DRILL_NOT_APPLICABLE;
        (void)buf_append_text(&t->why, none);
    }
}

void case_answer_headers(struct trial *t)
{
    compare_headers(t, ALL_BUT_COOKIES, "the answer has no headers but those of its exchange");
}

void case_answer_multiple(struct trial *t)
{
    compare_headers(t, ONLY_MULTIPLE, "no header of the answer has several lines");
}

void case_answer_cookies(struct trial *t)
{
    compare_headers(t, ONLY_COOKIES, "the answer sets no cookie");
}
