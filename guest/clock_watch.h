/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The guest's clock between activations: looked at every minute where the host's can be read (ptp_kvm), else whenever
 * the host begins a ClockCheck. What is off is slewed by the kernel, or stepped where that would take long; over the
 * unix transport the clock is the host's own and is never touched.
 */

#include <stddef.h>

#include "guest/clock.h"
#include "guest/control.h"

struct agent;
struct clock_watch;

/* 0 or -ENOMEM. */
int clock_watch_new(struct agent *agent, struct clock_watch **ret);
void clock_watch_free(struct clock_watch *w); /* takes NULL */

/* An activation has put the clock right: drift is counted from here. */
void clock_watch_begin(struct clock_watch *w, const struct clock_offset *offset);

/* The host's ClockCheck; takes the conversation over. */
void clock_watch_open(struct clock_watch *w, struct control *c);

/* What the last check found, for `wbctl info`. */
void clock_watch_describe(const struct clock_watch *w, char *text, size_t room);
