/* The report for a terminal: the matrix as tables, the other cases as lines, then what is broken with its curl line. */
#include "drill/drill.h"

#include <stdio.h>

static const char *const marks[DRILL_VERDICTS] = {"ok", "BROKEN", "-", "?"};
static const char *const colours[DRILL_VERDICTS] = {"\033[32m", "\033[31;1m", "\033[2m", "\033[33m"};

static int mark(struct buf *out, enum drill_verdict verdict, bool colour, unsigned width)
{
    int rc = colour ? buf_append_text(out, colours[verdict]) : 0;
    rc = rc != 0 ? rc : buf_printf(out, "%-*s", (int)width, marks[verdict]);
    return rc != 0 || !colour ? rc : buf_append_text(out, "\033[0m");
}

/* --- The matrix. --------------------------------------------------------------------------------- */

static const struct drill_case *cell(const struct drill_report *r, const unsigned char *at)
{
    for (size_t i = 0; i < r->case_count; i++) {
        if (r->cases[i].group == DRILL_MATRIX && memcmp(r->cases[i].at, at, DRILL_AXES) == 0) {
            return &r->cases[i];
        }
    }
    return NULL;
}

/* Is there anything to show for this payload and place? */
static bool is_empty(const struct drill_report *r, unsigned payload, unsigned place, const char **why)
{
    *why = NULL;
    for (size_t i = 0; i < r->case_count; i++) {
        const struct drill_case *c = &r->cases[i];
        if (c->group == DRILL_MATRIX && c->at[DRILL_PAYLOAD] == payload && c->at[DRILL_PLACE] == place) {
            if (c->verdict != DRILL_NOT_APPLICABLE) {
                return false;
            }
            *why = c->what;
        }
    }
    return true;
}

static int row(struct buf *out, const struct drill_report *r, unsigned char *at, bool colour)
{
    int rc = buf_printf(out, "  %-9s", drill_value_word(DRILL_COUNT, at[DRILL_COUNT]));
    for (unsigned i = 0; i < DRILL_AXIS_VALUES * DRILL_AXIS_VALUES && rc == 0; i++) {
        at[DRILL_DELIVERY] = (unsigned char)(i / DRILL_AXIS_VALUES);
        at[DRILL_MOMENT] = (unsigned char)(i % DRILL_AXIS_VALUES);
        const struct drill_case *c = cell(r, at);
        static const unsigned widths[DRILL_AXIS_VALUES] = {9, 7, 7};
        unsigned width = widths[at[DRILL_MOMENT]];
        rc = c != NULL ? mark(out, c->verdict, colour, width) : buf_printf(out, "%*s", (int)width, "");
    }
    return rc != 0 ? rc : buf_append_text(out, "\n");
}

static int block(struct buf *out, const struct drill_report *r, unsigned payload, unsigned place, bool colour)
{
    const char *why;
    if (is_empty(r, payload, place, &why)) {
        return why == NULL ? 0
                           : buf_printf(out, "\n%s payload, %s: not applicable: %s\n",
                                        drill_value_word(DRILL_PAYLOAD, payload),
                                        drill_value_word(DRILL_PLACE, place), why);
    }
    int rc = buf_printf(out, "\n%s payload, %s\n  %-9s%-23s%-23s%s\n  %-9s",
                        drill_value_word(DRILL_PAYLOAD, payload), drill_value_word(DRILL_PLACE, place), "",
                        "answer read", "reply lost", "request lost", "");
    for (unsigned i = 0; i < 3 && rc == 0; i++) {
        rc = buf_printf(out, "%-9s%-7s%-7s", "directly", "during", "after");
    }
    rc = rc != 0 ? rc : buf_append_text(out, "\n");
    unsigned char at[DRILL_AXES] = {0};
    at[DRILL_PAYLOAD] = (unsigned char)payload;
    at[DRILL_PLACE] = (unsigned char)place;
    for (unsigned count = 0; count < DRILL_AXIS_VALUES && rc == 0; count++) {
        at[DRILL_COUNT] = (unsigned char)count;
        rc = row(out, r, at, colour);
    }
    return rc;
}

