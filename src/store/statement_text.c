#include "store/statement_text.h"

#include "base/assert.h"

#include <stdbool.h>
#include <string.h>

struct slice statement_text(const char *file, const char *name)
{
    static const char mark[] = "-- name: ";
    size_t len = strlen(name);
    for (const char *at = strstr(file, mark); at != NULL; at = strstr(at, mark)) {
        at += sizeof mark - 1;
        if (strncmp(at, name, len) == 0 && at[len] == '\n') {
            const char *end = strstr(at, mark);
            return slice_of(at + len, end != NULL ? (size_t)(end - (at + len)) : strlen(at + len));
        }
    }
    bool found = false;
    HAPAX_ASSERT(found);
    return SLICE_NONE;
}
