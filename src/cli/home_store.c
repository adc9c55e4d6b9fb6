#include "cli/home_store.h"

#include "base/secret.h"
#include "cli/output.h"
#include "cli/stores.h"

#include <errno.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SQLITE_SCHEME "sqlite:"
#define ROOT_FOLDER   "/var/lib/hapax"
#define FILE_NAME     "/hapax.db"

/* Nothing was done yet. */
static int no_memory(const struct cli_args *args)
{
    (void)output_no_memory(args->command);
    return CLI_TRY_LATER;
}

/* The folder of a user's own store; "" where none can be told. As the XDG base directories want it, a relative
 * $XDG_STATE_HOME does not count. Root has one place, whoever's environment sudo has kept. */
static int append_folder(struct buf *out)
{
    if (geteuid() == 0) {
        return buf_append_text(out, ROOT_FOLDER);
    }
    const char *state = getenv("XDG_STATE_HOME");
    if (state != NULL && state[0] == '/') {
        return buf_printf(out, "%s/hapax", state);
    }
    const char *home = getenv("HOME");
    if (home == NULL || home[0] != '/') {
        const struct passwd *user = getpwuid(geteuid());
        home = user != NULL ? user->pw_dir : NULL;
    }
    return home != NULL && home[0] == '/' ? buf_printf(out, "%s/.local/state/hapax", home) : 0;
}

/* Make a folder and those above it, where they are missing. 0, or -1 and errno. Changes the text meanwhile. */
static int make_folders(char *path)
{
    for (char *slash = path + 1; *slash != '\0'; slash++) {
        if (*slash == '/') {
            *slash = '\0';
            int rc = mkdir(path, 0700);
            *slash = '/';
            if (rc != 0 && errno != EEXIST && errno != EROFS && errno != EACCES) {
                return -1;
            }
        }
    }
    return mkdir(path, 0700) == 0 || errno == EEXIST ? 0 : -1;
}

int home_store_existing_path(struct buf *out)
{
    size_t start = out->len;
    struct stat status;
    int rc = append_folder(out);
    rc = rc != 0 || out->len == start ? rc : buf_append_text(out, FILE_NAME);
    rc = rc != 0 ? rc : buf_append_byte(out, '\0');
    if (rc == 0) {
        out->len--;
    }
    if (rc != 0 || stat(out->ptr + start, &status) != 0) {
        out->len = start;
    }
    return rc;
}

static int own_store(struct buf *uri, const struct cli_args *args)
{
    size_t scheme = strlen(SQLITE_SCHEME);
    if (buf_append_text(uri, SQLITE_SCHEME) != 0 || append_folder(uri) != 0 ||
        buf_append_byte(uri, '\0') != 0) {
        return no_memory(args);
    }
    char *folder = uri->ptr + scheme;
    if (folder[0] == '\0') {
        return output_usage(args->command,
                            "there is no home directory to keep records in: name a store with --store "
                            "sqlite:PATH or $HAPAX_STORE");
    }
    if (make_folders(folder) != 0) {
        output_message(
            args->command,
            "can't make the folder %s: %s; name another store with --store sqlite:PATH or $HAPAX_STORE",
            folder, strerror(errno));
        return CLI_UNREACHABLE;
    }
    uri->len--; /* the NUL */
    return buf_append(uri, FILE_NAME, sizeof FILE_NAME) == 0 ? CLI_OK : no_memory(args);
}

static int named_store(struct buf *uri, const struct cli_args *args, const char *name)
{
    if (strncmp(name, "memory:", strlen("memory:")) == 0) {
        return output_usage(
            args->command,
            "a memory store would forget everything at once; name one that lasts: --store sqlite:PATH");
    }
    const char *path = stores_path(name);
    if (path == NULL || path[0] == '/' || path[0] == '\0') {
        return buf_append(uri, name, strlen(name) + 1) == 0 ? CLI_OK : no_memory(args);
    }
    char folder[PATH_MAX];
    if (getcwd(folder, sizeof folder) == NULL) {
        output_message(args->command, "can't tell where %s is: %s; name it by its whole path", path,
                       strerror(errno));
        return CLI_UNREACHABLE;
    }
    return buf_printf(uri, "%.*s%s/%s", (int)(path - name), name, strcmp(folder, "/") == 0 ? "" : folder,
                      path) == 0 &&
                   buf_append_byte(uri, '\0') == 0
               ? CLI_OK
               : no_memory(args);
}

