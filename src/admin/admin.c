#include "admin/admin.h"

#include "base/clock.h"
#include "base/digest.h"
#include "base/error.h"
#include "base/limits.h"
#include "core/form.h"
#include "core/identity.h"
#include "gateway/problem.h"
#include "net/http_server.h"

#include <arpa/inet.h>
#include <jansson.h>
#include <stdlib.h>
#include <time.h>

enum { METRICS_BYTES_MAX = 16 * 1024 * 1024, ADMIN_CONNECTIONS_MAX = 256 };

struct admin {
    struct gateway *gateway;
    struct http_server *server;
    uint32_t lookups; /* pending */
    bool loopback;    /* it listens for this machine only */
    bool closed;
};

/* A look-up of /v1/operations: outlives its client. */
struct lookup {
    struct admin *admin;
    struct http_exchange *x; /* NULL once it is closed */
    struct engine_op op;
    struct arena arena;
};

static void respond_text(struct http_exchange *x, int status, const char *type, struct slice body)
{
    char head[128];
    int n = snprintf(head, sizeof head, "Content-Type: %s\r\nCache-Control: no-store\r\n", type);
    http_respond(x, status, slice_of(head, (size_t)n), body);
}

static void respond_json(struct http_exchange *x, int status, json_t *object)
{
    char *text = object == NULL ? NULL : json_dumps(object, JSON_INDENT(2));
    json_decref(object);
    if (text == NULL) {
        respond_text(x, 503, "text/plain", SLICE_LITERAL("out of memory\n"));
        return;
    }
    size_t bytes = strlen(text);
    text[bytes] = '\n'; /* for those who read it in a terminal; the slice needs no terminator */
    respond_text(x, status, "application/json", slice_of(text, bytes + 1));
    free(text);
}

static void respond_error(struct http_exchange *x, int status, const char *title, const char *detail)
{
    json_t *o = json_pack("{s:s, s:s, s:i, s:s}", "type", "about:blank", "title", title, "status", status,
                          "detail", detail);
    respond_json(x, status, o);
}

static void ready(struct admin *a, struct http_exchange *x)
{
    hapax_error err = {0};
    if (gateway_is_stopping(a->gateway)) {
        respond_json(x, 503, json_pack("{s:b, s:s}", "ready", 0, "reason", "stopping"));
    } else if (!engine_store_ok(gateway_engine(a->gateway), &err)) {
        respond_json(x, 503,
                     json_pack("{s:b, s:s, s:s}", "ready", 0, "reason", "store", "detail", err.message));
    } else {
        respond_json(x, 200, json_pack("{s:b}", "ready", 1));
    }
}

static void metrics(struct admin *a, struct http_exchange *x)
{
    struct buf text;
    buf_init(&text, METRICS_BYTES_MAX);
    if (gateway_metrics(a->gateway, &text) == 0) {
        respond_text(x, 200, "text/plain; version=0.0.4", buf_slice(&text));
    } else {
        respond_text(x, 503, "text/plain", SLICE_LITERAL("out of memory\n"));
    }
    buf_free(&text);
}

static void set_time(json_t *object, const char *name, int64_t wall_ms)
{
    char text[CLOCK_TEXT_MAX];
    if (wall_ms > 0) {
        clock_text(text, wall_ms);
        json_object_set_new(object, name, json_string(text));
    } else {
        json_object_set_new(object, name, json_null());
    }
}

static json_t *record_json(const struct engine_op *op)
{
    const struct record *r = &op->record;
    char id[2 * IDENTITY_BYTES + 1];
    digest_hex(id, op->id.bytes, IDENTITY_BYTES);
    json_t *o = json_pack("{s:s, s:s, s:I, s:i}", "operation", id, "state", record_state_name(r->state),
                          "serial", (json_int_t)r->fence.serial, "attempt", (int)r->fence.attempt);
    if (o == NULL) {
        return NULL;
    }
    if (op->scope.len > 0) {
        json_object_set_new(o, "scope", json_stringn(op->scope.ptr, op->scope.len));
        json_object_set_new(o, "key", json_stringn(op->key.ptr, op->key.len));
    }
    set_time(o, "claimed", r->claimed_ms);
    set_time(o, "lease_until", r->state == RECORD_RUNNING ? r->lease_ms : 0);
    set_time(o, "ended", r->ended_ms);
    set_time(o, "expires", r->state == RECORD_DONE ? r->expires_ms : 0);
    if (op->answer != NULL) {
        json_object_set_new(o, "answer",
                            json_pack("{s:i, s:b, s:I}", "status", (int)op->answer->status, "kept",
                                      op->answer->kept ? 1 : 0, "body_bytes",
                                      (json_int_t)op->answer->body_bytes));
    }
    return o;
}

