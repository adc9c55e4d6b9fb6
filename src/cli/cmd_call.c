/* `hapax call`: a thin user of hapax/client.h. Its options become a request; call_report.c prints what it came to. */
#include "base/limits.h"
#include "cli/call.h"
#include "cli/home_store.h"
#include "cli/input.h"
#include "cli/output.h"
#include "core/json.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Many processes of one instant wait for each other's commits on a file. */
#define BUSY_MS             60000
#define HEAD_TEXT_BYTES_MAX (4U * HAPAX_CALL_HEAD_BYTES_MAX)

/* A request and what it borrows. */
struct asked {
    hapax_call_request request;
    hapax_call_header headers[HAPAX_CALL_HEADERS_MAX];
    struct arena names; /* of the headers */
    struct buf body;
    struct call_report report;
};

/* --- what is sent -------------------------------------------------------------------------------- */

/* TEXT, @FILE or @- */
static int read_body(struct asked *a, const struct cli_args *args, const char *text)
{
    if (text[0] == '@') {
        return input_read(&a->body, args->command, text + 1);
    }
    int rc = buf_append_text(&a->body, text);
    return rc == 0 ? CLI_OK : output_no_memory(args->command);
}

static int add_header(struct asked *a, const struct cli_args *args, const char *line)
{
    struct slice name = {line, strcspn(line, ":")};
    struct slice copy;
    if (line[name.len] != ':' || !slice_is_token(name)) {
        /* Not repeated: it may be a credential whose name was forgotten. */
        return output_usage(args->command, "-H is 'Name: value'");
    }
    if (a->request.header_count == HAPAX_CALL_HEADERS_MAX) {
        return output_usage(args->command, "-H stands there more than %d times", HAPAX_CALL_HEADERS_MAX);
    }
    if (arena_copy(&a->names, name, &copy) != 0) {
        return output_usage(args->command, "the headers are longer than %u bytes", HAPAX_CALL_HEAD_BYTES_MAX);
    }
    a->headers[a->request.header_count++] =
        (hapax_call_header){.name = copy.ptr, .value = line + name.len + 1};
    return CLI_OK;
}

/* One header a line, in a file that others can't read: a command line they can. */
static int add_headers_of(struct asked *a, const struct cli_args *args, const char *path)
{
    FILE *file = fopen(path, "re");
    char *line = NULL;
    size_t room = 0;
    ssize_t len;
    int rc = CLI_OK;
    while (file != NULL && rc == CLI_OK && (len = getline(&line, &room, file)) >= 0) {
        struct slice text = slice_trim(slice_of(line, strcspn(line, "\r\n")));
        struct slice copy;
        if (text.len > 0) {
            bool kept = text.len <= HAPAX_CALL_HEAD_BYTES_MAX && arena_copy(&a->names, text, &copy) == 0;
            rc = kept ? add_header(a, args, copy.ptr)
                      : output_usage(args->command, "the headers are longer than %u bytes",
                                     HAPAX_CALL_HEAD_BYTES_MAX);
        }
    }
    if (file == NULL || (rc == CLI_OK && ferror(file))) {
        output_message(args->command, "can't read %s: %s; nothing was sent", path, strerror(errno));
        rc = CLI_USAGE;
    }
    free(line);
    if (file != NULL) {
        fclose(file);
    }
    return rc;
}

static bool is_json(struct slice body)
{
    struct json j;
    struct arena arena;
    arena_init(&arena, 4U * HAPAX_CALL_BODY_BYTES_MAX);
    bool good = body.len > 0 && json_parse(&j, &arena, body, NULL) == 0;
    arena_free(&arena);
    return good;
}

static bool names_content_type(const struct asked *a)
{
    for (size_t i = 0; i < a->request.header_count; i++) {
        if (slice_equal_nocase(slice_text(a->headers[i].name), SLICE_LITERAL("Content-Type"))) {
            return true;
        }
    }
    return false;
}

static int take_message(struct asked *a, const struct cli_args *args)
{
    const char *line;
    int rc = CLI_OK;
    for (size_t i = 0; rc == CLI_OK && (line = cli_nth(args, "header", i)) != NULL; i++) {
        rc = line[0] == '@' ? add_headers_of(a, args, line + 1) : add_header(a, args, line);
    }
    const char *data = cli_text(args, "data");
    if (rc == CLI_OK && data != NULL) {
        rc = read_body(a, args, data);
    }
    if (rc == CLI_OK && !names_content_type(a) && is_json(buf_slice(&a->body))) {
        rc = add_header(a, args, "Content-Type: application/json");
    }
    a->request.headers = a->headers;
    a->request.body = a->body.ptr;
    a->request.body_bytes = a->body.len;
    return rc;
}

/* --- options ------------------------------------------------------------------------------------- */

