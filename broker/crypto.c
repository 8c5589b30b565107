/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/crypto.h"

#include <errno.h>
#include <mbedtls/ecp.h>
#include <mbedtls/entropy.h>
#include <mbedtls/version.h>
#include <sys/random.h>
#include <time.h>

#if MBEDTLS_VERSION_MAJOR >= 3
#include <psa/crypto.h>
#endif

int crypto_init(void)
{
#if MBEDTLS_VERSION_MAJOR >= 3
        return psa_crypto_init() == PSA_SUCCESS ? 0 : -EIO;
#else
        return 0;
#endif
}

int crypto_random(void *none, unsigned char *to, size_t n)
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

int crypto_make_key(mbedtls_pk_context *key)
{
        if (mbedtls_pk_setup(key, mbedtls_pk_info_from_type(MBEDTLS_PK_ECKEY)) != 0)
                return -ENOMEM;
        if (mbedtls_ecp_gen_key(MBEDTLS_ECP_DP_SECP256R1, mbedtls_pk_ec(*key), crypto_random, NULL) != 0)
                return -ENOMEM;
        return 0;
}

int crypto_parse_key(mbedtls_pk_context *key, const char *pem, size_t n)
{
#if MBEDTLS_VERSION_MAJOR >= 3
        return mbedtls_pk_parse_key(key, (const unsigned char *)pem, n, NULL, 0, crypto_random, NULL);
#else
        return mbedtls_pk_parse_key(key, (const unsigned char *)pem, n, NULL, 0);
#endif
}

int crypto_check_pair(const mbedtls_pk_context *certificates, const mbedtls_pk_context *key)
{
#if MBEDTLS_VERSION_MAJOR >= 3
        return mbedtls_pk_check_pair(certificates, key, crypto_random, NULL);
#else
        return mbedtls_pk_check_pair(certificates, key);
#endif
}

#define SERIAL_BYTES 16u

/* RFC 5280 4.1.2.2: positive, and unlike any other of this issuer. */
static int set_serial(mbedtls_x509write_cert *writer)
{
        unsigned char serial[SERIAL_BYTES];
        int r = crypto_random(NULL, serial, sizeof(serial));

        if (r != 0)
                return r;
        serial[0] = (unsigned char)((serial[0] & 0x7f) | 0x40);
#if MBEDTLS_VERSION_NUMBER >= 0x03040000
        return mbedtls_x509write_crt_set_serial_raw(writer, serial, sizeof(serial));
#else
        mbedtls_mpi number;

        mbedtls_mpi_init(&number);
        r = mbedtls_mpi_read_binary(&number, serial, sizeof(serial));
        if (r == 0)
                r = mbedtls_x509write_crt_set_serial(writer, &number);
        mbedtls_mpi_free(&number);
        return r;
#endif
}

static void format_time(int64_t at_s, char ret_text[32])
{
        time_t at = (time_t)at_s;
        struct tm tm = {0};

        (void)gmtime_r(&at, &tm);
        (void)strftime(ret_text, 32, "%Y%m%d%H%M%S", &tm);
}

int crypto_begin_certificate(mbedtls_x509write_cert *writer, int64_t from_s, int64_t to_s)
{
        char from[32], to[32];
        int r = set_serial(writer);

        format_time(from_s, from);
        format_time(to_s, to);
        mbedtls_x509write_crt_set_version(writer, MBEDTLS_X509_CRT_VERSION_3);
        mbedtls_x509write_crt_set_md_alg(writer, MBEDTLS_MD_SHA256);
        return r != 0 ? r : mbedtls_x509write_crt_set_validity(writer, from, to);
}
