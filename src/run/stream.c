#include "run/stream.h"

#include "hapax/error.h"

#include <errno.h>
#include <limits.h>
#include <sys/ioctl.h>
#include <unistd.h>

void run_stream_init(struct run_stream *s, int to, struct buf *kept, size_t *keep_left)
{
    s->from = -1;
    s->to = to;
    s->error = 0;
    s->kept = kept;
    s->keep_left = keep_left;
    s->written = 0;
    s->due = 0;
    s->at = 0;
    s->len = 0;
}

struct pollfd run_stream_wants(const struct run_stream *s)
{
    if (!run_stream_is_flushed(s)) {
        return (struct pollfd){.fd = s->to, .events = POLLOUT};
    }
    return (struct pollfd){.fd = s->from, .events = POLLIN};
}

bool run_stream_is_flushed(const struct run_stream *s)
{
    return s->at == s->len;
}

void run_stream_expect(struct run_stream *s)
{
    int bytes = 0;
    s->due = s->written;
    if (s->from >= 0 && ioctl(s->from, FIONREAD, &bytes) == 0 && bytes > 0) {
        s->due += (uint64_t)bytes;
    }
}

bool run_stream_is_done(const struct run_stream *s)
{
    return run_stream_is_flushed(s) && (s->from < 0 || s->written >= s->due);
}

void run_stream_close(struct run_stream *s)
{
    if (s->from >= 0) {
        close(s->from);
        s->from = -1;
    }
}

static int read_some(struct run_stream *s)
{
    ssize_t n = read(s->from, s->data, sizeof s->data);
    if (n <= 0) {
        if (n == 0 || (errno != EINTR && errno != EAGAIN)) {
            run_stream_close(s);
        }
        return 0;
    }
    s->written += (uint64_t)n;
    s->at = s->error != 0 ? (size_t)n : 0;
    s->len = (size_t)n;
    size_t keep = (size_t)n < *s->keep_left ? (size_t)n : *s->keep_left;
    if (buf_append(s->kept, s->data, keep) != 0) {
        *s->keep_left = 0; /* what is kept has no gap */
        return HAPAX_E_MEMORY;
    }
    *s->keep_left -= keep;
    return 0;
}

/* A pipe with any room at all takes PIPE_BUF bytes. */
static void write_some(struct run_stream *s)
{
    size_t left = s->len - s->at;
    ssize_t n = write(s->to, s->data + s->at, left < PIPE_BUF ? left : PIPE_BUF);
    if (n >= 0) {
        s->at += (size_t)n;
    } else if (errno != EINTR && errno != EAGAIN) {
        s->error = errno;
        s->at = s->len;
    }
}

int run_stream_turn(struct run_stream *s, short revents)
{
    if (revents == 0) {
        return 0;
    }
    if (!run_stream_is_flushed(s)) {
        write_some(s); /* what is broken fails here and says why */
        return 0;
    }
    return s->from >= 0 ? read_some(s) : 0;
}
