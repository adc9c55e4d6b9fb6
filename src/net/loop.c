/* The loop: uv behind a few verbs. Invariants: only loop_post(), loop_wake() and loop_stop() are
 * called from other threads, and they touch nothing but a locked list and uv_async handles. */
#include "net/loop.h"

#include "base/assert.h"
#include "base/error.h"
#include "net/loop_uv.h"

#include <malloc.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>

struct post {
    struct post *next;
    void (*fn)(void *ctx);
    void *ctx;
};

struct loop {
    uv_loop_t uv;
    uv_async_t poke; /* posts and stop */
    uv_check_t after_events;
    uv_prepare_t before_waiting;
    void (*turn)(void *ctx); /* NULL: nobody asked */
    void *turn_ctx;
    pthread_mutex_t lock;
    struct post *first; /* under lock */
    struct post *last;  /* under lock */
    bool stop;          /* under lock */
};

struct loop_timer {
    uv_timer_t uv;
    void (*fn)(void *ctx);
    void *ctx;
};

struct loop_waker {
    uv_async_t uv;
    void (*fn)(void *ctx);
    void *ctx;
};

struct loop_signal {
    uv_signal_t uv;
    void (*fn)(void *ctx, int signal);
    void *ctx;
};

uv_loop_t *loop_uv(struct loop *l)
{
    return &l->uv;
}

static void on_poke(uv_async_t *async)
{
    struct loop *l = async->data;
    pthread_mutex_lock(&l->lock);
    struct post *first = l->first;
    bool stop = l->stop;
    l->stop = false;
    l->first = NULL;
    l->last = NULL;
    pthread_mutex_unlock(&l->lock);
    while (first != NULL) {
        struct post *next = first->next;
        first->fn(first->ctx);
        free(first);
        first = next;
    }
    if (stop) {
        uv_stop(&l->uv);
    }
}

/* --- uv's table of descriptors. ---
 *
 * For each loop uv keeps a table by descriptor, and it ends the process when there is no memory to let it grow. So a
 * table is born with room for every descriptor that may be opened (what is not used is never touched: it takes
 * addresses, not memory), and growing costs nothing. Only beyond DESCRIPTORS_MAX open ones it would be copied. */
enum { DESCRIPTORS_MAX = 1 << 20 };

static _Thread_local void *spare_table; /* for the loop that this thread is making */

/* uv asks for two slots of its own, and the next power of two. */
static size_t table_bytes(void)
{
    struct rlimit limit;
    size_t slots = DESCRIPTORS_MAX;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < DESCRIPTORS_MAX) {
        slots = (size_t)limit.rlim_cur;
    }
    return 2 * (slots + 2) * sizeof(void *);
}

/* uv's realloc(), which it uses for that table only. */
static void *grow_table(void *table, size_t bytes)
{
    if (table == NULL && spare_table != NULL) {
        table = spare_table;
        spare_table = NULL;
    }
    return table != NULL && malloc_usable_size(table) >= bytes ? table : realloc(table, bytes);
}

static int make_uv(uv_loop_t *uv)
{
    spare_table = malloc(table_bytes());
    int rc = spare_table != NULL ? uv_loop_init(uv) : UV_ENOMEM;
    free(spare_table);
    spare_table = NULL;
    return rc;
}

int loop_create(struct loop **out, hapax_error *err)
{
    *out = NULL;
    struct loop *l = calloc(1, sizeof *l);
    if (l == NULL) {
        return error_code(err, HAPAX_E_MEMORY);
    }
    int rc = make_uv(&l->uv);
    if (rc == 0) {
        rc = uv_async_init(&l->uv, &l->poke, on_poke);
        if (rc != 0) {
            uv_loop_close(&l->uv);
        }
    }
    if (rc != 0) {
        free(l);
        return error_set(err, HAPAX_E_SYSTEM, -rc, "can't make an event loop: %s", uv_strerror(rc));
    }
    pthread_mutex_init(&l->lock, NULL);
    l->poke.data = l;
    *out = l;
    return 0;
}

void loop_run(struct loop *l)
{
    uv_run(&l->uv, UV_RUN_DEFAULT);
}

void loop_stop(struct loop *l)
{
    pthread_mutex_lock(&l->lock);
    l->stop = true;
    pthread_mutex_unlock(&l->lock);
    uv_async_send(&l->poke);
}

static void free_signal(uv_handle_t *h)
{
    free(h->data);
}

static void close_leftover(uv_handle_t *h, void *arg)
{
    (void)arg;
    if (!uv_is_closing(h)) {
        uv_close(h, h->type == UV_SIGNAL ? free_signal : NULL);
    }
}

void loop_destroy(struct loop *l)
{
    uv_walk(&l->uv, close_leftover, NULL);
    uv_run(&l->uv, UV_RUN_DEFAULT);
    HAPAX_ASSERT(uv_loop_close(&l->uv) == 0);
    while (l->first != NULL) {
        struct post *next = l->first->next;
        free(l->first);
        l->first = next;
    }
    pthread_mutex_destroy(&l->lock);
    free(l);
}

int loop_post(struct loop *l, void (*fn)(void *ctx), void *ctx)
{
    struct post *p = malloc(sizeof *p);
    if (p == NULL) {
        return HAPAX_E_MEMORY;
    }
    *p = (struct post){.fn = fn, .ctx = ctx};
    pthread_mutex_lock(&l->lock);
    if (l->last != NULL) {
        l->last->next = p;
    } else {
        l->first = p;
    }
    l->last = p;
    pthread_mutex_unlock(&l->lock);
    uv_async_send(&l->poke);
    return 0;
}

