/* Trials and flights. Invariant: whatever goes to the endpoint goes through flight_start(), which counts it. */
#include "drill/machine.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/error.h"
#include "core/shown.h"
#include "drill/answers.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define TRIAL_ARENA_BYTES_MAX (256U << 20)
#define TEXT_BYTES_MAX        (64U * 1024U)
#define EXCERPT_BYTES_MAX     120
#define BACK_OFF_MS           20
#define BACK_OFF_MS_MAX       500
#define IDLE_PARTS            5 /* of settle_ms: how long nobody else may move the counter */
#define REST_PARTS            6 /* of settle_ms_max: how long a counter may go on moving between two cases */
#define STUCK_SEEN_PART       10 /* once a key was stuck for all of recover_ms, later ones get this part of it, */
#define STUCK_SEEN_NORMAL     3 /* but at least so many times what a fresh operation takes */

/* --- A case. ------------------------------------------------------------------------------------- */

static bool interrupted(const struct trial *t)
{
    return t->d->setup->stop != NULL && *t->d->setup->stop != 0;
}

static void fail(struct trial *t, int rc)
{
    t->rc = t->rc != 0 ? t->rc : rc;
}

void note_late_effects(struct drill *d, int64_t counter)
{
    struct drill_case *last = d->last_case;
    if (last == NULL || counter == d->counted || last->verdict != DRILL_HOLDS) {
        return;
    }
    char text[256];
    snprintf(text, sizeof text,
             "the counter moved by %lld after it had been still: effects come later than --settle waits, or "
             "somebody else uses the endpoint",
             (long long)(counter - d->counted));
    struct slice kept;
    if (arena_copy(&d->report->arena, slice_text(text), &kept) == 0) {
        last->what = kept.ptr;
    }
    last->verdict = DRILL_INCONCLUSIVE;
}

/* What comes late belongs to the last case, which has said so; it must not fall into the next one. */
static void await_rest(struct trial *t)
{
    struct drill *d = t->d;
    for (unsigned i = 0; i < REST_PARTS && d->moving && t->rc == 0; i++) {
        bool still = false;
        fail(t, effects_settle(&d->counted, &still, &d->effects, INT64_MIN, &d->err));
        d->moving = !still;
        if (interrupted(t)) {
            fail(t, error_set(&d->err, HAPAX_E_CANCELED, 0, "interrupted"));
        }
    }
    if (d->moving && t->rc == 0) {
        fail(t, error_set(&d->err, HAPAX_E_LIMIT, 0, "the counter does not come to rest"));
    }
}

void trial_begin(struct trial *t, struct drill *d, struct drill_case *out)
{
    *t = (struct trial){.d = d, .out = out, .effects = -1, .started_ms = clock_mono_ms()};
    arena_init(&t->arena, TRIAL_ARENA_BYTES_MAX);
    buf_init(&t->why, TEXT_BYTES_MAX);
    buf_init(&t->curl, TEXT_BYTES_MAX);
    out->effects_least = out->effects_most = out->effects_seen = -1;
    await_rest(t);
    if (t->rc == 0) {
        fail(t, effects_read(&t->before, &d->effects, &d->err));
    }
    if (t->rc == 0) {
        note_late_effects(d, t->before);
        d->counted = t->before;
        d->last_case = out;
    }
}

void trial_expect(struct trial *t, int64_t least, int64_t most)
{
    t->out->effects_least = least;
    t->out->effects_most = most;
}

void trial_count(struct trial *t, int64_t least)
{
    int64_t after = 0;
    bool still = false;
    if (t->rc == 0) {
        fail(t, effects_settle(&after, &still, &t->d->effects, t->before + least, &t->d->err));
    }
    if (t->rc == 0 && interrupted(t)) {
        fail(t, error_set(&t->d->err, HAPAX_E_CANCELED, 0, "interrupted"));
    }
    if (t->rc == 0) {
        t->d->moving = t->moving = !still;
        t->d->counted = after;
        t->effects = after - t->before;
        t->out->effects_seen = t->effects;
        if (t->effects < 0) {
            trial_doubt(t, "the counter went back by %lld", (long long)-t->effects);
        }
    }
}

