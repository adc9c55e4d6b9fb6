/* The gateway as a whole: engine, workers and their threads, reload and graceful stop. */
#include "gateway/gateway.h"

#include "gateway/exchange.h"

#include "base/assert.h"
#include "base/error.h"
#include "base/log.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { WORKERS_MAX = 64, DRAIN_CHECK_MS = 20, STORE_CHECK_MS = 250 };

struct gateway {
    struct shared shared;
    struct shared_config *config; /* the first thread's reference to the current one */
    struct worker *workers;
    pthread_t *threads; /* of workers 1 to n-1 */
    uint32_t worker_count;
    uint32_t open_count; /* workers that opened */
    struct loop_timer *drain_timer;
    struct loop_timer *store_timer;
    bool store_down; /* as the log knows */
    int64_t stop_deadline_ms;
    _Atomic(unsigned) warned; /* of the store: a bit for each store_warning */
    _Atomic(uint64_t) reloads;
    _Atomic(uint64_t) reload_failures;
    int64_t started_wall_ms;
};

static uint32_t default_threads(void)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    long threads = cores / 2;
    return threads < 1 ? 1 : threads > WORKERS_MAX ? WORKERS_MAX : (uint32_t)threads;
}

/* Every handle says it, each time it connects: logged once a process. */
static void warn_of_store(void *ctx, enum store_warning what, const char *text)
{
    struct gateway *g = ctx;
    unsigned bit = 1U << what;
    if ((atomic_fetch_or(&g->warned, bit) & bit) == 0) {
        log_event(LOG_LEVEL_WARN, "unsafe-store", "%s", text);
    }
}

static int open_engine(struct gateway *g, const struct config *c, hapax_error *err)
{
    struct engine_options o = {
        .store_uri = c->store,
        .lanes = c->lanes,
        .queue_ops_max = c->queue_max,
        .waiters_max = c->waiters_max,
        .waiters_per_key_max = c->waiters_per_key_max,
        .replay_cache_bytes = c->replay_cache_bytes,
        .cache_off = c->replay_cache_bytes == 0,
        .store = {.away = STORE_AWAY_WAITS,
                  .busy_ms = c->store_busy_ms,
                  .allow_unsafe = c->allow_unsafe_store,
                  .warn = warn_of_store,
                  .warn_ctx = g},
    };
    return engine_open(&g->shared.engine, &o, err);
}

static int open_workers(struct gateway *g, hapax_error *err)
{
    const struct config *c = g->config->config;
    g->worker_count = c->threads > 0 ? c->threads : default_threads();
    g->workers = calloc(g->worker_count, sizeof *g->workers);
    g->threads = calloc(g->worker_count, sizeof *g->threads);
    if (g->workers == NULL || g->threads == NULL) {
        return error_code(err, HAPAX_E_MEMORY);
    }
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < g->worker_count; i++) {
        uint16_t port = i > 0 ? http_server_port(g->workers[0].server) : 0;
        rc = worker_open(&g->workers[i], &g->shared, g->config, g->worker_count > 1, port, err);
        g->open_count += rc == 0 ? 1 : 0;
    }
    return rc;
}

static void drain_check(void *ctx);

/* The log hears of it once, when it goes and when it is back. */
static void store_check(void *ctx)
{
    struct gateway *g = ctx;
    hapax_error err = {0};
    bool down = !engine_store_ok(g->shared.engine, &err);
    if (down && !g->store_down) {
        log_event(LOG_LEVEL_ERROR, "store-down", "%s", err.message);
    } else if (!down && g->store_down) {
        log_event(LOG_LEVEL_WARN, "store-up", "the store works again");
    }
    g->store_down = down;
    loop_timer_start(g->store_timer, STORE_CHECK_MS);
}

static int open_timers(struct gateway *g, hapax_error *err)
{
    struct loop *l = g->workers[0].loop;
    if (loop_timer_create(&g->drain_timer, l, drain_check, g) != 0 ||
        loop_timer_create(&g->store_timer, l, store_check, g) != 0) {
        return error_code(err, HAPAX_E_MEMORY);
    }
    loop_timer_start(g->store_timer, STORE_CHECK_MS);
    return 0;
}