static void lookup_unpin(struct lookup *l, bool pending)
{
    if (l->x == NULL && !pending) {
        arena_free(&l->arena);
        free(l);
    }
}

static void on_found(struct engine_op *op)
{
    struct lookup *l = op->user;
    l->admin->lookups--;
    op->user = NULL;
    if (l->x != NULL) {
        if (op->code == 0) {
            respond_json(l->x, 200, record_json(op));
        } else if (op->code == HAPAX_E_NOT_FOUND) {
            respond_error(l->x, 404, "Not found",
                          "There is no such record: never claimed, released or expired.");
        } else {
            respond_error(l->x, 503, "Store unavailable", op->error.message);
        }
    }
    answer_drop(op->answer);
    op->answer = NULL;
    lookup_unpin(l, false);
}

static int parse_lookup(struct lookup *l, struct slice query, hapax_error *err)
{
    struct form form;
    struct slice id;
    int rc = form_parse(&form, &l->arena, query, err);
    if (rc != 0) {
        return rc;
    }
    if (form_find(&id, &form, SLICE_LITERAL("id")) == 1) {
        return digest_unhex(l->op.id.bytes, IDENTITY_BYTES, id) == 0
                   ? 0
                   : error_set(err, HAPAX_E_SYNTAX, 0, "id must be %d hex digits", 2 * IDENTITY_BYTES);
    }
    struct slice scope = SLICE_NONE;
    struct slice key = SLICE_NONE;
    if (form_find(&scope, &form, SLICE_LITERAL("scope")) != 1 ||
        form_find(&key, &form, SLICE_LITERAL("key")) != 1) {
        return error_set(err, HAPAX_E_MISSING, 0, "give scope and key, once each and percent-encoded, or id");
    }
    rc = arena_copy(&l->arena, scope, &l->op.scope);
    rc = rc != 0 ? rc : arena_copy(&l->arena, key, &l->op.key);
    return rc != 0 ? error_code(err, rc) : identity_make(&l->op.id, scope, key, err);
}

static void lookup(struct admin *a, struct http_exchange *x)
{
    struct lookup *l = calloc(1, sizeof *l);
    if (l == NULL) {
        respond_error(x, 503, "Out of memory", "Try again later.");
        return;
    }
    hapax_error err = {0};
    l->admin = a;
    arena_init(&l->arena, 256 * 1024);
    int rc = parse_lookup(l, http_exchange_request(x)->query, &err);
    if (rc != 0) {
        respond_error(x, 400, "Bad query", err.message);
        arena_free(&l->arena);
        free(l);
        return;
    }
    l->x = x;
    http_exchange_set_user(x, l);
    l->op.kind = ENGINE_LOOKUP;
    l->op.port = gateway_port(a->gateway);
    l->op.done = on_found;
    l->op.user = l;
    a->lookups++;
    if (engine_submit(gateway_engine(a->gateway), &l->op) != 0) {
        a->lookups--;
        l->op.user = NULL;
        respond_error(x, 503, "Busy", "Try again later.");
    }
}

