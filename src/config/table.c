/* The fields, in the order of the documentation. One row a field; see table.h for the columns. */
#include "config/table.h"

#include "base/limits.h"

#define MEMBER(type, member) .offset = offsetof(struct type, member), .size = sizeof((struct type *)0)->member
#define MORE(type, member)                                                                                   \
    .offset_more = offsetof(struct type, member), .size_more = sizeof((struct type *)0)->member
#define COUNT(a) (sizeof(a) / sizeof(a)[0])

#define KIB    ((uint64_t)1 << 10)
#define MIB    ((uint64_t)1 << 20)
#define GIB    ((uint64_t)1 << 30)
#define SECOND ((uint64_t)1000)
#define MINUTE (60 * SECOND)
#define HOUR   (60 * MINUTE)
#define DAY    (24 * HOUR)

static const char *const level_words[] = {"debug", "info", "warn", "error", NULL};
static const char *const format_words[] = {"text", "json", NULL};
/* Positions are the enums' numbers. */
static const char *const syntax_words[] = {[KEY_LENIENT] = "lenient", [KEY_STRICT] = "strict", NULL};
static const char *const missing_words[] = {[MISSING_REJECT] = "reject", [MISSING_PASS] = "pass", NULL};
static const char *const unknown_words[] = {
    [ON_UNKNOWN_HOLD] = "hold", [ON_UNKNOWN_RETRY] = "retry", [ON_UNKNOWN_PROBE] = "probe", NULL};
static const char *const forwarded_words[] = {[FORWARDED_SET] = "set", [FORWARDED_KEEP] = "keep", NULL};
static const char *const down_words[] = {[STORE_DOWN_CLOSED] = "closed", [STORE_DOWN_OPEN] = "open", NULL};

static const struct field process_fields[] = {
    {.name = "listen",
     .kind = KIND_ADDRESS,
     MEMBER(config, listen),
     .standard = "127.0.0.1:8080",
     .meaning = "Where clients connect. `:8080` listens on every address; port 0 takes a free one.",
     .example = "0.0.0.0:8080"},
    {.name = "tls.certificate",
     .kind = KIND_FILE,
     MEMBER(config, tls_certificate),
     .meaning =
         "PEM file with the certificate and its chain; clients then speak https. Read again at a reload.",
     .example = "/etc/hapax/tls/fullchain.pem"},
    {.name = "tls.key",
     .kind = KIND_FILE,
     MEMBER(config, tls_key),
     .meaning = "PEM file with the certificate's private key.",
     .example = "/etc/hapax/tls/key.pem"},
    {.name = "admin.listen",
     .kind = KIND_ADDRESS_OFF,
     MEMBER(config, admin_listen),
     .standard = "127.0.0.1:8081",
     .meaning = "Where metrics, health and the admin API are served. It has no log-in: keep it on a private "
                "address. `off` serves none.",
     .example = "127.0.0.1:8081"},
    {.name = "store",
     .kind = KIND_STORE,
     MEMBER(config, store),
     .standard = "sqlite:hapax.db",
     .meaning = "Where records are kept: `sqlite:PATH`, `postgresql://USER@HOST:PORT/DATABASE` (libpq's URI; "
                "several hosts may stand in it), or `memory:` (gone with the process, for tests). "
                "`fault:SPEC:URI` makes another store fail on purpose.",
     .example = "sqlite:/var/lib/hapax/gateway.db"},
    {.name = "allow_unsafe_store",
     .kind = KIND_BOOL,
     MEMBER(config, allow_unsafe_store),
     .standard = "false",
     .meaning =
         "Start also on a PostgreSQL whose `fsync`, `full_page_writes` or `synchronous_commit` is off, with "
         "a warning in the log. What was acknowledged may then be lost, and executed again: for tests.",
     .example = "false"},
    {.name = "threads",
     .kind = KIND_COUNT,
     MEMBER(config, threads),
     .standard = "0",
     .min = 0,
     .max = 256,
     .meaning = "Threads that serve connections. 0: one for every two cores.",
     .example = "2"},
    {.name = "lanes",
     .kind = KIND_COUNT,
     MEMBER(config, lanes),
     .standard = "0",
     .min = 0,
     .max = 64,
     .meaning = "Connections over which operations go to a PostgreSQL store. 0: one for every two cores, at "
                "most 4. Few share commits better; more keep a far server busy. SQLite has one.",
     .example = "4"},
    {.name = "log.level",
     .kind = KIND_WORD,
     MEMBER(config, log_level),
     .standard = "info",
     .words = level_words,
     .meaning = "The least severe event that is logged.",
     .example = "info"},
    {.name = "log.format",
     .kind = KIND_WORD,
     MEMBER(config, log_format),
     .standard = "text",
     .words = format_words,
     .meaning = "One line of text or one JSON object for each event, on stderr.",
     .example = "json"},
};

