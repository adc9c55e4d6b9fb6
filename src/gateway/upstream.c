/* Requests to the upstream, and the buffered intake of its answers. */
#include "gateway/exchange.h"

#include "base/clock.h"
#include "base/digest.h"
#include "base/error.h"
#include "base/units.h"
#include "core/fields.h"

#include <stdio.h>

enum { HEADERS_ADDED_MAX = 8, INTAKE_SLACK_BYTES = 1 << 20 };

/* Does this line, as it stands, give the operation's key? It may also be of no concern here, when the key came from
 * elsewhere. */
static bool gives_key(struct exchange *e, struct slice value)
{
    struct slice key;
    return key_from_header(&key, value, KEY_LENIENT, &e->arena, NULL) == 0 && slice_equal(key, e->key);
}

struct header_list {
    struct header *lines;
    size_t count;
    size_t max;
};

static void add(struct header_list *l, struct slice name, struct slice value)
{
    if (l->count < l->max) {
        l->lines[l->count++] = (struct header){name, value};
    }
}

static int add_printed(struct exchange *e, struct header_list *l, struct slice name, const char *value)
{
    struct slice copy;
    int rc = arena_copy(&e->arena, slice_text(value), &copy);
    if (rc == 0) {
        add(l, name, copy);
    }
    return rc;
}

/* X-Forwarded-For: all lines that came, joined, with the client's address at the end. Every line counts: a proxy in
 * front of us may add its own after one that a client made up. */
static int add_forwarded_for(struct exchange *e, struct header_list *l)
{
    const struct request *r = &e->request;
    const struct slice name = SLICE_LITERAL("X-Forwarded-For");
    struct slice peer = http_exchange_peer(e->x);
    size_t len = peer.len;
    for (size_t i = 0; i < r->header_count; i++) {
        len += slice_equal_nocase(r->headers[i].name, name) ? r->headers[i].value.len + 2 : 0;
    }
    char *text = arena_alloc(&e->arena, len + 1);
    if (text == NULL) {
        return arena_error(&e->arena);
    }
    char *end = text;
    for (size_t i = 0; i < r->header_count; i++) {
        struct slice value = r->headers[i].value;
        if (slice_equal_nocase(r->headers[i].name, name) && value.len > 0) {
            memcpy(end, value.ptr, value.len);
            memcpy(end + value.len, ", ", 2);
            end += value.len + 2;
        }
    }
    memcpy(end, peer.ptr, peer.len);
    add(l, name, slice_of(text, (size_t)(end - text) + peer.len));
    return 0;
}

/* X-Forwarded-Proto and -Host, unless the route keeps those that came and there are some: they passed with the others. */
static void add_ours(struct exchange *e, struct header_list *l, struct slice name, struct slice value)
{
    struct slice came;
    if (e->target->route->forwarded == FORWARDED_SET || request_header(&came, &e->request, name) == 0) {
        add(l, name, value);
    }
}

static int add_forwarded(struct exchange *e, struct header_list *l)
{
    int rc = add_forwarded_for(e, l);
    if (rc != 0) {
        return rc;
    }
    add_ours(e, l, SLICE_LITERAL("X-Forwarded-Proto"),
             http_exchange_is_tls(e->x) ? SLICE_LITERAL("https") : SLICE_LITERAL("http"));
    struct slice host;
    /* An empty one names nothing (RFC 9110 section 7.2): as good as none. */
    if (request_header(&host, &e->request, SLICE_LITERAL("Host")) > 0 && host.len > 0) {
        add_ours(e, l, SLICE_LITERAL("X-Forwarded-Host"), host);
        add(l, SLICE_LITERAL("Host"),
            e->target->route->preserve_host ? host : http_origin_authority(e->target->origin));
    }
    return 0;
}

/* W3C Trace Context: start a trace where the client has none. */
static int add_trace(struct exchange *e, struct header_list *l)
{
    struct slice given;
    if (request_header(&given, &e->request, SLICE_LITERAL("traceparent")) > 0) {
        return 0; /* passed on with the others */
    }
    char text[64];
    uint64_t a = worker_random(e->worker);
    uint64_t b = worker_random(e->worker);
    uint64_t c = worker_random(e->worker) | 1; /* all-zero ids are invalid */
    snprintf(text, sizeof text, "00-%016llx%016llx-%016llx-00", (unsigned long long)a,
             (unsigned long long)b | 1ULL, (unsigned long long)c);
    return add_printed(e, l, SLICE_LITERAL("traceparent"), text);
}

/* The key, in the header that the route names: as the client sent it, or as an RFC 8941 string. */
static int add_key(struct exchange *e, struct header_list *l, struct slice name, bool passed_on)
{
    if (name.len == 0 || passed_on) {
        return 0;
    }
    struct buf text;
    buf_init(&text, 2 * LIMIT_KEY_BYTES_MAX + 2);
    int rc = key_quote(&text, e->key);
    struct slice copy;
    rc = rc != 0 ? rc : arena_copy(&e->arena, buf_slice(&text), &copy);
    buf_free(&text);
    if (rc == 0) {
        add(l, name, copy);
    }
    return rc;
}