/* "localhost" or a literal of the loopback network, with or without brackets and port. */
static bool names_loopback(struct slice authority)
{
    char host[INET6_ADDRSTRLEN] = "";
    struct in_addr v4;
    struct in6_addr v6;
    size_t len = authority.len;
    while (len > 0 && authority.ptr[len - 1] >= '0' && authority.ptr[len - 1] <= '9') {
        len--;
    }
    authority.len = len > 0 && authority.ptr[len - 1] == ':' ? len - 1 : authority.len;
    if (authority.len > 2 && authority.ptr[0] == '[' && authority.ptr[authority.len - 1] == ']') {
        authority = slice_of(authority.ptr + 1, authority.len - 2);
    }
    if (slice_equal_nocase(authority, SLICE_LITERAL("localhost"))) {
        return true;
    }
    if (authority.len == 0 || authority.len >= sizeof host) {
        return false;
    }
    memcpy(host, authority.ptr, authority.len);
    if (inet_pton(AF_INET, host, &v4) == 1) {
        return ntohl(v4.s_addr) >> 24 == 127;
    }
    return inet_pton(AF_INET6, host, &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

/* A web page whose name was made to point to this machine (DNS rebinding) is asked for under that name. No browser
 * leaves Host out; some probes do. */
static bool is_meant(const struct admin *a, const struct request *r)
{
    struct slice host;
    return !a->loopback || request_header(&host, r, SLICE_LITERAL("Host")) == 0 || host.len == 0 ||
           names_loopback(host);
}

static void on_request(void *ctx, struct http_exchange *x)
{
    struct admin *a = ctx;
    const struct request *r = http_exchange_request(x);
    if (!is_meant(a, r)) {
        respond_error(x, 421, "Misdirected request",
                      "This listener is for this machine: ask it as localhost or by its address.");
    } else if (!slice_equal(r->method, SLICE_LITERAL("GET")) &&
               !slice_equal(r->method, SLICE_LITERAL("HEAD"))) {
        respond_error(x, 405, "Method not allowed", "This listener answers GET only.");
    } else if (slice_equal(r->path, SLICE_LITERAL("/healthz"))) {
        respond_json(x, 200, json_pack("{s:b}", "healthy", 1));
    } else if (slice_equal(r->path, SLICE_LITERAL("/readyz"))) {
        ready(a, x);
    } else if (slice_equal(r->path, SLICE_LITERAL("/metrics"))) {
        metrics(a, x);
    } else if (slice_equal(r->path, SLICE_LITERAL("/v1/operations"))) {
        lookup(a, x);
    } else {
        respond_error(x, 404, "Not found", "There are /healthz, /readyz, /metrics and /v1/operations.");
    }
}

static void on_defect(void *ctx, struct http_exchange *x, enum http_defect defect, const char *detail)
{
    (void)ctx;
    (void)defect;
    respond_error(x, 400, "Malformed request", detail);
}

static void on_body(void *ctx, struct http_exchange *x, struct slice bytes)
{
    (void)ctx, (void)x, (void)bytes;
}

static void on_nothing(void *ctx, struct http_exchange *x)
{
    (void)ctx, (void)x;
}

static void on_body_error(void *ctx, struct http_exchange *x, int code)
{
    (void)ctx, (void)x, (void)code;
}

static void on_gone(void *ctx, struct http_exchange *x)
{
    (void)ctx;
    http_exchange_done(x);
}

static void on_close(void *ctx, struct http_exchange *x)
{
    (void)ctx;
    struct lookup *l = http_exchange_user(x);
    if (l != NULL) {
        l->x = NULL;
        lookup_unpin(l, l->op.user != NULL);
    }
}

static const struct http_handler handler = {
    .on_request = on_request,
    .on_defect = on_defect,
    .on_body = on_body,
    .on_body_end = on_nothing,
    .on_body_error = on_body_error,
    .on_writable = on_nothing,
    .on_gone = on_gone,
    .on_close = on_close,
};

int admin_open(struct admin **out, struct gateway *g, const char *address, hapax_error *err)
{
    *out = NULL;
    struct admin *a = calloc(1, sizeof *a);
    if (a == NULL) {
        return error_code(err, HAPAX_E_MEMORY);
    }
    a->gateway = g;
    a->loopback = names_loopback(slice_text(address));
    struct http_server_options o = {
        .address = address,
        .connections_max = ADMIN_CONNECTIONS_MAX,
        .head_bytes_max = 16 * 1024,
        .headers_max = 64,
        .head_ms = 5000,
        .idle_ms = 30000,
        .body_ms = 5000,
        .send_ms = 10000,
        .write_high_bytes = 256 * 1024,
        .handler = &handler,
        .ctx = a,
    };
    int rc = http_server_open(&a->server, gateway_loop(g), &o, err);
    if (rc != 0) {
        free(a);
        return rc;
    }
    *out = a;
    return 0;
}

uint16_t admin_port_number(const struct admin *a)
{
    return http_server_port(a->server);
}

static void on_closed(void *ctx)
{
    struct admin *a = ctx;
    a->closed = true;
    loop_stop(gateway_loop(a->gateway));
}

void admin_close(struct admin *a)
{
    if (a == NULL) {
        return;
    }
    http_server_close(a->server, on_closed, a);
    while (!a->closed) {
        loop_run(gateway_loop(a->gateway));
    }
    while (a->lookups > 0) { /* the engine answers each within its store's patience */
        engine_port_drain(gateway_port(a->gateway));
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    free(a);
}
