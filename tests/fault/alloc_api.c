/* Every public call of hapax/hapax.h, on both stores, with each of its allocations failing in turn.
 *
 * What must hold: a call that returns 0 did what it says. One that returns an error says that memory ran out,
 * changed nothing that another handle or a later open could see, and works when it is repeated. */
#include "alloc.h"
#include "hapax/hapax.h"
#include "sweep.h"

#include "engine/engine.h"

#include <pthread.h>
#include <semaphore.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SCOPE "test"
#define KEY   "the key"

/* One call, on a store in which `before` stands under KEY. */
struct call {
    const char *name;
    hapax_state before;
    hapax_state after;
    const char *answer; /* of a done record, after */
    int (*make)(hapax *h, const hapax_claim *claim, hapax_error *err);
};

struct trial {
    const struct call *call;
    const char *uri;
    const char *path; /* NULL: in memory */
};

static hapax *opened(const char *uri)
{
    hapax *h = NULL;
    hapax_error err = {0};
    if (hapax_open(&h, uri, NULL, &err) != 0) {
        CHECK(h != NULL, "can't be opened: %s", err.message);
        MUST(h != NULL);
    }
    return h;
}

static int begin_waiting(hapax *h, const char *content, int take_over, int64_t wait_ms, hapax_result *out,
                         hapax_error *err)
{
    hapax_request r = {.size = sizeof r,
                       .scope = SCOPE,
                       .key = KEY,
                       .content = content,
                       .content_bytes = strlen(content),
                       .take_over = take_over,
                       .wait_ms = wait_ms,
                       .heartbeat = 1};
    return hapax_begin(h, &r, out, err);
}

static int begin_on(hapax *h, const char *content, int take_over, hapax_result *out, hapax_error *err)
{
    return begin_waiting(h, content, take_over, 0, out, err);
}

/* --- the calls --- */

static bool is_zero(const void *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        if (((const unsigned char *)bytes)[i] != 0) {
            return false;
        }
    }
    return true;
}

static int begin_and_expect(hapax *h, const char *content, int take_over, hapax_verdict verdict,
                            const char *answer, hapax_error *err)
{
    hapax_result r;
    memset(&r, 0xa5, sizeof r);
    int code = begin_on(h, content, take_over, &r, err);
    if (code != 0) {
        CHECK(is_zero(&r, sizeof r), "an error leaves something in the result");
        return code;
    }
    CHECK(r.verdict == verdict, "verdict %d", (int)r.verdict);
    CHECK((r.answer != NULL) == (answer != NULL), "an answer, or none");
    if (r.answer != NULL && answer != NULL) {
        size_t bytes;
        const void *data = hapax_answer_data(r.answer, &bytes);
        CHECK(bytes == strlen(answer) && memcmp(data, answer, bytes) == 0, "another answer");
    }
    hapax_answer_free(r.answer);
    return 0;
}

static int begin_fresh(hapax *h, const hapax_claim *claim, hapax_error *err)
{
    (void)claim;
    return begin_and_expect(h, "content", 0, HAPAX_FRESH, NULL, err);
}

static int begin_replay(hapax *h, const hapax_claim *claim, hapax_error *err)
{
    (void)claim;
    return begin_and_expect(h, "content", 0, HAPAX_REPLAY, "answer", err);
}

static int begin_mismatch(hapax *h, const hapax_claim *claim, hapax_error *err)
{
    (void)claim;
    return begin_and_expect(h, "other content", 0, HAPAX_MISMATCH, NULL, err);
}

static int begin_in_progress(hapax *h, const hapax_claim *claim, hapax_error *err)
{
    (void)claim;
    return begin_and_expect(h, "content", 0, HAPAX_IN_PROGRESS, NULL, err);
}

static int begin_unknown(hapax *h, const hapax_claim *claim, hapax_error *err)
{
    (void)claim;
    return begin_and_expect(h, "content", 0, HAPAX_UNKNOWN, NULL, err);
}

static int begin_take_over(hapax *h, const hapax_claim *claim, hapax_error *err)
{
    (void)claim;
    return begin_and_expect(h, "content", 1, HAPAX_FRESH, NULL, err);
}

