/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What is as large as the machine's memory allows; pure. total is MemTotal: what the kernel has to give to processes,
 * without its own code and tables.
 */

#include <stdbool.h>
#include <stdint.h>

#define MEMORY_SIZE_PERCENT 50 /* of a tmpfs that nobody gave a size (Documentation/filesystems/tmpfs.rst) */

/*
 * What is kept from all execs together, so that they run out of memory before the machine does: what was in use before
 * the first of them, which is the image (where it lies in memory), the kernel and the agent; and a sixteenth of total,
 * at least 8 MiB and at most 128, for what the kernel and the agent need on their behalf. Never more than half of
 * total.
 */
uint64_t memory_size_reserve(uint64_t total_bytes, uint64_t used_before_bytes);

/* total without the reserve, in whole pages. */
uint64_t memory_size_ceiling(uint64_t total_bytes, uint64_t used_before_bytes, uint64_t page_bytes);

/* Of a tmpfs: bytes and inodes, as the kernel itself counts them (an inode for each page that it may have). */
uint64_t memory_size_of_percent(uint64_t total_bytes, uint32_t percent, uint64_t page_bytes);
uint64_t memory_size_inodes(uint64_t total_bytes, uint32_t percent, uint64_t page_bytes);
