/* What is refused, and the words for it: file, line, field, what is wrong, what is allowed. */
#include "config_test.h"

/* X(name, YAML, message without the file's name) */
#define CASES(X)                                                                                             \
    X(error_names_file_line_and_field, ROUTE "    wait: 10 seconds\n",                                       \
      ":4: routes[0].wait: \"10 seconds\" is not a duration; write 250ms, 10s, 5m or 24h (0 to 10m)")        \
    X(duration_without_a_unit_is_refused, ROUTE "    ttl: 3600\n",                                           \
      ":4: routes[0].ttl: \"3600\" is not a duration; write 250ms, 10s, 5m or 24h (100ms to 3650d)")         \
    X(duration_beyond_its_range_is_refused, ROUTE "    wait: 1h\n",                                          \
      ":4: routes[0].wait: \"1h\" is too large; write 250ms, 10s, 5m or 24h (0 to 10m)")                     \
    X(duration_below_its_range_is_refused, ROUTE "    lease: 1ms\n",                                         \
      ":4: routes[0].lease: \"1ms\" is too small; write 250ms, 10s, 5m or 24h (100ms to 1h)")                \
    X(negative_duration_is_refused, ROUTE "    wait: -1s\n",                                                 \
      ":4: routes[0].wait: \"-1s\" is not a duration; write 250ms, 10s, 5m or 24h (0 to 10m)")               \
    X(duration_that_overflows_is_refused, ROUTE "    wait: 99999999999999999999d\n",                         \
      ":4: routes[0].wait: \"99999999999999999999d\" is not a duration; write 250ms, 10s, 5m or 24h "        \
      "(0 to 10m)")                                                                                          \
    X(size_with_an_unknown_unit_is_refused, ROUTE "    body_size: 8 megs\n",                                 \
      ":4: routes[0].body_size: \"8 megs\" is not a size; write 64KiB, 8MiB or a number of bytes "           \
      "(0 to 1GiB)")                                                                                         \
    X(size_beyond_its_range_is_refused, ROUTE "    keep_body: 17MiB\n",                                      \
      ":4: routes[0].keep_body: \"17MiB\" is too large; write 64KiB, 8MiB or a number of bytes "             \
      "(0 to 16MiB)")                                                                                        \
    X(count_that_is_no_number_is_refused, ROUTE "threads: many\n",                                           \
      ":4: threads: \"many\" is not a whole number; write a number (0 to 256)")                              \
    X(count_beyond_32_bits_is_refused, ROUTE "threads: 4294967297\n",                                        \
      ":4: threads: \"4294967297\" is too large; write a number (0 to 256)")                                 \
    X(fraction_is_no_count, ROUTE "    running: 1.5\n",                                                      \
      ":4: routes[0].running: \"1.5\" is not a whole number; write a number (1 to 1000000)")                 \
    X(bool_is_true_or_false_only, ROUTE "    preserve_host: yes\n",                                          \
      ":4: routes[0].preserve_host: \"yes\" is not allowed here; write true or false")                       \
    X(enum_lists_its_words, ROUTE "    on_unknown: guess\n",                                                 \
      ":4: routes[0].on_unknown: \"guess\" is not allowed here; write hold, retry or probe")                 \
    X(word_lists_its_words, ROUTE "log:\n  level: loud\n",                                                   \
      ":5: log.level: \"loud\" is not allowed here; write debug, info, warn or error")                       \
    X(words_are_matched_with_case, ROUTE "    missing: Pass\n",                                              \
      ":4: routes[0].missing: \"Pass\" is not allowed here; write reject or pass")                           \
    X(address_needs_a_port, ROUTE "listen: 127.0.0.1\n",                                                     \
      ":4: listen: \"127.0.0.1\" is not an address (the port is missing); write 127.0.0.1:8080, "            \
      "[::1]:8080 or :8080 for every address")                                                               \
    X(address_needs_an_ip, ROUTE "listen: example.com:80\n",                                                 \
      ":4: listen: \"example.com:80\" is not an address (what stands before the port is not an IP "          \
      "address); write 127.0.0.1:8080, [::1]:8080 or :8080 for every address")                               \
    X(ipv6_address_needs_brackets, ROUTE "listen: ::1:8080\n",                                               \
      ":4: listen: \"::1:8080\" is not an address (an IPv6 address needs brackets); write "                  \
      "127.0.0.1:8080, [::1]:8080 or :8080 for every address")                                               \
    X(port_beyond_65535_is_refused, ROUTE "admin:\n  listen: 127.0.0.1:65536\n",                             \
      ":5: admin.listen: \"127.0.0.1:65536\" is not an address (the port must be a number up to 65535); "    \
      "write 127.0.0.1:8081, [::1]:8081 or off")                                                             \
    X(upstream_needs_http, "routes:\n  - name: a\n    to: ftp://example.com\n",                              \
      ":3: routes[0].to: \"ftp://example.com\" is not an upstream's URL (it must begin with http:// or "     \
      "https://); write http://127.0.0.1:3000 or https://api.example.com/base")                              \
    X(upstream_needs_a_host, "routes:\n  - name: a\n    to: http://:80\n",                                   \
      ":3: routes[0].to: \"http://:80\" is not an upstream's URL (the host is missing); write "              \
      "http://127.0.0.1:3000 or https://api.example.com/base")                                               \
    X(upstream_has_no_query, "routes:\n  - name: a\n    to: http://h/x?a=1\n",                               \
      ":3: routes[0].to: \"http://h/x?a=1\" is not an upstream's URL (it can have a base path, but no ? "    \
      "and no #); write http://127.0.0.1:3000 or https://api.example.com/base")                              \
    X(upstream_has_no_user, "routes:\n  - name: a\n    to: http://u:p@h\n",                                  \
      ":3: routes[0].to: \"http://u:p@h\" is not an upstream's URL (no user and password can stand in it); " \
      "write http://127.0.0.1:3000 or https://api.example.com/base")                                         \
    X(upstream_port_zero_is_refused, "routes:\n  - name: a\n    to: http://h:0\n",                           \
      ":3: routes[0].to: \"http://h:0\" is not an upstream's URL (the port must be a number up to 65535); "  \
      "write http://127.0.0.1:3000 or https://api.example.com/base")                                         \
    X(upstream_is_required, "listen: :80\nroutes:\n  - name: a\n",                                           \
      ":3: routes[0].to: is missing; write http://127.0.0.1:3000 or https://api.example.com/base")           \
    X(name_is_required, "routes:\n  - to: http://h\n    path: /x\n",                                         \
      ":2: routes[0].name: is missing; write lower-case letters, digits, _ and -")                           \
    X(name_is_lower_case, "routes:\n  - name: Orders\n    to: http://h\n",                                   \
      ":2: routes[0].name: \"Orders\" is not a name (only a to z, 0 to 9, _ and - are allowed); write "      \
      "lower-case letters, digits, _ and -")                                                                 \
    X(host_has_no_port, ROUTE "    host: example.com:80\n",                                                  \
      ":4: routes[0].host: \"example.com:80\" is not a host (no port belongs here); write a name such as "   \
      "api.example.com")                                                                                     \
    X(path_begins_with_a_slash, ROUTE "    path: orders\n",                                                  \
      ":4: routes[0].path: \"orders\" is not a path (it must begin with /); write / or a path such as "      \
      "/orders")                                                                                             \
    X(path_ends_without_a_slash, ROUTE "    path: /orders/\n",                                               \
      ":4: routes[0].path: \"/orders/\" is not a path (leave out the slash at the end: /orders matches "     \
      "/orders and /orders/7); write / or a path such as /orders")                                           \
    X(path_has_no_dot_segments, ROUTE "    path: /a/../b\n",                                                 \
      ":4: routes[0].path: \"/a/../b\" is not a path (it has a . or .. segment); write / or a path such as " \
      "/orders")                                                                                             \
    X(path_is_percent_encoded, ROUTE "    path: /a%2\n",                                                     \
      ":4: routes[0].path: \"/a%2\" is not a path (a % needs two hex digits after it); write / or a path "   \
      "such as /orders")                                                                                     \
    X(file_needs_a_path, ROUTE "    ca: \"\"\n",                                                             \
      ":4: routes[0].ca: \"\" is not a file's path (it is empty); write the path of a file")                 \
    X(store_needs_a_known_scheme, ROUTE "store: mysql://h/db\n",                                             \
      ":4: store: \"mysql://h/db\" is not a store (there is no such kind of store); write sqlite:PATH, "     \
      "postgresql://... or memory:")                                                                         \
    X(store_file_needs_a_path, ROUTE "store: \"sqlite:\"\n",                                                 \
      ":4: store: \"sqlite:\" is not a store (the path of the file is missing); write sqlite:PATH, "         \
      "postgresql://... or memory:")                                                                         \
    X(fault_store_needs_another_store, ROUTE "store: fault:nth=3\n",                                         \
      ":4: store: \"fault:nth=3\" is not a store (after fault: and what is to fail, the URI of a store "     \
      "must stand); write sqlite:PATH, postgresql://... or memory:")                                         \
    X(header_name_is_a_token, ROUTE "    forward_key: Idempotency Key\n",                                    \
      ":4: routes[0].forward_key: \"Idempotency Key\" is not a header for the key (it has a character that " \
      "header names can't have); write a name such as Idempotency-Key, or none")                             \
    X(key_is_not_sent_as_framing, ROUTE "    forward_key: content-length\n",                                 \
      ":4: routes[0].forward_key: \"content-length\" is not a header for the key (the gateway removes or "   \
      "writes that one itself); write a name such as Idempotency-Key, or none")                              \
    X(key_is_not_sent_in_a_field_that_is_rewritten, ROUTE "    forward_key: X-Forwarded-For\n",              \
      ":4: routes[0].forward_key: \"X-Forwarded-For\" is not a header for the key (the gateway removes or "  \
      "writes that one itself); write a name such as Idempotency-Key, or none")                              \
    X(key_is_not_sent_as_a_marker_of_ours, ROUTE "    forward_key: Idempotency-Attempt\n",                   \
      ":4: routes[0].forward_key: \"Idempotency-Attempt\" is not a header for the key (the gateway removes " \
      "or writes that one itself); write a name such as Idempotency-Key, or none")                           \
    X(method_that_never_needs_protection_is_refused, ROUTE "    protect: [POST, GET]\n",                     \
      ":4: routes[0].protect[1]: \"GET\" is not a protected method; write a list of POST, PATCH, PUT, "      \
      "DELETE")                                                                                              \
    X(key_source_is_checked, ROUTE "    key:\n      - header:K\n      - cookie:sid\n",                       \
      ":6: routes[0].key[1]: \"cookie:sid\": a key source is header:NAME, query:NAME, json:/POINTER, "       \
      "form:NAME or a template with such sources in braces, as in {json:/order_id}|{json:/step}")            \
    X(key_needs_a_source, ROUTE "    key: []\n", ":4: routes[0].key: has 0 sources; write 1 to 8")           \
    X(tenant_word_is_checked, ROUTE "    tenant: cookie\n",                                                  \
      ":4: routes[0].tenant: \"cookie\" is not a tenant source; write authorization, none, header:NAME or "  \
      "query:NAME")                                                                                          \
    X(tenant_header_needs_a_name, ROUTE "    tenant: \"header:\"\n",                                         \
      ":4: routes[0].tenant: \"header:\" is not a tenant source (the header's name is missing); write "      \
      "authorization, none, header:NAME or query:NAME")                                                      \
    X(fingerprint_word_is_checked, ROUTE "    fingerprint: sha256\n",                                        \
      ":4: routes[0].fingerprint: \"sha256\" is not a fingerprint; write auto, bytes, none or {fields: "     \
      "[/pointer, ...]}")                                                                                    \
    X(fingerprint_fields_are_needed, ROUTE "    fingerprint: {fields: []}\n",                                \
      ":4: routes[0].fingerprint.fields: has 0 pointers; write 1 to 64")                                     \
    X(empty_pointer_is_not_ignored, ROUTE "    ignore: [\"\"]\n",                                            \
      ":4: routes[0].ignore: \"\" leaves out the whole body; write fingerprint: none if that is meant")      \
    X(outcome_status_is_checked, ROUTE "    outcome:\n      2000: done\n",                                   \
      ":5: routes[0].outcome.2000: a status, class or range from 200 to 599 is needed; write 429, 4xx or "   \
      "400-499")                                                                                             \
    X(outcome_word_is_checked, ROUTE "    outcome: {429: maybe}\n",                                          \
      ":4: routes[0].outcome.429: \"maybe\" is not an outcome; write done, released or unknown")             \
    X(outcome_is_a_mapping, ROUTE "    outcome: done\n",                                                     \
      ":4: routes[0].outcome: a text is not a map of outcomes; write a map such as {429: done, 5xx: "        \
      "unknown}")                                                                                            \
    X(list_is_refused_where_a_text_is_needed, ROUTE "    wait: [1s]\n",                                      \
      ":4: routes[0].wait: a list is not a duration; write 250ms, 10s, 5m or 24h (0 to 10m)")                \
    X(mapping_is_refused_where_a_text_is_needed, ROUTE "    ca: {path: x}\n",                                \
      ":4: routes[0].ca: a mapping is not a file's path; write the path of a file")                          \
    X(text_is_refused_where_a_group_is_needed, ROUTE "limits: 5\n",                                          \
      ":4: limits: a mapping is needed, with one field a line below it")                                     \
    X(field_without_a_value_is_refused, ROUTE "    wait:\n    ttl: 1h\n",                                    \
      ":4: routes[0].wait: has no value; write 250ms, 10s, 5m or 24h (0 to 10m), or leave it out")           \
    X(null_is_no_value, ROUTE "    host: ~\n",                                                               \
      ":4: routes[0].host: has no value; write a name such as api.example.com, or leave it out")             \
    X(unknown_field_suggests_the_nearest, ROUTE "    wiat: 1s\n",                                            \
      ":4: routes[0].wiat: unknown field; did you mean wait?")                                               \
    X(unknown_field_of_a_group_suggests_the_nearest, ROUTE "limits:\n  conections: 5\n",                     \
      ":5: limits.conections: unknown field; did you mean limits.connections?")                              \
    X(unknown_group_suggests_the_nearest, ROUTE "limit:\n  queue: 5\n",                                      \
      ":4: limit: unknown field; did you mean limits?")                                                      \
    X(field_outside_of_its_group_is_told_where_it_belongs, ROUTE "level: info\n",                            \
      ":4: level: unknown field here; did you mean log.level?")                                              \
    X(route_field_at_the_top_is_told_where_it_belongs, "ttl: 1h\n" ROUTE,                                    \
      ":1: ttl: unknown field here; ttl belongs into a route or under `defaults`")                           \
    X(top_field_in_a_route_is_told_where_it_belongs, ROUTE "    store: sqlite:x\n",                          \
      ":4: routes[0].store: unknown field here; store belongs to the top of the file")                       \
    X(field_unlike_any_other_gets_no_suggestion, ROUTE "    frobnicate: 1\n",                                \
      ":4: routes[0].frobnicate: unknown field; docs/CONFIG.md lists all fields")                            \
    X(dotted_name_is_no_nesting, ROUTE "log.level: info\n",                                                  \
      ":4: log.level: a dot is a level of nesting: write log: and below it level:")                          \
    X(name_does_not_stand_under_defaults, "defaults:\n  name: x\n" ROUTE,                                    \
      ":2: defaults.name: stands in each route, not in `defaults`")                                          \
    X(error_under_defaults_says_so, "defaults:\n  wait: soon\n" ROUTE,                                       \
      ":2: defaults.wait: \"soon\" is not a duration; write 250ms, 10s, 5m or 24h (0 to 10m)")               \
    X(second_route_is_counted_from_zero, ROUTE "  - name: b\n    to: http://h\n    wait: x\n",               \
      ":6: routes[1].wait: \"x\" is not a duration; write 250ms, 10s, 5m or 24h (0 to 10m)")                 \
    X(routes_are_needed, "listen: :80\n",                                                                    \
      ":1: routes: a list with at least one route is needed: - name: ..., path: ..., to: ...")               \
    X(empty_list_of_routes_is_refused, "listen: :80\nroutes: []\n",                                          \
      ":2: routes: a list with at least one route is needed: - name: ..., path: ..., to: ...")               \
    X(route_is_a_mapping, "routes:\n  - http://h\n",                                                         \
      ":2: routes[0]: a mapping is needed: name: ..., path: ..., to: ...")                                   \
    X(empty_file_is_refused, "# nothing\n",                                                                  \
      ":1: a configuration is needed here: `listen: ...`, `routes: ...`")                                    \
    X(list_at_the_top_is_refused, "- listen\n",                                                              \
      ":1: a configuration is needed here: `listen: ...`, `routes: ...`")                                    \
    X(route_names_are_unique,                                                                                \
      "routes:\n  - {name: a, to: \"http://h\"}\n  - {name: a, to: \"http://h\", path: /b}\n",               \
      ":3: routes[1].name: \"a\" is the name of routes[0] already")                                          \
    X(paths_are_unique_for_a_host,                                                                           \
      "routes:\n  - {name: a, host: H, to: \"http://h\"}\n  - {name: b, host: h, to: \"http://h\"}\n",       \
      ":3: routes[1].path: \"/\" is the path of route \"a\" already, for the same host")                     \
    X(probe_needs_a_url, ROUTE "    on_unknown: probe\n",                                                    \
      ":4: routes[0].probe: is missing; on_unknown: probe needs a URL with {key}")                           \
    X(probe_needs_the_key, ROUTE "    probe: http://h/x\n",                                                  \
      ":4: routes[0].probe: \"http://h/x\" is not a probe's URL ({key} is missing in its path or query); "   \
      "write such as https://api.example.com/orders/{key}")                                                  \
    X(probe_knows_one_placeholder, ROUTE "    probe: http://h/{key}/{id}\n",                                 \
      ":4: routes[0].probe: \"http://h/{key}/{id}\" is not a probe's URL (only {key} can stand in braces); " \
      "write such as https://api.example.com/orders/{key}")                                                  \
    X(ttl_covers_the_lease, ROUTE "    ttl: 10s\n", ":4: routes[0].ttl: 10s is shorter than the lease, 30s") \
    X(body_fits_into_all_bodies, "limits:\n  body_memory: 1MiB\n" ROUTE "    body_size: 2MiB\n",             \
      ":6: routes[0].body_size: 2MiB is more than all bodies may take together, limits.body_memory: 1MiB")   \
    X(ignore_works_with_auto_only, ROUTE "    fingerprint: bytes\n    ignore: [/a]\n",                       \
      ":5: routes[0].ignore: works with fingerprint: auto only")                                             \
    X(tls_needs_the_key, ROUTE "tls:\n  certificate: x.pem\n",                                               \
      ":4: tls.key: is missing; tls needs both, certificate and key")                                        \
    X(tls_needs_the_certificate, ROUTE "tls:\n  key: x.pem\n",                                               \
      ":4: tls.certificate: is missing; tls needs both, certificate and key")                                \
    X(admin_has_an_address_of_its_own, "listen: :80\nadmin:\n  listen: :80\n" ROUTE,                         \
      ":2: admin.listen: is the same address as listen; write another one, or off")                          \
    X(unset_variable_is_named, ROUTE "    ca: ${HAPAX_TEST_UNSET}/x\n",                                      \
      ":4: routes[0].ca: the variable HAPAX_TEST_UNSET is not set; set it or write "                         \
      "${HAPAX_TEST_UNSET:-default}")                                                                        \
    X(malformed_variable_is_refused, ROUTE "    ca: ${HOME\n",                                               \
      ":4: routes[0].ca: has a ${ that is not ${NAME} or ${NAME:-default}; write $$ for a dollar sign")      \
    X(control_character_is_refused, ROUTE "    ca: \"a\\0b\"\n",                                             \
      ":4: routes[0].ca: \"a\" has a line break or another control character in it")                         \
    X(duplicate_field_is_refused, ROUTE "    wait: 1s\n    ttl: 1h\n    wait: 2s\n",                         \
      ":6: \"wait\" stands twice, first in line 4")                                                          \
    X(tab_is_explained, ROUTE "\twait: 1s\n",                                                                \
      ":4: found a tab character that violates indentation while scanning a plain scalar; YAML can't be "    \
      "indented with tabs, use blanks")                                                                      \
    X(syntax_error_has_the_parsers_line, "listen: :80\nroutes: [\n  {name: a\n\n",                           \
      ":5: did not find expected ',' or '}' while parsing a flow mapping")

