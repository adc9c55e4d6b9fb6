/* Errors of libhapax: one append-only list of codes and a caller-owned description.
 *
 * Every fallible call returns 0 or one of the negative codes below and, where it takes a
 * `hapax_error *`, fills it. The pointer may be NULL; on success the struct is left alone.
 * The library never prints and never exits. What an operation came to (fresh, replay,
 * mismatch, ...) is a verdict, not an error: see hapax.h. */
#ifndef HAPAX_ERROR_H
#define HAPAX_ERROR_H

#ifdef __cplusplus
extern "C" {
#endif

/* Only ever appended to; a number keeps its meaning for ever. */
#define HAPAX_ERROR_LIST(X)                                                                                  \
    X(HAPAX_E_ARGUMENT, -1, "argument", "an argument is out of its documented range")                        \
    X(HAPAX_E_MEMORY, -2, "memory", "no memory; nothing was changed")                                        \
    X(HAPAX_E_STORE, -3, "store", "the store can't be reached or written; nothing was changed")              \
    X(HAPAX_E_STORE_FULL, -4, "store-full", "the disk of the store is full")                                 \
    X(HAPAX_E_STORE_CORRUPT, -5, "store-corrupt", "the store is damaged")                                    \
    X(HAPAX_E_STORE_VERSION, -6, "store-version", "the store is of another version than this program")       \
    X(HAPAX_E_BUSY, -7, "busy", "a queue or limit is full; try again later")                                 \
    X(HAPAX_E_LIMIT, -8, "limit", "the input is larger than its limit")                                      \
    X(HAPAX_E_STALE, -9, "stale", "the attempt no longer counts; nothing was changed")                       \
    X(HAPAX_E_NOT_FOUND, -10, "not-found", "there is no such record")                                        \
    X(HAPAX_E_SYNTAX, -11, "syntax", "the input is malformed")                                               \
    X(HAPAX_E_MISSING, -12, "missing", "a part that is needed is absent")                                    \
    X(HAPAX_E_CLOSED, -13, "closed", "the engine or connection is closing")                                  \
    X(HAPAX_E_TIMEOUT, -14, "timeout", "the time allowed ran out")                                           \
    X(HAPAX_E_CONFLICT, -15, "conflict", "the record is in a state that does not allow this")                \
    X(HAPAX_E_SYSTEM, -16, "system", "an operating system call failed")                                      \
    X(HAPAX_E_UNSUPPORTED, -17, "unsupported", "this back end or build can't do that")                       \
    X(HAPAX_E_CANCELED, -18, "canceled", "the caller gave it up")

enum hapax_error_code {
    HAPAX_OK = 0,
#define HAPAX_ERROR_ENUM(name, number, word, text) name = (number),
    HAPAX_ERROR_LIST(HAPAX_ERROR_ENUM)
#undef HAPAX_ERROR_ENUM
};

#define HAPAX_ERROR_MESSAGE_MAX 256

typedef struct hapax_error {
    int code;                              /* 0 or one of the list above */
    int system;                            /* errno, SQLite or TLS code; 0 when there is none */
    char message[HAPAX_ERROR_MESSAGE_MAX]; /* one line, NUL-terminated, no keys or bodies */
} hapax_error;

/* Name a code in one word ("store-full"); "unknown-error" for numbers not in the list.
 * Returns a static string. Any thread. */
__attribute__((visibility("default"))) const char *hapax_error_name(int code);

/* Describe a code in a short English clause. Returns a static string. Any thread. */
__attribute__((visibility("default"))) const char *hapax_error_text(int code);

#ifdef __cplusplus
}
#endif
#endif
