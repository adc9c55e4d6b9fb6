/* The public, blocking API over the engine's lanes: each call is one op on the caller's stack, which sleeps until the
 * lane has answered it. */
#include "hapax/hapax.h"

#include "base/assert.h"
#include "base/digest.h"
#include "base/error.h"
#include "base/sized.h"
#include "core/identity.h"
#include "engine/engine.h"

#include <linux/futex.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LEASE_MS_DEFAULT 30000
#define TTL_MS_DEFAULT   (24LL * 3600 * 1000)

/* A lane that woke every caller of a batch by itself would do little else: waking takes several times as long as the
 * operation. So it wakes one, who wakes two more on its way out, and so on. */
enum { WAKE_TOGETHER = 256 };

struct hapax {
    struct engine *engine;
    struct engine_port port; /* emptied by whichever lane has filled it */
};

/* --- one op, waited for --- */

struct call {
    struct engine_op op;
    _Atomic(uint32_t) answered; /* a futex */
    struct call *next[2];       /* to be woken by this call's thread */
};

static void wake_caller(struct call *c)
{
    _Atomic(uint32_t) *word = &c->answered;
    atomic_store(word, 1);
    /* From here on the caller may have returned: only the address is used, and a wake-up for nobody, or for another
     * call that now lives there, does no harm. */
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static void note_answer(struct engine_op *op)
{
    (void)op; /* wake_callers() does the rest */
}

/* On a lane, with answered ops in the port: they become a tree, in the order of a heap. */
static void wake_callers(void *ctx)
{
    hapax *h = ctx;
    struct queue_node *node = queue_take(&h->port.queue);
    while (node != NULL) {
        struct call *calls[WAKE_TOGETHER];
        size_t n = 0;
        for (; node != NULL && n < WAKE_TOGETHER; node = node->next) {
            calls[n++] = ((struct engine_op *)node)->user;
        }
        for (size_t i = n; i-- > 0;) {
            calls[i]->next[0] = 2 * i + 1 < n ? calls[2 * i + 1] : NULL;
            calls[i]->next[1] = 2 * i + 2 < n ? calls[2 * i + 2] : NULL;
        }
        wake_caller(calls[0]);
    }
}

static int run_call(hapax *h, struct call *c, hapax_error *err)
{
    c->op.port = &h->port;
    c->op.done = note_answer;
    c->op.user = c;
    int code = engine_submit_and_help(h->engine, &c->op);
    if (code != 0) {
        return error_code(err, code);
    }
    while (atomic_load(&c->answered) == 0) {
        syscall(SYS_futex, &c->answered, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
    }
    for (int i = 0; i < 2; i++) {
        if (c->next[i] != NULL) {
            wake_caller(c->next[i]);
        }
    }
    if (c->op.code != 0 && err != NULL) {
        *err = c->op.error;
    }
    return c->op.code;
}

/* --- arguments --- */

static int take_identity(struct engine_op *op, const char *scope, const char *key, hapax_error *err)
{
    if (scope == NULL || key == NULL) {
        return error_set(err, HAPAX_E_ARGUMENT, 0, "the scope or the key is NULL");
    }
    op->scope = slice_text(scope);
    op->key = slice_text(key);
    return identity_make(&op->id, op->scope, op->key, err);
}

static int take_claim(struct engine_op *op, const hapax_claim *claim, hapax_error *err)
{
    if (claim == NULL || claim->serial == 0 || claim->attempt == 0) {
        return error_set(err, HAPAX_E_ARGUMENT, 0, "this is no claim of hapax_begin");
    }
    memcpy(op->id.bytes, claim->identity, IDENTITY_BYTES);
    op->fence = (struct fence){.serial = claim->serial, .attempt = claim->attempt};
    return 0;
}

/* A new answer with one reference, owned by the caller. */
static int take_answer(struct answer **out, const void *answer, size_t bytes, hapax_error *err)
{
    *out = NULL;
    if (answer == NULL && bytes > 0) {
        return error_set(err, HAPAX_E_ARGUMENT, 0, "the answer is NULL but has bytes");
    }
    if (bytes > HAPAX_ANSWER_BYTES_MAX) {
        return error_set(err, HAPAX_E_LIMIT, 0, "the answer is larger than %u bytes", HAPAX_ANSWER_BYTES_MAX);
    }
    *out = answer_make(0, true, SLICE_LITERAL(""), slice_of(bytes > 0 ? answer : "", bytes));
    return *out != NULL ? 0 : error_code(err, HAPAX_E_MEMORY);
}

static void give_claim(hapax_claim *out, const struct identity *id, struct fence fence)
{
    memcpy(out->identity, id->bytes, IDENTITY_BYTES);
    out->serial = fence.serial;
    out->attempt = fence.attempt;
}

/* --- life --- */

int hapax_open(hapax **out, const char *uri, const hapax_options *options, hapax_error *err)
{
    if (out == NULL) {
        return error_code(err, HAPAX_E_ARGUMENT);
    }
    *out = NULL;
    hapax_options o = {.size = sizeof o};
    int code = options != NULL ? sized_take(&o, sizeof o, options, options->size, err) : 0;
    if (code != 0) {
        return code;
    }
    if (uri == NULL || o.busy_ms < 0 || o.replay_cache_bytes > SIZE_MAX / 2) {
        return error_set(err, HAPAX_E_ARGUMENT, 0, "no URI, or an option is out of its range");
    }
    hapax *h = calloc(1, sizeof(*h));
    if (h == NULL) {
        return error_code(err, HAPAX_E_MEMORY);
    }
    struct engine_options engine = {
        .store_uri = uri,
        .replay_cache_bytes = o.replay_cache_bytes,
        .waiters_max = o.threads_waiting_max,
        .store = {.busy_ms = o.busy_ms, .allow_unsafe = o.allow_unsafe_store != 0},
    };
    engine_port_init(&h->port, wake_callers, h);
    code = engine_open(&h->engine, &engine, err);
    if (code != 0) {
        free(h);
        return code;
    }
    *out = h;
    return 0;
}

void hapax_close(hapax *h)
{
    if (h != NULL) {
        engine_close(h->engine);
        free(h);
    }
}

struct engine *engine_of_handle(const hapax *h)
{
    return h->engine;
}

/* --- begin --- */

static int check_request(const hapax_request *r, hapax_error *err)
{
    if (r->lease_ms < 0 || r->ttl_ms < 0 || r->wait_ms < 0) {
        return error_set(err, HAPAX_E_ARGUMENT, 0, "a duration is negative");
    }
    if (r->content == NULL && r->content_bytes > 0) {
        return error_set(err, HAPAX_E_ARGUMENT, 0, "the content is NULL but has bytes");
    }
    return 0;
}

static int fingerprint_bytes(struct fingerprint *out, const void *content, size_t bytes, hapax_error *err)
{
    uint8_t digest[DIGEST_BYTES];
    if (digest_sha256(digest, slice_of(content, bytes)) != 0) {
        return error_code(err, HAPAX_E_MEMORY);
    }
    out->version = FINGERPRINT_VERSION;
    memcpy(out->bytes, digest, FINGERPRINT_BYTES);
    return 0;
}

static hapax_verdict public_verdict(enum engine_verdict v)
{
    switch (v) {
    case VERDICT_FRESH:
        return HAPAX_FRESH;
    case VERDICT_REPLAY:
        return HAPAX_REPLAY;
    case VERDICT_ATTACHED:
        return HAPAX_ATTACHED;
    case VERDICT_IN_PROGRESS:
        return HAPAX_IN_PROGRESS;
    case VERDICT_MISMATCH:
        return HAPAX_MISMATCH;
    case VERDICT_UNKNOWN:
        break;
    }
    return HAPAX_UNKNOWN;
}

int hapax_begin(hapax *h, const hapax_request *request, hapax_result *out, hapax_error *err)
{
    if (h == NULL || request == NULL || out == NULL) {
        return error_code(err, HAPAX_E_ARGUMENT);
    }
    memset(out, 0, sizeof *out);
    hapax_request r;
    struct call c = {.op.kind = ENGINE_BEGIN};
    int code = sized_take(&r, sizeof r, request, request->size, err);
    if (code == 0) {
        code = check_request(&r, err);
    }
    if (code == 0) {
        code = take_identity(&c.op, r.scope, r.key, err);
    }
    if (code == 0 && r.content != NULL) {
        code = fingerprint_bytes(&c.op.fingerprint, r.content, r.content_bytes, err);
    }
    if (code != 0) {
        return code;
    }
    c.op.lease_ms = r.lease_ms != 0 ? r.lease_ms : LEASE_MS_DEFAULT;
    c.op.ttl_ms = r.ttl_ms != 0 ? r.ttl_ms : TTL_MS_DEFAULT;
    c.op.wait_ms = r.wait_ms;
    c.op.take_over = r.take_over != 0;
    c.op.heartbeat = r.heartbeat != 0;
    code = run_call(h, &c, err);
    if (code != 0) {
        return code;
    }
    out->verdict = public_verdict(c.op.verdict);
    if (c.op.verdict == VERDICT_FRESH) {
        give_claim(&out->claim, &c.op.id, c.op.record.fence);
    }
    out->answer = (hapax_answer *)c.op.answer;
    out->claimed_ms = c.op.record.claimed_ms;
    out->lease_ms = c.op.record.lease_ms;
    out->expires_ms = c.op.record.expires_ms;
    return 0;
}

/* --- the end of a claim --- */

static int run_fenced(hapax *h, const hapax_claim *claim, struct call *c, hapax_error *err)
{
    if (h == NULL) {
        return error_code(err, HAPAX_E_ARGUMENT);
    }
    int code = take_claim(&c->op, claim, err);
    return code != 0 ? code : run_call(h, c, err);
}

int hapax_complete(hapax *h, const hapax_claim *claim, const void *answer, size_t answer_bytes,
                   hapax_error *err)
{
    struct call c = {.op.kind = ENGINE_COMPLETE};
    int code = take_answer(&c.op.answer, answer, answer_bytes, err);
    if (code == 0) {
        code = run_fenced(h, claim, &c, err);
    }
    answer_drop(c.op.answer);
    return code;
}

int hapax_release(hapax *h, const hapax_claim *claim, hapax_error *err)
{
    struct call c = {.op.kind = ENGINE_RELEASE};
    return run_fenced(h, claim, &c, err);
}

int hapax_lose(hapax *h, const hapax_claim *claim, hapax_error *err)
{
    struct call c = {.op.kind = ENGINE_LOSE};
    return run_fenced(h, claim, &c, err);
}

int hapax_extend(hapax *h, const hapax_claim *claim, int64_t lease_ms, hapax_error *err)
{
    if (lease_ms <= 0) {
        return error_set(err, HAPAX_E_ARGUMENT, 0, "a lease must be longer than nothing");
    }
    struct call c = {.op = {.kind = ENGINE_EXTEND, .lease_ms = lease_ms}};
    return run_fenced(h, claim, &c, err);
}

/* --- reading and settling by key --- */

static int run_keyed(hapax *h, const char *scope, const char *key, struct call *c, hapax_error *err)
{
    if (h == NULL) {
        return error_code(err, HAPAX_E_ARGUMENT);
    }
    int code = take_identity(&c->op, scope, key, err);
    return code != 0 ? code : run_call(h, c, err);
}

static hapax_state public_state(enum record_state s)
{
    switch (s) {
    case RECORD_ABSENT:
        return HAPAX_ABSENT;
    case RECORD_RUNNING:
        return HAPAX_RUNNING;
    case RECORD_DONE:
        return HAPAX_DONE;
    case RECORD_UNKNOWN:
        break;
    }
    return HAPAX_UNKNOWN_OUTCOME;
}

int hapax_lookup(hapax *h, const char *scope, const char *key, hapax_record *out, hapax_error *err)
{
    if (out == NULL) {
        return error_code(err, HAPAX_E_ARGUMENT);
    }
    memset(out, 0, sizeof *out);
    struct call c = {.op.kind = ENGINE_LOOKUP};
    int code = run_keyed(h, scope, key, &c, err);
    if (code != 0) {
        return code;
    }
    out->state = public_state(c.op.record.state);
    give_claim(&out->claim, &c.op.id, c.op.record.fence);
    out->answer = (hapax_answer *)c.op.answer;
    out->claimed_ms = c.op.record.claimed_ms;
    out->lease_ms = c.op.record.lease_ms;
    out->ended_ms = c.op.record.ended_ms;
    out->expires_ms = c.op.record.expires_ms;
    return 0;
}

int hapax_resolve(hapax *h, const char *scope, const char *key, const void *answer, size_t answer_bytes,
                  hapax_error *err)
{
    struct call c = {.op.kind = ENGINE_RESOLVE};
    int code = 0;
    if (answer != NULL || answer_bytes > 0) {
        code = take_answer(&c.op.answer, answer, answer_bytes, err);
    }
    if (code == 0) {
        code = run_keyed(h, scope, key, &c, err);
    }
    answer_drop(c.op.answer);
    return code;
}

int hapax_forget(hapax *h, const char *scope, const char *key, hapax_error *err)
{
    struct call c = {.op.kind = ENGINE_FORGET};
    return run_keyed(h, scope, key, &c, err);
}

/* --- answers --- */

const void *hapax_answer_data(const hapax_answer *a, size_t *bytes)
{
    struct slice body = answer_body((const struct answer *)a);
    *bytes = body.len;
    return body.ptr;
}

int hapax_answer_status(const hapax_answer *a)
{
    return ((const struct answer *)a)->status;
}

void hapax_answer_free(hapax_answer *a)
{
    answer_drop((struct answer *)a);
}

const char *hapax_version(void)
{
    return HAPAX_VERSION;
}