#define DEFINE(name, yaml, message)                                                                          \
    static void name(void **state)                                                                           \
    {                                                                                                        \
        (void)state;                                                                                         \
        assert_refused(yaml, "hapax.yaml" message);                                                          \
    }
CASES(DEFINE)

static void pointer_is_checked(void **state)
{
    (void)state;
    struct config *c;
    hapax_error err;
    assert_int_equal(config_load_text(&c, slice_text(ROUTE "    ignore: [/a, sent_at]\n"), "x.yaml", &err),
                     HAPAX_E_SYNTAX);
    assert_non_null(
        strstr(err.message, "x.yaml:4: routes[0].ignore[1]: \"sent_at\" is not a JSON pointer ("));
}

static void long_value_is_shown_in_part(void **state)
{
    (void)state;
    char yaml[6000];
    char text[3001];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    snprintf(yaml, sizeof yaml, ROUTE "    wait: %s\n", text);
    assert_refused(yaml,
                   "hapax.yaml:4: routes[0].wait: \"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx...\" is not "
                   "a duration; write 250ms, 10s, 5m or 24h (0 to 10m)");
}

static void value_beyond_4_kib_is_refused(void **state)
{
    (void)state;
    char yaml[6000];
    char text[4098];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    snprintf(yaml, sizeof yaml, ROUTE "    ca: %s\n", text);
    assert_refused(yaml, "hapax.yaml:4: routes[0].ca: is longer than 4096 bytes");
}

