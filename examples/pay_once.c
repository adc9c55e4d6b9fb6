/* pay_once: charge an order once, however often you ask.
 *
 *     pay_once STORE LEDGER ORDER AMOUNT [SECONDS]
 *
 *     pay_once payments.db ledger.txt order-1 10.00
 *
 * STORE is a SQLite file or, for processes on several machines, postgresql://USER@HOST/DATABASE.
 *
 * The "charge" is a line appended to the ledger file, so you can count charges with `wc -l`. SECONDS makes it slow,
 * to have time for experiments:
 *
 *   - Run it twice:      the second run prints the first one's receipt and charges nothing.
 *   - Run it twice at the same time: the second waits for the first and prints its receipt.
 *   - Change the amount: refused, because one order can't mean two things.
 *   - Kill it (kill -9) while it is at work, and run it again: it says that nobody knows whether the
 *     charge happened. It does NOT simply charge again. You look into the ledger, and tell it:
 *
 *         pay_once --happened STORE ORDER RECEIPT     the charge is in the ledger
 *         pay_once --did-not-happen STORE ORDER       it is not: the next run may charge
 *
 * Exit status: 0 charged (now or before), 4 another amount, 75 still running or unknown, 1 failed, 2 usage.
 *
 * Build it against an installed library:  cc pay_once.c $(pkg-config --cflags --libs hapax) */
#include <hapax/hapax.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SCOPE "orders" /* keys of one scope never meet those of another */

enum { EXIT_USAGE = 2, EXIT_OTHER_AMOUNT = 4, EXIT_TRY_LATER = 75 };

static int failed(const char *what, const hapax_error *err)
{
    fprintf(stderr, "pay_once: %s: %s\n", what, err->message);
    return EXIT_FAILURE;
}

static hapax *open_store(const char *store)
{
    char uri[4096];
    hapax *h;
    hapax_error err;
    snprintf(uri, sizeof uri, "%s%s", strstr(store, "://") != NULL ? "" : "sqlite:", store);
    if (hapax_open(&h, uri, NULL, &err) != 0) {
        failed("can't open the store", &err);
        return NULL;
    }
    return h;
}

/* Stands for the call of a payment provider. Returns 0 when the charge certainly did not happen. */
static int charge(const char *ledger, const char *order, const char *amount, const char *seconds,
                  char *receipt, size_t size)
{
    FILE *f = fopen(ledger, "a");
    if (f == NULL) {
        return 0; /* nothing was written */
    }
    fprintf(f, "%s %s\n", order, amount);
    fclose(f);
    sleep((unsigned)strtoul(seconds, NULL, 10)); /* here is where you kill it */
    snprintf(receipt, size, "receipt of %s over %s, charged by process %ld at %lld", order, amount,
             (long)getpid(), (long long)time(NULL));
    return 1;
}

/* FRESH: nobody has done this yet, and nobody else will while we hold the claim. */
static int do_it(hapax *h, const hapax_claim *claim, char **argv, const char *seconds)
{
    hapax_error err;
    char receipt[512];
    if (!charge(argv[2], argv[3], argv[4], seconds, receipt, sizeof receipt)) {
        fprintf(stderr, "pay_once: the ledger can't be written; nothing was charged\n");
        /* It did not happen, so the next run may try. */
        return hapax_release(h, claim, &err) == 0 ? EXIT_FAILURE : failed("can't release", &err);
    }
    /* It happened. Were we to die before the next call has returned, the next run would learn "unknown". */
    if (hapax_complete(h, claim, receipt, strlen(receipt), &err) != 0) {
        return failed("charged, but the receipt could not be stored", &err);
    }
    printf("%s\n", receipt);
    return EXIT_SUCCESS;
}

/* REPLAY, ATTACHED: it was done, by an earlier run or by the one we waited for. */
static int print_receipt(hapax_answer *answer)
{
    size_t bytes;
    const char *receipt = hapax_answer_data(answer, &bytes);
    printf("%.*s (once, not again)\n", (int)bytes, receipt);
    hapax_answer_free(answer);
    return EXIT_SUCCESS;
}

static int pay(hapax *h, char **argv, const char *seconds)
{
    hapax_request request = {
        .size = sizeof request,
        .scope = SCOPE,
        .key =
            argv[3], /* the order's name is the key: chosen before the first try, the same in every retry */
        .content = argv[4], /* what is asked for: the same key with another amount is a mistake */
        .content_bytes = strlen(argv[4]),
        .wait_ms = 60000, /* another run is at it: wait for its receipt */
        .heartbeat = 1,   /* we may take long; as long as this process lives, the claim is ours */
    };
    hapax_result result;
    hapax_error err;
    if (hapax_begin(h, &request, &result, &err) != 0) {
        return failed("nothing was charged", &err);
    }
    switch (result.verdict) {
    case HAPAX_FRESH:
        return do_it(h, &result.claim, argv, seconds);
    case HAPAX_REPLAY:
    case HAPAX_ATTACHED:
        return print_receipt(result.answer);
    case HAPAX_IN_PROGRESS:
        fprintf(stderr, "pay_once: another run is still at it; try again later\n");
        return EXIT_TRY_LATER;
    case HAPAX_MISMATCH:
        fprintf(stderr, "pay_once: %s was already used with another amount\n", argv[3]);
        return EXIT_OTHER_AMOUNT;
    case HAPAX_UNKNOWN:
        break;
    }
    fprintf(
        stderr,
        "pay_once: a run of %s died at work. Look into the ledger, then say --happened or --did-not-happen\n",
        argv[3]);
    return EXIT_TRY_LATER;
}

static int resolve(const char *store, const char *order, const char *receipt)
{
    hapax *h = open_store(store);
    hapax_error err;
    if (h == NULL) {
        return EXIT_FAILURE;
    }
    int code = hapax_resolve(h, SCOPE, order, receipt, receipt != NULL ? strlen(receipt) : 0, &err);
    int status = code == 0 ? EXIT_SUCCESS : failed("can't settle it", &err);
    hapax_close(h);
    return status;
}

int main(int argc, char **argv)
{
    if (argc == 5 && strcmp(argv[1], "--happened") == 0) {
        return resolve(argv[2], argv[3], argv[4]);
    }
    if (argc == 4 && strcmp(argv[1], "--did-not-happen") == 0) {
        return resolve(argv[2], argv[3], NULL);
    }
    if (argc < 5 || argc > 6 || argv[1][0] == '-') {
        fprintf(stderr, "usage: pay_once STORE LEDGER ORDER AMOUNT [SECONDS]\n"
                        "       pay_once --happened STORE ORDER RECEIPT\n"
                        "       pay_once --did-not-happen STORE ORDER\n");
        return EXIT_USAGE;
    }
    hapax *h = open_store(argv[1]);
    if (h == NULL) {
        return EXIT_FAILURE;
    }
    int status = pay(h, argv, argc == 6 ? argv[5] : "0");
    hapax_close(h);
    return status;
}
