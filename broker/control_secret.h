/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The operations on a VM's secrets. e is the VM that the request names; body stays the caller's. */

#include "broker/control_op.h"

void control_secret_put(struct registry *r, struct vm_entry *e, const json_t *body, struct control_request *request);
void control_secret_rm(struct registry *r, struct vm_entry *e, const json_t *body, struct control_request *request);
void control_secret_ls(struct registry *r, struct vm_entry *e, const json_t *body, struct control_request *request);