bool trial_is_idle(struct trial *t)
{
    struct drill *d = t->d;
    int64_t counter = d->counted;
    if (t->rc == 0) {
        effects_sleep(d->setup, d->setup->settle_ms * IDLE_PARTS);
        fail(t, effects_read(&counter, &d->effects, &d->err));
    }
    bool idle = counter == d->counted;
    d->counted = counter;
    return idle;
}

static void say(struct trial *t, enum drill_verdict verdict, const char *format, va_list list)
{
    char text[1024];
    vsnprintf(text, sizeof text, format, list);
    bool worse = verdict == DRILL_BROKEN && t->verdict != DRILL_BROKEN;
    if (worse) {
        buf_clear(&t->why); /* a note does not stand before what is wrong */
    }
    if (worse || t->verdict == DRILL_HOLDS) {
        t->verdict = verdict;
    }
    if (t->why.len > 0 && memmem(t->why.ptr, t->why.len, text, strlen(text)) != NULL) {
        return; /* of one of several operations before */
    }
    if (buf_append_text(&t->why, t->why.len > 0 ? "; " : "") != 0 || buf_append_text(&t->why, text) != 0) {
        fail(t, HAPAX_E_MEMORY);
    }
}

void trial_broken(struct trial *t, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    say(t, DRILL_BROKEN, format, list);
    va_end(list);
}

void trial_doubt(struct trial *t, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    if (t->verdict != DRILL_BROKEN) {
        say(t, DRILL_INCONCLUSIVE, format, list);
    }
    va_end(list);
}

void trial_note(struct trial *t, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    if (t->verdict == DRILL_HOLDS) {
        say(t, DRILL_HOLDS, format, list);
    }
    va_end(list);
}

/* --- The case's texts. --------------------------------------------------------------------------- */

/* Into the report: harmless to look at, and on one line. */
static const char *keep_text(struct drill_report *r, struct slice text)
{
    struct buf shown;
    struct slice kept = SLICE_LITERAL("");
    buf_init(&shown, 4 * TEXT_BYTES_MAX);
    if (shown_append(&shown, text) != 0 || arena_copy(&r->arena, buf_slice(&shown), &kept) != 0) {
        kept = SLICE_LITERAL("(no memory for this text)");
    }
    buf_free(&shown);
    return kept.ptr;
}

static int by_status(const void *a, const void *b)
{
    return ((const struct drill_status *)a)->status - ((const struct drill_status *)b)->status;
}

static void note_status(struct trial *t, int status)
{
    size_t at = 0;
    while (at < t->status_count && t->statuses[at].status != status) {
        at++;
    }
    if (at == t->status_count && at < TRIAL_STATUSES_MAX) {
        t->statuses[t->status_count++] = (struct drill_status){.status = status};
    }
    if (at < TRIAL_STATUSES_MAX) {
        t->statuses[at].times++;
    }
}

void trial_forget(struct trial *t)
{
    for (size_t i = 0; i < t->sent_count; i++) {
        note_status(t, t->sent[i].answer.status);
    }
    t->requests += (unsigned)t->sent_count;
    t->sent_count = 0;
    arena_free(&t->arena);
    arena_init(&t->arena, TRIAL_ARENA_BYTES_MAX);
}

static void keep_statuses(struct trial *t)
{
    struct drill_status *list = arena_array(&t->d->report->arena, t->status_count, sizeof *list);
    for (size_t i = 0; list != NULL && i < t->status_count; i++) {
        list[i] = t->statuses[i];
    }
    if (list != NULL) {
        qsort(list, t->status_count, sizeof *list, by_status);
    }
    t->out->statuses = list;
    t->out->status_count = list != NULL ? t->status_count : 0;
}

