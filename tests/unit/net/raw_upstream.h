/* For tests of the HTTP client: an upstream on raw sockets that can do everything wrong, and a client on a loop
 * with one call at hand. A thread accepts; each connection runs the test's script in a thread of its own. */
#ifndef TESTS_RAW_UPSTREAM_H
#define TESTS_RAW_UPSTREAM_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/buf.h"
#include "net/http_client.h"
#include "net/loop_uv.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CONNECTIONS_MAX = 512, REQUEST_BYTES_MAX = 128 << 20 };

struct upstream;

/* One connection. `number` counts from 0 in order of accepting. Returning closes it. */
typedef void (*upstream_script)(struct upstream *u, int fd, int number);

struct connection {
    struct upstream *upstream;
    pthread_t thread;
    int fd;
    int number;
    bool closed; /* under lock */
};

struct upstream {
    int listener;
    uint16_t port;
    upstream_script script;
    const void *arg; /* for the script */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t moved;
    struct connection connections[CONNECTIONS_MAX]; /* under lock from here on */
    int accepted;
    int open_now;
    int open_most;
    int closed;
    int requests;    /* read completely */
    int marks;       /* whatever the script counts */
    struct buf last; /* the last request, raw */
};

static inline int upstream_listen(uint16_t *port, int backlog)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(fd, backlog), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &len), 0);
    *port = ntohs(a.sin_port);
    return fd;
}

static inline void *upstream_connection(void *arg)
{
    struct connection *c = arg;
    struct upstream *u = c->upstream;
    u->script(u, c->fd, c->number);
    pthread_mutex_lock(&u->lock);
    c->closed = true;
    close(c->fd);
    u->open_now--;
    u->closed++;
    pthread_cond_broadcast(&u->moved);
    pthread_mutex_unlock(&u->lock);
    return NULL;
}

static inline void *upstream_accept(void *arg)
{
    struct upstream *u = arg;
    for (;;) {
        int fd = accept4(u->listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0) {
            return NULL; /* shut down */
        }
        pthread_mutex_lock(&u->lock);
        struct connection *c = &u->connections[u->accepted];
        *c = (struct connection){.upstream = u, .fd = fd, .number = u->accepted};
        u->accepted++;
        u->open_now++;
        u->open_most = u->open_now > u->open_most ? u->open_now : u->open_most;
        pthread_create(&c->thread, NULL, upstream_connection, c);
        pthread_mutex_unlock(&u->lock);
    }
}

static inline struct upstream *upstream_start(upstream_script script, const void *arg)
{
    struct upstream *u = calloc(1, sizeof *u);
    assert_non_null(u);
    u->script = script;
    u->arg = arg;
    pthread_mutex_init(&u->lock, NULL);
    pthread_cond_init(&u->moved, NULL);
    buf_init(&u->last, REQUEST_BYTES_MAX);
    u->listener = upstream_listen(&u->port, 128);
    pthread_create(&u->thread, NULL, upstream_accept, u);
    return u;
}

static inline void upstream_stop(struct upstream *u)
{
    shutdown(u->listener, SHUT_RDWR);
    pthread_join(u->thread, NULL);
    close(u->listener);
    pthread_mutex_lock(&u->lock);
    for (int i = 0; i < u->accepted; i++) {
        if (!u->connections[i].closed) {
            shutdown(u->connections[i].fd, SHUT_RDWR);
        }
    }
    pthread_mutex_unlock(&u->lock);
    for (int i = 0; i < u->accepted; i++) {
        pthread_join(u->connections[i].thread, NULL);
    }
    buf_free(&u->last);
    pthread_cond_destroy(&u->moved);
    pthread_mutex_destroy(&u->lock);
    free(u);
}

static inline int upstream_get(struct upstream *u, const int *field)
{
    pthread_mutex_lock(&u->lock);
    int n = *field;
    pthread_mutex_unlock(&u->lock);
    return n;
}

