/* `hapax drill`: options, progress, and where reports go. What is sent and how it is judged is drill/'s. */
#include "cli/drill_setup.h"
#include "cli/output.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LINE_BYTES_MAX        80
#define PLAN_ARENA_MAX        (128U << 20)
#define DRILL_DURATION_MS_MAX (24 * 3600 * 1000)

/* --- while it runs ------------------------------------------------------------------------------- */

static volatile sig_atomic_t asked_to_stop;

static void on_signal(int number)
{
    (void)number;
    asked_to_stop = 1;
}

/* The first signal ends the run with a report, the second one has its usual effect. */
static void watch_signals(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

static void show_progress(void *ctx, size_t done, size_t all, const char *id)
{
    (void)ctx;
    if (id == NULL) {
        fprintf(stderr, "\r%*s\r", LINE_BYTES_MAX - 1, "");
    } else {
        fprintf(stderr, "\r%3zu of %zu  %-60.60s", done + 1, all, id);
    }
    fflush(stderr);
}

/* --- reports ------------------------------------------------------------------------------------- */

static int write_text(struct buf *out, const struct drill_report *r)
{
    const char *no_color = getenv("NO_COLOR");
    const char *term = getenv("TERM");
    bool colour = isatty(STDOUT_FILENO) && (no_color == NULL || no_color[0] == '\0') && term != NULL &&
                  strcmp(term, "dumb") != 0;
    return drill_report_text(out, r, colour);
}

static int put(const struct cli_args *args, const struct buf *text, const char *path)
{
    bool is_stdout = path == NULL || strcmp(path, "-") == 0;
    FILE *file = is_stdout ? stdout : fopen(path, "wb");
    if (file == NULL) {
        output_message(args->command, "can't write %s: %s", path, strerror(errno));
        return CLI_FAILED;
    }
    bool good = fwrite(text->ptr, 1, text->len, file) == text->len;
    good = (is_stdout || fclose(file) == 0) && good;
    if (!good) {
        output_message(args->command, "can't write %s: %s", is_stdout ? "the report" : path, strerror(errno));
    }
    return good ? CLI_OK : CLI_FAILED;
}

static int write_report(const struct cli_args *args, const struct drill_report *r, const char *path,
                        int (*write)(struct buf *out, const struct drill_report *report))
{
    struct buf text;
    buf_init(&text, DRILL_REPORT_BYTES_MAX);
    int rc = write(&text, r);
    if (rc == HAPAX_E_LIMIT) {
        output_message(args->command, "a report would be larger than %u MiB: run fewer cases, by --only",
                       DRILL_REPORT_BYTES_MAX >> 20);
        rc = CLI_FAILED;
    } else {
        rc = rc == 0 ? put(args, &text, path) : output_no_memory(args->command);
    }
    buf_free(&text);
    return rc;
}

static int write_reports(const struct cli_args *args, const struct drill_report *r)
{
    static const struct {
        const char *option;
        int (*write)(struct buf *out, const struct drill_report *report);
    } formats[] = {{"junit", drill_report_junit}, {"tap", drill_report_tap}, {"html", drill_report_html}};
    int rc = CLI_OK;
    bool stdout_taken = cli_flag(args, "json");
    if (stdout_taken) {
        rc = write_report(args, r, NULL, drill_report_json);
    }
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        const char *path = cli_text(args, formats[i].option);
        if (path != NULL) {
            int one = write_report(args, r, path, formats[i].write);
            rc = rc != CLI_OK ? rc : one;
            stdout_taken = stdout_taken || strcmp(path, "-") == 0;
        }
    }
    if (!stdout_taken) {
        int one = write_report(args, r, NULL, write_text);
        rc = rc != CLI_OK ? rc : one;
    }
    return rc;
}

/* A file that can't be written is told before minutes of work, not after. It is there once there is a report: what was made
 * to see whether it can be is removed. */
static int check_file(const struct cli_args *args, const char *path)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool made = false;
    if (fd < 0 && errno == ENOENT) {
        fd = open(path, O_WRONLY | O_CLOEXEC | O_CREAT | O_EXCL, 0666);
        made = fd >= 0;
    }
    if (fd < 0 && errno != EEXIST) { /* a link to nothing: seen when it is written */
        output_message(args->command, "can't write %s: %s", path, strerror(errno));
        return CLI_FAILED;
    }
    if (made) {
        unlink(path);
    }
    if (fd >= 0) {
        close(fd);
    }
    return CLI_OK;
}

