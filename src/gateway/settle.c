/* From the upstream's answer to the client's: what became of a claimed operation is written down, and then told.
 *
 * No byte of an upstream's answer goes to the client before its settlement (complete, release or lose) is
 * durable. A settlement that the store can't take now is tried until it is durable or the lease is lost,
 * whether or not anybody still waits for it. */
#include "gateway/exchange.h"

#include "base/clock.h"
#include "base/log.h"

#include <stdio.h>

enum {
    SETTLE_RETRY_MS_MIN = 50,
    SETTLE_RETRY_MS_MAX = 1000,
    SETTLE_PATIENCE_MS = 10000, /* then the client is told that the outcome is unknown; the retries go on */
};

static void submit_settlement(struct exchange *e);

static void retry_now(void *ctx)
{
    struct exchange *e = ctx;
    e->timer_running = false;
    submit_settlement(e);
    exchange_unpin(e);
}

int settle_prepare(struct exchange *e)
{
    return e->timer != NULL ? 0 : loop_timer_create(&e->timer, e->worker->loop, retry_now, e);
}

static void start_stream(struct exchange *e)
{
    reply_stream_start(e, e->settle == SETTLE_COMPLETE ? MARK_EXECUTED : MARK_RELEASED);
    e->streaming = true;
    if (e->x != NULL && !e->client_gone) {
        http_respond_write(e->x, buf_slice(&e->intake.body));
        if (e->intake.end == INTAKE_COMPLETE) {
            http_respond_finish(e->x);
        } else if (e->intake.end == INTAKE_BROKEN) {
            http_respond_abort(e->x);
        }
    }
    intake_drop_body(e);
    if (e->intake.call != NULL) {
        http_call_unlimit(e->intake.call, e->target->route->silence_ms);
        http_call_resume(e->intake.call);
    }
}

/* What may come of asking again stands in "retryable" as well: reply.c. */
static void reply_unknown(struct exchange *e)
{
    static const char *const next[] = {
        [ON_UNKNOWN_HOLD] =
            "Keep the key: it is refused until somebody settles it with `hapax keys resolve`.",
        [ON_UNKNOWN_RETRY] = "Ask again with the same key: the request is then sent once more.",
        [ON_UNKNOWN_PROBE] = "Ask again with the same key: the upstream is then asked whether it was.",
    };
    char detail[512];
    snprintf(detail, sizeof detail,
             "The request was sent to the upstream, but no %s: nobody can tell whether it was executed. %s",
             e->failure == PROBLEM_OUTCOME_TIMEOUT ? "answer came in time" : "usable answer came",
             next[e->target->route->on_unknown]);
    reply_problem(e, e->failure, detail, e->intake.status);
}

static void reply_failure(struct exchange *e)
{
    static const char *const details[PROBLEM_COUNT] = {
        [PROBLEM_TOO_MANY_RUNNING] =
            "Too many operations of this route are running; try again later with the same key.",
        [PROBLEM_OVERLOADED] = ("There is no memory left for its answer, so nothing was executed; try again "
                                "later with the same key."),
        [PROBLEM_STORE_UNAVAILABLE] = ("The store took longer for the claim than its lease lasts, so nothing "
                                       "was executed. Try again with "
                                       "the same key."),
        [PROBLEM_UPSTREAM_UNREACHABLE] =
            "The upstream could not be reached, so nothing was executed. Try again with the same key.",
    };
    if (details[e->failure] != NULL) {
        reply_problem(e, e->failure, details[e->failure], e->intake.status);
    } else {
        reply_unknown(e);
    }
}

