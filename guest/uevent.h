/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The kernel's messages of devices (NETLINK_KOBJECT_UEVENT), as far as they tell of a resume: that the machine has
 * another generation id, which the driver (drivers/virt/vmgenid.c) says since Linux 6.10; and that the vsock device
 * went away, as it must before QEMU can save a machine. And that memory came or went (drivers/base/memory.c).
 */

#include <stddef.h>

enum uevent {
        UEVENT_GENERATION = 1u << 0,
        UEVENT_VSOCK_GONE = 1u << 1,
        UEVENT_MEMORY = 1u << 2,
        UEVENT_ALL = UEVENT_GENERATION | UEVENT_VSOCK_GONE | UEVENT_MEMORY,
};

/* A non-blocking descriptor, or a negative errno. */
int uevent_open(void);

/* Takes all messages that wait; what they said, or, of those that were lost, may have said: bits of enum uevent. */
unsigned uevent_take(int fd);

/* What one message says, n bytes of NUL-terminated texts. Pure. */
unsigned uevent_read(const char *bytes, size_t n);
