/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The interception CA: a certificate and its key, on P-256. Immutable and reference-counted (atomically: workers and
 * the main thread share it). The key is in locked memory, is wiped at the end, and is told to nobody; a guest gets the
 * certificate alone.
 */

#include <stddef.h>
#include <stdint.h>

#define CA_FILE_MAX_BYTES 16384u
#define CA_TIME_BYTES     24u /* "2026-01-31T23:59:59Z" and more than that */

struct ca;

/* A new one as the text of its file: the certificate and the key in PEM. The caller wipes and frees *ret_pem. */
int ca_make(char **ret_pem, size_t *ret_n);

/* From such a text. 0; -EBADMSG if it is none, or certificate and key do not belong together; -ENOMEM. */
int ca_load(const char *pem, size_t n, struct ca **ret);
struct ca *ca_ref(struct ca *ca); /* takes NULL */
void ca_unref(struct ca *ca);     /* takes NULL */

/* PEM, NUL-terminated; lives as long as the CA. */
const char *ca_certificate(const struct ca *ca);

/* The whole text, key and all, with the NUL counted in *ret_n: for whoever signs. */
const char *ca_text(const struct ca *ca, size_t *ret_n);

/* For a person: lower-case hex of the certificate's SHA-256, and when it is valid (RFC 3339). */
const char *ca_fingerprint(const struct ca *ca);
const char *ca_not_before(const struct ca *ca);
const char *ca_not_after(const struct ca *ca);
