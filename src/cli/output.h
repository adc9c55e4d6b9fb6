/* What commands print: data on stdout as text tables or JSON, messages on stderr.
 *
 * Whatever comes from a store or a user is escaped, so that no byte of it steers a terminal. Colour
 * only where stdout is a terminal, TERM is not "dumb" and NO_COLOR is unset or empty. A failed write to
 * stdout is noticed once, at the end, by output_finish(). One thread. */
#ifndef CLI_OUTPUT_H
#define CLI_OUTPUT_H

#include "base/buf.h"
#include "cli/cli.h"
#include "hapax/error.h"

#include <jansson.h>

/* "hapax keys list: ..." on stderr, one line, escaped. `command` NULL: just "hapax: ...". */
void output_message(const struct cli_command *command, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* The message of an error; returns its exit code. */
int output_error(const struct cli_command *command, const hapax_error *err);
/* A message, then the usage line and where help is; returns CLI_USAGE. */
int output_usage(const struct cli_command *command, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* The message for lack of memory; returns CLI_FAILED. */
int output_no_memory(const struct cli_command *command);

/* Flush stdout. Returns `code`, or CLI_FAILED after a message when it is CLI_OK and a write failed. */
int output_finish(int code);

/* Append text with control characters, C1 controls, direction overrides and bytes that are not UTF-8
 * as \xNN. */
int output_escape(struct buf *out, struct slice text);
/* Columns it takes on a terminal, one per code point. */
size_t output_width(struct slice escaped);

/* "3s", "5m", "2h", "4d": what is left of a duration in its largest unit. out holds OUTPUT_AGE_MAX. */
#define OUTPUT_AGE_MAX 24
void output_age(char *out, int64_t ms);

/* One JSON document (indented) or one of a listing's (a line of its own). The value is consumed;
 * NULL, as jansson gives without memory, is an error. Returns an exit code. */
int output_json(const struct cli_command *command, json_t *value);
int output_json_line(const struct cli_command *command, json_t *value);
/* A JSON string; bytes that are not UTF-8 escaped. NULL without memory. */
json_t *output_json_text(struct slice text);
/* An instant as RFC 3339 text, or null for 0. */
json_t *output_json_instant(int64_t wall_ms);

enum output_style { STYLE_PLAIN, STYLE_GOOD, STYLE_BUSY, STYLE_ALERT };

/* A table: cells are added row by row, kept until a flush, then written with columns aligned over
 * all rows so far. Flushing every page keeps memory flat; columns then grow but never shrink. */
#define OUTPUT_COLUMNS_MAX 12
struct output_table {
    const char *const *titles; /* of `columns` columns */
    size_t columns;
    size_t width[OUTPUT_COLUMNS_MAX];
    struct buf cells; /* escaped texts one after another */
    struct buf ends;  /* a struct table_cell each */
    bool titled;
    bool colour;
};

void output_table_init(struct output_table *t, const char *const *titles, size_t columns);
void output_table_free(struct output_table *t);
int output_table_cell(struct output_table *t, struct slice text, enum output_style style);
/* Write the complete rows and forget them. The titles come first, once, when there is any row. */
void output_table_flush(struct output_table *t);

/* A "name  value" line, values aligned at column 14. */
int output_field(const char *name, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
