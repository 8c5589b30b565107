/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What is said to an agent about single secrets between activations: one question at a time for a VM, in the order in
 * which they were asked. An activation or a quiesce goes first: what is under way is broken off and asked again behind
 * it, if it is still to be asked then.
 */

#include "broker/control_op.h"
#include "broker/registry.h"

enum delivery_kind {
        DELIVERY_PUT,    /* a kept secret that the guest does not have */
        DELIVERY_REVOKE, /* one that it is not to have any more; it need not be a kept one */
        DELIVERY_LIST,
};

/*
 * request is answered when it is over, never from within; NULL for one that nobody waits for. A put and a revocation of
 * a VM that has no activation to live on are over at once: its guest has no secrets.
 */
void secret_delivery_start(
        struct vm_entry *e, enum delivery_kind kind, const char *name, struct control_request *request);

/* An activation or a quiesce begins; it is over. Both take a VM without any delivery. */
void secret_delivery_pause(struct vm_entry *e);
void secret_delivery_resume(struct vm_entry *e);

/* The entry goes away, or is revoked: all are answered. Idempotent. */
void secret_delivery_cancel(struct vm_entry *e);
