/* The terminal, lent to a command whose process group is not the shell's.
 *
 * Such a command is in the background: it is stopped when it reads the terminal or sets it up. Only then, and only
 * where we are in the foreground ourselves, it becomes the foreground: a command that never asks leaves the terminal
 * to a pager behind us, and Ctrl-C reaches us as it would without a command. */
#ifndef RUN_TERMINAL_H
#define RUN_TERMINAL_H

#include <stdbool.h>
#include <sys/types.h>

struct run_terminal {
    int fd; /* owned; -1 while nothing is lent */
};

#define RUN_TERMINAL_NONE ((struct run_terminal){.fd = -1})

/* Lend it to a process group. False: there is none, or we are not in its foreground. */
bool run_terminal_lend(struct run_terminal *t, pid_t group);
/* Take it back if it was lent. */
void run_terminal_take(struct run_terminal *t);

#endif
