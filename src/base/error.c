#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>

const char *hapax_error_name(int code)
{
    switch (code) {
    case HAPAX_OK:
        return "ok";
#define ERROR_NAME(name, number, word, text)                                                                 \
    case name:                                                                                               \
        return word;
        HAPAX_ERROR_LIST(ERROR_NAME)
#undef ERROR_NAME
    default:
        return "unknown-error";
    }
}

const char *hapax_error_text(int code)
{
    switch (code) {
    case HAPAX_OK:
        return "no error";
#define ERROR_TEXT(name, number, word, text)                                                                 \
    case name:                                                                                               \
        return text;
        HAPAX_ERROR_LIST(ERROR_TEXT)
#undef ERROR_TEXT
    default:
        return "an error without a description";
    }
}

int error_set(hapax_error *err, int code, int system, const char *format, ...)
{
    if (err == NULL) {
        return code;
    }
    err->code = code;
    err->system = system;
    va_list args;
    va_start(args, format);
    vsnprintf(err->message, sizeof err->message, format, args);
    va_end(args);
    for (char *p = err->message; *p != '\0'; p++) {
        if ((unsigned char)*p < 0x20 || *p == 0x7f) {
            *p = '?';
        }
    }
    return code;
}

int error_code(hapax_error *err, int code)
{
    return error_set(err, code, 0, "%s", hapax_error_text(code));
}
