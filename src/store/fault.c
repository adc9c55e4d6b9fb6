/* See fault.h. The plan is under a lock; the lock is never held while the inner store works. */
#include "store/fault.h"

#include "base/assert.h"
#include "base/error.h"
#include "base/units.h"
#include "store/rules.h"
#include "store/schemes.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define CONTROL_BYTES_MAX 256
#define HOLD_LOOK_MS      1

struct fault_store {
    struct store store;
    struct store_backend backend; /* the inner one's capabilities, our slots */
    struct store *inner;
    char *control;        /* a path, or NULL */
    pthread_mutex_t lock; /* everything below */
    struct fault_plan plan;
    uint64_t calls; /* since the plan was set */
    uint64_t calls_total;
    char control_text[CONTROL_BYTES_MAX];
    size_t control_len;
};

static struct fault_store *fault_of(struct store *s)
{
    return (struct fault_store *)s;
}

static int parse_code(int *out, struct slice word)
{
#define FAULT_CODE(name, number, text, meaning)                                                              \
    if (slice_equal(word, SLICE_LITERAL(text))) {                                                            \
        *out = (name);                                                                                       \
        return 0;                                                                                            \
    }
    HAPAX_ERROR_LIST(FAULT_CODE)
#undef FAULT_CODE
    return HAPAX_E_SYNTAX;
}

static int parse_when(bool *after, struct slice word)
{
    *after = slice_equal(word, SLICE_LITERAL("after"));
    return *after || slice_equal(word, SLICE_LITERAL("before")) ? 0 : HAPAX_E_SYNTAX;
}

static int parse_item(struct fault_plan *plan, struct slice name, struct slice value)
{
    uint64_t number = 0;
    if (slice_equal(name, SLICE_LITERAL("when"))) {
        return parse_when(&plan->after, value);
    }
    if (slice_equal(name, SLICE_LITERAL("code"))) {
        return parse_code(&plan->code, value);
    }
    if (units_u64(&number, value) != 0 || number == 0) {
        return HAPAX_E_SYNTAX;
    }
    if (slice_equal(name, SLICE_LITERAL("fail"))) {
        plan->fail_at = number;
    } else if (slice_equal(name, SLICE_LITERAL("every"))) {
        plan->fail_every = number;
    } else if (slice_equal(name, SLICE_LITERAL("kill"))) {
        plan->kill_at = number;
    } else if (slice_equal(name, SLICE_LITERAL("delay")) && number <= UINT32_MAX) {
        plan->delay_ms = (uint32_t)number;
    } else if (slice_equal(name, SLICE_LITERAL("hold")) && number == 1) {
        plan->hold = true;
    } else {
        return HAPAX_E_SYNTAX;
    }
    return 0;
}

/* Cut the next item off the front of a list. */
static struct slice next_item(struct slice *rest)
{
    const char *comma = rest->len > 0 ? memchr(rest->ptr, ',', rest->len) : NULL;
    struct slice item = *rest;
    if (comma != NULL) {
        item.len = (size_t)(comma - rest->ptr);
    }
    *rest = slice_from(*rest, comma != NULL ? item.len + 1 : item.len);
    return item;
}

/* Split at '='; a part without one has no value. */
static struct slice item_name(struct slice item, struct slice *value)
{
    const char *equals = item.len > 0 ? memchr(item.ptr, '=', item.len) : NULL;
    size_t len = equals != NULL ? (size_t)(equals - item.ptr) : item.len;
    *value = equals != NULL ? slice_from(item, len + 1) : SLICE_NONE;
    return (struct slice){item.ptr, len};
}

int fault_plan_parse(struct fault_plan *out, struct slice spec, hapax_error *err)
{
    struct fault_plan plan = {0};
    while (spec.len > 0) {
        struct slice item = next_item(&spec);
        struct slice value;
        struct slice name = item_name(item, &value);
        if (parse_item(&plan, name, value) != 0) {
            return error_set(err, HAPAX_E_SYNTAX, 0,
                             "\"%.*s\" is no fault: fail=N, every=N, kill=N, when=before|after, code=WORD,"
                             " delay=MS, hold=1 or control=PATH",
                             (int)(item.len < 60 ? item.len : 60), item.ptr);
        }
    }
    *out = plan;
    return 0;
}

void fault_plan_set(struct store *s, const struct fault_plan *plan)
{
    struct fault_store *f = fault_of(s);
    pthread_mutex_lock(&f->lock);
    f->plan = *plan;
    f->calls = 0;
    pthread_mutex_unlock(&f->lock);
}

