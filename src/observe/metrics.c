/* See metrics.h. Routes stand in an append-only list: a node, once published, is never moved or
 * freed, so readers need no lock. */
#include "observe/metrics.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static _Atomic(struct metric_route *) routes;
static pthread_mutex_t append_lock = PTHREAD_MUTEX_INITIALIZER;

/* Upper bounds in microseconds. */
static const int64_t latency_bounds_us[METRIC_LATENCY_BUCKETS] = {
    50, 100, 250, 500, 1000, 2500, 5000, 10000, 25000, 50000, 100000, 250000, 1000000, 10000000,
};

static const struct {
    const char *label;
    const char *help;
} outcome_texts[METRIC_OUTCOME_COUNT] = {
#define METRIC_TEXT(name, label, help) {label, help},
    METRIC_OUTCOMES(METRIC_TEXT)
#undef METRIC_TEXT
};

static struct metric_route *find(const char *name)
{
    struct metric_route *r = atomic_load_explicit(&routes, memory_order_acquire);
    while (r != NULL && strcmp(r->name, name) != 0) {
        r = r->next;
    }
    return r;
}

struct metric_route *metrics_route(const char *name)
{
    struct metric_route *r = find(name);
    if (r != NULL || strlen(name) >= sizeof r->name) {
        return r;
    }
    pthread_mutex_lock(&append_lock);
    r = find(name);
    if (r == NULL) {
        r = calloc(1, sizeof *r);
        if (r != NULL) {
            memcpy(r->name, name, strlen(name));
            r->next = atomic_load_explicit(&routes, memory_order_relaxed);
            atomic_store_explicit(&routes, r, memory_order_release);
        }
    }
    pthread_mutex_unlock(&append_lock);
    return r;
}

void metrics_latency(struct metric_route *r, int64_t added_us)
{
    added_us = added_us < 0 ? 0 : added_us;
    size_t i = 0;
    while (i < METRIC_LATENCY_BUCKETS && added_us > latency_bounds_us[i]) {
        i++;
    }
    atomic_fetch_add_explicit(&r->latency[i], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&r->latency_us_sum, (uint64_t)added_us, memory_order_relaxed);
}

/* The text so far and its first failure: one check at the end serves all appends. */
struct text {
    struct buf *out;
    int rc;
};

#define PUT(t, ...) ((t)->rc = (t)->rc != 0 ? (t)->rc : buf_printf((t)->out, __VA_ARGS__))

static void header(struct text *out, const char *name, const char *type, const char *help)
{
    PUT(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void single(struct text *out, const char *name, const char *type, const char *help, uint64_t value)
{
    header(out, name, type, help);
    PUT(out, "%s %" PRIu64 "\n", name, value);
}

static void requests(struct text *out)
{
    header(out, "hapax_requests_total", "counter", "Requests by route and by what became of them.");
    for (struct metric_route *r = atomic_load(&routes); r != NULL; r = r->next) {
        for (int i = 0; i < METRIC_OUTCOME_COUNT; i++) {
            PUT(out, "hapax_requests_total{route=\"%s\",outcome=\"%s\"} %" PRIu64 "\n", r->name,
                outcome_texts[i].label, atomic_load(&r->outcomes[i]));
        }
    }
    header(out, "hapax_running", "gauge", "Operations between claim and settlement.");
    for (struct metric_route *r = atomic_load(&routes); r != NULL; r = r->next) {
        PUT(out, "hapax_running{route=\"%s\"} %" PRId64 "\n", r->name, atomic_load(&r->running));
    }
}

static void latencies(struct text *out)
{
    const char *name = "hapax_added_latency_seconds";
    header(out, name, "histogram", "Time the gateway added to a protected request, without the upstream's.");
    for (struct metric_route *r = atomic_load(&routes); r != NULL; r = r->next) {
        uint64_t count = 0;
        for (int i = 0; i < METRIC_LATENCY_BUCKETS; i++) {
            count += atomic_load(&r->latency[i]);
            PUT(out, "%s_bucket{route=\"%s\",le=\"%g\"} %" PRIu64 "\n", name, r->name,
                (double)latency_bounds_us[i] / 1e6, count);
        }
        count += atomic_load(&r->latency[METRIC_LATENCY_BUCKETS]);
        PUT(out, "%s_bucket{route=\"%s\",le=\"+Inf\"} %" PRIu64 "\n", name, r->name, count);
        PUT(out, "%s_sum{route=\"%s\"} %.6f\n", name, r->name, (double)atomic_load(&r->latency_us_sum) / 1e6);
        PUT(out, "%s_count{route=\"%s\"} %" PRIu64 "\n", name, r->name, count);
    }
}

static void engine_numbers(struct text *out, const struct engine_stats *e)
{
    const char *name = "hapax_batch_operations";
    header(out, name, "histogram", "Operations in one transaction of the store.");
    uint64_t count = 0;
    for (unsigned i = 0; i + 1 < ENGINE_BATCH_BUCKETS; i++) {
        count += e->batch_buckets[i];
        PUT(out, "%s_bucket{le=\"%u\"} %" PRIu64 "\n", name, 1U << i, count);
    }
    count += e->batch_buckets[ENGINE_BATCH_BUCKETS - 1];
    PUT(out, "%s_bucket{le=\"+Inf\"} %" PRIu64 "\n", name, count);
    PUT(out, "%s_sum %" PRIu64 "\n%s_count %" PRIu64 "\n", name, e->batch_ops, name, count);

    header(out, "hapax_store_commit_seconds_total", "counter", "Time spent in transactions of the store.");
    PUT(out, "hapax_store_commit_seconds_total %.6f\n", (double)e->commit_us_sum / 1e6);
    single(out, "hapax_store_errors_total", "counter", "Transactions of the store that failed.",
           e->store_errors);
    single(out, "hapax_cache_hits_total", "counter", "Replays answered from memory.", e->cache_hits);
    single(out, "hapax_cache_misses_total", "counter", "Requests that had to ask the store.",
           e->cache_misses);
    single(out, "hapax_cache_bytes", "gauge", "Answers kept in memory.", e->cache_bytes);
    single(out, "hapax_waiters", "gauge", "Duplicates that wait for a running first one.", e->waiters);
    single(out, "hapax_queued", "gauge", "Operations handed to the engine and not yet answered.", e->queued);
    single(out, "hapax_records_expired_total", "counter", "Expired records removed.", e->expired);
    single(out, "hapax_records_abandoned_total", "counter",
           "Records written down as unknown for a dead owner or a lost lease.", e->abandoned);
}

int metrics_text(struct buf *buf, const struct metrics_process *p)
{
    size_t start = buf->len;
    struct text *out = &(struct text){.out = buf};
    requests(out);
    latencies(out);
    engine_numbers(out, p->engine);
    single(out, "hapax_store_up", "gauge", "1 while the store can be used.", p->store_ok ? 1 : 0);
    single(out, "hapax_connections", "gauge", "Open client connections.", p->connections);
    single(out, "hapax_body_bytes", "gauge",
           "Request and answer bodies in memory, with what is reserved for answers.", p->body_bytes);
    single(out, "hapax_reloads_total", "counter", "Configurations taken over.", p->reloads);
    single(out, "hapax_reload_failures_total", "counter", "Configurations refused at a reload.",
           p->reload_failures);
    header(out, "hapax_start_time_seconds", "gauge", "Start of the process, seconds since 1970.");
    PUT(out, "hapax_start_time_seconds %.3f\n", (double)p->started_wall_ms / 1e3);
    if (out->rc != 0) {
        buf->len = start;
    }
    return out->rc;
}
