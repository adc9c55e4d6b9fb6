/* Failures: of the endpoint's own making, and a crash in between. What counts is that the key comes to rest: done once, or
 * honestly called unknown. */
#include "base/clock.h"
#include "drill/cases.h"
#include "drill/command.h"

/* The key's answer at last; effects are judged by it. `kept`: an answer of failure that may stay. */
static void judge_recovery(struct trial *t, const struct answer *last, bool kept_allowed)
{
    bool done = last != NULL && answer_is_success(last);
    bool unknown = last != NULL && answer_says_unknown(last);
    bool failure = last != NULL && last->result == WIRE_ANSWERED && last->status >= 500;
    bool statuses_count = t->d->profile->statuses_count;
    bool must = done || (!statuses_count && !unknown && !failure);
    trial_expect(t, must ? 1 : 0, 1);
    trial_count(t, must || unknown ? 1 : 0); /* of an unknown outcome it may come */
    if (t->rc != 0) {
        return;
    }
    judge_effects(t);
    if (unknown) {
        trial_note(t, "the endpoint says that the outcome is unknown (%d), and does not run it again",
                   last->status);
    } else if (kept_allowed && failure && (last->status == 500 || last->status == 501)) {
        trial_note(t, "the failure is kept as the key's answer (%d)", last->status);
    } else if (failure) {
        trial_broken(t, "the failure is stuck to the key: a repeat is still answered with %d", last->status);
    } else if (judge_rest(t, last) && !done && statuses_count) {
        trial_broken(t, "at last the key is answered with %d", last->status);
    }
}

void case_failure(struct trial *t)
{
    unsigned a = trial_operation(t, DRILL_SAME, DRILL_HERE);
    t->operations[a].fails = true;
    unsigned b = trial_operation_like(t, a, DRILL_SAME, DRILL_HERE);
    t->operations[b].fails = false;
    curl_variables(t, a);
    curl_send(t, a, DRILL_READ);
    curl_text(t, "; ");
    curl_send(t, b, DRILL_READ);
    const struct answer *first = trial_send(t, a, PHASE_FIRST);
    if (first == NULL) {
        return;
    }
    if (first->result == WIRE_ANSWERED && first->status < 500) {
        trial_doubt(t, "with the header of --fail it was answered with %d, not with an error of 500 or above",
                    first->status);
        return;
    }
    t->d->stuck_seen = false;
    judge_recovery(t, trial_confirm(t, b), t->d->profile->failure_kept);
}

static void restart(struct trial *t)
{
    const struct drill_setup *s = t->d->setup;
    hapax_error err = {0};
    if (t->rc == 0 && command_run(s->restart_command, NULL, s->recover_ms, s->stop, &err) != 0) {
        trial_doubt(t, "--restart-cmd: %s", err.message);
    }
    t->d->stuck_seen = false; /* it gets all the time there is */
}

/* --- Between request and answer. ----------------------------------------------------------------- */

#define WINDOW_TRIES  10
#define WINDOW_ENOUGH 2 /* crashes that met the window, if the endpoint is too quick for the first try */

/* When the crash came: after the answer; while the request was there and unanswered; before the request was complete. */
enum window { WINDOW_LATE, WINDOW_MET, WINDOW_EARLY };

/* The last byte leaves before the command begins, or with it in hand `offset_ms` after that. Returns when the crash came;
 * *took_ms is how long the command ran. */
static enum window crash_during(struct trial *t, unsigned operation, int64_t offset_ms, int64_t *took_ms)
{
    const struct drill_setup *s = t->d->setup;
    hapax_error err = {0};
    struct flight f;
    pid_t pid = 0;
    bool connected = true;
    flight_start(t, &f, operation, PHASE_FIRST, DRILL_READ);
    flight_drive(t, &f, SHOT_READY);
    if (offset_ms < 0) {
        flight_go(&f);
        flight_drive(t, &f, SHOT_OUT);
    }
    int64_t began = clock_mono_ms();
    int rc = t->rc != 0 ? t->rc : command_start(&pid, s->restart_command, &err);
    if (offset_ms >= 0) {
        effects_sleep(s, offset_ms);
        connected = flight_is_connected(&f);
        flight_go(&f);
        flight_drive(t, &f, SHOT_OUT);
    }
    rc = rc != 0 ? rc : command_wait(pid, s->recover_ms, s->stop, &err);
    if (rc != 0 && t->rc == 0) {
        trial_doubt(t, "--restart-cmd: %s", err.message);
    }
    *took_ms = clock_mono_ms() - began;
    t->d->stuck_seen = false; /* it gets all the time there is */
    flight_land(t, &f);
    bool answered = f.sent != NULL && answer_is_success(&f.sent->answer);
    return answered ? WINDOW_LATE : connected ? WINDOW_MET : WINDOW_EARLY;
}

static void show_crash(struct trial *t, unsigned operation)
{
    curl_variables(t, operation);
    curl_send(t, operation, DRILL_READ);
    curl_text(t, " & ");
    curl_command(t, t->d->setup->restart_command);
    curl_text(t, "; ");
    curl_send(t, operation, DRILL_READ);
}

/* Where the window lies nobody knows but the command: between its beginning, when the first try was answered, and its
 * end. Halving that finds it. Each try is an operation of its own, and judged by itself. */
void case_restart_during(struct trial *t)
{
    int64_t early = 0;
    int64_t late = 0;
    int64_t offset = -1;
    unsigned met = 0;
    unsigned enough = 1;
    for (unsigned try = 0; try < WINDOW_TRIES && met < enough && t->rc == 0; try++) {
        unsigned a = trial_operation(t, DRILL_SAME, DRILL_HERE);
        int64_t took = 0;
        if (try == 0) {
            show_crash(t, a);
        }
        enum window window = crash_during(t, a, offset, &took);
        judge_recovery(t, trial_confirm(t, a), t->d->profile->failure_kept);
        if (t->verdict != DRILL_HOLDS) {
            return;
        }
        t->before = t->d->counted;
        met += window == WINDOW_MET;
        if (try == 0) {
            early = took;
            enough = window == WINDOW_MET ? 1 : WINDOW_ENOUGH;
        } else if (window != WINDOW_MET) {
            *(window == WINDOW_LATE ? &late : &early) = offset;
        }
        offset = window == WINDOW_MET && offset >= 0 ? offset : (late + early) / 2;
    }
    if (met == 0 && t->rc == 0) {
        trial_doubt(t,
                    "the answer came before the crash, %u times: slow the endpoint down, or have "
                    "--restart-cmd kill it "
                    "sooner",
                    WINDOW_TRIES);
    }
}

void case_restart_after(struct trial *t)
{
    unsigned a = trial_operation(t, DRILL_SAME, DRILL_HERE);
    curl_variables(t, a);
    curl_send(t, a, DRILL_READ);
    curl_text(t, "; ");
    curl_command(t, t->d->setup->restart_command);
    curl_text(t, "; ");
    curl_send(t, a, DRILL_READ);
    const struct answer *first = trial_send(t, a, PHASE_FIRST);
    trial_count(t, 1);
    restart(t);
    const struct answer *last = trial_confirm(t, a);
    judge_recovery(t, last, false);
    if (t->rc == 0 && t->d->profile->answers_compare && answer_is_success(first) && answer_is_success(last) &&
        !answer_equals(first, last)) {
        trial_broken(t, "the answer changed with the restart: \"%.*s\", then \"%.*s\"",
                     SLICE_FORMAT(first->excerpt), SLICE_FORMAT(last->excerpt));
    }
}
