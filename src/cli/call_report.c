/* What `hapax call` prints. stdout holds the answer's body and nothing else (or one JSON document); stderr says how it
 * went: never a header's value or a body, and the key only where the user needs it to go on. */
#include "base/clock.h"
#include "cli/call.h"
#include "cli/home_store.h"
#include "cli/output.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DURATION_BYTES 32

/* "340 ms", "1.3 s", "5 m 20 s" */
static void say_duration(char out[DURATION_BYTES], int64_t ms)
{
    if (ms < 1000) {
        snprintf(out, DURATION_BYTES, "%d ms", (int)ms);
    } else if (ms < 60000) {
        snprintf(out, DURATION_BYTES, "%d.%d s", (int)(ms / 1000), (int)(ms % 1000 / 100));
    } else {
        snprintf(out, DURATION_BYTES, "%lld m %d s", (long long)(ms / 60000), (int)(ms % 60000 / 1000));
    }
}

/* --- a signal ------------------------------------------------------------------------------------ */

/* What a process that is told to end says: ready before it comes, since a handler may do little but write. The records
 * need no more: a dead process's claim is unknown, and the next one goes on with the key. */
static char farewell[512];
static volatile sig_atomic_t farewell_bytes;

static void on_signal(int number)
{
    size_t n = (size_t)farewell_bytes;
    (void)!write(STDERR_FILENO, farewell, n);
    signal(number, SIG_DFL);
    raise(number);
}

/* Does the same command line lead to the same key? */
static bool is_named(const struct cli_args *args)
{
    return cli_given(args, "op") || cli_given(args, "key") || cli_given(args, "key-from");
}

static void prepare_farewell(const struct cli_args *args, const char *key)
{
    farewell_bytes = 0;
    int n =
        is_named(args)
            ? snprintf(farewell, sizeof farewell,
                       "hapax call: interrupted; run the same command again: it goes on with the same key\n")
            : snprintf(farewell, sizeof farewell,
                       "hapax call: interrupted; run it again with --key %s: it goes on with the same key\n",
                       key);
    farewell_bytes = n > 0 && (size_t)n < sizeof farewell ? n : 0;
}

static void say_farewell_at(int number)
{
    struct sigaction action = {.sa_handler = on_signal};
    struct sigaction before;
    sigemptyset(&action.sa_mask);
    if (sigaction(number, NULL, &before) == 0 && before.sa_handler == SIG_DFL) { /* not under nohup */
        sigaction(number, &action, NULL);
    }
}

/* --- while it goes on ---------------------------------------------------------------------------- */

void call_report_progress(void *ctx, const hapax_call_progress *p)
{
    const struct call_report *report = ctx;
    const struct cli_args *args = report->args;
    char delay[DURATION_BYTES];
    if (p->step == HAPAX_CALL_STEP_SEND && p->number == 1) {
        prepare_farewell(args, p->key);
        say_farewell_at(SIGINT);
        say_farewell_at(SIGTERM);
        say_farewell_at(SIGHUP);
    }
    if (!report->notes) {
        return;
    }
    bool names_key = cli_flag(args, "verbose") && p->number == 1;
    switch (p->step) {
    case HAPAX_CALL_STEP_WAIT:
        output_message(args->command, "another process is at this operation: waiting for its answer");
        break;
    case HAPAX_CALL_STEP_SEND:
        output_message(args->command, "attempt %u: sending%s%s (time-out %s)", p->number,
                       names_key ? ", with the key " : "", names_key ? p->key : "",
                       cli_text(args, "timeout"));
        break;
    case HAPAX_CALL_STEP_RETRY:
        say_duration(delay, p->delay_ms);
        output_message(args->command, "attempt %u: %s; attempt %u, with the same key, in %s", p->number - 1,
                       p->last->detail, p->number, delay);
        break;
    }
}

/* --- the answer ---------------------------------------------------------------------------------- */

static bool succeeded(int status)
{
    return (status >= 200 && status <= 299) || status == 303;
}

static bool is_redirect(int status)
{
    return status >= 300 && status <= 399 && status != 303 && status != 304;
}

/* Is there an answer to hand out? Not what a server in trouble said to the last of many attempts. */
static bool is_handed_out(const hapax_call_result *r)
{
    return r->end == HAPAX_CALL_END_ANSWERED || r->end == HAPAX_CALL_END_REPLAYED ||
           r->end == HAPAX_CALL_END_REJECTED;
}

