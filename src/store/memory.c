/* The memory store: for tests, trials and as the yardstick of the others. Nothing survives the last handle.
 *
 * `memory:` is one handle's own; `memory:NAME` is shared by every handle of the process. Each call
 * holds the table's lock from begin to end, so call-backs of list() and owners() must not use the store.
 * A batch is atomic because everything that can fail (memory, the maxima) is asked for before the
 * first change. */
#include "store/memory_table.h"

#include "base/assert.h"
#include "base/error.h"
#include "base/limits.h"
#include "store/rules.h"
#include "store/schemes.h"

#include <pthread.h>
#include <stdlib.h>

/* Past these, batches with claims are refused as a full disk would; what was claimed can still be completed. */
#define MEMORY_RECORDS_MAX (8U << 20)
#define MEMORY_BYTES_MAX   (4ULL << 30)
#define MEMORY_OWNERS_MAX  4096
#define MEMORY_NAME_MAX    64

struct memory {
    pthread_mutex_t lock; /* everything below, but for name, handles and next */
    struct table table;
    uint64_t serial; /* the last one given */
    uint64_t generation;
    struct store_owner *owners;
    size_t owner_count;
    uint64_t owner_number;          /* the last one given */
    char name[MEMORY_NAME_MAX + 1]; /* "" for a private one */
    size_t handles;                 /* under shared_lock */
    struct memory *next;            /* under shared_lock */
};

struct memory_store {
    struct store store;
    struct memory *memory;
    uint64_t owner;
    bool read_only;
};

static pthread_mutex_t shared_lock = PTHREAD_MUTEX_INITIALIZER;
static struct memory *shared; /* the named ones */

static struct memory_store *handle_of(struct store *s)
{
    return (struct memory_store *)s;
}

static struct memory *lock(struct store *s)
{
    struct memory *m = handle_of(s)->memory;
    pthread_mutex_lock(&m->lock);
    return m;
}

static void unlock(struct memory *m)
{
    pthread_mutex_unlock(&m->lock);
}

/* Entries for the claims of a batch, made before anything is changed. */
struct spares {
    struct entry *entries[LIMIT_BATCH_OPS_MAX]; /* by op; NULL where none is needed or left */
};

static void free_spares(struct spares *sp, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        free(sp->entries[i]);
    }
}

static int prepare(struct memory *m, struct spares *sp, struct store_op *const *ops, size_t n,
                   hapax_error *err)
{
    size_t claims = 0;
    uint64_t bytes = m->table.bytes;
    for (size_t i = 0; i < n; i++) {
        sp->entries[i] = NULL;
        if (ops[i]->kind == STORE_CLAIM) {
            sp->entries[i] = entry_make(&ops[i]->id, ops[i]->scope, ops[i]->key);
            if (sp->entries[i] == NULL) {
                free_spares(sp, i);
                return error_code(err, HAPAX_E_MEMORY);
            }
            claims++;
            bytes += entry_memory(sp->entries[i]);
        } else if ((ops[i]->kind == STORE_COMPLETE || ops[i]->kind == STORE_RESOLVE) &&
                   ops[i]->answer != NULL) {
            bytes += answer_memory(ops[i]->answer);
        }
    }
    int code = 0;
    if (claims > 0 && (m->table.count + claims > MEMORY_RECORDS_MAX || bytes > MEMORY_BYTES_MAX)) {
        code = error_set(err, HAPAX_E_STORE_FULL, 0, "the memory store holds as much as it may");
    } else if (table_reserve(&m->table, claims) != 0) {
        code = error_code(err, HAPAX_E_MEMORY);
    }
    if (code != 0) {
        free_spares(sp, n);
    }
    return code;
}

static void apply_one(struct memory *m, struct store_op *op, struct entry **spare, uint64_t owner,
                      int64_t now_ms)
{
    struct entry *e = table_find(&m->table, &op->id);
    struct rule_decision d;
    rule_decide(&d, op, e != NULL ? &e->record : NULL, owner, now_ms);
    switch (d.change) {
    case RULE_NOTHING:
        break;
    case RULE_INSERT:
        if (e != NULL) {
            table_remove(&m->table, e);
        }
        d.next.fence.serial = d.found.fence.serial = ++m->serial;
        e = *spare;
        *spare = NULL;
        table_insert(&m->table, e, &d.next);
        break;
    case RULE_UPDATE:
        table_update(&m->table, e, &d.next, d.with_answer ? op->answer : NULL);
        break;
    case RULE_REMOVE:
        table_remove(&m->table, e);
        e = NULL;
        break;
    }
    m->generation += d.by_hand;
    op->result = d.result;
    op->found = d.found;
    if (rule_wants_answer(op)) {
        op->answer = answer_retain(e->answer);
    }
}

static int refuse_read_only(const struct store *s, hapax_error *err)
{
    return ((const struct memory_store *)s)->read_only
               ? error_set(err, HAPAX_E_UNSUPPORTED, 0, "the store was opened for reading only")
               : 0;
}

