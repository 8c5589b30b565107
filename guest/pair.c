/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/pair.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <event2/event.h>
#include <event2/event_struct.h>

#include "guest/host_dial.h"
#include "proto/base/cleanup.h"
#include "proto/wire/limits.h"

#define BUFFER_BYTES PAIR_FIRST_MAX_BYTES /* each direction; a connection in use costs twice that */

struct pair;

/* One end of a connection: what was read from it and is to be written to the other. */
struct end {
        struct pair *pair;
        int fd;
        struct event readable, writable;
        size_t from, to; /* of bytes: [from, to) is to be written to the other end */
        bool eof;        /* nothing more will be read */
        bool shut;       /* and the other end was told */
        uint8_t bytes[BUFFER_BYTES];
};

struct pair {
        struct carrier *carrier;
        struct host_dial dial;
        void (*ended)(void *userdata); /* or NULL */
        void *userdata;
        struct end inner, outer; /* the workload's, the host's */
};

void carrier_enter(struct carrier *c)
{
        if (++c->connections == CARRIER_CONNECTIONS_MAX)
                c->room_changed(c, false);
}

void carrier_leave(struct carrier *c)
{
        if (c->connections-- == CARRIER_CONNECTIONS_MAX)
                c->room_changed(c, true);
}

static struct end *other(struct end *e)
{
        return e == &e->pair->inner ? &e->pair->outer : &e->pair->inner;
}

int pair_reset_fd(int fd)
{
        struct linger now = {.l_onoff = 1};

        (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
        return close_fd(fd);
}

static void close_end(struct end *e, bool reset)
{
        (void)event_del(&e->readable);
        (void)event_del(&e->writable);
        e->fd = reset ? pair_reset_fd(e->fd) : close_fd(e->fd);
}

/* reset: it ended in the middle, and the workload is to see that as what it is. */
static void close_pair(struct pair *p, bool reset)
{
        struct carrier *c = p->carrier;

        host_dial_stop(&p->dial);
        close_end(&p->inner, reset);
        close_end(&p->outer, false);
        if (p->ended)
                p->ended(p->userdata);
        free(p);
        carrier_leave(c);
}

/* Waits for what can go on: reading while the buffer is empty, writing while it is not. */
static void rewait(struct pair *p)
{
        struct end *ends[] = {&p->inner, &p->outer};

        for (size_t i = 0; i < 2; i++) {
                struct end *e = ends[i];
                bool read = !e->eof && e->from == e->to, write = other(e)->from != other(e)->to;

                (void)(read ? event_add(&e->readable, NULL) : event_del(&e->readable));
                (void)(write ? event_add(&e->writable, NULL) : event_del(&e->writable));
        }
}

/* Nothing of e can reach the other end any more. The other direction goes on: an answer may be on its way in it. */
static void give_up(struct end *e)
{
        e->from = e->to = 0;
        e->eof = e->shut = true;
}

/* Writes what e holds to the other end, and passes e's end of stream on behind it. */
static void drain(struct end *e)
{
        struct end *o = other(e);

        while (e->from != e->to) {
                ssize_t put = send(o->fd, e->bytes + e->from, e->to - e->from, MSG_NOSIGNAL);

                if (put < 0 && errno == EINTR)
                        continue;
                if (put < 0 && errno == EAGAIN)
                        return;
                if (put < 0) {
                        give_up(e);
                        return;
                }
                e->from += (size_t)put;
        }
        e->from = e->to = 0;
        if (e->eof && !e->shut) {
                e->shut = true;
                (void)shutdown(o->fd, SHUT_WR); /* fails where o is gone: then there is nobody to tell */
        }
}

/* Whoever is at e's other side has closed it for both directions, so that nothing can be written there any more. */
static bool is_gone(const struct end *e)
{
        struct pollfd p = {.fd = e->fd};

        return poll(&p, 1, 0) == 1 && (p.revents & (POLLHUP | POLLERR));
}

/* One buffer's worth from e to the other end. 0, or a negative errno: e's connection broke. */
static int move(struct end *e)
{
        ssize_t got = recv(e->fd, e->bytes, sizeof(e->bytes), 0);

        if (got < 0)
                return errno == EAGAIN || errno == EINTR ? 0 : -errno;
        if (got == 0) {
                e->eof = true;
                if (is_gone(e))
                        give_up(other(e)); /* which must not hold the pair's place for nobody */
        }
        e->to = (size_t)got;
        drain(e);
        return 0;
}

static void went(struct pair *p)
{
        if (p->inner.shut && p->outer.shut)
                close_pair(p, false);
        else
                rewait(p);
}

static void on_readable(evutil_socket_t fd, short events, void *userdata)
{
        struct end *e = userdata;

        (void)fd;
        (void)events;
        if (move(e) < 0)
                close_pair(e->pair, true);
        else
                went(e->pair);
}

static void on_writable(evutil_socket_t fd, short events, void *userdata)
{
        struct end *e = userdata;

        (void)fd;
        (void)events;
        drain(other(e));
        went(e->pair);
}

static void init_end(struct pair *p, struct end *e, int fd)
{
        struct event_base *base = p->carrier->base;

        e->pair = p;
        e->fd = fd;
        e->from = e->to = 0;
        e->eof = e->shut = false;
        (void)event_assign(&e->readable, base, fd, EV_READ | EV_PERSIST, on_readable, e);
        (void)event_assign(&e->writable, base, fd, EV_WRITE | EV_PERSIST, on_writable, e);
}

static struct pair *new_pair(struct carrier *c, int inner_fd, int outer_fd)
{
        /* Not cleared: the buffers' pages come as they are used. */
        struct pair *p = malloc(sizeof(*p));

        if (!p)
                return NULL;
        p->carrier = c;
        p->dial = (struct host_dial){0};
        p->ended = NULL;
        p->userdata = NULL;
        init_end(p, &p->inner, inner_fd);
        init_end(p, &p->outer, outer_fd);
        return p;
}

static void on_dialled(struct host_dial *d, int result)
{
        struct pair *p = (struct pair *)(void *)((char *)d - offsetof(struct pair, dial));

        if (result < 0) {
                close_pair(p, true);
                return;
        }
        init_end(p, &p->outer, result);
        rewait(p);
}

int pair_open(struct carrier *c, int fd)
{
        struct pair *p = new_pair(c, fd, -1);
        int r;

        if (!p) {
                (void)close_fd(fd);
                return -ENOMEM;
        }
        carrier_enter(c);
        p->dial = (struct host_dial){
                .base = c->base, .transport = &c->transport, .port = WB_PORT_EGRESS, .done = on_dialled};
        r = host_dial_start(&p->dial, CARRIER_DIAL_LIMIT_MS);
        if (r < 0)
                close_pair(p, true);
        return r;
}

int pair_adopt(struct carrier *c, int inner_fd, int outer_fd, const void *first, size_t n,
        void (*ended)(void *userdata), void *userdata)
{
        struct pair *p = new_pair(c, inner_fd, outer_fd);

        if (!p) {
                (void)pair_reset_fd(inner_fd);
                (void)close_fd(outer_fd);
                ended(userdata);
                carrier_leave(c);
                return -ENOMEM;
        }
        p->ended = ended;
        p->userdata = userdata;
        memcpy(p->outer.bytes, first, n);
        p->outer.to = n;
        drain(&p->outer);
        rewait(p);
        return 0;
}
