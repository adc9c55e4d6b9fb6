/* Threads of ours: how one is started, and how it wants to be scheduled. The latter are hints without privileges: where
 * the system does not know them, nothing happens. They concern the calling thread only. */
#ifndef BASE_THREAD_H
#define BASE_THREAD_H

#include <pthread.h>

/* As pthread_create(3) with the standard attributes, but the thread takes no signals but those of its own faults: others are the program's own. */
int thread_start(pthread_t *out, void *(*run)(void *ctx), void *ctx);

/* It works in short bursts, and others wait for each: let it run soon after it wakes up. Asks for slices of 0.1 ms
 * (sched_setattr(2), sched_runtime of SCHED_OTHER, Linux 6.12), where 2.8 ms or so are usual. */
void thread_prompt(void);

/* It can wait while others are busy: five steps nicer than it was. */
void thread_background(void);

#endif
