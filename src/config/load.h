/* What the loader's parts share: the place in the file, messages, and texts with ${NAME} undone.
 * Inside config/ only. */
#ifndef CONFIG_LOAD_H
#define CONFIG_LOAD_H

#include "config/config.h"
#include "config/table.h"
#include "config/yaml.h"

#define LOAD_VALUE_BYTES_MAX 4096U /* one text, expanded */
#define LOAD_ROUTES_MAX      YAML_ITEMS_MAX

struct load {
    struct config *config;
    struct arena scratch; /* the tree; gone when loading is over */
    const char *file;     /* the name in messages */
    hapax_error *err;
    bool literal; /* texts are meant as they stand: no ${NAME} */
    /* The place: "routes[0]." "wait" "[2]". */
    char prefix[32];
    char name[80];
    char suffix[32];
};

/* One text of the file as it is meant. `shown` is how messages quote it: what the file says, never what a
 * variable or another file holds. */
struct value {
    struct slice text; /* in the config's arena, followed by a NUL; no control characters */
    char shown[64];
};

/* Fill l->err with "FILE:LINE: FIELD: " and the text. Line 0 is left out, as is an empty place.
 * Returns `code`. */
int load_fail(struct load *l, int code, uint32_t line, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
int load_no_memory(struct load *l);
/* `SHOWN is not NOUN (reason); write HOW (RANGE)`; reason may be NULL. */
int load_bad_value(struct load *l, const struct field *f, uint32_t line, const char *shown,
                   const char *reason);

/* The value of a text node: ${NAME} and $$ undone; with `from_file`, also {file: PATH}. Fails for other nodes with
 * what field f needs. */
int load_value(struct value *out, struct load *l, const struct field *f, const struct yaml_node *n,
               bool from_file);

/* Copy into the config's arena, with a NUL. */
int load_copy(struct slice *out, struct load *l, struct slice text);

/* Append `text` with $$ and ${NAME}, ${NAME:-DEFAULT} undone. On failure `problem` (size bytes) says why. */
int expand_text(struct buf *out, struct slice text, char *problem, size_t size);

/* Rules over several fields. `root` gives the lines. */
int cross_check(struct load *l, const struct yaml_node *root);

#endif
