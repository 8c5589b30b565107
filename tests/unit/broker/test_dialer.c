/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/dialer.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "proto/base/cleanup.h"
#include "proto/base/clock.h"
#include "proto/wire/hostname.h"
#include "tests/support/suite.h"

/* Addresses of 127/8, where nothing listens unless a test does. */

struct outcome {
        struct event_base *base;
        struct dialer *dialer;
        bool done;
        enum reason reason;
        int fd;
        struct dns_address address;
};

static void on_done(void *userdata, enum reason reason, int fd, const struct dns_address *address)
{
        struct outcome *o = userdata;

        CU_ASSERT_FALSE(o->done);
        o->done = true;
        o->reason = reason;
        o->fd = fd;
        if (address)
                o->address = *address;
        dialer_free(o->dialer);
        o->dialer = NULL;
        event_base_loopbreak(o->base);
}

static struct dns_address v4(const char *text)
{
        struct dns_address a = {.kind = HOST_IPV4};

        CU_ASSERT_EQUAL_FATAL(inet_pton(AF_INET, text, a.bytes), 1);
        return a;
}

static struct dns_address v6(const char *text)
{
        struct dns_address a = {.kind = HOST_IPV6};

        CU_ASSERT_EQUAL_FATAL(inet_pton(AF_INET6, text, a.bytes), 1);
        return a;
}

static int listen_at(const char *address, uint16_t *port, int backlog)
{
        struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(*port)};
        socklen_t n = sizeof(at);
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

        (void)inet_pton(AF_INET, address, &at.sin_addr);
        CU_ASSERT_FATAL(!bind(fd, (struct sockaddr *)&at, n) && !listen(fd, backlog));
        CU_ASSERT_EQUAL(getsockname(fd, (struct sockaddr *)&at, &n), 0);
        *port = ntohs(at.sin_port);
        return fd;
}

/* The milliseconds it took. */
static uint64_t dial(
        const struct dns_address *addresses, size_t n, uint16_t port, uint64_t timeout_ms, struct outcome *o)
{
        uint64_t began_ns = clock_monotonic_ns();

        *o = (struct outcome){.base = event_base_new(), .fd = -1};
        CU_ASSERT_EQUAL_FATAL(dialer_start(o->base, addresses, n, port, timeout_ms, on_done, o, &o->dialer), 0);
        CU_ASSERT_FALSE(o->done);
        event_base_dispatch(o->base);
        CU_ASSERT(o->done);
        event_base_free(o->base);
        close_fd(o->fd);
        return (clock_monotonic_ns() - began_ns) / NSEC_PER_MSEC;
}

static void test_next_at_once_after_a_refusal(void)
{
        uint16_t port = 0;
        int fd = listen_at("127.0.0.3", &port, 8);
        struct dns_address addresses[] = {v4("127.0.0.1"), v4("127.0.0.2"), v4("127.0.0.3")};
        struct outcome o;

        CU_ASSERT(dial(addresses, 3, port, 3000, &o) < 200);
        CU_ASSERT_EQUAL(o.reason, REASON_ALLOWED);
        CU_ASSERT_EQUAL(memcmp(o.address.bytes, addresses[2].bytes, 4), 0);
        close(fd);
}

static void test_all_refuse(void)
{
        uint16_t port = 0;
        int fd = listen_at("127.0.0.3", &port, 8);
        struct dns_address addresses[] = {v6("::1"), v4("127.0.0.1"), v4("127.0.0.2")};
        struct outcome o;

        (void)dial(addresses, 3, port, 2000, &o);
        CU_ASSERT_EQUAL(o.reason, REASON_UPSTREAM_REFUSED);
        (void)dial(addresses + 1, 2, port, 2000, &o);
        CU_ASSERT_EQUAL(o.reason, REASON_UPSTREAM_REFUSED);
        close(fd);
}

/* Fills a backlog, so that further SYNs vanish. */
static int listen_deaf(const char *address, uint16_t *port, int fillers[8])
{
        int fd = listen_at(address, port, 0);
        struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(*port)};

        (void)inet_pton(AF_INET, address, &to.sin_addr);
        for (unsigned i = 0; i < 8; i++) {
                fillers[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
                (void)connect(fillers[i], (struct sockaddr *)&to, sizeof(to));
        }
        usleep(50000);
        return fd;
}

