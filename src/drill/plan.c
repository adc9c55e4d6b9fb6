/* One table of the single cases; the matrix is all combinations of the five axes. */
#include "drill/plan.h"

#include "base/error.h"

#include <fnmatch.h>
#include <stdio.h>

#define SINGLE_CASES_MAX 40
#define MATRIX_CASES     243
#define ORDERS_OF_FIVE   120

static const struct plan_case singles[] = {
    {.id = "check.one-effect",
     .title = "one request with a fresh key has one effect",
     .group = DRILL_CHECK,
     .requests = 1,
     .run = case_one_effect},
    {.id = "check.other-payload",
     .title = "the other payload is a good request, too",
     .group = DRILL_CHECK,
     .requests = 1,
     .run = case_usable_payload},
    {.id = "check.other-tenant",
     .title = "the other tenant's request has one effect",
     .group = DRILL_CHECK,
     .requests = 1,
     .run = case_usable_tenant},
    {.id = "check.other-path",
     .title = "a request to the other path has one effect",
     .group = DRILL_CHECK,
     .requests = 1,
     .run = case_usable_path},
    {.id = "answers.repeat",
     .title = "four repeats get the first answer's status and body",
     .group = DRILL_ANSWERS,
     .requests = 5,
     .run = case_answer_repeats},
    {.id = "answers.empty",
     .title = "repeats of an empty answer do not run again",
     .group = DRILL_ANSWERS,
     .requests = 3,
     .run = case_answer_empty},
    {.id = "answers.headers",
     .title = "a repeat has the first answer's header lines (Location, ETag, Content-Type ...)",
     .group = DRILL_ANSWERS,
     .requests = 2,
     .run = case_answer_headers},
    {.id = "answers.multiple",
     .title = "headers with several lines keep all of them, in order",
     .group = DRILL_ANSWERS,
     .requests = 2,
     .run = case_answer_multiple},
    {.id = "answers.set-cookie",
     .title = "a repeat sets the first answer's cookies",
     .group = DRILL_ANSWERS,
     .requests = 2,
     .run = case_answer_cookies},
    {.id = "repeats.100-in-series",
     .title = "one request, 100 times",
     .group = DRILL_REPEATS,
     .requests = DRILL_REPEAT_TIMES + 1,
     .run = case_hundred_series},
    {.id = "repeats.100-at-once",
     .title = "one request, 100 times in one instant",
     .group = DRILL_REPEATS,
     .requests = DRILL_REPEAT_TIMES + 1,
     .run = case_hundred_at_once},
    {.id = "repeats.race",
     .title = "fresh keys, each several times in one instant",
     .group = DRILL_REPEATS,
     .run = case_race},
    {.id = "keys.missing", .title = "no key", .group = DRILL_KEYS, .requests = 2, .run = case_key},
    {.id = "keys.empty", .title = "an empty key", .group = DRILL_KEYS, .requests = 2, .run = case_key},
    {.id = "keys.quotes-only", .title = "the key \"\"", .group = DRILL_KEYS, .requests = 2, .run = case_key},
    {.id = "keys.two-different",
     .title = "two header lines with different keys",
     .group = DRILL_KEYS,
     .requests = 2,
     .run = case_key},
    {.id = "keys.not-ascii",
     .title = "a key with bytes that are not ASCII",
     .group = DRILL_KEYS,
     .requests = 2,
     .run = case_key},
    {.id = "keys.256-bytes",
     .title = "keys of 256 bytes that differ in the last one",
     .group = DRILL_KEYS,
     .requests = 2,
     .run = case_key},
    {.id = "keys.8-kib",
     .title = "keys of 8 KiB that differ in the last byte",
     .group = DRILL_KEYS,
     .requests = 2,
     .run = case_key},
    {.id = "keys.undefined",
     .title = "the key undefined",
     .group = DRILL_KEYS,
     .requests = 2,
     .run = case_key},
    {.id = "keys.null", .title = "the key null", .group = DRILL_KEYS, .requests = 2, .run = case_key},
    {.id = "keys.template", .title = "the key {{key}}", .group = DRILL_KEYS, .requests = 2, .run = case_key},
    {.id = "keys.object",
     .title = "the key [object Object]",
     .group = DRILL_KEYS,
     .requests = 2,
     .run = case_key},
    {.id = "failures.error",
     .title = "a request that failed with an error of the server's is sent again",
     .group = DRILL_FAILURES,
     .requests = 2,
     .run = case_failure},
    {.id = "failures.restart-during",
     .title = "the endpoint restarts between request and answer",
     .group = DRILL_FAILURES,
     .requests = 2, /* up to ten times as many, when the endpoint is too quick */
     .run = case_restart_during},
    {.id = "failures.restart-after",
     .title = "the endpoint restarts between answer and repeat",
     .group = DRILL_FAILURES,
     .requests = 2,
     .run = case_restart_after},
    {.id = "events.orders",
     .title = "events in every order lead to one state",
     .group = DRILL_EVENTS,
     .run = case_event_orders},
    {.id = "events.twice",
     .title = "events that come twice lead to the same state",
     .group = DRILL_EVENTS,
     .run = case_event_twice},
};

