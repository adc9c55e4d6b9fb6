/* docs/CONFIG.md, made from the table. */
#include "config/kind.h"
#include "config/write.h"

#include <stdio.h>

static const char intro[] =
    "# Configuration\n"
    "\n"
    "<!-- Made from src/config/table.c by `hapax docs config`. Do not edit. -->\n"
    "\n"
    "`hapax serve --config hapax.yaml` reads one YAML file; `hapax check hapax.yaml` reads it and says what "
    "is wrong.\n"
    "The least that works:\n"
    "\n"
    "```\n"
    "routes:\n"
    "  - name: shop\n"
    "    to: http://127.0.0.1:3000\n"
    "```\n"
    "\n"
    "- **Durations** are whole numbers with `ms`, `s`, `m`, `h` or `d`; `0` needs no unit. **Sizes** are "
    "whole numbers with "
    "`KiB`, `MiB`, `GiB` (powers of 1024), `kB`, `MB`, `GB` (powers of 1000) or none (bytes).\n"
    "- **Variables:** `${NAME}` in a value is the environment variable, `${NAME:-default}` gives a default "
    "for one that "
    "is unset or empty, and `$$` is a dollar sign. An unset variable without a default is an error.\n"
    "- **Files:** a field that holds a text may be written as `{file: PATH}`; the value is what the file "
    "holds, without the "
    "newline at its end. PATH is relative to the configuration's folder. All other paths (`tls`, `ca`, "
    "`store`) are "
    "relative to the folder in which `hapax` is started.\n"
    "- **Errors** name file, line and field and say what is allowed. Unknown fields, fields that stand "
    "twice, and values "
    "out of range are errors; nothing is silently ignored.\n"
    "- **YAML:** anchors and aliases work; tags, directives, merge keys (`<<`) and several documents in one "
    "file do not. A "
    "file is at most 1 MiB.\n"
    "- A dot in a name below is a level of nesting: `log.level` is `level` inside of `log`.\n";

/* A pipe would end the table's cell. */
static int append_cell(struct buf *out, const char *text)
{
    int rc = 0;
    for (const char *p = text; rc == 0 && *p != '\0'; p++) {
        rc = *p == '|' ? buf_append_text(out, "\\|") : buf_append_byte(out, *p);
    }
    return rc;
}

static const char *standard_text(const struct field *f)
{
    return f->standard != NULL ? f->standard : (f->flags & FIELD_REQUIRED) != 0 ? "required" : "";
}

static int document_field(struct buf *out, const struct field *f)
{
    char range[FIELD_TEXT_MAX];
    field_range(range, f);
    const char *quote = f->standard != NULL ? "`" : "";
    int rc = buf_printf(out, "| `%s` | %s | %s%s%s | %s | ", f->name, field_kinds[f->kind].name, quote,
                        standard_text(f), quote, range);
    if (rc == 0) {
        rc = append_cell(out, f->meaning);
    }
    return rc != 0 ? rc : buf_append_text(out, " |\n");
}

static int document_table(struct buf *out, const struct table *t)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < t->group_count; i++) {
        const struct group *g = &t->groups[i];
        rc = buf_printf(out, "\n## %s\n\n%s%s", g->title, g->intro != NULL ? g->intro : "",
                        g->intro != NULL ? "\n\n" : "");
        if (rc == 0) {
            rc = buf_append_text(out, "| field | type | default | range or words | meaning |\n"
                                      "|---|---|---|---|---|\n");
        }
        for (size_t k = 0; rc == 0 && k < g->count; k++) {
            rc = document_field(out, &g->fields[k]);
        }
    }
    return rc;
}

static int example_table(struct writer *w, const struct table *t)
{
    int rc = 0;
    for (const struct field *f = table_next(t, NULL); rc == 0 && f != NULL; f = table_next(t, f)) {
        if (f->example != NULL) {
            rc = write_line(w, f->name, f->example, strlen(f->example));
        }
    }
    return rc;
}

int config_document(struct buf *out)
{
    struct writer process = {.out = out, .indent = ""};
    struct writer route = {.out = out, .first = "  - ", .indent = "    "};
    int rc = buf_append_text(out, intro);
    if (rc == 0) {
        rc = document_table(out, &config_table);
    }
    if (rc == 0) {
        rc = document_table(out, &route_table);
    }
    if (rc == 0) {
        rc = buf_append_text(out, "\n## Every field in one example\n\n```yaml\n");
    }
    if (rc == 0) {
        rc = example_table(&process, &config_table);
    }
    if (rc == 0) {
        rc = buf_append_text(out, "routes:\n");
    }
    if (rc == 0) {
        rc = example_table(&route, &route_table);
    }
    return rc != 0 ? rc : buf_append_text(out, "```\n");
}
