/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Filesystems frozen for a snapshot, by a process that holds them so. FIFREEZE waits for whoever writes, and a workload
 * that is frozen in the middle of a write keeps it waiting for ever: so it is not the agent that waits. And should the
 * agent die the process thaws.
 */

#include <stdbool.h>

struct agent;

#define FILESYSTEMS_ARGUMENT "--filesystems"
#define FILESYSTEMS_LIMIT_MS 10000 /* for all disks to be written and frozen */

/*
 * Writes all to disk; and freezes, unless the disks are not the guest's own (unix transport). Waits for it. 0;
 * -ETIMEDOUT (what is frozen meanwhile is thawed); or another negative errno (nothing is frozen).
 */
int filesystems_hold(struct agent *agent);

/* Thaws, if they are frozen; answers how many were. Does not wait for a process that has not come to freezing. */
unsigned filesystems_release(struct agent *agent);

/* What the process does, fd being its end of a socket pair: writes, freezes, says so, and thaws at fd's end. */
void filesystems_hold_serve(int fd);

/* The process: descriptor 3 is that end. Its exit status. */
int filesystems_main(void);
