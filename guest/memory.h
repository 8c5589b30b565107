/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Keeps what is as large as the machine's memory allows in step with it: the ceiling of all execs together, and the
 * memory filesystems that are a share of it. Looks when the kernel tells of memory that came or went, at each
 * activation, when the host asks, and every few seconds, since a balloon tells nobody.
 */

#include <stdbool.h>
#include <stdint.h>

#include "guest/report.h"
#include "proto/wb.pb-c.h"
#include "proto/wire/limits.h"

struct agent;
struct init_memory;
struct memory_watch;

enum memory_ceiling {
        MEMORY_CEILING_NONE,
        MEMORY_CEILING_FOLLOWS,
        MEMORY_CEILING_FIXED,
};

/*
 * PID 1 of a kernel of its own sets the ceiling, and follows the root, if that is in memory, and what it mounted
 * itself: init's paths. A service's ceiling is its supervisor's unless the host asks for one. After exec_table_new(). 0
 * or -ENOMEM.
 */
int memory_watch_new(struct agent *agent, const struct init_memory *init, struct memory_watch **ret);
void memory_watch_free(struct memory_watch *w); /* takes NULL */

/* Looks now. What cannot be is logged, and shown by memory_limits(); the old size stays. */
void memory_look(struct memory_watch *w);

/* From now on. bytes is of MEMORY_CEILING_FIXED. 0, -EOPNOTSUPP without the controller, or another negative errno. */
int memory_set_ceiling(struct memory_watch *w, enum memory_ceiling how, uint64_t bytes);

/*
 * The tmpfs mounted at path is to have this size: percent of memory from now on, or bytes. 0, TMPFS_E_OTHER,
 * MEMORY_E_USED (more than that is used: *ret_used_bytes), MEMORY_E_FULL (as many are followed as there is room for),
 * or a negative errno. dry: only see whether it could be.
 */
#define MEMORY_E_USED 2
#define MEMORY_E_FULL 3
int memory_resize(
        struct memory_watch *w, const char *path, uint32_t percent, uint64_t bytes, bool dry, uint64_t *ret_used_bytes);

/* The evidence of an activation. */
void memory_report(const struct memory_watch *w, struct report *report);

/* The message and all that it points at; large: not for the stack. */
struct memory_message {
        Wb__MemoryLimits limits;
        Wb__MemoryFilesystem items[WB_MEMORY_FILESYSTEMS_MAX], *pointers[WB_MEMORY_FILESYSTEMS_MAX];
        char paths[WB_MEMORY_FILESYSTEMS_MAX][WB_MEMORY_PATH_MAX + 1];
};
void memory_limits(const struct memory_watch *w, struct memory_message *ret);
