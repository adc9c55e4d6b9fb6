#include "base/clock.h"

#include <stdio.h>
#include <time.h>

static int64_t read_us(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t); /* can't fail for these clocks */
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

int64_t clock_wall_ms(void)
{
    return read_us(CLOCK_REALTIME) / 1000;
}

int64_t clock_mono_ms(void)
{
    return read_us(CLOCK_BOOTTIME) / 1000;
}

int64_t clock_mono_us(void)
{
    return read_us(CLOCK_BOOTTIME);
}

struct moment clock_now(void)
{
    return (struct moment){.wall_ms = clock_wall_ms(), .mono_ms = clock_mono_ms()};
}

void clock_text(char *out, int64_t wall_ms)
{
    int64_t ms = wall_ms % 1000;
    int64_t seconds = wall_ms / 1000;
    if (ms < 0) {
        ms += 1000;
        seconds -= 1;
    }
    time_t t = (time_t)seconds;
    struct tm tm;
    char date[24];
    if (gmtime_r(&t, &tm) == NULL || strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &tm) == 0) {
        snprintf(out, CLOCK_TEXT_MAX, "out-of-range");
        return;
    }
    snprintf(out, CLOCK_TEXT_MAX, "%s.%03dZ", date, (int)ms);
}
