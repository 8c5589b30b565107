/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/resolver.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/base/cleanup.h"
#include "proto/base/clock.h"
#include "tests/support/suite.h"

/*
 * The resolver against name servers of our own at port 53 of 127.0.0.1 and 127.0.0.2, in a network namespace that has
 * only lo. A name tells the server what to answer by its first label.
 */

#define SERVERS 2u

struct server {
        int udp;
        bool dead;
        int tcp;           /* listening */
        atomic_uint asked; /* questions over both */
        atomic_uint lost;  /* of those for lost* */
        char last[256];
};

struct world {
        struct event_base *base;
        pthread_t servers_thread;
        atomic_bool stop;
        struct resolver *resolver;
        struct server servers[SERVERS];
};

static void put16(uint8_t **p, unsigned v)
{
        *(*p)++ = (uint8_t)(v >> 8);
        *(*p)++ = (uint8_t)v;
}

/* owner is where its name stands in the message. */
static void put_record_of(uint8_t **p, size_t owner, unsigned type, unsigned ttl_s, const void *data, size_t n)
{
        put16(p, 0xc000 | (unsigned)owner);
        put16(p, type);
        put16(p, 1);
        put16(p, 0);
        put16(p, ttl_s);
        put16(p, (unsigned)n);
        memcpy(*p, data, n);
        *p += n;
}

static void put_record(uint8_t **p, unsigned type, unsigned ttl_s, const void *data, size_t n)
{
        put_record_of(p, 12, type, ttl_s, data, n);
}

static size_t read_name(const uint8_t *q, size_t n, char ret_name[256])
{
        size_t i = 12, k = 0;

        while (i < n && q[i]) {
                if (k)
                        ret_name[k++] = '.';
                memcpy(ret_name + k, q + i + 1, q[i]);
                k += q[i];
                i += 1u + q[i];
        }
        ret_name[k] = '\0';
        return i + 5; /* the root, type and class */
}

static unsigned addresses_due(const char *name)
{
        return !strncmp(name, "many", 4) ? DNS_ADDRESSES_MAX + 1 : !strncmp(name, "two", 3) ? 2 : 1;
}

/* The answer's length; 0: none. */
static size_t answer(struct server *s, const uint8_t *q, size_t n, bool tcp, uint8_t *out)
{
        size_t question_end = read_name(q, n, s->last);
        unsigned type = q[question_end - 3], rcode = 0, ttl_s = 60, answers = 0;
        bool truncated = !strncmp(s->last, "tc", 2) && !tcp;
        uint8_t *p = out + question_end;

        s->asked++;
        if (!strncmp(s->last, "silent", 6) || (!strncmp(s->last, "half", 4) && type == 28))
                return 0;
        if (!strncmp(s->last, "lost", 4) && s->lost++ < 2) /* one of each type */
                return 0;
        if (!strncmp(s->last, "nx", 2))
                rcode = 3;
        if (!strncmp(s->last, "ttl0", 4))
                ttl_s = 0;
        memcpy(out, q, question_end);
        if (!strncmp(s->last, "chain", 5)) { /* an alias of `edge`, for a second, which has an address for a minute */
                put_record(&p, 5, 1, "\4edge", 6);
                answers++;
                if (type == 1)
                        put_record_of(&p, question_end + 12, 1, 60, "\5\5\5\5", 4);
                answers += type == 1;
        } else if (!rcode && type == 1)
                for (; answers < addresses_due(s->last); answers++)
                        put_record(&p, 1, ttl_s, (const uint8_t[]){5, 5, (uint8_t)(answers >> 8), (uint8_t)answers}, 4);
        if (!rcode && type == 28 && !strncmp(s->last, "two", 3)) {
                put_record(&p, 28, ttl_s, "\x2a\x0f\0\0\0\0\0\0\0\0\0\0\0\0\0\1", 16);
                answers++;
        }
        out[2] = (uint8_t)(0x80 | (q[2] & 1) | (truncated ? 2 : 0));
        out[3] = (uint8_t)(0x80 | rcode);
        out[6] = (uint8_t)(answers >> 8);
        out[7] = (uint8_t)answers;
        out[8] = out[9] = out[10] = out[11] = 0;
        return (size_t)(p - out);
}

static void serve_udp(struct server *s)
{
        uint8_t q[512], out[16384];
        struct sockaddr_in from;
        socklen_t from_n = sizeof(from);
        ssize_t n = recvfrom(s->udp, q, sizeof(q), 0, (struct sockaddr *)&from, &from_n);
        size_t k = n > 16 ? answer(s, q, (size_t)n, false, out) : 0;

        if (k > 1200)
                k = 1200; /* what does not fit is cut; TC says so */
        if (k)
                (void)sendto(s->udp, out, k, 0, (struct sockaddr *)&from, from_n);
}

