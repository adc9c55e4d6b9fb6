/* A sweep: one scenario again and again, each time with another fault injected (the first, the second, the third
 * allocation or file operation fails, ...), until a run passes without any having been injected; then the same
 * with everything failing from the n-th on.
 *
 * A run sets up without faults, arms, acts, disarms and judges with CHECK. Every run is bounded in time; a run
 * that leaves more blocks allocated each time it is repeated leaks. A crash or a hang names the run that it was. */
#ifndef TESTS_FAULT_SWEEP_H
#define TESTS_FAULT_SWEEP_H

#include "hapax/error.h"

#include <stdbool.h>
#include <stddef.h>

/* What injects. arm() is told which one fails; disarm() whether one did. */
struct injector {
    const char *what;
    void (*arm)(long n, bool from_there_on);
    bool (*disarm)(void);
    long (*seen)(void); /* places passed since arm() */
};

/* Arguments: the start of the names of the sweeps to run, and the number of a single run (to look into a finding).
 * HAPAX_FAULT_PLACES=n tries about n places of each sweep, evenly spread, instead of every one. */
void sweep_begin(int argc, char **argv, const struct injector *injector);
int sweep_end(void); /* the exit code of main() */
/* This program's runs are long: try one place where others try `share` of them, unless every one is wanted. */
void sweep_thin(long share);

void sweep(const char *name, void (*run)(void *ctx), void *ctx);

/* Inside a run. */
void sweep_arm(void);
bool sweep_disarm(void); /* was a fault injected? */
bool sweep_single(void); /* is it one fault alone? */

#define CHECK(condition, ...)                                                                                \
    ((condition) ? (void)0 : sweep_failed(__FILE__, __LINE__, #condition, __VA_ARGS__))
void sweep_failed(const char *file, int line, const char *condition, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* The test itself can't go on. */
#define MUST(condition) ((condition) ? (void)0 : sweep_stuck(__FILE__, __LINE__, #condition))
void sweep_stuck(const char *file, int line, const char *condition) __attribute__((noreturn));

/* A folder of this program's own, in memory where the machine has such a one; sweep_end() removes it. */
const char *sweep_folder(void);
/* Remove a database with its log and shared memory. */
void sweep_remove(const char *path);

#endif