static void take_options(struct asked *a, const struct cli_args *args)
{
    hapax_call_request *r = &a->request;
    r->size = sizeof *r;
    r->method = cli_argument(args, "METHOD");
    r->url = cli_argument(args, "URL");
    r->op = cli_text(args, "op");
    r->key = cli_text(args, "key");
    r->key_from = cli_text(args, "key-from");
    r->key_header = cli_text(args, "header-name");
    r->key_field = cli_text(args, "key-field");
    r->key_quoted = cli_flag(args, "quote-key");
    r->ca_file = cli_text(args, "cacert");
    r->attempts_max = (unsigned)cli_number(args, "attempts", 0);
    r->time_max_ms = cli_duration_ms(args, "max-time", 0);
    r->timeout_ms = cli_duration_ms(args, "timeout", 0);
    r->backoff_ms = cli_duration_ms(args, "backoff", 0);
    r->backoff_max_ms = cli_duration_ms(args, "backoff-max", 0);
    r->ttl_ms = cli_duration_ms(args, "ttl", 0);
    r->key_lifetime_ms = cli_duration_ms(args, "key-lifetime", 0);
}

/* --- the call ------------------------------------------------------------------------------------ */

/* What is wrong with the request was found before anything was done: it is a matter of the command line. */
static int say_error(const struct cli_args *args, const char *store, const hapax_error *err)
{
    switch (err->code) {
    case HAPAX_E_ARGUMENT:
    case HAPAX_E_SYNTAX:
    case HAPAX_E_MISSING:
    case HAPAX_E_LIMIT:
        return output_usage(args->command, "%s", err->message);
    default:
        return home_store_error(args, store, err);
    }
}

static int call(struct asked *a, const struct cli_args *args)
{
    hapax *h;
    hapax_error err = {0};
    hapax_call_result *result;
    hapax_options open = {.size = sizeof open, .busy_ms = BUSY_MS};
    if (hapax_open(&h, a->report.store, &open, &err) != 0) {
        return home_store_error(args, a->report.store, &err);
    }
    a->request.progress = call_report_progress;
    a->request.progress_ctx = &a->report;
    int rc = hapax_call(h, &a->request, &result, &err);
    if (rc == 0) {
        rc = call_report_end(&a->report, result, &err);
        hapax_call_free(result);
    } else {
        rc = say_error(args, a->report.store, &err);
    }
    hapax_close(h);
    return rc;
}

static int run(const struct cli_args *args)
{
    char *store = NULL;
    struct asked *a = calloc(1, sizeof *a);
    if (a == NULL) {
        return output_no_memory(args->command);
    }
    arena_init(&a->names, HEAD_TEXT_BYTES_MAX);
    buf_init(&a->body, HAPAX_CALL_BODY_BYTES_MAX);
    take_options(a, args);
    int rc = take_message(a, args);
    rc = rc != CLI_OK ? rc : home_store_uri(&store, args);
    if (rc == CLI_OK) {
        a->report = (struct call_report){.args = args,
                                         .store = store,
                                         .notes = cli_flag(args, "verbose") ||
                                                  (!cli_flag(args, "quiet") && isatty(STDERR_FILENO))};
        rc = call(a, args);
    }
    free(store);
    buf_free(&a->body);
    arena_free(&a->names);
    free(a);
    return rc;
}

/* --- declarations -------------------------------------------------------------------------------- */