/* Standard output holds one document. */
static int check_outputs(const struct cli_args *args)
{
    static const char *const options[] = {"junit", "tap", "html"};
    unsigned taken = cli_flag(args, "json") ? 1 : 0;
    int rc = CLI_OK;
    for (size_t i = 0; i < sizeof options / sizeof options[0] && rc == CLI_OK; i++) {
        const char *path = cli_text(args, options[i]);
        if (path != NULL && strcmp(path, "-") == 0) {
            taken++;
        } else if (path != NULL && !cli_flag(args, "dry-run")) {
            rc = check_file(args, path);
        }
    }
    return rc != CLI_OK || taken <= 1
               ? rc
               : output_usage(args->command, "standard output can hold one report only");
}

/* --- the plan ------------------------------------------------------------------------------------ */

static int show_plan(const struct cli_args *args, const struct drill_setup *s)
{
    static const char *const titles[] = {"CASE", "REQUESTS", "WHAT"};
    struct arena arena;
    struct drill_planned *plan = NULL;
    struct output_table table;
    hapax_error err = {0};
    size_t count = 0;
    size_t runs = 0;
    unsigned long requests = 0;
    arena_init(&arena, PLAN_ARENA_MAX);
    int rc = drill_plan(&plan, &count, s, &arena, &err);
    if (rc != 0) {
        arena_free(&arena);
        return rc == HAPAX_E_ARGUMENT ? output_usage(args->command, "%s", err.message)
                                      : output_error(args->command, &err);
    }
    output_table_init(&table, titles, 3);
    for (size_t i = 0; i < count && rc == 0; i++) {
        char number[16] = "-";
        if (plan[i].not_applicable == NULL) {
            snprintf(number, sizeof number, "%u", plan[i].requests);
            requests += plan[i].requests;
            runs++;
        }
        const char *what = plan[i].not_applicable != NULL ? plan[i].not_applicable : plan[i].title;
        rc = output_table_cell(&table, slice_text(plan[i].id), STYLE_PLAIN);
        rc = rc != 0 ? rc : output_table_cell(&table, slice_text(number), STYLE_PLAIN);
        rc = rc != 0 ? rc : output_table_cell(&table, slice_text(what), STYLE_PLAIN);
    }
    output_table_flush(&table);
    output_table_free(&table);
    arena_free(&arena);
    if (rc != 0) {
        return output_no_memory(args->command);
    }
    printf("\n%zu of %zu cases would run, with %lu requests at least and %u at most; nothing was sent\n",
           runs, count, requests, s->requests_max);
    return CLI_OK;
}

/* All ids, of a setup that needs none. */
static int list_cases(const struct cli_args *args)
{
    struct drill_setup s = {.method = "POST",
                            .url = "http://127.0.0.1/",
                            .key_header = "Idempotency-Key",
                            .profile = drill_profile_named("draft"),
                            .counter = {.url = "http://127.0.0.1/#/n"},
                            .times = DRILL_TIMES,
                            .rounds = DRILL_ROUNDS};
    struct arena arena;
    struct drill_planned *plan = NULL;
    size_t count = 0;
    hapax_error err = {0};
    arena_init(&arena, PLAN_ARENA_MAX);
    int rc = drill_plan(&plan, &count, &s, &arena, &err);
    for (size_t i = 0; i < count && rc == 0; i++) {
        printf("%-44s %s\n", plan[i].id, plan[i].title);
    }
    arena_free(&arena);
    return rc == 0 ? CLI_OK : output_error(args->command, &err);
}

/* --- the command --------------------------------------------------------------------------------- */

static int drill(const struct cli_args *args, struct drill_setup *s)
{
    struct drill_report report;
    hapax_error err = {0};
    watch_signals();
    s->stop = &asked_to_stop;
    s->progress = isatty(STDERR_FILENO) ? show_progress : NULL;
    int rc = drill_run(&report, s, &err);
    int code = CLI_OK;
    if (rc == HAPAX_E_ARGUMENT) {
        code = output_usage(args->command, "%s", err.message);
    } else if (rc == HAPAX_E_NOT_FOUND) {
        output_message(args->command, "%s", err.message);
        code = CLI_UNREACHABLE;
    } else if (rc != 0) {
        code = output_error(args->command, &err);
    } else {
        code = write_reports(args, &report);
        bool good =
            report.tally[DRILL_BROKEN] + report.tally[DRILL_INCONCLUSIVE] == 0 && report.stopped == NULL;
        code = code == CLI_OK && !good ? CLI_FAILED : code;
    }
    drill_report_free(&report);
    return code;
}

