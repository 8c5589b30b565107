/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/wbvsock/stream.h"

#include <errno.h>
#include <event2/buffer.h>
#include <linux/virtio_vsock.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "proto/base/cleanup.h"
#include "proto/base/clock.h"
#include "tools/wbvsock/stream_private.h"

/* A listener with a full backlog makes connect() say EAGAIN, and no event tells when there is room. */
#define DIAL_RETRY_MS 10u
#define DIAL_TRIES    200u /* 2 s: after that Linux's connect() has given up (VSOCK_DEFAULT_CONNECT_TIMEOUT) */

#define ANSWER_MS 5000u /* for the guest's answer to a REQUEST; generous, since an emulated guest may be slow */
#define ENDING_MS 8000u /* for the guest's RST, as Linux waits for ours (VSOCK_CLOSE_TIMEOUT) */

static void arm(struct stream *s, unsigned ms)
{
        struct timeval tv = {.tv_sec = ms / MSEC_PER_SEC, .tv_usec = (suseconds_t)(ms % MSEC_PER_SEC) * 1000};

        event_add(&s->timer, &tv);
}

static void disarm(struct stream *s)
{
        event_del(&s->timer);
}

static void forget_backlog(struct stream *s)
{
        if (event_initialized(&s->write_event))
                event_del(&s->write_event);
        if (s->backlog)
                evbuffer_free(s->backlog);
        s->backlog = NULL;
}

void stream_close_socket(struct stream *s)
{
        forget_backlog(s);
        if (event_initialized(&s->read_event))
                event_del(&s->read_event);
        s->fd = close_fd(s->fd);
        s->readable = false;
}

/* EOF alone leaves open whether the host has closed or only finished sending; a hangup is both. */
static bool hung_up(const struct stream *s)
{
        struct pollfd p = {.fd = s->fd};

        return poll(&p, 1, 0) > 0 && (p.revents & (POLLHUP | POLLERR | POLLNVAL));
}

/* The host is gone, with all it had to say. What the guest still sends has no reader. */
static void host_closed(struct stream *s)
{
        stream_close_socket(s);
        connection_host_closed(&s->connection);
        if (s->connection.state == CONNECTION_ENDING)
                arm(s, ENDING_MS);
}

/* The host takes no more: what waits for it is dropped, and counted so that the guest's credit does not dry up. */
static void host_refuses(struct stream *s)
{
        uint32_t n = s->backlog ? (uint32_t)evbuffer_get_length(s->backlog) : 0;

        s->unwritable = true;
        forget_backlog(s);
        connection_forwarded(&s->connection, n);
        connection_host_shut(&s->connection, VIRTIO_VSOCK_SHUTDOWN_RCV);
}

/* Passes on what the guest has shut, each way as soon as its bytes are through. */
static void pass_shut(struct stream *s)
{
        if (s->fd < 0)
                return;
        if ((s->connection.guest_shut & VIRTIO_VSOCK_SHUTDOWN_SEND) && !s->backlog)
                (void)shutdown(s->fd, SHUT_WR);
        if (s->connection.guest_shut & VIRTIO_VSOCK_SHUTDOWN_RCV)
                (void)shutdown(s->fd, SHUT_RD);
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
        struct stream *s = arg;

        (void)fd;
        (void)what;
        s->readable = true;
        /* Where nothing will be read, nothing else would find that the host has gone. */
        if (!connection_may_send(&s->connection) && s->connection.state != CONNECTION_CLOSED && hung_up(s))
                host_closed(s);
        stream_settle(s);
}

static void on_writable(evutil_socket_t fd, short what, void *arg)
{
        struct stream *s = arg;
        int n = evbuffer_write(s->backlog, fd);

        (void)what;
        if (n < 0 && errno != EAGAIN && errno != EINTR) {
                host_refuses(s);
        } else {
                connection_forwarded(&s->connection, n > 0 ? (uint32_t)n : 0);
                if (evbuffer_get_length(s->backlog)) {
                        event_add(&s->write_event, NULL);
                } else {
                        forget_backlog(s);
                        pass_shut(s);
                }
        }
        stream_settle(s);
}

/* A socket that is connected: from now on its edges are noted. */
static void watch(struct stream *s)
{
        struct event_base *base = s->owner->setup.base;

        event_assign(&s->read_event, base, s->fd, EV_READ | EV_CLOSED | EV_ET | EV_PERSIST, on_readable, s);
        event_assign(&s->write_event, base, s->fd, EV_WRITE | EV_ET, on_writable, s);
        event_add(&s->read_event, NULL);
}

/* 0, or a negative errno: -EAGAIN is worth another try. */
static int dial(struct stream *s)
{
        struct sockaddr_un un = {.sun_family = AF_UNIX};
        int n = snprintf(un.sun_path, sizeof(un.sun_path), "%s_%u", s->owner->setup.path, s->connection.host_port);

        if (n < 0 || (size_t)n >= sizeof(un.sun_path))
                return -ENAMETOOLONG;
        if (s->fd < 0)
                s->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (s->fd < 0) {
                streams_complain(s->owner, -errno, "no socket for a guest's connection");
                return -EMFILE;
        }
        return connect(s->fd, (struct sockaddr *)&un, sizeof(un)) < 0 ? -errno : 0;
}

static void dial_or_give_up(struct stream *s)
{
        int r = dial(s);

        if (r == 0) {
                connection_dialed(&s->connection);
                watch(s);
                pass_shut(s);
        } else if (r == -EAGAIN && ++s->dials < DIAL_TRIES) {
                arm(s, DIAL_RETRY_MS);
        } else {
                if (r == -EAGAIN)
                        streams_complain(s->owner, r, "a listener of the host does not accept");
                connection_close(&s->connection);
        }
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
        struct stream *s = arg;

        (void)fd;
        (void)what;
        if (s->connection.state == CONNECTION_DIALING)
                dial_or_give_up(s);
        else
                connection_close(&s->connection);
        stream_settle(s);
}

