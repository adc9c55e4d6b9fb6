/* A real server on a loop thread of its own, a handler that does by path what a test needs, and a client on blocking
 * sockets in the test's thread.
 *
 * The test's thread may use the server only through fixture_call(), which runs a function on the loop and waits for it.
 * Time-outs here only keep a broken test from hanging: no verdict depends on them. */
#ifndef TESTS_HTTP_FIXTURE_H
#define TESTS_HTTP_FIXTURE_H

#include "base/buf.h"
#include "net/http_server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>
#include <http_parser.h>

enum { HANG_SECONDS = 20, PIECE_BYTES = 16 * 1024, FLOOD_BYTES = 8 * 1024 * 1024 };

/* What happened, counted under the lock. */
enum event {
    REQUEST,
    DEFECT,
    BODY_END,
    BODY_ERROR,
    WRITABLE,
    GONE,
    CLOSED,
    RELEASED,
    SERVER_CLOSED,
    EVENT_COUNT
};

struct fixture {
    struct loop *loop;
    struct http_server *server;
    struct http_server_options options;
    uint16_t port;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    unsigned events[EVENT_COUNT]; /* under lock */
    int body_error;               /* the last one's code */
    struct http_exchange *held;   /* the last /hold, /pause or /dribble; loop thread */
    size_t flood_before_full;     /* bytes taken until a write first returned false; loop thread */
    char *big;                    /* PIECE_BYTES * 64 of it */
};

struct work {
    struct fixture *fixture;
    struct buf body;
    size_t flooded;
};

static inline void note(struct fixture *f, enum event event)
{
    pthread_mutex_lock(&f->lock);
    f->events[event]++;
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->lock);
}

static inline unsigned count(struct fixture *f, enum event event)
{
    pthread_mutex_lock(&f->lock);
    unsigned n = f->events[event];
    pthread_mutex_unlock(&f->lock);
    return n;
}

static inline void await(struct fixture *f, enum event event, unsigned n)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += HANG_SECONDS;
    pthread_mutex_lock(&f->lock);
    while (f->events[event] < n) {
        if (pthread_cond_timedwait(&f->changed, &f->lock, &until) != 0) {
            pthread_mutex_unlock(&f->lock);
            fail_msg("event %d did not come", (int)event);
        }
    }
    pthread_mutex_unlock(&f->lock);
}

/* --- The handler. --- */

static inline void answer_echo(struct http_exchange *x, struct work *w)
{
    const struct request *r = http_exchange_request(x);
    struct buf text;
    buf_init(&text, 1U << 26);
    buf_printf(&text, "%.*s %.*s?%.*s %zu:", SLICE_FORMAT(r->method), SLICE_FORMAT(r->path),
               SLICE_FORMAT(r->query), r->header_count);
    buf_append_slice(&text, buf_slice(&w->body));
    http_respond(x, 200, SLICE_LITERAL("X-Echo: yes\r\n"), buf_slice(&text));
    buf_free(&text);
}

static inline void flood(struct http_exchange *x, struct work *w)
{
    struct fixture *f = w->fixture;
    while (w->flooded < FLOOD_BYTES) {
        w->flooded += PIECE_BYTES;
        if (!http_respond_write(x, slice_of(f->big, PIECE_BYTES))) {
            f->flood_before_full = f->flood_before_full == 0 ? w->flooded : f->flood_before_full;
            return;
        }
    }
    http_respond_finish(x);
}

static inline void on_released(void *arg)
{
    note(arg, RELEASED);
}

static inline void stream(struct http_exchange *x, int64_t length, bool abort)
{
    http_respond_start(x, 200, SLICE_LITERAL("X-Stream: yes\r\n"), length);
    http_respond_write(x, SLICE_LITERAL("one"));
    http_respond_write(x, SLICE_LITERAL(""));
    if (length != 3) {
        http_respond_write(x, SLICE_LITERAL("two"));
    }
    if (abort) {
        http_respond_abort(x);
    } else {
        http_respond_finish(x);
    }
}

static inline bool is_path(struct http_exchange *x, const char *path)
{
    return slice_equal(http_exchange_request(x)->path, slice_text(path));
}

