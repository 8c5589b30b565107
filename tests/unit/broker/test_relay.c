/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/relay.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/base/clock.h"
#include "tests/support/suite.h"

/* Two socket pairs with a relay between them: client <-> [peer client, peer server] <-> server. */
struct line {
        struct event_base *base;
        struct budget budget;
        struct policy policy;
        struct limits limits;
        struct pipe_pool pool;
        struct peer peers[2];
        struct relay relay;
        int client;
        int server;
};

static void on_event(evutil_socket_t fd, short what, void *userdata)
{
        (void)fd;
        (void)what;
        (void)userdata;
}

static void line_open(struct line *l, const struct policy_limits *most)
{
        int client[2], server[2];

        *l = (struct line){.base = event_base_new(), .budget.most_bytes = 1 << 20, .policy.limits = *most};
        CU_ASSERT_EQUAL_FATAL(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, client), 0);
        CU_ASSERT_EQUAL_FATAL(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, server), 0);
        CU_ASSERT_EQUAL_FATAL(limits_init(&l->limits, &l->policy, clock_monotonic_ns()), 0);
        for (unsigned i = 0; i < 2; i++)
                peer_init(&l->peers[i], &l->budget);
        peer_attach(&l->peers[0], l->base, client[1], on_event, NULL);
        peer_attach(&l->peers[1], l->base, server[1], on_event, NULL);
        l->client = client[0];
        l->server = server[0];
}

static void line_start(struct line *l)
{
        CU_ASSERT_EQUAL_FATAL(
                relay_init(&l->relay, &l->peers[0], &l->peers[1], &l->pool, &l->limits, DECISION_NO_RULE), 0);
}

static void line_close(struct line *l)
{
        relay_done(&l->relay);
        peer_close(&l->peers[0]);
        peer_close(&l->peers[1]);
        pipe_pool_done(&l->pool);
        limits_done(&l->limits);
        close(l->client);
        close(l->server);
        CU_ASSERT_EQUAL(l->budget.used_bytes, 0);
        event_base_free(l->base);
}

static size_t take(int fd, char *to, size_t room)
{
        ssize_t n = recv(fd, to, room, MSG_DONTWAIT);

        return n > 0 ? (size_t)n : 0;
}

static bool ended(int fd)
{
        char byte;

        return recv(fd, &byte, 1, MSG_DONTWAIT) == 0;
}

static void test_both_ways_and_each_fin(void)
{
        struct policy_limits none = {0};
        struct line l;
        char got[64];

        line_open(&l, &none);
        (void)buffer_append(&l.peers[0].in, "held ", 5);
        line_start(&l);
        CU_ASSERT_EQUAL(send(l.client, "up", 2, 0), 2);
        CU_ASSERT_EQUAL(shutdown(l.client, SHUT_WR), 0);
        CU_ASSERT_EQUAL(relay_pump(&l.relay, 1), RELAY_GOES_ON);
        CU_ASSERT_EQUAL(take(l.server, got, sizeof(got)), 7);
        CU_ASSERT_EQUAL(memcmp(got, "held up", 7), 0);
        CU_ASSERT(ended(l.server));

        CU_ASSERT_EQUAL(send(l.server, "down", 4, 0), 4);
        CU_ASSERT_EQUAL(relay_pump(&l.relay, 2), RELAY_GOES_ON);
        CU_ASSERT_EQUAL(take(l.client, got, sizeof(got)), 4);
        CU_ASSERT_EQUAL(shutdown(l.server, SHUT_WR), 0);
        CU_ASSERT_EQUAL(relay_pump(&l.relay, 3), RELAY_ENDED);
        CU_ASSERT(ended(l.client));
        CU_ASSERT_EQUAL(l.relay.up.moved_bytes, 2);
        CU_ASSERT_EQUAL(l.relay.down.moved_bytes, 4);
        line_close(&l);
}

/* All of it arrives although nobody reads for long, in bounded memory, and the FIN comes last. */
static void run_bulk(bool copies)
{
        struct policy_limits none = {0};
        struct line l;
        char chunk[50000];
        uint64_t sent = 0, received = 0, most = 2000000;
        uint8_t next = 0, expected = 0;

        line_open(&l, &none);
        line_start(&l);
        l.relay.up.copies = copies;
        for (unsigned turn = 0; turn < 100000 && received < most; turn++) {
                if (sent < most && turn % 3) {
                        for (size_t i = 0; i < sizeof(chunk); i++)
                                chunk[i] = (char)(uint8_t)(next + i);
                        ssize_t n = send(l.client, chunk, sizeof(chunk), MSG_DONTWAIT);
                        if (n > 0) {
                                sent += (uint64_t)n;
                                next = (uint8_t)(next + n);
                        }
                        if (sent >= most)
                                shutdown(l.client, SHUT_WR);
                }
                CU_ASSERT_EQUAL_FATAL(relay_pump(&l.relay, turn + 1), RELAY_GOES_ON);
                CU_ASSERT(l.budget.used_bytes <= 65536);
                size_t n = turn % 5 ? take(l.server, chunk, 7000) : 0;
                for (size_t i = 0; i < n; i++)
                        CU_ASSERT_EQUAL_FATAL((uint8_t)chunk[i], expected++);
                received += n;
                if (sent >= most)
                        most = sent;
        }
        CU_ASSERT_EQUAL(received, sent);
        (void)relay_pump(&l.relay, 1000000);
        CU_ASSERT(ended(l.server));
        line_close(&l);
}

