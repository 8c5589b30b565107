/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Addresses that stand for names: a name that may be looked up gets one from 198.18.0.0/15 (RFC 2544: no server of the
 * internet has any of them), and who connects to it means the name. A name's address is found from the name itself, so
 * that it stays the same as long as no other name has it, also across a restart. Bounded: a new name takes the place of
 * the one that was longest not used, but never of one that has connections or that a client may have in its cache
 * still. Pure: the caller passes the time. Fixed memory.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/wire/hostname.h"

#define FAKE_POOL_BASE        0xc6120000u /* 198.18.0.0 in host order */
#define FAKE_POOL_PREFIX_BITS 15u
#define FAKE_POOL_NAMES_MAX   4096u

/* What a client may remember of an answer; a few seconds, since a policy may change. */
#define FAKE_POOL_TTL_S   10u
/* A place is free for another name when nobody asked for the old one so long: some clients stretch a TTL to 30 s. */
#define FAKE_POOL_QUIET_S 60u

struct fake_pool;

/* 0 or -ENOMEM. names_max: FAKE_POOL_NAMES_MAX at most. */
int fake_pool_new(size_t names_max, struct fake_pool **ret);
void fake_pool_free(struct fake_pool *p); /* takes NULL */

/* Is the address (host order) one of the range? */
bool fake_pool_has(uint32_t address);

/* The address of a canonical name, host order. 0, or -ENOSPC: every place is in use. */
int fake_pool_give(struct fake_pool *p, const struct hostname *name, uint64_t now_ns, uint32_t *ret_address);

/* The name that an address stands for, or NULL. Lives until the next fake_pool_give(). */
const char *fake_pool_name(const struct fake_pool *p, uint32_t address);

/* A connection to the address begins (the name is kept as long as one lives; answers it, or NULL) and ends. */
const char *fake_pool_hold(struct fake_pool *p, uint32_t address, uint64_t now_ns);
void fake_pool_release(struct fake_pool *p, uint32_t address);
