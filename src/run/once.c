#include "run/once.h"

#include "base/clock.h"
#include "base/error.h"
#include "run/child.h"
#include "run/signals.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* More than the system lets a command line be. */
#define CONTENT_BYTES_MAX (16U * 1024U * 1024U)
/* Many processes of one instant wait for each other's commits on a file; so long a wait is cut into pieces, between
 * which signals are seen. */
#define BUSY_MS       30000
#define BUSY_SLICE_MS 5000
#define BUSY_SLICES   (BUSY_MS / BUSY_SLICE_MS)

enum { CODE_NOT_EXECUTABLE = 126, CODE_NOT_FOUND = 127, CODE_BY_SIGNAL = 128 };

struct once {
    const struct run_request *request;
    struct run_report *report;
    struct run_signals signals;
    struct buf content;
    hapax *store;
    hapax_claim claim;
};

static void note(const struct once *o, const char *text)
{
    o->request->note(o->request->ctx, text);
}

int run_content(struct buf *out, char *const *argv)
{
    int rc = 0;
    for (; *argv != NULL && rc == 0; argv++) {
        rc = buf_printf(out, "%zu:", strlen(*argv));
        rc = rc != 0 ? rc : buf_append_text(out, *argv);
    }
    return rc;
}

/* --- the store ----------------------------------------------------------------------------------- */

static bool is_file(const struct once *o)
{
    static const char scheme[] = "sqlite:";
    return strncmp(o->request->store_uri, scheme, sizeof scheme - 1) == 0;
}

/* Has another process the file's lock? Then nothing was changed, and it may be tried again. */
static bool is_locked(const struct once *o, int code, const hapax_error *err)
{
    enum { BUSY = 5, LOCKED = 6 }; /* SQLite's, whose numbers never change */
    int system = err->system & 0xff;
    return code == HAPAX_E_STORE && is_file(o) && (system == BUSY || system == LOCKED);
}

static int open_store(struct once *o, hapax_error *err)
{
    hapax_options options = {.size = sizeof options, .busy_ms = is_file(o) ? BUSY_SLICE_MS : BUSY_MS};
    int slices = 0;
    int code;
    do {
        code = hapax_open(&o->store, o->request->store_uri, &options, err);
    } while (is_locked(o, code, err) && ++slices < BUSY_SLICES);
    return code;
}

/* --- the claim ----------------------------------------------------------------------------------- */

/* A signal that asks us to end before there is a command to pass it on to; 0: none. */
static int ending_signal(struct once *o)
{
    for (int number; (number = run_signals_next(&o->signals)) != 0;) {
        if (run_signals_ends(number)) {
            return number;
        }
    }
    return 0;
}

/* Begin, and wait while the file is locked; but not when a signal comes: that the caller sees to. */
static int begin_unlocked(struct once *o, const hapax_request *claim, hapax_result *result, hapax_error *err)
{
    for (int slices = 1;; slices++) {
        int code = hapax_begin(o->store, claim, result, err);
        if (!is_locked(o, code, err) || slices >= BUSY_SLICES) {
            return code;
        }
        o->report->signal = ending_signal(o);
        if (o->report->signal != 0) {
            return code;
        }
    }
}

/* Begin until there is a verdict, the wait is over or a signal comes: then the report's signal is set. */
static int begin(struct once *o, hapax_result *result, hapax_error *err)
{
    const struct run_request *r = o->request;
    hapax_request claim = {
        .size = sizeof claim,
        .scope = RUN_SCOPE,
        .key = r->key,
        .content = r->ignore_args ? NULL : o->content.ptr,
        .content_bytes = r->ignore_args ? 0 : o->content.len,
        .lease_ms = r->lease_ms,
        .ttl_ms = r->ttl_ms,
        .take_over = r->retry_unknown,
        .heartbeat = 1,
    };
    int64_t end_mono_ms = clock_mono_ms() + r->wait_ms;
    for (bool first = true;; first = false) {
        o->report->signal = ending_signal(o);
        if (o->report->signal != 0) {
            return 0;
        }
        int code = begin_unlocked(o, &claim, result, err);
        int64_t left = end_mono_ms - clock_mono_ms();
        if (o->report->signal != 0) {
            return 0; /* the key is as it was */
        }
        if (code != 0 || result->verdict != HAPAX_IN_PROGRESS || left <= 0) {
            return code;
        }
        if (first) {
            note(o, "the command runs already for this key: waiting for its end");
        }
        claim.wait_ms = left < RUN_WAIT_SLICE_MS ? left : RUN_WAIT_SLICE_MS;
    }
}

/* --- the end ------------------------------------------------------------------------------------- */

static bool may_pass(int code)
{
    return code == HAPAX_E_STORE || code == HAPAX_E_STORE_FULL || code == HAPAX_E_BUSY ||
           code == HAPAX_E_MEMORY || code == HAPAX_E_TIMEOUT;
}

/* Our lease ran out (this host slept, or the store was away), but nobody has started anew: what we know about the end
 * of the command is what an operator would find out. Only for a command that succeeded: that stays true whatever
 * another run does at this moment. HAPAX_E_STALE: the record is not ours any more. */
