/* The threads of `hapax bench`, and what the main thread does meanwhile: it waits, shows progress and reads the
 * counters. Threads share nothing but the flags in struct run; each measures into histograms of its own. */
#include "cli/bench.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/limits.h"
#include "engine/engine.h"
#include "engine/lane.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#define STACK_BYTES     (256U * 1024U)
#define FILL_THREADS    LIMIT_BATCH_OPS_MAX /* so that one commit carries as many as it can */
#define REPEAT_DISTANCE 16 /* a repeat takes the key that its thread completed this many keys ago */
#define LEASE_MS        (10LL * 60 * 1000)
#define PROGRESS_MS     200
#define KEY_BYTES       48

/* --- signals --- */

static volatile sig_atomic_t asked_to_stop;

static void on_signal(int number)
{
    (void)number;
    asked_to_stop = 1;
}

void bench_watch_signals(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

/* --- one thread --- */

struct run {
    const struct bench_plan *plan;
    hapax *handle;
    char *body;
    uint64_t nonce; /* tells this run's keys from those of others on the same store */
    atomic_bool stop;
    atomic_uint_fast64_t made; /* records, all threads */
    uint64_t made_max;
    pthread_mutex_t lock; /* guards code and err */
    int code;
    hapax_error err;
};

struct worker {
    struct run *run;
    pthread_t thread;
    unsigned number;
    unsigned repeats;
    uint64_t fresh;  /* keys completed */
    uint64_t turned; /* operations */
    struct bench_found found;
};

static void fail(struct run *r, int code, const hapax_error *err)
{
    pthread_mutex_lock(&r->lock);
    if (r->code == 0) {
        r->code = code;
        r->err = *err;
    }
    pthread_mutex_unlock(&r->lock);
    atomic_store(&r->stop, true);
}

/* Claim key `number` of this thread, which must come out as `expected`. */
static int begin(struct worker *w, uint64_t number, hapax_verdict expected, hapax_claim *claim)
{
    struct run *r = w->run;
    char key[KEY_BYTES];
    snprintf(key, sizeof key, "%016llx-%u-%llu", (unsigned long long)r->nonce, w->number,
             (unsigned long long)number);
    hapax_request request = {.size = sizeof request,
                             .scope = BENCH_SCOPE,
                             .key = key,
                             .content = r->body,
                             .content_bytes = r->plan->body_bytes,
                             .lease_ms = LEASE_MS,
                             .ttl_ms = r->plan->ttl_ms};
    hapax_result result;
    hapax_error err = {0};
    int code = hapax_begin(r->handle, &request, &result, &err);
    if (code == 0 && result.verdict != expected) {
        code = error_set(&err, HAPAX_E_CONFLICT, 0, "key %s: verdict %d instead of %d", key,
                         (int)result.verdict, (int)expected);
    }
    if (code != 0) {
        fail(r, code, &err);
        return code;
    }
    *claim = result.claim;
    hapax_answer_free(result.answer);
    return 0;
}

static int make_pair(struct worker *w)
{
    struct run *r = w->run;
    hapax_claim claim;
    int64_t start = clock_mono_us();
    int code = begin(w, w->fresh + 1, HAPAX_FRESH, &claim);
    if (code != 0) {
        return code;
    }
    int64_t claimed = clock_mono_us();
    hapax_error err = {0};
    code = hapax_complete(r->handle, &claim, r->body, r->plan->body_bytes, &err);
    if (code != 0) {
        fail(r, code, &err);
        return code;
    }
    int64_t end = clock_mono_us();
    w->fresh++;
    histogram_add(&w->found.claim, claimed - start);
    histogram_add(&w->found.complete, end - claimed);
    histogram_add(&w->found.pair, end - start);
    return 0;
}

static int make_replay(struct worker *w)
{
    hapax_claim claim;
    int64_t start = clock_mono_us();
    uint64_t number = w->fresh > REPEAT_DISTANCE ? w->fresh - REPEAT_DISTANCE : 1;
    int code = begin(w, number, HAPAX_REPLAY, &claim);
    if (code == 0) {
        histogram_add(&w->found.replay, clock_mono_us() - start);
    }
    return code;
}

static void *work(void *arg)
{
    struct worker *w = arg;
    struct run *r = w->run;
    int code = 0;
    while (code == 0 && !atomic_load_explicit(&r->stop, memory_order_relaxed)) {
        w->turned++;
        if (w->fresh > 0 && w->turned * w->repeats % 100 < w->repeats) {
            code = make_replay(w);
        } else if (atomic_fetch_add(&r->made, 1) < r->made_max) {
            code = make_pair(w);
        } else {
            break;
        }
    }
    return NULL;
}

/* --- all threads --- */

static int start_workers(struct worker *workers, unsigned count, hapax_error *err)
{
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    unsigned started = 0;
    int rc = 0;
    while (started < count && rc == 0) {
        rc = pthread_create(&workers[started].thread, &attributes, work, &workers[started]);
        started += rc == 0;
    }
    pthread_attr_destroy(&attributes);
    if (rc == 0) {
        return 0;
    }
    atomic_store(&workers[0].run->stop, true);
    for (unsigned i = 0; i < started; i++) {
        pthread_join(workers[i].thread, NULL);
    }
    return error_set(err, HAPAX_E_SYSTEM, rc, "can't start thread %u of %u: %s", started + 1, count,
                     strerror(rc));
}

static void show(const struct run *r, const char *what, uint64_t part, uint64_t whole)
{
    if (r->plan->progress) {
        fprintf(stderr, "\r\033[K%s %llu of %llu", what, (unsigned long long)part, (unsigned long long)whole);
        fflush(stderr);
    }
}

static void end_show(const struct run *r)
{
    if (r->plan->progress) {
        fputs("\r\033[K", stderr);
    }
}

/* Until the time, the records or the user's patience is over, or a call failed. `seconds` 0: no time. */
static void wait_for_end(struct run *r, uint64_t seconds)
{
    int64_t start = clock_mono_ms();
    int64_t shown = start;
    int64_t end = start + (int64_t)seconds * 1000;
    for (;;) {
        int64_t now = clock_mono_ms();
        uint64_t made = atomic_load(&r->made);
        if (asked_to_stop || atomic_load(&r->stop) || made >= r->made_max || (seconds > 0 && now >= end)) {
            break;
        }
        if (now - shown >= PROGRESS_MS) {
            shown = now;
            show(r, seconds > 0 ? "measuring: second" : "filling: record",
                 seconds > 0 ? (uint64_t)(now - start) / 1000 : made, seconds > 0 ? seconds : r->made_max);
        }
        int64_t left_ms = seconds > 0 && end - now < 20 ? end - now : 20;
        nanosleep(&(struct timespec){.tv_nsec = left_ms * 1000000}, NULL);
    }
    end_show(r);
    if (seconds > 0 || asked_to_stop) {
        atomic_store(&r->stop, true);
    }
}

/* Start the threads, let them run, add up what they found. */
static int run_workers(struct run *r, struct worker *workers, unsigned count, uint64_t seconds,
                       struct bench_found *out, hapax_error *err)
{
    int code = start_workers(workers, count, err);
    if (code != 0) {
        return code;
    }
    wait_for_end(r, seconds);
    for (unsigned i = 0; i < count; i++) {
        pthread_join(workers[i].thread, NULL);
        histogram_merge(&out->claim, &workers[i].found.claim);
        histogram_merge(&out->complete, &workers[i].found.complete);
        histogram_merge(&out->pair, &workers[i].found.pair);
        histogram_merge(&out->replay, &workers[i].found.replay);
    }
    out->interrupted = asked_to_stop;
    if (r->code != 0) {
        *err = r->err;
    }
    return r->code;
}

/* A round of `count` threads that makes at most `made_max` records. */
static int run_round(struct run *r, unsigned count, uint64_t made_max, uint64_t seconds,
                     struct bench_found *out, hapax_error *err)
{
    struct worker *workers = calloc(count, sizeof *workers);
    if (workers == NULL) {
        return error_code(err, HAPAX_E_MEMORY);
    }
    /* A number for each round: the keys of the filling must not come again. */
    if (getrandom(&r->nonce, sizeof r->nonce, 0) != (ssize_t)sizeof r->nonce) {
        free(workers);
        return error_set(err, HAPAX_E_SYSTEM, 0, "the system gives no random numbers");
    }
    for (unsigned i = 0; i < count; i++) {
        workers[i].run = r;
        workers[i].number = i;
        workers[i].repeats = seconds > 0 ? r->plan->repeats : 0;
    }
    atomic_store(&r->made, 0);
    atomic_store(&r->stop, false);
    r->made_max = made_max;
    int code = run_workers(r, workers, count, seconds, out, err);
    free(workers);
    return code;
}

/* --- the whole --- */

static uint64_t written_bytes(void)
{
    unsigned long long bytes = 0;
    char line[128];
    FILE *file = fopen("/proc/self/io", "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, "write_bytes:", strlen("write_bytes:")) == 0) {
            bytes = strtoull(line + strlen("write_bytes:"), NULL, 10);
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return bytes;
}

static int measure(struct run *r, struct bench_found *out, hapax_error *err)
{
    const struct bench_plan *plan = r->plan;
    struct engine_stats before;
    struct engine_stats after;
    engine_stats(engine_of_handle(r->handle), &before);
    uint64_t written = written_bytes();
    int64_t start = clock_mono_us();
    int code = run_round(r, plan->threads, plan->records_max - plan->keys_before, plan->seconds, out, err);
    out->elapsed_us = clock_mono_us() - start;
    out->written_bytes = written_bytes() - written;
    engine_stats(engine_of_handle(r->handle), &after);
    out->batches = after.batches - before.batches;
    out->batch_ops = after.batch_ops - before.batch_ops;
    out->lanes = engine_lane_count(engine_of_handle(r->handle));
    out->full = !out->interrupted && atomic_load(&r->made) >= r->made_max;
    return code;
}

static int fill_and_measure(struct run *r, struct bench_found *out, hapax_error *err)
{
    if (r->plan->keys_before > 0) {
        struct bench_found ignored = {0};
        int code = run_round(r, FILL_THREADS, r->plan->keys_before, 0, &ignored, err);
        out->interrupted = ignored.interrupted;
        if (code != 0 || out->interrupted) {
            return code;
        }
    }
    return measure(r, out, err);
}

int bench_run(struct bench_found *out, const struct bench_plan *plan, hapax_error *err)
{
    memset(out, 0, sizeof *out);
    struct run r = {.plan = plan, .lock = PTHREAD_MUTEX_INITIALIZER};
    r.body = malloc(plan->body_bytes + 1);
    if (r.body == NULL) {
        return error_code(err, HAPAX_E_MEMORY);
    }
    memset(r.body, 'b', plan->body_bytes);
    int code = hapax_open(&r.handle, plan->uri, NULL, err);
    if (code == 0) {
        code = fill_and_measure(&r, out, err);
        hapax_close(r.handle);
    }
    free(r.body);
    return code;
}
