/* The client and its calls.
 *
 * A call is fresh (started in this turn), waiting (its origin has connections_max calls running) or active (it
 * holds a wire). The turn runs right after the loop has served all sockets that are ready: it does what calls
 * asked for, hands fresh calls to curl and lets curl begin. So what happened on a kept connection before a call
 * was started is known before that call could use it. Call-backs come from turns and events, never from inside
 * http_call_*. */
#include "net/http_client.h"

#include "base/assert.h"
#include "base/error.h"
#include "net/http_client_parts.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    SPARE_CALLS_MAX = 1024,
    CLOCK_STEP_MS = 5, /* least distance of two looks at the deadlines */
    KEPT_CONNECTIONS_MAX = 1 << 20,
    DETAIL_BYTES = 320,
};

static void tear_down(struct http_client *c);

/* --- Turns. --- */

static void on_turn(uv_check_t *turn);

static void on_hurry(uv_idle_t *hurry)
{
    (void)hurry;
}

void client_turn_soon(struct http_client *c)
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
        client_turn_soon(call->client);
    }
    call->errands |= errand;
}

/* --- Peers. --- */

static void peer_free(struct http_client *c, struct peer *p)
{
    while (p->pool != NULL) {
        struct wire *next = p->pool->next;
        wire_free(p->pool);
        p->pool = next;
    }
    TAILQ_REMOVE(&c->peers, p, link);
    origin_drop(p->origin);
    free(p);
}

/* The client's view of an origin; lets go of those that their owners destroyed meanwhile. */
static struct peer *peer_of(struct http_client *c, struct http_origin *origin)
{
    struct peer *p;
    struct peer *next;
    for (p = TAILQ_FIRST(&c->peers); p != NULL && p->origin != origin; p = next) {
        next = TAILQ_NEXT(p, link);
        if (origin_is_gone(p->origin) && p->active == 0 && TAILQ_EMPTY(&p->waiting)) {
            peer_free(c, p);
        }
    }
    if (p == NULL) {
        p = calloc(1, sizeof *p);
        if (p != NULL) {
            origin_take(origin);
            p->origin = origin;
            TAILQ_INIT(&p->waiting);
            TAILQ_INSERT_TAIL(&c->peers, p, link);
        }
    }
    return p;
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
        client_turn_soon(c);
    } else if (to == CALL_WAITING) {
        TAILQ_INSERT_TAIL(&p->waiting, call, place_link);
    } else if (to == CALL_ACTIVE) {
        p->active++;
    }
}

/* Give back everything the call holds. `reuse`: its wire ended well and goes to the pool. */
static void call_free(struct http_call *call, bool reuse)
{
    struct http_client *c = call->client;
    struct peer *p = call->peer;
    if (call->wire != NULL) {
        call->wire->call = NULL;
        watch_unpark(call->wire);
        if (reuse && !origin_is_gone(p->origin)) {
            call->wire->next = p->pool;
            p->pool = call->wire;
        } else {
            wire_free(call->wire);
        }
        call->wire = NULL;
    }
    if (p != NULL) {
        place(call, CALL_NOWHERE);
        if (!TAILQ_EMPTY(&p->waiting) && p->active < p->origin->connections_max) {
            place(TAILQ_FIRST(&p->waiting), CALL_FRESH);
        }
        TAILQ_REMOVE(&c->all, call, all_link);
    }
    if (call->errands != 0) {
        TAILQ_REMOVE(&c->errands, call, errand_link);
        call->errands = 0;
    }
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

static void unplug(struct http_call *call)
{
    if (call->wire != NULL) {
        curl_multi_remove_handle(call->client->multi, call->wire->easy);
    }
}

/* Tell the caller and free the call. Outside curl only. */
static void finish(struct http_call *call, bool complete, enum call_failure failure, const char *detail)
{
    HAPAX_ASSERT(call->client->in_curl == 0);
    char text[DETAIL_BYTES];
    snprintf(text, sizeof text, "%s", detail);
    for (char *p = text; *p != '\0'; p++) {
        if ((unsigned char)*p < 0x20 || *p == 0x7f) {
            *p = '?';
        }
    }
    unplug(call);
    call->ended = true;
    call->handler.on_done(call->ctx, complete, failure, text);
    call_free(call, complete);
}

static void fail(struct http_call *call, const char *detail)
{
    finish(call, false, call->sent ? CALL_BROKEN : CALL_NOT_SENT, detail);
}

static void call_ended(struct http_call *call, CURLcode code)
{
    const struct wire *w = call->wire;
    if (call->cancelled) {
        unplug(call);
        call_free(call, false);
    } else if (code == CURLE_OK && w->head.complete && !w->goodbye_due) {
        finish(call, true, CALL_BROKEN, "");
    } else if (call->reason != NULL) {
        fail(call, call->reason);
    } else if (code == CURLE_OK) {
        fail(call, w->head.complete ? "the answer's body ended without TLS's close_notify"
                                    : "the answer's head was cut short");
    } else {
        fail(call, w->error[0] != '\0' ? w->error : curl_easy_strerror(code));
    }
}

void client_act(struct http_client *c, curl_socket_t fd, int events)
{
    int running;
    int left;
    c->in_curl++;
    (void)curl_multi_socket_action(c->multi, fd, events, &running);
    c->in_curl--;
    const CURLMsg *m;
    while ((m = curl_multi_info_read(c->multi, &left)) != NULL) {
        char *private = NULL;
        CURLcode code = m->data.result;
        if (m->msg == CURLMSG_DONE &&
            curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &private) == CURLE_OK) {
            call_ended(((struct wire *)(void *)private)->call, code);
        }
    }
}