static int settle_own(struct once *o, struct slice answer, hapax_error *err)
{
    hapax_record found;
    if (hapax_lookup(o->store, RUN_SCOPE, o->request->key, &found, NULL) != 0) {
        return HAPAX_E_STALE;
    }
    hapax_answer_free(found.answer);
    if (found.state != HAPAX_UNKNOWN_OUTCOME || found.claim.serial != o->claim.serial ||
        found.claim.attempt != o->claim.attempt) {
        return HAPAX_E_STALE;
    }
    int code = hapax_resolve(o->store, RUN_SCOPE, o->request->key, answer.ptr, answer.len, err);
    if (code == 0) {
        note(o, "the claim on the key had run out while the command ran (was this host asleep, or the store "
                "away?); nobody has run it again, and its end is stored now");
    }
    return code == HAPAX_E_CONFLICT || code == HAPAX_E_NOT_FOUND ? HAPAX_E_STALE : code;
}

/* What is recorded of a command that has ended: how, and what it wrote. SLICE_NONE: its key is free again. */
struct ending {
    struct slice answer;
    bool succeeded;
};

static int store_once(struct once *o, const struct ending *ending, hapax_error *err)
{
    if (slice_is_none(ending->answer)) {
        return hapax_release(o->store, &o->claim, err);
    }
    int code = hapax_complete(o->store, &o->claim, ending->answer.ptr, ending->answer.len, err);
    return code == HAPAX_E_STALE && ending->succeeded ? settle_own(o, ending->answer, err) : code;
}

/* Tried again for that long, or until a signal asks us to end: then that is *number. */
static int store_end(struct once *o, const struct ending *ending, int64_t for_ms, int *number,
                     hapax_error *err)
{
    int64_t end_mono_ms = clock_mono_ms() + for_ms;
    for (bool first = true;; first = false) {
        int code = store_once(o, ending, err);
        if (!may_pass(code) || clock_mono_ms() >= end_mono_ms) {
            return code;
        }
        int came = ending_signal(o);
        if (came != 0) {
            *number = came;
            return code;
        }
        if (first) {
            char text[HAPAX_ERROR_MESSAGE_MAX + 128];
            snprintf(text, sizeof text,
                     "can't store the end of the command: %s; trying again until its claim ends",
                     err->message);
            note(o, text);
        }
        (void)poll(&(struct pollfd){.fd = o->signals.fd, .events = POLLIN}, 1, RUN_STORE_PAUSE_MS);
    }
}

/* The command, if it was started, has failed: the next run may begin. */
static int free_key(struct once *o, int *number, hapax_error *err)
{
    struct ending released = {.answer = SLICE_NONE};
    return store_end(o, &released, o->request->lease_ms, number, err);
}

static int store_kept(struct once *o, const struct run_kept *kept, int64_t for_ms, int *number,
                      hapax_error *err)
{
    struct buf answer;
    buf_init(&answer, HAPAX_ANSWER_BYTES_MAX);
    int code = run_kept_encode(&answer, kept);
    struct ending ending = {.answer = buf_slice(&answer), .succeeded = kept->code == 0};
    code = code == 0 ? store_end(o, &ending, for_ms, number, err) : error_code(err, code);
    buf_free(&answer);
    return code;
}

/* That the command is done matters more than what it wrote: for half of the time it is tried with that, then without,
 * for which a full store or memory may have room. */
static int keep_end(struct once *o, struct run_child_end *end, hapax_error *err)
{
    int64_t lease_ms = o->request->lease_ms;
    struct run_kept kept = {.code = end->code};
    bool bare = true;
    for (int i = 0; i < RUN_STREAMS; i++) {
        kept.kept[i] = buf_slice(&end->kept[i]);
        kept.written[i] = end->written[i];
        bare = bare && kept.kept[i].len == 0;
    }
    int code = store_kept(o, &kept, bare ? lease_ms : lease_ms / 2, &end->ending_signal, err);
    if (bare || !may_pass(code)) {
        return code;
    }
    kept.kept[RUN_STDOUT] = kept.kept[RUN_STDERR] = slice_of("", 0);
    code = store_kept(o, &kept, end->ending_signal == 0 ? lease_ms / 2 : 0, &end->ending_signal, err);
    if (code == 0) {
        note(o, "the end of the command is stored without its output, for which the store had no room");
    }
    return code;
}

/* --- the command --------------------------------------------------------------------------------- */

/* Ours with HAPAX_KEY and HAPAX_ATTEMPT; owned: the array and its first two. NULL without memory. */
static char **make_environment(const struct once *o)
{
    enum { ADDED = 2 };
    size_t n = 0;
    while (environ[n] != NULL) {
        n++;
    }
    char **made = calloc(n + ADDED + 1, sizeof *made);
    if (made == NULL || asprintf(&made[0], "HAPAX_KEY=%s", o->request->key) < 0 ||
        asprintf(&made[1], "HAPAX_ATTEMPT=%" PRIu32, o->claim.attempt) < 0) {
        return NULL; /* at the end of the process: not worth a path of its own */
    }
    size_t used = ADDED;
    for (size_t i = 0; i < n; i++) {
        if (strncmp(environ[i], "HAPAX_KEY=", 10) != 0 && strncmp(environ[i], "HAPAX_ATTEMPT=", 14) != 0) {
            made[used++] = environ[i];
        }
    }
    return made;
}

