/* Reads the head of an answer. Invariant: names and values are kept as offsets until the head is complete, since
 * `bytes` moves while it grows. */
#include "net/http_answer_head.h"

#include "base/limits.h"
#include "hapax/error.h"

#include <stdlib.h>

struct answer_line {
    size_t name_at;
    size_t name_len;
    size_t value_at;
    size_t value_len;
};

enum { LINES_AT_FIRST = 16 };

void answer_head_init(struct answer_head *h)
{
    *h = (struct answer_head){.content_length = -1};
}

void answer_head_free(struct answer_head *h)
{
    buf_free(&h->bytes);
    free(h->lines);
    free(h->headers);
    answer_head_init(h);
}

void answer_head_start(struct answer_head *h, size_t bytes_max)
{
    buf_clear(&h->bytes);
    h->bytes.len_max = bytes_max;
    h->bytes_max = bytes_max;
    h->seen_bytes = 0;
    h->count = 0;
    h->status = 0;
    h->in_head = false;
    h->complete = false;
    h->chunked = false;
    h->keep_alive = false;
    h->content_length = -1;
    h->defect = NULL;
}

static enum answer_head_step bad(struct answer_head *h, const char *why)
{
    h->defect = why;
    return ANSWER_HEAD_BAD;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* "HTTP/1.1 200 Some words" */
static enum answer_head_step status_line(struct answer_head *h, struct slice line)
{
    const char *p = line.ptr;
    if (line.len < 12 || memcmp(p, "HTTP/1.", 7) != 0 || !is_digit(p[7]) || p[8] != ' ' || p[9] < '1' ||
        !is_digit(p[9]) || !is_digit(p[10]) || !is_digit(p[11]) || (line.len > 12 && p[12] != ' ')) {
        return bad(h, "the answer's status line is malformed");
    }
    h->status = (p[9] - '0') * 100 + (p[10] - '0') * 10 + (p[11] - '0');
    if (h->status == 101) {
        return bad(h, "the upstream switched protocols without being asked to");
    }
    buf_clear(&h->bytes);
    h->count = 0;
    h->content_length = -1;
    h->chunked = false;
    h->http10 = p[7] == '0';
    h->says_close = false;
    h->says_keep_alive = false;
    h->in_head = true;
    return ANSWER_HEAD_MORE;
}

static bool grow_lines(struct answer_head *h)
{
    size_t room = h->room == 0 ? LINES_AT_FIRST : h->room * 2;
    struct answer_line *lines = realloc(h->lines, room * sizeof *lines);
    if (lines == NULL) {
        return false;
    }
    h->lines = lines;
    struct header *headers = realloc(h->headers, room * sizeof *headers);
    if (headers == NULL) {
        return false;
    }
    h->headers = headers;
    h->room = room;
    return true;
}

/* How the body is framed must have one reading (RFC 9112 section 6.3). */
static const char *framing_defect(struct answer_head *h, struct slice name, struct slice value)
{
    if (slice_equal_nocase(name, SLICE_LITERAL("transfer-encoding"))) {
        if (h->chunked || !slice_equal_nocase(value, SLICE_LITERAL("chunked"))) {
            return "the answer's Transfer-Encoding is not exactly \"chunked\"";
        }
        h->chunked = true;
    } else if (slice_equal_nocase(name, SLICE_LITERAL("content-length"))) {
        int64_t length = 0;
        for (size_t i = 0; i < value.len; i++) {
            if (!is_digit(value.ptr[i]) || i >= 18) {
                return "the answer's Content-Length is not a number";
            }
            length = length * 10 + (value.ptr[i] - '0');
        }
        if (value.len == 0 || (h->content_length >= 0 && h->content_length != length)) {
            return "the answer's Content-Length is empty or given twice with different values";
        }
        h->content_length = length;
    }
    return NULL;
}

static void note_connection(struct answer_head *h, struct slice list)
{
    while (list.len > 0) {
        const char *comma = memchr(list.ptr, ',', list.len);
        struct slice word = {list.ptr, comma != NULL ? (size_t)(comma - list.ptr) : list.len};
        list = slice_from(list, word.len + 1);
        word = slice_trim(word);
        h->says_close = h->says_close || slice_equal_nocase(word, SLICE_LITERAL("close"));
        h->says_keep_alive = h->says_keep_alive || slice_equal_nocase(word, SLICE_LITERAL("keep-alive"));
    }
}

/* An obsolete continuation line: RFC 9112 section 5.2 lets a recipient replace the fold by a space. */
static enum answer_head_step folded_line(struct answer_head *h, struct slice more)
{
    h->says_close = true; /* who still folds may fold the Connection line, too */
    if (h->count == 0) {
        return bad(h, "the answer's first header line is a continuation");
    }
    struct answer_line *last = &h->lines[h->count - 1];
    struct slice name = slice_of(h->bytes.ptr + last->name_at, last->name_len);
    if (slice_equal_nocase(name, SLICE_LITERAL("content-length")) ||
        slice_equal_nocase(name, SLICE_LITERAL("transfer-encoding"))) {
        return bad(h, "the answer folds a framing header");
    }
    if (more.len > 0) {
        size_t before = h->bytes.len;
        if ((last->value_len > 0 && buf_append_byte(&h->bytes, ' ') != 0) ||
            buf_append_slice(&h->bytes, more) != 0) {
            return bad(h, "no memory for the answer's head");
        }
        last->value_len += h->bytes.len - before;
    }
    return ANSWER_HEAD_MORE;
}

static enum answer_head_step header_line(struct answer_head *h, struct slice line)
{
    if (memchr(line.ptr, '\0', line.len) != NULL || memchr(line.ptr, '\r', line.len) != NULL) {
        return bad(h, "the answer's head holds a bare CR or a NUL");
    }
    if (line.ptr[0] == ' ' || line.ptr[0] == '\t') {
        return folded_line(h, slice_trim(line));
    }
    const char *colon = memchr(line.ptr, ':', line.len);
    struct slice name = colon == NULL ? SLICE_NONE : slice_of(line.ptr, (size_t)(colon - line.ptr));
    if (!slice_is_token(name)) {
        return bad(h, "a header line of the answer is malformed");
    }
    struct slice value = slice_trim(slice_from(line, name.len + 1));
    const char *defect = framing_defect(h, name, value);
    if (defect != NULL) {
        return bad(h, defect);
    }
    if (slice_equal_nocase(name, SLICE_LITERAL("connection"))) {
        note_connection(h, value);
    }
    if (h->count == LIMIT_HEADERS_MAX) {
        return bad(h, "the answer has too many header lines");
    }
    if (h->count == h->room && !grow_lines(h)) {
        return bad(h, "no memory for the answer's head");
    }
    size_t at = h->bytes.len;
    if (buf_append_slice(&h->bytes, name) != 0 || buf_append_slice(&h->bytes, value) != 0) {
        return bad(h, "no memory for the answer's head");
    }
    h->lines[h->count++] = (struct answer_line){at, name.len, at + name.len, value.len};
    return ANSWER_HEAD_MORE;
}

static enum answer_head_step end_of_head(struct answer_head *h)
{
    h->in_head = false;
    if (h->status < 200) {
        return ANSWER_HEAD_MORE;
    }
    if (h->chunked && h->content_length >= 0) {
        return bad(h, "the answer has both Content-Length and Transfer-Encoding");
    }
    for (size_t i = 0; i < h->count; i++) {
        const struct answer_line *l = &h->lines[i];
        h->headers[i] = (struct header){slice_of(h->bytes.ptr + l->name_at, l->name_len),
                                        slice_of(h->bytes.ptr + l->value_at, l->value_len)};
    }
    h->keep_alive = !h->says_close && (!h->http10 || h->says_keep_alive) && !(h->http10 && h->chunked);
    h->complete = true;
    return ANSWER_HEAD_COMPLETE;
}

enum answer_head_step answer_head_line(struct answer_head *h, struct slice line)
{
    h->seen_bytes += line.len;
    if (h->seen_bytes > h->bytes_max) {
        return bad(h, "the answer's head is larger than allowed");
    }
    if (line.len > 0 && line.ptr[line.len - 1] == '\n') {
        line.len--;
        if (line.len > 0 && line.ptr[line.len - 1] == '\r') {
            line.len--;
        }
    }
    if (!h->in_head) {
        return status_line(h, line);
    }
    return line.len == 0 ? end_of_head(h) : header_line(h, line);
}
