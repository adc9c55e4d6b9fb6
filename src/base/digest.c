#include "base/digest.h"

#include "base/assert.h"
#include "hapax/error.h"

#include <openssl/err.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/random.h>
#include <time.h>

/* Fetching an algorithm by name takes libcrypto a lock and a look-up each time: do it once, and keep a
 * context per thread, which is what EVP wants. A thread's first digest allocates; later ones don't. */
static _Atomic(EVP_MD *) sha256;
static pthread_key_t context_key;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static uint64_t table_seed[2];
static _Thread_local EVP_MD_CTX *context;

static void context_free(void *p)
{
    EVP_MD_CTX_free(p);
}

static void setup(void)
{
    HAPAX_ASSERT(pthread_key_create(&context_key, context_free) == 0);
    if (getrandom(table_seed, sizeof table_seed, 0) != (ssize_t)sizeof table_seed) {
        table_seed[0] = (uint64_t)time(NULL) * 0x9e3779b97f4a7c15U;
        table_seed[1] = (uint64_t)(uintptr_t)&table_seed;
    }
}

/* The algorithm; NULL: no memory, this time. */
static EVP_MD *fetch(void)
{
    EVP_MD *found = atomic_load_explicit(&sha256, memory_order_acquire);
    if (found != NULL) {
        return found;
    }
    EVP_MD *mine = EVP_MD_fetch(NULL, "SHA256", NULL);
    if (mine != NULL && !atomic_compare_exchange_strong(&sha256, &found, mine)) {
        EVP_MD_free(mine); /* another thread was first */
        return found;
    }
    return mine;
}

/* This thread's context, ready for a new digest; NULL: no memory. */
static EVP_MD_CTX *begin(void)
{
    pthread_once(&once, setup);
    const EVP_MD *algorithm = fetch();
    if (context == NULL) {
        EVP_MD_CTX *fresh = EVP_MD_CTX_new();
        if (fresh == NULL || pthread_setspecific(context_key, fresh) != 0) {
            EVP_MD_CTX_free(fresh);
            return NULL;
        }
        context = fresh;
    }
    if (algorithm == NULL || EVP_DigestInit_ex2(context, algorithm, NULL) != 1) {
        ERR_clear_error(); /* what stays in the queue, TLS on this thread would take for its own */
        return NULL;
    }
    return context;
}

static void add(EVP_MD_CTX *c, const void *ptr, size_t len)
{
    HAPAX_ASSERT(EVP_DigestUpdate(c, ptr, len) == 1);
}

int digest_sha256(uint8_t out[DIGEST_BYTES], struct slice data)
{
    EVP_MD_CTX *c = begin();
    if (c == NULL) {
        return HAPAX_E_MEMORY;
    }
    add(c, data.ptr, data.len);
    HAPAX_ASSERT(EVP_DigestFinal_ex(c, out, NULL) == 1);
    return 0;
}

int digest_parts(uint8_t out[DIGEST_BYTES], const struct slice *parts, size_t n)
{
    EVP_MD_CTX *c = begin();
    if (c == NULL) {
        return HAPAX_E_MEMORY;
    }
    for (size_t i = 0; i < n; i++) {
        uint8_t prefix[8];
        for (size_t b = 0; b < sizeof prefix; b++) {
            prefix[b] = (uint8_t)((uint64_t)parts[i].len >> (56 - 8 * b));
        }
        add(c, prefix, sizeof prefix);
        add(c, parts[i].ptr, parts[i].len);
    }
    HAPAX_ASSERT(EVP_DigestFinal_ex(c, out, NULL) == 1);
    return 0;
}

uint64_t digest_table_hash(struct slice data)
{
    pthread_once(&once, setup);
    uint64_t h = table_seed[0] ^ data.len;
    size_t i = 0;
    for (; i + 8 <= data.len; i += 8) {
        uint64_t word;
        memcpy(&word, data.ptr + i, 8);
        __uint128_t m = (__uint128_t)(h ^ word) * (table_seed[1] | 1);
        h = (uint64_t)m ^ (uint64_t)(m >> 64);
    }
    uint64_t word = 0;
    if (i < data.len) {
        memcpy(&word, data.ptr + i, data.len - i);
    }
    __uint128_t m = (__uint128_t)(h ^ word ^ 0x9e3779b97f4a7c15U) * (table_seed[1] | 1);
    return (uint64_t)m ^ (uint64_t)(m >> 64);
}

void digest_hex(char *out, const uint8_t *bytes, size_t len)
{
    static const char hex[] = "0123456789abcdef";
    for (size_t i = 0; i < len; i++) {
        out[2 * i] = hex[bytes[i] >> 4];
        out[2 * i + 1] = hex[bytes[i] & 15];
    }
    out[2 * len] = '\0';
}

static int nibble(char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    c = ascii_lower(c);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int digest_unhex(uint8_t *out, size_t len, struct slice text)
{
    if (text.len != 2 * len) {
        return HAPAX_E_SYNTAX;
    }
    for (size_t i = 0; i < len; i++) {
        int high = nibble(text.ptr[2 * i]);
        int low = nibble(text.ptr[2 * i + 1]);
        if (high < 0 || low < 0) {
            return HAPAX_E_SYNTAX;
        }
        out[i] = (uint8_t)(high * 16 + low);
    }
    return 0;
}