static inline void on_request(void *ctx, struct http_exchange *x)
{
    struct fixture *f = ctx;
    struct work *w = calloc(1, sizeof *w);
    w->fixture = f;
    buf_init(&w->body, 1U << 26);
    http_exchange_set_user(x, w);
    if (is_path(x, "/early")) {
        http_respond(x, 200, SLICE_LITERAL(""), SLICE_LITERAL("early"));
    } else if (is_path(x, "/hold") || is_path(x, "/keep") || is_path(x, "/pause")) {
        f->held = x;
    } else if (is_path(x, "/dribble")) {
        f->held = x;
        http_exchange_read(x, true);
    } else if (is_path(x, "/stream")) {
        stream(x, -1, false);
    } else if (is_path(x, "/length")) {
        stream(x, 6, false);
    } else if (is_path(x, "/short")) {
        stream(x, 7, false);
    } else if (is_path(x, "/long")) {
        stream(x, 5, false);
    } else if (is_path(x, "/abort")) {
        stream(x, -1, true);
    } else if (is_path(x, "/flood")) {
        http_respond_start(x, 200, SLICE_LITERAL(""), -1);
        flood(x, w);
    } else if (is_path(x, "/204")) {
        http_respond(x, 204, SLICE_LITERAL(""), SLICE_LITERAL("never sent"));
    } else if (is_path(x, "/304")) {
        http_respond(x, 304, SLICE_LITERAL(""), SLICE_LITERAL("four"));
    } else if (is_path(x, "/big")) {
        http_respond_shared(x, 200, SLICE_LITERAL(""), slice_of(f->big, PIECE_BYTES * 64), on_released, f);
    } else {
        http_exchange_read(x, true);
    }
    note(f, REQUEST);
}

static inline void on_defect(void *ctx, struct http_exchange *x, enum http_defect defect, const char *detail)
{
    static const int status[] = {400, 431, 417, 501, 505, 408};
    http_respond(x, status[defect], SLICE_LITERAL(""), slice_text(detail));
    note(ctx, DEFECT);
}

static inline void read_again(void *ctx)
{
    struct fixture *f = ctx;
    if (f->held != NULL) {
        http_exchange_read(f->held, true);
    }
}

static inline void on_body(void *ctx, struct http_exchange *x, struct slice bytes)
{
    struct work *w = http_exchange_user(x);
    assert_int_equal(buf_append_slice(&w->body, bytes), 0);
    if (is_path(x, "/dribble")) {
        http_exchange_read(x, false); /* each piece is asked for in a turn of its own */
        loop_post(w->fixture->loop, read_again, ctx);
    }
}

static inline void on_body_end(void *ctx, struct http_exchange *x)
{
    answer_echo(x, http_exchange_user(x));
    note(ctx, BODY_END);
}

static inline void on_body_error(void *ctx, struct http_exchange *x, int code)
{
    struct fixture *f = ctx;
    f->body_error = code;
    note(f, BODY_ERROR); /* before the answer: who has that may look */
    http_respond(x, 499, SLICE_LITERAL(""), SLICE_LITERAL("body"));
}

static inline void on_writable(void *ctx, struct http_exchange *x)
{
    note(ctx, WRITABLE);
    flood(x, http_exchange_user(x));
}

static inline void on_gone(void *ctx, struct http_exchange *x)
{
    if (!is_path(x, "/keep")) {
        http_exchange_done(x);
    }
    note(ctx, GONE);
}

static inline void on_close(void *ctx, struct http_exchange *x)
{
    struct fixture *f = ctx;
    struct work *w = http_exchange_user(x);
    if (w != NULL) {
        buf_free(&w->body);
        free(w);
    }
    if (f->held == x) {
        f->held = NULL;
    }
    note(f, CLOSED);
}

static const struct http_handler fixture_handler = {.on_request = on_request,
                                                    .on_defect = on_defect,
                                                    .on_body = on_body,
                                                    .on_body_end = on_body_end,
                                                    .on_body_error = on_body_error,
                                                    .on_writable = on_writable,
                                                    .on_gone = on_gone,
                                                    .on_close = on_close};

/* --- Life. --- */

static inline void *run_loop(void *arg)
{
    struct fixture *f = arg;
    loop_run(f->loop);
    return NULL;
}

