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

void peer_close(struct peer *p)
{
        if (p->fd < 0)
                return;
        peer_want(p, false, false);
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
        set(&p->writable, &p->wants_write, write && !p->broken);
}

ssize_t peer_fill(struct peer *p, size_t most)
{
        uint8_t *tail;

        if (p->fd < 0 || p->eof || !most)
                return 0;

        int r = buffer_reserve(&p->in, most, &tail);
        if (r < 0)
                return r;

        ssize_t n;
        do {
                n = recv(p->fd, tail, most, MSG_DONTWAIT);
        } while (n < 0 && errno == EINTR);
        if (n > 0)
                buffer_commit(&p->in, (size_t)n);
        else if (n == 0)
                p->eof = true;
        else if (errno != EAGAIN)
                p->eof = p->reset = true;
        if (!buffer_used(&p->in))
                buffer_done(&p->in);
        return n > 0 ? n : 0;
}

size_t peer_flush(struct peer *p)
{
        size_t written = 0;

        while (p->fd >= 0 && !p->broken && buffer_used(&p->out)) {
                ssize_t n = send(p->fd, buffer_data(&p->out), buffer_used(&p->out), MSG_NOSIGNAL | MSG_DONTWAIT);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0 && errno == EAGAIN)
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

void peer_finish(struct peer *p)
{
        if (p->fd < 0 || p->finished)
                return;
        p->finished = true;
        (void)shutdown(p->fd, SHUT_WR);
}

bool peer_hung_up(const struct peer *p)
{
        struct pollfd poll_fd = {.fd = p->fd, .events = 0};

        return p->fd >= 0 && poll(&poll_fd, 1, 0) == 1 && (poll_fd.revents & (POLLHUP | POLLERR));
}
