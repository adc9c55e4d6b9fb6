#include "sweep.h"

#include "alloc.h"

#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    RUN_SECONDS_MAX = 60,    /* on a machine that is busy otherwise, under a sanitizer */
    PLACES_MAX = 200000,     /* a sweep that needs more would not come to an end */
    FINDINGS_SHOWN_MAX = 40, /* one bug shows at many places */
    LEAK_REPEATS = 3,        /* what a library keeps for later grows once, a leak every time */
    WARM_UPS = 2,            /* what is made once and kept */
    NEVER = 1 << 30,
};

static const struct injector *injector;
static char folder[128];
static const char *only_sweep; /* NULL: all */
static long only_place;        /* 0: all */
static long places_wanted;     /* of a sweep; 0: every one */
static long stride = 1;

static char at_name[96];
static volatile long at_place;
static volatile bool at_from_there_on;
static bool injected;
static long findings;
static long run_findings;
static long places_total;

static void describe(int fd, const char *what)
{
    char line[256];
    int len = snprintf(line, sizeof line, "%s: %s, %s %ld %s\n", what, at_name, injector->what, at_place,
                       at_from_there_on ? "and all that follow" : "alone");
    ssize_t ignored = write(fd, line, (size_t)len);
    (void)ignored;
}

static void on_fatal(int number)
{
    describe(STDERR_FILENO, number == SIGALRM ? "HANGS" : "CRASHES");
    signal(number, SIG_DFL);
    raise(number);
}

void sweep_failed(const char *file, int line, const char *condition, const char *format, ...)
{
    findings++;
    run_findings++;
    if (findings > FINDINGS_SHOWN_MAX) {
        return;
    }
    char text[400];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    fprintf(stderr, "%s:%d: %s, %s %ld %s: not (%s): %s\n", file, line, at_name, injector->what, at_place,
            at_from_there_on ? "and all that follow" : "alone", condition, text);
}

void sweep_stuck(const char *file, int line, const char *condition)
{
    fprintf(stderr, "%s:%d: %s, %s %ld: the test can't go on without (%s)\n", file, line, at_name,
            injector->what, at_place, condition);
    abort();
}

void sweep_arm(void)
{
    injector->arm(at_place, at_from_there_on);
}

bool sweep_disarm(void)
{
    injected = injector->disarm();
    return injected;
}

bool sweep_single(void)
{
    return !at_from_there_on;
}

static long grown_by(void (*run)(void *ctx), void *ctx)
{
    long before = alloc_live();
    injected = false;
    alarm(RUN_SECONDS_MAX);
    run(ctx);
    alarm(0);
    return alloc_live() - before;
}

/* One place; false when nothing was injected any more. */
static bool try_place(void (*run)(void *ctx), void *ctx)
{
    run_findings = 0;
    long grown = grown_by(run, ctx);
    bool was_injected = injected;
    int repeats = 0;
    while (grown > 0 && run_findings == 0 && repeats < LEAK_REPEATS) {
        grown = grown_by(run, ctx);
        repeats++;
    }
    CHECK(grown <= 0, "%ld blocks more, each time", grown);
    return was_injected;
}

static long sweep_places(void (*run)(void *ctx), void *ctx, bool from_there_on)
{
    at_from_there_on = from_there_on;
    if (only_place > 0) {
        at_place = only_place;
        try_place(run, ctx);
        return 1;
    }
    long places = 0;
    at_place = 1;
    while (try_place(run, ctx)) {
        places++;
        at_place += stride;
        MUST(at_place < PLACES_MAX);
    }
    return places;
}

void sweep(const char *name, void (*run)(void *ctx), void *ctx)
{
    if (only_sweep != NULL && strncmp(name, only_sweep, strlen(only_sweep)) != 0) {
        return;
    }
    snprintf(at_name, sizeof at_name, "%s", name);
    at_from_there_on = false;
    at_place = NEVER;
    long findings_before = findings;
    for (int i = 0; i < WARM_UPS; i++) {
        grown_by(run, ctx);
    }
    MUST(findings == findings_before); /* without a fault it works */
    long places = injector->seen();
    stride = places_wanted > 0 && places > places_wanted ? (places + places_wanted - 1) / places_wanted : 1;
    long alone = sweep_places(run, ctx, false);
    long following = sweep_places(run, ctx, true);
    places_total += alone + following;
    printf("%-44s %6ld places, %6ld runs, %ld findings\n", name, places, alone + following,
           findings - findings_before);
    fflush(stdout);
}

/* --- life --- */

const char *sweep_folder(void)
{
    return folder;
}

void sweep_remove(const char *path)
{
    static const char *const suffixes[] = {"", "-wal", "-shm", "-journal"};
    for (size_t i = 0; i < sizeof suffixes / sizeof suffixes[0]; i++) {
        char name[256];
        snprintf(name, sizeof name, "%s%s", path, suffixes[i]);
        unlink(name);
    }
}

void sweep_begin(int argc, char **argv, const struct injector *i)
{
    injector = i;
    only_sweep = argc > 1 ? argv[1] : NULL;
    only_place = argc > 2 ? strtol(argv[2], NULL, 10) : 0;
    const char *wanted = getenv("HAPAX_FAULT_PLACES");
    places_wanted = wanted != NULL ? strtol(wanted, NULL, 10) : 0;
    snprintf(folder, sizeof folder, "%s/hapax-fault-XXXXXX",
             access("/dev/shm", W_OK | X_OK) == 0 ? "/dev/shm" : "/tmp");
    if (mkdtemp(folder) == NULL) {
        perror(folder);
        exit(1);
    }
    signal(SIGALRM, on_fatal);
    signal(SIGABRT, on_fatal);
#ifndef ALLOC_ABOVE_SANITIZER /* which says more */
    signal(SIGSEGV, on_fatal);
    signal(SIGBUS, on_fatal);
#endif
}

void sweep_thin(long share)
{
    places_wanted = (places_wanted + share - 1) / share;
}

int sweep_end(void)
{
    if (rmdir(folder) != 0) {
        perror(folder);
        findings++;
    }
    printf("%ld runs with a fault, %ld findings\n", places_total, findings);
    if (places_total == 0) {
        fprintf(stderr, "no such sweep\n");
    }
    return findings == 0 && places_total > 0 ? 0 : 1;
}
