/* Parts of the reports for machines and browsers: a writer that remembers its first error, and how a text gets into
 * markup. One thread. */
#ifndef DRILL_REPORT_WRITE_H
#define DRILL_REPORT_WRITE_H

#include "drill/drill.h"

struct report_writer {
    struct buf *out;
    int code; /* of the first append that failed; nothing is appended after it */
};

/* Text of ours, as it stands. */
void report_put(struct report_writer *w, const char *text);
/* The like with numbers and words of ours: at most REPORT_FORMATTED_MAX bytes. */
#define REPORT_FORMATTED_MAX 256
void report_printf(struct report_writer *w, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Bytes of the first character of a text when it is one that a line of XML, HTML or YAML may hold; 0 for control
 * characters, line and paragraph separators, surrogates, U+FFFE, U+FFFF and bytes that are not UTF-8. */
size_t report_character(const char *text);
#define REPORT_REPLACEMENT "\xef\xbf\xbd" /* U+FFFD, for each byte of what is none */
/* Any text for XML or HTML, between tags or in quotes: & < > " ' are escaped. */
void report_put_markup(struct report_writer *w, const char *text);
/* Any text on one line, with `\` before each of these ASCII characters. */
void report_put_escaped(struct report_writer *w, const char *text, const char *special);

/* "1", "0 to 1"; "any" where they are not judged by number. */
void report_put_expected(struct report_writer *w, const struct drill_case *c);
void report_put_seen(struct report_writer *w, const struct drill_case *c); /* "2"; "not counted" */
/* "201 x 1, 409 x 7, unanswered x 1"; "none" when nothing was sent. */
void report_put_statuses(struct report_writer *w, const struct drill_case *c);
/* "2026-11-30T10:36:31Z" */
void report_put_instant(struct report_writer *w, int64_t wall_ms);
/* "1.234" */
void report_put_seconds(struct report_writer *w, int64_t ms);

#endif
