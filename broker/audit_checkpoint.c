/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/audit_checkpoint.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <mbedtls/base64.h>

#include "proto/base/cleanup.h"

#define PEM_BEGIN "-----BEGIN PUBLIC KEY-----\n"
#define PEM_END   "\n-----END PUBLIC KEY-----\n"

#define SIGNATURE_TEXT_BYTES (4 * ((P256_SIGNATURE_MAX_BYTES + 2) / 3) + 1)

size_t audit_checkpoint_statement(const struct audit_checkpoint *c, char ret_text[AUDIT_STATEMENT_MAX_BYTES])
{
        char previous[SHA256_TEXT_BYTES], after[SHA256_TEXT_BYTES];
        int n;

        sha256_text(c->previous.bytes, previous);
        sha256_text(c->after_hash.bytes, after);
        n = snprintf(ret_text, AUDIT_STATEMENT_MAX_BYTES,
                "wbbroker audit checkpoint\nseq %" PRIu64 "\nts %s\nprevious %s\nafter %" PRIu64 " %s\n", c->seq, c->ts,
                previous, c->after, after);
        assert(n > 0 && (size_t)n < AUDIT_STATEMENT_MAX_BYTES);
        return (size_t)n;
}

/* What stands between the lines of the PEM, as one line. */
static int take_key(const struct p256_key *key, struct audit_checkpoint *c)
{
        char pem[P256_PEM_MAX_BYTES];
        size_t n = 0;
        int r = p256_write_public(key, pem);

        if (r < 0)
                return r;
        if (strncmp(pem, PEM_BEGIN, sizeof(PEM_BEGIN) - 1) != 0)
                return -EIO;
        for (const char *p = pem + sizeof(PEM_BEGIN) - 1; *p && *p != '-'; p++) {
                if (*p == '\n')
                        continue;
                if (n == sizeof(c->key) - 1)
                        return -EIO;
                c->key[n++] = *p;
        }
        c->key[n] = '\0';
        return 0;
}

int audit_checkpoint_sign(struct audit_checkpoint *c, const struct p256_key *key)
{
        char text[AUDIT_STATEMENT_MAX_BYTES];
        size_t n = audit_checkpoint_statement(c, text);
        int r = take_key(key, c);

        return r < 0 ? r : p256_sign(key, text, n, c->signature, &c->signature_n);
}

int audit_checkpoint_check(const struct audit_checkpoint *c, uint8_t ret_fingerprint[SHA256_BYTES])
{
        _cleanup_(p256_freep) struct p256_key *key = NULL;
        char pem[sizeof(PEM_BEGIN) + AUDIT_KEY_TEXT_BYTES + sizeof(PEM_END)], text[AUDIT_STATEMENT_MAX_BYTES];
        size_t n = audit_checkpoint_statement(c, text);
        int pem_n = snprintf(pem, sizeof(pem), PEM_BEGIN "%s" PEM_END, c->key);
        int r = p256_read_public(pem, (size_t)pem_n, &key);

        if (r == 0)
                r = p256_verify(key, text, n, c->signature, c->signature_n);
        if (r == 0)
                p256_fingerprint(key, ret_fingerprint);
        return r == P256_E_NO || r == -EBADMSG ? -EKEYREJECTED : r;
}

/* What only a signed one has. */
static int format_signature(const struct audit_checkpoint *c, char *to, size_t room)
{
        unsigned char signature[SIGNATURE_TEXT_BYTES];
        char after[SHA256_TEXT_BYTES];
        size_t unused;
        int n = mbedtls_base64_encode(signature, sizeof(signature), &unused, c->signature, c->signature_n);

        assert(n == 0); /* there is room for the longest */
        sha256_text(c->after_hash.bytes, after);
        return snprintf(to, room, ",\"after\":%" PRIu64 ",\"after_hash\":\"%s\",\"key\":\"%s\",\"sig\":\"%s\"",
                c->after, after, c->key, (const char *)signature);
}

size_t audit_checkpoint_line(const struct audit_checkpoint *c, char to[AUDIT_CHECKPOINT_MAX_BYTES])
{
        char previous[SHA256_TEXT_BYTES];
        int n;

        sha256_text(c->previous.bytes, previous);
        n = snprintf(to, AUDIT_CHECKPOINT_MAX_BYTES,
                "{\"seq\":%" PRIu64 ",\"ts\":\"%s\",\"event\":\"%s\",\"previous\":\"%s\"", c->seq, c->ts,
                audit_event_name(AUDIT_CHECKPOINT), previous);
        if (c->signature_n)
                n += format_signature(c, to + n, AUDIT_CHECKPOINT_MAX_BYTES - (size_t)n);
        assert(n > 0 && (size_t)n < AUDIT_CHECKPOINT_MAX_BYTES);
        return (size_t)n;
}

int audit_checkpoint_parse_signature(const char *text, struct audit_checkpoint *c)
{
        size_t n = strlen(text);

        if (n % 4 != 0 || strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=") != n)
                return -EBADMSG;
        if (mbedtls_base64_decode(
                    c->signature, sizeof(c->signature), &c->signature_n, (const unsigned char *)text, n) != 0)
                return -EBADMSG;
        return 0;
}
