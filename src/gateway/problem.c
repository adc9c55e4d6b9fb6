#include "gateway/problem.h"

#include "base/buf.h"
#include "base/clock.h"
#include "core/utf8.h"

#include <inttypes.h>

static const char *const marker_names[MARK_COUNT] = {
    [MARK_NONE] = NULL,           [MARK_EXECUTED] = "executed",       [MARK_REPLAYED] = "replayed",
    [MARK_ATTACHED] = "attached", [MARK_UNPROTECTED] = "unprotected", [MARK_HELD] = "held",
    [MARK_UNKNOWN] = "unknown",   [MARK_RELEASED] = "released",       [MARK_IN_PROGRESS] = "in-progress",
    [MARK_REJECTED] = "rejected",
};

const char *marker_name(enum marker m)
{
    return marker_names[m];
}

static const struct problem_info infos[PROBLEM_COUNT] = {
#define PROBLEM_INFO(name, type, status, again, after, marker, title)                                        \
    {type, status, AGAIN_##again, after, MARK_##marker, title},
    PROBLEM_LIST(PROBLEM_INFO)
#undef PROBLEM_INFO
};

const struct problem_info *problem_info(enum problem p)
{
    return &infos[p];
}

bool problem_retryable(enum problem p, bool harmless, bool asks)
{
    switch (infos[p].again) {
    case AGAIN_NO:
        break;
    case AGAIN_YES:
        return true;
    case AGAIN_IF_HARMLESS:
        return harmless;
    case AGAIN_BY_ROUTE:
        return asks;
    }
    return false;
}

/* --- The document. ---
 *
 * Written by hand and into storage of fixed size: a problem that says "out of memory" must not need any. */

enum { PROBLEM_DETAIL_BYTES_MAX = 512 }; /* six times as much when all of it is escaped */
_Static_assert(6 * PROBLEM_DETAIL_BYTES_MAX + 512 <= PROBLEM_BYTES_MAX, "a problem has room");

static void append_character(struct buf *out, const char *ptr, size_t len)
{
    unsigned char c = (unsigned char)ptr[0];
    if (len == 0) {
        buf_append_byte(out, '?'); /* no UTF-8 */
    } else if (c < 0x20) {
        buf_printf(out, "\\u%04x", c);
    } else {
        buf_append_text(out, c == '"' || c == '\\' ? "\\" : "");
        buf_append(out, ptr, len);
    }
}

static void append_string(struct buf *out, struct slice text)
{
    buf_append_byte(out, '"');
    for (size_t i = 0; i < text.len;) {
        size_t len = utf8_length(text.ptr + i, text.len - i);
        append_character(out, text.ptr + i, len);
        i += len > 0 ? len : 1;
    }
    buf_append_byte(out, '"');
}

static void append_text_member(struct buf *out, const char *name, const char *value)
{
    buf_printf(out, ",\"%s\":", name);
    append_string(out, slice_text(value));
}

static void append_number_member(struct buf *out, const char *name, int64_t value)
{
    buf_printf(out, ",\"%s\":%" PRId64, name, value);
}

static void append_members(struct buf *out, const struct problem_members *m)
{
    if (m->operation != NULL) {
        append_text_member(out, "operation", m->operation);
    }
    if (m->first_claimed_ms > 0) {
        char text[CLOCK_TEXT_MAX];
        clock_text(text, m->first_claimed_ms);
        append_text_member(out, "first_seen", text);
    }
    if (m->attempt > 0) {
        append_number_member(out, "attempt", m->attempt);
    }
    if (m->original_status > 0) {
        append_number_member(out, "original_status", m->original_status);
    }
    if (m->limit_bytes > 0) {
        append_number_member(out, "limit_bytes", m->limit_bytes);
    }
}

struct slice problem_body(char storage[PROBLEM_BYTES_MAX], enum problem p, const char *detail, bool retryable,
                          const struct problem_members *members)
{
    const struct problem_info *info = &infos[p];
    struct slice said = slice_text(detail);
    said.len = said.len < PROBLEM_DETAIL_BYTES_MAX ? said.len : PROBLEM_DETAIL_BYTES_MAX;
    struct buf out;
    buf_init_on(&out, storage, PROBLEM_BYTES_MAX);
    buf_append_text(&out, "{\"type\":\"" PROBLEM_TYPE_PREFIX);
    buf_append_text(&out, info->type);
    buf_append_byte(&out, '"');
    append_text_member(&out, "title", info->title);
    append_number_member(&out, "status", info->status);
    buf_append_text(&out, ",\"detail\":");
    append_string(&out, said);
    buf_append_text(&out, retryable ? ",\"retryable\":true" : ",\"retryable\":false");
    if (members != NULL) {
        append_members(&out, members);
    }
    buf_append_text(&out, "}\n");
    return buf_slice(&out);
}
