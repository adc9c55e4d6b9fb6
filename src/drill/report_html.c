/* The report as one HTML page: what was drilled, the matrix as a chart, each finding with the command that shows it
 * again, every case. It loads nothing, has no script, follows the reader's light or dark, and tells verdicts by symbol
 * and word besides colour (blue and vermilion, which the colour-blind can tell apart). */
#include "drill/report_write.h"

static const char style[] =
    ":root{color-scheme:light dark;--text:#1b1f24;--dim:#57606a;--page:#fff;--line:#d0d7de;--code:#f3f5f7;"
    "--holds:#d5e8f7;--holds-text:#0a3a5e;--broken:#b84300;--broken-text:#fff;--open:#ffe08a;--open-text:#"
    "3d2e00;"
    "--link:#0b5cad}\n"
    "@media (prefers-color-scheme:dark){:root{--text:#e6e9ec;--dim:#a2abb5;--page:#14171a;--line:#3a424b;"
    "--code:#20252a;--holds:#12405f;--holds-text:#d3eaff;--broken:#ff9357;--broken-text:#2b0f00;--open:#"
    "6b5300;"
    "--open-text:#ffefc2;--link:#7cbcff}}\n"
    "body{margin:0 auto;padding:1.5rem;max-width:72rem;font:16px/1.5 system-ui,sans-serif;color:var(--text);"
    "background:var(--page)}\n"
    "h1{font-size:1.5rem;margin:0 0 .25rem;overflow-wrap:anywhere}h2{font-size:1.2rem;margin:2rem 0 .5rem}"
    "h3{font-size:1rem;margin:1.5rem 0 .25rem}\n"
    "a{color:var(--link)}code{font-family:ui-monospace,monospace;font-size:.9em}\n"
    "pre{background:var(--code);padding:.75rem;overflow-x:auto;border-radius:.3rem;margin:.5rem 0}\n"
    "dl{display:grid;grid-template-columns:max-content 1fr;gap:.1rem 1rem;margin:.5rem 0}dt{color:var(--dim)}"
    "dd{margin:0;overflow-wrap:anywhere}\n"
    "table{border-collapse:collapse}th,td{border:1px solid var(--line);padding:.2rem .5rem;text-align:left;"
    "vertical-align:top}thead th{color:var(--dim);font-weight:600}\n"
    ".scroll{overflow-x:auto}.matrix th{font-weight:400;white-space:nowrap;text-align:center}"
    ".matrix td{padding:0;min-width:1.8rem;height:1.8rem;text-align:center;vertical-align:middle}"
    ".matrix .edge{border-left:3px solid var(--dim)}.matrix .rim td,.matrix .rim th{border-top:3px solid "
    "var(--dim)}\n"
    ".matrix thead tr:last-child "
    "th[scope=col]{writing-mode:vertical-rl;vertical-align:middle;text-align:left;padding:.4rem 0}"
    ".matrix td a{display:block;line-height:1.8rem;color:inherit;font-weight:700;text-decoration:none}"
    "a:focus-visible{outline:3px solid var(--link);outline-offset:1px}\n"
    ".holds{background:var(--holds);color:var(--holds-text)}.broken{background:var(--broken);"
    "color:var(--broken-text)}.inconclusive{background:var(--open);color:var(--open-text)}.na{color:var(--"
    "dim)}\n"
    ".mark{display:inline-block;padding:0 .45rem;border-radius:.3rem;white-space:nowrap}\n"
    ".chips{display:flex;flex-wrap:wrap;gap:.3rem;margin:.3rem 0 .8rem;padding:0;list-style:none}"
    ".chips a{color:inherit}.verdict{font-size:1.15rem;margin:.75rem 0}\n"
    ".unseen{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%);white-space:nowrap}"
    "\n";

static const char *const symbols[DRILL_VERDICTS] = {"\u2713", "\u2717", "\u2013", "?"};
static const char *const classes[DRILL_VERDICTS] = {"holds", "broken", "na", "inconclusive"};

/* Has an article of its own; a case that was not tried any more has not. */
static bool is_finding(const struct drill_case *c)
{
    return c->verdict == DRILL_BROKEN || (c->verdict == DRILL_INCONCLUSIVE && c->requests > 0);
}