static const struct field timeout_fields[] = {
    {.name = "timeouts.header",
     .kind = KIND_DURATION,
     MEMBER(config, head_ms),
     .standard = "10s",
     .min = 10,
     .max = 10 * MINUTE,
     .meaning = "From the first byte of a request to the end of its header.",
     .example = "10s"},
    {.name = "timeouts.body",
     .kind = KIND_DURATION,
     MEMBER(config, body_ms),
     .standard = "30s",
     .min = 10,
     .max = HOUR,
     .meaning = "Longest silence of a client in the middle of a body.",
     .example = "30s"},
    {.name = "timeouts.send",
     .kind = KIND_DURATION,
     MEMBER(config, send_ms),
     .standard = "60s",
     .min = 10,
     .max = HOUR,
     .meaning = "Longest time in which a client takes nothing of an answer that is being sent.",
     .example = "60s"},
    {.name = "timeouts.keepalive",
     .kind = KIND_DURATION,
     MEMBER(config, idle_ms),
     .standard = "75s",
     .min = 10,
     .max = HOUR,
     .meaning = "How long a client's connection stays open without a request.",
     .example = "75s"},
    {.name = "timeouts.store",
     .kind = KIND_DURATION,
     MEMBER(config, store_busy_ms),
     .standard = "5s",
     .min = 1,
     .max = 10 * MINUTE,
     .meaning = "Longest wait for another process's lock on the store; then the store counts as down.",
     .example = "5s"},
    {.name = "timeouts.shutdown",
     .kind = KIND_DURATION,
     MEMBER(config, shutdown_ms),
     .standard = "30s",
     .min = 0,
     .max = HOUR,
     .meaning = "How long a stop waits for running requests before it breaks them off.",
     .example = "30s"},
};

static const struct field limit_fields[] = {
    {.name = "limits.connections",
     .kind = KIND_COUNT,
     MEMBER(config, connections_max),
     .standard = "16384",
     .min = 1,
     .max = 1000000,
     .meaning = "Clients' connections open at once; beyond it, new ones wait in the system's queue.",
     .example = "16384"},
    {.name = "limits.header_size",
     .kind = KIND_SIZE,
     MEMBER(config, head_bytes_max),
     .standard = "32KiB",
     .min = KIB,
     .max = MIB,
     .meaning = "Bytes of a request's line and headers together, else 431.",
     .example = "32KiB"},
    {.name = "limits.header_count",
     .kind = KIND_COUNT,
     MEMBER(config, headers_max),
     .standard = "128",
     .min = 8,
     .max = LIMIT_HEADERS_MAX,
     .meaning = "Header lines of a request, else 431.",
     .example = "128"},
    {.name = "limits.body_memory",
     .kind = KIND_SIZE,
     MEMBER(config, body_memory_max),
     .standard = "256MiB",
     .min = 64 * KIB,
     .max = 1024 * GIB,
     .meaning =
         "Memory of all request and answer bodies that are held at once; beyond it, new requests get 503. "
         "Answers may take a quarter more, of which each operation reserves 16KiB (`keep_body`, if that is "
         "less) before it is sent; one that needs more and finds no room is not kept.",
     .example = "256MiB"},
    {.name = "limits.waiters",
     .kind = KIND_COUNT,
     MEMBER(config, waiters_max),
     .standard = "16384",
     .min = 1,
     .max = 1000000,
     .meaning = "Duplicates that wait for a running first one, all keys together; others get 409 at once.",
     .example = "16384"},
    {.name = "limits.waiters_per_key",
     .kind = KIND_COUNT,
     MEMBER(config, waiters_per_key_max),
     .standard = "1024",
     .min = 1,
     .max = 1000000,
     .meaning = "The same for one key.",
     .example = "1024"},
    {.name = "limits.queue",
     .kind = KIND_COUNT,
     MEMBER(config, queue_max),
     .standard = "65536",
     .min = 1,
     .max = 10000000,
     .meaning = "Operations that are with the store and not yet answered, waiters included; beyond it, 503.",
     .example = "65536"},
    {.name = "limits.replay_cache",
     .kind = KIND_SIZE,
     MEMBER(config, replay_cache_bytes),
     .standard = "32MiB",
     .min = 0,
     .max = 1024 * GIB,
     .meaning = "Memory for answers that are replayed without asking the store. 0: every replay asks it.",
     .example = "32MiB"},
};

