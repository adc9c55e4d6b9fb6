/* Content decoding: one stage per coding, each a loop that writes straight into the output buffer,
 * which never grows past its maximum. Behind a full buffer one byte more is asked for: if it comes,
 * the content is too large. */
#include "core/decode.h"

#include "base/error.h"
#include "base/limits.h"

#include <brotli/decode.h>
#include <limits.h>
#include <zlib.h>

enum {
    ROOM_BYTES_MIN = 4096,
    GZIP_WINDOW = MAX_WBITS + 16, /* zlib's way to ask for a gzip wrapper, */
    RAW_WINDOW = -MAX_WBITS,      /* and for none */
};

enum coding { CODING_IDENTITY, CODING_GZIP, CODING_DEFLATE, CODING_BROTLI };

static int damaged(hapax_error *err, const char *coding)
{
    return error_set(err, HAPAX_E_SYNTAX, 0, "content coding %s: damaged, cut short or followed by more",
                     coding);
}

static int too_large(hapax_error *err, const struct buf *out)
{
    return error_set(err, HAPAX_E_LIMIT, 0, "the decoded content is larger than %zu bytes", out->len_max);
}

/* Where the next bytes go: into `out`, grown when it is full, or into *spare when it may grow no more. */
static int make_room(char **at, size_t *bytes, struct buf *out, char *spare)
{
    size_t left = out->len_max - out->len;
    if (left == 0) {
        *at = spare;
        *bytes = 1;
        return 0;
    }
    if (out->len == out->cap) {
        int rc = buf_reserve(out, left < ROOM_BYTES_MIN ? left : ROOM_BYTES_MIN);
        if (rc != 0) {
            return rc;
        }
    }
    *at = out->ptr + out->len;
    *bytes = out->cap - out->len;
    return 0;
}

/* ---- zlib -------------------------------------------------------------------------------------- */

/* One call of inflate(): its result, or a code of ours in *rc. */
static int inflate_step(z_stream *z, struct slice *in, struct buf *out, int *rc, hapax_error *err)
{
    char spare;
    char *at;
    size_t room;
    *rc = make_room(&at, &room, out, &spare);
    if (*rc != 0) {
        error_code(err, *rc);
        return Z_OK;
    }
    uInt offered = in->len < UINT_MAX ? (uInt)in->len : UINT_MAX;
    uInt space = room < UINT_MAX ? (uInt)room : UINT_MAX;
    z->next_in = (z_const Bytef *)(uintptr_t)in->ptr;
    z->avail_in = offered;
    z->next_out = (Bytef *)at;
    z->avail_out = space;
    int result = inflate(z, Z_NO_FLUSH);
    *in = slice_from(*in, offered - z->avail_in);
    size_t written = space - z->avail_out;
    if (at == &spare) {
        *rc = written > 0 ? too_large(err, out) : 0;
    } else {
        out->len += written;
    }
    return result;
}

static int undo_zlib(struct buf *out, struct slice in, int window, const char *name, hapax_error *err)
{
    z_stream z = {0};
    if (inflateInit2(&z, window) != Z_OK) {
        return error_code(err, HAPAX_E_MEMORY);
    }
    int rc = 0;
    for (;;) {
        int result = inflate_step(&z, &in, out, &rc, err);
        if (rc != 0) {
            break;
        }
        if (result == Z_STREAM_END && in.len > 0 && window == GZIP_WINDOW) {
            result = inflateReset(&z); /* RFC 1952: members follow one another */
        } else if (result == Z_STREAM_END) {
            rc = in.len == 0 ? 0 : damaged(err, name);
            break;
        }
        if (result == Z_MEM_ERROR) {
            rc = error_code(err, HAPAX_E_MEMORY);
            break;
        }
        if (result != Z_OK) { /* Z_BUF_ERROR: it wants input and there is none */
            rc = damaged(err, name);
            break;
        }
    }
    inflateEnd(&z);
    return rc;
}

/* "deflate" is the zlib format (RFC 9110), but some senders leave its wrapper out. RFC 1950's check of
 * the first two bytes tells them apart: read as raw data they would be a stored block with padding
 * that no encoder writes. */
static int deflate_window(struct slice in)
{
    unsigned first = in.len > 1 ? (unsigned char)in.ptr[0] : 0;
    unsigned second = in.len > 1 ? (unsigned char)in.ptr[1] : 1;
    bool wrapped = (first & 15) == Z_DEFLATED && first >> 4 <= 7 && (first * 256 + second) % 31 == 0;
    return wrapped ? MAX_WBITS : RAW_WINDOW;
}

/* ---- brotli ------------------------------------------------------------------------------------ */

static bool is_memory_error(BrotliDecoderErrorCode code)
{
    return code <= BROTLI_DECODER_ERROR_ALLOC_CONTEXT_MODES &&
           code >= BROTLI_DECODER_ERROR_ALLOC_BLOCK_TYPE_TREES;
}

