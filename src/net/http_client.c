/* The client and its calls.
 *
 * A call is fresh (started in this turn), waiting (its origin has connections_max calls running) or active (it
 * holds a link). The turn runs right after the loop has served all sockets that are ready: it hands fresh calls to
 * links and then does what calls asked for. So what happened on a kept connection before a call was started is known
 * before that call could use it. Call-backs come from turns and events, never from inside http_call_*. */
#include "net/http_client.h"

#include "base/assert.h"
#include "base/error.h"
#include "net/http_client_parts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    SPARE_CALLS_MAX = 1024,
    CLOCK_STEP_MS = 5, /* least distance of two looks at the deadlines */
    KEPT_MS_MIN = 1000,
    DETAIL_BYTES = 320,
};

static void tear_down(struct http_client *c);

/* --- Turns. --- */

static void on_turn(uv_check_t *turn);

static void on_hurry(uv_idle_t *hurry)
{
    (void)hurry;
}

static void turn_soon(struct http_client *c)
{
    if (!uv_is_active((uv_handle_t *)&c->turn)) {
        uv_check_start(&c->turn, on_turn);
        uv_idle_start(&c->hurry, on_hurry);
    }
}

void client_enter(struct http_client *c)
{
    c->busy++;
}

void client_leave(struct http_client *c)
{
    if (--c->busy == 0 && c->closing) {
        tear_down(c);
    }
}

void call_errand(struct http_call *call, unsigned errand)
{
    if (call->errands == 0) {
        TAILQ_INSERT_TAIL(&call->client->errands, call, errand_link);
        turn_soon(call->client);
    }
    call->errands |= errand;
}

/* --- Peers. --- */

static void peer_free(struct http_client *c, struct peer *p)
{
    while (!LIST_EMPTY(&p->links)) {
        link_close(LIST_FIRST(&p->links));
    }
    if (p->lookup != NULL) {
        resolve_cancel(p->lookup);
    }
    TAILQ_REMOVE(&c->peers, p, link);
    origin_drop(p->origin);
    free(p);
}

/* The client's view of an origin. */
static struct peer *peer_of(struct http_client *c, struct http_origin *origin)
{
    struct peer *p;
    TAILQ_FOREACH(p, &c->peers, link)
    {
        if (p->origin == origin) {
            return p;
        }
    }
    p = calloc(1, sizeof *p);
    if (p != NULL) {
        origin_take(origin);
        p->client = c;
        p->origin = origin;
        TAILQ_INIT(&p->waiting);
        LIST_INIT(&p->links);
        TAILQ_INIT(&p->idle);
        TAILQ_INSERT_TAIL(&c->peers, p, link);
    }
    return p;
}

/* Let go of the origins that their owners have destroyed. */
static void drop_gone_peers(struct http_client *c)
{
    struct peer *p;
    struct peer *next;
    for (p = TAILQ_FIRST(&c->peers); p != NULL; p = next) {
        next = TAILQ_NEXT(p, link);
        if (p->active == 0 && p->calls == 0 && origin_is_gone(p->origin)) {
            peer_free(c, p);
        }
    }
}

/* --- The end of calls. --- */

static void place(struct http_call *call, enum call_place to)
{
    struct http_client *c = call->client;
    struct peer *p = call->peer;
    if (call->place == CALL_FRESH) {
        TAILQ_REMOVE(&c->fresh, call, place_link);
    } else if (call->place == CALL_WAITING) {
        TAILQ_REMOVE(&p->waiting, call, place_link);
    } else if (call->place == CALL_ACTIVE) {
        p->active--;
    }
    call->place = to;
    if (to == CALL_FRESH) {
        TAILQ_INSERT_TAIL(&c->fresh, call, place_link);
        turn_soon(c);
    } else if (to == CALL_WAITING) {
        TAILQ_INSERT_TAIL(&p->waiting, call, place_link);
    } else if (to == CALL_ACTIVE) {
        p->active++;
    }
}

static void call_recycle(struct http_call *call)
{
    struct http_client *c = call->client;
    buf_free(&call->out);
    if (c->spare_count < SPARE_CALLS_MAX) {
        arena_reset(&call->arena);
        TAILQ_INSERT_HEAD(&c->spare, call, all_link);
        c->spare_count++;
    } else {
        arena_free(&call->arena);
        free(call);
    }
}

static void let_go_of_link(struct http_call *call, bool keep)
{
    struct link *l = call->link;
    if (l == NULL) {
        return;
    }
    call->link = NULL;
    l->call = NULL;
    if (keep && call->peer->origin->idle_ms >= KEPT_MS_MIN && !origin_is_gone(call->peer->origin)) {
        link_idle(l);
    } else {
        link_close(l);
    }
}

