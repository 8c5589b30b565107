/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * TLS over a peer's socket: the layer that broker/peer.h has between its buffers and its descriptor where a connection
 * is intercepted. It never blocks, holds at most one record each way beside what it was given, and reads no more of a
 * socket in one turn than a peer may keep it busy with.
 */

#include <mbedtls/ssl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "broker/buffer.h"
#include "proto/wire/hostname.h"

/* What one takes of its VM's budget: mbedTLS's two record buffers (34 KiB), a handshake under way, the other side's
 * chain. */
#define TLS_CHARGED_BYTES (48u * 1024u)

/*
 * A role's configuration: TLS 1.2 or newer, suites with forward secrecy and authenticated encryption, http/1.1 as the
 * only protocol of ALPN. certificate and key, or trusted, are borrowed for its life. 0, -ENOMEM.
 */
int tls_configure_server(mbedtls_ssl_config *config, mbedtls_x509_crt *certificate, mbedtls_pk_context *key);
int tls_configure_client(mbedtls_ssl_config *config, mbedtls_x509_crt *trusted);

struct tls;

/*
 * config outlives it, and fd is not closed by it. server: the name that its certificate must have and that SNI tells;
 * NULL: we are the server. 0, -ENOBUFS (the budget), -ENOMEM.
 */
int tls_new(const mbedtls_ssl_config *config, int fd, struct budget *budget, const struct hostname *server,
        struct tls **ret);
void tls_free(struct tls *t); /* takes NULL */

/* Bytes that were read of the socket already: they come first. Takes all of from, of the same budget. 0, -ENOBUFS,
 * -ENOMEM. */
int tls_give(struct tls *t, struct buffer *from);

#define TLS_E_WAIT   1 /* the socket has to be readable, or writable if tls_has_unsent() */
#define TLS_E_FAILED 2 /* tls_fault() says why; an alert was sent where there is one */

/* 0 when it stands. */
int tls_handshake(struct tls *t);
const char *tls_fault(const struct tls *t);

/*
 * As recv(2) and send(2): bytes, 0 at the end (a close_notify), -EAGAIN, -ECONNRESET for an end without one, or what
 * else went wrong. Before the handshake is over nothing is written, and what comes is dropped.
 */
ssize_t tls_read(struct tls *t, uint8_t *to, size_t n);
ssize_t tls_write(struct tls *t, const uint8_t *from, size_t n);

/* Sends a close_notify. true: it is on its way, or none can be. */
bool tls_finish(struct tls *t);

/* Is there something to be read that the socket does not tell of? Something to be written that the writer has not? */
bool tls_has_pending(const struct tls *t);
bool tls_has_unsent(const struct tls *t);