static int write_file(const struct call_report *report, const hapax_call_result *r, const char *path)
{
    if (!r->body_kept) {
        output_message(report->args->command, "%s is not written: the body is not kept", path);
        return CLI_FAILED;
    }
    FILE *file = fopen(path, "we");
    bool good = file != NULL && fwrite(r->body, 1, r->body_bytes, file) == r->body_bytes;
    int error = errno;
    if (file != NULL && fclose(file) != 0) {
        error = good ? errno : error;
        good = false;
    }
    if (!good) {
        output_message(
            report->args->command,
            "can't write %s: %s; the server has answered: run the same command with another --output to "
            "get it",
            path, strerror(error));
    }
    return good ? CLI_OK : CLI_FAILED;
}

/* A body goes out as it is; header lines are there to be looked at, and steer no terminal. */
static int write_head(const struct call_report *report, const hapax_call_result *r)
{
    struct buf head;
    buf_init(&head, 8U * HAPAX_CALL_HEAD_BYTES_MAX);
    int rc = buf_printf(&head, "HTTP/1.1 %d\n", r->status);
    for (size_t i = 0; i < r->header_count && rc == 0; i++) {
        rc = output_escape(&head, slice_text(r->headers[i].name));
        rc = rc != 0 ? rc : buf_append_text(&head, ": ");
        rc = rc != 0 ? rc : output_escape(&head, slice_text(r->headers[i].value));
        rc = rc != 0 ? rc : buf_append_byte(&head, '\n');
    }
    rc = rc != 0 ? rc : buf_append_byte(&head, '\n');
    if (rc == 0) {
        fwrite(head.ptr, 1, head.len, stdout);
    }
    buf_free(&head);
    return rc == 0 ? CLI_OK : output_no_memory(report->args->command);
}

static int write_answer(const struct call_report *report, const hapax_call_result *r)
{
    const char *path = cli_text(report->args, "output");
    int rc = cli_flag(report->args, "include") ? write_head(report, r) : CLI_OK;
    if (rc != CLI_OK) {
        return rc;
    }
    if (path != NULL) {
        return write_file(report, r, path);
    }
    fwrite(r->body, 1, r->body_bytes, stdout); /* nothing, where it is not kept */
    return CLI_OK;
}

/* --- JSON ---------------------------------------------------------------------------------------- */

static json_t *headers_json(const hapax_call_result *r)
{
    json_t *list = json_array();
    for (size_t i = 0; i < r->header_count; i++) {
        json_array_append_new(list, json_pack("[o, o]", output_json_text(slice_text(r->headers[i].name)),
                                              output_json_text(slice_text(r->headers[i].value))));
    }
    return list;
}

static json_t *attempts_json(const hapax_call_result *r)
{
    json_t *list = json_array();
    for (size_t i = 0; i < r->attempt_count; i++) {
        const hapax_call_attempt *a = &r->attempts[i];
        json_array_append_new(list,
                              json_pack("{s:i, s:o, s:I, s:I, s:o, s:s, s:o}", "number", (int)i + 1,
                                        "started", output_json_instant(a->started_ms), "waited_ms",
                                        (json_int_t)a->waited_ms, "took_ms", (json_int_t)a->took_ms, "status",
                                        a->status != 0 ? json_integer(a->status) : json_null(), "news",
                                        hapax_call_news_name(a->news), "detail",
                                        output_json_text(slice_text(a->detail))));
    }
    return list;
}

static json_t *base64_json(struct slice bytes)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t len = (bytes.len + 2) / 3 * 4;
    char *text = malloc(len + 1);
    if (text == NULL) {
        return NULL;
    }
    char *at = text;
    for (size_t i = 0; i < bytes.len; i += 3) {
        uint32_t group = 0;
        for (size_t k = 0; k < 3; k++) {
            group = group << 8 | (i + k < bytes.len ? (unsigned char)bytes.ptr[i + k] : 0U);
        }
        for (size_t k = 0; k < 4; k++) {
            *at++ = i + k > bytes.len ? '=' : digits[group >> (18 - 6 * k) & 63U];
        }
    }
    json_t *value = json_stringn(text, len);
    free(text);
    return value;
}

/* Text as it is; anything else in Base64, and only one of the two is there. */
static void set_body(json_t *document, const struct call_report *report, const hapax_call_result *r)
{
    struct slice body = slice_of(r->body, r->body_bytes);
    bool elsewhere = cli_given(report->args, "output") || r->status == 0 || !r->body_kept;
    json_t *text = elsewhere ? NULL : json_stringn(body.ptr, body.len);
    json_object_set_new(document, "body", text != NULL ? text : json_null());
    json_object_set_new(document, "body_base64", elsewhere || text != NULL ? json_null() : base64_json(body));
}

