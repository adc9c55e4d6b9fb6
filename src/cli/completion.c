/* The completion script for bash, made from the command table. It needs nothing but bash: no helper
 * functions of the bash-completion package. */
#include "cli/help.h"

#include "hapax/error.h"

#include <string.h>

/* Finds the command named so far, then offers by what stands before the cursor. bash splits words at
 * '=' and ':' (COMP_WORDBREAKS), so "--name=value" arrives as three words. */
static const char head[] =
    "# Completion of hapax for bash. Made by `hapax docs completion`; change the command table instead.\n"
    "_hapax_files() {\n"
    "    compopt -o filenames 2>/dev/null\n"
    "    local line\n"
    "    while IFS= read -r line; do COMPREPLY+=(\"$line\"); done < <(compgen \"$1\" -- \"$2\")\n"
    "}\n"
    "\n"
    "_hapax() {\n"
    "    local cur=${COMP_WORDS[COMP_CWORD]} before=$((COMP_CWORD - 1)) path= i\n"
    "    COMPREPLY=()\n"
    "    if [[ $cur == = ]]; then\n"
    "        cur=\n"
    "    elif [[ ${COMP_WORDS[before]} == = ]]; then\n"
    "        before=$((before - 1))\n"
    "    fi\n"
    "    for ((i = 1; i < COMP_CWORD; i++)); do\n"
    "        case \"$path ${COMP_WORDS[i]}\" in\n";

static const char tail[] = "    esac\n"
                           "}\n"
                           "\n"
                           "complete -F _hapax hapax\n";

/* "        ' keys' | ' keys list')" for every command of the tree, so that the path can grow. */
static int paths(struct buf *out, const struct cli_command *command)
{
    int rc = command->name[0] != '\0'
                 ? buf_printf(out, "        ' %s') path=' %s' ;;\n", command->name, command->name)
                 : 0;
    for (const struct cli_command *const *c = command->subcommands; c != NULL && *c != NULL && rc == 0; c++) {
        rc = paths(out, *c);
    }
    return rc;
}

static int subcommand_words(struct buf *out, const struct cli_command *command)
{
    int rc = 0;
    for (const struct cli_command *const *c = command->subcommands; c != NULL && *c != NULL && rc == 0; c++) {
        rc = buf_printf(out, "%s ", cli_word(*c));
    }
    return rc;
}

/* COMPREPLY from words in single quotes, or from files; nothing for free text. */
static int offer(struct buf *out, enum cli_kind kind, const char *choices)
{
    if (kind == CLI_FILE || kind == CLI_DIRECTORY) {
        return buf_printf(out, "_hapax_files %s \"$cur\"", kind == CLI_FILE ? "-f" : "-d");
    }
    if (kind == CLI_COMMAND) {
        int rc = buf_append_text(out, "mapfile -t COMPREPLY < <(compgen -W '");
        rc = rc != 0 ? rc : subcommand_words(out, &cli_root);
        return rc != 0 ? rc : buf_append_text(out, "' -- \"$cur\")");
    }
    if (kind != CLI_CHOICE) {
        return buf_append_byte(out, ':');
    }
    int rc = buf_append_text(out, "mapfile -t COMPREPLY < <(compgen -W '");
    for (const char *p = choices; *p != '\0' && rc == 0; p++) {
        rc = buf_append_byte(out, *p == '|' ? ' ' : *p);
    }
    return rc != 0 ? rc : buf_append_text(out, "' -- \"$cur\")");
}

/* What follows an option that takes a value. */
static int option_values(struct buf *out, const struct cli_command *command)
{
    int rc = 0;
    for (const struct cli_option *o = command->options; o != NULL && o->name != NULL && rc == 0; o++) {
        if (o->kind == CLI_FLAG) {
            continue;
        }
        rc = buf_printf(out, "    '%s%s --%s'", command->name[0] != '\0' ? " " : "", command->name, o->name);
        rc = rc != 0 || o->letter == 0 ? rc : buf_printf(out, " | ' %s -%c'", command->name, o->letter);
        rc = rc != 0 ? rc : buf_append_text(out, ") ");
        rc = rc != 0 ? rc : offer(out, o->kind, o->choices);
        rc = rc != 0 ? rc : buf_append_text(out, "; return ;;\n");
    }
    for (const struct cli_command *const *c = command->subcommands; c != NULL && *c != NULL && rc == 0; c++) {
        rc = option_values(out, *c);
    }
    return rc;
}

/* The options of a command when the word begins with a dash, else subcommands or arguments. */
static int words(struct buf *out, const struct cli_command *command)
{
    const char *blank = command->name[0] != '\0' ? " " : "";
    int rc = buf_printf(out, "    '%s%s --') mapfile -t COMPREPLY < <(compgen -W '", blank, command->name);
    for (const struct cli_option *o = command->options; o != NULL && o->name != NULL && rc == 0; o++) {
        rc = buf_printf(out, "--%s ", o->name);
    }
    rc = rc != 0
             ? rc
             : buf_printf(out, "--help%s' -- \"$cur\") ;;\n", command->name[0] != '\0' ? "" : " --version");
    if (rc == 0 && command->subcommands != NULL) {
        rc = buf_printf(out, "    '%s%s') mapfile -t COMPREPLY < <(compgen -W '", blank, command->name);
        rc = rc != 0 ? rc : subcommand_words(out, command);
        rc = rc != 0 ? rc : buf_append_text(out, "' -- \"$cur\") ;;\n");
    } else if (rc == 0 && command->arguments != NULL) {
        rc = buf_printf(out, "    '%s%s') ", blank, command->name);
        rc = rc != 0 ? rc : offer(out, command->arguments->kind, NULL);
        rc = rc != 0 ? rc : buf_append_text(out, " ;;\n");
    }
    for (const struct cli_command *const *c = command->subcommands; c != NULL && *c != NULL && rc == 0; c++) {
        rc = words(out, *c);
    }
    return rc;
}

int help_completion(struct buf *out, const struct cli_command *root)
{
    int rc = buf_append_text(out, head);
    rc = rc != 0 ? rc : paths(out, root);
    rc = rc != 0
             ? rc
             : buf_append_text(out, "        esac\n    done\n    case \"$path ${COMP_WORDS[before]}\" in\n");
    rc = rc != 0 ? rc : option_values(out, root);
    rc = rc != 0 ? rc
                 : buf_append_text(out, "    esac\n    [[ $cur == -* ]] && path+=' --'\n    case $path in\n");
    rc = rc != 0 ? rc : words(out, root);
    return rc != 0 ? rc : buf_append_text(out, tail);
}
