/* hapax_call(): the story in the real world. */
#include "base/clock.h"
#include "base/error.h"
#include "client/plan.h"
#include "client/sender.h"

#include <errno.h>
#include <sys/random.h>
#include <time.h>

static int64_t real_mono_ms(void *ctx)
{
    (void)ctx;
    return clock_mono_ms();
}

static int64_t real_wall_ms(void *ctx)
{
    (void)ctx;
    return clock_wall_ms();
}

static void real_sleep_ms(void *ctx, int64_t ms)
{
    (void)ctx;
    struct timespec left = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    while (nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
}

static int real_random(void *ctx, void *out, size_t len)
{
    (void)ctx;
    return getrandom(out, len, 0) == (ssize_t)len ? 0 : HAPAX_E_SYSTEM;
}

int hapax_call(hapax *h, const hapax_call_request *request, hapax_call_result **out, hapax_error *err)
{
    if (out == NULL) {
        return error_code(err, HAPAX_E_ARGUMENT);
    }
    *out = NULL;
    if (h == NULL || request == NULL) {
        return error_code(err, HAPAX_E_ARGUMENT);
    }
    struct client_plan plan;
    struct client_sender *sender = NULL;
    int rc = client_plan_make(&plan, request, err);
    if (rc == 0) {
        rc = client_sender_open(&sender, plan.origin, plan.asked.ca_file, err);
    }
    if (rc == 0) {
        struct client_world world = {.ctx = sender,
                                     .mono_ms = real_mono_ms,
                                     .wall_ms = real_wall_ms,
                                     .sleep_ms = real_sleep_ms,
                                     .random = real_random,
                                     .send = client_sender_send};
        rc = client_call(h, &plan, &world, out, err);
    }
    client_sender_close(sender);
    client_plan_free(&plan);
    return rc;
}
