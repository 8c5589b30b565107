/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/transparent.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <event2/event.h>
#include <event2/event_struct.h>

#include "guest/fake_pool.h"
#include "guest/host_dial.h"
#include "guest/pair.h"
#include "guest/redirect.h"
#include "proto/base/cleanup.h"
#include "proto/base/clock.h"
#include "proto/wire/hostname.h"
#include "proto/wire/limits.h"

#define ASK_LIMIT_S     60   /* the host looks the name up and connects meanwhile, and has limits of its own for both */
#define ANSWER_BYTES    8192 /* a refusal with its explanation; what follows a 200 */
#define REFUSAL_LIMIT_S 2    /* for the rest of a refusal */
#define FIRST_WAIT_MS   300  /* for the first bytes of a client that is refused */
#define LINGER_S        2    /* for a client to take what it is told */
#define LINGER_READS    256

/* "CONNECT HOST:PORT HTTP/1.1", "Host: HOST:PORT" and what is the same in all. */
#define ASK_BYTES (2 * (HOSTNAME_MAX_BYTES + 8) + 128)

enum opening_state {
        OPENING_DIALLING,
        OPENING_ASKING,   /* the CONNECT leaves */
        OPENING_HEARING,  /* the answer's head comes */
        OPENING_REFUSED,  /* and the rest of a refusal, until the host closes */
        OPENING_GUESSING, /* what does the client speak? */
        OPENING_TELLING,  /* the client is told */
        OPENING_LINGERING,
};

struct opening {
        struct carrier *carrier;
        struct fake_pool *pool;
        uint32_t address;
        enum opening_state state;
        int inner, outer;
        struct host_dial dial;
        struct event event; /* the one thing that is waited for */
        int status;         /* of the answer; 0: not known */
        size_t sent;        /* of the question, then of what the client is told */
        size_t n;           /* of bytes */
        char bytes[ANSWER_BYTES + 1];
};

/* What a connection that was opened holds on to. */
struct hold {
        struct fake_pool *pool;
        uint32_t address;
};

static void release(void *userdata)
{
        struct hold *h = userdata;

        fake_pool_release(h->pool, h->address);
        free(h);
}

static void free_opening(struct opening *o)
{
        host_dial_stop(&o->dial);
        (void)event_del(&o->event);
        (void)close_fd(o->outer);
        free(o);
}

/* It leads nowhere. */
static void give_up(struct opening *o, bool reset)
{
        o->inner = reset ? pair_reset_fd(o->inner) : close_fd(o->inner);
        fake_pool_release(o->pool, o->address);
        carrier_leave(o->carrier);
        free_opening(o);
}

static void on_event(evutil_socket_t fd, short events, void *userdata);

/* What each state waits for, and how long at most. Beginning a state begins its time anew. */
static const struct {
        bool outer; /* whose descriptor */
        short events;
        struct timeval limit;
} waits[] = {
        [OPENING_DIALLING] = {0},
        [OPENING_ASKING] = {true, EV_WRITE, {.tv_sec = ASK_LIMIT_S}},
        [OPENING_HEARING] = {true, EV_READ, {.tv_sec = ASK_LIMIT_S}},
        [OPENING_REFUSED] = {true, EV_READ, {.tv_sec = REFUSAL_LIMIT_S}},
        [OPENING_GUESSING] = {false, EV_READ, {.tv_usec = FIRST_WAIT_MS * 1000}},
        [OPENING_TELLING] = {false, EV_WRITE, {.tv_sec = LINGER_S}},
        [OPENING_LINGERING] = {false, EV_READ, {.tv_sec = LINGER_S}},
};
static_assert(sizeof(waits) / sizeof(waits[0]) == OPENING_LINGERING + 1, "a row for each state");

static void set_state(struct opening *o, enum opening_state state)
{
        o->state = state;
        (void)event_del(&o->event);
        (void)event_assign(&o->event, o->carrier->base, waits[state].outer ? o->outer : o->inner, waits[state].events,
                on_event, o);
        (void)event_add(&o->event, &waits[state].limit);
}