static const struct field routing_fields[] = {
    {.name = "defaults",
     .kind = KIND_ROUTE_DEFAULTS,
     .meaning =
         "Route fields that hold for every route that does not set them itself; any but `name` and `path`."},
    {.name = "routes",
     .kind = KIND_ROUTES,
     .flags = FIELD_REQUIRED,
     MEMBER(config, routes),
     MORE(config, route_count),
     .meaning =
         "The routes: at least one. The longest matching path wins, a route with the request's host before "
         "one without."},
};

static const struct field match_fields[] = {
    {.name = "name",
     .kind = KIND_NAME,
     .flags = FIELD_REQUIRED | FIELD_OWN,
     MEMBER(route, name),
     .meaning =
         "What the route is called in metrics and in the scope of its keys. A new name is a new namespace: "
         "keys seen under the old one are not found under it.",
     .example = "orders"},
    {.name = "host",
     .kind = KIND_HOST,
     MEMBER(route, host),
     .meaning = "Only requests for this host, compared without port and case. Without it, any host.",
     .example = "shop.example.com"},
    {.name = "path",
     .kind = KIND_PATH,
     .flags = FIELD_OWN,
     MEMBER(route, path),
     .standard = "/",
     .meaning = "Only requests below this path: `/orders` matches `/orders` and `/orders/7`, not `/orders2`.",
     .example = "/orders"},
    {.name = "to",
     .kind = KIND_URL,
     .flags = FIELD_REQUIRED,
     MEMBER(route, to),
     .meaning = "The upstream. A base path is put before every request's path.",
     .example = "https://shop.internal:8443/api"},
    {.name = "ca",
     .kind = KIND_FILE,
     MEMBER(route, ca_file),
     .meaning =
         "PEM file with the authorities an https upstream's certificate is checked against. Without it, the "
         "system's.",
     .example = "/etc/hapax/tls/ca.pem"},
    {.name = "preserve_host",
     .kind = KIND_BOOL,
     MEMBER(route, preserve_host),
     .standard = "true",
     .meaning = "The upstream gets the client's `Host` header; `false`: the host of `to`.",
     .example = "true"},
    {.name = "forwarded",
     .kind = KIND_ENUM,
     MEMBER(route, forwarded),
     .standard = "set",
     .words = forwarded_words,
     .meaning = "`X-Forwarded-Proto` and `X-Forwarded-Host` for the upstream: `set` writes the gateway's own "
                "over those "
                "that came; `keep` passes those on, for a gateway that only a proxy of one's own can reach, "
                "and writes "
                "them where there are none. The client's address is added to `X-Forwarded-For` either way.",
     .example = "set"},
};

