/* Files that options name. */
#ifndef CLI_INPUT_H
#define CLI_INPUT_H

#include "base/buf.h"
#include "cli/cli.h"

/* Append all of a file, or of standard input ("-"), to `out`, up to its maximum. CLI_OK, or an exit code after a message on
 * stderr; then `out` holds a part. */
int input_read(struct buf *out, const struct cli_command *command, const char *path);

#endif
