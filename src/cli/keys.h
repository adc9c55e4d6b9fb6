/* What the `hapax keys` commands share: which record is meant, and how a record is described. */
#ifndef CLI_KEYS_H
#define CLI_KEYS_H

#include "cli/cli.h"
#include "cli/output.h"
#include "store/store.h"

extern const struct cli_command cmd_keys_list;
extern const struct cli_command cmd_keys_show;
extern const struct cli_command cmd_keys_resolve;
extern const struct cli_command cmd_keys_forget;

/* SCOPE and KEY, or --id HEX: declared by every command that is about one record. */
extern const struct cli_argument keys_address[];
#define KEYS_OPTION_ID                                                                                       \
    {                                                                                                        \
        .name = "id", .kind = CLI_TEXT, .value = "HEX", .for_arguments = true,                               \
        .help = "the record's id, as hapax keys list --id shows it"                                          \
    }

/* The identity that SCOPE KEY or --id names. CLI_OK, or CLI_USAGE after a message. */
int keys_identity(struct identity *out, const struct cli_args *args);

/* Run one op that names an identity. CLI_OK, or another exit code after a message. op->result is what
 * the store found. */
int keys_apply(struct store *store, struct store_op *op, const struct cli_args *args);
/* "there is no record ..."; returns CLI_NOT_FOUND. */
int keys_absent(const struct cli_args *args);

enum output_style keys_style(enum record_state state);

#endif
