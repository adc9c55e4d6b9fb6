/* Reads options and the files that they name. Invariant: what the setup borrows lives in argv or in the arena. */
#include "cli/drill_setup.h"

#include "base/clock.h"
#include "cli/input.h"
#include "cli/output.h"
#include "drill/request.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>

#define ARENA_BYTES_MAX ((DRILL_EVENTS_MAX + 2UL) * (DRILL_BODY_BYTES_MAX + 4096))
#define PATH_BYTES_MAX  4096

/* --- files --------------------------------------------------------------------------------------- */

static int read_file(struct slice *out, struct drill_texts *t, const struct cli_args *args, const char *path)
{
    struct buf bytes;
    buf_init(&bytes, DRILL_BODY_BYTES_MAX);
    int rc = input_read(&bytes, args->command, path);
    if (rc == CLI_OK && arena_copy(&t->arena, buf_slice(&bytes), out) != 0) {
        rc = output_no_memory(args->command);
    }
    buf_free(&bytes);
    return rc;
}

/* A value, or @FILE, or @- for standard input. */
static int read_body(struct slice *out, const char **file, struct drill_texts *t, const struct cli_args *args,
                     const char *option)
{
    const char *value = cli_text(args, option);
    if (value == NULL) {
        return CLI_OK;
    }
    if (value[0] != '@') {
        *out = slice_text(value);
        return CLI_OK;
    }
    if (file != NULL) {
        *file = value + 1;
    }
    return read_file(out, t, args, value + 1);
}

