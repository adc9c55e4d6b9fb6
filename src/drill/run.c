/* The run from end to end: places, keys, the plan, one trial after the other, the report. */
#include "base/clock.h"
#include "base/error.h"
#include "core/shown.h"
#include "drill/plan.h"
#include "hapax/hapax.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

#define TEXT_BYTES_MAX (64U * 1024U)

/* --- Opening. ------------------------------------------------------------------------------------ */

static int check_setup(const struct drill_setup *s, hapax_error *err)
{
    int counters = (s->counter.url != NULL) + (s->counter.command != NULL) + (s->counter.log != NULL);
    if (counters != 1) {
        return error_set(err, HAPAX_E_ARGUMENT, 0,
                         "say how effects are counted: --effect-url, --effect-cmd or --effect-log");
    }
    if (s->key_header == NULL && !request_has_key_placeholder(s)) {
        return error_set(err, HAPAX_E_ARGUMENT, 0,
                         "the key is nowhere: name a --key-header, or put {key} into the body or URL");
    }
    if (s->event_count > 0 && s->final_url == NULL) {
        return error_set(err, HAPAX_E_ARGUMENT, 0, "--events needs --final-url, where the state is read");
    }
    bool unique = true;
    for (size_t i = 0; i < s->event_count; i++) {
        unique = unique && memmem(s->events[i].body.ptr, s->events[i].body.len, "{unique}", 8) != NULL;
    }
    if (s->event_count > 0 && s->reset_command == NULL && !unique) {
        return error_set(err, HAPAX_E_ARGUMENT, 0,
                         "each order needs a fresh state: say --reset-cmd, or put {unique} into every event");
    }
    return 0;
}

static int open_place(struct drill *d, enum drill_place place, const char *url, hapax_error *err)
{
    return effects_place_open(&d->places[place], &d->targets[place], d->setup, slice_text(url), err);
}

static int open_tls(struct drill *d, hapax_error *err)
{
    int rc = tls_client_context_create(&d->wire.tls, d->setup->ca_file, err);
    if (rc == 0 && d->setup->insecure) {
        tls_client_context_trust_anyone(d->wire.tls);
    }
    return rc;
}

/* Nobody has used these keys before, whatever the seed. */
static int name_run(struct drill *d, hapax_error *err)
{
    uint64_t random = 0;
    if (getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random) {
        return error_set(err, HAPAX_E_SYSTEM, 0, "the system gives no random numbers");
    }
    snprintf(d->run_key, sizeof d->run_key, "%08x-%04x-", (unsigned)(random & 0xFFFFFFFFU),
             (unsigned)(random >> 32) & 0xFFFFU);
    snprintf(d->run_unique, sizeof d->run_unique, "%09u",
             100000000U + (unsigned)((random >> 16) % 900000000U));
    return 0;
}

static int open_all(struct drill *d, hapax_error *err)
{
    const struct drill_setup *s = d->setup;
    int rc = check_setup(s, err);
    rc = rc != 0 ? rc : name_run(d, err);
    rc = rc != 0 ? rc : open_place(d, DRILL_HERE, s->url, err);
    d->places[DRILL_OTHER_TENANT] = d->places[DRILL_HERE];
    d->targets[DRILL_OTHER_TENANT] = d->targets[DRILL_HERE];
    if (rc == 0 && s->other_url != NULL) {
        rc = open_place(d, DRILL_OTHER_PATH, s->other_url, err);
    }
    rc = rc != 0 ? rc : open_tls(d, err);
    rc = rc != 0 ? rc : effects_open(&d->effects, s, &d->wire, d->run_key, d->run_unique, err);
    return rc;
}

/* --- Running. ------------------------------------------------------------------------------------ */

