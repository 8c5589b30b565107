/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/host_dial.h"

#include <errno.h>
#include <stdbool.h>
#include <sys/socket.h>

#include <event2/event.h>

#include "proto/base/cleanup.h"
#include "proto/base/clock.h"

#define REDIAL_MS 10

static int attempt(struct host_dial *d);

static void finish(struct host_dial *d, int result)
{
        (void)event_del(&d->event);
        d->base = NULL;
        d->done(d, result);
}

static void on_connected(evutil_socket_t fd, short events, void *userdata)
{
        struct host_dial *d = userdata;
        int error = 0;
        socklen_t n = sizeof(error);

        if (events & EV_TIMEOUT)
                error = ETIMEDOUT;
        else if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &n) < 0)
                error = errno;
        if (error)
                d->fd = close_fd(d->fd);
        finish(d, error ? -error : steal_fd(&d->fd));
}

static void on_redial(evutil_socket_t fd, short events, void *userdata)
{
        struct host_dial *d = userdata;
        int r = attempt(d);

        (void)fd;
        (void)events;
        if (r < 0)
                finish(d, r);
}

static int attempt(struct host_dial *d)
{
        uint64_t now_ns = clock_monotonic_ns();
        uint64_t left_ms = now_ns < d->deadline_ns ? (d->deadline_ns - now_ns) / NSEC_PER_MSEC + 1 : 0;
        struct timeval limit = {(time_t)(left_ms / 1000), (suseconds_t)(left_ms % 1000 * 1000)};
        int r = transport_dial_host(d->transport, d->port, &d->fd);

        if (r == -EAGAIN && left_ms) {
                (void)evtimer_assign(&d->event, d->base, on_redial, d);
                return evtimer_add(&d->event, &(struct timeval){.tv_usec = REDIAL_MS * 1000}) < 0 ? -ENOMEM : 0;
        }
        if (r < 0)
                return r;
        (void)event_assign(&d->event, d->base, d->fd, EV_WRITE, on_connected, d);
        if (event_add(&d->event, &limit) == 0)
                return 0;
        d->fd = close_fd(d->fd);
        return -ENOMEM;
}

int host_dial_start(struct host_dial *d, unsigned limit_ms)
{
        int r;

        d->fd = -1;
        d->deadline_ns = clock_monotonic_ns() + limit_ms * NSEC_PER_MSEC;
        r = attempt(d);
        if (r < 0)
                d->base = NULL;
        return r;
}

void host_dial_stop(struct host_dial *d)
{
        if (!d->base)
                return;
        (void)event_del(&d->event);
        d->fd = close_fd(d->fd);
        d->base = NULL;
}