static bool passes(const struct exchange *e, struct slice name)
{
    enum field_class class = field_class(name, FIELD_REQUEST);
    return class == FIELD_PLAIN ||
           (class == FIELD_FORWARDED && e->target->route->forwarded == FORWARDED_KEEP);
}

int upstream_headers(struct exchange *e, uint32_t attempt, const struct header **out, size_t *n)
{
    const struct request *r = &e->request;
    struct header_list l = {.max = r->header_count + HEADERS_ADDED_MAX};
    l.lines = arena_array(&e->arena, l.max, sizeof *l.lines);
    if (l.lines == NULL) {
        return arena_error(&e->arena);
    }
    struct listed_fields listed;
    int rc = fields_listed(&listed, r->headers, r->header_count);
    struct slice key_name = slice_text(e->target->route->forward_key);
    bool key_passed = false;
    for (size_t i = 0; i < r->header_count; i++) {
        struct slice name = r->headers[i].name;
        if (!passes(e, name) || field_is_listed(&listed, name)) {
            continue;
        }
        if (attempt > 0 && slice_equal_nocase(name, key_name)) {
            if (key_passed || !gives_key(e, r->headers[i].value)) {
                continue; /* a second line of the same key, or another name than this operation's */
            }
            key_passed = true;
        }
        add(&l, name, r->headers[i].value);
    }
    rc = rc != 0 ? rc : add_forwarded(e, &l);
    rc = rc != 0 ? rc : add_trace(e, &l);
    if (rc == 0 && attempt > 0) {
        char number[12];
        snprintf(number, sizeof number, "%u", attempt);
        rc = add_key(e, &l, key_name, key_passed);
        rc = rc != 0 ? rc : add_printed(e, &l, SLICE_LITERAL("Idempotency-Attempt"), number);
    }
    *out = l.lines;
    *n = l.count;
    return rc;
}

int upstream_target(struct exchange *e, struct slice *out)
{
    const struct request *r = &e->request;
    if (slice_is_none(r->query)) {
        *out = r->path;
        return 0;
    }
    char *text = arena_alloc(&e->arena, r->path.len + 1 + r->query.len);
    if (text == NULL) {
        return arena_error(&e->arena);
    }
    memcpy(text, r->path.ptr, r->path.len);
    text[r->path.len] = '?';
    if (r->query.len > 0) {
        memcpy(text + r->path.len + 1, r->query.ptr, r->query.len);
    }
    *out = slice_of(text, r->path.len + 1 + r->query.len);
    return 0;
}

void intake_reset(struct exchange *e)
{
    struct intake *in = &e->intake;
    buf_clear(&in->head);
    buf_clear(&in->kept_head);
    if (in->accounted_bytes > 0) {
        intake_drop_body(e); /* of a probe */
    }
    buf_clear(&in->body);
    in->body.len_max = (size_t)e->target->route->keep_body_bytes + INTAKE_SLACK_BYTES;
    in->status = 0;
    in->end = INTAKE_OPEN;
    in->length = -1;
    in->head_differs = false;
    in->event_stream = false;
    in->outcome_told = false;
    in->ttl_ms = 0;
}

/* Seconds, or a duration with a unit; nonsense is ignored: it is the upstream's mistake, and the route's ttl holds. */
static int64_t parse_ttl(struct slice value)
{
    uint64_t seconds;
    int64_t ms;
    if (units_u64(&seconds, value) == 0 && seconds > 0 && seconds < INT64_MAX / 1000) {
        return (int64_t)seconds * 1000;
    }
    return units_duration_ms(&ms, value) == 0 ? ms : 0;
}

/* Two that differ say nothing that could be relied on. */
static void read_outcome(struct intake *in, struct slice value)
{
    enum outcome told;
    if (outcome_parse(&told, value) != 0) {
        return;
    }
    in->outcome = in->outcome_told && told != in->outcome ? OUTCOME_UNKNOWN : told;
    in->outcome_told = true;
}

static void read_controls(struct intake *in, const struct header *h)
{
    uint64_t length;
    if (slice_equal_nocase(h->name, SLICE_LITERAL("Content-Length"))) {
        if (units_u64(&length, h->value) == 0 && length <= INT64_MAX) {
            in->length = (int64_t)length;
        }
    } else if (slice_equal_nocase(h->name, SLICE_LITERAL("Content-Type"))) {
        in->event_stream = slice_equal_nocase(media_type(h->value), SLICE_LITERAL("text/event-stream"));
    } else if (slice_equal_nocase(h->name, SLICE_LITERAL("Hapax-Outcome"))) {
        read_outcome(in, h->value);
    } else if (slice_equal_nocase(h->name, SLICE_LITERAL("Hapax-TTL"))) {
        in->ttl_ms = parse_ttl(h->value);
    }
}

