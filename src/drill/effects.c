/* Three ways to count, one reading at a time. */
#include "drill/effects.h"

#include "base/clock.h"
#include "base/error.h"
#include "core/json.h"
#include "drill/command.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define JSON_ARENA_BYTES_MAX (64U << 20)
#define HEAD_BYTES_MAX       (256U * 1024U)
#define LINE_BYTES_MAX       (1U << 20) /* of the log; the rest of a longer line is a line of its own */
#define SLEEP_STEP_MS        50
#define PATH_SHOWN_MAX       100
#define LEARN_STEP_MS        50 /* between readings that measure how late an effect is */
#define STILL_PER_LATE       3  /* effects may be as late as this many times what was measured */

void effects_sleep(const struct drill_setup *setup, int64_t ms)
{
    int64_t end = clock_mono_ms() + ms;
    for (int64_t left = ms; left > 0 && (setup->stop == NULL || *setup->stop == 0);
         left = end - clock_mono_ms()) {
        int64_t step = left < SLEEP_STEP_MS ? left : SLEEP_STEP_MS;
        struct timespec t = {.tv_sec = step / 1000, .tv_nsec = step % 1000 * 1000000};
        nanosleep(&t, NULL);
    }
}

/* --- Opening. ------------------------------------------------------------------------------------ */

int effects_cut(struct slice *url, struct slice *pointer, const char *text, hapax_error *err)
{
    const char *mark = strchr(text, '#');
    *url = mark != NULL ? slice_of(text, (size_t)(mark - text)) : slice_text(text);
    *pointer = mark != NULL ? slice_text(mark + 1) : SLICE_NONE;
    return mark != NULL ? json_pointer_check(*pointer, err) : 0;
}

int effects_place_open(struct wire_place *out, struct slice *target, const struct drill_setup *setup,
                       struct slice url, hapax_error *err)
{
    int rc = wire_place_open(out, target, url, err);
    if (rc == 0 && !out->loopback && !setup->remote) {
        rc = error_set(err, HAPAX_E_ARGUMENT, 0,
                       "%s is not this host: say --yes-remote if you may send requests there, duplicates and "
                       "broken ones among them",
                       out->host);
    }
    if (rc == 0 && !out->loopback && setup->insecure) {
        rc = error_set(err, HAPAX_E_ARGUMENT, 0, "--insecure is for this host only, and %s is another",
                       out->host);
    }
    return rc;
}

static int open_final(struct effects *e, hapax_error *err)
{
    struct slice url;
    int rc = effects_cut(&url, &e->final_pointer, e->setup->final_url, err);
    return rc != 0 ? HAPAX_E_ARGUMENT
                   : effects_place_open(&e->final_place, &e->final_target, e->setup, url, err);
}

int effects_open(struct effects *out, const struct drill_setup *setup, struct wire *wire, const char *run_key,
                 const char *run_unique, hapax_error *err)
{
    *out = (struct effects){.setup = setup,
                            .wire = wire,
                            .run_key = run_key,
                            .run_unique = run_unique,
                            .log = -1,
                            .still_ms = setup->settle_ms};
    buf_init(&out->log_rest, LINE_BYTES_MAX);
    int rc = setup->final_url != NULL ? open_final(out, err) : 0;
    if (rc != 0 || setup->counter.url == NULL) {
        return rc;
    }
    struct slice url;
    if (effects_cut(&url, &out->pointer, setup->counter.url, err) != 0) {
        return HAPAX_E_ARGUMENT;
    }
    if (slice_is_none(out->pointer)) {
        out->pointer = SLICE_LITERAL("");
    }
    return effects_place_open(&out->place, &out->target, setup, url, err);
}

void effects_close(struct effects *e)
{
    if (e->log >= 0) {
        close(e->log);
        e->log = -1;
    }
    buf_free(&e->log_rest);
}

/* --- A URL. -------------------------------------------------------------------------------------- */

static int write_get(struct buf *out, const struct effects *e, const struct wire_place *place,
                     struct slice target)
{
    bool slash = target.len == 0 || target.ptr[0] != '/';
    int rc = buf_printf(out, "GET %s%.*s HTTP/1.1\r\nHost: %s\r\nAccept: application/json\r\n",
                        slash ? "/" : "", SLICE_FORMAT(target), place->authority);
    for (size_t i = 0; i < e->setup->counter_header_count && rc == 0; i++) {
        const struct header *h = &e->setup->counter_headers[i];
        rc = buf_printf(out, "%.*s: %.*s\r\n", SLICE_FORMAT(h->name), SLICE_FORMAT(h->value));
    }
    return rc != 0 ? rc : buf_append_text(out, "Connection: close\r\n\r\n");
}

