/* `hapax run`: a command that takes effect once per key. What happens is decided in run/; here are the options, what is
 * said about it, and the exit code. The command's standard output and error are its own: messages go to standard
 * error, data of ours nowhere. */
#include "base/clock.h"
#include "base/limits.h"
#include "cli/home_store.h"
#include "cli/output.h"
#include "run/key_template.h"
#include "run/once.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CODE_BY_SIGNAL = 128 };

#define LEASE_MS_MIN 1000

struct job {
    const struct cli_args *args;
    struct run_request request;
    struct run_report report;
    char key[LIMIT_KEY_BYTES_MAX + 1];
    char *store; /* owned */
};

/* --- options ------------------------------------------------------------------------------------- */

static void read_options(struct job *j)
{
    const struct cli_args *args = j->args;
    struct run_request *r = &j->request;
    r->ttl_ms = cli_duration_ms(args, "ttl", 0);
    r->wait_ms = cli_duration_ms(args, "wait", 0);
    r->lease_ms = cli_duration_ms(args, "lease", 0);
    r->timeout_ms = cli_duration_ms(args, "timeout", 0);
    r->kill_after_ms = cli_duration_ms(args, "kill-after", 0);
    r->keep_bytes = (size_t)cli_size_bytes(args, "keep-output", 0);
    r->retry_unknown = strcmp(cli_text(args, "on-unknown"), "retry") == 0;
    r->keep_failures = cli_flag(args, "keep-failures");
    r->ignore_args = cli_flag(args, "ignore-args");
    r->argv = (char *const *)args->arguments; /* ends with NULL; exec does not write to them */
}

static int read_key(struct job *j)
{
    struct buf key;
    buf_init_on(&key, j->key, LIMIT_KEY_BYTES_MAX); /* and a NUL, which is there */
    hapax_error err = {0};
    j->request.key = j->key;
    int code = run_key_expand(&key, cli_text(j->args, "key"), clock_wall_ms(), &err);
    if (code == HAPAX_E_MEMORY || code == HAPAX_E_SYSTEM) {
        return home_store_error(j->args, "", &err);
    }
    return code == 0 ? CLI_OK : output_usage(j->args->command, "%s", err.message);
}

/* --- what is said -------------------------------------------------------------------------------- */

/* Less important than what it is about: where nobody reads, it is left out, and nothing waits for it. */
static void note(void *ctx, const char *text)
{
    const struct job *j = ctx;
    bool has_room = poll(&(struct pollfd){.fd = STDERR_FILENO, .events = POLLOUT}, 1, 0) != 0;
    if (!cli_flag(j->args, "quiet") && has_room) {
        output_message(j->args->command, "%s", text);
    }
}

static void say_command(const struct job *j, const char *what, const char *words)
{
    home_store_say(j->args, j->store, what, words, RUN_SCOPE, j->request.key);
}

static void say_how_to_settle(const struct job *j)
{
    say_command(j, "to look at the record:", "keys show");
    say_command(j, "if it took effect:", "keys resolve --done");
    say_command(j, "if it did not:", "keys resolve --released");
}

static int say_unknown(const struct job *j)
{
    char begun[CLOCK_TEXT_MAX];
    clock_text(begun, j->report.claimed_ms);
    output_message(
        j->args->command,
        "nobody knows whether the command took effect: its run for key %s, begun %s, was cut off. Nothing "
        "was run now. Find out, then settle it",
        j->request.key, begun);
    say_how_to_settle(j);
    fprintf(stderr, "  %-25s %s\n", "to run it all the same:", "this command with --on-unknown retry");
    return CLI_TRY_LATER;
}

static int say_unrecorded(const struct job *j)
{
    const struct run_report *r = &j->report;
    output_message(
        j->args->command,
        "THE COMMAND RAN and ended with exit code %d, BUT THAT COULD NOT BE RECORDED: %s. Its key %s is "
        "unknown, or another run has it",
        r->code,
        r->error.code == HAPAX_E_STALE ? "its claim had run out (was this host asleep, or the store away?)"
                                       : r->error.message,
        j->request.key);
    say_how_to_settle(j);
    return CLI_TRY_LATER;
}

