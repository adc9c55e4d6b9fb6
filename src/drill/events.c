/* Events in every order: the state they lead to must not depend on it.
 *
 * Each order begins with a fresh state, by --reset-cmd or because {unique} names what the events are about. An event
 * that is refused is sent again after the others, as its sender would. Nothing is proven by events that nobody takes or
 * that change nothing: then the case is inconclusive. */
#include "base/clock.h"
#include "base/error.h"
#include "core/canonical.h"
#include "drill/answers.h"
#include "drill/cases.h"
#include "drill/command.h"

#include <stdio.h>

#define PASSES_MAX      10
#define STATE_BYTES_MAX (1U << 20)
#define SHOWN_BYTES_MAX 160
#define JSON_ARENA_MAX  (64U << 20)
#define ORDER_TEXT_MAX  512

struct order {
    unsigned char at[DRILL_EVENTS_MAX];
};

/* --- Sending. ------------------------------------------------------------------------------------ */

/* Fresh operations for all events, about one new thing. */
static void make_operations(struct trial *t)
{
    const struct drill_setup *s = t->d->setup;
    t->operation_count = 0;
    for (size_t i = 0; i < s->event_count; i++) {
        unsigned op = trial_operation(t, DRILL_SAME, DRILL_HERE);
        t->operations[op].body = s->events[i].body;
        memcpy(t->operations[op].unique, t->operations[0].unique, sizeof t->operations[0].unique);
    }
}

enum how { EACH_ONCE, EACH_TWICE, AGAIN_LATE /* all but the last one come once more, after all */ };

static bool send_event(struct trial *t, unsigned event, unsigned times)
{
    bool taken = false;
    for (unsigned k = 0; k < times && t->rc == 0; k++) {
        const struct answer *a = trial_send(t, event, PHASE_REPEAT);
        taken = a != NULL && answer_is_success(a);
    }
    return taken;
}

/* How many were never taken. */
static size_t send_in_order(struct trial *t, const struct order *o, enum how how)
{
    size_t n = t->d->setup->event_count;
    bool taken[DRILL_EVENTS_MAX] = {false};
    size_t left = n;
    for (unsigned pass = 0; pass < PASSES_MAX && left > 0 && t->rc == 0; pass++) {
        if (pass > 0) {
            effects_sleep(t->d->setup, t->d->setup->settle_ms);
        }
        for (size_t i = 0; i < n && t->rc == 0; i++) {
            if (!taken[i] && send_event(t, o->at[i], how == EACH_TWICE ? 2 : 1)) {
                taken[i] = true;
                left--;
            }
        }
    }
    for (size_t i = 0; i + 1 < n && how == AGAIN_LATE && t->rc == 0; i++) {
        (void)send_event(t, o->at[i], 1);
    }
    return left;
}

/* --- The state they lead to. --------------------------------------------------------------------- */

static int replace_unique(struct buf *out, struct slice text, const char *unique)
{
    int rc = 0;
    size_t len = strlen(unique);
    while (text.len > 0 && rc == 0) {
        const char *at = memmem(text.ptr, text.len, unique, len);
        size_t before = at != NULL ? (size_t)(at - text.ptr) : text.len;
        rc = buf_append(out, text.ptr, before);
        rc = rc != 0 || at == NULL ? rc : buf_append_text(out, "{unique}");
        text = slice_from(text, before + (at != NULL ? len : 0));
    }
    return rc;
}

/* Canonical, as far as it is JSON, so that the order of members does not count. */
static int normalise(struct buf *out, bool *found, struct slice document, struct slice pointer,
                     const char *unique, hapax_error *err)
{
    struct arena arena;
    struct json j;
    struct buf form;
    uint32_t node = 0;
    arena_init(&arena, JSON_ARENA_MAX);
    buf_init(&form, STATE_BYTES_MAX);
    bool is_json = json_parse(&j, &arena, document, NULL) == 0;
    int rc = is_json && !slice_is_none(pointer) ? json_pointer_find(&node, &j, pointer, &arena) : 0;
    *found = node != JSON_NODE_NONE && (is_json || slice_is_none(pointer));
    if (rc == 0 && !*found) {
        rc = buf_append_text(&form, "(nothing there)");
    } else if (rc == 0) {
        rc = is_json ? canonical_json_node(&form, &j, node, &arena, err) : buf_append_slice(&form, document);
    }
    buf_clear(out);
    rc = rc != 0 ? rc : replace_unique(out, buf_slice(&form), unique);
    buf_free(&form);
    arena_free(&arena);
    return rc;
}

/* {unique} in the URL. */
static int final_target(struct buf *out, const char *unique, struct slice target)
{
    int rc = 0;
    while (target.len > 0 && rc == 0) {
        struct slice before;
        char which = request_next_piece(&before, &target);
        rc = buf_append_slice(out, before);
        rc = rc != 0 || which != 'u' ? rc : buf_append_text(out, unique);
    }
    return rc;
}