static const struct field key_fields[] = {
    {.name = "protect",
     .kind = KIND_METHODS,
     MEMBER(route, protect),
     .standard = "[POST, PATCH]",
     .meaning = "Methods whose requests take effect once. Others pass through untouched; `[]` protects none.",
     .example = "[POST, PATCH]"},
    {.name = "key",
     .kind = KIND_KEY,
     MEMBER(route, key),
     MORE(route, key_count),
     .standard = "header:Idempotency-Key",
     .meaning =
         "Where an operation's key comes from: `header:NAME`, `query:NAME`, `json:/POINTER`, `form:NAME`, a "
         "template such as `{json:/order_id}|ship|{json:/step}`, or a list of them; the first one present "
         "decides.",
     .example = "[\"header:Idempotency-Key\", \"{json:/order_id}|{json:/step}\"]"},
    {.name = "key_syntax",
     .kind = KIND_ENUM,
     MEMBER(route, key_syntax),
     .standard = "lenient",
     .words = syntax_words,
     .meaning = "`strict` takes a header's key only in quotes, as RFC 8941 wants it; `lenient` also without.",
     .example = "lenient"},
    {.name = "missing",
     .kind = KIND_ENUM,
     MEMBER(route, missing),
     .standard = "reject",
     .words = missing_words,
     .meaning = "What becomes of a protected request without a key: 400, or passed on unprotected.",
     .example = "reject"},
    {.name = "tenant",
     .kind = KIND_TENANT,
     MEMBER(route, tenant),
     MORE(route, tenant_name),
     .standard = "authorization",
     .meaning =
         "What keeps clients' keys apart: a digest of the `Authorization` header when there is one "
         "(`authorization`), another header (`header:NAME`), a query parameter (`query:NAME`), or nothing "
         "(`none`). With `authorization` a retry with a renewed token is executed again: where tokens are "
         "renewed, use a header with the account that is set in front of the gateway and can't be forged. "
         "Hosts that share a route share keys: give each a route of its own (`host`), or take `header:Host`, "
         "the name as it is sent, in place of the credentials.",
     .example = "header:X-Account"},
    {.name = "forward_key",
     .kind = KIND_HEADER,
     MEMBER(route, forward_key),
     .standard = "Idempotency-Key",
     .meaning = "The header in which the upstream gets the key; `none` does not send it. Not one that the "
                "gateway itself removes or writes.",
     .example = "Idempotency-Key"},
    {.name = "fingerprint",
     .kind = KIND_FINGERPRINT,
     MEMBER(route, fingerprint),
     .standard = "auto",
     .meaning =
         "What must be the same for two requests with one key to be the same operation (else 422). `auto`: "
         "method, path, query and content, JSON and forms by meaning; `bytes`: the body as it stands; "
         "`{fields: [/a, /b]}`: only these JSON values; `none`: nothing.",
     .example = "auto"},
    {.name = "ignore",
     .kind = KIND_IGNORE,
     MEMBER(route, fingerprint.ignore),
     MORE(route, fingerprint.ignore_count),
     .standard = "[]",
     .meaning =
         "JSON pointers (or `/NAME` of form fields) that `auto` leaves out, because the sender changes them "
         "on a retry.",
     .example = "[/sent_at, /signature]"},
};

static const struct field outcome_fields[] = {
    {.name = "outcome",
     .kind = KIND_OUTCOME,
     MEMBER(route, outcome),
     .standard = "{}",
     .meaning =
         "What an upstream's status says about the operation, where it differs from the rule: 401, 403, 408, "
         "421, 425, 429 and 503 are `released` (not executed), 502 and 504 are `unknown`, all others are "
         "`done`. Names are a status, a class (`5xx`) or a range (`400-499`); the narrower one wins.",
     .example = "{429: done, 5xx: unknown}"},
    {.name = "on_unknown",
     .kind = KIND_ENUM,
     MEMBER(route, on_unknown),
     .standard = "hold",
     .words = unknown_words,
     .meaning =
         "What becomes of a duplicate when nobody knows whether the first one took effect: `hold` answers "
         "409 until it is resolved, `probe` asks a URL, `retry` sends it again with the same key (only for "
         "upstreams that recognise the key themselves).",
     .example = "probe"},
    {.name = "probe",
     .kind = KIND_PROBE,
     MEMBER(route, probe),
     .meaning = "The URL that `on_unknown: probe` asks; `{key}` is the key, percent-encoded.",
     .example = "https://shop.internal:8443/api/orders/by-key/{key}"},
    {.name = "store_down",
     .kind = KIND_ENUM,
     MEMBER(route, store_down),
     .standard = "closed",
     .words = down_words,
     .meaning =
         "While the store can't be written: `closed` answers 503 and forwards nothing, `open` forwards "
         "without protection.",
     .example = "closed"},
    {.name = "keep_set_cookie",
     .kind = KIND_BOOL,
     MEMBER(route, keep_set_cookie),
     .standard = "false",
     .meaning = "Stored answers keep `Set-Cookie`: whoever repeats the request gets the first one's cookies.",
     .example = "false"},
    {.name = "ttl",
     .kind = KIND_DURATION,
     MEMBER(route, ttl_ms),
     .standard = "24h",
     .min = 100,
     .max = 3650 * DAY,
     .meaning = "How long an answer is kept and replayed, from the first request on.",
     .example = "24h"},
    {.name = "lease",
     .kind = KIND_DURATION,
     MEMBER(route, lease_ms),
     .standard = "30s",
     .min = 100,
     .max = HOUR,
     .meaning =
         "How long after the last sign of life of the process that runs it an operation becomes unknown. "
         "Extended every third of it; not more than `ttl`.",
     .example = "30s"},
    {.name = "wait",
     .kind = KIND_DURATION,
     MEMBER(route, wait_ms),
     .standard = "10s",
     .min = 0,
     .max = 10 * MINUTE,
     .meaning = "How long a duplicate waits for the first one's answer before it gets 409. 0: not at all.",
     .example = "10s"},
};

