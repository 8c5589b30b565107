/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/dialer.h"

#include <errno.h>
#include <event2/event_struct.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "proto/base/cleanup.h"
#include "proto/wire/hostname.h"

#define ATTEMPTS_MAX   8u  /* under way at the same time */
#define PRESS_AGAIN_MS 20u /* what is full now may take another a moment later */

struct attempt {
        struct dialer *dialer;
        int fd;       /* -1: free */
        size_t index; /* of the address */
        struct event writable;
};

struct dialer {
        struct event_base *base;
        uint16_t port;
        dialer_done_fn done;
        void *userdata;
        enum reason reason; /* of the failures so far, the most telling one */
        struct event next;  /* time for a further attempt */
        struct event deadline;
        struct attempt attempts[ATTEMPTS_MAX];
        size_t tried; /* addresses */
        size_t under_way;
        struct sockaddr_un path; /* sun_path empty: by addresses */
        size_t addresses_n;
        struct dns_address addresses[];
};

static void drop(struct attempt *a)
{
        if (a->fd < 0)
                return;
        event_del(&a->writable);
        a->fd = close_fd(a->fd);
        a->dialer->under_way--;
}

static void stop(struct dialer *d)
{
        for (size_t i = 0; i < ATTEMPTS_MAX; i++)
                drop(&d->attempts[i]);
        event_del(&d->next);
        event_del(&d->deadline);
}

void dialer_free(struct dialer *d)
{
        if (!d)
                return;
        stop(d);
        free(d);
}

/* A refusal says that somebody is there, a timeout that somebody might be: the more is known, the better the answer. */
static void note_failure(struct dialer *d, int error)
{
        enum reason reason = REASON_UPSTREAM_UNREACHABLE;

        if (error == ECONNREFUSED || error == ECONNRESET || error == ENOENT)
                reason = REASON_UPSTREAM_REFUSED;
        else if (error == ETIMEDOUT)
                reason = REASON_UPSTREAM_TIMEOUT;
        if (d->reason == REASON_ALLOWED || reason == REASON_UPSTREAM_REFUSED ||
                (reason == REASON_UPSTREAM_TIMEOUT && d->reason == REASON_UPSTREAM_UNREACHABLE))
                d->reason = reason;
}

static void succeed(struct attempt *a)
{
        struct dialer *d = a->dialer;
        const struct dns_address *address = d->path.sun_path[0] ? NULL : &d->addresses[a->index];
        int on = 1;

        event_del(&a->writable);
        d->under_way--;

        int fd = steal_fd(&a->fd);
        stop(d);
        if (address) {
                (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
                (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
        }
        d->done(d->userdata, REASON_ALLOWED, fd, address);
}

static void fail(struct dialer *d, enum reason reason)
{
        stop(d);
        d->done(d->userdata, reason, -1, NULL);
}

static void on_writable(evutil_socket_t fd, short what, void *userdata)
{
        struct attempt *a = userdata;
        struct dialer *d = a->dialer;
        int error = 0;
        socklen_t n = sizeof(error);

        (void)what;
        if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &n) < 0)
                error = errno;
        if (!error) {
                succeed(a);
                return;
        }
        note_failure(d, error);
        drop(a);
        event_active(&d->next, 0, 0);
}

static int open_socket(struct dialer *d, size_t index, struct sockaddr_storage *ret_to, socklen_t *ret_n)
{
        const struct dns_address *a = &d->addresses[index];
        int family;

        memset(ret_to, 0, sizeof(*ret_to));
        if (d->path.sun_path[0]) {
                family = AF_UNIX;
                memcpy(ret_to, &d->path, sizeof(d->path));
                *ret_n = sizeof(d->path);
        } else if (a->kind == HOST_IPV4) {
                struct sockaddr_in *in = (void *)ret_to;

                family = in->sin_family = AF_INET;
                in->sin_port = htons(d->port);
                memcpy(&in->sin_addr, a->bytes, 4);
                *ret_n = sizeof(*in);
        } else {
                struct sockaddr_in6 *in6 = (void *)ret_to;

                family = in6->sin6_family = AF_INET6;
                in6->sin6_port = htons(d->port);
                memcpy(&in6->sin6_addr, a->bytes, 16);
                *ret_n = sizeof(*in6);
        }

        int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        return fd < 0 ? -errno : fd;
}

/* No descriptor is free, or (EAGAIN) a unix socket's backlog is full: no failure yet, the deadline is. */
static bool is_press(int error)
{
        return error == EAGAIN || error == EMFILE || error == ENFILE || error == ENOBUFS;
}

