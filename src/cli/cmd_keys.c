/* `hapax keys`: look at records and settle them. The group, `keys list`, and what its commands share. */
#include "cli/keys.h"

#include "base/clock.h"
#include "base/digest.h"
#include "base/error.h"
#include "base/limits.h"
#include "cli/stores.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* --- shared -------------------------------------------------------------------------------------- */

const struct cli_argument keys_address[] = {
    {.name = "SCOPE", .kind = CLI_TEXT, .help = "the namespace of the key: route, method, path and tenant"},
    {.name = "KEY", .kind = CLI_TEXT, .help = "the key"},
    {0},
};

int keys_identity(struct identity *out, const struct cli_args *args)
{
    const char *hex = cli_text(args, "id");
    if (hex != NULL) {
        return digest_unhex(out->bytes, IDENTITY_BYTES, slice_text(hex)) == 0
                   ? CLI_OK
                   : output_usage(args->command, "--id is %d hexadecimal digits, not %s", 2 * IDENTITY_BYTES,
                                  hex);
    }
    hapax_error err = {0};
    if (identity_make(out, slice_text(cli_argument(args, "SCOPE")), slice_text(cli_argument(args, "KEY")),
                      &err) != 0) {
        return output_usage(args->command, "%s", err.message);
    }
    return CLI_OK;
}

int keys_apply(struct store *store, struct store_op *op, const struct cli_args *args)
{
    hapax_error err = {0};
    struct store_op *ops[] = {op};
    return store_apply(store, ops, 1, clock_wall_ms(), &err) == 0 ? CLI_OK : stores_error(args, &err);
}

int keys_absent(const struct cli_args *args)
{
    output_message(args->command, "there is no such record: never claimed, released, forgotten or expired");
    return CLI_NOT_FOUND;
}

enum output_style keys_style(enum record_state state)
{
    return state == RECORD_DONE      ? STYLE_GOOD
           : state == RECORD_RUNNING ? STYLE_BUSY
           : state == RECORD_UNKNOWN ? STYLE_ALERT
                                     : STYLE_PLAIN;
}

/* --- list ---------------------------------------------------------------------------------------- */

static const char *const titles[] = {"STATE", "AGE", "SCOPE", "KEY", "ATTEMPT", "STATUS", "EXPIRES", "ID"};
enum { COLUMNS_WITH_ID = sizeof titles / sizeof *titles };

struct listing {
    const struct cli_args *args;
    struct output_table table;
    int64_t now_ms;
    uint64_t last_serial;
    uint32_t rows; /* of this page */
    bool json;
    bool id;
    int rc; /* exit code: the first failure */
};

static json_t *row_json(const struct store_row *row)
{
    char id[2 * IDENTITY_BYTES + 1];
    digest_hex(id, row->id.bytes, IDENTITY_BYTES);
    const struct record *r = &row->record;
    bool done = r->state == RECORD_DONE;
    return json_pack(
        "{s:s, s:I, s:s, s:o, s:o, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "id", id, "serial",
        (json_int_t)r->fence.serial, "state", record_state_name(r->state), "scope",
        output_json_text(row->scope), "key", output_json_text(row->key), "attempt",
        (json_int_t)r->fence.attempt, "claimed", output_json_instant(r->claimed_ms), "lease_until",
        output_json_instant(r->state == RECORD_RUNNING ? r->lease_ms : 0), "ended",
        output_json_instant(r->ended_ms), "expires", output_json_instant(done ? r->expires_ms : 0), "status",
        done ? json_integer(row->status) : json_null(), "kept", done ? json_boolean(row->kept) : json_null(),
        "body_bytes", done ? json_integer((json_int_t)row->body_bytes) : json_null());
}

static int row_cells(struct listing *l, const struct store_row *row)
{
    const struct record *r = &row->record;
    bool done = r->state == RECORD_DONE;
    char age[OUTPUT_AGE_MAX];
    char attempt[16];
    char status[16] = "-";
    char expires[OUTPUT_AGE_MAX] = "-";
    char id[2 * IDENTITY_BYTES + 1];
    output_age(age, l->now_ms - r->claimed_ms);
    snprintf(attempt, sizeof attempt, "%lu", (unsigned long)r->fence.attempt);
    if (done) {
        if (row->status != 0) { /* the C library's answers have none */
            snprintf(status, sizeof status, "%u", (unsigned)row->status);
        }
        output_age(expires, r->expires_ms - l->now_ms);
    }
    digest_hex(id, row->id.bytes, IDENTITY_BYTES);
    const struct slice cells[] = {slice_text(record_state_name(r->state)),
                                  slice_text(age),
                                  row->scope,
                                  row->key,
                                  slice_text(attempt),
                                  slice_text(status),
                                  slice_text(expires),
                                  slice_text(id)};
    int rc = 0;
    for (size_t i = 0; i < l->table.columns && rc == 0; i++) {
        rc = output_table_cell(&l->table, cells[i], i == 0 ? keys_style(r->state) : STYLE_PLAIN);
    }
    return rc;
}

