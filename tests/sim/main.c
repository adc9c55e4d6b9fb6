/* Run the simulation over many seeds, or one seed with its trace.
 *
 *   sim --seeds N [--from S]   seeds S to S + N - 1 (from 1); the first that fails ends it, with its trace
 *   sim --seed S               one, with the whole trace
 *   sim ... --broken NAME      with a store or an engine that is broken on purpose (see broken.h) */
#include "sim.h"

#include "base/clock.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct sim simulation;

struct totals {
    uint64_t calls, runs, doubts, lives, given_up;
    uint64_t told[16];
    uint64_t digest;
};

static void count(struct totals *t, const struct sim_result *r)
{
    t->calls += r->calls;
    t->runs += r->runs;
    t->doubts += r->doubts;
    t->lives += r->lives;
    t->given_up += r->given_up;
    t->digest = t->digest * 31 + r->digest;
    for (size_t i = 0; i < 16; i++) {
        t->told[i] += r->told[i];
    }
}

static void report(uint64_t seeds, const struct totals *t, int64_t ms)
{
    printf("%" PRIu64 " seeds in %.1f s: %" PRIu64 " answers, %" PRIu64 " executions, %" PRIu64
           " lost answers, %" PRIu64 " engines, %" PRIu64 " seeds not judged to their end;",
           seeds, (double)ms / 1000, t->calls, t->runs, t->doubts, t->lives, t->given_up);
    for (int v = VERDICT_FRESH; v <= VERDICT_UNKNOWN; v++) {
        printf(" %s %" PRIu64 ",", verdict_name((enum engine_verdict)v), t->told[v]);
    }
    printf(" digest %016" PRIx64 "\n", t->digest);
}

/* What led to the failure: the same seed once more, with the lines of its target and of the nodes. */
static int fail(uint64_t seed, enum sim_broken broken, const struct sim_result *first)
{
    struct sim_result again;
    printf("seed %" PRIu64 " breaks a promise: %s\n", seed, first->why);
    sim_run(&simulation, seed, broken, true, first->failed_target, &again);
    if (!again.failed || strcmp(again.why, first->why) != 0) {
        printf("and did not do so again: the simulation is not deterministic\n");
    }
    printf("again, with everything: make sim SEED=%" PRIu64 "\n", seed);
    return 1;
}

static int run_seeds(uint64_t from, uint64_t seeds, enum sim_broken broken)
{
    struct totals totals = {0};
    int64_t start_ms = clock_mono_ms();
    for (uint64_t i = 0; i < seeds; i++) {
        struct sim_result r;
        sim_run(&simulation, from + i, broken, false, -1, &r);
        if (r.failed) {
            return fail(from + i, broken, &r);
        }
        count(&totals, &r);
    }
    report(seeds, &totals, clock_mono_ms() - start_ms);
    return 0;
}

static int run_one(uint64_t seed, enum sim_broken broken)
{
    struct sim_result r;
    sim_run(&simulation, seed, broken, true, -1, &r);
    printf("seed %" PRIu64 ": %s, digest %016" PRIx64 "\n", seed, r.failed ? r.why : "every promise is kept",
           r.digest);
    return r.failed ? 1 : 0;
}

static int usage(void)
{
    fprintf(stderr, "usage: sim --seeds N [--from SEED] | --seed SEED  [--broken NAME]\n");
    return 2;
}

static bool read_number(uint64_t *out, const char *text)
{
    char *end;
    *out = strtoull(text, &end, 10);
    return *text >= '0' && *text <= '9' && *end == '\0';
}

static bool read_broken(enum sim_broken *out, const char *text)
{
    for (int b = 0; b < BROKEN_COUNT; b++) {
        if (strcmp(sim_broken_name((enum sim_broken)b), text) == 0) {
            *out = (enum sim_broken)b;
            return true;
        }
    }
    return false;
}

int main(int argc, char **argv)
{
    uint64_t seeds = 0;
    uint64_t from = 1;
    uint64_t seed = 0;
    bool one = false;
    enum sim_broken broken = BROKEN_NOTHING;
    for (int i = 1; i + 1 < argc; i += 2) {
        bool right = strcmp(argv[i], "--seeds") == 0    ? read_number(&seeds, argv[i + 1])
                     : strcmp(argv[i], "--from") == 0   ? read_number(&from, argv[i + 1])
                     : strcmp(argv[i], "--seed") == 0   ? (one = read_number(&seed, argv[i + 1]))
                     : strcmp(argv[i], "--broken") == 0 ? read_broken(&broken, argv[i + 1])
                                                        : false;
        if (!right) {
            return usage();
        }
    }
    if (argc % 2 == 0 || one == (seeds > 0)) {
        return usage();
    }
    return one ? run_one(seed, broken) : run_seeds(from, seeds, broken);
}
