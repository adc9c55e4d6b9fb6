/* UTF-8 by the letter (RFC 3629): no overlong forms, no surrogates, nothing beyond U+10FFFF. Pure. */
#ifndef CORE_UTF8_H
#define CORE_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* The bytes of the well-formed character at `ptr`, 1 to 4, of which `left` (at least 1) may be read;
 * 0 when there is none. */
static inline size_t utf8_length(const char *ptr, size_t left)
{
    const unsigned char *p = (const unsigned char *)ptr;
    if (p[0] < 0x80) {
        return 1;
    }
    /* The second byte's range depends on the first: this is what keeps overlong forms, surrogates and
     * too large numbers out (Unicode 15, table 3-7). */
    size_t n = p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
    unsigned low = p[0] == 0xe0 ? 0xa0 : p[0] == 0xf0 ? 0x90 : 0x80;
    unsigned high = p[0] == 0xed ? 0x9f : p[0] == 0xf4 ? 0x8f : 0xbf;
    if (p[0] < 0xc2 || p[0] > 0xf4 || left < n || p[1] < low || p[1] > high) {
        return 0;
    }
    for (size_t i = 2; i < n; i++) {
        if ((p[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    return n;
}

/* The number of a well-formed character of `n` bytes. */
static inline uint32_t utf8_decode(const char *ptr, size_t n)
{
    const unsigned char *p = (const unsigned char *)ptr;
    uint32_t code = n == 1 ? p[0] : p[0] & (0x7fU >> n);
    for (size_t i = 1; i < n; i++) {
        code = code << 6 | (p[i] & 0x3fU);
    }
    return code;
}

/* Write a character that is no surrogate and at most U+10FFFF; returns its bytes. */
static inline size_t utf8_encode(char out[4], uint32_t code)
{
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    size_t n = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t i = n - 1; i > 0; i--) {
        out[i] = (char)(0x80 | (code & 0x3f));
        code >>= 6;
    }
    out[0] = (char)((0xf00U >> n & 0xf0) | code);
    return n;
}

#endif
