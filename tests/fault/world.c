#include "world.h"

#include "alloc.h"
#include "sweep.h"

#include "fuzz/gateway_upstream.h"

#include "base/log.h"
#include "config/config.h"
#include "gateway/gateway.h"

#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/eventfd.h>

enum { QUIET_MS = 60, LOOK_MS = 1 };

char world_config[4096];
struct client world_clients[WORLD_CLIENTS];
bool world_speaks_tls;

static SSL_CTX *tls_context;
static int reservation; /* a socket that is bound and never listens */
static unsigned reserved_port;
static void (*when_quiet)(void);

static struct {
    pthread_t thread;
    sem_t go;
    int news; /* an eventfd: something here changed */
    _Atomic(enum {BORN, OPEN, OVER}) state;
    _Atomic(bool) runs; /* its loops do */
    _Atomic(bool) reloaded;
    struct gateway *gateway; /* while it is open */
    int code;                /* of the opening, then of the last reload */
    hapax_error err;
} life;

/* ---- the gateway, on its own thread ----------------------------------------------------------------- */

static void tell(void)
{
    uint64_t one = 1;
    MUST(write(life.news, &one, sizeof one) == sizeof one);
}

static void reload(void *ctx, int number)
{
    (void)ctx;
    (void)number;
    struct config *config;
    struct buf notes;
    buf_init(&notes, 1024);
    life.err = (hapax_error){0};
    life.code = config_load_text(&config, slice_text(world_config), "swept", &life.err);
    if (life.code == 0) {
        life.code = gateway_reload(life.gateway, config, &notes, &life.err);
    }
    buf_free(&notes);
    atomic_store(&life.reloaded, true);
    tell();
}

static int start(hapax_error *err)
{
    struct config *config;
    int rc = config_load_text(&config, slice_text(world_config), "swept", err);
    rc = rc != 0 ? rc : gateway_open(&life.gateway, config, err);
    if (rc == 0) {
        rc = loop_signal(gateway_loop(life.gateway), SIGHUP, reload, NULL, err);
        if (rc != 0) {
            gateway_close(life.gateway);
        }
    }
    return rc;
}

static void *live(void *arg)
{
    (void)arg;
    while (sem_wait(&life.go) != 0) {
    }
    life.code = start(&life.err);
    if (life.code == 0) {
        atomic_store(&life.state, OPEN);
        tell();
        gateway_run(life.gateway);
        gateway_close(life.gateway);
    }
    atomic_store(&life.state, OVER);
    tell();
    return NULL;
}

/* ---- the gateway, as the world sees it -------------------------------------------------------------- */

static bool is_born(void *ctx)
{
    (void)ctx;
    return atomic_load(&life.state) != BORN;
}

static bool is_over(void *ctx)
{
    (void)ctx;
    return atomic_load(&life.state) == OVER;
}

static bool is_reloaded(void *ctx)
{
    (void)ctx;
    return atomic_load(&life.reloaded);
}

static bool links_are_closed(void *ctx)
{
    (void)ctx;
    for (size_t i = 0; i < LINKS_MAX; i++) {
        if (upstream.links[i].fd >= 0) {
            return false;
        }
    }
    return true;
}

void world_prepare_gateway(void)
{
    life.err = (hapax_error){0};
    life.gateway = NULL;
    atomic_store(&life.runs, false);
    atomic_store(&life.state, BORN);
    MUST(pthread_create(&life.thread, NULL, live, NULL) == 0);
}

/* It is closed: nothing of it is left on either side. */
static void bury(void)
{
    world_until(is_over, NULL);
    pthread_join(life.thread, NULL);
    world_until(links_are_closed, NULL);
}

static void note_that_it_runs(void *ctx)
{
    (void)ctx;
    atomic_store(&life.runs, true);
    tell();
}

static bool runs(void *ctx)
{
    (void)ctx;
    return atomic_load(&life.runs);
}

int world_start_gateway(hapax_error *err)
{
    sem_post(&life.go);
    world_until(is_born, NULL);
    if (atomic_load(&life.state) == OPEN) {
        MUST(loop_post(gateway_loop(life.gateway), note_that_it_runs, NULL) == 0);
        world_until(runs, NULL);
        return 0;
    }
    bury();
    *err = life.err;
    return life.code;
}

int world_reload_gateway(hapax_error *err)
{
    atomic_store(&life.reloaded, false);
    MUST(kill(getpid(), SIGHUP) == 0);
    world_until(is_reloaded, NULL);
    *err = life.err;
    return life.code;
}

static void ask_to_stop(void *ctx)
{
    gateway_stop(ctx);
}

