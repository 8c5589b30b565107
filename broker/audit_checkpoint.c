/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/audit_checkpoint.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <mbedtls/base64.h>
#include <mbedtls/md.h>
#include <mbedtls/pk.h>

#define BASE64_BYTES(n) (4 * (((n) + 2) / 3) + 1)

size_t audit_checkpoint_statement(const struct audit_checkpoint *c, char ret_text[AUDIT_STATEMENT_MAX_BYTES])
{
        char previous[AUDIT_HASH_TEXT_BYTES], after[AUDIT_HASH_TEXT_BYTES];
        int n;

        audit_hash_format(&c->previous, previous);
        audit_hash_format(&c->after_hash, after);
        n = snprintf(ret_text, AUDIT_STATEMENT_MAX_BYTES,
                "wbbroker audit checkpoint\nseq %" PRIu64 "\nts %s\nprevious %s\nafter %" PRIu64 " %s\n", c->seq, c->ts,
                previous, c->after, after);
        assert(n > 0 && (size_t)n < AUDIT_STATEMENT_MAX_BYTES);
        return (size_t)n;
}

int audit_checkpoint_digest(const struct audit_checkpoint *c, uint8_t ret_sha256[32])
{
        const mbedtls_md_info_t *sha256 = mbedtls_md_info_from_type(MBEDTLS_MD_SHA256);
        char text[AUDIT_STATEMENT_MAX_BYTES];
        size_t n = audit_checkpoint_statement(c, text);

        return sha256 && mbedtls_md(sha256, (const unsigned char *)text, n, ret_sha256) == 0 ? 0 : -ENOTSUP;
}

/* RFC 5480: all that stands before the 64 bytes of an uncompressed point on P-256. */
static const uint8_t p256_head[] = {0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06,
        0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00, 0x04};

bool audit_key_is_p256(const uint8_t *der, size_t n)
{
        return n == sizeof(p256_head) + 64 && memcmp(der, p256_head, sizeof(p256_head)) == 0;
}

int audit_checkpoint_check(const struct audit_checkpoint *c)
{
        mbedtls_pk_context key;
        uint8_t digest[32];
        int r = audit_checkpoint_digest(c, digest);

        if (r < 0)
                return r;
        mbedtls_pk_init(&key);
        if (!audit_key_is_p256(c->key, c->key_n) || mbedtls_pk_parse_public_key(&key, c->key, c->key_n) != 0 ||
                mbedtls_pk_verify(&key, MBEDTLS_MD_SHA256, digest, sizeof(digest), c->signature, c->signature_n) != 0)
                r = -EKEYREJECTED;
        mbedtls_pk_free(&key);
        return r;
}

size_t audit_checkpoint_line(const struct audit_checkpoint *c, char to[AUDIT_CHECKPOINT_MAX_BYTES])
{
        char previous[AUDIT_HASH_TEXT_BYTES], after[AUDIT_HASH_TEXT_BYTES];
        unsigned char key[BASE64_BYTES(AUDIT_KEY_MAX_BYTES)], signature[BASE64_BYTES(AUDIT_SIGNATURE_MAX_BYTES)];
        size_t unused;
        int n;

        audit_hash_format(&c->previous, previous);
        audit_hash_format(&c->after_hash, after);
        /* There is room for the longest. */
        n = mbedtls_base64_encode(key, sizeof(key), &unused, c->key, c->key_n) +
            mbedtls_base64_encode(signature, sizeof(signature), &unused, c->signature, c->signature_n);
        assert(n == 0);
        n = snprintf(to, AUDIT_CHECKPOINT_MAX_BYTES,
                "{\"seq\":%" PRIu64 ",\"ts\":\"%s\",\"event\":\"%s\",\"previous\":\"%s\",\"after\":%" PRIu64
                ",\"after_hash\":\"%s\",\"key\":\"%s\",\"sig\":\"%s\"",
                c->seq, c->ts, audit_event_name(AUDIT_CHECKPOINT), previous, c->after, after, (const char *)key,
                (const char *)signature);
        assert(n > 0 && (size_t)n < AUDIT_CHECKPOINT_MAX_BYTES);
        return (size_t)n;
}

int audit_base64_parse(const char *text, uint8_t *ret_bytes, size_t room, uint32_t *ret_n)
{
        size_t n = strlen(text), got = 0;

        if (n % 4 != 0 || strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=") != n)
                return -EBADMSG;
        if (mbedtls_base64_decode(ret_bytes, room, &got, (const unsigned char *)text, n) != 0)
                return -EBADMSG;
        *ret_n = (uint32_t)got;
        return 0;
}
