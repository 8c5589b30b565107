/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The kernel's messages of devices (NETLINK_KOBJECT_UEVENT), as far as they say that the machine has another generation
 * id: its driver (drivers/virt/vmgenid.c) says so since Linux 6.10. */

#include <stdbool.h>
#include <stddef.h>

/* A non-blocking descriptor, or a negative errno. */
int uevent_open(void);

/*
 * Takes all messages that wait. True if one of them was of a new generation id, or some were lost, of which one may
 * have been that.
 */
bool uevent_take(int fd);

/* Is this one message, n bytes of NUL-terminated texts, of a new generation id? Pure. */
bool uevent_is_generation(const char *bytes, size_t n);
