/* What a configuration that is right means: defaults, values, variables, files. */
#include "config_test.h"

#include <sys/stat.h>
#include <unistd.h>

static void defaults_are_filled_in(void **state)
{
    (void)state;
    struct config *c = load(ROUTE);
    assert_string_equal(c->listen, "127.0.0.1:8080");
    assert_string_equal(c->admin_listen, "127.0.0.1:8081");
    assert_string_equal(c->store, "sqlite:hapax.db");
    assert_null(c->tls_certificate);
    assert_null(c->tls_key);
    assert_int_equal(c->threads, 0);
    assert_int_equal(c->connections_max, 16384);
    assert_int_equal(c->head_bytes_max, 32 << 10);
    assert_int_equal(c->headers_max, 128);
    assert_int_equal(c->head_ms, 10000);
    assert_int_equal(c->idle_ms, 75000);
    assert_int_equal(c->body_ms, 30000);
    assert_int_equal(c->send_ms, 60000);
    assert_int_equal(c->body_memory_max, 256 << 20);
    assert_int_equal(c->shutdown_ms, 30000);
    assert_int_equal(c->replay_cache_bytes, 32 << 20);
    assert_int_equal(c->waiters_max, 16384);
    assert_int_equal(c->waiters_per_key_max, 1024);
    assert_int_equal(c->queue_max, 65536);
    assert_int_equal(c->store_busy_ms, 5000);
    assert_string_equal(c->log_level, "info");
    assert_string_equal(c->log_format, "text");
    config_free(c);
}

static void assert_default_rules(const struct route *r)
{
    struct outcome_table rule;
    outcome_table_default(&rule);
    assert_memory_equal(&r->outcome, &rule, sizeof rule);
    assert_int_equal(r->protect, METHOD_POST | METHOD_PATCH);
    assert_int_equal(r->key_count, 1);
    assert_int_equal(r->key[0].kind, KEY_HEADER);
    assert_true(slice_equal(r->key[0].name, SLICE_LITERAL("Idempotency-Key")));
    assert_int_equal(r->key_syntax, KEY_LENIENT);
    assert_int_equal(r->missing, MISSING_REJECT);
    assert_int_equal(r->tenant, TENANT_AUTHORIZATION);
    assert_null(r->tenant_name);
    assert_int_equal(r->fingerprint.mode, FINGERPRINT_AUTO);
    assert_int_equal(r->fingerprint.ignore_count, 0);
    assert_int_equal(r->on_unknown, ON_UNKNOWN_HOLD);
    assert_null(r->probe);
    assert_int_equal(r->store_down, STORE_DOWN_CLOSED);
    assert_string_equal(r->forward_key, "Idempotency-Key");
    assert_false(r->keep_set_cookie);
    assert_true(r->preserve_host);
}

static void assert_default_limits(const struct route *r)
{
    assert_int_equal(r->ttl_ms, 86400000);
    assert_int_equal(r->lease_ms, 30000);
    assert_int_equal(r->wait_ms, 10000);
    assert_int_equal(r->timeout_ms, 60000);
    assert_int_equal(r->connect_ms, 5000);
    assert_int_equal(r->silence_ms, 300000);
    assert_int_equal(r->upstream_idle_ms, 30000);
    assert_int_equal(r->upstream_connections, 256);
    assert_int_equal(r->body_bytes_max, 8 << 20);
    assert_int_equal(r->keep_body_bytes, 1 << 20);
    assert_int_equal(r->running_max, 4096);
}

static void route_defaults_are_filled_in(void **state)
{
    (void)state;
    struct config *c = load(ROUTE);
    assert_int_equal(c->route_count, 1);
    const struct route *r = &c->routes[0];
    assert_string_equal(r->name, "a");
    assert_string_equal(r->path, "/");
    assert_string_equal(r->to, "http://127.0.0.1:3000");
    assert_null(r->host);
    assert_null(r->ca_file);
    assert_default_rules(r);
    assert_default_limits(r);
    config_free(c);
}

static void simple_config_is_all_defaults_and_one_route(void **state)
{
    (void)state;
    struct config *c;
    hapax_error err;
    assert_int_equal(config_simple(&c, "http://h:1/", NULL, NULL, NULL, &err), 0);
    assert_string_equal(c->listen, "127.0.0.1:8080");
    assert_string_equal(c->store, "sqlite:hapax.db");
    assert_int_equal(c->route_count, 1);
    assert_string_equal(c->routes[0].name, "default");
    assert_string_equal(c->routes[0].path, "/");
    assert_string_equal(c->routes[0].to, "http://h:1");
    assert_default_rules(&c->routes[0]);
    assert_default_limits(&c->routes[0]);
    config_free(c);
}

