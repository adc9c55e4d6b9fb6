/* A cell of the matrix: what is sent. What it means is judged in judge.c.
 *
 * Operation A is sent first and delivered as the cell says; operation B follows `count` times at the cell's moment. B is A
 * itself (same key, same or reordered body), or A's key with another body, from another tenant or at another path. At the
 * end each of them is repeated until it has a definite answer. No verdict depends on how long anything takes. */
#include "drill/cases.h"

static unsigned times_of(const struct trial *t)
{
    return t->out->at[DRILL_COUNT] == DRILL_ONCE ? 1 : t->d->setup->times;
}

static void repeat(struct trial *t, unsigned b, unsigned times)
{
    if (t->out->at[DRILL_COUNT] == DRILL_AT_ONCE) {
        trial_at_once(t, b, PHASE_REPEAT, times);
    } else {
        trial_series(t, b, PHASE_REPEAT, times);
    }
}

/* Give up A's connection, or read its answer. */
static void end_first(struct trial *t, struct flight *a, enum drill_delivery delivery)
{
    if (a->sent != NULL && delivery != DRILL_READ) {
        flight_drive(t, a, SHOT_OUT);
        shot_lose(&t->d->wire, &a->shot);
    }
    flight_land(t, a);
}

/* "After" is when the first one has taken effect; one that was cut never may, however long it takes. */
static void count_first(struct trial *t, enum drill_delivery delivery)
{
    if (delivery == DRILL_REQUEST_LOST) {
        effects_sleep(t->d->setup, t->d->normal_ms);
    }
    trial_count(t, delivery == DRILL_REQUEST_LOST ? 0 : 1);
    if (delivery == DRILL_REQUEST_LOST && t->rc == 0 && t->effects > 0) {
        trial_broken(t, "a request that was cut took effect");
    }
}

static void send_one_after_the_other(struct trial *t, unsigned b, enum drill_delivery delivery)
{
    struct flight a;
    flight_start(t, &a, 0, PHASE_FIRST, delivery);
    flight_drive(t, &a, SHOT_READY);
    flight_go(&a);
    end_first(t, &a, delivery);
    if (t->out->at[DRILL_MOMENT] == DRILL_AFTER) {
        count_first(t, delivery);
    }
    repeat(t, b, times_of(t));
}

/* The first B leaves as soon as A has; A's connection is given up only then. */
static void send_during(struct trial *t, unsigned b, enum drill_delivery delivery)
{
    struct flight a;
    struct flight first;
    flight_start(t, &a, 0, PHASE_FIRST, delivery);
    flight_drive(t, &a, SHOT_READY);
    flight_start(t, &first, b, PHASE_REPEAT, DRILL_READ);
    flight_drive(t, &first, SHOT_READY);
    flight_go(&a);
    flight_go(&first);
    flight_drive(t, &first, SHOT_OUT);
    end_first(t, &a, delivery);
    flight_land(t, &first);
    trial_series(t, b, PHASE_REPEAT, times_of(t) - 1);
}

/* All last bytes leave together, A's among them. */
static void send_together(struct trial *t, unsigned b, enum drill_delivery delivery)
{
    static struct flight flights[DRILL_TIMES_MAX + 1]; /* one thread; too large for a stack */
    struct shot *shots[DRILL_TIMES_MAX + 1] = {NULL};
    size_t count = 0;
    unsigned times = times_of(t);
    for (unsigned i = 0; i <= times; i++) {
        flight_start(t, &flights[i], i == 0 ? 0 : b, i == 0 ? PHASE_FIRST : PHASE_REPEAT,
                     i == 0 ? delivery : DRILL_READ);
        if (flights[i].sent != NULL) {
            shots[count++] = &flights[i].shot;
        }
    }
    shots_drive(&t->d->wire, shots, count, SHOT_READY);
    shots_go(shots, count);
    shots_drive(&t->d->wire, shots, count, SHOT_OUT);
    end_first(t, &flights[0], delivery);
    for (unsigned i = 1; i <= times; i++) {
        flight_land(t, &flights[i]);
    }
}

static void show(struct trial *t, unsigned b, enum drill_delivery delivery)
{
    bool during = t->out->at[DRILL_MOMENT] == DRILL_DURING;
    bool at_once = t->out->at[DRILL_COUNT] == DRILL_AT_ONCE;
    curl_variables(t, 0);
    curl_send(t, 0, delivery);
    curl_text(t, during ? " & " : t->out->at[DRILL_MOMENT] == DRILL_AFTER ? "; sleep 1; " : "; ");
    curl_repeat(t, b, times_of(t), at_once);
    curl_text(t, during && !at_once ? "; wait" : "");
    curl_text(t, "; ");
    curl_send(t, 0, DRILL_READ);
}

void case_cell(struct trial *t)
{
    const unsigned char *at = t->out->at;
    enum drill_delivery delivery = (enum drill_delivery)at[DRILL_DELIVERY];
    unsigned a = trial_operation(t, DRILL_SAME, DRILL_HERE);
    unsigned b =
        trial_operation_like(t, a, (enum drill_payload)at[DRILL_PAYLOAD], (enum drill_place)at[DRILL_PLACE]);
    show(t, b, delivery);
    if (at[DRILL_MOMENT] != DRILL_DURING) {
        send_one_after_the_other(t, b, delivery);
    } else if (at[DRILL_COUNT] == DRILL_AT_ONCE) {
        send_together(t, b, delivery);
    } else {
        send_during(t, b, delivery);
    }
    judge_cell(t);
}