static int write_json(const struct call_report *report, const hapax_call_result *r, int code)
{
    const char *op = cli_text(report->args, "op");
    const char *path = cli_text(report->args, "output");
    json_t *document = json_pack(
        "{s:s, s:o, s:o, s:o, s:b, s:b, s:b, s:o, s:o, s:I, s:i, s:o, s:o, s:I, s:b}", "end",
        hapax_call_end_name(r->end), "op", op != NULL ? output_json_text(slice_text(op)) : json_null(), "key",
        r->key != NULL ? output_json_text(slice_text(r->key)) : json_null(), "status",
        r->status != 0 ? json_integer(r->status) : json_null(), "replayed", r->end == HAPAX_CALL_END_REPLAYED,
        "stored", r->stored, "maybe_done", r->maybe_done, "claimed", output_json_instant(r->claimed_ms),
        "expires", output_json_instant(r->expires_ms), "took_ms", (json_int_t)r->took_ms, "exit_code", code,
        "attempts", attempts_json(r), "headers", headers_json(r), "body_bytes", (json_int_t)r->body_bytes,
        "body_kept", r->body_kept);
    if (document == NULL) {
        return output_no_memory(report->args->command);
    }
    set_body(document, report, r);
    int rc = output_json(report->args->command, document);
    if (rc == CLI_OK && path != NULL && is_handed_out(r)) {
        rc = write_file(report, r, path);
    }
    return rc;
}

/* --- how to go on -------------------------------------------------------------------------------- */

static void say_look(const struct call_report *report, const hapax_call_result *r)
{
    if (r->record_scope != NULL) {
        home_store_say(report->args, report->store, "to look at it:", "keys show", r->record_scope,
                       r->record_key);
    }
}

static void say_settle(const struct call_report *report, const hapax_call_result *r)
{
    if (r->record_scope != NULL) {
        home_store_say(report->args, report->store, "if it did not happen:", "keys resolve --released",
                       r->record_scope, r->record_key);
        home_store_say(report->args, report->store, "if it did:", "keys resolve --done --status 200",
                       r->record_scope, r->record_key);
    }
}

/* With an op the same command line does; without one the key has to be in it. */
static void say_again(const struct call_report *report, const hapax_call_result *r)
{
    const struct cli_args *args = report->args;
    if (is_named(args) || r->key == NULL) {
        fprintf(stderr, "  Run the same command again: it goes on with the same key.\n");
    } else {
        fprintf(stderr, "  Run it again with --key %s: it goes on with the same key.\n", r->key);
    }
}

/* --- the end ------------------------------------------------------------------------------------- */

static void say_answered(const struct call_report *report, const hapax_call_result *r,
                         const hapax_error *stored_error)
{
    const struct cli_command *command = report->args->command;
    if (r->end == HAPAX_CALL_END_REPLAYED && report->notes) {
        char when[CLOCK_TEXT_MAX];
        clock_text(when, r->claimed_ms);
        output_message(command, "done before (%s): the stored answer, nothing was sent", when);
    }
    if (!r->body_kept) {
        output_message(
            command,
            "the server answered %d with a body of over %u bytes: it is neither printed nor kept. The "
            "operation is over; get its result in another way",
            r->status, HAPAX_CALL_ANSWER_BYTES_MAX);
    } else if (is_redirect(r->status)) {
        output_message(command,
                       "the server answered %d, a redirect, which is not followed; -i shows where to",
                       r->status);
    } else if (!succeeded(r->status)) {
        output_message(command, "the server answered %d; that is the operation's answer, and is kept",
                       r->status);
    }
    if (r->end == HAPAX_CALL_END_ANSWERED && !r->stored) {
        output_message(command, "the answer could not be stored (%s)", stored_error->message);
        say_again(report, r);
    }
}

static void say_rejected(const struct call_report *report, const hapax_call_result *r)
{
    const struct cli_command *command = report->args->command;
    if (is_redirect(r->status)) {
        output_message(command,
                       "the server answered %d: it wants the request elsewhere, and redirects are not "
                       "followed; -i shows "
                       "where to. It was not carried out: correct the URL and run it again",
                       r->status);
    } else {
        bool credentials = r->status == 401 || r->status == 403;
        output_message(
            command, "the server answered %d: it was not carried out. %s", r->status,
            credentials ? "Correct the request (its credentials?) and run it again: the key stays"
            : r->maybe_done
                ? "Does the request differ from the first one, if only in the order of its JSON? Then send "
                  "that one again"
                : "Correct the request, or its key, and run it again");
    }
    if (r->maybe_done) {
        output_message(command, "an earlier attempt may have done it all the same");
        say_settle(report, r);
    }
}

