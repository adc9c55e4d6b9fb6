/* A protected request up to its claim: key → identity → claim → upstream. What follows stands in settle.c.
 *
 * The order of steps is what keeps the promises: nothing goes upstream before the engine said FRESH, and then
 * the claim is durable. A client that leaves changes none of it. */
#include "gateway/exchange.h"

#include "base/digest.h"
#include "base/error.h"
#include "base/log.h"
#include "core/form.h"

/* --- The request comes in. --- */

static void refuse_content(struct exchange *e, int rc, const hapax_error *err)
{
    switch (rc) {
    case HAPAX_E_LIMIT:
        reply_refuse(e, METRIC_REJECTED, PROBLEM_BODY_TOO_LARGE, err->message);
        break;
    case HAPAX_E_MEMORY:
        reply_refuse(e, METRIC_OVERLOADED, PROBLEM_OVERLOADED,
                     "The gateway is out of memory; try again later.");
        break;
    default:
        reply_refuse(e, METRIC_REJECTED, PROBLEM_BODY_INVALID, err->message);
        break;
    }
}

/* False: the request was answered, or passed on without protection. */
static bool take_key(struct exchange *e, struct content *content)
{
    const struct route *r = e->target->route;
    struct slice key;
    hapax_error err = {0};
    int rc = key_extract(&key, r->key, r->key_count, r->key_syntax, content, &err);
    rc = rc != 0 ? rc : arena_copy(&e->arena, key, &e->key);
    if (rc == 0) {
        return true;
    }
    if (rc == HAPAX_E_MISSING && r->missing == MISSING_PASS) {
        if (e->ready_us > 0) {
            passthrough_buffered(e, METRIC_KEY_MISSING);
        } else {
            passthrough_begin(e, true, METRIC_KEY_MISSING);
        }
    } else if (rc == HAPAX_E_MISSING) {
        reply_refuse(e, METRIC_KEY_MISSING, PROBLEM_KEY_MISSING, err.message);
    } else if (rc == HAPAX_E_MEMORY || content->decoded_state == CONTENT_BAD ||
               content->json_state == CONTENT_BAD) {
        refuse_content(e, rc, &err);
    } else {
        reply_refuse(e, METRIC_KEY_INVALID, PROBLEM_KEY_INVALID, err.message);
    }
    return false;
}

/* Look into the request; what that takes of memory is gone afterwards. */
static bool with_content(struct exchange *e, bool (*look)(struct exchange *e, struct content *content))
{
    struct arena *scratch = &e->worker->scratch;
    struct content content;
    content_init(&content, &e->request, scratch, (size_t)e->target->route->body_bytes_max);
    bool good = look(e, &content);
    arena_reset(scratch);
    return good;
}

void protect_begin(struct exchange *e)
{
    const struct route *r = e->target->route;
    if (e->target->key_in_headers && !with_content(e, take_key)) {
        return;
    }
    int64_t length = http_exchange_body_length(e->x);
    if (length > 0 && (uint64_t)length > r->body_bytes_max) {
        reply_refuse(e, METRIC_REJECTED, PROBLEM_BODY_TOO_LARGE,
                     "The request body is larger than this route takes; see limit_bytes.");
        return;
    }
    http_exchange_read(e->x, true);
}

void protect_body(struct exchange *e, struct slice bytes)
{
    if (e->answered) {
        return;
    }
    if (!exchange_account(e, bytes.len)) {
        reply_refuse(e, METRIC_OVERLOADED, PROBLEM_OVERLOADED,
                     "Too many request bodies are in memory at once; try again later.");
        return;
    }
    int rc = buf_append_slice(&e->body, bytes);
    if (rc == HAPAX_E_LIMIT) {
        reply_refuse(e, METRIC_REJECTED, PROBLEM_BODY_TOO_LARGE,
                     "The request body is larger than this route takes; see limit_bytes.");
    } else if (rc != 0) {
        reply_refuse(e, METRIC_OVERLOADED, PROBLEM_OVERLOADED,
                     "The gateway is out of memory; try again later.");
    }
}

/* --- Identity. --- */

/* The tenant part of the scope, as a digest: what tells tenants apart is often a credential. */
static int take_tenant(struct exchange *e, char out[TENANT_DIGEST_TEXT], hapax_error *err)
{
    const struct route *r = e->target->route;
    struct slice value = SLICE_NONE;
    struct form query;
    size_t found = 0;
    int rc = 0;
    out[0] = '\0';
    switch (r->tenant) {
    case TENANT_NONE:
        return 0;
    case TENANT_AUTHORIZATION:
        found = request_header(&value, &e->request, SLICE_LITERAL("Authorization"));
        if (found > 1) {
            return error_set(err, HAPAX_E_SYNTAX, 0,
                             "The request has several Authorization headers: send one.");
        }
        return found == 1 ? tenant_digest(out, value) : 0;
    case TENANT_HEADER:
        found = request_header(&value, &e->request, slice_text(r->tenant_name));
        break;
    case TENANT_QUERY:
        rc = form_parse(&query, &e->worker->scratch, e->request.query, err);
        found = rc == 0 ? form_find(&value, &query, slice_text(r->tenant_name)) : 0;
        break;
    }
    if (rc == 0 && (found != 1 || value.len == 0)) {
        error_set(err, HAPAX_E_MISSING, 0,
                  "This route tells tenants apart by %s %s, which must be given once.",
                  r->tenant == TENANT_HEADER ? "the header" : "the query parameter", r->tenant_name);
        return HAPAX_E_MISSING;
    }
    return rc == 0 ? tenant_digest(out, value) : rc;
}

