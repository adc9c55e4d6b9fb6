/* A whole gateway in one process (gateway/gateway.h) between clients that the input describes and an upstream.
 *
 * Input: [connections - 1] then for each connection [requests, kind] and for each request [method] [path] [key] [body]
 * [framing] [extra headers] [act of the upstream], with raw bytes where a choice asks for them; what is left says how the
 * bytes are cut up and in which order the connections go on. Zero bytes choose the ordinary.
 *
 * Would catch: a crash, or a hang of requests that were sent whole; a second execution of one identity that is neither
 * the first's release (the upstream's book, gateway_upstream.h); something sent upstream that a strict reader
 * refuses; a well-formed request on a well-formed connection that gets no answer, or more than one; an answer that
 * is marked as executed, replayed or attached and is that of another identity, or of other content. */
#include "fuzz.h"

#include "gateway_upstream.h"

#include "base/log.h"
#include "config/config.h"
#include "gateway/gateway.h"
#include "net/http_answer_head.h"

#include <netinet/tcp.h>
#include <pthread.h>

enum {
    CLIENTS_MAX = 4,
    REQUESTS_MAX = 4,
    STREAM_BYTES_MAX = 1 << 20,
    RAW_BYTES_MAX = 64,
    INPUTS_OF_ONE_GATEWAY = 500, /* so that starting and stopping are run, too */
    TURN_MS = 100,
    QUIET_TURNS_MAX =
        600, /* not a verdict about speed: something hangs. Turns, since a stopped machine makes time pass */
};

/* ---- the gateway ------------------------------------------------------------------------------------ */

static struct {
    struct gateway *gateway;
    pthread_t thread;
    uint64_t inputs;
    bool upstream_is_open;
} bench;

static void *run_gateway(void *arg)
{
    gateway_run(arg);
    return NULL;
}

static void ask_to_stop(void *ctx)
{
    gateway_stop(ctx);
}

static void close_gateway(void)
{
    if (bench.gateway != NULL) {
        FUZZ_CHECK(loop_post(gateway_loop(bench.gateway), ask_to_stop, bench.gateway) == 0);
        pthread_join(bench.thread, NULL);
        gateway_close(bench.gateway);
        bench.gateway = NULL;
    }
}

static void close_all(void)
{
    close_gateway();
    upstream_close();
}

static void open_gateway(void)
{
    static const char format[] =
        "listen: 127.0.0.1:0\nstore: 'memory:'\nthreads: 1\ntimeouts: {shutdown: 100ms}\n"
        "limits: {header_size: 4KiB, header_count: 40}\n"
        "defaults: {body_size: 4KiB, keep_body: 1KiB, to: 'http://127.0.0.1:%u'}\n"
        "routes:\n"
        "  - {name: main, protect: [POST, PATCH, PUT]}\n"
        "  - {name: json, path: /json, key: ['json:/id', 'header:Idempotency-Key'], missing: pass}\n"
        "  - {name: dead, path: /dead, to: 'http://127.0.0.1:1'}\n";
    char text[sizeof format + 16];
    struct config *config;
    hapax_error err = {0};
    if (!bench.upstream_is_open) {
        FUZZ_CHECK(net_global_init(&err) == 0);
        log_setup(LOG_LEVEL_ERROR, false);
        upstream_open();
        bench.upstream_is_open = true;
        atexit(close_all);
    }
    snprintf(text, sizeof text, format, (unsigned)upstream.port);
    if (config_load_text(&config, slice_text(text), "fuzz", &err) != 0 ||
        gateway_open(&bench.gateway, config, &err) != 0) {
        fprintf(stderr, "%s\n", err.message);
        abort();
    }
    FUZZ_CHECK(pthread_create(&bench.thread, NULL, run_gateway, bench.gateway) == 0);
}

/* ---- requests --------------------------------------------------------------------------------------- */

struct sent {
    char identity[IDENTITY_TEXT_MAX]; /* "": can't be told */
    int content;                      /* which of equal contents; 0: can't be told */
    bool is_head;
    bool may_break; /* its answer may break off in the middle */
};

struct client {
    int fd; /* -1: over */
    struct buf out;
    size_t out_at;
    struct buf in;
    bool well_formed; /* all of it */
    bool leaves;      /* without waiting for answers */
    bool all_sent;
    struct sent requests[REQUESTS_MAX];
    size_t request_count;
};

static void put(struct client *c, const char *text)
{
    FUZZ_CHECK(buf_append_text(&c->out, text) == 0);
}

