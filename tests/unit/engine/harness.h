/* For the tests of the engine: ops with their call-back, an engine whose turns and clock a test drives, and a store
 * between the lane and its real one that fails on demand.
 *
 * Each test program includes this once; everything is static. */
#ifndef TESTS_ENGINE_HARNESS_H
#define TESTS_ENGINE_HARNESS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/error.h"
#include "engine/engine.h"
#include "engine/lane.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UNUSED __attribute__((unused))

/* For threads other than the test's own, where cmocka can't jump out of. */
#define must(condition) ((condition) ? (void)0 : must_fail(#condition, __FILE__, __LINE__))

static UNUSED void must_fail(const char *condition, const char *file, int line)
{
    fprintf(stderr, "%s:%d: failed: %s\n", file, line, condition);
    abort();
}

/* An op, and how often its call-back ran. */
struct asked {
    struct engine_op op;
    _Atomic(int) done;
};

static void note_done(struct engine_op *op)
{
    struct asked *a = op->user;
    atomic_fetch_add(&a->done, 1);
}

static UNUSED struct fingerprint content(const char *text)
{
    struct fingerprint f = {.version = FINGERPRINT_VERSION};
    memcpy(f.bytes, text, strlen(text) < sizeof f.bytes ? strlen(text) : sizeof f.bytes);
    return f;
}

static UNUSED struct answer *text_answer(const char *text)
{
    struct answer *a = answer_make(200, true, SLICE_LITERAL(""), slice_text(text));
    assert_non_null(a);
    return a;
}

/* --- making ops --- */

static UNUSED struct asked *make_op(struct asked *a, enum engine_op_kind kind, const char *key)
{
    *a = (struct asked){.op = {.kind = kind, .done = note_done}};
    a->op.user = a;
    a->op.scope = SLICE_LITERAL("test");
    a->op.key = slice_text(key);
    assert_int_equal(identity_make(&a->op.id, a->op.scope, a->op.key, NULL), 0);
    return a;
}

static UNUSED struct asked *make_begin(struct asked *a, const char *key, const char *body, int64_t wait_ms)
{
    make_op(a, ENGINE_BEGIN, key);
    a->op.fingerprint = content(body);
    a->op.lease_ms = 30000;
    a->op.ttl_ms = 3600000;
    a->op.wait_ms = wait_ms;
    return a;
}

static UNUSED struct asked *make_fenced(struct asked *a, enum engine_op_kind kind, const char *key,
                                        struct fence fence)
{
    make_op(a, kind, key);
    a->op.fence = fence;
    a->op.lease_ms = 30000;
    return a;
}

static UNUSED struct asked *make_complete(struct asked *a, const char *key, struct fence fence,
                                          const char *body)
{
    make_fenced(a, ENGINE_COMPLETE, key, fence);
    a->op.answer = text_answer(body);
    return a;
}

/* Done once, without an error, with this verdict. */
#define assert_verdict(a, v)                                                                                 \
    do {                                                                                                     \
        assert_int_equal((a)->done, 1);                                                                      \
        assert_int_equal((a)->op.code, 0);                                                                   \
        assert_string_equal(verdict_name((a)->op.verdict), verdict_name(v));                                 \
    } while (0)

#define assert_code(a, c)                                                                                    \
    do {                                                                                                     \
        assert_int_equal((a)->done, 1);                                                                      \
        assert_string_equal(hapax_error_name((a)->op.code), hapax_error_name(c));                            \
    } while (0)

/* The op's answer has these bytes; the op's reference is dropped. */
static UNUSED void take_answer_text(struct asked *a, const char *text)
{
    assert_non_null(a->op.answer);
    struct slice body = answer_body(a->op.answer);
    assert_int_equal(body.len, strlen(text));
    assert_memory_equal(body.ptr, text, body.len);
    answer_drop(a->op.answer);
    a->op.answer = NULL;
}

/* --- an engine driven by hand --- */

struct sim {
    struct engine *engine;
    struct moment now;
};

static UNUSED struct moment sim_now(void *ctx)
{
    return ((struct sim *)ctx)->now;
}

static UNUSED void sim_open_with(struct sim *s, struct engine_options o)
{
    *s = (struct sim){.now = {.wall_ms = 1700000000000, .mono_ms = 5000}};
    o.store_uri = o.store_uri != NULL ? o.store_uri : "memory:";
    o.now = sim_now;
    o.now_ctx = s;
    hapax_error err = {0};
    if (engine_open_without_threads(&s->engine, &o, &err) != 0) {
        fail_msg("open: %s", err.message);
    }
}