static const struct cli_option options[] = {
    {.name = "op",
     .kind = CLI_TEXT,
     .value = "NAME",
     .help =
         "what this operation is called, as in 'invoice 42': its key is made once and used by every later "
         "command with this name; without it, the key is the name"},
    {.name = "header",
     .letter = 'H',
     .kind = CLI_TEXT,
     .value = "'NAME: VALUE'",
     .repeats = true,
     .help =
         "a header of the request; @FILE: one on each line of a file, since everybody on the host can read a "
         "command line"},
    {.name = "data",
     .letter = 'd',
     .kind = CLI_TEXT,
     .value = "BODY",
     .help = "the body: text, @FILE, or @- for standard input; at most 16 MiB. It is announced as "
             "application/json when it is JSON and no -H says what it is"},
    {.name = "key",
     .letter = 'k',
     .kind = CLI_TEXT,
     .value = "KEY",
     .help = "use this key instead of a random one"},
    {.name = "key-from",
     .kind = CLI_TEXT,
     .value = "SOURCE",
     .help = "take the key from the request: json:/invoice/id, header:NAME, query:NAME, form:NAME, or a "
             "template such as '{json:/invoice/id}|{json:/step}'"},
    {.name = "header-name",
     .kind = CLI_TEXT,
     .value = "NAME",
     .help = "the header that carries the key, else Idempotency-Key"},
    {.name = "key-field",
     .kind = CLI_TEXT,
     .value = "POINTER",
     .help = "instead of a header, put the key into the JSON body as this member: /idempotency_key"},
    {.name = "quote-key", .kind = CLI_FLAG, .help = "send the key in quotes, as RFC 8941 writes strings"},
    {.name = "attempts",
     .letter = 'n',
     .kind = CLI_NUMBER,
     .value = "N",
     .least = 1,
     .most = HAPAX_CALL_ATTEMPTS_MAX,
     .standard = "8",
     .help = "send at most this often"},
    {.name = "max-time",
     .letter = 'm',
     .kind = CLI_DURATION,
     .value = "DURATION",
     .least = 1,
     .most = HAPAX_CALL_DURATION_MS_MAX,
     .standard = "10m",
     .help = "give up after this time"},
    {.name = "timeout",
     .letter = 't',
     .kind = CLI_DURATION,
     .value = "DURATION",
     .least = 1,
     .most = HAPAX_CALL_DURATION_MS_MAX,
     .standard = "30s",
     .help = "give up one attempt after this time, and send again"},
    {.name = "backoff",
     .kind = CLI_DURATION,
     .value = "DURATION",
     .least = 1,
     .most = HAPAX_CALL_DURATION_MS_MAX,
     .standard = "500ms",
     .help = "the first retry comes within this time, at random; the window doubles each time"},
    {.name = "backoff-max",
     .kind = CLI_DURATION,
     .value = "DURATION",
     .least = 1,
     .most = HAPAX_CALL_DURATION_MS_MAX,
     .standard = "30s",
     .help = "... up to this; Retry-After is obeyed in any case"},
    {.name = "key-lifetime",
     .kind = CLI_DURATION,
     .value = "DURATION",
     .least = 1,
     .most = HAPAX_CALL_DURATION_MS_MAX,
     .standard = "24h",
     .help = "how long the server keeps keys: an operation of unknown outcome is not sent again after that"},
    {.name = "ttl",
     .kind = CLI_DURATION,
     .value = "DURATION",
     .least = 1,
     .most = HAPAX_CALL_DURATION_MS_MAX,
     .standard = "30d",
     .help = "how long the answer is kept here"},
    {.name = "cacert",
     .kind = CLI_FILE,
     .value = "FILE",
     .help = "trust these CA certificates, and no others"},
    {.name = "include", .letter = 'i', .kind = CLI_FLAG, .help = "write status and headers before the body"},
    {.name = "output",
     .letter = 'o',
     .kind = CLI_FILE,
     .value = "FILE",
     .help = "write the answer's body to this file"},
    CLI_OPTION_JSON,
    {.name = "verbose",
     .letter = 'v',
     .kind = CLI_FLAG,
     .help = "say what goes on, as on a terminal, and name the key"},
    {.name = "quiet",
     .letter = 'q',
     .kind = CLI_FLAG,
     .help = "don't say what goes on; failures are told all the same"},
    CLI_OPTION_HOME_STORE,
    {0},
};

static const struct cli_argument arguments[] = {
    {.name = "METHOD", .kind = CLI_TEXT, .help = "POST, PUT, ..."},
    {.name = "URL", .kind = CLI_TEXT, .help = "where to, http:// or https://"},
    {0},
};

static const struct cli_example examples[] = {
    {"Charge once, however often this line is run", "hapax call POST https://api.example/v1/charges --op "
                                                    "'invoice 42' -H \"Authorization: Bearer $TOKEN\" -d "
                                                    "@charge.json"},
    {"The key comes from the body",
     "hapax call POST https://api.example/orders --key-from json:/order/id -d @order.json"},
    {"A server with a header of its own", "hapax call POST https://api.example/v2/payments --op pay-7 "
                                          "--header-name PayPal-Request-Id -d @pay.json"},
    {"... or with a member of the body",
     "hapax call POST https://api.example/v2/payments --op pay-8 --key-field /idempotency_key -d @pay.json"},
    {"What became of it", "hapax call POST https://api.example/orders --op 'order 17' -d @order.json --json"},
    {0},
};

const struct cli_command cmd_call = {
    .name = "call",
    .summary = "send one HTTP request with one key, through every retry",
    .description =
        "Sends a request to a server that knows idempotency keys, until it has a definite answer. The key is "
        "stored before the first byte leaves and is the same in every retry, also of a later command that "
        "names "
        "the same --op: after a time-out, a crash or a power cut, run the same command again. The answer is "
        "stored: "
        "a repeat prints it again and sends nothing. Another request under the same --op is refused.\n\n"
        "Sent again are: no connection, a time-out, a broken answer; 408, 421, 425, 429, 502, 503, 504, 520 "
        "to 530; 409 "
        "when "
        "the first request still runs; other errors with Retry-After; and what a problem document calls "
        "retryable. Any other answer is definite, but 401, 403, 301, 307 and 308 are not kept: correct what "
        "is "
        "wrong and run it again. Redirects are not followed, proxies not used.\n\n"
        "Exit codes: 0 for an answer 2xx or 303; 1 for any other; 4 when the --op was used for another "
        "request; 5 "
        "when the server was never reached, or the store can't be used; 75 when it gave up otherwise: the "
        "outcome may be unknown, and the same "
        "command goes on with the same key. Limits: bodies of 16 MiB to send, of 15 MiB to receive; headers "
        "of 64 KiB; "
        "an op of 200 bytes.",
    .options = options,
    .arguments = arguments,
    .examples = examples,
    .own_exits = true,
    .run = run,
};
