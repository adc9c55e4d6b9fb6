/* See memory_table.h. A record's state decides which of the lists it is in; enter() and leave() are
 * the only places that know. */
#include "store/memory_table.h"

#include "base/assert.h"

#include <stdlib.h>

#define BUCKETS_MIN 1024
#define HEAP_MIN    1024

int table_init(struct table *t)
{
    *t = (struct table){0};
    t->buckets = calloc(BUCKETS_MIN, sizeof *t->buckets);
    if (t->buckets == NULL) {
        return HAPAX_E_MEMORY;
    }
    t->bucket_count = BUCKETS_MIN;
    return 0;
}

void table_free(struct table *t)
{
    while (t->newest != NULL) {
        table_remove(t, t->newest);
    }
    free(t->buckets);
    free(t->heap);
}

static struct entry **bucket_of(struct entry **buckets, size_t count, const struct identity *id)
{
    uint64_t hash;
    memcpy(&hash, id->bytes, sizeof hash);
    return &buckets[hash & (count - 1)];
}

static int grow_buckets(struct table *t, size_t wanted)
{
    size_t count = t->bucket_count;
    while (count < wanted) {
        count *= 2;
    }
    if (count == t->bucket_count) {
        return 0;
    }
    struct entry **buckets = calloc(count, sizeof *buckets);
    if (buckets == NULL) {
        return HAPAX_E_MEMORY;
    }
    for (struct entry *e = t->oldest; e != NULL; e = e->newer) {
        struct entry **slot = bucket_of(buckets, count, &e->id);
        e->hash_next = *slot;
        *slot = e;
    }
    free(t->buckets);
    t->buckets = buckets;
    t->bucket_count = count;
    return 0;
}

int table_reserve(struct table *t, size_t more)
{
    size_t wanted = t->count + more;
    if (wanted > t->heap_cap) {
        size_t cap = t->heap_cap > 0 ? t->heap_cap : HEAP_MIN;
        while (cap < wanted) {
            cap *= 2;
        }
        struct entry **heap = realloc(t->heap, cap * sizeof(struct entry *));
        if (heap == NULL) {
            return HAPAX_E_MEMORY;
        }
        t->heap = heap;
        t->heap_cap = cap;
    }
    return grow_buckets(t, wanted);
}

struct entry *entry_make(const struct identity *id, struct slice scope, struct slice key)
{
    struct entry *e = malloc(sizeof *e + scope.len + key.len);
    if (e == NULL) {
        return NULL;
    }
    *e = (struct entry){.id = *id, .scope_bytes = scope.len, .key_bytes = key.len};
    if (scope.len > 0) {
        memcpy(e->text, scope.ptr, scope.len);
    }
    if (key.len > 0) {
        memcpy(e->text + scope.len, key.ptr, key.len);
    }
    return e;
}

size_t entry_memory(const struct entry *e)
{
    size_t answer = e->answer != NULL ? answer_memory(e->answer) : 0;
    return sizeof *e + e->scope_bytes + e->key_bytes + answer;
}

struct entry *table_find(const struct table *t, const struct identity *id)
{
    struct entry *e = *bucket_of(t->buckets, t->bucket_count, id);
    while (e != NULL && !identity_equal(&e->id, id)) {
        e = e->hash_next;
    }
    return e;
}

static void heap_put(struct table *t, size_t i, struct entry *e)
{
    t->heap[i] = e;
    e->heap_index = i;
}

/* Move the entry at i to where it belongs. */
static void heap_settle(struct table *t, size_t i)
{
    struct entry *e = t->heap[i];
    int64_t expires = e->record.expires_ms;
    while (i > 0 && t->heap[(i - 1) / 2]->record.expires_ms > expires) {
        heap_put(t, i, t->heap[(i - 1) / 2]);
        i = (i - 1) / 2;
    }
    for (;;) {
        size_t child = 2 * i + 1;
        if (child + 1 < t->heap_count &&
            t->heap[child + 1]->record.expires_ms < t->heap[child]->record.expires_ms) {
            child++;
        }
        if (child >= t->heap_count || t->heap[child]->record.expires_ms >= expires) {
            break;
        }
        heap_put(t, i, t->heap[child]);
        i = child;
    }
    heap_put(t, i, e);
}

static void heap_add(struct table *t, struct entry *e)
{
    HAPAX_ASSERT(t->heap_count < t->heap_cap);
    heap_put(t, t->heap_count, e);
    t->heap_count++;
    heap_settle(t, t->heap_count - 1);
}

static void heap_remove(struct table *t, struct entry *e)
{
    size_t i = e->heap_index;
    struct entry *last = t->heap[--t->heap_count];
    if (last != e) {
        heap_put(t, i, last);
        heap_settle(t, i);
    }
}

static void enter(struct table *t, struct entry *e)
{
    switch (e->record.state) {
    case RECORD_RUNNING:
        t->running++;
        e->run_newer = NULL;
        e->run_older = t->run_newest;
        *(e->run_older != NULL ? &e->run_older->run_newer : &t->run_oldest) = e;
        t->run_newest = e;
        break;
    case RECORD_UNKNOWN:
        t->unknown++;
        break;
    case RECORD_DONE:
        heap_add(t, e);
        break;
    case RECORD_ABSENT:
        HAPAX_ASSERT(false);
    }
}

static void leave(struct table *t, struct entry *e)
{
    switch (e->record.state) {
    case RECORD_RUNNING:
        t->running--;
        *(e->run_older != NULL ? &e->run_older->run_newer : &t->run_oldest) = e->run_newer;
        *(e->run_newer != NULL ? &e->run_newer->run_older : &t->run_newest) = e->run_older;
        break;
    case RECORD_UNKNOWN:
        t->unknown--;
        break;
    case RECORD_DONE:
        heap_remove(t, e);
        break;
    case RECORD_ABSENT:
        HAPAX_ASSERT(false);
    }
}

void table_insert(struct table *t, struct entry *e, const struct record *record)
{
    HAPAX_ASSERT(t->newest == NULL || t->newest->record.fence.serial < record->fence.serial);
    e->record = *record;
    struct entry **slot = bucket_of(t->buckets, t->bucket_count, &e->id);
    e->hash_next = *slot;
    *slot = e;
    e->newer = NULL;
    e->older = t->newest;
    *(e->older != NULL ? &e->older->newer : &t->oldest) = e;
    t->newest = e;
    t->count++;
    t->bytes += entry_memory(e);
    enter(t, e);
}

void table_update(struct table *t, struct entry *e, const struct record *record, struct answer *answer)
{
    t->bytes -= entry_memory(e);
    leave(t, e);
    e->record = *record;
    answer_drop(e->answer);
    e->answer = answer_retain(answer);
    enter(t, e);
    t->bytes += entry_memory(e);
}

void table_remove(struct table *t, struct entry *e)
{
    struct entry **slot = bucket_of(t->buckets, t->bucket_count, &e->id);
    while (*slot != e) {
        slot = &(*slot)->hash_next;
    }
    *slot = e->hash_next;
    *(e->older != NULL ? &e->older->newer : &t->oldest) = e->newer;
    *(e->newer != NULL ? &e->newer->older : &t->newest) = e->older;
    leave(t, e);
    t->count--;
    t->bytes -= entry_memory(e);
    answer_drop(e->answer);
    free(e);
}
