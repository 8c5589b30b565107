/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/forwarder.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <event2/event.h>
#include <event2/event_struct.h>

#include "guest/forwarder_sandbox.h"
#include "proto/base/cleanup.h"
#include "proto/base/clock.h"
#include "proto/base/log.h"
#include "proto/wire/limits.h"
#include "proto/wire/transport.h"

#define FIRST_LISTENER   3
#define LISTENERS_MAX    2
#define CONNECTIONS_MAX  512           /* Firecracker allows a guest 1,023; the rest wait in the backlog */
#define BUFFER_BYTES     (32u * 1024u) /* each direction; a connection in use costs twice that */
#define CONNECT_LIMIT_S  10
#define REDIAL_MS        10
#define ACCEPTS_PER_TURN 16

struct forwarder;
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
        struct forwarder *forwarder;
        struct end inner, outer; /* the workload's, the host's */
        bool connected;
        uint64_t connect_deadline_ns;
};

struct forwarder {
        struct event_base *base;
        struct transport transport;
        struct event listeners[LISTENERS_MAX];
        size_t listeners_n;
        size_t connections;
        int exit_status;
};

static struct end *other(struct end *e)
{
        return e == &e->pair->inner ? &e->pair->outer : &e->pair->inner;
}

static void watch_listeners(struct forwarder *f, bool on)
{
        for (size_t i = 0; i < f->listeners_n; i++)
                (void)(on ? event_add(&f->listeners[i], NULL) : event_del(&f->listeners[i]));
}

