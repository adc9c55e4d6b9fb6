/* The records of a memory store: a hash table by digest (uniform already), every record in order of
 * serial, the running ones in a list of their own, the done ones in a heap by expiry.
 *
 * Nothing here locks or decides: memory.c does. After table_reserve() succeeded, that many inserts
 * and ends can't fail, which is what makes a batch atomic without an undo log. */
#ifndef STORE_MEMORY_TABLE_H
#define STORE_MEMORY_TABLE_H

#include "store/store.h"

struct entry {
    struct identity id;
    struct record record;  /* as written */
    struct answer *answer; /* a reference; of a done record */
    struct entry *hash_next;
    struct entry *older; /* all records in order of serial */
    struct entry *newer;
    struct entry *run_older; /* running ones, in order of their claims */
    struct entry *run_newer;
    size_t heap_index; /* of a done record */
    size_t scope_bytes;
    size_t key_bytes;
    char text[]; /* scope, then key */
};

struct table {
    struct entry **buckets;
    size_t bucket_count; /* a power of two */
    size_t count;
    uint64_t bytes; /* entries and answers */
    struct entry *oldest;
    struct entry *newest;
    struct entry *run_oldest;
    struct entry *run_newest;
    size_t running;
    size_t unknown;
    struct entry **heap; /* done records, the first to expire on top */
    size_t heap_count;
    size_t heap_cap;
};

int table_init(struct table *t);
void table_free(struct table *t);
/* Room for `more` records. HAPAX_E_MEMORY leaves the table as it was. */
int table_reserve(struct table *t, size_t more);

/* An entry that is in no table yet; scope and key copied. NULL without memory. */
struct entry *entry_make(const struct identity *id, struct slice scope, struct slice key);
size_t entry_memory(const struct entry *e);

struct entry *table_find(const struct table *t, const struct identity *id);
/* Takes the entry over; `record` is running and its serial larger than every other. */
void table_insert(struct table *t, struct entry *e, const struct record *record);
/* Change a record; a done one holds a reference to `answer`, which is retained. */
void table_update(struct table *t, struct entry *e, const struct record *record, struct answer *answer);
void table_remove(struct table *t, struct entry *e); /* and free it */

static inline struct slice entry_scope(const struct entry *e)
{
    return (struct slice){e->text, e->scope_bytes};
}

static inline struct slice entry_key(const struct entry *e)
{
    return (struct slice){e->text + e->scope_bytes, e->key_bytes};
}

#endif