/* An element with one text in it. */
static void put_element(struct report_writer *w, const char *name, const char *text)
{
    report_printf(w, "<%s>", name);
    report_put_markup(w, text);
    report_printf(w, "</%s>", name);
}

static void put_fact(struct report_writer *w, const char *name, const char *text)
{
    put_element(w, "dt", name);
    put_element(w, "dd", text);
    report_put(w, "\n");
}

/* The symbol and the word. */
static void put_mark(struct report_writer *w, enum drill_verdict verdict)
{
    report_printf(w, "<span class=\"mark %s\">%s %s</span>", classes[verdict], symbols[verdict],
                  drill_verdict_word(verdict));
}

/* --- Head and summary ---------------------------------------------------------------------------- */

static void put_head(struct report_writer *w, const struct drill_report *r)
{
    report_put(w, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                  "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
                  "'unsafe-inline'\">\n"
                  "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>");
    report_printf(w, "%zu broken: drill of ", r->tally[DRILL_BROKEN]);
    report_put_markup(w, r->target);
    report_put(w, "</title>\n<style>\n");
    report_put(w, style);
    report_put(w, "</style>\n</head>\n<body>\n<header>\n<h1>Drill of ");
    report_put_markup(w, r->method);
    report_put(w, " ");
    report_put_markup(w, r->target);
    report_put(w, "</h1>\n");
}

static void put_verdict(struct report_writer *w, const struct drill_report *r)
{
    report_put(w, "<p class=\"verdict\">");
    if (r->tally[DRILL_BROKEN] > 0) {
        put_mark(w, DRILL_BROKEN);
        report_printf(w, " in %zu of %zu cases.", r->tally[DRILL_BROKEN], r->case_count);
    } else if (r->tally[DRILL_HOLDS] > 0) {
        put_mark(w, DRILL_HOLDS);
        report_printf(w, " in %zu of %zu cases; none is broken.", r->tally[DRILL_HOLDS], r->case_count);
    } else {
        put_mark(w, DRILL_INCONCLUSIVE);
        report_put(w, " Nothing was shown.");
    }
    report_put(w, "</p>\n");
    if (r->stopped != NULL) {
        report_put(w, "<p><strong>It stopped early:</strong> ");
        report_put_markup(w, r->stopped);
        report_put(w, "</p>\n");
    }
}

static void put_summary(struct report_writer *w, const struct drill_report *r)
{
    report_put(w, "<ul class=\"chips\" aria-label=\"Cases by verdict\">\n");
    for (int v = 0; v < DRILL_VERDICTS; v++) {
        report_printf(w, "<li><span class=\"mark %s\">%s %zu %s</span></li>\n", classes[v], symbols[v],
                      r->tally[v], drill_verdict_word((enum drill_verdict)v));
    }
    report_put(w, "</ul>\n<dl>\n");
    put_fact(w, "Effects counted by", r->counter);
    put_fact(w, "Profile", r->profile);
    report_put(w, "<dt>Started</dt><dd>");
    report_put_instant(w, r->started_wall_ms);
    report_put(w, ", took ");
    report_put_seconds(w, r->duration_ms);
    report_printf(w, " s</dd>\n<dt>Requests</dt><dd>%u; %u in a series or at once; seed %llu</dd>\n",
                  r->requests, r->times, (unsigned long long)r->seed);
    put_fact(w, "hapax", r->version);
    report_put(w, "</dl>\n</header>\n");
}

/* --- Charts ---------------------------------------------------------------------------------------- */

enum { ROW_AXES = 2, ROWS = 9, COLUMNS = 27 };

/* Which axes lead down and across, the outermost first. */
static const enum drill_axis down[ROW_AXES] = {DRILL_PAYLOAD, DRILL_PLACE};
static const enum drill_axis across[DRILL_AXES - ROW_AXES] = {DRILL_COUNT, DRILL_DELIVERY, DRILL_MOMENT};

static unsigned row_of(const struct drill_case *c)
{
    return c->at[down[0]] * 3U + c->at[down[1]];
}

static unsigned column_of(const struct drill_case *c)
{
    return c->at[across[0]] * 9U + c->at[across[1]] * 3U + c->at[across[2]];
}

