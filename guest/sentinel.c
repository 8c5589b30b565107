/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/sentinel.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/socket.h>

#include <event2/event_struct.h>

#include "guest/agent.h"
#include "guest/host_dial.h"
#include "guest/resume.h"
#include "proto/base/cleanup.h"
#include "proto/wire/limits.h"

#define DIAL_LIMIT_MS 2000
#define DIAL_AGAIN_S  5 /* after a broker that was there has gone: it may have been replaced */

struct sentinel {
        struct agent *agent;
        struct host_dial dial;
        bool is_known; /* the host has taken one since sentinel_post() */
        int fd;        /* -1: none */
        struct event event, again;
};

void sentinel_withdraw(struct sentinel *s)
{
        (void)evtimer_del(&s->again);
        host_dial_stop(&s->dial);
        if (s->fd < 0)
                return;
        (void)event_del(&s->event);
        s->fd = close_fd(s->fd);
}

static void dial_later(struct sentinel *s)
{
        (void)evtimer_add(&s->again, &(struct timeval){.tv_sec = DIAL_AGAIN_S});
}

/* Closed in order: a broker that ended. */
void sentinel_look(struct sentinel *s)
{
        char byte;
        ssize_t got = s->fd < 0 ? 1 : recv(s->fd, &byte, sizeof(byte), MSG_DONTWAIT);
        int error = errno;

        if (got > 0 || (got < 0 && (error == EAGAIN || error == EINTR)))
                return;
        if (got < 0)
                resume_connection_broke(s->agent->resume, s->fd, error);
        sentinel_withdraw(s); /* once more, if that was a resume */
        if (got == 0)
                dial_later(s);
}

static void on_event(evutil_socket_t fd, short events, void *userdata)
{
        (void)fd;
        (void)events;
        sentinel_look(userdata);
}

static void on_dialled(struct host_dial *d, int result)
{
        struct sentinel *s = (struct sentinel *)((char *)d - offsetof(struct sentinel, dial));

        if (result < 0) {
                if (s->is_known)
                        dial_later(s);
                return;
        }
        s->is_known = true;
        s->fd = result;
        (void)event_assign(&s->event, s->agent->base, result, EV_READ | EV_PERSIST, on_event, s);
        (void)event_add(&s->event, NULL);
}

static void dial(struct sentinel *s)
{
        s->dial = (struct host_dial){
                .base = s->agent->base,
                .transport = &s->agent->transport,
                .port = WB_PORT_SERVICE,
                .fd = -1,
                .done = on_dialled,
        };
        if (host_dial_start(&s->dial, DIAL_LIMIT_MS) < 0 && s->is_known)
                dial_later(s);
}

static void on_again(evutil_socket_t fd, short events, void *userdata)
{
        (void)fd;
        (void)events;
        dial(userdata);
}

void sentinel_post(struct sentinel *s)
{
        sentinel_withdraw(s);
        if (s->agent->transport.kind == TRANSPORT_UNIX)
                return;
        s->is_known = false;
        dial(s);
}

int sentinel_new(struct agent *agent, struct sentinel **ret)
{
        struct sentinel *s = calloc(1, sizeof(*s));

        if (!s)
                return -ENOMEM;
        s->agent = agent;
        s->fd = s->dial.fd = -1;
        (void)evtimer_assign(&s->again, agent->base, on_again, s);
        *ret = s;
        return 0;
}

void sentinel_free(struct sentinel *s)
{
        if (!s)
                return;
        sentinel_withdraw(s);
        free(s);
}
