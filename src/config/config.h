/* The configuration: YAML in, immutable structs out.
 *
 * One table (config/table.c) holds every field's name, kind, unit, range, default and sentence; the
 * loader, `hapax check`, docs/CONFIG.md and the dump come from it. An error names file, line and field and says what
 * is allowed; it quotes what the file says, never what a variable or another file holds. All memory belongs to the
 * config and goes with config_free(). A loaded config never changes; a reload makes another.
 *
 * Any value may hold ${NAME} or ${NAME:-default} (environment; $$ is a dollar sign); a text field may be given as
 * `{file: PATH}`, PATH relative to the configuration's folder. Texts are UTF-8 without control characters and at most
 * 4096 bytes long. A loader reads the environment: no setenv() beside it. */
#ifndef CONFIG_CONFIG_H
#define CONFIG_CONFIG_H

#include "base/arena.h"
#include "base/buf.h"
#include "core/key.h"
#include "core/outcome.h"
#include "hapax/error.h"

#include <stdint.h>

enum on_unknown { ON_UNKNOWN_HOLD, ON_UNKNOWN_RETRY, ON_UNKNOWN_PROBE };
enum missing_key { MISSING_REJECT, MISSING_PASS };
enum forwarded { FORWARDED_SET, FORWARDED_KEEP };
enum store_down { STORE_DOWN_CLOSED, STORE_DOWN_OPEN };
enum tenant_kind { TENANT_AUTHORIZATION, TENANT_NONE, TENANT_HEADER, TENANT_QUERY };

/* Bits of methods, for `protect`. */
enum { METHOD_POST = 1, METHOD_PATCH = 2, METHOD_PUT = 4, METHOD_DELETE = 8 };

struct route {
    const char *name;    /* [a-z0-9_-], 1 to 64; unique. In scopes and metric labels. */
    const char *host;    /* lower case; match the Host header without port, without case; NULL: any */
    const char *path;    /* prefix at a segment boundary: "/orders" matches /orders and /orders/7; "/": all */
    const char *to;      /* upstream URL: http(s)://HOST[:PORT][/BASE], no slash at the end */
    const char *ca_file; /* NULL: system */
    unsigned protect;    /* METHOD_*; default POST | PATCH */
    const struct key_source *key; /* default header:Idempotency-Key */
    size_t key_count;
    enum key_syntax key_syntax; /* lenient */
    enum missing_key missing;   /* reject */
    enum tenant_kind tenant;    /* authorization: digest of the Authorization header when present */
    const char *tenant_name;    /* header or query name */
    struct fingerprint_rule fingerprint;
    struct outcome_table outcome;
    enum on_unknown on_unknown;    /* hold */
    const char *probe;             /* URL with {key}, for probe */
    enum store_down store_down;    /* closed */
    const char *forward_key;       /* header the upstream gets the key in, Idempotency-Key; "": none */
    bool keep_set_cookie;          /* false */
    bool preserve_host;            /* true: the client's Host goes upstream */
    enum forwarded forwarded;      /* set */
    int64_t ttl_ms;                /* 24h */
    int64_t lease_ms;              /* 30s; heartbeat every third */
    int64_t wait_ms;               /* 10s */
    int64_t timeout_ms;            /* 60s: upstream, protected requests */
    int64_t connect_ms;            /* 5s */
    int64_t silence_ms;            /* 5m: upstream, streamed (unprotected) requests: longest silence */
    int64_t upstream_idle_ms;      /* 30s: kept-alive upstream connections */
    uint32_t upstream_connections; /* 256: per loop */
    uint64_t body_bytes_max;       /* 8MiB: protected request bodies, as received and decoded */
    uint64_t keep_body_bytes;      /* 1MiB */
    uint32_t running_max;          /* 4096: operations of this route running at once, else 429 */
};

struct config {
    struct arena arena;
    const char *listen;          /* 127.0.0.1:8080 */
    const char *tls_certificate; /* NULL: plain */
    const char *tls_key;
    const char *admin_listen;     /* 127.0.0.1:8081; "off": none */
    const char *store;            /* sqlite:hapax.db */
    bool allow_unsafe_store;      /* false */
    uint32_t threads;             /* loops; 0: one for every two cores */
    uint32_t lanes;               /* 0: the engine's default */
    uint32_t connections_max;     /* 16384 */
    uint32_t head_bytes_max;      /* 32KiB */
    uint32_t headers_max;         /* 128 */
    int64_t head_ms;              /* 10s */
    int64_t idle_ms;              /* 75s */
    int64_t body_ms;              /* 30s */
    int64_t send_ms;              /* 60s */
    uint64_t body_memory_max;     /* 256MiB: all buffered bodies together, else 503 overloaded */
    int64_t shutdown_ms;          /* 30s */
    uint64_t replay_cache_bytes;  /* 32MiB */
    uint32_t waiters_max;         /* 16384 */
    uint32_t waiters_per_key_max; /* 1024 */
    uint32_t queue_max;           /* 65536 */
    int64_t store_busy_ms;        /* 5s */
    const char *log_level;        /* info */
    const char *log_format;       /* text | json */
    const struct route *routes;   /* at least one */
    size_t route_count;
};

/* On error *out is NULL; err->message is one line, "FILE:LINE: FIELD: what is wrong; what is allowed": the first
 * error. A file is at most 1 MiB. HAPAX_E_SYNTAX, HAPAX_E_MISSING (a required field or variable), HAPAX_E_LIMIT,
 * HAPAX_E_SYSTEM (a file can't be read), HAPAX_E_MEMORY. */
int config_load_file(struct config **out, const char *path, hapax_error *err);
/* `name` stands for the file, in messages and as what `{file: PATH}` is relative to. */
int config_load_text(struct config **out, struct slice yaml, const char *name, hapax_error *err);
/* All defaults and one route "default" for "/" to the URL (`hapax serve --to URL`). listen, store and missing (the
 * route's field) may be NULL; texts are taken as they stand (no ${NAME}). Messages begin with "command line: ". Codes
 * as config_load_text(). */
int config_simple(struct config **out, const char *to, const char *listen, const char *store,
                  const char *missing, hapax_error *err);
void config_free(struct config *c); /* NULL is fine */

/* Append docs/CONFIG.md, made from the table. 0, or a code of buf. */
int config_document(struct buf *out);
/* Append the effective configuration (defaults filled in, values of `defaults` in each route) as YAML with durations
 * and sizes in units. Loading it gives an equal config. Secret fields are named, not shown. 0, or a code of buf. */
int config_dump(struct buf *out, const struct config *c);

#endif
