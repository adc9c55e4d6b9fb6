/* `hapax keys resolve` and `keys forget`: an operator settles what nobody could know. Both are one
 * compare-and-set of the store; what it refuses is explained, never forced. */
#include "cli/keys.h"

#include "base/clock.h"
#include "base/limits.h"
#include "cli/stores.h"
#include "engine/owner.h"
#include "hapax/hapax.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- what both say ------------------------------------------------------------------------------- */

static int say_changed(const struct cli_args *args, const char *became)
{
    if (cli_flag(args, "json")) {
        return output_json(args->command, json_pack("{s:s}", "state", became));
    }
    output_message(args->command, "%s",
                   strcmp(became, "absent") == 0
                       ? "the record is gone; the next request with its key is executed"
                       : "the record is done; later requests with its key get this answer");
    return CLI_OK;
}

/* The store refused: say in what state the record is and what can be done. */
static int say_refused(const struct cli_args *args, const struct record *found)
{
    if (found->state == RECORD_RUNNING) {
        char lease[CLOCK_TEXT_MAX];
        clock_text(lease, found->lease_ms);
        output_message(
            args->command,
            "the record is running: wait for its answer. If its owner died, it is unknown when its lease "
            "ends at %s, and can be settled then",
            lease);
    } else {
        output_message(
            args->command,
            "the record is %s, not unknown: there is nothing to settle. If its answer is wrong, remove it "
            "with hapax keys forget",
            record_state_name(found->state));
    }
    return CLI_CONFLICT;
}

/* --- an owner that has died ---------------------------------------------------------------------- */

struct search {
    uint64_t owner;
    bool one_host; /* all who use the store are on this host */
    bool dead;
};

static int judge(void *ctx, const struct store_owner *owner)
{
    struct search *s = ctx;
    if (owner->number != s->owner) {
        return 0;
    }
    s->dead = owner_judge(owner->text, s->one_host) == OWNER_DEAD;
    return 1;
}

/* The store tells a record from an unknown one by its lease only. That its owner, a process of this host, has died is
 * seen here, as by every program that opens the store to claim: what it left running becomes unknown. */
static int abandon_dead(bool *changed, struct store *store, uint64_t owner, const struct cli_args *args)
{
    const struct store_backend *b = store->backend;
    struct search search = {.owner = owner, .one_host = (b->capabilities & STORE_HAS_CLOCK) == 0};
    hapax_error err = {0};
    int code = b->owners(store, judge, &search, &err);
    uint32_t rows = search.dead ? LIMIT_BATCH_OPS_MAX : 0;
    while (code == 0 && rows == LIMIT_BATCH_OPS_MAX) {
        code = b->abandon(store, owner, clock_wall_ms(), LIMIT_BATCH_OPS_MAX, &rows, &err);
    }
    *changed = search.dead;
    return code == 0 ? CLI_OK : stores_error(args, &err);
}

static int apply(struct store *store, struct store_op *op, const struct cli_args *args)
{
    int rc = keys_apply(store, op, args);
    if (rc != CLI_OK || op->result != STORE_REFUSED || op->found.state != RECORD_RUNNING) {
        return rc;
    }
    bool changed;
    rc = abandon_dead(&changed, store, op->found.owner, args);
    return rc == CLI_OK && changed ? keys_apply(store, op, args) : rc;
}

static int change(struct store_op *op, const struct cli_args *args, const char *became)
{
    struct store *store;
    int rc = stores_open(&store, args, STORES_CHANGE);
    if (rc != CLI_OK) {
        return rc;
    }
    rc = apply(store, op, args);
    store_close(store);
    if (rc != CLI_OK) {
        return rc;
    }
    switch (op->result) {
    case STORE_APPLIED:
        return say_changed(args, became);
    case STORE_ABSENT:
        return keys_absent(args);
    default:
        return say_refused(args, &op->found);
    }
}

/* --- resolve: the answer ------------------------------------------------------------------------- */

/* The sender of an answer frames it; a stored frame would contradict that. */
static bool is_framing(struct slice name)
{
    static const char *const names[] = {"Connection", "Content-Length",    "Keep-Alive",
                                        "Trailer",    "Transfer-Encoding", "Upgrade"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (slice_equal_nocase(name, slice_text(names[i]))) {
            return true;
        }
    }
    return false;
}

