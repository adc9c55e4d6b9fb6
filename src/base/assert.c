#include "base/assert.h"

#include <stdio.h>
#include <stdlib.h>

_Noreturn void assert_fail(const char *expression, const char *file, int line)
{
    fprintf(stderr, "hapax: internal error: %s:%d: %s\n", file, line, expression);
    abort();
}