/* For more of the same. */
static void wait_on(struct opening *o)
{
        (void)event_add(&o->event, &waits[o->state].limit);
}

/* ---- asking */

static void ask(struct opening *o)
{
        ssize_t put = send(o->outer, o->bytes + o->sent, o->n - o->sent, MSG_NOSIGNAL);

        if (put < 0 && errno != EAGAIN && errno != EINTR) {
                give_up(o, true);
                return;
        }
        o->sent += put > 0 ? (size_t)put : 0;
        if (o->sent < o->n) {
                wait_on(o);
                return;
        }
        o->n = o->sent = 0;
        set_state(o, OPENING_HEARING);
}

static void on_dialled(struct host_dial *d, int result)
{
        struct opening *o = (struct opening *)(void *)((char *)d - offsetof(struct opening, dial));

        if (result < 0) {
                give_up(o, true);
                return;
        }
        o->outer = result;
        set_state(o, OPENING_ASKING);
}

/* ---- hearing */

/* Carries on what was agreed to; head_n: where the bytes begin that are the server's. */
static void go_on(struct opening *o, size_t head_n)
{
        struct hold *h = malloc(sizeof(*h));

        if (!h) {
                give_up(o, true);
                return;
        }
        *h = (struct hold){o->pool, o->address};
        (void)event_del(&o->event);
        (void)pair_adopt(
                o->carrier, steal_fd(&o->inner), steal_fd(&o->outer), o->bytes + head_n, o->n - head_n, release, h);
        free_opening(o);
}

/* The status of an HTTP/1 answer, or 0. */
static int read_status(const char *head)
{
        if (strncmp(head, "HTTP/1.", 7) != 0 || strlen(head) < 12 || head[8] != ' ')
                return 0;
        for (int i = 9; i < 12; i++)
                if (head[i] < '0' || head[i] > '9')
                        return 0;
        return (head[9] - '0') * 100 + (head[10] - '0') * 10 + (head[11] - '0');
}

static void heard(struct opening *o)
{
        char *end = memmem(o->bytes, o->n, "\r\n\r\n", 4);

        if (!end) {
                if (o->n == ANSWER_BYTES)
                        give_up(o, true);
                else
                        wait_on(o);
                return;
        }
        o->status = read_status(o->bytes);
        if (o->status == 200)
                go_on(o, (size_t)(end + 4 - o->bytes));
        else
                set_state(o, OPENING_REFUSED);
}

/* More of the host's answer, or its end. */
static void hear(struct opening *o)
{
        ssize_t got = recv(o->outer, o->bytes + o->n, ANSWER_BYTES - o->n, 0);

        if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
                wait_on(o);
                return;
        }
        o->n += got > 0 ? (size_t)got : 0;
        o->bytes[o->n] = '\0';
        if (o->state == OPENING_HEARING && got > 0)
                heard(o);
        else if (o->state == OPENING_HEARING)
                give_up(o, true);
        else if (got > 0 && o->n < ANSWER_BYTES)
                wait_on(o);
        else
                set_state(o, OPENING_GUESSING);
}

/* ---- telling the client */

static bool is_http(const char *first, size_t n)
{
        size_t i = 0;

        while (i < n && first[i] >= 'A' && first[i] <= 'Z')
                i++;
        return i >= 3 && i < n && first[i] == ' ';
}

static void guess(struct opening *o)
{
        static const char alert[] = {21, 3, 3, 0, 2, 2, 49}; /* fatal, access_denied (RFC 8446, 6) */
        char first[16];
        ssize_t got = recv(o->inner, first, sizeof(first), MSG_PEEK);

        if (got > 0 && is_http(first, (size_t)got) && o->status) {
                o->sent = 0;
                set_state(o, OPENING_TELLING);
        } else if (got > 1 && first[0] == 22 && first[1] == 3 && o->status == 403) {
                memcpy(o->bytes, alert, sizeof(alert));
                o->n = sizeof(alert);
                o->sent = 0;
                set_state(o, OPENING_TELLING);
        } else {
                give_up(o, true);
        }
}