static void put_slice(struct client *c, struct slice bytes)
{
    FUZZ_CHECK(buf_append_slice(&c->out, bytes) == 0);
}

/* What one request is made of. Keys hold the number of the input: no two inputs share one. */
struct plan {
    const char *method;
    const char *target;
    char key[64];      /* "": none */
    char rendered[80]; /* of the key within a body */
    char body[6000];
    size_t body_len;
    const char *media;
    int content;
    bool json_key;
    bool certain; /* identity and content can be told */
};

static void plan_key(struct plan *p, struct client *c, uint8_t choice)
{
    unsigned long long run = bench.inputs;
    snprintf(p->key, sizeof p->key, "r%llu-%d", run, choice % 2);
    switch (choice / 2 % 10) {
    case 1:
        FUZZ_CHECK(buf_printf(&c->out, "idempotency-key: \"%s\"\r\n", p->key) == 0);
        break;
    case 2:
        FUZZ_CHECK(buf_printf(&c->out, "Idempotency-Key: \"%s\";a=1;b=?0\r\n", p->key) == 0);
        break;
    case 3: /* twice the same */
        FUZZ_CHECK(
            buf_printf(&c->out, "Idempotency-Key: %s\r\nIdempotency-Key: \"%s\"\r\n", p->key, p->key) == 0);
        break;
    case 4: /* twice, differing */
        FUZZ_CHECK(buf_printf(&c->out, "Idempotency-Key: %s\r\nIdempotency-Key: %sx\r\n", p->key, p->key) ==
                   0);
        p->key[0] = '\0';
        break;
    case 5:
        p->key[0] = '\0';
        break;
    case 6:
        put(c, "Idempotency-Key:\r\n");
        p->key[0] = '\0';
        break;
    case 7:
        put(c, "Idempotency-Key: undefined\r\n");
        p->key[0] = '\0';
        break;
    case 8:
        FUZZ_CHECK(buf_printf(&c->out, "Idempotency-Key: %0300d\r\n", 7) == 0);
        p->key[0] = '\0';
        break;
    default:
        FUZZ_CHECK(buf_printf(&c->out, "Idempotency-Key: %s\r\n", p->key) == 0);
        break;
    }
}

static void plan_body(struct plan *p, uint8_t choice, struct input *in)
{
    unsigned long long run = bench.inputs;
    int which = choice / 8 % 2;
    struct slice raw = SLICE_LITERAL("");
    p->media = "application/json";
    p->content = 1 + choice % 8;
    snprintf(p->rendered, sizeof p->rendered, "\"b%llu-%d\"", run, which);
    p->json_key = true;
    switch (choice % 8) {
    case 0:
        snprintf(p->body, sizeof p->body, "{\"id\":%s,\"n\":1}", p->rendered);
        break;
    case 1: /* the same in other words */
        snprintf(p->body, sizeof p->body, "{ \"n\" : 1.0,\r\n\"id\":%s}", p->rendered);
        p->content = 1;
        break;
    case 2:
        snprintf(p->body, sizeof p->body, "{\"id\":%s,\"n\":2}", p->rendered);
        break;
    case 3:
        snprintf(p->body, sizeof p->body, "a=1&id=b%llu-%d", run, which);
        p->media = "application/x-www-form-urlencoded";
        p->json_key = false;
        break;
    case 4:
        snprintf(p->body, sizeof p->body, "{\"id\":%s,\"n\":", p->rendered);
        break;
    case 5:
        snprintf(p->body, sizeof p->body, "{\"id\":%s,\"n\":%04990d}", p->rendered, 0);
        break;
    case 6:
        p->json_key = false;
        break;
    default:
        raw = input_piece(in, input_byte(in) % RAW_BYTES_MAX);
        p->media = "application/octet-stream";
        p->certain = false;
        break;
    }
    p->content += 16 * which;
    p->body_len = strlen(p->body);
    if (raw.len > 0) {
        memcpy(p->body, raw.ptr, raw.len);
        p->body_len = raw.len;
    }
}

static void put_chunks(struct client *c, const struct plan *p, size_t step, const char *extension)
{
    put(c, "Transfer-Encoding: chunked\r\n\r\n");
    for (size_t at = 0; at < p->body_len; at += step) {
        size_t n = p->body_len - at < step ? p->body_len - at : step;
        FUZZ_CHECK(buf_printf(&c->out, "%zX%s\r\n", n, extension) == 0);
        put_slice(c, slice_of(p->body + at, n));
        put(c, "\r\n");
    }
    put(c, step < 64 ? "0\r\nX-Trailer: 1\r\n\r\n" : "0\r\n\r\n");
}

