/* The clients. Each takes a key (a new one, one that others take at the same moment, an old one), asks a few times
 * until it has a final answer, and gives up; now and then with another payload, or leaving early.
 *
 * clients.log, one line for each request that was sent or tried, when it has ended:
 *   START_NS END_NS CLIENT KEY VARIANT PHASE STATUS MARKER PROBLEM DIGEST
 * PHASE: run | end. STATUS 0: no whole answer, MARKER then says why. DIGEST is the body's. */
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
#include <sys/time.h>
#include <unistd.h>

enum {
    KEYS_MAX = 1 << 20,
    RECENT = 200,  /* half of the old keys are taken from so many last ones */
    HOT_ASKS = 40, /* a shared key is taken so often, then the next one begins */
    PATIENCE_US = 30000000,
    END_TRIES = 40,
};

struct client {
    int number;
    uint64_t state;
    int port;      /* of the open connection */
    struct wire w; /* fd -1: none */
};

static FILE *out;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char (*keys)[KEY_TEXT]; /* guarded by lock, as is all to the blank line */
static uint32_t key_count;
static uint32_t hot_asks;

static atomic_uint next_to_ask;

/* --- One request. --- */

static void hang_up(struct client *c)
{
    if (c->w.fd >= 0) {
        close(c->w.fd);
    }
    c->w.fd = -1;
    c->w.have = c->w.head = c->w.body = 0;
}

