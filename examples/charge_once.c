/* charge_once: ask a payment API for a charge, through time-outs, resets and restarts.
 *
 *     charge_once STORE URL INVOICE AMOUNT
 *
 *     charge_once payments.db https://api.example/v1/charges "invoice 42" 5
 *
 * STORE is a SQLite file, made where there is none. The invoice names the operation: however often this program is run
 * for it, and whatever ended it before, the API sees one key, and the answer is the same.
 *
 * Exit status: 0 charged (now or before), 1 refused by the API, 4 another amount for that invoice, 75 not certain: run it
 * again, 2 usage.
 *
 * Build it against an installed library:  cc charge_once.c $(pkg-config --cflags --libs hapax) */
#include <hapax/client.h>

#include <stdio.h>
#include <string.h>

enum { EXIT_REFUSED = 1, EXIT_USAGE = 2, EXIT_OTHER_REQUEST = 4, EXIT_AGAIN = 75 };

static int report(const hapax_call_result *result)
{
    if (result->end == HAPAX_CALL_END_REJECTED && result->maybe_done) {
        fprintf(stderr,
                "refused (%d), but an earlier attempt may have charged: correct it and run it again, it goes "
                "on with the same key\n",
                result->status);
        return EXIT_AGAIN;
    }
    switch (result->end) {
    case HAPAX_CALL_END_ANSWERED: /* by the API, just now, or */
    case HAPAX_CALL_END_REPLAYED: /* before: from our own store */
    case HAPAX_CALL_END_REJECTED: /* wrong credentials, say: nothing was charged */
        printf("%.*s\n", (int)result->body_bytes, (const char *)result->body);
        return result->status >= 200 && result->status <= 299 ? 0 : EXIT_REFUSED;
    case HAPAX_CALL_END_MISMATCH:
        fprintf(stderr, "that invoice was charged over another amount\n");
        return EXIT_OTHER_REQUEST;
    default:
        fprintf(stderr, "not certain yet (%s): run it again, it goes on with the same key\n",
                hapax_call_end_name(result->end));
        return EXIT_AGAIN;
    }
}

static int charge(hapax *h, char **argv)
{
    char body[256];
    int n = snprintf(body, sizeof body, "{\"invoice\":\"%s\",\"amount\":%s}", argv[3], argv[4]);
    const hapax_call_header headers[] = {{"Content-Type", "application/json"}};
    hapax_call_request request = {
        .size = sizeof request,
        .method = "POST",
        .url = argv[2],
        .headers = headers,
        .header_count = 1,
        .body = body,
        .body_bytes = (size_t)n,
        .op = argv[3], /* chosen before the first try, the same in every retry */
    };
    hapax_error err;
    hapax_call_result *result;
    if (n < 0 || (size_t)n >= sizeof body || hapax_call(h, &request, &result, &err) != 0) {
        fprintf(stderr, "charge_once: %s\n", (size_t)n >= sizeof body ? "too long" : err.message);
        return EXIT_AGAIN;
    }
    int status = report(result);
    hapax_call_free(result);
    return status;
}

int main(int argc, char **argv)
{
    char uri[4096];
    hapax *h;
    hapax_error err;
    if (argc != 5) {
        fprintf(stderr, "usage: charge_once STORE URL INVOICE AMOUNT\n");
        return EXIT_USAGE;
    }
    snprintf(uri, sizeof uri, "sqlite:%s", argv[1]);
    if (hapax_open(&h, uri, NULL, &err) != 0) {
        fprintf(stderr, "charge_once: %s\n", err.message);
        return EXIT_AGAIN;
    }
    int status = charge(h, argv);
    hapax_close(h);
    return status;
}
