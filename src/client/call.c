/* The story of a call: find the key, claim the operation, send until its answer is definite, settle.
 *
 * Two records of the store carry it, so that whatever ends the process leaves what the next one needs. The key's is done
 * before the operation is claimed: from then on nothing can be sent without that key being known. The operation's is
 * running while somebody is at it, and a claim of it may take over an unknown one, because sending again with the same
 * key is what keys are for. It ends done (the answer), released (certainly nothing happened) or lost (unknown). Its lease
 * is extended for each wait and attempt, and by no heartbeat: where the store does not take the end of a claim, the claim
 * must not outlive its call.
 *
 * Taking over is refused where the key can't be trusted to be the one that was used before: when the key's record is
 * younger than the operation's claim (it expired in between, or was forgotten by hand), and when the server may have
 * forgotten the key. */
#include "client/client.h"

#include "base/error.h"
#include "client/plan.h"
#include "client/result.h"
#include "core/identity.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    KEY_TRIES_MAX = 5,    /* somebody else's claim of the key's record ran out while we waited */
    SETTLE_TRIES_MAX = 4, /* of ending the claim */
    SETTLE_PAUSE_MS = 100,
    LEASE_SLACK_MS = 10 * 1000, /* beyond an attempt's time-out, for the store and a busy machine */
    UUID_BYTES = 16,
    UUID_TEXT_BYTES = 37,
};

struct run {
    hapax *h;
    struct client_plan *plan;
    const struct client_world *world;
    struct client_result *result;
    hapax_claim claim;   /* of the operation */
    int64_t claimed_ms;  /* its first claim */
    int64_t key_made_ms; /* claim of the key's record; 0: the key has none */
    int64_t begun_mono_ms;
    int64_t ends_mono_ms;
    bool maybe_done;
    struct client_reply reply; /* the last one */
};

static int64_t mono_ms(const struct run *r)
{
    return r->world->mono_ms(r->world->ctx);
}

static int64_t wall_ms(const struct run *r)
{
    return r->world->wall_ms(r->world->ctx);
}

static int64_t left_ms(const struct run *r)
{
    int64_t left = r->ends_mono_ms - mono_ms(r);
    return left > 0 ? left : 0;
}

static void tell(const struct run *r, hapax_call_step step, unsigned number, int64_t delay_ms)
{
    const hapax_call_request *asked = &r->plan->asked;
    size_t n = r->result->shown.attempt_count;
    if (asked->progress != NULL) {
        hapax_call_progress p = {.step = step,
                                 .number = number,
                                 .delay_ms = delay_ms,
                                 .key = r->plan->key,
                                 .last = step == HAPAX_CALL_STEP_RETRY ? &r->result->attempts[n - 1] : NULL};
        asked->progress(asked->progress_ctx, &p);
    }
}

/* --- the key --- */

/* RFC 9562 version 4. */
static int make_key(char out[UUID_TEXT_BYTES], const struct run *r, hapax_error *err)
{
    uint8_t b[UUID_BYTES];
    char hex[2 * UUID_BYTES + 1];
    if (r->world->random(r->world->ctx, b, sizeof b) != 0) {
        return error_set(err, HAPAX_E_SYSTEM, 0, "the system gives no random bytes");
    }
    b[6] = (uint8_t)((b[6] & 0x0f) | 0x40);
    b[8] = (uint8_t)((b[8] & 0x3f) | 0x80);
    digest_hex(hex, b, sizeof b);
    snprintf(out, UUID_TEXT_BYTES, "%.8s-%.4s-%.4s-%.4s-%.12s", hex, hex + 8, hex + 12, hex + 16, hex + 20);
    return 0;
}

/* What the key's record holds, or an operation's, has been written by others: it must be a key. */
static bool is_key(struct slice text)
{
    struct identity id;
    return identity_make(&id, SLICE_LITERAL("key"), text, NULL) == 0;
}

/* Without a record of the operation it is the key's alone that stands in the way. */
static int refuse_key(struct run *r, hapax_error *err)
{
    hapax_record record;
    int rc = hapax_lookup(r->h, r->plan->scope, r->plan->name, &record, err);
    hapax_answer_free(record.answer);
    r->result->shown.end = HAPAX_CALL_END_MISMATCH;
    r->result->shown.claimed_ms = record.claimed_ms;
    return rc != HAPAX_E_NOT_FOUND ? rc : 0;
}

