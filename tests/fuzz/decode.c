/* Content decoding (core/decode.h): [mode] Content-Encoding, 0xFF, body.
 *
 * Would catch: output past the limit; output after an error; a gzip stream that zlib reads differently; content that was
 * encoded by zlib or brotli and is not what comes out; content that is cut short, damaged at its end or followed by
 * more and is taken; content of exactly the limit that is refused, or of one byte more that is taken. */
#include "fuzz.h"

#include "base/limits.h"
#include "core/decode.h"

#include <brotli/encode.h>
#include <zlib.h>

enum { OUT_BYTES_MAX = 64 << 10, GZIP_WINDOW = MAX_WBITS + 16 };

static int decode(struct buf *out, size_t bytes_max, struct slice coding, struct slice body)
{
    bool coded = false;
    hapax_error err = {0};
    buf_init(out, bytes_max);
    int rc = decode_content(out, &coded, coding, body, &err);
    FUZZ_CHECK(out->len <= bytes_max);
    FUZZ_CHECK(rc == 0 || (!coded && out->len == 0 && err.code == rc && err.message[0] != '\0'));
    FUZZ_CHECK(coded || out->len == 0);
    return rc;
}

static bool is_result(int rc)
{
    return rc == 0 || rc == HAPAX_E_LIMIT || rc == HAPAX_E_SYNTAX || rc == HAPAX_E_UNSUPPORTED;
}

/* ---- beside zlib ---------------------------------------------------------------------------------- */

/* One gzip member that is the whole of `body`, by one call of zlib. */
static void check_one_member(struct slice body)
{
    static unsigned char expected[OUT_BYTES_MAX + 1];
    z_stream z = {0};
    FUZZ_CHECK(inflateInit2(&z, GZIP_WINDOW) == Z_OK);
    z.next_in = (z_const Bytef *)(uintptr_t)body.ptr;
    z.avail_in = (uInt)body.len;
    z.next_out = expected;
    z.avail_out = sizeof expected;
    int result = inflate(&z, Z_FINISH);
    size_t len = sizeof expected - z.avail_out;
    bool whole = result == Z_STREAM_END && z.avail_in == 0;
    bool too_large = result != Z_STREAM_END && z.avail_out == 0;
    bool members = result == Z_STREAM_END && z.avail_in > 0; /* or garbage: ours reads on */
    inflateEnd(&z);

    struct buf out;
    int rc = decode(&out, OUT_BYTES_MAX, SLICE_LITERAL("gzip"), body);
    if (whole) {
        FUZZ_CHECK(rc == (len > OUT_BYTES_MAX ? HAPAX_E_LIMIT : 0));
        FUZZ_CHECK(rc != 0 || slice_equal(buf_slice(&out), slice_of(expected, len)));
    } else if (!too_large && !members) {
        FUZZ_CHECK(rc == HAPAX_E_SYNTAX);
    }
    buf_free(&out);
}

/* ---- there and back -------------------------------------------------------------------------------- */

static void encode_zlib(struct buf *out, int window, struct slice plain)
{
    z_stream z = {0};
    FUZZ_CHECK(deflateInit2(&z, 1 + (int)(plain.len % 9), Z_DEFLATED, window, 8, Z_DEFAULT_STRATEGY) == Z_OK);
    FUZZ_CHECK(buf_reserve(out, deflateBound(&z, plain.len)) == 0);
    z.next_in = (z_const Bytef *)(uintptr_t)plain.ptr;
    z.avail_in = (uInt)plain.len;
    z.next_out = (Bytef *)out->ptr;
    z.avail_out = (uInt)out->cap;
    FUZZ_CHECK(deflate(&z, Z_FINISH) == Z_STREAM_END);
    out->len = z.total_out;
    deflateEnd(&z);
}

static void encode_brotli(struct buf *out, struct slice plain)
{
    size_t len = BrotliEncoderMaxCompressedSize(plain.len) + 16;
    FUZZ_CHECK(buf_reserve(out, len) == 0);
    FUZZ_CHECK(BrotliEncoderCompress(1 + (int)(plain.len % 5), BROTLI_DEFAULT_WINDOW, BROTLI_MODE_GENERIC,
                                     plain.len, (const uint8_t *)plain.ptr, &len, (uint8_t *)out->ptr));
    out->len = len;
}

static void check_round_trip(struct slice coding, struct buf *encoded, struct slice plain, bool tail_counts)
{
    struct buf out;
    FUZZ_CHECK(decode(&out, plain.len, coding, buf_slice(encoded)) == 0);
    FUZZ_CHECK(slice_equal(buf_slice(&out), plain));
    buf_free(&out);
    FUZZ_CHECK(plain.len == 0 || decode(&out, plain.len - 1, coding, buf_slice(encoded)) == HAPAX_E_LIMIT);
    buf_free(&out);
    for (size_t cut = 1; cut < encoded->len && cut < 12; cut++) {
        struct slice part = slice_of(encoded->ptr, encoded->len - cut);
        FUZZ_CHECK(decode(&out, OUT_BYTES_MAX, coding, part) == HAPAX_E_SYNTAX);
        buf_free(&out);
    }
    if (tail_counts) { /* of gzip and zlib: a check sum */
        char *last = encoded->ptr + encoded->len - 1;
        *last = (char)(*last ^ 1);
        FUZZ_CHECK(decode(&out, OUT_BYTES_MAX, coding, buf_slice(encoded)) == HAPAX_E_SYNTAX);
        buf_free(&out);
        *last = (char)(*last ^ 1);
    }
    FUZZ_CHECK(buf_append_byte(encoded, 'x') == 0);
    FUZZ_CHECK(decode(&out, OUT_BYTES_MAX, coding, buf_slice(encoded)) == HAPAX_E_SYNTAX);
    buf_free(&out);
}

static void round_trip(uint8_t mode, struct slice plain)
{
    struct buf encoded;
    buf_init(&encoded, 1 << 20);
    switch (mode % 4) {
    case 0:
        encode_zlib(&encoded, GZIP_WINDOW, plain);
        check_round_trip(SLICE_LITERAL("x-GZip"), &encoded, plain, true);
        break;
    case 1:
        encode_zlib(&encoded, MAX_WBITS, plain);
        check_round_trip(SLICE_LITERAL("identity, deflate"), &encoded, plain, true);
        break;
    case 2:
        encode_zlib(&encoded, -MAX_WBITS, plain);
        check_round_trip(SLICE_LITERAL("deflate"), &encoded, plain, false);
        break;
    default:
        encode_brotli(&encoded, plain);
        check_round_trip(SLICE_LITERAL("br"), &encoded, plain, false);
        break;
    }
    buf_free(&encoded);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = {data, size};
    uint8_t mode = input_byte(&in);
    if (mode >= 128) {
        struct slice plain = input_rest(&in);
        plain.len = plain.len < OUT_BYTES_MAX ? plain.len : OUT_BYTES_MAX;
        round_trip(mode, plain);
        return 0;
    }
    struct slice coding = input_section(&in);
    struct slice body = input_rest(&in);
    struct buf out;
    FUZZ_CHECK(is_result(decode(&out, OUT_BYTES_MAX, coding, body)));
    buf_free(&out);
    if (body.len > 0) { /* an empty body is never coded */
        check_one_member(body);
    }
    return 0;
}