static void test_bulk_spliced(void)
{
        run_bulk(false);
}

static void test_bulk_copied(void)
{
        run_bulk(true);
}

static void test_idle_holds_no_pipe(void)
{
        struct policy_limits none = {0};
        struct line l;
        char got[8];

        line_open(&l, &none);
        line_start(&l);
        CU_ASSERT_EQUAL(send(l.client, "x", 1, 0), 1);
        CU_ASSERT_EQUAL(relay_pump(&l.relay, 1), RELAY_GOES_ON);
        CU_ASSERT_EQUAL(take(l.server, got, sizeof(got)), 1);
        CU_ASSERT_EQUAL(l.relay.up.pipe.read_fd, -1);
        CU_ASSERT_EQUAL(l.pool.idle_n, 1);
        line_close(&l);
}

static void test_client_that_goes_ends_it(void)
{
        struct policy_limits none = {0};
        struct line l;
        char got[8];

        line_open(&l, &none);
        line_start(&l);
        CU_ASSERT_EQUAL(send(l.client, "last", 4, 0), 4);
        close(l.client);
        l.client = -1;
        CU_ASSERT_EQUAL(relay_pump(&l.relay, 1), RELAY_ENDED);
        CU_ASSERT_EQUAL(take(l.server, got, sizeof(got)), 4);
        line_close(&l);
}

/* However much comes before it, the end is not lost: no event tells of it a second time. */
static void test_end_after_any_amount(void)
{
        struct policy_limits none = {0};
        char chunk[16384] = {0};

        for (unsigned chunks = 0; chunks < 12; chunks++) {
                struct line l;
                bool over = false;

                line_open(&l, &none);
                line_start(&l);
                for (unsigned i = 0; i < chunks; i++)
                        CU_ASSERT_EQUAL_FATAL(send(l.server, chunk, sizeof(chunk), MSG_DONTWAIT), sizeof(chunk));
                shutdown(l.server, SHUT_WR);
                for (unsigned turn = 0; turn < 200 && !over; turn++) {
                        CU_ASSERT_EQUAL(relay_pump(&l.relay, turn + 1), RELAY_GOES_ON);
                        (void)relay_want(&l.relay);
                        if (!l.peers[1].wants_read && !l.peers[0].wants_write)
                                over = true;
                        while (take(l.client, chunk, 5000))
                                ;
                }
                CU_ASSERT(over);
                CU_ASSERT(ended(l.client));
                line_close(&l);
        }
}

static void test_quota_ends_it(void)
{
        struct policy_limits most = {.quota_bytes = 3};
        struct line l;
        char got[8];

        line_open(&l, &most);
        line_start(&l);
        CU_ASSERT_EQUAL(send(l.client, "four", 4, 0), 4);
        CU_ASSERT_EQUAL(relay_pump(&l.relay, clock_monotonic_ns()), RELAY_QUOTA);
        CU_ASSERT_EQUAL(take(l.server, got, sizeof(got)), 3);
        line_close(&l);
}

static void test_rate_makes_it_wait(void)
{
        struct policy_limits most = {.rate_bps = 1000, .burst_bytes = 10};
        struct line l;
        char got[64];
        uint64_t now_ns;

        line_open(&l, &most);
        line_start(&l);
        now_ns = l.limits.vm.bytes[LIMITS_UP].updated_ns;
        CU_ASSERT_EQUAL(send(l.client, "0123456789abcdef", 16, 0), 16);
        CU_ASSERT_EQUAL(relay_pump(&l.relay, now_ns), RELAY_GOES_ON);
        CU_ASSERT_EQUAL(take(l.server, got, sizeof(got)), 10);

        uint64_t wait_ns = relay_want(&l.relay);
        CU_ASSERT(wait_ns > 0 && wait_ns <= 20 * NSEC_PER_MSEC);
        CU_ASSERT_FALSE(l.peers[0].wants_read);
        CU_ASSERT_EQUAL(relay_pump(&l.relay, now_ns + wait_ns), RELAY_GOES_ON);
        CU_ASSERT(take(l.server, got, sizeof(got)) > 0);
        line_close(&l);
}

int main(void)
{
        CU_TestInfo tests[] = {
                {"both ways, each FIN by itself", test_both_ways_and_each_fin},
                {"bulk, spliced", test_bulk_spliced},
                {"bulk, copied", test_bulk_copied},
                {"an idle one holds no pipe", test_idle_holds_no_pipe},
                {"a client that goes ends it", test_client_that_goes_ends_it},
                {"the end after any amount", test_end_after_any_amount},
                {"a quota ends it", test_quota_ends_it},
                {"a rate makes it wait", test_rate_makes_it_wait},
                CU_TEST_INFO_NULL,
        };

        return suite_run("relay", tests);
}