int gateway_open(struct gateway **out, struct config *config, hapax_error *err)
{
    *out = NULL;
    struct gateway *g = calloc(1, sizeof *g);
    if (g == NULL) {
        config_free(config);
        return error_code(err, HAPAX_E_MEMORY);
    }
    int rc = shared_config_make(&g->config, config, err);
    if (rc != 0) {
        free(g);
        return rc;
    }
    g->shared.body_bytes_max = config->body_memory_max;
    g->started_wall_ms = clock_wall_ms();
    rc = open_engine(g, config, err);
    rc = rc != 0 ? rc : open_workers(g, err);
    rc = rc != 0 ? rc : open_timers(g, err);
    if (rc != 0) {
        gateway_close(g);
        return rc;
    }
    *out = g;
    return 0;
}

static void *worker_thread(void *arg)
{
    struct worker *w = arg;
    loop_run(w->loop);
    return NULL;
}

/* The first loop runs on the process's own thread, which keeps the program's name. */
static bool start_worker(struct gateway *g, uint32_t i)
{
    char name[24];
    snprintf(name, sizeof name, "hapax-loop-%u", i);
    if (pthread_create(&g->threads[i], NULL, worker_thread, &g->workers[i]) != 0) {
        g->threads[i] = 0;
        return false;
    }
    pthread_setname_np(g->threads[i], name); /* for top -H and the like */
    return true;
}

void gateway_run(struct gateway *g)
{
    for (uint32_t i = 1; i < g->worker_count; i++) {
        if (!start_worker(g, i)) {
            log_event(LOG_LEVEL_ERROR, "thread", "can't start worker %u; the others do its work", i);
            http_server_drain(
                g->workers[i].server); /* or the kernel would give it its share of connections */
        }
    }
    loop_run(g->workers[0].loop);
    for (uint32_t i = 1; i < g->worker_count; i++) {
        loop_stop(g->workers[i].loop);
        if (g->threads[i] != 0) {
            pthread_join(g->threads[i], NULL);
        }
    }
}

/* --- Stop. --- */

static void drain_check(void *ctx)
{
    struct gateway *g = ctx;
    uint32_t left = atomic_load(&g->shared.exchanges);
    if (left == 0 || loop_mono_ms(g->workers[0].loop) >= g->stop_deadline_ms) {
        if (left > 0) {
            log_event(
                LOG_LEVEL_WARN, "stop",
                "%u requests did not finish in time; operations that were running are unknown from now on",
                left);
        }
        loop_stop(g->workers[0].loop);
        return;
    }
    loop_timer_start(g->drain_timer, DRAIN_CHECK_MS);
}

void gateway_stop(struct gateway *g)
{
    int64_t now_ms = loop_mono_ms(g->workers[0].loop);
    if (atomic_exchange(&g->shared.stopping, true)) {
        g->stop_deadline_ms = now_ms; /* asked twice: now */
    } else {
        g->stop_deadline_ms = now_ms + g->config->config->shutdown_ms;
        http_server_drain(g->workers[0].server);
        for (uint32_t i = 1; i < g->worker_count; i++) {
            loop_wake(g->workers[i].news); /* they see `stopping` and do the same */
        }
    }
    loop_timer_start(g->drain_timer, DRAIN_CHECK_MS);
}

void gateway_close(struct gateway *g)
{
    if (g == NULL) {
        return;
    }
    /* Loops have stopped. The engine gives every op back before the workers go that it belongs to. */
    if (g->shared.engine != NULL) {
        engine_close(g->shared.engine);
        g->shared.engine = NULL;
    }
    for (uint32_t i = 0; i < g->open_count; i++) {
        engine_port_drain(&g->workers[i].port);
    }
    if (g->drain_timer != NULL) {
        loop_timer_close(g->drain_timer);
    }
    if (g->store_timer != NULL) {
        loop_timer_close(g->store_timer);
    }
    for (uint32_t i = 0; i < g->open_count; i++) {
        worker_close(&g->workers[i]);
    }
    shared_config_drop(g->config);
    free(g->workers);
    free(g->threads);
    free(g);
}

/* --- Reload. --- */

static bool same_text(const char *a, const char *b)
{
    return a == b || (a != NULL && b != NULL && strcmp(a, b) == 0);
}