static int memory_apply(struct store *s, struct store_op *const *ops, size_t n, int64_t now_ms,
                        hapax_error *err)
{
    HAPAX_ASSERT(n >= 1 && n <= LIMIT_BATCH_OPS_MAX);
    rule_clear_answers(ops, n, false);
    if (!rule_only_reads(ops, n) && refuse_read_only(s, err) != 0) {
        return HAPAX_E_UNSUPPORTED;
    }
    struct spares spares;
    struct memory *m = lock(s);
    int code = prepare(m, &spares, ops, n, err);
    if (code == 0) {
        for (size_t i = 0; i < n; i++) {
            apply_one(m, ops[i], &spares.entries[i], handle_of(s)->owner, now_ms);
        }
        free_spares(&spares, n);
    }
    unlock(m);
    return code;
}

static int memory_sweep(struct store *s, int64_t now_ms, uint32_t rows_max, uint32_t *removed,
                        hapax_error *err)
{
    if (refuse_read_only(s, err) != 0) {
        return HAPAX_E_UNSUPPORTED;
    }
    struct memory *m = lock(s);
    *removed = 0;
    while (*removed < rows_max && m->table.heap_count > 0 && m->table.heap[0]->record.expires_ms <= now_ms) {
        table_remove(&m->table, m->table.heap[0]);
        ++*removed;
    }
    unlock(m);
    return 0;
}

static int memory_abandon(struct store *s, uint64_t owner, int64_t now_ms, uint32_t rows_max,
                          uint32_t *changed, hapax_error *err)
{
    if (refuse_read_only(s, err) != 0) {
        return HAPAX_E_UNSUPPORTED;
    }
    struct memory *m = lock(s);
    *changed = 0;
    struct entry *next;
    for (struct entry *e = m->table.run_oldest; e != NULL && *changed < rows_max; e = next) {
        next = e->run_newer;
        if (owner > 0 ? e->record.owner == owner : e->record.lease_ms <= now_ms) {
            struct record r = rule_abandoned(&e->record, now_ms);
            table_update(&m->table, e, &r, NULL);
            ++*changed;
        }
    }
    unlock(m);
    return 0;
}

static struct store_owner *find_owner(struct memory *m, const char *text)
{
    for (size_t i = 0; i < m->owner_count; i++) {
        if (strcmp(m->owners[i].text, text) == 0) {
            return &m->owners[i];
        }
    }
    return NULL;
}

static int memory_register_owner(struct store *s, const char *text, uint64_t *number, hapax_error *err)
{
    if (refuse_read_only(s, err) != 0) {
        return HAPAX_E_UNSUPPORTED;
    }
    size_t len = strlen(text);
    if (len == 0 || len > LIMIT_OWNER_TEXT_BYTES_MAX) {
        return error_set(err, HAPAX_E_ARGUMENT, 0, "an owner's text has 1 to %d bytes",
                         LIMIT_OWNER_TEXT_BYTES_MAX);
    }
    struct memory *m = lock(s);
    int code = 0;
    struct store_owner *o = find_owner(m, text);
    if (o == NULL && m->owner_count == MEMORY_OWNERS_MAX) {
        code = error_set(err, HAPAX_E_BUSY, 0, "the store has %d owners already", MEMORY_OWNERS_MAX);
    } else if (o == NULL) {
        struct store_owner *owners = realloc(m->owners, (m->owner_count + 1) * sizeof *owners);
        if (owners == NULL) {
            code = error_code(err, HAPAX_E_MEMORY);
        } else {
            m->owners = owners;
            o = &owners[m->owner_count++];
            *o = (struct store_owner){.number = ++m->owner_number};
            memcpy(o->text, text, len);
        }
    }
    if (code == 0) {
        *number = o->number;
        handle_of(s)->owner = o->number;
    }
    unlock(m);
    return code;
}

static int memory_owners(struct store *s, int (*each)(void *ctx, const struct store_owner *o), void *ctx,
                         hapax_error *err)
{
    (void)err;
    struct memory *m = lock(s);
    for (size_t i = 0; i < m->owner_count && each(ctx, &m->owners[i]) == 0; i++) {
    }
    unlock(m);
    return 0;
}

static bool owner_runs(const struct memory *m, uint64_t owner)
{
    for (const struct entry *e = m->table.run_oldest; e != NULL; e = e->run_newer) {
        if (e->record.owner == owner) {
            return true;
        }
    }
    return false;
}

static int memory_forget_owner(struct store *s, uint64_t owner, hapax_error *err)
{
    if (refuse_read_only(s, err) != 0) {
        return HAPAX_E_UNSUPPORTED;
    }
    struct memory *m = lock(s);
    int code = 0;
    if (owner_runs(m, owner)) {
        code = error_set(err, HAPAX_E_CONFLICT, 0, "owner %llu still holds running records",
                         (unsigned long long)owner);
    }
    for (size_t i = 0; code == 0 && i < m->owner_count; i++) {
        if (m->owners[i].number == owner) {
            m->owner_count--;
            memmove(&m->owners[i], &m->owners[i + 1], (m->owner_count - i) * sizeof *m->owners);
            break;
        }
    }
    unlock(m);
    return code;
}

