/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/forward.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <unistd.h>

#include <event2/buffer.h>
#include <event2/event_struct.h>

#include "guest/agent.h"
#include "proto/base/cleanup.h"
#include "proto/wire/limits.h"

/* Credit is given back in pieces of this size: the rest of the window is room enough meanwhile. */
#define CREDIT_BYTES (64u * 1024u)

enum forward_state {
        FORWARD_CONNECTING,
        FORWARD_OPEN,
        FORWARD_ENDED, /* freed at once */
};

struct forward {
        LIST_ENTRY(forward) entry;
        struct forwards *forwards;
        struct control *control;
        enum forward_state state;
        int fd;
        struct event readable, writable;

        /* from the host to the guest */
        struct evbuffer *input;
        uint64_t input_offset; /* of what has come */
        size_t input_credit;   /* written, and not given back yet */
        bool input_ended, input_shut;

        /* from the guest to the host */
        uint64_t output_offset, output_credit;
        bool output_ended;
};

struct forwards {
        struct agent *agent;
        LIST_HEAD(, forward) all;
        unsigned n;
        uint8_t buffer[WB_CHUNK_MAX_BYTES]; /* what was read last: they take turns */
};

int forwards_new(struct agent *agent, struct forwards **ret)
{
        struct forwards *forwards = calloc(1, sizeof(*forwards));

        if (!forwards)
                return -ENOMEM;
        forwards->agent = agent;
        LIST_INIT(&forwards->all);
        *ret = forwards;
        return 0;
}

/* The one way out, control being finished or gone. */
static void end(struct forward *f)
{
        f->state = FORWARD_ENDED;
        (void)event_del(&f->readable);
        (void)event_del(&f->writable);
        LIST_REMOVE(f, entry);
        f->forwards->n--;
        (void)close_fd(f->fd);
        if (f->input)
                evbuffer_free(f->input);
        free(f);
}

static void fail(struct forward *f, const char *reason, const char *detail)
{
        (void)control_send_error(f->control, reason, detail);
        control_finish(f->control);
        end(f);
}

static void fail_errno(struct forward *f, int error)
{
        const char *text = strerrordesc_np(error);

        fail(f,
                error == ECONNREFUSED ? "refused"
                : error == ETIMEDOUT  ? "timeout"
                                      : "reset",
                text ? text : "it failed");
}

void forwards_stop(struct forwards *forwards)
{
        struct forward *f;

        while ((f = LIST_FIRST(&forwards->all)))
                fail(f, "reset", "the guest closes its connections");
}

void forwards_free(struct forwards *forwards)
{
        if (!forwards)
                return;
        forwards_stop(forwards);
        free(forwards);
}

/* ---- what the loop waits for */

static bool may_read(const struct forward *f)
{
        return f->state == FORWARD_OPEN && !f->output_ended && f->output_credit &&
               control_queued(f->control) < CONTROL_HIGH_BYTES;
}

static bool has_to_write(const struct forward *f)
{
        return f->state == FORWARD_CONNECTING || evbuffer_get_length(f->input) || (f->input_ended && !f->input_shut);
}

static void wait_for_more(struct forward *f)
{
        if (may_read(f))
                (void)event_add(&f->readable, NULL);
        else
                (void)event_del(&f->readable);
        if (f->state == FORWARD_CONNECTING)
                (void)event_add(&f->writable, &(struct timeval){.tv_sec = FORWARD_CONNECT_LIMIT_S});
        else if (has_to_write(f))
                (void)event_add(&f->writable, NULL);
        else
                (void)event_del(&f->writable);
}

/* Both directions have ended: so has the conversation. */
static void go_on(struct forward *f)
{
        if (f->input_shut && f->output_ended) {
                control_finish(f->control);
                end(f);
                return;
        }
        wait_for_more(f);
}

/* ---- from the guest to the host */

static int send_output(struct forward *f, size_t n)
{
        Wb__Chunk chunk = WB__CHUNK__INIT;
        Wb__FromAgent m = WB__FROM_AGENT__INIT;

        chunk.stream = WB__STREAM__STDOUT;
        chunk.offset = f->output_offset;
        chunk.data = (ProtobufCBinaryData){.len = n, .data = f->forwards->buffer};
        chunk.eof = n == 0;
        m.body_case = WB__FROM_AGENT__BODY_OUTPUT;
        m.output = &chunk;
        f->output_offset += n;
        f->output_credit -= n;
        f->output_ended = n == 0;
        return control_send(f->control, &m);
}

static void on_readable(evutil_socket_t fd, short events, void *userdata)
{
        struct forward *f = userdata;
        size_t want = f->output_credit < WB_CHUNK_MAX_BYTES ? (size_t)f->output_credit : WB_CHUNK_MAX_BYTES;
        ssize_t got = recv(fd, f->forwards->buffer, want, MSG_DONTWAIT);

        (void)events;
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
                wait_for_more(f);
        } else if (got < 0) {
                fail_errno(f, errno);
        } else {
                (void)send_output(f, (size_t)got); /* a host that has gone away is told of by the loop */
                go_on(f);
        }
}

/* ---- from the host to the guest */

static void give_credit(struct forward *f, size_t n)
{
        Wb__Credit credit = WB__CREDIT__INIT;
        Wb__FromAgent m = WB__FROM_AGENT__INIT;

        f->input_credit += n;
        if (f->input_credit < CREDIT_BYTES || f->input_ended)
                return;
        credit.stream = WB__STREAM__STDIN;
        credit.bytes = f->input_credit;
        m.body_case = WB__FROM_AGENT__BODY_INPUT_CREDIT;
        m.input_credit = &credit;
        if (control_send(f->control, &m) == 0)
                f->input_credit = 0;
}