static void free_environment(char **environment)
{
    free(environment[0]);
    free(environment[1]);
    free(environment);
}

static int run_claimed(struct once *o, struct run_child_end *end, hapax_error *err)
{
    char **environment = make_environment(o);
    if (environment == NULL) {
        return error_code(err, HAPAX_E_MEMORY);
    }
    struct run_child_request child = {
        .argv = o->request->argv,
        .environment = environment,
        .timeout_ms = o->request->timeout_ms,
        .kill_after_ms = o->request->kill_after_ms,
        .keep_bytes_max = o->request->keep_bytes,
        .note = o->request->note,
        .ctx = o->request->ctx,
    };
    int code = run_child(end, &child, &o->signals, err);
    free_environment(environment);
    return code;
}

/* We have the claim. Whatever happens, it is ended here. */
static int execute(struct once *o, hapax_error *err)
{
    struct run_report *report = o->report;
    struct run_child_end end = {0};
    int code = run_claimed(o, &end, err);
    bool started = code == 0 && end.start_error == 0;
    bool keep = started && (end.code == 0 || o->request->keep_failures);
    report->code = end.start_error == 0        ? end.code
                   : end.start_error == ENOENT ? CODE_NOT_FOUND
                                               : CODE_NOT_EXECUTABLE;
    report->signal = end.signal;
    report->start_error = end.start_error;
    report->attempt = o->claim.attempt;
    hapax_error stored_err = {0};
    int stored = keep ? keep_end(o, &end, &stored_err) : free_key(o, &end.ending_signal, &stored_err);
    if (stored != 0) {
        report->error = stored_err;
        report->error.code = stored;
    }
    report->end = !started ? RUN_NOT_STARTED : stored != 0 ? RUN_UNRECORDED : RUN_EXECUTED;
    run_child_pass_on(&end); /* only now: our reader may take hours */
    report->write_error = end.write_error;
    report->cut_by = end.is_cut ? end.ending_signal : 0;
    run_child_end_free(&end);
    return code;
}

/* The claim is ours, but before the command was started we were asked to end. */
static void back_out(struct once *o)
{
    int again = 0;
    hapax_error err = {0};
    int code = free_key(o, &again, &err);
    if (code != 0) {
        o->report->error = err;
        o->report->error.code = code;
    }
    o->report->end = RUN_INTERRUPTED;
    o->report->code = CODE_BY_SIGNAL + o->report->signal;
}

static int act(struct once *o, hapax_error *err)
{
    hapax_result result = {0};
    int code = begin(o, &result, err);
    struct run_report *report = o->report;
    if (code != 0 || report->signal != 0) {
        report->end = RUN_INTERRUPTED;
        report->code = CODE_BY_SIGNAL + report->signal;
        return code;
    }
    report->claimed_ms = result.claimed_ms;
    report->answer = result.answer;
    struct slice answer = {0};
    switch (result.verdict) {
    case HAPAX_FRESH:
        o->claim = result.claim;
        report->signal = ending_signal(o); /* while the store was asked */
        if (report->signal != 0) {
            back_out(o);
            return 0;
        }
        return execute(o, err);
    case HAPAX_REPLAY:
    case HAPAX_ATTACHED:
        answer.ptr = hapax_answer_data(result.answer, &answer.len);
        report->by_hand = !run_kept_decode(&report->kept, answer);
        report->code = report->kept.code;
        report->end = RUN_REPEATED;
        return 0;
    case HAPAX_IN_PROGRESS:
        report->end = RUN_BUSY;
        return 0;
    case HAPAX_MISMATCH:
        report->end = RUN_MISMATCH;
        return 0;
    case HAPAX_UNKNOWN:
        break;
    }
    report->end = RUN_UNKNOWN;
    return 0;
}

int run_once(struct run_report *out, const struct run_request *request, hapax_error *err)
{
    *out = (struct run_report){0};
    struct once o = {.request = request, .report = out};
    buf_init(&o.content, CONTENT_BYTES_MAX);
    int code = run_content(&o.content, request->argv);
    if (code != 0) {
        buf_free(&o.content);
        return error_code(err, code);
    }
    code = open_store(&o, err); /* until there is something to lose, a signal ends us as it is */
    code = code != 0 ? code : run_signals_open(&o.signals, err);
    if (code == 0) {
        code = act(&o, err);
        run_signals_close(&o.signals);
    }
    hapax_close(o.store);
    buf_free(&o.content);
    return code;
}

void run_report_free(struct run_report *report)
{
    hapax_answer_free(report->answer);
    report->answer = NULL;
}