/* Give back everything the call holds. */
static void call_free(struct http_call *call, bool keep_link)
{
    struct http_client *c = call->client;
    struct peer *p = call->peer;
    let_go_of_link(call, keep_link);
    place(call, CALL_NOWHERE);
    p->calls--;
    if (!TAILQ_EMPTY(&p->waiting) && p->active < p->origin->connections_max) {
        place(TAILQ_FIRST(&p->waiting), CALL_FRESH);
    }
    TAILQ_REMOVE(&c->all, call, all_link);
    if (call->errands != 0) {
        TAILQ_REMOVE(&c->errands, call, errand_link);
        call->errands = 0;
    }
    call_recycle(call);
}

static void end_call(struct http_call *call, bool complete, enum call_failure failure, const char *detail)
{
    char text[DETAIL_BYTES];
    snprintf(text, sizeof text, "%s", detail);
    for (char *p = text; *p != '\0'; p++) {
        if ((unsigned char)*p < 0x20 || *p == 0x7f) {
            *p = '?';
        }
    }
    call->ended = true;
    call->handler.on_done(call->ctx, complete, failure, text);
}

void call_complete(struct http_call *call, bool keep_link)
{
    call->ended = true;
    call->handler.on_done(call->ctx, true, CALL_BROKEN, "");
    call_free(call, keep_link);
}

void call_fail(struct http_call *call, const char *detail)
{
    end_call(call, false, call->sent ? CALL_BROKEN : CALL_NOT_SENT, detail);
    call_free(call, false);
}

void call_again(struct http_call *call)
{
    HAPAX_ASSERT(!call->sent);
    let_go_of_link(call, false);
    place(call, CALL_FRESH);
}

/* --- What calls asked for. --- */

static int64_t deadline(struct http_call *call, int64_t now);

static void expire(struct http_call *call)
{
    int64_t now = client_now_ms(call->client);
    int64_t due = deadline(call, now);
    if (due > now) {
        client_clock_by(call->client, due); /* something came meanwhile */
        return;
    }
    if (!call->sent) {
        call_fail(call, "no connection within the time-out");
        return;
    }
    end_call(call, false, CALL_TIMEOUT,
             call->expires_ms > 0 && now >= call->expires_ms ? "no complete answer within the time-out"
                                                             : "the upstream was silent for too long");
    call_free(call, false);
}

static void run_errand(struct http_call *call, unsigned errands)
{
    if ((errands & ERRAND_FAILED) != 0) {
        call_fail(call, call->reason);
    } else if ((errands & ERRAND_EXPIRED) != 0) {
        expire(call);
    } else if ((errands & ERRAND_WRITABLE) != 0) {
        if ((errands & ~(unsigned)ERRAND_WRITABLE) != 0) {
            call_errand(call, errands & ~(unsigned)ERRAND_WRITABLE);
        }
        call->out_refused = false;
        if (call->handler.on_writable != NULL) {
            call->handler.on_writable(call->ctx); /* may free the call */
        }
    } else {
        struct link *l = call->link;
        bool ready = l != NULL && l->state == LINK_BUSY;
        call_heard(call);
        if ((errands & ERRAND_RESUME) != 0) {
            call->paused = false;
        }
        if (ready && (errands & ERRAND_FEED) != 0) {
            link_write(l);
        }
        if (ready && !l->closing && (errands & ERRAND_RESUME) != 0) {
            link_run(l);
        }
    }
}

static void run_errands(struct http_client *c)
{
    struct http_call *call;
    while ((call = TAILQ_FIRST(&c->errands)) != NULL) {
        unsigned errands = call->errands;
        call->errands = 0;
        TAILQ_REMOVE(&c->errands, call, errand_link);
        run_errand(call, errands);
    }
}

/* A link that fell idle since the last poll may have been closed or written to already: nobody has looked. The loop's
 * time stands still between two polls. */
