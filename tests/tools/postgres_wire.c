/* See postgres_wire.h. One thread polls all connections; of each direction it reads what there is, finds the messages in
 * it and passes them on, or not. Sends block: the peers of a test take what they asked for. */
#include "postgres_wire.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { LINKS_MAX = 128, PIECE = 65536, LATE_MAX = 1 << 20, HEAD_MAX = 5, TICK_MS = 5 };

/* Of one message: its head is gathered first, then the rest passes in pieces. */
struct direction {
    int from;
    int to;
    bool to_server;
    unsigned char head[HEAD_MAX];
    size_t head_have;
    size_t head_size; /* 4: the first message of a client has no type */
    size_t left;      /* of the message's rest */
    size_t pass;      /* of that, this much is passed on before the cut; SIZE_MAX: all, and no cut */
    bool drop;        /* the message does not pass */
};

struct link {
    bool open;
    struct direction up;   /* to the server */
    struct direction down; /* to the client */
    bool deaf;             /* WIRE_SWALLOW */
    bool skipping;         /* WIRE_AMBIGUOUS: what the server says up to its ReadyForQuery */
    bool keeping;          /* WIRE_LATE */
};

static int listener = -1;
static int server_port;
static struct link links[LINKS_MAX];
static unsigned char late[LATE_MAX];
static size_t late_size;
static int late_server = -1; /* whose client was told nothing; -1: none */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards what stands below */
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static enum wire_fault kind;
static char sqlstate[6] = "XX000";
static bool armed;
static bool fired;
static bool for_good;
static long at;
static long seen;
static bool delivery_wanted;
static enum wire_late delivered;

static void send_all(int fd, const void *bytes, size_t size)
{
    const unsigned char *next = bytes;
    while (size > 0 && fd >= 0) {
        ssize_t n = send(fd, next, size, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return; /* its end is seen when it is read from */
        }
        next += n;
        size -= (size_t)n;
    }
}

static void cut(struct link *l)
{
    int client = l->up.from;
    int server = l->up.to;
    if (client >= 0) {
        close(client);
    }
    if (server >= 0) {
        close(server);
    }
    *l = (struct link){.open = false};
}

/* --- messages of our own --- */

static size_t put_message(unsigned char *out, char type, const void *body, size_t size)
{
    uint32_t length = htonl((uint32_t)size + 4);
    out[0] = (unsigned char)type;
    memcpy(out + 1, &length, sizeof length);
    memcpy(out + 5, body, size);
    return size + 5;
}

/* In place of an Execute or a Query: a statement that fails. Its replies but for the error mean nothing to libpq. */
static void send_failure(int server, char type)
{
    char sql[200];
    char body[260];
    unsigned char out[400];
    if (strcmp(sqlstate, "57P01") == 0) {
        snprintf(sql, sizeof sql, "SELECT pg_catalog.pg_terminate_backend(pg_catalog.pg_backend_pid())");
    } else {
        snprintf(sql, sizeof sql, "DO $$BEGIN RAISE 'injected' USING ERRCODE = '%s'; END$$", sqlstate);
    }
    size_t length = strlen(sql) + 1;
    if (type == 'Q') {
        send_all(server, out, put_message(out, 'Q', sql, length));
        return;
    }
    memset(body, 0, sizeof body); /* no name, the text, no parameter types */
    memcpy(body + 1, sql, length);
    size_t size = put_message(out, 'P', body, 1 + length + 2);
    memset(body, 0, sizeof body); /* portal, statement, formats, parameters, result formats: none */
    size += put_message(out + size, 'B', body, 8);
    size += put_message(out + size, 'E', body, 5);
    send_all(server, out, size);
}

static void send_error(int client)
{
    char fields[100] = "SERROR";
    unsigned char out[160];
    size_t size = strlen(fields) + 1;
    size += (size_t)snprintf(fields + size, sizeof fields - size, "C%s", sqlstate) + 1;
    size += (size_t)snprintf(fields + size, sizeof fields - size, "Minjected") + 1;
    send_all(client, out, put_message(out, 'E', fields, size + 1));
}

/* --- faults --- */

static char type_of(const struct direction *d)
{
    return d->head_size == HEAD_MAX ? (char)d->head[0] : '\0';
}

static bool can_happen_to(const struct direction *d)
{
    char type = type_of(d);
    switch (kind) {
    case WIRE_LATE:
        return d->to_server && type != '\0' && type != 'X';
    case WIRE_ERROR:
        return d->to_server && (type == 'E' || type == 'Q');
    case WIRE_AMBIGUOUS:
        return !d->to_server && type == 'C';
    default:
        return true;
    }
}

