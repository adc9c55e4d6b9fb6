/* The process's log: one line an event on stderr, as `time level event message`, or as JSON objects.
 *
 * Never handed a key, a body or a credential: an identity's digest stands for its key. Control
 * characters are escaped, so that no input can forge a line. Safe from any thread; each line is one
 * write(2). The library part of the project (base to engine) never logs: it returns errors. */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include <stdbool.h>

enum log_level { LOG_LEVEL_DEBUG, LOG_LEVEL_INFO, LOG_LEVEL_WARN, LOG_LEVEL_ERROR };

/* Before threads start, or at a reload. */
void log_setup(enum log_level least, bool json);
bool log_enabled(enum log_level level);

/* `event` is a short fixed word or phrase to search for ("reload", "store-down"); the rest says what
 * happened. Lines of over 2 KiB are cut. */
void log_event(enum log_level level, const char *event, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* "debug", "info", "warn", "error"; -1 when unknown. */
int log_level_parse(const char *word);

#endif
