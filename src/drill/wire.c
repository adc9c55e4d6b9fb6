/* The states of a shot. Invariant: a shot is in wire->live exactly while it is not DONE; its socket is open only
 * then. */
#include "drill/wire.h"

#include "base/clock.h"
#include "base/limits.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define CONNECT_MS     10000
#define POLL_MS        100 /* an interruption is noticed within it */
#define READ_BYTES     (64U * 1024U)
#define NET_BYTES_MAX  (2U * DRILL_BODY_BYTES_MAX)
#define IN_BYTES_MAX   (4U * READ_BYTES)
#define LAST_BYTES_MAX 4096 /* a TLS record with one byte in it */
#define QUIET_MS       20   /* the moment after which a TLS server has said what it says of itself */

static void leave_live(struct wire *w, struct shot *s)
{
    for (unsigned i = 0; i < w->live_count; i++) {
        if (w->live[i] == s) {
            w->live[i] = w->live[--w->live_count];
            return;
        }
    }
}

static void end_shot(struct wire *w, struct shot *s, enum wire_result result, const char *detail)
{
    if (s->state == SHOT_DONE) {
        return;
    }
    leave_live(w, s);
    if (s->fd >= 0) {
        close(s->fd);
        s->fd = -1;
    }
    tls_conn_free(s->tls);
    s->tls = NULL;
    buf_free(&s->net);
    buf_free(&s->last);
    buf_free(&s->in);
    s->state = SHOT_DONE;
    s->result = result;
    snprintf(s->detail, sizeof s->detail, "%s", detail);
}

/* --- Connecting. --------------------------------------------------------------------------------- */

static socklen_t address_length(const struct sockaddr_storage *a)
{
    return a->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
}

