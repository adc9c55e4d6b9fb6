/* The parts of `hapax call`: what is printed while it goes on and at its end. */
#ifndef CLI_CALL_H
#define CLI_CALL_H

#include "cli/cli.h"
#include "hapax/client.h"

struct call_report {
    const struct cli_args *args;
    const char *store; /* its URI */
    bool notes;        /* say on stderr what goes on */
};

/* A hapax_call_request.progress, with the report as ctx. */
void call_report_progress(void *ctx, const hapax_call_progress *p);

/* Print the result as the options want it; `stored_error` is why an answer could not be stored. Returns the exit code. */
int call_report_end(const struct call_report *report, const hapax_call_result *result,
                    const hapax_error *stored_error);

#endif
