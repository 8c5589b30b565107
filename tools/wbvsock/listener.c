/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/wbvsock/listener.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/base/cleanup.h"

/* While it is being made, PATH has this behind it and the pid. */
#define NEW_SUFFIX     ".new."
#define NEW_SUFFIX_MAX (sizeof(NEW_SUFFIX) + 10)

int listener_check_path(const char *path, unsigned suffix_bytes)
{
        const struct sockaddr_un *un = NULL;

        if (suffix_bytes < NEW_SUFFIX_MAX)
                suffix_bytes = NEW_SUFFIX_MAX;
        return strlen(path) + suffix_bytes < sizeof(un->sun_path) ? 0 : -ENAMETOOLONG;
}

/* 0: nothing there, or a socket without a listener. */
static int check_free(const char *path)
{
        struct sockaddr_un un = {.sun_family = AF_UNIX};
        struct stat st;
        _cleanup_close_ int fd = -1;

        if (lstat(path, &st) < 0)
                return errno == ENOENT ? 0 : -errno;
        if (!S_ISSOCK(st.st_mode))
                return -EADDRINUSE;
        fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd < 0)
                return -errno;
        (void)snprintf(un.sun_path, sizeof(un.sun_path), "%s", path);
        if (connect(fd, (struct sockaddr *)&un, sizeof(un)) == 0 || errno != ECONNREFUSED)
                return -EADDRINUSE;
        return 0;
}

int listener_open(const char *path, uint32_t mode, int backlog, int *ret_fd)
{
        struct sockaddr_un un = {.sun_family = AF_UNIX};
        _cleanup_close_ int fd = -1;
        int r = listener_check_path(path, 0);

        if (r < 0)
                return r;
        r = check_free(path);
        if (r < 0)
                return r;
        fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd < 0)
                return -errno;
        (void)snprintf(un.sun_path, sizeof(un.sun_path), "%s" NEW_SUFFIX "%d", path, (int)getpid());
        (void)unlink(un.sun_path);
        if (bind(fd, (struct sockaddr *)&un, sizeof(un)) < 0)
                return -errno;
        if (chmod(un.sun_path, (mode_t)mode) < 0 || listen(fd, backlog) < 0 || rename(un.sun_path, path) < 0) {
                r = -errno;
                (void)unlink(un.sun_path);
                return r;
        }
        *ret_fd = steal_fd(&fd);
        return 0;
}
