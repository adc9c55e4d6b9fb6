#include "gateway/problem.h"

#include "base/clock.h"
#include "hapax/error.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

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
#define PROBLEM_INFO(name, type, status, retryable, after, marker, title)                                    \
    {type, status, retryable, after, MARK_##marker, title},
    PROBLEM_LIST(PROBLEM_INFO)
#undef PROBLEM_INFO
};

const struct problem_info *problem_info(enum problem p)
{
    return &infos[p];
}

static void set(json_t *object, const char *name, json_t *value)
{
    json_object_set_new(object, name,
                        value); /* NULL values fail and are left out; the dump then lacks a member */
}

int problem_body(struct buf *out, enum problem p, const char *detail, const struct problem_members *members)
{
    const struct problem_info *info = &infos[p];
    json_t *object = json_object();
    if (object == NULL) {
        return HAPAX_E_MEMORY;
    }
    char type[64];
    snprintf(type, sizeof type, PROBLEM_TYPE_PREFIX "%s", info->type);
    set(object, "type", json_string(type));
    set(object, "title", json_string(info->title));
    set(object, "status", json_integer(info->status));
    set(object, "detail", json_string(detail));
    set(object, "retryable", json_boolean(info->retryable));
    if (members != NULL && members->operation != NULL) {
        set(object, "operation", json_string(members->operation));
    }
    if (members != NULL && members->first_claimed_ms > 0) {
        char text[CLOCK_TEXT_MAX];
        clock_text(text, members->first_claimed_ms);
        set(object, "first_seen", json_string(text));
    }
    if (members != NULL && members->attempt > 0) {
        set(object, "attempt", json_integer(members->attempt));
    }
    if (members != NULL && members->original_status > 0) {
        set(object, "original_status", json_integer(members->original_status));
    }
    if (members != NULL && members->limit_bytes > 0) {
        set(object, "limit_bytes", json_integer(members->limit_bytes));
    }
    char *text = json_dumps(object, JSON_COMPACT);
    json_decref(object);
    if (text == NULL) {
        return HAPAX_E_MEMORY;
    }
    int rc = buf_append_text(out, text);
    free(text);
    return rc != 0 ? rc : buf_append_byte(out, '\n');
}
