/* `hapax check`: load a configuration as the gateway would and say what is wrong with it. */
#include "cli/output.h"
#include "config/config.h"

#include <stdio.h>

#define DUMP_BYTES_MAX (16U * 1024U * 1024U)

static int report(const struct cli_args *args, const char *file, const struct config *config,
                  struct slice dump)
{
    bool print = cli_flag(args, "print");
    if (cli_flag(args, "json")) {
        json_t *document = json_pack("{s:o, s:b, s:I}", "file", output_json_text(slice_text(file)), "ok", 1,
                                     "routes", (json_int_t)config->route_count);
        if (print && document != NULL &&
            json_object_set_new(document, "effective", output_json_text(dump)) != 0) {
            json_decref(document);
            document = NULL;
        }
        return output_json(args->command, document);
    }
    if (print) {
        fwrite(dump.ptr, 1, dump.len, stdout);
        fflush(stdout);
    }
    struct buf line;
    buf_init(&line, 64U * 1024U);
    int rc = output_escape(&line, slice_text(file));
    rc = rc != 0 ? rc
                 : buf_printf(&line, ": ok, %zu route%s\n", config->route_count,
                              config->route_count == 1 ? "" : "s");
    if (rc == 0) {
        /* With --print, stdout is YAML and nothing else. */
        fprintf(print ? stderr : stdout, "%.*s", SLICE_FORMAT(buf_slice(&line)));
    }
    buf_free(&line);
    return rc == 0 ? CLI_OK : output_no_memory(args->command);
}

static int run(const struct cli_args *args)
{
    const char *file = cli_argument(args, "CONFIG");
    hapax_error err = {0};
    struct config *config = NULL;
    if (config_load_file(&config, file, &err) != 0) {
        if (cli_flag(args, "json")) {
            (void)output_json(args->command,
                              json_pack("{s:o, s:b, s:o}", "file", output_json_text(slice_text(file)), "ok",
                                        0, "error", output_json_text(slice_text(err.message))));
        } else {
            output_message(args->command, "%s", err.message);
        }
        return CLI_FAILED;
    }
    struct buf dump;
    buf_init(&dump, DUMP_BYTES_MAX);
    int rc = cli_flag(args, "print") && config_dump(&dump, config) != 0
                 ? output_no_memory(args->command)
                 : report(args, file, config, buf_slice(&dump));
    buf_free(&dump);
    config_free(config);
    return rc;
}

static const struct cli_option options[] = {
    CLI_OPTION_JSON,
    {.name = "print",
     .letter = 'p',
     .kind = CLI_FLAG,
     .help = "write the effective configuration, defaults filled in"},
    {0},
};

static const struct cli_argument arguments[] = {
    {.name = "CONFIG", .kind = CLI_FILE, .help = "the YAML file"},
    {0},
};

static const struct cli_example examples[] = {
    {"Before a reload", "hapax check hapax.yaml"},
    {"What the gateway would run with", "hapax check --print hapax.yaml"},
    {0},
};

const struct cli_command cmd_check = {
    .name = "check",
    .summary = "check a configuration",
    .description = "Loads a configuration as the gateway would, without starting anything. A mistake is "
                   "reported with file, "
                   "line, field and what is allowed, and the exit status is 1.",
    .options = options,
    .arguments = arguments,
    .examples = examples,
    .run = run,
};