#define SINGLES (sizeof singles / sizeof singles[0])

/* --- What applies. ------------------------------------------------------------------------------- */

static bool is_selected(const struct drill_setup *s, const char *id)
{
    bool in = s->only_count == 0;
    for (size_t i = 0; i < s->only_count && !in; i++) {
        in = fnmatch(s->only[i], id, 0) == 0;
    }
    for (size_t i = 0; i < s->skip_count && in; i++) {
        in = fnmatch(s->skip[i], id, 0) != 0;
    }
    return in;
}

static const char *why_not_cell(const struct drill_setup *s, const struct payloads *p,
                                const unsigned char *at)
{
    if (slice_is_none(p->form[at[DRILL_PAYLOAD]])) {
        return p->why[at[DRILL_PAYLOAD]];
    }
    if (at[DRILL_PLACE] == DRILL_OTHER_TENANT && s->tenant.name.len == 0) {
        return "there is no --tenant-header";
    }
    return at[DRILL_PLACE] == DRILL_OTHER_PATH && s->other_url == NULL ? "there is no --other-url" : NULL;
}

static const char *why_not_key(const struct drill_setup *s, const char *id)
{
    bool raw = strstr(id, "-bytes") == NULL && strstr(id, "-kib") == NULL && strstr(id, "two-") == NULL;
    bool twice = strstr(id, "two-") != NULL;
    if (s->key_header == NULL && (twice || strcmp(id, "keys.missing") == 0)) {
        return "the key is no header";
    }
    if (s->counter.log != NULL && raw && !request_has_unique(s)) {
        return "lines of the log are told by key or {unique}, and there is neither";
    }
    return NULL;
}

static const char *why_not_single(const struct drill_setup *s, const struct payloads *p,
                                  const struct plan_case *c)
{
    static const unsigned char other_payload[DRILL_AXES] = {[DRILL_PAYLOAD] = DRILL_OTHER};
    static const unsigned char other_tenant[DRILL_AXES] = {[DRILL_PLACE] = DRILL_OTHER_TENANT};
    static const unsigned char other_path[DRILL_AXES] = {[DRILL_PLACE] = DRILL_OTHER_PATH};
    if (c->run == case_usable_payload) {
        return why_not_cell(s, p, other_payload);
    }
    if (c->run == case_usable_tenant) {
        return why_not_cell(s, p, other_tenant);
    }
    if (c->run == case_usable_path) {
        return why_not_cell(s, p, other_path);
    }
    if (c->group == DRILL_ANSWERS && c->run != case_answer_empty && !s->profile->answers_compare) {
        return "the profile compares no answers";
    }
    if (c->group == DRILL_KEYS) {
        return why_not_key(s, c->id);
    }
    if (c->run == case_failure && s->fail.name.len == 0) {
        return "there is no --fail";
    }
    if (c->group == DRILL_FAILURES && c->run != case_failure && s->restart_command == NULL) {
        return "there is no --restart-cmd";
    }
    return c->group == DRILL_EVENTS && s->event_count == 0 ? "there is no --events" : NULL;
}

static unsigned requests_of(const struct drill_setup *s, const struct plan_case *c)
{
    unsigned events = (unsigned)s->event_count;
    unsigned orders = 1;
    if (c->run == case_race) {
        return s->rounds * (s->times + 1);
    }
    if (c->run == case_event_twice) {
        return events + 2 * events + 2 * events - 1;
    }
    if (c->run != case_event_orders) {
        return c->requests;
    }
    for (unsigned i = 2; i <= events && orders < ORDERS_OF_FIVE; i++) {
        orders *= i;
    }
    return events * (orders < DRILL_ORDERS_MAX ? orders : DRILL_ORDERS_MAX);
}

/* --- The matrix. --------------------------------------------------------------------------------- */

static const char *cell_title(const struct drill_setup *s, const unsigned char *at, struct arena *arena)
{
    static const char *const deliveries[] = {"", " whose reply is lost", " that is cut"};
    static const char *const moments[] = {"right after", "during", "well after"};
    static const char *const payloads[] = {"", ", reordered", ", with another payload"};
    static const char *const places[] = {"", ", from another tenant", ", at another path"};
    char count[40] = "one repeat";
    if (at[DRILL_COUNT] != DRILL_ONCE) {
        snprintf(count, sizeof count,
                 at[DRILL_COUNT] == DRILL_SERIES ? "%u repeats in series" : "%u repeats at once", s->times);
    }
    char text[200];
    struct slice kept;
    snprintf(text, sizeof text, "%s%s%s, %s a request%s", count, payloads[at[DRILL_PAYLOAD]],
             places[at[DRILL_PLACE]], moments[at[DRILL_MOMENT]], deliveries[at[DRILL_DELIVERY]]);
    return arena_copy(arena, slice_text(text), &kept) == 0 ? kept.ptr : NULL;
}