static int run(const struct cli_args *args)
{
    if (cli_flag(args, "list")) {
        return list_cases(args);
    }
    int rc = check_outputs(args);
    if (rc != CLI_OK) {
        return rc;
    }
    struct drill_texts texts;
    rc = drill_texts_read(&texts, args);
    if (rc == CLI_OK) {
        rc = cli_flag(args, "dry-run") ? show_plan(args, &texts.setup) : drill(args, &texts.setup);
    }
    drill_texts_free(&texts);
    return rc;
}

/* --- its declaration ----------------------------------------------------------------------------- */

static const struct cli_option options[] = {
    {.name = "data",
     .letter = 'd',
     .kind = CLI_TEXT,
     .value = "DATA|@FILE",
     .help = "the body; {unique} in it becomes a number of 15 digits that each operation has for itself, "
             "{key} its key"},
    {.name = "header",
     .letter = 'H',
     .kind = CLI_TEXT,
     .value = "LINE",
     .repeats = true,
     .help = "a header line: 'Name: value'"},
    {.name = "key-header",
     .kind = CLI_TEXT,
     .value = "NAME",
     .help = "the header of the key; Idempotency-Key, unless {key} stands in the URL, a header or the body"},
    {.name = "bare-keys",
     .kind = CLI_FLAG,
     .help = "send keys without the quotes that the profile draft puts around them"},
    {.name = "profile",
     .letter = 'p',
     .kind = CLI_CHOICE,
     .value = "NAME",
     .choices = DRILL_PROFILES,
     .standard = "draft",
     .help = "what is expected besides effects"},
    {.name = "effect-url",
     .letter = 'e',
     .kind = CLI_TEXT,
     .value = "URL#/POINTER",
     .help = "count effects by a number in a JSON document"},
    {.name = "effect-cmd",
     .kind = CLI_TEXT,
     .value = "COMMAND",
     .help = "count effects by a command that prints a number"},
    {.name = "effect-log",
     .kind = CLI_FILE,
     .value = "FILE",
     .help = "count effects by the lines of a file that hold the key or the {unique} number"},
    {.name = "effect-header",
     .kind = CLI_TEXT,
     .value = "LINE",
     .repeats = true,
     .help = "a header line for --effect-url and --final-url"},
    {.name = "tenant-header",
     .kind = CLI_TEXT,
     .value = "LINE",
     .help = "the header line that makes a request another tenant's: 'Authorization: Bearer other'"},
    {.name = "other-url",
     .kind = CLI_TEXT,
     .value = "URL",
     .help = "another path, whose effects are counted, too"},
    {.name = "other",
     .kind = CLI_TEXT,
     .value = "DATA|@FILE",
     .help = "the other payload; without it, the last number or text of the JSON body is changed"},
    {.name = "fail",
     .kind = CLI_TEXT,
     .value = "LINE",
     .help = "the header line that has the endpoint fail with 500 or above, before its effect"},
    {.name = "restart-cmd",
     .kind = CLI_TEXT,
     .value = "COMMAND",
     .help = "crash and restart the endpoint, between request and answer"},
    {.name = "events",
     .kind = CLI_DIRECTORY,
     .value = "DIR",
     .help = "send the files in it in every order (of over five: 120 orders)"},
    {.name = "final-url",
     .kind = CLI_TEXT,
     .value = "URL[#/POINTER]",
     .help = "where the state is read that the events lead to; may hold {unique}"},
    {.name = "reset-cmd",
     .kind = CLI_TEXT,
     .value = "COMMAND",
     .help = "gives each order of events a fresh state"},
    {.name = "times",
     .letter = 'n',
     .kind = CLI_NUMBER,
     .value = "N",
     .least = 2,
     .most = DRILL_TIMES_MAX,
     .standard = "8",
     .help = "N of \"N in series\" and \"N at once\""},
    {.name = "rounds",
     .kind = CLI_NUMBER,
     .value = "N",
     .least = 1,
     .most = 40,
     .standard = "10",
     .help = "fresh keys of the case repeats.race"},
    {.name = "settle",
     .kind = CLI_DURATION,
     .value = "DURATION",
     .least = 1,
     .most = DRILL_DURATION_MS_MAX,
     .standard = "200ms",
     .help = "the counter has to stand still for so long"},
    {.name = "settle-max",
     .kind = CLI_DURATION,
     .value = "DURATION",
     .least = 1,
     .most = DRILL_DURATION_MS_MAX,
     .standard = "10s",
     .help = "how long effects are waited for"},
    {.name = "timeout",
     .kind = CLI_DURATION,
     .value = "DURATION",
     .least = 1,
     .most = DRILL_DURATION_MS_MAX,
     .standard = "30s",
     .help = "how long an answer is waited for"},
    {.name = "recover",
     .kind = CLI_DURATION,
     .value = "DURATION",
     .least = 1,
     .most = DRILL_DURATION_MS_MAX,
     .standard = "30s",
     .help = "how long a key may stay in flight; later ones get a tenth of it"},
    {.name = "requests-max",
     .kind = CLI_NUMBER,
     .value = "N",
     .least = 1,
     .most = 1000000,
     .standard = "5000",
     .help = "send no more requests than these"},
    {.name = "only",
     .kind = CLI_TEXT,
     .value = "IDS",
     .repeats = true,
     .help = "cases to run: ids or patterns such as 'once.*', with commas between"},
    {.name = "skip",
     .kind = CLI_TEXT,
     .value = "IDS",
     .repeats = true,
     .help = "cases to leave out, likewise"},
    {.name = "ignore-header",
     .kind = CLI_TEXT,
     .value = "NAME",
     .repeats = true,
     .help = "a header that may differ between an answer and its repeat"},
    {.name = "seed",
     .kind = CLI_NUMBER,
     .value = "N",
     .least = 0,
     .most = DRILL_SEED_MAX,
     .help = "chooses the orders of events; keys are fresh in any case"},
    {.name = "ca",
     .kind = CLI_FILE,
     .value = "FILE",
     .help = "https: the authorities to trust instead of the system's"},
    {.name = "insecure", .kind = CLI_FLAG, .help = "https: check no certificate; for this host only"},
    {.name = "yes-remote", .kind = CLI_FLAG, .help = "another host than this one is meant"},
    {.name = "dry-run", .kind = CLI_FLAG, .help = "print the plan, send nothing"},
    {.name = "list", .kind = CLI_FLAG, .for_arguments = true, .help = "print the ids of all cases"},
    CLI_OPTION_JSON,
    {.name = "junit", .kind = CLI_FILE, .value = "FILE", .help = "write JUnit XML; - is standard output"},
    {.name = "tap", .kind = CLI_FILE, .value = "FILE", .help = "write TAP, likewise"},
    {.name = "html", .kind = CLI_FILE, .value = "FILE", .help = "write one HTML page, likewise"},
    {0},
};