static int read_key_record(struct run *r, hapax_answer *answer, hapax_error *err)
{
    size_t bytes;
    const char *data = hapax_answer_data(answer, &bytes);
    struct slice key = slice_of(data, bytes);
    if (!is_key(key)) {
        return error_set(err, HAPAX_E_STORE_CORRUPT, 0,
                         "the record of the op's key holds no key; hapax keys forget removes it");
    }
    if (r->plan->key != NULL && !slice_equal(slice_text(r->plan->key), key)) {
        return refuse_key(r, err);
    }
    return client_plan_take_key(r->plan, key, err);
}

/* Ours to make: it is durable before anybody can read it, and so before anything is sent. */
static int complete_key_record(struct run *r, const hapax_claim *claim, hapax_error *err)
{
    char made[UUID_TEXT_BYTES];
    const char *key = r->plan->key;
    int rc = 0;
    if (key == NULL) {
        rc = make_key(made, r, err);
        key = made;
    }
    rc = rc != 0 ? rc : hapax_complete(r->h, claim, key, strlen(key), err);
    return rc != 0 ? rc : client_plan_take_key(r->plan, slice_text(key), err);
}

/* The op's key, made by whoever comes first. Its claim may be taken over: nothing is sent before it has ended. */
static int find_op_key(struct run *r, hapax_error *err)
{
    hapax_request request = {.size = sizeof request,
                             .scope = PLAN_KEY_SCOPE,
                             .key = r->plan->name,
                             .ttl_ms = r->plan->asked.ttl_ms,
                             .take_over = 1};
    int rc = HAPAX_E_STALE;
    for (int i = 0; i < KEY_TRIES_MAX && rc == HAPAX_E_STALE; i++) {
        hapax_result found;
        request.wait_ms = left_ms(r);
        rc = hapax_begin(r->h, &request, &found, err);
        if (rc != 0) {
            return rc;
        }
        r->key_made_ms = found.claimed_ms;
        if (found.verdict == HAPAX_FRESH) {
            rc = complete_key_record(r, &found.claim, err);
        } else if (found.answer != NULL) {
            rc = read_key_record(r, found.answer, err);
        } else {
            r->result->shown.end = HAPAX_CALL_END_BUSY;
        }
        hapax_answer_free(found.answer);
    }
    if (rc == HAPAX_E_STALE) { /* one after the other came in between */
        r->result->shown.end = HAPAX_CALL_END_BUSY;
        rc = 0;
    }
    return rc;
}

static int find_key(struct run *r, hapax_error *err)
{
    char made[UUID_TEXT_BYTES];
    if (r->plan->asked.op != NULL) {
        return find_op_key(r, err);
    }
    if (r->plan->key != NULL) {
        return client_plan_take_key(r->plan, slice_text(r->plan->key), err);
    }
    int rc = make_key(made, r, err);
    return rc != 0 ? rc : client_plan_take_key(r->plan, slice_text(made), err);
}

/* --- settling --- */

/* How long the claim may stay silent: for a wait and an attempt after it. */
static int64_t lease_ms(const struct run *r, int64_t delay_ms)
{
    return delay_ms + r->plan->asked.timeout_ms + LEASE_SLACK_MS;
}

struct settlement {
    enum { SETTLE_DONE, SETTLE_RELEASED, SETTLE_LOST } as;
    struct slice answer;
};

/* A store in trouble gets another chance: an answer that it does not take is asked for once more. */
static int settle(struct run *r, const struct settlement *s, hapax_error *err)
{
    for (int i = 1;; i++) {
        int rc = s->as == SETTLE_DONE   ? hapax_complete(r->h, &r->claim, s->answer.ptr, s->answer.len, err)
                 : s->as == SETTLE_LOST ? hapax_lose(r->h, &r->claim, err)
                                        : hapax_release(r->h, &r->claim, err);
        if ((rc != HAPAX_E_STORE && rc != HAPAX_E_BUSY && rc != HAPAX_E_MEMORY) || i == SETTLE_TRIES_MAX) {
            return rc;
        }
        r->world->sleep_ms(r->world->ctx, (int64_t)i * SETTLE_PAUSE_MS);
    }
}

