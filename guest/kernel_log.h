/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The kernel's log (/dev/kmsg), as far as it tells of a resume: since 5.18 it says there that it reseeded its generator
 * because the machine has another generation id. Before 6.10 it says so nowhere else.
 */

#include <stdbool.h>
#include <stddef.h>

/* A non-blocking descriptor, from what is logged next on; or a negative errno. */
int kernel_log_open(void);

/* Takes all records that wait. True if one of them says that, or some were lost, of which one may have said it. */
bool kernel_log_take(int fd);

/* Does this one record, n bytes, say that? Pure. */
bool kernel_log_is_generation(const char *record, size_t n);
