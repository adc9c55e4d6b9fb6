/* How a thread of ours wants to be scheduled. Hints without privileges: where the system does not know them, nothing
 * happens. They concern the calling thread only. */
#ifndef BASE_THREAD_H
#define BASE_THREAD_H

/* It works in short bursts, and others wait for each: let it run soon after it wakes up. Asks for slices of 0.1 ms
 * (sched_setattr(2), sched_runtime of SCHED_OTHER, Linux 6.12), where 2.8 ms or so are usual. */
void thread_prompt(void);

/* It can wait while others are busy: five steps nicer than it was. */
void thread_background(void);

#endif