/* Time-outs so long that none strikes; a test sets those it is about before fixture_start(). */
static inline void fixture_init(struct fixture *f)
{
    *f = (struct fixture){.options = {.address = "127.0.0.1:0",
                                      .connections_max = 10000,
                                      .head_bytes_max = 8192,
                                      .headers_max = 32,
                                      .head_ms = 60000,
                                      .idle_ms = 60000,
                                      .body_ms = 60000,
                                      .send_ms = 60000,
                                      .write_high_bytes = 64 * 1024,
                                      .handler = &fixture_handler}};
    f->options.ctx = f;
    pthread_mutex_init(&f->lock, NULL);
    pthread_cond_init(&f->changed, NULL);
    f->big = calloc(64, PIECE_BYTES);
    assert_non_null(f->big);
    assert_int_equal(loop_create(&f->loop, NULL), 0);
}

static inline void fixture_start(struct fixture *f)
{
    hapax_error err = {0};
    if (http_server_open(&f->server, f->loop, &f->options, &err) != 0) {
        fail_msg("%s", err.message);
    }
    f->port = http_server_port(f->server);
    assert_int_equal(pthread_create(&f->thread, NULL, run_loop, f), 0);
}

struct call {
    struct fixture *fixture;
    void (*fn)(struct fixture *f, void *arg);
    void *arg;
    bool done;
};

static inline void run_call(void *arg)
{
    struct call *c = arg;
    c->fn(c->fixture, c->arg);
    pthread_mutex_lock(&c->fixture->lock);
    c->done = true;
    pthread_cond_broadcast(&c->fixture->changed);
    pthread_mutex_unlock(&c->fixture->lock);
}

static inline void fixture_call(struct fixture *f, void (*fn)(struct fixture *f, void *arg), void *arg)
{
    struct call c = {f, fn, arg, false};
    assert_int_equal(loop_post(f->loop, run_call, &c), 0);
    pthread_mutex_lock(&f->lock);
    while (!c.done) {
        pthread_cond_wait(&f->changed, &f->lock);
    }
    pthread_mutex_unlock(&f->lock);
}

static inline void nothing(struct fixture *f, void *arg)
{
    (void)f;
    (void)arg;
}

/* Two turns of the loop: everything sent before has been read by then. */
static inline void settle(struct fixture *f)
{
    fixture_call(f, nothing, NULL);
    fixture_call(f, nothing, NULL);
}

static inline void on_server_closed(void *ctx)
{
    note(ctx, SERVER_CLOSED);
}

static inline void close_server(struct fixture *f, void *arg)
{
    (void)arg;
    http_server_close(f->server, on_server_closed, f);
}

static inline void fixture_stop(struct fixture *f)
{
    fixture_call(f, close_server, NULL);
    await(f, SERVER_CLOSED, 1);
    loop_stop(f->loop);
    pthread_join(f->thread, NULL);
    loop_destroy(f->loop);
    assert_int_equal(f->events[CLOSED],
                     f->events[REQUEST] + f->events[DEFECT]); /* every exchange ended, once */
    pthread_mutex_destroy(&f->lock);
    pthread_cond_destroy(&f->changed);
    free(f->big);
}

static inline void respond_held(struct fixture *f, void *text)
{
    assert_non_null(f->held);
    http_respond(f->held, 200, SLICE_LITERAL(""), slice_text(text));
}

static inline void read_held(struct fixture *f, void *arg)
{
    (void)arg;
    assert_non_null(f->held);
    http_exchange_read(f->held, true);
}

static inline void count_connections(struct fixture *f, void *out)
{
    *(uint32_t *)out = http_server_connections(f->server);
}

/* --- The client. --- */

struct client {
    int fd;
    size_t len;
    bool eof, reset;
    char bytes[256 * 1024];
};

struct answer {
    int status;
    bool complete;
    bool keep;
    bool head_request;
    struct buf body;
    char head[4096];
};

static inline int connect_port(uint16_t port)
{
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct timeval hang = {.tv_sec = HANG_SECONDS};
    int on = 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &hang, sizeof hang);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &hang, sizeof hang);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

