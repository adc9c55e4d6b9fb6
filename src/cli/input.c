#include "cli/input.h"

#include "cli/output.h"
#include "hapax/error.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

int input_read(struct buf *out, const struct cli_command *command, const char *path)
{
    char piece[64 * 1024];
    size_t n;
    int rc = 0;
    bool standard = strcmp(path, "-") == 0;
    FILE *file = standard ? stdin : fopen(path, "re");
    while (file != NULL && rc == 0 && (n = fread(piece, 1, sizeof piece, file)) > 0) {
        rc = buf_append(out, piece, n);
    }
    int why = file == NULL || (rc == 0 && ferror(file)) ? errno : 0;
    if (file != NULL && !standard) {
        fclose(file);
    }
    if (why != 0) {
        output_message(command, "can't read %s: %s", path, strerror(why));
        return CLI_USAGE;
    }
    if (rc == HAPAX_E_LIMIT) {
        output_message(command, "%s is longer than %zu bytes", standard ? "standard input" : path,
                       out->len_max);
        return CLI_USAGE;
    }
    return rc == 0 ? CLI_OK : output_no_memory(command);
}
