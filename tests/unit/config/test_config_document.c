/* What a configuration is written as: the dump, the documentation and the examples.
 *
 * With --document as its argument the program writes docs/CONFIG.md to stdout instead. */
#include "config_test.h"

static const char *program;

static void assert_dump_is_stable(const char *yaml)
{
    struct config *c = load(yaml);
    char *first = dump(c);
    config_free(c);
    struct config *again = load(first);
    char *second = dump(again);
    config_free(again);
    assert_string_equal(first, second);
    free(first);
    free(second);
}

static void dump_loads_again_to_the_same_dump(void **state)
{
    (void)state;
    assert_dump_is_stable(ROUTE);
    assert_dump_is_stable(ROUTE
                          "    host: x\n    ca: \"a\\\"\\\\ $$ \\u00fc \\U0001F600\"\n    protect: []\n"
                          "    key: [\"{{{json:/a b}|{{x}}\", \"query:k\"]\n    tenant: \"query:\\u00e4$$\"\n"
                          "    fingerprint: {fields: [\"/ü\", \"\"]}\n"
                          "    outcome: {5xx: unknown, 200: released, 599: done}\n    forward_key: none\n");
}

static void dump_shows_units_and_inherited_values(void **state)
{
    (void)state;
    struct config *c = load("defaults: {wait: 90000ms, body_size: 2097152}\n" ROUTE);
    char *text = dump(c);
    assert_non_null(strstr(text, "    wait: 90s\n"));
    assert_non_null(strstr(text, "    body_size: 2MiB\n"));
    assert_non_null(strstr(text, "timeouts:\n  header: 10s\n"));
    assert_null(strstr(text, "defaults"));
    free(text);
    config_free(c);
}

static void dump_beyond_the_buffer_is_an_error(void **state)
{
    (void)state;
    struct config *c = load(ROUTE);
    struct buf b;
    buf_init(&b, 100);
    assert_int_equal(config_dump(&b, c), HAPAX_E_LIMIT);
    buf_free(&b);
    config_free(c);
}

static void example_loads_and_dumps(void **state)
{
    (void)state;
    char *yaml = project_file("examples/hapax.yaml");
    struct config *c = load(yaml);
    assert_int_equal(c->route_count, 4);
    assert_int_equal(c->routes[1].on_unknown, ON_UNKNOWN_PROBE);
    config_free(c);
    assert_dump_is_stable(yaml);
    free(yaml);
}

static void example_of_the_documentation_loads(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, 1U << 20);
    assert_int_equal(config_document(&b), 0);
    assert_int_equal(buf_append_byte(&b, '\0'), 0);
    char *yaml = strstr(b.ptr, "```yaml\n");
    assert_non_null(yaml);
    yaml += strlen("```yaml\n");
    char *end = strstr(yaml, "```");
    assert_non_null(end);
    *end = '\0';
    assert_dump_is_stable(yaml);
    buf_free(&b);
}

static void documentation_matches_the_table(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, 1U << 20);
    assert_int_equal(config_document(&b), 0);
    char *file = project_file("docs/CONFIG.md");
    if (!slice_equal(buf_slice(&b), slice_text(file))) {
        fail_msg("docs/CONFIG.md is not what the table says; make it anew: %s --document > docs/CONFIG.md",
                 program);
    }
    free(file);
    buf_free(&b);
}

static int write_document(void)
{
    struct buf b;
    buf_init(&b, 1U << 20);
    int rc = config_document(&b);
    if (rc == 0 && fwrite(b.ptr, 1, b.len, stdout) != b.len) {
        rc = HAPAX_E_SYSTEM;
    }
    buf_free(&b);
    return rc == 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
    program = argv[0];
    if (argc == 2 && strcmp(argv[1], "--document") == 0) {
        return write_document();
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dump_loads_again_to_the_same_dump),
        cmocka_unit_test(dump_shows_units_and_inherited_values),
        cmocka_unit_test(dump_beyond_the_buffer_is_an_error),
        cmocka_unit_test(example_loads_and_dumps),
        cmocka_unit_test(example_of_the_documentation_loads),
        cmocka_unit_test(documentation_matches_the_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
