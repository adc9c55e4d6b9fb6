/* `hapax docs`: write the documents that are made from tables. The committed ones equal these. */
#include "cli/help.h"
#include "cli/output.h"
#include "config/config.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define DOCUMENT_BYTES_MAX (4U * 1024U * 1024U)
#define PATH_BYTES_MAX     4096

static int write_file(const struct cli_args *args, const char *path, struct slice text)
{
    FILE *file = fopen(path, "we");
    bool written = file != NULL && fwrite(text.ptr, 1, text.len, file) == text.len;
    int saved = errno;
    if (file != NULL && fclose(file) != 0 && written) {
        written = false;
        saved = errno;
    }
    if (!written) {
        output_message(args->command, "can't write %s: %s", path, strerror(saved));
        return CLI_FAILED;
    }
    return CLI_OK;
}

static int write_man(const struct cli_args *args, const struct cli_command *page)
{
    char path[PATH_BYTES_MAX];
    int n = snprintf(path, sizeof path, "%s/hapax%s%s.1", cli_argument(args, "DIR"),
                     page == &cli_root ? "" : "-", page->name);
    if (n < 0 || (size_t)n >= sizeof path) {
        return output_usage(args->command, "the name of the directory is too long");
    }
    struct buf text;
    buf_init(&text, HELP_BYTES_MAX);
    int rc = help_man(&text, page) == 0 ? write_file(args, path, buf_slice(&text))
                                        : output_no_memory(args->command);
    buf_free(&text);
    return rc;
}

static int run_man(const struct cli_args *args)
{
    int rc = write_man(args, &cli_root);
    for (const struct cli_command *const *c = cli_root.subcommands; *c != NULL && rc == CLI_OK; c++) {
        rc = write_man(args, *c);
    }
    return rc;
}

static int print(const struct cli_args *args, struct buf *text, int rc)
{
    if (rc == 0) {
        fwrite(text->ptr, 1, text->len, stdout);
    }
    buf_free(text);
    return rc == 0 ? CLI_OK : output_no_memory(args->command);
}

static int run_completion(const struct cli_args *args)
{
    struct buf text;
    buf_init(&text, HELP_BYTES_MAX);
    return print(args, &text, help_completion(&text, &cli_root));
}

static int run_config(const struct cli_args *args)
{
    struct buf text;
    buf_init(&text, DOCUMENT_BYTES_MAX);
    return print(args, &text, config_document(&text));
}

static const struct cli_argument man_arguments[] = {
    {.name = "DIR", .kind = CLI_DIRECTORY, .help = "an existing directory"},
    {0},
};

static const struct cli_example man_examples[] = {
    {"All pages into docs/man", "hapax docs man docs/man"},
    {0},
};

static const struct cli_command cmd_docs_man = {
    .name = "docs man",
    .summary = "write the man pages, one for each command",
    .arguments = man_arguments,
    .examples = man_examples,
    .run = run_man,
};

static const struct cli_example completion_examples[] = {
    {"In this shell, at once", "source <(hapax docs completion)"},
    {0},
};

static const struct cli_command cmd_docs_completion = {
    .name = "docs completion",
    .summary = "print the completion script for bash",
    .examples = completion_examples,
    .run = run_completion,
};

static const struct cli_example config_examples[] = {
    {"Read it here", "hapax docs config | less"},
    {0},
};

static const struct cli_command cmd_docs_config = {
    .name = "docs config",
    .summary = "print the reference of the configuration (Markdown)",
    .examples = config_examples,
    .run = run_config,
};

static const struct cli_command *const commands[] = {&cmd_docs_man, &cmd_docs_completion, &cmd_docs_config,
                                                     NULL};

const struct cli_command cmd_docs = {
    .name = "docs",
    .summary = "write man pages, shell completion and the configuration reference",
    .description =
        "Everything here is made from the tables that drive the program, so it fits this very version.",
    .subcommands = commands,
};
