/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/ca.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <mbedtls/oid.h>
#include <mbedtls/x509_crt.h>

#include "broker/leaf.h"
#include "proto/base/clock.h"
#include "tests/support/suite.h"

static struct ca *make(void)
{
        struct ca *ca = NULL;
        char *text;
        size_t n;

        CU_ASSERT_EQUAL_FATAL(ca_make(&text, &n), 0);
        CU_ASSERT_EQUAL_FATAL(ca_load(text, n, &ca), 0);
        free(text);
        return ca;
}

static struct hostname host_of(const char *text)
{
        struct hostname host;

        CU_ASSERT_EQUAL_FATAL(hostname_parse(text, strlen(text), &host), 0);
        return host;
}

static int64_t now_s(void)
{
        return (int64_t)(clock_realtime_ns() / NSEC_PER_SEC);
}

/* The flags with which a leaf is refused under that CA and name; 0: it is not. */
static uint32_t judge(const struct ca *ca, struct leaf *leaf, const char *name)
{
        mbedtls_x509_crt trusted;
        uint32_t flags = 0;

        mbedtls_x509_crt_init(&trusted);
        CU_ASSERT_EQUAL(mbedtls_x509_crt_parse(
                                &trusted, (const unsigned char *)ca_certificate(ca), strlen(ca_certificate(ca)) + 1),
                0);
        (void)mbedtls_x509_crt_verify(&leaf->certificate, &trusted, NULL, name, &flags, NULL, NULL);
        mbedtls_x509_crt_free(&trusted);
        return flags;
}

static void test_make_and_load(void)
{
        struct ca *one = make(), *other = make();

        CU_ASSERT_EQUAL(strlen(ca_fingerprint(one)), 64);
        CU_ASSERT_STRING_NOT_EQUAL(ca_fingerprint(one), ca_fingerprint(other));
        CU_ASSERT_EQUAL(strlen(ca_not_before(one)), 20);
        CU_ASSERT(strcmp(ca_not_before(one), ca_not_after(one)) < 0);
        CU_ASSERT_PTR_NOT_NULL(strstr(ca_certificate(one), "-----BEGIN CERTIFICATE-----"));
        CU_ASSERT_PTR_NULL(strstr(ca_certificate(one), "PRIVATE"));
        ca_unref(one);
        ca_unref(other);
}

static void test_what_is_no_ca(void)
{
        struct ca *none = NULL;
        char *a, *b, *mixed;
        size_t a_n, b_n;

        CU_ASSERT_EQUAL_FATAL(ca_make(&a, &a_n), 0);
        CU_ASSERT_EQUAL_FATAL(ca_make(&b, &b_n), 0);
        CU_ASSERT_EQUAL(ca_load("", 0, &none), -EBADMSG);
        CU_ASSERT_EQUAL(ca_load(a, a_n / 2, &none), -EBADMSG);
        CU_ASSERT_EQUAL(ca_load(strstr(a, "-----BEGIN EC"), strlen(strstr(a, "-----BEGIN EC")), &none), -EBADMSG);

        /* The certificate of one with the key of the other. */
        mixed = calloc(1, a_n + b_n);
        memcpy(mixed, a, (size_t)(strstr(a, "-----BEGIN EC") - a));
        strcat(mixed, strstr(b, "-----BEGIN EC"));
        CU_ASSERT_EQUAL(ca_load(mixed, strlen(mixed), &none), -EBADMSG);
        CU_ASSERT_PTR_NULL(none);
        free(mixed);
        free(a);
        free(b);
}

static void test_leaf_of_a_name(void)
{
        struct ca *ca = make(), *other = make();
        struct hostname host = host_of("www.example.org");
        struct leaf_mint mint;
        struct leaf *leaf;

        CU_ASSERT_EQUAL_FATAL(leaf_mint_init(&mint, ca), 0);
        CU_ASSERT_EQUAL_FATAL(leaf_get(&mint, &host, now_s(), &leaf), 0);
        CU_ASSERT_EQUAL(judge(ca, leaf, "www.example.org"), 0);
        CU_ASSERT_EQUAL(judge(ca, leaf, "example.org"), MBEDTLS_X509_BADCERT_CN_MISMATCH);
        CU_ASSERT_EQUAL(judge(other, leaf, "www.example.org"), MBEDTLS_X509_BADCERT_NOT_TRUSTED);
        CU_ASSERT_EQUAL(mbedtls_x509_crt_check_extended_key_usage(
                                &leaf->certificate, MBEDTLS_OID_SERVER_AUTH, MBEDTLS_OID_SIZE(MBEDTLS_OID_SERVER_AUTH)),
                0);
        CU_ASSERT_NOT_EQUAL(mbedtls_x509_crt_check_extended_key_usage(&leaf->certificate, MBEDTLS_OID_CLIENT_AUTH,
                                    MBEDTLS_OID_SIZE(MBEDTLS_OID_CLIENT_AUTH)),
                0);
        leaf_unref(leaf);
        leaf_mint_done(&mint);
        ca_unref(ca);
        ca_unref(other);
}

