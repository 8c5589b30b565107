/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/uevent.h"

#include <errno.h>
#include <linux/netlink.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/base/cleanup.h"

#define KERNEL_GROUP    1u     /* udevd speaks in another */
#define MESSAGE_BYTES   8192u  /* lib/kobject_uevent.c: 2048 of texts, and the path */
#define RECEIVE_BYTES   262144 /* so that a bus full of devices loses none */
#define TAKEN_AT_A_TIME 4096   /* then others have their turn */

/* Of a virtio device with VIRTIO_ID_VSOCK (linux/virtio_ids.h), whoever its vendor (drivers/virtio/virtio.c). */
#define VSOCK_ALIAS "MODALIAS=virtio:d00000013v"

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

/* One text, without its NUL: is it this one, or does it begin so? */
static bool is_text(const char *text, size_t n, const char *wanted)
{
        return n == strlen(wanted) && memcmp(text, wanted, n) == 0;
}

static bool begins(const char *text, size_t n, const char *wanted)
{
        return n >= strlen(wanted) && memcmp(text, wanted, strlen(wanted)) == 0;
}

/*
 * Who writes to a device's `uevent` file can have the kernel send a message of it, of any action; but then it bears
 * SYNTH_UUID, and its own variables begin with SYNTH_ARG_ (Documentation/ABI/testing/sysfs-uevent).
 */
unsigned uevent_read(const char *bytes, size_t n)
{
        bool goes = false, is_vsock = false, is_memory = false, is_used = false, is_synthetic = false;
        unsigned found = 0;

        for (size_t at = 0; at < n;) {
                const char *text = bytes + at;
                size_t length = strnlen(text, n - at);

                if (is_text(text, length, "NEW_VMGENID=1"))
                        found |= UEVENT_GENERATION;
                goes |= is_text(text, length, "ACTION=remove") || is_text(text, length, "ACTION=unbind");
                is_vsock |= begins(text, length, VSOCK_ALIAS);
                is_memory |= is_text(text, length, "SUBSYSTEM=memory");
                is_used |= is_text(text, length, "ACTION=online") || is_text(text, length, "ACTION=offline");
                is_synthetic |= begins(text, length, "SYNTH_UUID=");
                at += length + 1;
        }
        if (goes && is_vsock && !is_synthetic)
                found |= UEVENT_VSOCK_GONE;
        if (is_used && is_memory && !is_synthetic)
                found |= UEVENT_MEMORY;
        return found;
}

unsigned uevent_take(int fd)
{
        char bytes[MESSAGE_BYTES];
        unsigned found = 0;

        for (int i = 0; i < TAKEN_AT_A_TIME; i++) {
                struct sockaddr_nl from = {0};
                socklen_t from_n = sizeof(from);
                ssize_t n = recvfrom(fd, bytes, sizeof(bytes), 0, (struct sockaddr *)&from, &from_n);

                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0 && errno == ENOBUFS)
                        found = UEVENT_ALL;
                else if (n < 0)
                        break;
                else if (from.nl_pid == 0) /* the kernel, and nobody else */
                        found |= uevent_read(bytes, (size_t)n);
        }
        return found;
}