static const char *keep(struct drill_report *r, const char *text)
{
    struct buf shown;
    struct slice kept = SLICE_LITERAL("");
    buf_init(&shown, 4 * TEXT_BYTES_MAX);
    if (shown_append(&shown, slice_text(text)) == 0) {
        (void)arena_copy(&r->arena, buf_slice(&shown), &kept);
    }
    buf_free(&shown);
    return kept.ptr;
}

static const char *keep_url(struct drill_report *r, const char *url)
{
    struct buf text;
    const char *kept = "";
    buf_init(&text, TEXT_BYTES_MAX);
    if (request_show_url(&text, slice_text(url)) == 0 && buf_append_byte(&text, '\0') == 0) {
        kept = keep(r, text.ptr);
    }
    buf_free(&text);
    return kept;
}

static void skip_case(struct drill_case *out, enum drill_verdict verdict, const char *why)
{
    out->verdict = verdict;
    out->what = why;
    out->curl = "";
    out->effects_least = out->effects_most = out->effects_seen = -1;
}

static void show_progress(const struct drill *d, size_t done, size_t all, const char *id)
{
    if (d->setup->progress != NULL) {
        d->setup->progress(d->setup->progress_ctx, done, all, id);
    }
}

static void run_case(struct drill *d, const struct plan_case *c, struct drill_case *out, size_t all)
{
    static struct trial trial; /* one thread; too large for a stack */
    struct drill_report *r = d->report;
    *out = (struct drill_case){.id = c->id, .title = c->title, .group = c->group};
    memcpy(out->at, c->at, sizeof out->at);
    bool stopped = d->setup->stop != NULL && *d->setup->stop != 0;
    if (c->not_applicable != NULL) {
        skip_case(out, DRILL_NOT_APPLICABLE, c->not_applicable);
    } else if (c->run == case_answer_empty && d->normal.result == WIRE_ANSWERED && d->normal.body_bytes > 0) {
        skip_case(out, DRILL_NOT_APPLICABLE, "its answers are not empty");
    } else if (plan_blocked(d, c) != NULL) {
        skip_case(out, DRILL_INCONCLUSIVE, plan_blocked(d, c));
    } else if (r->stopped != NULL || stopped) {
        skip_case(out, DRILL_INCONCLUSIVE, "not tried any more");
    } else {
        d->err.message[0] = '\0';
        show_progress(d, r->case_count, all, c->id);
        trial_begin(&trial, d, out);
        if (trial.rc == 0) {
            c->run(&trial);
        }
        trial_end(&trial);
        if (trial.ends_run || trial.rc == HAPAX_E_LIMIT || trial.rc == HAPAX_E_MEMORY) {
            r->stopped = out->what;
        }
    }
    r->case_count++;
}

/* Nothing can be said about an endpoint whose effects can't be counted. */
static int judge_check(struct drill *d, const struct drill_case *check, hapax_error *err)
{
    if (check->group != DRILL_CHECK || d->report->case_count != 1 || check->verdict == DRILL_HOLDS) {
        return 0;
    }
    d->report->stopped = check->what;
    return d->unreachable ? error_set(err, HAPAX_E_NOT_FOUND, 0, "%s", check->what) : 0;
}

/* The last case has nobody after it who would notice. */
static void look_once_more(struct drill *d)
{
    int64_t counter;
    bool still = false;
    if (effects_settle(&counter, &still, &d->effects, INT64_MIN, NULL) == 0) {
        note_late_effects(d, counter);
    }
}

/* A run that can't come to its end is not begun. */
static int check_requests(const struct drill *d, const struct plan_case *plan, size_t count, hapax_error *err)
{
    unsigned long requests = 0;
    for (size_t i = 0; i < count; i++) {
        requests += plan[i].not_applicable == NULL ? plan[i].requests : 0;
    }
    return requests <= d->setup->requests_max
               ? 0
               : error_set(err, HAPAX_E_ARGUMENT, 0,
                           "the plan has %lu requests at least, and --requests-max allows %u", requests,
                           d->setup->requests_max);
}

