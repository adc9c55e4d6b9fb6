/* A strict JSON scanner (RFC 8259) that keeps what others throw away: the exact lexeme of every
 * number and string. One pass, no copies: a document is an array of nodes that point into the text.
 *
 * Valid is what RFC 8259 calls valid, minus: a lone surrogate escape, invalid UTF-8, an object with
 * two members of one (decoded) name, nesting beyond LIMIT_JSON_DEPTH_MAX, more than
 * LIMIT_JSON_NODES_MAX nodes. Any value may stand at the top. One UTF-8 byte order mark at the start
 * is skipped (RFC 8259 section 8.1 allows a parser to). Recursion never follows the input's depth
 * beyond the limit. Pure; the text must outlive the document.
 *
 * No name here is one of jansson's: upper layers use both in one file. */
#ifndef CORE_JSON_H
#define CORE_JSON_H

#include "base/arena.h"
#include "base/buf.h"
#include "hapax/error.h"

#include <stdint.h>

enum json_type {
    JSON_TYPE_NULL,
    JSON_TYPE_FALSE,
    JSON_TYPE_TRUE,
    JSON_TYPE_NUMBER,
    JSON_TYPE_STRING,
    JSON_TYPE_ARRAY,
    JSON_TYPE_OBJECT
};

/* Nodes stand in document order. A container's children follow it; `after` is the index of the first
 * node that is not inside it, so node i's next sibling is nodes[i].after. In an object, children are
 * pairs: a JSON_TYPE_STRING node (the name), then its value. */
struct json_node {
    enum json_type type;
    uint32_t start; /* byte offset of the lexeme; strings include their quotes */
    uint32_t end;   /* one past it */
    uint32_t after; /* index of the node after this whole value */
    uint32_t count; /* elements of an array, members of an object, else 0 */
};

struct json {
    struct slice text;
    const struct json_node *nodes; /* in the arena */
    uint32_t count;                /* at least 1 after success */
};

/* Returns 0, HAPAX_E_SYNTAX (the message names the byte offset and what was expected), HAPAX_E_LIMIT
 * (depth, nodes, arena, text of 4 GiB or more), HAPAX_E_MEMORY. After an error *out is untouched. Takes
 * from the arena about 20 bytes a node, and 16 a member of objects with many members. */
int json_parse(struct json *out, struct arena *arena, struct slice text, hapax_error *err);

static inline struct slice json_lexeme(const struct json *j, uint32_t node)
{
    return (struct slice){j->text.ptr + j->nodes[node].start, j->nodes[node].end - j->nodes[node].start};
}

/* The decoded value of a string node (any other node: an assertion fails). Borrows the text when there
 * is no escape, else copies to the arena. 0, HAPAX_E_LIMIT or HAPAX_E_MEMORY. */
int json_unquote(struct slice *out, const struct json *j, uint32_t node, struct arena *arena);

/* A JSON Pointer (RFC 6901): "" or "/a/b~1c/0". Check once, when it is configured. 0, HAPAX_E_SYNTAX,
 * or HAPAX_E_LIMIT past LIMIT_POINTER_BYTES_MAX. */
int json_pointer_check(struct slice pointer, hapax_error *err);

#define JSON_NODE_NONE UINT32_MAX
/* The node a valid pointer names, JSON_NODE_NONE when there is none. Array indices have no leading
 * zero, "-" names nothing. The arena is used for a pointer's ~0 and ~1 only. 0 or a code. */
int json_pointer_find(uint32_t *out, const struct json *j, struct slice pointer, struct arena *arena);

/* Append a JSON string literal (with quotes) of decoded UTF-8 text. Escapes `"`, `\` and controls
 * (\b \t \n \f \r or \u00xx); with ascii_only also everything beyond ASCII as \uxxxx in lower-case
 * hex, pairs of surrogates where needed. One text has one form. 0, HAPAX_E_SYNTAX when the text is not
 * UTF-8, or as buf_append(); after an error out holds what it held before. */
int json_quote(struct buf *out, struct slice text, bool ascii_only);

#endif
