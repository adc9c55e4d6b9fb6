/* What an answer says, and whether two are the same. */
#include "drill/answers.h"

#include "core/json.h"
#include "core/request.h"

#include <stdio.h>

#define PROBLEM_ARENA_BYTES_MAX (1U << 20)
#define RETRY_SECONDS_MAX       86400

bool answer_is_success(const struct answer *a)
{
    return a->result == WIRE_ANSWERED && a->status >= 200 && a->status < 400;
}

bool answer_is_busy(const struct answer *a)
{
    static const short statuses[PROFILE_STATUSES_MAX] = {409, 423, 425, 429, 502, 503, 504};
    return a->result == WIRE_ANSWERED && profile_lists(statuses, a->status);
}

bool answer_equals(const struct answer *a, const struct answer *b)
{
    return a->result == WIRE_ANSWERED && b->result == WIRE_ANSWERED && a->status == b->status &&
           a->body_bytes == b->body_bytes && memcmp(a->digest, b->digest, sizeof a->digest) == 0;
}

static struct slice header_of(const struct answer *a, struct slice name)
{
    for (size_t i = 0; i < a->header_count; i++) {
        if (slice_equal_nocase(a->headers[i].name, name)) {
            return a->headers[i].value;
        }
    }
    return SLICE_NONE;
}

/* Is the last segment of a problem document's type "outcome-unknown"? */
bool answer_body_says_unknown(const struct answer *a, struct slice body)
{
    struct slice last = SLICE_LITERAL("outcome-unknown");
    struct slice type = SLICE_NONE;
    struct arena arena;
    struct json j;
    uint32_t node = JSON_NODE_NONE;
    if (!slice_equal_nocase(media_type(header_of(a, SLICE_LITERAL("content-type"))),
                            SLICE_LITERAL("application/problem+json"))) {
        return false;
    }
    arena_init(&arena, PROBLEM_ARENA_BYTES_MAX);
    int rc = json_parse(&j, &arena, body, NULL);
    rc = rc != 0 ? rc : json_pointer_find(&node, &j, SLICE_LITERAL("/type"), &arena);
    if (rc == 0 && node != JSON_NODE_NONE && j.nodes[node].type == JSON_TYPE_STRING) {
        rc = json_unquote(&type, &j, node, &arena);
    }
    size_t before = type.len > last.len ? type.len - last.len : 0;
    bool found = rc == 0 && type.len >= last.len && slice_equal(slice_from(type, before), last) &&
                 (before == 0 || memchr("/:#", type.ptr[before - 1], 3) != NULL);
    arena_free(&arena);
    return found;
}

bool answer_says_unknown(const struct answer *a)
{
    struct slice status = header_of(a, SLICE_LITERAL("idempotency-status"));
    return a->result == WIRE_ANSWERED && a->status >= 400 &&
           (a->unknown_type || slice_equal_nocase(status, SLICE_LITERAL("unknown")));
}

bool answer_is_limit(const struct answer *a)
{
    return a->result == WIRE_ANSWERED && (a->status == 429 || a->status == 503);
}

int64_t answer_retry_ms(const struct answer *a)
{
    struct slice text = header_of(a, SLICE_LITERAL("retry-after"));
    int64_t seconds = 0;
    for (size_t i = 0; answer_is_limit(a) && i < text.len; i++) {
        if (text.ptr[i] < '0' || text.ptr[i] > '9' || seconds > RETRY_SECONDS_MAX) {
            return 0;
        }
        seconds = seconds * 10 + (text.ptr[i] - '0');
    }
    return seconds * 1000;
}

bool answer_is_definite(const struct answer *a, const struct drill_profile *p)
{
    if (a->result != WIRE_ANSWERED) {
        return false;
    }
    bool any = !p->statuses_count && a->status < 500 && !answer_is_limit(a);
    return any || !answer_is_busy(a) || answer_says_unknown(a);
}

const char *answer_text(char *out, size_t size, const struct answer *a)
{
    if (a->result == WIRE_ANSWERED) {
        snprintf(out, size, "%d", a->status);
    } else {
        snprintf(out, size, "no answer (%s)", a->detail);
    }
    return out;
}

/* --- Header lines. ------------------------------------------------------------------------------- */

/* What belongs to the exchange and not to the answer: connection, clock, tracing, limits, and what marks a repeat as such. A
 * name that ends in '-' is a beginning. */
static const char *const exchange_headers[] = {
    "date",
    "connection",
    "keep-alive",
    "transfer-encoding",
    "content-length",
    "trailer",
    "upgrade",
    "proxy-",
    "te",
    "age",
    "via",
    "alt-svc",
    "server-timing",
    "x-request-id",
    "request-id",
    "x-trace-id",
    "x-correlation-id",
    "x-amzn-",
    "x-amz-",
    "traceparent",
    "tracestate",
    "cf-",
    "x-runtime",
    "x-response-time",
    "x-ratelimit-",
    "ratelimit",
    "ratelimit-",
    "retry-after",
    "report-to",
    "nel",
    "idempotency-",
    "idempotent-",
    "x-idempotency-",
    "x-idempotent-",
    "x-cache",
    "x-envoy-",
    "x-served-by",
    "x-timer",
    "x-cloud-trace-context",
    "x-b3-",
    "x-datadog-",
    "x-vercel-id",
    "fly-request-id",
    "original-request",
    "content-security-policy", /* its nonce */
};

bool answer_header_counts(const struct drill_setup *s, struct slice name)
{
    for (size_t i = 0; i < sizeof exchange_headers / sizeof exchange_headers[0]; i++) {
        struct slice known = slice_text(exchange_headers[i]);
        bool beginning = known.ptr[known.len - 1] == '-';
        if (slice_equal_nocase(name, known) ||
            (beginning && name.len > known.len && slice_equal_nocase(slice_of(name.ptr, known.len), known))) {
            return false;
        }
    }
    for (size_t i = 0; i < s->ignored_count; i++) {
        if (slice_equal_nocase(name, s->ignored[i])) {
            return false;
        }
    }
    return true;
}

size_t answer_lines(const struct answer *a, struct slice name)
{
    size_t count = 0;
    for (size_t i = 0; i < a->header_count; i++) {
        count += slice_equal_nocase(a->headers[i].name, name);
    }
    return count;
}

/* The nth line of this name, SLICE_NONE past the last. */
static struct slice nth_line(const struct answer *a, struct slice name, size_t nth)
{
    for (size_t i = 0; i < a->header_count; i++) {
        if (slice_equal_nocase(a->headers[i].name, name) && nth-- == 0) {
            return a->headers[i].value;
        }
    }
    return SLICE_NONE;
}

enum header_change answer_header_change(const struct answer *first, const struct answer *repeat,
                                        struct slice name)
{
    size_t before = answer_lines(first, name);
    size_t after = answer_lines(repeat, name);
    if (before > 0 && after == 0) {
        return HEADER_LOST;
    }
    if (before != after) {
        return HEADER_COUNT;
    }
    for (size_t i = 0; i < before; i++) {
        if (!slice_equal(nth_line(first, name, i), nth_line(repeat, name, i))) {
            return HEADER_CHANGED;
        }
    }
    return HEADER_SAME;
}