uint64_t fault_applied(struct store *s)
{
    struct fault_store *f = fault_of(s);
    pthread_mutex_lock(&f->lock);
    uint64_t calls = f->calls_total;
    pthread_mutex_unlock(&f->lock);
    return calls;
}

/* Under the lock: take over what the control file says, if that has changed. */
static int read_control(struct fault_store *f, hapax_error *err)
{
    if (f->control == NULL) {
        return 0;
    }
    char text[CONTROL_BYTES_MAX];
    ssize_t len = 0;
    int fd = open(f->control, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        len = read(fd, text, sizeof text);
        close(fd);
    }
    while (len > 0 && (text[len - 1] == '\n' || text[len - 1] == ' ')) {
        len--;
    }
    size_t bytes = len > 0 ? (size_t)len : 0;
    if (slice_equal(slice_of(text, bytes), slice_of(f->control_text, f->control_len))) {
        return 0;
    }
    struct fault_plan plan;
    int code = fault_plan_parse(&plan, slice_of(text, bytes), err);
    if (code == 0) {
        memcpy(f->control_text, text, bytes);
        f->control_len = bytes;
        f->plan = plan;
        f->calls = 0;
    }
    return code;
}

/* What happens to one call. */
struct fault_turn {
    uint32_t delay_ms;
    bool holds;
    bool fails;
    bool kills;
    bool after;
    int code;
};

static int take_turn(struct fault_store *f, struct fault_turn *turn, hapax_error *err)
{
    pthread_mutex_lock(&f->lock);
    int code = read_control(f, err);
    if (code == 0) {
        const struct fault_plan *p = &f->plan;
        f->calls++;
        f->calls_total++;
        *turn = (struct fault_turn){
            .delay_ms = p->delay_ms,
            .holds = p->hold,
            .fails = f->calls == p->fail_at || (p->fail_every > 0 && f->calls % p->fail_every == 0),
            .kills = f->calls == p->kill_at,
            .after = p->after,
            .code = p->code != 0 ? p->code : HAPAX_E_STORE,
        };
    }
    pthread_mutex_unlock(&f->lock);
    return code;
}

static int strike(const struct fault_turn *turn, hapax_error *err)
{
    if (turn->kills) {
        _exit(FAULT_EXIT);
    }
    return turn->fails ? error_set(err, turn->code, 0, "injected fault: %s", hapax_error_name(turn->code))
                       : 0;
}

static void sleep_ms(uint32_t ms)
{
    struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    nanosleep(&pause, NULL);
}

static void stand_still(struct fault_store *f)
{
    bool held = true;
    while (held) {
        sleep_ms(HOLD_LOOK_MS);
        hapax_error ignored; /* a plan that can't be read changes nothing: the next call tells of it */
        pthread_mutex_lock(&f->lock);
        (void)read_control(f, &ignored);
        held = f->plan.hold;
        pthread_mutex_unlock(&f->lock);
    }
}

static int fault_apply(struct store *s, struct store_op *const *ops, size_t n, int64_t now_ms,
                       hapax_error *err)
{
    struct fault_store *f = fault_of(s);
    struct fault_turn turn;
    rule_clear_answers(ops, n, false);
    int code = take_turn(f, &turn, err);
    if (code != 0) {
        return code;
    }
    if (turn.delay_ms > 0) {
        sleep_ms(turn.delay_ms);
    }
    if (turn.holds && !turn.after) {
        stand_still(f);
    }
    if (!turn.after) {
        code = strike(&turn, err);
    }
    if (code == 0) {
        code = store_apply(f->inner, ops, n, now_ms, err);
    }
    if (turn.holds && turn.after) {
        stand_still(f);
    }
    if (code == 0 && turn.after) {
        code = strike(&turn, err);
        if (code != 0) {
            rule_clear_answers(ops, n, true);
        }
    }
    return code;
}

/* A store that is down for every apply() is down for the rest. */
static int down(struct fault_store *f, hapax_error *err)
{
    pthread_mutex_lock(&f->lock);
    int code = read_control(f, err);
    if (code == 0 && f->plan.fail_every == 1) {
        code = f->plan.code != 0 ? f->plan.code : HAPAX_E_STORE;
        error_set(err, code, 0, "injected fault: %s", hapax_error_name(code));
    }
    pthread_mutex_unlock(&f->lock);
    return code;
}

static int fault_sweep(struct store *s, int64_t now_ms, uint32_t rows_max, uint32_t *removed,
                       hapax_error *err)
{
    struct store *inner = fault_of(s)->inner;
    *removed = 0;
    int code = down(fault_of(s), err);
    return code == 0 ? inner->backend->sweep(inner, now_ms, rows_max, removed, err) : code;
}

