/* From templates to bytes: requests of an operation, and the shell lines that send them again.
 *
 * Two placeholders: {key} is the operation's key, {unique} a number of 15 digits that is its own. Where {key} stands in
 * the URL, a header or the body, no key header is sent unless one is named. */
#ifndef DRILL_REQUEST_H
#define DRILL_REQUEST_H

#include "drill/setup.h"

#define REQUEST_BYTES_MAX (DRILL_BODY_BYTES_MAX + (1U << 20))
#define KEY_TEXT_MAX      64
#define UNIQUE_TEXT_MAX   24
#define KEY_PADDING       'k'

enum key_form {
    KEY_NORMAL,
    KEY_RAW,     /* the header's value is raw_key as it stands */
    KEY_MISSING, /* no header line */
    KEY_TWICE,   /* two lines with different values */
    KEY_LONG,    /* the key, padded to key_bytes, and `last` as its last byte */
};

struct operation {
    char key[KEY_TEXT_MAX]; /* unquoted */
    char unique[UNIQUE_TEXT_MAX];
    enum key_form form;
    struct slice raw_key; /* KEY_RAW */
    size_t key_bytes;     /* KEY_LONG */
    char last;
    enum drill_payload payload;
    enum drill_place place;
    bool fails;        /* with the header that makes the endpoint fail */
    struct slice body; /* SLICE_NONE: the setup's, in the form that `payload` says */
};

/* The three forms of the body, templates still. */
struct payloads {
    struct slice form[DRILL_AXIS_VALUES]; /* SLICE_NONE: there is no such form */
    const char *why[DRILL_AXIS_VALUES];   /* why not */
};

/* In the arena; 0, HAPAX_E_LIMIT or HAPAX_E_MEMORY. */
int payloads_make(struct payloads *out, const struct drill_setup *setup, struct arena *arena);

bool request_has_key_placeholder(const struct drill_setup *s);
/* Does a fresh operation differ from every other by more than its key? */
bool request_has_unique(const struct drill_setup *s);

/* What both writers use: the text before a template's next placeholder, and which it is: 'k', 'u', or '\0' after the
 * last one. */
char request_next_piece(struct slice *before, struct slice *rest);
bool request_holds(struct slice text, char placeholder);                         /* one of these */
struct slice request_body(const struct payloads *p, const struct operation *op); /* a template */
bool request_gives(const struct drill_setup *s, const char *header);
bool request_tenant_replaces(const struct drill_setup *s, const struct operation *op, struct slice header);
const char *request_content_type(struct slice body); /* what a body is when nobody says it */
bool request_quotes_key(const struct drill_setup *s, const struct operation *op);

/* The whole request. *cut: where REQUEST_LOST ends. `target` and `authority` of the place it goes to. 0 or a code of
 * buf_append(). */
int request_write(struct buf *out, size_t *cut, const struct drill_setup *s, const struct payloads *p,
                  const struct operation *op, struct slice authority, struct slice target);

/* One `curl` command; $K and $U stand for key and unique number. With `lost`, one that gives up: before the answer
 * (DRILL_REPLY_LOST) or in the middle of the request (DRILL_REQUEST_LOST). HAPAX_E_LIMIT also for a body that is too
 * large to be shown and in no file. */
int request_write_curl(struct buf *out, const struct drill_setup *s, const struct payloads *p,
                       const struct operation *op, const char *url, enum drill_delivery lost);
/* "K=...; " and "U=...; ", where the operation's request uses them. */
int request_write_key_variable(struct buf *out, const struct drill_setup *s, const struct operation *op);
int request_write_unique_variable(struct buf *out, const struct drill_setup *s, const struct operation *op);
/* A URL for people: values of query parameters that may be credentials are "...". */
int request_show_url(struct buf *out, struct slice url);
/* The command that reads the final state of events. */
int request_write_final(struct buf *out, const struct drill_setup *s, const struct operation *op);

#endif