/* The attempt is under way, or its failure is noted. False: there is a press, and it has not been tried. */
static bool try_one(struct dialer *d, struct attempt *a)
{
        struct sockaddr_storage to;
        socklen_t to_n;

        a->index = d->tried;

        _cleanup_close_ int fd = open_socket(d, a->index, &to, &to_n);
        int error = fd < 0 ? -fd : 0;
        if (!error && connect(fd, (struct sockaddr *)&to, to_n) < 0 && errno != EINPROGRESS)
                error = errno;
        if (is_press(error))
                return false;
        d->tried++;
        if (error) {
                note_failure(d, error);
                return true;
        }
        a->fd = steal_fd(&fd);
        d->under_way++;
        event_assign(&a->writable, d->base, a->fd, EV_WRITE, on_writable, a);
        event_add(&a->writable, NULL);
        return true;
}

static struct attempt *free_attempt(struct dialer *d)
{
        for (size_t i = 0; i < ATTEMPTS_MAX; i++)
                if (d->attempts[i].fd < 0)
                        return &d->attempts[i];
        return NULL;
}

static void on_next(evutil_socket_t fd, short what, void *userdata)
{
        struct dialer *d = userdata;
        const struct timeval stagger = {.tv_usec = DIALER_STAGGER_MS * 1000},
                             again = {.tv_usec = PRESS_AGAIN_MS * 1000};
        size_t under_way_before = d->under_way;

        (void)fd;
        (void)what;
        while (d->tried < d->addresses_n && d->under_way == under_way_before) {
                struct attempt *a = free_attempt(d);

                if (!a)
                        return; /* the next failure or the deadline goes on */
                if (!try_one(d, a)) {
                        event_add(&d->next, &again);
                        return;
                }
        }
        if (!d->under_way)
                fail(d, d->reason);
        else if (d->tried < d->addresses_n)
                event_add(&d->next, &stagger);
}

static void on_deadline(evutil_socket_t fd, short what, void *userdata)
{
        (void)fd;
        (void)what;
        fail(userdata, REASON_UPSTREAM_TIMEOUT);
}

/* IPv6 and IPv4 in turn, beginning with IPv6 (RFC 8305 4), else in the answer's order. */
static void interleave(struct dialer *d, const struct dns_address *addresses, size_t n)
{
        size_t next[2] = {0, 0};
        const uint8_t kinds[2] = {HOST_IPV6, HOST_IPV4};

        for (unsigned turn = 0; d->addresses_n < n; turn ^= 1) {
                size_t *i = &next[turn];

                while (*i < n && addresses[*i].kind != kinds[turn])
                        (*i)++;
                if (*i < n)
                        d->addresses[d->addresses_n++] = addresses[(*i)++];
        }
}

static int dialer_new(struct event_base *base, size_t addresses_n, uint64_t timeout_ms, dialer_done_fn done,
        void *userdata, struct dialer **ret)
{
        struct dialer *d = calloc(1, sizeof(*d) + addresses_n * sizeof(*d->addresses));
        const struct timeval deadline = {
                .tv_sec = (time_t)(timeout_ms / 1000),
                .tv_usec = (suseconds_t)(timeout_ms % 1000 * 1000),
        };

        if (!d)
                return -ENOMEM;
        d->base = base;
        d->done = done;
        d->userdata = userdata;
        for (size_t i = 0; i < ATTEMPTS_MAX; i++)
                d->attempts[i] = (struct attempt){.dialer = d, .fd = -1};
        event_assign(&d->next, base, -1, 0, on_next, d);
        event_assign(&d->deadline, base, -1, 0, on_deadline, d);
        event_add(&d->deadline, &deadline);
        event_active(&d->next, 0, 0);
        *ret = d;
        return 0;
}

int dialer_start(struct event_base *base, const struct dns_address *addresses, size_t addresses_n, uint16_t port,
        uint64_t timeout_ms, dialer_done_fn done, void *userdata, struct dialer **ret)
{
        int r = dialer_new(base, addresses_n, timeout_ms, done, userdata, ret);

        if (r < 0)
                return r;
        (*ret)->port = port;
        interleave(*ret, addresses, addresses_n);
        return 0;
}

int dialer_start_unix(struct event_base *base, const char *path, uint64_t timeout_ms, dialer_done_fn done,
        void *userdata, struct dialer **ret)
{
        size_t n = strlen(path);

        if (!n || n >= sizeof((*ret)->path.sun_path))
                return -ENAMETOOLONG;

        int r = dialer_new(base, 1, timeout_ms, done, userdata, ret);
        if (r < 0)
                return r;
        (*ret)->path.sun_family = AF_UNIX;
        memcpy((*ret)->path.sun_path, path, n + 1);
        (*ret)->addresses_n = 1;
        return 0;
}
