/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Keeps the clocks of the VMs with the host's between their activations: every registry->clock_check_s each open VM's
 * agent is asked how far its own is (ClockCheck), and puts right what is off. Not over the unix transport, where it is
 * the host's own.
 */

#include "broker/registry.h"

struct clock_keeper;

/* 0 or -ENOMEM. registry outlives it. Its clock_check_s may change: that counts after the next check. */
int clock_keeper_new(struct registry *registry, struct clock_keeper **ret);
void clock_keeper_free(struct clock_keeper *k); /* takes NULL */

/* One check, unless one is under way; what it finds goes to the log. */
void clock_check_start(struct vm_entry *e);

/* The entry goes away, or is revoked. Idempotent. */
void clock_check_cancel(struct vm_entry *e);