static const struct field upstream_fields[] = {
    {.name = "timeout",
     .kind = KIND_DURATION,
     MEMBER(route, timeout_ms),
     .standard = "60s",
     .min = 10,
     .max = DAY,
     .meaning = "For protected requests: from sending to the end of the upstream's answer, or to where it "
                "goes on as a stream. After it the outcome is unknown. A request that waits that long for a "
                "connection, or until its lease ends, is not sent.",
     .example = "60s"},
    {.name = "connect_timeout",
     .kind = KIND_DURATION,
     MEMBER(route, connect_ms),
     .standard = "5s",
     .min = 10,
     .max = 10 * MINUTE,
     .meaning = "For a connection to the upstream, TLS included.",
     .example = "5s"},
    {.name = "stream_timeout",
     .kind = KIND_DURATION,
     MEMBER(route, silence_ms),
     .standard = "5m",
     .min = 0,
     .max = DAY,
     .meaning = "For requests that pass through and answers that are streamed: longest time without a byte "
                "in either "
                "direction. 0: no limit.",
     .example = "5m"},
    {.name = "upstream_keepalive",
     .kind = KIND_DURATION,
     MEMBER(route, upstream_idle_ms),
     .standard = "30s",
     .min = 0,
     .max = HOUR,
     .meaning =
         "How long an unused connection to the upstream is kept. Shorter than the upstream's own time.",
     .example = "30s"},
    {.name = "upstream_connections",
     .kind = KIND_COUNT,
     MEMBER(route, upstream_connections),
     .standard = "256",
     .min = 1,
     .max = 65536,
     .meaning = "Connections to the upstream for each thread; further requests wait.",
     .example = "256"},
    {.name = "body_size",
     .kind = KIND_SIZE,
     MEMBER(route, body_bytes_max),
     .standard = "8MiB",
     .min = 0,
     .max = GIB,
     .meaning = "Body of a protected request, as received and after decompression, else 413. Not more than "
                "`limits.body_memory`.",
     .example = "8MiB"},
    {.name = "keep_body",
     .kind = KIND_SIZE,
     MEMBER(route, keep_body_bytes),
     .standard = "1MiB",
     .min = 0,
     .max = 16 * MIB,
     .meaning =
         "Largest answer that is stored. A larger one reaches the first client only; duplicates get 409, "
         "never a second execution.",
     .example = "1MiB"},
    {.name = "running",
     .kind = KIND_COUNT,
     MEMBER(route, running_max),
     .standard = "4096",
     .min = 1,
     .max = 1000000,
     .meaning = "Operations of this route that run at once; beyond it, 429.",
     .example = "4096"},
};

#define GROUP(rows, title_, intro_)                                                                          \
    {                                                                                                        \
        .title = title_, .intro = intro_, .fields = rows, .count = COUNT(rows)                               \
    }

static const struct group config_groups[] = {
    GROUP(process_fields, "The process", NULL),
    GROUP(timeout_fields, "Times of clients", NULL),
    GROUP(limit_fields, "Limits of the process",
          "Everything that can grow has a limit, and a clear answer beyond it."),
    GROUP(routing_fields, "Routes", NULL),
};

static const struct group route_groups[] = {
    GROUP(match_fields, "A route: which requests, and where to", NULL),
    GROUP(key_fields, "A route: key and content", NULL),
    GROUP(outcome_fields, "A route: outcome and answers", NULL),
    GROUP(upstream_fields, "A route: upstream and limits", NULL),
};

const struct table config_table = {config_groups, COUNT(config_groups)};
const struct table route_table = {route_groups, COUNT(route_groups)};

const struct field *table_next(const struct table *t, const struct field *f)
{
    for (size_t i = 0; i < t->group_count; i++) {
        const struct group *g = &t->groups[i];
        if (f == NULL) {
            return g->fields;
        }
        if (f >= g->fields && f < g->fields + g->count - 1) {
            return f + 1;
        }
        if (f == g->fields + g->count - 1) {
            f = NULL; /* the first of the next group */
        }
    }
    return NULL;
}

const struct field *config_field_find(const struct table *t, struct slice name)
{
    const struct field *f = table_next(t, NULL);
    while (f != NULL && !slice_equal(slice_text(f->name), name)) {
        f = table_next(t, f);
    }
    return f;
}

bool table_has_group(const struct table *t, struct slice name)
{
    for (const struct field *f = table_next(t, NULL); f != NULL; f = table_next(t, f)) {
        if (slice_starts_with(slice_text(f->name), name) && f->name[name.len] == '.') {
            return true;
        }
    }
    return false;
}