static void simple_config_takes_addresses_as_they_stand(void **state)
{
    (void)state;
    struct config *c;
    hapax_error err;
    assert_int_equal(config_simple(&c, "http://h", "[::1]:0", "sqlite:${HOME}.db", NULL, &err), 0);
    assert_string_equal(c->listen, "[::1]:0");
    assert_string_equal(c->store, "sqlite:${HOME}.db");
    config_free(c);
}

static void simple_config_names_what_is_wrong(void **state)
{
    (void)state;
    struct config *c;
    hapax_error err;
    assert_int_equal(config_simple(&c, "localhost:3000", NULL, NULL, NULL, &err), HAPAX_E_SYNTAX);
    assert_null(c);
    assert_string_equal(err.message,
                        "command line: to: \"localhost:3000\" is not an upstream's URL (it must begin with "
                        "http:// or https://); write http://127.0.0.1:3000 or "
                        "https://api.example.com/base");
    assert_int_equal(config_simple(&c, NULL, NULL, NULL, NULL, &err), HAPAX_E_MISSING);
    assert_int_equal(config_simple(&c, "http://h", "nowhere", NULL, NULL, &err), HAPAX_E_SYNTAX);
    assert_non_null(strstr(err.message, "command line: listen: \"nowhere\" is not an address"));
    assert_int_equal(config_simple(&c, "http://h", "127.0.0.1:8081", NULL, NULL, &err), HAPAX_E_SYNTAX);
    assert_non_null(strstr(err.message, "command line: admin.listen: is the same address as listen"));
}

static void values_of_a_route_win_over_defaults_and_these_over_ours(void **state)
{
    (void)state;
    struct config *c = load("routes:\n  - {name: a, path: /a}\n  - {name: b, wait: 1s, to: \"https://b\"}\n"
                            "defaults: {to: \"http://d\", wait: 2s, missing: pass}\n");
    assert_int_equal(c->routes[0].wait_ms, 2000);
    assert_int_equal(c->routes[1].wait_ms, 1000);
    assert_string_equal(c->routes[0].to, "http://d");
    assert_string_equal(c->routes[1].to, "https://b");
    assert_int_equal(c->routes[1].missing, MISSING_PASS);
    assert_int_equal(c->routes[1].ttl_ms, 86400000);
    config_free(c);
}

static void outcomes_of_a_route_add_to_those_of_defaults(void **state)
{
    (void)state;
    struct config *c = load("defaults: {to: \"http://d\", outcome: {429: done, 409: unknown}}\n"
                            "routes: [{name: a, outcome: {409: released}}]\n");
    assert_int_equal(outcome_of_status(&c->routes[0].outcome, 429), OUTCOME_DONE);
    assert_int_equal(outcome_of_status(&c->routes[0].outcome, 409), OUTCOME_RELEASED);
    assert_int_equal(outcome_of_status(&c->routes[0].outcome, 503), OUTCOME_RELEASED);
    config_free(c);
}

static void narrower_outcome_wins_in_any_order(void **state)
{
    (void)state;
    struct config *c =
        load(ROUTE "    outcome: {404: done, 4xx: unknown, 400-410: released, 200-599: done}\n");
    const struct outcome_table *t = &c->routes[0].outcome;
    assert_int_equal(outcome_of_status(t, 404), OUTCOME_DONE);
    assert_int_equal(outcome_of_status(t, 405), OUTCOME_RELEASED);
    assert_int_equal(outcome_of_status(t, 411), OUTCOME_UNKNOWN);
    assert_int_equal(outcome_of_status(t, 502), OUTCOME_DONE);
    config_free(c);
}

