/* Text from outside, made harmless to look at: in a terminal, a log, a report. Pure. */
#ifndef CORE_SHOWN_H
#define CORE_SHOWN_H

#include "base/buf.h"

/* Append text with control characters, C1 controls, direction overrides and bytes that are not UTF-8 as \xNN. 0 or a
 * code of buf_append(). */
int shown_append(struct buf *out, struct slice text);

#endif
