/* The two clocks. Only loops, lanes and command lines read them; everything in core/ and store/
 * takes time as an argument.
 *
 * `wall_ms`: milliseconds since 1970-01-01 UTC, for ttl and what people read.
 * `mono_ms`: milliseconds of a clock that is never set, for leases and time-outs inside a process. It goes on while the
 * host is suspended: a lease runs out in the store then, too, and its owner must not think that it still has it. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdint.h>

struct moment {
    int64_t wall_ms;
    int64_t mono_ms;
};

struct moment clock_now(void);
int64_t clock_wall_ms(void);
int64_t clock_mono_ms(void);
int64_t clock_mono_us(void);

/* "2026-11-29T20:58:55.123Z" into out (at least CLOCK_TEXT_MAX bytes). RFC 3339. */
#define CLOCK_TEXT_MAX 32
void clock_text(char *out, int64_t wall_ms);

#endif
