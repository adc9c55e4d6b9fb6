/* What is kept of a command that has ended: the bytes of its record's answer.
 *
 *     hapax-run 1
 *     exit 0
 *     stdout 12 of 12        bytes kept, and written by the command
 *     stderr 3 of 5000
 *                            an empty line, then the bytes of stdout, then those of stderr
 *
 * A head in text, so that `hapax keys show --body` can be read; behind it bytes as they are. Whatever does not follow
 * that form was not written by this program but given by an operator who settled the record by hand: it counts as the
 * standard output of a command that succeeded. Pure. */
#ifndef RUN_KEPT_H
#define RUN_KEPT_H

#include "base/buf.h"
#include "hapax/hapax.h"

#include <stdint.h>

/* Of the head. */
#define RUN_KEPT_HEAD_BYTES_MAX 256
/* The most that both streams together may have kept. */
#define RUN_KEPT_BYTES_MAX (HAPAX_ANSWER_BYTES_MAX - RUN_KEPT_HEAD_BYTES_MAX)

enum { RUN_STDOUT, RUN_STDERR, RUN_STREAMS };

struct run_kept {
    int code;                       /* the exit code, 0 to 255 */
    struct slice kept[RUN_STREAMS]; /* borrowed; the beginning of what was written */
    uint64_t written[RUN_STREAMS];  /* bytes of the command, kept or not */
};

/* Append the form above to `out`, whose maximum is HAPAX_ANSWER_BYTES_MAX. 0, HAPAX_E_LIMIT or HAPAX_E_MEMORY. */
int run_kept_encode(struct buf *out, const struct run_kept *what);
/* Read any bytes; *out borrows from them. False: they are not of this form, and are standard output as they stand. */
bool run_kept_decode(struct run_kept *out, struct slice bytes);

#endif
