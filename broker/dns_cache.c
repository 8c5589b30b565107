/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/dns_cache.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "proto/base/cleanup.h"
#include "proto/base/clock.h"

#define HASH_ROWS 1024u /* a power of two */

struct entry {
        LIST_ENTRY(entry) in_row;
        TAILQ_ENTRY(entry) in_age; /* the least recently used first */
        uint64_t expires_ns;
        struct dns_answer *answer;
        uint8_t name_n;
        char name[];
};

LIST_HEAD(entry_list, entry);
TAILQ_HEAD(entry_queue, entry);

struct dns_cache {
        uint64_t seed;
        size_t count;
        size_t most;
        struct entry_list rows[HASH_ROWS];
        struct entry_queue ages;
};

uint64_t dns_cache_lifetime_ns(const struct dns_answer *answer, uint64_t ttl_s, uint64_t most_s)
{
        if (answer->reason != REASON_ALLOWED)
                ttl_s = DNS_TTL_NEGATIVE_S;
        else if (ttl_s && ttl_s < DNS_TTL_FLOOR_S)
                ttl_s = DNS_TTL_FLOOR_S;
        if (ttl_s > most_s)
                ttl_s = most_s;
        return ttl_s * NSEC_PER_SEC;
}

int dns_cache_new(size_t names_most, uint64_t seed, struct dns_cache **ret)
{
        struct dns_cache *c = calloc(1, sizeof(*c));

        assert(names_most);
        if (!c)
                return -ENOMEM;
        c->seed = seed;
        c->most = names_most;
        TAILQ_INIT(&c->ages);
        *ret = c;
        return 0;
}

static void entry_free(struct entry *e)
{
        free(e->answer);
        free(e);
}
DEFINE_CLEANUP(struct entry *, entry_free);

static void drop(struct dns_cache *c, struct entry *e)
{
        LIST_REMOVE(e, in_row);
        TAILQ_REMOVE(&c->ages, e, in_age);
        c->count--;
        entry_free(e);
}

void dns_cache_free(struct dns_cache *c)
{
        if (!c)
                return;
        while (!TAILQ_EMPTY(&c->ages))
                drop(c, TAILQ_FIRST(&c->ages));
        free(c);
}

/* FNV-1a, begun at a secret place. */
static size_t row_of(const struct dns_cache *c, const struct hostname *name)
{
        uint64_t hash = UINT64_C(0xcbf29ce484222325) ^ c->seed;

        for (size_t i = 0; i < name->length; i++)
                hash = (hash ^ (uint8_t)name->text[i]) * UINT64_C(0x100000001b3);
        return (hash ^ hash >> 32) & (HASH_ROWS - 1);
}

static struct entry *find(struct dns_cache *c, const struct hostname *name)
{
        struct entry *e;

        LIST_FOREACH (e, &c->rows[row_of(c, name)], in_row)
                if (e->name_n == name->length && !memcmp(e->name, name->text, name->length))
                        return e;
        return NULL;
}

const struct dns_answer *dns_cache_get(struct dns_cache *c, const struct hostname *name, uint64_t now_ns)
{
        struct entry *e = find(c, name);

        if (!e)
                return NULL;
        if (now_ns >= e->expires_ns) {
                drop(c, e);
                return NULL;
        }
        TAILQ_REMOVE(&c->ages, e, in_age);
        TAILQ_INSERT_TAIL(&c->ages, e, in_age);
        return e->answer;
}

int dns_cache_put(
        struct dns_cache *c, const struct hostname *name, const struct dns_answer *answer, uint64_t expires_ns)
{
        struct entry *old = find(c, name);
        size_t answer_bytes = sizeof(*answer) + answer->addresses_n * sizeof(*answer->addresses);

        if (old)
                drop(c, old);

        _cleanup_(entry_freep) struct entry *e = calloc(1, sizeof(*e) + name->length);
        if (!e)
                return -ENOMEM;
        e->answer = malloc(answer_bytes);
        if (!e->answer)
                return -ENOMEM;
        memcpy(e->answer, answer, answer_bytes);
        memcpy(e->name, name->text, name->length);
        e->name_n = name->length;
        e->expires_ns = expires_ns;

        if (c->count == c->most)
                drop(c, TAILQ_FIRST(&c->ages));
        LIST_INSERT_HEAD(&c->rows[row_of(c, name)], e, in_row);
        TAILQ_INSERT_TAIL(&c->ages, e, in_age);
        c->count++;
        e = NULL;
        return 0;
}

size_t dns_cache_count(const struct dns_cache *c)
{
        return c->count;
}
