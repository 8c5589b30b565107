/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/vm_socket.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "proto/base/cleanup.h"
#include "proto/wire/limits.h"

#define SOCKET_UMASK 0117

/* The path of the host's listener on a port. */
static int listener_path(const struct transport *t, uint32_t port, struct sockaddr_un *ret)
{
        int n = snprintf(
                ret->sun_path, sizeof(ret->sun_path), "%s%c%u", t->path, t->kind == TRANSPORT_UNIX ? '/' : '_', port);

        return n < 0 || (size_t)n >= sizeof(ret->sun_path) ? -ENAMETOOLONG : 0;
}

static int stat_directory(const char *path, struct stat *ret)
{
        _cleanup_free_ char *copy = strdup(path);

        if (!copy)
                return -ENOMEM;
        return stat(dirname(copy), ret) < 0 ? -errno : 0;
}

/* Until restore_identity(), files are opened and made as this one. Without the privilege nothing changes, and nothing
 * needs to. */
static void take_identity(uid_t uid, gid_t gid)
{
        (void)setfsgid(gid);
        (void)setfsuid(uid);
}

static void restore_identity(void)
{
        (void)setfsuid(geteuid());
        (void)setfsgid(getegid());
}

int vm_socket_listen(const struct transport *t, uint32_t port, uid_t vmm_uid, int *ret_fd)
{
        struct sockaddr_un address = {0};
        _cleanup_close_ int fd = -1;
        mode_t old_umask;
        struct stat dir;
        int r = listener_path(t, port, &address);

        if (r == 0)
                r = stat_directory(address.sun_path, &dir);
        if (r < 0)
                return r;
        take_identity(dir.st_uid, dir.st_gid);
        old_umask = umask(SOCKET_UMASK);
        r = transport_listen_host(t, port, &fd);
        (void)umask(old_umask);
        restore_identity();
        if (r < 0)
                return r;
        /* Only in a directory of root's: the owner of another could have put a link in the socket's place by now. */
        if (vmm_uid != (uid_t)-1 && vmm_uid != 0 && dir.st_uid == 0 && geteuid() == 0 &&
                lchown(address.sun_path, vmm_uid, (gid_t)-1) < 0)
                return -errno;
        *ret_fd = steal_fd(&fd);
        return 0;
}

void vm_socket_unlink(const struct transport *t, uint32_t port)
{
        struct sockaddr_un address = {0};
        struct stat dir, st;

        if (listener_path(t, port, &address) < 0 || stat_directory(address.sun_path, &dir) < 0)
                return;
        take_identity(dir.st_uid, dir.st_gid);
        if (lstat(address.sun_path, &st) == 0 && S_ISSOCK(st.st_mode))
                (void)unlink(address.sun_path);
        restore_identity();
}

/* As whoever owns the socket. Not root's: what else root serves at a path that the broker names is not the broker's to
 * speak with. */
static int connect_as_owner(int fd, const struct sockaddr_un *address)
{
        struct stat st;
        int r = 0;

        if (lstat(address->sun_path, &st) < 0)
                return -errno;
        if (!S_ISSOCK(st.st_mode) || st.st_uid == 0)
                return -EACCES;
        take_identity(st.st_uid, st.st_gid);
        if (connect(fd, (const struct sockaddr *)address, sizeof(*address)) < 0)
                r = -errno;
        restore_identity();
        return r;
}

/*
 * Root's own agent: DIR/1024 in a directory that nobody but root writes to. The name is fixed and the directory is
 * held, so the broker reaches nothing else by it.
 */
static int connect_in_root_directory(int fd, const char *dir)
{
        _cleanup_close_ int dir_fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        struct stat st;
        char name[16];

        if (dir_fd < 0 || fstat(dir_fd, &st) < 0)
                return -errno;
        if (st.st_uid != 0 || st.st_mode & (S_IWGRP | S_IWOTH))
                return -EACCES;
        (void)snprintf(name, sizeof(name), "%u", WB_PORT_CONTROL);
        if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                return -errno;
        if (!S_ISSOCK(st.st_mode))
                return -EACCES;
        (void)snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/%s", dir_fd, name);
        return connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0 ? -errno : 0;
}

int vm_socket_dial(const struct transport *t, int *ret_fd)
{
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        _cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        int n, r;

        if (fd < 0)
                return -errno;
        n = t->kind == TRANSPORT_UNIX
                    ? snprintf(address.sun_path, sizeof(address.sun_path), "%s/%u", t->path, WB_PORT_CONTROL)
                    : snprintf(address.sun_path, sizeof(address.sun_path), "%s", t->path);
        if (n < 0 || (size_t)n >= sizeof(address.sun_path))
                return -ENAMETOOLONG;
        r = connect_as_owner(fd, &address);
        if (r == -EACCES && t->kind == TRANSPORT_UNIX)
                r = connect_in_root_directory(fd, t->path);
        if (r == 0)
                *ret_fd = steal_fd(&fd);
        return r;
}
