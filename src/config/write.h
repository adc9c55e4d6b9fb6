/* YAML out: the dump, and the example in the documentation. Inside config/ only. */
#ifndef CONFIG_WRITE_H
#define CONFIG_WRITE_H

#include "config/table.h"

/* Writes fields one a line, nested where their names have a dot. `first` stands before the first line. */
struct writer {
    struct buf *out;
    const char *first;  /* "  - " of a route's first field; NULL once it is written */
    const char *indent; /* before every other line */
    char group[32];     /* what the line before was nested in */
};

/* `text` is the value as YAML on one line. */
int write_line(struct writer *w, const char *name, const char *text, size_t len);

/* The fields of a table that are set in `base`. Secret ones are only named, in a comment. */
int write_table(struct writer *w, const struct table *t, const void *base);

#endif