static UNUSED void sim_open(struct sim *s)
{
    sim_open_with(s, (struct engine_options){0});
}

/* Turns at this moment until no lane wants another one at once. */
static UNUSED int64_t sim_turns(struct sim *s)
{
    int64_t next = INT64_MAX;
    for (uint32_t i = 0; i < engine_lane_count(s->engine); i++) {
        int64_t due;
        int turns = 0;
        do {
            due = lane_turn(engine_lane(s->engine, i), s->now);
            assert_true(++turns < 10000);
        } while (due <= s->now.mono_ms);
        next = due < next ? due : next;
    }
    return next;
}

/* Let time pass, stopping at every instant the lanes ask for. */
static UNUSED void sim_pass(struct sim *s, int64_t ms)
{
    int64_t target = s->now.mono_ms + ms;
    for (;;) {
        int64_t due = sim_turns(s);
        int64_t step = (due < target ? due : target) - s->now.mono_ms;
        s->now.mono_ms += step;
        s->now.wall_ms += step;
        if (due > target) {
            break;
        }
    }
    sim_turns(s);
}

static UNUSED void sim_submit(struct sim *s, struct asked *a)
{
    assert_int_equal(engine_submit(s->engine, &a->op), 0);
}

static UNUSED struct asked *sim_do(struct sim *s, struct asked *a)
{
    sim_submit(s, a);
    sim_turns(s);
    return a;
}

/* A FRESH claim. */
static UNUSED struct fence sim_claim(struct sim *s, const char *key, const char *body)
{
    struct asked a;
    sim_do(s, make_begin(&a, key, body, 0));
    assert_verdict(&a, VERDICT_FRESH);
    return a.op.record.fence;
}

static UNUSED void sim_complete(struct sim *s, const char *key, struct fence fence, const char *body)
{
    struct asked a;
    sim_do(s, make_complete(&a, key, fence, body));
    assert_code(&a, 0);
    answer_drop(a.op.answer);
}

/* --- a store that fails on demand, between lane 0 and its own --- */

/* Where a test may look in, or hold the lane: `at` is called on the lane's thread. */
enum faulty_point { FAULTY_BEFORE_APPLY, FAULTY_AFTER_APPLY, FAULTY_BEFORE_SWEEP };

struct faulty {
    struct store store;
    struct store *inner;
    struct store_backend backend;
    void (*at)(void *ctx, enum faulty_point point); /* NULL: nobody looks */
    void *at_ctx;
    int apply_code;  /* returned by apply() instead of doing anything; 0: works */
    int house_code;  /* the same of sweep() and abandon() */
    int guilty_code; /* not 0: of a batch with an op on one of `guilty` */
    struct identity guilty[3];
    int write_code;       /* of register_owner(): the probe */
    size_t writes_before; /* that many register_owner() still work */
    int generation_code;
    size_t generations;     /* calls */
    int64_t clock_ahead_ms; /* of the sim's; to be set with STORE_HAS_CLOCK in the capabilities */
    size_t applies;         /* calls */
    size_t claims;          /* ops seen */
    size_t extends;
    size_t lookups;
    size_t largest; /* batch */
    size_t sweeps;
    size_t sweep_rows_seen;
    size_t abandons;
    bool abandon_skips; /* as where all records are locked by others */
    bool loses_answers; /* what a claim finds comes without its answer */
};

static UNUSED struct faulty *faulty_of(struct store *s)
{
    return (struct faulty *)s;
}

static UNUSED void faulty_reach(struct faulty *f, enum faulty_point point)
{
    if (f->at != NULL) {
        f->at(f->at_ctx, point);
    }
}

