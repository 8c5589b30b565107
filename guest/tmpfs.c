/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/tmpfs.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "proto/base/cleanup.h"

int tmpfs_open(const char *path, int *ret_fd, struct tmpfs_use *ret)
{
        _cleanup_close_ int fd = open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        struct statfs st;
        struct statx at;

        if (fd < 0 || fstatfs(fd, &st) < 0 || statx(fd, "", AT_EMPTY_PATH, 0, &at) < 0)
                return -errno;
        if (st.f_type != TMPFS_MAGIC || !(at.stx_attributes & STATX_ATTR_MOUNT_ROOT))
                return TMPFS_E_OTHER;
        ret->major = at.stx_dev_major;
        ret->minor = at.stx_dev_minor;
        ret->size_bytes = (uint64_t)st.f_blocks * (uint64_t)st.f_bsize;
        ret->used_bytes = (uint64_t)(st.f_blocks - st.f_bfree) * (uint64_t)st.f_bsize;
        *ret_fd = steal_fd(&fd);
        return 0;
}

/* By system call: musl and older libcs have no wrappers. */
static int configure(int fs_fd, unsigned command, const char *key, const char *value)
{
        return syscall(SYS_fsconfig, fs_fd, command, key, value, 0) < 0 ? -errno : 0;
}

int tmpfs_resize(int fd, const char *size, uint64_t inodes)
{
        _cleanup_close_ int fs_fd = (int)syscall(SYS_fspick, fd, "", FSPICK_CLOEXEC | FSPICK_EMPTY_PATH);
        char number[24];
        int r = fs_fd < 0 ? -errno : configure(fs_fd, FSCONFIG_SET_STRING, "size", size);

        (void)snprintf(number, sizeof(number), "%" PRIu64, inodes);
        if (r == 0 && inodes)
                r = configure(fs_fd, FSCONFIG_SET_STRING, "nr_inodes", number);
        return r < 0 ? r : configure(fs_fd, FSCONFIG_CMD_RECONFIGURE, NULL, NULL);
}
