#include "engine/identity_table.h"

#include "base/assert.h"
#include "base/digest.h"
#include "hapax/error.h"

#include <stdlib.h>

#define BUCKETS_AT_START 1024U

int identity_table_init(struct identity_table *t)
{
    *t = (struct identity_table){.buckets = calloc(BUCKETS_AT_START, sizeof(*t->buckets))};
    t->bucket_count =
        t->buckets != NULL ? BUCKETS_AT_START : 0; /* a table that failed can be walked, and is empty */
    return t->buckets != NULL ? 0 : HAPAX_E_MEMORY;
}

void identity_table_free(struct identity_table *t)
{
    free(t->buckets);
    *t = (struct identity_table){0};
}

static uint64_t hash_of(const struct identity *id)
{
    return digest_table_hash(slice_of(id->bytes, IDENTITY_BYTES));
}

static struct identity_node **bucket(const struct identity_table *t, uint64_t hash)
{
    return &t->buckets[hash & (t->bucket_count - 1)];
}

struct identity_node *identity_table_find(const struct identity_table *t, const struct identity *id)
{
    uint64_t hash = hash_of(id);
    struct identity_node *node = *bucket(t, hash);
    while (node != NULL && (node->hash != hash || !identity_equal(&node->id, id))) {
        node = node->next;
    }
    return node;
}

static void grow(struct identity_table *t)
{
    struct identity_table larger = {.bucket_count = t->bucket_count * 2};
    larger.buckets = calloc(larger.bucket_count, sizeof(*larger.buckets));
    if (larger.buckets == NULL) {
        return;
    }
    for (size_t i = 0; i < t->bucket_count; i++) {
        struct identity_node *node = t->buckets[i];
        while (node != NULL) {
            struct identity_node *next = node->next;
            struct identity_node **to = bucket(&larger, node->hash);
            node->next = *to;
            *to = node;
            node = next;
        }
    }
    free(t->buckets);
    t->buckets = larger.buckets;
    t->bucket_count = larger.bucket_count;
}

void identity_table_add(struct identity_table *t, struct identity_node *node)
{
    if (t->count >= t->bucket_count) {
        grow(t);
    }
    node->hash = hash_of(&node->id);
    struct identity_node **to = bucket(t, node->hash);
    node->next = *to;
    *to = node;
    t->count++;
}

void identity_table_remove(struct identity_table *t, struct identity_node *node)
{
    struct identity_node **at = bucket(t, node->hash);
    while (*at != node) {
        HAPAX_ASSERT(*at != NULL);
        at = &(*at)->next;
    }
    *at = node->next;
    t->count--;
}
