#include "base/thread.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SLICE_NS = 100 * 1000, BACKGROUND_STEPS = 5, NICE_MAX = 19, FLAG_KEEP_POLICY = 8 };

/* As sched_setattr(2) gives it; Debian 12's headers have none. */
struct attributes {
    uint32_t size;
    uint32_t policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime_ns;
    uint64_t deadline_ns;
    uint64_t period_ns;
};

int thread_start(pthread_t *out, void *(*run)(void *ctx), void *ctx)
{
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    static const int own_faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
    for (size_t i = 0; i < sizeof own_faults / sizeof *own_faults; i++) {
        sigdelset(&all, own_faults[i]);
    }
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failure = pthread_create(out, NULL, run, ctx);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failure;
}

void thread_prompt(void)
{
    errno = 0;
    int nice = getpriority(PRIO_PROCESS, (id_t)gettid());
    if (nice == -1 && errno != 0) {
        return;
    }
    struct attributes a = {.size = sizeof a, .flags = FLAG_KEEP_POLICY, .nice = nice, .runtime_ns = SLICE_NS};
    (void)syscall(SYS_sched_setattr, 0, &a, 0);
}

void thread_background(void)
{
    errno = 0;
    int nice = getpriority(PRIO_PROCESS, (id_t)gettid());
    if (nice == -1 && errno != 0) {
        return;
    }
    nice += BACKGROUND_STEPS;
    (void)setpriority(PRIO_PROCESS, (id_t)gettid(), nice < NICE_MAX ? nice : NICE_MAX);
}
