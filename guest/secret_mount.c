/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/secret_mount.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "proto/base/cleanup.h"
#include "proto/base/io.h"

#define MOUNT_FLAGS (MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC)

/* By system call: musl and older libcs have no wrappers. */
static int configure(int fs_fd, unsigned command, const char *key, const char *value)
{
        return syscall(SYS_fsconfig, fs_fd, command, key, value, 0) < 0 ? -errno : 0;
}

static int set_number(int fs_fd, const char *key, uint64_t value)
{
        char text[24];

        (void)snprintf(text, sizeof(text), "%" PRIu64, value);
        return configure(fs_fd, FSCONFIG_SET_STRING, key, text);
}

/* The filesystem, mounted nowhere; the descriptor of its root. */
static int make_detached(int fs_fd, int *ret_fd)
{
        int fd, r = configure(fs_fd, FSCONFIG_SET_STRING, "mode", "0755");

        if (r == 0)
                r = configure(fs_fd, FSCONFIG_CMD_CREATE, NULL, NULL);
        if (r < 0)
                return r;
        fd = (int)syscall(SYS_fsmount, fs_fd, FSMOUNT_CLOEXEC, MOUNT_FLAGS);
        if (fd < 0)
                return -errno;
        *ret_fd = fd;
        return 0;
}

/* noswap is Linux 6.4; ramfs, which knows of no limits, never was swapped. */
static int make_memory(uint64_t bytes, size_t files_n, int *ret_fd)
{
        _cleanup_close_ int fs_fd = (int)syscall(SYS_fsopen, "tmpfs", FSOPEN_CLOEXEC);
        int r = fs_fd < 0 ? -errno : configure(fs_fd, FSCONFIG_SET_FLAG, "noswap", NULL);

        if (r == -EINVAL) {
                close_fd(fs_fd);
                fs_fd = (int)syscall(SYS_fsopen, "ramfs", FSOPEN_CLOEXEC);
                r = fs_fd < 0 ? -errno : 0;
        } else if (r == 0) {
                r = set_number(fs_fd, "size", bytes);
                if (r == 0)
                        r = set_number(fs_fd, "nr_inodes", files_n + 1); /* and the directory */
        }
        return r < 0 ? r : make_detached(fs_fd, ret_fd);
}

static int write_file(int dir_fd, const struct secret_file *f, uid_t uid, gid_t gid)
{
        _cleanup_close_ int fd = openat(dir_fd, f->name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0400);
        int r;

        if (fd < 0)
                return -errno;
        r = f->value_n ? io_write_full(fd, f->value, f->value_n) : 0;
        if (r < 0)
                return r;
        return fchown(fd, uid, gid) < 0 || fchmod(fd, 0400) < 0 ? -errno : 0; /* whatever the umask */
}

int secret_mount_new(const struct secret_file *files, size_t n, uid_t uid, gid_t gid, int *ret_fd)
{
        uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), bytes = page; /* a size of 0 would be no limit */
        _cleanup_close_ int fd = -1;
        int r;

        for (size_t i = 0; i < n; i++)
                bytes += (files[i].value_n + page - 1) / page * page;
        r = make_memory(bytes, n, &fd);
        for (size_t i = 0; r == 0 && i < n; i++)
                r = write_file(fd, &files[i], uid, gid);
        if (r < 0)
                return r;
        *ret_fd = steal_fd(&fd);
        return 0;
}

/* The machine's later mounts still come to the new namespace, but out of it nothing goes. */
int secret_mount_attach(int fd)
{
        if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0)
                return -errno;
        return syscall(SYS_move_mount, fd, "", AT_FDCWD, SECRET_MOUNT_DIRECTORY, MOVE_MOUNT_F_EMPTY_PATH) < 0 ? -errno
                                                                                                              : 0;
}

static void overwrite(int fd)
{
        static const uint8_t zeros[4096];
        struct stat st;

        if (fstat(fd, &st) < 0)
                return;
        for (off_t left = st.st_size; left > 0; left -= (off_t)sizeof(zeros))
                if (io_write_full(fd, zeros, left < (off_t)sizeof(zeros) ? (size_t)left : sizeof(zeros)) < 0)
                        return;
        (void)!ftruncate(fd, 0);
}

void secret_mount_remove(int fd, const char *name)
{
        /* Root in the exec may have put anything there: a FIFO must not hold us up, nor a link lead away. */
        _cleanup_close_ int file_fd = openat(fd, name, O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);

        if (file_fd >= 0)
                overwrite(file_fd);
        (void)unlinkat(fd, name, 0);
}
