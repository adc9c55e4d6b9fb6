/* on_unknown: probe. Before an unknown outcome is held, a URL is asked whether the operation happened:
 *
 *   Hapax-Outcome: done | released    that, whatever the status
 *   2xx                               it happened, and this answer is what callers get from now on
 *   404, 410                          it did not happen; the operation runs again
 *   anything else                     still unknown: held
 *
 * The finding is written with the fence of the record that was asked about: if that one was settled or taken over
 * meanwhile, it changes nothing. Then the request asks the engine again. */
#include "gateway/exchange.h"

#include "base/clock.h"
#include "base/log.h"

#include <stdio.h>

enum { PROBE_TARGET_BYTES_MAX = 8192, PROBE_TIMEOUT_MS_MAX = 30000 };

static bool is_unreserved(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '.' || c == '_' || c == '~';
}

/* The configured target with {key} replaced by the key, percent-encoded (RFC 3986 section 2.1). */
static int make_target(struct exchange *e, struct slice *out)
{
    struct slice text = e->target->probe_target;
    struct buf b;
    buf_init(&b, PROBE_TARGET_BYTES_MAX);
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < text.len; i++) {
        if (!slice_starts_with(slice_from(text, i), SLICE_LITERAL("{key}"))) {
            rc = buf_append_byte(&b, text.ptr[i]);
            continue;
        }
        for (size_t k = 0; rc == 0 && k < e->key.len; k++) {
            char c = e->key.ptr[k];
            rc = is_unreserved(c) ? buf_append_byte(&b, c) : buf_printf(&b, "%%%02X", (unsigned char)c);
        }
        i += sizeof "{key}" - 2;
    }
    rc = rc != 0 ? rc : arena_copy(&e->arena, buf_slice(&b), out);
    buf_free(&b);
    return rc;
}

static void still_unknown(struct exchange *e, const char *why)
{
    log_event(LOG_LEVEL_WARN, "probe-undecided", "route %s operation %s: %s", e->target->route->name,
              e->id_hex, why);
    protect_claim(e); /* probes is spent: it will be held */
}

static void drop_finding(struct exchange *e)
{
    answer_drop(e->answer);
    e->answer = NULL;
}

static void on_resolved(struct engine_op *op)
{
    struct exchange *e = op->user;
    e->op_pending = false;
    drop_finding(e);
    protect_claim(e); /* whoever settled it, the engine knows by now */
    exchange_unpin(e);
}

static void resolve(struct exchange *e, struct answer *answer)
{
    e->answer = answer;
    e->op = (struct engine_op){
        .port = &e->worker->port,
        .done = on_resolved,
        .user = e,
        .kind = ENGINE_RESOLVE,
        .id = e->id,
        .fence = e->record.fence,
        .answer = answer,
    };
    if (exchange_submit(e) != 0) {
        drop_finding(e);
        still_unknown(e, "the engine is busy");
    }
}

static void decide(struct exchange *e)
{
    struct intake *in = &e->intake;
    enum outcome outcome = OUTCOME_UNKNOWN;
    if (in->outcome_told) {
        outcome = in->outcome;
    } else if (in->status >= 200 && in->status <= 299) {
        outcome = OUTCOME_DONE;
    } else if (in->status == 404 || in->status == 410) {
        outcome = OUTCOME_RELEASED;
    }
    if (outcome == OUTCOME_RELEASED) {
        resolve(e, NULL);
        return;
    }
    bool fits = in->body.len <= e->target->route->keep_body_bytes;
    struct answer *a = NULL;
    if (outcome == OUTCOME_DONE) {
        a = answer_make((uint16_t)in->status, fits, intake_kept_head(e),
                        fits ? buf_slice(&in->body) : SLICE_LITERAL(""));
    }
    if (a == NULL) {
        still_unknown(e, outcome == OUTCOME_DONE ? "no memory" : "the probe's answer decides nothing");
    } else {
        resolve(e, a);
    }
}

static void on_head(void *ctx, int status, const struct header *headers, size_t n)
{
    struct exchange *e = ctx;
    if (intake_head(e, status, headers, n) != 0) {
        e->intake.status = 0;
    }
}

static bool on_body(void *ctx, struct slice bytes)
{
    struct exchange *e = ctx;
    if (e->intake.body.len <= e->target->route->keep_body_bytes && e->intake.status != 0 &&
        (!intake_account(e, e->intake.body.len + bytes.len) ||
         buf_append_slice(&e->intake.body, bytes) != 0)) {
        e->intake.status = 0; /* no room for it */
    }
    return true;
}

static void on_done(void *ctx, bool complete, enum call_failure failure, const char *detail)
{
    struct exchange *e = ctx;
    (void)failure;
    e->intake.call = NULL;
    e->intake.took_us += clock_mono_us() - e->intake.started_us;
    if (complete && e->intake.status != 0) {
        decide(e);
    } else {
        still_unknown(e, complete ? "its answer could not be taken in" : detail);
    }
    exchange_unpin(e);
}

static const struct http_call_handler handler = {.on_head = on_head, .on_body = on_body, .on_done = on_done};

void probe_begin(struct exchange *e)
{
    struct slice target;
    struct header headers[3];
    size_t n = 0;
    hapax_error err = {0};
    intake_reset(e);
    int rc = e->x == NULL ? HAPAX_E_CANCELED : make_target(e, &target);
    struct slice value;
    if (rc == 0 && request_header(&value, &e->request, SLICE_LITERAL("Authorization")) > 0) {
        headers[n++] = (struct header){SLICE_LITERAL("Authorization"), value};
    }
    struct buf key;
    buf_init(&key, 2 * LIMIT_KEY_BYTES_MAX + 2);
    struct slice forward = slice_text(e->target->route->forward_key);
    if (rc == 0 && forward.len > 0) {
        rc = key_quote(&key, e->key);
        headers[n++] = (struct header){forward, buf_slice(&key)};
    }
    if (rc == 0) {
        headers[n++] = (struct header){SLICE_LITERAL("Accept"), SLICE_LITERAL("*/*")};
        int64_t timeout_ms = e->target->route->timeout_ms;
        struct http_call_options o = {
            .method = SLICE_LITERAL("GET"),
            .target = target,
            .headers = headers,
            .header_count = n,
            .timeout_ms = timeout_ms < PROBE_TIMEOUT_MS_MAX ? timeout_ms : PROBE_TIMEOUT_MS_MAX,
            .head_bytes_max = LIMIT_ANSWER_HEAD_BYTES_MAX,
        };
        e->intake.started_us = clock_mono_us();
        rc = http_call_start(&e->intake.call, e->worker->client, e->target->probe, &o, &handler, e, &err);
    }
    buf_free(&key);
    if (rc != 0) {
        e->intake.call = NULL;
        still_unknown(e, rc == HAPAX_E_CANCELED ? "the client has left" : "the probe could not be sent");
    }
}
