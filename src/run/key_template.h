/* Keys for periods: "report-{date:%Y-%m-%d@Asia/Shanghai}" names the day in Shanghai in which a run was started.
 *
 * {date:FORMAT} and {date:FORMAT@ZONE} stand for the instant, written as strftime(3) does in that zone of the system's
 * zone data; without a zone in UTC. "{{" is a brace; all else stands for itself. Nothing is guessed: an unknown zone,
 * conversion or word in braces is an error.
 *
 * A key names a period of the zone's calendar, so that an hour which the clocks go through twice is one period. That
 * is why %z, %Z and %s are refused: each of them tells the two apart. Who wants two runs in those hours asks for UTC. */
#ifndef RUN_KEY_TEMPLATE_H
#define RUN_KEY_TEMPLATE_H

#include "base/buf.h"
#include "hapax/error.h"

#include <stdint.h>

/* The longest template, and the longest FORMAT and ZONE in it. */
#define RUN_TEMPLATE_BYTES_MAX 1024
#define RUN_FORMAT_BYTES_MAX   128
#define RUN_ZONE_BYTES_MAX     64

/* Append what the template is at an instant (milliseconds since 1970-01-01 UTC). `out` has the key's maximum.
 * The environment's TZ is changed meanwhile and then as it was: no other thread may run.
 * Results: 0, HAPAX_E_SYNTAX, HAPAX_E_NOT_FOUND (no such zone), HAPAX_E_LIMIT, HAPAX_E_MEMORY, HAPAX_E_SYSTEM. */
int run_key_expand(struct buf *out, const char *template, int64_t wall_ms, hapax_error *err);

#endif
