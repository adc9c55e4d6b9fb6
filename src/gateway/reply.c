/* Answers to the client: heads with the gateway's markers, problems, stored and streamed answers. */
#include "gateway/exchange.h"

#include "base/clock.h"
#include "core/fields.h"

enum { REPLY_HEAD_BYTES_MAX = LIMIT_ANSWER_HEAD_BYTES_MAX + 1024, PROBLEM_HEAD_BYTES_MAX = 1024 };

static const char expose[] =
    "Access-Control-Expose-Headers: Idempotency-Status, Idempotent-Replayed, Idempotency-Expires\r\n";

void reply_end(struct exchange *e)
{
    e->answered = true;
    if (e->x != NULL && e->client_gone) {
        http_exchange_done(e->x); /* on_close will come and clear e->x */
    }
}

/* The exchange's one answer is due. False: it was given before, or there is nobody to answer. */
static bool may_answer(struct exchange *e)
{
    if (e->answered) {
        return false;
    }
    if (e->ready_us > 0) {
        metrics_latency(e->target->metrics, clock_mono_us() - e->ready_us - e->intake.took_us);
    }
    if (e->x == NULL || e->client_gone) {
        reply_end(e);
        return false;
    }
    e->answered = true;
    return true;
}

static int append_markers(struct exchange *e, struct buf *head, enum marker m)
{
    const char *name = marker_name(m);
    if (name == NULL) {
        return 0;
    }
    int rc = field_append(head, SLICE_LITERAL("Idempotency-Status"), slice_text(name));
    if (rc == 0 && m == MARK_REPLAYED) {
        rc = buf_append_text(head, "Idempotent-Replayed: true\r\n");
    }
    if (rc == 0 && (m == MARK_EXECUTED || m == MARK_REPLAYED || m == MARK_ATTACHED) &&
        e->record.expires_ms > 0) {
        rc = field_append(head, SLICE_LITERAL("Idempotency-Expires"),
                          worker_http_date(e->worker, e->record.expires_ms));
    }
    struct slice origin;
    if (rc == 0 && request_header(&origin, &e->request, SLICE_LITERAL("Origin")) > 0) {
        rc = buf_append_text(head, expose);
    }
    return rc;
}

/* The marker of a problem: an unprotected request was never claimed, whatever the problem is, and on a protected one
 * there is always a marker. */
static enum marker problem_marker(const struct exchange *e, enum problem p)
{
    enum marker m = problem_info(p)->marker;
    if (e->unprotected) {
        return e->marked ? MARK_UNPROTECTED : MARK_NONE;
    }
    return m != MARK_NONE ? m : MARK_REJECTED;
}

static bool may_come_again(const struct exchange *e, enum problem p)
{
    return problem_retryable(p, !e->unprotected || method_is_idempotent(e->request.method),
                             e->target->route->on_unknown != ON_UNKNOWN_HOLD);
}

/* Problems are written where they stand, without asking for memory: they may be what tells that there is none. */
static void problem_head(struct buf *head, enum problem p, bool retryable)
{
    const struct problem_info *info = problem_info(p);
    if (retryable && info->retry_after_s > 0) {
        buf_printf(head, "Retry-After: %d\r\n", info->retry_after_s);
    }
    buf_append_text(head, "Content-Type: application/problem+json\r\nCache-Control: no-store\r\n");
}

void reply_problem_bare(struct http_exchange *x, enum problem p, enum marker m, const char *detail)
{
    char head_bytes[PROBLEM_HEAD_BYTES_MAX];
    char body_bytes[PROBLEM_BYTES_MAX];
    struct buf head;
    buf_init_on(&head, head_bytes, sizeof head_bytes);
    bool retryable = problem_retryable(p, true, false); /* it went nowhere */
    if (m != MARK_NONE) {
        field_append(&head, SLICE_LITERAL("Idempotency-Status"), slice_text(marker_name(m)));
    }
    problem_head(&head, p, retryable);
    http_respond(x, problem_info(p)->status, buf_slice(&head),
                 problem_body(body_bytes, p, detail, retryable, NULL));
}

void reply_problem(struct exchange *e, enum problem p, const char *detail, int original_status)
{
    if (!may_answer(e)) {
        return;
    }
    char head_bytes[PROBLEM_HEAD_BYTES_MAX];
    char body_bytes[PROBLEM_BYTES_MAX];
    struct buf head;
    buf_init_on(&head, head_bytes, sizeof head_bytes);
    bool retryable = may_come_again(e, p);
    append_markers(e, &head, problem_marker(e, p));
    problem_head(&head, p, retryable);
    struct problem_members members = {
        .operation = e->id_hex[0] != '\0' ? e->id_hex : NULL,
        .first_claimed_ms = e->record.claimed_ms,
        .attempt = e->record.fence.attempt,
        .original_status = original_status,
        /* Beyond it is the content's depth or number of parts that is over a limit. */
        .limit_bytes =
            p == PROBLEM_BODY_TOO_LARGE && e->ready_us == 0 ? (int64_t)e->target->route->body_bytes_max : 0,
    };
    http_respond(e->x, problem_info(p)->status, buf_slice(&head),
                 problem_body(body_bytes, p, detail, retryable, &members));
}

void reply_refuse(struct exchange *e, enum metric_outcome outcome, enum problem p, const char *detail)
{
    metrics_count(e->target->metrics, outcome);
    reply_problem(e, p, detail, 0);
}

/* Of the request; SLICE_NONE: it has none, or several lines, of which nobody knows which one counts. */
static struct slice origin_of(const struct exchange *e)
{
    struct slice origin = SLICE_NONE;
    return request_header(&origin, &e->request, SLICE_LITERAL("Origin")) == 1 ? origin : SLICE_NONE;
}

/* The head of an answer: `lines` as they came, or as they were stored. False: there is no memory for it. An answer without
 * some of its lines would be another one, so the connection breaks off; what is stored can be asked for again. */
static bool make_head(struct exchange *e, struct buf *head, enum marker m, struct slice lines, bool stored)
{
    buf_init(head, REPLY_HEAD_BYTES_MAX);
    int rc = append_markers(e, head, m);
    if (rc == 0) {
        rc = stored ? fields_append_replayed(head, lines, origin_of(e)) : buf_append_slice(head, lines);
    }
    if (rc != 0) {
        http_respond_abort(e->x);
    }
    return rc == 0;
}

static void drop_answer(void *arg)
{
    answer_drop(arg);
}

/* However many clients are slow to read it, the body stays one block. */
void reply_stored(struct exchange *e, struct answer *a, enum marker m)
{
    struct buf head;
    if (!may_answer(e)) {
        return;
    }
    if (make_head(e, &head, m, answer_head(a), true)) {
        http_respond_shared(e->x, a->status != 0 ? a->status : 200, buf_slice(&head), answer_body(a),
                            drop_answer, answer_retain(a));
    }
    buf_free(&head);
}

void reply_intake(struct exchange *e, enum marker m)
{
    struct buf head;
    if (!may_answer(e)) {
        return;
    }
    if (make_head(e, &head, m, buf_slice(&e->intake.head), false)) {
        http_respond(e->x, e->intake.status, buf_slice(&head), buf_slice(&e->intake.body));
    }
    buf_free(&head);
}

void reply_stream_start(struct exchange *e, enum marker m)
{
    struct buf head;
    if (!may_answer(e)) {
        return;
    }
    if (make_head(e, &head, m, buf_slice(&e->intake.head), false)) {
        http_respond_start(e->x, e->intake.status, buf_slice(&head), e->intake.length);
    }
    buf_free(&head);
}
