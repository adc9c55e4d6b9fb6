/* A process that outlives us by a moment: when we are killed (SIGKILL, too), it ends the command's process group.
 *
 * The kernel ends only our direct child with us, which is often a shell; what that has started would work on while the
 * next run may already do the same. The guardian waits for the end of a pipe that only we hold open. It is in a session
 * of its own, holds nothing else of ours open and takes no signal. Not reached is what has left the group (setsid) or
 * changed its user. */
#ifndef RUN_GUARDIAN_H
#define RUN_GUARDIAN_H

#include "hapax/error.h"

#include <sys/types.h>

struct run_guardian {
    pid_t pid; /* 0: none */
    int fd;    /* owned; where it is -1, there is none */
};

#define RUN_GUARDIAN_NONE ((struct run_guardian){.fd = -1})

/* Before the command is forked. 0 or HAPAX_E_SYSTEM: then there is none. */
int run_guardian_start(struct run_guardian *out, hapax_error *err);
/* The group to end with us. */
void run_guardian_tell(const struct run_guardian *g, pid_t group);
/* End it, while the group's number is still the command's; nothing happens to the group. Also where there is none. */
void run_guardian_dismiss(struct run_guardian *g);

#endif
