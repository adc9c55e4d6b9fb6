/* Man pages in mdoc, made from the command table: one for the program, one for each command below it
 * together with its subcommands. `mandoc -T lint` has to find nothing. */
#include "cli/help.h"

#include "hapax/error.h"

#include <string.h>

/* The pages change only when the table does, so their date stands here, next to what it dates. */
#define MAN_DATE "November 29, 2026"

/* --- escaping ------------------------------------------------------------------------------------ */

/* One character, kept as it is: formatters make typographic ones of dashes and quotes. */
static int escaped(struct buf *out, char c, bool line_start)
{
    switch (c) {
    case '\\':
        return buf_append_text(out, "\\e");
    case '-':
        return buf_append_text(out, "\\-");
    case '\'':
        return buf_append_text(out, "\\(aq");
    case '"':
        return buf_append_text(out, "\\(dq");
    case '`':
        return buf_append_text(out, "\\(ga");
    case '^':
        return buf_append_text(out, "\\(ha");
    case '~':
        return buf_append_text(out, "\\(ti");
    default: {
        int rc = line_start && c == '.' ? buf_append_text(out, "\\&") : 0;
        return rc != 0 ? rc : buf_append_byte(out, c);
    }
    }
}

static int literal(struct buf *out, const char *text)
{
    int rc = 0;
    for (const char *p = text; *p != '\0' && rc == 0; p++) {
        rc = escaped(out, *p, p == text);
    }
    return rc;
}

/* Text to be filled. A sentence's end starts a new line, as mdoc wants it; an empty line a paragraph. */
static int prose(struct buf *out, const char *text)
{
    int rc = 0;
    bool line_start = true;
    for (const char *p = text; *p != '\0' && rc == 0; p++) {
        bool paragraph = p[0] == '\n' && p[1] == '\n';
        bool ends_sentence = p > text && p[-1] == '.' && p[0] == ' ' && p[1] >= 'A' && p[1] <= 'Z';
        if (paragraph) {
            rc = buf_append_text(out, "\n.Pp\n");
            p++;
        } else if (ends_sentence) {
            rc = buf_append_byte(out, '\n');
        } else {
            rc = escaped(out, *p, line_start);
        }
        line_start = paragraph || ends_sentence;
    }
    return rc;
}

/* A line that starts a sentence with a capital letter and ends it with a full stop. */
static int sentence(struct buf *out, const char *clause)
{
    char first[2] = {clause[0] >= 'a' && clause[0] <= 'z' ? (char)(clause[0] - ('a' - 'A')) : clause[0],
                     '\0'};
    int rc = prose(out, first);
    rc = rc != 0 ? rc : prose(out, clause + 1);
    return rc != 0 ? rc : buf_append_text(out, ".\n");
}

/* --- parts --------------------------------------------------------------------------------------- */

/* "Fl Fl store Ar URI" */
static int flag_macro(struct buf *out, const struct cli_option *o)
{
    int rc = buf_printf(out, "Fl \\-%s", o->name);
    return rc != 0 || o->value == NULL ? rc : buf_printf(out, " Ar %s", o->value);
}

static int synopsis_one_of(struct buf *out, const struct cli_option *options, const struct cli_option *o)
{
    for (const struct cli_option *p = options; p < o; p++) {
        if (p->one_of == o->one_of) {
            return 0;
        }
    }
    int rc = 0;
    for (const struct cli_option *p = o; p->name != NULL && rc == 0; p++) {
        if (p->one_of == o->one_of) {
            rc = buf_append_text(out, p == o ? ".Pq " : " | ");
            rc = rc != 0 ? rc : flag_macro(out, p);
        }
    }
    return rc != 0 ? rc : buf_append_byte(out, '\n');
}

static int synopsis_arguments(struct buf *out, const struct cli_command *command,
                              const struct cli_option *instead)
{
    if (instead != NULL) {
        int rc = buf_append_text(out, ".Pq Ar");
        for (const struct cli_argument *a = command->arguments; a->name != NULL && rc == 0; a++) {
            rc = buf_printf(out, " %s", a->name);
        }
        rc = rc != 0 ? rc : buf_append_text(out, " | ");
        rc = rc != 0 ? rc : flag_macro(out, instead);
        return rc != 0 ? rc : buf_append_byte(out, '\n');
    }
    int rc = command->words_follow ? buf_append_text(out, ".Li \\-\\-\n") : 0;
    for (const struct cli_argument *a = command->arguments; a != NULL && a->name != NULL && rc == 0; a++) {
        rc = buf_printf(out, ".%sAr %s%s\n", a->optional ? "Op " : "", a->name, a->repeats ? " ..." : "");
    }
    return rc;
}

