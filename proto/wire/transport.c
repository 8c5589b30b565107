/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/wire/transport.h"

#include <assert.h>
#include <errno.h>
#include <linux/vm_sockets.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "proto/base/cleanup.h"
#include "proto/base/clock.h"
#include "proto/wire/limits.h"

#define LISTEN_BACKLOG 1024
#define RETRY_NS       (20 * NSEC_PER_MSEC)

union socket_address {
        struct sockaddr any;
        struct sockaddr_un un;
        struct sockaddr_vm vm;
};

static socklen_t address_size(const union socket_address *a)
{
        return a->any.sa_family == AF_VSOCK ? sizeof(a->vm) : sizeof(a->un);
}

/* between: what stands between path and port, '/' or '_'; 0 leaves the port out. */
static int unix_address(const char *path, char between, uint32_t port, union socket_address *ret)
{
        int n;

        *ret = (union socket_address){.un = {.sun_family = AF_UNIX}};
        if (between)
                n = snprintf(ret->un.sun_path, sizeof(ret->un.sun_path), "%s%c%u", path, between, port);
        else
                n = snprintf(ret->un.sun_path, sizeof(ret->un.sun_path), "%s", path);
        return n < 0 || (size_t)n >= sizeof(ret->un.sun_path) ? -ENAMETOOLONG : 0;
}

static void vsock_address(uint32_t cid, uint32_t port, union socket_address *ret)
{
        *ret = (union socket_address){.vm = {.svm_family = AF_VSOCK, .svm_cid = cid, .svm_port = port}};
}

