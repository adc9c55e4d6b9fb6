#include "base/limits.h"
#include "core/decode.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <zlib.h>

#include <cmocka.h>

/* What `brotli` makes of TEXT; the library's encoder is no dependency of ours. */
#define TEXT "{\"order_id\":1042,\"note\":\"hello hello hello hello hello hello\"}"
static const unsigned char brotli_text[] = {
    0x1b, 0x3d, 0x00, 0xf8, 0xad, 0x0e, 0x78, 0xf3, 0x2b, 0x28, 0x8d, 0x87, 0x88, 0xd2, 0xd5,
    0x51, 0xcc, 0xd7, 0x30, 0x68, 0x69, 0x7b, 0x4a, 0xa7, 0xaf, 0x45, 0x40, 0x62, 0xd8, 0x26,
    0x8b, 0x0c, 0x4d, 0x91, 0x95, 0xb5, 0xc8, 0x17, 0xdb, 0x9b, 0x96, 0x64, 0x12, 0x7e, 0x04,
    0x92, 0x07, 0x80, 0x30, 0x89, 0xeb, 0x0c, 0xc6, 0xb1, 0x1e, 0x7e, 0x07, 0x01};
/* And of 20 MiB of zeros. */
static const unsigned char brotli_bomb[] = {0xcb, 0xff, 0xff, 0x3f, 0xf8, 0x27, 0x00, 0xe2, 0xb1, 0x40,
                                            0x20, 0xf7, 0xfe, 0x8f, 0xff, 0xff, 0x7f, 0xf0, 0x4f, 0x00,
                                            0xc4, 0x61, 0x11, 0x80, 0xee, 0xfd, 0x5f, 0xfe, 0xff, 0xff,
                                            0xe0, 0x9f, 0x00, 0x88, 0xc3, 0x02, 0x00, 0xdd, 0xfb, 0x1f};

enum { GZIP = MAX_WBITS + 16, ZLIB = MAX_WBITS, RAW = -MAX_WBITS };

static struct buf out;

static int setup(void **state)
{
    (void)state;
    buf_init(&out, 1U << 20);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    buf_free(&out);
    return 0;
}

static struct buf compressed(struct slice text, int window)
{
    struct buf b;
    z_stream z = {0};
    buf_init(&b, 64U << 20);
    assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, window, 8, Z_DEFAULT_STRATEGY), Z_OK);
    size_t bound = deflateBound(&z, text.len);
    assert_int_equal(buf_reserve(&b, bound), 0);
    z.next_in = (z_const Bytef *)(uintptr_t)text.ptr;
    z.avail_in = (uInt)text.len;
    z.next_out = (Bytef *)b.ptr;
    z.avail_out = (uInt)bound;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    b.len = bound - z.avail_out;
    deflateEnd(&z);
    return b;
}

static int decode(const char *coding, struct slice body)
{
    bool coded;
    hapax_error err = {0};
    int rc = decode_content(&out, &coded, slice_text(coding), body, &err);
    assert_int_equal(err.code, rc);
    assert_true(rc == 0 || (!coded && out.len == 0));
    return rc;
}

static void assert_decodes(const char *coding, struct slice body, struct slice wanted)
{
    bool coded = false;
    hapax_error err = {0};
    if (decode_content(&out, &coded, slice_text(coding), body, &err) != 0) {
        fail_msg("%s: %s", coding, err.message);
    }
    assert_true(coded);
    assert_true(slice_equal(buf_slice(&out), wanted));
}

static const struct slice brotli = {(const char *)brotli_text, sizeof brotli_text};

static void every_coding_is_undone(void **state)
{
    (void)state;
    struct buf gzip = compressed(SLICE_LITERAL(TEXT), GZIP);
    struct buf zlib = compressed(SLICE_LITERAL(TEXT), ZLIB);
    struct buf raw = compressed(SLICE_LITERAL(TEXT), RAW);
    assert_decodes("gzip", buf_slice(&gzip), SLICE_LITERAL(TEXT));
    assert_decodes("x-gzip", buf_slice(&gzip), SLICE_LITERAL(TEXT));
    assert_decodes(" GZip\t", buf_slice(&gzip), SLICE_LITERAL(TEXT));
    assert_decodes(",identity, gzip ,", buf_slice(&gzip), SLICE_LITERAL(TEXT));
    assert_decodes("deflate", buf_slice(&zlib), SLICE_LITERAL(TEXT));
    assert_decodes("deflate", buf_slice(&raw), SLICE_LITERAL(TEXT));
    assert_decodes("br", brotli, SLICE_LITERAL(TEXT));
    buf_free(&gzip);
    buf_free(&zlib);
    buf_free(&raw);
}