static void every_kind_of_route_value_is_read(void **state)
{
    (void)state;
    struct config *c =
        load(ROUTE "    host: Shop.Example.COM\n    path: /o%20x/y\n    ca: ca.pem\n"
                   "    protect: [PUT, DELETE]\n"
                   "    key: [\"header:X-Key\", \"json:/id\", \"{form:a}-{query:b}\"]\n"
                   "    key_syntax: strict\n    tenant: query:account\n"
                   "    fingerprint: {fields: [/a, /b/0]}\n    on_unknown: probe\n"
                   "    probe: https://h/x?k={key}\n    store_down: open\n    forward_key: none\n"
                   "    keep_set_cookie: true\n    preserve_host: false\n    wait: 0\n");
    const struct route *r = &c->routes[0];
    assert_string_equal(r->host, "shop.example.com");
    assert_string_equal(r->path, "/o%20x/y");
    assert_string_equal(r->ca_file, "ca.pem");
    assert_int_equal(r->protect, METHOD_PUT | METHOD_DELETE);
    assert_int_equal(r->key_count, 3);
    assert_int_equal(r->key[1].kind, KEY_JSON);
    assert_int_equal(r->key[2].kind, KEY_TEMPLATE);
    assert_int_equal(r->key_syntax, KEY_STRICT);
    assert_int_equal(r->tenant, TENANT_QUERY);
    assert_string_equal(r->tenant_name, "account");
    assert_int_equal(r->fingerprint.mode, FINGERPRINT_FIELDS);
    assert_int_equal(r->fingerprint.pointer_count, 2);
    assert_true(slice_equal(r->fingerprint.pointers[1], SLICE_LITERAL("/b/0")));
    assert_int_equal(r->on_unknown, ON_UNKNOWN_PROBE);
    assert_string_equal(r->probe, "https://h/x?k={key}");
    assert_int_equal(r->store_down, STORE_DOWN_OPEN);
    assert_string_equal(r->forward_key, "");
    assert_true(r->keep_set_cookie);
    assert_false(r->preserve_host);
    assert_int_equal(r->wait_ms, 0);
    config_free(c);
}

static void every_kind_of_process_value_is_read(void **state)
{
    (void)state;
    struct config *c =
        load(ROUTE_LINE "listen: localhost:80\nadmin: {listen: off}\ntls: {certificate: c, key: k}\n"
                        "store: fault:apply@3:sqlite:x.db\nthreads: \"4\"\n"
                        "log: {level: warn, format: json}\ntimeouts: {shutdown: 0}\n"
                        "limits: {body_memory: 1GB, replay_cache: 0}\n");
    assert_string_equal(c->listen, "127.0.0.1:80");
    assert_string_equal(c->admin_listen, "off");
    assert_string_equal(c->tls_certificate, "c");
    assert_string_equal(c->store, "fault:apply@3:sqlite:x.db");
    assert_int_equal(c->threads, 4);
    assert_string_equal(c->log_level, "warn");
    assert_string_equal(c->log_format, "json");
    assert_int_equal(c->shutdown_ms, 0);
    assert_int_equal(c->body_memory_max, 1000000000);
    assert_int_equal(c->replay_cache_bytes, 0);
    config_free(c);
}

static void list_of_one_needs_no_brackets(void **state)
{
    (void)state;
    struct config *c = load(ROUTE "    protect: PUT\n    ignore: /sent_at\n");
    assert_int_equal(c->routes[0].protect, METHOD_PUT);
    assert_int_equal(c->routes[0].fingerprint.ignore_count, 1);
    assert_true(slice_equal(c->routes[0].fingerprint.ignore[0], SLICE_LITERAL("/sent_at")));
    config_free(c);
}

static void empty_list_of_methods_protects_none(void **state)
{
    (void)state;
    struct config *c = load(ROUTE "    protect: []\n");
    assert_int_equal(c->routes[0].protect, 0);
    config_free(c);
}

static void inherited_ignore_is_idle_with_another_fingerprint(void **state)
{
    (void)state;
    struct config *c = load("defaults: {ignore: [/a]}\n" ROUTE "    fingerprint: bytes\n");
    assert_int_equal(c->routes[0].fingerprint.mode, FINGERPRINT_BYTES_MODE);
    config_free(c);
}

static void equal_paths_of_different_hosts_are_two_routes(void **state)
{
    (void)state;
    struct config *c = load("defaults: {to: \"http://h\"}\n"
                            "routes: [{name: a, host: x}, {name: b, host: y}, {name: c}]\n");
    assert_int_equal(c->route_count, 3);
    config_free(c);
}

static void free_ports_are_not_the_same_address(void **state)
{
    (void)state;
    struct config *c = load("listen: 127.0.0.1:0\nadmin: {listen: \"127.0.0.1:0\"}\n" ROUTE);
    assert_string_equal(c->admin_listen, "127.0.0.1:0");
    config_free(c);
}