static int synopsis(struct buf *out, const struct cli_command *command)
{
    int rc = buf_append_text(out, ".Nm hapax\n");
    rc = rc != 0 || command->name[0] == '\0' ? rc : buf_printf(out, ".Cm %s\n", command->name);
    if (command->run == NULL) {
        rc = rc != 0 ? rc : buf_append_text(out, ".Ar COMMAND\n.Op Ar OPTION ...\n.Op Ar ARGUMENT ...\n");
        return rc;
    }
    const struct cli_option *instead = NULL;
    for (const struct cli_option *o = command->options; o != NULL && o->name != NULL && rc == 0; o++) {
        if (o->for_arguments) {
            instead = o;
        } else if (o->one_of != 0) {
            rc = synopsis_one_of(out, command->options, o);
        } else {
            rc = buf_append_text(out, ".Op ");
            rc = rc != 0 ? rc : flag_macro(out, o);
            rc = rc != 0 ? rc : buf_append_byte(out, '\n');
        }
    }
    return rc != 0 ? rc : synopsis_arguments(out, command, instead);
}

static int option_item(struct buf *out, const struct cli_option *o)
{
    int rc = buf_append_text(out, ".It ");
    rc = rc != 0 || o->letter == 0 ? rc : buf_printf(out, "Fl %c , ", o->letter);
    rc = rc != 0 ? rc : flag_macro(out, o);
    rc = rc != 0 ? rc : buf_append_byte(out, '\n');
    rc = rc != 0 ? rc : sentence(out, o->help);
    if (rc == 0 && o->kind == CLI_CHOICE) {
        rc = buf_append_text(out, "One of ");
        rc = rc != 0 ? rc : prose(out, o->choices);
        rc = rc != 0 ? rc : buf_append_text(out, ".\n");
    }
    if (rc == 0 && o->repeats) {
        rc = buf_append_text(out, "May be repeated.\n");
    }
    if (rc == 0 && (o->variable != NULL || o->standard != NULL)) {
        rc = buf_append_text(out, "When absent:\n");
        rc = rc != 0 || o->variable == NULL
                 ? rc
                 : buf_printf(out, ".Ev %s%s\n", o->variable, o->standard == NULL ? " ." : " ,");
        rc = rc != 0 || o->standard == NULL ? rc : buf_printf(out, ".Li %s .\n", o->standard);
    }
    return rc;
}

static int arguments_and_options(struct buf *out, const struct cli_command *command)
{
    bool any = (command->arguments != NULL && command->arguments->name != NULL) ||
               (command->options != NULL && command->options->name != NULL);
    int rc = any ? buf_append_text(out, ".Bl -tag -width Ds\n") : 0;
    for (const struct cli_argument *a = command->arguments; a != NULL && a->name != NULL && rc == 0; a++) {
        rc = buf_printf(out, ".It Ar %s\n", a->name);
        rc = rc != 0 ? rc : sentence(out, a->help);
    }
    for (const struct cli_option *o = command->options; o != NULL && o->name != NULL && rc == 0; o++) {
        rc = option_item(out, o);
    }
    return rc != 0 || !any ? rc : buf_append_text(out, ".El\n");
}

static int body(struct buf *out, const struct cli_command *command)
{
    int rc =
        command->description != NULL ? prose(out, command->description) : sentence(out, command->summary);
    rc = rc != 0 || command->description == NULL ? rc : buf_append_byte(out, '\n');
    return rc != 0 ? rc : arguments_and_options(out, command);
}

static int example_list(struct buf *out, const struct cli_command *command)
{
    int rc = 0;
    for (const struct cli_example *e = command->examples; e != NULL && e->line != NULL && rc == 0; e++) {
        rc = prose(out, e->what);
        rc = rc != 0 ? rc : buf_append_text(out, ":\n.Bd -literal -offset indent\n");
        rc = rc != 0 ? rc : literal(out, e->line);
        rc = rc != 0 ? rc : buf_append_text(out, "\n.Ed\n.Pp\n");
    }
    return rc;
}

/* --- sections ------------------------------------------------------------------------------------ */

static int subcommand_sections(struct buf *out, const struct cli_command *command)
{
    int rc = 0;
    for (const struct cli_command *const *c = command->subcommands; c != NULL && *c != NULL && rc == 0; c++) {
        rc = buf_printf(out, ".Ss hapax %s\n", (*c)->name);
        rc = rc != 0 ? rc : body(out, *c);
    }
    return rc;
}