static void empty_content_is_undone_to_nothing(void **state)
{
    (void)state;
    static const int windows[] = {GZIP, ZLIB, RAW};
    static const char *const codings[] = {"gzip", "deflate", "deflate"};
    for (size_t i = 0; i < 3; i++) {
        struct buf b = compressed(SLICE_LITERAL(""), windows[i]);
        assert_decodes(codings[i], buf_slice(&b), SLICE_LITERAL(""));
        buf_free(&b);
    }
    assert_decodes("br", SLICE_LITERAL("\x3b"), SLICE_LITERAL(""));
}

static void gzip_members_follow_one_another(void **state)
{
    (void)state;
    struct buf first = compressed(SLICE_LITERAL("one, "), GZIP);
    struct buf empty = compressed(SLICE_LITERAL(""), GZIP);
    struct buf second = compressed(SLICE_LITERAL("two"), GZIP);
    assert_int_equal(buf_append_slice(&first, buf_slice(&empty)), 0);
    assert_int_equal(buf_append_slice(&first, buf_slice(&second)), 0);
    assert_decodes("gzip", buf_slice(&first), SLICE_LITERAL("one, two"));
    for (size_t len_max = 0; len_max <= 8; len_max++) {
        buf_free(&out);
        buf_init(&out, len_max);
        assert_int_equal(decode("gzip", buf_slice(&first)), len_max < 8 ? HAPAX_E_LIMIT : 0);
    }
    struct buf last = compressed(SLICE_LITERAL("!"), GZIP);
    assert_int_equal(buf_append_slice(&first, buf_slice(&last)), 0);
    buf_free(&out);
    buf_init(&out, 9);
    assert_decodes("gzip", buf_slice(&first), SLICE_LITERAL("one, two!"));
    buf_free(&last);
    buf_free(&first);
    buf_free(&empty);
    buf_free(&second);
}

static void stacked_codings_are_undone_from_the_last(void **state)
{
    (void)state;
    struct buf inner = compressed(SLICE_LITERAL(TEXT), ZLIB);
    struct buf middle = compressed(buf_slice(&inner), GZIP);
    struct buf outer = compressed(buf_slice(&middle), RAW);
    assert_decodes("deflate, gzip", buf_slice(&middle), SLICE_LITERAL(TEXT));
    assert_decodes("deflate,identity,gzip,deflate", buf_slice(&outer), SLICE_LITERAL(TEXT));
    assert_int_equal(decode("gzip, deflate", buf_slice(&middle)), HAPAX_E_SYNTAX);
    struct buf over_brotli = compressed(brotli, GZIP);
    assert_decodes("br, gzip", buf_slice(&over_brotli), SLICE_LITERAL(TEXT));
    buf_free(&inner);
    buf_free(&middle);
    buf_free(&outer);
    buf_free(&over_brotli);
}

static void what_is_not_coded_is_left_alone(void **state)
{
    (void)state;
    static const char *const codings[] = {NULL, "", " ", ",", "identity", "Identity, identity"};
    for (size_t i = 0; i < sizeof codings / sizeof codings[0]; i++) {
        bool coded = true;
        assert_int_equal(buf_append_text(&out, "old"), 0);
        assert_int_equal(decode_content(&out, &coded, slice_text(codings[i]), SLICE_LITERAL("body"), NULL),
                         0);
        assert_false(coded);
        assert_int_equal(out.len, 0);
    }
}

static void an_empty_body_needs_no_decoding(void **state)
{
    (void)state;
    bool coded = true;
    assert_int_equal(decode_content(&out, &coded, SLICE_LITERAL("gzip, br"), SLICE_NONE, NULL), 0);
    assert_false(coded);
    assert_int_equal(decode("zstd", SLICE_NONE), HAPAX_E_UNSUPPORTED);
}

static void other_codings_are_unsupported(void **state)
{
    (void)state;
    static const char *const codings[] = {"zstd", "compress", "gzip, zstd", "gzip;q=1",
                                          "gzi",  "gzip br",  "*"};
    for (size_t i = 0; i < sizeof codings / sizeof codings[0]; i++) {
        assert_int_equal(decode(codings[i], SLICE_LITERAL("body")), HAPAX_E_UNSUPPORTED);
    }
}

