/* The same body in another order, and a body that asks for something else.
 *
 * Placeholders may stand outside of strings ({"n": {unique}}), where the template is no JSON; so both are made from
 * a template whose placeholders were replaced by numbers that are put back afterwards. */
#include "drill/request.h"

#include "base/units.h"
#include "core/json.h"

/* Not likely to stand in a body, and JSON inside a string and outside of one. */
#define STAND_IN_KEY    "7160593842117"
#define STAND_IN_UNIQUE "7160593842118"

static int replace_all(struct buf *out, struct slice text, struct slice what, struct slice by)
{
    int rc = 0;
    while (rc == 0 && text.len > 0) {
        const char *at = memmem(text.ptr, text.len, what.ptr, what.len);
        size_t before = at != NULL ? (size_t)(at - text.ptr) : text.len;
        rc = buf_append(out, text.ptr, before);
        rc = rc != 0 || at == NULL ? rc : buf_append_slice(out, by);
        text = slice_from(text, before + (at != NULL ? what.len : 0));
    }
    return rc;
}

/* a -> b and c -> d, one after the other, into the arena. */
static int exchange(struct slice *out, struct slice text, const struct slice from[2],
                    const struct slice to[2], struct arena *arena)
{
    struct buf one;
    struct buf two;
    buf_init(&one, 2 * (size_t)DRILL_BODY_BYTES_MAX);
    buf_init(&two, 2 * (size_t)DRILL_BODY_BYTES_MAX);
    int rc = replace_all(&one, text, from[0], to[0]);
    rc = rc != 0 ? rc : replace_all(&two, buf_slice(&one), from[1], to[1]);
    rc = rc != 0 ? rc : arena_copy(arena, buf_slice(&two), out);
    buf_free(&one);
    buf_free(&two);
    return rc;
}

static const struct slice placeholders[2] = {{"{key}", 5}, {"{unique}", 8}};
static const struct slice stand_ins[2] = {{STAND_IN_KEY, sizeof STAND_IN_KEY - 1},
                                          {STAND_IN_UNIQUE, sizeof STAND_IN_UNIQUE - 1}};

/* --- Reordered. ---------------------------------------------------------------------------------- */

/* The members from last to first, with white space that was not there. The values as they stand. */
static int write_reordered(struct buf *out, const struct json *j, struct arena *arena)
{
    uint32_t count = j->nodes[0].count;
    uint32_t *names = arena_array(arena, count, sizeof *names);
    if (names == NULL) {
        return arena_error(arena);
    }
    for (uint32_t i = 0, name = 1; i < count; i++, name = j->nodes[name + 1].after) {
        names[i] = name;
    }
    int rc = buf_append_text(out, "{ ");
    for (uint32_t i = count; i > 0 && rc == 0; i--) {
        rc = buf_append_slice(out, json_lexeme(j, names[i - 1]));
        rc = rc != 0 ? rc : buf_append_text(out, " :\n ");
        rc = rc != 0 ? rc : buf_append_slice(out, json_lexeme(j, names[i - 1] + 1));
        rc = rc != 0 ? rc : buf_append_text(out, i > 1 ? " ,\n  " : " }");
    }
    return rc;
}

/* --- Changed. ------------------------------------------------------------------------------------ */

static bool holds_placeholder(struct slice lexeme)
{
    return memmem(lexeme.ptr, lexeme.len, STAND_IN_KEY, sizeof STAND_IN_KEY - 2) != NULL;
}

static bool may_change(const struct json *j, uint32_t value, enum json_type type)
{
    return j->nodes[value].type == type && !holds_placeholder(json_lexeme(j, value));
}

