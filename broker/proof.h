/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The proof that a VM's wall stands: the evidence of its process, the layers found in it, and the verdict; at `vm add`,
 * at each activation, every recheck_s seconds, and after a reload. It also follows the process: when that ends, the VM
 * is removed. Belongs to the broker's main thread; the members of struct vm_entry that it sets are named there.
 */

#include "broker/registry.h"

#define PROOF_TEXT_BYTES 1536u

/* At `vm add`. 0, or a negative errno with *ret_refusal set. */
int proof_first(struct vm_entry *e, struct refusal *ret_refusal);

/* Begins to follow the process, if there is one. 0 or -ENOMEM. */
int proof_watch(struct vm_entry *e);

/*
 * Looks again. 0, or a negative errno with *ret_refusal set: the VM is cut off then (revoked, recorded), or its process
 * has ended and it is about to be removed; e is valid still. Of a revoked VM nothing is asked.
 */
int proof_again(struct vm_entry *e, struct refusal *ret_refusal);

/* All VMs again, where the operator's rules may have changed. */
void proof_all_again(struct registry *r);

/* The verdict for this VM behind its present layers with another policy. */
void proof_judge(const struct vm_entry *e, const struct policy *policy, struct wall *ret);

/* What (the verdict's message, say) and the layers, in one line, for the audit. */
void proof_print(const struct vm_entry *e, const char *before, const char *what, char ret_text[PROOF_TEXT_BYTES]);

/* Frees what follows the process. */
void proof_done(struct vm_entry *e);
