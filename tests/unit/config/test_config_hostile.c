/* Bad input of any kind: it ends at once, with a message, and never with a crash. Run under ASan as well. */
#include "config_test.h"

#include "config/yaml.h"

#include <ctype.h>

static void assert_refused_with(const char *yaml, size_t len, int code, const char *part)
{
    struct config *c = (struct config *)&c;
    hapax_error err = {0};
    int rc = config_load_text(&c, slice_of(yaml, len), "h.yaml", &err);
    assert_null(c);
    assert_int_equal(rc, code);
    if (strstr(err.message, part) == NULL) {
        fail_msg("expected \"%s\" in: %s", part, err.message);
    }
}

static void assert_text_refused(const char *yaml, int code, const char *part)
{
    assert_refused_with(yaml, strlen(yaml), code, part);
}

/* libyaml's document loader needs minutes for this; ours stops at the limit. */
static void a_megabyte_of_brackets_ends_at_once(void **state)
{
    (void)state;
    char *text = test_malloc(YAML_BYTES_MAX);
    memset(text, '[', YAML_BYTES_MAX);
    assert_refused_with(text, YAML_BYTES_MAX, HAPAX_E_LIMIT, "h.yaml:1: nested deeper than 16 levels");
    memset(text, '{', YAML_BYTES_MAX);
    /* a mapping is no name, so this one ends in the second level */
    assert_refused_with(text, YAML_BYTES_MAX, HAPAX_E_SYNTAX, "h.yaml:1: a name is needed here");
    for (size_t i = 0; i + 2 <= YAML_BYTES_MAX; i += 2) {
        memcpy(text + i, "- ", 2);
    }
    assert_refused_with(text, YAML_BYTES_MAX, HAPAX_E_LIMIT, "nested deeper than 16 levels");
    test_free(text);
}

static void text_beyond_a_megabyte_is_refused(void **state)
{
    (void)state;
    size_t len = YAML_BYTES_MAX + 1;
    char *text = test_malloc(len);
    memset(text, '#', len);
    assert_refused_with(text, len, HAPAX_E_LIMIT, "h.yaml: larger than 1048576 bytes");
    test_free(text);
}

static void aliases_do_not_unfold_without_bound(void **state)
{
    (void)state;
    /* ten to the ninth values in nine lines */
    assert_text_refused("a: &a [x,x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]\n"
                        "c: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c,*c]\n"
                        "e: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e,*e]\n",
                        HAPAX_E_LIMIT, "h.yaml:5: more than 100000 values, aliases unfolded");
}

static void alias_inside_of_its_anchor_is_refused(void **state)
{
    (void)state;
    assert_text_refused("routes: &r\n  - *r\n", HAPAX_E_SYNTAX,
                        "h.yaml:2: *r stands inside of what it refers to");
}

static void unknown_alias_is_refused(void **state)
{
    (void)state;
    assert_text_refused("routes: *nowhere\n", HAPAX_E_SYNTAX,
                        "h.yaml:1: *nowhere: no anchor &nowhere stands above");
}

static void too_many_anchors_are_refused(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, 1U << 20);
    assert_int_equal(buf_append_text(&b, "x:\n"), 0);
    for (unsigned i = 0; i < 300; i++) {
        assert_int_equal(buf_printf(&b, "- &a%u x\n", i), 0);
    }
    assert_refused_with(b.ptr, b.len, HAPAX_E_LIMIT, "h.yaml:258: more than 256 anchors");
    buf_free(&b);
}

static void too_many_entries_are_refused(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, 1U << 20);
    assert_int_equal(buf_append_text(&b, "x:\n"), 0);
    for (unsigned i = 0; i < 1100; i++) {
        assert_int_equal(buf_append_text(&b, "- x\n"), 0);
    }
    assert_refused_with(b.ptr, b.len, HAPAX_E_LIMIT, "h.yaml:1026: more than 1024 entries");
    buf_free(&b);
}

