/* What the fuzz targets share. A target is one file with one LLVMFuzzerTestOneInput(), linked with libFuzzer (`make fuzz
 * T=...`) or with replay.c, which runs the committed inputs. It keeps no state from input to input that changes a
 * verdict, reads no clock for one, and opens nothing on disk. */
#ifndef FUZZ_H
#define FUZZ_H

#include "base/slice.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The oracle: a failure ends the process, and libFuzzer keeps the input. */
#define FUZZ_CHECK(e)                                                                                        \
    ((e) ? (void)0 : (fprintf(stderr, "%s:%d: the oracle failed: %s\n", __FILE__, __LINE__, #e), abort()))

/* An input that is read from its front. What it no longer holds reads as zero or as nothing. */
struct input {
    const uint8_t *ptr;
    size_t left;
};

static inline uint8_t input_byte(struct input *in)
{
    if (in->left == 0) {
        return 0;
    }
    in->left--;
    return *in->ptr++;
}

static inline uint64_t input_u64(struct input *in)
{
    uint64_t value = 0;
    for (int i = 0; i < 8; i++) {
        value = value << 8 | input_byte(in);
    }
    return value;
}

static inline struct slice input_piece(struct input *in, size_t len)
{
    len = len < in->left ? len : in->left;
    struct slice piece = slice_of(in->ptr, len);
    in->ptr += len;
    in->left -= len;
    return piece;
}

static inline struct slice input_rest(struct input *in)
{
    return input_piece(in, in->left);
}

/* Up to the next 0xFF, which no UTF-8 text holds, or all that is left. */
static inline struct slice input_section(struct input *in)
{
    const uint8_t *end = in->left > 0 ? memchr(in->ptr, 0xff, in->left) : NULL;
    struct slice section = input_piece(in, end != NULL ? (size_t)(end - in->ptr) : in->left);
    input_piece(in, 1);
    return section;
}

#endif