int effects_get(struct buf *body, struct effects *e, struct wire_place *place, struct slice target,
                hapax_error *err)
{
    struct buf request;
    buf_init(&request, HEAD_BYTES_MAX);
    int rc = write_get(&request, e, place, target);
    if (rc != 0) {
        buf_free(&request);
        return error_code(err, rc);
    }
    struct shot shot;
    struct shot *one = &shot;
    shot_start(e->wire, one, place, buf_slice(&request), DRILL_READ, false, e->setup->timeout_ms);
    shots_drive(e->wire, &one, 1, SHOT_READY);
    shots_go(&one, 1);
    shots_drive(e->wire, &one, 1, SHOT_DONE);
    if (shot.result != WIRE_ANSWERED) {
        rc = error_set(err, HAPAX_E_NOT_FOUND, 0, "%s", shot.detail);
    } else if (shot.head.status != 200) {
        const char *query =
            memchr(target.ptr, '?', target.len); /* which may hold what is nobody's business */
        size_t shown = query != NULL ? (size_t)(query - target.ptr) : target.len;
        rc = error_set(err, HAPAX_E_NOT_FOUND, 0, "GET %.*s at %.60s is answered with %d",
                       (int)(shown < PATH_SHOWN_MAX ? shown : PATH_SHOWN_MAX), target.ptr, place->authority,
                       shot.head.status);
    } else {
        rc = buf_append_slice(body, buf_slice(&shot.body));
    }
    shot_free(e->wire, one);
    buf_free(&request);
    return rc;
}

static int to_number(int64_t *out, struct slice text, hapax_error *err)
{
    char copy[24];
    while (text.len > 0 && (text.ptr[text.len - 1] == '\n' || text.ptr[text.len - 1] == '\r')) {
        text.len--;
    }
    text = slice_trim(text);
    char *end = copy;
    if (text.len > 0 && text.len < sizeof copy) {
        memcpy(copy, text.ptr, text.len);
        copy[text.len] = '\0';
        errno = 0;
        *out = strtoll(copy, &end, 10);
        if (end == copy + text.len && errno == 0 && *out >= -COUNTER_MAX && *out <= COUNTER_MAX) {
            return 0;
        }
        if (end == copy + text.len) {
            return error_set(err, HAPAX_E_SYNTAX, errno, "the counter says %s, which is beyond 10^18", copy);
        }
    }
    return error_set(err, HAPAX_E_SYNTAX, 0, "the counter says \"%.*s\", which is no whole number",
                     (int)(text.len < 60 ? text.len : 60), text.ptr);
}

static int number_at(int64_t *out, struct slice document, struct slice pointer, hapax_error *err)
{
    struct arena arena;
    struct json j;
    uint32_t node = JSON_NODE_NONE;
    arena_init(&arena, JSON_ARENA_BYTES_MAX);
    int rc = json_parse(&j, &arena, document, err);
    rc = rc != 0 ? rc : json_pointer_find(&node, &j, pointer, &arena);
    if (rc != 0) {
        rc = error_set(err, HAPAX_E_SYNTAX, 0, "the counter's document is not JSON");
    } else if (node == JSON_NODE_NONE) {
        rc = error_set(err, HAPAX_E_SYNTAX, 0, "there is nothing at #%.*s of the counter's document",
                       SLICE_FORMAT(pointer));
    } else {
        rc = to_number(out, json_lexeme(&j, node), err);
    }
    arena_free(&arena);
    return rc;
}

static int read_url(int64_t *out, struct effects *e, hapax_error *err)
{
    struct buf body;
    buf_init(&body, DRILL_BODY_BYTES_MAX);
    int rc = effects_get(&body, e, &e->place, e->target, err);
    rc = rc != 0 ? rc : number_at(out, buf_slice(&body), e->pointer, err);
    buf_free(&body);
    return rc;
}

/* --- A command. ---------------------------------------------------------------------------------- */

static int read_command(int64_t *out, struct effects *e, hapax_error *err)
{
    struct buf text;
    buf_init(&text, DRILL_COMMAND_BYTES_MAX);
    int rc = command_run(e->setup->counter.command, &text, e->setup->timeout_ms, e->setup->stop, err);
    rc = rc != 0 ? rc : to_number(out, buf_slice(&text), err);
    buf_free(&text);
    return rc;
}

/* --- A log. -------------------------------------------------------------------------------------- */

static bool counts(const struct effects *e, struct slice line)
{
    return memmem(line.ptr, line.len, e->run_key, strlen(e->run_key)) != NULL ||
           memmem(line.ptr, line.len, e->run_unique, strlen(e->run_unique)) != NULL;
}

