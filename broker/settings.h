/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the workers share, made of the configuration and of the host's own addresses, which are part of the floor. */

#include "broker/file_set.h"
#include "broker/worker.h"

/*
 * Asks the kernel for the host's addresses. What the operator adds to the floor is before's and setup's together, for
 * the time between two configurations; before may be NULL. 0 with a reference in *ret, or a negative errno.
 */
int settings_make(const struct setup *setup, const struct setup *before, struct worker_settings **ret);

/* A netlink socket, non-blocking, that is readable when the host's addresses have changed. */
int settings_watch_addresses(int *ret_fd);

/* Reads it empty; did an address change? */
bool settings_addresses_changed(int fd);