static int read_state(struct buf *out, bool *found, struct trial *t, hapax_error *err)
{
    const char *unique = t->operations[0].unique;
    struct effects *e = &t->d->effects;
    struct buf filled;
    struct buf body;
    buf_init(&filled, STATE_BYTES_MAX);
    buf_init(&body, DRILL_BODY_BYTES_MAX);
    int rc = final_target(&filled, unique, e->final_target);
    rc = rc != 0 ? rc : effects_get(&body, e, &e->final_place, buf_slice(&filled), err);
    rc = rc != 0 ? rc : normalise(out, found, buf_slice(&body), e->final_pointer, unique, err);
    buf_free(&filled);
    buf_free(&body);
    return rc;
}

static int shown(struct slice state)
{
    return (int)(state.len < SHOWN_BYTES_MAX ? state.len : SHOWN_BYTES_MAX);
}

/* Until two readings are equal. */
static void settle_state(struct buf *out, bool *found, struct trial *t)
{
    const struct drill_setup *s = t->d->setup;
    int64_t end = clock_mono_ms() + s->settle_ms_max;
    struct buf before;
    buf_init(&before, STATE_BYTES_MAX);
    int rc = t->rc != 0 ? t->rc : read_state(&before, found, t, &t->d->err);
    while (rc == 0) {
        effects_sleep(s, t->d->effects.still_ms);
        rc = read_state(out, found, t, &t->d->err);
        bool same = slice_equal(buf_slice(out), buf_slice(&before));
        if (rc != 0 || same || clock_mono_ms() >= end || (s->stop != NULL && *s->stop != 0)) {
            break;
        }
        buf_clear(&before);
        rc = buf_append_slice(&before, buf_slice(out));
    }
    t->rc = t->rc != 0 ? t->rc : rc;
    buf_free(&before);
}

static void begin_state(struct trial *t)
{
    const struct drill_setup *s = t->d->setup;
    trial_forget(t);
    make_operations(t);
    if (t->rc == 0 && s->reset_command != NULL) {
        t->rc = command_run(s->reset_command, NULL, s->timeout_ms, s->stop, &t->d->err);
    }
}

/* Returns how many events were never taken. */
static size_t run_order(struct buf *state, struct trial *t, const struct order *o, enum how how)
{
    bool found = false;
    begin_state(t);
    size_t left = send_in_order(t, o, how);
    settle_state(state, &found, t);
    return left;
}

/* The order of names, whose state all others have to lead to. Is it one that proves something? */
static void run_reference(struct buf *state, struct trial *t, const struct order *o)
{
    struct buf before;
    hapax_error err = {0};
    bool found = false;
    buf_init(&before, STATE_BYTES_MAX);
    begin_state(t);
    bool was_there =
        t->rc == 0 && read_state(&before, &found, t, &err) == 0; /* what comes first need not be there */
    size_t left = send_in_order(t, o, EACH_ONCE);
    settle_state(state, &found, t);
    if (t->rc == 0 && left > 0) {
        trial_doubt(t, "%zu event%s never taken: the last one was answered with %d", left,
                    left == 1 ? " was" : "s were", t->sent[t->sent_count - 1].answer.status);
    } else if (t->rc == 0 && !found) {
        trial_doubt(t, "after the events there is nothing at the pointer of --final-url");
    } else if (t->rc == 0 && was_there && slice_equal(buf_slice(&before), buf_slice(state))) {
        trial_doubt(t, "the events change nothing at --final-url: the state is %.*s before and after",
                    shown(buf_slice(state)), buf_slice(state).ptr);
    }
    buf_free(&before);
}

/* --- Orders. ------------------------------------------------------------------------------------- */

/* The next one in the order of names; false after the last. */
static bool next_order(struct order *o, size_t n)
{
    size_t i = n - 1;
    while (i > 0 && o->at[i - 1] >= o->at[i]) {
        i--;
    }
    if (i == 0) {
        return false;
    }
    size_t j = n - 1;
    while (o->at[j] <= o->at[i - 1]) {
        j--;
    }
    unsigned char kept = o->at[i - 1];
    o->at[i - 1] = o->at[j];
    o->at[j] = kept;
    for (size_t a = i, b = n - 1; a < b; a++, b--) {
        kept = o->at[a];
        o->at[a] = o->at[b];
        o->at[b] = kept;
    }
    return true;
}

/* xorshift64*: a seed gives the same orders on every machine. */
static uint64_t next_random(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * 2685821657736338717ULL;
}

static void shuffle(struct order *o, size_t n, uint64_t *random)
{
    for (size_t i = n - 1; i > 0; i--) {
        size_t j = (size_t)(next_random(random) % (i + 1));
        unsigned char kept = o->at[i];
        o->at[i] = o->at[j];
        o->at[j] = kept;
    }
}