static void note(struct buf *notes, bool same, const char *field)
{
    if (!same) {
        buf_append_text(notes, notes->len > 0 ? ", " : "");
        buf_append_text(notes, field);
    }
}

/* What a reload can't change. */
static void compare(struct buf *notes, const struct config *a, const struct config *b)
{
    note(notes, same_text(a->listen, b->listen), "listen");
    note(notes, (a->tls_certificate == NULL) == (b->tls_certificate == NULL), "tls");
    note(notes, same_text(a->admin_listen, b->admin_listen), "admin");
    note(notes, same_text(a->store, b->store) && a->allow_unsafe_store == b->allow_unsafe_store, "store");
    note(notes, a->threads == b->threads && a->lanes == b->lanes, "threads and lanes");
    note(notes,
         a->connections_max == b->connections_max && a->head_bytes_max == b->head_bytes_max &&
             a->headers_max == b->headers_max && a->head_ms == b->head_ms && a->idle_ms == b->idle_ms &&
             a->body_ms == b->body_ms && a->send_ms == b->send_ms &&
             a->body_memory_max == b->body_memory_max && a->replay_cache_bytes == b->replay_cache_bytes &&
             a->waiters_max == b->waiters_max && a->waiters_per_key_max == b->waiters_per_key_max &&
             a->queue_max == b->queue_max && a->store_busy_ms == b->store_busy_ms,
         "limits and timeouts");
}

/* Routes for each worker, or for none. */
static int prepare_routings(struct gateway *g, struct shared_config *config, hapax_error *err)
{
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < g->worker_count; i++) {
        rc = routing_make(&g->workers[i].prepared, config, err);
    }
    for (uint32_t i = 0; rc != 0 && i < g->worker_count; i++) {
        routing_drop(g->workers[i].prepared);
        g->workers[i].prepared = NULL;
    }
    return rc;
}

/* All that can fail comes first: the workers take the new routes or keep the old ones, together. */
int gateway_reload(struct gateway *g, struct config *config, struct buf *notes, hapax_error *err)
{
    struct shared_config *shared;
    int rc = shared_config_make(&shared, config, err);
    if (rc != 0) {
        return rc;
    }
    rc = prepare_routings(g, shared, err);
    if (rc != 0) {
        shared_config_drop(shared);
        return rc;
    }
    compare(notes, g->config->config, config);
    for (uint32_t i = 0; i < g->worker_count; i++) {
        struct worker *w = &g->workers[i];
        struct routing *routing = w->prepared;
        w->prepared = NULL;
        if (i == 0) {
            worker_use(w, routing);
        } else {
            worker_offer(w, routing);
        }
    }
    shared_config_drop(g->config);
    g->config = shared;
    atomic_fetch_add(&g->reloads, 1);
    return 0;
}

void gateway_count_reload_failure(struct gateway *g)
{
    atomic_fetch_add(&g->reload_failures, 1);
}

/* --- What others may see. --- */

struct loop *gateway_loop(struct gateway *g)
{
    return g->workers[0].loop;
}

struct engine *gateway_engine(struct gateway *g)
{
    return g->shared.engine;
}

struct engine_port *gateway_port(struct gateway *g)
{
    return &g->workers[0].port;
}

uint16_t gateway_port_number(const struct gateway *g)
{
    return http_server_port(g->workers[0].server);
}

bool gateway_is_stopping(const struct gateway *g)
{
    return atomic_load(&g->shared.stopping);
}

int gateway_metrics(struct gateway *g, struct buf *out)
{
    struct engine_stats stats;
    engine_stats(g->shared.engine, &stats);
    struct metrics_process p = {
        .engine = &stats,
        .store_ok = engine_store_ok(g->shared.engine, NULL),
        .body_bytes = atomic_load(&g->shared.body_bytes),
        .reloads = atomic_load(&g->reloads),
        .reload_failures = atomic_load(&g->reload_failures),
        .started_wall_ms = g->started_wall_ms,
    };
    for (uint32_t i = 0; i < g->worker_count; i++) {
        p.connections += http_server_connections(g->workers[i].server);
    }
    return metrics_text(out, &p);
}
