/* What addresses, URLs, hosts, paths and names look like. Pure: no look-ups. Each returns NULL when the text is
 * fine, else why it is not, in a clause for a message. Inside config/ only. */
#ifndef CONFIG_SYNTAX_H
#define CONFIG_SYNTAX_H

#include "base/slice.h"

const char *syntax_name(struct slice s);
const char *syntax_host(struct slice s);    /* no port */
const char *syntax_path(struct slice s);    /* a route's prefix */
const char *syntax_url(struct slice s);     /* upstream: base path, no query */
const char *syntax_probe(struct slice s);   /* URL with {key} in path or query */
const char *syntax_address(struct slice s); /* IP:PORT, [IP]:PORT, :PORT, localhost:PORT */
const char *syntax_store(struct slice s);
const char *syntax_header(struct slice s);   /* RFC 9110 token */
const char *syntax_statuses(struct slice s); /* 429, 4xx, 400-499 */

#endif
