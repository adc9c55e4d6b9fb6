/* The back ends of store.c's table. Each opens what stands after its scheme; the contract is
 * store_open()'s. Only store.c and wrappers use this. */
#ifndef STORE_SCHEMES_H
#define STORE_SCHEMES_H

#include "store/store.h"

int memory_open(struct store **out, const char *rest, const struct store_options *options, hapax_error *err);
int sqlite_open(struct store **out, const char *rest, const struct store_options *options, hapax_error *err);
int postgres_open(struct store **out, const char *rest, const struct store_options *options,
                  hapax_error *err);
/* store_migrate() of what stands after the scheme. */
int sqlite_migrate(const char *rest, const struct store_options *options, struct store_migration *m,
                   hapax_error *err);
int postgres_migrate(const char *rest, const struct store_options *options, struct store_migration *m,
                     hapax_error *err);
void sqlite_tune_process(void); /* store_tune_process() */
int fault_open(struct store **out, const char *rest, const struct store_options *options, hapax_error *err);

#endif
