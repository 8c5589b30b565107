/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Reads a process's evidence from /proc and the cgroup file systems. For the monitor: it wants root, or CAP_SYS_PTRACE
 * with CAP_DAC_READ_SEARCH, to see the processes of others; what it cannot read it says so of. */

#include <sys/types.h>
#include <time.h>

#include "broker/evidence.h"

/* Digests of programs that were read already, by the file's identity. Zeroed is empty. */
struct evidence_digests {
        struct {
                dev_t device;
                ino_t inode;
                off_t size;
                struct timespec changed;
                uint8_t sha256[32];
        } known[8];
        unsigned next;
};

/*
 * Looks at pid. *ret_pidfd pins the process: the evidence is of that one, never of a later one with the same number,
 * since the process still lived when all had been read. -1 where no such process exists (exists is false then, and the
 * answer still 0). A negative errno where it cannot be pinned.
 */
int evidence_gather(struct evidence_digests *digests, int pid, struct evidence *ret, int *ret_pidfd);