static void codings_stop_at_their_limit(void **state)
{
    (void)state;
    struct slice text = SLICE_LITERAL(TEXT);
    struct buf layers[LIMIT_CONTENT_CODINGS_MAX];
    for (size_t i = 0; i < LIMIT_CONTENT_CODINGS_MAX; i++) {
        layers[i] = compressed(text, GZIP);
        text = buf_slice(&layers[i]);
    }
    assert_decodes("gzip, gzip, gzip", text, SLICE_LITERAL(TEXT));
    assert_int_equal(decode("gzip, gzip, gzip, gzip", text), HAPAX_E_LIMIT);
    for (size_t i = 0; i < LIMIT_CONTENT_CODINGS_MAX; i++) {
        buf_free(&layers[i]);
    }
}

/* ---- damage ------------------------------------------------------------------------------------ */

/* Cut anywhere, or with a byte more: never accepted. */
static void assert_only_whole(const char *coding, struct slice body)
{
    for (size_t n = 1; n < body.len; n++) {
        if (decode(coding, (struct slice){body.ptr, n}) != HAPAX_E_SYNTAX) {
            fail_msg("%s: accepted %zu of %zu bytes", coding, n, body.len);
        }
    }
    static const char *const tails[] = {"x", "\xff\xff", "\n"};
    for (size_t i = 0; i <= sizeof tails / sizeof tails[0]; i++) {
        struct buf longer;
        buf_init(&longer, 1U << 20);
        assert_int_equal(buf_append_slice(&longer, body), 0);
        assert_int_equal(i < 3 ? buf_append_text(&longer, tails[i]) : buf_append_byte(&longer, '\0'), 0);
        assert_int_equal(decode(coding, buf_slice(&longer)), HAPAX_E_SYNTAX);
        buf_free(&longer);
    }
}

static void what_is_cut_short_or_goes_on_is_refused(void **state)
{
    (void)state;
    static const int windows[] = {GZIP, ZLIB, RAW};
    static const char *const codings[] = {"gzip", "deflate", "deflate"};
    for (size_t i = 0; i < 3; i++) {
        struct buf b = compressed(SLICE_LITERAL(TEXT), windows[i]);
        assert_only_whole(codings[i], buf_slice(&b));
        buf_free(&b);
    }
    assert_only_whole("br", brotli);
}

static void a_wrong_checksum_is_refused(void **state)
{
    (void)state;
    struct buf gzip = compressed(SLICE_LITERAL(TEXT), GZIP);
    struct buf zlib = compressed(SLICE_LITERAL(TEXT), ZLIB);
    gzip.ptr[gzip.len - 5] ^= 1; /* the CRC */
    assert_int_equal(decode("gzip", buf_slice(&gzip)), HAPAX_E_SYNTAX);
    gzip.ptr[gzip.len - 5] ^= 1;
    gzip.ptr[gzip.len - 1] ^= 1; /* the length */
    assert_int_equal(decode("gzip", buf_slice(&gzip)), HAPAX_E_SYNTAX);
    zlib.ptr[zlib.len - 1] ^= 1;
    assert_int_equal(decode("deflate", buf_slice(&zlib)), HAPAX_E_SYNTAX);
    buf_free(&gzip);
    buf_free(&zlib);
}

static void plain_text_is_no_coded_content(void **state)
{
    (void)state;
    static const char *const codings[] = {"gzip", "deflate", "br"};
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(decode(codings[i], SLICE_LITERAL(TEXT)), HAPAX_E_SYNTAX);
    }
}

static void a_preset_dictionary_is_refused(void **state)
{
    (void)state;
    assert_int_equal(decode("deflate", SLICE_LITERAL("\x78\xbb\0\0\0\1\3\0\0\0\0\1")), HAPAX_E_SYNTAX);
}

static void damaged_bytes_never_do_more_than_fail(void **state)
{
    (void)state;
    struct buf gzip = compressed(SLICE_LITERAL(TEXT), GZIP);
    uint32_t seed = 99;
    for (int i = 0; i < 4000; i++) {
        static const char *const codings[] = {"gzip", "deflate", "br", "br, gzip"};
        char copy[256];
        struct slice from = i % 4 == 2 ? brotli : buf_slice(&gzip);
        assert_true(from.len <= sizeof copy);
        memcpy(copy, from.ptr, from.len);
        for (int k = 0; k < 2; k++) {
            seed = seed * 1664525U + 1013904223U;
            copy[(seed >> 8) % from.len] = (char)(seed >> 24);
        }
        int rc = decode(codings[i % 4], slice_of(copy, from.len));
        assert_true(rc == 0 || rc == HAPAX_E_SYNTAX || rc == HAPAX_E_LIMIT);
    }
    buf_free(&gzip);
}