static inline void upstream_wait(struct upstream *u, const int *field, int at_least)
{
    pthread_mutex_lock(&u->lock);
    while (*field < at_least) {
        pthread_cond_wait(&u->moved, &u->lock);
    }
    pthread_mutex_unlock(&u->lock);
}

static inline void upstream_mark(struct upstream *u)
{
    pthread_mutex_lock(&u->lock);
    u->marks++;
    pthread_cond_broadcast(&u->moved);
    pthread_mutex_unlock(&u->lock);
}

static inline bool send_bytes(int fd, const void *bytes, size_t len)
{
    const char *p = bytes;
    while (len > 0) {
        ssize_t n = send(fd, p, len, MSG_NOSIGNAL);
        if (n <= 0) {
            return false;
        }
        p += n;
        len -= (size_t)n;
    }
    return true;
}

static inline bool send_text(int fd, const char *text)
{
    return send_bytes(fd, text, strlen(text));
}

static inline void read_until_closed(int fd)
{
    char junk[4096];
    while (recv(fd, junk, sizeof junk, 0) > 0) {
    }
}

static inline bool more_bytes(int fd, struct buf *b)
{
    if (buf_reserve(b, 65536) != 0) {
        return false;
    }
    ssize_t n = recv(fd, b->ptr + b->len, 65536, 0);
    b->len += n > 0 ? (size_t)n : 0;
    return n > 0;
}

/* The head of a request and no more (reads byte by byte); false when the connection ends before. */
static inline bool read_head(int fd, struct buf *b)
{
    buf_clear(b);
    while (b->len < 4 || memcmp(b->ptr + b->len - 4, "\r\n\r\n", 4) != 0) {
        char c;
        if (recv(fd, &c, 1, 0) != 1 || buf_append_byte(b, c) != 0) {
            return false;
        }
    }
    return true;
}

/* A whole request into `b`; a body by Content-Length or up to the last chunk. */
static inline bool read_request(struct upstream *u, int fd, struct buf *b)
{
    if (!read_head(fd, b)) {
        return false;
    }
    size_t head = b->len;
    if (buf_append_byte(b, '\0') != 0) {
        return false;
    }
    const char *length = strstr(b->ptr, "\r\nContent-Length: ");
    bool chunked = strstr(b->ptr, "\r\nTransfer-Encoding: chunked\r\n") != NULL;
    size_t want = length != NULL ? strtoul(length + 18, NULL, 10) : 0;
    b->len = head;
    while (b->len < head + want ||
           (chunked && (b->len < head + 5 || memcmp(b->ptr + b->len - 5, "0\r\n\r\n", 5) != 0))) {
        if (!more_bytes(fd, b)) {
            return false;
        }
    }
    pthread_mutex_lock(&u->lock);
    u->requests++;
    buf_clear(&u->last);
    buf_append_slice(&u->last, buf_slice(b));
    pthread_cond_broadcast(&u->moved);
    pthread_mutex_unlock(&u->lock);
    return true;
}

/* Answers every request with the text in u->arg and keeps the connection. */
static inline void always(struct upstream *u, int fd, int number)
{
    (void)number;
    struct buf b;
    buf_init(&b, REQUEST_BYTES_MAX);
    while (read_request(u, fd, &b) && send_text(fd, u->arg)) {
    }
    buf_free(&b);
}

/* Answers one request with the text in u->arg and closes. */
static inline void once(struct upstream *u, int fd, int number)
{
    (void)number;
    struct buf b;
    buf_init(&b, REQUEST_BYTES_MAX);
    if (read_request(u, fd, &b)) {
        send_text(fd, u->arg);
    }
    buf_free(&b);
}

/* The same with the bytes of the slice in u->arg. */
static inline void once_bytes(struct upstream *u, int fd, int number)
{
    (void)number;
    const struct slice *bytes = u->arg;
    struct buf b;
    buf_init(&b, REQUEST_BYTES_MAX);
    if (read_request(u, fd, &b)) {
        send_bytes(fd, bytes->ptr, bytes->len);
    }
    buf_free(&b);
}

