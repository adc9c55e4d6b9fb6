/* The report as JUnit XML: a test suite for each group, a test case for each case. Broken is a failure, inconclusive
 * an error (nothing was proven), not applicable is skipped. A drill that stopped early has an error of its own. */
#include "drill/report_write.h"

struct tally {
    size_t of[DRILL_VERDICTS];
    size_t all;
    int64_t duration_ms;
};

static struct tally count(const struct drill_report *r, enum drill_group group)
{
    struct tally t = {0};
    for (size_t i = 0; i < r->case_count; i++) {
        if (r->cases[i].group == group) {
            t.of[r->cases[i].verdict]++;
            t.all++;
            t.duration_ms += r->cases[i].duration_ms;
        }
    }
    return t;
}

static void put_counts(struct report_writer *w, size_t tests, const size_t *of, size_t more_errors,
                       int64_t duration_ms)
{
    report_printf(w, " tests=\"%zu\" failures=\"%zu\" errors=\"%zu\" skipped=\"%zu\" time=\"", tests,
                  of[DRILL_BROKEN], of[DRILL_INCONCLUSIVE] + more_errors, of[DRILL_NOT_APPLICABLE]);
    report_put_seconds(w, duration_ms);
    report_put(w, "\"");
}

static void put_attribute(struct report_writer *w, const char *name, const char *value)
{
    report_printf(w, " %s=\"", name);
    report_put_markup(w, value);
    report_put(w, "\"");
}

static void put_property(struct report_writer *w, const char *name, const char *value)
{
    report_put(w, "      <property");
    put_attribute(w, "name", name);
    put_attribute(w, "value", value);
    report_put(w, "/>\n");
}

static void put_properties(struct report_writer *w, const struct drill_report *r)
{
    report_put(w, "    <properties>\n");
    put_property(w, "hapax", r->version);
    put_property(w, "method", r->method);
    put_property(w, "target", r->target);
    put_property(w, "profile", r->profile);
    put_property(w, "counter", r->counter);
    report_printf(w, "      <property name=\"seed\" value=\"%llu\"/>\n", (unsigned long long)r->seed);
    report_put(w, "    </properties>\n");
}

/* What stands inside of a failure or an error. */
static void put_details(struct report_writer *w, const struct drill_case *c)
{
    report_put_markup(w, c->what);
    report_put(w, "\neffects expected: ");
    report_put_expected(w, c);
    report_put(w, "\neffects seen: ");
    report_put_seen(w, c);
    report_put(w, "\nanswers: ");
    report_put_statuses(w, c);
    if (c->curl[0] != '\0') {
        report_put(w, "\nagain: ");
        report_put_markup(w, c->curl);
    }
    report_put(w, "\n");
}

static void put_case(struct report_writer *w, const struct drill_case *c)
{
    report_put(w, "    <testcase");
    report_printf(w, " classname=\"drill.%s\"", drill_group_word(c->group));
    report_put(w, " name=\"");
    report_put_markup(w, c->id);
    report_put(w, ": ");
    report_put_markup(w, c->title);
    report_put(w, "\" time=\"");
    report_put_seconds(w, c->duration_ms);
    if (c->verdict == DRILL_HOLDS) {
        report_put(w, "\"/>\n");
        return;
    }
    report_put(w, "\">\n");
    if (c->verdict == DRILL_NOT_APPLICABLE) {
        report_put(w, "      <skipped");
        put_attribute(w, "message", c->what);
        report_put(w, "/>\n");
    } else {
        const char *element = c->verdict == DRILL_BROKEN ? "failure" : "error";
        report_printf(w, "      <%s type=\"%s\"", element, drill_verdict_word(c->verdict));
        put_attribute(w, "message", c->what);
        report_put(w, ">");
        put_details(w, c);
        report_printf(w, "</%s>\n", element);
    }
    report_put(w, "    </testcase>\n");
}

static void put_suite(struct report_writer *w, const struct drill_report *r, enum drill_group group)
{
    struct tally t = count(r, group);
    if (t.all == 0) {
        return;
    }
    report_printf(w, "  <testsuite name=\"drill.%s\"", drill_group_word(group));
    put_counts(w, t.all, t.of, 0, t.duration_ms);
    report_put(w, " timestamp=\"");
    report_put_instant(w, r->started_wall_ms);
    report_put(w, "\">\n");
    put_properties(w, r);
    for (size_t i = 0; i < r->case_count; i++) {
        if (r->cases[i].group == group) {
            put_case(w, &r->cases[i]);
        }
    }
    report_put(w, "  </testsuite>\n");
}

static void put_stopped(struct report_writer *w, const struct drill_report *r)
{
    static const size_t none[DRILL_VERDICTS];
    report_put(w, "  <testsuite name=\"drill\"");
    put_counts(w, 1, none, 1, 0);
    report_put(
        w,
        ">\n    <testcase classname=\"drill\" name=\"all cases were run\">\n      <error type=\"stopped\"");
    put_attribute(w, "message", r->stopped);
    report_put(w, "/>\n    </testcase>\n  </testsuite>\n");
}

int drill_report_junit(struct buf *out, const struct drill_report *report)
{
    struct report_writer w = {.out = out};
    size_t stopped = report->stopped != NULL;
    report_put(&w, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"hapax drill\"");
    put_counts(&w, report->case_count + stopped, report->tally, stopped, report->duration_ms);
    report_put(&w, ">\n");
    for (int group = 0; group < DRILL_GROUPS; group++) {
        put_suite(&w, report, (enum drill_group)group);
    }
    if (stopped) {
        put_stopped(&w, report);
    }
    report_put(&w, "</testsuites>\n");
    return w.code;
}