/* Is this message the one? */
static bool strikes(const struct direction *d)
{
    pthread_mutex_lock(&lock);
    bool now = false;
    if (armed) {
        seen++;
        now = seen >= at && (!fired || for_good) && can_happen_to(d);
        fired = fired || now;
    }
    pthread_mutex_unlock(&lock);
    return now;
}

static void strike(struct link *l, struct direction *d)
{
    switch (kind) {
    case WIRE_CUT:
        d->pass = 0;
        d->drop = true;
        break;
    case WIRE_TORN:
        d->pass = d->left / 2;
        break;
    case WIRE_SWALLOW:
        l->deaf = true;
        break;
    case WIRE_LATE:
        l->keeping = late_server < 0;
        break;
    case WIRE_ERROR:
        d->drop = true;
        send_failure(d->to, type_of(d));
        break;
    case WIRE_AMBIGUOUS:
        send_error(d->to);
        l->skipping = true;
        break;
    case WIRE_FAULTS:
        break;
    }
}

/* --- passing on --- */

static void keep_back(const void *bytes, size_t size)
{
    if (late_size + size > LATE_MAX) {
        fprintf(stderr, "postgres_wire: too much to keep back\n");
        abort();
    }
    memcpy(late + late_size, bytes, size);
    late_size += size;
}

/* Some bytes of a message, the head included. */
static void pass(struct link *l, struct direction *d, const void *bytes, size_t size)
{
    if (d->to_server && l->keeping) {
        keep_back(bytes, size);
    } else if (!d->drop && (d->to_server || (!l->deaf && !l->skipping))) {
        send_all(d->to, bytes, size);
    }
}

static void end_message(struct link *l, struct direction *d)
{
    char type = type_of(d);
    if (d->to_server && l->keeping && (type == 'S' || type == 'Q')) {
        close(l->up.from);
        late_server = l->up.to;
        *l = (struct link){.open = false};
        return;
    }
    if (!d->to_server && type == 'Z') {
        l->skipping = false;
        if (l->deaf) {
            cut(l);
            return;
        }
    }
    d->head_have = 0;
    d->head_size = HEAD_MAX;
    d->drop = false;
}

/* The head is whole. False: the link has gone. */
static bool begin_message(struct link *l, struct direction *d)
{
    uint32_t length;
    memcpy(&length, d->head + d->head_size - 4, sizeof length);
    d->left = ntohl(length) - 4;
    d->pass = SIZE_MAX;
    if (strikes(d)) {
        strike(l, d);
    }
    bool ready = !d->to_server && type_of(d) == 'Z';
    bool skipping = l->skipping;
    l->skipping = skipping && !ready;
    pass(l, d, d->head, d->head_size);
    if (d->pass == 0) {
        cut(l);
        return false;
    }
    if (d->left == 0) {
        end_message(l, d);
    }
    return l->open;
}

/* False: the link has gone. */
static bool take(struct link *l, struct direction *d, const unsigned char *bytes, size_t size)
{
    while (size > 0) {
        if (d->head_have < d->head_size) {
            d->head[d->head_have++] = *bytes++;
            size--;
            if (d->head_have == d->head_size && !begin_message(l, d)) {
                return false;
            }
            continue;
        }
        size_t n = size < d->left ? size : d->left;
        bool torn = n >= d->pass;
        n = torn ? d->pass : n;
        pass(l, d, bytes, n);
        if (torn) {
            cut(l);
            return false;
        }
        d->pass -= d->pass != SIZE_MAX ? n : 0;
        d->left -= n;
        bytes += n;
        size -= n;
        if (d->left == 0) {
            end_message(l, d);
        }
        if (!l->open) {
            return false;
        }
    }
    return true;
}

static void read_from(struct link *l, struct direction *d)
{
    static unsigned char piece[PIECE];
    ssize_t n = recv(d->from, piece, sizeof piece, MSG_DONTWAIT);
    if (n > 0) {
        take(l, d, piece, (size_t)n);
    } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
        cut(l);
    }
}

/* --- connections --- */

