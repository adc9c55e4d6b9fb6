/* --help and usage lines, made from the command table. */
#include "cli/help.h"

#include "hapax/error.h"

#include <string.h>

#define WIDTH 80

const struct help_exit help_exits[] = {
#define HELP_EXIT(name, number, text) {number, text},
    CLI_EXIT_LIST(HELP_EXIT)
#undef HELP_EXIT
};
const size_t help_exit_count = sizeof help_exits / sizeof *help_exits;

/* --- usage --------------------------------------------------------------------------------------- */

/* " --name VALUE" */
static int usage_option(struct buf *out, const struct cli_option *o)
{
    return buf_printf(out, "--%s%s%s", o->name, o->value != NULL ? " " : "",
                      o->value != NULL ? o->value : "");
}

/* " (--released | --done)" for the first option of each group, nothing for others. */
static int usage_one_of(struct buf *out, const struct cli_option *options, const struct cli_option *o)
{
    for (const struct cli_option *p = options; p < o; p++) {
        if (p->one_of == o->one_of) {
            return 0;
        }
    }
    int rc = buf_append_text(out, " (");
    for (const struct cli_option *p = o; p->name != NULL && rc == 0; p++) {
        if (p->one_of == o->one_of) {
            rc = p != o ? buf_append_text(out, " | ") : 0;
            rc = rc != 0 ? rc : usage_option(out, p);
        }
    }
    return rc != 0 ? rc : buf_append_byte(out, ')');
}

static int usage_arguments(struct buf *out, const struct cli_command *command)
{
    const struct cli_option *instead = NULL;
    for (const struct cli_option *o = command->options; o != NULL && o->name != NULL; o++) {
        instead = o->for_arguments ? o : instead;
    }
    int rc = buf_append_text(out, instead != NULL ? " (" : command->words_follow ? " --" : "");
    for (const struct cli_argument *a = command->arguments; a != NULL && a->name != NULL && rc == 0; a++) {
        rc = buf_printf(out, "%s%s%s%s%s", a == command->arguments && instead != NULL ? "" : " ",
                        a->optional ? "[" : "", a->name, a->repeats ? "..." : "", a->optional ? "]" : "");
    }
    if (instead != NULL && rc == 0) {
        rc = buf_append_text(out, " | ");
        rc = rc != 0 ? rc : usage_option(out, instead);
        rc = rc != 0 ? rc : buf_append_byte(out, ')');
    }
    return rc;
}

int help_usage(struct buf *out, const struct cli_command *command)
{
    int rc = buf_printf(out, "hapax%s%s", command->name[0] != '\0' ? " " : "", command->name);
    if (command->run == NULL) {
        return rc != 0 ? rc : buf_append_text(out, " COMMAND [OPTION...] [ARGUMENT...]");
    }
    bool free_options = false;
    for (const struct cli_option *o = command->options; o != NULL && o->name != NULL; o++) {
        free_options = free_options || (o->one_of == 0 && !o->for_arguments);
    }
    rc = rc != 0 || !free_options ? rc : buf_append_text(out, " [OPTION...]");
    for (const struct cli_option *o = command->options; o != NULL && o->name != NULL && rc == 0; o++) {
        rc = o->one_of != 0 ? usage_one_of(out, command->options, o) : 0;
    }
    return rc != 0 ? rc : usage_arguments(out, command);
}

/* --- help ---------------------------------------------------------------------------------------- */

/* Text broken at blanks so that lines end before WIDTH; continued at `indent`. *column is where the
 * text starts. An empty line in the text starts a paragraph. */
static int wrapped(struct buf *out, struct slice text, size_t column, size_t indent)
{
    int rc = 0;
    bool first = true;
    while (text.len > 0 && rc == 0) {
        bool paragraph = text.len > 1 && text.ptr[0] == '\n' && text.ptr[1] == '\n';
        text = slice_from(text, text.ptr[0] == ' ' || text.ptr[0] == '\n' ? 1 + (size_t)paragraph : 0);
        size_t word = 0;
        while (word < text.len && text.ptr[word] != ' ' && text.ptr[word] != '\n') {
            word++;
        }
        if (paragraph || (!first && column + 1 + word > WIDTH)) {
            rc = buf_printf(out, "%s\n%*s", paragraph ? "\n" : "", (int)indent, "");
            column = indent;
        } else if (!first && word > 0) {
            rc = buf_append_byte(out, ' ');
            column++;
        }
        rc = rc != 0 ? rc : buf_append(out, text.ptr, word);
        column += word;
        text = slice_from(text, word);
        first = false;
    }
    return rc != 0 ? rc : buf_append_byte(out, '\n');
}

