/* YAML text → a tree of nodes that know their lines; the only part that sees libyaml.
 *
 * Stricter than YAML where a reader could be misled or a machine be kept busy: one document, no tags,
 * no directives, no merge keys, names are plain text and stand once in a mapping. Aliases share nodes;
 * what they stand for counts in full against the node limit, so a small text can't unfold into a large
 * tree, and an alias inside its own anchor is refused: a walk over a tree always ends. */
#ifndef CONFIG_YAML_H
#define CONFIG_YAML_H

#include "base/arena.h"
#include "hapax/error.h"

#include <stdint.h>

#define YAML_BYTES_MAX   (1U << 20)
#define YAML_NODES_MAX   100000U /* with every alias unfolded */
#define YAML_ITEMS_MAX   1024U   /* of one list or mapping */
#define YAML_DEPTH_MAX   16U
#define YAML_ANCHORS_MAX 256U

enum yaml_kind { YAML_TEXT, YAML_LIST, YAML_MAP };

struct yaml_item {
    struct slice name; /* of a mapping's member; SLICE_NONE in a list */
    uint32_t line;     /* where the item begins */
    const struct yaml_node *value;
    struct yaml_item *next;
};

struct yaml_node {
    enum yaml_kind kind;
    uint32_t line;           /* from 1; 0: made by us, stands in no file */
    uint32_t size;           /* nodes of this tree, aliases unfolded */
    uint32_t count;          /* items */
    bool empty;              /* YAML_TEXT: nothing, ~ or null, not quoted */
    bool complete;           /* false while it is being read */
    struct slice text;       /* YAML_TEXT, followed by a NUL that is not counted */
    struct yaml_item *items; /* in the order of the text */
};

/* Read one document into the arena. Messages begin with "NAME:LINE: ". The root may be of any kind; a text
 * without a document gives *out NULL. Returns 0, HAPAX_E_SYNTAX, HAPAX_E_LIMIT, HAPAX_E_MEMORY. */
int yaml_read(const struct yaml_node **out, struct arena *arena, struct slice text, const char *name,
              hapax_error *err);

/* The member of a mapping with this name; NULL when there is none or `map` is no mapping or NULL. */
const struct yaml_item *yaml_find(const struct yaml_node *map, const char *name);

#endif