static void alias_stands_for_what_it_names(void **state)
{
    (void)state;
    struct config *c = load("defaults: {to: \"http://h\"}\nroutes:\n"
                            "  - {name: a, path: /a, ignore: &i [/x, /y], ttl: &t 2h}\n"
                            "  - {name: b, path: /b, ignore: *i, ttl: *t}\n");
    assert_int_equal(c->routes[1].fingerprint.ignore_count, 2);
    assert_int_equal(c->routes[1].ttl_ms, 7200000);
    config_free(c);
}

static void byte_order_mark_and_crlf_are_fine(void **state)
{
    (void)state;
    struct config *c = load("\xEF\xBB\xBFroutes:\r\n  - name: a\r\n    to: http://h\r\n");
    assert_string_equal(c->routes[0].to, "http://h");
    config_free(c);
}

static void text_outlives_what_it_was_read_from(void **state)
{
    (void)state;
    char yaml[] = ROUTE "    key: \"{json:/a}|x\"\n";
    struct config *c = load(yaml);
    memset(yaml, '#', sizeof yaml - 1);
    assert_string_equal(c->routes[0].to, "http://127.0.0.1:3000");
    assert_int_equal(c->routes[0].key[0].part_count, 2);
    assert_true(slice_equal(c->routes[0].key[0].parts[0].name, SLICE_LITERAL("/a")));
    config_free(c);
}

/* --- Variables and files. --- */

static void variables_are_filled_in_anywhere_in_a_value(void **state)
{
    (void)state;
    setenv("HAPAX_TEST_HOST", "db.example.com", 1);
    setenv("HAPAX_TEST_WAIT", "7s", 1);
    struct config *c =
        load("routes:\n  - name: a\n    to: https://${HAPAX_TEST_HOST}/x\n    wait: ${HAPAX_TEST_WAIT}\n"
             "    protect: [\"${HAPAX_TEST_NONE:-PUT}\"]\n");
    assert_string_equal(c->routes[0].to, "https://db.example.com/x");
    assert_int_equal(c->routes[0].wait_ms, 7000);
    assert_int_equal(c->routes[0].protect, METHOD_PUT);
    config_free(c);
}

static void default_of_a_variable_holds_when_it_is_unset_or_empty(void **state)
{
    (void)state;
    setenv("HAPAX_TEST_EMPTY", "", 1);
    setenv("HAPAX_TEST_SET", "set", 1);
    struct config *c = load(ROUTE "    ca: ${HAPAX_TEST_UNSET:-a}${HAPAX_TEST_EMPTY:-b}${HAPAX_TEST_SET:-c}"
                                  "${HAPAX_TEST_EMPTY}${HAPAX_TEST_UNSET:-}\n");
    assert_string_equal(c->routes[0].ca_file, "abset");
    config_free(c);
}

static void two_dollar_signs_are_one(void **state)
{
    (void)state;
    struct config *c = load(ROUTE "    ca: $${HOME}$$$/$x\n");
    assert_string_equal(c->routes[0].ca_file, "${HOME}$$/$x");
    config_free(c);
}

static void content_of_a_variable_is_not_expanded_again(void **state)
{
    (void)state;
    setenv("HAPAX_TEST_DOLLAR", "${HOME}$$", 1);
    struct config *c = load(ROUTE "    ca: ${HAPAX_TEST_DOLLAR}\n");
    assert_string_equal(c->routes[0].ca_file, "${HOME}$$");
    config_free(c);
}

static void message_shows_the_variable_not_its_content(void **state)
{
    (void)state;
    setenv("HAPAX_TEST_SECRET", "hunter2", 1);
    assert_refused(
        "routes:\n  - name: a\n    to: ${HAPAX_TEST_SECRET}\n",
        "hapax.yaml:3: routes[0].to: \"${HAPAX_TEST_SECRET}\" is not an upstream's URL (it must begin with "
        "http:// or https://); write http://127.0.0.1:3000 or https://api.example.com/base");
    assert_refused(
        ROUTE "    wait: ${HAPAX_TEST_SECRET}\n",
        "hapax.yaml:4: routes[0].wait: \"${HAPAX_TEST_SECRET}\" is not a duration; write 250ms, 10s, 5m or "
        "24h (0 to 10m)");
}

static void variable_that_is_not_utf8_is_refused(void **state)
{
    (void)state;
    setenv("HAPAX_TEST_BYTES", "a\xFFz", 1);
    assert_refused(ROUTE "    ca: ${HAPAX_TEST_BYTES}\n",
                   "hapax.yaml:4: routes[0].ca: \"${HAPAX_TEST_BYTES}\" is not UTF-8");
}