/* What the store can't take now is unknown once the lease has run out: that, too, is sent again with the same key only. */
static void give_up(struct run *r, hapax_call_end end)
{
    hapax_error ignored;
    struct settlement s = {.as = r->maybe_done ? SETTLE_LOST : SETTLE_RELEASED};
    (void)settle(r, &s, &ignored);
    r->result->shown.end = end;
    r->result->shown.maybe_done = r->maybe_done;
    if (!r->maybe_done) {
        r->result->shown.claimed_ms = 0;
    }
}

static struct kept answer_of(const struct run *r)
{
    const struct client_reply *reply = &r->reply;
    return (struct kept){.status = reply->status,
                         .cut = reply->body_cut,
                         .key = slice_text(r->plan->key),
                         .headers = reply->headers,
                         .header_count = reply->header_count,
                         .body = buf_slice(&reply->body)};
}

/* The operation has its answer, whatever the store says now. */
static void store_answer(struct run *r, hapax_error *err)
{
    struct buf text;
    hapax_error why;
    struct kept answer = answer_of(r);
    buf_init(&text, HAPAX_ANSWER_BYTES_MAX);
    int rc = kept_write(&text, &answer);
    if (rc == 0) {
        rc = settle(r, &(struct settlement){.as = SETTLE_DONE, .answer = buf_slice(&text)}, &why);
    } else {
        error_code(&why, rc);
    }
    buf_free(&text);
    if (rc != 0) {
        *err = why;
    }
    r->result->shown.end = HAPAX_CALL_END_ANSWERED;
    r->result->shown.stored = rc == 0;
}
_Static_assert(HAPAX_CALL_ANSWER_BYTES_MAX + 8U * HAPAX_CALL_HEAD_BYTES_MAX < HAPAX_ANSWER_BYTES_MAX,
               "an answer with its head fits into a record");

/* --- attempts --- */

/* May it still be sent, after `delay_ms` more? */
static bool key_is_fresh(const struct run *r, int64_t delay_ms)
{
    int64_t age_ms = wall_ms(r) + delay_ms - r->claimed_ms;
    return !r->maybe_done || age_ms < r->plan->asked.key_lifetime_ms;
}

/* Looked at whenever time has gone by that is not ours to tell: for another caller, or asleep with the host. False: the
 * call has ended. */
static bool may_send(struct run *r)
{
    if (!key_is_fresh(r, 0)) {
        give_up(r, HAPAX_CALL_END_EXPIRED);
        return false;
    }
    if (left_ms(r) == 0) {
        give_up(r, r->maybe_done ? HAPAX_CALL_END_UNKNOWN : HAPAX_CALL_END_NOT_DONE);
        return false;
    }
    return true;
}

static void describe(hapax_call_attempt *a, const struct client_reply *reply)
{
    if (reply->complete) {
        snprintf(a->detail, sizeof a->detail, "answered %d%s", reply->status,
                 reply->body_cut ? ", with more bytes than are kept" : "");
    } else {
        snprintf(a->detail, sizeof a->detail, "%s", reply->detail);
    }
}

static int attempt(struct run *r, struct retry_verdict *verdict, int64_t waited_ms, hapax_error *err)
{
    struct client_result *result = r->result;
    hapax_call_attempt *a = &result->attempts[result->shown.attempt_count];
    int64_t left = left_ms(r);
    int64_t timeout_ms = left < r->plan->asked.timeout_ms ? left : r->plan->asked.timeout_ms;
    timeout_ms =
        timeout_ms > 0 ? timeout_ms : 1; /* the last millisecond went by since the look at the clock */
    *a = (hapax_call_attempt){.started_ms = wall_ms(r), .waited_ms = waited_ms};
    tell(r, HAPAX_CALL_STEP_SEND, (unsigned)result->shown.attempt_count + 1, 0);
    int64_t start = mono_ms(r);
    client_reply_clear(&r->reply);
    int rc = r->world->send(r->world->ctx, &r->plan->message, timeout_ms, &r->reply, err);
    if (rc != 0) {
        return rc;
    }
    struct arena arena;
    arena_init(&arena, 4U * HAPAX_CALL_ANSWER_BYTES_MAX);
    /* Without memory: by the status alone. */
    (void)retry_judge(verdict, &r->reply, r->maybe_done, wall_ms(r), &arena);
    arena_free(&arena);
    a->took_ms = mono_ms(r) - start;
    a->status = r->reply.complete ? r->reply.status : 0;
    a->news = verdict->news;
    describe(a, &r->reply);
    result->shown.attempt_count++;
    r->maybe_done = r->maybe_done || verdict->news == HAPAX_CALL_MAYBE || verdict->news == HAPAX_CALL_HELD;
    return 0;
}

