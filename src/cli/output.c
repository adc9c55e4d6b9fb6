/* Printing: messages, tables, JSON. The only place of the command line that knows what may reach a
 * terminal: everything goes through output_escape() or jansson. */
#include "cli/output.h"

#include "base/clock.h"
#include "base/error.h"
#include "cli/help.h"
#include "core/shown.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MESSAGE_BYTES_MAX 4096
#define TABLE_BYTES_MAX                                                                                      \
    (32U * 1024U * 1024U) /* a page of 1000 rows with the longest keys, every byte escaped */

/* --- escaping ------------------------------------------------------------------------------------ */

int output_escape(struct buf *out, struct slice text)
{
    return shown_append(out, text);
}

size_t output_width(struct slice escaped)
{
    size_t width = 0;
    for (size_t i = 0; i < escaped.len; i++) {
        width += ((unsigned char)escaped.ptr[i] & 0xC0U) != 0x80;
    }
    return width;
}

/* --- messages ------------------------------------------------------------------------------------ */

static void message_va(const struct cli_command *command, const char *format, va_list list)
{
    char text[MESSAGE_BYTES_MAX / 4];
    int n = vsnprintf(text, sizeof text, format, list);
    size_t len = n < 0 ? 0 : (size_t)n < sizeof text ? (size_t)n : sizeof text - 1;
    struct buf line;
    buf_init(&line, MESSAGE_BYTES_MAX + 64);
    bool named = command != NULL && command->name[0] != '\0';
    int rc = buf_printf(&line, "hapax%s%s: ", named ? " " : "", named ? command->name : "");
    rc = rc != 0 ? rc : output_escape(&line, slice_of(text, len));
    fflush(stdout); /* keep the order of what a terminal shows */
    if (rc == 0) {
        fprintf(stderr, "%.*s\n", SLICE_FORMAT(buf_slice(&line)));
    } else {
        fputs("hapax: there is no memory even for a message\n", stderr);
    }
    buf_free(&line);
}

void output_message(const struct cli_command *command, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    message_va(command, format, list);
    va_end(list);
}

int output_error(const struct cli_command *command, const hapax_error *err)
{
    output_message(command, "%s", err->message[0] != '\0' ? err->message : hapax_error_text(err->code));
    return cli_exit_of(err->code);
}

int output_usage(const struct cli_command *command, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    message_va(command, format, list);
    va_end(list);
    struct buf usage;
    buf_init(&usage, HELP_BYTES_MAX);
    if (help_usage(&usage, command) == 0) {
        fprintf(stderr, "usage: %.*s\n", SLICE_FORMAT(buf_slice(&usage)));
    }
    buf_free(&usage);
    fprintf(stderr, "Everything about it: hapax %s%s--help\n", command->name,
            command->name[0] != '\0' ? " " : "");
    return CLI_USAGE;
}

int output_no_memory(const struct cli_command *command)
{
    output_message(command, "there is not enough memory");
    return CLI_FAILED;
}

int output_finish(int code)
{
    if ((fflush(stdout) == 0 && !ferror(stdout)) || code != CLI_OK) {
        return code;
    }
    output_message(NULL, "can't write to standard output: %s", strerror(errno));
    return CLI_FAILED;
}

int cli_exit_of(int code)
{
    switch (code) {
    case HAPAX_OK:
        return CLI_OK;
    case HAPAX_E_ARGUMENT:
        return CLI_USAGE;
    case HAPAX_E_NOT_FOUND:
        return CLI_NOT_FOUND;
    case HAPAX_E_CONFLICT:
    case HAPAX_E_STALE:
        return CLI_CONFLICT;
    case HAPAX_E_STORE:
        return CLI_UNREACHABLE;
    case HAPAX_E_BUSY:
    case HAPAX_E_TIMEOUT:
        return CLI_TRY_LATER;
    default:
        return CLI_FAILED;
    }
}

/* --- words --------------------------------------------------------------------------------------- */

void output_age(char *out, int64_t ms)
{
    static const struct {
        int64_t ms;
        const char *unit;
    } units[] = {{86400000, "d"}, {3600000, "h"}, {60000, "m"}, {1000, "s"}};
    ms = ms > 0 ? ms : 0;
    size_t i = 0;
    while (i < 3 && ms < units[i].ms) {
        i++;
    }
    snprintf(out, OUTPUT_AGE_MAX, "%lld%s", (long long)(ms / units[i].ms), units[i].unit);
}

