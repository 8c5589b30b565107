/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/sentinel.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>

#include <event2/event_struct.h>

#include "guest/agent.h"
#include "guest/host_dial.h"
#include "guest/resume.h"
#include "proto/base/cleanup.h"
#include "proto/wire/limits.h"

#define DIAL_LIMIT_MS 2000

struct sentinel {
        struct agent *agent;
        struct host_dial dial;
        int fd; /* -1: none */
        struct event event;
};

void sentinel_withdraw(struct sentinel *s)
{
        host_dial_stop(&s->dial);
        if (s->fd < 0)
                return;
        (void)event_del(&s->event);
        s->fd = close_fd(s->fd);
}

/* A broker that ends closes in order: then there is no sentinel until the next activation. */
static void on_event(evutil_socket_t fd, short events, void *userdata)
{
        struct sentinel *s = userdata;
        char byte;
        ssize_t got = recv(fd, &byte, sizeof(byte), MSG_DONTWAIT);
        int error = errno;

        (void)events;
        if (got > 0 || (got < 0 && (error == EAGAIN || error == EINTR)))
                return;
        if (got < 0)
                resume_connection_broke(s->agent->resume, fd, error);
        sentinel_withdraw(s); /* once more, if that was a resume */
}

static void on_dialled(struct host_dial *d, int result)
{
        struct sentinel *s = (struct sentinel *)((char *)d - offsetof(struct sentinel, dial));

        if (result < 0)
                return;
        s->fd = result;
        (void)event_assign(&s->event, s->agent->base, result, EV_READ | EV_PERSIST, on_event, s);
        (void)event_add(&s->event, NULL);
}

void sentinel_post(struct sentinel *s)
{
        sentinel_withdraw(s);
        if (s->agent->transport.kind == TRANSPORT_UNIX)
                return;
        s->dial = (struct host_dial){
                .base = s->agent->base,
                .transport = &s->agent->transport,
                .port = WB_PORT_SERVICE,
                .fd = -1,
                .done = on_dialled,
        };
        (void)host_dial_start(&s->dial, DIAL_LIMIT_MS);
}

int sentinel_new(struct agent *agent, struct sentinel **ret)
{
        struct sentinel *s = calloc(1, sizeof(*s));

        if (!s)
                return -ENOMEM;
        s->agent = agent;
        s->fd = s->dial.fd = -1;
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
