/* Texts made from the command table: --help, usage lines, man pages, shell completion. Each appends
 * to a buffer and returns 0, HAPAX_E_LIMIT or HAPAX_E_MEMORY. */
#ifndef CLI_HELP_H
#define CLI_HELP_H

#include "base/buf.h"
#include "cli/cli.h"

#define HELP_BYTES_MAX (256U * 1024U)

/* "hapax keys show [OPTION...] (SCOPE KEY | --id HEX)", without a line end. */
int help_usage(struct buf *out, const struct cli_command *command);
/* What --help prints. */
int help_text(struct buf *out, const struct cli_command *command);
/* The man page (mdoc) of the whole program or of one command below it, with its subcommands. */
int help_man(struct buf *out, const struct cli_command *command);
/* The completion script for bash. */
int help_completion(struct buf *out, const struct cli_command *root);

/* An exit code of cli.h and what it means. */
struct help_exit {
    int code;
    const char *text;
};
extern const struct help_exit help_exits[];
extern const size_t help_exit_count;

#endif
