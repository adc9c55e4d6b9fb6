/* Requests as bytes on connections of their own, with the last byte in hand.
 *
 * A shot is one connection and one request. It is driven to READY: everything but the last byte has been written and
 * acknowledged by the server's kernel. shots_go() then sends the last bytes of many shots in one loop, which puts them
 * microseconds apart: that is the barrier. One thread polls all live shots, so nothing here needs a lock.
 *
 * Deliveries. READ: the answer is read. REPLY_LOST: nothing is read; once the whole request has been acknowledged the
 * connection is closed. That sends a FIN behind the request, so no byte of it can get lost; only when an answer
 * is there already does the kernel send a reset instead, and then the request was read. REQUEST_LOST: what
 * is sent ends inside the body that Content-Length announced (inside the head when there is no body), then the
 * connection is closed. Over TLS the server sends of itself, too (session tickets): for deliveries that are lost this is
 * read and thrown away, and the last byte waits until nothing has come for a moment; else the close would reset the
 * connection under the request.
 *
 * Limits: an answer's head LIMIT_ANSWER_HEAD_BYTES_MAX, its body DRILL_BODY_BYTES_MAX; every shot has a deadline. */
#ifndef DRILL_WIRE_H
#define DRILL_WIRE_H

#include "drill/drill.h"
#include "net/http_answer_head.h"
#include "net/http_head.h"
#include "net/tls.h"

#include <signal.h>
#include <sys/socket.h>

#define WIRE_ADDRESSES_MAX 8
#define WIRE_LIVE_MAX      (DRILL_TIMES_MAX + 8)
#define WIRE_HOST_MAX      254

/* Where requests go: a URL's scheme and authority, looked up once. */
struct wire_place {
    char host[WIRE_HOST_MAX];          /* without brackets */
    char authority[WIRE_HOST_MAX + 8]; /* the Host line */
    uint16_t port;
    bool tls;
    bool loopback; /* every address of it is */
    struct sockaddr_storage address[WIRE_ADDRESSES_MAX];
    unsigned address_count;
    unsigned address_first; /* the one that answered last */
};

/* Cut up `url` and look its host up; *target borrows the rest, from its '/' or '?' on, "" for none. HAPAX_E_ARGUMENT:
 * not an absolute http(s) URL, or one with a user or fragment; HAPAX_E_NOT_FOUND: no address. */
int wire_place_open(struct wire_place *out, struct slice *target, struct slice url, hapax_error *err);

enum wire_result {
    WIRE_ANSWERED,
    WIRE_LOST,          /* by us, as asked for */
    WIRE_NO_CONNECTION, /* nothing was sent */
    WIRE_BROKEN,        /* the connection ended before the answer did */
    WIRE_TIMEOUT,
    WIRE_UNREADABLE, /* what came is not an answer, or is larger than allowed */
    WIRE_STOPPED,    /* the run was interrupted */
};

enum shot_state {
    SHOT_CONNECTING,
    SHOT_SHAKING,
    SHOT_WRITING, /* all but the last byte */
    SHOT_READY,
    SHOT_LEAVING, /* the last byte is on its way */
    SHOT_OUT,     /* all of it has been acknowledged */
    SHOT_DONE,
};

struct shot {
    struct wire_place *place;
    struct slice bytes; /* what is sent; borrowed until the shot is done */
    enum drill_delivery delivery;
    bool answer_empty; /* HEAD */
    int fd;
    struct tls_conn *tls;
    unsigned addresses_tried;
    enum shot_state state;
    struct slice out; /* of `bytes`, not in the socket yet; not with TLS */
    struct buf net;   /* bytes for the socket, after `out` */
    struct buf last;
    struct buf in; /* read, not parsed */
    bool ended;    /* the server sends no more */
    int64_t deadline_ms;
    int64_t timeout_ms;
    int64_t quiet_ms; /* since when nothing has come, nor a handshake been going on */
    /* The outcome, once DONE. */
    enum wire_result result;
    char detail[160];
    struct answer_head head;
    struct http_body framing;
    bool until_close;
    struct buf body;
};

struct wire {
    struct shot *live[WIRE_LIVE_MAX];
    unsigned live_count;
    struct tls_context *tls; /* NULL: no https */
    const volatile sig_atomic_t *stop;
};

/* Begin to connect; nothing blocks. Takes part in every shots_drive() until it is DONE. `bytes` holds at least one
 * byte; of REQUEST_LOST what is sent is the caller's cut. Never fails: a shot that can't begin is DONE. */
void shot_start(struct wire *w, struct shot *s, struct wire_place *place, struct slice bytes,
                enum drill_delivery delivery, bool answer_empty, int64_t timeout_ms);
/* Poll until each of these has reached `state` or is DONE. */
void shots_drive(struct wire *w, struct shot *const *shots, size_t n, enum shot_state state);
/* Send the last bytes of those that are READY. */
void shots_go(struct shot *const *shots, size_t n);
/* Close a connection whose answer is not to be read. */
void shot_lose(struct wire *w, struct shot *s);
void shot_free(struct wire *w, struct shot *s);

#endif