static int matrix(struct buf *out, const struct drill_report *r, bool colour)
{
    int rc = 0;
    for (unsigned place = 0; place < DRILL_AXIS_VALUES; place++) {
        for (unsigned payload = 0; payload < DRILL_AXIS_VALUES && rc == 0; payload++) {
            rc = block(out, r, payload, place, colour);
        }
    }
    return rc;
}

/* --- Lines. -------------------------------------------------------------------------------------- */

static int line(struct buf *out, const struct drill_case *c, bool colour)
{
    int rc = mark(out, c->verdict, colour, 8);
    rc = rc != 0 ? rc : buf_printf(out, "%-24s %s", c->id, c->title);
    if (rc == 0 && c->what[0] != '\0' && c->verdict != DRILL_BROKEN) {
        rc = buf_printf(out, ": %s", c->what);
    }
    return rc != 0 ? rc : buf_append_text(out, "\n");
}

static int singles(struct buf *out, const struct drill_report *r, bool colour)
{
    int rc = buf_append_text(out, "\n");
    for (size_t i = 0; i < r->case_count && rc == 0; i++) {
        if (r->cases[i].group != DRILL_MATRIX) {
            rc = line(out, &r->cases[i], colour);
        }
    }
    return rc;
}

static int explain(struct buf *out, const struct drill_case *c, bool colour)
{
    int rc = buf_append_text(out, "\n");
    rc = rc != 0 ? rc : mark(out, c->verdict, colour, 8);
    rc = rc != 0 ? rc : buf_printf(out, "%s (%s)\n        %s\n", c->id, c->title, c->what);
    if (rc == 0 && c->status_count > 0) {
        rc = buf_append_text(out, "        answers:");
        for (size_t i = 0; i < c->status_count && rc == 0; i++) {
            const struct drill_status *s = &c->statuses[i];
            rc = s->status == 0 ? buf_printf(out, " %u x none", s->times)
                                : buf_printf(out, " %u x %d", s->times, s->status);
        }
        rc = rc != 0 ? rc : buf_append_text(out, "\n");
    }
    return rc != 0 || c->curl[0] == '\0' ? rc : buf_printf(out, "        %s\n", c->curl);
}

static int summary(struct buf *out, const struct drill_report *r)
{
    int rc = buf_printf(out,
                        "\n%zu hold, %zu broken, %zu not applicable, %zu inconclusive; %u requests in "
                        "%lld.%lld s, seed %llu\n",
                        r->tally[DRILL_HOLDS], r->tally[DRILL_BROKEN], r->tally[DRILL_NOT_APPLICABLE],
                        r->tally[DRILL_INCONCLUSIVE], r->requests, (long long)r->duration_ms / 1000,
                        (long long)r->duration_ms % 1000 / 100, (unsigned long long)r->seed);
    return rc != 0 || r->stopped == NULL ? rc : buf_printf(out, "It ended early: %s\n", r->stopped);
}

int drill_report_text(struct buf *out, const struct drill_report *r, bool colour)
{
    int rc = buf_printf(out, "%s %s, profile %s, effects counted by %s\n", r->method, r->target, r->profile,
                        r->counter);
    rc = rc != 0 ? rc : matrix(out, r, colour);
    rc = rc != 0 ? rc : singles(out, r, colour);
    for (size_t i = 0; i < r->case_count && rc == 0; i++) {
        const struct drill_case *c = &r->cases[i];
        bool unclear = c->verdict == DRILL_INCONCLUSIVE && c->group == DRILL_MATRIX && c->requests > 0;
        if (c->verdict == DRILL_BROKEN || unclear) {
            rc = explain(out, c, colour);
        }
    }
    return rc != 0 ? rc : summary(out, r);
}
