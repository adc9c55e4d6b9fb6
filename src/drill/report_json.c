/* The report as one JSON document, in the words of the other formats. */
#include "drill/drill.h"

#include "base/clock.h"
#include "base/error.h"

#include <jansson.h>

static json_t *number_or_null(int64_t value)
{
    return value < 0 ? json_null() : json_integer(value);
}

static json_t *statuses_of(const struct drill_case *c)
{
    json_t *list = json_array();
    for (size_t i = 0; i < c->status_count; i++) {
        if (json_array_append_new(list, json_pack("{s:i, s:i}", "status", c->statuses[i].status, "times",
                                                  (int)c->statuses[i].times)) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

/* null for cases outside of the matrix */
static json_t *axes_of(const struct drill_case *c)
{
    if (c->group != DRILL_MATRIX) {
        return json_null();
    }
    json_t *axes = json_object();
    for (unsigned axis = 0; axis < DRILL_AXES; axis++) {
        const char *value = drill_value_word((enum drill_axis)axis, c->at[axis]);
        if (json_object_set_new(axes, drill_axis_word((enum drill_axis)axis), json_string(value)) != 0) {
            json_decref(axes);
            return NULL;
        }
    }
    return axes;
}

static json_t *case_of(const struct drill_case *c)
{
    return json_pack("{s:s, s:s, s:s, s:o, s:s, s:s, s:{s:o, s:o, s:o}, s:o, s:i, s:s, s:I}", "id", c->id,
                     "title", c->title, "group", drill_group_word(c->group), "axes", axes_of(c), "verdict",
                     drill_verdict_word(c->verdict), "what", c->what, "effects", "least",
                     number_or_null(c->effects_least), "most", number_or_null(c->effects_most), "seen",
                     number_or_null(c->effects_seen), "statuses", statuses_of(c), "requests",
                     (int)c->requests, "curl", c->curl, "duration_ms", (json_int_t)c->duration_ms);
}

static json_t *cases_of(const struct drill_report *r)
{
    json_t *list = json_array();
    for (size_t i = 0; i < r->case_count; i++) {
        if (json_array_append_new(list, case_of(&r->cases[i])) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

static json_t *tally_of(const struct drill_report *r)
{
    json_t *tally = json_object();
    for (unsigned v = 0; v < DRILL_VERDICTS; v++) {
        if (json_object_set_new(tally, drill_verdict_word((enum drill_verdict)v),
                                json_integer((json_int_t)r->tally[v])) != 0) {
            json_decref(tally);
            return NULL;
        }
    }
    return tally;
}

int drill_report_json(struct buf *out, const struct drill_report *r)
{
    char started[CLOCK_TEXT_MAX];
    clock_text(started, r->started_wall_ms);
    json_t *document = json_pack(
        "{s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:i, s:i, s:s?, s:o, s:o}", "hapax", r->version, "method",
        r->method, "target", r->target, "profile", r->profile, "counter", r->counter, "started", started,
        "duration_ms", (json_int_t)r->duration_ms, "seed", (json_int_t)r->seed, "times", (int)r->times,
        "requests", (int)r->requests, "stopped", r->stopped, "verdicts", tally_of(r), "cases", cases_of(r));
    char *text = document != NULL ? json_dumps(document, JSON_INDENT(2)) : NULL;
    int rc = text != NULL ? buf_append_text(out, text) : HAPAX_E_MEMORY;
    rc = rc != 0 ? rc : buf_append_byte(out, '\n');
    free(text);
    json_decref(document);
    return rc;
}
