/* The report as TAP version 14: a test point for each case. Not applicable is a SKIP; broken and inconclusive are not
 * ok, with what happened as YAML below. A drill that stopped early bails out. */
#include "drill/report_write.h"

/* `#` would begin a directive. */
static void put_description(struct report_writer *w, const char *text)
{
    report_put_escaped(w, text, "#\\");
}

/* A double-quoted YAML scalar. */
static void put_yaml(struct report_writer *w, const char *name, const char *text)
{
    report_printf(w, "  %s: \"", name);
    report_put_escaped(w, text, "\"\\");
    report_put(w, "\"\n");
}

static void put_details(struct report_writer *w, const struct drill_case *c)
{
    report_put(w, "  ---\n");
    report_printf(w, "  verdict: \"%s\"\n", drill_verdict_word(c->verdict));
    put_yaml(w, "message", c->what);
    report_put(w, "  effects_expected: \"");
    report_put_expected(w, c);
    report_put(w, "\"\n  effects_seen: \"");
    report_put_seen(w, c);
    report_put(w, "\"\n  answers: \"");
    report_put_statuses(w, c);
    report_put(w, "\"\n");
    put_yaml(w, "again", c->curl);
    report_put(w, "  ...\n");
}

int drill_report_tap(struct buf *out, const struct drill_report *report)
{
    struct report_writer w = {.out = out};
    report_printf(&w, "TAP version 14\n1..%zu\n", report->case_count);
    for (size_t i = 0; i < report->case_count; i++) {
        const struct drill_case *c = &report->cases[i];
        bool ok = c->verdict == DRILL_HOLDS || c->verdict == DRILL_NOT_APPLICABLE;
        report_printf(&w, "%sok %zu - ", ok ? "" : "not ", i + 1);
        put_description(&w, c->id);
        report_put(&w, ": ");
        put_description(&w, c->title);
        if (c->verdict == DRILL_NOT_APPLICABLE) {
            report_put(&w, " # SKIP ");
            report_put_escaped(&w, c->what, "");
        }
        report_put(&w, "\n");
        if (!ok) {
            put_details(&w, c);
        }
    }
    if (report->stopped != NULL) {
        report_put(&w, "Bail out! ");
        report_put_escaped(&w, report->stopped, "");
        report_put(&w, "\n");
    }
    return w.code;
}
