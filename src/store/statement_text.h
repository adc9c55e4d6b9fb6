/* The statements of a back end on SQL stand in one .sql file, each below a line `-- name: NAME`. */
#ifndef STORE_STATEMENT_TEXT_H
#define STORE_STATEMENT_TEXT_H

#include "base/slice.h"

/* The text between the name's line and the next name, borrowed from `file`. Every name that is asked for is there: the
 * names and the file are written together. */
struct slice statement_text(const char *file, const char *name);

#endif
