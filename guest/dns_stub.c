/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/dns_stub.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>

#include <event2/event.h>
#include <event2/event_struct.h>

#include "guest/dns_message.h"
#include "guest/dns_tcp.h"
#include "guest/fake_pool.h"
#include "guest/name_service.h"
#include "proto/base/clock.h"
#include "proto/wire/hostname.h"

#define UDP_SOCKETS_MAX  2u
#define DATAGRAMS_A_TURN 32u
#define PENDING_MAX      256u
#define PENDING_LIMIT_S  3 /* less than the 5 s after which resolvers ask again */

/* Where an answer goes. */
struct origin {
        struct dns_tcp_connection *tcp; /* NULL: UDP */
        int udp_fd;                     /* -1: nowhere any more */
        struct sockaddr_storage from;
        socklen_t from_n;
};

/* A question that the host is asked. */
struct pending {
        LIST_ENTRY(pending) link;
        struct dns_stub *stub;
        uint32_t number;
        struct origin origin;
        struct dns_query query;
        struct hostname host;
        struct event timer;
};
LIST_HEAD(pending_list, pending);

struct dns_stub {
        struct event_base *base;
        struct fake_pool *pool;
        void (*forbidden)(void *userdata);
        void *userdata;
        struct name_service *names;
        struct dns_tcp *tcp;
        struct event udp[UDP_SOCKETS_MAX];
        size_t udp_n;
        struct pending_list pending;
        size_t pending_n;
        uint32_t numbers; /* given out */
};

/* ---- answers */

static void send_reply(const struct origin *to, const struct dns_query *q, const struct dns_reply *reply)
{
        uint8_t bytes[DNS_REPLY_MAX_BYTES];
        size_t n = dns_build(q, reply, bytes, to->tcp ? sizeof(bytes) : dns_query_udp_room(q));

        if (to->tcp)
                dns_tcp_send(to->tcp, bytes, n);
        else if (to->udp_fd >= 0)
                (void)sendto(to->udp_fd, bytes, n, 0, (const struct sockaddr *)&to->from, to->from_n);
}

/* What of the questions a name of the pool has an answer for; all others are answered without data. */
static struct dns_reply allow(struct dns_stub *s, const struct dns_query *q, const struct hostname *host)
{
        struct dns_reply reply = {.ttl_s = FAKE_POOL_TTL_S};

        if (q->type != DNS_TYPE_A)
                return reply;
        if (fake_pool_give(s->pool, host, clock_monotonic_ns(), &reply.address) == 0)
                reply.has_address = true;
        else
                reply = (struct dns_reply){.rcode = DNS_SERVFAIL,
                        .has_error = true,
                        .error_text = "all addresses that stand for names are in use"};
        return reply;
}

/* What a little time heals is no word about the name. */
static bool is_temporary(const char *reason)
{
        static const char *const reasons[] = {"rate_limited", "not_ready", "audit_unavailable"};

        for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++)
                if (strcmp(reason, reasons[i]) == 0)
                        return true;
        return false;
}

static struct dns_reply deny(const char *reason, const char *detail)
{
        bool temporary = is_temporary(reason);

        return (struct dns_reply){.rcode = temporary ? DNS_SERVFAIL : DNS_NXDOMAIN,
                .has_error = true,
                .error = temporary ? DNS_EDE_NOT_READY : DNS_EDE_BLOCKED,
                .error_text = reason,
                .more_text = detail && detail[0] ? detail : NULL};
}

static struct dns_reply unreachable(void)
{
        return (struct dns_reply){.rcode = DNS_SERVFAIL,
                .has_error = true,
                .error = DNS_EDE_NO_REACHABLE_AUTHORITY,
                .error_text = "the host does not answer for names"};
}

/* ---- questions that the host is asked */

static void drop(struct pending *p)
{
        (void)evtimer_del(&p->timer);
        LIST_REMOVE(p, link);
        p->stub->pending_n--;
        free(p);
}

static void answer(struct pending *p, const struct dns_reply *reply)
{
        struct origin origin = p->origin;
        struct dns_query query = p->query;

        drop(p); /* before the answer: it may end the connection, which looks for its questions */
        send_reply(&origin, &query, reply);
}

static void on_answered(void *userdata, uint32_t number, const struct name_verdict *verdict)
{
        struct dns_stub *s = userdata;
        struct dns_reply reply;
        struct pending *p;

        LIST_FOREACH (p, &s->pending, link)
                if (p->number == number)
                        break;
        if (!p)
                return; /* its time was up */
        reply = verdict->allowed ? allow(s, &p->query, &p->host) : deny(verdict->reason, verdict->detail);
        answer(p, &reply);
}

static void on_lost(void *userdata)
{
        struct dns_stub *s = userdata;
        struct dns_reply reply = unreachable();

        while (!LIST_EMPTY(&s->pending))
                answer(LIST_FIRST(&s->pending), &reply);
}

static void on_late(evutil_socket_t fd, short events, void *userdata)
{
        struct dns_reply reply = unreachable();

        (void)fd;
        (void)events;
        answer(userdata, &reply);
}

static void ask(struct dns_stub *s, const struct origin *origin, const struct dns_query *q, const struct hostname *host)
{
        struct pending *p = s->pending_n < PENDING_MAX ? malloc(sizeof(*p)) : NULL;
        struct dns_reply reply = unreachable();
        int r;

        if (!p) {
                send_reply(origin, q, &reply);
                return;
        }
        p->stub = s;
        p->number = ++s->numbers;
        p->origin = *origin;
        p->query = *q;
        p->host = *host;
        LIST_INSERT_HEAD(&s->pending, p, link);
        s->pending_n++;
        (void)evtimer_assign(&p->timer, s->base, on_late, p);
        (void)evtimer_add(&p->timer, &(struct timeval){.tv_sec = PENDING_LIMIT_S});
        r = name_service_ask(s->names, p->number, host->text, q->type);
        if (r < 0)
                answer(p, &reply);
        if (r == -EACCES)
                s->forbidden(s->userdata);
}