static int complete(hapax *h, const hapax_claim *claim, hapax_error *err)
{
    return hapax_complete(h, claim, "answer", 6, err);
}

static int release(hapax *h, const hapax_claim *claim, hapax_error *err)
{
    return hapax_release(h, claim, err);
}

static int lose(hapax *h, const hapax_claim *claim, hapax_error *err)
{
    return hapax_lose(h, claim, err);
}

static int extend(hapax *h, const hapax_claim *claim, hapax_error *err)
{
    return hapax_extend(h, claim, 60000, err);
}

static int look_up(hapax *h, const hapax_claim *claim, hapax_error *err)
{
    (void)claim;
    hapax_record r;
    memset(&r, 0xa5, sizeof r);
    int code = hapax_lookup(h, SCOPE, KEY, &r, err);
    CHECK(code == 0 || is_zero(&r, sizeof r), "an error leaves something in the record");
    CHECK(code != 0 || (r.state == HAPAX_DONE && r.answer != NULL), "state %d", (int)r.state);
    hapax_answer_free(code == 0 ? r.answer : NULL);
    return code;
}

static int resolve_done(hapax *h, const hapax_claim *claim, hapax_error *err)
{
    (void)claim;
    return hapax_resolve(h, SCOPE, KEY, "found out", 9, err);
}

static int resolve_released(hapax *h, const hapax_claim *claim, hapax_error *err)
{
    (void)claim;
    return hapax_resolve(h, SCOPE, KEY, NULL, 0, err);
}

static int forget(hapax *h, const hapax_claim *claim, hapax_error *err)
{
    (void)claim;
    return hapax_forget(h, SCOPE, KEY, err);
}

static const struct call calls[] = {
    {"begin, fresh", HAPAX_ABSENT, HAPAX_RUNNING, NULL, begin_fresh},
    {"begin, replay", HAPAX_DONE, HAPAX_DONE, "answer", begin_replay},
    {"begin, mismatch", HAPAX_DONE, HAPAX_DONE, "answer", begin_mismatch},
    {"begin, in progress", HAPAX_RUNNING, HAPAX_RUNNING, NULL, begin_in_progress},
    {"begin, unknown", HAPAX_UNKNOWN_OUTCOME, HAPAX_UNKNOWN_OUTCOME, NULL, begin_unknown},
    {"begin, take over", HAPAX_UNKNOWN_OUTCOME, HAPAX_RUNNING, NULL, begin_take_over},
    {"complete", HAPAX_RUNNING, HAPAX_DONE, "answer", complete},
    {"release", HAPAX_RUNNING, HAPAX_ABSENT, NULL, release},
    {"lose", HAPAX_RUNNING, HAPAX_UNKNOWN_OUTCOME, NULL, lose},
    {"extend", HAPAX_RUNNING, HAPAX_RUNNING, NULL, extend},
    {"lookup", HAPAX_DONE, HAPAX_DONE, "answer", look_up},
    {"resolve as done", HAPAX_UNKNOWN_OUTCOME, HAPAX_DONE, "found out", resolve_done},
    {"resolve as released", HAPAX_UNKNOWN_OUTCOME, HAPAX_ABSENT, NULL, resolve_released},
    {"forget", HAPAX_DONE, HAPAX_ABSENT, NULL, forget},
};

/* --- judging --- */

static void expect_state(hapax *h, hapax_state state, const char *answer, const char *when)
{
    hapax_record r;
    hapax_error err = {0};
    int code = hapax_lookup(h, SCOPE, KEY, &r, &err);
    CHECK(code == 0 || code == HAPAX_E_NOT_FOUND, "%s: lookup: %s", when, err.message);
    hapax_state found = code == 0 ? r.state : HAPAX_ABSENT;
    CHECK(found == state, "%s: state %d instead of %d", when, (int)found, (int)state);
    if (found == HAPAX_DONE && answer != NULL) {
        size_t bytes;
        const void *data = hapax_answer_data(r.answer, &bytes);
        CHECK(bytes == strlen(answer) && memcmp(data, answer, bytes) == 0, "%s: another answer", when);
    }
    hapax_answer_free(code == 0 ? r.answer : NULL);
}

