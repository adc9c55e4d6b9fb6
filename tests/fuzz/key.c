/* Header values as keys (core/key.h): [syntax] value.
 *
 * Would catch: a key that is empty, too long or not printable; a quoted form that reads as another key than what was
 * quoted; the two syntaxes disagreeing about one value; blanks around a value that matter; an ordinary value that is
 * refused; a key that identity_make() does not take; a message that repeats a value. */
#include "fuzz.h"

#include "base/limits.h"
#include "core/identity.h"
#include "core/key.h"

static bool is_ordinary(struct slice value)
{
    bool digit = false;
    for (size_t i = 0; i < value.len; i++) {
        char c = ascii_lower(value.ptr[i]);
        digit = digit || (c >= '0' && c <= '9');
        if (!(c >= 'a' && c <= 'z') && !(c >= '0' && c <= '9') && c != '-' && c != '_') {
            return false;
        }
    }
    return digit && value.len <= LIMIT_KEY_BYTES_MAX;
}

static void check_key(struct slice key, struct arena *arena)
{
    FUZZ_CHECK(key.len > 0 && key.len <= LIMIT_KEY_BYTES_MAX);
    for (size_t i = 0; i < key.len; i++) {
        FUZZ_CHECK(key.ptr[i] >= 0x20 && key.ptr[i] <= 0x7e);
    }
    struct identity id;
    FUZZ_CHECK(identity_make(&id, SLICE_LITERAL("scope"), key, NULL) == 0);

    struct buf quoted;
    buf_init(&quoted, 2 * LIMIT_KEY_BYTES_MAX + 2);
    FUZZ_CHECK(key_quote(&quoted, key) == 0);
    for (int syntax = KEY_LENIENT; syntax <= KEY_STRICT; syntax++) {
        struct slice again;
        FUZZ_CHECK(key_from_header(&again, buf_slice(&quoted), (enum key_syntax)syntax, arena, NULL) == 0);
        FUZZ_CHECK(slice_equal(again, key));
    }
    buf_free(&quoted);
}

/* Whatever the value, a control character in it has it refused, and nothing of it is told. */
static void check_discretion(struct slice value, struct arena *arena)
{
    static const char canary[] = "\x01"
                                 "Zq7Canary";
    struct buf text;
    buf_init(&text, value.len + sizeof canary);
    FUZZ_CHECK(buf_append_slice(&text, value) == 0 && buf_append_text(&text, canary) == 0);
    struct slice key;
    hapax_error err = {0};
    int rc = key_from_header(&key, buf_slice(&text), KEY_LENIENT, arena, &err);
    FUZZ_CHECK(rc == HAPAX_E_SYNTAX || rc == HAPAX_E_LIMIT);
    FUZZ_CHECK(err.code == rc && err.message[0] != '\0' && strstr(err.message, canary + 1) == NULL);
    buf_free(&text);
}

static void check_blanks(struct slice value, int expected, struct slice key, struct arena *arena)
{
    struct buf text;
    buf_init(&text, value.len + 3);
    FUZZ_CHECK(buf_append_text(&text, " ") == 0 && buf_append_slice(&text, value) == 0 &&
               buf_append_text(&text, "\t ") == 0);
    struct slice again;
    FUZZ_CHECK(key_from_header(&again, buf_slice(&text), KEY_LENIENT, arena, NULL) == expected);
    FUZZ_CHECK(expected != 0 || slice_equal(again, key));
    buf_free(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct slice value = slice_of(data, size);
    struct slice lenient = SLICE_NONE;
    struct slice strict = SLICE_NONE;
    hapax_error err = {0};
    struct arena arena;
    arena_init(&arena, 1 << 20);

    int rc = key_from_header(&lenient, value, KEY_LENIENT, &arena, &err);
    int strict_rc = key_from_header(&strict, value, KEY_STRICT, &arena, NULL);
    struct slice trimmed = slice_trim(value);
    if (trimmed.len > 0 && trimmed.ptr[0] == '"') {
        FUZZ_CHECK(rc == strict_rc && (rc != 0 || slice_equal(lenient, strict)));
    } else {
        FUZZ_CHECK(strict_rc == HAPAX_E_SYNTAX);
        FUZZ_CHECK(rc != 0 || slice_equal(lenient, trimmed));
    }
    FUZZ_CHECK(rc == 0 || !is_ordinary(value));
    if (rc == 0) {
        check_key(lenient, &arena);
    } else {
        FUZZ_CHECK((rc == HAPAX_E_SYNTAX || rc == HAPAX_E_LIMIT) && err.code == rc && slice_is_none(lenient));
    }
    check_blanks(value, rc, lenient, &arena);
    check_discretion(value, &arena);
    arena_free(&arena);
    return 0;
}
