/* From effects and answers to a verdict. Effects are judged first and in every profile; statuses and bodies only as far as
 * the profile says something about them. */
#include "drill/answers.h"
#include "drill/cases.h"

#include <stdio.h>

#define ANSWER_TEXT_MAX 200

/* --- Effects. ------------------------------------------------------------------------------------ */

static bool is_any_answered(const struct trial *t)
{
    for (size_t i = 0; i < t->sent_count; i++) {
        if (t->sent[i].answer.result == WIRE_ANSWERED) {
            return true;
        }
    }
    return false;
}

bool judge_effects(struct trial *t)
{
    long long seen = t->effects;
    long long least = t->out->effects_least;
    long long most = t->out->effects_most;
    if (t->rc != 0 || seen < 0) {
        return false;
    }
    if (seen <= most && t->moving) {
        trial_doubt(t, "effects still came when --settle-max was over: %lld so far", seen);
        return false;
    }
    if (seen >= least && seen <= most) {
        return true;
    }
    bool idle = seen <= most || t->moving || trial_is_idle(t);
    if (t->rc != 0) {
        return false; /* nobody knows whose they are */
    }
    if (!idle) {
        trial_doubt(
            t,
            "%lld effects instead of %lld, but the counter moves while nothing is sent, too: somebody "
            "else uses the endpoint",
            seen, most);
        return false;
    }
    if (seen < least && !is_any_answered(t)) {
        trial_doubt(t, "%lld effects instead of %lld, but no request was answered", seen, least);
        return false;
    }
    if (seen == 0) {
        trial_broken(t, "no effect at all, where there should be %lld", least);
    } else {
        trial_broken(t, "%lld effect%s instead of %lld", seen, seen == 1 ? "" : "s",
                     seen > most ? most : least);
    }
    if (seen > most && t->d->normal.result == WIRE_ANSWERED && t->d->normal.body_bytes == 0) {
        trial_broken(t, "its answers are empty (%d): is a kept empty answer taken for none?",
                     t->d->normal.status);
    }
    return false;
}

/* --- Answers. ------------------------------------------------------------------------------------ */

static void unexpected(struct trial *t, const char *who, const struct answer *a, unsigned times,
                       const char *expected)
{
    char text[ANSWER_TEXT_MAX];
    char often[32] = "";
    if (times > 1) {
        snprintf(often, sizeof often, "%u times ", times);
    }
    if (answer_is_limit(a)) {
        trial_doubt(t, "%s was %sanswered with %d: the endpoint limits its load, perhaps", who, often,
                    a->status);
    } else {
        trial_broken(t, "%s was %sanswered with %s; %s", who, often, answer_text(text, sizeof text, a),
                     expected);
    }
}

static const char *list_text(char *out, size_t size, const short *list)
{
    size_t used = 0;
    for (size_t i = 0; i < PROFILE_STATUSES_MAX && list[i] != 0 && used < size; i++) {
        int n = snprintf(out + used, size - used, "%s%d", i > 0 ? ", " : "", list[i]);
        used += n > 0 ? (size_t)n : 0;
    }
    return out;
}

/* What one operation's answers come to. */
struct tally {
    const struct answer *success; /* the first one */
    const struct answer *changed; /* a success that differs from it */
    const struct answer *silent;
    const struct answer *refused; /* with a status for other payloads */
    const struct answer *busy;    /* told to wait */
    const struct answer *failed;  /* anything else */
    unsigned success_times;
    unsigned changed_times;
    unsigned silent_times;
    unsigned refused_times;
    unsigned busy_times;
    unsigned failed_times;
};