static void close_end(struct end *e, bool reset)
{
        struct linger now = {.l_onoff = 1};

        (void)event_del(&e->readable);
        (void)event_del(&e->writable);
        if (reset)
                (void)setsockopt(e->fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
        (void)close_fd(e->fd);
}

/* reset: it ended in the middle, and the workload is to see that as what it is. */
static void close_pair(struct pair *p, bool reset)
{
        struct forwarder *f = p->forwarder;

        close_end(&p->inner, reset);
        close_end(&p->outer, false);
        free(p);
        if (f->connections-- == CONNECTIONS_MAX)
                watch_listeners(f, true);
}

/* Waits for what can go on: reading while the buffer is empty, writing while it is not. */
static void rewait(struct pair *p)
{
        struct end *ends[] = {&p->inner, &p->outer};

        for (size_t i = 0; i < 2; i++) {
                struct end *e = ends[i], *o = other(e);
                bool read = p->connected && !e->eof && e->from == e->to;
                bool write = p->connected && o->from != o->to;

                (void)(read ? event_add(&e->readable, NULL) : event_del(&e->readable));
                if (p->connected)
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

/* The host's end is connected, or will not be. */
static void on_connected(evutil_socket_t fd, short events, void *userdata)
{
        struct end *e = userdata;
        struct pair *p = e->pair;
        int error = 0;
        socklen_t n = sizeof(error);

        if ((events & EV_TIMEOUT) || getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &n) < 0 || error) {
                close_pair(p, true);
                return;
        }
        p->connected = true;
        (void)event_assign(&e->writable, p->forwarder->base, fd, EV_WRITE | EV_PERSIST, on_writable, e);
        rewait(p);
}

static void init_end(struct pair *p, struct end *e, int fd)
{
        struct event_base *base = p->forwarder->base;

        e->pair = p;
        e->fd = fd;
        e->from = e->to = 0;
        e->eof = e->shut = false;
        (void)event_assign(&e->readable, base, fd, EV_READ | EV_PERSIST, on_readable, e);
        (void)event_assign(&e->writable, base, fd, EV_WRITE | EV_PERSIST, on_writable, e);
}

static void on_redial(evutil_socket_t fd, short events, void *userdata);

/*
 * Begins to connect to the host. A unix listener whose backlog is full says so at once, where others would have us
 * wait: then it is tried again until the time for connecting is up. 0 or a negative errno.
 */
static int dial(struct pair *p)
{
        struct forwarder *f = p->forwarder;
        struct end *e = &p->outer;
        int fd, r = transport_dial_host(&f->transport, WB_PORT_EGRESS, &fd);

        if (r == -EAGAIN && clock_monotonic_ns() < p->connect_deadline_ns) {
                (void)evtimer_assign(&e->writable, f->base, on_redial, p);
                (void)evtimer_add(&e->writable, &(struct timeval){.tv_usec = REDIAL_MS * 1000});
                return 0;
        }
        if (r < 0)
                return r;
        init_end(p, e, fd);
        (void)event_assign(&e->writable, f->base, fd, EV_WRITE, on_connected, e);
        (void)event_add(&e->writable, &(struct timeval){.tv_sec = CONNECT_LIMIT_S});
        return 0;
}

static void on_redial(evutil_socket_t fd, short events, void *userdata)
{
        struct pair *p = userdata;

        (void)fd;
        (void)events;
        if (dial(p) < 0)
                close_pair(p, true);
}

/* The connection of a workload at fd, which is taken over; 0 or a negative errno. */
static int open_pair(struct forwarder *f, int fd)
{
        /* Not cleared: the buffers' pages come as they are used. */
        struct pair *p = malloc(sizeof(*p));
        int r;

        if (!p) {
                (void)close_fd(fd);
                return -ENOMEM;
        }
        p->forwarder = f;
        p->connected = false;
        p->connect_deadline_ns = clock_monotonic_ns() + CONNECT_LIMIT_S * NSEC_PER_SEC;
        init_end(p, &p->inner, fd);
        init_end(p, &p->outer, -1);
        if (++f->connections == CONNECTIONS_MAX)
                watch_listeners(f, false);
        r = dial(p);
        if (r < 0)
                close_pair(p, true);
        return r;
}

static void on_acceptable(evutil_socket_t fd, short events, void *userdata)
{
        struct forwarder *f = userdata;

        (void)events;
        for (int i = 0; i < ACCEPTS_PER_TURN && f->connections < CONNECTIONS_MAX; i++) {
                // cppcheck-suppress nullPointer ; accept(2): the address may be left out
                int taken = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
                int r;

                if (taken < 0)
                        return;
                r = open_pair(f, taken);
                if (r == -EACCES) {
                        /* The socket's owner is another than when the sandbox was chosen: start over. */
                        f->exit_status = 1;
                        (void)event_base_loopbreak(f->base);
                        return;
                }
        }
}

static int listen_to(struct forwarder *f)
{
        for (int fd = FIRST_LISTENER; fd < FIRST_LISTENER + LISTENERS_MAX; fd++) {
                if (fcntl(fd, F_GETFD) < 0)
                        break;
                (void)event_assign(
                        &f->listeners[f->listeners_n++], f->base, fd, EV_READ | EV_PERSIST, on_acceptable, f);
        }
        watch_listeners(f, true);
        return f->listeners_n ? 0 : -EBADF;
}

int forwarder_main(const char *where)
{
        bool is_vsock = strcmp(where, FORWARDER_VSOCK) == 0;
        struct forwarder f = {
                .transport = {.kind = is_vsock ? TRANSPORT_VSOCK : TRANSPORT_UNIX, .path = is_vsock ? NULL : where}};
        int r;

        log_setup("wbagent-forwarder", LOG_LEVEL_INFO);
        (void)prctl(PR_SET_NAME, "wbagent-forward");   /* exe, of /proc/self/exe, says nothing */
        (void)mallopt(M_MMAP_THRESHOLD, BUFFER_BYTES); /* a connection's memory goes back when it ends */
        f.base = event_base_new();
        if (!f.base)
                return 1;
        r = listen_to(&f);
        if (r < 0) {
                (void)log_errno(r, "no listening socket at descriptor 3");
                return 1;
        }
        r = forwarder_enter_sandbox(&f.transport);
        if (r < 0)
                return 1;
        (void)event_base_dispatch(f.base);
        return f.exit_status;
}