static void put_chart_head(struct report_writer *w)
{
    report_put(w, "<thead>\n");
    for (unsigned level = 0, span = COLUMNS / 3; level < DRILL_AXES - ROW_AXES; level++, span /= 3) {
        report_printf(w, "<tr><th colspan=\"2\" scope=\"row\">%s</th>", drill_axis_word(across[level]));
        for (unsigned column = 0; column < COLUMNS; column += span) {
            report_printf(w, "<th colspan=\"%u\" scope=\"col%s\"%s>%s</th>", span, span > 1 ? "group" : "",
                          column % 9 == 0 ? " class=\"edge\"" : "",
                          drill_value_word(across[level], column / span % DRILL_AXIS_VALUES));
        }
        report_put(w, "</tr>\n");
    }
    report_put(w, "</thead>\n");
}

static void put_cell(struct report_writer *w, const struct drill_report *r, const struct drill_case *c,
                     unsigned column)
{
    const char *edge = column % 9 == 0 ? " edge" : "";
    if (c == NULL) {
        report_printf(w, "<td class=\"na%s\"><span class=\"unseen\">not run</span></td>", edge);
        return;
    }
    report_printf(w, "<td class=\"%s%s\" title=\"", classes[c->verdict], edge);
    report_put_markup(w, c->title);
    report_printf(w, ": %s\">", drill_verdict_word(c->verdict));
    if (is_finding(c)) {
        report_printf(w, "<a href=\"#case-%zu\">", (size_t)(c - r->cases) + 1);
    }
    report_printf(w, "<span aria-hidden=\"true\">%s</span><span class=\"unseen\">%s</span>%s</td>",
                  symbols[c->verdict], drill_verdict_word(c->verdict), is_finding(c) ? "</a>" : "");
}

static void put_chart(struct report_writer *w, const struct drill_report *r)
{
    const struct drill_case *cells[ROWS][COLUMNS] = {{NULL}};
    bool any = false;
    for (size_t i = 0; i < r->case_count; i++) {
        if (r->cases[i].group == DRILL_MATRIX) {
            cells[row_of(&r->cases[i])][column_of(&r->cases[i])] = &r->cases[i];
            any = true;
        }
    }
    if (!any) {
        return;
    }
    report_put(
        w, "<h2>The matrix</h2>\n<p>How often, how delivered and when (across); with which payload and where "
           "(down). An empty field was not run.</p>\n<div class=\"scroll\" tabindex=\"0\" role=\"region\" "
           "aria-label=\"Matrix of verdicts\">\n<table class=\"matrix\">\n");
    put_chart_head(w);
    report_put(w, "<tbody>\n");
    for (unsigned row = 0; row < ROWS; row++) {
        report_printf(w, "<tr%s>", row % 3 == 0 ? " class=\"rim\"" : "");
        if (row % 3 == 0) {
            report_printf(w, "<th rowspan=\"3\" scope=\"rowgroup\">%s</th>",
                          drill_value_word(down[0], row / 3));
        }
        report_printf(w, "<th scope=\"row\">%s</th>", drill_value_word(down[1], row % 3));
        for (unsigned column = 0; column < COLUMNS; column++) {
            put_cell(w, r, cells[row][column], column);
        }
        report_put(w, "</tr>\n");
    }
    report_put(w, "</tbody>\n</table>\n</div>\n");
}

/* Cases outside the matrix, group by group. */
static void put_others(struct report_writer *w, const struct drill_report *r)
{
    const char *opened = NULL;
    for (int group = 0; group < DRILL_GROUPS; group++) {
        for (size_t i = 0; i < r->case_count; i++) {
            const struct drill_case *c = &r->cases[i];
            if ((int)c->group != group || c->group == DRILL_MATRIX) {
                continue;
            }
            const char *word = drill_group_word(c->group);
            if (opened != word) {
                report_printf(w, "%s<h3>%s</h3>\n<ul class=\"chips\">\n",
                              opened != NULL ? "</ul>\n" : "<h2>Beside the matrix</h2>\n", word);
                opened = word;
            }
            report_printf(w, "<li class=\"mark %s\" title=\"", classes[c->verdict]);
            report_put_markup(w, c->title);
            report_printf(w, "\">%s ", symbols[c->verdict]);
            if (is_finding(c)) {
                report_printf(w, "<a href=\"#case-%zu\">", i + 1);
            }
            report_put_markup(w, c->id);
            report_printf(w, "%s<span class=\"unseen\">: %s</span></li>\n", is_finding(c) ? "</a>" : "",
                          drill_verdict_word(c->verdict));
        }
    }
    report_put(w, opened != NULL ? "</ul>\n" : "");
}