static int say_busy(const struct job *j)
{
    char begun[CLOCK_TEXT_MAX];
    clock_text(begun, j->report.claimed_ms);
    output_message(j->args->command, "the command runs already for key %s, since %s: try again later%s",
                   j->request.key, begun, j->request.wait_ms == 0 ? ", or let it wait with --wait" : "");
    return CLI_TRY_LATER;
}

/* Nothing was executed, but its claim stays: the next run finds it unknown. */
static void say_not_freed(const struct job *j)
{
    if (j->report.error.code != 0) {
        output_message(
            j->args->command,
            "its key %s could not be freed: %s. The command was NOT started: settle it so, if the next run "
            "does not know",
            j->request.key, j->report.error.message);
        say_command(j, "to look at the record:", "keys show");
        say_command(j, "it was not started:", "keys resolve --released");
    }
}

/* Nothing was executed: whose fault is it? */
static int say_error(const struct job *j, const hapax_error *err)
{
    switch (err->code) {
    case HAPAX_E_LIMIT:
    case HAPAX_E_SYNTAX:
    case HAPAX_E_MISSING:
        return output_usage(j->args->command, "%s", err->message);
    default:
        return home_store_error(j->args, j->store, err);
    }
}

/* --- a repeat ------------------------------------------------------------------------------------ */

static int write_all(int fd, struct slice bytes)
{
    while (bytes.len > 0) {
        ssize_t n = write(fd, bytes.ptr, bytes.len);
        if (n < 0 && errno == EAGAIN) { /* whoever started us has made it so */
            (void)poll(&(struct pollfd){.fd = fd, .events = POLLOUT}, 1, -1);
        } else if (n < 0 && errno != EINTR) {
            return errno;
        }
        bytes = slice_from(bytes, n > 0 ? (size_t)n : 0);
    }
    return 0;
}

static int repeat(struct job *j)
{
    const struct run_kept *kept = &j->report.kept;
    static const int fds[RUN_STREAMS] = {[RUN_STDOUT] = STDOUT_FILENO, [RUN_STDERR] = STDERR_FILENO};
    char text[256];
    char begun[CLOCK_TEXT_MAX];
    clock_text(begun, j->report.claimed_ms);
    bool silent = kept->written[RUN_STDOUT] == 0 && kept->written[RUN_STDERR] == 0;
    snprintf(text, sizeof text, "already done (begun %s, %s%d): not run again, %s", begun,
             j->report.by_hand ? "settled by hand, exit code " : "exit code ", kept->code,
             silent ? "it had printed nothing" : "printing its output");
    note(j, text);
    for (int i = 0; i < RUN_STREAMS; i++) {
        int error = write_all(fds[i], kept->kept[i]);
        j->report.write_error = error != 0 && error != EPIPE ? error : j->report.write_error;
    }
    for (int i = 0; i < RUN_STREAMS; i++) {
        if (kept->kept[i].len < kept->written[i]) {
            output_message(
                j->args->command, "%s is cut: of its %" PRIu64 " bytes %zu were kept (--keep-output)",
                i == RUN_STDOUT ? "standard output" : "standard error", kept->written[i], kept->kept[i].len);
        }
    }
    return kept->code;
}

/* --- the verdict --------------------------------------------------------------------------------- */

static int executed(const struct job *j)
{
    const struct run_report *r = &j->report;
    char text[128];
    if (r->code != 0 && !j->request.keep_failures) {
        snprintf(text, sizeof text,
                 "the command failed with exit code %d: the next run with this key executes it again",
                 r->code);
        note((void *)j, text);
    }
    if (r->cut_by != 0) {
        output_message(
            j->args->command,
            "ended by signal %d (%s) before all of its output was taken; that it ended with exit code %d is "
            "recorded",
            r->cut_by, strsignal(r->cut_by), r->code);
        return CODE_BY_SIGNAL + r->cut_by;
    }
    return r->code;
}

