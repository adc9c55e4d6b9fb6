/* Which header fields pass, in which direction, and which are kept with a stored answer. One table. */
#ifndef CORE_FIELDS_H
#define CORE_FIELDS_H

#include "base/buf.h"
#include "base/limits.h"
#include "core/request.h"

#include <stdint.h>

enum field_class {
    FIELD_PLAIN,      /* passes both ways and is kept */
    FIELD_HOP,        /* hop by hop (RFC 9110 section 7.6.1) or framing: never passes */
    FIELD_OURS,       /* the gateway's own markers and controls: copies are stripped both ways */
    FIELD_NOT_KEPT,   /* passes to the first client; a replay goes without */
    FIELD_CORS,       /* Access-Control-*: kept; fields_append_replayed() */
    FIELD_SET_COOKIE, /* like FIELD_NOT_KEPT unless the route keeps it */
    FIELD_REWRITTEN,  /* of a request: the gateway writes its own (Host, X-Forwarded-For) */
    FIELD_FORWARDED, /* of a request: the same, unless the route keeps what came (X-Forwarded-Proto, -Host) */
};

enum field_direction { FIELD_REQUEST, FIELD_ANSWER };

/* Any case. */
enum field_class field_class(struct slice name, enum field_direction direction);

/* What a message's Connection lines list: fields of these names are hop by hop as well. */
struct listed_fields {
    struct slice names[LIMIT_CONNECTION_OPTIONS_MAX]; /* borrowed from the headers */
    size_t count;
};

/* HAPAX_E_LIMIT: more than LIMIT_CONNECTION_OPTIONS_MAX. The server refuses such requests by itself. */
int fields_listed(struct listed_fields *out, const struct header *headers, size_t n);
bool field_is_listed(const struct listed_fields *listed, struct slice name);

/* Append "Name: value\r\n". */
int field_append(struct buf *out, struct slice name, struct slice value);

/* Append the lines of a stored answer's head, each ending in CRLF, as they go to a request of this origin (SLICE_NONE:
 * it names none, or several): without Access-Control-* unless its only Access-Control-Allow-Origin is `*` or the same
 * bytes. What an upstream has allowed one origin is never told another. */
int fields_append_replayed(struct buf *out, struct slice lines, struct slice origin);

#endif
