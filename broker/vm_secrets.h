/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A VM's kept secrets at the broker: put by an operator, given to the guest at each activation, gone with the VM's
 * registration, when their time is up, or when they are removed. Puts and uses are audited here, and nowhere else.
 */

#include "broker/activation_secrets.h"
#include "broker/registry.h"
#include "broker/secret_store.h"

struct vm_secrets;

/*
 * text is the value in base64. 0; or a negative errno with *ret_refusal set, and nothing has changed: -EINVAL (the name
 * or the value), -E2BIG (a bound), -EPERM (the audit), -ENOMEM (also where memory cannot be locked).
 */
int vm_secrets_put(struct vm_entry *e, const char *name, const char *text, size_t text_n, uint64_t ttl_ms,
        struct refusal *ret_refusal);

/* 0 or SECRET_STORE_E_UNKNOWN. */
int vm_secrets_remove(struct vm_entry *e, const char *name);

/* NULL while there was none. */
struct secret_store *vm_secrets_store(const struct vm_entry *e);

/* Those that go into one Activate, and the memory that its pointers need. Zeroed. */
struct vm_secrets_sent {
        Wb__Secret items[WB_SECRETS_MAX];
        Wb__Secret *pointers[WB_SECRETS_MAX];
};

/*
 * What an activation gives its guest: own (may be NULL), and the kept ones whose name is not among them. Each use is
 * recorded with that generation first. 0 or a negative errno with *ret_refusal set: -E2BIG, -EPERM. The message points
 * into sent, own and the store.
 */
int vm_secrets_activate(struct vm_entry *e, uint64_t generation, const struct activation_secrets *own,
        struct vm_secrets_sent *sent, Wb__Activate *activate, struct refusal *ret_refusal);

/* That activation has succeeded; the guest is quiesced, and has wiped all it had. */
void vm_secrets_activated(struct vm_entry *e);
void vm_secrets_quiesced(struct vm_entry *e);

/* Records that a secret is handed to the guest: 0, or -EPERM with *ret_refusal set, and it is not to be. */
int vm_secrets_record_use(struct vm_entry *e, uint64_t generation, const char *name, struct refusal *ret_refusal);

/* What the guest is told of a kept secret that has its value. */
void vm_secrets_message(struct stored_secret *secret, Wb__Secret *ret);

/* Wipes all. Idempotent. */
void vm_secrets_free(struct vm_entry *e);