/* How long to wait before the next one: a wait of our own leaves time for it, the server's is obeyed or not begun. False:
 * there is no next one, and the call has ended. */
static bool next_attempt(struct run *r, const struct retry_verdict *verdict, int64_t *delay_ms)
{
    const hapax_call_request *asked = &r->plan->asked;
    unsigned failures = (unsigned)r->result->shown.attempt_count;
    int64_t left = left_ms(r);
    int64_t longest_ms = left - 1 < asked->backoff_max_ms ? left - 1 : asked->backoff_max_ms;
    uint64_t chance = 0;
    (void)r->world->random(r->world->ctx, &chance,
                           sizeof chance); /* without: at once, a window's beginning */
    *delay_ms = left > 0 ? retry_delay_ms(asked->backoff_ms, longest_ms, failures, chance) : 0;
    *delay_ms = verdict->after_ms > *delay_ms ? verdict->after_ms : *delay_ms;
    if (failures >= asked->attempts_max || *delay_ms >= left) {
        give_up(r, r->maybe_done ? HAPAX_CALL_END_UNKNOWN : HAPAX_CALL_END_NOT_DONE);
        return false;
    }
    if (!key_is_fresh(r, *delay_ms)) {
        give_up(r, HAPAX_CALL_END_EXPIRED);
        return false;
    }
    return true;
}

static int send_until_definite(struct run *r, hapax_error *err)
{
    int64_t waited_ms = 0;
    for (;;) {
        struct retry_verdict verdict;
        int rc = attempt(r, &verdict, waited_ms, err);
        if (rc != 0) {
            give_up(r, HAPAX_CALL_END_UNKNOWN);
            return rc;
        }
        if (verdict.news == HAPAX_CALL_DEFINITE) {
            store_answer(r, err);
            return 0;
        }
        if (verdict.news == HAPAX_CALL_REJECTED || verdict.news == HAPAX_CALL_HELD) {
            bool held = verdict.news == HAPAX_CALL_HELD;
            give_up(r, held ? HAPAX_CALL_END_HELD : HAPAX_CALL_END_REJECTED);
            return 0;
        }
        if (!next_attempt(r, &verdict, &waited_ms)) {
            return 0;
        }
        /* Without: somebody else may come and send, too, with the same key. */
        (void)hapax_extend(r->h, &r->claim, lease_ms(r, waited_ms), NULL);
        tell(r, HAPAX_CALL_STEP_RETRY, (unsigned)r->result->shown.attempt_count + 1, waited_ms);
        r->world->sleep_ms(r->world->ctx, waited_ms);
        if (!may_send(r)) {
            return 0;
        }
    }
}

/* --- the operation --- */

static int replay(struct run *r, hapax_answer *stored, hapax_error *err)
{
    size_t bytes;
    const char *data = hapax_answer_data(stored, &bytes);
    struct arena arena;
    struct kept kept;
    int rc = 0;
    arena_init(&arena, 64U * HAPAX_CALL_HEAD_BYTES_MAX);
    if (hapax_answer_status(stored) != 0) {
        /* Settled by `hapax keys resolve`, which writes an answer of its own kind. */
        kept = (struct kept){.status = hapax_answer_status(stored), .body = slice_of(data, bytes)};
    } else {
        rc = kept_read(&kept, slice_of(data, bytes), &arena);
        if (rc == HAPAX_E_SYNTAX || (rc == 0 && !is_key(kept.key))) {
            rc = error_set(err, HAPAX_E_STORE_CORRUPT, 0,
                           "the operation's record holds no answer of a call; hapax keys forget removes it");
        } else if (rc != 0) {
            error_code(err, rc);
        }
    }
    if (rc == 0 && kept.key.len > 0) {
        rc = client_result_take_key(r->result, kept.key);
    }
    rc = rc != 0 ? rc : client_result_take_answer(r->result, &kept);
    arena_free(&arena);
    r->result->shown.end = HAPAX_CALL_END_REPLAYED;
    r->result->shown.stored = 1;
    return rc;
}