static int fault_abandon(struct store *s, uint64_t owner, int64_t now_ms, uint32_t rows_max,
                         uint32_t *changed, hapax_error *err)
{
    struct store *inner = fault_of(s)->inner;
    *changed = 0;
    int code = down(fault_of(s), err);
    return code == 0 ? inner->backend->abandon(inner, owner, now_ms, rows_max, changed, err) : code;
}

static int fault_register_owner(struct store *s, const char *text, uint64_t *number, hapax_error *err)
{
    struct store *inner = fault_of(s)->inner;
    int code = down(fault_of(s), err);
    return code == 0 ? inner->backend->register_owner(inner, text, number, err) : code;
}

static int fault_owners(struct store *s, int (*each)(void *ctx, const struct store_owner *o), void *ctx,
                        hapax_error *err)
{
    struct store *inner = fault_of(s)->inner;
    return inner->backend->owners(inner, each, ctx, err);
}

static int fault_forget_owner(struct store *s, uint64_t owner, hapax_error *err)
{
    struct store *inner = fault_of(s)->inner;
    int code = down(fault_of(s), err);
    return code == 0 ? inner->backend->forget_owner(inner, owner, err) : code;
}

static int fault_list(struct store *s, const struct store_filter *filter, int64_t now_ms,
                      void (*each)(void *ctx, const struct store_row *row), void *ctx, hapax_error *err)
{
    struct store *inner = fault_of(s)->inner;
    return inner->backend->list(inner, filter, now_ms, each, ctx, err);
}

static int fault_stats(struct store *s, struct store_stats *out, hapax_error *err)
{
    struct store *inner = fault_of(s)->inner;
    int code = down(fault_of(s), err);
    return code == 0 ? inner->backend->stats(inner, out, err) : code;
}

static int fault_generation(struct store *s, uint64_t *out, hapax_error *err)
{
    struct store *inner = fault_of(s)->inner;
    int code = down(fault_of(s), err);
    return code == 0 ? inner->backend->generation(inner, out, err) : code;
}

static int fault_maintain(struct store *s, bool *more, hapax_error *err)
{
    struct store *inner = fault_of(s)->inner;
    return inner->backend->maintain(inner, more, err);
}

static void fault_close(struct store *s)
{
    struct fault_store *f = fault_of(s);
    store_close(f->inner);
    pthread_mutex_destroy(&f->lock);
    free(f->control);
    free(f);
}

static const struct store_backend slots = {
    .version = STORE_VERSION,
    .name = "fault",
    .apply = fault_apply,
    .sweep = fault_sweep,
    .abandon = fault_abandon,
    .register_owner = fault_register_owner,
    .owners = fault_owners,
    .forget_owner = fault_forget_owner,
    .list = fault_list,
    .stats = fault_stats,
    .generation = fault_generation,
    .close = fault_close,
};

/* Take control=PATH out of the list; what is left is the plan. */
static int parse_spec(struct fault_store *f, struct slice spec, hapax_error *err)
{
    static const struct slice name = {"control=", 8};
    if (!slice_starts_with(spec, name)) {
        return fault_plan_parse(&f->plan, spec, err);
    }
    struct slice path = slice_from(next_item(&spec), name.len);
    f->control = strndup(path.ptr, path.len);
    if (f->control == NULL) {
        return error_code(err, HAPAX_E_MEMORY);
    }
    return fault_plan_parse(&f->plan, spec, err);
}

int fault_open(struct store **out, const char *rest, const struct store_options *options, hapax_error *err)
{
    const char *colon = strchr(rest, ':');
    if (colon == NULL) {
        return error_set(err, HAPAX_E_ARGUMENT, 0, "a fault store is written fault:SPEC:URI");
    }
    struct fault_store *f = calloc(1, sizeof *f);
    if (f == NULL) {
        return error_code(err, HAPAX_E_MEMORY);
    }
    pthread_mutex_init(&f->lock, NULL);
    int code = parse_spec(f, slice_of(rest, (size_t)(colon - rest)), err);
    if (code == HAPAX_E_SYNTAX) {
        code = HAPAX_E_ARGUMENT;
    }
    if (code == 0) {
        code = store_open(&f->inner, colon + 1, options, err);
    }
    if (code != 0) {
        fault_close(&f->store);
        return code;
    }
    f->backend = slots;
    f->backend.capabilities = f->inner->backend->capabilities | STORE_CAN_LOSE_COMMITS;
    f->backend.maintain = f->inner->backend->maintain != NULL ? fault_maintain : NULL;
    f->store.backend = &f->backend;
    f->store.away = f->inner->away;
    *out = &f->store;
    return 0;
}
