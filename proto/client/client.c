/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/client/client.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <event2/buffer.h>

#include "proto/base/cleanup.h"
#include "proto/base/io.h"
#include "proto/wire/codec.h"

/* One recv(2): a few of the largest chunks. */
#define RECEIVE_BYTES (256u * 1024u)

struct client {
        int fd;
        struct event *readable;
        struct event *writable;
        struct evbuffer *out;
        struct frame_reader reader;
        const struct client_handler *handler;
        void *userdata;
        bool over;      /* closed() has been called, or is about to be */
        bool above_low; /* drained() is owed */
        bool *gone;     /* set while a handler runs: client_free() tells the caller of the handler */
        uint8_t receive[RECEIVE_BYTES];
};

static void free_frame(const void *data, size_t n, void *extra)
{
        (void)extra;
        explicit_bzero((void *)(uintptr_t)data, n); /* it may have carried a secret */
        free((void *)(uintptr_t)data);
}

static void end(struct client *c, int error)
{
        if (c->over)
                return;
        c->over = true;
        event_del(c->readable);
        event_del(c->writable);
        c->handler->closed(c->userdata, error);
}

/* False when the client was freed or ended by its handler. */
static bool give(struct client *c, const uint8_t *payload, size_t n)
{
        Wb__FromAgent *m;
        bool gone = false;
        int r = codec_unpack_from_agent(payload, n, &m);

        if (r != 0) {
                end(c, r < 0 ? r : -EBADMSG);
                return false;
        }
        c->gone = &gone;
        c->handler->message(c->userdata, m);
        codec_free_from_agent(m);
        if (gone)
                return false;
        c->gone = NULL;
        return !c->over;
}

static void on_readable(evutil_socket_t fd, short events, void *userdata)
{
        struct client *c = userdata;
        ssize_t got = recv(fd, c->receive, sizeof(c->receive), 0);
        const uint8_t *p = c->receive;
        size_t n;

        (void)events;
        if (got < 0) {
                if (errno != EAGAIN && errno != EINTR)
                        end(c, -errno);
                return;
        }
        if (got == 0) {
                end(c, c->reader.used ? -EPIPE : 0);
                return;
        }
        n = (size_t)got;
        for (;;) {
                const uint8_t *payload;
                size_t payload_n;
                int r = frame_read(&c->reader, &p, &n, &payload, &payload_n);

                if (r == FRAME_E_MORE)
                        return;
                if (r < 0) {
                        end(c, r == -EMSGSIZE ? -EBADMSG : r);
                        return;
                }
                if (!give(c, payload, payload_n))
                        return;
        }
}

static void on_writable(evutil_socket_t fd, short events, void *userdata)
{
        struct client *c = userdata;

        (void)events;
        /* A failed write ends nothing: what the agent said before it closed is still to be read, and the read tells the
         * end. */
        if (evbuffer_write(c->out, fd) < 0 && errno != EAGAIN && errno != EINTR) {
                evbuffer_drain(c->out, evbuffer_get_length(c->out));
                event_del(c->writable);
                return;
        }
        if (evbuffer_get_length(c->out) == 0)
                event_del(c->writable);
        if (c->above_low && evbuffer_get_length(c->out) < CLIENT_LOW_BYTES) {
                c->above_low = false;
                if (c->handler->drained)
                        c->handler->drained(c->userdata);
        }
}

int client_new(
        struct event_base *base, int fd, const struct client_handler *handler, void *userdata, struct client **ret)
{
        struct client *c = malloc(sizeof(*c));

        if (!c) {
                close_fd(fd);
                return -ENOMEM;
        }
        memset(c, 0, offsetof(struct client, receive)); /* the rest is written before it is read */
        c->fd = fd;
        c->handler = handler;
        c->userdata = userdata;
        c->out = evbuffer_new();
        c->readable = event_new(base, fd, EV_READ | EV_PERSIST, on_readable, c);
        c->writable = event_new(base, fd, EV_WRITE | EV_PERSIST, on_writable, c);
        if (!c->out || !c->readable || !c->writable || io_set_nonblock(fd) < 0 || event_add(c->readable, NULL) < 0) {
                client_free(c);
                return -ENOMEM;
        }
        *ret = c;
        return 0;
}

void client_free(struct client *c)
{
        if (!c)
                return;
        if (c->gone)
                *c->gone = true;
        if (c->readable)
                event_free(c->readable);
        if (c->writable)
                event_free(c->writable);
        if (c->out)
                evbuffer_free(c->out);
        frame_reader_done(&c->reader);
        close_fd(c->fd);
        free(c);
}

int client_send(struct client *c, const Wb__ToAgent *m)
{
        uint8_t *frame;
        size_t n, queued = evbuffer_get_length(c->out);
        int r;

        if (c->over)
                return -EPIPE;
        r = codec_pack_to_agent(m, &frame, &n);
        if (r < 0)
                return r;
        if (queued + n > CLIENT_QUEUE_MAX_BYTES) {
                free_frame(frame, n, NULL);
                return -ENOBUFS;
        }
        if (evbuffer_add_reference(c->out, frame, n, free_frame, NULL) < 0) {
                free_frame(frame, n, NULL);
                return -ENOMEM;
        }
        if (queued + n >= CLIENT_LOW_BYTES)
                c->above_low = true;
        return event_add(c->writable, NULL) < 0 ? -ENOMEM : 0;
}

size_t client_queued(const struct client *c)
{
        return evbuffer_get_length(c->out);
}
