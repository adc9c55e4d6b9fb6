#include "run/kept.h"

#include "base/units.h"

#include <inttypes.h>

#define MARK "hapax-run 1\n"

static const char *const names[RUN_STREAMS] = {[RUN_STDOUT] = "stdout ", [RUN_STDERR] = "stderr "};

int run_kept_encode(struct buf *out, const struct run_kept *what)
{
    int rc = buf_printf(out, MARK "exit %d\n", what->code);
    for (int i = 0; i < RUN_STREAMS && rc == 0; i++) {
        rc = buf_printf(out, "%s%zu of %" PRIu64 "\n", names[i], what->kept[i].len, what->written[i]);
    }
    rc = rc != 0 ? rc : buf_append_byte(out, '\n');
    for (int i = 0; i < RUN_STREAMS && rc == 0; i++) {
        rc = buf_append_slice(out, what->kept[i]);
    }
    return rc;
}

/* --- reading: each takes its part off the front, or says no ---------------------------------------- */

static bool take_text(struct slice *rest, struct slice text)
{
    bool there = slice_starts_with(*rest, text);
    *rest = there ? slice_from(*rest, text.len) : *rest;
    return there;
}

static bool take_number(struct slice *rest, uint64_t *out)
{
    size_t digits = 0;
    while (digits < rest->len && rest->ptr[digits] >= '0' && rest->ptr[digits] <= '9') {
        digits++;
    }
    bool there = digits > 0 && units_u64(out, slice_of(rest->ptr, digits)) == 0;
    *rest = there ? slice_from(*rest, digits) : *rest;
    return there;
}

static bool take_head(struct slice *rest, struct run_kept *out)
{
    uint64_t code;
    if (!take_text(rest, SLICE_LITERAL(MARK "exit ")) || !take_number(rest, &code) || code > 255 ||
        !take_text(rest, SLICE_LITERAL("\n"))) {
        return false;
    }
    out->code = (int)code;
    for (int i = 0; i < RUN_STREAMS; i++) {
        uint64_t kept;
        if (!take_text(rest, slice_text(names[i])) || !take_number(rest, &kept) ||
            !take_text(rest, SLICE_LITERAL(" of ")) || !take_number(rest, &out->written[i]) ||
            !take_text(rest, SLICE_LITERAL("\n")) || kept > out->written[i] || kept > RUN_KEPT_BYTES_MAX) {
            return false;
        }
        out->kept[i].len = (size_t)kept;
    }
    return take_text(rest, SLICE_LITERAL("\n"));
}

bool run_kept_decode(struct run_kept *out, struct slice bytes)
{
    struct slice rest = bytes;
    *out = (struct run_kept){0};
    if (take_head(&rest, out) && rest.len == out->kept[RUN_STDOUT].len + out->kept[RUN_STDERR].len) {
        out->kept[RUN_STDOUT].ptr = rest.ptr;
        out->kept[RUN_STDERR].ptr = rest.ptr + out->kept[RUN_STDOUT].len;
        return true;
    }
    *out = (struct run_kept){.kept = {[RUN_STDOUT] = bytes}, .written = {[RUN_STDOUT] = bytes.len}};
    return false;
}