static int run_plan(struct drill *d, hapax_error *err)
{
    struct drill_report *r = d->report;
    struct plan_case *plan = NULL;
    size_t count = 0;
    int rc = payloads_make(&d->payloads, d->setup, &r->arena);
    rc = rc != 0 ? error_code(err, rc) : plan_make(&plan, &count, d->setup, &d->payloads, &r->arena, err);
    rc = rc != 0 ? rc : check_requests(d, plan, count, err);
    struct drill_case *cases = rc == 0 ? arena_array(&r->arena, count, sizeof *cases) : NULL;
    if (rc == 0 && cases == NULL) {
        rc = error_code(err, HAPAX_E_MEMORY);
    }
    if (rc != 0) {
        return rc;
    }
    /* Is there anybody? */
    int64_t number;
    rc = effects_read(&number, &d->effects, err);
    if (rc != 0) {
        return rc == HAPAX_E_MEMORY ? rc : HAPAX_E_NOT_FOUND;
    }
    r->cases = cases;
    for (size_t i = 0; i < count && rc == 0; i++) {
        run_case(d, &plan[i], &cases[i], count);
        rc = judge_check(d, &cases[i], err);
    }
    show_progress(d, count, count, NULL);
    look_once_more(d);
    if (r->stopped == NULL && d->setup->stop != NULL && *d->setup->stop != 0) {
        r->stopped = "interrupted";
    }
    return rc;
}

static void describe(struct drill *d)
{
    const struct drill_setup *s = d->setup;
    struct drill_report *r = d->report;
    r->version = HAPAX_VERSION;
    r->method = keep(r, s->method);
    r->target = keep_url(r, s->url);
    r->profile = s->profile->name;
    r->counter = s->counter.url != NULL       ? keep_url(r, s->counter.url)
                 : s->counter.command != NULL ? "a command"
                                              : keep(r, s->counter.log);
    r->seed = s->seed;
    r->times = s->times;
    r->started_wall_ms = clock_wall_ms();
}

int drill_run(struct drill_report *out, const struct drill_setup *setup, hapax_error *err)
{
    *out = (struct drill_report){0};
    arena_init(&out->arena, DRILL_REPORT_BYTES_MAX);
    struct drill *d = calloc(1, sizeof *d);
    if (d == NULL) {
        return error_code(err, HAPAX_E_MEMORY);
    }
    d->setup = setup;
    d->profile = setup->profile;
    d->report = out;
    d->wire.stop = setup->stop;
    int64_t started = clock_mono_ms();
    describe(d);
    int rc = open_all(d, err);
    rc = rc != 0 ? rc : run_plan(d, err);
    out->requests = d->requests;
    out->duration_ms = clock_mono_ms() - started;
    for (size_t i = 0; i < out->case_count; i++) {
        out->tally[out->cases[i].verdict]++;
    }
    effects_close(&d->effects);
    tls_context_drop(d->wire.tls);
    free(d);
    return rc;
}

void drill_report_free(struct drill_report *report)
{
    arena_free(&report->arena);
}

int drill_plan(struct drill_planned **out, size_t *count, const struct drill_setup *setup,
               struct arena *arena, hapax_error *err)
{
    struct payloads payloads;
    struct plan_case *plan = NULL;
    int rc = check_setup(setup, err);
    if (rc == 0) {
        rc = payloads_make(&payloads, setup, arena);
        rc = rc != 0 ? error_code(err, rc) : plan_make(&plan, count, setup, &payloads, arena, err);
    }
    *out = rc == 0 ? arena_array(arena, *count, sizeof **out) : NULL;
    if (rc == 0 && *out == NULL) {
        rc = error_code(err, HAPAX_E_MEMORY);
    }
    for (size_t i = 0; rc == 0 && i < *count; i++) {
        (*out)[i] = (struct drill_planned){plan[i].id, plan[i].title, plan[i].group, plan[i].requests,
                                           plan[i].not_applicable};
    }
    return rc;
}
