/* The head of an answer, line by line: status, header lines in order, and the checks that keep two readers of one
 * answer from disagreeing. Interim (1xx) heads are skipped. The memory is kept from answer to answer. */
#ifndef NET_HTTP_ANSWER_HEAD_H
#define NET_HTTP_ANSWER_HEAD_H

#include "base/buf.h"
#include "core/request.h"

#include <stdbool.h>
#include <stdint.h>

struct answer_line; /* where a line's name and value stand in `bytes` */

struct answer_head {
    struct buf bytes;
    struct answer_line *lines;
    struct header *headers; /* valid once complete, until the next start */
    size_t count;
    size_t room;
    size_t seen_bytes; /* of all heads of this answer */
    size_t bytes_max;
    int status;
    bool in_head;  /* a status line was read, its empty line was not */
    bool complete; /* the final head */
    bool chunked;
    bool keep_alive; /* once complete: what version and Connection come to (RFC 9112 section 9.3) */
    bool http10;
    bool says_close;
    bool says_keep_alive;
    int64_t content_length; /* -1: none */
    const char *defect;     /* after ANSWER_HEAD_BAD: what is wrong, a static text */
};

enum answer_head_step { ANSWER_HEAD_MORE, ANSWER_HEAD_COMPLETE, ANSWER_HEAD_BAD };

void answer_head_init(struct answer_head *h);
void answer_head_free(struct answer_head *h);
void answer_head_start(struct answer_head *h, size_t bytes_max);
/* Take one line with its line end. Must not be called any more after COMPLETE or BAD. */
enum answer_head_step answer_head_line(struct answer_head *h, struct slice line);

#endif
