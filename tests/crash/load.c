/* hapax_crash_load SEED CLIENTS FOLDER: says "upstream PORT", then obeys lines on its stdin:
 *
 *   port N   the gateway listens there; 0: it is down; several: clients spray over them
 *   stop     clients finish, and every key is asked again; says "keys N" and ends */
#include "load.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int ports[GATEWAYS_MAX]; /* guarded by lock, as are the next two */
static int port_count;
static unsigned turn;
static bool stopping; /* guarded by lock */

uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

void pause_us(uint32_t us)
{
    struct timespec t = {.tv_sec = us / 1000000, .tv_nsec = (long)(us % 1000000) * 1000};
    nanosleep(&t, NULL);
}

uint32_t draw(uint64_t *state, uint32_t n)
{
    *state += 0x9e3779b97f4a7c15U;
    uint64_t z = *state;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return (uint32_t)((z ^ (z >> 31)) % n);
}

uint64_t hash(const void *bytes, size_t count)
{
    const unsigned char *at = bytes;
    uint64_t h = 0xcbf29ce484222325U;
    for (size_t i = 0; i < count; i++) {
        h = (h ^ at[i]) * 0x100000001b3U;
    }
    return h;
}

void die(const char *what)
{
    fprintf(stderr, "hapax_crash_load: %s: %s\n", what, strerror(errno));
    exit(1);
}

int gateway_port(void)
{
    pthread_mutex_lock(&lock);
    while (port_count == 0 && !stopping) {
        pthread_cond_wait(&changed, &lock);
    }
    int now = stopping ? 0 : ports[turn++ % (unsigned)port_count];
    pthread_mutex_unlock(&lock);
    return now;
}

int last_port(void)
{
    pthread_mutex_lock(&lock);
    int now = ports[turn++ % (unsigned)port_count];
    pthread_mutex_unlock(&lock);
    return now;
}

/* Numbers, as in the order "port". */
static void tell_ports(const char *text)
{
    pthread_mutex_lock(&lock);
    port_count = 0;
    char *end = NULL;
    for (long n; port_count < GATEWAYS_MAX && (n = strtol(text, &end, 10)) > 0; text = end) {
        ports[port_count++] = (int)n;
    }
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static void tell_stop(void)
{
    pthread_mutex_lock(&lock);
    stopping = true;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

bool send_all(int fd, const char *bytes, size_t count)
{
    while (count > 0) {
        ssize_t n = send(fd, bytes, count, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return false;
        }
        bytes += n;
        count -= (size_t)n;
    }
    return true;
}

static enum wire_end more(struct wire *w)
{
    if (w->have == WIRE_BYTES) {
        return WIRE_BROKEN;
    }
    ssize_t n;
    do { /* with a time-out set, a machine that is paused and goes on interrupts it */
        n = recv(w->fd, w->room + w->have, WIRE_BYTES - w->have, 0);
    } while (n < 0 && errno == EINTR);
    if (n <= 0) {
        return n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK) ? WIRE_LATE : WIRE_CLOSED;
    }
    w->have += (size_t)n;
    w->room[w->have] = '\0';
    return WIRE_MESSAGE;
}

enum wire_end wire_read(struct wire *w)
{
    size_t over = w->head + w->body;
    memmove(w->room, w->room + over, w->have - over);
    w->have -= over;
    w->room[w->have] = '\0';
    w->head = w->body = 0;
    char *end;
    while ((end = strstr(w->room, "\r\n\r\n")) == NULL) {
        enum wire_end state = more(w);
        if (state != WIRE_MESSAGE) {
            return state;
        }
    }
    size_t head = (size_t)(end - w->room) + 4;
    char length[16];
    w->head = head;
    size_t body = wire_header(w, "Content-Length", length, sizeof length) ? strtoul(length, NULL, 10) : 0;
    bool bad = wire_header(w, "Transfer-Encoding", length, sizeof length) || body > WIRE_BYTES - head;
    enum wire_end state = bad ? WIRE_BROKEN : WIRE_MESSAGE;
    while (state == WIRE_MESSAGE && w->have < head + body) {
        state = more(w);
    }
    w->head = state == WIRE_MESSAGE ? head : 0;
    w->body = state == WIRE_MESSAGE ? body : 0;
    return state;
}

bool wire_header(const struct wire *w, const char *name, char *out, size_t room)
{
    size_t length = strlen(name);
    const char *line = strstr(w->room, "\r\n");
    while (line != NULL && (size_t)(line - w->room) + 4 < w->head) {
        line += 2;
        const char *end = strstr(line, "\r\n");
        if (strncasecmp(line, name, length) == 0 && line[length] == ':') {
            const char *value = line + length + 1 + (line[length + 1] == ' ' ? 1 : 0);
            size_t count = (size_t)(end - value) < room - 1 ? (size_t)(end - value) : room - 1;
            memcpy(out, value, count);
            out[count] = '\0';
            return true;
        }
        line = end;
    }
    return false;
}

/* --- Control. --- */

struct run {
    int clients;
    uint64_t seed;
    FILE *log;
};

static void *run_clients(void *arg)
{
    struct run *r = arg;
    clients_run(r->clients, r->seed, r->log);
    return NULL;
}

static FILE *open_log(const char *folder, const char *name)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    if (f == NULL) {
        die(path);
    }
    return f;
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: hapax_crash_load SEED CLIENTS FOLDER\n");
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    struct run r = {.seed = strtoull(argv[1], NULL, 10), .clients = (int)strtol(argv[2], NULL, 10)};
    r.log = open_log(argv[3], "clients.log");
    FILE *upstream_log = open_log(argv[3], "upstream.log");
    printf("upstream %d\n", upstream_start(r.seed, upstream_log));
    fflush(stdout);
    pthread_t clients;
    if (pthread_create(&clients, NULL, run_clients, &r) != 0) {
        die("pthread_create");
    }
    char line[64];
    while (fgets(line, sizeof line, stdin) != NULL && strcmp(line, "stop\n") != 0) {
        if (strncmp(line, "port ", 5) != 0) {
            die(line);
        }
        tell_ports(line + 5);
    }
    if (feof(stdin)) {
        return 1; /* whoever gave the orders has gone */
    }
    tell_stop();
    pthread_join(clients, NULL);
    uint32_t keys = clients_ask_all(r.clients, r.log);
    fflush(NULL);
    printf("keys %" PRIu32 "\n", keys);
    fflush(stdout);
    _exit(0); /* the upstream's threads still sit in their calls */
}