static int conclude(struct job *j)
{
    const struct run_report *r = &j->report;
    switch (r->end) {
    case RUN_EXECUTED:
        return executed(j);
    case RUN_REPEATED:
        return repeat(j);
    case RUN_BUSY:
        return say_busy(j);
    case RUN_MISMATCH:
        output_message(
            j->args->command,
            "key %s was used for another command or other arguments: use a key of its own, or --ignore-args "
            "where they may differ",
            j->request.key);
        return CLI_CONFLICT;
    case RUN_UNKNOWN:
        return say_unknown(j);
    case RUN_NOT_STARTED:
        output_message(j->args->command, "can't run %s: %s", j->request.argv[0], strerror(r->start_error));
        say_not_freed(j);
        return r->code;
    case RUN_UNRECORDED:
        return say_unrecorded(j);
    case RUN_INTERRUPTED:
        output_message(j->args->command, "ended by signal %d (%s) before the command was started", r->signal,
                       strsignal(r->signal));
        say_not_freed(j);
        return r->code;
    }
    return CLI_FAILED;
}

static int run_job(struct job *j)
{
    read_options(j);
    int rc = read_key(j);
    rc = rc != CLI_OK ? rc : home_store_uri(&j->store, j->args);
    if (rc != CLI_OK) {
        return rc;
    }
    j->request.store_uri = j->store;
    hapax_error err = {0};
    if (run_once(&j->report, &j->request, &err) != 0) {
        rc = say_error(j, &err);
        say_not_freed(j);
        return rc;
    }
    rc = conclude(j);
    if (j->report.write_error != 0) {
        output_message(j->args->command, "can't write all of the output: %s",
                       strerror(j->report.write_error));
        rc = rc == CLI_OK ? CLI_FAILED : rc;
    }
    return rc;
}

static int run(const struct cli_args *args)
{
    struct job j = {.args = args};
    j.request.note = note;
    j.request.ctx = &j;
    int rc = run_job(&j);
    run_report_free(&j.report);
    free(j.store);
    return rc;
}

/* --- declarations -------------------------------------------------------------------------------- */

static const struct cli_option options[] = {
    {.name = "key",
     .letter = 'k',
     .kind = CLI_TEXT,
     .value = "KEY",
     .one_of = 'k',
     .help = "what the command must happen once for; {date:FORMAT@ZONE} in it is the time of the start as "
             "strftime "
             "writes it, {{ a brace"},
    {.name = "ttl",
     .kind = CLI_DURATION,
     .value = "DURATION",
     .least = 1,
     .most = CLI_DURATION_MS_MAX,
     .standard = "24h",
     .help = "how long its end is kept, from its start on; then the key is free"},
    {.name = "wait",
     .letter = 'w',
     .kind = CLI_DURATION,
     .value = "DURATION",
     .least = 0,
     .most = CLI_DURATION_MS_MAX,
     .standard = "10s",
     .help = "how long to wait for a run that goes on; 0: not at all"},
    {.name = "timeout",
     .letter = 't',
     .kind = CLI_DURATION,
     .value = "DURATION",
     .least = 0,
     .most = CLI_DURATION_MS_MAX,
     .help = "end the command and its process group after it, with SIGTERM"},
    {.name = "kill-after",
     .kind = CLI_DURATION,
     .value = "DURATION",
     .least = 0,
     .most = CLI_DURATION_MS_MAX,
     .standard = "10s",
     .help = "after --timeout: how long it may take to end before SIGKILL"},
    {.name = "on-unknown",
     .kind = CLI_CHOICE,
     .value = "ACTION",
     .choices = "hold|retry",
     .standard = "hold",
     .help = "what to do after a run that was cut off"},
    {.name = "keep-failures",
     .kind = CLI_FLAG,
     .help = "an exit code other than 0 is an end, too, and is repeated"},
    {.name = "ignore-args",
     .kind = CLI_FLAG,
     .help =
         "do not compare the command's words with those of the first run; nor will later runs be, if this is "
         "the first"},
    {.name = "keep-output",
     .kind = CLI_SIZE,
     .value = "SIZE",
     .least = 0,
     .most = RUN_KEPT_BYTES_MAX,
     .standard = "1MiB",
     .help = "how much of what it prints is kept for repeats, both streams together; at most 16MiB less 256 "
             "bytes"},
    {.name = "lease",
     .kind = CLI_DURATION,
     .value = "DURATION",
     .least = LEASE_MS_MIN,
     .most = CLI_DURATION_MS_MAX,
     .standard = "30s",
     .help = "how long a run may be silent (its host dead, asleep or cut off from the store) before it "
             "counts as cut off"},
    CLI_OPTION_HOME_STORE,
    {.name = "quiet", .letter = 'q', .kind = CLI_FLAG, .help = "no notes; errors are still told"},
    {0},
};

