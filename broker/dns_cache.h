/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What names resolved to, for as long as their servers said, within bounds. Pure: the caller passes the time. Holds at
 * most a fixed number of names, the least recently used go first.
 */

#include <stddef.h>
#include <stdint.h>

#include "broker/reason.h"
#include "proto/wire/hostname.h"

/* More addresses than this are no answer that is believed: each one has to be judged, none may be left out. */
#define DNS_ADDRESSES_MAX 64u

struct dns_address {
        uint8_t kind;      /* HOST_IPV4, HOST_IPV6 */
        uint8_t bytes[16]; /* network order; IPv4 in the first 4 */
};

/* One block, free(3) ends it. */
struct dns_answer {
        enum reason reason; /* REASON_ALLOWED: there are addresses; REASON_DNS_FAILURE, REASON_DNS_TIMEOUT */
        size_t addresses_n;
        struct dns_address addresses[];
};

/* Addresses are kept for their TTL, raised to the floor and cut at the cap; a TTL of 0 is not kept at all. */
#define DNS_TTL_FLOOR_S    2u
#define DNS_TTL_NEGATIVE_S 5u

/* 0: do not keep. */
uint64_t dns_cache_lifetime_ns(const struct dns_answer *answer, uint64_t ttl_s, uint64_t most_s);

struct dns_cache;

/* seed makes the hash unpredictable. 0, -ENOMEM. */
int dns_cache_new(size_t names_most, uint64_t seed, struct dns_cache **ret);
void dns_cache_free(struct dns_cache *c); /* takes NULL */

/* NULL: not known, or no longer. The answer lives until the next call with this cache. */
const struct dns_answer *dns_cache_get(struct dns_cache *c, const struct hostname *name, uint64_t now_ns);

/* Copies answer and replaces what was there. 0, -ENOMEM (nothing is kept then). */
int dns_cache_put(
        struct dns_cache *c, const struct hostname *name, const struct dns_answer *answer, uint64_t expires_ns);

size_t dns_cache_count(const struct dns_cache *c);
