/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/monitor_client.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/cleanup.h"
#include "proto/base/log.h"

/* The monitor sends one reload at a time and a drain twice at most. */
#define KEPT_MAX 4u

struct kept {
        struct ipc_frame frame;
        int fds[IPC_FDS_MAX];
        size_t fds_n;
};

struct monitor_client {
        int sock;
        struct event *readable;
        monitor_client_handler handler;
        void *userdata;
        struct kept kept[KEPT_MAX];
        size_t kept_n;
};

/* There is nothing to save: whoever could restart this is gone, and so is whoever could make a socket for it. */
static void lost(int r) __attribute__((noreturn));
static void lost(int r)
{
        if (r == -EPIPE)
                log_error("the monitor is gone; the broker process ends");
        else
                (void)log_errno(r, "the monitor cannot be understood; the broker process ends");
        _exit(EXIT_FAILURE);
}

static void receive(struct monitor_client *c, struct kept *ret)
{
        int r = ipc_receive(c->sock, &ret->frame, ret->fds, &ret->fds_n);

        if (r < 0)
                lost(r);
}

static void on_readable(evutil_socket_t fd, short events, void *userdata)
{
        struct monitor_client *c = userdata;
        struct kept next;

        (void)fd;
        while (c->kept_n) {
                next = c->kept[0];
                memmove(c->kept, c->kept + 1, --c->kept_n * sizeof(*c->kept));
                c->handler(c->userdata, &next.frame, next.fds, next.fds_n);
        }
        if (!(events & EV_READ))
                return;
        receive(c, &next);
        c->handler(c->userdata, &next.frame, next.fds, next.fds_n);
}

int monitor_client_new(
        struct event_base *base, int sock, monitor_client_handler handler, void *userdata, struct monitor_client **ret)
{
        struct monitor_client *c = calloc(1, sizeof(*c));

        if (!c)
                return -ENOMEM;
        *c = (struct monitor_client){.sock = sock, .handler = handler, .userdata = userdata};
        c->readable = event_new(base, sock, EV_READ | EV_PERSIST, on_readable, c);
        if (!c->readable || event_add(c->readable, NULL) < 0) {
                monitor_client_free(c);
                return -ENOMEM;
        }
        *ret = c;
        return 0;
}

void monitor_client_free(struct monitor_client *c)
{
        if (!c)
                return;
        if (c->readable)
                event_free(c->readable);
        for (size_t i = 0; i < c->kept_n; i++)
                for (size_t j = 0; j < c->kept[i].fds_n; j++)
                        close_fd(c->kept[i].fds[j]);
        close_fd(c->sock);
        free(c);
}

int monitor_tell(struct monitor_client *c, enum ipc_kind kind, int result)
{
        return ipc_send(c->sock, &(struct ipc_frame){.kind = kind, .result = result}, NULL, 0);
}

static void keep(struct monitor_client *c, const struct kept *k)
{
        if (c->kept_n == KEPT_MAX)
                lost(-ENOBUFS);
        c->kept[c->kept_n++] = *k;
        event_active(c->readable, EV_TIMEOUT, 0);
}

/* ret_fds are -1 where the answer has none. */
static int ask(struct monitor_client *c, const struct ipc_frame *question, struct ipc_frame *ret, int ret_fds[2])
{
        struct kept k;
        int r = ipc_send(c->sock, question, NULL, 0);

        if (r < 0)
                lost(r);
        for (receive(c, &k); k.frame.kind != IPC_ANSWER; receive(c, &k))
                keep(c, &k);
        for (size_t i = 0; i < 2; i++)
                ret_fds[i] = i < k.fds_n ? k.fds[i] : -1;
        for (size_t i = 2; i < k.fds_n; i++)
                close_fd(k.fds[i]);
        *ret = k.frame;
        return k.frame.result;
}

int monitor_ask_evidence(struct monitor_client *c, int pid, struct evidence *ret, int *ret_pidfd)
{
        const struct ipc_frame question = {.kind = IPC_ASK_EVIDENCE, .number = (uint64_t)pid};
        struct ipc_frame answer;
        int fds[2], r = ask(c, &question, &answer, fds);

        close_fd(fds[1]);
        if (r == 0) {
                *ret = answer.evidence;
                *ret_pidfd = fds[0];
        }
        return r;
}

/* wanted: how many descriptors a good answer has; then they are the caller's, else there are none. */
static int ask_socket(struct monitor_client *c, enum ipc_kind kind, const struct transport *t, uint64_t uid,
        size_t wanted, int ret_fds[2])
{
        struct ipc_frame question = {.kind = kind, .number = uid, .transport = t->kind}, answer;
        size_t got;
        int r;

        assert(t->kind != TRANSPORT_VSOCK);
        if (strlen(t->path) >= sizeof(question.path))
                return -ENAMETOOLONG;
        memcpy(question.path, t->path, strlen(t->path) + 1);
        r = ask(c, &question, &answer, ret_fds);
        got = (size_t)(ret_fds[0] >= 0) + (size_t)(ret_fds[1] >= 0);
        if (r == 0 && got == wanted)
                return 0;
        close_fd(ret_fds[0]);
        close_fd(ret_fds[1]);
        return r < 0 ? r : -EBADMSG;
}

int monitor_ask_listen(
        struct monitor_client *c, const struct transport *t, uint64_t vmm_uid, int *ret_egress_fd, int *ret_service_fd)
{
        int fds[2], r = ask_socket(c, IPC_ASK_LISTEN, t, vmm_uid, 2, fds);

        if (r < 0)
                return r;
        *ret_egress_fd = fds[0];
        *ret_service_fd = fds[1];
        return 0;
}

int monitor_ask_unlisten(struct monitor_client *c, const struct transport *t)
{
        int fds[2];

        return ask_socket(c, IPC_ASK_UNLISTEN, t, IPC_NO_UID, 0, fds);
}

int monitor_ask_dial(struct monitor_client *c, const struct transport *t, int *ret_fd)
{
        int fds[2], r = ask_socket(c, IPC_ASK_DIAL, t, IPC_NO_UID, 1, fds);

        if (r == 0)
                *ret_fd = fds[0];
        return r;
}

int monitor_ask_ca(struct monitor_client *c, bool anew, int *ret_fd)
{
        const struct ipc_frame question = {.kind = IPC_ASK_CA, .number = anew};
        struct ipc_frame answer;
        int fds[2], r = ask(c, &question, &answer, fds);

        close_fd(fds[1]);
        if (r == 0 && fds[0] < 0)
                r = -EBADMSG;
        if (r < 0)
                close_fd(fds[0]);
        else
                *ret_fd = fds[0];
        return r;
}
