/* Ports, and the names of verdicts. */
#include "base/assert.h"
#include "engine/engine.h"

void engine_port_init(struct engine_port *p, void (*wake)(void *ctx), void *ctx)
{
    queue_init(&p->queue);
    p->wake = wake;
    p->ctx = ctx;
    p->gathers = false;
    p->owed = 0;
}

void engine_port_destroy(struct engine_port *p)
{
    HAPAX_ASSERT(queue_empty(&p->queue));
}

size_t engine_port_drain(struct engine_port *p)
{
    size_t count = 0;
    for (struct queue_node *node = queue_take(&p->queue); node != NULL; count++) {
        struct queue_node *next = node->next; /* the call-back may free the op */
        struct engine_op *op = (struct engine_op *)node;
        op->done(op);
        node = next;
    }
    return count;
}

const char *verdict_name(enum engine_verdict v)
{
    switch (v) {
    case VERDICT_FRESH:
        return "fresh";
    case VERDICT_REPLAY:
        return "replay";
    case VERDICT_ATTACHED:
        return "attached";
    case VERDICT_IN_PROGRESS:
        return "in-progress";
    case VERDICT_MISMATCH:
        return "mismatch";
    case VERDICT_UNKNOWN:
        return "unknown";
    }
    return "?";
}