/* The settlement is durable (or, when stale, refused): the client may hear of it. */
static void settled(struct exchange *e, bool stale)
{
    if (e->running) {
        e->running = false;
        atomic_fetch_sub_explicit(&e->target->metrics->running, 1, memory_order_relaxed);
    }
    if (stale) {
        exchange_cancel_call(e);
        reply_refuse(
            e, METRIC_STALE, PROBLEM_CLAIM_LOST,
            "This attempt ran longer than its lease and lost its claim, so its answer does not count. Ask "
            "again with the same key to learn the outcome that does.");
        return;
    }
    static const enum metric_outcome counted[] = {[SETTLE_COMPLETE] = METRIC_EXECUTED,
                                                  [SETTLE_RELEASE] = METRIC_RELEASED,
                                                  [SETTLE_FREE] = METRIC_RELEASED,
                                                  [SETTLE_LOSE] = METRIC_UNKNOWN};
    bool overloaded = e->failure == PROBLEM_TOO_MANY_RUNNING || e->failure == PROBLEM_OVERLOADED;
    metrics_count(e->target->metrics, overloaded ? METRIC_OVERLOADED : counted[e->settle]);
    if (e->stream_wanted) {
        start_stream(e);
    } else if (e->failure != PROBLEM_COUNT) {
        reply_failure(e);
    } else {
        reply_intake(e, e->settle == SETTLE_COMPLETE ? MARK_EXECUTED : MARK_RELEASED);
    }
}

/* The store can't take the settlement now. The claim is still ours: try until it is durable or the lease is lost. */
static void settle_later(struct exchange *e, int code)
{
    int64_t now_ms = loop_mono_ms(e->worker->loop);
    if (code == HAPAX_E_CLOSED) {
        reply_refuse(e, METRIC_UNKNOWN, PROBLEM_OUTCOME_UNSTORED,
                     "The gateway stopped before the outcome could be stored. Ask again with the same key.");
        return;
    }
    if (e->settle_tries == 0) {
        log_event(LOG_LEVEL_WARN, "settlement-delayed", "operation %s: %s", e->id_hex,
                  hapax_error_text(code));
    }
    if (now_ms - e->settle_started_ms > SETTLE_PATIENCE_MS && !e->answered) {
        reply_problem(
            e, PROBLEM_OUTCOME_UNSTORED,
            "The outcome could not be stored yet, so it can't be told. Ask again with the same key.",
            e->intake.status);
    }
    int64_t wait_ms = SETTLE_RETRY_MS_MIN;
    for (uint32_t i = 0; i < e->settle_tries && wait_ms < SETTLE_RETRY_MS_MAX; i++) {
        wait_ms *= 2;
    }
    e->settle_tries++;
    e->timer_running = true;
    loop_timer_start(e->timer, wait_ms < SETTLE_RETRY_MS_MAX ? wait_ms : SETTLE_RETRY_MS_MAX);
}

static void on_settled(struct engine_op *op)
{
    struct exchange *e = op->user;
    e->op_pending = false;
    if (op->code == 0) {
        e->record = op->record;
        settled(e, false);
    } else if (op->code == HAPAX_E_STALE && e->settle == SETTLE_RELEASE) {
        /* The lease is over, but that it was not executed is certain: if the record still is this claim's, and
         * so unknown, it is free. */
        e->settle = SETTLE_FREE;
        submit_settlement(e);
    } else if (op->code == HAPAX_E_NOT_FOUND && e->settle == SETTLE_FREE) {
        settled(e, false); /* it is free: an earlier try was committed, and nobody could tell */
    } else if (op->code == HAPAX_E_STALE || op->code == HAPAX_E_NOT_FOUND || op->code == HAPAX_E_CONFLICT) {
        settled(e, true);
    } else {
        settle_later(e, op->code);
    }
    exchange_unpin(e);
}

