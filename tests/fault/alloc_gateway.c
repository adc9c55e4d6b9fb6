/* A whole gateway, from start to stop, with each of its allocations failing in turn: during one step of its life, and
 * during all of it.
 *
 * What must hold: a client gets a right answer, one that says what went wrong, or a closed connection. No key takes
 * effect twice (the upstream's book ends the program), and what a client was told still holds when it asks again:
 * at once, and after a restart on the same store. A start that fails leaves nothing, a reload that fails changes
 * nothing, on no loop. Once memory is back, all works again. */
#include "alloc.h"
#include "hapax/hapax.h"
#include "sweep.h"
#include "world.h"

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum step { START, FRESH, REPLAY, ATTACH, MISMATCH, PASSED, REFUSED, LOST, MUCH, CHAIN, RELOAD, STOP };

struct trial {
    const char *uri;
    const char *path; /* of the database; NULL: in memory */
    unsigned threads;
    const char *certificate; /* NULL: plain; clients and the chain speak TLS */
    const char *key;
    enum step first; /* allocations fail from the beginning of this step */
    enum step last;  /* to the end of this one */
};

/* One keyed request, and what clients know of it. */
struct operation {
    const char *path;
    const char *path_at_upstream;
    enum act_of_upstream act;
    bool asked;
    bool told;    /* somebody got the result */
    bool unclear; /* somebody was left without one, after which it may rightly be held */
    char result[64];
};

enum { OP_FRESH, OP_SHARED, OP_REFUSED, OP_LOST, OP_MUCH, OP_CHAIN, OPERATIONS };

static const struct operation untouched[OPERATIONS] = {
    [OP_FRESH] = {.path = "/fresh", .path_at_upstream = "/fresh", .act = ANSWERS},
    [OP_SHARED] = {.path = "/shared", .path_at_upstream = "/shared", .act = HOLDS_ANSWER_BACK},
    [OP_REFUSED] = {.path = "/dead", .path_at_upstream = "/dead", .act = ANSWERS},
    [OP_LOST] = {.path = "/lost", .path_at_upstream = "/lost", .act = BREAKS_OFF},
    [OP_MUCH] = {.path = "/much", .path_at_upstream = "/much", .act = ANSWERS_MUCH},
    [OP_CHAIN] = {.path = "/chain", .path_at_upstream = "/inner/chain", .act = ANSWERS},
};

static struct operation operations[OPERATIONS];
static bool armed;     /* allocations may fail */
static bool was_armed; /* in this run */

/* --- the fault --- */

/* Has anything failed in this run? Until then everything must be as if nothing could. */
static bool faulty(void)
{
    return was_armed && alloc_failed();
}

static void arm(void)
{
    armed = true;
    was_armed = true;
    sweep_arm();
}

static void disarm(void)
{
    if (armed) {
        armed = false;
        sweep_disarm();
    }
}

/* All of it would wait for memory as long as there is none; one failure has to be got over alone. */
static void memory_is_back(void)
{
    if (armed && !sweep_single() && alloc_failed()) {
        disarm();
    }
}

/* --- requests --- */

static const char *post(const struct operation *o, const char *body)
{
    static char text[1024];
    snprintf(text, sizeof text,
             "POST %s HTTP/1.1\r\nHost: gateway.test\r\nConnection: close\r\nIdempotency-Key: k\r\n"
             "Content-Type: application/json\r\nX-Act: %c\r\nContent-Length: %zu\r\n\r\n%s",
             o->path, world_act(o->act), strlen(body), body);
    return text;
}

static const char *post_of(struct operation *o)
{
    o->asked = true;
    return post(o, "{\"amount\": 1}");
}

static const char *plain(const char *method, const char *path)
{
    static char text[256];
    snprintf(text, sizeof text,
             "%s %s HTTP/1.1\r\nHost: gateway.test\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s",
             method, path, method[0] == 'P' ? 5 : 0, method[0] == 'P' ? "hello" : "");
    return text;
}