void world_stop_gateway(void)
{
    MUST(loop_post(gateway_loop(life.gateway), ask_to_stop, life.gateway) == 0);
    bury();
}

size_t world_waiters(void)
{
    struct engine_stats stats;
    engine_stats(gateway_engine(life.gateway), &stats);
    return stats.waiters;
}

/* ---- clients ---------------------------------------------------------------------------------------- */

static void end_client(struct client *c)
{
    SSL_free(c->tls);
    close(c->fd);
    c->tls = NULL;
    c->fd = -1;
}

static void receive(struct client *c)
{
    ssize_t n = recv(c->fd, c->in + c->in_len, sizeof c->in - 1 - c->in_len, 0);
    if (n > 0) {
        c->in_len += (size_t)n;
        MUST(c->in_len < sizeof c->in - 1);
    } else if (n == 0 || errno != EAGAIN) {
        end_client(c);
    }
}

static void receive_tls(struct client *c)
{
    int n = 1;
    ERR_clear_error();
    if (c->out_len > 0) {
        n = SSL_write(c->tls, c->out, (int)c->out_len); /* after the handshake, which it goes on with */
        c->out_len = n > 0 ? 0 : c->out_len;
    }
    while (n > 0) {
        n = SSL_read(c->tls, c->in + c->in_len, (int)(sizeof c->in - 1 - c->in_len));
        c->in_len += n > 0 ? (size_t)n : 0;
        MUST(c->in_len < sizeof c->in - 1);
    }
    if (SSL_get_error(c->tls, n) != SSL_ERROR_WANT_READ) {
        end_client(c);
    }
}

static void send_tls(struct client *c, const char *request, size_t len)
{
    memcpy(c->out, request, len);
    c->out_len = len;
    c->tls = SSL_new(tls_context);
    MUST(c->tls != NULL && SSL_set_fd(c->tls, c->fd) == 1);
    SSL_set_connect_state(c->tls);
    receive_tls(c);
}

void world_send(struct client *c, const char *request)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons(gateway_port_number(life.gateway)),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    size_t len = strlen(request);
    c->in_len = 0;
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    MUST(c->fd >= 0 && connect(c->fd, (struct sockaddr *)&to, sizeof to) == 0);
    MUST(len < REQUEST_TEXT_MAX);
    make_nonblocking(c->fd);
    if (world_speaks_tls) {
        send_tls(c, request, len);
        return;
    }
    ssize_t n = send(c->fd, request, len, MSG_NOSIGNAL);
    MUST(n == (ssize_t)len || (n < 0 && errno != EAGAIN)); /* closed already: receive() will tell */
}

bool world_is_over(const struct client *c)
{
    return c->fd < 0;
}

static void copy_field(char *out, size_t size, const char *head, const char *name)
{
    const char *at = strstr(head, name);
    size_t len = at != NULL ? strcspn(at + strlen(name), "\r\n\"") : 0;
    len = len < size - 1 ? len : size - 1;
    memcpy(out, at != NULL ? at + strlen(name) : "", len);
    out[len] = '\0';
}

/* Every request asks for the connection to be closed, and every answer of the upstream has a length. */
void world_hear(struct heard *out, const struct client *c)
{
    static char head[ANSWER_BYTES_MAX];
    *out = (struct heard){0};
    memcpy(head, c->in, c->in_len);
    head[c->in_len] = '\0';
    char *end = strstr(head, "\r\n\r\n");
    if (end == NULL || sscanf(head, "HTTP/1.1 %d ", &out->status) != 1) {
        return;
    }
    const char *body = end + 4;
    size_t body_len = c->in_len - (size_t)(body - head);
    end[2] = '\0';
    char length[16];
    copy_field(length, sizeof length, head, "\r\nContent-Length: ");
    copy_field(out->marker, sizeof out->marker, head, "\r\nIdempotency-Status: ");
    copy_field(out->type, sizeof out->type, body, "urn:hapax:problem:");
    snprintf(out->body, sizeof out->body, "%s", body);
    CHECK(length[0] != '\0', "an answer without a length: %s", head);
    out->whole = strtoul(length, NULL, 10) == body_len;
    CHECK(strtoul(length, NULL, 10) >= body_len, "more bytes than the answer has");
}

/* ---- time ------------------------------------------------------------------------------------------- */

void world_when_quiet(void (*fn)(void))
{
    when_quiet = fn;
}

