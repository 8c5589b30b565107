/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>

#include "proto/base/cleanup.h"

static int wait_for(int fd, short events)
{
        struct pollfd p = {.fd = fd, .events = events};

        while (poll(&p, 1, -1) < 0)
                if (errno != EINTR)
                        return -errno;
        return 0;
}

int io_read_full(int fd, void *to, size_t n)
{
        uint8_t *p = to;

        while (n) {
                ssize_t got = read(fd, p, n);

                if (got == 0)
                        return -EPIPE;
                if (got > 0) {
                        p += got;
                        n -= (size_t)got;
                } else if (errno == EAGAIN) {
                        int r = wait_for(fd, POLLIN);

                        if (r < 0)
                                return r;
                } else if (errno != EINTR) {
                        return -errno;
                }
        }
        return 0;
}

int io_write_full(int fd, const void *from, size_t n)
{
        const uint8_t *p = from;
        int is_socket = 1;

        while (n) {
                ssize_t put = is_socket ? send(fd, p, n, MSG_NOSIGNAL) : write(fd, p, n);

                if (put >= 0) {
                        p += put;
                        n -= (size_t)put;
                } else if (errno == ENOTSOCK && is_socket) {
                        is_socket = 0;
                } else if (errno == EAGAIN) {
                        int r = wait_for(fd, POLLOUT);

                        if (r < 0)
                                return r;
                } else if (errno != EINTR) {
                        return -errno;
                }
        }
        return 0;
}

int io_read_fd(int fd, size_t max_bytes, char **ret_text, size_t *ret_n)
{
        _cleanup_free_ char *text = NULL;
        size_t n = 0, room = 0;

        for (;;) {
                ssize_t got;

                if (n == room) {
                        char *larger;

                        room = room ? room * 2 : 4096;
                        if (room > max_bytes + 1)
                                room = max_bytes + 1;
                        larger = realloc(text, room + 1);
                        if (!larger)
                                return -ENOMEM;
                        text = larger;
                }
                got = read(fd, text + n, room - n);
                if (got < 0 && errno == EINTR)
                        continue;
                if (got < 0)
                        return -errno;
                if (got == 0)
                        break;
                n += (size_t)got;
                if (n > max_bytes)
                        return -EFBIG;
        }
        text[n] = '\0';
        *ret_text = STEAL(text);
        if (ret_n)
                *ret_n = n;
        return 0;
}

int io_read_file(const char *path, size_t max_bytes, char **ret_text, size_t *ret_n)
{
        _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);

        if (fd < 0)
                return -errno;
        return io_read_fd(fd, max_bytes, ret_text, ret_n);
}

int io_write_file(const char *path, const char *text)
{
        _cleanup_close_ int fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
        size_t n = strlen(text);
        ssize_t put;

        if (fd < 0)
                return -errno;
        put = write(fd, text, n);
        if (put < 0)
                return -errno;
        return (size_t)put == n ? 0 : -EIO;
}

int io_set_nonblock(int fd)
{
        int flags = fcntl(fd, F_GETFL);

        if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
                return -errno;
        return 0;
}

int io_set_cloexec(int fd, int on)
{
        return fcntl(fd, F_SETFD, on ? FD_CLOEXEC : 0) < 0 ? -errno : 0;
}

union fds_control {
        struct cmsghdr align;
        char room[CMSG_SPACE(sizeof(int) * IO_FDS_MAX)];
};

ssize_t io_send_fds(int sock, const void *data, size_t n, const int *fds, size_t fds_n)
{
        union fds_control control = {0};
        struct iovec iov = {.iov_base = (void *)(uintptr_t)data, .iov_len = n};
        struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
        ssize_t put;

        if (fds_n > IO_FDS_MAX)
                return -EMSGSIZE;
        if (fds_n) {
                m.msg_control = &control;
                m.msg_controllen = CMSG_SPACE(sizeof(int) * fds_n);
                struct cmsghdr *c = CMSG_FIRSTHDR(&m);
                c->cmsg_level = SOL_SOCKET;
                c->cmsg_type = SCM_RIGHTS;
                c->cmsg_len = CMSG_LEN(sizeof(int) * fds_n);
                memcpy(CMSG_DATA(c), fds, sizeof(int) * fds_n);
        }
        do
                put = sendmsg(sock, &m, MSG_NOSIGNAL);
        while (put < 0 && errno == EINTR);
        return put < 0 ? -errno : put;
}

/* Takes the descriptors of a message; those that do not fit are closed. */
static size_t take_fds(struct msghdr *m, int *fds, size_t room)
{
        size_t n = 0;

        for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
                if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
                        continue;
                size_t came = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
                for (size_t i = 0; i < came; i++, n++) {
                        int fd;

                        memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
                        if (n < room)
                                fds[n] = fd;
                        else
                                close_fd(fd);
                }
        }
        return n;
}

ssize_t io_recv_fds(int sock, void *data, size_t n, int *fds, size_t *fds_n)
{
        union fds_control control;
        struct iovec iov = {.iov_base = data, .iov_len = n};
        struct msghdr m = {
                .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
        size_t room = *fds_n, came;
        ssize_t got;

        do
                got = recvmsg(sock, &m, MSG_CMSG_CLOEXEC);
        while (got < 0 && errno == EINTR);
        if (got < 0)
                return -errno;
        came = take_fds(&m, fds, room);
        if (came > room || (m.msg_flags & (MSG_CTRUNC | MSG_TRUNC))) {
                for (size_t i = 0; i < came && i < room; i++)
                        close_fd(fds[i]);
                return -EMSGSIZE;
        }
        *fds_n = came;
        return got;
}