/* The end of the head, and the body. */
static void put_framed(struct client *c, const struct plan *p, uint8_t choice)
{
    static const char *const broken[] = {
        "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
        "Content-Length: 3\r\nContent-Length: 3\r\n\r\n",
        "Transfer-Encoding: gzip, chunked\r\n\r\n",
        "Content-Length: 2\r\n\r\n",     /* the rest is a request of its own */
        "Content-Length: 99999\r\n\r\n", /* never comes */
        "Content-Length: +3\r\n\r\n",
    };
    switch (choice % 16) {
    case 6:
    case 7:
        put_chunks(c, p, sizeof p->body, "");
        return;
    case 8:
        put_chunks(c, p, 5, ";ext=\"1\"");
        return;
    case 9:
    case 10:
    case 11:
    case 12:
    case 13:
    case 14:
        put(c, broken[choice % 16 - 9]);
        c->well_formed = false;
        break;
    default:
        FUZZ_CHECK(buf_printf(&c->out, "Content-Length: %zu\r\n\r\n", p->body_len) == 0);
        break;
    }
    put_slice(c, slice_of(p->body, p->body_len));
}

static struct slice put_extra(struct client *c, struct plan *p, uint8_t choice, struct input *in)
{
    struct slice credentials = SLICE_LITERAL("");
    if (choice & 1) {
        credentials = SLICE_LITERAL("Basic YTpi");
        put(c, "Authorization: Basic YTpi\r\n");
    }
    if (choice & 2) {
        credentials = SLICE_LITERAL("Bearer t");
        put(c, "Authorization: Bearer t\r\n");
    }
    p->certain = p->certain && (choice & 3) != 3;
    put(c, choice & 4 ? "Expect: 100-continue\r\n" : "");
    put(c, choice & 8 ? "X-Forwarded-For: 1.2.3.4\r\nTE: trailers\r\nVia: x\r\n" : "");
    put(c, choice & 16 ? "Idempotency-Attempt: 9\r\nIdempotency-Status: executed\r\nHapax-Outcome: done\r\n"
                       : "");
    put(c, choice & 32 ? "Content-Encoding: gzip\r\n" : "");
    put(c, choice & 64 ? "Connection: keep-alive, X-Act2, TE\r\nX-Act2: 1\r\n" : "");
    if (choice & 128) {
        put_slice(c, input_piece(in, input_byte(in) % RAW_BYTES_MAX));
        put(c, "\r\n");
        c->well_formed = false;
    }
    return credentials;
}

static void note_identity(struct sent *s, const struct plan *p, struct slice credentials)
{
    struct slice path = slice_text(p->target);
    const char *query = strchr(p->target, '?');
    path.len = query != NULL ? (size_t)(query - p->target) : path.len;
    bool by_body = strncmp(p->target, "/json", 5) == 0 && p->json_key;
    const char *key = by_body ? p->rendered : p->key;
    if (p->certain && key[0] != '\0') {
        write_identity(s->identity, slice_text(p->method), path, credentials, slice_text(key));
        s->content = p->content + (query != NULL ? 64 : 0);
    }
}

static void put_request(struct client *c, bool last, struct input *in)
{
    static const char *const methods[] = {"POST", "POST", "PATCH", "PUT", "DELETE", "GET", "HEAD", "OPTIONS"};
    static const char *const targets[] = {"/a",    "/a",        "/a?x=1", "/b/c",
                                          "/json", "/json?x=1", "/dead",  "/%61/../b"};
    struct plan p = {
        .method = methods[input_byte(in) % 8], .target = targets[input_byte(in) % 8], .certain = true};
    struct sent *s = &c->requests[c->request_count++];
    *s = (struct sent){.is_head = strcmp(p.method, "HEAD") == 0};
    FUZZ_CHECK(buf_printf(&c->out, "%s %s HTTP/1.1\r\nHost: gateway.test\r\n", p.method, p.target) == 0);
    plan_key(&p, c, input_byte(in));
    plan_body(&p, input_byte(in), in);
    uint8_t framing = input_byte(in);
    struct slice credentials = put_extra(c, &p, input_byte(in), in);
    enum act act = (enum act)(input_byte(in) % ACT_COUNT);
    s->may_break = act == ACT_PARTLY;
    note_identity(s, &p, credentials);
    FUZZ_CHECK(buf_printf(&c->out, "Content-Type: %s\r\nX-Act: %c\r\n%s", p.media, 'a' + (int)act,
                          last ? "Connection: close\r\n" : "") == 0);
    put_framed(c, &p, framing);
}

