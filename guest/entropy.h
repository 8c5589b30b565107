/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The host's seed into the kernel's generator. On a kernel whose generator is ready (every resumed guest), adding alone
 * changes the output only at the next periodic reseed, up to a minute later: two clones would draw the same. So what is
 * added is also made to take effect at once.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "guest/report.h"

/*
 * own_kernel: the guest has a kernel of its own, so that failing to credit or to reseed is an error; else (a container)
 * the kernel is the host's, which needs no credit from us: the seed is mixed in by writing. 0 or a negative errno, and
 * the evidence either way.
 */
int entropy_add(const uint8_t *seed, size_t n, bool own_kernel, struct report *report);
