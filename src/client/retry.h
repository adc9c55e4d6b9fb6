/* When to send again, and what an answer says about that. Pure. */
#ifndef CLIENT_RETRY_H
#define CLIENT_RETRY_H

#include "client/client.h"

/* Exponential back-off with full jitter: evenly from 0 to the window, which is base_ms after the first failure, doubles
 * with each further one and ends at cap_ms. `failures` from 1; `chance` is a random number. */
int64_t retry_delay_ms(int64_t base_ms, int64_t cap_ms, unsigned failures, uint64_t chance);

#define RETRY_AFTER_MS_MAX (366LL * 24 * 3600 * 1000)

/* A Retry-After value: seconds, or an HTTP-date in any of the three forms of RFC 9110 section 5.6.7. The date counts from
 * the answer's own `date` where that can be read (the clocks may differ), else from now. False: it is neither. *out is
 * from 0 to RETRY_AFTER_MS_MAX. */
bool retry_after_ms(int64_t *out, struct slice value, struct slice date, int64_t now_wall_ms);

/* An HTTP-date as milliseconds since 1970; two-digit years are read so that they are at most 50 years ahead of now. */
bool http_date_ms(int64_t *out, struct slice text, int64_t now_wall_ms);

struct retry_verdict {
    hapax_call_news news;
    int64_t after_ms; /* what the server asks to wait; -1: it does not say */
};

/* `maybe_done`: an earlier attempt may have begun the operation. HAPAX_E_MEMORY is the only error: then the verdict is
 * that of an answer without a readable body. The arena holds what is parsed of the body. */
int retry_judge(struct retry_verdict *out, const struct client_reply *reply, bool maybe_done,
                int64_t now_wall_ms, struct arena *arena);

#endif