static void make_client(struct client *c, struct input *in)
{
    uint8_t kind = input_byte(in);
    size_t requests = 1 + kind % REQUESTS_MAX;
    *c = (struct client){.fd = -1, .well_formed = true, .leaves = (kind & 0xf0) == 0xf0};
    buf_init(&c->out, STREAM_BYTES_MAX);
    buf_init(&c->in, STREAM_BYTES_MAX);
    for (size_t i = 0; i < requests; i++) {
        put_request(c, i + 1 == requests, in);
    }
}

/* ---- answers ---------------------------------------------------------------------------------------- */

/* What an answer that was marked as one of an execution says, against the book. */
static void check_execution(const struct sent *s, const struct answer_head *h, struct slice body)
{
    unsigned long long number;
    char text[64] = "";
    struct slice marker = SLICE_NONE;
    struct request r = {.headers = h->headers, .header_count = h->count};
    request_header(&marker, &r, SLICE_LITERAL("Idempotency-Status"));
    memcpy(text, body.ptr, body.len < sizeof text - 1 ? body.len : sizeof text - 1);
    bool marked = slice_equal(marker, SLICE_LITERAL("executed")) ||
                  slice_equal(marker, SLICE_LITERAL("replayed")) ||
                  slice_equal(marker, SLICE_LITERAL("attached"));
    if (!marked || sscanf(text, "execution %llu.", &number) != 1) {
        return;
    }
    struct execution *e = &upstream.book[number % BOOK_ENTRIES];
    FUZZ_CHECK(e->number == number && !e->running);
    if (s->identity[0] != '\0') {
        FUZZ_CHECK(strcmp(e->identity, s->identity) == 0);
        FUZZ_CHECK(e->content == 0 || e->content == s->content);
        e->content = s->content;
    }
}

/* One answer at the front of `rest`, which it takes. false: it is not there, or broke off. */
static bool read_answer(const struct sent *s, struct slice *rest, bool *keep_alive)
{
    struct answer_head h;
    enum answer_head_step step = ANSWER_HEAD_MORE;
    answer_head_init(&h);
    answer_head_start(&h, STREAM_BYTES_MAX);
    while (step == ANSWER_HEAD_MORE && rest->len > 0) {
        const char *end = memchr(rest->ptr, '\n', rest->len);
        struct slice line = slice_of(rest->ptr, end != NULL ? (size_t)(end - rest->ptr) + 1 : rest->len);
        step = answer_head_line(&h, line);
        *rest = slice_from(*rest, line.len);
    }
    FUZZ_CHECK(step != ANSWER_HEAD_BAD);
    bool whole = step == ANSWER_HEAD_COMPLETE;
    if (whole) {
        bool empty = s->is_head || h.status == 204 || h.status == 304;
        struct http_body body;
        struct buf content;
        buf_init(&content, STREAM_BYTES_MAX);
        FUZZ_CHECK(empty || h.chunked || h.content_length >= 0);
        http_body_init(&body, empty ? 0 : h.chunked ? -1 : h.content_length);
        while (!http_body_ended(&body) && rest->len > 0) {
            size_t used = 0;
            struct slice piece = SLICE_NONE;
            enum http_body_step got = http_body_decode(&body, *rest, &used, &piece);
            FUZZ_CHECK(got != HTTP_BODY_BAD);
            FUZZ_CHECK(got != HTTP_BODY_PIECE || buf_append_slice(&content, piece) == 0);
            *rest = slice_from(*rest, used);
        }
        whole = http_body_ended(&body);
        *keep_alive = h.keep_alive;
        if (whole) {
            check_execution(s, &h, buf_slice(&content));
        }
        buf_free(&content);
    }
    answer_head_free(&h);
    return whole;
}

static void check_answers(const struct client *c)
{
    struct slice rest = buf_slice(&c->in);
    bool keep_alive = true;
    for (size_t i = 0; i < c->request_count && keep_alive; i++) {
        bool whole = read_answer(&c->requests[i], &rest, &keep_alive);
        if (!whole) {
            FUZZ_CHECK(c->requests[i].may_break);
            return;
        }
    }
    FUZZ_CHECK(rest.len == 0);
}

/* ---- the loop --------------------------------------------------------------------------------------- */

