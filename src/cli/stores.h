/* Opening of a store by commands that look into what somebody else keeps. */
#ifndef CLI_STORES_H
#define CLI_STORES_H

#include "cli/cli.h"
#include "store/store.h"

enum stores_access { STORES_READ, STORES_CHANGE };

/* The file's path in a store's URI, sqlite:PATH or that behind fault:SPEC:. NULL: a store without a file. */
const char *stores_path(const char *uri);

/* Is there something at --store? CLI_OK, or another exit code after a message. */
int stores_reach(const struct cli_args *args);
struct store_options stores_options(const struct cli_args *args, enum stores_access access);
/* Open the store of --store. Never creates one. CLI_OK, or another exit code after a message; *out is
 * then NULL. Close with store_close(). */
int stores_open(struct store **out, const struct cli_args *args, enum stores_access access);

/* The message of a store's error; returns its exit code: CLI_TRY_LATER when another process held the
 * store's lock for too long. */
int stores_error(const struct cli_args *args, const hapax_error *err);

#endif
