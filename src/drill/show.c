/* The shell line of a case. */
#include "drill/machine.h"

#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>

static const char *url_of(const struct trial *t, unsigned operation)
{
    bool path = t->operations[operation].place == DRILL_OTHER_PATH;
    return path ? t->d->setup->other_url : t->d->setup->url;
}

static void keep_code(struct trial *t, int rc)
{
    if (rc == HAPAX_E_LIMIT) { /* a line that nobody would paste; half of one would mislead */
        buf_clear(&t->curl);
        t->curl.len_max = 0;
    } else if (rc != 0 && t->rc == 0) {
        t->rc = error_code(&t->d->err, rc);
    }
}

void curl_variables(struct trial *t, unsigned operation)
{
    curl_key(t, operation);
    keep_code(t, request_write_unique_variable(&t->curl, t->d->setup, &t->operations[operation]));
}

void curl_send(struct trial *t, unsigned operation, enum drill_delivery lost)
{
    keep_code(t, request_write_curl(&t->curl, t->d->setup, &t->d->payloads, &t->operations[operation],
                                    url_of(t, operation), lost));
}

void curl_repeat(struct trial *t, unsigned operation, unsigned times, bool at_once)
{
    if (times == 1) {
        curl_send(t, operation, DRILL_READ);
        return;
    }
    curl_text(t, "for i in $(seq %u); do ", times);
    curl_send(t, operation, DRILL_READ);
    curl_text(t, at_once ? " & done; wait" : "; done");
}

void curl_key(struct trial *t, unsigned operation)
{
    keep_code(t, request_write_key_variable(&t->curl, t->d->setup, &t->operations[operation]));
}

void curl_final(struct trial *t, unsigned operation)
{
    keep_code(t, request_write_final(&t->curl, t->d->setup, &t->operations[operation]));
}

void curl_command(struct trial *t, const char *command)
{
    /* Commands hold passwords as often as headers do. */
    bool reset = command == t->d->setup->reset_command;
    keep_code(t, buf_append_text(&t->curl, reset ? "sh -c \"$RESET_CMD\"" : "sh -c \"$RESTART_CMD\""));
}

void curl_text(struct trial *t, const char *format, ...)
{
    char text[256];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    keep_code(t, buf_append_text(&t->curl, text));
}
