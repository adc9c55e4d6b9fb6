/* A hash table keyed by identity, with intrusive nodes: the base of the in-flight table and the replay cache.
 *
 * Grows by doubling; when there is no memory to grow it goes on with longer chains, so that adding never fails.
 * The hash is seeded per process: keys chosen by a stranger don't collide on purpose. One thread. */
#ifndef ENGINE_IDENTITY_TABLE_H
#define ENGINE_IDENTITY_TABLE_H

#include "core/identity.h"

#include <stddef.h>
#include <stdint.h>

struct identity_node {
    struct identity_node *next;
    uint64_t hash;
    struct identity id;
};

struct identity_table {
    struct identity_node **buckets;
    size_t bucket_count; /* a power of two */
    size_t count;
};

int identity_table_init(struct identity_table *t);  /* 0 or HAPAX_E_MEMORY */
void identity_table_free(struct identity_table *t); /* the nodes are the caller's */
struct identity_node *identity_table_find(const struct identity_table *t, const struct identity *id);
/* Add a node whose id is set and not in the table yet. */
void identity_table_add(struct identity_table *t, struct identity_node *node);
void identity_table_remove(struct identity_table *t, struct identity_node *node);

#endif
