#include "alloc.h"

#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>

/* What stands below: the sanitizer's allocator where there is one, else glibc's own. */
#ifdef ALLOC_ABOVE_SANITIZER
#define BELOW(name) __interceptor_##name
#else
#define BELOW(name) __libc_##name
#endif

void *BELOW(malloc)(size_t bytes);
void *BELOW(calloc)(size_t count, size_t bytes);
void *BELOW(realloc)(void *block, size_t bytes);
void *BELOW(memalign)(size_t alignment, size_t bytes);
void BELOW(free)(void *block);

static _Atomic(bool) armed;
static _Atomic(bool) failed;
static _Atomic(long) left; /* until the one that fails */
static long armed_with;    /* as keep_failing, written while nothing is armed */
static bool keep_failing;
static _Atomic(long) live;

#ifdef ALLOC_ABOVE_SANITIZER
/* The sanitizer itself allocates while a thread starts, and gives up when it can't: threads are fair game from their
 * function on only, those that libraries start not at all. */
static _Thread_local bool spared = true;
#else
static _Thread_local bool spared;
#endif

void alloc_arm(long n, bool from_there_on)
{
    armed_with = n;
    keep_failing = from_there_on;
    atomic_store(&left, n);
    atomic_store(&failed, false);
    atomic_store(&armed, true);
}

bool alloc_disarm(void)
{
    atomic_store(&armed, false);
    return atomic_load(&failed);
}

bool alloc_failed(void)
{
    return atomic_load(&failed);
}

long alloc_seen(void)
{
    return armed_with - atomic_load(&left);
}

void alloc_spare_thread(void)
{
    spared = true;
}

long alloc_live(void)
{
    return atomic_load(&live);
}

static bool fails(void)
{
    if (!atomic_load_explicit(&armed, memory_order_acquire) || spared) {
        return false;
    }
    long now_left = atomic_fetch_sub(&left, 1) - 1;
    if (now_left > 0 || (now_left < 0 && !keep_failing)) {
        return false;
    }
    atomic_store(&failed, true);
    errno = ENOMEM;
    return true;
}

static void *count(void *block)
{
    if (block != NULL) {
        atomic_fetch_add_explicit(&live, 1, memory_order_relaxed);
    }
    return block;
}

void *malloc(size_t bytes)
{
    return fails() ? NULL : count(BELOW(malloc)(bytes));
}

void *calloc(size_t number, size_t bytes)
{
    return fails() ? NULL : count(BELOW(calloc)(number, bytes));
}

void *realloc(void *block, size_t bytes)
{
    if (block == NULL) {
        return malloc(bytes);
    }
    if (bytes == 0) {
        free(block);
        return NULL;
    }
    return fails() ? NULL : BELOW(realloc)(block, bytes);
}

void *memalign(size_t alignment, size_t bytes)
{
    return fails() ? NULL : count(BELOW(memalign)(alignment, bytes));
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    return memalign(alignment, bytes);
}

int posix_memalign(void **out, size_t alignment, size_t bytes)
{
    void *block = memalign(alignment, bytes);
    if (block == NULL) {
        return ENOMEM;
    }
    *out = block;
    return 0;
}

void free(void *block)
{
    if (block != NULL) {
        atomic_fetch_sub_explicit(&live, 1, memory_order_relaxed);
    }
    BELOW(free)(block);
}

#ifdef ALLOC_ABOVE_SANITIZER
struct start {
    void *(*run)(void *arg);
    void *arg;
};

int __real_pthread_create(pthread_t *out, const pthread_attr_t *attributes, void *(*run)(void *), void *arg);
int __wrap_pthread_create(pthread_t *out, const pthread_attr_t *attributes, void *(*run)(void *), void *arg);

static void *run_thread(void *block)
{
    struct start start = *(struct start *)block;
    BELOW(free)(block);
    spared = false;
    void *result = start.run(start.arg);
    spared = true;
    return result;
}

int __wrap_pthread_create(pthread_t *out, const pthread_attr_t *attributes, void *(*run)(void *), void *arg)
{
    struct start *start = fails() ? NULL : BELOW(malloc)(sizeof *start);
    if (start == NULL) {
        return EAGAIN; /* as when there is no memory for its stack */
    }
    *start = (struct start){run, arg};
    bool before = spared;
    spared = true;
    int failure = __real_pthread_create(out, attributes, run_thread, start);
    spared = before;
    if (failure != 0) {
        BELOW(free)(start);
    }
    return failure;
}

__attribute__((constructor)) static void main_thread_is_fair_game(void)
{
    spared = false;
}
#endif
