/* The upstream: each request that arrives is an effect, but for those it refuses with 503. What it does with one
 * follows from the seed, the key and the number of the arrival.
 *
 * upstream.log, one line an event:
 *   A NS NUMBER KEY VARIANT ATTEMPT PLAN   a request arrived; the effect, if any, has happened
 *   B NS NUMBER STATUS DIGEST              it is about to be answered; STATUS 0: closed without a whole answer */
#include "load.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    CONNECTIONS_MAX = 512,
    SLOW_US_MAX = 60000,
    PADDING_MAX = 40000,
};

enum plan { PLAN_ANSWER, PLAN_ERROR, PLAN_BUSY, PLAN_CLOSE, PLAN_CUT };

static const char *const plan_names[] = {"answer", "error", "busy", "close", "cut"};
static const int plan_status[] = {201, 500, 503, 0, 0};

static uint64_t seed;
static FILE *out;
static int listener;
static atomic_int connections;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint32_t arrivals; /* guarded by lock, as is the order of the log */

struct arrival {
    uint32_t number;
    enum plan plan;
    uint32_t slow_us;
    uint32_t padding;
    char key[KEY_TEXT];
    char variant[4];
    char attempt[12];
};

static void make_plan(struct arrival *a)
{
    uint64_t state = seed ^ hash(a->key, strlen(a->key)) ^ (strtoull(a->attempt, NULL, 10) << 32) ^ a->number;
    uint32_t roll = draw(&state, 100);
    a->plan = roll < 76   ? PLAN_ANSWER
              : roll < 81 ? PLAN_ERROR
              : roll < 91 ? PLAN_BUSY
              : roll < 96 ? PLAN_CLOSE
                          : PLAN_CUT;
    a->slow_us = draw(&state, 4) == 0 ? draw(&state, SLOW_US_MAX) : 0;
    a->padding = draw(&state, 4) == 0 ? draw(&state, PADDING_MAX) : 0;
}

static void read_arrival(struct arrival *a, const struct wire *w)
{
    if (!wire_header(w, "Idempotency-Key", a->key, sizeof a->key)) {
        snprintf(a->key, sizeof a->key, "?");
    }
    if (!wire_header(w, "Idempotency-Attempt", a->attempt, sizeof a->attempt)) {
        snprintf(a->attempt, sizeof a->attempt, "?");
    }
    const char *variant = strstr(wire_body(w), "\"variant\":");
    snprintf(a->variant, sizeof a->variant, "%c", variant != NULL ? variant[10] : '?');
    pthread_mutex_lock(&lock);
    a->number = ++arrivals;
    make_plan(a);
    fprintf(out, "A %" PRIu64 " %" PRIu32 " %s %s %s %s\n", now_ns(), a->number, a->key, a->variant,
            a->attempt, plan_names[a->plan]);
    pthread_mutex_unlock(&lock);
}

/* The answer's bytes, in `room`. Returns their number. */
static size_t make_answer(const struct arrival *a, char *room, size_t size, uint64_t *digest)
{
    char body[256];
    int length = snprintf(body, sizeof body, "{\"key\":\"%s\",\"variant\":%s,\"effect\":%" PRIu32 "}", a->key,
                          a->variant, a->number);
    int head =
        snprintf(room, size,
                 "HTTP/1.1 %d Whatever\r\nContent-Type: application/json\r\n"
                 "Content-Length: %" PRIu32 "\r\n\r\n%s",
                 plan_status[a->plan] != 0 ? plan_status[a->plan] : 201, (uint32_t)length + a->padding, body);
    memset(room + head, ' ', a->padding);
    *digest = hash(room + head - length, (size_t)length + a->padding);
    return (size_t)head + a->padding;
}

/* False: the connection is to be closed. */
static bool serve_one(struct wire *w)
{
    struct arrival a;
    char room[PADDING_MAX + 1024];
    uint64_t digest;
    if (wire_read(w) != WIRE_MESSAGE) {
        return false;
    }
    read_arrival(&a, w);
    if (a.slow_us > 0) {
        pause_us(a.slow_us);
    }
    size_t count = make_answer(&a, room, sizeof room, &digest);
    pthread_mutex_lock(&lock);
    fprintf(out, "B %" PRIu64 " %" PRIu32 " %d %016" PRIx64 "\n", now_ns(), a.number, plan_status[a.plan],
            digest);
    pthread_mutex_unlock(&lock);
    if (a.plan == PLAN_CLOSE) {
        return false;
    }
    return send_all(w->fd, room, a.plan == PLAN_CUT ? count - 1 - count / 3 : count) && a.plan != PLAN_CUT;
}

static void *serve(void *arg)
{
    struct wire *w = arg;
    while (serve_one(w)) {
    }
    close(w->fd);
    free(w);
    atomic_fetch_sub(&connections, 1);
    return NULL;
}

static void *accept_all(void *arg)
{
    (void)arg;
    for (;;) {
        int fd = accept(listener, NULL, NULL);
        pthread_t thread;
        struct wire *w = fd < 0 ? NULL : calloc(1, sizeof *w);
        if (w == NULL || atomic_fetch_add(&connections, 1) >= CONNECTIONS_MAX) {
            die("the upstream has too many connections");
        }
        int on = 1;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        w->fd = fd;
        if (pthread_create(&thread, NULL, serve, w) != 0) {
            die("pthread_create");
        }
        pthread_detach(thread);
    }
    return NULL;
}

int upstream_start(uint64_t run_seed, FILE *log)
{
    seed = run_seed;
    out = log;
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof name;
    listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    pthread_t thread;
    if (listener < 0 || bind(listener, (struct sockaddr *)&name, size) != 0 || listen(listener, 512) != 0 ||
        getsockname(listener, (struct sockaddr *)&name, &size) != 0 ||
        pthread_create(&thread, NULL, accept_all, NULL) != 0) {
        die("the upstream can't listen");
    }
    pthread_detach(thread);
    return ntohs(name.sin_port);
}
