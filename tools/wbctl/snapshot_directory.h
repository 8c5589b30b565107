/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A snapshot: a directory of mode 0700 with the files `machine` (snapshot_machine.h), `state` (QEMU's, without memory)
 * and `memory` (the guest's, with holes). It appears whole or not at all.
 */

#include "tools/wbctl/snapshot_machine.h"

#define SNAPSHOT_STATE_FILE  "state"
#define SNAPSHOT_MEMORY_FILE "memory"

/* Each: 0, or a negative errno with the reason on stderr. */

/* Whether a snapshot may be made there: nothing is there, and its parent is a directory. */
int snapshot_directory_check(const char *path);

/*
 * Makes it of the VM's memory and of its state, both memory files. Digest and size of the state are added to machine.
 */
int snapshot_directory_write(const char *path, struct snapshot_machine *machine, int memory_fd, int state_fd);

struct snapshot {
        struct snapshot_machine machine;
        int state_fd;  /* a sealed copy of what the digest is of, at its beginning */
        int memory_fd; /* the snapshot's own file */
};

#define SNAPSHOT_NONE ((struct snapshot){.state_fd = -1, .memory_fd = -1})

/* What is there and unaltered as far as its files say; the content of the memory is not looked at. */
int snapshot_directory_open(const char *path, struct snapshot *ret);
void snapshot_close(struct snapshot *s);
