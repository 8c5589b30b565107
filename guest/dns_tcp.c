/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/dns_tcp.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>

#include <event2/event.h>
#include <event2/event_struct.h>

#include "guest/dns_message.h"
#include "proto/base/cleanup.h"

#define CONNECTIONS_MAX 32u
#define IDLE_S          10
#define SIZE_BYTES      2u

struct dns_tcp_connection {
        TAILQ_ENTRY(dns_tcp_connection) in_age;
        struct dns_tcp *server;
        int fd;
        bool broken;
        struct event event;
        size_t n; /* of bytes */
        uint8_t bytes[SIZE_BYTES + DNS_QUERY_MAX_BYTES];
};

struct dns_tcp {
        struct event_base *base;
        const struct dns_tcp_handler *handler;
        void *userdata;
        size_t n;
        TAILQ_HEAD(, dns_tcp_connection) connections; /* the oldest first */
};

static void close_connection(struct dns_tcp_connection *c)
{
        struct dns_tcp *t = c->server;

        t->handler->closed(t->userdata, c);
        (void)event_del(&c->event);
        (void)close_fd(c->fd);
        TAILQ_REMOVE(&t->connections, c, in_age);
        t->n--;
        free(c);
}

/* The size of the message that comes, its two bytes included. */
static size_t wanted(const struct dns_tcp_connection *c)
{
        return SIZE_BYTES + ((size_t)c->bytes[0] << 8 | c->bytes[1]);
}

/* Hands on each whole message. False: one is larger than any question. */
static bool take_messages(struct dns_tcp_connection *c)
{
        struct dns_tcp *t = c->server;

        while (c->n >= SIZE_BYTES && !c->broken) {
                size_t n = wanted(c);

                if (n > sizeof(c->bytes))
                        return false;
                if (c->n < n)
                        return true;
                t->handler->message(t->userdata, c, c->bytes + SIZE_BYTES, n - SIZE_BYTES);
                memmove(c->bytes, c->bytes + n, c->n - n);
                c->n -= n;
        }
        return !c->broken;
}

static void on_event(evutil_socket_t fd, short events, void *userdata)
{
        struct dns_tcp_connection *c = userdata;
        ssize_t got = 0;

        if (!c->broken && !(events & EV_TIMEOUT))
                got = recv(fd, c->bytes + c->n, sizeof(c->bytes) - c->n, 0);
        if (got < 0 && (errno == EAGAIN || errno == EINTR))
                return;
        if (got <= 0) {
                close_connection(c);
                return;
        }
        c->n += (size_t)got;
        if (!take_messages(c))
                close_connection(c);
}

int dns_tcp_new(struct event_base *base, const struct dns_tcp_handler *handler, void *userdata, struct dns_tcp **ret)
{
        struct dns_tcp *t = calloc(1, sizeof(*t));

        if (!t)
                return -ENOMEM;
        *t = (struct dns_tcp){.base = base, .handler = handler, .userdata = userdata};
        TAILQ_INIT(&t->connections);
        *ret = t;
        return 0;
}

void dns_tcp_open(struct dns_tcp *t, int fd)
{
        struct dns_tcp_connection *c = malloc(sizeof(*c));

        if (!c) {
                (void)close_fd(fd);
                return;
        }
        if (t->n == CONNECTIONS_MAX)
                close_connection(TAILQ_FIRST(&t->connections));
        c->server = t;
        c->fd = fd;
        c->broken = false;
        c->n = 0;
        TAILQ_INSERT_TAIL(&t->connections, c, in_age);
        t->n++;
        (void)event_assign(&c->event, t->base, fd, EV_READ | EV_PERSIST, on_event, c);
        (void)event_add(&c->event, &(struct timeval){.tv_sec = IDLE_S});
}

void dns_tcp_send(struct dns_tcp_connection *c, const uint8_t *message, size_t n)
{
        uint8_t size[SIZE_BYTES] = {(uint8_t)(n >> 8), (uint8_t)n};
        uint8_t whole[SIZE_BYTES + DNS_REPLY_MAX_BYTES];

        memcpy(whole, size, SIZE_BYTES);
        memcpy(whole + SIZE_BYTES, message, n);
        if (!c->broken && send(c->fd, whole, SIZE_BYTES + n, MSG_NOSIGNAL) == (ssize_t)(SIZE_BYTES + n))
                return;
        c->broken = true; /* a part of a message would put all that follow out of step */
        event_active(&c->event, EV_READ, 0);
}
