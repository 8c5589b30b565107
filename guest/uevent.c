/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/uevent.h"

#include <errno.h>
#include <linux/netlink.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/base/cleanup.h"

#define KERNEL_GROUP    1u     /* udevd speaks in another */
#define MESSAGE_BYTES   8192u  /* lib/kobject_uevent.c: 2048 of texts, and the path */
#define RECEIVE_BYTES   262144 /* so that a bus full of devices loses none */
#define TAKEN_AT_A_TIME 4096   /* then others have their turn */

int uevent_open(void)
{
        _cleanup_close_ int fd = socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_KOBJECT_UEVENT);
        const struct sockaddr_nl here = {.nl_family = AF_NETLINK, .nl_groups = KERNEL_GROUP};
        const int bytes = RECEIVE_BYTES;

        if (fd < 0)
                return -errno;
        (void)setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof(bytes));
        if (bind(fd, (const struct sockaddr *)&here, sizeof(here)) < 0)
                return -errno;
        return steal_fd(&fd);
}

/*
 * Who writes to a device's `uevent` file can have the kernel send a message of it, but not one with a variable of this
 * name: theirs begin with SYNTH_ARG_.
 */
bool uevent_is_generation(const char *bytes, size_t n)
{
        static const char wanted[] = "NEW_VMGENID=1";

        for (size_t at = 0; at < n;) {
                size_t length = strnlen(bytes + at, n - at);

                if (length == sizeof(wanted) - 1 && memcmp(bytes + at, wanted, length) == 0)
                        return true;
                at += length + 1;
        }
        return false;
}

bool uevent_take(int fd)
{
        char bytes[MESSAGE_BYTES];
        bool found = false;

        for (int i = 0; i < TAKEN_AT_A_TIME; i++) {
                struct sockaddr_nl from = {0};
                socklen_t from_n = sizeof(from);
                ssize_t n = recvfrom(fd, bytes, sizeof(bytes), 0, (struct sockaddr *)&from, &from_n);

                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0 && errno == ENOBUFS)
                        found = true;
                else if (n < 0)
                        break;
                else if (from.nl_pid == 0) /* the kernel, and nobody else */
                        found |= uevent_is_generation(bytes, (size_t)n);
        }
        return found;
}