static void each_row(void *ctx, const struct store_row *row)
{
    struct listing *l = ctx;
    l->rows++;
    l->last_serial = row->record.fence.serial;
    if (l->rc != CLI_OK) {
        return;
    }
    if (l->json) {
        l->rc = output_json_line(l->args->command, row_json(row));
    } else if (row_cells(l, row) != 0) {
        l->rc = output_no_memory(l->args->command);
    }
}

static void each_probe(void *ctx, const struct store_row *row)
{
    (void)row;
    *(bool *)ctx = true;
}

/* The limit cut the listing: is there more? Then say how to go on. */
static int say_how_to_go_on(const struct listing *l, struct store *store, struct store_filter filter)
{
    bool more = false;
    hapax_error err = {0};
    filter.rows_max = 1;
    if (store->backend->list(store, &filter, l->now_ms, each_probe, &more, &err) != 0) {
        return stores_error(l->args, &err);
    }
    if (more) {
        output_message(l->args->command, "there are more; go on with --after %llu",
                       (unsigned long long)filter.after_serial);
    }
    return CLI_OK;
}

static int list_pages(struct listing *l, struct store *store, struct store_filter filter, uint64_t left)
{
    hapax_error err = {0};
    while (left > 0 && !ferror(stdout)) {
        filter.rows_max = left < LIMIT_LIST_PAGE_MAX ? (uint32_t)left : LIMIT_LIST_PAGE_MAX;
        l->rows = 0;
        if (store->backend->list(store, &filter, l->now_ms, each_row, l, &err) != 0) {
            return stores_error(l->args, &err);
        }
        output_table_flush(&l->table);
        if (l->rc != CLI_OK || l->rows < filter.rows_max) {
            return l->rc;
        }
        filter.after_serial = l->last_serial;
        left -= l->rows;
    }
    return ferror(stdout) ? CLI_FAILED : say_how_to_go_on(l, store, filter);
}

static int run_list(const struct cli_args *args)
{
    struct store_filter filter = {
        .after_serial = cli_number(args, "after", 0),
        .scope = slice_text(cli_text(args, "scope")),
        .key = slice_text(cli_text(args, "key")),
        .state = RECORD_ABSENT,
    };
    const char *state = cli_text(args, "state");
    if (state != NULL && record_state_parse(&filter.state, slice_text(state)) != 0) {
        return output_usage(args->command, "there is no state %s", state);
    }
    struct store *store;
    int rc = stores_open(&store, args, STORES_READ);
    if (rc != CLI_OK) {
        return rc;
    }
    struct listing l = {
        .args = args, .now_ms = clock_wall_ms(), .json = cli_flag(args, "json"), .id = cli_flag(args, "id")};
    output_table_init(&l.table, titles, COLUMNS_WITH_ID - (l.id ? 0 : 1));
    rc = list_pages(&l, store, filter, cli_number(args, "limit", UINT64_MAX));
    output_table_free(&l.table);
    store_close(store);
    return rc;
}

static const struct cli_option list_options[] = {
    CLI_OPTION_STORE,
    {.name = "scope", .kind = CLI_TEXT, .value = "SCOPE", .help = "only records of exactly this scope"},
    {.name = "key",
     .letter = 'k',
     .kind = CLI_TEXT,
     .value = "KEY",
     .help = "only records of exactly this key"},
    {.name = "state",
     .kind = CLI_CHOICE,
     .value = "STATE",
     .choices = "running|done|unknown",
     .help = "only records in this state"},
    {.name = "limit",
     .letter = 'n',
     .kind = CLI_NUMBER,
     .value = "N",
     .least = 1,
     .most = INT64_MAX,
     .help = "stop after this many"},
    {.name = "after",
     .kind = CLI_NUMBER,
     .value = "SERIAL",
     .most = INT64_MAX,
     .help = "only records claimed after this serial number"},
    {.name = "id", .kind = CLI_FLAG, .help = "show the id of each record, too"},
    CLI_OPTION_JSON,
    {0},
};

static const struct cli_example list_examples[] = {
    {"What waits for a decision", "hapax keys list --state unknown"},
    {"Every record of one key, whatever its scope",
     "hapax keys list --key 8e03978e-40d5-43dd-bc93-6894a57f9324"},
    {"The oldest hundred, for a script",
     "hapax keys list --store sqlite:/var/lib/hapax/gateway.db --limit 100 --json"},
    {0},
};

const struct cli_command cmd_keys_list = {
    .name = "keys list",
    .summary = "list records, oldest first",
    .description =
        "Lists the records of a store in the order of their claims. With --json, one object a line.",
    .options = list_options,
    .examples = list_examples,
    .run = run_list,
};

/* --- the group ----------------------------------------------------------------------------------- */

static const struct cli_command *const commands[] = {
    &cmd_keys_list, &cmd_keys_show, &cmd_keys_resolve, &cmd_keys_forget, NULL,
};

const struct cli_command cmd_keys = {
    .name = "keys",
    .summary = "look at records and settle unknown outcomes",
    .description = "Works on the store's file beside a running gateway, which notices a change within a "
                   "second. Times are "
                   "of the wall clock, ages since the first claim.",
    .subcommands = commands,
};