static void long_file_name_leaves_room_for_the_message(void **state)
{
    (void)state;
    struct config *c;
    hapax_error err;
    char name[400];
    memset(name, 'd', sizeof name);
    snprintf(name + 380, 20, "/hapax.yaml");
    assert_int_not_equal(config_load_text(&c, slice_text(ROUTE "    wiat: 1s\n"), name, &err), 0);
    assert_non_null(strstr(err.message, "/hapax.yaml:4: routes[0].wiat: unknown field; did you mean wait?"));
}

static void error_may_be_left_out(void **state)
{
    (void)state;
    struct config *c;
    assert_int_equal(config_load_text(&c, slice_text("a: [\n"), "x", NULL), HAPAX_E_SYNTAX);
    assert_null(c);
}

static void missing_file_is_named(void **state)
{
    (void)state;
    struct config *c;
    hapax_error err;
    assert_int_equal(config_load_file(&c, "no/such.yaml", &err), HAPAX_E_SYSTEM);
    assert_null(c);
    assert_string_equal(err.message, "no/such.yaml: can't be read: No such file or directory");
}

static void folder_is_no_file(void **state)
{
    (void)state;
    struct config *c;
    hapax_error err;
    assert_int_equal(config_load_file(&c, "/", &err), HAPAX_E_SYSTEM);
    assert_string_equal(err.message, "/: can't be read: Is a directory");
}

int main(void)
{
#define LIST(name, yaml, message) cmocka_unit_test(name),
    const struct CMUnitTest tests[] = {
        CASES(LIST) cmocka_unit_test(pointer_is_checked),
        cmocka_unit_test(long_value_is_shown_in_part),
        cmocka_unit_test(value_beyond_4_kib_is_refused),
        cmocka_unit_test(long_file_name_leaves_room_for_the_message),
        cmocka_unit_test(error_may_be_left_out),
        cmocka_unit_test(missing_file_is_named),
        cmocka_unit_test(folder_is_no_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