static const struct cli_argument arguments[] = {
    {.name = "METHOD", .kind = CLI_TEXT, .help = "POST, PATCH, ..."},
    {.name = "URL", .kind = CLI_TEXT, .help = "the endpoint"},
    {0},
};

static const struct cli_example examples[] = {
    {"An endpoint that counts its orders", "hapax drill POST http://localhost:3000/orders -d @order.json "
                                           "--effect-url http://localhost:3000/count#/orders"},
    {"Effects in a database, and a report for the browser",
     "hapax drill POST http://localhost:3000/orders -d '{\"order\":\"{unique}\",\"amount\":5}' --effect-cmd "
     "'psql -Atc "
     "\"select count(*) from orders\"' --html drill.html"},
    {"A receiver of webhooks whose events carry their id",
     "hapax drill POST http://localhost:3000/hook -d '{\"id\":\"{key}\",\"amount\":5}' --profile webhook "
     "--effect-log "
     "app.log"},
    {"What would be sent", "hapax drill POST http://localhost:3000/orders --effect-log app.log --dry-run"},
    {0},
};

const struct cli_command cmd_drill = {
    .name = "drill",
    .summary = "prove that an endpoint survives duplicates",
    .description =
        "Sends one operation in many ways to any HTTP endpoint: once, in series and at once; with replies "
        "and requests "
        "that get lost; reordered, with another payload, from another tenant, at another path; right away, "
        "while the "
        "first one runs and after it. It judges by counting effects, which it has to be told how to do, and "
        "by comparing "
        "answers. First of all it checks that one request has exactly one effect.\n\n"
        "Profiles: draft (the IETF draft of Idempotency-Key: quoted keys, 400 without one, 422 for another "
        "payload, 409 "
        "or waiting while the first runs, then the first answer), stripe (bare keys that may be missing, 400 "
        "for another "
        "payload), webhook (duplicates get a success; bodies do not matter), queue (only effects count).\n\n"
        "Reports hold no credentials: a header's value is shown only if its name is known to be harmless, a "
        "parameter of a URL only if its name does not sound secret, a command never. Curl lines have "
        "$AUTHORIZATION, $API_KEY, $RESTART_CMD and the like instead. Exit code 0 only when everything that "
        "applies holds; 1 when anything is broken or "
        "inconclusive.",
    .options = options,
    .arguments = arguments,
    .examples = examples,
    .run = run,
};
