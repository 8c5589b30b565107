/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The secrets that the broker keeps for one VM, by name, and what is known of each one's copy in the guest. No clock
 * and no loop of its own: times are CLOCK_MONOTONIC, and its owner (vm_secrets.c) calls when one is up.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "broker/secret_value.h"
#include "proto/wire/limits.h"

/* Of a VM's values together: half of the one frame that takes them to the guest; the rest is for those of a single
 * activation. */
#define SECRET_STORE_MAX_BYTES (WB_FRAME_MAX_BYTES / 2u)

enum secret_in_guest {
        SECRET_ABSENT,
        SECRET_HELD,   /* the guest has this value */
        SECRET_UNSURE, /* it may have it, or another one of that name */
        SECRET_IN_GUEST_MAX_,
};

/* Read by everybody, written by secret_store.c alone. */
struct stored_secret {
        char name[WB_SECRET_NAME_MAX + 1];
        struct secret_value value; /* without bytes: gone here, and to be revoked in the guest */
        uint64_t expires_ns;       /* UINT64_MAX: never */
        uint64_t version;          /* of the value; no two of a store are the same */
        uint64_t sent_version;     /* that the guest was last told, 0: none */
        enum secret_in_guest in_guest;
};

struct secret_store {
        size_t n;
        size_t bytes;      /* of all values */
        uint64_t versions; /* given so far */
        struct stored_secret secrets[WB_SECRETS_MAX];
};

#define SECRET_STORE_E_COUNT   1 /* WB_SECRETS_MAX are there, counting those still to be revoked in the guest */
#define SECRET_STORE_E_BYTES   2 /* more than SECRET_STORE_MAX_BYTES */
#define SECRET_STORE_E_UNKNOWN 3

/* Is there room for a value of n bytes under that name? Asked before anything is allocated for it. */
int secret_store_room(const struct secret_store *s, const char *name, size_t n);

/* There must be room. value is taken; the one of that name is wiped. ttl_ms 0: until it is removed. */
void secret_store_put(
        struct secret_store *s, const char *name, struct secret_value *value, uint64_t ttl_ms, uint64_t now_ns);

/* Wipes it; what the guest may still hold stays as a name without a value. 0 or SECRET_STORE_E_UNKNOWN. */
int secret_store_remove(struct secret_store *s, const char *name);

/*
 * Removes those whose time is up; gone is called for each that the guest may still hold. *ret_next_ns is when to call
 * again (UINT64_MAX: never).
 */
void secret_store_expire(struct secret_store *s, uint64_t now_ns, void (*gone)(void *userdata, const char *name),
        void *userdata, uint64_t *ret_next_ns);

/* Wipes all. Idempotent. */
void secret_store_done(struct secret_store *s);

/* NULL if there is none. Valid until the next change. */
struct stored_secret *secret_store_find(struct secret_store *s, const char *name);

/* ---- what the guest was told, and what it answered */

/* An activation begins: what it brings takes the place of all that the guest has. */
void secret_store_replaced(struct secret_store *s);

/* Its value is on its way to the guest. */
void secret_store_sent(struct stored_secret *secret);

/* The guest has activated with what was sent. */
void secret_store_activated(struct secret_store *s);

/* The guest took the value of that version. */
void secret_store_given(struct secret_store *s, const char *name, uint64_t version);

/* The guest has nothing of that name any more; with NULL: nothing at all. */
void secret_store_taken(struct secret_store *s, const char *name);