static bool is_kept(enum field_class class, const struct route *route)
{
    return class == FIELD_PLAIN || class == FIELD_CORS ||
           (class == FIELD_SET_COOKIE && route->keep_set_cookie);
}

int intake_head(struct exchange *e, int status, const struct header *headers, size_t n)
{
    struct intake *in = &e->intake;
    const struct route *route = e->target->route;
    intake_reset(e);
    in->status = status;
    struct listed_fields listed;
    int rc = fields_listed(&listed, headers, n);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        const struct header *h = &headers[i];
        read_controls(in, h);
        enum field_class class = field_class(h->name, FIELD_ANSWER);
        if (class == FIELD_HOP || class == FIELD_OURS || field_is_listed(&listed, h->name)) {
            continue;
        }
        bool kept = is_kept(class, route);
        if (!kept && !in->head_differs) {
            /* From here on the two heads part. */
            in->head_differs = true;
            rc = buf_append_slice(&in->kept_head, buf_slice(&in->head));
        }
        rc = rc != 0 ? rc : field_append(&in->head, h->name, h->value);
        if (rc == 0 && kept && in->head_differs) {
            rc = field_append(&in->kept_head, h->name, h->value);
        }
    }
    if (!in->outcome_told) {
        in->outcome = outcome_of_status(&route->outcome, status);
    }
    return rc;
}

static void on_head(void *ctx, int status, const struct header *headers, size_t n)
{
    struct exchange *e = ctx;
    if (intake_head(e, status, headers, n) != 0) {
        e->intake.status = 0; /* as good as no answer: settle_answered() makes it unknown */
    }
}

static bool on_body(void *ctx, struct slice bytes)
{
    struct exchange *e = ctx;
    struct intake *in = &e->intake;
    if (e->streaming) {
        return e->x == NULL || e->client_gone || http_respond_write(e->x, bytes);
    }
    if (in->status == 0 || in->outcome == OUTCOME_UNKNOWN) {
        return true; /* this body goes nowhere */
    }
    bool within_budget = intake_account(e, in->body.len + bytes.len);
    if (buf_append_slice(&in->body, bytes) != 0) {
        in->status = 0; /* no memory for an answer that should have been kept */
        return true;
    }
    if (!within_budget || in->body.len > e->target->route->keep_body_bytes || in->event_stream) {
        settle_stream(e);
        return false;
    }
    return true;
}

static void on_done(void *ctx, bool complete, enum call_failure failure, const char *detail)
{
    struct exchange *e = ctx;
    e->intake.call = NULL;
    e->intake.end = complete ? INTAKE_COMPLETE : INTAKE_BROKEN;
    e->intake.took_us += clock_mono_us() - e->intake.started_us;
    if (complete) {
        settle_answered(e);
    } else {
        settle_failed(e, failure, detail);
    }
    exchange_unpin(e);
}

static const struct http_call_handler handler = {
    .on_head = on_head,
    .on_body = on_body,
    .on_done = on_done,
};

void upstream_start(struct exchange *e, uint32_t attempt)
{
    const struct header *headers = NULL;
    size_t n = 0;
    struct slice target = SLICE_NONE;
    hapax_error err = {0};
    intake_reset(e);
    if (!intake_reserve(e)) {
        settle_unsent(e, PROBLEM_OVERLOADED); /* once it is sent, its answer must be kept */
        return;
    }
    int rc = upstream_headers(e, attempt, &headers, &n);
    rc = rc != 0 ? rc : upstream_target(e, &target);
    if (rc == 0) {
        /* The claim's first lease: what waits longer for a connection may have lost it. Nor may the wait use up the
         * upstream's time: that would make unknown what it carries out well within it. */
        int64_t timeout_ms = e->target->route->timeout_ms;
        int64_t lease_ms = e->lease_until_mono_ms - clock_mono_ms();
        int64_t wait_ms = lease_ms < timeout_ms ? lease_ms : timeout_ms;
        struct http_call_options o = {
            .method = e->request.method,
            .target = target,
            .headers = headers,
            .header_count = n,
            .body = buf_slice(&e->body),
            .body_length = (int64_t)e->body.len,
            .send_within_ms = wait_ms > 0 ? wait_ms : 1,
            .answer_within_ms = timeout_ms,
            .head_bytes_max = LIMIT_ANSWER_HEAD_BYTES_MAX,
        };
        e->intake.started_us = clock_mono_us();
        rc = http_call_start(&e->intake.call, e->worker->client, e->target->origin, &o, &handler, e, &err);
    } else {
        error_code(&err, rc);
    }
    if (rc != 0) {
        e->intake.call = NULL;
        settle_failed(e, CALL_NOT_SENT, err.message);
    }
}
