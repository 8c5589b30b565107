/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The guest's filesystems around a snapshot: those on disks of its own, each once, told by /proc/self/mountinfo.
 * Frozen, nothing of them is half written, not even a journal; trimmed, the disk's image holds no blocks that nobody
 * uses.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FILESYSTEMS_MAX 32

struct filesystem {
        char device[16]; /* "254:0": two mounts of it are one filesystem */
        char path[256];  /* where it is mounted */
};

/*
 * The writable filesystems on block devices that text (proc(5), mountinfo) lists, up to FILESYSTEMS_MAX; loop devices
 * are left out, because their files are on another one. Pure. Answers how many.
 */
size_t filesystems_find(const char *text, struct filesystem ret[FILESYSTEMS_MAX]);

/* The same of those in memory, tmpfs. */
size_t filesystems_find_memory(const char *text, struct filesystem ret[FILESYSTEMS_MAX]);

/* Those on disks of our own mounts, FILESYSTEMS_MAX at most; *ret is the caller's to free, NULL without memory. Answers
 * how many. */
size_t filesystems_list(struct filesystem **ret);

/*
 * FIFREEZE for all that can be frozen. Whoever writes to one then waits until the thaw, the agent too: it does not
 * touch a disk meanwhile. *ret_n says how many; 0 or a negative errno (all are thawed again).
 */
int filesystems_freeze(unsigned *ret_n);

/* FITHAW for all; those that are not frozen are left alone. Answers how many were frozen. */
unsigned filesystems_thaw(void);

/* FITRIM for all; answers how many bytes the disks were told of. May take long. */
uint64_t filesystems_trim(void);