static void test_leaf_of_the_longest_name(void)
{
        char label[64], text[HOSTNAME_MAX_BYTES + 1] = "";
        struct ca *ca = make();
        struct hostname host;
        struct leaf_mint mint;
        struct leaf *leaf;

        memset(label, 'a', 63);
        label[63] = '\0';
        (void)snprintf(text, sizeof(text), "%s.%s.%s.%.61s", label, label, label, label);
        host = host_of(text);
        CU_ASSERT_EQUAL(host.length, HOSTNAME_MAX_BYTES);
        CU_ASSERT_EQUAL_FATAL(leaf_mint_init(&mint, ca), 0);
        CU_ASSERT_EQUAL_FATAL(leaf_get(&mint, &host, now_s(), &leaf), 0);
        CU_ASSERT_EQUAL(judge(ca, leaf, text), 0);
        leaf_unref(leaf);
        leaf_mint_done(&mint);
        ca_unref(ca);
}

static void test_leaf_of_an_address(void)
{
        static const uint8_t v4[] = {203, 0, 114, 7};
        struct ca *ca = make();
        struct hostname host = host_of("203.0.114.7");
        struct leaf_mint mint;
        struct leaf *leaf;

        CU_ASSERT_EQUAL_FATAL(leaf_mint_init(&mint, ca), 0);
        CU_ASSERT_EQUAL_FATAL(leaf_get(&mint, &host, now_s(), &leaf), 0);
        CU_ASSERT_EQUAL(leaf->certificate.subject_alt_names.buf.tag, 0x87);
        CU_ASSERT_EQUAL_FATAL(leaf->certificate.subject_alt_names.buf.len, 4);
        CU_ASSERT_EQUAL(memcmp(leaf->certificate.subject_alt_names.buf.p, v4, 4), 0);
        leaf_unref(leaf);

        host = host_of("[2001:4860::8888]");
        CU_ASSERT_EQUAL_FATAL(leaf_get(&mint, &host, now_s(), &leaf), 0);
        CU_ASSERT_EQUAL(leaf->certificate.subject_alt_names.buf.len, 16);
        leaf_unref(leaf);
        leaf_mint_done(&mint);
        ca_unref(ca);
}

static void test_leaves_are_kept_and_made_anew(void)
{
        struct ca *ca = make();
        struct hostname host = host_of("a.example.org");
        struct leaf_mint mint;
        struct leaf *first, *same, *later;

        CU_ASSERT_EQUAL_FATAL(leaf_mint_init(&mint, ca), 0);
        CU_ASSERT_EQUAL_FATAL(leaf_get(&mint, &host, 1700000000, &first), 0);
        CU_ASSERT_EQUAL_FATAL(leaf_get(&mint, &host, 1700000000 + 3600, &same), 0);
        CU_ASSERT_PTR_EQUAL(first, same);
        CU_ASSERT_EQUAL_FATAL(leaf_get(&mint, &host, 1700000000 + 86401, &later), 0);
        CU_ASSERT_PTR_NOT_EQUAL(first, later);
        CU_ASSERT_EQUAL(mint.leaves_n, 1);
        leaf_unref(later);
        CU_ASSERT_EQUAL_FATAL(leaf_get(&mint, &host, 1600000000, &later), 0); /* the clock was set back */
        CU_ASSERT_EQUAL(later->made_s, 1600000000);
        CU_ASSERT_EQUAL(first->refs, 2); /* ours: a session goes on with what it began with */
        leaf_unref(first);
        leaf_unref(same);
        leaf_unref(later);
        leaf_mint_done(&mint);
        ca_unref(ca);
}

static void test_the_least_used_goes(void)
{
        struct ca *ca = make();
        struct hostname kept = host_of("kept.example.org"), host;
        struct leaf_mint mint;
        struct leaf *first, *leaf;
        char text[64];

        CU_ASSERT_EQUAL_FATAL(leaf_mint_init(&mint, ca), 0);
        CU_ASSERT_EQUAL_FATAL(leaf_get(&mint, &kept, now_s(), &first), 0);
        for (unsigned i = 0; i < LEAF_CACHE_MAX + 4; i++) {
                (void)snprintf(text, sizeof(text), "h%u.example.org", i);
                host = host_of(text);
                CU_ASSERT_EQUAL_FATAL(leaf_get(&mint, &host, now_s(), &leaf), 0);
                leaf_unref(leaf);
                CU_ASSERT_EQUAL_FATAL(leaf_get(&mint, &kept, now_s(), &leaf), 0);
                CU_ASSERT_PTR_EQUAL(leaf, first);
                leaf_unref(leaf);
        }
        CU_ASSERT_EQUAL(mint.leaves_n, LEAF_CACHE_MAX);
        leaf_unref(first);
        leaf_mint_done(&mint);
        ca_unref(ca);
}

int main(void)
{
        CU_TestInfo tests[] = {
                {"made and loaded", test_make_and_load},
                {"what is no CA", test_what_is_no_ca},
                {"a name's leaf", test_leaf_of_a_name},
                {"the longest name's leaf", test_leaf_of_the_longest_name},
                {"an address's leaf", test_leaf_of_an_address},
                {"leaves are kept for a day", test_leaves_are_kept_and_made_anew},
                {"the least used goes", test_the_least_used_goes},
                CU_TEST_INFO_NULL,
        };

        return suite_run("ca", tests);
}
