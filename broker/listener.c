/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/listener.h"

#include <errno.h>
#include <event2/event.h>
#include <event2/event_struct.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "proto/base/cleanup.h"

#define ACCEPTS_MAX 16u /* in one turn of the loop */
#define BACK_OFF_MS 50u

struct listener {
        struct listener_calls calls;
        void *userdata;
        int fd;
        int spare_fd; /* held so that the last descriptor can be freed */
        struct event acceptable;
        struct event resume;
};

/* Any descriptor will do; this one needs no file. */
static int open_spare(const struct listener *l)
{
        return fcntl(l->fd, F_DUPFD_CLOEXEC, 0);
}

/*
 * No descriptor is left. The one connection that the spare makes room for is closed, which is an answer, and the rest
 * wait in the backlog: to go on at once would be a loop that only burns time.
 */
static void back_off(struct listener *l)
{
        const struct timeval pause = {.tv_usec = BACK_OFF_MS * 1000};

        if (l->spare_fd >= 0) {
                l->spare_fd = close_fd(l->spare_fd);
                close_fd(accept4(l->fd, NULL, NULL, SOCK_CLOEXEC));
        }
        l->spare_fd = open_spare(l);
        event_del(&l->acceptable);
        event_add(&l->resume, &pause);
}

static void on_resume(evutil_socket_t fd, short what, void *userdata)
{
        struct listener *l = userdata;

        (void)fd;
        (void)what;
        event_add(&l->acceptable, NULL);
}

static void on_acceptable(evutil_socket_t fd, short what, void *userdata)
{
        struct listener *l = userdata;

        (void)what;
        for (unsigned i = 0; i < ACCEPTS_MAX; i++) {
                int client = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

                if (client >= 0) {
                        l->calls.accept(l->userdata, client);
                        continue;
                }
                if (errno == EINTR || errno == ECONNABORTED)
                        continue;
                if (errno != EAGAIN) {
                        if (l->calls.starved)
                                l->calls.starved(l->userdata);
                        back_off(l);
                }
                return;
        }
}

int listener_new(
        struct event_base *base, int fd, const struct listener_calls *calls, void *userdata, struct listener **ret)
{
        struct listener *l = calloc(1, sizeof(*l));

        if (!l)
                return -ENOMEM;
        l->calls = *calls;
        l->userdata = userdata;
        l->fd = fd;
        l->spare_fd = open_spare(l);
        event_assign(&l->acceptable, base, fd, EV_READ | EV_PERSIST, on_acceptable, l);
        event_assign(&l->resume, base, -1, 0, on_resume, l);
        event_add(&l->acceptable, NULL);
        *ret = l;
        return 0;
}

void listener_free(struct listener *l)
{
        if (!l)
                return;
        event_del(&l->acceptable);
        event_del(&l->resume);
        close_fd(l->fd);
        close_fd(l->spare_fd);
        free(l);
}
