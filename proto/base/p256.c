/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/base/p256.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/random.h>

#include <mbedtls/ecp.h>
#include <mbedtls/entropy.h>
#include <mbedtls/pk.h>
#include <mbedtls/version.h>

#if MBEDTLS_VERSION_MAJOR >= 3 && defined(MBEDTLS_USE_PSA_CRYPTO)
#include <psa/crypto.h>
#endif

/* What precedes the point in the SubjectPublicKeyInfo of an uncompressed key on P-256 (RFC 5480). */
static const uint8_t spki_head[] = {0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06,
        0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00, 0x04};

#define POINT_BYTES 64u
#define SPKI_BYTES  (sizeof(spki_head) + POINT_BYTES)

struct p256_key {
        mbedtls_pk_context pk;
        uint8_t fingerprint[SHA256_BYTES];
};

/* An f_rng: the kernel's numbers, so that there is no generator's state to seed or to copy. */
static int random_bytes(void *none, unsigned char *to, size_t n)
{
        (void)none;
        while (n) {
                ssize_t got = getrandom(to, n, 0);

                if (got < 0 && errno == EINTR)
                        continue;
                if (got <= 0)
                        return MBEDTLS_ERR_ENTROPY_SOURCE_FAILED;
                to += got;
                n -= (size_t)got;
        }
        return 0;
}

static int new_key(struct p256_key **ret)
{
        struct p256_key *key;

#if MBEDTLS_VERSION_MAJOR >= 3 && defined(MBEDTLS_USE_PSA_CRYPTO)
        if (psa_crypto_init() != PSA_SUCCESS)
                return -EIO;
#endif
        key = calloc(1, sizeof(*key));
        if (!key)
                return -ENOMEM;
        mbedtls_pk_init(&key->pk);
        *ret = key;
        return 0;
}

void p256_free(struct p256_key *key)
{
        if (!key)
                return;
        mbedtls_pk_free(&key->pk); /* wipes the key's numbers */
        free(key);
}

/* mbedTLS 2.28 has no const where it only reads. */
static mbedtls_pk_context *pk_of(const struct p256_key *key)
{
        return (mbedtls_pk_context *)(uintptr_t)&key->pk;
}

/* Sets the fingerprint, and refuses what is not on P-256: the curve's name stands in the key's DER. */
static int finish(struct p256_key *key)
{
        uint8_t der[SPKI_BYTES + 64]; /* mbedTLS begins at the end */
        int n = mbedtls_pk_write_pubkey_der(&key->pk, der, sizeof(der));
        const uint8_t *spki = der + sizeof(der) - SPKI_BYTES;

        if (n != (int)SPKI_BYTES || memcmp(spki, spki_head, sizeof(spki_head)) != 0)
                return -EBADMSG;
        return sha256_bytes(spki, SPKI_BYTES, key->fingerprint);
}

int p256_make(struct p256_key **ret)
{
        _cleanup_(p256_freep) struct p256_key *key = NULL;
        int r = new_key(&key);

        if (r < 0)
                return r;
        if (mbedtls_pk_setup(&key->pk, mbedtls_pk_info_from_type(MBEDTLS_PK_ECKEY)) != 0)
                return -ENOMEM;
        if (mbedtls_ecp_gen_key(MBEDTLS_ECP_DP_SECP256R1, mbedtls_pk_ec(key->pk), random_bytes, NULL) != 0)
                return -EIO;
        r = finish(key);
        if (r == 0)
                *ret = STEAL(key);
        return r;
}

static int parse_private(mbedtls_pk_context *pk, const char *text, size_t n)
{
#if MBEDTLS_VERSION_MAJOR >= 3
        return mbedtls_pk_parse_key(pk, (const unsigned char *)text, n + 1, NULL, 0, random_bytes, NULL);
#else
        return mbedtls_pk_parse_key(pk, (const unsigned char *)text, n + 1, NULL, 0);
#endif
}

static int read_key(const char *text, size_t n, bool private, struct p256_key **ret)
{
        _cleanup_(p256_freep) struct p256_key *key = NULL;
        int r = new_key(&key);

        if (r < 0)
                return r;
        if (private)
                r = parse_private(&key->pk, text, n);
        else
                r = mbedtls_pk_parse_public_key(&key->pk, (const unsigned char *)text, n + 1);
        if (r != 0 || !mbedtls_pk_can_do(&key->pk, MBEDTLS_PK_ECDSA))
                return -EBADMSG;
        r = finish(key);
        if (r == 0)
                *ret = STEAL(key);
        return r;
}

int p256_read_private(const char *text, size_t n, struct p256_key **ret)
{
        return read_key(text, n, true, ret);
}

int p256_read_public(const char *text, size_t n, struct p256_key **ret)
{
        return read_key(text, n, false, ret);
}

int p256_write_private(const struct p256_key *key, char ret_text[P256_PEM_MAX_BYTES])
{
        return mbedtls_pk_write_key_pem(pk_of(key), (unsigned char *)ret_text, P256_PEM_MAX_BYTES) == 0 ? 0 : -EIO;
}

int p256_write_public(const struct p256_key *key, char ret_text[P256_PEM_MAX_BYTES])
{
        return mbedtls_pk_write_pubkey_pem(pk_of(key), (unsigned char *)ret_text, P256_PEM_MAX_BYTES) == 0 ? 0 : -EIO;
}

void p256_fingerprint(const struct p256_key *key, uint8_t ret_digest[SHA256_BYTES])
{
        memcpy(ret_digest, key->fingerprint, SHA256_BYTES);
}

static int sign_digest(mbedtls_pk_context *pk, const uint8_t *digest, uint8_t *to, size_t room, size_t *ret_n)
{
#if MBEDTLS_VERSION_MAJOR >= 3
        return mbedtls_pk_sign(pk, MBEDTLS_MD_SHA256, digest, SHA256_BYTES, to, room, ret_n, random_bytes, NULL);
#else
        (void)room;
        return mbedtls_pk_sign(pk, MBEDTLS_MD_SHA256, digest, SHA256_BYTES, to, ret_n, random_bytes, NULL);
#endif
}

int p256_sign(const struct p256_key *key, const void *bytes, size_t n, uint8_t ret_signature[P256_SIGNATURE_MAX_BYTES],
        size_t *ret_signature_n)
{
        uint8_t signature[MBEDTLS_PK_SIGNATURE_MAX_SIZE]; /* what 2.28 may take as given */
        uint8_t digest[SHA256_BYTES];
        size_t signature_n = 0;
        int r = sha256_bytes(bytes, n, digest);

        if (r < 0)
                return r;
        if (sign_digest(pk_of(key), digest, signature, sizeof(signature), &signature_n) != 0 ||
                signature_n > P256_SIGNATURE_MAX_BYTES)
                return -EIO;
        memcpy(ret_signature, signature, signature_n);
        *ret_signature_n = signature_n;
        return 0;
}

int p256_verify(const struct p256_key *key, const void *bytes, size_t n, const uint8_t *signature, size_t signature_n)
{
        uint8_t digest[SHA256_BYTES];
        int r = sha256_bytes(bytes, n, digest);

        if (r < 0)
                return r;
        return mbedtls_pk_verify(pk_of(key), MBEDTLS_MD_SHA256, digest, sizeof(digest), signature, signature_n) == 0
                       ? 0
                       : P256_E_NO;
}
