#include "run/key_template.h"

#include "base/error.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define ZONE_FOLDER "/usr/share/zoneinfo"
#define ZONE_MARK   "TZif" /* how a file of zone data begins: RFC 9636 */

static int append(struct buf *out, const char *text, size_t bytes, hapax_error *err)
{
    int code = buf_append(out, text, bytes);
    if (code == HAPAX_E_LIMIT) {
        return error_set(err, code, 0, "the key is longer than %zu bytes", out->len_max);
    }
    return code != 0 ? error_code(err, code) : 0;
}

/* --- zones --------------------------------------------------------------------------------------- */

/* "Europe/Berlin", "Etc/GMT+1": nothing that leads out of the zones' folder. */
static bool is_zone_name(const char *zone)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_+-/";
    return zone[0] != '\0' && zone[0] != '/' && zone[strspn(zone, allowed)] == '\0';
}

/* The C library takes UTC for a zone it does not find, without a word: so its file is looked at before. */
static int check_zone(const char *zone, hapax_error *err)
{
    const char *folder = getenv("TZDIR");
    folder = folder != NULL && folder[0] != '\0' ? folder : ZONE_FOLDER;
    if (!is_zone_name(zone)) {
        return error_set(err, HAPAX_E_SYNTAX, 0, "'%s' is not the name of a time zone, such as Asia/Shanghai",
                         zone);
    }
    if (access(folder, R_OK) != 0) {
        return error_set(err, HAPAX_E_NOT_FOUND, errno,
                         "there are no time zones in %s: install the package tzdata", folder);
    }
    char path[1024];
    char mark[sizeof ZONE_MARK - 1] = {0};
    int length = snprintf(path, sizeof path, "%s/%s", folder, zone);
    FILE *file = length > 0 && (size_t)length < sizeof path ? fopen(path, "re") : NULL;
    bool found = file != NULL && fread(mark, 1, sizeof mark, file) == sizeof mark &&
                 memcmp(mark, ZONE_MARK, sizeof mark) == 0;
    if (file != NULL) {
        fclose(file);
    }
    return found ? 0 : error_set(err, HAPAX_E_NOT_FOUND, 0, "there is no time zone %s in %s", zone, folder);
}

static int zone_time(struct tm *out, time_t instant, const char *zone, hapax_error *err)
{
    if (zone == NULL) {
        return gmtime_r(&instant, out) != NULL ? 0 : error_code(err, HAPAX_E_SYSTEM);
    }
    int code = check_zone(zone, err);
    if (code != 0) {
        return code;
    }
    const char *set = getenv("TZ");
    char *before = set != NULL ? strdup(set) : NULL;
    if (set != NULL && before == NULL) {
        return error_code(err, HAPAX_E_MEMORY);
    }
    code = setenv("TZ", zone, 1) == 0 ? 0 : error_code(err, HAPAX_E_MEMORY);
    if (code == 0) {
        tzset();
        code = localtime_r(&instant, out) != NULL ? 0 : error_code(err, HAPAX_E_SYSTEM);
        int back = before != NULL ? setenv("TZ", before, 1) : unsetenv("TZ");
        tzset();
        code = back == 0 ? code : error_code(err, HAPAX_E_MEMORY);
    }
    free(before);
    return code;
}

/* --- dates --------------------------------------------------------------------------------------- */

static int check_format(const char *format, hapax_error *err)
{
    /* Of strftime(3): without line breaks and what depends on the language. */
    static const char known[] = "aAbBCdDeFgGhHIjklmMpPrRSTuUVwWyY%";
    static const char apart[] = "zZs";
    if (format[0] == '\0') {
        return error_set(err, HAPAX_E_SYNTAX, 0, "the date has no format: write {date:%%Y-%%m-%%d}");
    }
    for (const char *c = strchr(format, '%'); c != NULL; c = strchr(c + 2, '%')) {
        if (c[1] != '\0' && strchr(apart, c[1]) != NULL) {
            return error_set(
                err, HAPAX_E_SYNTAX, 0,
                "%%%c can't be in a key: it tells an hour that comes twice apart, so that it would run "
                "twice. For two runs leave the zone out: UTC has no such hour",
                c[1]);
        }
        if (c[1] == '\0' || strchr(known, c[1]) == NULL) {
            return error_set(err, HAPAX_E_SYNTAX, 0, "%%%.1s is no conversion of dates; there are %s", c + 1,
                             known);
        }
    }
    return 0;
}

