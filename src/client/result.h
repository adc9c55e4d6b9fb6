/* The result of a call while it is made: the public struct and the memory behind it. */
#ifndef CLIENT_RESULT_H
#define CLIENT_RESULT_H

#include "client/kept.h"
#include "client/plan.h"
#include "client/retry.h"

struct client_result {
    hapax_call_result shown; /* first: its address is the result's */
    struct arena arena;
    struct buf body;
    hapax_call_attempt attempts[]; /* attempts_max of them */
};

struct client_result *client_result_make(unsigned attempts_max); /* NULL without memory */
/* The key, and where the operation's record is. 0 or HAPAX_E_MEMORY. */
int client_result_take_names(struct client_result *r, const struct client_plan *plan);
int client_result_take_key(struct client_result *r, struct slice key);
/* Copies the answer; an earlier one is forgotten. 0, or HAPAX_E_MEMORY: then it holds none. */
int client_result_take_answer(struct client_result *r, const struct kept *answer);

#endif
