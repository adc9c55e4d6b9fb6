/* One output of a command: from a pipe through a small buffer to a descriptor of ours, the beginning of it kept.
 *
 * Nothing more is read while there is something to write, so that a slow reader slows the command down; and it is
 * written only where poll() says that it would not block, in pieces that a pipe takes whole. */
#ifndef RUN_STREAM_H
#define RUN_STREAM_H

#include "base/buf.h"

#include <poll.h>
#include <stdint.h>

#define RUN_STREAM_BYTES (64U * 1024U)

struct run_stream {
    int from;          /* owned, -1 after its end */
    int to;            /* borrowed */
    int error;         /* errno of the first write that failed; from then on nothing is written */
    struct buf *kept;  /* borrowed */
    size_t *keep_left; /* borrowed: what all streams together may still keep */
    uint64_t written;  /* by the command */
    uint64_t due;      /* see run_stream_expect() */
    size_t at;         /* data[at..len) is still to be written */
    size_t len;
    char data[RUN_STREAM_BYTES];
};

/* `from` is to be set, else there is nothing to read. */
void run_stream_init(struct run_stream *s, int to, struct buf *kept, size_t *keep_left);
/* What poll() is to wait for: room to write, or else something to read; none after the end. */
struct pollfd run_stream_wants(const struct run_stream *s);
/* Act on what poll() found. 0 or HAPAX_E_MEMORY: the bytes were passed on, but not kept. */
int run_stream_turn(struct run_stream *s, short revents);
/* Is there nothing left to write? */
bool run_stream_is_flushed(const struct run_stream *s);
/* The command has ended: what the pipe holds now is its own and will be read; what comes after that is of others. */
void run_stream_expect(struct run_stream *s);
/* Has all of that been read and written? */
bool run_stream_is_done(const struct run_stream *s);
/* Read no more. */
void run_stream_close(struct run_stream *s);

#endif