static void bring_about(hapax *h, hapax_state state, hapax_claim *claim)
{
    hapax_result r = {0};
    if (state != HAPAX_ABSENT) {
        MUST(begin_on(h, "content", 0, &r, NULL) == 0 && r.verdict == HAPAX_FRESH);
    }
    *claim = r.claim;
    if (state == HAPAX_DONE) {
        MUST(hapax_complete(h, claim, "answer", 6, NULL) == 0);
    } else if (state == HAPAX_UNKNOWN_OUTCOME) {
        MUST(hapax_lose(h, claim, NULL) == 0);
    }
}

/* As it stands once its owner is gone. */
static hapax_state left_behind(hapax_state state)
{
    return state == HAPAX_RUNNING ? HAPAX_UNKNOWN_OUTCOME : state;
}

static void clean_up(const struct trial *t)
{
    if (t->path != NULL) {
        sweep_remove(t->path);
    }
}

/* The call is made on a handle that has done nothing yet; another one holds the claim and looks on. */
static void run_call(void *ctx)
{
    const struct trial *t = ctx;
    const struct call *call = t->call;
    hapax *onlooker = opened(t->uri);
    hapax_claim claim;
    bring_about(onlooker, call->before, &claim);
    hapax *h = opened(t->uri);

    hapax_error err = {0};
    sweep_arm();
    int code = call->make(h, &claim, &err);
    sweep_disarm();
    CHECK(code == 0 || code == HAPAX_E_MEMORY, "%s: %s", hapax_error_name(code), err.message);
    CHECK(code == 0 || err.code == code, "the error says %d", err.code);
    expect_state(onlooker, code == 0 ? call->after : call->before, call->answer, "at once");
    if (code != 0) {
        code = call->make(h, &claim, &err);
        CHECK(code == 0, "again: %s", err.message);
        expect_state(onlooker, call->after, call->answer, "again");
    }
    hapax_close(h);
    hapax_close(onlooker);
    if (t->path != NULL) {
        hapax *later = opened(t->uri);
        expect_state(later, left_behind(call->after), call->answer, "afresh");
        hapax_close(later);
    }
    clean_up(t);
}

/* --- attach --- */

enum { WAIT_MS = 600000 }; /* never over: the first one ends */

struct second {
    hapax *h;
    sem_t go;
    _Atomic(bool) over;
    int code;
    hapax_result result;
    hapax_error err;
};

static void *begin_second(void *ctx)
{
    struct second *s = ctx;
    while (sem_wait(&s->go) != 0) {
    }
    s->code = begin_waiting(s->h, "content", 0, WAIT_MS, &s->result, &s->err);
    atomic_store(&s->over, true);
    return NULL;
}

/* Until it waits for the first one, or can't. */
static void let_it_wait(struct second *s)
{
    struct engine_stats stats = {0};
    while (stats.waiters == 0 && !atomic_load(&s->over)) {
        engine_stats(engine_of_handle(s->h), &stats);
        usleep(100);
    }
}

static void judge_second(struct second *s)
{
    if (s->code == 0) {
        size_t bytes;
        CHECK(s->result.verdict == HAPAX_ATTACHED && s->result.answer != NULL, "verdict %d",
              (int)s->result.verdict);
        const void *data = s->result.answer != NULL ? hapax_answer_data(s->result.answer, &bytes) : NULL;
        CHECK(data == NULL || (bytes == 6 && memcmp(data, "answer", bytes) == 0), "another answer");
        hapax_answer_free(s->result.answer);
        return;
    }
    CHECK(s->code == HAPAX_E_MEMORY && s->err.code == s->code, "%s: %s", hapax_error_name(s->code),
          s->err.message);
    CHECK(is_zero(&s->result, sizeof s->result), "an error leaves something in the result");
    int code = begin_and_expect(s->h, "content", 0, HAPAX_REPLAY, "answer", &s->err);
    CHECK(code == 0, "again: %s", s->err.message);
}

