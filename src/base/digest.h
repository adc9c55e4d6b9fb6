/* SHA-256, behind libcrypto. The only hash whose output is stored. */
#ifndef BASE_DIGEST_H
#define BASE_DIGEST_H

#include "base/slice.h"

#include <stddef.h>
#include <stdint.h>

#define DIGEST_BYTES 32

/* 0, or HAPAX_E_MEMORY: only a thread's first digest needs memory. */
int digest_sha256(uint8_t out[DIGEST_BYTES], struct slice data);

/* Length-prefixed parts (8 bytes, big endian, then the bytes of each): ("ab","c") and ("a","bc")
 * differ. As digest_sha256(). */
int digest_parts(uint8_t out[DIGEST_BYTES], const struct slice *parts, size_t n);

/* A fast keyed hash for in-memory tables fed by strangers (SipHash-like strength is enough): mixes a
 * per-process random seed. Never stored. */
uint64_t digest_table_hash(struct slice data);

/* Lower-case hex, NUL-terminated: out holds 2 * len + 1 bytes. */
void digest_hex(char *out, const uint8_t *bytes, size_t len);
/* Returns 0, or HAPAX_E_SYNTAX when text is not exactly 2 * len hex digits. */
int digest_unhex(uint8_t *out, size_t len, struct slice text);

#endif