static const char *order_text(char *out, const struct trial *t, const struct order *o)
{
    size_t used = 0;
    for (size_t i = 0; i < t->d->setup->event_count && used < ORDER_TEXT_MAX; i++) {
        int n = snprintf(out + used, ORDER_TEXT_MAX - used, "%s%.60s", i > 0 ? ", " : "",
                         t->d->setup->events[o->at[i]].name);
        used += n > 0 ? (size_t)n : 0;
    }
    return out;
}

static void show(struct trial *t, const struct order *o, enum how how)
{
    const struct drill_setup *s = t->d->setup;
    buf_clear(&t->curl);
    if (s->reset_command != NULL) {
        curl_command(t, s->reset_command);
        curl_text(t, "; ");
    }
    curl_variables(t, o->at[0]);
    for (size_t i = 0; i < s->event_count; i++) {
        if (i > 0) {
            curl_key(t, o->at[i]);
        }
        for (unsigned k = 0; k < (how == EACH_TWICE ? 2 : 1); k++) {
            curl_send(t, o->at[i], DRILL_READ);
            curl_text(t, "; ");
        }
    }
    for (size_t i = 0; i + 1 < s->event_count && how == AGAIN_LATE; i++) {
        curl_key(t, o->at[i]);
        curl_send(t, o->at[i], DRILL_READ);
        curl_text(t, "; ");
    }
    curl_final(t, o->at[0]);
}

static void tell(struct trial *t, const struct order *reference, const struct buf *expected,
                 const struct order *o, const struct buf *state, const char *how, size_t left)
{
    char one[ORDER_TEXT_MAX] = "";
    char other[ORDER_TEXT_MAX] = "";
    trial_broken(t, "after %s the state is %.*s, after %s%s it is %.*s", order_text(one, t, reference),
                 shown(buf_slice(expected)), buf_slice(expected).ptr, order_text(other, t, o), how,
                 shown(buf_slice(state)), buf_slice(state).ptr);
    if (left > 0) {
        trial_broken(t, "%zu of them %s refused all %d times", left, left == 1 ? "was" : "were", PASSES_MAX);
    }
}

static void begin_order(struct order *o)
{
    for (unsigned i = 0; i < DRILL_EVENTS_MAX; i++) {
        o->at[i] = (unsigned char)i;
    }
}

/* The counter went on meanwhile; nobody judges it here. */
static void finish(struct trial *t)
{
    if (t->rc == 0) {
        bool still = false;
        t->rc = effects_settle(&t->d->counted, &still, &t->d->effects, INT64_MIN, &t->d->err);
        t->d->moving = !still;
    }
}

void case_event_orders(struct trial *t)
{
    size_t n = t->d->setup->event_count;
    uint64_t random = t->d->setup->seed * 2 + 1;
    bool all = n <= 5;
    struct order reference;
    struct order o;
    struct buf expected;
    struct buf state;
    unsigned tried = 1;
    unsigned other = 0;
    buf_init(&expected, STATE_BYTES_MAX);
    buf_init(&state, STATE_BYTES_MAX);
    begin_order(&reference);
    o = reference;
    run_reference(&expected, t, &reference);
    show(t, &o, EACH_ONCE);
    while (t->rc == 0 && t->verdict != DRILL_INCONCLUSIVE && tried < DRILL_ORDERS_MAX &&
           (!all || next_order(&o, n))) {
        if (!all) {
            shuffle(&o, n, &random);
        }
        size_t left = run_order(&state, t, &o, EACH_ONCE);
        tried++;
        if (t->rc == 0 && !slice_equal(buf_slice(&expected), buf_slice(&state)) && other++ == 0) {
            tell(t, &reference, &expected, &o, &state, "", left);
            show(t, &o, EACH_ONCE);
        }
    }
    finish(t);
    if (other > 1) {
        trial_broken(t, "%u of %u orders led to another state than the order of names", other, tried);
    } else if (!all) {
        trial_note(t, "%u orders of %zu events were tried, chosen by the seed", tried, n);
    }
    buf_free(&expected);
    buf_free(&state);
}

void case_event_twice(struct trial *t)
{
    struct order o;
    struct buf expected;
    struct buf state;
    buf_init(&expected, STATE_BYTES_MAX);
    buf_init(&state, STATE_BYTES_MAX);
    begin_order(&o);
    run_reference(&expected, t, &o);
    show(t, &o, EACH_TWICE);
    for (enum how how = EACH_TWICE; how <= AGAIN_LATE && t->rc == 0 && t->verdict == DRILL_HOLDS; how++) {
        buf_clear(&state);
        size_t left = run_order(&state, t, &o, how);
        if (t->rc == 0 && !slice_equal(buf_slice(&expected), buf_slice(&state))) {
            tell(t, &o, &expected, &o, &state,
                 how == EACH_TWICE ? ", each twice," : " and again all but the last", left);
            show(t, &o, how);
        }
    }
    finish(t);
    buf_free(&expected);
    buf_free(&state);
}
