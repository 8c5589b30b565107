/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

/*
 * Whether KVM runs a machine here, and runs it on the processor. A device file says nothing: in a VM without nested
 * virtualisation it is there and makes no VM, and some hosts' KVM makes one and then interprets its kernel, a thousand
 * times slower than QEMU emulates it. So this makes a VM and times a few instructions. *ret_gid is the group through
 * which a process of another user may use it, or (gid_t)-1.
 */
bool kvm_usable(gid_t *ret_gid);