static int connect_server(void)
{
    struct sockaddr_in name = {.sin_family = AF_INET,
                               .sin_port = htons((uint16_t)server_port),
                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&name, sizeof name) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

static void take_connection(void)
{
    int on = 1;
    int client = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    pthread_mutex_lock(&lock);
    bool away = armed && fired && for_good && kind != WIRE_ERROR;
    pthread_mutex_unlock(&lock);
    int server = client < 0 || away ? -1 : connect_server();
    struct link *l = NULL;
    for (size_t i = 0; l == NULL && i < LINKS_MAX; i++) {
        l = links[i].open ? NULL : &links[i];
    }
    if (server < 0 || l == NULL) {
        if (server >= 0) {
            close(server);
        }
        if (client >= 0) {
            close(client);
        }
        return;
    }
    setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(server, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    *l = (struct link){
        .open = true,
        .up = {.from = client, .to = server, .to_server = true, .head_size = 4, .pass = SIZE_MAX},
        .down = {.from = server, .to = client, .head_size = HEAD_MAX, .pass = SIZE_MAX},
    };
}

/* --- what came late --- */

/* What the server says until it is ready again or has closed: was anything committed? */
static enum wire_late hear_out(int fd)
{
    static unsigned char body[PIECE];
    enum wire_late what = WIRE_LATE_REFUSED;
    unsigned char head[HEAD_MAX];
    while (recv(fd, head, sizeof head, MSG_WAITALL) == (ssize_t)sizeof head && head[0] != 'Z') {
        uint32_t length;
        memcpy(&length, head + 1, sizeof length);
        size_t left = ntohl(length) - 4;
        size_t first = left < sizeof body ? left : sizeof body;
        if (first > 0 && recv(fd, body, first, MSG_WAITALL) != (ssize_t)first) {
            break;
        }
        if (head[0] == 'C' && first >= 6 && memcmp(body, "COMMIT", 6) == 0) {
            what = WIRE_LATE_COMMITTED;
        }
        for (left -= first; left > 0; left -= first) {
            first = left < sizeof body ? left : sizeof body;
            if (recv(fd, body, first, MSG_WAITALL) != (ssize_t)first) {
                return what;
            }
        }
    }
    return what;
}

static void deliver_if_wanted(void)
{
    pthread_mutex_lock(&lock);
    if (delivery_wanted) {
        delivered = WIRE_NOTHING_LATE;
        if (late_server >= 0) {
            send_all(late_server, late, late_size);
            delivered = hear_out(late_server);
            close(late_server);
        }
        late_server = -1;
        late_size = 0;
        delivery_wanted = false;
        pthread_cond_broadcast(&changed);
    }
    pthread_mutex_unlock(&lock);
}

static void turn(void)
{
    struct pollfd fds[2 * LINKS_MAX + 1] = {{.fd = listener, .events = POLLIN}};
    size_t link_of[2 * LINKS_MAX + 1];
    nfds_t count = 1;
    for (size_t i = 0; i < LINKS_MAX; i++) {
        if (links[i].open) {
            link_of[count] = i;
            fds[count++] = (struct pollfd){.fd = links[i].up.from, .events = POLLIN};
            link_of[count] = i;
            fds[count++] = (struct pollfd){.fd = links[i].down.from, .events = POLLIN};
        }
    }
    poll(fds, count, TICK_MS);
    deliver_if_wanted();
    for (nfds_t i = 1; i < count; i++) {
        struct link *l = &links[link_of[i]];
        if (fds[i].revents != 0 && l->open) {
            read_from(l, i % 2 == 1 ? &l->up : &l->down);
        }
    }
    if (fds[0].revents != 0) {
        take_connection();
    }
}

static void *run(void *arg)
{
    (void)arg;
    for (;;) {
        turn();
    }
    return NULL;
}

/* --- orders --- */

int wire_start(int port)
{
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof name;
    pthread_t thread;
    server_port = port;
    listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&name, size) != 0 || listen(listener, 64) != 0 ||
        getsockname(listener, (struct sockaddr *)&name, &size) != 0) {
        return -1;
    }
    errno = pthread_create(&thread, NULL, run, NULL);
    if (errno != 0) {
        return -1;
    }
    pthread_detach(thread);
    return ntohs(name.sin_port);
}

void wire_choose(enum wire_fault which, const char *code)
{
    pthread_mutex_lock(&lock);
    kind = which;
    snprintf(sqlstate, sizeof sqlstate, "%s", code != NULL ? code : "XX000");
    pthread_mutex_unlock(&lock);
}

void wire_arm(long n, bool from_there_on)
{
    pthread_mutex_lock(&lock);
    armed = true;
    fired = false;
    at = n;
    seen = 0;
    for_good = from_there_on;
    pthread_mutex_unlock(&lock);
}

bool wire_disarm(void)
{
    pthread_mutex_lock(&lock);
    armed = false;
    bool did = fired;
    pthread_mutex_unlock(&lock);
    return did;
}

long wire_seen(void)
{
    pthread_mutex_lock(&lock);
    long n = seen;
    pthread_mutex_unlock(&lock);
    return n;
}

enum wire_late wire_deliver(void)
{
    pthread_mutex_lock(&lock);
    delivery_wanted = true;
    while (delivery_wanted) {
        pthread_cond_wait(&changed, &lock);
    }
    enum wire_late what = delivered;
    pthread_mutex_unlock(&lock);
    return what;
}