int output_field(const char *name, const char *format, ...)
{
    char text[MESSAGE_BYTES_MAX * 2];
    va_list list;
    va_start(list, format);
    int n = vsnprintf(text, sizeof text, format, list);
    va_end(list);
    size_t len = n < 0 ? 0 : (size_t)n < sizeof text ? (size_t)n : sizeof text - 1;
    struct buf line;
    buf_init(&line, sizeof text * 4);
    int rc = output_escape(&line, slice_of(text, len));
    if (rc == 0) {
        printf("%-13s %.*s\n", name, SLICE_FORMAT(buf_slice(&line)));
    }
    buf_free(&line);
    return rc;
}

/* --- JSON ---------------------------------------------------------------------------------------- */

static int json_out(const struct cli_command *command, json_t *value, size_t flags)
{
    if (value == NULL) {
        return output_no_memory(command);
    }
    int rc = json_dumpf(value, stdout, flags);
    json_decref(value);
    if (rc != 0 && !ferror(stdout)) {
        return output_no_memory(command);
    }
    putchar('\n');
    return CLI_OK;
}

int output_json(const struct cli_command *command, json_t *value)
{
    return json_out(command, value, JSON_INDENT(2));
}

int output_json_line(const struct cli_command *command, json_t *value)
{
    return json_out(command, value, JSON_COMPACT);
}

json_t *output_json_text(struct slice text)
{
    json_t *value = json_stringn(text.ptr != NULL ? text.ptr : "", text.len);
    if (value != NULL) {
        return value;
    }
    struct buf escaped;
    buf_init(&escaped, text.len * 4);
    if (output_escape(&escaped, text) == 0) {
        value = json_stringn(buf_slice(&escaped).ptr, escaped.len);
    }
    buf_free(&escaped);
    return value;
}

json_t *output_json_instant(int64_t wall_ms)
{
    if (wall_ms == 0) {
        return json_null();
    }
    char text[CLOCK_TEXT_MAX];
    clock_text(text, wall_ms);
    return json_string(text);
}

/* --- tables -------------------------------------------------------------------------------------- */

struct table_cell {
    size_t end; /* in the cells' bytes */
    enum output_style style;
};

static bool colour_wanted(void)
{
    const char *no_color = getenv("NO_COLOR");
    const char *term = getenv("TERM");
    return isatty(STDOUT_FILENO) && (no_color == NULL || no_color[0] == '\0') && term != NULL &&
           strcmp(term, "dumb") != 0;
}

void output_table_init(struct output_table *t, const char *const *titles, size_t columns)
{
    *t = (struct output_table){.titles = titles, .columns = columns, .colour = colour_wanted()};
    buf_init(&t->cells, TABLE_BYTES_MAX);
    buf_init(&t->ends, TABLE_BYTES_MAX);
    for (size_t i = 0; i < columns; i++) {
        t->width[i] = strlen(titles[i]);
    }
}

void output_table_free(struct output_table *t)
{
    buf_free(&t->cells);
    buf_free(&t->ends);
}

int output_table_cell(struct output_table *t, struct slice text, enum output_style style)
{
    size_t start = t->cells.len;
    int rc = output_escape(&t->cells, text);
    if (rc != 0) {
        return rc;
    }
    size_t column = t->ends.len / sizeof(struct table_cell) % t->columns;
    size_t width = output_width(slice_from(buf_slice(&t->cells), start));
    t->width[column] = width > t->width[column] ? width : t->width[column];
    struct table_cell cell = {t->cells.len, style};
    return buf_append(&t->ends, &cell, sizeof cell);
}

static void write_cell(const struct output_table *t, size_t column, struct slice text,
                       enum output_style style)
{
    static const char *const start[] = {
        [STYLE_PLAIN] = "", [STYLE_GOOD] = "\033[32m", [STYLE_BUSY] = "\033[36m", [STYLE_ALERT] = "\033[33m"};
    bool coloured = t->colour && style != STYLE_PLAIN;
    fputs(coloured ? start[style] : "", stdout);
    fwrite(text.ptr, 1, text.len, stdout);
    fputs(coloured ? "\033[0m" : "", stdout);
    if (column + 1 == t->columns) {
        putchar('\n');
        return;
    }
    for (size_t pad = output_width(text); pad < t->width[column] + 2; pad++) {
        putchar(' ');
    }
}

void output_table_flush(struct output_table *t)
{
    size_t count = t->ends.len / sizeof(struct table_cell);
    for (size_t i = 0; i < t->columns && count > 0 && !t->titled; i++) {
        write_cell(t, i, slice_text(t->titles[i]), STYLE_PLAIN);
    }
    t->titled = t->titled || count > 0;
    size_t start = 0;
    for (size_t i = 0; i < count; i++) {
        struct table_cell cell;
        memcpy(&cell, t->ends.ptr + i * sizeof cell, sizeof cell);
        write_cell(t, i % t->columns, slice_of(t->cells.ptr + start, cell.end - start), cell.style);
        start = cell.end;
    }
    buf_clear(&t->cells);
    buf_clear(&t->ends);
}
