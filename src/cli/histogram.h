/* How often each duration was seen, in bounded memory: exact below 64 us, within 3 % above. Durations beyond
 * 19 hours count as that. One thread; threads keep one each and add them up. */
#ifndef CLI_HISTOGRAM_H
#define CLI_HISTOGRAM_H

#include <stdint.h>

#define HISTOGRAM_BUCKETS 1024

struct histogram { /* zero-initialise */
    uint64_t counts[HISTOGRAM_BUCKETS];
    uint64_t total;
    int64_t most_us;
};

void histogram_add(struct histogram *h, int64_t us); /* negative: as 0 */
void histogram_merge(struct histogram *into, const struct histogram *from);
/* The duration that `percent` (1 to 100) of all are not above; never less than the true one, and never above the
 * largest seen. 0 when there are none. */
int64_t histogram_percentile(const struct histogram *h, unsigned percent);

#endif
