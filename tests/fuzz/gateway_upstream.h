/* The upstream of the gateway target: a server on loopback that never blocks, driven by the target's own loop.
 *
 * Each request says with X-Act what becomes of it (enum act). The upstream is the judge of "at most one execution": it
 * keeps a book of identities, and a protected request for one that runs or has an outcome other than released ends
 * the process. Requests are read by the project's own strict readers: what the gateway sends must pass them. */
#ifndef FUZZ_GATEWAY_UPSTREAM_H
#define FUZZ_GATEWAY_UPSTREAM_H

#include "fuzz.h"

#include "base/arena.h"
#include "base/buf.h"
#include "base/limits.h"
#include "core/key.h"
#include "net/http_head.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    LINKS_MAX = 64,
    BOOK_ENTRIES = 512, /* far more than one input can make; older ones are overwritten */
    IDENTITY_TEXT_MAX = 512,
    REQUEST_BYTES_MAX = 1 << 20,
};

enum act {
    ACT_OK,
    ACT_CHUNKED,
    ACT_HOLD,        /* answered only when all clients have sent what they had */
    ACT_FAIL,        /* 500: done */
    ACT_UNAVAILABLE, /* 503: released */
    ACT_LIMITED,     /* 429: released */
    ACT_SAYS_RELEASED,
    ACT_CLOSE,   /* no answer: unknown */
    ACT_GARBAGE, /* unknown */
    ACT_PARTLY,  /* a body that breaks off: unknown */
    ACT_EMPTY,
    ACT_LARGE, /* more than is kept */
    ACT_LAST,  /* and the connection closes, announced */
    ACT_DROP,  /* and the connection closes, unannounced */
    ACT_INTERIM,
    ACT_COUNT,
};

struct execution {
    char identity[IDENTITY_TEXT_MAX];
    uint64_t number;
    bool running;
    bool final;  /* its outcome is another than released */
    int content; /* what was asked for, once an answer showed it; 0: not known */
};

struct link {
    int fd; /* -1: free */
    struct buf in;
    struct execution *held; /* ACT_HOLD: waits for upstream_release() */
    bool holds;
};

static struct {
    int listener;
    uint16_t port;
    struct link links[LINKS_MAX];
    struct execution book[BOOK_ENTRIES];
    uint64_t executions;
} upstream;

static inline void make_nonblocking(int fd)
{
    FUZZ_CHECK(fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
}

static inline int listen_on_loopback(uint16_t *port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    FUZZ_CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&address, len) == 0 && listen(fd, 128) == 0);
    FUZZ_CHECK(getsockname(fd, (struct sockaddr *)&address, &len) == 0);
    *port = ntohs(address.sin_port);
    make_nonblocking(fd);
    return fd;
}

static inline void upstream_open(void)
{
    upstream.listener = listen_on_loopback(&upstream.port);
    for (size_t i = 0; i < LINKS_MAX; i++) {
        upstream.links[i].fd = -1;
        buf_init(&upstream.links[i].in, REQUEST_BYTES_MAX);
    }
}

static inline void link_close(struct link *l)
{
    close(l->fd);
    buf_free(&l->in);
    l->fd = -1;
    l->held = NULL;
    l->holds = false;
}

static inline void upstream_close(void)
{
    for (size_t i = 0; i < LINKS_MAX; i++) {
        if (upstream.links[i].fd >= 0) {
            link_close(&upstream.links[i]);
        }
    }
    close(upstream.listener);
}

static inline struct slice value_of(const struct request *r, const char *name)
{
    struct slice value = SLICE_NONE;
    request_header(&value, r, slice_text(name));
    return value;
}

/* "METHOD PATH CREDENTIALS KEY": what the gateway's scope and key are made of. */
static inline void write_identity(char out[IDENTITY_TEXT_MAX], struct slice method, struct slice path,
                                  struct slice credentials, struct slice key)
{
    int n = snprintf(out, IDENTITY_TEXT_MAX, "%.*s %.*s %.*s %.*s", SLICE_FORMAT(method), SLICE_FORMAT(path),
                     SLICE_FORMAT(credentials), SLICE_FORMAT(key));
    FUZZ_CHECK(n > 0 && n < IDENTITY_TEXT_MAX);
}

