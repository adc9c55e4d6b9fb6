/* The signals of a process that runs one command: they become events of a file descriptor, to be passed on.
 *
 * Other threads of the process must take no signals; those of the library take none. A signal that the process was
 * started with ignored (nohup, a shell's background) stays ignored, for the command, too. */
#ifndef RUN_SIGNALS_H
#define RUN_SIGNALS_H

#include "hapax/error.h"

#include <signal.h>

struct run_signals {
    int fd;                       /* owned; readable when a signal has come */
    sigset_t before;              /* the process's mask, to be given to the command */
    struct sigaction pipe_before; /* to be given to the command, too */
};

/* From here on SIGPIPE is ignored, SIGCHLD and those to be passed on wait in the descriptor. 0 or HAPAX_E_SYSTEM. */
int run_signals_open(struct run_signals *out, hapax_error *err);
/* As it was before, but that SIGPIPE stays ignored. What waits in the descriptor then takes its effect on the process. */
void run_signals_close(struct run_signals *s);
/* In a child before exec. */
void run_signals_restore(const struct run_signals *s);
/* The next one that has come; 0: none. */
int run_signals_next(struct run_signals *s);
/* Does this one ask the process to end? */
int run_signals_ends(int number);

#endif
