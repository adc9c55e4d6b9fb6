/* The table of all fields: the one place that knows a field's name, kind, default, range and meaning.
 * The loader, the range checks, the dump and docs/CONFIG.md run from it; what stands here is true everywhere.
 * Inside config/ only. */
#ifndef CONFIG_TABLE_H
#define CONFIG_TABLE_H

#include "base/buf.h"
#include "config/config.h"

struct load;
struct yaml_node;

enum field_kind {
    KIND_NAME,           /* const char *: [a-z0-9_-] */
    KIND_HOST,           /* const char *: host name in lower case, or [IPv6] */
    KIND_PATH,           /* const char *: absolute, no slash at the end */
    KIND_URL,            /* const char *: http(s), no slash at the end */
    KIND_PROBE,          /* const char *: http(s) URL with {key} */
    KIND_FILE,           /* const char *: a path */
    KIND_ADDRESS,        /* const char *: IP:PORT */
    KIND_ADDRESS_OFF,    /* the same, or "off" */
    KIND_STORE,          /* const char *: store URI */
    KIND_HEADER,         /* const char *: header name, "" for none */
    KIND_WORD,           /* const char *: one of `words` */
    KIND_ENUM,           /* an enum: position in `words` */
    KIND_BOOL,           /* bool */
    KIND_DURATION,       /* int64_t, ms */
    KIND_SIZE,           /* uint32_t or uint64_t, bytes */
    KIND_COUNT,          /* uint32_t */
    KIND_METHODS,        /* unsigned: METHOD_* */
    KIND_KEY,            /* const struct key_source *, count at `offset_more` */
    KIND_TENANT,         /* enum tenant_kind, const char *name at `offset_more` */
    KIND_FINGERPRINT,    /* struct fingerprint_rule, but for what KIND_IGNORE sets */
    KIND_IGNORE,         /* const struct slice *, count at `offset_more` */
    KIND_OUTCOME,        /* struct outcome_table */
    KIND_ROUTE_DEFAULTS, /* no memory of its own: route fields */
    KIND_ROUTES,         /* const struct route *, count at `offset_more` */
    KIND_COUNT_OF_KINDS
};

enum { FIELD_REQUIRED = 1, FIELD_SECRET = 2, FIELD_OWN = 4 /* of each route; not in `defaults` */ };

struct field {
    const char *name; /* dotted: "limits.queue" */
    enum field_kind kind;
    unsigned flags;
    size_t offset, size; /* of the member */
    size_t offset_more, size_more;
    const char *standard;     /* the default, as YAML; NULL: unset */
    uint64_t min, max;        /* DURATION (ms), SIZE (bytes), COUNT */
    const char *const *words; /* WORD, ENUM; ends with NULL */
    const char *meaning;      /* one sentence or two, for docs/CONFIG.md */
    const char *example;      /* as YAML; what the complete example in the documentation shows */
};

struct group {
    const char *title, *intro;
    const struct field *fields;
    size_t count;
};

/* A table is a list of groups; all fields of a table have their members in one struct. */
struct table {
    const struct group *groups;
    size_t group_count;
};

extern const struct table config_table; /* struct config */
extern const struct table route_table;  /* struct route */

/* How a kind is called, read and written. */
struct kind {
    const char *name; /* the type in docs/CONFIG.md: "duration" */
    const char *noun; /* `"x" is not NOUN` */
    const char *how;  /* `write HOW`; NULL: the field's words */
    /* Check the node and set the members in `base`. 0, or a code with l->err filled. */
    int (*set)(struct load *l, const struct field *f, void *base, const struct yaml_node *n);
    /* Append the value as YAML on one line. HAPAX_E_MISSING: it is not set; nothing was appended. */
    int (*write)(struct buf *out, const struct field *f, const void *base);
    size_t size, size_more; /* of the members; 0: several are possible, or none */
};

extern const struct kind field_kinds[KIND_COUNT_OF_KINDS];

/* Walk: f = table_next(t, NULL), then table_next(t, f), ... until NULL. */
const struct field *table_next(const struct table *t, const struct field *f);
const struct field *config_field_find(const struct table *t, struct slice name);
/* Does a field's name begin with `name` and a dot? */
bool table_has_group(const struct table *t, struct slice name);

/* "write HOW (MIN to MAX)" for messages; the range as "MIN to MAX" or "". out: at least FIELD_TEXT_MAX bytes. */
#define FIELD_TEXT_MAX 160
void field_how(char *out, const struct field *f);
void field_range(char *out, const struct field *f);

static inline void *field_at(const struct field *f, void *base)
{
    return (char *)base + f->offset;
}

static inline void *field_more(const struct field *f, void *base)
{
    return (char *)base + f->offset_more;
}

static inline const void *field_at_const(const struct field *f, const void *base)
{
    return (const char *)base + f->offset;
}

static inline const void *field_more_const(const struct field *f, const void *base)
{
    return (const char *)base + f->offset_more;
}

#endif