/* Enter a protected request into the book; NULL for one that is not. */
static inline struct execution *enter(const struct request *r)
{
    struct slice attempt = value_of(r, "Idempotency-Attempt");
    if (slice_is_none(attempt)) {
        return NULL;
    }
    FUZZ_CHECK(slice_equal(attempt, SLICE_LITERAL("1"))); /* on_unknown is hold: nothing is ever taken over */
    struct arena arena;
    struct slice key;
    char identity[IDENTITY_TEXT_MAX];
    arena_init(&arena, 4096);
    FUZZ_CHECK(key_from_header(&key, value_of(r, "Idempotency-Key"), KEY_LENIENT, &arena, NULL) == 0);
    write_identity(identity, r->method, r->path, value_of(r, "Authorization"), key);
    arena_free(&arena);

    uint64_t first = upstream.executions > BOOK_ENTRIES ? upstream.executions - BOOK_ENTRIES : 0;
    for (uint64_t n = first; n < upstream.executions; n++) {
        const struct execution *e = &upstream.book[n % BOOK_ENTRIES];
        FUZZ_CHECK(strcmp(e->identity, identity) != 0 || (!e->running && !e->final));
    }
    struct execution *e = &upstream.book[upstream.executions % BOOK_ENTRIES];
    *e = (struct execution){.number = upstream.executions++, .running = true};
    memcpy(e->identity, identity, sizeof identity);
    return e;
}

static inline void send_text(struct link *l, const char *text, size_t len)
{
    ssize_t n = send(l->fd, text, len, MSG_NOSIGNAL);
    FUZZ_CHECK(n == (ssize_t)len || (n < 0 && errno != EAGAIN)); /* a gateway that stops may have gone */
}

/* The whole answer. `body` names the execution, so that whoever gets it can be told which one it was. */
static inline void answer(struct link *l, enum act act, struct execution *e)
{
    static const struct {
        const char *head;
        bool released, close;
    } answers[ACT_COUNT] = {
        [ACT_OK] = {"HTTP/1.1 200 OK\r\nX-One: 1\r\n", false, false},
        [ACT_CHUNKED] = {"HTTP/1.1 201 Created\r\nLocation: /1\r\n", false, false},
        [ACT_HOLD] = {"HTTP/1.1 200 OK\r\n", false, false},
        [ACT_FAIL] = {"HTTP/1.1 500 Oops\r\n", false, false},
        [ACT_UNAVAILABLE] = {"HTTP/1.1 503 Later\r\nRetry-After: 1\r\n", true, false},
        [ACT_LIMITED] = {"HTTP/1.1 429 Slow\r\n", true, false},
        [ACT_SAYS_RELEASED] = {"HTTP/1.1 200 OK\r\nHapax-Outcome: released\r\n", true, false},
        [ACT_CLOSE] = {"", false, true},
        [ACT_GARBAGE] = {"HTTP/1.1 2x0 OK\r\n\r\n", false, true},
        [ACT_PARTLY] = {"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf", false, true},
        [ACT_EMPTY] = {"HTTP/1.1 204 No Content\r\n\r\n", false, false},
        [ACT_LARGE] = {"HTTP/1.1 200 OK\r\n", false, false},
        [ACT_LAST] = {"HTTP/1.1 200 OK\r\nConnection: close\r\n", false, true},
        [ACT_DROP] = {"HTTP/1.1 200 OK\r\n", false, true},
        [ACT_INTERIM] = {"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nA: b\r\n\r\nHTTP/1.1 200 OK\r\n",
                         false, false},
    };
    char text[8192];
    char body[4096];
    int pad = act == ACT_LARGE ? 3000 : 0;
    int body_len =
        e != NULL ? snprintf(body, sizeof body, "execution %llu.%*s", (unsigned long long)e->number, pad, "")
                  : snprintf(body, sizeof body, "no protection%*s", pad, "");
    int len = snprintf(text, sizeof text, "%s", answers[act].head);
    if (act == ACT_CHUNKED) {
        len += snprintf(text + len, sizeof text - (size_t)len,
                        "Transfer-Encoding: chunked\r\n\r\n%x;a=b\r\n%s\r\n0\r\nT: x\r\n\r\n",
                        (unsigned)body_len, body);
    } else if (!answers[act].close || act >= ACT_LAST) {
        len += act == ACT_EMPTY ? 0
                                : snprintf(text + len, sizeof text - (size_t)len,
                                           "Content-Length: %d\r\n\r\n%s", body_len, body);
    }
    if (e != NULL) { /* before the answer can bring the next request about */
        e->running = false;
        e->final = !answers[act].released;
    }
    send_text(l, text, (size_t)len);
    if (answers[act].close) {
        link_close(l);
    }
}