static int append_header(struct buf *head, const struct cli_args *args, const char *line)
{
    struct slice name = {line, strcspn(line, ":")};
    if (line[name.len] != ':' || !slice_is_token(name)) {
        return output_usage(args->command, "--header is 'Name: value', not %s", line);
    }
    if (is_framing(name)) {
        return output_usage(args->command, "--header %.*s can't be set: the gateway frames answers itself",
                            SLICE_FORMAT(name));
    }
    struct slice value = slice_trim(slice_text(line + name.len + 1));
    for (size_t i = 0; i < value.len; i++) {
        unsigned char c = (unsigned char)value.ptr[i];
        if ((c < 0x20 && c != '\t') || c == 0x7F) {
            return output_usage(args->command, "the value of --header %.*s holds a control character",
                                SLICE_FORMAT(name));
        }
    }
    if (buf_printf(head, "%.*s: %.*s\r\n", SLICE_FORMAT(name), SLICE_FORMAT(value)) != 0) {
        return output_usage(args->command, "the headers are longer than %u bytes",
                            LIMIT_ANSWER_HEAD_BYTES_MAX);
    }
    return CLI_OK;
}

/* --body TEXT, @FILE or @- */
static int read_body(struct buf *body, const struct cli_args *args, const char *text)
{
    if (text[0] != '@') {
        return buf_append_text(body, text) == 0 ? CLI_OK : output_no_memory(args->command);
    }
    bool standard = strcmp(text, "@-") == 0;
    FILE *file = standard ? stdin : fopen(text + 1, "re");
    int rc = CLI_OK;
    char chunk[64 * 1024];
    while (file != NULL && rc == CLI_OK) {
        size_t n = fread(chunk, 1, sizeof chunk, file);
        if (n == 0) {
            break;
        }
        if (buf_append(body, chunk, n) != 0) {
            output_message(args->command, "the body in %s is longer than %u bytes", text + 1,
                           HAPAX_ANSWER_BYTES_MAX);
            rc = CLI_FAILED;
        }
    }
    if (rc == CLI_OK && (file == NULL || ferror(file))) {
        output_message(args->command, "can't read %s: %s", text + 1, strerror(errno));
        rc = CLI_FAILED;
    }
    if (file != NULL && !standard) {
        fclose(file);
    }
    return rc;
}

/* The answer that --status, --header and --body describe. NULL with *rc set after a message. */
static struct answer *make_answer(const struct cli_args *args, int *rc)
{
    struct buf head;
    struct buf body;
    buf_init(&head, LIMIT_ANSWER_HEAD_BYTES_MAX);
    buf_init(&body, HAPAX_ANSWER_BYTES_MAX);
    struct answer *answer = NULL;
    *rc = CLI_OK;
    const char *line;
    for (size_t i = 0; *rc == CLI_OK && (line = cli_nth(args, "header", i)) != NULL; i++) {
        *rc = append_header(&head, args, line);
    }
    const char *text = cli_text(args, "body");
    if (*rc == CLI_OK && text != NULL) {
        *rc = read_body(&body, args, text);
    }
    uint16_t status = (uint16_t)cli_number(args, "status", 200);
    if (*rc == CLI_OK && body.len > 0 && (status == 204 || status == 205 || status == 304)) {
        *rc = output_usage(args->command, "an answer of status %u has no body", (unsigned)status);
    }
    if (*rc == CLI_OK) {
        answer = answer_make(status, true, buf_slice(&head), buf_slice(&body));
        *rc = answer != NULL ? CLI_OK : output_no_memory(args->command);
    }
    buf_free(&head);
    buf_free(&body);
    return answer;
}

