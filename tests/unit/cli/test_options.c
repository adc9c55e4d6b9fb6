/* The parser, on a table of its own and on the real one. */
#include "cli/cli.h"
#include "cli/output.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static int run_nothing(const struct cli_args *args)
{
    (void)args;
    return CLI_OK;
}

static const struct cli_option options[] = {
    {.name = "store",
     .letter = 's',
     .kind = CLI_TEXT,
     .value = "URI",
     .variable = "HAPAX_TEST_STORE",
     .standard = "none",
     .help = "a store"},
    {.name = "limit",
     .letter = 'n',
     .kind = CLI_NUMBER,
     .value = "N",
     .least = 1,
     .most = 10,
     .help = "a number"},
    {.name = "wait",
     .kind = CLI_DURATION,
     .value = "DURATION",
     .least = 500,
     .most = 60000,
     .standard = "10s",
     .help = "a time"},
    {.name = "keep", .kind = CLI_SIZE, .value = "SIZE", .least = 0, .most = 1 << 20, .help = "a size"},
    {.name = "state", .kind = CLI_CHOICE, .value = "STATE", .choices = "running|done", .help = "a choice"},
    {.name = "header", .letter = 'H', .kind = CLI_TEXT, .value = "LINE", .repeats = true, .help = "a line"},
    {.name = "yes", .letter = 'y', .kind = CLI_FLAG, .help = "a flag"},
    {.name = "json", .letter = 'j', .kind = CLI_FLAG, .help = "another"},
    {.name = "id", .kind = CLI_TEXT, .value = "HEX", .for_arguments = true, .help = "instead"},
    {0},
};
static const struct cli_argument arguments[] = {
    {.name = "SCOPE", .help = "first"}, {.name = "KEY", .help = "second"}, {0}};
static const struct cli_command command = {
    .name = "test", .summary = "x", .options = options, .arguments = arguments, .run = run_nothing};

static const struct cli_option choice_options[] = {
    {.name = "released", .kind = CLI_FLAG, .one_of = 'r', .help = "one"},
    {.name = "done", .kind = CLI_FLAG, .one_of = 'r', .help = "the other"},
    {0},
};
static const struct cli_argument rest_arguments[] = {
    {.name = "WORD", .optional = true, .repeats = true, .help = "words"}, {0}};
static const struct cli_command choice_command = {.name = "choose",
                                                  .summary = "x",
                                                  .options = choice_options,
                                                  .arguments = rest_arguments,
                                                  .run = run_nothing};

/* argv as an array that ends with NULL. */
#define PARSE(out, what, ...) parse_words(out, what, (const char *[]){__VA_ARGS__, NULL})

static int parse_words(struct cli_args *out, const struct cli_command *what, const char **words)
{
    int n = 0;
    while (words[n] != NULL) {
        n++;
    }
    return cli_parse(out, what, n, (char *const *)words);
}

static void assert_usage(const struct cli_command *what, const char **words)
{
    struct cli_args args;
    assert_int_equal(parse_words(&args, what, words), CLI_USAGE);
    cli_args_free(&args);
}
#define ASSERT_USAGE(what, ...) assert_usage(what, (const char *[]){__VA_ARGS__, NULL})

static void every_way_to_write_a_value_gives_it(void **state)
{
    (void)state;
    const char *const ways[][2] = {{"--store=sqlite:a=b", NULL},
                                   {"--store", "sqlite:a=b"},
                                   {"-s", "sqlite:a=b"},
                                   {"-ssqlite:a=b", NULL}};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        struct cli_args args;
        const char *words[] = {"S", "K", ways[i][0], ways[i][1], NULL};
        assert_int_equal(parse_words(&args, &command, words), 0);
        assert_string_equal(cli_text(&args, "store"), "sqlite:a=b");
        assert_true(cli_given(&args, "store"));
        assert_string_equal(cli_argument(&args, "SCOPE"), "S");
        assert_string_equal(cli_argument(&args, "KEY"), "K");
        cli_args_free(&args);
    }
}

