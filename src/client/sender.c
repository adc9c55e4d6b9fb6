#include "client/sender.h"

#include "base/error.h"
#include "base/limits.h"
#include "net/http_client.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

_Static_assert(HAPAX_CALL_HEAD_BYTES_MAX == LIMIT_ANSWER_HEAD_BYTES_MAX, "the public header names it");

struct client_sender {
    struct loop *loop;
    struct http_client *client;
    struct http_origin *origin;
    struct http_call *call;     /* while one runs */
    struct client_reply *reply; /* of that call */
    int rc;                     /* no memory for it */
    sigset_t signals;           /* as they were before */
    bool pipe_pending;          /* a SIGPIPE was waiting already: it is not ours */
};

/* --- the reply --- */

void client_reply_init(struct client_reply *r)
{
    *r = (struct client_reply){0};
    arena_init(&r->arena, 64U * HAPAX_CALL_HEAD_BYTES_MAX);
    buf_init(&r->body, HAPAX_CALL_ANSWER_BYTES_MAX);
}

void client_reply_clear(struct client_reply *r)
{
    client_reply_free(r);
    client_reply_init(r);
}

void client_reply_free(struct client_reply *r)
{
    arena_free(&r->arena);
    buf_free(&r->body);
}

/* --- signals --- */

/* A peer that is gone must end an attempt, not the process; and which signals a process ignores is its own business. */
static void block_pipe_signal(struct client_sender *s)
{
    sigset_t pipe_only;
    sigset_t pending;
    sigemptyset(&pipe_only);
    sigaddset(&pipe_only, SIGPIPE);
    s->pipe_pending = sigpending(&pending) == 0 && sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &pipe_only, &s->signals);
}

static void restore_signals(const struct client_sender *s)
{
    static const struct timespec at_once = {0, 0};
    sigset_t pipe_only;
    sigemptyset(&pipe_only);
    sigaddset(&pipe_only, SIGPIPE);
    while (!s->pipe_pending && sigtimedwait(&pipe_only, NULL, &at_once) == SIGPIPE) {
    }
    pthread_sigmask(SIG_SETMASK, &s->signals, NULL);
}

/* --- call-backs --- */

static void end(struct client_sender *s)
{
    s->call = NULL;
    loop_stop(s->loop);
}

static int keep_head(struct client_reply *r, const struct header *headers, size_t n)
{
    struct header *copy = arena_array(&r->arena, n + 1, sizeof *copy);
    int rc = copy != NULL ? 0 : arena_error(&r->arena);
    for (size_t i = 0; i < n && rc == 0; i++) {
        rc = arena_copy(&r->arena, headers[i].name, &copy[i].name);
        rc = rc != 0 ? rc : arena_copy(&r->arena, headers[i].value, &copy[i].value);
    }
    r->headers = copy;
    r->header_count = rc == 0 ? n : 0;
    return rc;
}

static void on_head(void *ctx, int status, const struct header *headers, size_t n)
{
    struct client_sender *s = ctx;
    s->reply->status = status;
    s->rc = keep_head(s->reply, headers, n);
}

static bool on_body(void *ctx, struct slice bytes)
{
    struct client_sender *s = ctx;
    struct client_reply *r = s->reply;
    int rc = buf_append_slice(&r->body, bytes);
    if (rc == HAPAX_E_LIMIT) {
        r->complete = true;
        r->body_cut = true;
        buf_free(&r->body);
    }
    s->rc = s->rc != 0 || rc == HAPAX_E_LIMIT ? s->rc : rc;
    if (rc != 0) {
        http_call_cancel(s->call);
        end(s);
    }
    return rc == 0;
}

static void on_done(void *ctx, bool complete, enum call_failure failure, const char *detail)
{
    struct client_sender *s = ctx;
    s->reply->complete = complete;
    s->reply->failure = failure;
    snprintf(s->reply->detail, sizeof s->reply->detail, "%s", detail);
    end(s);
}

/* --- one attempt --- */

int client_sender_send(void *ctx, const struct client_message *m, int64_t timeout_ms,
                       struct client_reply *out, hapax_error *err)
{
    static const struct http_call_handler handler = {
        .on_head = on_head, .on_body = on_body, .on_done = on_done};
    struct client_sender *s = ctx;
    struct http_call_options o = {
        .method = m->method,
        .target = m->target,
        .headers = m->headers,
        .header_count = m->header_count,
        .body = m->body,
        .timeout_ms = timeout_ms,
        .head_bytes_max = HAPAX_CALL_HEAD_BYTES_MAX,
    };
    s->reply = out;
    s->rc = 0;
    loop_catch_up(s->loop); /* it has stood still since the last attempt: the time-out counts from now */
    int rc = http_call_start(&s->call, s->client, s->origin, &o, &handler, s, err);
    if (rc != 0) {
        return rc;
    }
    loop_run(s->loop);
    if (s->rc != 0) {
        /* There was an answer that could not be read: as good as none. */
        out->complete = false;
        out->failure = CALL_BROKEN;
        snprintf(out->detail, sizeof out->detail, "no memory for the answer");
    }
    if (!out->complete) {
        out->status = 0;
    }
    return 0;
}

/* --- life --- */

int client_sender_open(struct client_sender **out, const char *origin, const char *ca_file, hapax_error *err)
{
    struct http_origin_options o = {.url = origin, .ca_file = ca_file, .connections_max = 1};
    struct client_sender *s = calloc(1, sizeof *s);
    *out = NULL;
    if (s == NULL) {
        return error_code(err, HAPAX_E_MEMORY);
    }
    block_pipe_signal(s);
    int rc = loop_create(&s->loop, err);
    rc = rc != 0 ? rc : http_client_create(&s->client, s->loop, err);
    rc = rc != 0 ? rc : http_origin_create(&s->origin, &o, err);
    if (rc != 0) {
        client_sender_close(s);
        return rc;
    }
    *out = s;
    return 0;
}

void client_sender_close(struct client_sender *s)
{
    if (s == NULL) {
        return;
    }
    if (s->client != NULL) {
        http_client_destroy(s->client);
    }
    http_origin_destroy(s->origin);
    if (s->loop != NULL) {
        loop_destroy(s->loop);
    }
    restore_signals(s);
    free(s);
}
