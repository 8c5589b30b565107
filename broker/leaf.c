/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/leaf.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <mbedtls/oid.h>

#include "broker/crypto.h"

#define BACKDATED_S    INT64_C(3600)   /* a guest's clock may be behind ours */
#define VALID_S        INT64_C(172800) /* and is not two days ahead of it */
#define USED_S         (VALID_S / 2)   /* then a new one is made, so that none is near its end */
#define NAME_MAX_BYTES 512u            /* of the CA, as text */
#define DER_MAX_BYTES  2048u

/* X.690 and RFC 5280 4.2.1.6: a GeneralName's tag, and with it that of a SEQUENCE. */
#define TAG_SEQUENCE   0x30u
#define TAG_DNS_NAME   0x82u
#define TAG_IP_ADDRESS 0x87u
#define SAN_MAX_BYTES  (HOSTNAME_MAX_BYTES + 8u)
#define CN_MAX_BYTES   64u /* RFC 5280, ub-common-name */

int leaf_mint_init(struct leaf_mint *mint, const struct ca *ca)
{
        size_t n;
        const char *text = ca_text(ca, &n);

        mbedtls_x509_crt_init(&mint->ca);
        mbedtls_pk_init(&mint->ca_key);
        mbedtls_pk_init(&mint->key);
        TAILQ_INIT(&mint->leaves);
        mint->leaves_n = 0;
        if (mbedtls_x509_crt_parse(&mint->ca, (const unsigned char *)text, n) != 0 ||
                crypto_parse_key(&mint->ca_key, text, n) != 0)
                return -EBADMSG;
        return crypto_make_key(&mint->key);
}

static void drop(struct leaf_mint *mint, struct leaf *leaf)
{
        TAILQ_REMOVE(&mint->leaves, leaf, link);
        mint->leaves_n--;
        leaf_unref(leaf);
}

void leaf_mint_done(struct leaf_mint *mint)
{
        while (!TAILQ_EMPTY(&mint->leaves))
                drop(mint, TAILQ_FIRST(&mint->leaves));
        mbedtls_pk_free(&mint->key);
        mbedtls_pk_free(&mint->ca_key);
        mbedtls_x509_crt_free(&mint->ca);
}

void leaf_unref(struct leaf *leaf)
{
        if (!leaf || --leaf->refs)
                return;
        mbedtls_x509_crt_free(&leaf->certificate);
        free(leaf);
}

/* A DER length of at most 65535. */
static size_t put_length(uint8_t *to, size_t n)
{
        size_t at = 0;

        if (n > 255)
                to[at++] = 0x82;
        else if (n > 127)
                to[at++] = 0x81;
        if (n > 255)
                to[at++] = (uint8_t)(n >> 8);
        to[at++] = (uint8_t)n;
        return at;
}

static size_t put_value(uint8_t *to, uint8_t tag, const void *value, size_t n)
{
        size_t at = 0;

        to[at++] = tag;
        at += put_length(to + at, n);
        memcpy(to + at, value, n);
        return at + n;
}

/* SubjectAltName with the one name. */
static size_t write_san(const struct hostname *host, uint8_t ret_san[SAN_MAX_BYTES])
{
        uint8_t name[SAN_MAX_BYTES];
        size_t n;

        if (host->kind == HOST_NAME)
                n = put_value(name, TAG_DNS_NAME, host->text, host->length);
        else
                n = put_value(name, TAG_IP_ADDRESS, host->address, host->kind == HOST_IPV4 ? 4 : 16);
        return put_value(ret_san, TAG_SEQUENCE, name, n);
}

static int add_extensions(mbedtls_x509write_cert *writer, const struct hostname *host)
{
        static const uint8_t server_auth[] = "\x30\x0a\x06\x08" MBEDTLS_OID_SERVER_AUTH;
        uint8_t san[SAN_MAX_BYTES];
        size_t n = write_san(host, san);
        int r = mbedtls_x509write_crt_set_basic_constraints(writer, 0, -1);

        static_assert(sizeof(server_auth) - 1 == 2 + 0x0a, "the OID's length is another");
        if (r == 0)
                r = mbedtls_x509write_crt_set_key_usage(writer, MBEDTLS_X509_KU_DIGITAL_SIGNATURE);
        if (r == 0)
                r = mbedtls_x509write_crt_set_extension(writer, MBEDTLS_OID_EXTENDED_KEY_USAGE,
                        MBEDTLS_OID_SIZE(MBEDTLS_OID_EXTENDED_KEY_USAGE), 0, server_auth, sizeof(server_auth) - 1);
        if (r == 0)
                r = mbedtls_x509write_crt_set_extension(writer, MBEDTLS_OID_SUBJECT_ALT_NAME,
                        MBEDTLS_OID_SIZE(MBEDTLS_OID_SUBJECT_ALT_NAME), 0, san, n);
        if (r == 0)
                r = mbedtls_x509write_crt_set_subject_key_identifier(writer);
        return r == 0 ? mbedtls_x509write_crt_set_authority_key_identifier(writer) : r;
}

