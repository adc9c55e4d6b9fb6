/* `hapax drill`: does an endpoint survive duplicates? Sends the same operation in many ways, counts its effects, and
 * judges. Works on any HTTP endpoint; knows nothing of the store or the engine.
 *
 * The report is plain data: whoever prints it (text, JSON, JUnit, TAP, HTML) reads nothing else. Invariants of every
 * text in it: valid UTF-8, one line, no control characters; whatever came from the network or the command line was
 * escaped when the report was made. No credential of the command line is in it: a header's value only where its name
 * is known to be harmless, of a URL's parameters none whose name sounds secret, no command. */
#ifndef DRILL_DRILL_H
#define DRILL_DRILL_H

#include "base/arena.h"
#include "base/buf.h"
#include "hapax/error.h"

#include <stdbool.h>
#include <stdint.h>

#define DRILL_TIMES_MAX        100 /* requests that one barrier releases; repeats of one series */
#define DRILL_HEADERS_MAX      32  /* -H lines */
#define DRILL_BODY_BYTES_MAX   (16U * 1024U * 1024U)
#define DRILL_EVENTS_MAX       16          /* files of --events */
#define DRILL_ORDERS_MAX       120         /* orders of them that are tried: all of up to five files */
#define DRILL_REPORT_BYTES_MAX (64U << 20) /* of one report in any format */

/* --- The report. --------------------------------------------------------------------------------- */

enum drill_verdict { DRILL_HOLDS, DRILL_BROKEN, DRILL_NOT_APPLICABLE, DRILL_INCONCLUSIVE, DRILL_VERDICTS };

enum drill_group {
    DRILL_CHECK,   /* before everything: one request, one effect */
    DRILL_MATRIX,  /* the only group whose cases have a place on the axes */
    DRILL_REPEATS, /* many repeats, many at once */
    DRILL_ANSWERS, /* what a repeat's answer looks like */
    DRILL_KEYS,    /* missing, malformed, overlong, placeholders */
    DRILL_FAILURES,
    DRILL_EVENTS,
    DRILL_GROUPS
};

enum drill_axis { DRILL_COUNT, DRILL_DELIVERY, DRILL_PAYLOAD, DRILL_PLACE, DRILL_MOMENT, DRILL_AXES };

#define DRILL_AXIS_VALUES 3 /* each axis has three, in the order of these lists */
enum drill_count { DRILL_ONCE, DRILL_SERIES, DRILL_AT_ONCE };
enum drill_delivery { DRILL_READ, DRILL_REPLY_LOST, DRILL_REQUEST_LOST };
enum drill_payload { DRILL_SAME, DRILL_REORDERED, DRILL_OTHER };
enum drill_place { DRILL_HERE, DRILL_OTHER_TENANT, DRILL_OTHER_PATH };
enum drill_moment { DRILL_RIGHT_AWAY, DRILL_DURING, DRILL_AFTER };

/* How many requests were answered with this status; 0: not answered. */
struct drill_status {
    int status;
    unsigned times;
};

struct drill_case {
    const char
        *id; /* unique in the report, [a-z0-9.-]+; of the matrix: COUNT.DELIVERY.PAYLOAD.PLACE.MOMENT */
    const char *title; /* what is done, a clause without a full stop */
    enum drill_group group;
    unsigned char at[DRILL_AXES]; /* values of the enums above; all 0 outside the matrix */
    enum drill_verdict verdict;
    const char *
        what; /* what happened, or why it is not applicable or inconclusive; never NULL, "" for plain holds */
    int64_t effects_least; /* expected; -1: not judged by their number */
    int64_t effects_most;
    int64_t effects_seen;                /* -1: unknown, or none were counted */
    const struct drill_status *statuses; /* in order of status */
    size_t status_count;
    unsigned requests; /* to the endpoint */
    const char
        *curl; /* a shell command that does it again; "" when nothing was sent, or it would be too long */
    int64_t duration_ms; /* 0 when nothing was sent */
};

struct drill_report {
    const char *version; /* of hapax */
    const char *method;
    const char *target;  /* the URL, without a password */
    const char *profile; /* "draft" */
    const char *counter; /* how effects are counted: a URL, "a command", a file */
    int64_t started_wall_ms;
    int64_t duration_ms;
    uint64_t seed;
    unsigned times;                 /* N of "N in series" and "N at once" */
    unsigned requests;              /* to the endpoint, in all */
    const struct drill_case *cases; /* in the order in which they ran */
    size_t case_count;
    size_t tally[DRILL_VERDICTS];
    const char *stopped; /* why it ended before all cases were through; NULL: it did not */
    struct arena arena;  /* owns all of it */
};

/* Words for people and ids: "holds", "not applicable"; "matrix"; "delivery"; "reply-lost". Static. */
const char *drill_verdict_word(enum drill_verdict verdict);
const char *drill_group_word(enum drill_group group);
const char *drill_axis_word(enum drill_axis axis);
const char *drill_value_word(enum drill_axis axis, unsigned value);

/* Append the report in a format. 0, HAPAX_E_LIMIT (`out` is full) or HAPAX_E_MEMORY. */
int drill_report_text(struct buf *out, const struct drill_report *report, bool colour);
int drill_report_json(struct buf *out, const struct drill_report *report);
int drill_report_junit(struct buf *out, const struct drill_report *report);
int drill_report_tap(struct buf *out, const struct drill_report *report);
int drill_report_html(struct buf *out,
                      const struct drill_report *report); /* one page, nothing loaded from elsewhere */

#endif