static void count_lines(struct effects *e)
{
    const char *end = memchr(e->log_rest.ptr, '\n', e->log_rest.len);
    bool full = e->log_rest.len == e->log_rest.len_max;
    while (end != NULL || full) {
        size_t len = end != NULL ? (size_t)(end - e->log_rest.ptr) + 1 : e->log_rest.len;
        e->log_lines += counts(e, slice_of(e->log_rest.ptr, len));
        buf_consume(&e->log_rest, len);
        full = false;
        end = e->log_rest.len > 0 ? memchr(e->log_rest.ptr, '\n', e->log_rest.len) : NULL;
    }
}

/* Asked after each reading: then it has found all that there was. */
static bool log_is_whole(const struct effects *e)
{
    struct stat ours;
    struct stat named;
    return fstat(e->log, &ours) == 0 && stat(e->setup->counter.log, &named) == 0 &&
           ours.st_dev == named.st_dev && ours.st_ino == named.st_ino &&
           (!S_ISREG(ours.st_mode) || ours.st_size >= lseek(e->log, 0, SEEK_CUR));
}

static int read_log(int64_t *out, struct effects *e, hapax_error *err)
{
    const char *path = e->setup->counter.log;
    if (e->log < 0) {
        e->log = open(path, O_RDONLY | O_CLOEXEC);
        if (e->log < 0 && errno != ENOENT) {
            return error_set(err, HAPAX_E_NOT_FOUND, errno, "can't read %.150s: %s", path, strerror(errno));
        }
        if (e->log >= 0 && !e->log_begun) {
            lseek(e->log, 0, SEEK_END); /* no line from before this run can count */
        }
        e->log_begun = true;
    }
    static char bytes[64 * 1024]; /* one thread */
    ssize_t n = 0;
    while (e->log >= 0 && (n = read(e->log, bytes, sizeof bytes)) > 0) {
        struct slice more = slice_of(bytes, (size_t)n);
        while (more.len > 0) {
            size_t room = e->log_rest.len_max - e->log_rest.len;
            size_t take = more.len < room ? more.len : room;
            if (buf_append(&e->log_rest, more.ptr, take) != 0) {
                return error_code(err, HAPAX_E_MEMORY);
            }
            more = slice_from(more, take);
            count_lines(e);
        }
    }
    *out = e->log_lines;
    e->log_lost = e->log_lost || (e->log >= 0 && n == 0 && !log_is_whole(e));
    if (e->log_lost) {
        return error_set(err, HAPAX_E_NOT_FOUND, 0,
                         "%.150s was replaced or cut meanwhile: nobody counts its lines any more", path);
    }
    return n < 0 ? error_set(err, HAPAX_E_NOT_FOUND, errno, "can't read %.150s: %s", path, strerror(errno))
                 : 0;
}

/* --- Any of them. -------------------------------------------------------------------------------- */

int effects_read(int64_t *out, struct effects *e, hapax_error *err)
{
    if (e->setup->counter.url != NULL) {
        return read_url(out, e, err);
    }
    return e->setup->counter.command != NULL ? read_command(out, e, err) : read_log(out, e, err);
}

static void learn(struct effects *e, int64_t late_ms)
{
    int64_t still_ms = late_ms * STILL_PER_LATE;
    still_ms = still_ms < e->setup->settle_ms_max ? still_ms : e->setup->settle_ms_max;
    if (e->learns && still_ms > e->still_ms) {
        e->still_ms = still_ms;
    }
}

int effects_settle(int64_t *out, bool *still, struct effects *e, int64_t least, hapax_error *err)
{
    int64_t settle_ms = e->setup->settle_ms;
    int64_t step_ms = e->learns && settle_ms > LEARN_STEP_MS ? LEARN_STEP_MS : settle_ms;
    int64_t before = 0;
    bool moved = false;
    int rc = effects_read(&before, e, err);
    int64_t began = clock_mono_ms();
    int64_t changed = began;
    *still = false;
    while (rc == 0) {
        effects_sleep(e->setup, step_ms);
        rc = effects_read(out, e, err);
        int64_t now = clock_mono_ms();
        if (rc == 0 && *out != before) {
            learn(e, now - changed);
            before = *out;
            changed = now;
            moved = true;
        }
        bool over = now - began >= e->setup->settle_ms_max;
        *still = now - changed >= e->still_ms || (over && !moved);
        if (over || (*still && *out >= least) || (e->setup->stop != NULL && *e->setup->stop != 0)) {
            break;
        }
    }
    return rc;
}