static void test_second_starts_while_the_first_is_silent(void)
{
        uint16_t port = 0;
        int fillers[8];
        int deaf = listen_deaf("127.0.0.1", &port, fillers), fd = listen_at("127.0.0.2", &port, 8);
        struct dns_address addresses[] = {v4("127.0.0.1"), v4("127.0.0.2")};
        struct outcome o;

        uint64_t took_ms = dial(addresses, 2, port, 3000, &o);
        CU_ASSERT(took_ms >= DIALER_STAGGER_MS - 10 && took_ms < 3 * DIALER_STAGGER_MS);
        CU_ASSERT_EQUAL(o.reason, REASON_ALLOWED);
        CU_ASSERT_EQUAL(memcmp(o.address.bytes, addresses[1].bytes, 4), 0);

        took_ms = dial(addresses, 1, port, 400, &o);
        CU_ASSERT(took_ms >= 390 && took_ms < 900);
        CU_ASSERT_EQUAL(o.reason, REASON_UPSTREAM_TIMEOUT);
        for (unsigned i = 0; i < 8; i++)
                close(fillers[i]);
        close(deaf);
        close(fd);
}

/* More addresses than attempts at a time. */
static void test_many_addresses(void)
{
        struct dns_address addresses[DNS_ADDRESSES_MAX];
        uint16_t port = 0;
        int fd = listen_at("127.0.1.63", &port, 8);
        struct outcome o;

        for (unsigned i = 0; i < DNS_ADDRESSES_MAX; i++) {
                addresses[i] = v4("127.0.1.0");
                addresses[i].bytes[3] = (uint8_t)i;
        }
        (void)dial(addresses, DNS_ADDRESSES_MAX, port, 3000, &o);
        CU_ASSERT_EQUAL(o.reason, REASON_ALLOWED);
        CU_ASSERT_EQUAL(o.address.bytes[3], 63);
        close(fd);
}

static void test_unix_socket_that_is_not_there(void)
{
        struct outcome o = {.base = event_base_new(), .fd = -1};

        CU_ASSERT_EQUAL(dialer_start_unix(o.base, "/nowhere/at/all", 1000, on_done, &o, &o.dialer), 0);
        event_base_dispatch(o.base);
        CU_ASSERT_EQUAL(o.reason, REASON_UPSTREAM_REFUSED);
        event_base_free(o.base);
}

static void accept_one(evutil_socket_t fd, short what, void *userdata)
{
        (void)fd;
        (void)what;
        close(accept(*(int *)userdata, NULL, NULL));
}

/* A server that is behind with accepting is waited for, up to the deadline. */
static void test_unix_socket_with_a_full_backlog(void)
{
        struct sockaddr_un at = {.sun_family = AF_UNIX, .sun_path = ""};
        struct outcome o = {.base = event_base_new(), .fd = -1};
        int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), held[2];
        const struct timeval soon = {.tv_usec = 100000};

        (void)snprintf(at.sun_path, sizeof(at.sun_path), "/tmp/wb-dialer-%d", (int)getpid());
        CU_ASSERT_FATAL(!bind(listener, (struct sockaddr *)&at, sizeof(at)) && !listen(listener, 0));
        for (unsigned i = 0; i < 2; i++) {
                held[i] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
                (void)connect(held[i], (struct sockaddr *)&at, sizeof(at));
        }
        CU_ASSERT_EQUAL(dialer_start_unix(o.base, at.sun_path, 300, on_done, &o, &o.dialer), 0);
        event_base_dispatch(o.base);
        CU_ASSERT_EQUAL(o.reason, REASON_UPSTREAM_TIMEOUT);

        o = (struct outcome){.base = o.base, .fd = -1};
        CU_ASSERT_EQUAL(event_base_once(o.base, -1, EV_TIMEOUT, accept_one, &listener, &soon), 0);
        CU_ASSERT_EQUAL(dialer_start_unix(o.base, at.sun_path, 5000, on_done, &o, &o.dialer), 0);
        event_base_dispatch(o.base);
        CU_ASSERT_EQUAL(o.reason, REASON_ALLOWED);
        close(o.fd);
        close(held[0]);
        close(held[1]);
        close(listener);
        (void)unlink(at.sun_path);
        event_base_free(o.base);
}

int main(void)
{
        CU_TestInfo tests[] = {
                {"the next at once after a refusal", test_next_at_once_after_a_refusal},
                {"all refuse", test_all_refuse},
                {"the second starts while the first is silent", test_second_starts_while_the_first_is_silent},
                {"many addresses", test_many_addresses},
                {"a unix socket that is not there", test_unix_socket_that_is_not_there},
                {"a unix socket with a full backlog", test_unix_socket_with_a_full_backlog},
                CU_TEST_INFO_NULL,
        };

        return suite_run("dialer", tests);
}
