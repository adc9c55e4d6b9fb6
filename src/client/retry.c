/* The rules of sending again. What a status says about the operation comes from core/outcome.h, the same table by which
 * a gateway settles, but for what a client can't know: who answered. Here is added what it can do about it. */
#include "client/retry.h"

#include "base/units.h"
#include "core/json.h"

int64_t retry_delay_ms(int64_t base_ms, int64_t cap_ms, unsigned failures, uint64_t chance)
{
    int64_t window = base_ms < cap_ms ? base_ms : cap_ms;
    for (unsigned i = 1; i < failures && window < cap_ms; i++) {
        window = window > cap_ms / 2 ? cap_ms : window * 2;
    }
    return (int64_t)(chance % ((uint64_t)window + 1));
}

/* --- what the answer's head says --- */

static struct slice header_of(const struct client_reply *r, struct slice name)
{
    struct slice value = SLICE_NONE;
    struct request lines = {.headers = r->headers, .header_count = r->header_count};
    (void)request_header(&value, &lines, name);
    return value;
}

static int64_t asked_delay(const struct client_reply *r, int64_t now_wall_ms)
{
    int64_t ms;
    struct slice value = header_of(r, SLICE_LITERAL("Retry-After"));
    struct slice date = header_of(r, SLICE_LITERAL("Date"));
    return !slice_is_none(value) && retry_after_ms(&ms, value, date, now_wall_ms) ? ms : -1;
}

/* A gateway of this project says so itself: this request was not carried out. */
static bool marked_as_not_executed(const struct client_reply *r)
{
    struct slice marker = header_of(r, SLICE_LITERAL("Idempotency-Status"));
    return slice_equal(marker, SLICE_LITERAL("released")) || slice_equal(marker, SLICE_LITERAL("rejected"));
}

/* The answer under the operation's key, as opposed to one about another request that has it. */
static bool marked_as_its_answer(const struct client_reply *r)
{
    static const struct slice words[] = {{"executed", 8}, {"replayed", 8}, {"attached", 8}};
    struct slice marker = header_of(r, SLICE_LITERAL("Idempotency-Status"));
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (slice_equal(marker, words[i])) {
            return true;
        }
    }
    return slice_equal_nocase(header_of(r, SLICE_LITERAL("Idempotent-Replayed")), SLICE_LITERAL("true"));
}

/* --- what its body says --- */

struct told {
    enum { UNTOLD, AGAIN, NOT_AGAIN } retryable; /* the member of a problem document */
    bool outcome_unknown;
    bool in_progress;
    bool of_another; /* the key has another request */
};

/* Is it one of these words, or an RFC 9457 type that ends in one? */
static bool means(struct slice word, const struct slice *words, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        size_t n = words[i].len;
        if (word.len >= n && slice_equal_nocase(slice_from(word, word.len - n), words[i]) &&
            (word.len == n || memchr(":/#", word.ptr[word.len - n - 1], 3) != NULL)) {
            return true;
        }
    }
    return false;
}

static int text_at(struct slice *out, const struct json *j, const char *pointer, struct arena *arena)
{
    uint32_t node;
    *out = SLICE_NONE;
    int rc = json_pointer_find(&node, j, slice_text(pointer), arena);
    if (rc == 0 && node != JSON_NODE_NONE && j->nodes[node].type == JSON_TYPE_STRING) {
        rc = json_unquote(out, j, node, arena);
    }
    return rc;
}

static int read_problem(struct told *out, const struct json *j, struct arena *arena)
{
    uint32_t node;
    struct slice type;
    int rc = json_pointer_find(&node, j, SLICE_LITERAL("/retryable"), arena);
    rc = rc != 0 ? rc : text_at(&type, j, "/type", arena);
    if (rc != 0) {
        return rc;
    }
    if (node != JSON_NODE_NONE && j->nodes[node].type == JSON_TYPE_TRUE) {
        out->retryable = AGAIN;
    } else if (node != JSON_NODE_NONE && j->nodes[node].type == JSON_TYPE_FALSE) {
        out->retryable = NOT_AGAIN;
    }
    out->outcome_unknown = slice_equal(type, SLICE_LITERAL("urn:hapax:problem:outcome-unknown"));
    return 0;
}

static int read_body(struct told *out, const struct client_reply *r, struct arena *arena)
{
    static const char *const places[] = {"/type", "/code", "/error/code", "/error/type"};
    static const struct slice running[] = {{"in-progress", 11}, {"idempotency_key_in_use", 22}};
    static const struct slice another[] = {{"key-reused", 10}, {"idempotency_error", 17}};
    struct json j;
    struct slice media = media_type(header_of(r, SLICE_LITERAL("Content-Type")));
    *out = (struct told){.retryable = UNTOLD};
    if (r->body_cut || !media_is_json(media)) {
        return 0;
    }
    int rc = json_parse(&j, arena, buf_slice(&r->body), NULL);
    if (rc == 0 && slice_equal_nocase(media, SLICE_LITERAL("application/problem+json"))) {
        rc = read_problem(out, &j, arena);
    }
    for (size_t i = 0; i < sizeof places / sizeof *places && rc == 0; i++) {
        struct slice word;
        rc = text_at(&word, &j, places[i], arena);
        out->in_progress = out->in_progress || means(word, running, sizeof running / sizeof *running);
        out->of_another = out->of_another || means(word, another, sizeof another / sizeof *another);
    }
    return rc == HAPAX_E_MEMORY ? rc : 0; /* not what it says it is: nothing was told */
}