static void a_thousand_routes_load(void **state)
{
    (void)state;
    struct buf b;
    struct config *c;
    hapax_error err;
    buf_init(&b, 1U << 20);
    assert_int_equal(buf_append_text(&b, "defaults: {to: \"http://h\"}\nroutes:\n"), 0);
    for (unsigned i = 0; i < 1000; i++) {
        assert_int_equal(
            buf_printf(&b, "- {name: r%u, path: /r%u, outcome: {5xx: done}, ignore: [/a]}\n", i, i), 0);
    }
    int rc = config_load_text(&c, buf_slice(&b), "h.yaml", &err);
    if (rc != 0) {
        fail_msg("%s", err.message);
    }
    assert_string_equal(c->routes[999].name, "r999");
    char *text = dump(c);
    free(text);
    config_free(c);
    buf_free(&b);
}

static void directives_are_refused(void **state)
{
    (void)state;
    assert_text_refused("# c\n%TAG ! tag:x\n---\n" ROUTE, HAPAX_E_SYNTAX, "h.yaml:2: directives");
}

static void tags_are_refused(void **state)
{
    (void)state;
    assert_text_refused("listen: !!str :80\n" ROUTE, HAPAX_E_SYNTAX,
                        "h.yaml:1: tags (!...) are not supported");
    assert_text_refused("routes: !x []\n", HAPAX_E_SYNTAX, "h.yaml:1: tags (!...) are not supported");
}

static void merge_keys_are_refused(void **state)
{
    (void)state;
    assert_text_refused(
        "a: &a {to: x}\nroutes:\n  - <<: *a\n", HAPAX_E_SYNTAX,
        "h.yaml:3: merge keys (<<) are not supported; put what routes share under `defaults`");
}

static void second_document_is_refused(void **state)
{
    (void)state;
    assert_text_refused("---\n" ROUTE "---\nlisten: :80\n", HAPAX_E_SYNTAX,
                        "h.yaml:5: a second document begins");
}

static void name_that_is_a_list_is_refused(void **state)
{
    (void)state;
    assert_text_refused("[a, b]: c\n", HAPAX_E_SYNTAX, "h.yaml:1: a name is needed here");
}

static void bytes_that_are_not_utf8_are_refused_with_their_line(void **state)
{
    (void)state;
    assert_text_refused("listen: :80\n# \xC3\x28\n" ROUTE, HAPAX_E_SYNTAX, "h.yaml:2: invalid");
}

static void nul_bytes_are_refused(void **state)
{
    (void)state;
    static const char text[] = "listen: :80\n\0routes: []\n";
    assert_refused_with(text, sizeof text - 1, HAPAX_E_SYNTAX, "h.yaml:");
}

static void utf16_is_refused(void **state)
{
    (void)state;
    static const char text[] = "\xFF\xFEr\0o\0u\0";
    assert_refused_with(text, sizeof text - 1, HAPAX_E_SYNTAX, "h.yaml:1:");
}

static void empty_input_is_refused(void **state)
{
    (void)state;
    assert_refused_with("", 0, HAPAX_E_SYNTAX, "h.yaml:1: a configuration is needed here");
    assert_refused_with(NULL, 0, HAPAX_E_SYNTAX, "h.yaml:1: a configuration is needed here");
}

/* --- Mutations of the example: each load ends with a config whose dump is stable, or with one line. --- */

static uint64_t seed = 0x9E3779B97F4A7C15U;

static size_t draw(size_t below)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (size_t)(seed % below);
}

static const char *const pieces[] = {
    ":",
    ": ",
    "- ",
    "\n",
    " ",
    "  ",
    "\t",
    "\"",
    "'",
    "{",
    "}",
    "[",
    "]",
    ",",
    "&a",
    "*a",
    "!x",
    "%",
    "|\n",
    ">\n",
    "?",
    "#",
    "${",
    "$",
    "}}",
    "{{",
    "~",
    "0",
    "-1",
    "99999999999999999999",
    "\xFF",
    "\xC3",
    "\xE2\x80\xA8",
    "\\",
    "\x01",
    "<<: *a",
    "---\n",
    "...\n",
    "routes",
    "{file: /dev/null}",
    "{file: \"a\\0\"}",
    "${X:-}",
    "[[[[[[[[[[[[[[[[[[[[",
    "json:/~2",
    "off",
    "\"\\0\"",
    "\"\\u2028\\U0001F600\"",
    "http://[::1]:1/",
    "{key}",
    "5xx: unknown",
    "429",
};