/* Nobody took any of its requests: that says nothing about keys. */
static void note_gone(struct trial *t)
{
    const struct answer *last = t->sent_count > 0 ? &t->sent[t->sent_count - 1].answer : NULL;
    for (size_t i = 0; i < t->sent_count; i++) {
        if (t->sent[i].answer.result != WIRE_NO_CONNECTION) {
            return;
        }
    }
    if (last != NULL && t->requests == 0 && t->rc == 0 && t->out->group != DRILL_CHECK) {
        buf_clear(&t->why);
        t->verdict = DRILL_INCONCLUSIVE;
        t->ends_run = true;
        (void)buf_printf(&t->why, "the endpoint is gone: %s", last->detail);
    }
}

void trial_end(struct trial *t)
{
    struct drill *d = t->d;
    note_gone(t);
    if (t->rc != 0) {
        if (t->verdict != DRILL_BROKEN) {
            t->verdict = DRILL_INCONCLUSIVE;
        }
        struct slice why = interrupted(t)              ? SLICE_LITERAL("interrupted")
                           : d->err.message[0] != '\0' ? slice_text(d->err.message)
                                                       : slice_text(hapax_error_text(t->rc));
        (void)buf_printf(&t->why, "%s%.*s", t->why.len > 0 ? "; " : "", SLICE_FORMAT(why));
    }
    t->out->verdict = t->verdict;
    t->out->what = keep_text(d->report, buf_slice(&t->why));
    t->out->curl = keep_text(d->report, buf_slice(&t->curl));
    trial_forget(t);
    t->out->requests = t->requests;
    t->out->duration_ms = clock_mono_ms() - t->started_ms;
    t->out->duration_ms = t->out->duration_ms > 0 ? t->out->duration_ms : 1;
    keep_statuses(t);
    buf_free(&t->why);
    buf_free(&t->curl);
    arena_free(&t->arena);
}

/* --- Operations. --------------------------------------------------------------------------------- */

/* A random UUID of version 4 whose first 12 digits name the run. */
static void make_key(struct drill *d, char *out)
{
    uint64_t low = digest_table_hash(slice_of(&d->operations, sizeof d->operations));
    snprintf(out, KEY_TEXT_MAX, "%s4%03x-a%03x-%012llx", d->run_key, (unsigned)(low >> 52),
             (unsigned)(low >> 40) & 0xFFFU, (unsigned long long)d->operations);
}

unsigned trial_operation(struct trial *t, enum drill_payload payload, enum drill_place place)
{
    struct drill *d = t->d;
    HAPAX_ASSERT(t->operation_count < TRIAL_OPERATIONS_MAX);
    struct operation *op = &t->operations[t->operation_count];
    *op = (struct operation){.payload = payload, .place = place};
    d->operations++;
    make_key(d, op->key);
    snprintf(op->unique, sizeof op->unique, "%s%06u", d->run_unique, d->operations % 1000000);
    return t->operation_count++;
}

unsigned trial_operation_like(struct trial *t, unsigned other, enum drill_payload payload,
                              enum drill_place place)
{
    HAPAX_ASSERT(t->operation_count < TRIAL_OPERATIONS_MAX && other < t->operation_count);
    struct operation *op = &t->operations[t->operation_count];
    *op = t->operations[other];
    op->payload = payload;
    op->place = place;
    return t->operation_count++;
}

/* --- Flights. ------------------------------------------------------------------------------------ */

/* false: there is no more to be sent. */
static bool may_send(struct trial *t)
{
    struct drill *d = t->d;
    if (t->rc == 0 && interrupted(t)) {
        fail(t, error_set(&d->err, HAPAX_E_CANCELED, 0, "interrupted"));
    } else if (t->rc == 0 && t->sent_count == TRIAL_SENT_MAX) {
        fail(t, error_set(&d->err, HAPAX_E_LIMIT, 0, "more than %d requests in one go", TRIAL_SENT_MAX));
    } else if (t->rc == 0 && d->requests >= d->setup->requests_max) {
        fail(t,
             error_set(&d->err, HAPAX_E_LIMIT, 0,
                       "%u requests were sent, which is the most allowed: say --requests-max", d->requests));
    }
    return t->rc == 0;
}