static size_t effects(const struct operation *o)
{
    unsigned long long last;
    return world_effects(o->path_at_upstream, &last);
}

/* --- judging --- */

static bool is_marked(const struct heard *h, const char *marker)
{
    return strcmp(h->marker, marker) == 0;
}

static bool is_type(const struct heard *h, const char *type)
{
    return strcmp(h->type, type) == 0;
}

static bool is_result(const struct heard *h)
{
    return h->status == 200 && h->type[0] == '\0' &&
           (is_marked(h, "executed") || is_marked(h, "replayed") || is_marked(h, "attached"));
}

static void judge_result(struct operation *o, const struct heard *h)
{
    unsigned long long number;
    unsigned long long last = 0;
    size_t count = world_effects(o->path_at_upstream, &last);
    int len = 0;
    CHECK(sscanf(h->body, "execution %llu.%n", &number, &len) == 1 && len > 0, "another body: %s", h->body);
    CHECK(count == 1 && number == last, "%s: the answer is not that of its one effect of %zu", o->path,
          count);
    char result[sizeof o->result];
    snprintf(result, sizeof result, "%.*s", len, h->body);
    CHECK(!o->told || strcmp(o->result, result) == 0, "%s: first %s, then %s", o->path, o->result, result);
    o->told = true;
    memcpy(o->result, result, sizeof result);
}

/* An answer to an operation's request, before which it had taken effect `before` times. */
static void judge(struct operation *o, const struct heard *h, size_t before)
{
    if (!h->whole) {
        CHECK(faulty(), "%s: no whole answer", o->path);
        o->unclear = true;
    } else if (is_result(h)) {
        judge_result(o, h);
    } else if (is_type(h, "answer-not-kept")) {
        CHECK(o->act == ANSWERS_MUCH && effects(o) == 1, "%s: not kept", o->path);
        o->told = true;
        snprintf(o->result, sizeof o->result, "%s", "execution 0.");
    } else if (is_type(h, "outcome-unknown")) {
        CHECK(!o->told, "%s: told, and now unknown", o->path);
        CHECK(o->unclear || h->status != 409, "%s: held, though nobody was left in the dark", o->path);
        CHECK(faulty() || o->act == BREAKS_OFF, "%s: unknown", o->path);
        o->unclear = true;
    } else if (is_type(h, "in-progress")) {
        CHECK(faulty() && o->act == HOLDS_ANSWER_BACK, "%s: in progress", o->path);
    } else {
        CHECK(h->status >= 500 && h->type[0] != '\0', "%s: status %d %s", o->path, h->status, h->body);
        CHECK(effects(o) == before, "%s: refused with %d, but it took effect", o->path, h->status);
        CHECK(faulty() || is_type(h, "upstream-unreachable"), "%s: status %d %s", o->path, h->status,
              h->body);
    }
}

static void expect(const struct heard *h, const char *marker, int status)
{
    CHECK(faulty() || (is_marked(h, marker) && h->status == status), "%d %s instead of %d %s: %s", h->status,
          h->marker, status, marker, h->body);
}

/* Ask again, now that memory is there: the answer is one, and fits what was told before. */
static void ask_again(struct operation *o)
{
    struct heard h;
    size_t before = effects(o);
    world_ask(&h, post_of(o));
    CHECK(h.whole, "%s: asked again, without an answer", o->path);
    bool good = is_result(&h) || is_type(&h, "outcome-unknown") || is_type(&h, "answer-not-kept") ||
                (o == &operations[OP_REFUSED] && is_type(&h, "upstream-unreachable"));
    CHECK(good, "%s: asked again: %d %s", o->path, h.status, h.body);
    judge(o, &h, before);
}

static void ask_all_again(void)
{
    for (size_t i = 0; i < OPERATIONS; i++) {
        if (operations[i].asked) {
            ask_again(&operations[i]);
        }
    }
}

