/* Key values: the checks, and header values in the syntax of RFC 8941 (Structured Field Values) or
 * bare. No message ever repeats a value: they end up in logs and in answers to strangers. */
#include "core/key_value.h"

#include "base/error.h"
#include "base/limits.h"
#include "core/key.h"

enum { NAME_SHOWN_BYTES = 64 }; /* leaves room for the advice in a message */

int key_refuse(hapax_error *err, int code, const struct key_place *place, const char *why)
{
    struct slice name = place->name;
    bool cut = name.len > NAME_SHOWN_BYTES;
    name.len = cut ? NAME_SHOWN_BYTES : name.len;
    return error_set(err, code, 0, "%s%.*s%s %s", place->what, SLICE_FORMAT(name), cut ? "..." : "", why);
}

bool key_is_printable(struct slice text)
{
    for (size_t i = 0; i < text.len; i++) {
        if (text.ptr[i] < 0x20 || text.ptr[i] > 0x7e) {
            return false;
        }
    }
    return true;
}

static bool contains(struct slice text, struct slice piece)
{
    /* The first byte is nearly never there, and memchr is much the faster of the two. */
    return memchr(text.ptr, piece.ptr[0], text.len) != NULL &&
           memmem(text.ptr, text.len, piece.ptr, piece.len) != NULL;
}

/* What a template or a language writes when the value was not there. */
static bool is_placeholder(struct slice text)
{
    static const struct slice words[] = {
        {"undefined", 9}, {"null", 4}, {"none", 4}, {"nil", 3}, {"nan", 3},
    };
    static const struct slice pieces[] = {
        {"{{", 2},
        {"}}", 2},
        {"${", 2},
        {"[object Object]", 15},
    };
    if (text.ptr[0] == '<' && text.ptr[text.len - 1] == '>') {
        return true;
    }
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (slice_equal_nocase(text, words[i])) {
            return true;
        }
    }
    for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++) {
        if (contains(text, pieces[i])) {
            return true;
        }
    }
    return false;
}

int key_check_meaning(struct slice text, const struct key_place *place, hapax_error *err)
{
    text = slice_trim(text);
    if (text.len == 0) {
        return key_refuse(err, HAPAX_E_SYNTAX, place,
                          "is blank: send a value that names the operation and stays the same on retries");
    }
    if (is_placeholder(text)) {
        return key_refuse(err, HAPAX_E_SYNTAX, place,
                          "is a placeholder that was never filled in (such as undefined, null, {{...}} or "
                          "[object Object]): check the expression that builds it");
    }
    return 0;
}

static int refuse_length(const struct key_place *place, hapax_error *err)
{
    return key_refuse(err, HAPAX_E_LIMIT, place, "is longer than 255 bytes: send a shorter one");
}
_Static_assert(LIMIT_KEY_BYTES_MAX == 255, "the message above names it");

int key_check(struct slice text, const struct key_place *place, hapax_error *err)
{
    if (text.len > LIMIT_KEY_BYTES_MAX) {
        return refuse_length(place, err);
    }
    int rc = key_check_meaning(text, place, err);
    if (rc == 0 && !key_is_printable(text)) {
        rc = key_refuse(
            err, HAPAX_E_SYNTAX, place,
            "holds something other than printable ASCII (0x20 to 0x7E): leave it out or encode it");
    }
    return rc;
}

/* RFC 8941. A scan returns the offset after what it read, or SCAN_FAILED. */

#define SCAN_FAILED SIZE_MAX

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_lower(char c)
{
    return c >= 'a' && c <= 'z';
}

static bool is_alpha(char c)
{
    return is_lower(ascii_lower(c));
}

static char at(struct slice s, size_t i)
{
    return i < s.len ? s.ptr[i] : '\0';
}

/* From the opening quote to after the closing one. */
static size_t scan_string(struct slice s, size_t i, bool *escaped)
{
    *escaped = false;
    for (i++; i < s.len; i++) {
        char c = s.ptr[i];
        if (c == '"') {
            return i + 1;
        }
        if (c == '\\') {
            *escaped = true;
            i++;
            if (at(s, i) != '"' && at(s, i) != '\\') {
                return SCAN_FAILED;
            }
        } else if (c < 0x20 || c > 0x7e) {
            return SCAN_FAILED;
        }
    }
    return SCAN_FAILED;
}

static size_t scan_digits(struct slice s, size_t i)
{
    while (is_digit(at(s, i))) {
        i++;
    }
    return i;
}

/* An integer of at most 15 digits, or a decimal of at most 12 and 3. */
static size_t scan_number(struct slice s, size_t i)
{
    size_t start = at(s, i) == '-' ? i + 1 : i;
    size_t point = scan_digits(s, start);
    if (at(s, point) != '.') {
        return point > start && point - start <= 15 ? point : SCAN_FAILED;
    }
    size_t end = scan_digits(s, point + 1);
    bool fits = point > start && point - start <= 12 && end > point + 1 && end - point - 1 <= 3;
    return fits ? end : SCAN_FAILED;
}

