/* Reading and writing of single kinds of fields; see `struct kind`. Inside config/ only. */
#ifndef CONFIG_KIND_H
#define CONFIG_KIND_H

#include "config/load.h"
#include "config/table.h"

int set_methods(struct load *l, const struct field *f, void *base, const struct yaml_node *n);
int set_key(struct load *l, const struct field *f, void *base, const struct yaml_node *n);
int set_tenant(struct load *l, const struct field *f, void *base, const struct yaml_node *n);
int set_fingerprint(struct load *l, const struct field *f, void *base, const struct yaml_node *n);
int set_ignore(struct load *l, const struct field *f, void *base, const struct yaml_node *n);
int set_outcome(struct load *l, const struct field *f, void *base, const struct yaml_node *n);

int write_methods(struct buf *out, const struct field *f, const void *base);
int write_key(struct buf *out, const struct field *f, const void *base);
int write_tenant(struct buf *out, const struct field *f, const void *base);
int write_fingerprint(struct buf *out, const struct field *f, const void *base);
int write_ignore(struct buf *out, const struct field *f, const void *base);
int write_outcome(struct buf *out, const struct field *f, const void *base);

/* Append a double-quoted YAML scalar in ASCII that loads as `text`: $ is written as $$. */
int yaml_quote(struct buf *out, struct slice text);

/* The code point at the start of valid UTF-8 *s, which is moved past it; UINT32_MAX when it is not valid. */
uint32_t utf8_next(struct slice *s);

/* What `protect` can name, in the order of the METHOD_* bits. */
extern const char *const method_words[];
extern const char *const fingerprint_words[];

#endif
