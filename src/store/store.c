/* Opening a store by its URI: one table of schemes. */
#include "store/store.h"

#include "base/error.h"
#include "store/schemes.h"

#include <string.h>

static const struct scheme {
    const char *prefix;
    int (*open)(struct store **out, const char *rest, const struct store_options *options, hapax_error *err);
} schemes[] = {
    {"sqlite:", sqlite_open},       {"memory:", memory_open}, {"postgresql://", postgres_open},
    {"postgres://", postgres_open}, {"fault:", fault_open},
};

void store_tune_process(void)
{
    sqlite_tune_process();
}

int store_open(struct store **out, const char *uri, const struct store_options *options, hapax_error *err)
{
    static const struct store_options defaults = {0};
    *out = NULL;
    for (size_t i = 0; i < sizeof schemes / sizeof schemes[0]; i++) {
        size_t len = strlen(schemes[i].prefix);
        if (strncmp(uri, schemes[i].prefix, len) == 0) {
            return schemes[i].open(out, uri + len, options != NULL ? options : &defaults, err);
        }
    }
    return error_set(err, HAPAX_E_ARGUMENT, 0,
                     "\"%.100s\" names no store: write sqlite:PATH, memory: or memory:NAME", uri);
}

void store_close(struct store *s)
{
    if (s != NULL) {
        s->backend->close(s);
    }
}