static bool row_matches(const struct entry *e, const struct record *seen, const struct store_filter *f)
{
    return seen->state != RECORD_ABSENT && (f->state == RECORD_ABSENT || f->state == seen->state) &&
           (slice_is_none(f->scope) || slice_equal(f->scope, entry_scope(e))) &&
           (slice_is_none(f->key) || slice_equal(f->key, entry_key(e)));
}

static int memory_list(struct store *s, const struct store_filter *f, int64_t now_ms,
                       void (*each)(void *ctx, const struct store_row *row), void *ctx, hapax_error *err)
{
    HAPAX_ASSERT(f->rows_max >= 1 && f->rows_max <= LIMIT_LIST_PAGE_MAX);
    (void)err;
    struct memory *m = lock(s);
    uint32_t rows = 0;
    for (const struct entry *e = m->table.oldest; e != NULL && rows < f->rows_max; e = e->newer) {
        if (e->record.fence.serial <= f->after_serial) {
            continue;
        }
        struct store_row row = {.id = e->id, .scope = entry_scope(e), .key = entry_key(e)};
        row.record = rule_seen(&e->record, now_ms);
        if (!row_matches(e, &row.record, f)) {
            continue;
        }
        if (e->answer != NULL) {
            row.status = e->answer->status;
            row.kept = e->answer->kept;
            row.body_bytes = e->answer->body_bytes;
        }
        each(ctx, &row);
        rows++;
    }
    unlock(m);
    return 0;
}

static int memory_stats(struct store *s, struct store_stats *out, hapax_error *err)
{
    (void)err;
    struct memory *m = lock(s);
    *out = (struct store_stats){
        .running = m->table.running, .unknown = m->table.unknown, .records = m->table.count};
    unlock(m);
    return 0;
}

static int memory_generation(struct store *s, uint64_t *out, hapax_error *err)
{
    (void)err;
    struct memory *m = lock(s);
    *out = m->generation;
    unlock(m);
    return 0;
}

static void free_memory(struct memory *m)
{
    table_free(&m->table);
    free(m->owners);
    pthread_mutex_destroy(&m->lock);
    free(m);
}

static void memory_close(struct store *s)
{
    struct memory *m = handle_of(s)->memory;
    pthread_mutex_lock(&shared_lock);
    bool last = --m->handles == 0;
    for (struct memory **at = &shared; last && *at != NULL; at = &(*at)->next) {
        if (*at == m) {
            *at = m->next;
            break;
        }
    }
    pthread_mutex_unlock(&shared_lock);
    if (last) {
        free_memory(m);
    }
    free(s);
}

#define MEMORY_OPERATIONS                                                                                    \
    .version = STORE_VERSION, .apply = memory_apply, .sweep = memory_sweep, .abandon = memory_abandon,       \
    .register_owner = memory_register_owner, .owners = memory_owners, .forget_owner = memory_forget_owner,   \
    .list = memory_list, .stats = memory_stats, .generation = memory_generation, .close = memory_close

static const struct store_backend private_backend = {MEMORY_OPERATIONS, .name = "memory"};

/* Shared among engines of one process, which is as good as other processes to each of them. */
static const struct store_backend shared_backend = {MEMORY_OPERATIONS, .name = "memory",
                                                    .capabilities = STORE_CAN_LANES | STORE_SHARED};

static struct memory *make_memory(const char *name)
{
    struct memory *m = calloc(1, sizeof *m);
    if (m == NULL || table_init(&m->table) != 0) {
        free(m);
        return NULL;
    }
    pthread_mutex_init(&m->lock, NULL);
    memcpy(m->name, name, strlen(name));
    return m;
}

/* Find or make the one of this name. Under shared_lock. */
static struct memory *attach(const char *name)
{
    struct memory *m = shared;
    while (m != NULL && strcmp(m->name, name) != 0) {
        m = m->next;
    }
    if (m == NULL) {
        m = make_memory(name);
        if (m != NULL) {
            m->next = shared;
            shared = m;
        }
    }
    return m;
}

int memory_open(struct store **out, const char *rest, const struct store_options *options, hapax_error *err)
{
    if (strlen(rest) > MEMORY_NAME_MAX) {
        return error_set(err, HAPAX_E_ARGUMENT, 0, "a memory store's name has at most %d bytes",
                         MEMORY_NAME_MAX);
    }
    struct memory_store *s = calloc(1, sizeof *s);
    if (s == NULL) {
        return error_code(err, HAPAX_E_MEMORY);
    }
    pthread_mutex_lock(&shared_lock);
    struct memory *m = rest[0] != '\0' ? attach(rest) : make_memory("");
    if (m != NULL) {
        m->handles++;
    }
    pthread_mutex_unlock(&shared_lock);
    if (m == NULL) {
        free(s);
        return error_code(err, HAPAX_E_MEMORY);
    }
    s->store.backend = rest[0] != '\0' ? &shared_backend : &private_backend;
    s->memory = m;
    s->read_only = options->read_only;
    *out = &s->store;
    return 0;
}
