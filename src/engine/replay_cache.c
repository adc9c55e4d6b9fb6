#include "engine/replay_cache.h"

#include "hapax/error.h"

#include <stdlib.h>

int replay_cache_init(struct replay_cache *c, size_t bytes_max)
{
    *c = (struct replay_cache){.bytes_max = bytes_max};
    return identity_table_init(&c->table);
}

static void unlink_use(struct replay_cache *c, struct replay *r)
{
    *(r->newer != NULL ? &r->newer->older : &c->newest) = r->older;
    *(r->older != NULL ? &r->older->newer : &c->oldest) = r->newer;
}

static void link_newest(struct replay_cache *c, struct replay *r)
{
    r->newer = NULL;
    r->older = c->newest;
    *(c->newest != NULL ? &c->newest->newer : &c->oldest) = r;
    c->newest = r;
}

static void evict(struct replay_cache *c, struct replay *r)
{
    identity_table_remove(&c->table, &r->node);
    unlink_use(c, r);
    c->bytes -= r->bytes;
    answer_drop(r->answer);
    free(r);
}

void replay_cache_clear(struct replay_cache *c)
{
    while (c->oldest != NULL) {
        evict(c, c->oldest);
    }
}

void replay_cache_free(struct replay_cache *c)
{
    replay_cache_clear(c);
    identity_table_free(&c->table);
}

const struct replay *replay_cache_find(struct replay_cache *c, const struct identity *id, int64_t now_ms)
{
    struct replay *r = (struct replay *)identity_table_find(&c->table, id);
    if (r == NULL) {
        return NULL;
    }
    if (now_ms >= r->until_ms) {
        evict(c, r);
        return NULL;
    }
    if (c->newest != r) {
        unlink_use(c, r);
        link_newest(c, r);
    }
    return r;
}

void replay_cache_put(struct replay_cache *c, const struct identity *id, const struct record *record,
                      struct answer *answer, int64_t until_ms)
{
    replay_cache_remove(c, id);
    size_t bytes = sizeof(struct replay) + answer_memory(answer);
    if (bytes > c->bytes_max / 8) {
        return;
    }
    struct replay *r = malloc(sizeof(*r));
    if (r == NULL) {
        return;
    }
    while (c->bytes + bytes > c->bytes_max) {
        evict(c, c->oldest);
    }
    *r = (struct replay){.node.id = *id,
                         .bytes = bytes,
                         .until_ms = until_ms,
                         .record = *record,
                         .answer = answer_retain(answer)};
    identity_table_add(&c->table, &r->node);
    link_newest(c, r);
    c->bytes += bytes;
}

void replay_cache_remove(struct replay_cache *c, const struct identity *id)
{
    struct replay *r = (struct replay *)identity_table_find(&c->table, id);
    if (r != NULL) {
        evict(c, r);
    }
}