/* 0 or a negative errno. */
static int write_input(struct forward *f)
{
        while (evbuffer_get_length(f->input)) {
                struct evbuffer_iovec piece;
                ssize_t put;

                if (evbuffer_peek(f->input, -1, NULL, &piece, 1) < 1)
                        return -ENOMEM;
                put = send(f->fd, piece.iov_base, piece.iov_len, MSG_NOSIGNAL | MSG_DONTWAIT);
                if (put < 0)
                        return errno == EAGAIN || errno == EINTR ? 0 : -errno;
                (void)evbuffer_drain(f->input, (size_t)put);
                give_credit(f, (size_t)put);
        }
        if (f->input_ended && !f->input_shut) {
                (void)shutdown(f->fd, SHUT_WR);
                f->input_shut = true;
        }
        return 0;
}

static void say_ready(struct forward *f)
{
        Wb__ForwardReady ready = WB__FORWARD_READY__INIT;
        Wb__FromAgent m = WB__FROM_AGENT__INIT;

        f->state = FORWARD_OPEN;
        ready.input_window_bytes = FORWARD_WINDOW_BYTES;
        m.body_case = WB__FROM_AGENT__BODY_FORWARD_READY;
        m.forward_ready = &ready;
        (void)control_send(f->control, &m);
}

static void on_connected(struct forward *f)
{
        socklen_t n = sizeof(int);
        int error = 0;

        if (getsockopt(f->fd, SOL_SOCKET, SO_ERROR, &error, &n) < 0)
                error = errno;
        if (error) {
                fail_errno(f, error);
                return;
        }
        say_ready(f);
        go_on(f);
}

static void on_writable(evutil_socket_t fd, short events, void *userdata)
{
        struct forward *f = userdata;
        int r;

        (void)fd;
        if (events & EV_TIMEOUT) {
                fail_errno(f, ETIMEDOUT);
                return;
        }
        if (f->state == FORWARD_CONNECTING) {
                on_connected(f);
                return;
        }
        r = write_input(f);
        if (r < 0)
                fail_errno(f, -r);
        else
                go_on(f);
}

static int take_input(struct forward *f, const Wb__Chunk *chunk)
{
        size_t held = evbuffer_get_length(f->input) + f->input_credit;

        if (f->state != FORWARD_OPEN || f->input_ended || chunk->offset != f->input_offset ||
                held + chunk->data.len > FORWARD_WINDOW_BYTES)
                return -EPROTO;
        f->input_offset += chunk->data.len;
        f->input_ended = chunk->eof;
        if (chunk->data.len && evbuffer_add(f->input, chunk->data.data, chunk->data.len) < 0)
                return -ENOMEM;
        return write_input(f);
}

/* ---- the conversation */

static void on_message(void *userdata, const Wb__ToAgent *m)
{
        struct forward *f = userdata;
        int r;

        switch ((int)m->body_case) {
        case WB__TO_AGENT__BODY_INPUT: r = take_input(f, m->input); break;
        case WB__TO_AGENT__BODY_CREDIT:
                r = 0;
                if (__builtin_add_overflow(f->output_credit, m->credit->bytes, &f->output_credit))
                        f->output_credit = UINT64_MAX;
                break;
        default: r = -EPROTO;
        }
        if (r == -EPROTO)
                fail(f, "protocol", "not a message of a forwarded connection, or beyond its window");
        else if (r < 0)
                fail_errno(f, -r);
        else
                go_on(f);
}

static void on_drained(void *userdata)
{
        wait_for_more(userdata);
}

/* The host's connection was cut, not ended: so is the guest's. */
static void on_closed(void *userdata)
{
        struct forward *f = userdata;
        struct linger at_once = {.l_onoff = 1};

        (void)setsockopt(f->fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
        end(f);
}

static const struct control_handler handler = {.message = on_message, .drained = on_drained, .closed = on_closed};

static void refuse(struct control *c, const char *reason, const char *detail)
{
        (void)control_send_error(c, reason, detail);
        control_finish(c);
}

static int dial(struct forward *f, uint32_t port)
{
        struct sockaddr_in to = {
                .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        int on = 1;

        f->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (f->fd < 0)
                return -errno;
        (void)setsockopt(f->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        if (connect(f->fd, (const struct sockaddr *)&to, sizeof(to)) < 0 && errno != EINPROGRESS)
                return -errno;
        return 0;
}

void forward_open(struct forwards *forwards, struct control *c, const Wb__Forward *m)
{
        struct forward *f;
        int r;

        if (m->port == 0 || m->port > UINT16_MAX) {
                refuse(c, "invalid", "a port is 1 to 65535");
                return;
        }
        if (forwards->n == FORWARDS_MAX) {
                refuse(c, "busy", "too many forwarded connections at a time");
                return;
        }
        f = calloc(1, sizeof(*f));
        if (f)
                f->input = evbuffer_new();
        if (!f || !f->input) {
                free(f);
                refuse(c, "internal", "no memory");
                return;
        }
        f->forwards = forwards;
        f->control = c;
        f->fd = -1;
        f->output_credit = m->output_window_bytes;
        LIST_INSERT_HEAD(&forwards->all, f, entry);
        forwards->n++;
        control_set_handler(c, &handler, f);
        r = dial(f, m->port);
        (void)event_assign(&f->readable, forwards->agent->base, f->fd, EV_READ | EV_PERSIST, on_readable, f);
        (void)event_assign(&f->writable, forwards->agent->base, f->fd, EV_WRITE, on_writable, f);
        if (r < 0)
                fail_errno(f, -r);
        else
                wait_for_more(f);
}
