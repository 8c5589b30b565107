/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <event2/buffer.h>
#include <event2/event_struct.h>

#include "proto/base/cleanup.h"
#include "proto/client/client.h"
#include "proto/wire/limits.h"
#include "tools/wbctl/forward.h"
#include "tools/wbctl/printable.h"

#define WINDOW_BYTES (256u * 1024u) /* of the guest's output */
#define CREDIT_BYTES (64u * 1024u)

enum link_state {
        LINK_DIALLING,
        LINK_OPENING, /* the agent connects */
        LINK_OPEN,
        LINK_ENDED, /* freed at once */
};

struct forward_link {
        struct forward_links *links;
        enum link_state state;
        int fd;
        struct event readable, writable;
        struct transport_dial dial;
        struct event dialling;
        struct client *client; /* NULL before the dial has succeeded */
        bool client_over;      /* the agent has closed: all that was said to the guest is written there */

        uint64_t input_offset, input_credit; /* what is read here and goes to the guest */
        bool input_ended;

        struct evbuffer *output; /* what has come of the guest */
        uint64_t output_offset;
        size_t output_credit; /* written, and not given back yet */
        bool output_ended, output_shut;
};

static void link_free(struct forward_link *l)
{
        struct forward_links *links = l->links;

        l->state = LINK_ENDED;
        (void)event_del(&l->readable);
        (void)event_del(&l->writable);
        if (event_initialized(&l->dialling))
                (void)event_del(&l->dialling);
        transport_dial_done(&l->dial);
        if (l->client)
                client_free(l->client);
        if (l->output)
                evbuffer_free(l->output);
        (void)close_fd(l->fd);
        free(l);
        links->n--;
        links->freed(links);
}

