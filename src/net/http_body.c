/* The framing of a request's body: by length, or chunked (RFC 9112 sections 6 and 7.1).
 *
 * Exactly CR LF around chunks, sizes of hex digits only, nothing between size and CR but an extension, trailer lines
 * with a name and a colon. Framing that outgrows the content it carries is refused: a stranger could otherwise keep us
 * reading for nothing. */
#include "net/http_head.h"

enum state {
    STATE_LENGTH,
    STATE_SIZE_FIRST, /* a chunk's first digit */
    STATE_SIZE,
    STATE_EXTENSION,
    STATE_SIZE_LF,
    STATE_DATA,
    STATE_DATA_CR,
    STATE_DATA_LF,
    STATE_TRAILER_FIRST, /* the first byte of a trailer line, or the CR of the last line */
    STATE_TRAILER_NAME,
    STATE_TRAILER,
    STATE_TRAILER_LF,
    STATE_END_LF,
    STATE_END,
    STATE_BAD,
};

enum {
    SIZE_DIGITS_MAX = 16,
    EXCESS_BYTES_MAX = 16 * 1024,
    CHUNK_FREE_BYTES = 16, /* a size line this long is nobody's fault */
};

void http_body_init(struct http_body *b, int64_t length)
{
    *b = (struct http_body){.left = length > 0 ? (uint64_t)length : 0,
                            .state = length < 0    ? STATE_SIZE_FIRST
                                     : length == 0 ? STATE_END
                                                   : STATE_LENGTH};
}

bool http_body_ended(const struct http_body *b)
{
    return b->state == STATE_END;
}

uint64_t http_body_left(const struct http_body *b)
{
    return b->state == STATE_LENGTH ? b->left : 0;
}

static int hex_digit(char c)
{
    char lower = ascii_lower(c);
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

static bool is_text(char c)
{
    return (uint8_t)c >= ' ' ? c != 0x7f : c == '\t';
}

static bool is_name(char c)
{
    return slice_is_token(slice_of(&c, 1));
}

static enum state size_byte(struct http_body *b, char c)
{
    int digit = hex_digit(c);
    if (digit >= 0) {
        if (b->digits == SIZE_DIGITS_MAX || b->left > (uint64_t)INT64_MAX >> 4) {
            return STATE_BAD;
        }
        b->digits++;
        b->left = (b->left << 4) + (uint64_t)digit;
        return STATE_SIZE;
    }
    if (b->digits == 0) {
        return STATE_BAD;
    }
    return c == ';' ? STATE_EXTENSION : c == '\r' ? STATE_SIZE_LF : STATE_BAD;
}

/* The end of a size line: its chunk pays for the framing seen so far. */
static enum state size_done(struct http_body *b)
{
    uint64_t paid = b->left > EXCESS_BYTES_MAX ? EXCESS_BYTES_MAX : CHUNK_FREE_BYTES + 2 * b->left;
    b->excess = b->excess > paid ? b->excess - (uint32_t)paid : 0;
    b->digits = 0;
    return b->left > 0 ? STATE_DATA : STATE_TRAILER_FIRST;
}

static enum state framing_byte(struct http_body *b, char c)
{
    b->excess++;
    if (b->excess > EXCESS_BYTES_MAX) {
        return STATE_BAD;
    }
    switch ((enum state)b->state) {
    case STATE_SIZE_FIRST:
    case STATE_SIZE:
        return size_byte(b, c);
    case STATE_EXTENSION:
        return c == '\r' ? STATE_SIZE_LF : is_text(c) ? STATE_EXTENSION : STATE_BAD;
    case STATE_SIZE_LF:
        return c == '\n' ? size_done(b) : STATE_BAD;
    case STATE_DATA_CR:
        return c == '\r' ? STATE_DATA_LF : STATE_BAD;
    case STATE_DATA_LF:
        return c == '\n' ? STATE_SIZE_FIRST : STATE_BAD;
    case STATE_TRAILER_FIRST:
        if (c == '\r') {
            return STATE_END_LF;
        }
        return is_name(c) ? STATE_TRAILER_NAME : STATE_BAD;
    case STATE_TRAILER_NAME:
        return c == ':' ? STATE_TRAILER : is_name(c) ? STATE_TRAILER_NAME : STATE_BAD;
    case STATE_TRAILER:
        return c == '\r' ? STATE_TRAILER_LF : is_text(c) ? STATE_TRAILER : STATE_BAD;
    case STATE_TRAILER_LF:
        return c == '\n' ? STATE_TRAILER_FIRST : STATE_BAD;
    case STATE_END_LF:
        return c == '\n' ? STATE_END : STATE_BAD;
    default:
        return STATE_BAD;
    }
}

/* Content out of `bytes`, of at most what is left; *used moves past it. */
static struct slice take(struct http_body *b, struct slice bytes, size_t *used, enum state after)
{
    struct slice rest = slice_from(bytes, *used);
    if (rest.len >= b->left) {
        rest.len = (size_t)b->left;
        b->state = (uint8_t)after;
    }
    b->left -= rest.len;
    *used += rest.len;
    return rest;
}

enum http_body_step http_body_decode(struct http_body *b, struct slice bytes, size_t *used,
                                     struct slice *piece)
{
    *used = 0;
    for (;;) {
        if (b->state == STATE_END) {
            return HTTP_BODY_END;
        }
        if (b->state == STATE_BAD) {
            return HTTP_BODY_BAD;
        }
        if (*used == bytes.len) {
            return HTTP_BODY_MORE;
        }
        if (b->state == STATE_LENGTH || b->state == STATE_DATA) {
            *piece = take(b, bytes, used, b->state == STATE_DATA ? STATE_DATA_CR : STATE_END);
            return HTTP_BODY_PIECE;
        }
        b->state = (uint8_t)framing_byte(b, bytes.ptr[(*used)++]);
    }
}