int home_store_uri(char **out, const struct cli_args *args)
{
    const char *name = cli_text(args, "store");
    struct buf uri;
    buf_init(&uri, 4 * PATH_MAX);
    int rc = name != NULL ? named_store(&uri, args, name) : own_store(&uri, args);
    *out = NULL;
    if (rc == CLI_OK) {
        *out = uri.ptr; /* malloc()ed by the buffer */
    } else {
        buf_free(&uri);
    }
    return rc;
}

int home_store_error(const struct cli_args *args, const char *uri, const hapax_error *err)
{
    enum { BUSY = 5, LOCKED = 6 }; /* SQLite's, whose numbers never change */
    int code = output_error(args->command, err);
    int system = err->system & 0xff;
    switch (err->code) {
    case HAPAX_E_STORE:
        return strncmp(uri, SQLITE_SCHEME, strlen(SQLITE_SCHEME)) == 0 && (system == BUSY || system == LOCKED)
                   ? CLI_TRY_LATER
                   : CLI_UNREACHABLE;
    case HAPAX_E_STORE_FULL:
    case HAPAX_E_STORE_CORRUPT:
    case HAPAX_E_STORE_VERSION:
        return CLI_UNREACHABLE;
    case HAPAX_E_MEMORY:
    case HAPAX_E_SYSTEM: /* of processes or descriptors there may be enough another time */
        return CLI_TRY_LATER;
    default:
        return code;
    }
}

static bool is_plain(const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789%+,-./:=@_";
    return word[0] != '\0' && word[strspn(word, plain)] == '\0';
}

int home_store_quote(struct buf *out, const char *word)
{
    if (is_plain(word)) {
        return buf_append_text(out, word);
    }
    int rc = buf_append_byte(out, '\'');
    for (; *word != '\0' && rc == 0; word++) {
        rc = *word == '\'' ? buf_append_text(out, "'\\''") : buf_append_byte(out, *word);
    }
    return rc != 0 ? rc : buf_append_byte(out, '\'');
}

int home_store_option(struct buf *out, const struct cli_args *args, const char *uri)
{
    char shown[SECRET_SHOWN_MAX];
    if (secret_in_uri(uri)) {
        if (!cli_given(args, "store")) {
            return 0;
        }
        secret_show_uri(shown, sizeof shown, uri);
        uri = shown;
    }
    int rc = buf_append_text(out, " --store ");
    return rc != 0 ? rc : home_store_quote(out, uri);
}

void home_store_say(const struct cli_args *args, const char *uri, const char *what, const char *words,
                    const char *scope, const char *key)
{
    struct buf line;
    struct buf shown;
    buf_init(&line, HOME_STORE_OPTION_BYTES_MAX);
    buf_init(&shown, 4 * HOME_STORE_OPTION_BYTES_MAX);
    int rc = home_store_quote(&line, program_invocation_name);
    rc = rc != 0 ? rc : buf_printf(&line, " %s", words);
    rc = rc != 0 ? rc : home_store_option(&line, args, uri);
    rc = rc != 0 ? rc : buf_append_text(&line, scope[0] == '-' || key[0] == '-' ? " -- " : " ");
    rc = rc != 0 ? rc : home_store_quote(&line, scope);
    rc = rc != 0 ? rc : buf_append_byte(&line, ' ');
    rc = rc != 0 ? rc : home_store_quote(&line, key);
    rc = rc != 0 ? rc : output_escape(&shown, buf_slice(&line));
    if (rc == 0) {
        fprintf(stderr, "  %-25s %.*s\n", what, SLICE_FORMAT(buf_slice(&shown)));
    }
    buf_free(&line);
    buf_free(&shown);
}
