/* `hapax keys show`: all that is known about one record. */
#include "cli/keys.h"

#include "base/clock.h"
#include "base/digest.h"
#include "base/limits.h"
#include "cli/stores.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct shown {
    struct store_op op; /* LOOKUP: the record and its answer */
    struct buf scope;   /* owned copies */
    struct buf key;
    int rc;          /* of the copies */
    char owner[256]; /* as registered; "" when not */
    int64_t now_ms;
};

static void each_row(void *ctx, const struct store_row *row)
{
    struct shown *s = ctx;
    if (identity_equal(&row->id, &s->op.id)) {
        s->rc = buf_append_slice(&s->scope, row->scope);
        s->rc = s->rc != 0 ? s->rc : buf_append_slice(&s->key, row->key);
    }
}

static int each_owner(void *ctx, const struct store_owner *owner)
{
    struct shown *s = ctx;
    if (owner->number != s->op.found.owner) {
        return 0;
    }
    snprintf(s->owner, sizeof s->owner, "%s", owner->text);
    return 1;
}

/* A look-up gives no scope, key or owner's text. The serial leads to the row. */
static int read_rest(struct shown *s, struct store *store, const struct cli_args *args)
{
    hapax_error err = {0};
    struct store_filter filter = {.after_serial = s->op.found.fence.serial - 1, .rows_max = 1};
    int code = store->backend->list(store, &filter, s->now_ms, each_row, s, &err);
    code = code != 0 ? code : store->backend->owners(store, each_owner, s, &err);
    if (code != 0) {
        return stores_error(args, &err);
    }
    return s->rc == 0 ? CLI_OK : output_no_memory(args->command);
}

/* --- JSON ---------------------------------------------------------------------------------------- */

/* Cut the next line of a head in name and value. False: there is none. */
static bool next_line(struct slice *rest, struct slice *name, struct slice *value)
{
    if (rest->len == 0) {
        return false;
    }
    const char *end = memchr(rest->ptr, '\n', rest->len);
    size_t len = end != NULL ? (size_t)(end - rest->ptr) : rest->len;
    struct slice line = {rest->ptr, len > 0 && rest->ptr[len - 1] == '\r' ? len - 1 : len};
    const char *colon = line.len > 0 ? memchr(line.ptr, ':', line.len) : NULL;
    *name = colon != NULL ? slice_of(line.ptr, (size_t)(colon - line.ptr)) : line;
    *value = colon != NULL ? slice_trim(slice_from(line, name->len + 1)) : slice_of("", 0);
    *rest = slice_from(*rest, end != NULL ? len + 1 : len);
    return true;
}

static json_t *answer_json(const struct answer *a)
{
    if (a == NULL) {
        return json_null();
    }
    json_t *head = json_array();
    struct slice rest = answer_head(a);
    struct slice name;
    struct slice value;
    while (next_line(&rest, &name, &value)) {
        json_array_append_new(head, json_pack("[o, o]", output_json_text(name), output_json_text(value)));
    }
    return json_pack("{s:i, s:b, s:o, s:I}", "status", (int)a->status, "kept", (int)a->kept, "head", head,
                     "body_bytes", (json_int_t)a->body_bytes);
}

static int show_json(const struct shown *s, const struct cli_args *args)
{
    const struct record *r = &s->op.found;
    char id[2 * IDENTITY_BYTES + 1];
    char fingerprint[2 * FINGERPRINT_BYTES + 1];
    digest_hex(id, s->op.id.bytes, IDENTITY_BYTES);
    digest_hex(fingerprint, r->fingerprint.bytes, FINGERPRINT_BYTES);
    bool done = r->state == RECORD_DONE;
    bool compared = r->fingerprint.version > 0;
    json_t *document =
        json_pack("{s:s, s:I, s:s, s:o, s:o, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:i, s:o, s:o}", "id", id,
                  "serial", (json_int_t)r->fence.serial, "state", record_state_name(r->state), "scope",
                  output_json_text(buf_slice(&s->scope)), "key", output_json_text(buf_slice(&s->key)),
                  "attempt", (json_int_t)r->fence.attempt, "owner", (json_int_t)r->owner, "owner_text",
                  s->owner[0] != '\0' ? output_json_text(slice_text(s->owner)) : json_null(), "claimed",
                  output_json_instant(r->claimed_ms), "lease_until",
                  output_json_instant(r->state == RECORD_RUNNING ? r->lease_ms : 0), "ended",
                  output_json_instant(r->ended_ms), "expires", output_json_instant(done ? r->expires_ms : 0),
                  "fingerprint_version", (int)r->fingerprint.version, "fingerprint",
                  compared ? json_string(fingerprint) : json_null(), "answer", answer_json(s->op.answer));
    return output_json(args->command, document);
}

/* --- text ---------------------------------------------------------------------------------------- */

static int instant(const char *name, int64_t wall_ms, int64_t now_ms)
{
    char text[CLOCK_TEXT_MAX];
    char age[OUTPUT_AGE_MAX];
    clock_text(text, wall_ms);
    bool past = wall_ms <= now_ms;
    output_age(age, past ? now_ms - wall_ms : wall_ms - now_ms);
    return output_field(name, past ? "%s (%s ago)" : "%s (in %s)", text, age);
}