/* ---- any question */

static bool is_about_a_host(uint16_t type)
{
        return type == DNS_TYPE_A || type == DNS_TYPE_AAAA || type == DNS_TYPE_HTTPS || type == DNS_TYPE_SVCB;
}

static struct dns_reply answer_reverse(const struct dns_stub *s, const struct dns_query *q)
{
        struct dns_reply reply = {.rcode = DNS_NXDOMAIN};
        uint32_t address;

        if (dns_query_reverse_ipv4(q, &address) && fake_pool_has(address))
                reply.ptr = fake_pool_name(s->pool, address);
        if (reply.ptr) {
                reply.rcode = DNS_NOERROR;
                reply.ttl_s = FAKE_POOL_TTL_S;
        }
        return reply;
}

/* True, and *ret is the answer: nothing of it is the host's to decide. Else *ret_host is what it is to be asked. */
static bool answer_alone(
        const struct dns_stub *s, const struct dns_query *q, struct dns_reply *ret, struct hostname *ret_host)
{
        char text[DNS_TEXT_BYTES];

        *ret = (struct dns_reply){.rcode = DNS_NOERROR};
        if (q->class == DNS_CLASS_IN && q->type == DNS_TYPE_PTR) {
                *ret = answer_reverse(s, q);
                return true;
        }
        if (q->class != DNS_CLASS_IN || !is_about_a_host(q->type)) {
                *ret = (struct dns_reply){.rcode = DNS_REFUSED,
                        .has_error = true,
                        .error = DNS_EDE_NOT_SUPPORTED,
                        .error_text = "only addresses of hosts are answered here"};
                return true;
        }
        if (q->name_n == 1)
                return true; /* the root is there, and no host */
        if (dns_query_text(q, text) && hostname_parse(text, strlen(text), ret_host) == 0 && ret_host->kind == HOST_NAME)
                return false;
        *ret = deny("malformed_request", "this is no name of a host");
        return true;
}

static void take_message(struct dns_stub *s, const struct origin *origin, const uint8_t *message, size_t n)
{
        enum dns_rcode rcode;
        struct dns_reply reply;
        struct hostname host;
        struct dns_query q;
        int r = dns_parse(message, n, &q, &rcode);

        if (r == DNS_E_DROP)
                return;
        if (r == DNS_E_RCODE) {
                reply = (struct dns_reply){.rcode = rcode};
                send_reply(origin, &q, &reply);
        } else if (answer_alone(s, &q, &reply, &host)) {
                send_reply(origin, &q, &reply);
        } else {
                ask(s, origin, &q, &host);
        }
}

/* ---- where they come from */

static void on_datagram(evutil_socket_t fd, short events, void *userdata)
{
        struct dns_stub *s = userdata;

        (void)events;
        for (unsigned i = 0; i < DATAGRAMS_A_TURN; i++) {
                uint8_t bytes[DNS_QUERY_MAX_BYTES + 1]; /* one that fills it was cut */
                struct origin origin = {.udp_fd = fd, .from_n = sizeof(origin.from)};
                ssize_t n = recvfrom(fd, bytes, sizeof(bytes), 0, (struct sockaddr *)&origin.from, &origin.from_n);

                if (n < 0 && errno != EINTR)
                        return;
                if (n > 0 && (size_t)n < sizeof(bytes))
                        take_message(s, &origin, bytes, (size_t)n);
        }
}

static void on_tcp_message(void *userdata, struct dns_tcp_connection *c, const uint8_t *message, size_t n)
{
        struct origin origin = {.tcp = c, .udp_fd = -1};

        take_message(userdata, &origin, message, n);
}

static void on_tcp_closed(void *userdata, struct dns_tcp_connection *c)
{
        struct dns_stub *s = userdata;
        struct pending *p;

        LIST_FOREACH (p, &s->pending, link)
                if (p->origin.tcp == c)
                        p->origin.tcp = NULL;
}

static const struct dns_tcp_handler tcp_handler = {.message = on_tcp_message, .closed = on_tcp_closed};
static const struct name_service_handler name_handler = {.answered = on_answered, .lost = on_lost};

int dns_stub_new(struct event_base *base, const struct transport *transport, struct fake_pool *pool,
        void (*forbidden)(void *userdata), void *userdata, struct dns_stub **ret)
{
        struct dns_stub *s = calloc(1, sizeof(*s));
        int r;

        if (!s)
                return -ENOMEM;
        s->base = base;
        s->pool = pool;
        s->forbidden = forbidden;
        s->userdata = userdata;
        r = dns_tcp_new(base, &tcp_handler, s, &s->tcp);
        if (r == 0)
                r = name_service_new(base, transport, &name_handler, s, &s->names);
        if (r < 0) {
                free(s->tcp);
                free(s);
                return r;
        }
        *ret = s;
        return 0;
}

int dns_stub_serve_udp(struct dns_stub *s, int fd)
{
        struct event *e = &s->udp[s->udp_n];

        if (s->udp_n == UDP_SOCKETS_MAX)
                return -ENOMEM;
        (void)event_assign(e, s->base, fd, EV_READ | EV_PERSIST, on_datagram, s);
        if (event_add(e, NULL) < 0)
                return -ENOMEM;
        s->udp_n++;
        return 0;
}

void dns_stub_open_tcp(struct dns_stub *s, int fd)
{
        dns_tcp_open(s->tcp, fd);
}