static inline struct client *client_open(struct fixture *f)
{
    struct client *c = malloc(sizeof *c);
    assert_non_null(c);
    c->fd = connect_port(f->port);
    c->len = 0;
    c->eof = false;
    c->reset = false;
    return c;
}

static inline void client_close(struct client *c)
{
    close(c->fd);
    free(c);
}

/* false: the server closed already, which a test of defects has to expect. */
static inline bool send_some(struct client *c, struct slice bytes)
{
    while (bytes.len > 0) {
        ssize_t n = send(c->fd, bytes.ptr, bytes.len, MSG_NOSIGNAL);
        if (n <= 0) {
            return false;
        }
        bytes = slice_from(bytes, (size_t)n);
    }
    return true;
}

static inline void send_text(struct client *c, const char *text)
{
    assert_true(send_some(c, slice_text(text)));
}

static inline bool receive(struct client *c)
{
    assert_true(c->len < sizeof c->bytes);
    ssize_t n = recv(c->fd, c->bytes + c->len, sizeof c->bytes - c->len, 0);
    if (n < 0 && errno == EAGAIN) {
        fail_msg("the server neither answered nor closed");
    }
    c->reset = n < 0;
    c->eof = n <= 0;
    c->len += n > 0 ? (size_t)n : 0;
    return n > 0;
}

static inline int take_body(http_parser *p, const char *at, size_t len)
{
    struct answer *a = p->data;
    return buf_append(&a->body, at, len);
}

static inline int take_end(http_parser *p)
{
    struct answer *a = p->data;
    a->complete = true;
    a->status = p->status_code;
    a->keep = http_should_keep_alive(p) != 0;
    http_parser_pause(p, 1);
    return 0;
}

static inline int take_head(http_parser *p)
{
    struct answer *a = p->data;
    a->status = p->status_code;
    return a->head_request || p->status_code == 304; /* no body follows */
}

/* One answer, read by a parser that is not ours. Not complete: the connection ended before. */
static inline void read_answer_to(struct client *c, struct answer *a, bool head_request)
{
    static const http_parser_settings settings = {
        .on_headers_complete = take_head, .on_body = take_body, .on_message_complete = take_end};
    http_parser parser;
    *a = (struct answer){.head_request = head_request};
    buf_init(&a->body, 1U << 26);
    http_parser_init(&parser, HTTP_RESPONSE);
    parser.data = a;
    size_t parsed = 0;
    for (;;) {
        char *end = memmem(c->bytes, c->len, "\r\n\r\n", 4);
        if (end != NULL && a->head[0] == '\0') {
            size_t len = (size_t)(end - c->bytes) + 2;
            assert_true(len < sizeof a->head);
            memcpy(a->head, c->bytes, len);
        }
        parsed += http_parser_execute(&parser, &settings, c->bytes + parsed, c->len - parsed);
        if (!a->complete && HTTP_PARSER_ERRNO(&parser) != HPE_OK) {
            fail_msg("not an answer (%s): %.*s", http_errno_name(HTTP_PARSER_ERRNO(&parser)), (int)c->len,
                     c->bytes);
        }
        if (a->complete) {
            break;
        }
        if (parsed == c->len && a->head[0] != '\0') { /* the head is kept, the body is gone through */
            parsed = 0;
            c->len = 0;
        }
        if (!receive(c)) {
            http_parser_execute(&parser, &settings, NULL, 0);
            break;
        }
    }
    memmove(c->bytes, c->bytes + parsed, c->len - parsed);
    c->len -= parsed;
}

static inline void read_answer(struct client *c, struct answer *a)
{
    read_answer_to(c, a, false);
}

static inline void expect(struct client *c, int status, const char *body)
{
    struct answer a;
    read_answer(c, &a);
    if (!a.complete || a.status != status || !slice_equal(buf_slice(&a.body), slice_text(body))) {
        fail_msg("instead of %d %s: %d %.*s", status, body, a.status, (int)a.body.len,
                 buf_slice(&a.body).ptr);
    }
    buf_free(&a.body);
}

static inline void expect_eof(struct client *c)
{
    assert_int_equal(c->len, 0);
    assert_false(receive(c));
    assert_false(c->reset);
}

#endif