/* --- together --- */

/* Is it no answer to this request, but about another one that has its key? An earlier attempt's, perhaps: servers compare
 * in their own ways. 422 is what the IETF draft has for it. */
static bool is_of_another(const struct client_reply *r, const struct told *told, bool maybe_done)
{
    return r->status >= 400 && (told->of_another || (r->status == 422 && maybe_done)) && !told->in_progress &&
           !marked_as_its_answer(r);
}

/* A gateway knows its upstream; to a client, anybody on the way may have answered. A proxy says 503 when a server that it
 * had sent the request to went away, too, and 520 to 530 are those of a CDN whose server's answer it does not have. */
static enum outcome outcome_told(const struct client_reply *r, const struct told *told, bool maybe_done)
{
    struct outcome_table table;
    outcome_table_default(&table);
    if (r->status >= 400 && marked_as_not_executed(r)) {
        return OUTCOME_RELEASED;
    }
    bool of_a_proxy = r->status == 503 || (r->status >= 520 && r->status <= 530);
    enum outcome o = of_a_proxy ? OUTCOME_UNKNOWN : outcome_of_status(&table, r->status);
    return o == OUTCOME_DONE && is_of_another(r, told, maybe_done) ? OUTCOME_RELEASED : o;
}

/* A problem document says that it is no use. */
static hapax_call_news end_of(enum outcome o)
{
    static const hapax_call_news news[] = {[OUTCOME_DONE] = HAPAX_CALL_DEFINITE,
                                           [OUTCOME_RELEASED] = HAPAX_CALL_REJECTED,
                                           [OUTCOME_UNKNOWN] = HAPAX_CALL_HELD};
    return news[o];
}

/* What was not carried out: is it refused for what it is, or for what goes on there? */
static bool lasts(int status)
{
    return status < 500 && status != 408 && status != 421 && status != 425 && status != 429;
}

static hapax_call_news judge_status(const struct client_reply *r, const struct told *told, bool maybe_done,
                                    bool asks_to_wait)
{
    int status = r->status;
    enum outcome o = outcome_told(r, told, maybe_done);
    if (status == 301 || status == 307 || status == 308) {
        return HAPAX_CALL_REJECTED; /* it is to be sent elsewhere: not carried out here */
    }
    if (o == OUTCOME_UNKNOWN || status < 400) {
        return o == OUTCOME_UNKNOWN ? HAPAX_CALL_MAYBE : HAPAX_CALL_DEFINITE;
    }
    if (o == OUTCOME_RELEASED) {
        return lasts(status) && !asks_to_wait ? HAPAX_CALL_REJECTED : HAPAX_CALL_NOTHING;
    }
    /* Without a word about it, a conflict with what an earlier attempt has begun can't be told from the answer. */
    bool conflict = status == 409 && (told->in_progress || (maybe_done && !marked_as_its_answer(r)));
    return asks_to_wait || conflict ? HAPAX_CALL_MAYBE : HAPAX_CALL_DEFINITE;
}

int retry_judge(struct retry_verdict *out, const struct client_reply *reply, bool maybe_done,
                int64_t now_wall_ms, struct arena *arena)
{
    struct told told = {.retryable = UNTOLD};
    *out = (struct retry_verdict){.news = HAPAX_CALL_NOTHING, .after_ms = -1};
    if (!reply->complete) {
        out->news = reply->failure == CALL_NOT_SENT ? HAPAX_CALL_NOTHING : HAPAX_CALL_MAYBE;
        return 0;
    }
    out->after_ms = asked_delay(reply, now_wall_ms);
    int rc = reply->status >= 400 ? read_body(&told, reply, arena) : 0;
    enum outcome o = outcome_told(reply, &told, maybe_done);
    if (told.outcome_unknown && told.retryable != AGAIN) {
        out->news = HAPAX_CALL_HELD;
    } else if (told.retryable == NOT_AGAIN) {
        out->news = end_of(o);
    } else if (told.retryable == AGAIN) {
        bool nothing = o == OUTCOME_RELEASED && !told.outcome_unknown;
        out->news = nothing ? HAPAX_CALL_NOTHING : HAPAX_CALL_MAYBE;
    } else {
        out->news = judge_status(reply, &told, maybe_done, out->after_ms >= 0);
    }
    return rc;
}