static int fill(struct leaf_mint *mint, mbedtls_x509write_cert *writer, const struct hostname *host, int64_t now_s)
{
        char subject[sizeof("CN=") + CN_MAX_BYTES] = "CN=intercepted host", issuer[NAME_MAX_BYTES];
        int r = mbedtls_x509_dn_gets(issuer, sizeof(issuer), &mint->ca.subject);

        if (r < 0)
                return r;
        /* A canonical host has nothing in it that means anything in a distinguished name. */
        if (host->length <= CN_MAX_BYTES)
                (void)snprintf(subject, sizeof(subject), "CN=%.*s", (int)CN_MAX_BYTES, host->text);
        mbedtls_x509write_crt_set_subject_key(writer, &mint->key);
        mbedtls_x509write_crt_set_issuer_key(writer, &mint->ca_key);
        r = crypto_begin_certificate(writer, now_s - BACKDATED_S, now_s + VALID_S);
        if (r == 0)
                r = mbedtls_x509write_crt_set_issuer_name(writer, issuer);
        if (r == 0)
                r = mbedtls_x509write_crt_set_subject_name(writer, subject);
        return r == 0 ? add_extensions(writer, host) : r;
}

/* Signed, and read again as a server will show it. */
static int issue(struct leaf_mint *mint, struct leaf *leaf, const struct hostname *host, int64_t now_s)
{
        unsigned char der[DER_MAX_BYTES];
        mbedtls_x509write_cert writer;
        int n;

        mbedtls_x509write_crt_init(&writer);
        n = fill(mint, &writer, host, now_s);
        if (n == 0)
                n = mbedtls_x509write_crt_der(&writer, der, sizeof(der), crypto_random, NULL);
        mbedtls_x509write_crt_free(&writer);
        if (n <= 0) /* it is written to the end of the room */
                return -EIO;
        return mbedtls_x509_crt_parse_der(&leaf->certificate, der + sizeof(der) - n, (size_t)n) == 0 ? 0 : -EIO;
}

static struct leaf *find(struct leaf_mint *mint, const struct hostname *host)
{
        struct leaf *leaf;

        TAILQ_FOREACH (leaf, &mint->leaves, link)
                if (strcmp(leaf->host, host->text) == 0)
                        return leaf;
        return NULL;
}

static int make(struct leaf_mint *mint, const struct hostname *host, int64_t now_s, struct leaf **ret)
{
        struct leaf *leaf = calloc(1, sizeof(*leaf));
        int r;

        if (!leaf)
                return -ENOMEM;
        leaf->refs = 1;
        leaf->made_s = now_s;
        memcpy(leaf->host, host->text, sizeof(leaf->host));
        mbedtls_x509_crt_init(&leaf->certificate);
        r = issue(mint, leaf, host, now_s);
        if (r < 0) {
                leaf_unref(leaf);
                return r;
        }
        *ret = leaf;
        return 0;
}

int leaf_get(struct leaf_mint *mint, const struct hostname *host, int64_t now_s, struct leaf **ret)
{
        struct leaf *leaf = find(mint, host);
        int r;

        if (leaf && (now_s < leaf->made_s || now_s - leaf->made_s > USED_S)) {
                drop(mint, leaf);
                leaf = NULL;
        }
        if (leaf) {
                TAILQ_REMOVE(&mint->leaves, leaf, link);
        } else {
                r = make(mint, host, now_s, &leaf);
                if (r < 0)
                        return r;
                if (mint->leaves_n == LEAF_CACHE_MAX)
                        drop(mint, TAILQ_LAST(&mint->leaves, leaf_list));
                mint->leaves_n++;
        }
        TAILQ_INSERT_HEAD(&mint->leaves, leaf, link);
        leaf->refs++;
        *ret = leaf;
        return 0;
}