/* The program's page only names the commands: each has a page of its own. */
static int command_list(struct buf *out, const struct cli_command *root)
{
    int rc = buf_append_text(out, ".Pp\nThe commands:\n.Bl -tag -width version\n");
    for (const struct cli_command *const *c = root->subcommands; *c != NULL && rc == 0; c++) {
        rc = buf_printf(out, ".It Cm %s\n", (*c)->name);
        rc = rc != 0 ? rc : sentence(out, (*c)->summary);
    }
    rc = rc != 0 ? rc : buf_append_text(out, ".El\n.Pp\nEvery command explains itself with\n.Fl \\-help .\n");
    return rc;
}

static int exit_section(struct buf *out, const struct cli_command *command)
{
    if (command->own_exits) {
        return buf_append_text(out, ".Sh EXIT STATUS\nSee the description.\n");
    }
    int rc = buf_append_text(out, ".Sh EXIT STATUS\n.Bl -tag -width Ds\n");
    for (size_t i = 0; i < help_exit_count && rc == 0; i++) {
        rc = buf_printf(out, ".It %d\n", help_exits[i].code);
        rc = rc != 0 ? rc : sentence(out, help_exits[i].text);
    }
    return rc != 0 ? rc : buf_append_text(out, ".El\n");
}

static int example_section(struct buf *out, const struct cli_command *command)
{
    size_t start = out->len;
    int rc = buf_append_text(out, ".Sh EXAMPLES\n");
    size_t heading_end = out->len;
    rc = rc != 0 ? rc : example_list(out, command);
    for (const struct cli_command *const *c = command->subcommands; c != NULL && *c != NULL && rc == 0; c++) {
        rc = example_list(out, *c);
    }
    if (rc == 0 && out->len == heading_end) {
        out->len = start;
    } else if (rc == 0) {
        out->len -= strlen(".Pp\n"); /* none before the next heading */
    }
    return rc;
}

static int see_also(struct buf *out, const struct cli_command *command, const struct cli_command *root)
{
    int rc = buf_append_text(out, ".Sh SEE ALSO\n");
    if (command != root) {
        return rc != 0 ? rc : buf_append_text(out, ".Xr hapax 1\n");
    }
    /* In the order of the alphabet: each time the least name after the last one. */
    for (const char *last = ""; rc == 0;) {
        const char *least = NULL;
        for (const struct cli_command *const *c = root->subcommands; *c != NULL; c++) {
            bool later = strcmp((*c)->name, last) > 0;
            least = later && (least == NULL || strcmp((*c)->name, least) < 0) ? (*c)->name : least;
        }
        if (least == NULL) {
            break;
        }
        rc = buf_printf(out, "%s.Xr hapax-%s 1", last[0] != '\0' ? " ,\n" : "", least);
        last = least;
    }
    return rc != 0 ? rc : buf_append_byte(out, '\n');
}

int help_man(struct buf *out, const struct cli_command *command)
{
    bool root = command == &cli_root;
    const char *dash = root ? "" : "-";
    int rc = buf_printf(
        out, ".\\\" Made by `hapax docs man`; change the command table instead.\n.Dd %s\n.Dt HAPAX%s",
        MAN_DATE, dash);
    for (const char *p = command->name; *p != '\0' && rc == 0; p++) {
        rc = buf_append_byte(out, *p >= 'a' && *p <= 'z' ? (char)(*p - ('a' - 'A')) : *p);
    }
    rc = rc != 0 ? rc : buf_printf(out, " 1\n.Os\n.Sh NAME\n.Nm hapax%s%s\n.Nd ", dash, command->name);
    rc = rc != 0 ? rc : prose(out, command->summary);
    rc = rc != 0 ? rc : buf_append_text(out, "\n.Sh SYNOPSIS\n");
    if (rc == 0 && (root || command->subcommands == NULL)) {
        rc = synopsis(out, command);
    }
    for (const struct cli_command *const *c = command->subcommands;
         !root && c != NULL && *c != NULL && rc == 0; c++) {
        rc = synopsis(out, *c);
    }
    rc = rc != 0 ? rc : buf_append_text(out, ".Sh DESCRIPTION\n");
    rc = rc != 0 ? rc : body(out, command);
    rc = rc != 0 ? rc : root ? command_list(out, command) : subcommand_sections(out, command);
    rc = rc != 0 ? rc : exit_section(out, command);
    rc = rc != 0 || root ? rc : example_section(out, command);
    return rc != 0 ? rc : see_also(out, command, &cli_root);
}
