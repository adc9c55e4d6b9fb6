/* What steers a terminal, or reorders what a reader sees, is never passed on. */
#include "core/shown.h"

#include "core/utf8.h"

static bool is_steering(uint32_t c)
{
    return c < 0x20 || (c >= 0x7F && c < 0xA0) || c == 0x061C || (c >= 0x200E && c <= 0x200F) ||
           (c >= 0x2028 && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069);
}

int shown_append(struct buf *out, struct slice text)
{
    while (text.len > 0) {
        size_t len = utf8_length(text.ptr, text.len);
        bool plain = len > 0 && !is_steering(utf8_decode(text.ptr, len));
        len = len > 0 ? len : 1;
        int rc = plain ? buf_append(out, text.ptr, len) : 0;
        for (size_t i = 0; i < len && !plain && rc == 0; i++) {
            rc = buf_printf(out, "\\x%02x", (unsigned)(unsigned char)text.ptr[i]);
        }
        if (rc != 0) {
            return rc;
        }
        text = slice_from(text, len);
    }
    return 0;
}