#define NOTE(tally, what, answer)                                                                            \
    ((tally)->what = (tally)->what != NULL ? (tally)->what : (answer), (tally)->what##_times++)

/* Of one operation, all phases; repeats that wait for the confirmation's end are a part of confirming, and not counted. */
static struct tally count_answers(const struct trial *t, unsigned operation, bool confirming)
{
    const struct drill_profile *p = t->d->profile;
    struct tally out = {0};
    for (size_t i = 0; i < t->sent_count; i++) {
        const struct answer *a = &t->sent[i].answer;
        bool confirmation = t->sent[i].phase == PHASE_CONFIRM;
        if (t->sent[i].operation != operation || confirmation != confirming || a->result == WIRE_LOST) {
            continue;
        }
        if (a->result != WIRE_ANSWERED) {
            NOTE(&out, silent, a);
        } else if (answer_is_success(a)) {
            NOTE(&out, success, a);
            if (!answer_equals(out.success, a)) {
                NOTE(&out, changed, a);
            }
        } else if (profile_lists(p->other_payload, a->status)) {
            NOTE(&out, refused, a);
        } else if (profile_lists(p->in_flight, a->status)) {
            NOTE(&out, busy, a);
            out.busy = answer_is_limit(out.busy) ? a : out.busy;
        } else {
            NOTE(&out, failed, a);
        }
    }
    return out;
}

static void judge_silence(struct trial *t, const struct tally *n)
{
    if (n->silent_times > 0) {
        trial_doubt(t, "%u request%s got no answer: %s", n->silent_times, n->silent_times == 1 ? "" : "s",
                    n->silent->detail);
    }
}

static void judge_change(struct trial *t, const struct tally *n, const struct answer *other)
{
    const struct answer *changed = n->changed;
    if (changed == NULL && other != NULL && n->success != NULL && !answer_equals(n->success, other)) {
        changed = other;
    }
    if (!t->d->profile->answers_compare || changed == NULL || n->success == NULL) {
        return;
    }
    if (changed->status != n->success->status) {
        trial_broken(t, "the answer changed on repeat: %d, then %d", n->success->status, changed->status);
    } else {
        trial_broken(t, "the answer changed on repeat: \"%.*s\", then \"%.*s\"",
                     SLICE_FORMAT(n->success->excerpt), SLICE_FORMAT(changed->excerpt));
    }
}

bool judge_rest(struct trial *t, const struct answer *last)
{
    if (t->rc != 0 || last == NULL) {
        return false;
    }
    char text[ANSWER_TEXT_MAX];
    if (answer_says_unknown(last)) {
        trial_doubt(t, "the endpoint says that the outcome is unknown (%d)", last->status);
    } else if (last->result == WIRE_NO_CONNECTION) {
        trial_doubt(t, "at last the endpoint can't be reached: %s", last->detail);
    } else if (!answer_is_definite(last, t->d->profile)) {
        trial_broken(t, "the key is stuck: at last a repeat is still answered with %s",
                     answer_text(text, sizeof text, last));
    } else {
        return true;
    }
    return false;
}

void judge_one_operation(struct trial *t, unsigned operation, bool overlapped, const struct answer *last)
{
    struct tally n = count_answers(t, operation, false);
    bool rests = last != NULL && judge_rest(t, last);
    judge_silence(t, &n);
    if (!t->d->profile->statuses_count) {
        return;
    }
    if (n.failed_times > 0) {
        unexpected(t, "a duplicate", n.failed, n.failed_times,
                   "the first answer, or word to wait, was expected");
    }
    if (n.refused_times > 0) {
        unexpected(t, "a duplicate", n.refused, n.refused_times, "it asks for the same, though");
    }
    if (n.busy_times > 0 && !overlapped) {
        unexpected(t, "a duplicate", n.busy, n.busy_times, "the first one had been answered, though");
    }
    if (rests && !answer_is_success(last)) {
        unexpected(t, "a repeat", last, 1, "at last it should get the answer of what was done");
    }
    judge_change(t, &n, rests && answer_is_success(last) ? last : NULL);
}

/* --- Cells. -------------------------------------------------------------------------------------- */

/* May a duplicate be told to wait? Not when it comes alone, after the first one's answer was read. Of several at once
 * each may meet another; the confirmation at the end has to get an answer in any case. */
static bool overlapped(const struct trial *t)
{
    return t->out->at[DRILL_MOMENT] == DRILL_DURING || t->out->at[DRILL_DELIVERY] != DRILL_READ ||
           t->out->at[DRILL_COUNT] == DRILL_AT_ONCE;
}

/* All answers of an operation that is to be done once: on the way and at the end. */
static void judge_done(struct trial *t, unsigned operation, const char *who, bool busy_allowed,
                       const struct answer *last)
{
    struct tally n = count_answers(t, operation, false);
    judge_silence(t, &n);
    bool rests = judge_rest(t, last);
    if (!t->d->profile->statuses_count) {
        return;
    }
    if (n.failed_times > 0) {
        unexpected(t, who, n.failed, n.failed_times, "the first answer, or word to wait, was expected");
    }
    if (n.busy_times > 0 && !busy_allowed) {
        unexpected(t, who, n.busy, n.busy_times, "the first had been answered before");
    }
    if (rests && !answer_is_success(last)) {
        unexpected(t, who, last, 1, "at last it should get the answer of what was done");
    }
    judge_change(t, &n, rests && answer_is_success(last) ? last : NULL);
}

/* Reordered JSON that is taken for another payload takes effect once all the same: whichever form came first counts. */
static bool judge_reordered(struct trial *t, const struct tally *b, const struct answer *last)
{
    const struct drill_profile *p = t->d->profile;
    bool a_refused = last->result == WIRE_ANSWERED && profile_lists(p->other_payload, last->status);
    if (t->out->at[DRILL_PAYLOAD] != DRILL_REORDERED || (b->refused_times == 0 && !a_refused)) {
        return false;
    }
    if (a_refused && b->success_times == 0) {
        unexpected(t, "the first request", last, 1, "neither form of the payload was done");
    }
    trial_note(t, "the same JSON in another order is refused as another payload (%d)",
               a_refused ? last->status : b->refused->status);
    return true;
}

static void judge_duplicates(struct trial *t, const struct tally *n, bool refused_allowed)
{
    if (n->failed_times > 0) {
        unexpected(t, "a duplicate", n->failed, n->failed_times,
                   "the first answer, or word to wait, was expected");
    }
    if (n->busy_times > 0 && !overlapped(t)) {
        unexpected(t, "a duplicate", n->busy, n->busy_times, "the first had been answered before");
    }
    if (n->refused_times > 0 && !refused_allowed) {
        unexpected(t, "a duplicate", n->refused, n->refused_times, "it asks for the same");
    }
}

static void judge_same(struct trial *t, unsigned b)
{
    const struct answer *last = trial_confirm(t, 0);
    trial_expect(t, 1, 1);
    trial_count(t, 1);
    if (t->rc != 0) {
        return;
    }
    struct tally first = count_answers(t, 0, false);
    struct tally n = count_answers(t, b, false);
    judge_effects(t);
    judge_silence(t, &n);
    bool two_forms = judge_reordered(t, &n, last);
    if (!two_forms) {
        judge_done(t, 0, "the first request", true, last);
    }
    if (t->d->profile->statuses_count) {
        judge_duplicates(t, &n, two_forms);
        judge_change(t, &n, first.success != NULL ? first.success : answer_is_success(last) ? last : NULL);
    }
}

/* Same key, another payload: whichever came first counts, and the other is refused. */
static void judge_other(struct trial *t, unsigned b)
{
    const struct drill_profile *p = t->d->profile;
    const struct answer *last_a = trial_confirm(t, 0);
    const struct answer *last_b = p->answers_compare ? trial_confirm(t, b) : NULL;
    trial_expect(t, 1, 1);
    trial_count(t, 1);
    if (t->rc != 0) {
        return;
    }
    judge_effects(t);
    struct tally n_a = count_answers(t, 0, false);
    struct tally n_b = count_answers(t, b, false);
    judge_silence(t, &n_a);
    judge_silence(t, &n_b);
    if (!p->answers_compare) {
        return;
    }
    bool a_done = n_a.success_times > 0 || answer_is_success(last_a);
    bool b_done = n_b.success_times > 0 || answer_is_success(last_b);
    char wanted[80] = "";
    char expected[120];
    snprintf(expected, sizeof expected, "a refusal with %s was expected",
             list_text(wanted, sizeof wanted, p->other_payload));
    const struct answer *refused = a_done ? last_b : last_a;
    if (a_done && b_done) {
        trial_broken(t, "two payloads under one key were both answered as done (%d)",
                     (n_b.success != NULL ? n_b.success : last_b)->status);
    } else if (!a_done && !b_done) {
        judge_rest(t, last_a);
        trial_broken(t, "neither payload was done in the end: %d and %d", last_a->status, last_b->status);
    } else if (!profile_lists(p->other_payload, refused->status)) {
        unexpected(t, "the other payload", refused, 1, expected);
    }
    if (n_b.failed_times > 0) {
        unexpected(t, "the other payload", n_b.failed, n_b.failed_times, expected);
    }
    if (n_b.busy_times > 0 && !overlapped(t)) {
        unexpected(t, "the other payload", n_b.busy, n_b.busy_times, expected);
    }
    judge_change(t, &n_a, answer_is_success(last_a) ? last_a : NULL);
    judge_change(t, &n_b, answer_is_success(last_b) ? last_b : NULL);
}

/* The same key from another tenant or at another path is another operation. */
static void judge_elsewhere(struct trial *t, unsigned b)
{
    bool path = t->out->at[DRILL_PLACE] == DRILL_OTHER_PATH;
    const char *who = path ? "the other path" : "the other tenant";
    const struct answer *last_a = trial_confirm(t, 0);
    const struct answer *last_b = trial_confirm(t, b);
    trial_expect(t, path ? 1 : 2, 2);
    trial_count(t, path && t->rc == 0 && !answer_is_success(last_b) ? 1 : 2);
    if (t->rc != 0) {
        return;
    }
    struct tally n_a = count_answers(t, 0, false);
    struct tally n_b = count_answers(t, b, false);
    bool b_done = n_b.success_times > 0 || answer_is_success(last_b);
    bool good = judge_effects(t);
    if (!t->d->profile->statuses_count) {
        return;
    }
    if (b_done && t->effects == 1) {
        const struct answer *theirs = n_b.success != NULL ? n_b.success : last_b;
        const struct answer *ours = n_a.success != NULL ? n_a.success : last_a;
        trial_broken(t, "%s got %s (%d) without an effect of its own", who,
                     answer_equals(theirs, ours) ? "the first one's answer" : "an answer", theirs->status);
    } else if (good && path && !b_done && t->effects == 1 && last_b->result == WIRE_ANSWERED) {
        trial_note(t, "a key counts for all paths: another path is refused (%d)", last_b->status);
    } else if (!b_done && judge_rest(t, last_b)) {
        unexpected(t, who, last_b, 1, path ? "it took effect, though" : "its operation is one of its own");
    }
    judge_done(t, 0, "the first request", true, last_a);
    judge_silence(t, &n_b);
    judge_change(t, &n_b, answer_is_success(last_b) ? last_b : NULL);
}

void judge_cell(struct trial *t)
{
    unsigned b = t->operation_count - 1;
    if (t->out->at[DRILL_PLACE] != DRILL_HERE) {
        judge_elsewhere(t, b);
    } else if (t->out->at[DRILL_PAYLOAD] == DRILL_OTHER) {
        judge_other(t, b);
    } else {
        judge_same(t, b);
    }
}