static void options_and_arguments_mix_until_a_double_dash(void **state)
{
    (void)state;
    struct cli_args args;
    assert_int_equal(PARSE(&args, &command, "S", "-y", "--", "--json"), 0);
    assert_true(cli_flag(&args, "yes"));
    assert_false(cli_flag(&args, "json"));
    assert_string_equal(cli_argument(&args, "KEY"), "--json");
    cli_args_free(&args);

    assert_int_equal(PARSE(&args, &command, "-", "-yjn3", ""), 0);
    assert_true(cli_flag(&args, "yes") && cli_flag(&args, "json"));
    assert_int_equal(cli_number(&args, "limit", 0), 3);
    assert_string_equal(cli_argument(&args, "SCOPE"), "-");
    assert_string_equal(cli_argument(&args, "KEY"), "");
    cli_args_free(&args);
}

static void the_last_value_counts_unless_all_do(void **state)
{
    (void)state;
    struct cli_args args;
    assert_int_equal(PARSE(&args, &command, "S", "K", "-n", "1", "--limit=2", "-H", "a", "--header", "b"), 0);
    assert_int_equal(cli_number(&args, "limit", 9), 2);
    assert_string_equal(cli_nth(&args, "header", 0), "a");
    assert_string_equal(cli_nth(&args, "header", 1), "b");
    assert_null(cli_nth(&args, "header", 2));
    cli_args_free(&args);
}

static void amounts_are_read_in_their_units(void **state)
{
    (void)state;
    struct cli_args args;
    assert_int_equal(PARSE(&args, &command, "S", "K", "--wait", "1m", "--keep=64KiB"), 0);
    assert_int_equal(cli_duration_ms(&args, "wait", 0), 60000);
    assert_int_equal(cli_size_bytes(&args, "keep", 0), 65536);
    cli_args_free(&args);
    assert_int_equal(PARSE(&args, &command, "S", "K", "--wait=500ms", "--keep", "0"), 0);
    assert_int_equal(cli_duration_ms(&args, "wait", 0), 500);
    assert_int_equal(cli_size_bytes(&args, "keep", 7), 0);
    cli_args_free(&args);
    assert_int_equal(PARSE(&args, &command, "S", "K"), 0);
    assert_int_equal(cli_duration_ms(&args, "wait", 0), 10000);
    assert_int_equal(cli_size_bytes(&args, "keep", 7), 7);
    cli_args_free(&args);
    ASSERT_USAGE(&command, "S", "K", "--wait", "499ms");
    ASSERT_USAGE(&command, "S", "K", "--wait", "60001ms");
    ASSERT_USAGE(&command, "S", "K", "--wait", "0");
    ASSERT_USAGE(&command, "S", "K", "--wait", "10");
    ASSERT_USAGE(&command, "S", "K", "--wait", "soon");
    ASSERT_USAGE(&command, "S", "K", "--wait", "-1s");
    ASSERT_USAGE(&command, "S", "K", "--wait", "106751991168d");
    ASSERT_USAGE(&command, "S", "K", "--keep", "1048577");
    ASSERT_USAGE(&command, "S", "K", "--keep", "1s");
    ASSERT_USAGE(&command, "S", "K", "--keep=");
}

static void an_absent_option_is_taken_from_the_environment_then_from_its_default(void **state)
{
    (void)state;
    struct cli_args args;
    assert_int_equal(PARSE(&args, &command, "S", "K"), 0);
    unsetenv("HAPAX_TEST_STORE");
    assert_string_equal(cli_text(&args, "store"), "none");
    setenv("HAPAX_TEST_STORE", "", 1);
    assert_string_equal(cli_text(&args, "store"), "none");
    setenv("HAPAX_TEST_STORE", "sqlite:e", 1);
    assert_string_equal(cli_text(&args, "store"), "sqlite:e");
    assert_false(cli_given(&args, "store"));
    unsetenv("HAPAX_TEST_STORE");
    assert_null(cli_text(&args, "state"));
    assert_int_equal(cli_number(&args, "limit", 7), 7);
    cli_args_free(&args);
}

static void wrong_command_lines_are_usage_errors(void **state)
{
    (void)state;
    ASSERT_USAGE(&command, "S", "K", "--stor", "x");
    ASSERT_USAGE(&command, "S", "K", "-q");
    ASSERT_USAGE(&command, "S", "K", "--store");
    ASSERT_USAGE(&command, "S", "K", "-s");
    ASSERT_USAGE(&command, "S", "K", "--yes=1");
    ASSERT_USAGE(&command, "S", "K", "--limit", "0");
    ASSERT_USAGE(&command, "S", "K", "--limit", "11");
    ASSERT_USAGE(&command, "S", "K", "--limit", "-1");
    ASSERT_USAGE(&command, "S", "K", "--limit", "99999999999999999999999");
    ASSERT_USAGE(&command, "S", "K", "--limit=");
    ASSERT_USAGE(&command, "S", "K", "--state", "run");
    ASSERT_USAGE(&command, "S", "K", "--state", "running|done");
    ASSERT_USAGE(&command, "S", "K", "--state", "");
    ASSERT_USAGE(&command, "S");
    ASSERT_USAGE(&command, "S", "K", "more");
    ASSERT_USAGE(&command, "--id", "00", "S");
    ASSERT_USAGE(&choice_command, "--done", "--released");
    ASSERT_USAGE(&choice_command, "word");
}