static bool overrides_method(const struct header *h)
{
    static const struct slice names[] = {
        {"X-HTTP-Method-Override", 22}, {"X-HTTP-Method", 13}, {"X-Method-Override", 17}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (slice_equal_nocase(h->name, names[i])) {
            return h->value.len > 0;
        }
    }
    return false;
}

/* The method as the upstream may understand it: method overrides make another operation. All of them
 * count, since nobody knows which one the upstream would take. */
static int effective_method(struct exchange *e, struct slice *out)
{
    const struct request *r = &e->request;
    size_t len = r->method.len;
    for (size_t i = 0; i < r->header_count; i++) {
        len += overrides_method(&r->headers[i]) ? 1 + r->headers[i].value.len : 0;
    }
    *out = r->method;
    if (len == r->method.len) {
        return 0;
    }
    char *text = arena_alloc(&e->arena, len);
    if (text == NULL) {
        return arena_error(&e->arena);
    }
    memcpy(text, r->method.ptr, r->method.len);
    char *end = text + r->method.len;
    for (size_t i = 0; i < r->header_count; i++) {
        if (overrides_method(&r->headers[i])) {
            struct slice value = r->headers[i].value;
            *end++ = '+';
            for (size_t k = 0; k < value.len; k++) {
                *end++ = value.ptr[k] > ' ' && value.ptr[k] < 0x7f ? value.ptr[k] : '_';
            }
        }
    }
    *out = slice_of(text, len);
    return 0;
}

static int take_identity(struct exchange *e, hapax_error *err)
{
    char tenant[TENANT_DIGEST_TEXT];
    struct slice method;
    int rc = take_tenant(e, tenant, err);
    rc = rc != 0 ? rc : effective_method(e, &method);
    if (rc != 0) {
        return rc;
    }
    struct buf scope;
    buf_init(&scope, LIMIT_SCOPE_BYTES_MAX);
    rc = scope_make(&scope, e->target->name, method, e->request.path, slice_text(tenant));
    if (rc == HAPAX_E_LIMIT) {
        error_set(err, rc, 0, "Method and path are too long for a protected route.");
    }
    rc = rc != 0 ? rc : arena_copy(&e->arena, buf_slice(&scope), &e->scope);
    buf_free(&scope);
    rc = rc != 0 ? rc : identity_make(&e->id, e->scope, e->key, err);
    if (rc == 0) {
        digest_hex(e->id_hex, e->id.bytes, IDENTITY_BYTES);
    }
    return rc;
}

/* Everything that is told from the complete request. False: it was answered, or passed on. */
static bool identify(struct exchange *e, struct content *content)
{
    hapax_error err = {0};
    if (!e->target->key_in_headers && !take_key(e, content)) {
        return false;
    }
    int rc = fingerprint_make(&e->fingerprint, &e->target->route->fingerprint, content, &err);
    if (rc != 0) {
        refuse_content(e, rc, &err);
        return false;
    }
    rc = take_identity(e, &err);
    if (rc == HAPAX_E_MEMORY) {
        refuse_content(e, rc, &err);
    } else if (rc != 0) {
        reply_refuse(e, METRIC_KEY_INVALID, PROBLEM_KEY_INVALID, err.message);
    }
    return rc == 0;
}

void protect_body_end(struct exchange *e)
{
    if (e->answered) {
        return;
    }
    e->ready_us = clock_mono_us();
    e->request.body = buf_slice(&e->body);
    if (with_content(e, identify)) {
        protect_claim(e);
    }
}

/* --- The claim. --- */

static void store_failed(struct exchange *e, int code)
{
    if (code == HAPAX_E_BUSY || code == HAPAX_E_MEMORY) {
        reply_refuse(
            e, METRIC_OVERLOADED, PROBLEM_OVERLOADED,
            "Too many operations are waiting, or somebody else holds this one's record locked. Nothing was "
            "executed; try again later with the same key.");
    } else if (code == HAPAX_E_CLOSED) {
        reply_refuse(
            e, METRIC_OVERLOADED, PROBLEM_OVERLOADED,
            "The gateway is stopping. Nothing was executed by this request; try again with the same key.");
    } else if (e->target->route->store_down == STORE_DOWN_OPEN && code != HAPAX_E_STORE_CORRUPT) {
        /* A damaged record may be that of a finished operation: such a store is not down but wrong. */
        passthrough_buffered(e, METRIC_UNPROTECTED);
    } else {
        reply_refuse(
            e, METRIC_STORE_ERROR, PROBLEM_STORE_UNAVAILABLE,
            "The store can't be used at the moment, so nothing was executed by this request; try again later "
            "with the same key.");
    }
}