static const struct cli_argument arguments[] = {
    {.name = "COMMAND", .kind = CLI_TEXT, .help = "what to run; looked up in PATH, without a shell"},
    {.name = "ARG",
     .kind = CLI_TEXT,
     .optional = true,
     .repeats = true,
     .help = "its arguments, options too"},
    {0},
};

static const struct cli_example examples[] = {
    {"Once a day, however often it is called",
     "hapax run --key 'backup-{date:%Y-%m-%d}' --ttl 48h -- echo backup"},
    {"A report for each hour of Berlin, once also when the clocks go back",
     "hapax run --key 'report-{date:%Y-%m-%dT%H@Europe/Berlin}' -- echo report"},
    {"In CI: one deployment of a commit, whichever job comes first",
     "hapax run --key deploy-4f1c2d --store postgresql://ci@db.example/ci --wait 10m --timeout 30m -- "
     "./deploy"},
    {0},
};

const struct cli_command cmd_run = {
    .name = "run",
    .summary = "run a command that takes effect once per key",
    .description =
        "The first run with a key executes the command, under a claim in the store that is renewed while it "
        "runs. "
        "Its output passes through and is kept; when it has succeeded, later runs with that key print what "
        "was kept "
        "(standard output, then standard error) and exit as it did, without running it. When it fails, the "
        "key is "
        "free and the next run executes it again, unless --keep-failures. A run at the same time waits for "
        "the "
        "first. The same key for other words is refused.\n\n"
        "When a run is cut off (kill -9, power failure), nobody knows whether it took effect. The next run "
        "then "
        "executes nothing, exits with 75 and says how to look and how to settle it; or, with --on-unknown "
        "retry, it "
        "executes the command again. The command finds its key in HAPAX_KEY, and in HAPAX_ATTEMPT 1, or more "
        "after "
        "runs that were cut off.\n\n"
        "It runs in a process group of its own, with our standard input. SIGTERM, SIGINT, SIGHUP, SIGQUIT, "
        "SIGUSR1, "
        "SIGUSR2 and SIGCONT are passed on to that group. When nobody reads its output any longer, it goes "
        "on. It "
        "gets SIGKILL when hapax is killed, and so does the rest of that group.\n\n"
        "The exit code is the command's own, 128 and the signal's number when a signal ended it, 124 "
        "when it failed after --timeout had ended it, 126 when it can't be executed, 127 when it is "
        "not found. Ours are 4 (other words under this key), 2 (wrong usage), 5 (no store) and 75 "
        "(try later: it runs, its outcome is unknown, or the system has no room for it), when nothing "
        "was executed; 75 also when it ran, but that could not be recorded, with a message that says "
        "THE COMMAND RAN; and 1 when it succeeded, but its output could not be written. A command may "
        "use these numbers itself: the line on standard error that begins with \"hapax run:\" tells "
        "them apart.",
    .options = options,
    .arguments = arguments,
    .examples = examples,
    .words_follow = true,
    .own_exits = true,
    .run = run,
};
