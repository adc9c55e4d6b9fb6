/* One output of a command: from a pipe through a small buffer to a descriptor of ours, the beginning of it kept.
 *
 * Nothing more is read while there is something to write, so that a slow reader slows the command down; only what the
 * pipe still holds when the command has ended is taken at once. No write blocks: others may write to the same pipe or
 * terminal between poll() and the write, so that it goes through an open file of our own that does not wait. */
#ifndef RUN_STREAM_H
#define RUN_STREAM_H

#include "base/buf.h"

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>

#define RUN_STREAM_BYTES (64U * 1024U)

struct run_stream {
    int from;  /* owned, -1 after its end */
    int to;    /* owned if not the same as `given` */
    int given; /* borrowed */
    bool is_socket;
    int error;         /* errno of the first write that failed; from then on nothing is written */
    struct buf *kept;  /* borrowed */
    size_t *keep_left; /* borrowed: what all streams together may still keep */
    uint64_t written;  /* by the command */
    uint64_t due;      /* see run_stream_drain() */
    size_t at;         /* data[at..len) is still to be written, then the rest */
    size_t len;
    char data[RUN_STREAM_BYTES];
    struct buf rest;
    size_t rest_at;
};

/* `from` is to be set, else there is nothing to read. */
void run_stream_init(struct run_stream *s, int to, struct buf *kept, size_t *keep_left);
/* What poll() is to wait for: room to write, or else something to read; none after the end. */
struct pollfd run_stream_wants(const struct run_stream *s);
/* Act on what poll() found. 0 or HAPAX_E_MEMORY: the bytes were passed on, but not kept. */
int run_stream_turn(struct run_stream *s, short revents);
/* Is there nothing left to write? */
bool run_stream_is_flushed(const struct run_stream *s);
/* The command has ended: what the pipe holds now is its own, and is read without waiting for our reader; what comes
 * after that is of others. 0 or HAPAX_E_MEMORY: the rest of it is read as the reader takes it. */
int run_stream_drain(struct run_stream *s);
/* Has all of that been read? */
bool run_stream_is_read(const struct run_stream *s);
/* Read no more. */
void run_stream_close(struct run_stream *s);
/* The same, and write no more. */
void run_stream_free(struct run_stream *s);

#endif
