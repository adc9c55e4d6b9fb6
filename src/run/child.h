/* One command as a child process in a process group of its own: started, attended, ended.
 *
 * Its standard input is ours. What it writes to standard output and error is passed on to ours at once and in order,
 * and kept up to a limit. Signals that come to us go to its group. A slow reader of ours slows the command down and
 * nothing else; a reader that leaves does not end it. What the reader has not taken at the command's end is passed on
 * by a call of its own, so that the end can be recorded before.
 * The command and its group die with this process (SIGKILL), also where that is killed; but not what has left the group
 * or changed its user (setuid).
 * One thread; no other thread of the process may wait for children. */
#ifndef RUN_CHILD_H
#define RUN_CHILD_H

#include "base/buf.h"
#include "hapax/error.h"
#include "run/kept.h"
#include "run/signals.h"

#include <stdint.h>
#include <sys/types.h>

#define RUN_LINGER_MS 2000 /* how long what a command left behind may keep its output open after its end */

struct run_child_request {
    char *const *argv;        /* argv[0] is looked up in PATH; ends with NULL */
    char *const *environment; /* ends with NULL */
    int64_t timeout_ms;       /* 0: none */
    int64_t kill_after_ms;    /* from SIGTERM to SIGKILL, when its time is over */
    size_t keep_bytes_max;    /* of both streams together */
    /* Called with what a user may want to know while it runs: one line, borrowed for the call. */
    void (*note)(void *ctx, const char *text);
    void *ctx;
};

struct run_child_end {
    int start_error; /* errno where it could not be started; else 0 */
    int code;   /* exit code; 128 + number of the signal that ended it; 124 when it failed after its time */
    int signal; /* that ended it, or 0 */
    bool timed_out;    /* and was told to end for that */
    int ending_signal; /* the first that asked us to end after the command had ended; 0: none */
    bool is_cut;       /* for that signal something was not passed on */
    int write_error;   /* errno of a failed write to our own output, but for a reader that left; else 0 */
    struct buf kept[RUN_STREAMS]; /* owned, free with run_child_end_free() */
    uint64_t written[RUN_STREAMS];
    struct run_attendance *attendance; /* owned: what is still to be passed on */
};

/* Run a command to its end. What our reader has not taken by then waits for run_child_pass_on(). 0, HAPAX_E_MEMORY or
 * HAPAX_E_SYSTEM: then nothing was started. A command that is not there or can't be executed is no error: see
 * start_error. */
int run_child(struct run_child_end *out, const struct run_child_request *request, struct run_signals *signals,
              hapax_error *err);
/* Write the rest, and wait for our reader meanwhile; but where a signal asks us to end, only what is taken at once.
 * Sets is_cut and write_error. */
void run_child_pass_on(struct run_child_end *end);
void run_child_end_free(struct run_child_end *end);

#endif
