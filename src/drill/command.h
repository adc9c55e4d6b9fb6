/* Commands of the user's, by `sh -c`. */
#ifndef DRILL_COMMAND_H
#define DRILL_COMMAND_H

#include "base/buf.h"
#include "hapax/error.h"

#include <signal.h>
#include <sys/types.h>

/* Run it and wait until it ends; what it leaves running in the background is left alone. Its standard input is empty, its
 * standard error ours. Standard output goes into `out` up to its maximum, what is more is dropped; with NULL to standard
 * error. HAPAX_E_SYSTEM: it can't be started, or ended with another code than 0; HAPAX_E_TIMEOUT: it took too
 * long and was killed with its process group; HAPAX_E_CANCELED: *stop was set, likewise. */
int command_run(const char *command, struct buf *out, int64_t timeout_ms, const volatile sig_atomic_t *stop,
                hapax_error *err);

/* The same in two steps, its output to standard error. After a success of the first, the second must follow. */
int command_start(pid_t *out, const char *command, hapax_error *err);
int command_wait(pid_t pid, int64_t timeout_ms, const volatile sig_atomic_t *stop, hapax_error *err);

#endif
