/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The conversation with the VMM: vhost-user over a unix socket, one VMM at a time. It brings memory, rings and
 * eventfds, and starts and stops the device.
 *
 * A stopped VM and an unplugged device look the same. What tells them apart is how the rings start again: where they
 * had stopped (connections live on), or at 0, or under a new owner (another guest, a rebooted one: all connections are
 * dropped).
 */

#include <stdint.h>

#include "tools/wbvsock/device.h"

struct session;

struct session_setup {
        struct event_base *base;
        uint64_t guest_cid;
        void (*ended)(void *arg); /* the VMM has gone or broke the protocol; session_free() it later, not from here */
        void *arg;
};

/* Takes fd, a connected socket. The device outlives the session. 0 or -ENOMEM. */
int session_new(const struct session_setup *setup, int fd, struct device *device, struct session **ret);

/* Stops the device and drops its connections. */
void session_free(struct session *s);

/* Whether the VMM's end is closed, even if that has not been noticed yet. */
bool session_is_over(const struct session *s);

/* For the device's setup: interrupts the guest; tells the VMM of a broken queue. */
void session_notify(struct session *s, enum device_queue which);
void session_report_broken(struct session *s, enum device_queue which);