static bool is_quiet(const struct link *l)
{
    char byte;
    uv_os_fd_t fd;
    if (l->idle_since_ms != client_now_ms(l->client)) {
        return true; /* was polled since */
    }
    return uv_fileno((const uv_handle_t *)l->stream, &fd) == 0 &&
           recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

/* The link used last that is neither stale nor disturbed. */
static struct link *idle_link_of(struct peer *p)
{
    int64_t fresh_since_ms = client_now_ms(p->client) - p->origin->idle_ms;
    struct link *l;
    TAILQ_FOREACH(l, &p->idle, idle_link)
    {
        if (l->idle_since_ms <= fresh_since_ms) {
            return NULL;
        }
        if (is_quiet(l)) {
            return l;
        }
    }
    return NULL;
}

static void dispatch(struct http_call *call)
{
    struct peer *p = call->peer;
    if (p->active >= p->origin->connections_max) {
        place(call, CALL_WAITING);
        return;
    }
    place(call, CALL_ACTIVE);
    struct link *l = idle_link_of(p);
    if (l != NULL) {
        link_take_call(l, call);
    } else if (!link_open(p, call)) {
        call_fail(call, "no memory for a connection");
    }
}

static void on_turn(uv_check_t *turn)
{
    struct http_client *c = turn->data;
    uv_check_stop(turn);
    uv_idle_stop(&c->hurry);
    client_enter(c);
    struct http_call *last =
        TAILQ_LAST(&c->fresh, call_list); /* what is started meanwhile has the next turn */
    for (struct http_call *call = NULL; call != last;) {
        call = TAILQ_FIRST(&c->fresh);
        if (call == NULL) {
            break;
        }
        dispatch(call);
    }
    /* After the calls: a link that falls idle here may have been hung up meanwhile, which the next poll shows. */
    run_errands(c);
    drop_gone_peers(c);
    client_leave(c);
}

/* --- Deadlines. --- */

static void on_clock(uv_timer_t *timer);

void client_clock_by(struct http_client *c, int64_t due_ms)
{
    if (due_ms >= c->clock_armed_ms || c->closing) {
        return;
    }
    int64_t left = due_ms - client_now_ms(c);
    c->clock_armed_ms = due_ms;
    uv_timer_start(&c->clock, on_clock, left > 0 ? (uint64_t)left : 0, 0);
}

void call_heard(struct http_call *call)
{
    call->heard_ms = client_now_ms(call->client);
    if (call->silence_ms > 0 && call->sent) {
        client_clock_by(call->client, call->heard_ms + call->silence_ms);
    }
}

void http_call_unlimit(struct http_call *call, int64_t silence_ms)
{
    call->expires_ms = 0;
    call->silence_ms = silence_ms;
    call_heard(call);
}

/* When the call runs out of time, as things stand; INT64_MAX: never. */
static int64_t deadline(struct http_call *call, int64_t now)
{
    struct link *l = call->link;
    int64_t due = call->expires_ms > 0 ? call->expires_ms : INT64_MAX;
    if (!call->sent && call->send_by_ms > 0 && call->send_by_ms < due) {
        due = call->send_by_ms;
    }
    if (l != NULL && l->state < LINK_BUSY) {
        return l->connect_due_ms < due ? l->connect_due_ms : due;
    }
    if (call->silence_ms == 0 || !call->sent || call->paused || call_starves(call)) {
        return due;
    }
    if (call->heard_ms + call->silence_ms <= now && l != NULL && link_made_progress(l)) {
        call->heard_ms = now; /* bytes left for the network without a call-back */
    }
    int64_t silent = call->heard_ms + call->silence_ms;
    return silent < due ? silent : due;
}

static void close_stale_links(struct peer *p, int64_t now, int64_t *next)
{
    struct link *l;
    while ((l = TAILQ_LAST(&p->idle, idle_list)) != NULL) {
        int64_t due = l->idle_since_ms + p->origin->idle_ms;
        if (due > now) {
            *next = due < *next ? due : *next;
            return;
        }
        link_close(l);
    }
}

static void look_at_calls(struct http_client *c, int64_t now, int64_t *next)
{
    struct http_call *call;
    TAILQ_FOREACH(call, &c->all, all_link)
    {
        int64_t due = deadline(call, now);
        if (due <= now) {
            call_errand(call, ERRAND_EXPIRED);
        } else if (due < *next) {
            *next = due;
        }
    }
}

static void look_at_attempts(struct peer *p, int64_t now, int64_t *next)
{
    struct link *l;
    struct link *after;
    for (l = LIST_FIRST(&p->links); l != NULL; l = after) {
        after = LIST_NEXT(l, peer_link);
        if (l->attempt_due_ms <= now) {
            link_next_attempt(l); /* ends no call while another attempt is open, and one is */
        }
        *next = l->attempt_due_ms < *next ? l->attempt_due_ms : *next;
    }
}

static void on_clock(uv_timer_t *timer)
{
    struct http_client *c = timer->data;
    int64_t now = client_now_ms(c);
    int64_t next = INT64_MAX;
    struct peer *p;
    c->clock_armed_ms = INT64_MAX;
    client_enter(c);
    look_at_calls(c, now, &next);
    TAILQ_FOREACH(p, &c->peers, link)
    {
        close_stale_links(p, now, &next);
        look_at_attempts(p, now, &next);
    }
    if (next != INT64_MAX) {
        client_clock_by(c, next > now + CLOCK_STEP_MS ? next : now + CLOCK_STEP_MS);
    }
    /* The errands wait for the turn: after a halt of the loop, the answers that lie in the sockets come first. */
    client_leave(c);
}

/* --- Calls. --- */

static struct http_call *call_new(struct http_client *c)
{
    struct http_call *call = TAILQ_FIRST(&c->spare);
    struct arena arena;
    if (call != NULL) {
        TAILQ_REMOVE(&c->spare, call, all_link);
        c->spare_count--;
        arena = call->arena;
    } else {
        call = malloc(sizeof *call);
        if (call == NULL) {
            return NULL;
        }
        arena_init(&arena, HTTP_CALL_HEAD_BYTES_MAX);
    }
    *call = (struct http_call){.client = c, .arena = arena};
    buf_init(&call->out, HTTP_CALL_WRITE_BYTES_MAX);
    return call;
}

int http_call_start(struct http_call **out, struct http_client *c, struct http_origin *origin,
                    const struct http_call_options *o, const struct http_call_handler *handler, void *ctx,
                    hapax_error *err)
{
    *out = NULL;
    HAPAX_ASSERT(!c->closing);
    struct http_call *call = call_new(c);
    if (call == NULL) {
        return error_code(err, HAPAX_E_MEMORY);
    }
    call->handler = *handler;
    call->ctx = ctx;
    int rc = call_describe(call, origin, o, err);
    struct peer *p = rc == 0 ? peer_of(c, origin) : NULL;
    if (p == NULL) {
        call_recycle(call);
        return rc != 0 ? rc : error_code(err, HAPAX_E_MEMORY);
    }
    call->peer = p;
    p->calls++;
    TAILQ_INSERT_TAIL(&c->all, call, all_link);
    place(call, CALL_FRESH);
    if (call->expires_ms > 0) {
        client_clock_by(c, call->expires_ms);
    }
    if (call->send_by_ms > 0) {
        client_clock_by(c, call->send_by_ms);
    }
    *out = call;
    return 0;
}

void http_call_resume(struct http_call *call)
{
    if (call->paused && !call->ended) {
        call_errand(call, ERRAND_RESUME);
    }
}

void http_call_cancel(struct http_call *call)
{
    if (!call->ended) {
        call_free(call, false);
    }
}

bool http_call_was_sent(const struct http_call *call)
{
    return call->sent;
}

/* --- The client. --- */

int http_client_create(struct http_client **out, struct loop *l, hapax_error *err)
{
    *out = NULL;
    struct http_client *c = calloc(1, sizeof *c);
    if (c == NULL) {
        return error_code(err, HAPAX_E_MEMORY);
    }
    c->loop = l;
    c->uv = loop_uv(l);
    c->clock_armed_ms = INT64_MAX;
    TAILQ_INIT(&c->all);
    TAILQ_INIT(&c->fresh);
    TAILQ_INIT(&c->errands);
    TAILQ_INIT(&c->peers);
    TAILQ_INIT(&c->spare);
    uv_check_init(c->uv, &c->turn);
    uv_idle_init(c->uv, &c->hurry);
    uv_timer_init(c->uv, &c->clock);
    c->turn.data = c;
    c->hurry.data = c;
    c->clock.data = c;
    c->handles_open = 3;
    *out = c;
    return 0;
}

static void free_when_closed(struct http_client *c)
{
    if (c->handles_open == 0 && c->links == 0) {
        free(c);
    }
}

static void on_closed(uv_handle_t *handle)
{
    struct http_client *c = handle->data;
    c->handles_open--;
    free_when_closed(c);
}

void client_link_freed(struct http_client *c)
{
    c->links--;
    free_when_closed(c);
}

static void tear_down(struct http_client *c)
{
    struct http_call *call;
    HAPAX_ASSERT(TAILQ_EMPTY(&c->all));
    while (!TAILQ_EMPTY(&c->peers)) {
        peer_free(c, TAILQ_FIRST(&c->peers));
    }
    while ((call = TAILQ_FIRST(&c->spare)) != NULL) {
        TAILQ_REMOVE(&c->spare, call, all_link);
        arena_free(&call->arena);
        free(call);
    }
    uv_close((uv_handle_t *)&c->turn, on_closed);
    uv_close((uv_handle_t *)&c->hurry, on_closed);
    uv_close((uv_handle_t *)&c->clock, on_closed);
}

void http_client_destroy(struct http_client *c)
{
    c->closing = true;
    if (c->busy == 0) {
        tear_down(c);
    }
}