static void an_option_can_stand_for_all_arguments(void **state)
{
    (void)state;
    struct cli_args args;
    assert_int_equal(PARSE(&args, &command, "--id", "00ff"), 0);
    assert_string_equal(cli_text(&args, "id"), "00ff");
    assert_null(cli_argument(&args, "SCOPE"));
    cli_args_free(&args);
}

static void help_wins_over_everything_after_it(void **state)
{
    (void)state;
    struct cli_args args;
    assert_int_equal(PARSE(&args, &command, "--help", "--nonsense"), 0);
    assert_true(args.help);
    cli_args_free(&args);
    assert_int_equal(PARSE(&args, &command, "-yh"), 0);
    assert_true(args.help);
    cli_args_free(&args);
}

static void a_repeating_argument_takes_all_that_are_left(void **state)
{
    (void)state;
    struct cli_args args;
    assert_int_equal(PARSE(&args, &choice_command, "a", "--done", "b", "c"), 0);
    assert_int_equal(args.argument_count, 3);
    assert_string_equal(args.arguments[2], "c");
    cli_args_free(&args);
}

static void a_misspelt_command_has_a_neighbour(void **state)
{
    (void)state;
    assert_string_equal(cli_nearest_command(&cli_root, "kyes"), "keys");
    assert_string_equal(cli_nearest_command(&cli_root, "stat"), "stats");
    assert_string_equal(cli_nearest_command(&cmd_keys, "res"), "resolve");
    assert_null(cli_nearest_command(&cli_root, "frobnicate"));
    assert_null(cli_nearest_command(&cli_root, ""));
}

/* --- the real table ------------------------------------------------------------------------------ */

/* A shell's words: blanks and quotes only; ends at a pipe or redirection. Returns how many. */
static int shell_words(char *line, const char **words, int most)
{
    int n = 0;
    char *to = line;
    for (char *p = line; *p != '\0' && n < most;) {
        if (*p == ' ') {
            p++;
            continue;
        }
        if (*p == '|' || *p == '>' || *p == ')') {
            break;
        }
        words[n++] = to;
        for (char quote = '\0'; *p != '\0' && (quote != '\0' || (*p != ' ' && *p != ')')); p++) {
            if (*p == quote || (quote == '\0' && (*p == '\'' || *p == '"'))) {
                quote = quote == '\0' ? *p : '\0';
            } else {
                *to++ = *p;
            }
        }
        p += *p == ' ';
        *to++ = '\0';
    }
    words[n] = NULL;
    return n;
}

static void check_example(const struct cli_command *c, const char *line)
{
    char copy[1024];
    const char *words[64];
    const char *start = strstr(line, "hapax ");
    assert_non_null(start);
    assert_true(strlen(start) < sizeof copy);
    memcpy(copy, start, strlen(start) + 1);
    int n = shell_words(copy, words, 63);
    int used = 0;
    assert_ptr_equal(cli_find(&cli_root, n - 1, (char *const *)words + 1, &used), c);
    struct cli_args args;
    if (cli_parse(&args, c, n - 1 - used, (char *const *)words + 1 + used) != 0) {
        fail_msg("this example does not parse: %s", line);
    }
    cli_args_free(&args);
}

/* An amount has bounds, and its default keeps to them. */
static void check_bounds(const struct cli_command *c, const struct cli_option *o)
{
    bool amount = o->kind == CLI_NUMBER || o->kind == CLI_DURATION || o->kind == CLI_SIZE;
    assert_true(o->most > o->least || !amount);
    if (!amount || o->standard == NULL) {
        return;
    }
    const struct cli_option alone[] = {*o, {0}};
    struct cli_command only = {.name = c->name, .summary = c->summary, .options = alone, .run = c->run};
    char given[128];
    struct cli_args args;
    snprintf(given, sizeof given, "--%s=%s", o->name, o->standard);
    if (PARSE(&args, &only, given) != 0) {
        fail_msg("the default of hapax %s --%s is out of its bounds", c->name, o->name);
    }
    cli_args_free(&args);
}

