/* Fill a store with records for tests: hapax_seed URI KIND:COUNT... [scope=TEXT] [body=TEXT]
 *
 * Kinds: done, large (done, body not kept), running, unknown, lapsed (running past its lease). Keys are
 * KIND-000001 and so on. `scope` and `body` hold for the kinds after them. Prints nothing; exits with
 * 1 and a message when anything is not as it should be. */
#include "base/clock.h"
#include "base/limits.h"
#include "store/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HOUR_MS 3600000

static const char *scope = "orders POST /orders -";
static const char *body = "{\"id\":1}";

struct batch {
    struct store_op ops[LIMIT_BATCH_OPS_MAX];
    struct store_op *pointers[LIMIT_BATCH_OPS_MAX];
    char keys[LIMIT_BATCH_OPS_MAX][LIMIT_KEY_BYTES_MAX + 1];
};

static void fail(const char *what, const hapax_error *err)
{
    fprintf(stderr, "hapax_seed: %s: %s\n", what, err != NULL ? err->message : "");
    exit(1);
}

static void apply(struct store *store, struct batch *b, size_t n, int64_t now_ms, const char *what)
{
    hapax_error err = {0};
    if (store_apply(store, b->pointers, n, now_ms, &err) != 0) {
        fail(what, &err);
    }
    for (size_t i = 0; i < n; i++) {
        if (b->ops[i].result != STORE_APPLIED) {
            fail(what, NULL);
        }
    }
}

static void claim(struct store *store, struct batch *b, const char *kind, size_t first, size_t n,
                  int64_t now_ms)
{
    bool lapsed = strcmp(kind, "lapsed") == 0;
    for (size_t i = 0; i < n; i++) {
        snprintf(b->keys[i], sizeof b->keys[i], "%s-%06zu", kind, first + i);
        b->ops[i] = (struct store_op){.kind = STORE_CLAIM,
                                      .scope = slice_text(scope),
                                      .key = slice_text(b->keys[i]),
                                      .fingerprint = {.version = FINGERPRINT_VERSION, .bytes = {1, 2, 3}},
                                      .lease_ms = lapsed ? 1 : HOUR_MS,
                                      .ttl_ms = 24 * HOUR_MS};
        b->pointers[i] = &b->ops[i];
        hapax_error err = {0};
        if (identity_make(&b->ops[i].id, b->ops[i].scope, b->ops[i].key, &err) != 0) {
            fail("identity", &err);
        }
    }
    apply(store, b, n, lapsed ? now_ms - HOUR_MS : now_ms, "claim");
}

static void end(struct store *store, struct batch *b, const char *kind, size_t n, int64_t now_ms)
{
    bool large = strcmp(kind, "large") == 0;
    struct answer *answer =
        answer_make(201, !large, slice_text("Content-Type: application/json\r\nX-Order: 1\r\n"),
                    slice_text(large ? "" : body));
    if (answer == NULL) {
        fail("memory", NULL);
    }
    bool unknown = strcmp(kind, "unknown") == 0;
    for (size_t i = 0; i < n; i++) {
        b->ops[i] = (struct store_op){.kind = unknown ? STORE_LOSE : STORE_COMPLETE,
                                      .id = b->ops[i].id,
                                      .fence = b->ops[i].found.fence,
                                      .answer = unknown ? NULL : answer};
    }
    apply(store, b, n, now_ms, "end");
    answer_drop(answer);
}

static void seed(struct store *store, const char *kind, size_t count)
{
    static struct batch b;
    for (size_t first = 1; first <= count; first += LIMIT_BATCH_OPS_MAX) {
        size_t n = count - first + 1 < LIMIT_BATCH_OPS_MAX ? count - first + 1 : LIMIT_BATCH_OPS_MAX;
        int64_t now_ms = clock_wall_ms();
        claim(store, &b, kind, first, n, now_ms);
        if (strcmp(kind, "running") != 0 && strcmp(kind, "lapsed") != 0) {
            end(store, &b, kind, n, now_ms);
        }
    }
}

int main(int argc, char **argv)
{
    hapax_error err = {0};
    struct store *store = NULL;
    uint64_t owner;
    if (argc < 2 || store_open(&store, argv[1], NULL, &err) != 0 ||
        store->backend->register_owner(store, "seed", &owner, &err) != 0) {
        fail(argc < 2 ? "usage: hapax_seed URI KIND:COUNT..." : argv[1], &err);
    }
    for (int i = 2; i < argc; i++) {
        char *colon = strchr(argv[i], ':');
        if (strncmp(argv[i], "scope=", 6) == 0) {
            scope = argv[i] + 6;
        } else if (strncmp(argv[i], "body=", 5) == 0) {
            body = argv[i] + 5;
        } else if (colon != NULL) {
            *colon = '\0';
            seed(store, argv[i], (size_t)strtoul(colon + 1, NULL, 10));
        } else {
            fail(argv[i], NULL);
        }
    }
    store_close(store);
    return 0;
}
