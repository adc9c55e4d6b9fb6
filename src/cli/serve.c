/* `hapax serve`: configuration, gateway and admin listener, and the signals that steer them. */
#include "cli/serve.h"

#include "admin/admin.h"
#include "base/log.h"
#include "base/secret.h"
#include "cli/output.h"
#include "config/config.h"
#include "gateway/gateway.h"
#include "net/loop.h"
#include "store/store.h"

#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

struct server {
    const struct cli_args *args;
    struct gateway *gateway;
    struct admin *admin;
    bool ended; /* the gateway is being taken apart: signals come too late */
};

static int load(struct config **out, const struct cli_args *args, hapax_error *err)
{
    const char *listen = cli_text(args, "listen");
    const char *admin = cli_text(args, "admin");
    const char *store = cli_text(args, "store");
    const char *path = cli_text(args, "config");
    int rc = path != NULL
                 ? config_load_file(out, path, err)
                 : config_simple(out, cli_text(args, "to"), listen, store, cli_text(args, "missing"), err);
    if (rc != 0) {
        return rc;
    }
    struct config *c = *out;
    c->listen = listen != NULL ? listen : c->listen;
    c->admin_listen = admin != NULL ? admin : c->admin_listen;
    c->store = store != NULL ? store : c->store;
    c->allow_unsafe_store = c->allow_unsafe_store || cli_flag(args, "allow-unsafe-store");
    return 0;
}

static void apply_log(const struct config *c)
{
    int level = log_level_parse(c->log_level);
    log_setup(level >= 0 ? (enum log_level)level : LOG_LEVEL_INFO, strcmp(c->log_format, "json") == 0);
}

static void reload(struct server *s)
{
    if (cli_text(s->args, "config") == NULL) {
        log_event(LOG_LEVEL_WARN, "reload",
                  "there is no configuration file to read again (started with --to)");
        return;
    }
    struct config *config;
    hapax_error err = {0};
    struct buf notes;
    buf_init(&notes, 1024);
    int rc = load(&config, s->args, &err);
    if (rc == 0) {
        rc = gateway_reload(s->gateway, config, &notes, &err);
    }
    if (rc != 0) {
        gateway_count_reload_failure(s->gateway);
        log_event(LOG_LEVEL_ERROR, "reload", "the configuration stays as it was: %s", err.message);
        buf_free(&notes);
        return;
    }
    apply_log(config); /* now the gateway's, alive until the next reload */
    if (notes.len > 0) {
        log_event(LOG_LEVEL_WARN, "reload", "new configuration in use, except what needs a restart: %.*s",
                  SLICE_FORMAT(buf_slice(&notes)));
    } else {
        log_event(LOG_LEVEL_INFO, "reload", "new configuration in use");
    }
    buf_free(&notes);
}

static void on_signal(void *ctx, int number)
{
    struct server *s = ctx;
    if (s->ended) {
        return;
    }
    if (number == SIGHUP) {
        reload(s);
        return;
    }
    log_event(LOG_LEVEL_INFO, "stop", "%s",
              gateway_is_stopping(s->gateway) ? "asked again: stopping at once"
                                              : "finishing what runs; ask again to stop at once");
    gateway_stop(s->gateway);
}

static int watch_signals(struct server *s, hapax_error *err)
{
    static const int numbers[] = {SIGTERM, SIGINT, SIGHUP};
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < sizeof numbers / sizeof numbers[0]; i++) {
        rc = loop_signal(gateway_loop(s->gateway), numbers[i], on_signal, s, err);
    }
    return rc;
}

static void announce(const struct server *s, const struct config *c)
{
    char store[SECRET_SHOWN_MAX];
    secret_show_uri(store, sizeof store, c->store);
    log_event(LOG_LEVEL_INFO, "listening", "%s (port %u), store %s, %zu route%s", c->listen,
              gateway_port_number(s->gateway), store, c->route_count, c->route_count == 1 ? "" : "s");
    if (s->admin != NULL) {
        log_event(LOG_LEVEL_INFO, "admin", "%s (port %u)", c->admin_listen, admin_port_number(s->admin));
    }
}

static int serve(struct server *s, struct config *config, hapax_error *err)
{
    apply_log(config);
    int rc = gateway_open(&s->gateway, config, err);
    if (rc != 0) {
        return rc;
    }
    if (strcmp(config->admin_listen, "off") != 0) {
        rc = admin_open(&s->admin, s->gateway, config->admin_listen, err);
    }
    rc = rc != 0 ? rc : watch_signals(s, err);
    if (rc == 0) {
        announce(s, config);
        gateway_run(s->gateway);
        log_event(LOG_LEVEL_INFO, "stopped", "all is written");
    }
    s->ended = true;
    admin_close(s->admin);
    gateway_close(s->gateway);
    return rc;
}

/* Keep what was freed for the next requests: by default glibc gives the top of each heap back and faults it in anew
 * many times a second. */
static void tune_memory(void)
{
    mallopt(M_TRIM_THRESHOLD, 16 << 20);
    mallopt(M_TOP_PAD, 1 << 20);
}

int cmd_serve(const struct cli_args *args)
{
    struct server s = {.args = args};
    struct config *config;
    hapax_error err = {0};
    if (cli_given(args, "missing") && cli_given(args, "config")) {
        return output_usage(args->command, "--missing goes with --to; in a configuration each route says it");
    }
    net_descriptor_limit();
    tune_memory();
    store_tune_process();
    int rc = load(&config, args, &err);
    if (rc != 0) {
        fprintf(stderr, "hapax serve: %s\n", err.message);
        return rc == HAPAX_E_SYNTAX && cli_text(args, "config") == NULL ? CLI_USAGE : cli_exit_of(rc);
    }
    rc = net_global_init(&err);
    if (rc != 0) {
        config_free(config);
    } else {
        rc = serve(&s, config, &err);
    }
    if (rc != 0) {
        fprintf(stderr, "hapax serve: %s\n", err.message);
        return cli_exit_of(rc);
    }
    return CLI_OK;
}
