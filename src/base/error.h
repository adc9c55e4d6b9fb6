/* Filling of a hapax_error. Low levels set the message, upper ones pass it on untouched. */
#ifndef BASE_ERROR_H
#define BASE_ERROR_H

#include "hapax/error.h"

/* Set all three parts (err may be NULL) and return `code`, so that callers can write
 * `return error_set(err, HAPAX_E_SYNTAX, 0, "...")`. Longer messages are cut. Line breaks and other
 * control characters in the result become '?'. */
int error_set(hapax_error *err, int code, int system, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* A code with its standing text as the message. */
int error_code(hapax_error *err, int code);

#endif
