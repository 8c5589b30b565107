/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/inspect.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "broker/tls.h"
#include "proto/base/clock.h"
#include "proto/base/sha256.h"

struct inspect_trust {
        unsigned refs;
        uint8_t sha256[SHA256_BYTES]; /* a reload brings the same text anew */
        size_t n;                     /* of pem, its NUL counted */
        char pem[];
};

struct inspect {
        LIST_ENTRY(inspect) in_list;
        unsigned refs;
        struct ca *ca;
        struct inspect_trust *trust;
        struct leaf_mint mint;
        mbedtls_x509_crt trusted;
        mbedtls_ssl_config client_config;
};

/* ---- trust */

/* What in a bundle this library cannot read is left out, as other programs do. */
static int parse_bundle(const struct inspect_trust *trust, mbedtls_x509_crt *to)
{
        int r = mbedtls_x509_crt_parse(to, (const unsigned char *)trust->pem, trust->n);

        if (r == MBEDTLS_ERR_X509_ALLOC_FAILED)
                return -ENOMEM;
        return r >= 0 && to->raw.p ? 0 : -EBADMSG;
}

int inspect_trust_check(const struct inspect_trust *trust)
{
        mbedtls_x509_crt certificates;
        int r;

        mbedtls_x509_crt_init(&certificates);
        r = parse_bundle(trust, &certificates);
        mbedtls_x509_crt_free(&certificates);
        return r;
}

int inspect_trust_new(const char *pem, size_t n, struct inspect_trust **ret)
{
        struct inspect_trust *trust = calloc(1, sizeof(*trust) + n + 1);
        int r;

        if (!trust)
                return -ENOMEM;
        trust->refs = 1;
        trust->n = n + 1;
        memcpy(trust->pem, pem, n);
        r = sha256_bytes(trust->pem, trust->n, trust->sha256);
        if (r < 0) {
                free(trust);
                return r;
        }
        *ret = trust;
        return 0;
}

bool inspect_trust_is_same(const struct inspect_trust *a, const struct inspect_trust *b)
{
        return a && b && memcmp(a->sha256, b->sha256, sizeof(a->sha256)) == 0;
}

struct inspect_trust *inspect_trust_ref(struct inspect_trust *trust)
{
        if (trust)
                (void)__atomic_add_fetch(&trust->refs, 1, __ATOMIC_RELAXED);
        return trust;
}

void inspect_trust_unref(struct inspect_trust *trust)
{
        if (trust && __atomic_sub_fetch(&trust->refs, 1, __ATOMIC_ACQ_REL) == 0)
                free(trust);
}

/* ---- a worker's */

bool inspect_is_of(const struct inspect *i, const struct ca *ca, const struct inspect_trust *trust)
{
        return i->ca == ca && inspect_trust_is_same(i->trust, trust);
}

static int fill(struct inspect *i)
{
        int r = leaf_mint_init(&i->mint, i->ca);

        if (r == 0)
                r = parse_bundle(i->trust, &i->trusted);
        return r == 0 ? tls_configure_client(&i->client_config, &i->trusted) : r;
}

static int inspect_new(struct inspect_list *list, struct ca *ca, struct inspect_trust *trust, struct inspect **ret)
{
        struct inspect *i = calloc(1, sizeof(*i));
        int r;

        if (!i)
                return -ENOMEM;
        i->refs = 1;
        i->ca = ca_ref(ca);
        i->trust = inspect_trust_ref(trust);
        mbedtls_x509_crt_init(&i->trusted);
        mbedtls_ssl_config_init(&i->client_config);
        LIST_INSERT_HEAD(list, i, in_list);
        r = fill(i);
        if (r < 0) {
                inspect_unref(i);
                return r;
        }
        *ret = i;
        return 0;
}

int inspect_get(struct inspect_list *list, struct ca *ca, struct inspect_trust *trust, struct inspect **ret)
{
        struct inspect *i;

        LIST_FOREACH (i, list, in_list)
                if (inspect_is_of(i, ca, trust)) {
                        i->refs++;
                        *ret = i;
                        return 0;
                }
        return inspect_new(list, ca, trust, ret);
}

void inspect_unref(struct inspect *i)
{
        if (!i || --i->refs)
                return;
        LIST_REMOVE(i, in_list);
        mbedtls_ssl_config_free(&i->client_config);
        mbedtls_x509_crt_free(&i->trusted);
        leaf_mint_done(&i->mint);
        inspect_trust_unref(i->trust);
        ca_unref(i->ca);
        free(i);
}

/* ---- a connection's */

int inspected_init(struct inspected *c, struct inspect *inspect, const struct hostname *host)
{
        int r;

        *c = (struct inspected){.inspect = inspect, .host = *host};
        inspect->refs++;
        mbedtls_ssl_config_init(&c->config);
        r = leaf_get(&inspect->mint, host, (int64_t)(clock_realtime_ns() / NSEC_PER_SEC), &c->leaf);
        return r < 0 ? r : tls_configure_server(&c->config, &c->leaf->certificate, &inspect->mint.key);
}

void inspected_done(struct inspected *c)
{
        mbedtls_ssl_config_free(&c->config);
        leaf_unref(c->leaf);
        inspect_unref(c->inspect);
}

/* The ClientHello in one record, since mbedTLS takes it in no other way, and whatever came behind it. */
static int join_hello(const struct client_hello *hello, struct buffer *from, struct buffer *to)
{
        size_t behind = buffer_used(from) - hello->raw_bytes;
        uint8_t *tail;
        int r = buffer_reserve(to, hello->raw_bytes, &tail);

        if (r < 0)
                return r;
        buffer_commit(to, client_hello_join(hello, buffer_data(from), tail));
        r = buffer_append(to, buffer_data(from) + hello->raw_bytes, behind);
        if (r == 0)
                buffer_done(from);
        return r;
}

int inspected_accept(struct inspected *c, struct peer *client, const struct client_hello *hello)
{
        struct tls *tls = NULL;
        struct buffer joined;
        int r;

        buffer_init(&joined, client->in.budget);
        r = join_hello(hello, &client->in, &joined);
        if (r == 0)
                r = tls_new(&c->config, client->fd, client->in.budget, NULL, &tls);
        if (r == 0)
                r = tls_give(tls, &joined);
        if (r == 0)
                peer_set_tls(client, tls);
        else
                tls_free(tls);
        buffer_done(&joined);
        return r;
}

int inspected_connect(struct inspected *c, struct peer *server)
{
        struct tls *tls;
        int r = tls_new(&c->inspect->client_config, server->fd, server->in.budget, &c->host, &tls);

        if (r == 0)
                peer_set_tls(server, tls);
        return r;
}
