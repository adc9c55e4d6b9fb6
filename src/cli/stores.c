/* Opening of a store by commands that look into what somebody else keeps. store_open() creates what is
 * missing, which is right for the gateway; a mistyped path of an operator must not leave a new store. */
#include "cli/stores.h"

#include "cli/home_store.h"
#include "cli/output.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

#define SQLITE_SCHEME "sqlite:"

const char *stores_path(const char *uri)
{
    const char *scheme = strstr(uri, SQLITE_SCHEME);
    bool wrapped = strncmp(uri, "fault:", strlen("fault:")) == 0;
    return scheme != NULL && (scheme == uri || wrapped) ? scheme + strlen(SQLITE_SCHEME) : NULL;
}

static void say_missing(const struct cli_args *args, const char *path)
{
    struct buf own;
    buf_init(&own, PATH_MAX);
    bool known = home_store_existing_path(&own) == 0 && own.len > 0;
    output_message(args->command,
                   "there is no store at %s; name it with --store sqlite:PATH or $HAPAX_STORE%s%.*s", path,
                   known ? " ; that of hapax run and hapax call is sqlite:" : "", (int)own.len,
                   known ? own.ptr : "");
    buf_free(&own);
}

static int check_exists(const struct cli_args *args, const char *path)
{
    struct stat status;
    if (stat(path, &status) != 0) {
        if (errno == ENOENT || errno == ENOTDIR) {
            say_missing(args, path);
            return CLI_NOT_FOUND;
        }
        output_message(args->command, "can't reach the store at %s: %s", path, strerror(errno));
        return CLI_UNREACHABLE;
    }
    if (!S_ISREG(status.st_mode)) {
        output_message(args->command, "%s is not a store: it is not a regular file", path);
        return CLI_UNREACHABLE;
    }
    if (status.st_size == 0) {
        output_message(args->command, "%s is not a store: it is empty", path);
        return CLI_NOT_FOUND;
    }
    return CLI_OK;
}

int stores_error(const struct cli_args *args, const hapax_error *err)
{
    /* SQLITE_BUSY and SQLITE_LOCKED, whose numbers never change: this layer does not know SQLite. A store
     * reports a lock as one it can't write; to an operator it is a reason to try again. */
    enum { BUSY = 5, LOCKED = 6 };
    int system = err->system & 0xff;
    bool locked = err->code == HAPAX_E_STORE && stores_path(cli_text(args, "store")) != NULL &&
                  (system == BUSY || system == LOCKED);
    int rc = output_error(args->command, err);
    return locked ? CLI_TRY_LATER : rc;
}

/* A gateway refuses such a server; what an operator settles there is as lasting as the server makes it. */
static void warn(void *ctx, enum store_warning what, const char *text)
{
    (void)what;
    output_message(ctx, "warning: %s", text);
}

struct store_options stores_options(const struct cli_args *args, enum stores_access access)
{
    return (struct store_options){.read_only = access == STORES_READ,
                                  .allow_unsafe = true,
                                  .warn = warn,
                                  .warn_ctx = (void *)args->command};
}

int stores_reach(const struct cli_args *args)
{
    const char *uri = cli_text(args, "store");
    if (strncmp(uri, "memory:", strlen("memory:")) == 0) {
        return output_usage(args->command,
                            "a memory store lives inside its process and can't be reached from here");
    }
    const char *path = stores_path(uri);
    return path != NULL ? check_exists(args, path) : CLI_OK;
}

int stores_open(struct store **out, const struct cli_args *args, enum stores_access access)
{
    *out = NULL;
    int rc = stores_reach(args);
    if (rc != CLI_OK) {
        return rc;
    }
    struct store_options options = stores_options(args, access);
    hapax_error err = {0};
    return store_open(out, cli_text(args, "store"), &options, &err) == 0 ? CLI_OK : stores_error(args, &err);
}