static int begin(struct run *r, hapax_result *found, hapax_error *err)
{
    hapax_request request = {.size = sizeof request,
                             .scope = r->plan->scope,
                             .key = r->plan->name,
                             .content = r->plan->content,
                             .content_bytes = sizeof r->plan->content,
                             .ttl_ms = r->plan->asked.ttl_ms,
                             .lease_ms = lease_ms(r, 0),
                             .take_over = 1};
    int rc = hapax_begin(r->h, &request, found, err);
    if (rc == 0 && found->verdict == HAPAX_IN_PROGRESS) {
        request.wait_ms = left_ms(r);
        tell(r, HAPAX_CALL_STEP_WAIT, 0, 0);
        rc = request.wait_ms > 0 ? hapax_begin(r->h, &request, found, err) : 0;
    }
    return rc;
}

static int run_claimed(struct run *r, const hapax_result *found, hapax_error *err)
{
    r->claim = found->claim;
    r->maybe_done = found->claim.attempt > 1;              /* taken over from somebody who could not tell */
    if (r->maybe_done && r->key_made_ms > r->claimed_ms) { /* another key */
        give_up(r, HAPAX_CALL_END_EXPIRED);
        return 0;
    }
    if (!may_send(r)) {
        return 0;
    }
    int rc = send_until_definite(r, err);
    if (r->reply.complete && r->result->shown.end != 0) {
        struct kept last = answer_of(r);
        int taken = client_result_take_answer(r->result, &last);
        if (rc == 0 && taken != 0) {
            rc = error_code(err, taken);
        }
    }
    return rc;
}

static int run(struct run *r, hapax_error *err)
{
    hapax_result found;
    int rc = find_key(r, err);
    rc = rc != 0 ? rc : client_result_take_names(r->result, r->plan);
    if (rc == 0 && r->result->shown.end == HAPAX_CALL_END_MISMATCH && r->result->shown.claimed_ms == 0) {
        r->result->shown.record_scope = PLAN_KEY_SCOPE;
    }
    if (rc != 0 || r->result->shown.end != 0) {
        return rc;
    }
    rc = begin(r, &found, err);
    if (rc != 0) {
        return rc;
    }
    r->claimed_ms = found.claimed_ms;
    r->result->shown.claimed_ms = found.claimed_ms;
    switch (found.verdict) {
    case HAPAX_FRESH:
        rc = run_claimed(r, &found, err);
        break;
    case HAPAX_REPLAY:
    case HAPAX_ATTACHED:
        rc = replay(r, found.answer, err);
        break;
    case HAPAX_MISMATCH:
        r->result->shown.end = HAPAX_CALL_END_MISMATCH;
        break;
    case HAPAX_IN_PROGRESS:
    case HAPAX_UNKNOWN: /* never: it is taken over */
        r->result->shown.end = HAPAX_CALL_END_BUSY;
        break;
    }
    hapax_answer_free(found.answer);
    if (r->result->shown.stored) {
        r->result->shown.expires_ms = found.expires_ms;
    }
    return rc;
}

int client_call(hapax *h, struct client_plan *plan, const struct client_world *world, hapax_call_result **out,
                hapax_error *err)
{
    struct run r = {.h = h, .plan = plan, .world = world};
    *out = NULL;
    r.result = client_result_make(plan->asked.attempts_max);
    if (r.result == NULL) {
        return error_code(err, HAPAX_E_MEMORY);
    }
    r.begun_mono_ms = mono_ms(&r);
    r.ends_mono_ms = r.begun_mono_ms + plan->asked.time_max_ms;
    client_reply_init(&r.reply);
    hapax_error why;
    int rc = run(&r, &why);
    client_reply_free(&r.reply);
    r.result->shown.took_ms = mono_ms(&r) - r.begun_mono_ms;
    bool unstored = r.result->shown.end == HAPAX_CALL_END_ANSWERED && !r.result->shown.stored;
    if (err != NULL && (rc != 0 || unstored)) {
        *err = why;
    }
    if (rc != 0) {
        hapax_call_free(&r.result->shown);
        return rc;
    }
    *out = &r.result->shown;
    return 0;
}
