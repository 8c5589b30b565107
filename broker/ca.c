/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/ca.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <mbedtls/x509_crt.h>

#include "broker/crypto.h"
#include "proto/base/cleanup.h"
#include "proto/base/clock.h"
#include "proto/base/sha256.h"
#include "proto/base/wipe.h"

#define CA_YEARS       10
#define YEAR_S         INT64_C(31557600)
#define BACKDATED_S    INT64_C(86400) /* clocks of guests and of whoever looks at the certificate differ */
#define KEY_BEGINS     "-----BEGIN EC PRIVATE KEY-----"
#define PEM_ROOM_BYTES 4096u

struct ca {
        unsigned refs;
        char *certificate;
        char *text; /* locked */
        size_t text_n;
        char fingerprint[SHA256_TEXT_BYTES];
        char not_before[CA_TIME_BYTES];
        char not_after[CA_TIME_BYTES];
};

/* ---- making one */

/* CAs that came one after the other have different names, so that no client takes one's signature for the other's. */
static int make_name(char ret_name[96])
{
        uint32_t number;
        int r = crypto_random(NULL, (unsigned char *)&number, sizeof(number));

        (void)snprintf(ret_name, 96, "CN=wbbroker interception CA %08" PRIx32 ",O=wbbroker", number);
        return r;
}

static int fill(mbedtls_x509write_cert *writer, mbedtls_pk_context *key)
{
        int64_t now_s = (int64_t)(clock_realtime_ns() / NSEC_PER_SEC);
        char name[96];
        int r = make_name(name);

        mbedtls_x509write_crt_set_subject_key(writer, key);
        mbedtls_x509write_crt_set_issuer_key(writer, key);
        if (r == 0)
                r = crypto_begin_certificate(writer, now_s - BACKDATED_S, now_s + CA_YEARS * YEAR_S);
        if (r == 0)
                r = mbedtls_x509write_crt_set_subject_name(writer, name);
        if (r == 0)
                r = mbedtls_x509write_crt_set_issuer_name(writer, name);
        if (r == 0)
                r = mbedtls_x509write_crt_set_basic_constraints(writer, 1, 0); /* signs leaves alone */
        if (r == 0)
                r = mbedtls_x509write_crt_set_key_usage(writer, MBEDTLS_X509_KU_KEY_CERT_SIGN);
        if (r == 0)
                r = mbedtls_x509write_crt_set_subject_key_identifier(writer);
        return r;
}

/* Both PEMs one behind the other. */
static int write_text(mbedtls_pk_context *key, char *to, size_t room)
{
        mbedtls_x509write_cert writer;
        int r;

        mbedtls_x509write_crt_init(&writer);
        r = fill(&writer, key);
        if (r == 0)
                r = mbedtls_x509write_crt_pem(&writer, (unsigned char *)to, room, crypto_random, NULL);
        if (r == 0)
                r = mbedtls_pk_write_key_pem(key, (unsigned char *)to + strlen(to), room - strlen(to));
        mbedtls_x509write_crt_free(&writer);
        return r;
}

int ca_make(char **ret_pem, size_t *ret_n)
{
        _cleanup_(wipe_freep) char *text = calloc(1, PEM_ROOM_BYTES);
        mbedtls_pk_context key;
        int r;

        if (!text)
                return -ENOMEM;
        mbedtls_pk_init(&key);
        r = crypto_make_key(&key);
        if (r == 0 && write_text(&key, text, PEM_ROOM_BYTES) != 0)
                r = -EIO;
        mbedtls_pk_free(&key);
        if (r < 0)
                return r;
        *ret_n = strlen(text);
        *ret_pem = STEAL(text);
        return 0;
}

/* ---- one that is there */

static void format_time(const mbedtls_x509_time *t, char ret_text[CA_TIME_BYTES])
{
        (void)snprintf(ret_text, CA_TIME_BYTES, "%04u-%02u-%02uT%02u:%02u:%02uZ", (unsigned)t->year % 10000,
                (unsigned)t->mon % 100, (unsigned)t->day % 100, (unsigned)t->hour % 100, (unsigned)t->min % 100,
                (unsigned)t->sec % 100);
}

static int describe(struct ca *ca, const mbedtls_x509_crt *crt)
{
        uint8_t digest[SHA256_BYTES];
        int r = sha256_bytes(crt->raw.p, crt->raw.len, digest);

        if (r < 0)
                return r;
        sha256_text(digest, ca->fingerprint);
        format_time(&crt->valid_from, ca->not_before);
        format_time(&crt->valid_to, ca->not_after);
        return 0;
}

/* One certificate, and the key that belongs to it. */
static int check(struct ca *ca)
{
        mbedtls_x509_crt crt;
        mbedtls_pk_context key;
        int r = -EBADMSG;

        mbedtls_x509_crt_init(&crt);
        mbedtls_pk_init(&key);
        if (mbedtls_x509_crt_parse(&crt, (const unsigned char *)ca->text, ca->text_n) == 0 && !crt.next &&
                crypto_parse_key(&key, ca->text, ca->text_n) == 0 && mbedtls_pk_can_do(&key, MBEDTLS_PK_ECKEY) &&
                crypto_check_pair(&crt.pk, &key) == 0)
                r = describe(ca, &crt);
        mbedtls_pk_free(&key);
        mbedtls_x509_crt_free(&crt);
        return r;
}

static int take_text(struct ca *ca, const char *pem, size_t n)
{
        const char *key = memmem(pem, n, KEY_BEGINS, strlen(KEY_BEGINS));

        if (!key)
                return -EBADMSG;
        ca->certificate = strndup(pem, (size_t)(key - pem));
        ca->text = malloc(n + 1);
        if (!ca->certificate || !ca->text)
                return -ENOMEM;
        ca->text_n = n + 1;
        (void)mlock(ca->text, n + 1); /* where the limit allows it */
        memcpy(ca->text, pem, n);
        ca->text[n] = '\0';
        return check(ca);
}

int ca_load(const char *pem, size_t n, struct ca **ret)
{
        struct ca *ca;
        int r;

        if (n > CA_FILE_MAX_BYTES)
                return -EBADMSG;
        ca = calloc(1, sizeof(*ca));
        if (!ca)
                return -ENOMEM;
        ca->refs = 1;
        r = take_text(ca, pem, n);
        if (r < 0) {
                ca_unref(ca);
                return r;
        }
        *ret = ca;
        return 0;
}

struct ca *ca_ref(struct ca *ca)
{
        if (ca)
                (void)__atomic_add_fetch(&ca->refs, 1, __ATOMIC_RELAXED);
        return ca;
}

void ca_unref(struct ca *ca)
{
        if (!ca || __atomic_sub_fetch(&ca->refs, 1, __ATOMIC_ACQ_REL) > 0)
                return;
        wipe_free(ca->text); /* its pages stay locked: there may be others on them */
        free(ca->certificate);
        free(ca);
}

const char *ca_certificate(const struct ca *ca)
{
        return ca->certificate;
}

const char *ca_text(const struct ca *ca, size_t *ret_n)
{
        *ret_n = ca->text_n;
        return ca->text;
}

const char *ca_fingerprint(const struct ca *ca)
{
        return ca->fingerprint;
}

const char *ca_not_before(const struct ca *ca)
{
        return ca->not_before;
}

const char *ca_not_after(const struct ca *ca)
{
        return ca->not_after;
}