/* A second caller waits for the first one, on another thread, and both may fail for lack of memory. */
static void run_attach(void *ctx)
{
    const struct trial *t = ctx;
    hapax_error err = {0};
    hapax_claim claim;
    pthread_t thread;
    struct second s = {.h = opened(t->uri)};
    bring_about(s.h, HAPAX_RUNNING, &claim);
    sem_init(&s.go, 0, 0);
    MUST(pthread_create(&thread, NULL, begin_second, &s) == 0);
    sweep_arm();
    sem_post(&s.go);
    let_it_wait(&s);
    int code = hapax_complete(s.h, &claim, "answer", 6, &err);
    if (code != 0) {
        CHECK(code == HAPAX_E_MEMORY, "complete: %s", err.message);
        sweep_disarm();
        code = hapax_complete(s.h, &claim, "answer", 6, &err);
        CHECK(code == 0, "complete again: %s", err.message);
        MUST(code == 0);
    }
    pthread_join(thread, NULL);
    sweep_disarm();
    judge_second(&s);
    expect_state(s.h, HAPAX_DONE, "answer", "at once");
    sem_destroy(&s.go);
    hapax_close(s.h);
    clean_up(t);
}

/* --- open and close --- */

static void run_open(void *ctx)
{
    const struct trial *t = ctx;
    hapax_state before = t->call->before;
    if (before != HAPAX_ABSENT) { /* of an owner that is dead */
        hapax *first = opened(t->uri);
        hapax_claim claim;
        bring_about(first, before, &claim);
        hapax_close(first);
    }
    hapax_error err = {0};
    hapax *h = (hapax *)&err;
    sweep_arm();
    int code = hapax_open(&h, t->uri, NULL, &err);
    sweep_disarm();
    CHECK(code == 0 || code == HAPAX_E_MEMORY || code == HAPAX_E_SYSTEM, "%s: %s", hapax_error_name(code),
          err.message);
    CHECK(code == 0 || h == NULL, "an error leaves a handle");
    h = code != 0 ? opened(t->uri) : h;
    expect_state(h, left_behind(before), NULL, "afresh");
    hapax_close(h);
    clean_up(t);
}

static void run_close(void *ctx)
{
    const struct trial *t = ctx;
    hapax *h = opened(t->uri);
    hapax_claim claim;
    bring_about(h, t->call->before, &claim);
    sweep_arm();
    hapax_close(h);
    sweep_disarm();
    if (t->path != NULL) {
        h = opened(t->uri);
        expect_state(h, left_behind(t->call->before), "answer", "afresh");
        hapax_close(h);
    }
    clean_up(t);
}

/* --- all of them --- */

static void sweep_store(const char *store, const char *uri, const char *path)
{
    static const struct call absent = {.before = HAPAX_ABSENT};
    static const struct call running = {.before = HAPAX_RUNNING};
    static const struct call done = {.before = HAPAX_DONE};
    struct trial t = {.uri = uri, .path = path};
    char name[96];
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        t.call = &calls[i];
        snprintf(name, sizeof name, "%s: %s", store, t.call->name);
        sweep(name, run_call, &t);
    }
    snprintf(name, sizeof name, "%s: attach", store);
    sweep(name, run_attach, &t);
    t.call = &absent;
    snprintf(name, sizeof name, "%s: open a new one", store);
    sweep(name, run_open, &t);
    if (path != NULL) {
        t.call = &running;
        snprintf(name, sizeof name, "%s: open after a death", store);
        sweep(name, run_open, &t);
    }
    t.call = &done;
    snprintf(name, sizeof name, "%s: close", store);
    sweep(name, run_close, &t);
}

int main(int argc, char **argv)
{
    static const struct injector injector = {"allocation", alloc_arm, alloc_disarm, alloc_seen};
    sweep_begin(argc, argv, &injector);
    sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0);
    sqlite3_config(SQLITE_CONFIG_LOOKASIDE, 0, 0); /* what SQLite takes from its own reserve can't fail */
    char path[160];
    char uri[176];
    snprintf(path, sizeof path, "%s/hapax.db", sweep_folder());
    snprintf(uri, sizeof uri, "sqlite:%s", path);
    sweep_store("memory", "memory:swept", NULL);
    sweep_store("sqlite", uri, path);
    return sweep_end();
}