/* One message after the other, until none has come for a moment. */
static void serve_tcp(struct server *s)
{
        _cleanup_close_ int fd = accept4(s->tcp, NULL, NULL, SOCK_CLOEXEC);
        const struct timeval moment = {.tv_usec = 100000};
        uint8_t length[2], q[512], out[16386];

        (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &moment, sizeof(moment));
        while (recv(fd, length, 2, MSG_WAITALL) == 2) {
                size_t n = (size_t)length[0] << 8 | length[1];

                if (n > sizeof(q) || recv(fd, q, n, MSG_WAITALL) != (ssize_t)n)
                        return;
                size_t k = answer(s, q, n, true, out + 2);
                out[0] = (uint8_t)(k >> 8);
                out[1] = (uint8_t)k;
                (void)send(fd, out, k + 2, MSG_NOSIGNAL);
        }
}

static void *serve(void *userdata)
{
        struct world *w = userdata;
        struct pollfd fds[2 * SERVERS];

        for (unsigned i = 0; i < SERVERS; i++) {
                fds[2 * i] = (struct pollfd){.fd = w->servers[i].dead ? -1 : w->servers[i].udp, .events = POLLIN};
                fds[2 * i + 1] = (struct pollfd){.fd = w->servers[i].dead ? -1 : w->servers[i].tcp, .events = POLLIN};
        }
        while (!w->stop) {
                if (poll(fds, 2 * SERVERS, 20) <= 0)
                        continue;
                for (unsigned i = 0; i < SERVERS; i++) {
                        if (fds[2 * i].revents)
                                serve_udp(&w->servers[i]);
                        if (fds[2 * i + 1].revents)
                                serve_tcp(&w->servers[i]);
                }
        }
        return NULL;
}

