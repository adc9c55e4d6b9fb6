/* Look-ups. Invariant: `async` belongs to the loop and is sent by the thread under the lock only, while nobody has begun
 * to close it. Whoever comes last, the thread or the closed handle, frees the whole. */
#include "net/resolve.h"

#include "net/loop_uv.h"

#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct resolve {
    pthread_mutex_t lock;
    bool thread_done; /* under lock */
    bool closing;     /* under lock: `async` is being closed */
    bool closed;      /* under lock: ... and is */
    uv_async_t async;
    void (*fn)(void *ctx, const struct resolved *found, const char *detail);
    void *ctx;
    struct resolved found;
    char detail[192];
    uint16_t port;
    char host[];
};

static void resolve_free(struct resolve *r)
{
    pthread_mutex_destroy(&r->lock);
    free(r);
}

static void add(struct resolved *out, const struct sockaddr *a, size_t len)
{
    if (out->count < RESOLVE_ADDRESSES_MAX && len <= sizeof out->address[0]) {
        memcpy(&out->address[out->count++], a, len);
    }
}

bool resolve_number(struct resolved *out, const char *host, uint16_t port)
{
    struct sockaddr_in four;
    struct sockaddr_in6 six;
    out->count = 0;
    if (uv_ip4_addr(host, port, &four) == 0) {
        add(out, (struct sockaddr *)&four, sizeof four);
    } else if (uv_ip6_addr(host, port, &six) == 0) {
        add(out, (struct sockaddr *)&six, sizeof six);
    }
    return out->count > 0;
}

static void on_closed(uv_handle_t *handle)
{
    struct resolve *r = handle->data;
    pthread_mutex_lock(&r->lock);
    r->closed = true;
    bool last = r->thread_done;
    pthread_mutex_unlock(&r->lock);
    if (last) {
        resolve_free(r);
    }
}

void resolve_cancel(struct resolve *r)
{
    pthread_mutex_lock(&r->lock);
    r->closing = true;
    pthread_mutex_unlock(&r->lock);
    uv_close((uv_handle_t *)&r->async, on_closed);
}

static void on_answer(uv_async_t *async)
{
    struct resolve *r = async->data;
    resolve_cancel(r); /* it is no one's any more once fn runs */
    r->fn(r->ctx, r->found.count > 0 ? &r->found : NULL, r->detail);
}

static void look_up(struct resolve *r)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG};
    struct addrinfo *list = NULL;
    char service[16];
    snprintf(service, sizeof service, "%u", r->port);
    int rc = getaddrinfo(r->host, service, &hints, &list);
    for (struct addrinfo *a = list; rc == 0 && a != NULL; a = a->ai_next) {
        add(&r->found, a->ai_addr, a->ai_addrlen);
    }
    if (rc == 0) {
        freeaddrinfo(list);
    }
    if (r->found.count == 0) {
        snprintf(r->detail, sizeof r->detail, "can't look up %.64s: %.80s", r->host,
                 rc != 0 ? gai_strerror(rc) : "no address");
    }
}

static void *run(void *arg)
{
    struct resolve *r = arg;
    look_up(r);
    pthread_mutex_lock(&r->lock);
    r->thread_done = true;
    if (!r->closing) {
        uv_async_send(&r->async);
    }
    bool last = r->closed;
    pthread_mutex_unlock(&r->lock);
    if (last) {
        resolve_free(r);
    }
    return NULL;
}

int resolve_start(struct resolve **out, struct loop *l, const char *host, uint16_t port,
                  void (*fn)(void *ctx, const struct resolved *found, const char *detail), void *ctx)
{
    size_t len = strlen(host);
    struct resolve *r = calloc(1, sizeof *r + len + 1);
    *out = NULL;
    if (r == NULL) {
        return HAPAX_E_MEMORY;
    }
    if (uv_async_init(loop_uv(l), &r->async, on_answer) != 0) {
        free(r);
        return HAPAX_E_SYSTEM;
    }
    pthread_mutex_init(&r->lock, NULL);
    r->async.data = r;
    r->fn = fn;
    r->ctx = ctx;
    r->port = port;
    memcpy(r->host, host, len);
    pthread_t thread;
    if (pthread_create(&thread, NULL, run, r) != 0) {
        r->thread_done = true;
        resolve_cancel(r);
        return HAPAX_E_SYSTEM;
    }
    pthread_detach(thread);
    *out = r;
    return 0;
}