/* Wait for anything, and deal with all of it. false: nothing came. */
static bool turn(int wait_ms)
{
    struct pollfd polls[2 + LINKS_MAX + WORLD_CLIENTS];
    struct pollfd *links = polls + 2;
    struct pollfd *clients = links + LINKS_MAX;
    polls[0] = (struct pollfd){upstream.listener, POLLIN, 0};
    polls[1] = (struct pollfd){life.news, POLLIN, 0};
    for (size_t i = 0; i < LINKS_MAX; i++) {
        links[i] = (struct pollfd){upstream.links[i].fd, POLLIN, 0};
    }
    for (size_t i = 0; i < WORLD_CLIENTS; i++) {
        clients[i] = (struct pollfd){world_clients[i].fd, POLLIN, 0};
    }
    bool something = poll(polls, sizeof polls / sizeof polls[0], wait_ms) > 0;
    for (size_t i = 0; i < LINKS_MAX; i++) {
        if (links[i].revents != 0) {
            link_read(&upstream.links[i]);
        }
    }
    for (size_t i = 0; i < WORLD_CLIENTS; i++) {
        if (clients[i].revents != 0 && world_clients[i].tls != NULL) {
            receive_tls(&world_clients[i]);
        } else if (clients[i].revents != 0) {
            receive(&world_clients[i]);
        }
    }
    if (polls[0].revents != 0) {
        upstream_accept();
    }
    uint64_t news;
    if (polls[1].revents != 0) {
        MUST(read(life.news, &news, sizeof news) == sizeof news);
    }
    return something;
}

/* What done() looks at may change without a sign, so it is asked often; only sweep.c's alarm ends a wait for good. */
void world_until(bool (*done)(void *ctx), void *ctx)
{
    int quiet_ms = 0;
    while (!done(ctx)) {
        quiet_ms = turn(LOOK_MS) ? 0 : quiet_ms + LOOK_MS;
        if (quiet_ms >= QUIET_MS && when_quiet != NULL) {
            when_quiet();
            quiet_ms = 0;
        }
    }
}

static bool client_is_over(void *ctx)
{
    upstream_release();
    return world_is_over(ctx);
}

void world_ask(struct heard *out, const char *request)
{
    struct client *c = &world_clients[0];
    world_send(c, request);
    world_until(client_is_over, c);
    world_hear(out, c);
}

/* ---- the upstream ----------------------------------------------------------------------------------- */

char world_act(enum act_of_upstream act)
{
    static const enum act acts[] = {[ANSWERS] = ACT_OK,
                                    [HOLDS_ANSWER_BACK] = ACT_HOLD,
                                    [ANSWERS_MUCH] = ACT_LARGE,
                                    [BREAKS_OFF] = ACT_CLOSE};
    return (char)('a' + (int)acts[act]);
}

unsigned world_upstream_port(void)
{
    return upstream.port;
}

void world_forget_effects(void)
{
    upstream.executions = 0;
}

size_t world_effects(const char *path, unsigned long long *last)
{
    char start[64];
    size_t count = 0;
    snprintf(start, sizeof start, "POST %s ", path);
    for (uint64_t n = 0; n < upstream.executions; n++) {
        if (strncmp(upstream.book[n].identity, start, strlen(start)) == 0) {
            *last = n;
            count++;
        }
    }
    return count;
}

bool world_holds(void)
{
    for (size_t i = 0; i < LINKS_MAX; i++) {
        if (upstream.links[i].fd >= 0 && upstream.links[i].holds) {
            return true;
        }
    }
    return false;
}

void world_release(void)
{
    upstream_release();
}

unsigned world_reserved_port(void)
{
    return reserved_port;
}

static void reserve_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof address;
    int on = 1;
    reservation = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    MUST(reservation >= 0 && setsockopt(reservation, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on) == 0);
    MUST(bind(reservation, (struct sockaddr *)&address, len) == 0);
    MUST(getsockname(reservation, (struct sockaddr *)&address, &len) == 0);
    reserved_port = ntohs(address.sin_port);
}

/* ---- life ------------------------------------------------------------------------------------------- */

void world_open(void)
{
    hapax_error err;
    alloc_spare_thread();
    MUST(net_global_init(&err) == 0);
    log_setup(LOG_LEVEL_ERROR, false);
    sem_init(&life.go, 0, 0);
    life.news = eventfd(0, EFD_CLOEXEC);
    MUST(life.news >= 0);
    tls_context = SSL_CTX_new(TLS_client_method());
    MUST(tls_context != NULL);
    reserve_port();
    upstream_open();
    for (size_t i = 0; i < WORLD_CLIENTS; i++) {
        world_clients[i].fd = -1;
    }
}

void world_close(void)
{
    upstream_close();
    SSL_CTX_free(tls_context);
    close(reservation);
    close(life.news);
    sem_destroy(&life.go);
}