/* The inside of {date:...}: FORMAT or FORMAT@ZONE. */
static int append_date(struct buf *out, struct slice inside, int64_t wall_ms, hapax_error *err)
{
    char format[RUN_FORMAT_BYTES_MAX + 1] = {0};
    char zone[RUN_ZONE_BYTES_MAX + 1] = {0};
    const char *at = inside.len > 0 ? memrchr(inside.ptr, '@', inside.len) : NULL;
    size_t format_bytes = at != NULL ? (size_t)(at - inside.ptr) : inside.len;
    struct slice name = at != NULL ? slice_from(inside, format_bytes + 1) : SLICE_NONE;
    if (format_bytes > RUN_FORMAT_BYTES_MAX || name.len > RUN_ZONE_BYTES_MAX) {
        return error_set(err, HAPAX_E_LIMIT, 0, "a date's format has at most %d bytes, its zone %d",
                         RUN_FORMAT_BYTES_MAX, RUN_ZONE_BYTES_MAX);
    }
    memcpy(format, inside.ptr, format_bytes);
    if (name.len > 0) {
        memcpy(zone, name.ptr, name.len);
    }
    int code = check_format(format, err);
    time_t instant = (time_t)(wall_ms / 1000 - (wall_ms % 1000 < 0));
    struct tm date;
    code = code != 0 ? code : zone_time(&date, instant, at != NULL ? zone : NULL, err);
    if (code != 0) {
        return code;
    }
    char text[16 * RUN_FORMAT_BYTES_MAX];
    size_t length = strftime(text, sizeof text, format, &date);
    return append(out, text, length, err);
}

/* --- templates ----------------------------------------------------------------------------------- */

/* What stands in braces; `rest` begins behind the first one. *used is up to and with the last one. */
static int append_braces(struct buf *out, const char *rest, size_t *used, int64_t wall_ms, hapax_error *err)
{
    const char *end = strchr(rest, '}');
    if (end == NULL) {
        return error_set(err, HAPAX_E_SYNTAX, 0,
                         "a { of the key is not closed; a brace itself is written {{");
    }
    struct slice inside = {rest, (size_t)(end - rest)};
    *used = inside.len + 1;
    if (slice_starts_with(inside, SLICE_LITERAL("date:"))) {
        return append_date(out, slice_from(inside, strlen("date:")), wall_ms, err);
    }
    return error_set(err, HAPAX_E_SYNTAX, 0,
                     "{%.*s} stands for nothing: there is {date:FORMAT@ZONE}; a brace itself is written {{",
                     (int)(inside.len < 64 ? inside.len : 64), inside.ptr);
}

int run_key_expand(struct buf *out, const char *template, int64_t wall_ms, hapax_error *err)
{
    if (strlen(template) > RUN_TEMPLATE_BYTES_MAX) {
        return error_set(err, HAPAX_E_LIMIT, 0, "the key is longer than %d bytes", RUN_TEMPLATE_BYTES_MAX);
    }
    int code = 0;
    for (const char *c = template; code == 0 && *c != '\0';) {
        size_t used = 0;
        if (c[0] == '{' && c[1] != '{') {
            code = append_braces(out, c + 1, &used, wall_ms, err);
            c += 1 + used;
        } else {
            code = append(out, c, 1, err);
            c += c[0] == '{' ? 2 : 1;
        }
    }
    return code;
}
