/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Certificates that the interception CA gives to hosts, made when they are first wanted and kept for a while, the least
 * used first to go. All have the mint's one key. A mint belongs to one thread: mbedTLS writes into the keys that it
 * computes with.
 */

#include <mbedtls/pk.h>
#include <mbedtls/x509_crt.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "broker/ca.h"
#include "proto/wire/hostname.h"

#define LEAF_CACHE_MAX 256u

struct leaf {
        TAILQ_ENTRY(leaf) link;
        unsigned refs;
        char host[HOSTNAME_MAX_BYTES + 1];
        int64_t made_s;
        mbedtls_x509_crt certificate;
};
TAILQ_HEAD(leaf_list, leaf);

struct leaf_mint {
        mbedtls_x509_crt ca;
        mbedtls_pk_context ca_key;
        mbedtls_pk_context key;  /* of every leaf */
        struct leaf_list leaves; /* most recently used first; each with a reference */
        size_t leaves_n;
};

/* 0, -EBADMSG, -ENOMEM; leaf_mint_done() is due in any case. */
int leaf_mint_init(struct leaf_mint *mint, const struct ca *ca);
void leaf_mint_done(struct leaf_mint *mint);

/* The host's certificate at now_s (seconds since 1970), with a reference. 0, -ENOMEM, -EIO. */
int leaf_get(struct leaf_mint *mint, const struct hostname *host, int64_t now_s, struct leaf **ret);
void leaf_unref(struct leaf *leaf); /* takes NULL */