static void connect_client(struct client *c)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons(gateway_port_number(bench.gateway)),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int on = 1;
    FUZZ_CHECK(c->fd >= 0 && connect(c->fd, (struct sockaddr *)&to, sizeof to) == 0);
    FUZZ_CHECK(setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0);
    make_nonblocking(c->fd);
}

static void end_client(struct client *c)
{
    close(c->fd);
    c->fd = -1;
}

static void send_piece(struct client *c, size_t max)
{
    size_t left = c->out.len - c->out_at;
    ssize_t n = send(c->fd, c->out.ptr + c->out_at, left < max ? left : max, MSG_NOSIGNAL);
    if (n < 0 && errno != EAGAIN) {
        n = (ssize_t)left; /* the gateway wants no more of it */
    }
    c->out_at += n > 0 ? (size_t)n : 0;
    if (c->out_at < c->out.len) {
        return;
    }
    c->all_sent = true;
    if (c->leaves) {
        end_client(c);
    } else if (!c->well_formed) { /* what is not a whole request ends here; a whole one says so itself */
        shutdown(c->fd, SHUT_WR);
    }
}

static void receive(struct client *c)
{
    char bytes[16384];
    ssize_t n = recv(c->fd, bytes, sizeof bytes, 0);
    if (n > 0) {
        FUZZ_CHECK(buf_append(&c->in, bytes, (size_t)n) == 0);
    } else if (n == 0 || errno != EAGAIN) {
        end_client(c);
    }
}

/* Wait for anything, and deal with all of it. false: nothing came. */
static bool turn(struct client *clients, size_t n, int wait_ms)
{
    struct pollfd polls[1 + LINKS_MAX + CLIENTS_MAX];
    polls[0] = (struct pollfd){upstream.listener, POLLIN, 0};
    for (size_t i = 0; i < LINKS_MAX; i++) {
        polls[1 + i] = (struct pollfd){upstream.links[i].fd, POLLIN, 0};
    }
    for (size_t i = 0; i < n; i++) {
        polls[1 + LINKS_MAX + i] = (struct pollfd){clients[i].fd, POLLIN, 0};
    }
    bool something = poll(polls, 1 + LINKS_MAX + (nfds_t)n, wait_ms) > 0;
    for (size_t i = 0; i < LINKS_MAX; i++) {
        if (polls[1 + i].revents != 0) {
            link_read(&upstream.links[i]);
        }
    }
    for (size_t i = 0; i < n; i++) {
        if (polls[1 + LINKS_MAX + i].revents != 0) {
            receive(&clients[i]);
        }
    }
    if (polls[0].revents != 0) {
        upstream_accept();
    }
    return something;
}

static bool any(const struct client *clients, size_t n, bool unsent)
{
    for (size_t i = 0; i < n; i++) {
        if (clients[i].fd >= 0 && (!unsent || !clients[i].all_sent)) {
            return true;
        }
    }
    return false;
}

static void converse(struct client *clients, size_t n, struct input *in)
{
    for (size_t next = 0; any(clients, n, true);) {
        uint8_t cut = input_byte(in);
        struct client *c = &clients[(next += 1 + (cut & 3)) % n];
        for (size_t i = 0; c->fd < 0 || c->all_sent; i++) {
            c = &clients[i];
        }
        send_piece(c, cut < 4 ? STREAM_BYTES_MAX : (size_t)cut);
        turn(clients, n,
             cut & 64 ? 1 : 0); /* a millisecond lets the gateway see the cut; nothing depends on it */
    }
    for (int quiet = 0; any(clients, n, false);) {
        upstream_release();
        quiet = turn(clients, n, TURN_MS) ? 0 : quiet + 1;
        FUZZ_CHECK(quiet < QUIET_TURNS_MAX);
    }
    upstream_release();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct client clients[CLIENTS_MAX];
    struct input in = {data, size};
    if (++bench.inputs % INPUTS_OF_ONE_GATEWAY == 0) {
        close_gateway();
    }
    if (bench.gateway == NULL) {
        open_gateway();
    }
    size_t n = 1 + input_byte(&in) % CLIENTS_MAX;
    for (size_t i = 0; i < n; i++) {
        make_client(&clients[i], &in);
        connect_client(&clients[i]);
    }
    converse(clients, n, &in);
    for (size_t i = 0; i < n; i++) {
        if (clients[i].well_formed && !clients[i].leaves) {
            check_answers(&clients[i]);
        }
        buf_free(&clients[i].out);
        buf_free(&clients[i].in);
    }
    return 0;
}