/* ---- limits ------------------------------------------------------------------------------------ */

static void content_may_fill_the_limit_and_not_pass_it(void **state)
{
    (void)state;
    static const int windows[] = {GZIP, ZLIB, RAW};
    static const char *const codings[] = {"gzip", "deflate", "deflate"};
    const size_t len = sizeof TEXT - 1;
    for (size_t i = 0; i < 3; i++) {
        struct buf b = compressed(SLICE_LITERAL(TEXT), windows[i]);
        buf_free(&out);
        buf_init(&out, len);
        assert_decodes(codings[i], buf_slice(&b), SLICE_LITERAL(TEXT));
        buf_free(&out);
        buf_init(&out, len - 1);
        assert_int_equal(decode(codings[i], buf_slice(&b)), HAPAX_E_LIMIT);
        buf_free(&b);
    }
    buf_free(&out);
    buf_init(&out, len);
    assert_decodes("br", brotli, SLICE_LITERAL(TEXT));
    buf_free(&out);
    buf_init(&out, len - 1);
    assert_int_equal(decode("br", brotli), HAPAX_E_LIMIT);
    buf_free(&out);
    buf_init(&out, 0);
    assert_int_equal(decode("br", brotli), HAPAX_E_LIMIT);
    assert_decodes("br", SLICE_LITERAL("\x3b"), SLICE_LITERAL(""));
}

static void a_bomb_stops_at_the_limit(void **state)
{
    (void)state;
    const size_t len = 20U << 20;
    char *zeros = calloc(1, len);
    assert_non_null(zeros);
    struct buf bomb = compressed(slice_of(zeros, len), GZIP);
    struct buf nested = compressed(buf_slice(&bomb), GZIP);
    free(zeros);
    assert_true(bomb.len < 25000);

    bool coded;
    hapax_error err = {0};
    assert_int_equal(decode_content(&out, &coded, SLICE_LITERAL("gzip"), buf_slice(&bomb), &err),
                     HAPAX_E_LIMIT);
    assert_string_equal(err.message, "the decoded content is larger than 1048576 bytes");
    assert_true(out.cap <= out.len_max);
    assert_int_equal(decode("gzip, gzip", buf_slice(&nested)), HAPAX_E_LIMIT);
    assert_true(out.cap <= out.len_max);
    assert_int_equal(decode("br", slice_of(brotli_bomb, sizeof brotli_bomb)), HAPAX_E_LIMIT);
    assert_true(out.cap <= out.len_max);

    buf_free(&out);
    buf_init(&out, len);
    assert_int_equal(decode("gzip", buf_slice(&bomb)), 0);
    assert_int_equal(out.len, len);
    assert_int_equal(out.cap, len);
    buf_free(&bomb);
    buf_free(&nested);
}

static void large_content_is_undone_whole(void **state)
{
    (void)state;
    struct buf text;
    buf_init(&text, 1U << 20);
    for (unsigned i = 0; text.len + 16 < 1U << 20; i++) {
        assert_int_equal(buf_printf(&text, "%u,", i * 2654435761U), 0);
    }
    struct buf gzip = compressed(buf_slice(&text), GZIP);
    assert_decodes("gzip", buf_slice(&gzip), buf_slice(&text));
    buf_free(&gzip);
    buf_free(&text);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_coding_is_undone),
        TEST(empty_content_is_undone_to_nothing),
        TEST(gzip_members_follow_one_another),
        TEST(stacked_codings_are_undone_from_the_last),
        TEST(what_is_not_coded_is_left_alone),
        TEST(an_empty_body_needs_no_decoding),
        TEST(other_codings_are_unsupported),
        TEST(codings_stop_at_their_limit),
        TEST(what_is_cut_short_or_goes_on_is_refused),
        TEST(a_wrong_checksum_is_refused),
        TEST(plain_text_is_no_coded_content),
        TEST(a_preset_dictionary_is_refused),
        TEST(damaged_bytes_never_do_more_than_fail),
        TEST(content_may_fill_the_limit_and_not_pass_it),
        TEST(a_bomb_stops_at_the_limit),
        TEST(large_content_is_undone_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