static void try_addresses(struct wire *w, struct shot *s, int why)
{
    while (s->addresses_tried < s->place->address_count) {
        unsigned at = (s->place->address_first + s->addresses_tried) % s->place->address_count;
        const struct sockaddr_storage *a = &s->place->address[at];
        if (s->fd >= 0) {
            close(s->fd);
        }
        s->addresses_tried++;
        s->state = SHOT_CONNECTING;
        s->fd = socket(a->ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (s->fd >= 0 &&
            (connect(s->fd, (const struct sockaddr *)a, address_length(a)) == 0 || errno == EINPROGRESS)) {
            return;
        }
        why = errno;
    }
    char text[160];
    snprintf(text, sizeof text, "can't connect to %.100s: %s", s->place->authority, strerror(why));
    end_shot(w, s, WIRE_NO_CONNECTION, text);
}

void shot_start(struct wire *w, struct shot *s, struct wire_place *place, struct slice bytes,
                enum drill_delivery delivery, bool answer_empty, int64_t timeout_ms)
{
    *s = (struct shot){.place = place,
                       .bytes = bytes,
                       .delivery = delivery,
                       .answer_empty = answer_empty,
                       .fd = -1,
                       .timeout_ms = timeout_ms};
    buf_init(&s->net, NET_BYTES_MAX);
    buf_init(&s->last, LAST_BYTES_MAX);
    buf_init(&s->in, IN_BYTES_MAX);
    buf_init(&s->body, DRILL_BODY_BYTES_MAX);
    answer_head_init(&s->head);
    answer_head_start(&s->head, LIMIT_ANSWER_HEAD_BYTES_MAX);
    s->deadline_ms = clock_mono_ms() + CONNECT_MS;
    if (bytes.len == 0 || w->live_count == WIRE_LIVE_MAX) {
        end_shot(w, s, WIRE_NO_CONNECTION, "too many connections at once");
        return;
    }
    w->live[w->live_count++] = s;
    if (place->tls && (w->tls == NULL || tls_conn_create_client(&s->tls, w->tls, place->host) != 0)) {
        end_shot(w, s, WIRE_NO_CONNECTION, "no memory for TLS");
        return;
    }
    try_addresses(w, s, ENETUNREACH);
}

/* --- Writing. ------------------------------------------------------------------------------------ */

/* Plain or encrypted, into a buffer. */
static int encode(struct shot *s, struct buf *to, struct slice bytes)
{
    if (s->tls == NULL) {
        return buf_append_slice(to, bytes);
    }
    int rc = tls_conn_write(s->tls, bytes);
    rc = rc != 0 ? rc : buf_append_slice(to, tls_conn_output(s->tls));
    tls_conn_output_taken(s->tls);
    return rc;
}

static void begin_writing(struct wire *w, struct shot *s)
{
    s->state = SHOT_WRITING;
    s->quiet_ms = clock_mono_ms();
    s->deadline_ms = s->quiet_ms + s->timeout_ms;
    struct slice first = slice_of(s->bytes.ptr, s->bytes.len - 1);
    s->out = s->tls == NULL ? first : SLICE_NONE;
    if ((s->tls != NULL && encode(s, &s->net, first) != 0) ||
        encode(s, &s->last, slice_from(s->bytes, first.len)) != 0) {
        end_shot(w, s, WIRE_NO_CONNECTION, "no memory for the request");
    }
}

static void shake(struct wire *w, struct shot *s)
{
    enum tls_step step = tls_conn_handshake(s->tls);
    if (buf_append_slice(&s->net, tls_conn_output(s->tls)) != 0) {
        end_shot(w, s, WIRE_NO_CONNECTION, "no memory for TLS");
        return;
    }
    tls_conn_output_taken(s->tls);
    if (step == TLS_FAILED || step == TLS_CLOSED) {
        char text[160];
        snprintf(text, sizeof text, "TLS: %.120s", tls_conn_failure(s->tls));
        end_shot(w, s, WIRE_NO_CONNECTION, text);
    } else if (step == TLS_DONE) {
        begin_writing(w, s);
    }
}

static void connected(struct wire *w, struct shot *s)
{
    int why = 0;
    socklen_t len = sizeof why;
    if (getsockopt(s->fd, SOL_SOCKET, SO_ERROR, &why, &len) != 0 || why != 0) {
        try_addresses(w, s, why);
        return;
    }
    s->place->address_first = (s->place->address_first + s->addresses_tried - 1) % s->place->address_count;
    s->addresses_tried = 1;
    int on = 1;
    setsockopt(s->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (s->tls != NULL) {
        s->state = SHOT_SHAKING;
        shake(w, s);
    } else {
        begin_writing(w, s);
    }
}

static bool has_more(const struct shot *s)
{
    return s->out.len > 0 || s->net.len > 0;
}

/* false: the connection takes no more. */
static bool flush(struct shot *s)
{
    while (s->out.len > 0) {
        ssize_t n = send(s->fd, s->out.ptr, s->out.len, MSG_NOSIGNAL);
        if (n < 0) {
            return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
        }
        s->out = slice_from(s->out, (size_t)n);
    }
    while (s->net.len > 0) {
        ssize_t n = send(s->fd, s->net.ptr, s->net.len, MSG_NOSIGNAL);
        if (n < 0) {
            return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
        }
        buf_consume(&s->net, (size_t)n);
    }
    return true;
}

/* Has the server's kernel acknowledged all that was written? */
static bool acknowledged(const struct shot *s)
{
    int left = 0;
    return !has_more(s) && (ioctl(s->fd, SIOCOUTQ, &left) != 0 || left == 0);
}

static bool waits_for_acknowledgement(const struct shot *s)
{
    return (s->state == SHOT_WRITING || s->state == SHOT_LEAVING) && !has_more(s);
}

/* What a TLS server sends of itself is read and thrown away. */
static bool drains(const struct shot *s)
{
    return s->tls != NULL && s->state > SHOT_SHAKING && s->delivery != DRILL_READ;
}

static void drain(struct shot *s)
{
    static char bytes[READ_BYTES]; /* one thread */
    while (recv(s->fd, bytes, sizeof bytes, MSG_DONTWAIT) > 0) {
        s->quiet_ms = clock_mono_ms();
    }
}

static bool is_quiet(struct shot *s)
{
    if (!drains(s)) {
        return true;
    }
    drain(s);
    return clock_mono_ms() - s->quiet_ms >= QUIET_MS;
}

static void note_progress(struct shot *s)
{
    if (s->state == SHOT_WRITING && acknowledged(s) && is_quiet(s)) {
        s->state = SHOT_READY;
    } else if (s->state == SHOT_LEAVING && acknowledged(s)) {
        s->state = SHOT_OUT;
    }
}

void shots_go(struct shot *const *shots, size_t n)
{
    for (size_t i = 0; i < n; i++) { /* nothing else in this loop: it is the barrier */
        struct shot *s = shots[i];
        if (s->state == SHOT_READY) {
            ssize_t sent = send(s->fd, s->last.ptr, s->last.len, MSG_NOSIGNAL);
            buf_consume(&s->last, sent > 0 ? (size_t)sent : 0);
            s->state = SHOT_LEAVING;
        }
    }
    int64_t now = clock_mono_ms();
    for (size_t i = 0; i < n; i++) {
        if (shots[i]->state == SHOT_LEAVING) {
            shots[i]->deadline_ms = now + shots[i]->timeout_ms;
            (void)buf_append_slice(&shots[i]->net, buf_slice(&shots[i]->last)); /* what did not fit */
            buf_clear(&shots[i]->last);
        }
    }
}

/* --- Reading. ------------------------------------------------------------------------------------ */

static bool begin_body(struct wire *w, struct shot *s)
{
    int status = s->head.status;
    if (s->answer_empty || status == 204 || status == 304) {
        http_body_init(&s->framing, 0);
    } else if (s->head.chunked) {
        http_body_init(&s->framing, -1);
    } else if (s->head.content_length >= 0) {
        if (s->head.content_length > (int64_t)DRILL_BODY_BYTES_MAX) {
            end_shot(w, s, WIRE_UNREADABLE, "the answer is larger than 16 MiB");
            return false;
        }
        http_body_init(&s->framing, s->head.content_length);
    } else {
        s->until_close = true;
    }
    return true;
}

/* Lines of the head out of `in`. false: the shot is over, or more must come. */
static bool take_head(struct wire *w, struct shot *s)
{
    while (!s->head.complete) {
        const char *end = s->in.len > 0 ? memchr(s->in.ptr, '\n', s->in.len) : NULL;
        if (end == NULL) {
            return false;
        }
        size_t len = (size_t)(end - s->in.ptr) + 1;
        enum answer_head_step step = answer_head_line(&s->head, slice_of(s->in.ptr, len));
        buf_consume(&s->in, len);
        if (step == ANSWER_HEAD_BAD) {
            end_shot(w, s, WIRE_UNREADABLE, s->head.defect);
            return false;
        }
        if (step == ANSWER_HEAD_COMPLETE && !begin_body(w, s)) {
            return false;
        }
    }
    return true;
}

static void take_body(struct wire *w, struct shot *s)
{
    if (s->until_close) {
        if (buf_append_slice(&s->body, buf_slice(&s->in)) != 0) {
            end_shot(w, s, WIRE_UNREADABLE, "the answer is larger than 16 MiB");
        } else if (s->ended) {
            end_shot(w, s, WIRE_ANSWERED, "");
        } else {
            buf_clear(&s->in);
        }
        return;
    }
    while (!http_body_ended(&s->framing)) {
        size_t used = 0;
        struct slice piece = SLICE_NONE;
        enum http_body_step step = http_body_decode(&s->framing, buf_slice(&s->in), &used, &piece);
        if (step == HTTP_BODY_PIECE && buf_append_slice(&s->body, piece) != 0) {
            end_shot(w, s, WIRE_UNREADABLE, "the answer is larger than 16 MiB");
            return;
        }
        buf_consume(&s->in, used);
        if (step == HTTP_BODY_BAD) {
            end_shot(w, s, WIRE_UNREADABLE, "the answer's chunks are malformed");
            return;
        }
        if (step == HTTP_BODY_MORE) {
            return;
        }
    }
    end_shot(w, s, WIRE_ANSWERED, "");
}

static void parse(struct wire *w, struct shot *s)
{
    if (take_head(w, s)) {
        take_body(w, s);
    }
    if (s->state != SHOT_DONE && !s->ended && s->in.len >= IN_BYTES_MAX - READ_BYTES) {
        end_shot(w, s, WIRE_UNREADABLE, "a line of the answer's head is too long");
    }
    if (s->state != SHOT_DONE && s->ended) {
        end_shot(w, s, WIRE_BROKEN,
                 s->head.seen_bytes > 0 ? "the answer broke off"
                                        : "the connection was closed without an answer");
    }
}

/* Decrypted bytes, or the ones that came, into `in`. false: the shot is over. */
static bool take_bytes(struct wire *w, struct shot *s, struct slice bytes)
{
    static char plain[READ_BYTES]; /* one thread */
    if (s->tls == NULL) {
        return buf_append_slice(&s->in, bytes) == 0;
    }
    if (tls_conn_feed(s->tls, bytes) != 0) {
        return false;
    }
    if (s->state == SHOT_SHAKING) {
        shake(w, s);
        if (s->state == SHOT_DONE || s->state == SHOT_SHAKING) {
            return s->state != SHOT_DONE;
        }
    }
    for (;;) {
        size_t used = 0;
        enum tls_step step = tls_conn_read(s->tls, plain, sizeof plain, &used);
        if (step != TLS_DONE) {
            s->ended = s->ended || step != TLS_MORE;
            return true;
        }
        if (buf_append(&s->in, plain, used) != 0) {
            return false;
        }
        parse(w, s);
        if (s->state == SHOT_DONE) {
            return false;
        }
    }
}

static void read_some(struct wire *w, struct shot *s)
{
    static char bytes[READ_BYTES]; /* one thread */
    ssize_t n = recv(s->fd, bytes, sizeof bytes, 0);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
        return;
    }
    s->ended = n <= 0;
    if (n > 0 && !take_bytes(w, s, slice_of(bytes, (size_t)n))) {
        end_shot(w, s, WIRE_UNREADABLE, "no memory for the answer");
        return;
    }
    if (s->state == SHOT_SHAKING && s->ended) {
        end_shot(w, s, WIRE_NO_CONNECTION, "TLS: the connection was closed");
    } else if (s->state != SHOT_DONE && s->state != SHOT_SHAKING) {
        parse(w, s);
    }
}

/* --- The loop. ----------------------------------------------------------------------------------- */

static bool reads(const struct shot *s)
{
    return s->state == SHOT_SHAKING || s->delivery == DRILL_READ;
}

static short events_of(const struct shot *s)
{
    int events = 0;
    if (s->state == SHOT_CONNECTING || has_more(s)) {
        events |= POLLOUT;
    }
    if (s->state != SHOT_CONNECTING && reads(s)) {
        events |= POLLIN;
    }
    return (short)events;
}

static void handle(struct wire *w, struct shot *s, short seen)
{
    if (s->state == SHOT_CONNECTING) {
        if ((seen & (POLLOUT | POLLERR | POLLHUP)) == 0) {
            return;
        }
        connected(w, s);
    }
    if (s->state == SHOT_DONE || s->state == SHOT_CONNECTING) {
        return;
    }
    bool taken = flush(s);
    if (!reads(s) && (!taken || (seen & (POLLERR | POLLHUP)) != 0)) {
        end_shot(w, s, WIRE_LOST, "the server closed the connection first");
        return;
    }
    if (!taken) {
        s->out = SLICE_NONE;
        buf_clear(&s->net); /* an answer may have come before the request was complete */
    }
    if (reads(s) && (seen & (POLLIN | POLLERR | POLLHUP)) != 0) {
        read_some(w, s);
    }
    if (s->state != SHOT_DONE) {
        (void)flush(s);
        note_progress(s);
    }
}

static bool all_reached(struct shot *const *shots, size_t n, enum shot_state state)
{
    for (size_t i = 0; i < n; i++) {
        if (shots[i]->state < state) {
            return false;
        }
    }
    return true;
}

/* How long to sleep: until the first deadline; acknowledgements are no event and are looked for. */
static int patience(const struct wire *w)
{
    int64_t now = clock_mono_ms();
    int64_t left = POLL_MS;
    for (unsigned i = 0; i < w->live_count; i++) {
        int64_t until = waits_for_acknowledgement(w->live[i]) ? 1 : w->live[i]->deadline_ms - now;
        left = until < left ? until : left;
    }
    return (int)(left > 0 ? left : 0);
}

static void end_late(struct wire *w)
{
    int64_t now = clock_mono_ms();
    bool stop = w->stop != NULL && *w->stop != 0;
    for (unsigned i = w->live_count; i-- > 0;) {
        struct shot *s = w->live[i];
        if (stop) {
            end_shot(w, s, WIRE_STOPPED, "interrupted");
        } else if (now >= s->deadline_ms) {
            bool sent = s->state > SHOT_SHAKING;
            end_shot(w, s,
                     s->delivery != DRILL_READ && sent ? WIRE_LOST
                     : sent                            ? WIRE_TIMEOUT
                                                       : WIRE_NO_CONNECTION,
                     sent ? "no answer in time" : "could not connect in time");
        }
    }
}

void shots_drive(struct wire *w, struct shot *const *shots, size_t n, enum shot_state state)
{
    while (!all_reached(shots, n, state)) {
        struct pollfd polled[WIRE_LIVE_MAX];
        struct shot *of[WIRE_LIVE_MAX];
        unsigned count = w->live_count;
        for (unsigned i = 0; i < count; i++) {
            of[i] = w->live[i];
            polled[i] = (struct pollfd){.fd = of[i]->fd, .events = events_of(of[i])};
        }
        int ready = poll(polled, count, patience(w));
        for (unsigned i = 0; i < count; i++) {
            short seen = ready > 0 ? polled[i].revents : 0;
            if (of[i]->state != SHOT_DONE && (seen != 0 || waits_for_acknowledgement(of[i]))) {
                handle(w, of[i], seen);
            }
        }
        end_late(w);
    }
}

void shot_lose(struct wire *w, struct shot *s)
{
    if (s->state != SHOT_DONE && drains(s)) {
        drain(s); /* what lies unread would turn the close into a reset */
    }
    end_shot(w, s, WIRE_LOST, "");
}

void shot_free(struct wire *w, struct shot *s)
{
    end_shot(w, s, WIRE_STOPPED, "");
    answer_head_free(&s->head);
    buf_free(&s->body);
}
