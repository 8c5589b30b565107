/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The secrets of one activation, by name: in locked memory that is left out of core dumps (memfd_secret where the
 * kernel has it) and that forked children do not have mapped. A store is filled at activation, and wiped as a whole at
 * quiesce; each secret is wiped when its time is up, when it is revoked, and when another takes its place.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/wb.pb-c.h"

struct secret_store;

#define SECRET_E_UNKNOWN 1 /* no activation brought that name, or the store was wiped since */
#define SECRET_E_EXPIRED 2 /* it was there; its time was up, or it was revoked */
#define SECRET_E_FULL    3 /* WB_SECRETS_MAX are there */

/* How the memory of a store is held, the weakest of its secrets deciding. */
enum secret_memory {
        SECRET_MEMORY_SECRET, /* memfd_secret(2): not even the kernel's own mapping has it */
        SECRET_MEMORY_LOCKED, /* mlock(2) and MADV_DONTDUMP */
        SECRET_MEMORY_PLAIN,  /* MADV_DONTDUMP; locking was refused */
};

/* Takes a copy of all secrets of an Activate; their time runs from now_ns (CLOCK_MONOTONIC). 0, -EEXIST (a name twice),
 * -ENOMEM. */
int secret_store_new(Wb__Secret *const *secrets, size_t n, uint64_t now_ns, struct secret_store **ret);

/* gone is called for each secret that is wiped from here on, also by secret_store_free(): its files are to go, too. */
void secret_watch(struct secret_store *store, void (*gone)(void *userdata, const char *name), void *userdata);

/* Adds one, or puts it into the place of the one of its name, which is wiped. 0; SECRET_E_FULL; -ENOMEM. */
int secret_put(struct secret_store *store, const Wb__Secret *from, uint64_t now_ns);

/* 0; SECRET_E_UNKNOWN (also for a NULL store); SECRET_E_EXPIRED. */
int secret_revoke(struct secret_store *store, const char *name, uint64_t now_ns);

/* Wipes and frees. Takes NULL. */
void secret_store_free(struct secret_store *store);

/* Wipes what has expired; *ret_next_ns is when to call again (UINT64_MAX: never). */
void secret_expire(struct secret_store *store, uint64_t now_ns, uint64_t *ret_next_ns);

/*
 * 0 and the value, which stays where it is until the loop runs again: copy it on (write(2) to a memfd, the child's
 * environment) and wipe the copy. A child made by fork() cannot read it there. SECRET_E_UNKNOWN (also for a NULL
 * store), SECRET_E_EXPIRED.
 */
int secret_get(struct secret_store *store, const char *name, uint64_t now_ns, const uint8_t **ret_value, size_t *ret_n);

size_t secret_count(const struct secret_store *store); /* not expired ones; 0 for NULL */
/* The i-th of those: its name, and when its time is up (UINT64_MAX: with the store). False: there are not so many. */
bool secret_at(const struct secret_store *store, size_t i, const char **ret_name, uint64_t *ret_expires_ns);
enum secret_memory secret_memory_kind(const struct secret_store *store);
const char *secret_memory_name(enum secret_memory kind);
