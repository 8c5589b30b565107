/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The guest's memory as the VMM described it: a few regions, each mapped at one place of ours. Pure; who maps is
 * mapping.h, and a test gives it plain arrays.
 *
 * Two kinds of addresses lead into it: guest-physical ones, which the guest writes into descriptors, and the VMM's own
 * virtual ones, by which vhost-user names the rings. Nothing found here outlives the table's next change.
 */

#include <stddef.h>
#include <stdint.h>

/* VHOST_MEMORY_BASELINE_NREGIONS of the vhost-user specification: what one SET_MEM_TABLE can hold. */
#define MEMORY_REGIONS_MAX 8

struct memory_region {
        uint64_t guest_addr;
        uint64_t user_addr; /* of the VMM */
        uint64_t size_bytes;
        uint8_t *at; /* where it is mapped here */
};

struct memory {
        struct memory_region regions[MEMORY_REGIONS_MAX];
        size_t regions_n;
};

/* 0, -ENOSPC, or -EINVAL: empty, an address that wraps, an overlap with a region that is there. */
int memory_add(struct memory *m, const struct memory_region *region);

/*
 * The bytes at a guest-physical address: as many of the wanted (at least one) as follow each other here, in *ret_n.
 * NULL if the address is in no region.
 */
void *memory_from_guest(const struct memory *m, uint64_t guest_addr, uint64_t want, uint64_t *ret_n);

/* All n bytes at an address of the VMM, or NULL. */
void *memory_from_user(const struct memory *m, uint64_t user_addr, uint64_t n);
