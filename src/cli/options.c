/* The parser: an argument list and a command's table in, checked values out.
 *
 * --long VALUE, --long=VALUE, -s VALUE, -sVALUE, flags as letters together (-jy), -- ends options, a
 * lone - is an argument. Options may follow arguments. Names are never abbreviated: an option added
 * later must not change what a script means. Knows nothing about any command. */
#include "base/assert.h"
#include "base/units.h"
#include "cli/cli.h"
#include "cli/output.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- what was most likely meant ------------------------------------------------------------------ */

#define NEAR_WORD_MAX 24

static size_t least_of(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Edits that make b of a: insert, delete, replace, swap of neighbours. Long words are cut. */
static size_t edits_between(const char *a, const char *b)
{
    size_t n = least_of(strlen(a), NEAR_WORD_MAX);
    size_t m = least_of(strlen(b), NEAR_WORD_MAX);
    size_t d[NEAR_WORD_MAX + 1][NEAR_WORD_MAX + 1];
    for (size_t i = 0; i <= n; i++) {
        for (size_t j = 0; j <= m; j++) {
            if (i == 0 || j == 0) {
                d[i][j] = i + j;
                continue;
            }
            size_t differs = a[i - 1] != b[j - 1];
            d[i][j] = least_of(d[i - 1][j - 1] + differs, least_of(d[i - 1][j], d[i][j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
                d[i][j] = least_of(d[i][j], d[i - 2][j - 2] + 1);
            }
        }
    }
    return d[n][m];
}

/* Keep `name` when it is nearer to `word` than the best so far and near enough to be meant. */
static void consider(const char *word, const char *name, const char **best, size_t *best_edits)
{
    size_t edits = edits_between(word, name);
    size_t most = strlen(word) < 4 ? 1 : strlen(word) < 8 ? 2 : 3;
    bool begins = strlen(word) >= 2 && strncmp(name, word, strlen(word)) == 0;
    if (begins) {
        edits = least_of(edits, 1);
    }
    if (edits <= most && edits < *best_edits) {
        *best = name;
        *best_edits = edits;
    }
}

static const char *nearest_option(const struct cli_command *command, const char *word)
{
    const char *best = NULL;
    size_t edits = NEAR_WORD_MAX;
    for (const struct cli_option *o = command->options; o != NULL && o->name != NULL; o++) {
        consider(word, o->name, &best, &edits);
    }
    consider(word, "help", &best, &edits);
    return best;
}

const char *cli_nearest_command(const struct cli_command *group, const char *word)
{
    const char *best = NULL;
    size_t edits = NEAR_WORD_MAX;
    for (const struct cli_command *const *c = group->subcommands; c != NULL && *c != NULL; c++) {
        consider(word, cli_word(*c), &best, &edits);
    }
    return best;
}

/* --- commands ------------------------------------------------------------------------------------ */

const char *cli_word(const struct cli_command *command)
{
    const char *blank = strrchr(command->name, ' ');
    return blank != NULL ? blank + 1 : command->name;
}

const struct cli_command *cli_find(const struct cli_command *root, int argc, char *const *argv, int *used)
{
    const struct cli_command *at = root;
    for (*used = 0; *used < argc && at->subcommands != NULL; (*used)++) {
        const struct cli_command *const *c = at->subcommands;
        while (*c != NULL && strcmp(cli_word(*c), argv[*used]) != 0) {
            c++;
        }
        if (*c == NULL) {
            break;
        }
        at = *c;
    }
    return at;
}

/* --- parsing ------------------------------------------------------------------------------------- */

static const struct cli_option *option_named(const struct cli_command *command, struct slice name)
{
    for (const struct cli_option *o = command->options; o != NULL && o->name != NULL; o++) {
        if (slice_equal(slice_text(o->name), name)) {
            return o;
        }
    }
    return NULL;
}

static const struct cli_option *option_lettered(const struct cli_command *command, char letter)
{
    for (const struct cli_option *o = command->options; o != NULL && o->name != NULL; o++) {
        if (o->letter == letter) {
            return o;
        }
    }
    return NULL;
}

static bool is_choice(const char *choices, const char *value)
{
    size_t len = strlen(value);
    for (const char *at = choices; *at != '\0';) {
        size_t word = strcspn(at, "|");
        if (word == len && memcmp(at, value, len) == 0) {
            return true;
        }
        at += word + (at[word] == '|');
    }
    return false;
}

/* False: it is no such thing. */
static bool amount_of(uint64_t *out, enum cli_kind kind, const char *value)
{
    int64_t ms = 0;
    switch (kind) {
    case CLI_NUMBER:
        return units_u64(out, slice_text(value)) == 0;
    case CLI_SIZE:
        return units_size_bytes(out, slice_text(value)) == 0;
    default: {
        bool good = units_duration_ms(&ms, slice_text(value)) == 0;
        *out = (uint64_t)ms;
        return good;
    }
    }
}

static bool is_amount(enum cli_kind kind)
{
    return kind == CLI_NUMBER || kind == CLI_DURATION || kind == CLI_SIZE;
}

static int check_amount(const struct cli_command *command, const struct cli_option *o, const char *value)
{
    static const char *const kinds[] = {[CLI_NUMBER] = "number",
                                        [CLI_DURATION] = "duration such as 500ms, 10s, 30m, 24h or 7d",
                                        [CLI_SIZE] = "size such as 4096, 64KiB or 1MiB"};
    char bounds[2][UNITS_TEXT_MAX];
    const uint64_t limits[2] = {o->least, o->most};
    uint64_t amount;
    if (amount_of(&amount, o->kind, value) && amount >= o->least && amount <= o->most) {
        return 0;
    }
    for (int i = 0; i < 2; i++) {
        if (o->kind == CLI_DURATION) {
            units_duration_text(bounds[i], (int64_t)limits[i]);
        } else {
            snprintf(bounds[i], sizeof bounds[i], "%llu", (unsigned long long)limits[i]);
        }
    }
    return output_usage(command, "--%s is a %s, from %s to %s, not %s", o->name, kinds[o->kind], bounds[0],
                        bounds[1], value);
}

static int check_value(const struct cli_command *command, const struct cli_option *o, const char *value)
{
    if (is_amount(o->kind)) {
        return check_amount(command, o, value);
    }
    if (o->kind == CLI_CHOICE && !is_choice(o->choices, value)) {
        return output_usage(command, "--%s is one of %s, not %s", o->name, o->choices, value);
    }
    if (value[0] == '\0' && (o->kind == CLI_FILE || o->kind == CLI_DIRECTORY)) {
        return output_usage(command, "--%s needs a %s", o->name, o->value);
    }
    return 0;
}

static int keep(struct cli_args *out, const struct cli_option *o, const char *value)
{
    if (value != NULL) {
        int rc = check_value(out->command, o, value);
        if (rc != 0) {
            return rc;
        }
    }
    out->given[out->given_count++] = (struct cli_given){o, value};
    return 0;
}

/* --name, --name=value, or --name with *next. Moves *next past what it took. */
static int parse_long(struct cli_args *out, const char *text, char *const **next)
{
    struct slice name = {text, strcspn(text, "=")};
    const char *value = text[name.len] == '=' ? text + name.len + 1 : NULL;
    if (slice_equal(name, SLICE_LITERAL("help"))) {
        out->help = true;
        return 0;
    }
    const struct cli_option *o = option_named(out->command, name);
    if (o == NULL) {
        char word[NEAR_WORD_MAX + 1] = {0};
        memcpy(word, name.ptr, least_of(name.len, NEAR_WORD_MAX));
        const char *nearest = nearest_option(out->command, word);
        return output_usage(out->command, "there is no option --%.*s%s%s%s", SLICE_FORMAT(name),
                            nearest != NULL ? "; did you mean --" : "", nearest != NULL ? nearest : "",
                            nearest != NULL ? "?" : "");
    }
    if (o->kind == CLI_FLAG) {
        return value == NULL ? keep(out, o, NULL)
                             : output_usage(out->command, "--%s takes no value", o->name);
    }
    if (value == NULL) {
        value = **next;
        if (value == NULL) {
            return output_usage(out->command, "--%s needs a value: %s", o->name, o->value);
        }
        (*next)++;
    }
    return keep(out, o, value);
}

/* The letters after one dash: flags, and at most one option that takes the rest or *next. */
static int parse_letters(struct cli_args *out, const char *text, char *const **next)
{
    for (; *text != '\0'; text++) {
        if (*text == 'h' && option_lettered(out->command, 'h') == NULL) {
            out->help = true;
            return 0;
        }
        const struct cli_option *o = option_lettered(out->command, *text);
        if (o == NULL) {
            return output_usage(out->command, "there is no option -%c", *text);
        }
        if (o->kind != CLI_FLAG) {
            const char *value = text[1] != '\0' ? text + 1 : **next;
            if (value == NULL) {
                return output_usage(out->command, "-%c needs a value: %s", *text, o->value);
            }
            *next += text[1] == '\0';
            return keep(out, o, value);
        }
        int rc = keep(out, o, NULL);
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}

static bool was_given(const struct cli_args *args, const struct cli_option *o)
{
    for (size_t i = 0; i < args->given_count; i++) {
        if (args->given[i].option == o) {
            return true;
        }
    }
    return false;
}

static int none_of(const struct cli_command *command, char mark)
{
    struct buf names;
    buf_init(&names, 1024);
    for (const struct cli_option *o = command->options; o->name != NULL; o++) {
        if (o->one_of == mark) {
            (void)buf_printf(&names, "%s--%s", names.len > 0 ? " or " : "", o->name);
        }
    }
    int rc = output_usage(command, "give %.*s", SLICE_FORMAT(buf_slice(&names)));
    buf_free(&names);
    return rc;
}

/* Options marked with one one_of: exactly one of them. */
static int check_one_of(const struct cli_args *args)
{
    for (const struct cli_option *o = args->command->options; o != NULL && o->name != NULL; o++) {
        const char *first = NULL;
        const char *second = NULL;
        for (const struct cli_option *p = args->command->options; o->one_of != 0 && p->name != NULL; p++) {
            if (p->one_of == o->one_of && was_given(args, p)) {
                second = first;
                first = p->name;
            }
        }
        if (second != NULL) {
            return output_usage(args->command, "--%s and --%s exclude each other", second, first);
        }
        if (o->one_of != 0 && first == NULL) {
            return none_of(args->command, o->one_of);
        }
    }
    return 0;
}

static int check_arguments(const struct cli_args *args)
{
    const struct cli_option *instead = NULL;
    for (const struct cli_option *o = args->command->options; o != NULL && o->name != NULL; o++) {
        if (o->for_arguments && was_given(args, o)) {
            instead = o;
        }
    }
    if (instead != NULL) {
        return args->argument_count == 0
                   ? 0
                   : output_usage(args->command, "--%s stands instead of arguments; leave %s out",
                                  instead->name, args->arguments[0]);
    }
    size_t most = 0;
    for (const struct cli_argument *a = args->command->arguments; a != NULL && a->name != NULL; a++) {
        if (args->argument_count <= most && !a->optional) {
            return output_usage(args->command, "%s is missing", a->name);
        }
        most = a->repeats ? SIZE_MAX : most + 1;
    }
    if (args->argument_count > most) {
        return output_usage(args->command, "one argument too many: %s", args->arguments[most]);
    }
    return 0;
}

int cli_parse(struct cli_args *out, const struct cli_command *command, int argc, char *const *argv)
{
    *out = (struct cli_args){.command = command};
    /* A word gives at most as many options as it has bytes (letters together). */
    size_t given_max = 1;
    for (int i = 0; i < argc; i++) {
        given_max += argv[i][0] == '-' && argv[i][1] != '-' ? strlen(argv[i]) : 1;
    }
    out->given = calloc(given_max, sizeof *out->given);
    out->arguments = calloc((size_t)argc + 1, sizeof *out->arguments);
    if (out->given == NULL || out->arguments == NULL) {
        return output_no_memory(command);
    }
    bool only_arguments = false;
    char *const *end = argv + argc;
    for (char *const *next = argv; next < end && *next != NULL;) {
        const char *word = *next++;
        int rc = 0;
        if (only_arguments || word[0] != '-' || word[1] == '\0') {
            out->arguments[out->argument_count++] = word;
            only_arguments = only_arguments || command->words_follow;
        } else if (strcmp(word, "--") == 0) {
            only_arguments = true;
        } else if (word[1] == '-') {
            rc = parse_long(out, word + 2, &next);
        } else {
            rc = parse_letters(out, word + 1, &next);
        }
        if (rc != 0 || out->help) {
            return rc;
        }
    }
    int rc = check_one_of(out);
    return rc != 0 ? rc : check_arguments(out);
}

void cli_args_free(struct cli_args *args)
{
    free(args->given);
    free(args->arguments);
    *args = (struct cli_args){.command = args->command};
}

/* --- reading ------------------------------------------------------------------------------------- */

static const struct cli_option *declared(const struct cli_args *args, const char *name)
{
    const struct cli_option *o = option_named(args->command, slice_text(name));
    HAPAX_ASSERT(o != NULL);
    return o;
}

bool cli_given(const struct cli_args *args, const char *name)
{
    return was_given(args, declared(args, name));
}

bool cli_flag(const struct cli_args *args, const char *name)
{
    const struct cli_option *o = declared(args, name);
    HAPAX_ASSERT(o->kind == CLI_FLAG);
    return was_given(args, o);
}

const char *cli_text(const struct cli_args *args, const char *name)
{
    const struct cli_option *o = declared(args, name);
    HAPAX_ASSERT(o->kind != CLI_FLAG);
    for (size_t i = args->given_count; i > 0; i--) {
        if (args->given[i - 1].option == o) {
            return args->given[i - 1].value;
        }
    }
    const char *value = o->variable != NULL ? getenv(o->variable) : NULL;
    return value != NULL && value[0] != '\0' ? value : o->standard;
}

static uint64_t amount(const struct cli_args *args, enum cli_kind kind, const char *name, uint64_t absent)
{
    HAPAX_ASSERT(declared(args, name)->kind == kind);
    const char *text = cli_text(args, name);
    uint64_t found;
    return text != NULL && amount_of(&found, kind, text) ? found : absent;
}

uint64_t cli_number(const struct cli_args *args, const char *name, uint64_t absent)
{
    return amount(args, CLI_NUMBER, name, absent);
}

int64_t cli_duration_ms(const struct cli_args *args, const char *name, int64_t absent)
{
    return (int64_t)amount(args, CLI_DURATION, name, (uint64_t)absent);
}

uint64_t cli_size_bytes(const struct cli_args *args, const char *name, uint64_t absent)
{
    return amount(args, CLI_SIZE, name, absent);
}

const char *cli_nth(const struct cli_args *args, const char *name, size_t nth)
{
    const struct cli_option *o = declared(args, name);
    HAPAX_ASSERT(o->repeats);
    for (size_t i = 0; i < args->given_count; i++) {
        if (args->given[i].option == o && nth-- == 0) {
            return args->given[i].value;
        }
    }
    return NULL;
}

const char *cli_argument(const struct cli_args *args, const char *name)
{
    const struct cli_argument *declaration = args->command->arguments;
    size_t i = 0;
    while (declaration[i].name != NULL && strcmp(declaration[i].name, name) != 0) {
        i++;
    }
    HAPAX_ASSERT(declaration[i].name != NULL);
    return i < args->argument_count ? args->arguments[i] : NULL;
}
