/* A command that takes effect once per key: the way from a key to a verdict, an execution and a kept end.
 *
 * A record's scope is RUN_SCOPE. Content is the command's words; its answer has the form of kept.h. A command that
 * succeeds (exit code 0) is done. One that fails releases its key, unless failures are to be kept. A run that was cut
 * off is unknown, and stays so until somebody settles it. Standard output and error belong to the command: nothing is
 * printed here. */
#ifndef RUN_ONCE_H
#define RUN_ONCE_H

#include "hapax/hapax.h"
#include "run/kept.h"

#include <stdbool.h>

#define RUN_SCOPE "run"
/* The longest that one look at a key which somebody else has may take: so long a signal may have to wait. */
#define RUN_WAIT_SLICE_MS 1000
/* Between attempts to store the end of a command. */
#define RUN_STORE_PAUSE_MS 250

struct run_request {
    const char *store_uri;
    const char *key;
    char *const *argv; /* ends with NULL */
    int64_t ttl_ms;    /* how long the end is kept, from the start on */
    int64_t wait_ms;   /* for a run of somebody else */
    int64_t lease_ms;
    int64_t timeout_ms;    /* 0: none */
    int64_t kill_after_ms; /* from SIGTERM to SIGKILL, when the time is over */
    size_t keep_bytes;     /* of output, up to RUN_KEPT_BYTES_MAX */
    bool retry_unknown;
    bool keep_failures;
    bool ignore_args;
    /* Called with what a user may want to know meanwhile: one line, borrowed for the call. */
    void (*note)(void *ctx, const char *text);
    void *ctx;
};

enum run_end {
    RUN_EXECUTED = 1, /* now, and that is recorded: done, or released where it failed */
    RUN_REPEATED,     /* before: `kept` is its end */
    RUN_BUSY,         /* somebody else's run goes on */
    RUN_MISMATCH,     /* the key was used for other words */
    RUN_UNKNOWN,      /* an earlier run was cut off */
    RUN_NOT_STARTED,  /* no such command, or it can't be executed; the key is free, unless `error` is set */
    RUN_UNRECORDED,   /* executed now, but its end could not be recorded: `error` says why */
    RUN_INTERRUPTED /* a signal came before the command was started; the key is as it was, unless `error` is set */
};

struct run_report {
    enum run_end end;
    int code;             /* the command's: exit code; 128 + signal; 124 timed out; 126, 127 not started */
    int signal;           /* that ended the command, or came before it; 0: none */
    int start_error;      /* RUN_NOT_STARTED: errno */
    int cut_by;           /* RUN_EXECUTED: a signal that came before all of its output was taken; 0: none */
    int write_error;      /* errno of a failed write to our own output; 0: none */
    uint32_t attempt;     /* of what was executed */
    int64_t claimed_ms;   /* RUN_REPEATED, RUN_BUSY, RUN_UNKNOWN: when the first run began */
    bool by_hand;         /* RUN_REPEATED: an operator has said so */
    struct run_kept kept; /* RUN_REPEATED: borrowed until run_report_free() */
    hapax_answer *answer; /* owned */
    hapax_error error; /* why the end of the claim could not be recorded; code 0: it was, or there was none */
};

/* Execute or repeat. SIGTERM, SIGINT and others are passed on to the command meanwhile; no other thread may run when it
 * is called. The end of the command is recorded as soon as it is known, then the rest of its output is written. While
 * the store can't be written, it is tried again for as long as a lease.
 * Results: 0 with a report, and those of hapax_open and hapax_begin, or of a process that can't be started: then
 * nothing was executed; the report's `error` is set where the key could not be freed again. */
int run_once(struct run_report *out, const struct run_request *request, hapax_error *err);
void run_report_free(struct run_report *report);

/* The bytes that are compared of a command: each word with its length. 0, HAPAX_E_LIMIT or HAPAX_E_MEMORY. */
int run_content(struct buf *out, char *const *argv);

#endif
