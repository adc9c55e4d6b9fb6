/* `hapax serve`: run the gateway until it is told to stop. The command's options are declared in
 * commands.c; read them with cli_text() and its siblings. */
#ifndef CLI_SERVE_H
#define CLI_SERVE_H

#include "cli/cli.h"

/* Returns an exit code of cli.h, after a message on stderr when it is not CLI_OK. */
int cmd_serve(const struct cli_args *args);

#endif
