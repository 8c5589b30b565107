/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The page by which a hypervisor tells its guest that time, or the machine itself, has been disrupted (VMClock;
 * include/uapi/linux/vmclock-abi.h). It changes before the guest's processors run again, so nothing of the guest is
 * faster than a look at it.
 */

#include <stddef.h>
#include <stdint.h>

#define VMCLOCK_DEVICE "/dev/vmclock0"

struct vmclock;

/*
 * Maps it. 0; -ENOENT where there is none; -EPROTO if what is there is no VMClock of version 1; or another negative
 * errno.
 */
int vmclock_open(const char *path, struct vmclock **ret);
void vmclock_close(struct vmclock *v); /* takes NULL */

/*
 * What is another after every restore: the generation counter, where this hypervisor keeps one, else the disruption
 * marker, which a live migration changes too.
 */
uint64_t vmclock_marker(struct vmclock *v);

/* The same of a page's first n bytes, for vmclock_open() and tests. 0, -EPROTO, or -EAGAIN (it is being written). */
int vmclock_parse(const volatile void *bytes, size_t n, uint64_t *ret_marker);
