/* From the command line of `hapax drill` to what the drill is asked to do. */
#ifndef CLI_DRILL_SETUP_H
#define CLI_DRILL_SETUP_H

#include "cli/cli.h"
#include "drill/setup.h"

struct drill_texts {
    struct drill_setup setup;
    struct arena arena; /* owns what was read from files */
    struct drill_event events[DRILL_EVENTS_MAX];
};

/* CLI_OK, or an exit code after a message. drill_texts_free() in every case. */
int drill_texts_read(struct drill_texts *out, const struct cli_args *args);
void drill_texts_free(struct drill_texts *t);

#endif