static int show_answer(const struct answer *a)
{
    int rc = a->status != 0 ? output_field("status", "%u", (unsigned)a->status) : 0;
    if (rc == 0 && a->kept) {
        rc = output_field("body", "%llu bytes", (unsigned long long)a->body_bytes);
    } else if (rc == 0) {
        rc = output_field("body", "not kept: it was too large");
    }
    struct slice rest = answer_head(a);
    struct slice name;
    struct slice value;
    for (bool first = true; rc == 0 && next_line(&rest, &name, &value); first = false) {
        rc = output_field(first ? "head" : "", "%.*s: %.*s", SLICE_FORMAT(name), SLICE_FORMAT(value));
    }
    return rc;
}

static int show_times(const struct record *r, int64_t now_ms)
{
    int rc = instant("claimed", r->claimed_ms, now_ms);
    if (rc == 0 && r->state == RECORD_RUNNING) {
        rc = instant("lease until", r->lease_ms, now_ms);
    }
    if (rc == 0 && r->state != RECORD_RUNNING && r->ended_ms > 0) {
        rc = instant("ended", r->ended_ms, now_ms);
    }
    if (rc == 0 && r->state == RECORD_DONE) {
        rc = instant("expires", r->expires_ms, now_ms);
    }
    return rc;
}

static int show_text(const struct shown *s, const struct cli_args *args)
{
    const struct record *r = &s->op.found;
    char id[2 * IDENTITY_BYTES + 1];
    char fingerprint[2 * FINGERPRINT_BYTES + 1];
    digest_hex(id, s->op.id.bytes, IDENTITY_BYTES);
    digest_hex(fingerprint, r->fingerprint.bytes, FINGERPRINT_BYTES);
    int rc = output_field("scope", "%.*s", SLICE_FORMAT(buf_slice(&s->scope)));
    rc = rc != 0 ? rc : output_field("key", "%.*s", SLICE_FORMAT(buf_slice(&s->key)));
    rc = rc != 0 ? rc : output_field("id", "%s", id);
    rc = rc != 0 ? rc : output_field("state", "%s", record_state_name(r->state));
    rc = rc != 0 ? rc : output_field("serial", "%llu", (unsigned long long)r->fence.serial);
    rc = rc != 0 ? rc : output_field("attempt", "%lu", (unsigned long)r->fence.attempt);
    rc = rc != 0 ? rc : output_field("owner", "%llu %s", (unsigned long long)r->owner, s->owner);
    rc = rc != 0 ? rc : show_times(r, s->now_ms);
    if (rc == 0 && r->fingerprint.version > 0) {
        rc = output_field("fingerprint", "%s (version %u)", fingerprint, (unsigned)r->fingerprint.version);
    } else if (rc == 0) {
        rc = output_field("fingerprint", "none: content is not compared");
    }
    rc = rc != 0 || s->op.answer == NULL ? rc : show_answer(s->op.answer);
    return rc == 0 ? CLI_OK : output_no_memory(args->command);
}

/* --- body ---------------------------------------------------------------------------------------- */

static int write_body(const struct shown *s, const struct cli_args *args)
{
    const struct answer *a = s->op.answer;
    if (a == NULL) {
        output_message(args->command, "there is no answer: the record is %s",
                       record_state_name(s->op.found.state));
        return CLI_TRY_LATER;
    }
    if (!a->kept) {
        output_message(args->command, "the body was too large to be kept");
        return CLI_NOT_FOUND;
    }
    struct slice body = answer_body(a);
    fwrite(body.ptr, 1, body.len, stdout);
    return CLI_OK;
}

static int show(struct shown *s, struct store *store, const struct cli_args *args)
{
    int rc = keys_apply(store, &s->op, args);
    if (rc == CLI_OK && (s->op.result == STORE_ABSENT || s->op.found.state == RECORD_ABSENT)) {
        return keys_absent(args);
    }
    if (rc == CLI_OK && cli_flag(args, "body")) {
        return write_body(s, args);
    }
    rc = rc != CLI_OK ? rc : read_rest(s, store, args);
    if (rc != CLI_OK) {
        return rc;
    }
    return cli_flag(args, "json") ? show_json(s, args) : show_text(s, args);
}

static int run(const struct cli_args *args)
{
    if (cli_flag(args, "body") && cli_flag(args, "json")) {
        return output_usage(args->command, "--body writes the bytes as they are; leave --json out");
    }
    struct shown s = {.op = {.kind = STORE_LOOKUP, .want_answer = true}, .now_ms = clock_wall_ms()};
    struct store *store;
    int rc = keys_identity(&s.op.id, args);
    rc = rc != CLI_OK ? rc : stores_open(&store, args, STORES_READ);
    if (rc != CLI_OK) {
        return rc;
    }
    buf_init(&s.scope, LIMIT_SCOPE_BYTES_MAX);
    buf_init(&s.key, LIMIT_KEY_BYTES_MAX);
    rc = show(&s, store, args);
    answer_drop(s.op.answer);
    buf_free(&s.scope);
    buf_free(&s.key);
    store_close(store);
    return rc;
}

static const struct cli_option options[] = {
    CLI_OPTION_STORE,
    KEYS_OPTION_ID,
    {.name = "body", .letter = 'b', .kind = CLI_FLAG, .help = "write the answer's body and nothing else"},
    CLI_OPTION_JSON,
    {0},
};

static const struct cli_example examples[] = {
    {"What became of an order", "hapax keys show 'orders POST /orders -' order-17"},
    {"The stored answer's body",
     "hapax keys show --body --id 4bf92f3577b34da6a3ce929d0e0e4736 > answer.json"},
    {0},
};

const struct cli_command cmd_keys_show = {
    .name = "keys show",
    .summary = "show one record and the head of its answer",
    .options = options,
    .arguments = keys_address,
    .examples = examples,
    .run = run,
};
