/* Heads of upstream answers (net/http_answer_head.h): [room] the bytes, which are cut into lines as the reader's caller does.
 *
 * Would catch: a result that depends on what was read before with the same memory, on interim answers, or on line ends
 * of LF or CR LF; a name or value with a line break, a NUL or blanks around it; framing with two readings; more bytes
 * than allowed; a head that reads differently once written down again. */
#include "fuzz.h"

#include "base/limits.h"
#include "net/http_answer_head.h"

enum { WRITTEN_BYTES_MAX = 1 << 22 };

/* Line by line until the head is complete or bad; how many bytes that took. */
static enum answer_head_step read_head(struct answer_head *h, struct slice text, size_t *used)
{
    enum answer_head_step step = ANSWER_HEAD_MORE;
    *used = 0;
    while (step == ANSWER_HEAD_MORE && *used < text.len) {
        struct slice rest = slice_from(text, *used);
        const char *end = memchr(rest.ptr, '\n', rest.len);
        if (end == NULL) {
            break; /* never handed over */
        }
        rest.len = (size_t)(end - rest.ptr) + 1;
        step = answer_head_line(h, rest);
        *used += rest.len;
        FUZZ_CHECK((step == ANSWER_HEAD_BAD) == (h->defect != NULL));
        FUZZ_CHECK((step == ANSWER_HEAD_COMPLETE) == h->complete);
    }
    return step;
}

static void check_head(const struct answer_head *h)
{
    FUZZ_CHECK(h->status >= 200 && h->status <= 999 && h->count <= LIMIT_HEADERS_MAX);
    FUZZ_CHECK(!h->chunked || h->content_length == -1);
    size_t lengths = 0;
    size_t codings = 0;
    for (size_t i = 0; i < h->count; i++) {
        struct slice name = h->headers[i].name;
        struct slice value = h->headers[i].value;
        FUZZ_CHECK(slice_is_token(name) && slice_equal(slice_trim(value), value));
        for (size_t k = 0; k < value.len; k++) {
            FUZZ_CHECK(value.ptr[k] != '\r' && value.ptr[k] != '\n' && value.ptr[k] != '\0');
        }
        lengths += slice_equal_nocase(name, SLICE_LITERAL("content-length"));
        codings += slice_equal_nocase(name, SLICE_LITERAL("transfer-encoding"));
    }
    FUZZ_CHECK((lengths > 0) == (h->content_length >= 0) && codings == (h->chunked ? 1 : 0));
}

static void check_same(const struct answer_head *a, const struct answer_head *b)
{
    FUZZ_CHECK(a->status == b->status && a->count == b->count && a->chunked == b->chunked &&
               a->content_length == b->content_length && a->complete == b->complete);
    for (size_t i = 0; i < a->count && a->complete; i++) {
        FUZZ_CHECK(slice_equal(a->headers[i].name, b->headers[i].name));
        FUZZ_CHECK(slice_equal(a->headers[i].value, b->headers[i].value));
    }
}

static void put(struct buf *out, struct slice text)
{
    FUZZ_CHECK(buf_append_slice(out, text) == 0);
}

static void write_head(struct buf *out, const struct answer_head *h, struct slice line_end)
{
    put(out, SLICE_LITERAL("HTTP/1.1 103 Early Hints\r\nLink: <a>\r\nContent-Length: 7\r\n\r\n"));
    FUZZ_CHECK(buf_printf(out, "HTTP/1.0 %d", h->status) == 0);
    put(out, line_end);
    for (size_t i = 0; i < h->count; i++) {
        put(out, h->headers[i].name);
        put(out, SLICE_LITERAL(":\t"));
        put(out, h->headers[i].value);
        put(out, SLICE_LITERAL(" "));
        put(out, line_end);
    }
    put(out, line_end);
}

static void check_rewritten(const struct answer_head *h, struct slice line_end)
{
    struct buf text;
    struct answer_head again;
    size_t used;
    buf_init(&text, WRITTEN_BYTES_MAX);
    write_head(&text, h, line_end);
    answer_head_init(&again);
    answer_head_start(&again, WRITTEN_BYTES_MAX);
    FUZZ_CHECK(read_head(&again, buf_slice(&text), &used) == ANSWER_HEAD_COMPLETE && used == text.len);
    check_same(h, &again);
    answer_head_free(&again);
    buf_free(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = {data, size};
    size_t bytes_max = 64 + 256 * (size_t)input_byte(&in);
    struct slice text = input_rest(&in);
    struct answer_head h;
    struct answer_head used_before;
    size_t used;
    answer_head_init(&h);
    answer_head_start(&h, bytes_max);
    enum answer_head_step step = read_head(&h, text, &used);
    FUZZ_CHECK(used <= bytes_max || step == ANSWER_HEAD_BAD);

    answer_head_init(&used_before);
    answer_head_start(&used_before, bytes_max);
    read_head(&used_before, slice_from(text, text.len / 3), &used);
    answer_head_start(&used_before, bytes_max);
    FUZZ_CHECK(read_head(&used_before, text, &used) == step);
    check_same(&h, &used_before);
    FUZZ_CHECK(!h.complete || h.keep_alive == used_before.keep_alive);
    if (step == ANSWER_HEAD_COMPLETE) {
        check_head(&h);
        check_rewritten(&h, SLICE_LITERAL("\r\n"));
        check_rewritten(&h, SLICE_LITERAL("\n"));
    }
    answer_head_free(&used_before);
    answer_head_free(&h);
    return 0;
}
