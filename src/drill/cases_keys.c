/* Keys that are missing, malformed, overlong, or placeholders that nobody filled in.
 *
 * Two different operations are sent with the same bad key (overlong ones differ in their last byte). Whatever the endpoint
 * makes of such a key, an operation that it accepts must take effect and one that it refuses must not. Only the profile
 * demands more: a refusal where a key is required. */
#include "drill/cases.h"

#include <stdio.h>

enum demand { DEMAND_NOTHING, DEMAND_MISSING, DEMAND_MALFORMED };

static const struct bad_key {
    const char *id;
    enum key_form form;
    const char *raw;
    size_t bytes; /* KEY_LONG */
    enum demand demand;
    bool same_for_all; /* other runs use it, too */
} bad_keys[] = {
    {"keys.missing", KEY_MISSING, "", 0, DEMAND_MISSING, false},
    {"keys.empty", KEY_RAW, "", 0, DEMAND_MALFORMED, true},
    {"keys.quotes-only", KEY_RAW, "\"\"", 0, DEMAND_MALFORMED, true},
    {"keys.two-different", KEY_TWICE, "", 0, DEMAND_MALFORMED, false},
    {"keys.not-ascii", KEY_RAW, "\"dr\xc3\xadll\"", 0, DEMAND_MALFORMED, true},
    {"keys.256-bytes", KEY_LONG, "", 256, DEMAND_NOTHING, false},
    {"keys.8-kib", KEY_LONG, "", 8192, DEMAND_NOTHING, false},
    {"keys.undefined", KEY_RAW, "undefined", 0, DEMAND_NOTHING, true},
    {"keys.null", KEY_RAW, "null", 0, DEMAND_NOTHING, true},
    {"keys.template", KEY_RAW, "{{key}}", 0, DEMAND_NOTHING, true},
    {"keys.object", KEY_RAW, "[object Object]", 0, DEMAND_NOTHING, true},
};

static const struct bad_key *find(const char *id)
{
    size_t i = 0;
    while (i + 1 < sizeof bad_keys / sizeof bad_keys[0] && strcmp(bad_keys[i].id, id) != 0) {
        i++;
    }
    return &bad_keys[i];
}

static void use_key(struct operation *op, const struct bad_key *key, char last)
{
    op->form = key->form;
    op->raw_key = slice_text(key->raw);
    op->key_bytes = key->bytes;
    op->last = last;
}

struct outcome {
    unsigned accepted;
    unsigned refused;
    unsigned silent;
    int refusal; /* a status */
};

static struct outcome outcome_of(const struct trial *t)
{
    struct outcome out = {0};
    for (size_t i = 0; i < t->sent_count; i++) {
        const struct answer *a = &t->sent[i].answer;
        out.accepted += answer_is_success(a);
        out.refused += a->result == WIRE_ANSWERED && !answer_is_success(a);
        out.silent += a->result != WIRE_ANSWERED;
        out.refusal =
            a->result == WIRE_ANSWERED && !answer_is_success(a) && out.refusal == 0 ? a->status : out.refusal;
    }
    return out;
}

static void judge_demand(struct trial *t, const struct bad_key *key, const struct outcome *o)
{
    const struct drill_profile *p = t->d->profile;
    if (key->demand == DEMAND_NOTHING || !p->key_required) {
        return;
    }
    const short *list = key->demand == DEMAND_MISSING ? p->missing : p->malformed;
    if (o->accepted > 0) {
        trial_broken(t, "it was accepted; a refusal with %d was expected", list[0]);
    } else if (o->refused > 0 && (o->refusal == 429 || o->refusal == 503)) {
        trial_doubt(t, "it was refused with %d: the endpoint limits its load, perhaps", o->refusal);
    } else if (o->refused > 0 && !profile_lists(list, o->refusal)) {
        trial_broken(t, "it was refused with %d; %d was expected", o->refusal, list[0]);
    }
}

void case_key(struct trial *t)
{
    const struct bad_key *key = find(t->out->id);
    bool two = request_has_unique(t->d->setup) || key->form == KEY_LONG;
    unsigned a = trial_operation(t, DRILL_SAME, DRILL_HERE);
    use_key(&t->operations[a], key, 'a');
    unsigned b = key->form == KEY_LONG ? trial_operation_like(t, a, DRILL_SAME, DRILL_HERE)
                                       : trial_operation(t, DRILL_SAME, DRILL_HERE);
    use_key(&t->operations[b], key, 'b');
    curl_variables(t, a);
    curl_send(t, a, DRILL_READ);
    (void)trial_send(t, a, PHASE_FIRST);
    if (two) {
        curl_text(t, "; ");
        if (key->form != KEY_LONG) { /* another operation */
            curl_variables(t, b);
        }
        curl_send(t, b, DRILL_READ);
        (void)trial_send(t, b, PHASE_FIRST);
    }
    trial_count(t, 0);
    struct outcome o = outcome_of(t);
    if (t->rc == 0 && t->effects < o.accepted) {
        trial_count(t, o.accepted); /* they may come later */
    }
    if (t->rc != 0) {
        return;
    }
    trial_expect(t, o.accepted, o.accepted + o.silent);
    if (t->effects < (int64_t)o.accepted && t->moving) {
        trial_doubt(t, "effects still came when --settle-max was over: %lld so far", (long long)t->effects);
    } else if (t->effects < (int64_t)o.accepted && key->same_for_all && !two) {
        trial_doubt(t, "it was accepted without an effect, perhaps because an earlier drill had used it; put "
                       "{unique} into "
                       "the body to tell");
    } else if (t->effects < (int64_t)o.accepted) {
        trial_broken(
            t, "%u different operations were accepted, but %lld took effect: one was taken for the other",
            o.accepted, (long long)t->effects);
    } else if (t->effects > (int64_t)(o.accepted + o.silent)) {
        trial_broken(t, "%u refused, but %lld took effect", o.refused, (long long)t->effects);
    }
    judge_demand(t, key, &o);
}
