/* The conformance suite of the stores: what its files share.
 *
 * Every test opens a fresh, empty store of the back end under test and speaks to it through store.h
 * alone. Time is an argument: tests begin at T0 and say what time it is. */
#ifndef CONFORMANCE_SUITE_H
#define CONFORMANCE_SUITE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/limits.h"
#include "store/store.h"

#define T0    INT64_C(1700000000000)
#define LEASE INT64_C(30000)
#define TTL   INT64_C(86400000)

/* A fresh store; more handles of it are opened by world_open(). */
struct world {
    char uri[512];
    struct store *s; /* the first handle */
};

int world_setup(void **state);
int world_teardown(void **state);
struct store *world_open(const struct world *w);
/* Close the first handle and open the store again. A store in memory keeps one handle meanwhile. */
void world_reopen(struct world *w);
const struct store_options *world_options(void); /* how handles of this back end are opened */
extern const char *world_back_end;               /* "memory", "sqlite", "fault", "postgres" */

/* Identity, scope and key of a name: key is the name, scope is "test". */
struct identity id_of(const char *name);
struct fingerprint print_of(int n); /* version 1; 0: none */

struct store_op op_claim(const char *name, int print);
struct store_op op_fenced(enum store_op_kind kind, const char *name, struct fence fence);
struct store_op op_plain(enum store_op_kind kind, const char *name); /* LOOKUP, RESOLVE, FORGET */
struct store_op op_complete(const char *name, struct fence fence, struct answer *a);

/* Apply one op, or several; a code fails the test. */
void do_op(struct store *s, struct store_op *op, int64_t now);
void do_ops(struct store *s, struct store_op *ops, size_t n, int64_t now);

/* Claim afresh; fails the test when it is not ours. */
struct fence claimed(struct store *s, const char *name, int64_t now);
void completed(struct store *s, const char *name, struct fence fence, int64_t now);
struct record looked_up(struct store *s, const char *name, int64_t now);
struct answer *small_answer(void); /* one for the whole program */
void assert_same_record(const struct record *a, const struct record *b);

extern const struct CMUnitTest state_tests[];
extern const size_t state_test_count;
extern const struct CMUnitTest batch_tests[];
extern const size_t batch_test_count;
extern const struct CMUnitTest answer_tests[];
extern const size_t answer_test_count;
extern const struct CMUnitTest admin_tests[];
extern const size_t admin_test_count;
extern const struct CMUnitTest handle_tests[];
extern const size_t handle_test_count;

#define STORE_TEST(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)

#endif
