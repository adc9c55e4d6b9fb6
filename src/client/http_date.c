/* Retry-After and HTTP-dates: RFC 9110 sections 10.2.3 and 5.6.7. */
#include "base/units.h"
#include "client/retry.h"

#include <time.h>

#define YEARS_AHEAD_MAX 50

struct reader {
    struct slice rest;
    bool bad;
};

static void skip(struct reader *r, struct slice text)
{
    if (slice_starts_with(r->rest, text)) {
        r->rest = slice_from(r->rest, text.len);
    } else {
        r->bad = true;
    }
}

/* Exactly n digits; a blank counts as a leading zero where asctime() writes one. */
static int digits(struct reader *r, size_t n, bool blank_first)
{
    int value = 0;
    for (size_t i = 0; i < n; i++) {
        char c = i < r->rest.len ? r->rest.ptr[i] : '\0';
        if (c >= '0' && c <= '9') {
            value = value * 10 + (c - '0');
        } else if (!(c == ' ' && blank_first && i == 0)) {
            r->bad = true;
        }
    }
    r->rest = slice_from(r->rest, n);
    return value;
}

/* One of the names, by its place. */
static int name(struct reader *r, const char *names, size_t width, int count)
{
    for (int i = 0; i < count && r->rest.len >= width; i++) {
        if (memcmp(r->rest.ptr, names + (size_t)i * width, width) == 0) {
            r->rest = slice_from(r->rest, width);
            return i;
        }
    }
    r->bad = true;
    return 0;
}

static int month(struct reader *r)
{
    return name(r, "JanFebMarAprMayJunJulAugSepOctNovDec", 3, 12);
}

static void clock_of(struct reader *r, struct tm *t)
{
    t->tm_hour = digits(r, 2, false);
    skip(r, SLICE_LITERAL(":"));
    t->tm_min = digits(r, 2, false);
    skip(r, SLICE_LITERAL(":"));
    t->tm_sec = digits(r, 2, false);
}

/* "Sun, 06 Nov 1994 08:49:37 GMT" */
static void read_fixdate(struct reader *r, struct tm *t)
{
    skip(r, SLICE_LITERAL(", "));
    t->tm_mday = digits(r, 2, false);
    skip(r, SLICE_LITERAL(" "));
    t->tm_mon = month(r);
    skip(r, SLICE_LITERAL(" "));
    t->tm_year = digits(r, 4, false) - 1900;
    skip(r, SLICE_LITERAL(" "));
    clock_of(r, t);
    skip(r, SLICE_LITERAL(" GMT"));
}

/* "Sun Nov  6 08:49:37 1994" */
static void read_asctime(struct reader *r, struct tm *t)
{
    skip(r, SLICE_LITERAL(" "));
    t->tm_mon = month(r);
    skip(r, SLICE_LITERAL(" "));
    t->tm_mday = digits(r, 2, true);
    skip(r, SLICE_LITERAL(" "));
    clock_of(r, t);
    skip(r, SLICE_LITERAL(" "));
    t->tm_year = digits(r, 4, false) - 1900;
}

/* "Sunday, 06-Nov-94 08:49:37 GMT"; true: the year has two digits. */
static bool read_rfc850(struct reader *r, struct tm *t)
{
    const char *comma = r->rest.len > 0 ? memchr(r->rest.ptr, ',', r->rest.len) : NULL;
    size_t rest_of_name = comma != NULL ? (size_t)(comma - r->rest.ptr) : 0;
    if (comma == NULL || rest_of_name > sizeof "nesday" - 1) {
        r->bad = true;
        return false;
    }
    r->rest = slice_from(r->rest, rest_of_name);
    skip(r, SLICE_LITERAL(", "));
    t->tm_mday = digits(r, 2, false);
    skip(r, SLICE_LITERAL("-"));
    t->tm_mon = month(r);
    skip(r, SLICE_LITERAL("-"));
    t->tm_year = digits(r, 2, false);
    skip(r, SLICE_LITERAL(" "));
    clock_of(r, t);
    skip(r, SLICE_LITERAL(" GMT"));
    return true;
}

static void choose_century(struct tm *t, int64_t now_wall_ms)
{
    time_t now = (time_t)(now_wall_ms / 1000);
    struct tm today;
    if (gmtime_r(&now, &today) == NULL) {
        return;
    }
    int century = (today.tm_year + 1900) / 100 * 100;
    int year = century + t->tm_year;
    year -= year > today.tm_year + 1900 + YEARS_AHEAD_MAX ? 100 : 0;
    t->tm_year = year - 1900;
}

bool http_date_ms(int64_t *out, struct slice text, int64_t now_wall_ms)
{
    struct reader r = {.rest = slice_trim(text)};
    struct tm t = {0};
    (void)name(&r, "MonTueWedThuFriSatSun", 3, 7);
    if (r.bad) {
        return false;
    }
    if (slice_starts_with(r.rest, SLICE_LITERAL(","))) {
        read_fixdate(&r, &t);
    } else if (slice_starts_with(r.rest, SLICE_LITERAL(" "))) {
        read_asctime(&r, &t);
    } else if (read_rfc850(&r, &t)) {
        choose_century(&t, now_wall_ms);
    }
    bool in_range = t.tm_mday >= 1 && t.tm_mday <= 31 && t.tm_hour < 24 && t.tm_min < 60 && t.tm_sec <= 60;
    if (r.bad || r.rest.len > 0 || !in_range) {
        return false;
    }
    *out = (int64_t)timegm(&t) * 1000;
    return true;
}

static size_t leading_digits(struct slice text)
{
    size_t n = 0;
    while (n < text.len && text.ptr[n] >= '0' && text.ptr[n] <= '9') {
        n++;
    }
    return n;
}

bool retry_after_ms(int64_t *out, struct slice value, struct slice date, int64_t now_wall_ms)
{
    uint64_t seconds = 0;
    int64_t at;
    int64_t from;
    value = slice_trim(value);
    if (value.len > 0 && leading_digits(value) == value.len) {
        bool fits = units_u64(&seconds, value) == 0;
        *out = fits && seconds < RETRY_AFTER_MS_MAX / 1000 ? (int64_t)seconds * 1000 : RETRY_AFTER_MS_MAX;
        return true;
    }
    if (!http_date_ms(&at, value, now_wall_ms)) {
        return false;
    }
    if (slice_is_none(date) || !http_date_ms(&from, date, now_wall_ms)) {
        from = now_wall_ms;
    }
    int64_t ms = at - from;
    *out = ms < 0 ? 0 : ms < RETRY_AFTER_MS_MAX ? ms : RETRY_AFTER_MS_MAX;
    return true;
}
