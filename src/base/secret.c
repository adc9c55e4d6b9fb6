/* See secret.h. */
#include "base/secret.h"

#include <stdio.h>
#include <string.h>

/* What stands behind "postgres://" or "postgresql://" (also inside of another URI, or behind --store=); NULL: none. */
static const char *after_scheme(const char *uri)
{
    const char *scheme = strstr(uri, "postgres");
    const char *rest = scheme != NULL ? strstr(scheme, "://") : NULL;
    return rest != NULL ? rest + 3 : NULL;
}

bool secret_in_uri(const char *uri)
{
    const char *rest = after_scheme(uri);
    if (rest == NULL) {
        return false;
    }
    const char *colon = strchr(rest, ':');
    return strstr(rest, "password") != NULL || (colon != NULL && strchr(colon, '@') != NULL);
}

void secret_show_uri(char *out, size_t size, const char *uri)
{
    if (!secret_in_uri(uri)) {
        snprintf(out, size, "%s", uri);
        return;
    }
    const char *rest = after_scheme(uri);
    size_t query = strcspn(rest, "?");
    size_t host = query; /* where it begins: behind the last @, which must not be the query's */
    while (host > 0 && rest[host - 1] != '@') {
        host--;
    }
    bool clear = host > 0 && strchr(rest + query, '@') == NULL;
    snprintf(out, size, "%.*s***%s%.*s%s", (int)(rest - uri), uri, clear ? "@" : "",
             clear ? (int)(query - host) : 0, rest + host, clear && rest[query] != '\0' ? "?***" : "");
}

void secret_wipe_uri(char *uri)
{
    if (secret_in_uri(uri)) {
        char *rest = uri + (after_scheme(uri) - uri);
        memset(rest, '*', strlen(rest));
    }
}
