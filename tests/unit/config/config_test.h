/* What the tests of config/ share. */
#ifndef CONFIG_TEST_H
#define CONFIG_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "config/config.h"

#include <stdio.h>
#include <stdlib.h>

/* Three lines; what follows is line 4. */
#define ROUTE "routes:\n  - name: a\n    to: http://127.0.0.1:3000\n"
/* One line. */
#define ROUTE_LINE "routes: [{name: a, to: \"http://127.0.0.1:3000\"}]\n"

static inline struct config *load(const char *yaml)
{
    struct config *c = NULL;
    hapax_error err = {0};
    if (config_load_text(&c, slice_text(yaml), "hapax.yaml", &err) != 0) {
        fail_msg("refused: %s", err.message);
    }
    return c;
}

static inline void assert_refused(const char *yaml, const char *message)
{
    struct config *c = (struct config *)&c;
    hapax_error err = {0};
    int rc = config_load_text(&c, slice_text(yaml), "hapax.yaml", &err);
    if (rc == 0) {
        config_free(c);
        fail_msg("loaded, but expected: %s", message);
    }
    assert_null(c);
    assert_int_equal(err.code, rc);
    assert_string_equal(err.message, message);
}

/* NUL-terminated, owned: free() it. */
static inline char *dump(const struct config *c)
{
    struct buf b;
    buf_init(&b, 16U << 20);
    assert_int_equal(config_dump(&b, c), 0);
    assert_int_equal(buf_append_byte(&b, '\0'), 0);
    return b.ptr;
}

/* The content of a file of the project, by its path there; owned, NUL-terminated. */
static inline char *project_file(const char *path)
{
    char whole[1024];
    const char *tests = getenv("HAPAX_TESTS");
    snprintf(whole, sizeof whole, "%s/../%s", tests != NULL ? tests : "tests", path);
    FILE *file = fopen(whole, "rb");
    if (file == NULL) {
        fail_msg("%s can't be read; is HAPAX_TESTS set?", whole);
    }
    struct buf b;
    buf_init(&b, 4U << 20);
    char part[4096];
    for (size_t n; (n = fread(part, 1, sizeof part, file)) > 0;) {
        assert_int_equal(buf_append(&b, part, n), 0);
    }
    fclose(file);
    assert_int_equal(buf_append_byte(&b, '\0'), 0);
    return b.ptr;
}

#endif
