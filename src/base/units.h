/* Durations, sizes and numbers as people write them: "250ms", "10s", "24h", "1MiB", "64k".
 *
 * Durations: a whole number with ms, s, m, h or d; "0" needs no unit. Sizes: a whole number with B,
 * KiB, MiB, GiB (powers of 1024) or kB, MB, GB (powers of 1000); no unit means bytes. No signs, no
 * fractions, no blanks inside. Overflow is a syntax error. Pure. */
#ifndef BASE_UNITS_H
#define BASE_UNITS_H

#include "base/slice.h"

#include <stdint.h>

int units_duration_ms(int64_t *out, struct slice text); /* 0 or HAPAX_E_SYNTAX */
int units_size_bytes(uint64_t *out, struct slice text);
int units_u64(uint64_t *out, struct slice text); /* digits only, no sign */

/* The shortest exact form ("90s", "24h", "1MiB"); out holds UNITS_TEXT_MAX bytes. */
#define UNITS_TEXT_MAX 32
void units_duration_text(char *out, int64_t ms);
void units_size_text(char *out, uint64_t bytes);

#endif
