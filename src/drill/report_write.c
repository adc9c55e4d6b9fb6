#include "drill/report_write.h"

#include "base/assert.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static void append(struct report_writer *w, const char *ptr, size_t len)
{
    if (w->code == 0) {
        w->code = buf_append(w->out, ptr, len);
    }
}

void report_put(struct report_writer *w, const char *text)
{
    append(w, text, strlen(text));
}

void report_printf(struct report_writer *w, const char *format, ...)
{
    char text[REPORT_FORMATTED_MAX];
    va_list args;
    va_start(args, format);
    int len = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    HAPAX_ASSERT(len >= 0 && (size_t)len < sizeof text);
    append(w, text, (size_t)len);
}

size_t report_character(const char *text)
{
    const unsigned char *p = (const unsigned char *)text;
    if (p[0] < 0x80) {
        return p[0] >= 0x20 && p[0] != 0x7f ? 1 : 0;
    }
    size_t len = p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : 2;
    uint32_t code = p[0] & (0xffU >> (len + 1));
    for (size_t i = 1; i < len; i++) {
        if ((p[i] & 0xc0) != 0x80) {
            return 0; /* the NUL at the end is none either: nothing past it is read */
        }
        code = code << 6 | (p[i] & 0x3f);
    }
    static const uint32_t least[] = {[2] = 0xa0, [3] = 0x800, [4] = 0x10000}; /* no C1, no overlong forms */
    bool allowed = p[0] >= 0xc2 && code >= least[len] && code <= 0x10ffff &&
                   (code < 0xd800 || code > 0xdfff) && code != 0xfffe && code != 0xffff && code != 0x2028 &&
                   code != 0x2029;
    return allowed ? len : 0;
}

static const char *entity(char c)
{
    switch (c) {
    case '&':
        return "&amp;";
    case '<':
        return "&lt;";
    case '>':
        return "&gt;";
    case '"':
        return "&quot;";
    case '\'':
        return "&#39;";
    default:
        return NULL;
    }
}

void report_put_markup(struct report_writer *w, const char *text)
{
    for (const char *p = text; *p != '\0' && w->code == 0;) {
        size_t len = report_character(p);
        const char *instead = len == 0 ? REPORT_REPLACEMENT : entity(*p);
        if (instead != NULL) {
            report_put(w, instead);
        } else {
            append(w, p, len);
        }
        p += len == 0 ? 1 : len;
    }
}

void report_put_escaped(struct report_writer *w, const char *text, const char *special)
{
    for (const char *p = text; *p != '\0' && w->code == 0;) {
        size_t len = report_character(p);
        if (len == 0) {
            report_put(w, REPORT_REPLACEMENT);
        } else {
            report_put(w, len == 1 && strchr(special, *p) != NULL ? "\\" : "");
            append(w, p, len);
        }
        p += len == 0 ? 1 : len;
    }
}

void report_put_expected(struct report_writer *w, const struct drill_case *c)
{
    if (c->effects_least < 0) {
        report_put(w, "any");
    } else if (c->effects_least == c->effects_most) {
        report_printf(w, "%" PRId64, c->effects_least);
    } else {
        report_printf(w, "%" PRId64 " to %" PRId64, c->effects_least, c->effects_most);
    }
}

void report_put_seen(struct report_writer *w, const struct drill_case *c)
{
    if (c->effects_seen < 0) {
        report_put(w, "not counted");
    } else {
        report_printf(w, "%" PRId64, c->effects_seen);
    }
}

void report_put_statuses(struct report_writer *w, const struct drill_case *c)
{
    if (c->status_count == 0) {
        report_put(w, "none");
    }
    for (size_t i = 0; i < c->status_count; i++) {
        const struct drill_status *s = &c->statuses[i];
        report_put(w, i > 0 ? ", " : "");
        if (s->status == 0) {
            report_put(w, "unanswered");
        } else {
            report_printf(w, "%d", s->status);
        }
        report_printf(w, " x %u", s->times);
    }
}

void report_put_instant(struct report_writer *w, int64_t wall_ms)
{
    time_t seconds = (time_t)(wall_ms / 1000);
    struct tm tm;
    if (gmtime_r(&seconds, &tm) == NULL) {
        report_put(w, "unknown");
        return;
    }
    report_printf(w, "%04d-%02d-%02dT%02d:%02d:%02dZ", tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday,
                  tm.tm_hour, tm.tm_min, tm.tm_sec);
}

void report_put_seconds(struct report_writer *w, int64_t ms)
{
    report_printf(w, "%" PRId64 ".%03d", ms / 1000, (int)(ms % 1000));
}
