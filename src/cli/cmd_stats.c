/* `hapax stats`: how much a store holds. */
#include "cli/output.h"
#include "cli/stores.h"

#include "base/units.h"

static int run(const struct cli_args *args)
{
    struct store *store;
    int rc = stores_open(&store, args, STORES_READ);
    if (rc != CLI_OK) {
        return rc;
    }
    struct store_stats stats = {0};
    hapax_error err = {0};
    int code = store->backend->stats(store, &stats, &err);
    store_close(store);
    if (code != 0) {
        return stores_error(args, &err);
    }
    if (cli_flag(args, "json")) {
        return output_json(args->command,
                           json_pack("{s:I, s:I, s:I, s:I}", "running", (json_int_t)stats.running, "unknown",
                                     (json_int_t)stats.unknown, "records", (json_int_t)stats.records, "bytes",
                                     (json_int_t)stats.bytes));
    }
    rc = output_field("running", "%llu", (unsigned long long)stats.running);
    rc = rc != 0 ? rc : output_field("unknown", "%llu", (unsigned long long)stats.unknown);
    rc = rc != 0 ? rc : output_field("records", "%llu", (unsigned long long)stats.records);
    rc = rc != 0 ? rc : output_field("bytes", "%llu", (unsigned long long)stats.bytes);
    return rc == 0 ? CLI_OK : output_no_memory(args->command);
}

static const struct cli_option options[] = {CLI_OPTION_STORE, CLI_OPTION_JSON, {0}};

static const struct cli_example examples[] = {
    {"Of the store in this directory", "hapax stats"},
    {"For a script", "hapax stats --store sqlite:/var/lib/hapax/gateway.db --json"},
    {0},
};

const struct cli_command cmd_stats = {
    .name = "stats",
    .summary = "say how much a store holds",
    .description =
        "Prints how many operations are running, how many have an unknown outcome, how many records there "
        "are in all (possibly an estimate) and the bytes on disk. Works beside a running gateway.",
    .options = options,
    .examples = examples,
    .run = run,
};