/* A line of a list: "  left    right", right wrapped at `indent`. */
static int entry(struct buf *out, const char *left, const char *right, size_t indent)
{
    int rc = buf_printf(out, "  %s", left);
    size_t column = 2 + strlen(left);
    if (rc == 0 && column + 2 > indent) {
        rc = buf_append_byte(out, '\n');
        column = 0;
    }
    rc = rc != 0 ? rc : buf_printf(out, "%*s", (int)(indent - column), "");
    return rc != 0 ? rc : wrapped(out, slice_text(right), indent, indent);
}

static int option_entry(struct buf *out, const struct cli_option *o)
{
    struct buf left;
    struct buf right;
    buf_init(&left, 256);
    buf_init(&right, 4096);
    int rc = o->letter != 0 ? buf_printf(&left, "-%c, ", o->letter) : buf_append_text(&left, "    ");
    rc = rc != 0 ? rc : usage_option(&left, o);
    rc = rc != 0 ? rc : buf_append_byte(&left, '\0');
    rc = rc != 0 ? rc : buf_append_text(&right, o->help);
    if (rc == 0 && o->kind == CLI_CHOICE) {
        rc = buf_printf(&right, ": %s", o->choices);
    }
    if (rc == 0 && o->repeats) {
        rc = buf_append_text(&right, "; may be repeated");
    }
    if (rc == 0 && o->variable != NULL && o->standard != NULL) {
        rc = buf_printf(&right, " [$%s or %s]", o->variable, o->standard);
    } else if (rc == 0 && (o->variable != NULL || o->standard != NULL)) {
        rc = buf_printf(&right, " [%s%s]", o->variable != NULL ? "$" : "",
                        o->variable != NULL ? o->variable : o->standard);
    }
    rc = rc != 0 ? rc : buf_append_byte(&right, '\0');
    rc = rc != 0 ? rc : entry(out, left.ptr, right.ptr, 22);
    buf_free(&left);
    buf_free(&right);
    return rc;
}

static int list_subcommands(struct buf *out, const struct cli_command *command)
{
    int rc = command->subcommands != NULL ? buf_append_text(out, "\nCommands:\n") : 0;
    for (const struct cli_command *const *c = command->subcommands; c != NULL && *c != NULL && rc == 0; c++) {
        rc = entry(out, cli_word(*c), (*c)->summary, 14);
    }
    return rc;
}

static int list_arguments(struct buf *out, const struct cli_command *command)
{
    int rc = command->arguments != NULL ? buf_append_text(out, "\nArguments:\n") : 0;
    for (const struct cli_argument *a = command->arguments; a != NULL && a->name != NULL && rc == 0; a++) {
        rc = entry(out, a->name, a->help, 22);
    }
    return rc;
}

static int list_options(struct buf *out, const struct cli_command *command)
{
    static const struct cli_option help = {.name = "help", .letter = 'h', .help = "show this"};
    static const struct cli_option version = {.name = "version", .letter = 'V', .help = "print the version"};
    int rc = buf_append_text(out, "\nOptions:\n");
    for (const struct cli_option *o = command->options; o != NULL && o->name != NULL && rc == 0; o++) {
        rc = option_entry(out, o);
    }
    rc = rc != 0 ? rc : option_entry(out, &help);
    return rc != 0 || command->name[0] != '\0' ? rc : option_entry(out, &version);
}

static int list_examples(struct buf *out, const struct cli_command *command)
{
    int rc = command->examples != NULL ? buf_append_text(out, "\nExamples:\n") : 0;
    for (const struct cli_example *e = command->examples; e != NULL && e->line != NULL && rc == 0; e++) {
        rc = buf_printf(out, "  # %s\n  %s\n", e->what, e->line);
    }
    return rc;
}

static int list_exits(struct buf *out)
{
    int rc = buf_append_text(out, "\nExit status:\n");
    for (size_t i = 0; i < help_exit_count && rc == 0; i++) {
        rc = buf_printf(out, "  %-4d%s\n", help_exits[i].code, help_exits[i].text);
    }
    return rc;
}

int help_text(struct buf *out, const struct cli_command *command)
{
    int rc = buf_append_text(out, "usage: ");
    rc = rc != 0 ? rc : help_usage(out, command);
    rc = rc != 0 ? rc : buf_append_text(out, "\n\n");
    const char *text = command->description != NULL ? command->description : command->summary;
    if (rc == 0 && command->description == NULL) {
        /* A summary is a clause; here it stands as a sentence. */
        char first = text[0] >= 'a' && text[0] <= 'z' ? (char)(text[0] - ('a' - 'A')) : text[0];
        rc = buf_append_byte(out, first);
        text++;
        rc = rc != 0 ? rc : buf_printf(out, "%s.\n", text);
    } else if (rc == 0) {
        rc = wrapped(out, slice_text(text), 0, 0);
    }
    rc = rc != 0 ? rc : list_subcommands(out, command);
    rc = rc != 0 ? rc : list_arguments(out, command);
    rc = rc != 0 ? rc : list_options(out, command);
    rc = rc != 0 ? rc : list_examples(out, command);
    return rc != 0 || command->name[0] != '\0' ? rc : list_exits(out);
}