/* --- Findings and all cases ------------------------------------------------------------------------ */

static void put_finding(struct report_writer *w, const struct drill_case *c, size_t number)
{
    report_printf(w, "<article id=\"case-%zu\">\n<h3>", number);
    put_mark(w, c->verdict);
    report_put(w, " ");
    report_put_markup(w, c->title);
    report_put(w, "</h3>\n");
    put_element(w, "p", c->what);
    report_put(w, "\n<dl>\n");
    put_fact(w, "Case", c->id);
    report_put(w, "<dt>Effects</dt><dd>");
    report_put_seen(w, c);
    report_put(w, " (expected: ");
    report_put_expected(w, c);
    report_put(w, ")</dd>\n<dt>Answers</dt><dd>");
    report_put_statuses(w, c);
    report_put(w, "</dd>\n</dl>\n");
    if (c->curl[0] != '\0') {
        report_put(w, "<p>To see it again:</p>\n<pre tabindex=\"0\"><code>");
        report_put_markup(w, c->curl);
        report_put(w, "</code></pre>\n");
    }
    report_put(w, "</article>\n");
}

static void put_findings(struct report_writer *w, const struct drill_report *r, enum drill_verdict verdict,
                         const char *heading)
{
    bool opened = false;
    for (size_t i = 0; i < r->case_count; i++) {
        if (r->cases[i].verdict == verdict && is_finding(&r->cases[i])) {
            if (!opened) {
                report_printf(w, "<section>\n<h2>%s</h2>\n", heading);
                opened = true;
            }
            put_finding(w, &r->cases[i], i + 1);
        }
    }
    report_put(w, opened ? "</section>\n" : "");
}

static void put_row(struct report_writer *w, const struct drill_case *c)
{
    report_put(w, "<tr><td>");
    put_mark(w, c->verdict);
    report_put(w, "</td><td>");
    report_put_markup(w, c->title);
    report_put(w, "<br><code>");
    report_put_markup(w, c->id);
    report_put(w, "</code></td><td>");
    report_put_seen(w, c);
    report_put(w, " / ");
    report_put_expected(w, c);
    report_put(w, "</td><td>");
    report_put_statuses(w, c);
    report_put(w, "</td><td>");
    report_put_seconds(w, c->duration_ms);
    report_put(w, " s</td><td>");
    report_put_markup(w, c->what);
    report_put(w, "</td></tr>\n");
}

static void put_all_cases(struct report_writer *w, const struct drill_report *r)
{
    report_printf(w,
                  "<section>\n<h2>All cases</h2>\n<details>\n<summary>%zu cases, in the order in which they "
                  "ran</summary>\n",
                  r->case_count);
    report_put(
        w,
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"All cases\">\n<table>\n<thead><tr>"
        "<th scope=\"col\">Verdict</th><th scope=\"col\">Case</th><th scope=\"col\">Effects seen / "
        "expected</th><th scope=\"col\">Answers</th><th scope=\"col\">Took</th><th scope=\"col\">What "
        "happened</th></tr></thead>\n<tbody>\n");
    for (size_t i = 0; i < r->case_count; i++) {
        put_row(w, &r->cases[i]);
    }
    report_put(w, "</tbody>\n</table>\n</div>\n</details>\n</section>\n");
}

int drill_report_html(struct buf *out, const struct drill_report *report)
{
    struct report_writer w = {.out = out};
    put_head(&w, report);
    put_verdict(&w, report);
    put_summary(&w, report);
    report_put(&w, "<main>\n");
    put_chart(&w, report);
    put_others(&w, report);
    put_findings(&w, report, DRILL_BROKEN, "Broken");
    put_findings(&w, report, DRILL_INCONCLUSIVE, "Inconclusive");
    put_all_cases(&w, report);
    report_put(&w, "</main>\n</body>\n</html>\n");
    return w.code;
}