/* A start or a reload failed, and must say why. OpenSSL does not always say that a file was unreadable for lack of
 * memory. */
static void judge_error(const struct trial *t, int code, const hapax_error *err)
{
    bool fits =
        code == HAPAX_E_MEMORY || code == HAPAX_E_SYSTEM ||
        (t->certificate != NULL && code == HAPAX_E_ARGUMENT && strstr(err->message, "TLS: can't") != NULL);
    CHECK(faulty() && fits, "%s: %s", hapax_error_name(code), err->message);
    CHECK(err->code == code && err->message[0] != '\0', "the error says %d %s", err->code, err->message);
}

/* --- the steps --- */

static void ask(struct operation *o, const char *marker, int status)
{
    struct heard h;
    size_t before = effects(o);
    world_ask(&h, post_of(o));
    expect(&h, marker, status);
    judge(o, &h, before);
}

static void start(const struct trial *t)
{
    hapax_error err = {0};
    int code = world_start_gateway(&err);
    if (code != 0) {
        judge_error(t, code, &err);
        disarm();
        world_prepare_gateway();
        code = world_start_gateway(&err);
        CHECK(code == 0, "can't start again: %s", err.message);
        MUST(code == 0);
    }
}

static void fresh(const struct trial *t)
{
    (void)t;
    ask(&operations[OP_FRESH], "executed", 200);
}

static void replay(const struct trial *t)
{
    (void)t;
    ask(&operations[OP_FRESH], "replayed", 200);
}

struct pair {
    struct client *first;
    struct client *second;
};

static bool first_is_held_or_over(void *ctx)
{
    const struct pair *p = ctx;
    return world_holds() || world_is_over(p->first);
}

static bool second_waits_or_is_over(void *ctx)
{
    const struct pair *p = ctx;
    return world_is_over(p->second) || world_waiters() > 0 || (world_is_over(p->first) && world_holds());
}

static bool both_are_over(void *ctx)
{
    const struct pair *p = ctx;
    world_release();
    return world_is_over(p->first) && world_is_over(p->second);
}

static void attach(const struct trial *t)
{
    (void)t;
    struct operation *o = &operations[OP_SHARED];
    struct pair p = {&world_clients[0], &world_clients[1]};
    struct heard h;
    world_send(p.first, post_of(o));
    world_until(first_is_held_or_over, &p);
    bool first_judged = world_is_over(p.first);
    if (first_judged) {
        world_hear(&h, p.first);
        judge(o, &h, 0);
    }
    size_t before = effects(o);
    world_send(p.second, post_of(o));
    world_until(second_waits_or_is_over, &p);
    world_until(both_are_over, &p);
    if (!first_judged) {
        world_hear(&h, p.first);
        expect(&h, "executed", 200);
        judge(o, &h, 0);
    }
    world_hear(&h, p.second);
    expect(&h, "attached", 200);
    judge(o, &h, before);
}

/* Only of what is known: else the other content could rightly be the first. */
static void mismatch(const struct trial *t)
{
    (void)t;
    struct operation *o = &operations[OP_FRESH];
    struct heard h;
    if (o->told) {
        world_ask(&h, post(o, "{\"amount\": 2}"));
        expect(&h, "rejected", 422);
        CHECK(!h.whole || is_type(&h, "key-reused") || (h.status >= 500 && h.type[0] != '\0'), "%d %s",
              h.status, h.body);
    }
}

static void passed_one(const char *method)
{
    struct heard h;
    world_ask(&h, plain(method, "/pass"));
    CHECK(faulty() || (h.whole && h.status == 200), "%s: %d", method, h.status);
    CHECK(!h.whole || (h.status == 200 ? strncmp(h.body, "no protection", 13) == 0 : h.type[0] != '\0'),
          "%d %s", h.status, h.body);
}