static const char *cell_id(const unsigned char *at, struct arena *arena)
{
    char text[80];
    struct slice kept;
    snprintf(text, sizeof text, "%s.%s.%s.%s.%s", drill_value_word(DRILL_COUNT, at[DRILL_COUNT]),
             drill_value_word(DRILL_DELIVERY, at[DRILL_DELIVERY]),
             drill_value_word(DRILL_PAYLOAD, at[DRILL_PAYLOAD]),
             drill_value_word(DRILL_PLACE, at[DRILL_PLACE]),
             drill_value_word(DRILL_MOMENT, at[DRILL_MOMENT]));
    return arena_copy(arena, slice_text(text), &kept) == 0 ? kept.ptr : NULL;
}

/* The number'th combination; the payload and place change slowest, so that a table of them can be read. */
static void cell_at(unsigned char *at, unsigned number)
{
    static const enum drill_axis order[DRILL_AXES] = {DRILL_MOMENT, DRILL_DELIVERY, DRILL_COUNT,
                                                      DRILL_PAYLOAD, DRILL_PLACE};
    for (size_t i = 0; i < DRILL_AXES; i++) {
        at[order[i]] = (unsigned char)(number % DRILL_AXIS_VALUES);
        number /= DRILL_AXIS_VALUES;
    }
}

static int make_cell(struct plan_case *out, unsigned number, const struct drill_setup *s,
                     const struct payloads *p, struct arena *arena)
{
    *out = (struct plan_case){.group = DRILL_MATRIX, .run = case_cell};
    cell_at(out->at, number);
    out->id = cell_id(out->at, arena);
    out->title = cell_title(s, out->at, arena);
    out->not_applicable = why_not_cell(s, p, out->at);
    bool apart = out->at[DRILL_PLACE] != DRILL_HERE || out->at[DRILL_PAYLOAD] == DRILL_OTHER;
    out->requests = 2U + (out->at[DRILL_COUNT] == DRILL_ONCE ? 1 : s->times) + apart;
    return out->id != NULL && out->title != NULL ? 0 : arena_error(arena);
}

/* --- All of it. ---------------------------------------------------------------------------------- */

/* A check is there for the cells that need it. */
static bool is_needed(const struct plan_case *check, const struct plan_case *cases, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct plan_case *c = &cases[i];
        bool runs = c->group == DRILL_MATRIX && c->not_applicable == NULL;
        if (runs && ((check->run == case_usable_payload && c->at[DRILL_PAYLOAD] == DRILL_OTHER) ||
                     (check->run == case_usable_tenant && c->at[DRILL_PLACE] == DRILL_OTHER_TENANT) ||
                     (check->run == case_usable_path && c->at[DRILL_PLACE] == DRILL_OTHER_PATH))) {
            return true;
        }
    }
    return check->run == case_one_effect;
}

static void drop_idle_checks(struct plan_case *cases, size_t *count)
{
    size_t kept = 0;
    for (size_t i = 0; i < *count; i++) {
        if (cases[i].group != DRILL_CHECK || is_needed(&cases[i], cases, *count)) {
            cases[kept++] = cases[i];
        }
    }
    *count = kept;
}

int plan_make(struct plan_case **out, size_t *count, const struct drill_setup *s, const struct payloads *p,
              struct arena *arena, hapax_error *err)
{
    struct plan_case *cases = arena_array(arena, SINGLES + MATRIX_CASES, sizeof *cases);
    size_t n = 0;
    int rc = cases != NULL ? 0 : error_code(err, HAPAX_E_MEMORY);
    for (size_t i = 0; i < SINGLES + MATRIX_CASES && rc == 0; i++) {
        /* checks, answers and repeats, the matrix, then the others */
        size_t before = 0;
        while (singles[before].group != DRILL_KEYS) {
            before++;
        }
        struct plan_case *c = &cases[n];
        if (i >= before && i < before + MATRIX_CASES) {
            rc = make_cell(c, (unsigned)(i - before), s, p, arena);
        } else {
            *c = singles[i < before ? i : i - MATRIX_CASES];
            c->not_applicable = why_not_single(s, p, c);
            c->requests = requests_of(s, c);
        }
        n += rc == 0 && (c->group == DRILL_CHECK || is_selected(s, c->id));
    }
    *out = cases;
    *count = n;
    if (rc == 0) {
        drop_idle_checks(cases, count);
        if (*count <= 1 && s->only_count > 0 && !is_selected(s, singles[0].id)) {
            rc = error_set(err, HAPAX_E_ARGUMENT, 0, "--only names no case; --list shows them");
        }
    }
    return rc;
}

const char *plan_blocked(const struct drill *d, const struct plan_case *c)
{
    if (c->group != DRILL_MATRIX) {
        return NULL;
    }
    if (c->at[DRILL_PAYLOAD] == DRILL_OTHER && !d->usable[0]) {
        return "check.other-payload did not hold";
    }
    if (c->at[DRILL_PLACE] != DRILL_HERE && !d->usable[c->at[DRILL_PLACE]]) {
        return c->at[DRILL_PLACE] == DRILL_OTHER_TENANT ? "check.other-tenant did not hold"
                                                        : "check.other-path did not hold";
    }
    return NULL;
}