static bool reach(struct client *c, int port)
{
    if (c->w.fd >= 0 && c->port == port) {
        return true;
    }
    hang_up(c);
    struct sockaddr_in name = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int on = 1;
    c->port = port;
    c->w.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (c->w.fd < 0) {
        die("socket");
    }
    setsockopt(c->w.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (connect(c->w.fd, (struct sockaddr *)&name, sizeof name) != 0) {
        hang_up(c);
        return false;
    }
    return true;
}

/* "-", or why there is no whole answer. */
static const char *exchange(struct client *c, int port, const char *key, int variant, uint32_t patience_us)
{
    static const char *const ends[] = {
        [WIRE_MESSAGE] = "-", [WIRE_CLOSED] = "closed", [WIRE_LATE] = "late", [WIRE_BROKEN] = "broken"};
    char body[64];
    char text[512];
    int length = snprintf(body, sizeof body, "{\"key\":\"%s\",\"variant\":%d}", key, variant);
    int count = snprintf(text, sizeof text,
                         "POST /orders HTTP/1.1\r\nHost: gateway.test\r\nContent-Type: application/json\r\n"
                         "Idempotency-Key: %s\r\nContent-Length: %d\r\n\r\n%s",
                         key, length, body);
    if (!reach(c, port)) {
        return "refused";
    }
    struct timeval patience = {.tv_sec = patience_us / 1000000, .tv_usec = patience_us % 1000000};
    setsockopt(c->w.fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    return send_all(c->w.fd, text, (size_t)count) ? ends[wire_read(&c->w)] : "closed";
}

/* True: a final answer, or the certainty that there is none. */
static bool ask(struct client *c, int port, const char *key, int variant, const char *phase,
                uint32_t patience_us)
{
    char marker[16];
    char problem[40] = "-";
    int status = 0;
    uint64_t digest = 0;
    uint64_t start = now_ns();
    const char *end = exchange(c, port, key, variant, patience_us);
    snprintf(marker, sizeof marker, "%s", end);
    if (strcmp(end, "-") == 0) {
        status = (int)strtol(c->w.room + sizeof "HTTP/1.1", NULL, 10);
        wire_header(&c->w, "Idempotency-Status", marker, sizeof marker);
        const char *type = strstr(wire_body(&c->w), "urn:hapax:problem:");
        if (type != NULL) {
            sscanf(type, "urn:hapax:problem:%39[a-z-]", problem);
        }
        digest = hash(wire_body(&c->w), c->w.body);
    }
    char closing[16] = "";
    if (status == 0 ||
        (wire_header(&c->w, "Connection", closing, sizeof closing) && strcmp(closing, "close") == 0)) {
        hang_up(c);
    }
    pthread_mutex_lock(&lock);
    fprintf(out, "%" PRIu64 " %" PRIu64 " %d %s %d %s %d %s %s %016" PRIx64 "\n", start, now_ns(), c->number,
            key, variant, phase, status, marker, problem, digest);
    pthread_mutex_unlock(&lock);
    return (strcmp(problem, "-") == 0 && (status == 201 || status == 500)) ||
           strcmp(problem, "outcome-unknown") == 0;
}

/* --- What clients do while gateways come and go. --- */

static bool add_key(const char *key)
{
    bool room = key_count < KEYS_MAX;
    if (room) {
        snprintf(keys[key_count++], KEY_TEXT, "%s", key);
    }
    return room;
}

static void take_key(struct client *c, uint32_t turn, char key[KEY_TEXT])
{
    uint32_t roll = draw(&c->state, 100);
    pthread_mutex_lock(&lock);
    if (roll < 30) {
        snprintf(key, KEY_TEXT, "c%d-%" PRIu32, c->number, turn);
    } else if (roll < 60 || key_count == 0) {
        snprintf(key, KEY_TEXT, "hot-%" PRIu32, hot_asks / HOT_ASKS);
    }
    bool old = roll >= 60 && key_count > 0;
    if (!old && (roll < 30 || hot_asks++ % HOT_ASKS == 0)) {
        old = !add_key(key); /* too many: from now on only old ones */
    }
    if (old) {
        uint32_t among = roll % 2 == 0 && key_count > RECENT ? RECENT : key_count;
        snprintf(key, KEY_TEXT, "%s", keys[key_count - 1 - draw(&c->state, among)]);
    }
    pthread_mutex_unlock(&lock);
}

static void *client(void *arg)
{
    struct client *c = arg;
    char key[KEY_TEXT];
    for (uint32_t turn = 0; gateway_port() != 0; turn++) {
        take_key(c, turn, key);
        int variant = draw(&c->state, 16) == 0;
        uint32_t tries = 1 + draw(&c->state, 4);
        bool final = false;
        int port;
        while (!final && tries-- > 0 && (port = gateway_port()) != 0) {
            uint32_t patience = draw(&c->state, 20) == 0 ? 1000 + draw(&c->state, 15000) : PATIENCE_US;
            final = ask(c, port, key, variant, "run", patience);
            pause_us(draw(&c->state, final ? 4000 : 16000));
        }
    }
    hang_up(c);
    return NULL;
}

/* --- The end: every key has to say what became of it. --- */

static void *ask_rest(void *arg)
{
    struct client *c = arg;
    uint32_t at;
    while ((at = atomic_fetch_add(&next_to_ask, 1)) < key_count) {
        bool final = false;
        for (int i = 0; i < END_TRIES && !final; i++) { /* the other payload may be the key's */
            final = ask(c, last_port(), keys[at], i % 2, "end", PATIENCE_US);
        }
    }
    hang_up(c);
    return NULL;
}

static void run_threads(int count, uint64_t seed, void *(*work)(void *arg))
{
    struct client *clients = calloc((size_t)count, sizeof *clients);
    pthread_t *threads = calloc((size_t)count, sizeof *threads);
    if (clients == NULL || threads == NULL) {
        die("calloc");
    }
    for (int i = 0; i < count; i++) {
        clients[i].number = i;
        clients[i].state = seed + ((uint64_t)i << 32);
        clients[i].w.fd = -1;
        if (pthread_create(&threads[i], NULL, work, &clients[i]) != 0) {
            die("pthread_create");
        }
    }
    for (int i = 0; i < count; i++) {
        pthread_join(threads[i], NULL);
    }
    free(threads);
    free(clients);
}

void clients_run(int count, uint64_t seed, FILE *log)
{
    out = log;
    keys = calloc(KEYS_MAX, KEY_TEXT);
    if (keys == NULL) {
        die("calloc");
    }
    run_threads(count, seed, client);
}

uint32_t clients_ask_all(int count, FILE *log)
{
    out = log;
    run_threads(count, 0, ask_rest);
    return key_count;
}