static void say_gave_up(const struct call_report *report, const hapax_call_result *r)
{
    const struct cli_command *command = report->args->command;
    char took[DURATION_BYTES];
    say_duration(took, r->took_ms);
    if (r->attempt_count == 0) {
        output_message(command, "gave up before the first attempt: the time of --max-time was over after %s",
                       took);
    } else {
        output_message(command, "gave up after %zu attempt%s in %s; the last one: %s", r->attempt_count,
                       r->attempt_count == 1 ? "" : "s", took, r->attempts[r->attempt_count - 1].detail);
    }
    if (r->end == HAPAX_CALL_END_NOT_DONE) {
        fprintf(stderr, "  It was certainly not carried out.\n");
        say_again(report, r);
        return;
    }
    fprintf(stderr, "  Nobody knows whether it was carried out.\n");
    say_again(report, r);
    say_look(report, r);
    say_settle(report, r);
}

static void say_held(const struct call_report *report, const hapax_call_result *r)
{
    output_message(report->args->command,
                   "the server answered %d: it does not know whether the operation happened, and will not do "
                   "it again by "
                   "itself",
                   r->status);
    fprintf(stderr,
            "  Whoever runs the server finds out and settles it there (behind hapax serve: hapax keys list "
            "--state unknown --id).\n");
    say_again(report, r);
    say_look(report, r);
    say_settle(report, r);
}

static void say_expired(const struct call_report *report, const hapax_call_result *r)
{
    output_message(
        report->args->command,
        "nobody knows whether this operation was carried out, and its key is too old to be sent again: the "
        "server may have forgotten it, and would do it twice");
    fprintf(stderr,
            "  Does the server keep keys for longer? Say so with --key-lifetime. Else find out there, and "
            "settle it:\n");
    say_look(report, r);
    say_settle(report, r);
}

static void say_mismatch(const struct call_report *report, const hapax_call_result *r)
{
    output_message(report->args->command,
                   "that name was used before %s; nothing was sent. Another operation needs another name",
                   r->claimed_ms != 0 ? "for another request or with another key" : "with another key");
    say_look(report, r);
    if (r->claimed_ms == 0 && r->record_scope != NULL) { /* the record is that of the key */
        home_store_say(report->args, report->store,
                       "it was not carried out; if its key was wrong:", "keys forget --yes", r->record_scope,
                       r->record_key);
    }
}

static int exit_code(const hapax_call_result *r)
{
    switch (r->end) {
    case HAPAX_CALL_END_ANSWERED:
    case HAPAX_CALL_END_REPLAYED:
        return succeeded(r->status) && r->body_kept ? CLI_OK : CLI_FAILED;
    case HAPAX_CALL_END_REJECTED:
        return r->maybe_done ? CLI_TRY_LATER : CLI_FAILED;
    case HAPAX_CALL_END_MISMATCH:
        return CLI_CONFLICT;
    case HAPAX_CALL_END_NOT_DONE:
        for (size_t i = 0; i < r->attempt_count; i++) {
            if (r->attempts[i].status != 0) {
                return CLI_TRY_LATER;
            }
        }
        return r->attempt_count > 0 ? CLI_UNREACHABLE : CLI_TRY_LATER;
    default:
        return CLI_TRY_LATER;
    }
}

static void say_end(const struct call_report *report, const hapax_call_result *r,
                    const hapax_error *stored_error)
{
    switch (r->end) {
    case HAPAX_CALL_END_ANSWERED:
    case HAPAX_CALL_END_REPLAYED:
        say_answered(report, r, stored_error);
        break;
    case HAPAX_CALL_END_REJECTED:
        say_rejected(report, r);
        break;
    case HAPAX_CALL_END_MISMATCH:
        say_mismatch(report, r);
        break;
    case HAPAX_CALL_END_BUSY:
        output_message(report->args->command, "another process is still at this operation; nothing was sent");
        say_again(report, r);
        break;
    case HAPAX_CALL_END_NOT_DONE:
    case HAPAX_CALL_END_UNKNOWN:
        say_gave_up(report, r);
        break;
    case HAPAX_CALL_END_HELD:
        say_held(report, r);
        break;
    case HAPAX_CALL_END_EXPIRED:
        say_expired(report, r);
        break;
    }
}

int call_report_end(const struct call_report *report, const hapax_call_result *r,
                    const hapax_error *stored_error)
{
    int code = exit_code(r);
    int rc = CLI_OK;
    farewell_bytes = 0;
    say_end(report, r, stored_error);
    if (cli_flag(report->args, "json")) {
        rc = write_json(report, r, code);
    } else if (is_handed_out(r)) {
        rc = write_answer(report, r);
    }
    return code != CLI_OK ? code : rc;
}
