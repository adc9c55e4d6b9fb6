/* An allocator that fails on demand, for the whole process: libc's, SQLite's, OpenSSL's, libuv's, libyaml's and
 * curl's allocations all pass through it.
 *
 * The test program defines malloc() and its relatives (alloc.c), so nothing in src/ knows of it. Allocations are
 * counted over all threads but those that asked to be spared; between arm and disarm the n-th one fails, once or
 * from there on. Blocks that are alive are counted always, so that leaks show without a sanitizer, too. */
#ifndef TESTS_FAULT_ALLOC_H
#define TESTS_FAULT_ALLOC_H

#include <stdbool.h>

void alloc_arm(long n, bool from_there_on); /* n counts from 1 */
bool alloc_disarm(void);                    /* did one fail? */
bool alloc_failed(void);                    /* has one, since alloc_arm()? */
long alloc_seen(void);                      /* allocations since alloc_arm() */
void alloc_spare_thread(void); /* the calling thread's allocations never fail: a test's own client */
long alloc_live(void);         /* blocks allocated and not freed */

#endif