/* Take one whole request off l->in; false: there is none yet. */
static inline bool take_request(struct link *l)
{
    struct http_head_scan scan = {0};
    struct http_head head;
    struct header headers[LIMIT_HEADERS_MAX];
    enum http_defect defect;
    const char *detail = NULL;
    enum http_scan found = http_head_scan(&scan, buf_slice(&l->in), REQUEST_BYTES_MAX);
    if (found == HTTP_SCAN_MORE) {
        return false;
    }
    FUZZ_CHECK(found == HTTP_SCAN_DONE);
    struct slice text = slice_of(l->in.ptr, scan.at);
    FUZZ_CHECK(http_head_parse(&head, text, headers, LIMIT_HEADERS_MAX, &defect, &detail));

    struct http_body body;
    size_t at = scan.at;
    http_body_init(&body, head.length);
    while (!http_body_ended(&body) && at < l->in.len) {
        size_t used = 0;
        struct slice piece;
        FUZZ_CHECK(http_body_decode(&body, slice_from(buf_slice(&l->in), at), &used, &piece) !=
                   HTTP_BODY_BAD);
        at += used;
    }
    if (!http_body_ended(&body)) {
        return false;
    }
    struct slice act = value_of(&head.request, "X-Act");
    enum act what = act.len == 1 ? (enum act)((unsigned)(act.ptr[0] - 'a') % ACT_COUNT) : ACT_OK;
    struct execution *e = enter(&head.request);
    bool is_head = head.is_head;
    buf_consume(&l->in, at);
    if (is_head) { /* no body may follow */
        send_text(l, "HTTP/1.1 204 No Content\r\n\r\n", 27);
        if (e != NULL) {
            e->running = false;
            e->final = true;
        }
    } else if (what == ACT_HOLD) {
        l->held = e;
        l->holds = true;
    } else {
        answer(l, what, e);
    }
    return l->fd >= 0;
}

static inline void link_read(struct link *l)
{
    char bytes[16384];
    ssize_t n = recv(l->fd, bytes, sizeof bytes, 0);
    if (n < 0 && errno == EAGAIN) {
        return;
    }
    if (n <= 0) {
        if (l->held != NULL) { /* the gateway has gone; nobody else may run it */
            l->held->running = false;
            l->held->final = true;
        }
        link_close(l);
        return;
    }
    FUZZ_CHECK(buf_append(&l->in, bytes, (size_t)n) == 0);
    while (!l->holds && take_request(l)) {
    }
}

static inline void upstream_accept(void)
{
    int fd = accept4(upstream.listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    for (size_t i = 0; fd >= 0 && i < LINKS_MAX; i++) {
        if (upstream.links[i].fd < 0) {
            upstream.links[i].fd = fd;
            return;
        }
    }
    FUZZ_CHECK(fd < 0);
}

/* Answer what is held. */
static inline void upstream_release(void)
{
    for (size_t i = 0; i < LINKS_MAX; i++) {
        struct link *l = &upstream.links[i];
        if (l->fd >= 0 && l->holds) {
            struct execution *e = l->held;
            l->held = NULL;
            l->holds = false;
            answer(l, ACT_HOLD, e);
        }
    }
}

#endif
