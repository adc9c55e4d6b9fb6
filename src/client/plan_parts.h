/* What the files of a plan share; nobody else includes it. */
#ifndef CLIENT_PLAN_PARTS_H
#define CLIENT_PLAN_PARTS_H

#include "client/plan.h"

/* Each checks a part of plan->asked and fills in what it comes to. Results as client_plan_make(). */
int client_plan_take_url(struct client_plan *p, hapax_error *err);
int client_plan_take_headers(struct client_plan *p, hapax_error *err);
int client_plan_take_body(struct client_plan *p, hapax_error *err); /* and finds the place of key_field */

/* plan->key into the message. */
int client_plan_put_into_header(struct client_plan *p, hapax_error *err);
int client_plan_put_into_body(struct client_plan *p, hapax_error *err);

#endif
