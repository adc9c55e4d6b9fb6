/* The command line: a table of commands whose declarations drive everything.
 *
 * A command declares its options, positional arguments and examples once. The parser, --help, the man
 * pages and the shell completion are made from these tables, so they can't disagree. To add a command:
 * define a `const struct cli_command` in a file of its own and name it in commands.c.
 *
 * Data goes to stdout, messages to stderr (output.h). run() returns one of the exit codes below. */
#ifndef CLI_CLI_H
#define CLI_CLI_H

#include "base/slice.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The exit codes: the one table that help and man pages print. */
#define CLI_EXIT_LIST(X)                                                                                     \
    X(CLI_OK, 0, "all is well")                                                                              \
    X(CLI_FAILED, 1, "it failed, or a check found something")                                                \
    X(CLI_USAGE, 2, "the command line is wrong")                                                             \
    X(CLI_NOT_FOUND, 3, "there is no such record or store")                                                  \
    X(CLI_CONFLICT, 4, "the record is in a state that does not allow this")                                  \
    X(CLI_UNREACHABLE, 5, "the store or a server can't be reached")                                          \
    X(CLI_TRY_LATER, 75, "try later: locked, still running, or its outcome is unknown")

enum cli_exit {
#define CLI_EXIT_ENUM(name, number, text) name = (number),
    CLI_EXIT_LIST(CLI_EXIT_ENUM)
#undef CLI_EXIT_ENUM
};

enum cli_kind {
    CLI_FLAG,      /* takes no value */
    CLI_TEXT,      /* anything */
    CLI_NUMBER,    /* decimal digits, from `least` to `most` */
    CLI_DURATION,  /* "500ms" or "24h", from `least` to `most` milliseconds */
    CLI_SIZE,      /* "64KiB", from `least` to `most` bytes */
    CLI_CHOICE,    /* one of `choices` */
    CLI_FILE,      /* a path; completed as such */
    CLI_DIRECTORY, /* likewise */
    CLI_COMMAND,   /* words that name a command (of `hapax help`) */
};

/* An array of these ends with an entry whose name is NULL. -h, --help is added to every command. */
struct cli_option {
    const char *name; /* "store" for --store */
    char letter;      /* 's' for -s; 0: none */
    enum cli_kind kind;
    const char *value;   /* what its value is called in usage ("URI"); NULL for a flag */
    const char *help;    /* a clause without a full stop */
    const char *choices; /* CLI_CHOICE: "running|done|unknown" */
    uint64_t least;      /* CLI_NUMBER, CLI_DURATION, CLI_SIZE */
    uint64_t most;
    const char *variable; /* CLI_TEXT: environment variable that holds for an absent option; NULL: none */
    const char *standard; /* value when neither is given; NULL: none */
    bool repeats;         /* every value counts; else the last one */
    bool for_arguments;   /* given instead of all positional arguments */
    char one_of;          /* of the options with one non-zero mark, exactly one must be given */
};

struct cli_argument {
    const char *name; /* "CONFIG" */
    enum cli_kind kind;
    const char *help;
    bool optional; /* only the last ones */
    bool repeats;  /* only the last one: takes all that are left */
};

struct cli_example {
    const char *what; /* a clause without a full stop */
    const char *line; /* a command line that works in a shell */
};

struct cli_args;

struct cli_command {
    const char *name;        /* all words after "hapax": "keys list" */
    const char *summary;     /* one line without a full stop */
    const char *description; /* sentences, paragraphs separated by an empty line; NULL: none */
    const struct cli_option *options;
    const struct cli_argument *arguments;
    const struct cli_example *examples;           /* at least one, but for groups */
    const struct cli_command *const *subcommands; /* ends with NULL; a group has these and no run */
    bool words_follow; /* the first argument ends the options: what follows are another command's words */
    bool own_exits;    /* the description tells its exit codes, not the table above */
    int (*run)(const struct cli_args *args);
};

/* A parsed command line: what run() gets. Everything is borrowed from argv, the environment or the
 * tables and holds until run() returns. Values have been checked against their kind. Options and
 * arguments are read by the names they are declared with; another name is a bug and asserts. */
struct cli_args {
    const struct cli_command *command;
    struct cli_given {
        const struct cli_option *option;
        const char *value; /* NULL for a flag */
    } * given;
    size_t given_count;
    const char **arguments;
    size_t argument_count;
    bool help; /* --help was given: nothing else is checked */
};

bool cli_flag(const struct cli_args *args, const char *name);
/* Was it on the command line? (Not: in the environment.) */
bool cli_given(const struct cli_args *args, const char *name);
/* The last value on the command line, else the environment variable's unless empty, else the default, else
 * NULL. */
const char *cli_text(const struct cli_args *args, const char *name);
/* The same as a number, as milliseconds, as bytes. `absent` when there is none. */
uint64_t cli_number(const struct cli_args *args, const char *name, uint64_t absent);
int64_t cli_duration_ms(const struct cli_args *args, const char *name, int64_t absent);
uint64_t cli_size_bytes(const struct cli_args *args, const char *name, uint64_t absent);
/* The nth value (from 0) of an option that repeats; NULL past the last. */
const char *cli_nth(const struct cli_args *args, const char *name, size_t nth);
/* A positional argument by its declared name; NULL when absent. The first of one that repeats: the others
 * follow it in args->arguments. */
const char *cli_argument(const struct cli_args *args, const char *name);

/* Parse what follows the command's name; argv[argc] is NULL. 0, or CLI_USAGE or CLI_FAILED (no memory) after a message on
 * stderr; cli_args_free() in every case. */
int cli_parse(struct cli_args *out, const struct cli_command *command, int argc, char *const *argv);
void cli_args_free(struct cli_args *args);

/* Follow the words that name a command from `root`; *used is how many were taken. Stops at the first
 * that names none. */
const struct cli_command *cli_find(const struct cli_command *root, int argc, char *const *argv, int *used);
/* The last word of a command's name: "list". */
const char *cli_word(const struct cli_command *command);
/* Of the group's subcommands, the one that `word` was most likely meant to be; NULL: none is near. */
const char *cli_nearest_command(const struct cli_command *group, const char *word);

/* What the exit code is for a code of hapax/error.h. */
int cli_exit_of(int code);

/* The whole tree, and one group in it. */
extern const struct cli_command cli_root;
extern const struct cli_command cmd_bench;
extern const struct cli_command cmd_call;
extern const struct cli_command cmd_check;
extern const struct cli_command cmd_docs;
extern const struct cli_command cmd_drill;
extern const struct cli_command cmd_help;
extern const struct cli_command cmd_keys;
extern const struct cli_command cmd_migrate;
extern const struct cli_command cmd_run;
extern const struct cli_command cmd_stats;
extern const struct cli_command cmd_version;

/* Everything but main(). */
int cli_main(int argc, char **argv);

#define CLI_DURATION_MS_MAX (3650ULL * 24 * 3600 * 1000) /* of any duration */

/* Options that mean the same in every command. */
#define CLI_OPTION_STORE                                                                                     \
    {                                                                                                        \
        .name = "store", .letter = 's', .kind = CLI_TEXT, .value = "URI", .variable = "HAPAX_STORE",         \
        .standard = "sqlite:hapax.db", .help = "the store: sqlite:PATH or postgresql://..."                  \
    }
#define CLI_OPTION_JSON                                                                                      \
    {                                                                                                        \
        .name = "json", .letter = 'j', .kind = CLI_FLAG, .help = "write JSON instead of text"                \
    }

#endif
