#include "base/units.h"

#include "hapax/error.h"

#include <inttypes.h>
#include <stdio.h>

struct unit {
    const char *name;
    uint64_t factor;
};

/* Largest first: the text functions take the first that divides. */
static const struct unit durations[] = {
    {"d", 86400000}, {"h", 3600000}, {"m", 60000}, {"s", 1000}, {"ms", 1},
};
static const struct unit sizes[] = {
    {"GiB", 1U << 30},  {"MiB", 1U << 20}, {"KiB", 1U << 10}, {"B", 1},
    {"GB", 1000000000}, {"MB", 1000000},   {"kB", 1000},
};
#define COUNT(a) (sizeof(a) / sizeof(a)[0])

/* Digits at the start of *text, which is moved past them. */
static int number(uint64_t *out, struct slice *text)
{
    uint64_t value = 0;
    size_t i = 0;
    for (; i < text->len && text->ptr[i] >= '0' && text->ptr[i] <= '9'; i++) {
        uint64_t digit = (uint64_t)(text->ptr[i] - '0');
        if (value > (UINT64_MAX - digit) / 10) {
            return HAPAX_E_SYNTAX;
        }
        value = value * 10 + digit;
    }
    if (i == 0) {
        return HAPAX_E_SYNTAX;
    }
    *text = slice_from(*text, i);
    *out = value;
    return 0;
}

static int scaled(uint64_t *out, struct slice text, const struct unit *units, size_t n, bool bare)
{
    uint64_t value;
    int rc = number(&value, &text);
    if (rc != 0) {
        return rc;
    }
    if (text.len == 0 && (bare || value == 0)) {
        *out = value;
        return 0;
    }
    for (size_t i = 0; i < n; i++) {
        if (slice_equal(text, slice_text(units[i].name))) {
            if (value > INT64_MAX / units[i].factor) {
                return HAPAX_E_SYNTAX;
            }
            *out = value * units[i].factor;
            return 0;
        }
    }
    return HAPAX_E_SYNTAX;
}

int units_duration_ms(int64_t *out, struct slice text)
{
    uint64_t ms;
    int rc = scaled(&ms, text, durations, COUNT(durations), false);
    if (rc == 0) {
        *out = (int64_t)ms;
    }
    return rc;
}

int units_size_bytes(uint64_t *out, struct slice text)
{
    return scaled(out, text, sizes, COUNT(sizes), true);
}

int units_u64(uint64_t *out, struct slice text)
{
    uint64_t value;
    int rc = number(&value, &text);
    if (rc == 0 && text.len == 0) {
        *out = value;
        return 0;
    }
    return HAPAX_E_SYNTAX;
}

static void largest_unit(char *out, uint64_t value, const struct unit *units, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (value > 0 && value % units[i].factor == 0) {
            snprintf(out, UNITS_TEXT_MAX, "%" PRIu64 "%s", value / units[i].factor, units[i].name);
            return;
        }
    }
    snprintf(out, UNITS_TEXT_MAX, "0");
}

void units_duration_text(char *out, int64_t ms)
{
    largest_unit(out, ms > 0 ? (uint64_t)ms : 0, durations, COUNT(durations));
}

void units_size_text(char *out, uint64_t bytes)
{
    largest_unit(out, bytes, sizes, 4); /* powers of 1024 only: the first four */
}