/* The same; returning only when nobody can read or write any more. */
static inline void once_then_close(struct upstream *u, int fd, int number)
{
    once(u, fd, number);
    shutdown(fd, SHUT_RDWR);
}

#define GET_OF(path) ((struct http_call_options){.target = SLICE_LITERAL(path)})
#define POST_OF(text)                                                                                        \
    ((struct http_call_options){.method = SLICE_LITERAL("POST"), .body = SLICE_LITERAL(text)})
#define OK_TEXT "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

/* After its first answer, and once the test has marked, the first connection sends another one that nobody asked for. */
static inline void speaks_unasked(struct upstream *u, int fd, int number)
{
    struct buf b;
    buf_init(&b, REQUEST_BYTES_MAX);
    if (read_request(u, fd, &b) && send_text(fd, OK_TEXT) && number == 0) {
        upstream_wait(u, &u->marks, 1);
        send_text(fd, "HTTP/1.1 408 Request Timeout\r\nContent-Length: 3\r\n\r\n408");
        upstream_mark(u);
    }
    while (read_request(u, fd, &b) && send_text(fd, OK_TEXT)) {
    }
    buf_free(&b);
}

/* --- The client's side. --- */

struct bench {
    struct loop *loop;
    struct http_client *client;
    struct http_origin *origin;
    int descriptors;
    bool inside; /* an http_call_* function runs: no call-back may */
};

static inline int count_descriptors(void)
{
    int n = 0;
    DIR *d = opendir("/proc/self/fd");
    assert_non_null(d);
    while (readdir(d) != NULL) {
        n++;
    }
    closedir(d);
    return n;
}

static inline void bench_open_url(struct bench *b, const char *url, const char *ca_file,
                                  uint32_t connections_max)
{
    *b = (struct bench){.descriptors = count_descriptors()};
    struct http_origin_options o = {.url = url,
                                    .ca_file = ca_file,
                                    .connect_ms = 20000,
                                    .idle_ms = 60000,
                                    .connections_max = connections_max};
    assert_int_equal(loop_create(&b->loop, NULL), 0);
    assert_int_equal(http_client_create(&b->client, b->loop, NULL), 0);
    assert_int_equal(http_origin_create(&b->origin, &o, NULL), 0);
}

static inline void bench_open(struct bench *b, const struct upstream *u)
{
    char url[64];
    snprintf(url, sizeof url, "http://127.0.0.1:%u", u->port);
    bench_open_url(b, url, NULL, 64);
}

static inline void bench_close(struct bench *b)
{
    if (b->client != NULL) {
        http_client_destroy(b->client);
    }
    http_origin_destroy(b->origin);
    loop_destroy(b->loop);
}

/* One call and what came of it. */
struct answer {
    struct bench *bench;
    struct http_call *call;
    int status;
    int heads;
    struct buf head; /* "Name=value\n" lines */
    struct buf body;
    int pieces;
    bool done;
    bool complete;
    bool was_sent;
    enum call_failure failure;
    char detail[400];
    bool (*body_hook)(struct answer *a, struct slice piece);
    void (*head_hook)(struct answer *a);
    void (*writable_hook)(struct answer *a);
    void (*done_hook)(struct answer *a);
    void *user;
};

static inline void answer_on_head(void *ctx, int status, const struct header *headers, size_t n)
{
    struct answer *a = ctx;
    assert_false(a->bench->inside);
    assert_false(a->done);
    a->heads++;
    a->status = status;
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(buf_printf(&a->head, "%.*s=%.*s\n", SLICE_FORMAT(headers[i].name),
                                    SLICE_FORMAT(headers[i].value)),
                         0);
    }
    if (a->head_hook != NULL) {
        a->head_hook(a);
    }
}