/* The last value of this type that holds no placeholder, since what identifies things comes first. */
static uint32_t choose_value(const struct json *j, enum json_type type)
{
    uint32_t chosen = JSON_NODE_NONE;
    for (uint32_t i = 0; i < j->count; i++) {
        const struct json_node *n = &j->nodes[i];
        bool pairs = n->type == JSON_TYPE_OBJECT; /* a name is no value */
        uint32_t end = pairs || n->type == JSON_TYPE_ARRAY ? n->after : 0;
        for (uint32_t value = i + 1 + pairs; value < end; value = j->nodes[value].after + pairs) {
            if (may_change(j, value, type) && (chosen == JSON_NODE_NONE || value > chosen)) {
                chosen = value;
            }
        }
    }
    return chosen;
}

/* A change as small as can be, so that the endpoint takes it for a good value, too. */
static int write_changed(struct buf *out, const struct json *j, uint32_t at)
{
    const struct json_node *n = &j->nodes[at];
    struct slice old = json_lexeme(j, at);
    int rc = buf_append(out, j->text.ptr, n->start);
    uint64_t number = 0;
    if (rc == 0 && n->type == JSON_TYPE_STRING) {
        rc = buf_append(out, old.ptr, old.len - 1);
        rc = rc != 0 ? rc : buf_append_text(out, " 2\"");
    } else if (rc == 0 && units_u64(&number, old) == 0 && number < UINT64_MAX) {
        rc = buf_append_u64(out, number + 1);
    } else if (rc == 0) {
        rc = buf_append_text(out, "1"); /* it was no small whole number */
    }
    return rc != 0 ? rc : buf_append_slice(out, slice_from(j->text, n->end));
}

/* --- Both. --------------------------------------------------------------------------------------- */

static int finish(struct slice *out, struct buf *made, struct arena *arena)
{
    return exchange(out, buf_slice(made), stand_ins, placeholders, arena);
}

static int make_from_json(struct payloads *p, const struct json *j, struct arena *arena)
{
    struct buf made;
    buf_init(&made, 2 * (size_t)DRILL_BODY_BYTES_MAX);
    int rc = 0;
    if (j->nodes[0].type == JSON_TYPE_OBJECT && j->nodes[0].count > 1) {
        rc = write_reordered(&made, j, arena);
        rc = rc != 0 ? rc : finish(&p->form[DRILL_REORDERED], &made, arena);
    } else {
        p->why[DRILL_REORDERED] = "the body is not a JSON object with several members";
    }
    uint32_t at = choose_value(j, JSON_TYPE_NUMBER);
    at = at != JSON_NODE_NONE ? at : choose_value(j, JSON_TYPE_STRING);
    buf_clear(&made);
    if (rc == 0 && slice_is_none(p->form[DRILL_OTHER])) {
        if (at != JSON_NODE_NONE) {
            rc = write_changed(&made, j, at);
            rc = rc != 0 ? rc : finish(&p->form[DRILL_OTHER], &made, arena);
        } else {
            p->why[DRILL_OTHER] = "no number or text in the body could be changed; say --other @FILE";
        }
    }
    buf_free(&made);
    return rc;
}

int payloads_make(struct payloads *out, const struct drill_setup *setup, struct arena *arena)
{
    *out = (struct payloads){{SLICE_NONE}, {NULL}};
    out->form[DRILL_SAME] = slice_is_none(setup->body) ? SLICE_LITERAL("") : setup->body;
    out->form[DRILL_OTHER] = setup->other_body;
    struct slice plain;
    int rc = exchange(&plain, out->form[DRILL_SAME], placeholders, stand_ins, arena);
    struct json j;
    int parsed = rc != 0 ? rc : json_parse(&j, arena, plain, NULL);
    if (parsed == 0) {
        return make_from_json(out, &j, arena);
    }
    if (parsed == HAPAX_E_LIMIT && rc == 0) {
        out->why[DRILL_REORDERED] = "the body is too large to be taken apart";
        out->why[DRILL_OTHER] = "the body is too large to be taken apart; say --other @FILE";
        return 0;
    }
    out->why[DRILL_REORDERED] = "the body is not JSON";
    out->why[DRILL_OTHER] = "the body is not JSON; say --other @FILE";
    return rc;
}
