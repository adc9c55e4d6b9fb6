/* An event loop on one thread, behind libuv. Everything of a loop is used on its own thread, except
 * loop_post() and loop_stop(). net/ is the only part that sees uv and TLS. */
#ifndef NET_LOOP_H
#define NET_LOOP_H

#include "hapax/error.h"

#include <stdbool.h>
#include <stdint.h>

struct loop;
struct loop_timer;

int loop_create(struct loop **out, hapax_error *err);
void loop_run(struct loop *l);  /* returns after loop_stop() */
void loop_stop(struct loop *l); /* any thread */
void loop_destroy(
    struct loop *l); /* after loop_run() returned and every server, client and timer is closed */

/* Run fn(ctx) soon on the loop's thread. Any thread. Bounded by the callers: each posts what it owns. 0 or HAPAX_E_MEMORY. */
int loop_post(struct loop *l, void (*fn)(void *ctx), void *ctx);

/* A cheap, coalescing wake-up: after loop_wake(), fn(ctx) runs at least once on the loop. wake from any thread. */
struct loop_waker;
int loop_waker_create(struct loop_waker **out, struct loop *l, void (*fn)(void *ctx), void *ctx,
                      hapax_error *err);
void loop_wake(struct loop_waker *w);
void loop_waker_close(struct loop_waker *w);

/* fn(ctx) runs at the end of each turn of the loop that may have done something, always before it waits. At most one. */
int loop_each_turn(struct loop *l, void (*fn)(void *ctx), void *ctx, hapax_error *err);

/* One-shot timers; start again to move. fn runs on the loop, never inside a call. */
int loop_timer_create(struct loop_timer **out, struct loop *l, void (*fn)(void *ctx), void *ctx);
void loop_timer_start(struct loop_timer *t, int64_t after_ms);
void loop_timer_stop(struct loop_timer *t);
void loop_timer_close(struct loop_timer *t); /* frees it; fn never runs again */

/* The loop's own milliseconds as of this turn, for time-outs. They stand still while the host is suspended: never compare
 * them with clock_mono_ms(). */
/* For a loop that runs now and then: its time is that of its last turn, and what is started before the next one would
 * count from there. Bring it up to date. */
void loop_catch_up(struct loop *l);
int64_t loop_mono_ms(struct loop *l);

/* Deliver a POSIX signal as a call-back on the loop (SIGTERM, SIGINT, SIGHUP). */
int loop_signal(struct loop *l, int signal, void (*fn)(void *ctx, int signal), void *ctx, hapax_error *err);

/* Raise the soft limit of open descriptors to the hard one; returns the limit in force. */
uint64_t net_descriptor_limit(void);
/* Once per process, before any thread and any loop: TLS's global set-up, SIGPIPE ignored, loops that never run out of
 * memory for descriptors. Raise the limit of these before. */
int net_global_init(hapax_error *err);

#endif
