/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/fake_pool.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "proto/base/clock.h"

#define HASH_ROWS 1024u /* a power of two */
#define ADDRESSES (1u << (32u - FAKE_POOL_PREFIX_BITS))
#define RESERVED                                                                                                       \
        2u /* at both ends of the range: what looks like a network's or a broadcast address confuses people            \
            */
#define TRIES_MAX 64u

struct place {
        LIST_ENTRY(place) by_name;
        LIST_ENTRY(place) by_address;
        TAILQ_ENTRY(place) in_age;
        uint32_t address;
        uint32_t holders; /* connections */
        uint64_t used_ns;
        char name[HOSTNAME_MAX_BYTES + 1];
};
LIST_HEAD(row, place);

struct fake_pool {
        size_t names_max, names_n;
        struct row by_name[HASH_ROWS], by_address[HASH_ROWS];
        TAILQ_HEAD(, place) ages; /* the least recently used first */
        struct place places[];    /* names_n are in use; their pages come as they are used */
};

int fake_pool_new(size_t names_max, struct fake_pool **ret)
{
        struct fake_pool *p;

        assert(names_max && names_max <= FAKE_POOL_NAMES_MAX);
        p = calloc(1, sizeof(*p) + names_max * sizeof(p->places[0]));
        if (!p)
                return -ENOMEM;
        p->names_max = names_max;
        TAILQ_INIT(&p->ages);
        *ret = p;
        return 0;
}

void fake_pool_free(struct fake_pool *p)
{
        free(p);
}

bool fake_pool_has(uint32_t address)
{
        return address >> (32u - FAKE_POOL_PREFIX_BITS) == FAKE_POOL_BASE >> (32u - FAKE_POOL_PREFIX_BITS);
}

/* FNV-1a. Nobody gains by two names in one row: whoever may choose the names is the guest itself. */
static uint64_t hash(const char *name)
{
        uint64_t h = UINT64_C(0xcbf29ce484222325);

        for (; *name; name++)
                h = (h ^ (uint8_t)*name) * UINT64_C(0x100000001b3);
        return h ^ h >> 32;
}

static struct row *row_of_name(struct fake_pool *p, const char *name)
{
        return &p->by_name[hash(name) & (HASH_ROWS - 1)];
}

static struct place *find_name(struct fake_pool *p, const char *name)
{
        struct place *e;

        LIST_FOREACH (e, row_of_name(p, name), by_name)
                if (strcmp(e->name, name) == 0)
                        return e;
        return NULL;
}

static struct place *find_address(const struct fake_pool *p, uint32_t address)
{
        struct place *e;

        LIST_FOREACH (e, &p->by_address[address & (HASH_ROWS - 1)], by_address)
                if (e->address == address)
                        return e;
        return NULL;
}

/* Its own address, or one that is found by going on from there; 0 if all that are tried are taken. */
static uint32_t choose_address(const struct fake_pool *p, const char *name)
{
        uint32_t at = (uint32_t)(hash(name) % (ADDRESSES - 2 * RESERVED));

        for (unsigned i = 0; i < TRIES_MAX; i++) {
                uint32_t address = FAKE_POOL_BASE + RESERVED + (at + i * (i + 1) / 2) % (ADDRESSES - 2 * RESERVED);

                if (!find_address(p, address))
                        return address;
        }
        return 0;
}

static void touch(struct fake_pool *p, struct place *e, uint64_t now_ns)
{
        e->used_ns = now_ns;
        TAILQ_REMOVE(&p->ages, e, in_age);
        TAILQ_INSERT_TAIL(&p->ages, e, in_age);
}

static bool is_quiet(const struct place *e, uint64_t now_ns)
{
        return e->holders == 0 && now_ns - e->used_ns >= FAKE_POOL_QUIET_S * NSEC_PER_SEC;
}

/* One that was never used, or the longest quiet one, taken out of all lists; NULL if there is none. */
static struct place *take_place(struct fake_pool *p, uint64_t now_ns)
{
        struct place *e;

        if (p->names_n < p->names_max)
                return &p->places[p->names_n++];
        TAILQ_FOREACH (e, &p->ages, in_age) {
                if (!is_quiet(e, now_ns))
                        continue;
                LIST_REMOVE(e, by_name);
                LIST_REMOVE(e, by_address);
                TAILQ_REMOVE(&p->ages, e, in_age);
                return e;
        }
        return NULL;
}

int fake_pool_give(struct fake_pool *p, const struct hostname *name, uint64_t now_ns, uint32_t *ret_address)
{
        struct place *e = find_name(p, name->text);
        uint32_t address;

        if (e) {
                touch(p, e, now_ns);
                *ret_address = e->address;
                return 0;
        }
        address = choose_address(p, name->text);
        e = address ? take_place(p, now_ns) : NULL;
        if (!e)
                return -ENOSPC;
        *e = (struct place){.address = address, .used_ns = now_ns};
        memcpy(e->name, name->text, (size_t)name->length + 1);
        LIST_INSERT_HEAD(row_of_name(p, e->name), e, by_name);
        LIST_INSERT_HEAD(&p->by_address[address & (HASH_ROWS - 1)], e, by_address);
        TAILQ_INSERT_TAIL(&p->ages, e, in_age);
        *ret_address = address;
        return 0;
}

const char *fake_pool_name(const struct fake_pool *p, uint32_t address)
{
        const struct place *e = find_address(p, address);

        return e ? e->name : NULL;
}

const char *fake_pool_hold(struct fake_pool *p, uint32_t address, uint64_t now_ns)
{
        struct place *e = find_address(p, address);

        if (!e)
                return NULL;
        e->holders++;
        touch(p, e, now_ns);
        return e->name;
}

void fake_pool_release(struct fake_pool *p, uint32_t address)
{
        struct place *e = find_address(p, address);

        assert(e && e->holders); /* a name that is held keeps its address */
        e->holders--;
}
