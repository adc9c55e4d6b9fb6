#include "run/stream.h"

#include "hapax/error.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* What a pipe may hold, if nobody has privileges. More is read as the reader takes it. */
#define REST_BYTES_MAX (1024U * 1024U)

/* The open file behind `given` is shared with other processes, which may not expect it to change. So a pipe or terminal
 * is opened once more for us; a file is not, since its offset is shared, too, and writing there does not wait. */
static int open_again(int given)
{
    struct stat what;
    char path[64];
    if (fstat(given, &what) != 0 || (!S_ISFIFO(what.st_mode) && isatty(given) == 0)) {
        return given;
    }
    snprintf(path, sizeof path, "/proc/self/fd/%d", given);
    int fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    return fd >= 0 ? fd : given; /* of another user, or nobody reads */
}

void run_stream_init(struct run_stream *s, int to, struct buf *kept, size_t *keep_left)
{
    struct stat what;
    s->from = -1;
    s->given = to;
    s->to = open_again(to);
    s->is_socket = fstat(to, &what) == 0 && S_ISSOCK(what.st_mode);
    s->error = 0;
    s->kept = kept;
    s->keep_left = keep_left;
    s->written = 0;
    s->due = 0;
    s->at = 0;
    s->len = 0;
    s->rest_at = 0;
    buf_init(&s->rest, REST_BYTES_MAX);
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
    return s->at == s->len && s->rest_at == s->rest.len;
}

bool run_stream_is_read(const struct run_stream *s)
{
    return s->from < 0 || s->written >= s->due;
}

void run_stream_close(struct run_stream *s)
{
    if (s->from >= 0) {
        close(s->from);
        s->from = -1;
    }
}

void run_stream_free(struct run_stream *s)
{
    run_stream_close(s);
    if (s->to != s->given) {
        close(s->to);
        s->to = s->given;
    }
    buf_free(&s->rest);
}

/* Bytes of the command have come. */
static int take(struct run_stream *s, const char *bytes, size_t n)
{
    s->written += (uint64_t)n;
    size_t keep = n < *s->keep_left ? n : *s->keep_left;
    if (buf_append(s->kept, bytes, keep) != 0) {
        *s->keep_left = 0; /* what is kept has no gap */
        return HAPAX_E_MEMORY;
    }
    *s->keep_left -= keep;
    return 0;
}

static void forget_unwritten(struct run_stream *s)
{
    s->at = s->len;
    s->rest_at = s->rest.len;
}

/* Bytes that are there, so that no read waits. */
static int read_rest(struct run_stream *s)
{
    int code = 0;
    while (s->written < s->due && s->from >= 0) {
        uint64_t left = s->due - s->written;
        size_t n = left < RUN_STREAM_BYTES ? (size_t)left : RUN_STREAM_BYTES;
        if (buf_reserve(&s->rest, n) != 0) {
            return HAPAX_E_MEMORY;
        }
        ssize_t got = read(s->from, s->rest.ptr + s->rest.len, n);
        if (got > 0) {
            int rc = take(s, s->rest.ptr + s->rest.len, (size_t)got);
            s->rest.len += (size_t)got;
            code = rc != 0 ? rc : code;
        } else if (got == 0 || errno != EINTR) {
            run_stream_close(s);
        }
    }
    return code;
}

int run_stream_drain(struct run_stream *s)
{
    int bytes = 0;
    s->due = s->written;
    if (s->from < 0) {
        return 0;
    }
    if (ioctl(s->from, FIONREAD, &bytes) == 0 && bytes > 0) {
        s->due += (uint64_t)bytes;
    }
    int code = read_rest(s);
    struct pollfd end = {.fd = s->from, .events = POLLIN};
    if (s->from >= 0 && poll(&end, 1, 0) == 1 && (end.revents & POLLIN) == 0) {
        run_stream_close(s); /* nobody holds it any more */
    }
    if (s->error != 0) {
        forget_unwritten(s);
    }
    return code;
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
    s->at = s->error != 0 ? (size_t)n : 0;
    s->len = (size_t)n;
    return take(s, s->data, (size_t)n);
}

/* Where there is no open file of our own, it is at least asked at the last moment. */
static bool has_room(const struct run_stream *s)
{
    return s->to != s->given || s->is_socket ||
           poll(&(struct pollfd){.fd = s->to, .events = POLLOUT}, 1, 0) != 0;
}

/* A pipe with any room at all takes PIPE_BUF bytes. */
static void write_some(struct run_stream *s)
{
    bool first = s->at < s->len;
    const char *bytes = first ? s->data + s->at : s->rest.ptr + s->rest_at;
    size_t left = first ? s->len - s->at : s->rest.len - s->rest_at;
    left = left < PIPE_BUF ? left : PIPE_BUF;
    if (!has_room(s)) {
        return;
    }
    ssize_t n =
        s->is_socket ? send(s->to, bytes, left, MSG_DONTWAIT | MSG_NOSIGNAL) : write(s->to, bytes, left);
    if (n >= 0) {
        *(first ? &s->at : &s->rest_at) += (size_t)n;
    } else if (errno != EINTR && errno != EAGAIN) {
        s->error = errno;
        forget_unwritten(s);
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