static int brotli_step(BrotliDecoderState *state, struct slice *in, struct buf *out, bool *done,
                       hapax_error *err)
{
    char spare;
    char *at;
    size_t room;
    int rc = make_room(&at, &room, out, &spare);
    if (rc != 0) {
        return error_code(err, rc);
    }
    const uint8_t *next_in = (const uint8_t *)in->ptr;
    uint8_t *next_out = (uint8_t *)at;
    size_t left = in->len;
    size_t space = room;
    BrotliDecoderResult result =
        BrotliDecoderDecompressStream(state, &left, &next_in, &space, &next_out, NULL);
    *in = slice_from(*in, in->len - left);
    if (at == &spare && space < room) {
        return too_large(err, out);
    }
    out->len += room - space;
    if (result == BROTLI_DECODER_RESULT_ERROR && is_memory_error(BrotliDecoderGetErrorCode(state))) {
        return error_code(err, HAPAX_E_MEMORY);
    }
    *done = result == BROTLI_DECODER_RESULT_SUCCESS;
    /* All input was offered at once: wanting more of it means that it was cut short. */
    bool more = result == BROTLI_DECODER_RESULT_NEEDS_MORE_OUTPUT;
    return more || (*done && in->len == 0) ? 0 : damaged(err, "br");
}

static int undo_brotli(struct buf *out, struct slice in, hapax_error *err)
{
    BrotliDecoderState *state = BrotliDecoderCreateInstance(NULL, NULL, NULL);
    if (state == NULL) {
        return error_code(err, HAPAX_E_MEMORY);
    }
    bool done = false;
    int rc = 0;
    while (rc == 0 && !done) {
        rc = brotli_step(state, &in, out, &done, err);
    }
    BrotliDecoderDestroyInstance(state);
    return rc;
}

/* ---- the list of codings ----------------------------------------------------------------------- */

static int coding_parse(enum coding *out, struct slice word)
{
    static const struct {
        struct slice word;
        enum coding coding;
    } codings[] = {
        {{"gzip", 4}, CODING_GZIP}, {{"x-gzip", 6}, CODING_GZIP},       {{"deflate", 7}, CODING_DEFLATE},
        {{"br", 2}, CODING_BROTLI}, {{"identity", 8}, CODING_IDENTITY},
    };
    for (size_t i = 0; i < sizeof codings / sizeof codings[0]; i++) {
        if (slice_equal_nocase(word, codings[i].word)) {
            *out = codings[i].coding;
            return 0;
        }
    }
    return HAPAX_E_UNSUPPORTED;
}

/* What has to be undone, in the order of the list. */
static int list_codings(enum coding out[LIMIT_CONTENT_CODINGS_MAX], size_t *count, struct slice list,
                        hapax_error *err)
{
    *count = 0;
    while (list.len > 0) {
        const char *comma = memchr(list.ptr, ',', list.len);
        struct slice word = {list.ptr, comma != NULL ? (size_t)(comma - list.ptr) : list.len};
        list = slice_from(list, word.len + (comma != NULL));
        word = slice_trim(word);
        enum coding coding = CODING_IDENTITY;
        if (word.len > 0 && coding_parse(&coding, word) != 0) {
            return error_set(err, HAPAX_E_UNSUPPORTED, 0,
                             "a content coding other than gzip, deflate, br or identity");
        }
        if (coding == CODING_IDENTITY) {
            continue;
        }
        if (*count == LIMIT_CONTENT_CODINGS_MAX) {
            return error_set(err, HAPAX_E_LIMIT, 0, "more than %d content codings",
                             LIMIT_CONTENT_CODINGS_MAX);
        }
        out[(*count)++] = coding;
    }
    return 0;
}

static int undo(struct buf *out, enum coding coding, struct slice in, hapax_error *err)
{
    switch (coding) {
    case CODING_GZIP:
        return undo_zlib(out, in, GZIP_WINDOW, "gzip", err);
    case CODING_DEFLATE:
        return undo_zlib(out, in, deflate_window(in), "deflate", err);
    case CODING_BROTLI:
        return undo_brotli(out, in, err);
    case CODING_IDENTITY:
        break;
    }
    return buf_append_slice(out, in);
}

int decode_content(struct buf *out, bool *coded, struct slice content_encoding, struct slice body,
                   hapax_error *err)
{
    enum coding codings[LIMIT_CONTENT_CODINGS_MAX];
    size_t count;
    buf_clear(out);
    *coded = false;
    int rc = list_codings(codings, &count, content_encoding, err);
    if (rc != 0 || count == 0 || body.len == 0) {
        return rc;
    }
    struct buf before; /* what the stage before gave */
    buf_init(&before, out->len_max);
    while (rc == 0 && count > 0) {
        rc = undo(out, codings[--count], body, err);
        if (count > 0) {
            struct buf swap = before;
            before = *out;
            *out = swap;
            body = buf_slice(&before);
            buf_clear(out);
        }
    }
    buf_free(&before);
    if (rc != 0) {
        buf_clear(out);
    }
    *coded = rc == 0;
    return rc;
}