static void tell(struct opening *o)
{
        ssize_t put = send(o->inner, o->bytes + o->sent, o->n - o->sent, MSG_NOSIGNAL);

        if (put < 0 && errno != EAGAIN && errno != EINTR) {
                give_up(o, true);
                return;
        }
        o->sent += put > 0 ? (size_t)put : 0;
        if (o->sent < o->n) {
                wait_on(o);
                return;
        }
        (void)shutdown(o->inner, SHUT_WR);
        o->sent = 0;
        set_state(o, OPENING_LINGERING);
}

/* What the client has said is read, since closing over it would be a reset that overtakes our words. */
static void linger(struct opening *o)
{
        ssize_t got = recv(o->inner, o->bytes, ANSWER_BYTES, 0);

        if ((got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR))) && ++o->sent < LINGER_READS)
                wait_on(o);
        else
                give_up(o, false);
}

static void on_event(evutil_socket_t fd, short events, void *userdata)
{
        struct opening *o = userdata;

        (void)fd;
        if (events & EV_TIMEOUT) {
                if (o->state == OPENING_REFUSED)
                        set_state(o, OPENING_GUESSING);
                else
                        give_up(o, o->state != OPENING_LINGERING);
                return;
        }
        switch (o->state) {
        case OPENING_DIALLING: break;
        case OPENING_ASKING: ask(o); break;
        case OPENING_HEARING:
        case OPENING_REFUSED: hear(o); break;
        case OPENING_GUESSING: guess(o); break;
        case OPENING_TELLING: tell(o); break;
        case OPENING_LINGERING: linger(o); break;
        }
}

/* ---- opening */

/* Whom the client meant: the address that it connected to is the accepted socket's own, unless it was redirected. */
static int find_target(int fd, uint32_t *ret_address, uint16_t *ret_port)
{
        struct sockaddr_in a;
        socklen_t n = sizeof(a);
        int r;

        if (getsockname(fd, (struct sockaddr *)&a, &n) < 0)
                return -errno;
        if (a.sin_family != AF_INET)
                return -EADDRNOTAVAIL;
        if (!fake_pool_has(ntohl(a.sin_addr.s_addr))) {
                r = redirect_find_target(fd, &a);
                if (r < 0 || !fake_pool_has(ntohl(a.sin_addr.s_addr)))
                        return -EADDRNOTAVAIL;
        }
        *ret_address = ntohl(a.sin_addr.s_addr);
        *ret_port = ntohs(a.sin_port);
        return 0;
}

static int begin(struct opening *o, const char *name, uint16_t port)
{
        static_assert(ASK_BYTES < ANSWER_BYTES, "the question fits");

        o->n = (size_t)snprintf(o->bytes, sizeof(o->bytes),
                "CONNECT %s:%u HTTP/1.1\r\nHost: %s:%u\r\nWb-Via: transparent\r\n\r\n", name, port, name, port);
        o->dial = (struct host_dial){.base = o->carrier->base,
                .transport = &o->carrier->transport,
                .port = WB_PORT_EGRESS,
                .done = on_dialled};
        return host_dial_start(&o->dial, CARRIER_DIAL_LIMIT_MS);
}

int transparent_open(struct carrier *c, struct fake_pool *pool, int fd)
{
        struct opening *o;
        uint32_t address;
        uint16_t port;
        const char *name;
        int r = find_target(fd, &address, &port);

        name = r == 0 ? fake_pool_hold(pool, address, clock_monotonic_ns()) : NULL;
        if (!name) {
                /* Nobody of this life was told of that address. */
                (void)pair_reset_fd(fd);
                return r < 0 ? r : -EADDRNOTAVAIL;
        }
        o = malloc(sizeof(*o));
        if (!o) {
                (void)pair_reset_fd(fd);
                fake_pool_release(pool, address);
                return -ENOMEM;
        }
        o->carrier = c;
        o->pool = pool;
        o->address = address;
        o->state = OPENING_DIALLING;
        o->inner = fd;
        o->outer = -1;
        o->status = 0;
        o->sent = 0;
        (void)evtimer_assign(&o->event, c->base, on_event, o);
        carrier_enter(c);
        r = begin(o, name, port);
        if (r < 0)
                give_up(o, true);
        return r;
}