static int bind_at(unsigned index, int type)
{
        struct sockaddr_in at = {
                .sin_family = AF_INET, .sin_port = htons(53), .sin_addr.s_addr = htonl(INADDR_LOOPBACK + index)};
        int fd = socket(AF_INET, type | SOCK_CLOEXEC, 0), on = 1;

        (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
        CU_ASSERT_EQUAL_FATAL(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0);
        return fd;
}

static void world_open_with(struct world *w, bool first_is_dead, unsigned servers_n, uint64_t timeout_ms)
{
        struct hostname addresses[SERVERS];
        struct resolver_config config = {
                .servers = addresses, .servers_n = servers_n, .timeout_ms = timeout_ms, .cache_max_s = 300};

        *w = (struct world){.base = event_base_new()};
        for (unsigned i = 0; i < SERVERS; i++) {
                struct server *s = &w->servers[i];
                const uint8_t at[4] = {127, 0, 0, (uint8_t)(i + 1)};

                hostname_from_address(HOST_IPV4, at, &addresses[i]);
                s->udp = bind_at(i, SOCK_DGRAM);
                s->tcp = bind_at(i, SOCK_STREAM);
                CU_ASSERT_EQUAL(listen(s->tcp, 8), 0);
                s->dead = first_is_dead && i == 0;
        }
        CU_ASSERT_EQUAL_FATAL(pthread_create(&w->servers_thread, NULL, serve, w), 0);
        CU_ASSERT_EQUAL_FATAL(resolver_new(w->base, &config, &w->resolver), 0);
}

static void world_open(struct world *w, bool first_is_dead)
{
        world_open_with(w, first_is_dead, SERVERS, 200);
}

static void world_close(struct world *w)
{
        resolver_free(w->resolver);
        w->stop = true;
        pthread_join(w->servers_thread, NULL);
        for (unsigned i = 0; i < SERVERS; i++) {
                close(w->servers[i].udp);
                close(w->servers[i].tcp);
        }
        event_base_free(w->base);
}

struct ask {
        struct resolver_waiter waiter;
        bool done;
        bool at_once;
        enum reason reason;
        size_t addresses_n;
};

static void take(struct ask *a, const struct dns_answer *got)
{
        a->done = true;
        a->reason = got->reason;
        a->addresses_n = got->addresses_n;
}

static void on_done(struct resolver_waiter *w, const struct dns_answer *got)
{
        take((struct ask *)(void *)w, got);
}

static void start(struct world *w, const char *text, struct ask *a)
{
        const struct dns_answer *got;
        struct hostname name;

        *a = (struct ask){.waiter.done = on_done};
        CU_ASSERT_EQUAL_FATAL(hostname_parse(text, strlen(text), &name), 0);
        int r = resolver_ask(w->resolver, &name, &a->waiter, &got);
        if (r == 0) {
                a->at_once = true;
                take(a, got);
        } else {
                CU_ASSERT_EQUAL(r, RESOLVER_E_PENDING);
        }
}

static void finish(struct world *w, struct ask *a)
{
        uint64_t end_ns = clock_monotonic_ns() + 3 * NSEC_PER_SEC;

        while (!a->done && clock_monotonic_ns() < end_ns) {
                (void)event_base_loop(w->base, EVLOOP_NONBLOCK);
                usleep(200);
        }
        CU_ASSERT(a->done);
}

static struct ask ask(struct world *w, const char *text)
{
        struct ask a;

        start(w, text, &a);
        finish(w, &a);
        return a;
}

static void test_each_type_once_then_from_memory(void)
{
        struct world w;

        world_open(&w, false);
        struct ask a = ask(&w, "two.example.org");
        CU_ASSERT_EQUAL(a.reason, REASON_ALLOWED);
        CU_ASSERT_EQUAL(a.addresses_n, 3);
        CU_ASSERT_EQUAL(w.servers[0].asked, 2);
        CU_ASSERT_EQUAL(w.servers[1].asked, 0);
        a = ask(&w, "two.example.org");
        CU_ASSERT(a.at_once);
        CU_ASSERT_EQUAL(a.addresses_n, 3);
        CU_ASSERT_EQUAL(w.servers[0].asked, 2);
        world_close(&w);
}

static void test_ttl_of_0_is_not_kept(void)
{
        struct world w;

        world_open(&w, false);
        (void)ask(&w, "ttl0.example.org");
        struct ask a = ask(&w, "ttl0.example.org");
        CU_ASSERT_FALSE(a.at_once);
        CU_ASSERT_EQUAL(w.servers[0].asked, 4);
        world_close(&w);
}

static void test_one_question_for_all_who_wait(void)
{
        struct world w;
        struct ask asks[50];

        world_open(&w, false);
        for (unsigned i = 0; i < 50; i++)
                start(&w, "shared.example.org", &asks[i]);
        resolver_cancel(&asks[7].waiter);
        for (unsigned i = 0; i < 50; i++)
                if (i != 7)
                        finish(&w, &asks[i]);
        CU_ASSERT_FALSE(asks[7].done);
        CU_ASSERT_EQUAL(w.servers[0].asked, 2);
        world_close(&w);
}

static void test_no_such_name_is_remembered(void)
{
        struct world w;

        world_open(&w, false);
        CU_ASSERT_EQUAL(ask(&w, "nx.example.org").reason, REASON_DNS_FAILURE);
        struct ask a = ask(&w, "nx.example.org");
        CU_ASSERT(a.at_once);
        CU_ASSERT_EQUAL(a.reason, REASON_DNS_FAILURE);
        CU_ASSERT_EQUAL(w.servers[0].asked, 2);
        world_close(&w);
}

static void test_truncated_is_asked_over_tcp(void)
{
        struct world w;

        world_open(&w, false);
        struct ask a = ask(&w, "tc.example.org");
        CU_ASSERT_EQUAL(a.reason, REASON_ALLOWED);
        CU_ASSERT_EQUAL(a.addresses_n, 1);
        CU_ASSERT_EQUAL(w.servers[0].asked, 4);
        world_close(&w);
}

/* Leaving some out would leave them unjudged. */
static void test_too_many_addresses_are_none(void)
{
        struct world w;

        world_open(&w, false);
        CU_ASSERT_EQUAL(ask(&w, "many-tc.example.org").reason, REASON_DNS_FAILURE);
        world_close(&w);
}

static void test_silence_is_a_timeout(void)
{
        struct world w;

        world_open(&w, false);
        CU_ASSERT_EQUAL(ask(&w, "silent.example.org").reason, REASON_DNS_TIMEOUT);
        CU_ASSERT_FALSE(ask(&w, "silent.example.org").at_once);
        world_close(&w);
}

/* The second server answers for a dead first one, and from then on is asked first. */
static void test_failover(void)
{
        struct world w;

        world_open(&w, true);
        CU_ASSERT_EQUAL(ask(&w, "a.example.org").reason, REASON_ALLOWED);
        CU_ASSERT_EQUAL(w.servers[1].asked, 2);
        (void)event_base_loop(w.base, EVLOOP_NONBLOCK);
        uint64_t began_ns = clock_monotonic_ns();
        CU_ASSERT_EQUAL(ask(&w, "b.example.org").reason, REASON_ALLOWED);
        CU_ASSERT(clock_monotonic_ns() - began_ns < 150 * NSEC_PER_MSEC);
        world_close(&w);
}

static void test_no_search_domain(void)
{
        struct world w;

        CU_ASSERT_EQUAL(setenv("LOCALDOMAIN", "corp.example.net", 1), 0);
        world_open(&w, false);
        CU_ASSERT_EQUAL(ask(&w, "nxsingle").reason, REASON_DNS_FAILURE);
        CU_ASSERT_STRING_EQUAL(w.servers[0].last, "nxsingle");
        CU_ASSERT_EQUAL(w.servers[0].asked, 2);
        world_close(&w);
        (void)unsetenv("LOCALDOMAIN");
}

/* A lost packet is not a server's silence: it is asked again well within the time. */
static void test_a_lost_question_is_sent_again(void)
{
        struct world w;

        world_open_with(&w, false, 1, 1500);
        uint64_t began_ns = clock_monotonic_ns();
        CU_ASSERT_EQUAL(ask(&w, "lost.example.org").reason, REASON_ALLOWED);
        uint64_t took_ns = clock_monotonic_ns() - began_ns;
        CU_ASSERT(took_ns >= 450 * NSEC_PER_MSEC && took_ns < 1200 * NSEC_PER_MSEC);
        CU_ASSERT_EQUAL(w.servers[0].asked, 4);
        world_close(&w);
}

/* Nor is a quick server one that never needs its time. */
static void test_a_quick_server_has_its_whole_time(void)
{
        struct world w;

        world_open_with(&w, false, 1, 1500);
        for (int i = 0; i < 12; i++) {
                char name[32];

                (void)snprintf(name, sizeof(name), "n%d.example.org", i);
                CU_ASSERT_EQUAL(ask(&w, name).reason, REASON_ALLOWED);
        }
        uint64_t began_ns = clock_monotonic_ns();
        CU_ASSERT_EQUAL(ask(&w, "silent.example.org").reason, REASON_DNS_TIMEOUT);
        uint64_t took_ns = clock_monotonic_ns() - began_ns;
        CU_ASSERT(took_ns >= 1100 * NSEC_PER_MSEC && took_ns < 2200 * NSEC_PER_MSEC);
        CU_ASSERT(w.servers[0].asked >= 2 * 12 + 4);
        world_close(&w);
}

/* The least TTL of the chain counts, raised to the floor of two seconds. */
static void test_chain(void)
{
        struct world w;

        world_open(&w, false);
        struct ask a = ask(&w, "chain.example.org");
        CU_ASSERT_EQUAL(a.reason, REASON_ALLOWED);
        CU_ASSERT_EQUAL(a.addresses_n, 1);
        usleep(1200000);
        CU_ASSERT(ask(&w, "chain.example.org").at_once);
        usleep(1200000);
        CU_ASSERT_FALSE(ask(&w, "chain.example.org").at_once);
        CU_ASSERT_EQUAL(w.servers[0].asked, 4);
        world_close(&w);
}

/* One type without an answer: what the other says is used, but not for long. */
static void test_half_an_answer(void)
{
        struct world w;
        struct hostname name;

        world_open(&w, false);
        struct ask a = ask(&w, "half.example.org");
        CU_ASSERT_EQUAL(a.reason, REASON_ALLOWED);
        CU_ASSERT_EQUAL(a.addresses_n, 1);
        CU_ASSERT_EQUAL(hostname_parse("half.example.org", 16, &name), 0);
        CU_ASSERT(resolver_knows(w.resolver, &name));
        CU_ASSERT_EQUAL(hostname_parse("other.example.org", 17, &name), 0);
        CU_ASSERT_FALSE(resolver_knows(w.resolver, &name));
        world_close(&w);
}

static int enter_own_network(void)
{
        struct ifreq up = {.ifr_name = "lo", .ifr_flags = IFF_UP};

        if (unshare(CLONE_NEWNET) < 0 && unshare(CLONE_NEWUSER | CLONE_NEWNET) < 0)
                return -errno;
        _cleanup_close_ int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        return ioctl(fd, SIOCSIFFLAGS, &up) < 0 ? -errno : 0;
}

int main(void)
{
        CU_TestInfo tests[] = {
                {"each type once, then from memory", test_each_type_once_then_from_memory},
                {"a TTL of 0 is not kept", test_ttl_of_0_is_not_kept},
                {"one question for all who wait", test_one_question_for_all_who_wait},
                {"no such name is remembered", test_no_such_name_is_remembered},
                {"truncated: asked over TCP", test_truncated_is_asked_over_tcp},
                {"too many addresses are none", test_too_many_addresses_are_none},
                {"silence is a timeout", test_silence_is_a_timeout},
                {"failover", test_failover},
                {"no search domain", test_no_search_domain},
                {"a lost question is sent again", test_a_lost_question_is_sent_again},
                {"a quick server has its whole time", test_a_quick_server_has_its_whole_time},
                {"a chain of aliases", test_chain},
                {"half an answer", test_half_an_answer},
                CU_TEST_INFO_NULL,
        };
        int r = enter_own_network();

        if (r < 0) {
                (void)fprintf(stderr, "skipped: no network namespace of its own: %s\n", strerror(-r));
                return 77;
        }
        return suite_run("resolver", tests);
}
