/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The size of a mounted tmpfs, and how to change it. The mount's own flags stay as they are. */

#include <stdbool.h>
#include <stdint.h>

struct tmpfs_use {
        uint64_t size_bytes; /* 0: no limit */
        uint64_t used_bytes;
        unsigned major, minor; /* of its device number */
};

#define TMPFS_E_OTHER 1 /* what is there is no tmpfs, or a directory within one */

/* Opens what is mounted at path, a symbolic link not followed. 0 with a descriptor for tmpfs_resize(), the caller's;
 * TMPFS_E_OTHER; or a negative errno. */
int tmpfs_open(const char *path, int *ret_fd, struct tmpfs_use *ret);

/* For one that is to be as large as size says, "50%" or bytes, with so many inodes (0: left alone). 0; -EINVAL also if
 * more is used, or if it never had a limit; or another negative errno. */
int tmpfs_resize(int fd, const char *size, uint64_t inodes);
