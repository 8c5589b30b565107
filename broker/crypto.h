/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What the users of mbedTLS share: its random numbers are the kernel's, so that no state of a generator is there to be
 * copied, seeded or locked; and what 2.28 (Debian 12) and 3.6 (Debian 13) spell differently.
 */

#include <mbedtls/pk.h>
#include <mbedtls/x509_crt.h>
#include <stddef.h>
#include <stdint.h>

/* Once in a process, before it has threads: TLS 1.3 of mbedTLS 3 needs it. 0, -EIO. */
int crypto_init(void);

/* An mbedTLS f_rng. 0 or an error of mbedTLS. */
int crypto_random(void *none, unsigned char *to, size_t n);

/* A new key on P-256. key is initialised and empty. 0, -ENOMEM. */
int crypto_make_key(mbedtls_pk_context *key);

/* PEM; n counts the NUL behind it. An error of mbedTLS, or 0. */
int crypto_parse_key(mbedtls_pk_context *key, const char *pem, size_t n);

/* Do both have the same key? */
int crypto_check_pair(const mbedtls_pk_context *certificates, const mbedtls_pk_context *key);

/*
 * Begins a certificate that is signed with SHA-256: version 3, a random serial number, valid between these (seconds
 * since 1970). writer is initialised. An error of mbedTLS, or 0.
 */
int crypto_begin_certificate(mbedtls_x509write_cert *writer, int64_t from_s, int64_t to_s);