/* --- What calls asked for. --- */

static void unpause(struct http_call *call, unsigned errands)
{
    struct http_client *c = call->client;
    if ((errands & ERRAND_RESUME) != 0) {
        call->paused = false;
    }
    if ((errands & ERRAND_FEED) != 0) {
        call->send_paused = false;
    }
    call_heard(call);
    if (call->wire == NULL) {
        return;
    }
    c->in_curl++; /* curl may hand over what it held back */
    CURLcode code = curl_easy_pause(call->wire->easy, (call->paused ? CURLPAUSE_RECV : 0) |
                                                          (call->send_paused ? CURLPAUSE_SEND : 0));
    c->in_curl--;
    if (code != CURLE_OK && code != CURLE_BAD_FUNCTION_ARGUMENT && !call->cancelled) {
        fail(call,
             curl_easy_strerror(code)); /* BAD_FUNCTION_ARGUMENT: it has just ended, its message waits */
    }
}

static void expire(struct http_call *call)
{
    if (!call->sent) {
        finish(call, false, CALL_NOT_SENT, "no connection within the time-out");
    } else {
        finish(call, false, CALL_TIMEOUT,
               call->expires_ms > 0 && client_now_ms(call->client) >= call->expires_ms
                   ? "no complete answer within the time-out"
                   : "the upstream was silent for too long");
    }
}

static void run_errands(struct http_client *c)
{
    struct http_call *call;
    while ((call = TAILQ_FIRST(&c->errands)) != NULL) {
        unsigned errands = call->errands;
        call->errands = 0;
        TAILQ_REMOVE(&c->errands, call, errand_link);
        if ((errands & ERRAND_CANCELLED) != 0) {
            unplug(call);
            call_free(call, false);
        } else if ((errands & ERRAND_FAILED) != 0) {
            fail(call, call->reason);
        } else if ((errands & ERRAND_EXPIRED) != 0) {
            expire(call);
        } else if ((errands & ERRAND_WRITABLE) != 0) {
            errands &= ~(unsigned)ERRAND_WRITABLE;
            if (errands != 0) {
                call_errand(call, errands);
            }
            call->out_refused = false;
            if (call->handler.on_writable != NULL) {
                call->handler.on_writable(call->ctx); /* may free the call */
            }
        } else {
            unpause(call, errands);
        }
    }
}

static void dispatch(struct http_call *call)
{
    struct peer *p = call->peer;
    if (p->active >= p->origin->connections_max) {
        place(call, CALL_WAITING);
        return;
    }
    struct wire *w = p->pool;
    if (w != NULL) {
        p->pool = w->next;
    } else {
        w = wire_create(call->client, p->origin);
    }
    place(call, CALL_ACTIVE);
    if (w == NULL || !wire_load(w, call)) {
        if (w != NULL) {
            w->call = NULL;
            wire_free(w);
        }
        call->wire = NULL;
        fail(call, "no memory for a connection");
    } else if (curl_multi_add_handle(call->client->multi, w->easy) != CURLM_OK) {
        fail(call, "no memory for a connection");
    }
}

static void on_turn(uv_check_t *turn)
{
    struct http_client *c = turn->data;
    uv_check_stop(turn);
    uv_idle_stop(&c->hurry);
    client_enter(c);
    run_errands(c);
    struct http_call *last =
        TAILQ_LAST(&c->fresh, call_list); /* what is started meanwhile has the next turn */
    for (struct http_call *call = NULL; call != last;) {
        call = TAILQ_FIRST(&c->fresh);
        if (call == NULL) {
            break;
        }
        dispatch(call);
    }
    if (c->kick) {
        c->kick = false;
        client_act(c, CURL_SOCKET_TIMEOUT, 0);
    }
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
    int64_t due = call->expires_ms > 0 ? call->expires_ms : INT64_MAX;
    if (call->silence_ms == 0 || !call->sent || call->paused || call->send_paused) {
        return due;
    }
    if (call->heard_ms + call->silence_ms <= now && call->wire != NULL) {
        /* Bytes that left for the network without a call-back of curl's count, too. */
        curl_off_t uploaded = 0;
        curl_easy_getinfo(call->wire->easy, CURLINFO_SIZE_UPLOAD_T, &uploaded);
        if (uploaded != call->uploaded_bytes) {
            call->uploaded_bytes = uploaded;
            call->heard_ms = now;
        }
    }
    int64_t silent = call->heard_ms + call->silence_ms;
    return silent < due ? silent : due;
}

