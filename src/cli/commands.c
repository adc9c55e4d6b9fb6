/* The command table and the way from argv to a command's run(). */
#include "base/secret.h"
#include "cli/cli.h"
#include "cli/help.h"
#include "cli/output.h"
#include "cli/serve.h"
#include "hapax/hapax.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const struct cli_option serve_options[] = {
    {.name = "config",
     .letter = 'c',
     .kind = CLI_FILE,
     .value = "FILE",
     .one_of = 'c',
     .help = "the configuration; read again on SIGHUP"},
    {.name = "to",
     .letter = 't',
     .kind = CLI_TEXT,
     .value = "URL",
     .one_of = 'c',
     .help = "no configuration: one route for everything, to this upstream"},
    {.name = "listen",
     .letter = 'l',
     .kind = CLI_TEXT,
     .value = "ADDR",
     .help = "where clients connect, HOST:PORT; overrides the configuration, else 127.0.0.1:8080"},
    {.name = "admin",
     .letter = 'a',
     .kind = CLI_TEXT,
     .value = "ADDR",
     .help = "where metrics and health checks are, HOST:PORT or off; overrides the configuration, else "
             "127.0.0.1:8081"},
    {.name = "store",
     .letter = 's',
     .kind = CLI_TEXT,
     .value = "URI",
     .help = "the store, sqlite:PATH, postgresql://... or memory:; overrides the configuration, else "
             "sqlite:hapax.db"},
    {.name = "missing",
     .kind = CLI_CHOICE,
     .value = "WORD",
     .choices = "reject|pass",
     .standard = "reject",
     .help = "with --to: what becomes of POST and PATCH without a key, 400 or passed on unprotected"},
    {.name = "allow-unsafe-store",
     .kind = CLI_FLAG,
     .help = "use also a PostgreSQL whose settings may lose commits, for tests"},
    {0},
};

static const struct cli_example serve_examples[] = {
    {"Put it in front of an API, with all defaults", "hapax serve --to http://127.0.0.1:3000"},
    {"In front of one whose clients do not send keys yet",
     "hapax serve --to http://127.0.0.1:3000 --missing pass"},
    {"With a configuration", "hapax serve --config hapax.yaml"},
    {"Another address and place of the records",
     "hapax serve --to http://127.0.0.1:3000 --listen 0.0.0.0:8000 --store sqlite:/var/lib/hapax/gateway.db"},
    {0},
};

static const struct cli_command cmd_serve_entry = {
    .name = "serve",
    .summary = "run the gateway",
    .description =
        "Stands in front of an HTTP API and makes each request that carries an idempotency key take effect "
        "once: the first is forwarded and its answer stored, later ones get the stored answer. The command "
        "runs "
        "in the foreground until SIGTERM or SIGINT, then finishes what is running.",
    .options = serve_options,
    .examples = serve_examples,
    .run = cmd_serve,
};

static const struct cli_command *const commands[] = {
    &cmd_serve_entry, &cmd_check, &cmd_keys, &cmd_stats, &cmd_migrate, &cmd_run, &cmd_call,
    &cmd_drill,       &cmd_bench, &cmd_docs, &cmd_help,  &cmd_version, NULL,
};

const struct cli_command cli_root = {
    .name = "",
    .summary = "make an operation take effect once",
    .description =
        "Makes an operation take effect once, however often it is asked for. Data is written to standard "
        "output, messages to standard error. Options may stand before or after arguments; -- ends them.",
    .subcommands = commands,
};

/* --- help and version --------------------------------------------------------------------------- */

static int print_help(const struct cli_command *command, FILE *to)
{
    struct buf text;
    buf_init(&text, HELP_BYTES_MAX);
    int rc = help_text(&text, command);
    if (rc == 0) {
        fwrite(text.ptr, 1, text.len, to);
    }
    buf_free(&text);
    return rc == 0 ? CLI_OK : output_no_memory(command);
}

static int unknown_command(const struct cli_command *group, const char *word)
{
    const char *nearest = cli_nearest_command(group, word);
    const char *blank = group->name[0] != '\0' ? " " : "";
    if (nearest != NULL) {
        return output_usage(group, "there is no command %s%s%s; did you mean %s?", group->name, blank, word,
                            nearest);
    }
    return output_usage(group, "there is no command %s%s%s", group->name, blank, word);
}