/* The local side sees a reset: what it has read is not all that there was to be. */
static void cut(struct forward_link *l)
{
        struct linger at_once = {.l_onoff = 1};

        (void)setsockopt(l->fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
        link_free(l);
}

static void cut_errno(struct forward_link *l, const char *what, int error)
{
        const char *text = strerrordesc_np(-error);

        fprintf(stderr, "wbctl: %s: %s\n", what, text ? text : "it failed");
        cut(l);
}

/* ---- what the loop waits for */

static bool may_read(const struct forward_link *l)
{
        return l->state == LINK_OPEN && !l->input_ended && l->input_credit &&
               client_queued(l->client) < CLIENT_LOW_BYTES;
}

static void go_on(struct forward_link *l)
{
        if (l->client_over && l->output_shut) {
                link_free(l);
                return;
        }
        if (may_read(l))
                (void)event_add(&l->readable, NULL);
        else
                (void)event_del(&l->readable);
        if (evbuffer_get_length(l->output) || (l->output_ended && !l->output_shut))
                (void)event_add(&l->writable, NULL);
        else
                (void)event_del(&l->writable);
}

/* ---- from here to the guest */

static int send_input(struct forward_link *l, const uint8_t *bytes, size_t n)
{
        Wb__Chunk chunk = WB__CHUNK__INIT;
        Wb__ToAgent m = WB__TO_AGENT__INIT;

        chunk.stream = WB__STREAM__STDIN;
        chunk.offset = l->input_offset;
        chunk.data = (ProtobufCBinaryData){.len = n, .data = (uint8_t *)(uintptr_t)bytes};
        chunk.eof = n == 0;
        m.body_case = WB__TO_AGENT__BODY_INPUT;
        m.input = &chunk;
        l->input_offset += n;
        l->input_credit -= n;
        l->input_ended = n == 0;
        return client_send(l->client, &m);
}

static void on_readable(evutil_socket_t fd, short events, void *userdata)
{
        struct forward_link *l = userdata;
        uint8_t bytes[32 * 1024];
        size_t want = l->input_credit < sizeof(bytes) ? (size_t)l->input_credit : sizeof(bytes);
        ssize_t got = recv(fd, bytes, want, MSG_DONTWAIT);
        int r;

        (void)events;
        if (got < 0 && (errno == EAGAIN || errno == EINTR))
                return;
        if (got < 0) {
                cut(l); /* the agent finds its conversation closed, and resets the guest's side */
                return;
        }
        r = send_input(l, bytes, (size_t)got);
        if (r < 0 && r != -EPIPE)
                cut_errno(l, "to the guest", r);
        else
                go_on(l);
}

/* ---- from the guest to here */

static void give_credit(struct forward_link *l, size_t n)
{
        Wb__Credit credit = WB__CREDIT__INIT;
        Wb__ToAgent m = WB__TO_AGENT__INIT;

        l->output_credit += n;
        if (l->output_credit < CREDIT_BYTES || l->output_ended)
                return;
        credit.stream = WB__STREAM__STDOUT;
        credit.bytes = l->output_credit;
        m.body_case = WB__TO_AGENT__BODY_CREDIT;
        m.credit = &credit;
        if (client_send(l->client, &m) == 0)
                l->output_credit = 0;
}

static int write_output(struct forward_link *l)
{
        while (evbuffer_get_length(l->output)) {
                struct evbuffer_iovec piece;
                ssize_t put;

                if (evbuffer_peek(l->output, -1, NULL, &piece, 1) < 1)
                        return -ENOMEM;
                put = send(l->fd, piece.iov_base, piece.iov_len, MSG_NOSIGNAL | MSG_DONTWAIT);
                if (put < 0)
                        return errno == EAGAIN || errno == EINTR ? 0 : -errno;
                (void)evbuffer_drain(l->output, (size_t)put);
                give_credit(l, (size_t)put);
        }
        if (l->output_ended && !l->output_shut) {
                (void)shutdown(l->fd, SHUT_WR);
                l->output_shut = true;
        }
        return 0;
}

static void on_writable(evutil_socket_t fd, short events, void *userdata)
{
        struct forward_link *l = userdata;

        (void)fd;
        (void)events;
        if (write_output(l) < 0)
                cut(l);
        else
                go_on(l);
}

/* The guest may send what it was allowed to, in order. */
static int take_output(struct forward_link *l, const Wb__Chunk *chunk)
{
        size_t held = evbuffer_get_length(l->output) + l->output_credit;

        if (l->state != LINK_OPEN || l->output_ended || chunk->offset != l->output_offset ||
                held + chunk->data.len > WINDOW_BYTES)
                return -EPROTO;
        l->output_offset += chunk->data.len;
        l->output_ended = chunk->eof;
        if (chunk->data.len && evbuffer_add(l->output, chunk->data.data, chunk->data.len) < 0)
                return -ENOMEM;
        return write_output(l);
}

/* ---- the conversation */

static void say_error(const Wb__Error *error)
{
        char reason[64], detail[256];

        printable(error->reason, reason, sizeof(reason));
        printable(error->detail, detail, sizeof(detail));
        fprintf(stderr, "wbctl: a connection: %s: %s\n", reason, detail);
}

static void on_message(void *userdata, const Wb__FromAgent *m)
{
        struct forward_link *l = userdata;
        int r = -EPROTO;

        switch ((int)m->body_case) {
        case WB__FROM_AGENT__BODY_FORWARD_READY:
                if (l->state == LINK_OPENING) {
                        l->state = LINK_OPEN;
                        l->input_credit = m->forward_ready->input_window_bytes;
                        r = 0;
                }
                break;
        case WB__FROM_AGENT__BODY_OUTPUT: r = take_output(l, m->output); break;
        case WB__FROM_AGENT__BODY_INPUT_CREDIT:
                r = __builtin_add_overflow(l->input_credit, m->input_credit->bytes, &l->input_credit) ? -EPROTO : 0;
                break;
        case WB__FROM_AGENT__BODY_ERROR:
                say_error(m->error);
                cut(l);
                return;
        default: break;
        }
        if (r == -EPROTO)
                cut_errno(l, "from the guest", r);
        else if (r < 0)
                cut(l); /* the local side went away */
        else
                go_on(l);
}

static void on_drained(void *userdata)
{
        go_on(userdata);
}

/*
 * The agent closes once both sides have ended; what it sent may not be written yet. A credit that it did not read any
 * more makes a reset of its close: then too all that was to come has come.
 */
static void on_closed(void *userdata, int error)
{
        struct forward_link *l = userdata;

        if (l->input_ended && l->output_ended) {
                l->client_over = true;
                if (write_output(l) < 0)
                        cut(l);
                else
                        go_on(l);
                return;
        }
        if (l->state != LINK_OPEN || error)
                cut_errno(l, "the guest's agent", error ? error : -EPIPE);
        else
                cut(l);
}

static const struct client_handler handler = {.message = on_message, .drained = on_drained, .closed = on_closed};

static void open_conversation(struct forward_link *l)
{
        Wb__Forward forward = WB__FORWARD__INIT;
        Wb__ToAgent m = WB__TO_AGENT__INIT;
        int r = client_new(l->links->base, transport_dial_steal(&l->dial), &handler, l, &l->client);

        forward.port = l->links->guest_port;
        forward.output_window_bytes = WINDOW_BYTES;
        m.body_case = WB__TO_AGENT__BODY_FORWARD;
        m.forward = &forward;
        l->state = LINK_OPENING;
        if (r == 0)
                r = client_send(l->client, &m);
        if (r < 0)
                cut_errno(l, "cannot reach the agent", r);
}

static void wait_for_dial(struct forward_link *l, short wanted);

static void dialled(struct forward_link *l, int r, short wanted)
{
        if (r == TRANSPORT_E_AGAIN)
                wait_for_dial(l, wanted);
        else if (r < 0)
                cut_errno(l, "cannot reach the agent", r);
        else
                open_conversation(l);
}

static void on_dialling(evutil_socket_t fd, short events, void *userdata)
{
        struct forward_link *l = userdata;
        short wanted = 0;
        int r;

        (void)fd;
        if (events & EV_TIMEOUT) {
                cut_errno(l, "cannot reach the agent", -ETIMEDOUT);
                return;
        }
        r = transport_dial_continue(&l->dial, &wanted);
        dialled(l, r, wanted);
}

static void wait_for_dial(struct forward_link *l, short wanted)
{
        uint64_t ms = l->links->connect_ms;
        struct timeval limit = {.tv_sec = (time_t)(ms / 1000), .tv_usec = (suseconds_t)(ms % 1000) * 1000};

        (void)event_assign(
                &l->dialling, l->links->base, l->dial.fd, wanted & POLLOUT ? EV_WRITE : EV_READ, on_dialling, l);
        (void)event_add(&l->dialling, &limit);
}

int forward_link_new(struct forward_links *links, int fd)
{
        struct forward_link *l = calloc(1, sizeof(*l));
        short wanted = 0;
        int r;

        if (!l || !(l->output = evbuffer_new())) {
                free(l);
                (void)close_fd(fd);
                return -ENOMEM;
        }
        l->links = links;
        l->fd = fd;
        l->dial.fd = -1;
        links->n++;
        (void)event_assign(&l->readable, links->base, fd, EV_READ | EV_PERSIST, on_readable, l);
        (void)event_assign(&l->writable, links->base, fd, EV_WRITE, on_writable, l);
        r = transport_dial_start(&l->dial, links->target, WB_PORT_CONTROL, &wanted);
        dialled(l, r, wanted);
        return 0;
}
