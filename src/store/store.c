/* Opening a store by its URI: one table of schemes. */
#include "store/store.h"

#include "base/error.h"
#include "store/schemes.h"

#include <string.h>

static const struct scheme {
    const char *prefix;
    int (*open)(struct store **out, const char *rest, const struct store_options *options, hapax_error *err);
    /* NULL: there is nothing to migrate */
    int (*migrate)(const char *rest, const struct store_options *options, struct store_migration *m,
                   hapax_error *err);
} schemes[] = {
    {"sqlite:", sqlite_open, sqlite_migrate},
    {"memory:", memory_open, NULL},
    {"postgresql://", postgres_open, postgres_migrate},
    {"postgres://", postgres_open, postgres_migrate},
    {"fault:", fault_open, NULL},
};

static const struct store_options defaults;

/* NULL after an error. */
static const struct scheme *scheme_of(const char *uri, hapax_error *err)
{
    for (size_t i = 0; i < sizeof schemes / sizeof schemes[0]; i++) {
        if (strncmp(uri, schemes[i].prefix, strlen(schemes[i].prefix)) == 0) {
            return &schemes[i];
        }
    }
    /* Its kind only: the rest may hold a password. */
    error_set(err, HAPAX_E_ARGUMENT, 0,
              "\"%.*s\" names no store: write sqlite:PATH, postgresql://..., memory: or memory:NAME",
              (int)strcspn(uri, ":"), uri);
    return NULL;
}

void store_tune_process(void)
{
    sqlite_tune_process();
}

int store_open(struct store **out, const char *uri, const struct store_options *options, hapax_error *err)
{
    *out = NULL;
    const struct scheme *scheme = scheme_of(uri, err);
    return scheme == NULL
               ? HAPAX_E_ARGUMENT
               : scheme->open(out, uri + strlen(scheme->prefix), options != NULL ? options : &defaults, err);
}

int store_migrate(const char *uri, const struct store_options *options, struct store_migration *m,
                  hapax_error *err)
{
    m->before = 0;
    m->after = 0;
    const struct scheme *scheme = scheme_of(uri, err);
    if (scheme == NULL) {
        return HAPAX_E_ARGUMENT;
    }
    if (scheme->migrate == NULL) {
        return error_set(err, HAPAX_E_UNSUPPORTED, 0, "a store of kind %s has no tables to migrate",
                         scheme->prefix);
    }
    return scheme->migrate(uri + strlen(scheme->prefix), options != NULL ? options : &defaults, m, err);
}

void store_close(struct store *s)
{
    if (s != NULL) {
        s->backend->close(s);
    }
}
