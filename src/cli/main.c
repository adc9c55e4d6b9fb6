/* The program's entry. Everything else is in the library hapax_cli, where tests can reach it. */
#include "cli/cli.h"

int main(int argc, char **argv)
{
    return cli_main(argc, argv);
}