static void launch(struct trial *t, struct flight *f, unsigned operation, enum phase phase,
                   enum drill_delivery delivery, struct slice bytes)
{
    struct drill *d = t->d;
    d->requests++;
    f->sent = &t->sent[t->sent_count++];
    *f->sent = (struct sent){.operation = operation, .phase = phase};
    shot_start(&d->wire, &f->shot, &d->places[t->operations[operation].place], bytes, delivery,
               strcmp(d->setup->method, "HEAD") == 0, d->setup->timeout_ms);
}

void flight_start(struct trial *t, struct flight *f, unsigned operation, enum phase phase,
                  enum drill_delivery delivery)
{
    struct drill *d = t->d;
    *f = (struct flight){.sent = NULL};
    if (!may_send(t)) {
        return;
    }
    const struct operation *op = &t->operations[operation];
    size_t cut = 0;
    buf_init(&f->bytes, REQUEST_BYTES_MAX);
    int rc = request_write(&f->bytes, &cut, d->setup, &d->payloads, op,
                           slice_text(d->places[op->place].authority), d->targets[op->place]);
    if (rc != 0) {
        buf_free(&f->bytes);
        fail(t, error_code(&d->err, rc));
        return;
    }
    struct slice bytes = buf_slice(&f->bytes);
    bytes.len = delivery == DRILL_REQUEST_LOST ? cut : bytes.len;
    launch(t, f, operation, phase, delivery, bytes);
}

/* The bytes of `other`, which must be there until this one is done: a crowd's large request exists once. */
static void flight_start_like(struct trial *t, struct flight *f, const struct flight *other)
{
    *f = (struct flight){.sent = NULL};
    if (other->sent != NULL && may_send(t)) {
        launch(t, f, other->sent->operation, other->sent->phase, DRILL_READ, buf_slice(&other->bytes));
    }
}

void flight_drive(struct trial *t, struct flight *f, enum shot_state state)
{
    struct shot *one = &f->shot;
    if (f->sent != NULL) {
        shots_drive(&t->d->wire, &one, 1, state);
    }
}

void flight_go(struct flight *f)
{
    struct shot *one = &f->shot;
    if (f->sent != NULL) {
        shots_go(&one, 1);
    }
}

bool flight_is_connected(const struct flight *f)
{
    char byte;
    if (f->sent == NULL || f->shot.state != SHOT_READY) {
        return false;
    }
    ssize_t n = recv(f->shot.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return n > 0 || (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)); /* more than nothing: of TLS */
}

static int copy_headers(struct answer *out, const struct shot *s, struct arena *arena)
{
    struct header *headers = arena_array(arena, s->head.count, sizeof *headers);
    int rc = headers == NULL && s->head.count > 0 ? arena_error(arena) : 0;
    for (size_t i = 0; i < s->head.count && rc == 0; i++) {
        rc = arena_copy(arena, s->head.headers[i].name, &headers[i].name);
        rc = rc != 0 ? rc : arena_copy(arena, s->head.headers[i].value, &headers[i].value);
    }
    out->headers = headers;
    out->header_count = s->head.count;
    return rc;
}

