/* Passwords in the URIs of stores: postgresql://USER:PASSWORD@HOST/DATABASE, or ?password=... behind it. They must reach
 * no log, message or answer, whether the URI is well-formed or not; so what can't be told apart is hidden, too. */
#ifndef BASE_SECRET_H
#define BASE_SECRET_H

#include <stdbool.h>
#include <stddef.h>

#define SECRET_SHOWN_MAX 256

bool secret_in_uri(const char *uri);
/* The URI as it may be shown, cut to size: *** stands for who logs in, and for a query. Without a secret, as it is. */
void secret_show_uri(char *out, size_t size, const char *uri);
/* Overwrite the password in a text that others can read (an argument of the process) with stars. */
void secret_wipe_uri(char *uri);

#endif
