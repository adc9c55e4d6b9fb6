/* What hapax bench does, on Redis: redis_pairs PORT THREADS SECONDS BODY_BYTES
 *
 * Each thread has a blocking connection and does pairs in a row: SET key NX EX (the claim), then SET key EX with
 * the answer, one command at a time, as a caller must who does the work in between. Prints one JSON line. */
#include "base/clock.h"
#include "cli/histogram.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define THREADS_MAX 1024
#define BODY_MAX    65536
#define COMMAND_MAX (BODY_MAX + 256)
#define STORED      "+OK\r\n"

static atomic_bool stop;
static size_t body_bytes;
static in_port_t port;
static unsigned run; /* tells this run's keys from those of others on the same Redis */

struct worker {
    pthread_t thread;
    unsigned number;
    int fd;
    char *command;
    struct histogram pair;
};

static void fail(const char *what)
{
    fprintf(stderr, "redis_pairs: %s\n", what);
    exit(1);
}

static int connect_redis(void)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int on = 1;
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) != 0 ||
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0) {
        fail("can't connect");
    }
    return fd;
}

/* Send a command and wait for its +OK, which nothing else can follow. */
static void ask(struct worker *w, size_t bytes)
{
    char answer[sizeof STORED - 1];
    size_t got = 0;
    for (size_t sent = 0; sent < bytes;) {
        ssize_t n = send(w->fd, w->command + sent, bytes - sent, MSG_NOSIGNAL);
        if (n <= 0) {
            fail("the connection broke");
        }
        sent += (size_t)n;
    }
    while (got < sizeof answer) {
        ssize_t n = recv(w->fd, answer + got, sizeof answer - got, 0);
        if (n <= 0) {
            fail("the connection broke");
        }
        got += (size_t)n;
    }
    if (memcmp(answer, STORED, sizeof answer) != 0) {
        fail("a command was refused");
    }
}

static void make_pair(struct worker *w, unsigned long long number)
{
    char key[64];
    int key_bytes = snprintf(key, sizeof key, "idem:%08x-%08x-%012llu", run, w->number, number);
    int n =
        snprintf(w->command, COMMAND_MAX,
                 "*6\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$33\r\nP%032d\r\n$2\r\nNX\r\n$2\r\nEX\r\n$5\r\n86400\r\n",
                 key_bytes, key, 0);
    ask(w, (size_t)n);
    n = snprintf(w->command, COMMAND_MAX, "*5\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$%zu\r\n", key_bytes, key,
                 body_bytes);
    memset(w->command + n, 'b', body_bytes);
    n += (int)body_bytes;
    n += snprintf(w->command + n, COMMAND_MAX - (size_t)n, "\r\n$2\r\nEX\r\n$5\r\n86400\r\n");
    ask(w, (size_t)n);
}

static void *work(void *arg)
{
    struct worker *w = arg;
    for (unsigned long long number = 0; !atomic_load(&stop); number++) {
        int64_t start = clock_mono_us();
        make_pair(w, number);
        histogram_add(&w->pair, clock_mono_us() - start);
    }
    return NULL;
}

static void prepare(struct worker *w, unsigned number)
{
    w->number = number;
    w->fd = connect_redis();
    w->command = malloc(COMMAND_MAX);
    if (w->command == NULL) {
        fail("not enough memory");
    }
}

static void measure(struct worker *workers, unsigned threads, unsigned seconds)
{
    static struct histogram all;
    for (unsigned i = 0; i < threads; i++) {
        prepare(&workers[i], i);
    }
    int64_t start = clock_mono_us();
    for (unsigned i = 0; i < threads; i++) {
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0) {
            fail("can't start a thread");
        }
    }
    sleep(seconds);
    atomic_store(&stop, true);
    for (unsigned i = 0; i < threads; i++) {
        pthread_join(workers[i].thread, NULL);
        histogram_merge(&all, &workers[i].pair);
        close(workers[i].fd);
        free(workers[i].command);
    }
    double elapsed_s = (double)(clock_mono_us() - start) / 1e6;
    printf("{\"pairs_per_s\": %.1f, \"p50_ms\": %.3f, \"p99_ms\": %.3f}\n", (double)all.total / elapsed_s,
           (double)histogram_percentile(&all, 50) / 1000, (double)histogram_percentile(&all, 99) / 1000);
}

int main(int argc, char **argv)
{
    unsigned long threads = argc == 5 ? strtoul(argv[2], NULL, 10) : 0;
    unsigned long seconds = argc == 5 ? strtoul(argv[3], NULL, 10) : 0;
    body_bytes = argc == 5 ? strtoul(argv[4], NULL, 10) : BODY_MAX + 1;
    if (threads < 1 || threads > THREADS_MAX || seconds < 1 || seconds > 3600 || body_bytes > BODY_MAX) {
        fail("usage: redis_pairs PORT THREADS SECONDS BODY_BYTES");
    }
    run = (unsigned)clock_wall_ms();
    port = (in_port_t)strtoul(argv[1], NULL, 10);
    struct worker *workers = calloc(threads, sizeof *workers);
    if (workers == NULL) {
        fail("not enough memory");
    }
    measure(workers, (unsigned)threads, (unsigned)seconds);
    free(workers);
    return 0;
}
