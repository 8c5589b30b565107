/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/ipc.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "proto/base/cleanup.h"
#include "proto/base/io.h"

int ipc_pair(int ret_fds[2])
{
        return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ret_fds) < 0 ? -errno : 0;
}

int ipc_send(int sock, const struct ipc_frame *frame, const int *fds, size_t fds_n)
{
        ssize_t n = io_send_fds(sock, frame, sizeof(*frame), fds, fds_n);

        return n < 0 ? (int)n : n == sizeof(*frame) ? 0 : -EIO;
}

static bool is_text(const char *text, size_t room)
{
        return memchr(text, '\0', room) != NULL;
}

int ipc_receive(int sock, struct ipc_frame *ret, int *ret_fds, size_t *ret_fds_n)
{
        struct ipc_frame frame;
        int fds[IPC_FDS_MAX];
        size_t fds_n = IPC_FDS_MAX;
        ssize_t n = io_recv_fds(sock, &frame, sizeof(frame), fds, &fds_n);

        if (n == 0 || n == -ECONNRESET)
                return -EPIPE;
        if (n < 0)
                return n == -EMSGSIZE ? -EBADMSG : (int)n;
        if (n != sizeof(frame) || frame.kind >= IPC_KIND_MAX_ || !is_text(frame.path, sizeof(frame.path)) ||
                !evidence_is_sound(&frame.evidence)) {
                for (size_t i = 0; i < fds_n; i++)
                        close_fd(fds[i]);
                return -EBADMSG;
        }
        *ret = frame;
        for (size_t i = 0; i < fds_n; i++)
                ret_fds[i] = fds[i];
        *ret_fds_n = fds_n;
        return 0;
}
