/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/peer.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

#include "proto/base/cleanup.h"

void peer_init(struct peer *p, struct budget *budget)
{
        *p = (struct peer){.fd = -1};
        buffer_init(&p->in, budget);
        buffer_init(&p->out, budget);
}

void peer_attach(struct peer *p, struct event_base *base, int fd, event_callback_fn step, void *userdata)
{
        assert(p->fd < 0);
        p->fd = fd;
        p->eof = p->reset = p->finished = p->broken = false;
        event_assign(&p->readable, base, fd, EV_READ | EV_PERSIST, step, userdata);
        event_assign(&p->writable, base, fd, EV_WRITE | EV_PERSIST, step, userdata);
}

void peer_set_tls(struct peer *p, struct tls *tls)
{
        assert(p->fd >= 0 && !p->tls && !buffer_used(&p->in) && !buffer_used(&p->out));
        p->tls = tls;
}

void peer_close(struct peer *p)
{
        if (p->fd < 0)
                return;
        peer_want(p, false, false);
        tls_free(p->tls);
        p->tls = NULL;
        p->fd = close_fd(p->fd);
        buffer_done(&p->in);
        buffer_done(&p->out);
}

static void set(struct event *event, bool *current, bool wanted)
{
        if (*current == wanted)
                return;
        *current = wanted;
        if (wanted)
                event_add(event, NULL);
        else
                event_del(event);
}

void peer_want(struct peer *p, bool read, bool write)
{
        if (p->fd < 0)
                return;
        set(&p->readable, &p->wants_read, read && !p->eof);
        set(&p->writable, &p->wants_write, (write || (p->tls && tls_has_unsent(p->tls))) && !p->broken);
        if (p->wants_read && p->tls && tls_has_pending(p->tls))
                event_active(&p->readable, EV_READ, 0); /* the socket is read already */
}

/* As recv(2) and send(2), but with a negative errno for a failure. */
static ssize_t receive(struct peer *p, uint8_t *to, size_t n)
{
        ssize_t got;

        if (p->tls)
                return tls_read(p->tls, to, n);
        do {
                got = recv(p->fd, to, n, MSG_DONTWAIT);
        } while (got < 0 && errno == EINTR);
        return got < 0 ? -errno : got;
}

static ssize_t transmit(struct peer *p, const uint8_t *from, size_t n)
{
        ssize_t sent;

        if (p->tls)
                return tls_write(p->tls, from, n);
        do {
                sent = send(p->fd, from, n, MSG_NOSIGNAL | MSG_DONTWAIT);
        } while (sent < 0 && errno == EINTR);
        return sent < 0 ? -errno : sent;
}

ssize_t peer_fill(struct peer *p, size_t most)
{
        uint8_t *tail;

        if (p->fd < 0 || p->eof || !most)
                return 0;

        int r = buffer_reserve(&p->in, most, &tail);
        if (r < 0)
                return r;

        ssize_t n = receive(p, tail, most);
        if (n > 0)
                buffer_commit(&p->in, (size_t)n);
        else if (n == 0)
                p->eof = true;
        else if (n != -EAGAIN)
                p->eof = p->reset = true;
        if (!buffer_used(&p->in))
                buffer_done(&p->in);
        return n > 0 ? n : 0;
}

size_t peer_flush(struct peer *p)
{
        size_t written = 0;

        while (p->fd >= 0 && !p->broken && buffer_used(&p->out)) {
                ssize_t n = transmit(p, buffer_data(&p->out), buffer_used(&p->out));
                if (n == -EAGAIN)
                        break;
                if (n < 0) {
                        p->broken = true;
                        break;
                }
                buffer_consume(&p->out, (size_t)n);
                written += (size_t)n;
        }
        if (p->broken)
                buffer_done(&p->out);
        return written;
}

bool peer_finish(struct peer *p)
{
        if (p->fd < 0 || p->finished)
                return true;
        if (p->tls && !tls_finish(p->tls))
                return false;
        p->finished = true;
        (void)shutdown(p->fd, SHUT_WR);
        return true;
}

bool peer_hung_up(const struct peer *p)
{
        struct pollfd poll_fd = {.fd = p->fd, .events = 0};

        return p->fd >= 0 && poll(&poll_fd, 1, 0) == 1 && (poll_fd.revents & (POLLHUP | POLLERR));
}
