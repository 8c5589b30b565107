/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A guest's memory in a memory file that QEMU maps, and its way to a snapshot's file and back. Both files have holes
 * where the guest's memory is zero. Each clone has a copy of its own: what QEMU and wbvsock share they must map shared,
 * and then the kernel copies nothing on write.
 */

#include <stdint.h>

/* Zero throughout, of a fixed size, so that nobody who has it can make it end under another's feet. 0 or -errno. */
int snapshot_memory_new(uint64_t bytes, int *ret_fd);

/* All of from into the empty file to. 0 or a negative errno. */
int snapshot_memory_write(int from, uint64_t bytes, int to);

/*
 * A part of the snapshot's file from into the new memory to: all that lies at *offset and for some way behind it.
 * *offset is 0 at first and bytes when it is done. 0 or a negative errno; -EPIPE when from has ended early.
 */
int snapshot_memory_read_some(int from, uint64_t bytes, int to, uint64_t *offset);
