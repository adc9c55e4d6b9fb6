/* Key sources and templates (core/key.h): sections, each ended by 0xFF: source, then for each of two requests query,
 * header value, [media type] body. What the second request lacks it has from the first.
 *
 * Would catch: a source that parses and then gives a key that can't be one; another key the second time; a template that
 * gives one key for two requests whose parts differ (values that run into one another); a template with an absent part
 * that gives a key; an order of sources that is not kept; a message that holds a line break. */
#include "fuzz.h"

#include "base/limits.h"
#include "core/identity.h"
#include "core/key.h"

enum { ARENA_BYTES = 16 << 20, DECODED_BYTES_MAX = 1 << 20 };

static const struct slice media_types[] = {
    {"application/json", 16},
    {"application/x-www-form-urlencoded; charset=utf-8", 48},
    {"multipart/form-data; boundary=b", 31},
    {"text/plain", 10},
};

struct sample {
    struct header headers[3];
    struct request request;
    struct content content;
};

static void read_sample(struct sample *s, struct input *in, const struct sample *like, struct arena *arena)
{
    struct slice query = input_section(in);
    struct slice header = input_section(in);
    struct slice body = input_section(in);
    struct slice media = media_types[body.len > 0 ? (uint8_t)body.ptr[0] % 4 : 0];
    body = body.len > 0 ? slice_from(body, 1) : SLICE_LITERAL("");
    if (like != NULL) {
        query = query.len > 0 ? query : like->request.query;
        header = header.len > 0 ? header : like->headers[0].value;
        media = body.len > 0 ? media : like->headers[2].value;
        body = body.len > 0 ? body : like->request.body;
    }
    s->headers[0] = (struct header){SLICE_LITERAL("Idempotency-Key"), slice_trim(header)};
    s->headers[1] = (struct header){SLICE_LITERAL("X-Step"), SLICE_LITERAL("7")};
    s->headers[2] = (struct header){SLICE_LITERAL("Content-Type"), media};
    s->request = (struct request){.method = SLICE_LITERAL("POST"),
                                  .path = SLICE_LITERAL("/"),
                                  .query = query,
                                  .headers = s->headers,
                                  .header_count = 3,
                                  .body = body};
    content_init(&s->content, &s->request, arena, DECODED_BYTES_MAX);
}

/* The key of one list of sources, checked; SLICE_NONE and a code when there is none. */
static int extract(struct slice *key, const struct key_source *sources, size_t n, struct sample *s)
{
    hapax_error err = {0};
    struct identity id;
    *key = SLICE_NONE;
    int rc = key_extract(key, sources, n, KEY_LENIENT, &s->content, &err);
    if (rc == 0) {
        FUZZ_CHECK(identity_make(&id, SLICE_LITERAL("scope"), *key, NULL) == 0);
    } else {
        FUZZ_CHECK(rc == HAPAX_E_MISSING || rc == HAPAX_E_SYNTAX || rc == HAPAX_E_LIMIT);
        FUZZ_CHECK(err.code == rc && err.message[0] != '\0' && strpbrk(err.message, "\r\n") == NULL);
    }
    return rc;
}

static struct key_source part_alone(const struct key_part *part)
{
    return (struct key_source){.kind = part->kind, .name = part->name};
}

/* One key of a template: every part is there, and for two requests every part is the same. */
static void check_template(const struct key_source *t, struct sample *a, struct sample *b, bool same)
{
    for (size_t i = 0; i < t->part_count; i++) {
        if (t->parts[i].literal) {
            continue;
        }
        struct key_source alone = part_alone(&t->parts[i]);
        struct slice of_a;
        struct slice of_b;
        int rc = extract(&of_a, &alone, 1, a);
        FUZZ_CHECK(rc != HAPAX_E_MISSING);
        if (same) {
            FUZZ_CHECK(extract(&of_b, &alone, 1, b) == rc && slice_equal(of_a, of_b));
        }
    }
}

static void check_order(const struct key_source *source, struct slice key, int rc, struct sample *s)
{
    struct key_source other = {.kind = KEY_HEADER, .name = SLICE_LITERAL("x-step")};
    struct key_source first[] = {other, *source};
    struct key_source second[] = {*source, other};
    struct slice got;
    FUZZ_CHECK(extract(&got, first, 2, s) == 0 && slice_equal(got, SLICE_LITERAL("7")));
    int got_rc = extract(&got, second, 2, s);
    if (rc != HAPAX_E_MISSING) {
        FUZZ_CHECK(got_rc == rc && slice_equal(got, key));
    } else { /* a template of which only some parts are there is decided, too */
        FUZZ_CHECK((got_rc == 0 && slice_equal(got, SLICE_LITERAL("7"))) ||
                   (source->kind == KEY_TEMPLATE && got_rc == HAPAX_E_MISSING));
    }
}

static void run(const struct key_source *source, struct input *in, struct arena *arena)
{
    struct sample a;
    struct sample b;
    struct slice key_a;
    struct slice key_b;
    struct slice again;
    read_sample(&a, in, NULL, arena);
    read_sample(&b, in, &a, arena);
    int rc_a = extract(&key_a, source, 1, &a);
    int rc_b = extract(&key_b, source, 1, &b);
    FUZZ_CHECK(extract(&again, source, 1, &a) == rc_a && slice_equal(again, key_a));
    check_order(source, key_a, rc_a, &a);
    if (source->kind == KEY_TEMPLATE && rc_a == 0) {
        check_template(source, &a, &b, rc_b == 0 && slice_equal(key_a, key_b));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = {data, size};
    struct key_source source;
    hapax_error err = {0};
    struct arena arena;
    arena_init(&arena, ARENA_BYTES);
    struct slice text = input_section(&in);
    int rc = key_source_parse(&source, text, &arena, &err);
    if (rc == 0) {
        FUZZ_CHECK(source.part_count <= LIMIT_TEMPLATE_PARTS_MAX);
        run(&source, &in, &arena);
    } else {
        FUZZ_CHECK(rc == HAPAX_E_SYNTAX && err.code == rc && err.message[0] != '\0');
    }
    arena_free(&arena);
    return 0;
}
