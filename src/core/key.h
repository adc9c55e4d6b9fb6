/* Keys: where they come from and what a valid one looks like.
 *
 * A key's text is 1 to LIMIT_KEY_BYTES_MAX bytes of printable ASCII (0x20 to 0x7E). Case matters.
 *
 * Header values: an RFC 8941 string ("quoted", with \" and \\ undone; parameters after it checked and
 * ignored) or, in LENIENT syntax, a bare token: the trimmed value, any printable ASCII (blanks and
 * commas too) but a quote at the start. A bare value and its quoted form are the same key. STRICT:
 * quoted only. Lines of one name that give one key are one key; that differ are an error.
 *
 * Query and form values are taken decoded, as they are; several that differ are an error. Forms are
 * bodies of type application/x-www-form-urlencoded only; other bodies have no fields.
 *
 * Values taken from JSON are rendered as JSON text: a string as its literal in ASCII-only form of
 * json_quote(), a number by its exact lexeme, true and false as such. So "7" and 7 differ, and so do
 * integers beyond 2^53. null, an absent member, an array or an object give no part (HAPAX_E_MISSING
 * for null and absent, HAPAX_E_SYNTAX for containers). The body is read as JSON whatever its media
 * type; an empty one holds nothing, and neither does one that is not JSON but is declared as
 * urlencoded or multipart.
 *
 * A template is literal text with {source} parts: `{json:/order_id}|SYNC_STOCK|{json:/step}`. Every
 * part of it, of whatever source, is rendered as JSON text, so two lists of values never give one
 * key. (That is also why a JSON part needs a separator after it, when another part follows, that a
 * number could not run into: anything that starts with no digit, `.`, `e` or `E`.) `{{` and `}}` stand
 * for braces. Header parts are read in LENIENT syntax. A template is present when any part is; then an
 * absent part is an error, as an empty one is, and never an empty string.
 *
 * A value that is there but blank is an error, not a missing key. So are obvious unresolved
 * placeholders: undefined, null, nil, none, NaN (whole, in any case), angle brackets around the whole,
 * anything with [object Object], {{ or }} or ${ in it. For JSON strings and template parts as well.
 * No message repeats a value. Pure. */
#ifndef CORE_KEY_H
#define CORE_KEY_H

#include "base/arena.h"
#include "core/fingerprint.h"
#include "core/request.h"
#include "hapax/error.h"

enum key_syntax { KEY_LENIENT, KEY_STRICT };

enum key_source_kind { KEY_HEADER, KEY_QUERY, KEY_JSON, KEY_FORM, KEY_TEMPLATE };

/* One configured source, parsed. */
struct key_source {
    enum key_source_kind kind;
    struct slice name; /* header, query or form name, or JSON pointer; borrowed */
    struct key_part {
        bool literal;
        struct slice text;         /* of a literal, braces undone */
        enum key_source_kind kind; /* else: not KEY_TEMPLATE */
        struct slice name;
    } * parts; /* KEY_TEMPLATE, in the arena */
    size_t part_count;
};

/* Parse `header:Name`, `query:name`, `json:/pointer`, `form:name` or a template (anything with a
 * brace). The source borrows `text`, parts live in the arena. HAPAX_E_SYNTAX says what is allowed;
 * HAPAX_E_LIMIT or HAPAX_E_MEMORY of the arena. */
int key_source_parse(struct key_source *out, struct slice text, struct arena *arena, hapax_error *err);

/* Check one header value and take the key out of it: borrowed from the value, or in the arena when it
 * held escapes. HAPAX_E_SYNTAX, HAPAX_E_LIMIT, HAPAX_E_MEMORY; *out is then untouched. */
int key_from_header(struct slice *out, struct slice value, enum key_syntax syntax, struct arena *arena,
                    hapax_error *err);

/* Ask the sources in order; the first that is present decides, even when it is malformed.
 * 0: *out is the key (arena or request memory). HAPAX_E_MISSING: no source is present, or a part of
 * the deciding template is absent. HAPAX_E_SYNTAX: present and bad (the message says how, without
 * repeating the value). HAPAX_E_LIMIT: longer than LIMIT_KEY_BYTES_MAX. Others as content_json(). */
int key_extract(struct slice *out, const struct key_source *sources, size_t source_count,
                enum key_syntax syntax, struct content *content, hapax_error *err);

/* Append the RFC 8941 string form ("...", escaped) of a valid key: what is sent downstream for a key
 * that did not come from a header. As buf_append(); on error out is as it was. */
int key_quote(struct buf *out, struct slice key);

#endif
