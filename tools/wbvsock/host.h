/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The host's door: takes connections at PATH, reads "CONNECT <port>\n" and hands them to the device. Whoever says
 * something else, or nothing for 30 s, or comes when the guest has no driver, is closed without a word (INTERFACES.md,
 * Transports).
 */

#include <stddef.h>
#include <stdint.h>

#include "tools/wbvsock/device.h"

struct host;

/* "CONNECT " and the digits of a port; *ret_n counts the newline. Pure. 0, -EAGAIN (not whole yet), -EINVAL. */
int host_parse_line(const char *bytes, size_t n, uint32_t *ret_port, size_t *ret_n);

/* Takes listen_fd in any case. 0 or -ENOMEM. most bounds the connections that have not said their line. */
int host_new(struct event_base *base, int listen_fd, uint32_t most, struct device *device, struct host **ret);
void host_free(struct host *h);
