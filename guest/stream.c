/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/stream.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <event2/buffer.h>

#include "guest/pty.h"
#include "proto/base/cleanup.h"

/* One read(2): what a pipe holds. */
#define READ_BYTES (64u * 1024u)

/* ---- output */

static uint64_t goal(const struct output *o)
{
        if (o->state == OUTPUT_LAST && o->last_offset < o->allowed_offset)
                return o->last_offset;
        return o->allowed_offset;
}

/* The one place that decides what the loop waits for. */
static void wait_or_not(struct output *o)
{
        if (o->state != OUTPUT_CLOSED && o->replay.end < goal(o))
                (void)event_add(&o->readable, NULL);
        else if (o->state != OUTPUT_CLOSED)
                (void)event_del(&o->readable);
}

void output_close(struct output *o)
{
        if (o->state == OUTPUT_CLOSED)
                return;
        (void)event_del(&o->readable);
        o->fd = close_fd(o->fd);
        o->state = OUTPUT_CLOSED;
}

static void close_if_complete(struct output *o)
{
        if (o->state != OUTPUT_LAST || o->replay.end < o->last_offset)
                return;
        o->cut = true;
        output_close(o);
}

/*
 * One read, into as much of the ring as there is to put into it: a stream that only ends costs no memory. The bytes
 * read, 0 at the end, or a negative errno.
 */
static ssize_t read_some(struct output *o)
{
        uint64_t left = goal(o) - o->replay.end;
        int waiting = 0;
        uint8_t *to, byte;
        size_t n;
        ssize_t got;

        if (ioctl(o->fd, FIONREAD, &waiting) < 0 || waiting <= 0) {
                got = read(o->fd, &byte, 1); /* the end, most likely */
                if (got > 0 && replay_space(&o->replay, 1, &to, &n) < 0)
                        return -ENOMEM;
                if (got > 0)
                        *to = byte;
        } else {
                if (left > (uint64_t)waiting)
                        left = (uint64_t)waiting;
                if (replay_space(&o->replay, left < READ_BYTES ? (size_t)left : READ_BYTES, &to, &n) < 0)
                        return -EAGAIN; /* no memory now: the loop asks again */
                got = read(o->fd, to, n);
        }
        if (got > 0)
                replay_commit(&o->replay, (size_t)got);
        return got < 0 ? -errno : got;
}

static void on_readable(evutil_socket_t fd, short events, void *userdata)
{
        struct output *o = userdata;
        ssize_t got = read_some(o);

        (void)fd;
        (void)events;
        if (got == -EAGAIN || got == -EINTR)
                return;
        if (got <= 0)
                output_close(o); /* EIO: the terminal's other side is closed */
        close_if_complete(o);
        wait_or_not(o);
        o->moved(o, o->userdata);
}

void output_open(
        struct output *o, struct event_base *base, int fd, void (*moved)(struct output *, void *), void *userdata)
{
        *o = (struct output){.fd = fd, .moved = moved, .userdata = userdata};
        (void)event_assign(&o->readable, base, fd, EV_READ | EV_PERSIST, on_readable, o);
}

void output_allow(struct output *o, uint64_t offset)
{
        if (offset == o->allowed_offset)
                return;
        o->allowed_offset = offset;
        wait_or_not(o);
}

void output_leader_ended(struct output *o)
{
        int waiting = 0;

        if (o->state != OUTPUT_OPEN)
                return;
        if (ioctl(o->fd, FIONREAD, &waiting) < 0)
                waiting = 0;
        o->last_offset = o->replay.end + (uint64_t)waiting;
}

void output_cut(struct output *o)
{
        struct pollfd p = {.fd = o->fd, .events = POLLIN};

        if (o->state != OUTPUT_OPEN)
                return;
        /* Nobody can write any more: its end comes by itself, as soon as its readers let it. */
        if (poll(&p, 1, 0) == 1 && p.revents & POLLHUP)
                return;
        o->state = OUTPUT_LAST;
        close_if_complete(o);
        wait_or_not(o);
        if (o->state == OUTPUT_CLOSED)
                o->moved(o, o->userdata);
}

void output_done(struct output *o)
{
        output_close(o);
        replay_done(&o->replay);
}

/* ---- input */

static void input_close(struct input *in)
{
        if (in->fd < 0)
                return;
        (void)event_del(&in->writable);
        in->fd = close_fd(in->fd);
        (void)evbuffer_drain(in->buffer, evbuffer_get_length(in->buffer));
}

/* All is written: the end of file may follow. A terminal has no end, but a byte that says so to a reader of lines. */
static void finish(struct input *in)
{
        (void)event_del(&in->writable);
        if (!in->eof)
                return;
        if (in->terminal) {
                int byte = pty_eof_byte(in->fd);
                unsigned char c = (unsigned char)byte;

                if (byte >= 0 && write(in->fd, &c, 1) < 0 && errno == EAGAIN) {
                        (void)event_add(&in->writable, NULL);
                        return;
                }
        }
        input_close(in);
}

static void on_writable(evutil_socket_t fd, short events, void *userdata)
{
        struct input *in = userdata;
        int put = 0;

        (void)events;
        if (evbuffer_get_length(in->buffer))
                put = evbuffer_write(in->buffer, fd);
        if (put < 0 && (errno == EAGAIN || errno == EINTR))
                return;
        if (put < 0) {
                input_close(in); /* the command does not want it; it is not told as an error */
                return;
        }
        if (evbuffer_get_length(in->buffer) == 0)
                finish(in);
        in->credit_bytes += (size_t)put;
        if (put)
                in->written(in, in->userdata);
}

int input_open(struct input *in, struct event_base *base, int fd, bool terminal,
        void (*written)(struct input *, void *), void *userdata)
{
        struct evbuffer *buffer = evbuffer_new();

        if (!buffer)
                return -ENOMEM;
        *in = (struct input){
                .fd = fd, .terminal = terminal, .buffer = buffer, .written = written, .userdata = userdata};
        (void)event_assign(&in->writable, base, fd, EV_WRITE | EV_PERSIST, on_writable, in);
        return 0;
}

int input_take(struct input *in, uint64_t offset, const uint8_t *data, size_t n, bool eof)
{
        if (in->eof || offset != in->offset)
                return -EPROTO;
        if (in->buffer && evbuffer_get_length(in->buffer) + in->credit_bytes + n > INPUT_WINDOW_BYTES)
                return -EPROTO;
        in->offset += n;
        in->eof = eof;
        if (in->fd < 0)
                return 0;
        if (n && evbuffer_add(in->buffer, data, n) < 0)
                return -ENOMEM;
        if (n || eof)
                (void)event_add(&in->writable, NULL);
        return 0;
}

void input_done(struct input *in)
{
        input_close(in);
        if (in->buffer)
                evbuffer_free(in->buffer);
        in->buffer = NULL;
}
