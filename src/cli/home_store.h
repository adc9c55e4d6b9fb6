/* The store of commands that keep records for whoever calls them (`hapax run`, `hapax call`), and the commands by which
 * one looks into it.
 *
 * It is --store, else $HAPAX_STORE, else a file of the user's own: for root /var/lib/hapax/hapax.db, for others
 * $XDG_STATE_HOME/hapax/hapax.db, or ~/.local/state/hapax/hapax.db. Folders of that default that are missing are made,
 * for their owner only (0700); for a store that the user named nothing is made but the file itself. One thread. */
#ifndef CLI_HOME_STORE_H
#define CLI_HOME_STORE_H

#include "base/buf.h"
#include "cli/cli.h"
#include "hapax/error.h"

/* The option of a command that uses home_store_uri(); it stands instead of CLI_OPTION_STORE. */
#define CLI_OPTION_HOME_STORE                                                                                \
    {                                                                                                        \
        .name = "store", .letter = 's', .kind = CLI_TEXT, .value = "URI", .variable = "HAPAX_STORE",         \
        .help = "the store: sqlite:PATH or postgresql://...; else a file of your own, "                      \
                "~/.local/state/hapax/hapax.db, for root /var/lib/hapax/hapax.db"                            \
    }

/* What a message of follow-up commands may hold: an escaped path, a key and the words around them. */
#define HOME_STORE_OPTION_BYTES_MAX (32U * 1024U)

/* The URI to give to hapax_open(): *out is owned, free with free(); the path of a sqlite: store is absolute, so that it
 * can be named anywhere. A memory: store is refused: nothing of it would be left for the next run.
 * CLI_OK, or another exit code after a message; *out is then NULL. */
int home_store_uri(char **out, const struct cli_args *args);

/* Append the path of the user's own store where there is such a file; else nothing. 0, HAPAX_E_LIMIT or HAPAX_E_MEMORY. */
int home_store_existing_path(struct buf *out);

/* Print an error of hapax_open() or of a call on the handle, and tell the exit code: CLI_UNREACHABLE for a store that can't
 * be used, CLI_TRY_LATER for a SQLite file that somebody else has locked and where the system has no memory, processes or
 * descriptors left, the usual ones for what the store has no part in. */
int home_store_error(const struct cli_args *args, const char *uri, const hapax_error *err);

/* Append the option that leads `hapax keys ...` to the store, with a blank before it and quoted for a shell:
 * " --store 'sqlite:/home/a/.local/state/hapax/hapax.db'". Nothing where the URI holds a password and came from
 * $HAPAX_STORE, which the reader then has, too; a password of --store is shown as ***.
 * 0, HAPAX_E_LIMIT or HAPAX_E_MEMORY. */
int home_store_option(struct buf *out, const struct cli_args *args, const char *uri);

/* Append a word quoted for a POSIX shell: in single quotes, unless it is plain. 0, HAPAX_E_LIMIT or HAPAX_E_MEMORY. */
int home_store_quote(struct buf *out, const char *word);

/* Print a line to standard error: what it is for, and the command `words` (such as "keys show") of this program, as it
 * was called, for a record of that store. It works when it is pasted; without memory there is no line. */
void home_store_say(const struct cli_args *args, const char *uri, const char *what, const char *words,
                    const char *scope, const char *key);

#endif