static size_t scan_token(struct slice s, size_t i)
{
    static const char marks[] = "!#$%&'*+-.^_`|~:/";
    i++;
    while (i < s.len &&
           (is_alpha(s.ptr[i]) || is_digit(s.ptr[i]) || memchr(marks, s.ptr[i], sizeof marks - 1) != NULL)) {
        i++;
    }
    return i;
}

static size_t scan_bytes(struct slice s, size_t i)
{
    for (i++; i < s.len; i++) {
        char c = s.ptr[i];
        if (c == ':') {
            return i + 1;
        }
        if (!is_alpha(c) && !is_digit(c) && c != '+' && c != '/' && c != '=') {
            return SCAN_FAILED;
        }
    }
    return SCAN_FAILED;
}

static size_t scan_bare_item(struct slice s, size_t i)
{
    char c = at(s, i);
    bool escaped;
    if (c == '"') {
        return scan_string(s, i, &escaped);
    }
    if (c == '-' || is_digit(c)) {
        return scan_number(s, i);
    }
    if (c == '*' || is_alpha(c)) {
        return scan_token(s, i);
    }
    if (c == ':') {
        return scan_bytes(s, i);
    }
    if (c == '?' && (at(s, i + 1) == '0' || at(s, i + 1) == '1')) {
        return i + 2;
    }
    return SCAN_FAILED;
}

/* `;name` or `;name=item`, any number of them. */
static size_t scan_parameters(struct slice s, size_t i)
{
    while (at(s, i) == ';') {
        i++;
        while (at(s, i) == ' ') {
            i++;
        }
        if (!is_lower(at(s, i)) && at(s, i) != '*') {
            return SCAN_FAILED;
        }
        while (is_lower(at(s, i)) || is_digit(at(s, i)) || at(s, i) == '_' || at(s, i) == '-' ||
               at(s, i) == '.' || at(s, i) == '*') {
            i++;
        }
        if (at(s, i) == '=') {
            i = scan_bare_item(s, i + 1);
            if (i == SCAN_FAILED) {
                return SCAN_FAILED;
            }
        }
    }
    return i;
}

/* Copy a string's inside without its escapes. A checked one: each backslash has its partner. */
static int unescape(struct slice *out, struct slice inside, const struct key_place *place,
                    struct arena *arena, hapax_error *err)
{
    char text[LIMIT_KEY_BYTES_MAX];
    size_t len = 0;
    for (size_t i = 0; i < inside.len; i++) {
        i += inside.ptr[i] == '\\';
        if (len == sizeof text) {
            return refuse_length(place, err);
        }
        text[len++] = inside.ptr[i];
    }
    int rc = arena_copy(arena, (struct slice){text, len}, out);
    return rc != 0 ? error_code(err, rc) : 0;
}

static int parse_quoted(struct slice *out, struct slice value, const struct key_place *place,
                        struct arena *arena, hapax_error *err)
{
    bool escaped = false;
    size_t end = scan_string(value, 0, &escaped);
    if (end == SCAN_FAILED) {
        return key_refuse(err, HAPAX_E_SYNTAX, place,
                          "starts with a double quote but is no valid quoted string: close the quote, put a "
                          "backslash before \" and \\ only, and use printable ASCII");
    }
    size_t after = scan_parameters(value, end);
    if (after != value.len) {
        bool list = after != SCAN_FAILED && value.ptr[after] == ',';
        return key_refuse(err, HAPAX_E_SYNTAX, place,
                          list ? "is followed by a comma: send one value, not a list"
                               : "is followed by something that is no valid parameter: send the quoted "
                                 "string alone");
    }
    struct slice inside = {value.ptr + 1, end - 2};
    if (!escaped) {
        *out = inside;
        return 0;
    }
    return unescape(out, inside, place, arena, err);
}

int key_from_header(struct slice *out, struct slice value, enum key_syntax syntax, struct arena *arena,
                    hapax_error *err)
{
    static const struct key_place place = {"the key", {"", 0}};
    struct slice key = slice_trim(value);
    if (key.len > 0 && key.ptr[0] == '"') {
        int rc = parse_quoted(&key, key, &place, arena, err);
        if (rc != 0) {
            return rc;
        }
    } else if (key.len > 0 && syntax == KEY_STRICT) {
        return key_refuse(err, HAPAX_E_SYNTAX, &place,
                          "has to be a quoted string (RFC 8941): put it in double quotes");
    }
    int rc = key_check(key, &place, err);
    if (rc == 0) {
        *out = key;
    }
    return rc;
}
