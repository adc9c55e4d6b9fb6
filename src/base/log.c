#include "base/log.h"

#include "base/clock.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { LOG_LINE_BYTES = 2048 };

static const char *const words[] = {"debug", "info", "warn", "error"};
static _Atomic(int) least_level = LOG_LEVEL_INFO;
static _Atomic(bool) as_json;

void log_setup(enum log_level least, bool json)
{
    atomic_store(&least_level, (int)least);
    atomic_store(&as_json, json);
}

bool log_enabled(enum log_level level)
{
    return (int)level >= atomic_load_explicit(&least_level, memory_order_relaxed);
}

int log_level_parse(const char *word)
{
    for (int i = 0; i < 4; i++) {
        if (strcmp(word, words[i]) == 0) {
            return i;
        }
    }
    return -1;
}

/* Copies text with controls (and for JSON quotes and backslashes) escaped; returns the bytes written. */
static size_t escape(char *out, size_t size, const char *text, bool json)
{
    size_t n = 0;
    for (; *text != '\0' && n + 8 < size; text++) {
        unsigned char c = (unsigned char)*text;
        if (c < 0x20 || c == 0x7f) {
            n += (size_t)snprintf(out + n, size - n, "\\u%04x", c);
        } else if (json && (c == '"' || c == '\\')) {
            out[n++] = '\\';
            out[n++] = (char)c;
        } else {
            out[n++] = (char)c;
        }
    }
    out[n] = '\0';
    return n;
}

void log_event(enum log_level level, const char *event, const char *format, ...)
{
    if (!log_enabled(level)) {
        return;
    }
    char message[LOG_LINE_BYTES / 2];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);

    bool json = atomic_load_explicit(&as_json, memory_order_relaxed);
    char escaped[LOG_LINE_BYTES - 256];
    escape(escaped, sizeof escaped, message, json);
    char now[CLOCK_TEXT_MAX];
    clock_text(now, clock_wall_ms());
    char line[LOG_LINE_BYTES];
    int n = snprintf(line, sizeof line,
                     json ? "{\"time\":\"%s\",\"level\":\"%s\",\"event\":\"%s\",\"message\":\"%s\"}\n"
                          : "%s %s %s: %s\n",
                     now, words[level], event, escaped);
    if (n > 0) {
        ssize_t ignored = write(STDERR_FILENO, line, (size_t)n);
        (void)ignored; /* nowhere to report it */
    }
}
