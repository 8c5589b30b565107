/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Keys on P-256 (secp256r1) that sign and verify: ECDSA with SHA-256, keys as PEM, signatures in DER, as
 *     openssl dgst -sha256 -verify PUBLIC.pem -signature SIGNATURE FILE
 * has them. Library wb_crypto. Keys of other kinds and of other curves are refused. A key is wiped when it is freed;
 * the PEM text of a private one is the caller's to wipe. One thread at a time uses a key.
 */

#include <stddef.h>
#include <stdint.h>

#include "proto/base/cleanup.h"
#include "proto/base/sha256.h"

#define P256_SIGNATURE_MAX_BYTES 72u /* two INTEGERs of 33 bytes at most in a SEQUENCE (RFC 3279, 2.2.3) */
#define P256_PEM_MAX_BYTES                                                                                             \
        4096u /* of what is read or written; a key's own is below 300, certificates may stand beside */

/* p256_verify(): the signature is not this key's over these bytes. */
#define P256_E_NO 1

struct p256_key;

/* A new private key. 0, -ENOMEM, or -EIO. p256_free() frees each key and takes NULL. */
int p256_make(struct p256_key **ret);

/*
 * From PEM; text has a NUL at text[n]. A private key is unencrypted SEC1 ("EC PRIVATE KEY") or PKCS#8. 0; -EBADMSG if
 * it is no such key or not on P-256; -ENOMEM.
 */
int p256_read_private(const char *text, size_t n, struct p256_key **ret);
int p256_read_public(const char *text, size_t n, struct p256_key **ret);
void p256_free(struct p256_key *key);
DEFINE_CLEANUP(struct p256_key *, p256_free);

/* As PEM, NUL-terminated. 0 or -EIO. */
int p256_write_private(const struct p256_key *key, char ret_text[P256_PEM_MAX_BYTES]);
int p256_write_public(const struct p256_key *key, char ret_text[P256_PEM_MAX_BYTES]);

/* SHA-256 of the public key's DER (SubjectPublicKeyInfo), by which people and files name the key. */
void p256_fingerprint(const struct p256_key *key, uint8_t ret_digest[SHA256_BYTES]);

/* With a private key. 0, -ENOTSUP, or -EIO. */
int p256_sign(const struct p256_key *key, const void *bytes, size_t n, uint8_t ret_signature[P256_SIGNATURE_MAX_BYTES],
        size_t *ret_signature_n);

/* 0, P256_E_NO, or -ENOTSUP. */
int p256_verify(const struct p256_key *key, const void *bytes, size_t n, const uint8_t *signature, size_t signature_n);