int streams_accept(struct streams *ss, const struct packet *request)
{
        struct stream *s;
        int r = streams_new(ss, STREAM_BY_GUEST, &s);

        if (r < 0)
                return r;
        connection_init_guest(&s->connection, request, ss->setup.buffer_bytes);
        evtimer_assign(&s->timer, ss->setup.base, on_timer, s);
        streams_enter(s);
        dial_or_give_up(s);
        stream_settle(s);
        return 0;
}

int streams_connect(struct streams *ss, uint32_t guest_port, int fd)
{
        _cleanup_close_ int owned = fd;
        struct stream *s;
        int r = streams_new(ss, STREAM_BY_HOST, &s);

        if (r < 0)
                return r;
        connection_init_host(
                &s->connection, guest_port, streams_pick_host_port(ss, guest_port), ss->setup.buffer_bytes);
        evtimer_assign(&s->timer, ss->setup.base, on_timer, s);
        s->fd = steal_fd(&owned);
        streams_enter(s);
        watch(s);
        arm(s, ANSWER_MS);
        stream_settle(s);
        return 0;
}

/* The guest accepted. A fresh socket has room for the line. */
static void answer(struct stream *s)
{
        char line[32];
        int n = snprintf(line, sizeof(line), "OK %u\n", s->connection.host_port);

        disarm(s);
        if (send(s->fd, line, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT) != n)
                host_closed(s);
}

/* Keeps what the host cannot take now. Its bound is the credit: connection_receive() let no more come. */
static int keep(struct stream *s, const struct iovec *iov, unsigned iov_n, size_t skip_bytes)
{
        if (!s->backlog) {
                s->backlog = evbuffer_new();
                if (!s->backlog)
                        return -ENOMEM;
                event_add(&s->write_event, NULL);
        }
        for (unsigned i = 0; i < iov_n; i++) {
                size_t n = iov[i].iov_len;

                if (skip_bytes >= n) {
                        skip_bytes -= n;
                        continue;
                }
                if (evbuffer_add(s->backlog, (uint8_t *)iov[i].iov_base + skip_bytes, n - skip_bytes) < 0)
                        return -ENOMEM;
                skip_bytes = 0;
        }
        return 0;
}

/* From the guest's memory straight into the socket, as far as it goes. */
static void forward(struct stream *s, uint32_t n, const struct iovec *iov, unsigned iov_n)
{
        struct msghdr m = {.msg_iov = (struct iovec *)(uintptr_t)iov, .msg_iovlen = iov_n};
        ssize_t put = 0;

        if (s->unwritable || s->fd < 0) {
                connection_forwarded(&s->connection, n);
                return;
        }
        if (!s->backlog)
                put = sendmsg(s->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (put < 0 && errno != EAGAIN && errno != EINTR && errno != ENOBUFS) {
                connection_forwarded(&s->connection, n);
                host_refuses(s);
                return;
        }
        if (put < 0)
                put = 0;
        connection_forwarded(&s->connection, (uint32_t)put);
        if ((size_t)put < n && keep(s, iov, iov_n, (size_t)put) < 0) {
                streams_complain(s->owner, -ENOMEM, "no memory for a connection's bytes");
                connection_close(&s->connection);
                stream_close_socket(s);
        }
}

void stream_receive(struct stream *s, const struct packet *p, const struct iovec *payload, unsigned payload_n)
{
        switch (connection_receive(&s->connection, p)) {
        case CONNECTION_DO_NOTHING: break;
        case CONNECTION_DO_ANSWER: answer(s); break;
        case CONNECTION_DO_DATA: forward(s, p->len, payload, payload_n); break;
        case CONNECTION_DO_SHUT: pass_shut(s); break;
        case CONNECTION_DO_CLOSE: disarm(s); break;
        case CONNECTION_DO_ABORT:
                disarm(s);
                stream_close_socket(s);
                break;
        }
        stream_settle(s);
}

void stream_abort(struct stream *s)
{
        connection_close(&s->connection);
        disarm(s);
        stream_close_socket(s);
        stream_settle(s);
}

size_t stream_read(struct stream *s, const struct iovec *iov, unsigned iov_n)
{
        ssize_t n = readv(s->fd, iov, (int)iov_n);

        if (n > 0)
                return (size_t)n;
        if (n < 0 && errno == EINTR)
                return 0;
        if (n < 0 && errno == EAGAIN) {
                s->readable = false;
                return 0;
        }
        s->readable = false;
        s->ended = true;
        if (n < 0 || hung_up(s))
                host_closed(s);
        else
                connection_host_shut(&s->connection, VIRTIO_VSOCK_SHUTDOWN_SEND);
        return 0;
}

bool stream_wants_read(struct stream *s, uint32_t *ret_most)
{
        uint32_t most;

        if (!s->readable || !connection_may_send(&s->connection))
                return false;
        most = connection_credit(&s->connection);
        if (most == 0)
                return false;
        *ret_most = most;
        return true;
}

void stream_settle(struct stream *s)
{
        uint32_t most;

        /* Asked first: without credit it makes the connection want to ask for some. */
        if (stream_wants_read(s, &most) || connection_has_control(&s->connection))
                streams_ready(s);
        else
                streams_unready(s);
        if (s->connection.state != CONNECTION_CLOSED)
                return;
        if (!s->backlog)
                stream_close_socket(s);
        if (!connection_has_control(&s->connection))
                streams_leave(s);
        if (s->fd < 0 && !s->in_table)
                streams_free(s);
}
