/* The head of an HTTP request: found in a growing buffer, then parsed and checked, all in memory.
 *
 * Stricter than RFC 9112 obliges a reader to be: whatever two readers could understand differently is refused, never
 * repaired. Debian's http_parser was measured first and is not used here: its build accepts a blank before the colon
 * and inside a name, a first line that is folded, bytes other than CR LF around chunks, several blanks in the request
 * line and HTTP/0.9. The tests compare the two where they should agree. Pure: no I/O, no memory but the caller's. */
#ifndef NET_HTTP_HEAD_H
#define NET_HTTP_HEAD_H

#include "core/request.h"
#include "net/http_server.h"

#include <stdint.h>

/* --- Finding the end. --- */

struct http_head_scan {
    size_t at;          /* bytes looked at; the length of the head once it is complete */
    size_t line;        /* where the current line begins */
    size_t lines;       /* complete ones, with the request line and the empty one */
    const char *detail; /* why, after HTTP_SCAN_BAD */
};

enum http_scan { HTTP_SCAN_MORE, HTTP_SCAN_DONE, HTTP_SCAN_BAD, HTTP_SCAN_LARGE };

/* Look at the bytes after s->at for the empty line that ends the head. `bytes` always begins at the same byte of the
 * stream; start with a zeroed scan. Refuses control characters, a CR without LF and an LF without CR as soon as they
 * are seen. The result does not depend on how the bytes are cut up. */
enum http_scan http_head_scan(struct http_head_scan *s, struct slice bytes, size_t bytes_max);

/* --- Parsing it. --- */

struct http_head {
    struct request request; /* slices into the head, headers in the caller's array */
    bool http10;
    bool keep_alive; /* what version and Connection come to */
    bool is_head;    /* the method HEAD */
    bool chunked;
    bool expect_continue;
    int64_t length; /* of the body; 0: none, -1: chunked */
};

/* Parse a head that http_head_scan() found complete. false: *defect and *detail say why, and the request holds what was
 * read up to there. */
bool http_head_parse(struct http_head *out, struct slice head, struct header *headers, size_t headers_max,
                     enum http_defect *defect, const char **detail);

/* --- The body's framing. --- */

struct http_body {
    uint64_t left;   /* bytes to come of the body or of the current chunk */
    uint32_t excess; /* bytes of framing beyond what chunks of a sensible size need */
    uint8_t state;
    uint8_t digits;
};

enum http_body_step {
    HTTP_BODY_MORE,  /* everything given was used up */
    HTTP_BODY_PIECE, /* *piece holds content */
    HTTP_BODY_END,
    HTTP_BODY_BAD,
};

void http_body_init(struct http_body *b, int64_t length); /* -1: chunked */
bool http_body_ended(const struct http_body *b);
uint64_t http_body_left(const struct http_body *b); /* bytes certain to come; 0 in a chunked body */
/* Take the next step; *used bytes of `bytes` are done with. Trailers are checked, bounded and dropped. */
enum http_body_step http_body_decode(struct http_body *b, struct slice bytes, size_t *used,
                                     struct slice *piece);

#endif