static int open_socket(const union socket_address *a, int *ret_fd)
{
        int fd = socket(a->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

        if (fd < 0)
                return -errno;
        *ret_fd = fd;
        return 0;
}

/* Removes a unix socket that nobody serves any more, so that its name can be bound. Any other file stays. */
static int clear_stale(const union socket_address *a)
{
        _cleanup_close_ int fd = -1;
        struct stat st;
        int r = open_socket(a, &fd);

        if (r < 0)
                return r;
        if (connect(fd, &a->any, address_size(a)) == 0 || errno != ECONNREFUSED)
                return -EADDRINUSE;
        if (lstat(a->un.sun_path, &st) < 0)
                return -errno;
        if (!S_ISSOCK(st.st_mode))
                return -EADDRINUSE;
        return unlink(a->un.sun_path) < 0 ? -errno : 0;
}

static int listen_at(const union socket_address *a, int *ret_fd)
{
        _cleanup_close_ int fd = -1;
        int r = open_socket(a, &fd);

        if (r < 0)
                return r;
        r = bind(fd, &a->any, address_size(a)) < 0 ? -errno : 0;
        if (r == -EADDRINUSE && a->any.sa_family == AF_UNIX) {
                r = clear_stale(a);
                if (r == 0 && bind(fd, &a->any, address_size(a)) < 0)
                        r = -errno;
        }
        if (r < 0)
                return r;
        if (listen(fd, LISTEN_BACKLOG) < 0)
                return -errno;
        *ret_fd = steal_fd(&fd);
        return 0;
}

int transport_listen_host(const struct transport *t, uint32_t port, int *ret_fd)
{
        union socket_address a = {0};
        int r = 0;

        switch (t->kind) {
        case TRANSPORT_UNIX: r = unix_address(t->path, '/', port, &a); break;
        case TRANSPORT_HYBRID: r = unix_address(t->path, '_', port, &a); break;
        case TRANSPORT_VSOCK: vsock_address(VMADDR_CID_ANY, port, &a); break;
        }
        return r < 0 ? r : listen_at(&a, ret_fd);
}

int transport_listen_guest(const struct transport *t, uint32_t port, int *ret_fd)
{
        union socket_address a = {0};
        int r = 0;

        if (t->kind == TRANSPORT_UNIX)
                r = unix_address(t->path, '/', port, &a);
        else
                vsock_address(VMADDR_CID_ANY, port, &a);
        return r < 0 ? r : listen_at(&a, ret_fd);
}

int transport_dial_host(const struct transport *t, uint32_t port, int *ret_fd)
{
        _cleanup_close_ int fd = -1;
        union socket_address a = {0};
        int r = 0;

        if (t->kind == TRANSPORT_UNIX)
                r = unix_address(t->path, '/', port, &a);
        else
                vsock_address(WB_CID_HOST, port, &a);
        if (r < 0)
                return r;
        r = open_socket(&a, &fd);
        if (r < 0)
                return r;
        if (connect(fd, &a.any, address_size(&a)) < 0 && errno != EINPROGRESS)
                return -errno;
        *ret_fd = steal_fd(&fd);
        return 0;
}

int transport_peer_cid(int fd, uint32_t *ret_cid)
{
        union socket_address a = {0};
        socklen_t n = sizeof(a);

        if (getpeername(fd, &a.any, &n) < 0)
                return -errno;
        if (a.any.sa_family != AF_VSOCK)
                return -EAFNOSUPPORT;
        *ret_cid = a.vm.svm_cid;
        return 0;
}

/*
 * Dialling the guest. A hybrid socket wants its CONNECT line first and answers "OK n\n"; the answer is read byte by
 * byte, since what follows it belongs to the conversation.
 */
enum dial_state {
        DIAL_IDLE,
        DIAL_CONNECTING,
        DIAL_WAITING_OK,
        DIAL_CONNECTED,
};

static int dial_fail(struct transport_dial *d, int error)
{
        transport_dial_done(d);
        return error;
}

static int wait_for(struct transport_dial *d, enum dial_state state, short events, short *ret_events)
{
        d->state = state;
        *ret_events = events;
        return TRANSPORT_E_AGAIN;
}

static int send_connect_line(struct transport_dial *d, short *ret_events)
{
        char line[32];
        int n = snprintf(line, sizeof(line), "CONNECT %u\n", d->port);

        /* A socket just connected has room for these few bytes. */
        if (send(d->fd, line, (size_t)n, MSG_NOSIGNAL) != n)
                return dial_fail(d, errno == EPIPE ? -ECONNRESET : -EIO);
        return wait_for(d, DIAL_WAITING_OK, POLLIN, ret_events);
}

static int on_connected(struct transport_dial *d, short *ret_events)
{
        if (d->transport.kind == TRANSPORT_HYBRID)
                return send_connect_line(d, ret_events);
        d->state = DIAL_CONNECTED;
        return 0;
}

static int read_ok_line(struct transport_dial *d, short *ret_events)
{
        for (;;) {
                char c;
                ssize_t got = recv(d->fd, &c, 1, 0);

                if (got < 0 && errno == EINTR)
                        continue;
                if (got < 0 && errno == EAGAIN)
                        return wait_for(d, DIAL_WAITING_OK, POLLIN, ret_events);
                if (got <= 0) /* nobody listens there in the guest, or not yet */
                        return dial_fail(d, got < 0 ? -errno : -ECONNREFUSED);
                if (c == '\n')
                        break;
                if ((size_t)d->got + 1 >= sizeof(d->line))
                        return dial_fail(d, -EPROTO);
                d->line[d->got++] = c;
        }
        d->line[d->got] = '\0';
        if (strncmp(d->line, "OK ", 3) != 0)
                return dial_fail(d, -EPROTO);
        d->state = DIAL_CONNECTED;
        return 0;
}

int transport_dial_start(struct transport_dial *d, const struct transport *t, uint32_t port, short *ret_events)
{
        union socket_address a = {0};
        int r = 0;

        *d = (struct transport_dial){.transport = *t, .port = port, .fd = -1, .state = DIAL_IDLE};
        switch (t->kind) {
        case TRANSPORT_UNIX: r = unix_address(t->path, '/', port, &a); break;
        case TRANSPORT_HYBRID: r = unix_address(t->path, 0, 0, &a); break;
        case TRANSPORT_VSOCK: vsock_address(t->cid, port, &a); break;
        }
        if (r < 0)
                return r;
        r = open_socket(&a, &d->fd);
        if (r < 0)
                return r;
        if (connect(d->fd, &a.any, address_size(&a)) == 0)
                return on_connected(d, ret_events);
        if (errno == EINPROGRESS)
                return wait_for(d, DIAL_CONNECTING, POLLOUT, ret_events);
        return dial_fail(d, -errno);
}

int transport_dial_adopt(struct transport_dial *d, const struct transport *t, uint32_t port, int fd, short *ret_events)
{
        *d = (struct transport_dial){.transport = *t, .port = port, .fd = fd, .state = DIAL_IDLE};
        return on_connected(d, ret_events);
}

static int finish_connect(struct transport_dial *d, short *ret_events)
{
        int error = 0;
        socklen_t n = sizeof(error);

        if (getsockopt(d->fd, SOL_SOCKET, SO_ERROR, &error, &n) < 0)
                error = errno;
        return error ? dial_fail(d, -error) : on_connected(d, ret_events);
}

int transport_dial_continue(struct transport_dial *d, short *ret_events)
{
        switch ((enum dial_state)d->state) {
        case DIAL_CONNECTING: return finish_connect(d, ret_events);
        case DIAL_WAITING_OK: return read_ok_line(d, ret_events);
        case DIAL_CONNECTED: return 0;
        case DIAL_IDLE: break;
        }
        return -ENOTCONN;
}

int transport_dial_steal(struct transport_dial *d)
{
        assert(d->state == DIAL_CONNECTED);
        d->state = DIAL_IDLE;
        return steal_fd(&d->fd);
}

void transport_dial_done(struct transport_dial *d)
{
        d->fd = close_fd(d->fd);
        d->state = DIAL_IDLE;
}

bool transport_error_heals(int error)
{
        switch (-error) {
        case EAGAIN: /* the host's backlog is full */
        case ECONNREFUSED:
        case ECONNRESET:
        case EIO:
        case EHOSTUNREACH: /* vsock: the guest's driver is not up */
        case ENETUNREACH:
        case ENODEV:
        case ENOENT: /* the VMM has not made its socket yet */
        case EPIPE:
        case ETIMEDOUT: return true;
        default: return false;
        }
}

/* One attempt, until deadline_ns. */
static int dial_once(struct transport_dial *d, const struct transport *t, uint32_t port, uint64_t deadline_ns)
{
        short events;
        int r = transport_dial_start(d, t, port, &events);

        while (r == TRANSPORT_E_AGAIN) {
                struct pollfd p = {.fd = d->fd, .events = events};
                uint64_t now_ns = clock_monotonic_ns();

                if (now_ns >= deadline_ns)
                        return dial_fail(d, -ETIMEDOUT);
                struct timespec left = {
                        .tv_sec = (time_t)((deadline_ns - now_ns) / NSEC_PER_SEC),
                        .tv_nsec = (long)((deadline_ns - now_ns) % NSEC_PER_SEC),
                };
                if (ppoll(&p, 1, &left, NULL) > 0)
                        r = transport_dial_continue(d, &events);
        }
        return r;
}

int transport_dial_guest(const struct transport *t, uint32_t port, uint64_t deadline_ns, int *ret_fd, int *ret_last)
{
        struct transport_dial d;
        int r;

        for (;;) {
                r = dial_once(&d, t, port, deadline_ns);
                if (r == 0) {
                        *ret_fd = transport_dial_steal(&d);
                        return 0;
                }
                if (!transport_error_heals(r))
                        return r;
                if (clock_monotonic_ns() + RETRY_NS >= deadline_ns) {
                        *ret_last = r;
                        return -ETIMEDOUT;
                }
                (void)poll(NULL, 0, (int)(RETRY_NS / NSEC_PER_MSEC));
        }
}
