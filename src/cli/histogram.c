/* Log-linear buckets: one for each of 0 to 63, then 32 equal steps for each doubling. */
#include "cli/histogram.h"

#include <stddef.h>

#define EXACT     64 /* values below have a bucket each */
#define STEP_BITS 5
#define STEPS     (1 << STEP_BITS)
#define LARGEST   (((int64_t)1 << 36) - 1)

static size_t bucket_of(int64_t us)
{
    if (us < EXACT) {
        return (size_t)us;
    }
    int exponent = 63 - __builtin_clzll((unsigned long long)us);
    int step = (int)(us >> (exponent - STEP_BITS)) - STEPS;
    return (size_t)(EXACT + (exponent - STEP_BITS - 1) * STEPS + step);
}

/* The largest value that falls into a bucket. */
static int64_t bucket_end(size_t bucket)
{
    if (bucket < EXACT) {
        return (int64_t)bucket;
    }
    size_t doubling = (bucket - EXACT) / STEPS;
    size_t step = (bucket - EXACT) % STEPS;
    return ((int64_t)(STEPS + step + 1) << (doubling + 1)) - 1;
}

void histogram_add(struct histogram *h, int64_t us)
{
    us = us < 0 ? 0 : us > LARGEST ? LARGEST : us;
    h->counts[bucket_of(us)]++;
    h->total++;
    h->most_us = us > h->most_us ? us : h->most_us;
}

void histogram_merge(struct histogram *into, const struct histogram *from)
{
    for (size_t i = 0; i < HISTOGRAM_BUCKETS; i++) {
        into->counts[i] += from->counts[i];
    }
    into->total += from->total;
    into->most_us = from->most_us > into->most_us ? from->most_us : into->most_us;
}

int64_t histogram_percentile(const struct histogram *h, unsigned percent)
{
    uint64_t wanted = (h->total * percent + 99) / 100;
    uint64_t seen = 0;
    for (size_t i = 0; i < HISTOGRAM_BUCKETS; i++) {
        seen += h->counts[i];
        if (seen >= wanted && seen > 0) {
            return bucket_end(i) < h->most_us ? bucket_end(i) : h->most_us;
        }
    }
    return h->most_us;
}