static void unknown(struct exchange *e)
{
    if (e->target->route->on_unknown == ON_UNKNOWN_PROBE && e->probes == 0) {
        e->probes++;
        probe_begin(e);
        return;
    }
    reply_refuse(
        e, METRIC_HELD, PROBLEM_OUTCOME_HELD,
        e->target->route->on_unknown == ON_UNKNOWN_PROBE
            ? "An earlier attempt with this key was sent to the upstream, and its outcome is not known: the "
              "look-up "
              "could not tell, either. Ask again with the same key, and it is looked up again; or find out "
              "and settle "
              "it with `hapax keys resolve --id ID --done` or `--released` (ID is the member \"operation\")."
            : "An earlier attempt with this key was sent to the upstream, and its outcome is not known. It "
              "is not "
              "repeated by itself. Find out whether it happened, then settle it with `hapax keys resolve "
              "--id ID "
              "--done` or `--released` (ID is the member \"operation\"); the same request then gets its "
              "answer "
              "or runs.");
}

static void replay(struct exchange *e, struct answer *a, enum marker m)
{
    if (a == NULL) {
        reply_refuse(e, METRIC_STORE_ERROR, PROBLEM_INTERNAL, "The stored answer could not be read.");
    } else if (!a->kept) {
        metrics_count(e->target->metrics, METRIC_NOT_KEPT);
        reply_problem(
            e, PROBLEM_ANSWER_NOT_KEPT,
            "This operation was carried out before; its answer was not kept (it was too large or a stream, "
            "or "
            "the gateway's memory was full), so it can't be given again. original_status is the status it "
            "had.",
            a->status);
    } else {
        metrics_count(e->target->metrics, m == MARK_REPLAYED ? METRIC_REPLAYED : METRIC_ATTACHED);
        reply_stored(e, a, m);
    }
    answer_drop(a);
}

static void run(struct exchange *e)
{
    int64_t others = atomic_fetch_add_explicit(&e->target->metrics->running, 1, memory_order_relaxed);
    e->running = true;
    if (clock_mono_ms() >= e->lease_until_mono_ms) {
        settle_unsent(e, PROBLEM_STORE_UNAVAILABLE); /* the store took longer than the lease */
    } else if (others >= (int64_t)e->target->route->running_max) {
        settle_unsent(e, PROBLEM_TOO_MANY_RUNNING); /* only now: a duplicate needs no place */
    } else {
        upstream_start(e, e->record.fence.attempt);
    }
}

static void decide(struct exchange *e)
{
    struct answer *a = e->op.answer;
    e->op.answer = NULL;
    e->record = e->op.record;
    e->lease_until_mono_ms = e->op.lease_until_mono_ms;
    if (e->op.verdict == VERDICT_ATTACHED || e->op.verdict == VERDICT_IN_PROGRESS) {
        e->ready_us = 0; /* it waited for another request, not for the gateway: no added latency */
    }
    switch (e->op.verdict) {
    case VERDICT_FRESH:
        run(e);
        break;
    case VERDICT_REPLAY:
        replay(e, a, MARK_REPLAYED);
        break;
    case VERDICT_ATTACHED:
        replay(e, a, MARK_ATTACHED);
        break;
    case VERDICT_IN_PROGRESS:
        reply_refuse(
            e, METRIC_IN_PROGRESS, PROBLEM_IN_PROGRESS,
            "The first request with this key is still running. Try again later with the same key; you will "
            "get its answer.");
        break;
    case VERDICT_MISMATCH:
        reply_refuse(
            e, METRIC_MISMATCH, PROBLEM_KEY_REUSED,
            "This key was used before for a request with other content (see first_seen). That one stands. "
            "Use a new key for a new operation, or repeat the first request unchanged.");
        break;
    case VERDICT_UNKNOWN:
        unknown(e);
        break;
    }
}

static void on_claimed(struct engine_op *op)
{
    struct exchange *e = op->user;
    e->op_pending = false;
    if (op->code != 0) {
        store_failed(e, op->code);
    } else {
        decide(e);
    }
    exchange_unpin(e);
}

void protect_claim(struct exchange *e)
{
    const struct route *r = e->target->route;
    /* Once claimed it has to be settled, however long that takes: the heartbeat keeps the claim alive. So what
     * waiting for the store needs is got before. */
    if (settle_prepare(e) != 0) {
        store_failed(e, HAPAX_E_MEMORY);
        return;
    }
    e->op = (struct engine_op){
        .port = &e->worker->port,
        .done = on_claimed,
        .user = e,
        .kind = ENGINE_BEGIN,
        .id = e->id,
        .scope = e->scope,
        .key = e->key,
        .fingerprint = e->fingerprint,
        .lease_ms = r->lease_ms,
        .ttl_ms = r->ttl_ms,
        .wait_ms = r->wait_ms,
        .take_over = r->on_unknown == ON_UNKNOWN_RETRY,
        .heartbeat = true,
    };
    int rc = exchange_submit(e);
    if (rc != 0) {
        store_failed(e, rc);
    }
}
