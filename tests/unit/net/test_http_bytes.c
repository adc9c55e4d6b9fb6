/* What cut-up and arbitrary bytes do to a server: nothing. However the bytes are cut, the answers are the same; whatever
 * the bytes are, every connection ends, every exchange closes, and the server answers the next client. */
#include "unit/net/http_fixture.h"

#define HOST "Host: a\r\n"

static void with_server(struct fixture *f)
{
    fixture_init(f);
    fixture_start(f);
}

/* --- Cuts. --- */

static const char *const streams[] = {
    "POST /e?q HTTP/1.1\r\n" HOST "Content-Length: 5\r\n\r\nhello"
    "\r\nGET /stream HTTP/1.1\r\n" HOST "\r\n"
    "HEAD /early HTTP/1.1\r\n" HOST "Connection: close\r\n\r\n",
    "PUT /dribble HTTP/1.1\r\n" HOST
    "Transfer-Encoding: chunked\r\n\r\n3;x\r\nabc\r\n10\r\n0123456789abcdef\r\n0\r\nT: x\r\n\r\n"
    "GET /last HTTP/1.0\r\n\r\n",
    "POST /early HTTP/1.1\r\n" HOST
    "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\nGET / HTTP/1.1\r\n\r\n",
    "POST /e HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n3\r\nabcXY",
    "GET / HTTP/1.1\r\n" HOST "A: b\r\n c\r\n\r\nGET /smuggled HTTP/1.1\r\n" HOST "\r\n",
    "GET / HTTP/1.1\r\nHost: a\rb\r\n\r\n",
    "POST /e HTTP/1.1\r\n" HOST "Content-Length: 9\r\n\r\nshort",
};
enum { STREAMS = sizeof streams / sizeof streams[0] };

/* Everything the server sends until it closes, without the dates. */
static void transcript(struct client *c, struct buf *out)
{
    while (receive(c)) {
    }
    for (size_t at = 0; at < c->len;) {
        char *end = memchr(c->bytes + at, '\n', c->len - at);
        size_t len = end == NULL ? c->len - at : (size_t)(end - c->bytes) - at + 1;
        if (len < 5 || memcmp(c->bytes + at, "Date:", 5) != 0) {
            buf_append(out, c->bytes + at, len);
        }
        at += len;
    }
}

/* Cuts are true ones: the server has read what is before a cut when what is behind it is sent. */
static void deliver(struct fixture *f, const char *stream, const size_t *cuts, size_t n, struct buf *out)
{
    struct client *c = client_open(f);
    size_t at = 0;
    buf_init(out, 1U << 20);
    for (size_t i = 0; i <= n; i++) {
        size_t end = i < n ? cuts[i] : strlen(stream);
        if (!send_some(c, slice_of(stream + at, end - at))) {
            break;
        }
        at = end;
        if (i < n) {
            settle(f);
        }
    }
    shutdown(c->fd, SHUT_WR);
    transcript(c, out);
    client_close(c);
}

static void compare(const struct buf *whole, struct buf *cut, const char *stream, size_t at)
{
    if (!slice_equal(buf_slice(whole), buf_slice(cut))) {
        fail_msg("cut at %zu:\n%s\n--- gives ---\n%.*s\n--- instead of ---\n%.*s", at, stream, (int)cut->len,
                 buf_slice(cut).ptr, (int)whole->len, buf_slice(whole).ptr);
    }
    buf_free(cut);
}

static void two_pieces_give_the_same_answers_as_one(void **state)
{
    (void)state;
    struct fixture f;
    with_server(&f);
    for (size_t i = 0; i < STREAMS; i++) {
        struct buf whole;
        deliver(&f, streams[i], NULL, 0, &whole);
        assert_true(whole.len > 0);
        for (size_t at = 1; at < strlen(streams[i]); at++) {
            struct buf cut;
            deliver(&f, streams[i], &at, 1, &cut);
            compare(&whole, &cut, streams[i], at);
        }
        buf_free(&whole);
    }
    fixture_stop(&f);
}

static void single_bytes_give_the_same_answers_as_one_piece(void **state)
{
    (void)state;
    struct fixture f;
    with_server(&f);
    for (size_t i = 0; i < STREAMS; i++) {
        size_t cuts[512];
        size_t n = strlen(streams[i]) - 1;
        assert_true(n < 512);
        for (size_t at = 0; at < n; at++) {
            cuts[at] = at + 1;
        }
        struct buf whole;
        struct buf cut;
        deliver(&f, streams[i], NULL, 0, &whole);
        deliver(&f, streams[i], cuts, n, &cut);
        compare(&whole, &cut, streams[i], 0);
        buf_free(&whole);
    }
    fixture_stop(&f);
}

/* --- Arbitrary bytes. --- */

static uint64_t seed_state;

static size_t below(size_t n)
{
    seed_state = seed_state * 6364136223846793005U + 1442695040888963407U;
    return (size_t)((seed_state >> 33) % n);
}

/* One of the streams with a few bytes changed, put in, taken out or repeated. */
static size_t mutate(char *out, size_t size)
{
    static const char interesting[] = "\r\n\t :\0;,0129aAfF/?#\x7f\x80\xff";
    const char *stream = streams[below(STREAMS)];
    size_t len = strlen(stream);
    memcpy(out, stream, len);
    for (size_t changes = 1 + below(4); changes > 0; changes--) {
        size_t at = below(len);
        size_t span = 1 + below(8);
        switch (below(4)) {
        case 0:
            out[at] = interesting[below(sizeof interesting)];
            break;
        case 1:
            memmove(out + at + 1, out + at, len - at);
            out[at] = interesting[below(sizeof interesting)];
            len++;
            break;
        case 2:
            span = span < len - at ? span : len - at;
            memmove(out + at, out + at + span, len - at - span);
            len -= span < len ? span : 0;
            break;
        default:
            span = span < len - at ? span : len - at;
            memmove(out + at + span, out + at, len - at);
            len += span;
            break;
        }
        assert_true(len > 0 && len + 16 < size);
    }
    return len;
}

/* Whatever came back is a row of answers, each beginning with a status line of ours. */
static void check_answers(const struct client *c)
{
    assert_false(c->reset);
    assert_true(c->len == 0 || (c->len > 12 && memcmp(c->bytes, "HTTP/1.1 ", 9) == 0));
}

static void mutated_requests_are_survived(void **state)
{
    (void)state;
    enum { CASES = 4000 };
    struct fixture f;
    with_server(&f);
    seed_state = 2026;
    for (int i = 0; i < CASES; i++) {
        char bytes[1024];
        size_t len = mutate(bytes, sizeof bytes);
        struct client *c = client_open(&f);
        if (send_some(c, slice_of(bytes, len))) {
            shutdown(c->fd, SHUT_WR);
        }
        while (receive(c)) {
        }
        check_answers(c);
        client_close(c);
    }
    assert_true(count(&f, REQUEST) > CASES / 10 && count(&f, DEFECT) > CASES / 10 &&
                count(&f, BODY_ERROR) > CASES / 100);
    struct client *c = client_open(&f);
    send_text(c, "GET /alive HTTP/1.1\r\n" HOST "\r\n");
    expect(c, 200, "GET /alive? 1:");
    client_close(c);
    fixture_stop(&f);
}

static int set_up(void **state)
{
    (void)state;
    return net_global_init(NULL);
}

static int tear_down(void **state)
{
    (void)state;
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_pieces_give_the_same_answers_as_one),
        cmocka_unit_test(single_bytes_give_the_same_answers_as_one_piece),
        cmocka_unit_test(mutated_requests_are_survived),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
