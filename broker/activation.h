/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The host's part of an activation (boot and resume alike) and of a quiesce: dials the agent, asks for its last
 * generation, gives it a fresh seed and a greater one, answers its clock probes, and opens the VM's egress when the
 * agent says that all went well. One at a time for a VM.
 */

#include "broker/activation_secrets.h"
#include "broker/control_op.h"
#include "broker/registry.h"

enum vm_wish {
        VM_ACTIVATE,
        VM_QUIESCE,
};

/*
 * secrets go into an activation and are the activation's from here on; NULL: none. request is answered when it is over:
 * with the steps and their evidence, or with what failed.
 */
void activation_start(
        struct vm_entry *e, enum vm_wish wish, struct activation_secrets *secrets, struct control_request *request);
