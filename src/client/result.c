#include "client/result.h"

#include <stdlib.h>

/* Names and values with their NULs, and pointers to them: a line of 4 bytes takes 64. */
#define RESULT_BYTES_MAX (64U * HAPAX_CALL_HEAD_BYTES_MAX)

struct client_result *client_result_make(unsigned attempts_max)
{
    struct client_result *r = calloc(1, sizeof *r + attempts_max * sizeof *r->attempts);
    if (r != NULL) {
        arena_init(&r->arena, RESULT_BYTES_MAX);
        buf_init(&r->body, HAPAX_ANSWER_BYTES_MAX + 1U);
        r->shown.attempts = r->attempts;
        r->shown.body = "";
        r->shown.body_kept = 1;
    }
    return r;
}

int client_result_take_key(struct client_result *r, struct slice key)
{
    struct slice copy;
    int rc = arena_copy(&r->arena, key, &copy);
    r->shown.key = rc == 0 ? copy.ptr : NULL;
    return rc;
}

int client_result_take_names(struct client_result *r, const struct client_plan *plan)
{
    struct slice scope;
    struct slice name;
    int rc = plan->key != NULL ? client_result_take_key(r, slice_text(plan->key)) : 0;
    if (rc == 0 && plan->name != NULL) {
        rc = arena_copy(&r->arena, slice_text(plan->scope), &scope);
        rc = rc != 0 ? rc : arena_copy(&r->arena, slice_text(plan->name), &name);
        if (rc == 0) {
            r->shown.record_scope = scope.ptr;
            r->shown.record_key = name.ptr;
        }
    }
    return rc == 0 ? 0 : HAPAX_E_MEMORY;
}

static int take_headers(struct client_result *r, const struct kept *answer)
{
    hapax_call_header *headers = arena_array(&r->arena, answer->header_count + 1, sizeof *headers);
    int rc = headers != NULL ? 0 : HAPAX_E_MEMORY;
    for (size_t i = 0; i < answer->header_count && rc == 0; i++) {
        struct slice name;
        struct slice value;
        rc = arena_copy(&r->arena, answer->headers[i].name, &name);
        rc = rc != 0 ? rc : arena_copy(&r->arena, answer->headers[i].value, &value);
        if (rc == 0) {
            headers[i] = (hapax_call_header){name.ptr, value.ptr};
        }
    }
    r->shown.headers = headers;
    r->shown.header_count = answer->header_count;
    return rc;
}

int client_result_take_answer(struct client_result *r, const struct kept *answer)
{
    buf_clear(&r->body);
    int rc = take_headers(r, answer);
    rc = rc != 0 ? rc : buf_append_slice(&r->body, answer->body);
    rc = rc != 0 ? rc : buf_append_byte(&r->body, '\0');
    if (rc != 0) {
        r->shown.status = 0;
        r->shown.header_count = 0;
        r->shown.body = "";
        r->shown.body_bytes = 0;
        return HAPAX_E_MEMORY;
    }
    r->shown.status = answer->status;
    r->shown.body = r->body.ptr;
    r->shown.body_bytes = answer->body.len;
    r->shown.body_kept = !answer->cut;
    return 0;
}

void hapax_call_free(hapax_call_result *shown)
{
    struct client_result *r = (struct client_result *)shown;
    if (r != NULL) {
        arena_free(&r->arena);
        buf_free(&r->body);
        free(r);
    }
}

const char *hapax_call_end_name(hapax_call_end end)
{
    static const char *const names[] = {
        [HAPAX_CALL_END_ANSWERED] = "answered", [HAPAX_CALL_END_REPLAYED] = "replayed",
        [HAPAX_CALL_END_REJECTED] = "rejected", [HAPAX_CALL_END_MISMATCH] = "mismatch",
        [HAPAX_CALL_END_BUSY] = "busy",         [HAPAX_CALL_END_NOT_DONE] = "not-done",
        [HAPAX_CALL_END_UNKNOWN] = "unknown",   [HAPAX_CALL_END_HELD] = "held",
        [HAPAX_CALL_END_EXPIRED] = "expired",
    };
    size_t i = (size_t)end;
    return i > 0 && i < sizeof names / sizeof *names ? names[i] : "unknown-word";
}

const char *hapax_call_news_name(hapax_call_news news)
{
    static const char *const names[] = {
        [HAPAX_CALL_DEFINITE] = "definite", [HAPAX_CALL_NOTHING] = "nothing", [HAPAX_CALL_MAYBE] = "maybe",
        [HAPAX_CALL_REJECTED] = "rejected", [HAPAX_CALL_HELD] = "held",
    };
    size_t i = (size_t)news;
    return i > 0 && i < sizeof names / sizeof *names ? names[i] : "unknown-word";
}
