/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What interception needs: whom the broker trusts upstream, the CA whose certificates guests are shown, and for each
 * intercepted connection the two sides' TLS (broker/tls.h), which become layers of its peers.
 */

#include <mbedtls/ssl.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/queue.h>

#include "broker/ca.h"
#include "broker/client_hello.h"
#include "broker/leaf.h"
#include "broker/peer.h"
#include "proto/wire/hostname.h"

/* The text of `inspect.upstream_ca`. Immutable and reference-counted (atomically: all workers share it). */
struct inspect_trust;

#define INSPECT_TRUST_MAX_BYTES (4u * 1024u * 1024u) /* a distribution's bundle has 0.2 MiB */

/* Whatever the text is. 0, -ENOTSUP, -ENOMEM. */
int inspect_trust_new(const char *pem, size_t n, struct inspect_trust **ret);

/* Is there a certificate in it? Takes ten milliseconds with a distribution's bundle. 0, -EBADMSG, -ENOMEM. */
int inspect_trust_check(const struct inspect_trust *trust);
bool inspect_trust_is_same(const struct inspect_trust *a, const struct inspect_trust *b); /* NULL is none's same */
struct inspect_trust *inspect_trust_ref(struct inspect_trust *trust);                     /* takes NULL */
void inspect_trust_unref(struct inspect_trust *trust);                                    /* takes NULL */

/* A CA and a trust as one worker uses them, on its thread: parsed once for all VMs that have the same. */
struct inspect;
LIST_HEAD(inspect_list, inspect);

/* That of the list, or a new one, which enters it until the last reference is gone. 0, -EBADMSG, -ENOMEM. */
int inspect_get(struct inspect_list *list, struct ca *ca, struct inspect_trust *trust, struct inspect **ret);
bool inspect_is_of(const struct inspect *i, const struct ca *ca, const struct inspect_trust *trust);
void inspect_unref(struct inspect *i); /* takes NULL */

/*
 * A certificate and the two handshakes of a connection take some 15 ms of the worker's time, which is the other VMs'
 * too: one VM has so many a second, and a page's worth at once.
 */
#define INSPECT_HANDSHAKES_PER_S 20u
#define INSPECT_HANDSHAKES_BURST 100u

/* An intercepted connection. Outlives the TLS of its peers, that is, their peer_close(). */
struct inspected {
        struct inspect *inspect; /* a reference */
        struct leaf *leaf;       /* a reference */
        mbedtls_ssl_config config;
        struct hostname host;
};

/* 0, -EIO, -ENOMEM; inspected_done() is due in any case. */
int inspected_init(struct inspected *c, struct inspect *inspect, const struct hostname *host);
void inspected_done(struct inspected *c);

/*
 * Towards the client, as the server that it wants. What was read of it, from the ClientHello on, goes into the
 * handshake; then client->in is empty. Towards the server, as its client. 0, -ENOBUFS, -ENOMEM.
 */
int inspected_accept(struct inspected *c, struct peer *client, const struct client_hello *hello);
int inspected_connect(struct inspected *c, struct peer *server);