static inline bool answer_on_body(void *ctx, struct slice bytes)
{
    struct answer *a = ctx;
    assert_false(a->bench->inside);
    assert_int_equal(a->heads, 1);
    assert_false(a->done);
    a->pieces++;
    if (a->body_hook != NULL) {
        return a->body_hook(a, bytes);
    }
    assert_int_equal(buf_append_slice(&a->body, bytes), 0);
    return true;
}

static inline void answer_on_writable(void *ctx)
{
    struct answer *a = ctx;
    assert_false(a->bench->inside);
    assert_false(a->done);
    if (a->writable_hook != NULL) {
        a->writable_hook(a);
    }
}

static inline void answer_on_done(void *ctx, bool complete, enum call_failure failure, const char *detail)
{
    struct answer *a = ctx;
    assert_false(a->bench->inside);
    assert_false(a->done);
    a->done = true;
    a->complete = complete;
    a->failure = failure;
    a->was_sent = http_call_was_sent(a->call);
    snprintf(a->detail, sizeof a->detail, "%s", detail);
    if (a->done_hook != NULL) {
        a->done_hook(a);
    }
}

static const struct http_call_handler answer_handler = {answer_on_head, answer_on_body, answer_on_writable,
                                                        answer_on_done};

static inline void answer_init(struct answer *a, struct bench *b)
{
    *a = (struct answer){.bench = b};
    buf_init(&a->head, 1 << 20);
    buf_init(&a->body, 64 << 20);
}

static inline void answer_free(struct answer *a)
{
    buf_free(&a->head);
    buf_free(&a->body);
}

static inline int answer_begin(struct answer *a, const struct http_call_options *o)
{
    struct http_call_options with = *o;
    with.method = o->method.len > 0 ? o->method : SLICE_LITERAL("GET");
    with.target = o->target.len > 0 ? o->target : SLICE_LITERAL("/");
    with.head_bytes_max = o->head_bytes_max > 0 ? o->head_bytes_max : 65536;
    a->bench->inside = true;
    int rc = http_call_start(&a->call, a->bench->client, a->bench->origin, &with, &answer_handler, a, NULL);
    a->bench->inside = false;
    return rc;
}

static inline void turn(struct bench *b)
{
    uv_run(loop_uv(b->loop), UV_RUN_ONCE);
}

static inline void until_done(struct answer *a)
{
    while (!a->done) {
        turn(a->bench);
    }
}

/* Start, wait for the end. The caller frees. */
static inline void ask(struct answer *a, struct bench *b, const struct http_call_options *o)
{
    answer_init(a, b);
    assert_int_equal(answer_begin(a, o), 0);
    until_done(a);
}

static inline void assert_complete(const struct answer *a, int status, const char *body)
{
    if (!a->complete) {
        fail_msg("the call failed: %s", a->detail);
    }
    assert_int_equal(a->status, status);
    assert_int_equal(a->body.len, strlen(body));
    assert_memory_equal(buf_slice(&a->body).ptr, body, strlen(body));
}

static inline void assert_failed(const struct answer *a, enum call_failure failure)
{
    assert_true(a->done);
    assert_false(a->complete);
    if (a->failure != failure) {
        fail_msg("wrong failure %d: %s", (int)a->failure, a->detail);
    }
    assert_true(strlen(a->detail) > 0);
    assert_int_equal(a->was_sent, failure != CALL_NOT_SENT);
}

static inline void assert_text(const struct buf *b, const char *text)
{
    if (!slice_equal(buf_slice(b), slice_text(text))) {
        fail_msg("got [%.*s], not [%s]", (int)b->len, b->ptr != NULL ? b->ptr : "", text);
    }
}

/* What main() of a test program of the client does. */
#define client_tests_run(tests) client_tests_run_group(#tests, tests, sizeof(tests) / sizeof(*(tests)))
static inline int client_tests_run_group(const char *name, const struct CMUnitTest *tests, size_t n)
{
    hapax_error err;
    if (net_global_init(&err) != 0) {
        return 1;
    }
    int failed = _cmocka_run_group_tests(name, tests, n, NULL, NULL);
    return failed;
}

#endif
