/* Lets the command table link while the gateway is not there. Goes away with serve.c. */
#include "cli/output.h"
#include "cli/serve.h"

__attribute__((weak)) int cmd_serve(const struct cli_args *args)
{
    output_message(args->command, "this build has no gateway");
    return CLI_FAILED;
}