static char folder[] = "/tmp/hapax-config-XXXXXX";

static void put(const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, strlen(text), file), strlen(text));
    assert_int_equal(fclose(file), 0);
}

static int folder_make(void **state)
{
    (void)state;
    return mkdtemp(folder) == NULL;
}

static int folder_remove(void **state)
{
    (void)state;
    static const char *const names[] = {"url", "hapax.yaml", "large"};
    char path[256];
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
    return rmdir(folder);
}

static void file_is_read_beside_the_configuration(void **state)
{
    (void)state;
    struct config *c;
    hapax_error err;
    char path[256];
    put("url", "https://from.file/x\r\n");
    put("hapax.yaml", "routes:\n  - name: a\n    to: {file: url}\n");
    snprintf(path, sizeof path, "%s/hapax.yaml", folder);
    assert_int_equal(config_load_file(&c, path, &err), 0);
    assert_string_equal(c->routes[0].to, "https://from.file/x");
    config_free(c);
}

static void message_shows_the_file_not_its_content(void **state)
{
    (void)state;
    char yaml[512];
    char message[512];
    put("url", "hunter2\n");
    snprintf(yaml, sizeof yaml, "routes:\n  - name: a\n    to: {file: %s/url}\n", folder);
    snprintf(message, sizeof message,
             "hapax.yaml:3: routes[0].to: the text in \"%s/url\" is not an upstream's URL (it must begin "
             "with http:// or "
             "https://); write http://127.0.0.1:3000 or https://api.example.com/base",
             folder);
    assert_refused(yaml, message);
}

static void file_that_is_missing_is_named(void **state)
{
    (void)state;
    assert_refused("routes:\n  - name: a\n    to: {file: no/such}\n",
                   "hapax.yaml:3: routes[0].to: the file no/such can't be read: No such file or directory");
}

static void large_file_is_refused(void **state)
{
    (void)state;
    char text[5000];
    char yaml[512];
    char message[512];
    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = '\0';
    put("large", text);
    snprintf(yaml, sizeof yaml, ROUTE "    ca: {file: %s/large}\n", folder);
    snprintf(message, sizeof message,
             "hapax.yaml:4: routes[0].ca: the file %s/large holds more than 4096 bytes", folder);
    assert_refused(yaml, message);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_filled_in),
        cmocka_unit_test(route_defaults_are_filled_in),
        cmocka_unit_test(simple_config_is_all_defaults_and_one_route),
        cmocka_unit_test(simple_config_takes_addresses_as_they_stand),
        cmocka_unit_test(simple_config_names_what_is_wrong),
        cmocka_unit_test(values_of_a_route_win_over_defaults_and_these_over_ours),
        cmocka_unit_test(outcomes_of_a_route_add_to_those_of_defaults),
        cmocka_unit_test(narrower_outcome_wins_in_any_order),
        cmocka_unit_test(every_kind_of_route_value_is_read),
        cmocka_unit_test(every_kind_of_process_value_is_read),
        cmocka_unit_test(list_of_one_needs_no_brackets),
        cmocka_unit_test(empty_list_of_methods_protects_none),
        cmocka_unit_test(inherited_ignore_is_idle_with_another_fingerprint),
        cmocka_unit_test(equal_paths_of_different_hosts_are_two_routes),
        cmocka_unit_test(free_ports_are_not_the_same_address),
        cmocka_unit_test(alias_stands_for_what_it_names),
        cmocka_unit_test(byte_order_mark_and_crlf_are_fine),
        cmocka_unit_test(text_outlives_what_it_was_read_from),
        cmocka_unit_test(variables_are_filled_in_anywhere_in_a_value),
        cmocka_unit_test(default_of_a_variable_holds_when_it_is_unset_or_empty),
        cmocka_unit_test(two_dollar_signs_are_one),
        cmocka_unit_test(content_of_a_variable_is_not_expanded_again),
        cmocka_unit_test(message_shows_the_variable_not_its_content),
        cmocka_unit_test(variable_that_is_not_utf8_is_refused),
        cmocka_unit_test(file_is_read_beside_the_configuration),
        cmocka_unit_test(message_shows_the_file_not_its_content),
        cmocka_unit_test(file_that_is_missing_is_named),
        cmocka_unit_test(large_file_is_refused),
    };
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
