/* libhapax, the calling side: one HTTP request, one key, through every retry.
 *
 *     hapax_open → hapax_call → what it came to → hapax_call_free
 *
 * A server that knows idempotency keys carries a request out once, however often it comes. What is left to the client
 * is to keep the key: a time-out means that nobody knows whether it happened, and only the same key may be sent again.
 * hapax_call() makes the key once and puts it on stable storage before the first byte leaves; sends again with the same
 * key where that can help; obeys Retry-After, otherwise waits a random time in a window that doubles; stores the answer,
 * and gives it again when the operation is asked for again. A later process that names the same operation goes on where
 * this one ended, however that was.
 *
 * Names. `op` names an operation in the store, whatever its key is. Without it the key is the name, within the method
 * and the URL up to its query; a random key then serves this call, and later ones that are given it. Records of a
 * store, as `hapax keys list` shows them, are
 *
 *     scope "hapax call key"          key OP    done: the answer is the key
 *     scope "hapax call"              key OP    done: the answer is the server's, as text of HTTP
 *     scope "hapax call METHOD URL"   key KEY   the same, of an operation without op
 *
 * An op with a '%' or bytes beyond printable ASCII is written there with %XX for each of them; where that is longer than a
 * key may be, its beginning, '~' and a digest follow. A result's record_scope and record_key say it exactly.
 *
 * An operation of which nobody knows whether it happened is an unknown record: calling again goes on with the same key,
 * hapax_resolve() settles it by hand. One that certainly did not happen has no record, but keeps its key. A request is
 * not stored, only a digest of it, but without an op its method and its URL up to the query are the scope, in clear:
 * give one where the path is a secret. What an answer holds (tokens, too) is stored.
 *
 * What counts as the same request: method, URL (its query as a set), media type and body, JSON by meaning, and where the
 * key goes. Other headers may change: credentials do. But to a server that keeps the keys of each account apart, a key
 * from another account is a new one: never change the account of an operation that is unknown.
 *
 * HTTP/1.1; TLS 1.2 or later, verified. Redirects are not followed, proxies not used, cookies not kept.
 *
 * A call blocks its thread, any; a handle may be used by any number at once. SIGPIPE is blocked in that thread meanwhile.
 * What hapax.h says of results, texts, times and fork() holds here. */
#ifndef HAPAX_CLIENT_H
#define HAPAX_CLIENT_H

#include "hapax/hapax.h"