static void mutate(struct buf *b)
{
    size_t at = draw(b->len + 1);
    size_t cut = draw(4) == 0 ? draw(40) : draw(4);
    const char *piece = pieces[draw(sizeof pieces / sizeof pieces[0])];
    char tail[8192];
    if (cut > b->len - at) {
        cut = b->len - at;
    }
    size_t rest = b->len - at - cut;
    assert_true(rest < sizeof tail);
    memcpy(tail, b->ptr + at + cut, rest);
    b->len = at;
    switch (draw(4)) {
    case 0:
        break; /* only cut */
    case 1: {
        char c = (char)draw(256);
        assert_int_equal(buf_append_byte(b, c), 0);
        break;
    }
    default:
        assert_int_equal(buf_append_text(b, piece), 0);
    }
    assert_int_equal(buf_append(b, tail, rest), 0);
}

static bool is_one_line(const char *message)
{
    for (; *message != '\0'; message++) {
        if (iscntrl((unsigned char)*message)) {
            return false;
        }
    }
    return true;
}

/* A dump of a config loads and dumps the same. */
static void assert_stable(struct config *c, const struct buf *source)
{
    char *first = dump(c);
    struct config *again;
    hapax_error err;
    if (config_load_text(&again, slice_text(first), "dump", &err) != 0) {
        fail_msg("the dump does not load: %s\n%.*s", err.message, (int)source->len, source->ptr);
    }
    char *second = dump(again);
    assert_string_equal(first, second);
    config_free(again);
    free(first);
    free(second);
}

static void mutations_of_the_example_never_crash(void **state)
{
    (void)state;
    enum { ROUNDS = 4000 };
    char *example = project_file("examples/hapax.yaml");
    unsigned loaded = 0;
    for (int i = 0; i < ROUNDS; i++) {
        struct buf b;
        struct config *c = NULL;
        hapax_error err = {0};
        buf_init(&b, 65536);
        assert_int_equal(buf_append_text(&b, example), 0);
        for (size_t n = draw(4) + 1; n > 0; n--) {
            mutate(&b);
        }
        int rc = config_load_text(&c, buf_slice(&b), "h.yaml", &err);
        if (rc == 0) {
            loaded++;
            assert_stable(c, &b);
        } else {
            assert_null(c);
            assert_int_equal(err.code, rc);
            assert_true(is_one_line(err.message));
            assert_true(strncmp(err.message, "h.yaml", 6) == 0);
        }
        config_free(c);
        buf_free(&b);
    }
    free(example);
    /* Both ways are walked; most mutations fall into comments or break something. */
    assert_in_range(loaded, ROUNDS / 20, ROUNDS * 19 / 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_megabyte_of_brackets_ends_at_once),
        cmocka_unit_test(text_beyond_a_megabyte_is_refused),
        cmocka_unit_test(aliases_do_not_unfold_without_bound),
        cmocka_unit_test(alias_inside_of_its_anchor_is_refused),
        cmocka_unit_test(unknown_alias_is_refused),
        cmocka_unit_test(too_many_anchors_are_refused),
        cmocka_unit_test(too_many_entries_are_refused),
        cmocka_unit_test(a_thousand_routes_load),
        cmocka_unit_test(directives_are_refused),
        cmocka_unit_test(tags_are_refused),
        cmocka_unit_test(merge_keys_are_refused),
        cmocka_unit_test(second_document_is_refused),
        cmocka_unit_test(name_that_is_a_list_is_refused),
        cmocka_unit_test(bytes_that_are_not_utf8_are_refused_with_their_line),
        cmocka_unit_test(nul_bytes_are_refused),
        cmocka_unit_test(utf16_is_refused),
        cmocka_unit_test(empty_input_is_refused),
        cmocka_unit_test(mutations_of_the_example_never_crash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