static void check_command(const struct cli_command *c)
{
    assert_non_null(c->summary);
    assert_true((c->run == NULL) == (c->subcommands != NULL));
    assert_true(c->run == NULL || (c->examples != NULL && c->examples->line != NULL));
    for (const struct cli_example *e = c->examples; e != NULL && e->line != NULL; e++) {
        check_example(c, e->line);
    }
    for (const struct cli_option *o = c->options; o != NULL && o->name != NULL; o++) {
        assert_non_null(o->help);
        assert_true((o->kind == CLI_FLAG) == (o->value == NULL));
        assert_true((o->kind == CLI_CHOICE) == (o->choices != NULL));
        check_bounds(c, o);
        assert_true(o->kind == CLI_TEXT || o->variable == NULL);
        assert_true(strcmp(o->name, "help") != 0 && o->letter != 'h');
        for (const struct cli_option *other = o + 1; other->name != NULL; other++) {
            assert_string_not_equal(o->name, other->name);
            assert_true(o->letter == 0 || o->letter != other->letter);
        }
    }
    for (const struct cli_command *const *sub = c->subcommands; sub != NULL && *sub != NULL; sub++) {
        size_t len = strlen(c->name);
        assert_true(len == 0 || (strncmp((*sub)->name, c->name, len) == 0 && (*sub)->name[len] == ' '));
        check_command(*sub);
    }
}

static void every_declared_command_is_sound_and_its_examples_parse(void **state)
{
    (void)state;
    check_command(&cli_root);
}

/* --- escaping ------------------------------------------------------------------------------------ */

static void nothing_that_steers_a_terminal_is_printed(void **state)
{
    (void)state;
    static const struct {
        const char *in;
        const char *out;
        size_t width;
    } cases[] = {
        {"plain ~text\\", "plain ~text\\", 12},
        {"\033[31mred\n", "\\x1b[31mred\\x0a", 15},
        {"caf\xc3\xa9", "caf\xc3\xa9", 4},
        {"\xc2\x9b"
         "1m",
         "\\xc2\\x9b1m", 10},
        {"\xe2\x80\xaegpj", "\\xe2\\x80\\xaegpj", 15},
        {"\xff\xfe", "\\xff\\xfe", 8},
        {"\x7f", "\\x7f", 4},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct buf out;
        buf_init(&out, 100);
        assert_int_equal(output_escape(&out, slice_text(cases[i].in)), 0);
        assert_int_equal(out.len, strlen(cases[i].out));
        assert_memory_equal(out.ptr, cases[i].out, out.len);
        assert_int_equal(output_width(buf_slice(&out)), cases[i].width);
        buf_free(&out);
    }
}

static void ages_are_whole_and_in_the_largest_unit(void **state)
{
    (void)state;
    static const struct {
        int64_t ms;
        const char *text;
    } cases[] = {{-5, "0s"},        {999, "0s"},      {59999, "59s"},
                 {60000, "1m"},     {3599999, "59m"}, {3600000, "1h"},
                 {86399999, "23h"}, {86400000, "1d"}, {INT64_MAX, "106751991167d"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[OUTPUT_AGE_MAX];
        output_age(text, cases[i].ms);
        assert_string_equal(text, cases[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_way_to_write_a_value_gives_it),
        cmocka_unit_test(options_and_arguments_mix_until_a_double_dash),
        cmocka_unit_test(the_last_value_counts_unless_all_do),
        cmocka_unit_test(amounts_are_read_in_their_units),
        cmocka_unit_test(an_absent_option_is_taken_from_the_environment_then_from_its_default),
        cmocka_unit_test(wrong_command_lines_are_usage_errors),
        cmocka_unit_test(an_option_can_stand_for_all_arguments),
        cmocka_unit_test(help_wins_over_everything_after_it),
        cmocka_unit_test(a_repeating_argument_takes_all_that_are_left),
        cmocka_unit_test(a_misspelt_command_has_a_neighbour),
        cmocka_unit_test(every_declared_command_is_sound_and_its_examples_parse),
        cmocka_unit_test(nothing_that_steers_a_terminal_is_printed),
        cmocka_unit_test(ages_are_whole_and_in_the_largest_unit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