#ifdef __cplusplus
extern "C" {
#endif

#define HAPAX_CALL_OP_BYTES_MAX  200
#define HAPAX_CALL_URL_BYTES_MAX 8192
#define HAPAX_CALL_HEADERS_MAX   100
/* Of the request's headers in all, and of an answer's: one with more counts as broken, whatever its status, and is asked
 * for again. */
#define HAPAX_CALL_HEAD_BYTES_MAX   (64U * 1024U)
#define HAPAX_CALL_BODY_BYTES_MAX   (16U * 1024U * 1024U) /* of the request */
#define HAPAX_CALL_ANSWER_BYTES_MAX (15U * 1024U * 1024U) /* of an answer's body; longer ones are not kept */
#define HAPAX_CALL_ATTEMPTS_MAX     100
#define HAPAX_CALL_DURATION_MS_MAX  (3650LL * 24 * 3600 * 1000) /* of every duration */

typedef struct hapax_call_header {
    const char *name;
    const char *value;
} hapax_call_header;

/* What one attempt has told about the operation. Numbers never change their meaning. */
typedef enum hapax_call_news {
    HAPAX_CALL_DEFINITE = 1, /* its answer is the operation's */
    HAPAX_CALL_NOTHING = 2,  /* certainly not carried out by this attempt: send again */
    HAPAX_CALL_MAYBE = 3,    /* perhaps carried out, or still running: send again, with the same key */
    HAPAX_CALL_REJECTED = 4, /* certainly not carried out, and not before something is changed */
    HAPAX_CALL_HELD = 5      /* the server doesn't know whether it happened, and will not do it by itself */
} hapax_call_news;

/* Its size never changes: it is an element of an array. */
typedef struct hapax_call_attempt {
    int64_t started_ms; /* instant */
    int64_t took_ms;
    int64_t waited_ms; /* before it, since the one before */
    int status;        /* of its answer; 0: none */
    hapax_call_news news;
    char detail[160]; /* one line without key, headers and body: "answered 503", "connection reset" */
} hapax_call_attempt;

/* How a call ended. Numbers never change their meaning. */
typedef enum hapax_call_end {
    HAPAX_CALL_END_ANSWERED = 1, /* the server's answer, now stored (but see `stored`) */
    HAPAX_CALL_END_REPLAYED = 2, /* it was answered before: that answer again, nothing was sent */
    HAPAX_CALL_END_REJECTED =
        3, /* an answer that is not the operation's: 401, 403, a redirect of the request, or a refusal of the
                                    key. Not stored: change what is wrong and call again; but see `maybe_done` */
    HAPAX_CALL_END_MISMATCH =
        4,                   /* the op was used for another request, or with another key. Nothing was sent */
    HAPAX_CALL_END_BUSY = 5, /* another caller is at it, and the time is over. Nothing was sent */
    HAPAX_CALL_END_NOT_DONE = 6, /* gave up; certainly nothing happened */
    HAPAX_CALL_END_UNKNOWN =
        7, /* gave up; nobody knows whether it happened: call again, it goes on with the key */
    HAPAX_CALL_END_HELD = 8, /* the server holds it as unknown: find out there */
    HAPAX_CALL_END_EXPIRED =
        9 /* unknown for longer than the server keeps keys (key_lifetime_ms), or its key is no
                                    longer in the store: sending again could do it twice. Nothing was sent since then */
} hapax_call_end;

/* What a call is about to do, while it goes on. */
typedef enum hapax_call_step {
    HAPAX_CALL_STEP_WAIT = 1, /* another caller is at this operation: wait for its answer */
    HAPAX_CALL_STEP_SEND = 2, /* send attempt `number`; the key is on stable storage */
    HAPAX_CALL_STEP_RETRY =
        3 /* wait for delay_ms, then send attempt `number`; `last` is how the one before ended */
} hapax_call_step;

typedef struct hapax_call_progress {
    hapax_call_step step;
    unsigned number;                /* of the attempt, from 1 */
    int64_t delay_ms;               /* RETRY */
    const char *key;                /* SEND, RETRY; borrowed for the call-back */
    const hapax_call_attempt *last; /* RETRY; borrowed for the call-back */
} hapax_call_progress;

/* Zero-initialise; 0 and NULL mean the default in brackets. All of it is borrowed for the call. */
typedef struct hapax_call_request {
    size_t size;        /* sizeof (hapax_call_request) */
    const char *method; /* POST, ...; case matters */
    const char *url;    /* absolute, http: or https:, without user and fragment */
    const hapax_call_header *headers;
    size_t
        header_count; /* no framing, and not the key. User-Agent and Accept are added where they are missing */
    const void *body;
    size_t body_bytes;

    const char *op;  /* 1 to HAPAX_CALL_OP_BYTES_MAX bytes without control characters [none] */
    const char *key; /* as a header value: bare, or an RFC 8941 string [made: a random UUID, of an op once] */
    const char *
        key_from; /* else where the key is taken from, as in a route of the gateway: json:/invoice/id, header:X,
                             query:x, form:x, or a template such as {json:/invoice}|{json:/step} [nowhere] */
    const char *
        key_header; /* the header that carries it, which has no other meaning (Host, ...) [Idempotency-Key] */
    const char *key_field; /* instead: the JSON Pointer of a member that is put into the JSON body [none] */
    int key_quoted;        /* not 0: the header's value is an RFC 8941 string, "..." [bare where it can be] */

    const char *ca_file;   /* the CA certificates that count, PEM [the system's] */
    unsigned attempts_max; /* 1 to HAPAX_CALL_ATTEMPTS_MAX [8] */
    int64_t
        time_max_ms; /* of the whole call, waiting included; nothing is sent, slept or waited beyond [10 min] */
    int64_t timeout_ms;     /* of one attempt, from its connection to its last byte [30 s] */
    int64_t backoff_ms;     /* window of the first random wait; it doubles from retry to retry [500 ms] */
    int64_t backoff_max_ms; /* up to this. A longer Retry-After is obeyed all the same [30 s] */
    int64_t ttl_ms;         /* how long the answer and the key are kept [30 days] */
    int64_t
        key_lifetime_ms; /* how long the server keeps keys. From the first attempt on, an operation whose outcome is
                                  unknown is not sent again beyond [24 h] */

    void (*progress)(void *ctx,
                     const hapax_call_progress *p); /* on the calling thread; no call on the handle in it */
    void *progress_ctx;
} hapax_call_request;

/* Owned by the caller of hapax_call(): free with hapax_call_free(). Only ever grows at its end; the elements of its arrays
 * (hapax_call_header, hapax_call_attempt) keep their size for ever. */
typedef struct hapax_call_result {
    hapax_call_end end;
    const char *key; /* NULL where none was found or made */

    /* The operation's answer (ANSWERED, REPLAYED), or the last one that came (else); status 0: none. */
    int status;
    const hapax_call_header *headers; /* in the order received, one entry a line */
    size_t header_count;
    const void *body; /* never NULL, followed by a NUL that does not count */
    size_t body_bytes;
    int body_kept; /* 0: longer than HAPAX_CALL_ANSWER_BYTES_MAX; it is neither here nor in the store, status and headers are */

    int stored; /* ANSWERED: 0 when the store took the answer no more; it holds, and calling again sends again, with
                        the same key. Then `err` of hapax_call() says why */
    int maybe_done; /* REJECTED: not 0 when an earlier attempt may have done it, and the operation is unknown. Always for
                        UNKNOWN, HELD and EXPIRED */
    int64_t claimed_ms; /* instant of the operation's first claim; 0 when it has no record */
    int64_t expires_ms; /* instant until which the answer is kept; 0: none is */

    const char *
        record_scope; /* where the operation's record is, or would be, for hapax_lookup() and the like. MISMATCH of an op
                          with another key and without a record (claimed_ms 0): where that key is. Once
                          hapax_forget() has removed it, the op takes the key that it is given */
    const char *record_key; /* NULL, both, where there was no key to name it */

    const hapax_call_attempt *attempts; /* of this call */
    size_t attempt_count;
    int64_t took_ms; /* all of it */
} hapax_call_result;

/* Carry a request out once: see above.
 * *out is NULL after an error, and only then. Before the first attempt an error means that nothing was sent; after it,
 * that the operation is unknown. Durable: the key before a byte leaves, the answer before the call returns.
 * Blocks for up to time_max_ms, and the store's commits.
 * `err` is filled after an error and, unlike elsewhere, after an answer that could not be stored (`stored`); else it is
 * left alone.
 * Results: 0; HAPAX_E_ARGUMENT, HAPAX_E_SYNTAX, HAPAX_E_MISSING, HAPAX_E_LIMIT (the request; `err` says what of it),
 * HAPAX_E_MEMORY, HAPAX_E_SYSTEM, and those of hapax_begin. (Where there is no memory for its table of descriptors, libuv
 * ends the process: the records are made for that, too.) */
HAPAX_API int hapax_call(hapax *h, const hapax_call_request *request, hapax_call_result **out,
                         hapax_error *err);

HAPAX_API void hapax_call_free(hapax_call_result *r); /* NULL is fine */

/* "answered", "replayed", ...; "definite", "maybe", ...: static strings; "unknown-word" for other numbers. */
HAPAX_API const char *hapax_call_end_name(hapax_call_end end);
HAPAX_API const char *hapax_call_news_name(hapax_call_news news);

#ifdef __cplusplus
}
#endif
#endif
