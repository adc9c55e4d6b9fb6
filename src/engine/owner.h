/* Owners: who holds a claim, written so that others can tell whether it is still alive.
 *
 * The text names host, machine id, boot, pid namespace, process id, process start and a random token of the
 * engine. Judging is careful: "dead" is said only where it is certain, because it takes the owner's claims away.
 * Everything else (another host, another container on this one, a text that can't be read) is "unsure", and the
 * lease decides. Names are no proof: two hosts made from one image, or two containers, may share host name, machine id
 * and process id; so that an earlier boot has ended is believed only of a store that no other host can use. */
#ifndef ENGINE_OWNER_H
#define ENGINE_OWNER_H

#include "base/limits.h"

#include <stdbool.h>
#include <stdint.h>

#define OWNER_TEXT_MAX (LIMIT_OWNER_TEXT_BYTES_MAX + 1)

/* An engine of this process, from owner_enter() to owner_leave(). */
struct owner_self {
    uint64_t token;
    char text[OWNER_TEXT_MAX];
    struct owner_self *next; /* in the process's list of living engines */
};

enum owner_verdict { OWNER_ALIVE, OWNER_DEAD, OWNER_UNSURE };

/* Any thread. `self` stays where it is until owner_leave(). */
void owner_enter(struct owner_self *self, int64_t wall_ms);
void owner_leave(struct owner_self *self);

/* Judge a registered text. `one_host`: all who register there run on this host. Any thread; reads /proc. */
enum owner_verdict owner_judge(const char *text, bool one_host);

/* The instant of registration; 0 when the text can't be read. */
int64_t owner_since_ms(const char *text);

#endif