static void on_check(uv_check_t *check)
{
    struct loop *l = check->data;
    l->turn(l->turn_ctx);
}

static void on_prepare(uv_prepare_t *prepare)
{
    struct loop *l = prepare->data;
    l->turn(l->turn_ctx);
}

int loop_each_turn(struct loop *l, void (*fn)(void *ctx), void *ctx, hapax_error *err)
{
    if (l->turn != NULL) {
        return error_set(err, HAPAX_E_ARGUMENT, 0, "the loop's turn has its call-back");
    }
    l->turn = fn;
    l->turn_ctx = ctx;
    /* After the events, and once more before the wait: timers run in between. Neither keeps the loop running. */
    uv_check_init(&l->uv, &l->after_events);
    uv_prepare_init(&l->uv, &l->before_waiting);
    l->after_events.data = l;
    l->before_waiting.data = l;
    uv_check_start(&l->after_events, on_check);
    uv_prepare_start(&l->before_waiting, on_prepare);
    uv_unref((uv_handle_t *)&l->after_events);
    uv_unref((uv_handle_t *)&l->before_waiting);
    return 0;
}

static void on_wake(uv_async_t *async)
{
    struct loop_waker *w = async->data;
    w->fn(w->ctx);
}

int loop_waker_create(struct loop_waker **out, struct loop *l, void (*fn)(void *ctx), void *ctx,
                      hapax_error *err)
{
    struct loop_waker *w = calloc(1, sizeof *w);
    *out = w;
    if (w == NULL) {
        return error_code(err, HAPAX_E_MEMORY);
    }
    int rc = uv_async_init(&l->uv, &w->uv, on_wake);
    if (rc != 0) {
        free(w);
        *out = NULL;
        return error_set(err, HAPAX_E_SYSTEM, -rc, "can't make a waker: %s", uv_strerror(rc));
    }
    w->uv.data = w;
    w->fn = fn;
    w->ctx = ctx;
    return 0;
}

void loop_wake(struct loop_waker *w)
{
    uv_async_send(&w->uv);
}

static void free_handle(uv_handle_t *h)
{
    free(h->data);
}

void loop_waker_close(struct loop_waker *w)
{
    uv_close((uv_handle_t *)&w->uv, free_handle);
}

static void on_timer(uv_timer_t *timer)
{
    struct loop_timer *t = timer->data;
    t->fn(t->ctx);
}

int loop_timer_create(struct loop_timer **out, struct loop *l, void (*fn)(void *ctx), void *ctx)
{
    struct loop_timer *t = calloc(1, sizeof *t);
    *out = t;
    if (t == NULL) {
        return HAPAX_E_MEMORY;
    }
    uv_timer_init(&l->uv, &t->uv);
    t->uv.data = t;
    t->fn = fn;
    t->ctx = ctx;
    return 0;
}

void loop_timer_start(struct loop_timer *t, int64_t after_ms)
{
    uv_timer_start(&t->uv, on_timer, after_ms > 0 ? (uint64_t)after_ms : 0, 0);
}

void loop_timer_stop(struct loop_timer *t)
{
    uv_timer_stop(&t->uv);
}

void loop_timer_close(struct loop_timer *t)
{
    uv_close((uv_handle_t *)&t->uv, free_handle);
}

void loop_catch_up(struct loop *l)
{
    uv_update_time(&l->uv);
}

int64_t loop_mono_ms(struct loop *l)
{
    return (int64_t)uv_now(&l->uv); /* CLOCK_MONOTONIC */
}

static void on_signal(uv_signal_t *handle, int number)
{
    struct loop_signal *s = handle->data;
    s->fn(s->ctx, number);
}

int loop_signal(struct loop *l, int number, void (*fn)(void *ctx, int signal), void *ctx, hapax_error *err)
{
    struct loop_signal *s = calloc(1, sizeof *s);
    if (s == NULL) {
        return error_code(err, HAPAX_E_MEMORY);
    }
    int rc = uv_signal_init(&l->uv, &s->uv);
    if (rc != 0) {
        free(s);
        return error_set(err, HAPAX_E_SYSTEM, -rc, "can't watch signals: %s", uv_strerror(rc));
    }
    s->uv.data = s;
    s->fn = fn;
    s->ctx = ctx;
    rc = uv_signal_start(&s->uv, on_signal, number);
    if (rc != 0) {
        uv_close((uv_handle_t *)&s->uv, free_handle);
        return error_set(err, HAPAX_E_SYSTEM, -rc, "can't watch signal %d: %s", number, uv_strerror(rc));
    }
    uv_unref((uv_handle_t *)&s->uv); /* a watched signal keeps no loop running */
    return 0;
}

uint64_t net_descriptor_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) {
        return 1024;
    }
    if (limit.rlim_cur < limit.rlim_max) {
        struct rlimit raised = {.rlim_cur = limit.rlim_max, .rlim_max = limit.rlim_max};
        if (setrlimit(RLIMIT_NOFILE, &raised) == 0) {
            limit = raised;
        }
    }
    return limit.rlim_cur;
}

int net_global_init(hapax_error *err)
{
    signal(SIGPIPE, SIG_IGN);
    uv_replace_allocator(malloc, grow_table, calloc, free);
    if (OPENSSL_init_ssl(0, NULL) != 1) {
        return error_set(err, HAPAX_E_SYSTEM, 0, "can't set up OpenSSL");
    }
    return 0;
}