static UNUSED int faulty_apply(struct store *s, struct store_op *const *ops, size_t n, int64_t now_ms,
                               hapax_error *err)
{
    struct faulty *f = faulty_of(s);
    faulty_reach(f, FAULTY_BEFORE_APPLY);
    f->applies++;
    f->largest = n > f->largest ? n : f->largest;
    for (size_t i = 0; i < n; i++) {
        f->claims += ops[i]->kind == STORE_CLAIM;
        f->extends += ops[i]->kind == STORE_EXTEND;
        f->lookups += ops[i]->kind == STORE_LOOKUP;
        for (size_t g = 0; f->guilty_code != 0 && g < sizeof f->guilty / sizeof f->guilty[0]; g++) {
            if (identity_equal(&ops[i]->id, &f->guilty[g])) {
                return error_set(err, f->guilty_code, 0, "it is the row's fault");
            }
        }
    }
    if (f->apply_code != 0) {
        return error_set(err, f->apply_code, 28, "the test's store fails");
    }
    int code = store_apply(f->inner, ops, n, now_ms + f->clock_ahead_ms, err);
    for (size_t i = 0; i < n; i++) {
        ops[i]->decided_ms = f->clock_ahead_ms != 0 ? now_ms + f->clock_ahead_ms : 0;
        if (f->loses_answers && ops[i]->kind == STORE_CLAIM) {
            answer_drop(ops[i]->answer);
            ops[i]->answer = NULL;
        }
    }
    faulty_reach(f, FAULTY_AFTER_APPLY);
    return code;
}

static UNUSED int faulty_sweep(struct store *s, int64_t now_ms, uint32_t rows_max, uint32_t *removed,
                               hapax_error *err)
{
    struct faulty *f = faulty_of(s);
    faulty_reach(f, FAULTY_BEFORE_SWEEP);
    f->sweeps++;
    f->sweep_rows_seen = rows_max;
    if (f->house_code != 0) {
        return error_set(err, f->house_code, 0, "the test's store can't be swept");
    }
    return f->inner->backend->sweep(f->inner, now_ms + f->clock_ahead_ms, rows_max, removed, err);
}

static UNUSED int faulty_abandon(struct store *s, uint64_t owner, int64_t now_ms, uint32_t rows_max,
                                 uint32_t *changed, hapax_error *err)
{
    struct faulty *f = faulty_of(s);
    f->abandons++;
    if (f->house_code != 0) {
        return error_set(err, f->house_code, 0, "the test's store abandons nothing");
    }
    if (f->abandon_skips) {
        *changed = 0;
        return 0;
    }
    return f->inner->backend->abandon(f->inner, owner, now_ms + f->clock_ahead_ms, rows_max, changed, err);
}

static UNUSED int faulty_register(struct store *s, const char *text, uint64_t *number, hapax_error *err)
{
    struct faulty *f = faulty_of(s);
    if (f->write_code != 0 && f->writes_before > 0) {
        f->writes_before--;
    } else if (f->write_code != 0) {
        return error_set(err, f->write_code, 0, "the test's store can't be written");
    }
    return f->inner->backend->register_owner(f->inner, text, number, err);
}

static UNUSED int faulty_owners(struct store *s, int (*each)(void *, const struct store_owner *), void *ctx,
                                hapax_error *err)
{
    struct store *inner = faulty_of(s)->inner;
    return inner->backend->owners(inner, each, ctx, err);
}

static UNUSED int faulty_forget(struct store *s, uint64_t owner, hapax_error *err)
{
    struct store *inner = faulty_of(s)->inner;
    return inner->backend->forget_owner(inner, owner, err);
}

static UNUSED int faulty_generation(struct store *s, uint64_t *out, hapax_error *err)
{
    struct faulty *f = faulty_of(s);
    f->generations++;
    if (f->generation_code != 0) {
        return error_set(err, f->generation_code, 0, "the test's store can't be read");
    }
    return f->inner->backend->generation(f->inner, out, err);
}

static UNUSED void faulty_close(struct store *s)
{
    struct faulty *f = faulty_of(s);
    store_close(f->inner);
    free(f);
}

/* From here on the first lane's ops pass through it. Freed with the engine. No lane may have a thread yet. */
static UNUSED struct faulty *wrap_store(struct engine *e)
{
    struct lane *l = engine_lane(e, 0);
    struct faulty *f = calloc(1, sizeof(*f));
    assert_non_null(f);
    f->inner = l->store;
    f->backend = *l->store->backend;
    f->backend.apply = faulty_apply;
    f->backend.sweep = faulty_sweep;
    f->backend.abandon = faulty_abandon;
    f->backend.register_owner = faulty_register;
    f->backend.owners = faulty_owners;
    f->backend.forget_owner = faulty_forget;
    f->backend.generation = faulty_generation;
    f->backend.close = faulty_close;
    f->store.backend = &f->backend;
    l->store = &f->store;
    return f;
}

static UNUSED struct faulty *sim_wrap_store(struct sim *s)
{
    return wrap_store(s->engine);
}

#endif