static void on_clock(uv_timer_t *timer)
{
    struct http_client *c = timer->data;
    int64_t now = client_now_ms(c);
    int64_t next = INT64_MAX;
    struct http_call *call;
    c->clock_armed_ms = INT64_MAX;
    client_enter(c);
    TAILQ_FOREACH(call, &c->all, all_link)
    {
        int64_t due = call->cancelled ? INT64_MAX : deadline(call, now);
        if (due <= now) {
            call_errand(call, ERRAND_EXPIRED);
        } else if (due < next) {
            next = due;
        }
    }
    if (next != INT64_MAX) {
        client_clock_by(c, next > now + CLOCK_STEP_MS ? next : now + CLOCK_STEP_MS);
    }
    run_errands(c);
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
        call_free(call, false);
        return rc != 0 ? rc : error_code(err, HAPAX_E_MEMORY);
    }
    call->peer = p;
    TAILQ_INSERT_TAIL(&c->all, call, all_link);
    place(call, CALL_FRESH);
    if (call->expires_ms > 0) {
        client_clock_by(c, call->expires_ms);
    }
    *out = call;
    return 0;
}

void http_call_resume(struct http_call *call)
{
    if (call->paused && !call->cancelled && !call->ended) {
        call_errand(call, ERRAND_RESUME);
    }
}

void http_call_cancel(struct http_call *call)
{
    if (call->ended || call->cancelled) {
        return;
    }
    call->cancelled = true;
    if (call->client->in_curl > 0 && call->wire != NULL) {
        call_errand(call, ERRAND_CANCELLED);
        return;
    }
    unplug(call);
    call_free(call, false);
}

bool http_call_was_sent(const struct http_call *call)
{
    return call->sent;
}

/* --- The client. --- */

static bool set_multi(struct http_client *c)
{
    return curl_multi_setopt(c->multi, CURLMOPT_SOCKETFUNCTION, watch_on_socket) == CURLM_OK &&
           curl_multi_setopt(c->multi, CURLMOPT_SOCKETDATA, c) == CURLM_OK &&
           curl_multi_setopt(c->multi, CURLMOPT_TIMERFUNCTION, watch_on_alarm) == CURLM_OK &&
           curl_multi_setopt(c->multi, CURLMOPT_TIMERDATA, c) == CURLM_OK &&
           curl_multi_setopt(c->multi, CURLMOPT_PIPELINING, (long)CURLPIPE_NOTHING) == CURLM_OK &&
           curl_multi_setopt(c->multi, CURLMOPT_MAXCONNECTS, (long)KEPT_CONNECTIONS_MAX) == CURLM_OK;
}

int http_client_create(struct http_client **out, struct loop *l, hapax_error *err)
{
    *out = NULL;
    struct http_client *c = calloc(1, sizeof *c);
    if (c == NULL) {
        return error_code(err, HAPAX_E_MEMORY);
    }
    c->loop = l;
    c->uv = loop_uv(l);
    c->alarm_due_ms = -1;
    c->alarm_armed_ms = -1;
    c->clock_armed_ms = INT64_MAX;
    TAILQ_INIT(&c->all);
    TAILQ_INIT(&c->fresh);
    TAILQ_INIT(&c->errands);
    TAILQ_INIT(&c->peers);
    TAILQ_INIT(&c->spare);
    c->multi = curl_multi_init();
    if (c->multi == NULL || !set_multi(c)) {
        if (c->multi != NULL) {
            curl_multi_cleanup(c->multi);
        }
        free(c);
        return error_code(err, HAPAX_E_MEMORY);
    }
    uv_check_init(c->uv, &c->turn);
    uv_idle_init(c->uv, &c->hurry);
    uv_timer_init(c->uv, &c->alarm);
    uv_timer_init(c->uv, &c->clock);
    c->turn.data = c;
    c->hurry.data = c;
    c->alarm.data = c;
    c->clock.data = c;
    c->handles_open = 4;
    *out = c;
    return 0;
}

static void free_client(uv_handle_t *handle)
{
    struct http_client *c = handle->data;
    if (--c->handles_open == 0) {
        free(c);
    }
}

static void tear_down(struct http_client *c)
{
    struct http_call *call;
    run_errands(c); /* cancelled calls, at most */
    HAPAX_ASSERT(TAILQ_EMPTY(&c->all));
    while (!TAILQ_EMPTY(&c->peers)) {
        peer_free(c, TAILQ_FIRST(&c->peers));
    }
    curl_multi_cleanup(c->multi);
    while ((call = TAILQ_FIRST(&c->spare)) != NULL) {
        TAILQ_REMOVE(&c->spare, call, all_link);
        arena_free(&call->arena);
        free(call);
    }
    free(c->watches);
    c->watches = NULL;
    c->watch_room = 0;
    uv_close((uv_handle_t *)&c->turn, free_client);
    uv_close((uv_handle_t *)&c->hurry, free_client);
    uv_close((uv_handle_t *)&c->alarm, free_client);
    uv_close((uv_handle_t *)&c->clock, free_client);
}

void http_client_destroy(struct http_client *c)
{
    c->closing = true;
    if (c->busy == 0) {
        tear_down(c);
    }
}