static void passed(const struct trial *t)
{
    (void)t;
    passed_one("POST");
    passed_one("GET");
}

static void refused(const struct trial *t)
{
    (void)t;
    ask(&operations[OP_REFUSED], "released", 502);
}

static void lost(const struct trial *t)
{
    (void)t;
    ask(&operations[OP_LOST], "unknown", 502);
}

static void much(const struct trial *t)
{
    (void)t;
    ask(&operations[OP_MUCH], "executed", 200);
}

/* The gateway is its own upstream, over TLS: /chain goes to /inner/chain. */
static void chain(const struct trial *t)
{
    if (t->certificate != NULL) {
        ask(&operations[OP_CHAIN], "executed", 200);
    }
}

/* No time-out is to be met, even when the machine stands still for a while. */
#define PATIENCE        "timeouts: {shutdown: 10m, header: 10m, body: 1h, send: 1h, keepalive: 1h, store: 10m}\n"
#define ROUTES_PATIENCE "lease: 1h, wait: 10m, timeout: 1d, connect_timeout: 10m"

static void write_config(const struct trial *t, bool with_new_route)
{
    char tls[1024] = "listen: 127.0.0.1:0\n";
    char chained[512] = "";
    if (t->certificate != NULL) {
        snprintf(tls, sizeof tls, "listen: 127.0.0.1:%u\ntls: {certificate: '%s', key: '%s'}\n",
                 world_reserved_port(), t->certificate, t->key);
        snprintf(chained, sizeof chained,
                 "  - {name: chain, path: /chain, to: 'https://127.0.0.1:%u/inner', ca: '%s'}\n"
                 "  - {name: inner, path: /inner}\n",
                 world_reserved_port(), t->certificate);
    }
    snprintf(
        world_config, sizeof world_config,
        "%sstore: '%s'\nthreads: %u\nlog: {level: error}\n" PATIENCE "defaults: {" ROUTES_PATIENCE
        ", keep_body: 1KiB, missing: pass, to: 'http://127.0.0.1:%u'}\n"
        "routes:\n"
        "  - {name: dead, path: /dead, to: 'http://127.0.0.1:1'}\n"
        "  - {name: fresh, path: /fresh}\n  - {name: shared, path: /shared}\n"
        "  - {name: lost, path: /lost}\n  - {name: much, path: /much}\n  - {name: pass, path: /pass}\n%s%s",
        tls, t->uri, t->threads, world_upstream_port(), chained,
        with_new_route ? "  - {name: new, path: /new}\n" : "");
}

/* On every loop: connections are spread over them. */
static void expect_new_route(bool there)
{
    enum { CONNECTIONS = 6 };
    for (int i = 0; i < CONNECTIONS; i++) {
        struct heard h;
        world_ask(&h, plain("GET", "/new"));
        CHECK(h.whole && h.status == (there ? 200 : 404), "after the reload, %d after %zu bytes", h.status,
              world_clients[0].in_len);
    }
}

static void reload(const struct trial *t)
{
    hapax_error err = {0};
    write_config(t, true);
    int code = world_reload_gateway(&err);
    disarm();
    expect_new_route(code == 0);
    if (code != 0) {
        judge_error(t, code, &err);
        code = world_reload_gateway(&err);
        CHECK(code == 0, "again: %s", err.message);
        expect_new_route(true);
    }
}

static void stop(const struct trial *t)
{
    (void)t;
    world_stop_gateway();
}

/* In order; each can be swept alone. */
static const struct {
    const char *name;
    void (*play)(const struct trial *t);
    bool with_tls; /* swept also when clients speak TLS */
} steps[] = {
    [START] = {"start", start, true},
    [FRESH] = {"fresh", fresh, true},
    [REPLAY] = {"replay", replay, false},
    [ATTACH] = {"attach", attach, false},
    [MISMATCH] = {"mismatch", mismatch, false},
    [PASSED] = {"without a key", passed, true},
    [REFUSED] = {"upstream refuses", refused, false},
    [LOST] = {"upstream breaks off", lost, false},
    [MUCH] = {"large answer", much, true},
    [CHAIN] = {"upstream over TLS", chain, true},
    [RELOAD] = {"reload", reload, true},
    [STOP] = {"stop", stop, true},
};