static int run_resolve(const struct cli_args *args)
{
    struct store_op op = {.kind = STORE_RESOLVE};
    int rc = keys_identity(&op.id, args);
    if (rc != CLI_OK) {
        return rc;
    }
    if (cli_flag(args, "released")) {
        static const char *const of_answers[] = {"status", "header", "body"};
        for (size_t i = 0; i < sizeof of_answers / sizeof *of_answers; i++) {
            if (cli_given(args, of_answers[i])) {
                return output_usage(args->command, "--%s describes an answer and goes with --done",
                                    of_answers[i]);
            }
        }
        return change(&op, args, "absent");
    }
    op.answer = make_answer(args, &rc);
    if (op.answer != NULL) {
        struct answer *lent = op.answer;
        rc = change(&op, args, "done");
        answer_drop(lent);
    }
    return rc;
}

static const struct cli_option resolve_options[] = {
    CLI_OPTION_STORE,
    KEYS_OPTION_ID,
    {.name = "released", .kind = CLI_FLAG, .one_of = 'r', .help = "it did not happen: the key is free again"},
    {.name = "done",
     .kind = CLI_FLAG,
     .one_of = 'r',
     .help = "it happened: later requests get the answer given here"},
    {.name = "status",
     .kind = CLI_NUMBER,
     .value = "CODE",
     .least = 200,
     .most = 599,
     .standard = "200",
     .help = "the answer's HTTP status"},
    {.name = "header",
     .letter = 'H',
     .kind = CLI_TEXT,
     .value = "LINE",
     .repeats = true,
     .help = "a header line of the answer, 'Name: value'"},
    {.name = "body",
     .letter = 'b',
     .kind = CLI_TEXT,
     .value = "TEXT",
     .help = "the answer's body; @FILE reads a file, @- standard input"},
    CLI_OPTION_JSON,
    {0},
};

static const struct cli_example resolve_examples[] = {
    {"The payment provider never saw it", "hapax keys resolve --released 'orders POST /orders -' order-17"},
    {"It did happen; clients get this from now on",
     "hapax keys resolve --done --status 201 -H 'Content-Type: application/json' --body '{\"id\": 17}' "
     "'orders POST "
     "/orders -' order-17"},
    {0},
};

const struct cli_command cmd_keys_resolve = {
    .name = "keys resolve",
    .summary = "settle an unknown outcome by what was found out",
    .description =
        "Only a record whose outcome is unknown can be resolved, also one whose owner has died on this host "
        "just now; another is left as it is, with exit status 4. Find out first whether the operation took "
        "effect: this is the one decision that nobody "
        "else can make.",
    .options = resolve_options,
    .arguments = keys_address,
    .examples = resolve_examples,
    .run = run_resolve,
};

/* --- forget -------------------------------------------------------------------------------------- */

static int ask(const struct cli_args *args)
{
    if (!isatty(STDIN_FILENO)) {
        return output_usage(args->command, "nobody can be asked here: confirm with --yes");
    }
    fputs("Forget this record? The next request with its key will be executed again. [y/N] ", stderr);
    fflush(stderr);
    char line[16] = {0};
    if (fgets(line, sizeof line, stdin) != NULL && (line[0] == 'y' || line[0] == 'Y')) {
        return CLI_OK;
    }
    output_message(args->command, "left as it is");
    return CLI_FAILED;
}

static int run_forget(const struct cli_args *args)
{
    struct store_op op = {.kind = STORE_FORGET};
    int rc = keys_identity(&op.id, args);
    if (rc == CLI_OK && !cli_flag(args, "yes")) {
        rc = ask(args);
    }
    return rc == CLI_OK ? change(&op, args, "absent") : rc;
}

static const struct cli_option forget_options[] = {
    CLI_OPTION_STORE,
    KEYS_OPTION_ID,
    {.name = "yes", .letter = 'y', .kind = CLI_FLAG, .help = "do not ask"},
    CLI_OPTION_JSON,
    {0},
};

static const struct cli_example forget_examples[] = {
    {"A wrong answer was stored", "hapax keys forget --yes 'orders POST /orders -' order-17"},
    {0},
};

const struct cli_command cmd_keys_forget = {
    .name = "keys forget",
    .summary = "remove a record that is done or unknown",
    .description =
        "The next request with its key is executed as if it were the first. A running record is left as it "
        "is, with exit status 4.",
    .options = forget_options,
    .arguments = keys_address,
    .examples = forget_examples,
    .run = run_forget,
};
