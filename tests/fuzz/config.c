/* Configurations (config/config.h): the YAML text.
 *
 * Nothing on disk is touched: open() of this program's config library leads here, and knows two files. It refuses to
 * be asked for anything but reading.
 *
 * Would catch: an error without a code of the documented list or without a message, or whose message is not one line that
 * begins with the file's name; a message that holds what a variable or another file holds; a config without routes or out
 * of its documented ranges; one whose dump does not load, or loads to another config. */
#include "fuzz.h"

#include "base/limits.h"
#include "config/config.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

enum { DUMP_BYTES_MAX = 16 << 20, TEXT_BYTES_MAX = 64 << 10 };

static const char of_variable[] = "zVariable5Content";
static const char of_file[] = "zFile5Content";

int __wrap_open(const char *path, int flags, ...); /* by --wrap=open */

int __wrap_open(const char *path, int flags, ...)
{
    FUZZ_CHECK(flags == (O_RDONLY | O_CLOEXEC));
    const char *name = strrchr(path, '/');
    name = name != NULL ? name + 1 : path;
    if (strcmp(name, "secret") != 0 && strcmp(name, "large") != 0) {
        errno = ENOENT;
        return -1;
    }
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    FUZZ_CHECK(fd >= 0 && write(fd, of_file, sizeof of_file - 1) == (ssize_t)sizeof of_file - 1);
    FUZZ_CHECK(strcmp(name, "large") != 0 || ftruncate(fd, 1 << 20) == 0);
    FUZZ_CHECK(lseek(fd, 0, SEEK_SET) == 0);
    return fd;
}

static bool holds(struct slice text, const char *word)
{
    return text.len > 0 && memmem(text.ptr, text.len, word, strlen(word)) != NULL;
}

static void check_error(int rc, const hapax_error *err, struct slice text)
{
    FUZZ_CHECK(rc == HAPAX_E_SYNTAX || rc == HAPAX_E_MISSING || rc == HAPAX_E_LIMIT || rc == HAPAX_E_SYSTEM);
    FUZZ_CHECK(err->code == rc && strncmp(err->message, "conf/fuzz.yaml", 14) == 0);
    FUZZ_CHECK(strpbrk(err->message, "\r\n") == NULL && strlen(err->message) > 20);
    FUZZ_CHECK(strstr(err->message, of_variable) == NULL || holds(text, of_variable));
    FUZZ_CHECK(strstr(err->message, of_file) == NULL || holds(text, of_file));
}

static void check_config(const struct config *c)
{
    FUZZ_CHECK(c->listen != NULL && c->admin_listen != NULL && c->store != NULL && c->log_level != NULL);
    FUZZ_CHECK(c->route_count > 0 && c->headers_max <= LIMIT_HEADERS_MAX && c->queue_max > 0);
    for (size_t i = 0; i < c->route_count; i++) {
        const struct route *r = &c->routes[i];
        FUZZ_CHECK(r->name != NULL && r->name[0] != '\0' && r->path != NULL && r->path[0] == '/');
        FUZZ_CHECK(strncmp(r->to, "http://", 7) == 0 || strncmp(r->to, "https://", 8) == 0);
        FUZZ_CHECK(r->key_count > 0 && r->key_count <= LIMIT_KEY_SOURCES_MAX && r->ttl_ms > 0 &&
                   r->lease_ms > 0);
        FUZZ_CHECK(r->on_unknown != ON_UNKNOWN_PROBE || r->probe != NULL);
        for (size_t k = 0; k < i; k++) {
            FUZZ_CHECK(strcmp(c->routes[k].name, r->name) != 0);
        }
    }
}

static void dump(struct buf *out, const struct config *c)
{
    buf_init(out, DUMP_BYTES_MAX);
    FUZZ_CHECK(config_dump(out, c) == 0);
}

static void check_dump(const struct config *c)
{
    struct config *again;
    hapax_error err = {0};
    struct buf first;
    struct buf second;
    dump(&first, c);
    if (first.len > 1 << 20) { /* a file has to be smaller */
        buf_free(&first);
        return;
    }
    if (config_load_text(&again, buf_slice(&first), "dump", &err) != 0) {
        fprintf(stderr, "%s\n%.*s\n", err.message, SLICE_FORMAT(buf_slice(&first)));
        abort();
    }
    dump(&second, again);
    FUZZ_CHECK(slice_equal(buf_slice(&first), buf_slice(&second)));
    config_free(again);
    buf_free(&first);
    buf_free(&second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct slice text = slice_of(data, size);
    struct config *c = NULL;
    hapax_error err = {0};
    if (size > TEXT_BYTES_MAX) {
        return 0;
    }
    setenv("FUZZ", of_variable, 1);
    setenv("FUZZ_URL", "http://127.0.0.1:1", 1);
    int rc = config_load_text(&c, text, "conf/fuzz.yaml", &err);
    if (rc == 0) {
        check_config(c);
        check_dump(c);
        config_free(c);
    } else {
        FUZZ_CHECK(c == NULL);
        check_error(rc, &err, text);
    }
    return 0;
}