static int is_event(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static int read_event(struct drill_texts *t, const struct cli_args *args, const char *folder,
                      const char *name)
{
    char path[PATH_BYTES_MAX];
    struct stat about;
    struct slice kept;
    int n = snprintf(path, sizeof path, "%s/%s", folder, name);
    if (n < 0 || (size_t)n >= sizeof path || stat(path, &about) != 0) {
        output_message(args->command, "can't read %s/%s", folder, name);
        return CLI_USAGE;
    }
    if (!S_ISREG(about.st_mode)) {
        return CLI_OK;
    }
    if (t->setup.event_count == DRILL_EVENTS_MAX) {
        return output_usage(args->command, "%s holds more than %d files", folder, DRILL_EVENTS_MAX);
    }
    struct drill_event *event = &t->events[t->setup.event_count++];
    if (arena_copy(&t->arena, slice_text(name), &kept) != 0) {
        return output_no_memory(args->command);
    }
    event->name = kept.ptr;
    return read_file(&event->body, t, args, path);
}

static int read_events(struct drill_texts *t, const struct cli_args *args)
{
    const char *folder = cli_text(args, "events");
    struct dirent **entries = NULL;
    if (folder == NULL) {
        return CLI_OK;
    }
    int count = scandir(folder, &entries, is_event, alphasort);
    if (count < 0) {
        output_message(args->command, "can't read the folder %s: %s", folder, strerror(errno));
        return CLI_USAGE;
    }
    int rc = CLI_OK;
    for (int i = 0; i < count; i++) {
        rc = rc != CLI_OK ? rc : read_event(t, args, folder, entries[i]->d_name);
        free(entries[i]);
    }
    free(entries);
    if (rc == CLI_OK && t->setup.event_count < 2) {
        return output_usage(args->command, "%s holds fewer than two files: there is no order to change",
                            folder);
    }
    t->setup.events = t->events;
    return rc;
}

/* --- headers ------------------------------------------------------------------------------------- */

/* "Name: value" */
static int read_header(struct header *out, const struct cli_args *args, const char *option, const char *text)
{
    const char *colon = strchr(text, ':');
    struct slice name = colon != NULL ? slice_of(text, (size_t)(colon - text)) : SLICE_NONE;
    static const char *const ours[] = {"content-length", "transfer-encoding", "connection", "expect"};
    if (!slice_is_token(name) || strpbrk(text, "\r\n") != NULL) {
        return output_usage(args->command, "--%s is 'Name: value'", option);
    }
    for (size_t i = 0; i < sizeof ours / sizeof ours[0]; i++) {
        if (slice_equal_nocase(name, slice_text(ours[i]))) {
            return output_usage(args->command, "%s is the drill's own business", ours[i]);
        }
    }
    *out = (struct header){name, slice_trim(slice_text(colon + 1))};
    return CLI_OK;
}

static int read_headers(struct header *out, size_t *count, const struct cli_args *args, const char *option)
{
    const char *text;
    for (size_t i = 0; (text = cli_nth(args, option, i)) != NULL; i++) {
        if (i == DRILL_HEADERS_MAX) {
            return output_usage(args->command, "--%s may be given %d times at most", option,
                                DRILL_HEADERS_MAX);
        }
        int rc = read_header(&out[i], args, option, text);
        if (rc != CLI_OK) {
            return rc;
        }
        *count = i + 1;
    }
    return CLI_OK;
}

static int read_all_headers(struct drill_setup *s, const struct cli_args *args)
{
    int rc = read_headers(s->headers, &s->header_count, args, "header");
    rc =
        rc != CLI_OK ? rc : read_headers(s->counter_headers, &s->counter_header_count, args, "effect-header");
    if (rc == CLI_OK && cli_text(args, "tenant-header") != NULL) {
        rc = read_header(&s->tenant, args, "tenant-header", cli_text(args, "tenant-header"));
    }
    if (rc == CLI_OK && cli_text(args, "fail") != NULL) {
        rc = read_header(&s->fail, args, "fail", cli_text(args, "fail"));
    }
    const char *name;
    for (size_t i = 0; rc == CLI_OK && (name = cli_nth(args, "ignore-header", i)) != NULL; i++) {
        if (i == DRILL_IGNORED_MAX) {
            return output_usage(args->command, "--ignore-header may be given %d times at most",
                                DRILL_IGNORED_MAX);
        }
        s->ignored[s->ignored_count++] = slice_text(name);
    }
    return rc;
}

/* --- patterns ---------------------------------------------------------------------------------- */

/* "a,b": patterns of case ids, copied. */
static int read_patterns(const char **out, size_t *count, struct drill_texts *t, const struct cli_args *args,
                         const char *option)
{
    const char *text;
    for (size_t i = 0; (text = cli_nth(args, option, i)) != NULL; i++) {
        while (text[0] != '\0') {
            size_t len = strcspn(text, ",");
            struct slice kept;
            if (*count == DRILL_PATTERNS_MAX) {
                return output_usage(args->command, "--%s names more than %d patterns", option,
                                    DRILL_PATTERNS_MAX);
            }
            if (arena_copy(&t->arena, slice_of(text, len), &kept) != 0) {
                return output_no_memory(args->command);
            }
            out[*count] = kept.ptr;
            *count += len > 0;
            text += len + (text[len] == ',');
        }
    }
    return CLI_OK;
}

static uint64_t random_seed(void)
{
    uint64_t seed = 0;
    if (getrandom(&seed, sizeof seed, 0) != (ssize_t)sizeof seed) {
        seed = (uint64_t)clock_wall_ms();
    }
    return seed % 1000000;
}

/* --- all of it ----------------------------------------------------------------------------------- */

static int read_texts(struct drill_texts *t, const struct cli_args *args)
{
    struct drill_setup *s = &t->setup;
    s->method = cli_argument(args, "METHOD");
    s->url = cli_argument(args, "URL");
    if (!slice_is_token(slice_text(s->method)) || strlen(s->method) > 31) {
        return output_usage(args->command, "%s is not a method", s->method);
    }
    s->counter = (struct drill_counter){cli_text(args, "effect-url"), cli_text(args, "effect-cmd"),
                                        cli_text(args, "effect-log")};
    s->other_url = cli_text(args, "other-url");
    s->restart_command = cli_text(args, "restart-cmd");
    s->reset_command = cli_text(args, "reset-cmd");
    s->final_url = cli_text(args, "final-url");
    s->ca_file = cli_text(args, "ca");
    s->insecure = cli_flag(args, "insecure");
    s->remote = cli_flag(args, "yes-remote");
    s->bare_keys = cli_flag(args, "bare-keys");
    s->profile = drill_profile_named(cli_text(args, "profile"));
    int rc = read_body(&s->body, &s->body_file, t, args, "data");
    return rc != CLI_OK ? rc : read_body(&s->other_body, NULL, t, args, "other");
}

/* The key is a header of this name, unless its place is shown by {key}. */
static int choose_key_header(struct drill_setup *s, const struct cli_args *args)
{
    bool in_events = s->event_count > 0;
    for (size_t i = 0; i < s->event_count; i++) {
        in_events = in_events && request_holds(s->events[i].body, 'k');
    }
    const char *name = cli_text(args, "key-header");
    if (name != NULL && !slice_is_token(slice_text(name))) {
        return output_usage(args->command, "%s is not the name of a header", name);
    }
    bool elsewhere = in_events || request_has_key_placeholder(s);
    s->key_header = name != NULL ? name : elsewhere ? NULL : "Idempotency-Key";
    return CLI_OK;
}

int drill_texts_read(struct drill_texts *out, const struct cli_args *args)
{
    *out = (struct drill_texts){0};
    arena_init(&out->arena, ARENA_BYTES_MAX);
    struct drill_setup *s = &out->setup;
    int rc = read_texts(out, args);
    rc = rc != CLI_OK ? rc : read_all_headers(s, args);
    rc = rc != CLI_OK ? rc : read_events(out, args);
    rc = rc != CLI_OK ? rc : choose_key_header(s, args);
    rc = rc != CLI_OK ? rc : read_patterns(s->only, &s->only_count, out, args, "only");
    rc = rc != CLI_OK ? rc : read_patterns(s->skip, &s->skip_count, out, args, "skip");
    s->settle_ms = cli_duration_ms(args, "settle", 0);
    s->settle_ms_max = cli_duration_ms(args, "settle-max", 0);
    s->timeout_ms = cli_duration_ms(args, "timeout", 0);
    s->recover_ms = cli_duration_ms(args, "recover", 0);
    s->times = (unsigned)cli_number(args, "times", DRILL_TIMES);
    s->rounds = (unsigned)cli_number(args, "rounds", DRILL_ROUNDS);
    s->requests_max = (unsigned)cli_number(args, "requests-max", DRILL_REQUESTS_MAX);
    s->seed = cli_number(args, "seed", random_seed());
    return rc;
}

void drill_texts_free(struct drill_texts *t)
{
    arena_free(&t->arena);
}