static void submit_settlement(struct exchange *e)
{
    static const enum engine_op_kind kinds[] = {
        [SETTLE_COMPLETE] = ENGINE_COMPLETE,
        [SETTLE_RELEASE] = ENGINE_RELEASE,
        [SETTLE_FREE] = ENGINE_RESOLVE, /* without an answer: released */
        [SETTLE_LOSE] = ENGINE_LOSE,
    };
    e->op = (struct engine_op){
        .port = &e->worker->port,
        .done = on_settled,
        .user = e,
        .kind = kinds[e->settle],
        .id = e->id,
        .fence = e->record.fence,
        .ttl_ms = e->settle == SETTLE_COMPLETE ? e->intake.ttl_ms : 0,
        .answer = e->answer,
    };
    int rc = exchange_submit(e);
    if (rc != 0) {
        settle_later(e, rc);
    }
}

static void settle(struct exchange *e, enum settle_kind kind, enum problem failure)
{
    e->settle = kind;
    e->failure = failure;
    e->settle_started_ms = loop_mono_ms(e->worker->loop);
    e->settle_tries = 0;
    if (kind == SETTLE_COMPLETE) {
        e->answer = answer_make((uint16_t)e->intake.status, !e->stream_wanted, intake_kept_head(e),
                                e->stream_wanted ? SLICE_LITERAL("") : buf_slice(&e->intake.body));
        if (e->answer == NULL) { /* what can't be stored can't be told */
            if (e->stream_wanted) {
                e->stream_wanted = false;
                exchange_cancel_call(e); /* else its end would settle once more */
            }
            e->settle = SETTLE_LOSE;
            e->failure = PROBLEM_OUTCOME_UNKNOWN;
        }
    }
    submit_settlement(e);
}

void settle_unsent(struct exchange *e, enum problem why)
{
    settle(e, SETTLE_RELEASE, why);
}

/* --- The upstream's side. --- */

void settle_stream(struct exchange *e)
{
    if (e->stream_wanted) {
        return;
    }
    e->stream_wanted = true;
    e->intake.took_us +=
        clock_mono_us() - e->intake.started_us; /* so far: what comes later, the client sees, too */
    settle(e, e->intake.outcome == OUTCOME_DONE ? SETTLE_COMPLETE : SETTLE_RELEASE, PROBLEM_COUNT);
}

/* The rest of a streamed answer has come, or never will. True: that was it. */
static bool stream_ended(struct exchange *e)
{
    if (e->streaming && e->x != NULL && !e->client_gone) {
        if (e->intake.end == INTAKE_COMPLETE) {
            http_respond_finish(e->x);
        } else {
            http_respond_abort(e->x);
        }
    }
    return e->stream_wanted; /* not yet streaming: start_stream() will see how the intake ended */
}

void settle_answered(struct exchange *e)
{
    if (!stream_ended(e)) {
        if (e->intake.status == 0) {
            settle(e, SETTLE_LOSE, PROBLEM_OUTCOME_UNKNOWN);
        } else if (e->intake.outcome == OUTCOME_DONE) {
            settle(e, SETTLE_COMPLETE, PROBLEM_COUNT);
        } else if (e->intake.outcome == OUTCOME_RELEASED) {
            settle(e, SETTLE_RELEASE, PROBLEM_COUNT);
        } else {
            settle(e, SETTLE_LOSE,
                   e->intake.status == 504 ? PROBLEM_OUTCOME_TIMEOUT : PROBLEM_OUTCOME_UNKNOWN);
        }
    }
}

void settle_failed(struct exchange *e, enum call_failure failure, const char *detail)
{
    log_event(LOG_LEVEL_WARN, "upstream-failed", "route %s operation %s: %s", e->target->route->name,
              e->id_hex, detail);
    if (!stream_ended(e)) {
        if (outcome_of_failure(failure) == OUTCOME_RELEASED) {
            settle(e, SETTLE_RELEASE, PROBLEM_UPSTREAM_UNREACHABLE);
        } else {
            e->intake.status = 0;
            settle(e, SETTLE_LOSE,
                   failure == CALL_TIMEOUT ? PROBLEM_OUTCOME_TIMEOUT : PROBLEM_OUTCOME_UNKNOWN);
        }
    }
}