static int keep_answer(struct answer *out, const struct shot *s, struct arena *arena)
{
    struct slice detail = SLICE_LITERAL("");
    struct slice body = buf_slice(&s->body);
    *out = (struct answer){.result = s->result};
    int rc = arena_copy(arena, slice_text(s->detail), &detail);
    out->detail = rc == 0 ? detail.ptr : "";
    if (rc != 0 || s->result != WIRE_ANSWERED) {
        return rc;
    }
    out->status = s->head.status;
    out->body_bytes = body.len;
    rc = digest_sha256(out->digest, body);
    rc = rc != 0 ? rc : copy_headers(out, s, arena);
    out->unknown_type = rc == 0 && answer_body_says_unknown(out, body);
    body.len = body.len < EXCERPT_BYTES_MAX ? body.len : EXCERPT_BYTES_MAX;
    return rc != 0 ? rc : arena_copy(arena, body, &out->excerpt);
}

void flight_land(struct trial *t, struct flight *f)
{
    if (f->sent == NULL) {
        return;
    }
    flight_drive(t, f, SHOT_DONE);
    int rc = keep_answer(&f->sent->answer, &f->shot, &t->arena);
    if (rc != 0) {
        fail(t, error_code(&t->d->err, rc));
    }
    shot_free(&t->d->wire, &f->shot);
    buf_free(&f->bytes);
}

/* --- Several. ------------------------------------------------------------------------------------ */

const struct answer *trial_send(struct trial *t, unsigned operation, enum phase phase)
{
    struct flight f;
    flight_start(t, &f, operation, phase, DRILL_READ);
    flight_drive(t, &f, SHOT_READY);
    flight_go(&f);
    flight_land(t, &f);
    return t->rc == 0 ? &f.sent->answer : NULL;
}

void trial_series(struct trial *t, unsigned operation, enum phase phase, unsigned times)
{
    for (unsigned i = 0; i < times && t->rc == 0; i++) {
        (void)trial_send(t, operation, phase);
    }
}

void trial_at_once(struct trial *t, unsigned operation, enum phase phase, unsigned times)
{
    HAPAX_ASSERT(times <= DRILL_TIMES_MAX);
    struct flight *flights = calloc(times, sizeof *flights);
    struct shot *shots[DRILL_TIMES_MAX] = {NULL};
    size_t count = 0;
    if (flights == NULL) {
        fail(t, error_code(&t->d->err, HAPAX_E_MEMORY));
        return;
    }
    for (unsigned i = 0; i < times; i++) {
        if (i == 0) {
            flight_start(t, &flights[i], operation, phase, DRILL_READ);
        } else {
            flight_start_like(t, &flights[i], &flights[0]);
        }
        if (flights[i].sent != NULL) {
            shots[count++] = &flights[i].shot;
        }
    }
    shots_drive(&t->d->wire, shots, count, SHOT_READY);
    shots_go(shots, count);
    shots_drive(&t->d->wire, shots, count, SHOT_DONE);
    for (unsigned i = 0; i < times; i++) {
        flight_land(t, &flights[i]);
    }
    free(flights);
}

static int64_t confirm_ms(const struct drill *d)
{
    int64_t part = d->setup->recover_ms / STUCK_SEEN_PART;
    int64_t normal = d->normal_ms * STUCK_SEEN_NORMAL;
    int64_t seen = part > normal ? part : normal;
    return d->stuck_seen && seen < d->setup->recover_ms ? seen : d->setup->recover_ms;
}

const struct answer *trial_confirm(struct trial *t, unsigned operation)
{
    struct drill *d = t->d;
    int64_t end = clock_mono_ms() + confirm_ms(d);
    int64_t pause = BACK_OFF_MS;
    for (;;) {
        const struct answer *a = trial_send(t, operation, PHASE_CONFIRM);
        if (a == NULL || answer_is_definite(a, d->profile)) {
            return a;
        }
        int64_t wait = answer_retry_ms(a) > pause ? answer_retry_ms(a) : pause;
        if (clock_mono_ms() + wait >= end) {
            d->stuck_seen = true;
            return a;
        }
        effects_sleep(d->setup, wait);
        pause = pause * 2 < BACK_OFF_MS_MAX ? pause * 2 : BACK_OFF_MS_MAX;
    }
}
