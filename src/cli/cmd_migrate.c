/* `hapax migrate`: bring a store's tables to this program's version, or print the SQL for somebody who will. */
#include "cli/output.h"
#include "cli/stores.h"

#include <stdio.h>

#define SQL_BYTES_MAX (2U * 1024U * 1024U)

static int report_json(const struct cli_args *args, const struct store_migration *m)
{
    json_t *document = json_pack("{s:I, s:I}", "from", (json_int_t)m->before, "to", (json_int_t)m->after);
    if (document != NULL && m->sql != NULL &&
        json_object_set_new(document, "sql", output_json_text(buf_slice(m->sql))) != 0) {
        json_decref(document);
        document = NULL;
    }
    return output_json(args->command, document);
}

static int report(const struct cli_args *args, const struct store_migration *m)
{
    if (cli_flag(args, "json")) {
        return report_json(args, m);
    }
    if (m->sql != NULL && m->sql->len > 0) {
        fwrite(m->sql->ptr, 1, m->sql->len, stdout);
        return CLI_OK;
    }
    /* With --print, stdout is SQL and nothing else. */
    FILE *to = m->sql != NULL ? stderr : stdout;
    if (m->before == m->after) {
        fprintf(to, "the tables are of version %ld already\n", m->after);
    } else {
        fprintf(to, "migrated the tables from version %ld to %ld\n", m->before, m->after);
    }
    return CLI_OK;
}

static int run(const struct cli_args *args)
{
    bool print = cli_flag(args, "print");
    if (cli_given(args, "from") && !print) {
        return output_usage(args->command, "--from goes with --print");
    }
    int rc = stores_reach(args);
    if (rc != CLI_OK) {
        return rc;
    }
    struct buf sql;
    buf_init(&sql, SQL_BYTES_MAX);
    struct store_migration m = {
        .role = cli_text(args, "role"),
        .sql = print ? &sql : NULL,
        .from = cli_given(args, "from") ? (long)cli_number(args, "from", 0) : -1,
    };
    struct store_options options = stores_options(args, STORES_CHANGE);
    hapax_error err = {0};
    rc = store_migrate(cli_text(args, "store"), &options, &m, &err) == 0 ? report(args, &m)
                                                                         : stores_error(args, &err);
    buf_free(&sql);
    return rc;
}

static const struct cli_option options[] = {
    CLI_OPTION_STORE,
    {.name = "print",
     .letter = 'p',
     .kind = CLI_FLAG,
     .help = "change nothing: write the SQL, to be run with psql -1"},
    {.name = "from",
     .kind = CLI_NUMBER,
     .value = "VERSION",
     .least = 0,
     .most = 1000000,
     .help = "with --print: from this version, 0 is an empty database; the store is not asked"},
    {.name = "role",
     .kind = CLI_TEXT,
     .value = "NAME",
     .help = "grant this role what a gateway needs, and no more"},
    CLI_OPTION_JSON,
    {0},
};

static const struct cli_example examples[] = {
    {"As the owner, for gateways that run as role hapax",
     "hapax migrate --store postgresql://owner@db.example/app --role hapax"},
    {"For a database administrator to review and run",
     "hapax migrate --print --from 0 --role hapax --store postgresql://"},
    {0},
};

const struct cli_command cmd_migrate = {
    .name = "migrate",
    .summary = "make or upgrade the tables of a store",
    .description = "Brings the tables of a store to the version of this program, in one transaction, and "
                   "says from which "
                   "to which; does nothing where they are of that version. Gateways may run meanwhile, and "
                   "several may migrate at "
                   "once. A gateway does the same when it starts, where its role may: this command is for "
                   "those whose role "
                   "may not.",
    .options = options,
    .examples = examples,
    .run = run,
};