static int run_help(const struct cli_args *args)
{
    int used = 0;
    const struct cli_command *command =
        cli_find(&cli_root, (int)args->argument_count, (char *const *)args->arguments, &used);
    if ((size_t)used < args->argument_count) {
        return unknown_command(command, args->arguments[used]);
    }
    return print_help(command, stdout);
}

static const struct cli_argument help_arguments[] = {
    {.name = "COMMAND",
     .kind = CLI_COMMAND,
     .optional = true,
     .repeats = true,
     .help = "its name, in one or two words"},
    {0},
};

static const struct cli_example help_examples[] = {
    {"What there is", "hapax help"},
    {"Everything about one command", "hapax help keys resolve"},
    {0},
};

const struct cli_command cmd_help = {
    .name = "help",
    .summary = "explain a command",
    .arguments = help_arguments,
    .examples = help_examples,
    .run = run_help,
};

static int run_version(const struct cli_args *args)
{
    if (cli_flag(args, "json")) {
        return output_json(args->command, json_pack("{s:s}", "version", hapax_version()));
    }
    printf("hapax %s\n", hapax_version());
    return CLI_OK;
}

static const struct cli_option version_options[] = {CLI_OPTION_JSON, {0}};

static const struct cli_example version_examples[] = {
    {"Which version this is", "hapax version"},
    {0},
};

const struct cli_command cmd_version = {
    .name = "version",
    .summary = "print the version; hapax --version does, too",
    .options = version_options,
    .examples = version_examples,
    .run = run_version,
};

/* --- from argv to run() ------------------------------------------------------------------------- */

/* A group was named, but no command of it. */
static int run_group(const struct cli_command *group, const char *word)
{
    if (word == NULL) {
        print_help(group, stderr);
        return CLI_USAGE;
    }
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
        return print_help(group, stdout);
    }
    if (group == &cli_root && (strcmp(word, "--version") == 0 || strcmp(word, "-V") == 0)) {
        printf("hapax %s\n", hapax_version());
        return CLI_OK;
    }
    if (word[0] == '-') {
        return output_usage(group, "there is no option %s here; options follow the command", word);
    }
    return unknown_command(group, word);
}

/* Everybody on the host can read a process's arguments: a store's password does not stay there. */
static void hide_passwords(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        char *copy = secret_in_uri(argv[i]) ? strdup(argv[i]) : NULL;
        if (copy != NULL) {
            secret_wipe_uri(argv[i]);
            argv[i] = copy; /* for the life of the process */
        }
    }
}

/* Files and connections that we open must not become somebody's standard output: a stream that we were started without
 * is /dev/null from here on. */
static int fill_standard_streams(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == STDIN_FILENO ? O_RDONLY : O_WRONLY) != fd) {
            output_message(NULL, "can't open /dev/null: %s", strerror(errno));
            return CLI_FAILED;
        }
    }
    return CLI_OK;
}

static void do_nothing(int number)
{
    (void)number;
}

/* A write past the limit of a file's size (ulimit -f) is to fail, as on a full disk, and not to end us. By a handler:
 * exec takes it away again, so that the commands that we start are ended by the signal as they would be without us. */
static void outlive_file_limits(void)
{
    struct sigaction now;
    if (sigaction(SIGXFSZ, NULL, &now) == 0 && now.sa_handler == SIG_DFL) {
        struct sigaction handled = {.sa_handler = do_nothing, .sa_flags = SA_RESTART};
        sigaction(SIGXFSZ, &handled, NULL);
    }
}

int cli_main(int argc, char **argv)
{
    int filled = fill_standard_streams();
    if (filled != CLI_OK) {
        return filled;
    }
    outlive_file_limits();
    hide_passwords(argc, argv);
    int skip = argc > 0 ? 1 : 0;
    int used = 0;
    const struct cli_command *command = cli_find(&cli_root, argc - skip, argv + skip, &used);
    used += skip;
    if (command->run == NULL) {
        return output_finish(run_group(command, used < argc ? argv[used] : NULL));
    }
    struct cli_args args;
    int rc = cli_parse(&args, command, argc - used, argv + used);
    if (rc == 0) {
        rc = args.help ? print_help(command, stdout) : command->run(&args);
    }
    cli_args_free(&args);
    return output_finish(rc);
}
