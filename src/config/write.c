/* See write.h. What is written loads again to the same config. */
#include "config/write.h"

#include "base/buf.h"
#include "base/secret.h"
#include "config/kind.h"

#include <stdio.h>

enum { VALUE_TEXT_MAX = 1 << 20 };

int yaml_quote(struct buf *out, struct slice text)
{
    int rc = buf_append_byte(out, '"');
    while (rc == 0 && text.len > 0) {
        const char *byte = text.ptr;
        uint32_t c = utf8_next(&text);
        if (c == UINT32_MAX) {
            return HAPAX_E_ARGUMENT; /* a config never holds such a text */
        }
        if (c >= 0x80 || c < 0x20 || c == 0x7F) {
            rc = buf_printf(out, c > 0xFFFF ? "\\U%08x" : "\\u%04x", c);
        } else if (c == '"' || c == '\\') {
            rc = buf_printf(out, "\\%c", (int)c);
        } else {
            rc = buf_append(out, c == '$' ? "$$" : byte, c == '$' ? 2 : 1);
        }
    }
    return rc != 0 ? rc : buf_append_byte(out, '"');
}

static int begin_line(struct writer *w)
{
    const char *before = w->first != NULL ? w->first : w->indent;
    w->first = NULL;
    return buf_append_text(w->out, before);
}

int write_line(struct writer *w, const char *name, const char *text, size_t len)
{
    const char *dot = strchr(name, '.');
    int group = dot != NULL ? (int)(dot - name) : 0;
    int rc = 0;
    if (group > 0 && (strncmp(w->group, name, (size_t)group) != 0 || w->group[group] != '\0')) {
        rc = begin_line(w);
        if (rc == 0) {
            rc = buf_printf(w->out, "%.*s:\n", group, name);
        }
    }
    snprintf(w->group, sizeof w->group, "%.*s", group, name);
    if (rc == 0) {
        rc = begin_line(w);
    }
    if (rc == 0) {
        rc = buf_printf(w->out, "%s%s: ", group > 0 ? "  " : "", dot != NULL ? dot + 1 : name);
    }
    if (rc == 0) {
        rc = buf_append(w->out, text, len);
    }
    return rc != 0 ? rc : buf_append_byte(w->out, '\n');
}

/* A store's URI is when it holds a password. */
static bool is_secret(const struct field *f, const void *base)
{
    const char *uri = NULL;
    if (f->kind == KIND_STORE) {
        memcpy(&uri, field_at_const(f, base), sizeof uri);
    }
    return (f->flags & FIELD_SECRET) != 0 || (uri != NULL && secret_in_uri(uri));
}

static int write_field(struct writer *w, const struct field *f, const void *base, struct buf *value)
{
    if (field_kinds[f->kind].write == NULL) {
        return 0;
    }
    buf_clear(value);
    int rc = field_kinds[f->kind].write(value, f, base);
    if (rc == HAPAX_E_MISSING) {
        return 0;
    }
    if (rc == 0 && is_secret(f, base)) {
        rc = buf_printf(w->out, "# %s is set; it is secret and not shown\n", f->name);
        return rc;
    }
    return rc != 0 ? rc : write_line(w, f->name, value->ptr, value->len);
}

int write_table(struct writer *w, const struct table *t, const void *base)
{
    struct buf value;
    buf_init(&value, VALUE_TEXT_MAX);
    int rc = 0;
    for (const struct field *f = table_next(t, NULL); rc == 0 && f != NULL; f = table_next(t, f)) {
        rc = write_field(w, f, base, &value);
    }
    buf_free(&value);
    return rc;
}

int config_dump(struct buf *out, const struct config *c)
{
    struct writer process = {.out = out, .indent = ""};
    int rc = write_table(&process, &config_table, c);
    if (rc == 0) {
        rc = buf_append_text(out, "routes:\n");
    }
    for (size_t i = 0; rc == 0 && i < c->route_count; i++) {
        struct writer route = {.out = out, .first = "  - ", .indent = "    "};
        rc = write_table(&route, &route_table, &c->routes[i]);
    }
    return rc;
}
