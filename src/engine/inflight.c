#include "engine/inflight.h"

#include "base/assert.h"

#include <stdlib.h>

#define BLOCK_ENTRIES 128

struct inflight_block {
    struct inflight_block *next;
    struct inflight entries[BLOCK_ENTRIES];
};

int inflight_init(struct inflight_table *t)
{
    *t = (struct inflight_table){0};
    return identity_table_init(&t->table);
}

void inflight_free(struct inflight_table *t)
{
    for (size_t i = 0; i < t->table.bucket_count; i++) {
        for (struct identity_node *node = t->table.buckets[i]; node != NULL; node = node->next) {
            free(((struct inflight *)node)->names);
        }
    }
    while (t->blocks != NULL) {
        struct inflight_block *next = t->blocks->next;
        free(t->blocks);
        t->blocks = next;
    }
    identity_table_free(&t->table);
}

static void to_pool(struct inflight_table *t, struct inflight *entry)
{
    entry->node.next = t->pool;
    t->pool = &entry->node;
    t->pool_count++;
}

int inflight_reserve(struct inflight_table *t, size_t count)
{
    while (t->pool_count < count) {
        struct inflight_block *block = malloc(sizeof(*block));
        if (block == NULL) {
            return HAPAX_E_MEMORY;
        }
        block->next = t->blocks;
        t->blocks = block;
        for (size_t i = 0; i < BLOCK_ENTRIES; i++) {
            to_pool(t, &block->entries[i]);
        }
    }
    return 0;
}

struct inflight *inflight_find(const struct inflight_table *t, const struct identity *id)
{
    return (struct inflight *)identity_table_find(&t->table, id);
}

struct inflight *inflight_add(struct inflight_table *t, const struct identity *id, enum inflight_kind kind,
                              const struct record *record)
{
    HAPAX_ASSERT(t->pool_count > 0);
    struct inflight *entry = (struct inflight *)t->pool;
    t->pool = entry->node.next;
    t->pool_count--;
    *entry = (struct inflight){.node.id = *id, .kind = kind, .record = *record, .timer.kind = TIMER_INFLIGHT};
    identity_table_add(&t->table, &entry->node);
    t->ours_count += kind == INFLIGHT_OURS;
    return entry;
}

void inflight_name(struct inflight *entry, struct slice scope, struct slice key)
{
    entry->names = malloc(scope.len + key.len + 1);
    if (entry->names != NULL) {
        memcpy(entry->names, scope.ptr, scope.len);
        memcpy(entry->names + scope.len, key.ptr, key.len);
        entry->scope_bytes = (uint32_t)scope.len;
        entry->key_bytes = (uint32_t)key.len;
    }
}

void inflight_remove(struct inflight_table *t, struct inflight *entry)
{
    HAPAX_ASSERT(entry->first == NULL && entry->timer.place == 0);
    identity_table_remove(&t->table, &entry->node);
    t->ours_count -= entry->kind == INFLIGHT_OURS;
    free(entry->names);
    to_pool(t, entry);
}

void inflight_append_waiter(struct inflight *entry, struct engine_op *op)
{
    op->waits_for = entry;
    op->next = NULL;
    op->prev = entry->last;
    *(entry->last != NULL ? &entry->last->next : &entry->first) = op;
    entry->last = op;
    entry->waiter_count++;
}

void inflight_unlink_waiter(struct engine_op *op)
{
    struct inflight *entry = op->waits_for;
    *(op->prev != NULL ? &op->prev->next : &entry->first) = op->next;
    *(op->next != NULL ? &op->next->prev : &entry->last) = op->prev;
    op->next = op->prev = NULL;
    op->waits_for = NULL;
    entry->waiter_count--;
}

struct engine_op *inflight_next_waiter(const struct inflight_table *t, size_t *bucket)
{
    for (; *bucket < t->table.bucket_count; (*bucket)++) {
        for (struct identity_node *node = t->table.buckets[*bucket]; node != NULL; node = node->next) {
            struct inflight *entry = (struct inflight *)node;
            if (entry->first != NULL) {
                return entry->first;
            }
        }
    }
    return NULL;
}
