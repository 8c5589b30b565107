/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/wbctl/outlet.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <event2/buffer.h>

#include "proto/base/cleanup.h"

/* How it can be written to without blocking. */
enum means {
        MEANS_PLAIN,  /* a file: write(2) does not wait for anybody */
        MEANS_OWN,    /* a file description of our own, non-blocking */
        MEANS_SOCKET, /* MSG_DONTWAIT */
        MEANS_POLLED, /* as much as a pipe that polls writable takes for sure */
};

struct outlet {
        int fd;
        bool fd_is_ours;
        enum means means;
        struct event *writable;
        struct evbuffer *waiting;
        const struct outlet_handler *handler;
        void *userdata;
        bool broken;
};

static void choose_means(struct outlet *o, int fd)
{
        struct stat st;
        char path[32];
        int own;

        o->fd = fd;
        o->means = MEANS_POLLED;
        if (fstat(fd, &st) < 0)
                return;
        if (S_ISREG(st.st_mode) || S_ISBLK(st.st_mode)) {
                o->means = MEANS_PLAIN;
                return;
        }
        if (S_ISSOCK(st.st_mode)) {
                o->means = MEANS_SOCKET;
                return;
        }
        (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        own = open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        if (own < 0)
                return;
        o->fd = own;
        o->fd_is_ours = true;
        o->means = MEANS_OWN;
}

static ssize_t write_some(const struct outlet *o, const uint8_t *data, size_t n)
{
        struct pollfd p = {.fd = o->fd, .events = POLLOUT};

        switch (o->means) {
        case MEANS_SOCKET: return send(o->fd, data, n, MSG_DONTWAIT | MSG_NOSIGNAL);
        case MEANS_POLLED:
                if (poll(&p, 1, 0) == 0) {
                        errno = EAGAIN;
                        return -1;
                }
                return write(o->fd, data, n < PIPE_BUF ? n : PIPE_BUF);
        case MEANS_PLAIN:
        case MEANS_OWN: break;
        }
        return write(o->fd, data, n);
}

static void fail(struct outlet *o, int error)
{
        o->broken = true;
        (void)event_del(o->writable);
        (void)evbuffer_drain(o->waiting, evbuffer_get_length(o->waiting));
        o->handler->broken(o->userdata, error);
}

/* Writes until all is out or nothing more is taken; the bytes that are out, or a negative errno. */
static ssize_t write_all(struct outlet *o, const uint8_t *data, size_t n)
{
        size_t done = 0;

        while (done < n) {
                ssize_t put = write_some(o, data + done, n - done);

                if (put >= 0)
                        done += (size_t)put;
                else if (errno == EAGAIN)
                        break;
                else if (errno != EINTR)
                        return -errno;
        }
        return (ssize_t)done;
}

static void on_writable(evutil_socket_t fd, short events, void *userdata)
{
        struct outlet *o = userdata;
        size_t total = 0;
        ssize_t put = 0;

        (void)fd;
        (void)events;
        while (evbuffer_get_length(o->waiting)) {
                struct evbuffer_iovec piece;

                (void)evbuffer_peek(o->waiting, -1, NULL, &piece, 1);
                put = write_all(o, piece.iov_base, piece.iov_len);
                if (put <= 0)
                        break;
                (void)evbuffer_drain(o->waiting, (size_t)put);
                total += (size_t)put;
        }
        if (put < 0) {
                fail(o, (int)put);
                return;
        }
        if (evbuffer_get_length(o->waiting) == 0)
                (void)event_del(o->writable);
        if (total)
                o->handler->written(o->userdata, total);
}

int outlet_new(
        struct event_base *base, int fd, const struct outlet_handler *handler, void *userdata, struct outlet **ret)
{
        struct outlet *o = calloc(1, sizeof(*o));

        if (!o)
                return -ENOMEM;
        choose_means(o, fd);
        o->handler = handler;
        o->userdata = userdata;
        o->waiting = evbuffer_new();
        o->writable = event_new(base, o->fd, EV_WRITE | EV_PERSIST, on_writable, o);
        if (!o->waiting || !o->writable) {
                outlet_free(o);
                return -ENOMEM;
        }
        *ret = o;
        return 0;
}

void outlet_free(struct outlet *o)
{
        if (!o)
                return;
        if (o->writable)
                event_free(o->writable);
        if (o->waiting)
                evbuffer_free(o->waiting);
        if (o->fd_is_ours)
                close_fd(o->fd);
        free(o);
}

int outlet_put(struct outlet *o, const uint8_t *data, size_t n)
{
        ssize_t put = 0;

        if (o->broken || !n)
                return 0;
        if (evbuffer_get_length(o->waiting) == 0)
                put = write_all(o, data, n);
        if (put < 0) {
                fail(o, (int)put);
                return 0;
        }
        if ((size_t)put < n &&
                (evbuffer_add(o->waiting, data + put, n - (size_t)put) < 0 || event_add(o->writable, NULL) < 0))
                return -ENOMEM;
        if (put)
                o->handler->written(o->userdata, (size_t)put);
        return 0;
}

bool outlet_is_empty(const struct outlet *o)
{
        return evbuffer_get_length(o->waiting) == 0;
}