/* --- a run --- */

static void live_once(const struct trial *t)
{
    for (enum step s = START; s <= STOP; s++) {
        if (s == t->first) {
            arm();
        }
        steps[s].play(t);
        if (s == t->last) {
            disarm();
        }
        if (s == t->last && s < STOP && faulty()) {
            ask_all_again();
        }
    }
}

/* Whatever was told holds after a restart, too. */
static void live_again(void)
{
    hapax_error err = {0};
    world_prepare_gateway();
    MUST(world_start_gateway(&err) == 0);
    ask_all_again();
    world_stop_gateway();
}

static void run(void *ctx)
{
    const struct trial *t = ctx;
    hapax *keeper = NULL; /* of the store in memory, from one life to the next */
    was_armed = false;
    memcpy(operations, untouched, sizeof operations);
    world_forget_effects();
    write_config(t, false);
    world_speaks_tls = t->certificate != NULL;
    if (t->path == NULL) {
        MUST(hapax_open(&keeper, t->uri, NULL, NULL) == 0);
    }
    world_prepare_gateway();
    live_once(t);
    disarm();
    if (t->path != NULL || t->last == STOP) { /* else it has been asked, and kept in memory */
        live_again();
    }
    hapax_close(keeper);
    if (t->path != NULL) {
        sweep_remove(t->path);
    }
}

static void sweep_steps(const char *trial, struct trial t, const char *steps_name, enum step first,
                        enum step last)
{
    char name[96];
    snprintf(name, sizeof name, "%s: %s", trial, steps_name);
    t.first = first;
    t.last = last;
    sweep(name, run, &t);
}

static void sweep_trial(const char *name, struct trial t)
{
    bool tls = t.certificate != NULL;
    for (enum step s = START; s <= STOP; s++) {
        if (tls ? steps[s].with_tls : s != CHAIN) {
            sweep_steps(name, t, steps[s].name, s, s);
        }
    }
    sweep_steps(name, t, "from start to stop", START, STOP);
}

static void make_certificate(const char *certificate, const char *key)
{
    char command[1024];
    snprintf(command, sizeof command,
             "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=swept "
             "-addext subjectAltName=IP:127.0.0.1 -out '%s' -keyout '%s' 2>/dev/null",
             certificate, key);
    MUST(system(command) == 0);
}

int main(int argc, char **argv)
{
    static const struct injector injector = {"allocation", alloc_arm, alloc_disarm, alloc_seen};
    sweep_begin(argc, argv, &injector);
    sweep_thin(2);
    sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0);
    sqlite3_config(SQLITE_CONFIG_LOOKASIDE, 0, 0); /* what SQLite takes from its own reserve can't fail */
    world_open();
    world_when_quiet(memory_is_back);
    char path[160];
    char uri[176];
    char certificate[160];
    char key[160];
    snprintf(path, sizeof path, "%s/hapax.db", sweep_folder());
    snprintf(uri, sizeof uri, "sqlite:%s", path);
    snprintf(certificate, sizeof certificate, "%s/certificate.pem", sweep_folder());
    snprintf(key, sizeof key, "%s/key.pem", sweep_folder());
    make_certificate(certificate, key);
    sweep_trial("memory", (struct trial){.uri = "memory:swept", .threads = 2});
    sweep_trial("sqlite", (struct trial){.uri = uri, .path = path, .threads = 1});
    sweep_trial("tls",
                (struct trial){.uri = "memory:swept", .threads = 2, .certificate = certificate, .key = key});
    unlink(certificate);
    unlink(key);
    world_close();
    return sweep_end();
}
